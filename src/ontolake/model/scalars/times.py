"""Moments, dates, times of day and durations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from ontolake.model.scalars.base import UNFIT, Codec, Digits, Scalar, dump

if TYPE_CHECKING:
    import pyarrow as pa
    from pydantic import TypeAdapter
    from pyspark.sql import Column as Expression
    from pyspark.sql.types import DataType

_MOMENT = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?\s*(Z|[+-]\d{2}:?\d{2})?)?$"
_TIME = r"^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?$"
_DURATION = r"^([+-]?)P(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,6})?)S)?)?$"
_EPOCH = date(1970, 1, 1).toordinal()
_ZONE = "a time of day must have no zone"
_MICROSECOND = timedelta(microseconds=1)
_DAY = 86_400_000_000


def encode_datetime(value: datetime) -> str:
    """With a zone: the moment in UTC. Without: as it is, which sorts as if it were UTC."""
    if value.tzinfo is None:
        return value.isoformat(timespec="microseconds")
    try:
        moment = value if value.tzinfo is UTC else value.astimezone(UTC)
    except OverflowError:
        raise ValueError("the moment lies outside of years 1 to 9999 in UTC") from None
    # Without its zone a moment becomes text ten times as fast.
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "+00:00"


def encode_time(value: time) -> str:
    """Always with microseconds, so that texts sort as times do."""
    if value.tzinfo is not None:
        raise ValueError(_ZONE)
    return value.isoformat(timespec="microseconds")


def encode_timedelta(value: timedelta) -> int:
    """The number of microseconds."""
    found = value // _MICROSECOND
    if -(2**63) <= found < 2**63:
        return found
    raise ValueError("the duration does not fit into 64 bits of microseconds")


def decode_timedelta(value: float) -> timedelta:
    return timedelta(microseconds=value)


def duration_text(microseconds: int) -> str:
    """A duration in ISO 8601: `P1DT2H3.5S`, `-PT1S`, `PT0S`."""
    sign, rest = ("-" if microseconds < 0 else ""), abs(microseconds)
    days, rest = divmod(rest, _DAY)
    hours, rest = divmod(rest, 3_600_000_000)
    minutes, rest = divmod(rest, 60_000_000)
    seconds, micros = divmod(rest, 1_000_000)
    parts = [f"{hours}H" if hours else "", f"{minutes}M" if minutes else ""]
    if seconds or micros:
        parts.append(f"{seconds}{f'.{micros:06}'.rstrip('0') if micros else ''}S")
    clock = "".join(parts)
    found = (f"{days}D" if days else "") + (f"T{clock}" if clock else "")
    return f"{sign}P{found}" if found else "PT0S"


@cache
def _durations() -> TypeAdapter[timedelta]:
    from pydantic import TypeAdapter

    return TypeAdapter(timedelta)


def parse_duration(text: str) -> timedelta:
    """A duration from ISO 8601 or `1 day, 02:03:04`. Raises `ValueError`."""
    try:
        return _durations().validate_strings(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a duration such as P1DT2H30M") from error


def _within_years(values: Any) -> bool:
    """Whether Python has dates for all values: years 1 to 9999."""
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = values.cast(pa.int32() if values.type == pa.date32() else pa.int64())
    ends = pc.min_max(plain)
    if not ends["min"].is_valid:
        return True
    scale = 1 if values.type == pa.date32() else _DAY
    low, high = (date.min.toordinal() - _EPOCH) * scale, (date.max.toordinal() - _EPOCH + 1) * scale
    return bool(low <= ends["min"].as_py() and ends["max"].as_py() < high)


class _Temporal(Scalar):
    def spark_literal(self, value: Any) -> Any:
        return value

    def lance_value(self, value: Any) -> Any:
        return self.parse(value) if isinstance(value, str) else value

    def _exact(self, value: Any) -> Any:
        """The same where Arrow would take numbers."""
        found = _Temporal.lance_value(self, value)
        if not isinstance(found, self.python):
            raise ValueError(f"{value!r} is not of the type {self.name}")
        return found


class DatetimeScalar(_Temporal):
    name, python, codec = "datetime", datetime, Codec(encode_datetime, datetime.fromisoformat, frozenset({datetime}))
    wanted = "is not a moment such as 2024-01-31T12:00:00Z"
    spark = "timestamp"
    key = zoned = json_ordered = statistics = ranged = planned = arrow_checked = True
    filter_types = (datetime,)
    lance_casts = lance_reads = True

    def json_writer(self) -> Callable[[Any], str]:
        return dump

    def arrow_type(self, digits: Digits = None) -> pa.DataType:
        import pyarrow as pa

        return pa.timestamp("us", tz="UTC")

    def parquet_type(self, digits: Digits = None) -> str:
        return "TIMESTAMP(us, tz=UTC)"

    def to_arrow(self, values: Sequence[Any], digits: Digits = None) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        # Fixed width up to the microseconds; what follows can only be +00:00.
        plain = pc.utf8_slice_codeunits(pa.array(values, pa.string()), 0, 26).cast(pa.timestamp("us"))
        return pc.assume_timezone(plain, "UTC")

    def from_arrow(self, values: Any) -> list[Any]:
        import pyarrow.compute as pc

        zone = "" if values.type.tz is None else "+00:00"
        return list(pc.strftime(values, format=f"%Y-%m-%dT%H:%M:%S{zone}").to_pylist())

    def arrow_fits(self, kind: pa.DataType) -> bool:
        import pyarrow.types as is_

        return bool(is_.is_timestamp(kind))

    def arrow_valid(self, values: Any) -> bool:
        return _within_years(values)

    def arrow_comparand(self, value: Any) -> Any:
        moment = datetime.fromisoformat(value)
        return UNFIT if moment.tzinfo is None else moment

    def spark_value(self, given: Expression, kind: DataType, digits: Digits) -> tuple[Expression, Expression] | None:
        from pyspark.sql import functions as F

        return (given.cast("timestamp"), F.lit(True)) if kind.typeName() in ("timestamp", "timestamp_ntz") else None

    def spark_parse(self, text: Expression, digits: Digits) -> tuple[Expression, Expression]:
        from pyspark.sql import functions as F

        plain = F.trim(text)
        value = plain.try_cast("timestamp")
        return value, value.isNotNull() & plain.rlike(_MOMENT)

    def lance_value(self, value: Any) -> Any:
        value = super().lance_value(value)
        return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value

    def lance_json(self, value: Any) -> Any:
        return value.isoformat()

    def lance_literal(self, value: Any) -> str:
        moment = value if value.tzinfo is None else value.astimezone(UTC)
        return f"timestamp '{moment.strftime('%Y-%m-%d %H:%M:%S.%f')}'"


class DateScalar(_Temporal):
    name, python, codec = "date", date, Codec(date.isoformat, date.fromisoformat, frozenset({date}))
    wanted = "is not a date such as 2024-01-31"
    spark = "date"
    key = json_ordered = statistics = ranged = planned = arrow_checked = True
    filter_types = (date,)
    lance_casts = lance_reads = True

    def json_writer(self) -> Callable[[Any], str]:
        return dump

    def arrow_type(self, digits: Digits = None) -> pa.DataType:
        import pyarrow as pa

        return pa.date32()

    def parquet_type(self, digits: Digits = None) -> str:
        return "DATE"

    def to_arrow(self, values: Sequence[Any], digits: Digits = None) -> pa.Array:
        import pyarrow as pa

        return pa.array(values, pa.string()).cast(pa.date32())

    def from_arrow(self, values: Any) -> list[Any]:
        import pyarrow as pa

        return list(values.cast(pa.string()).to_pylist())

    def arrow_valid(self, values: Any) -> bool:
        return _within_years(values)

    def arrow_comparand(self, value: Any) -> Any:
        return date.fromisoformat(value)

    def spark_parse(self, text: Expression, digits: Digits) -> tuple[Expression, Expression]:
        from pyspark.sql import functions as F

        plain = F.trim(text)
        value = plain.try_cast("date")
        return value, value.isNotNull() & plain.rlike(r"^\d{4}-\d{2}-\d{2}$")

    def lance_json(self, value: Any) -> Any:
        return value.isoformat()

    def lance_literal(self, value: Any) -> str:
        return f"date '{value.isoformat()}'"


class TimeScalar(_Temporal):
    """Times of day without a zone: text with microseconds in SQLite, `time64[us]` in Arrow, text in Spark."""

    name, python, codec = "time", time, Codec(encode_time, time.fromisoformat, frozenset({time}))
    wanted = "is not a time of day such as 12:30:00"
    json_ordered = arrow_checked = True
    lance_casts = True

    def json_writer(self) -> Callable[[Any], str]:
        return dump

    def arrow_type(self, digits: Digits = None) -> pa.DataType:
        import pyarrow as pa

        return pa.time64("us")

    def parquet_type(self, digits: Digits = None) -> str:
        return "TIME(us)"

    def to_arrow(self, values: Sequence[Any], digits: Digits = None) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        # Arrow has no cast from text, but one from moments.
        texts = pc.binary_join_element_wise(pa.scalar("1970-01-01T", pa.string()), pa.array(values, pa.string()),
                                            pa.scalar("", pa.string()))
        return texts.cast(pa.timestamp("us")).cast(pa.time64("us"))

    def from_arrow(self, values: Any) -> list[Any]:
        import pyarrow as pa

        return list(values.cast(pa.string()).to_pylist())

    def arrow_valid(self, values: Any) -> bool:
        import pyarrow as pa
        import pyarrow.compute as pc

        ends = pc.min_max(values.cast(pa.int64()))
        return not ends["min"].is_valid or bool(ends["min"].as_py() >= 0 and ends["max"].as_py() < _DAY)

    def parallel_type(self, digits: Digits = None) -> pa.DataType:
        import pyarrow as pa

        return pa.string()

    def spark_parse(self, text: Expression, digits: Digits) -> tuple[Expression, Expression]:
        from pyspark.sql import functions as F

        plain = F.trim(text)
        seconds = F.when(F.length(plain) > 5, F.substring(plain, 6, 3)).otherwise(F.lit(":00"))
        micros = F.rpad(F.regexp_extract(plain, r"\.(\d+)$", 1), 6, "0")
        return F.concat(F.substring(plain, 1, 5), seconds, F.lit("."), micros), plain.rlike(_TIME)

    def spark_literal(self, value: Any) -> Any:
        return encode_time(value)

    def lance_takes(self, kind: pa.DataType) -> bool:
        import pyarrow.types as is_

        return bool(is_.is_time(kind))  # Arrow would take numbers for microseconds, and drop the date of moments

    def lance_value(self, value: Any) -> Any:
        found = self._exact(value)
        if found.tzinfo is not None:  # which Arrow would drop
            raise ValueError(_ZONE)
        return found

    def lance_json(self, value: Any) -> Any:
        return value.isoformat()

    def lance_literal(self, value: Any) -> str:
        return f"arrow_cast('{encode_time(value)}', 'Time64(Microsecond)')"


class TimedeltaScalar(_Temporal):
    """Durations: microseconds in SQLite and Parquet, `duration[us]` in Arrow and Lance, ISO 8601 in JSON."""

    name, python = "timedelta", timedelta
    codec = Codec(encode_timedelta, decode_timedelta, frozenset({timedelta}))
    wanted = "is not a duration such as P1DT2H30M"
    sqlite = "INTEGER"
    spark = "interval day to second"
    sums = "value"
    statistics = prunes = arrow_checked = True
    filter_types = (timedelta,)
    lance_casts = True

    def parse(self, text: str) -> Any:
        return parse_duration(text)

    def to_json(self, value: Any) -> Any:
        return duration_text(value)

    def from_json(self, value: Any) -> Any:
        return parse_duration(value) if isinstance(value, str) else value

    def arrow_type(self, digits: Digits = None) -> pa.DataType:
        import pyarrow as pa

        return pa.duration("us")

    def physical_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.int64()

    def to_arrow(self, values: Sequence[Any], digits: Digits = None) -> pa.Array:
        import pyarrow as pa

        return pa.array(values, pa.int64()).cast(pa.duration("us"))

    def from_arrow(self, values: Any) -> list[Any]:
        import pyarrow as pa

        return list(values.cast(pa.int64()).to_pylist())

    def spark_parse(self, text: Expression, digits: Digits) -> tuple[Expression, Expression]:
        from pyspark.sql import functions as F

        plain = F.trim(text)
        days, hours, minutes = (F.regexp_extract(plain, _DURATION, part).try_cast("int") for part in (2, 3, 4))
        seconds = F.regexp_extract(plain, _DURATION, 5).try_cast("decimal(18, 6)")
        zero = F.lit(0)
        parts = F.coalesce(days, zero), F.coalesce(hours, zero), F.coalesce(minutes, zero)
        rest = F.coalesce(seconds, zero.cast("decimal(18, 6)"))
        whole = rest.cast("bigint")
        for part, length in zip(parts, (86_400, 3_600, 60), strict=True):
            whole = whole + part.cast("bigint") * length
        fits = whole < 2**63 // 1_000_000  # else Spark would end the job
        found = F.when(fits, F.make_dt_interval(*parts, rest))
        value = F.when(plain.startswith("-"), -found).otherwise(found)
        return value, plain.rlike(_DURATION) & plain.rlike(r"\d") & fits

    def lance_takes(self, kind: pa.DataType) -> bool:
        import pyarrow.types as is_

        return bool(is_.is_duration(kind))  # Arrow would take numbers for microseconds

    def lance_value(self, value: Any) -> Any:
        return self._exact(value)

    def lance_json(self, value: Any) -> Any:
        return duration_text(encode_timedelta(value))

    def lance_literal(self, value: Any) -> str:
        return f"arrow_cast({encode_timedelta(value)}, 'Duration(Microsecond)')"
