"""`ensure_arrow(table)` and `ensure(objects)` take the same values, store the same values and refuse the same values.

The oracle is Python: an object made of each row of `table.to_pylist()`.
"""

from __future__ import annotations

import enum
import math
import struct
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypedDict

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from marking import slow_after

from ontolake.arrow_values import is_ascii
from ontolake.model import Entity, Field, SchemaValidationError
from ontolake.model.types import type_info
from ontolake.ontology import Session
from ontolake.ontology.arrow.columns import columns_from_arrow
from ontolake.ontology.arrow.rows import rows_from_arrow
from ontolake.ontology.migration.upgraders import Upgrader


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Place(TypedDict, total=False):
    city: str
    at: datetime


def _type(name: str, annotation: Any, **options: Any) -> Any:
    return type(Entity)(name, (Entity,), {
        "__module__": __name__, "__qualname__": name,
        "__annotations__": {"id": Field[int], "value": Field[annotation]},
        "id": Field(primary_key=True), "value": Field(**options)})  # fmt: skip


FIELDS: dict[str, Any] = {
    "Texts": str, "Ints": int, "Floats": float, "Truths": bool, "Moments": datetime, "Days": date, "Bytes": bytes,
    "Decimals": Decimal, "Uuids": uuid.UUID, "Colours": Colour, "Levels": Level, "Literals": Literal["a", "b"],
    "Anything": Any, "Lists": list[float], "Dicts": dict[str, int], "Places": Place, "Mixed": int | str | None,
    "Times": list[datetime], "MaybeFloats": float | None, "MaybeMoments": datetime | None, "MaybeTruths": bool | None,
}  # fmt: skip
TYPES: dict[str, Any] = {name: _type(name, annotation) for name, annotation in FIELDS.items()} | {
    "Bounded": _type("Bounded", int, ge=0, le=100), "Short": _type("Short", str, max_length=3),
    "Money": _type("Money", Decimal, max_digits=10, decimal_places=2), "Strict": _type("Strict", int, strict=True),
}  # fmt: skip

_EAST = timezone(timedelta(hours=5, minutes=30))
_MOMENT = datetime(2024, 2, 29, 13, 45, 59, 123456)
_ARRAYS: list[pa.Array] = [
    *(pa.array([0, 1, 2, None, 100], kind) for kind in (
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
    pa.array([-1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)], pa.int64()),
    pa.array([2**63, 2**64 - 1], pa.uint64()),
    *(pa.array([0.0, -0.0, 1.0, 2.0, 1.5, None, math.nan, math.inf, -math.inf], kind)
      for kind in (pa.float32(), pa.float64())),
    pa.array([1e300, 2.0**63, -(2.0**63), 0.1]), pa.array([0.1], pa.float32()),
    pa.array([True, False, None]), pa.array([None, None], pa.null()),
    *(pa.array(["", "a", "b", "red", "1", "1.5", "-0.0", "true", "no", None, "ä\0\U0001f600", "2024-02-29", "NaN",
                " 1 ", "2024-02-29T13:45:59", "2024-02-29T13:45:59+05:30", "2024-02-29 00:00:00Z", "[1.5]", "{}",
                "null", "12345678-1234-5678-1234-567812345678", '"a"', "1e5", "abcd"], kind)
      for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()))),
    pa.array([b"", b"a", b"\xff", None, b"12345678-1234-5", b"1234567890123456"], pa.binary()),
    pa.array([b"ab", None], pa.binary(2)), pa.array([b"ab"], pa.large_binary()), pa.array([b"ab"], pa.binary_view()),
    *(pa.array([_MOMENT.replace(microsecond=0), datetime(2024, 1, 1), None, datetime(1, 1, 1),
                datetime(9999, 12, 31, 23, 59, 59)], pa.timestamp(unit, tz))
      for unit in ("s", "ms", "us") for tz in (None, "UTC")),
    pa.array([_MOMENT, None], pa.timestamp("us", "Asia/Kolkata")), pa.array([_MOMENT], pa.timestamp("us")),
    pa.array([_MOMENT.replace(tzinfo=_EAST)]), pa.array([datetime(1969, 12, 31, 23, 59, 59, 999999)]),
    pa.array([_MOMENT, datetime(1970, 1, 1)], pa.timestamp("ns")), pa.array([_MOMENT], pa.timestamp("ns", "UTC")),
    pa.array([1], pa.timestamp("ns")), pa.array([2**62, -(2**62)], pa.timestamp("s")),
    pa.array([date(2024, 2, 29), None, date(1, 1, 1), date(9999, 12, 31)], pa.date32()),
    pa.array([date(2024, 2, 29)], pa.date64()), pa.array([2**30], pa.date32()),
    pa.array([time(1, 2, 3)]), pa.array([timedelta(seconds=5)]),
    pa.array([Decimal("1.50"), Decimal("-0.00"), Decimal("2.00"), Decimal("100.00"), None], pa.decimal128(10, 2)),
    pa.array([Decimal("1.123456789")], pa.decimal256(50, 9)), pa.array([Decimal(5)], pa.decimal128(5, 0)),
    pa.array([[1.5, 2.0], [], None, [math.nan, -0.0]]), pa.array([[1, 2], [None]]), pa.array([[_MOMENT]]),
    pa.array([{"city": "Bonn"}, None]), pa.array([{"city": "Bonn", "at": _MOMENT}]), pa.array([{"a": 1, "b": 2}]),
    pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
]  # fmt: skip


def _cells() -> list[pa.Array]:
    """Every value alone, and the whole arrays, so that a value refused does not hide its neighbours."""
    found = []
    for array in _ARRAYS:
        found += [array.slice(n, 1) for n in range(len(array))]
        found.append(array)
    return found


CELLS = _cells()


def _by_objects(cls: Any, table: pa.Table) -> list[Any] | tuple[str, int]:
    """Encoded rows of objects, or the field and the row that is refused."""
    rows = []
    for number in range(table.num_rows):
        try:
            kind = table.schema.field("value").type
            if pa.types.is_timestamp(kind) and kind.unit == "ns":  # of which Python has no values, but maybe pandas
                table = table.set_column(1, "value", table.column("value").cast(pa.timestamp("us", kind.tz)))
            row = table.slice(number, 1).to_pylist()[0]
            rows.append(type_info(cls).encode(cls(**row)))
        except (SchemaValidationError, ValueError, OverflowError):
            return "value", number
    return rows


def _by_arrow(cls: Any, table: pa.Table) -> list[Any] | tuple[str | None, int]:
    info = type_info(cls)
    try:
        rows = rows_from_arrow(info, table)[0]
    except SchemaValidationError as error:
        return error.field, int(error.reason.removeprefix("row ").split(":")[0])
    columns = columns_from_arrow(info, table)
    assert columns is None or [*map(repr, columns)] == [*map(repr, rows)], "columns say the same as rows"
    return rows


@pytest.mark.parametrize("name", TYPES)
def test_arrow_and_objects_take_and_refuse_the_same_values(name: str) -> None:
    cls = TYPES[name]
    as_json = type_info(cls).by_name["value"].scalar is None
    wrong = []
    for cells in CELLS:
        inner = cells.type.value_type if pa.types.is_dictionary(cells.type) else cells.type
        if as_json and (inner in (pa.string(), pa.large_string(), pa.string_view())):
            continue  # text in a column of JSON is JSON, which objects do not take
        table = pa.table({"id": pa.array(range(len(cells)), pa.int64()), "value": cells})
        objects, arrow = _by_objects(cls, table), _by_arrow(cls, table)
        if repr(objects) != repr(arrow):
            wrong.append((cells.type, cells.to_pylist() if len(cells) == 1 and "ns" not in str(cells.type) else "…",
                          objects, arrow))
    assert not wrong, "\n".join(map(str, wrong[:20]))


@cache
def _accepted(cls: Any) -> list[Any]:
    """Objects of all values that the type takes, with keys of their own."""
    found: list[Any] = []
    for cells in CELLS:
        if len(cells) == 1 and "ns" not in str(cells.type):
            try:
                one = cls(id=len(found), value=cells.to_pylist()[0])
                type_info(cls).encode(one)
            except (ValueError, OverflowError):
                continue
            if cls.__name__ != "Anything" or _is_json(one.value):
                found.append(one)
    return found


def _is_json(value: Any) -> bool:
    """Whether a value comes back from JSON as what it was."""
    if isinstance(value, list | dict):
        return all(map(_is_json, value.values() if isinstance(value, dict) else value))
    return value is None or type(value) in (bool, int, float, str)


def _seen(session: Session, cls: Any) -> list[str]:
    """What is stored, by the signs of zeros and the zones of moments too."""
    return sorted(repr((one.id, one.value)) for one in session.query().entities(cls).collect())


def _expected(cls: Any) -> list[str]:
    """The same of the objects; moments with a zone are kept in UTC."""
    return sorted(repr((one.id, one.value.astimezone(UTC) if getattr(one.value, "tzinfo", None) else one.value))
                  for one in _accepted(cls))


ENGINES = ["native v2", "objects v2", "native v1", "objects v1"]


def _opened(place: str, folder: Path, name: str) -> Session:
    kind, engine = place.split()
    url = f"{folder}/{name}.db" if kind == "native" else f"memory://{folder.name}-{name}"
    return Session(url, entity_types=[*TYPES.values()], engine_version=engine)


@pytest.mark.parametrize("place", slow_after(0, ENGINES))
def test_arrow_and_objects_are_stored_alike_and_a_second_commit_changes_nothing(place: str, tmp_path: Path) -> None:
    by_objects, by_arrow = (_opened(place, tmp_path, name) for name in ("objects", "arrow"))
    for cls in TYPES.values():
        objects = _accepted(cls)
        assert len(objects) > 1, cls
        by_objects.ensure(objects)
        column = type_info(cls).by_name["value"]
        values = [one.value for one in objects]
        if column.scalar is None:  # as text, since the values have no common Arrow type
            texts = [None if one.value is None else column.encode(one.value, "") for one in objects]
            table = pa.table({"id": pa.array([one.id for one in objects], pa.int64()),
                              "value": pa.array(texts, pa.string())})
            by_arrow.ensure_arrow(cls, table)
            continue
        for kind in _kinds(column.scalar):
            of_kind = [one for one in objects if _of_kind(one.value, kind)]
            plain = [_plain(one.value) for one in of_kind]
            by_arrow.ensure_arrow(cls, pa.table({"id": pa.array([one.id for one in of_kind], pa.int64()),
                                                 "value": pa.array(plain, kind)}))
        assert values
    assert by_objects.commit() == by_arrow.commit() == 1
    for cls in TYPES.values():
        assert _seen(by_objects, cls) == _expected(cls)
        assert _seen(by_arrow, cls) == _expected(cls)
    for session in (by_objects, by_arrow):
        for count in (3, 10_000):  # few rows are compared one by one, many in one statement
            for cls in TYPES.values():
                session.ensure(_accepted(cls)[:count])
            assert session.commit() is None, count
    by_objects.close()
    by_arrow.close()


def _kinds(scalar: str) -> list[pa.DataType]:
    kinds = {"int": [pa.int64()], "float": [pa.float64()], "bool": [pa.bool_()], "bytes": [pa.binary()],
             "datetime": [pa.timestamp("us"), pa.timestamp("us", "UTC")], "date": [pa.date32()]}  # fmt: skip
    return kinds.get(scalar, [pa.string()])


def _of_kind(value: Any, kind: pa.DataType) -> bool:
    if not pa.types.is_timestamp(kind):
        return True
    naive = value is None or value.tzinfo is None
    return naive == (kind.tz is None)


def _plain(value: Any) -> Any:
    value = value.value if isinstance(value, enum.Enum) else value
    return str(value) if isinstance(value, Decimal | uuid.UUID) else value


class Measured(Entity):
    id: Field[int] = Field(primary_key=True)
    a: Field[float]
    b: Field[float | None] = Field(default=None, index=True)
    n: Field[int] = Field(default=0)


def _signs(session: Session, **options: Any) -> dict[int, str]:
    """The values by key, by way of a query with conditions and an order."""
    query = session.query().entities(Measured).where(Measured.a == 0.0).order_by(Measured.id)
    found = query.as_of(options["as_of"]) if options else query
    return {one.id: f"{one.a} {one.b}" for one in found.collect()}


@pytest.mark.parametrize("many", [1, 20])
@pytest.mark.parametrize("place", slow_after(2, ENGINES))
def test_a_negative_zero_comes_back_and_equals_zero(place: str, many: int, tmp_path: Path) -> None:
    kind, engine = place.split()
    url = f"{tmp_path}/zeros.db" if kind == "native" else f"memory://{tmp_path.name}-{many}"
    with Session(url, entity_types=[Measured], engine_version=engine) as session:
        session.ensure(Measured(id=n, a=0.0, b=-0.0 if n % 3 == 0 else None) for n in range(many))
        session.ensure(Measured(id=100 + n, a=1.0) for n in range(many))
        assert session.commit() == 1
        first = _signs(session)
        assert first == {n: "0.0 -0.0" if n % 3 == 0 else "0.0 None" for n in range(many)}
        session.ensure(Measured(id=n, a=-0.0, b=0.0 if n % 3 == 0 else None) for n in range(many))
        assert session.commit() is None, "equal values are no change"
        session.ensure(Measured(id=n, a=-0.0, b=0.0 if n % 3 == 0 else None, n=1) for n in range(many))
        assert session.commit() == 2, "a row that is written is written as it was declared"
        assert _signs(session) == {n: "-0.0 0.0" if n % 3 == 0 else "-0.0 None" for n in range(many)}
        assert _signs(session, as_of=1) == first
        things = session.query().entities(Measured)
        assert things.where(Measured.a <= -0.0).count() == things.where(Measured.b.is_not_null() | (Measured.a == 0)
                                                                        ).count() == many
        assert [group["count"] for group in things.group_by(Measured.a).agg()] == [many, many]
        assert [str(value) for value in things.to_arrow().column("a").to_pylist()].count("-0.0") == many
        assert session.query().entities(Measured).where(Measured.id == 0).first() == Measured(id=0, a=0.0, b=0.0, n=1)
        changes = session.list_commit_changes(2)
        assert {f"{change.before['a']} {change.after['a']}" for change in changes} == {"0.0 -0.0"}  # type: ignore[index]
    with Session(url, entity_types=[Measured]) as session:
        assert _signs(session, as_of=1) == first


class _Plain(Entity):
    id: Field[str] = Field(primary_key=True)


class _Defaults(Entity):
    id: Field[str] = Field(primary_key=True)
    a: Field[int] = 5
    b: Field[str | None] = None
    c: int = 7
    d: tuple[int, ...] = (1, 2)
    e: Field[datetime] = Field(default=datetime(2024, 1, 1))
    f: float = -0.0


@pytest.mark.parametrize("arrow", [False, True])
@pytest.mark.parametrize("place", slow_after(2, ENGINES))
def test_every_way_to_declare_a_default_counts_for_objects_tables_and_migrations(
    place: str, arrow: bool, tmp_path: Path
) -> None:  # fmt: skip
    kind, engine = place.split()
    url = f"{tmp_path}/defaults.db" if kind == "native" else f"memory://{tmp_path.name}-{arrow}"
    before: Any = type(Entity)("Thing", (_Plain,), {"__module__": __name__, "__qualname__": "Thing"})
    after: Any = type(Entity)("Thing", (_Defaults,), {"__module__": __name__, "__qualname__": "Thing"})
    with Session(url, entity_types=[before], engine_version=engine) as session:
        session.ensure(before(id="old"))
        session.commit()
    with Session(url, entity_types=[after]) as session:
        preview: Any = session.migrate()
        assert not preview.missing
        upgraders = [Upgrader(lambda table: table, "Thing", 1, True)] if arrow else []
        session.migrate(dry_run=False, force=True, upgraders=upgraders)
        session.ensure(after(id="object"))
        session.commit()
        session.ensure_arrow(after, pa.table({"id": pa.array(["table"], pa.string())}))
        session.commit()
        found = session.query().entities(after).order_by(after.id).collect()
        assert [one.id for one in found] == ["object", "old", "table"]
        for one in found:
            assert repr(one.model_copy(update={"id": ""})) == repr(after(id="x").model_copy(update={"id": ""}))


@given(st.lists(st.one_of(st.none(), st.text(max_size=5)), max_size=20), st.integers(0, 5), st.integers(0, 20))
def test_ascii_is_told_from_other_text_in_slices_too(values: list[str | None], start: int, count: int) -> None:
    some = values[start : start + count]
    for kind in (pa.string(), pa.large_string()):
        array = pa.array(values, kind).slice(start, count)
        for found in (array, pa.chunked_array([array, array])):
            assert not is_ascii(found) or all(one is None or one.isascii() for one in some)
            if any(some) and all(one is None or one.isascii() for one in some):
                assert is_ascii(found)


def test_text_that_is_not_where_its_offsets_say_is_not_taken_for_ascii() -> None:
    letters = pa.py_buffer(b"abcdef")
    for offsets in ([0, 4, 2, 6], [0, 6, 1, 1]):
        places = pa.py_buffer(struct.pack(f"{len(offsets)}i", *offsets))
        assert not is_ascii(pa.Array.from_buffers(pa.string(), len(offsets) - 1, [None, places, letters]))
