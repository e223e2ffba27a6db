"""Conversions between types: which there are, and how DuckDB is asked for them so that the answer is PostgreSQL's."""

from __future__ import annotations

from ontolake.sql.errors import DataError, TypeMismatchError
from ontolake.sql.executor import literals, parameter_types, python_functions, system_functions
from ontolake.sql.executor.pg_types import (
    BYTEA,
    DIGITS,
    INTEGERS,
    REGS,
    TEXT,
    TIMESTAMP,
    UNKNOWN,
    VECTORS,
    PgType,
    as_numeric,
    is_implicit,
    is_wide,
    numeric,
    quotient_scale,
)
from ontolake.sql.executor.typed import TypedSql, merged

_EXPLICIT = {
    ("int4", "bool"), ("bool", "int4"), ("timestamp", "date"), ("timestamptz", "date"), ("timestamptz", "timestamp"),
    ("timestamp", "time"), ("timestamptz", "time"), ("interval", "time"), ("json", "jsonb"), ("jsonb", "json"),
    ("jsonb", "bool"), *(("jsonb", name) for name in ("int2", "int4", "int8", "numeric", "float4", "float8")),
}  # fmt: skip


def converted(given: TypedSql, to: PgType, *, explicit: bool = False) -> TypedSql:
    """An expression as one of another type. Raises `TypeMismatchError` (42846) if there is no such conversion."""
    source = given.type
    if source.name == "unknown":
        return _from_unknown(given, to, explicit)
    if source == to and not (to.wide and to.precision):
        return given
    if not explicit and not is_implicit(source, to):
        raise TypeMismatchError(f"{source.shown} does not become {to.shown} by itself", hint="convert it with CAST")
    sql, type = _sql(given.sql, source, to, explicit)
    return merged(sql, type, [given])


def _from_unknown(given: TypedSql, to: PgType, explicit: bool) -> TypedSql:
    if to.name == "unknown":
        return given
    if given.text is None:
        parameter_types.expect(given, to)
        to = to._replace(scale=max(to.scale, 0))
        return given._replace(sql=f"CAST({given.sql} AS {to.duck})", type=to)
    if to.name in REGS:
        return TypedSql(system_functions.number_of(to.name, literals.quoted(given.text)), to)
    sql, type = literals.read(given.text, to)
    if to.length and to.family == "S":
        sql = _cut(sql, to)
    return TypedSql(sql, type)


def _cut(sql: str, to: PgType) -> str:
    """varchar(n) cuts what is longer; char(n) also fills up with spaces."""
    cut = f"left({sql}, {to.length})"
    return f"rpad({cut}, {to.length}, ' ')" if to.name == "bpchar" else cut


def _sql(sql: str, source: PgType, to: PgType, explicit: bool) -> tuple[str, PgType]:
    """The conversion in DuckDB's SQL, and the type with its digits."""
    if to.family == "S":
        text = as_text(sql, source)
        return (_cut(text, to) if to.length else text), to
    if source.family == "S":
        return _from_text(sql, source, to)
    if source.is_array and to.is_array:
        return f"CAST({sql} AS {to.duck})", to
    if to.name in REGS and source.family == "N":
        return f"CAST({sql} AS BIGINT)", to
    if to.name == "numeric":
        return _wide(sql, source, to) if is_wide() else _numeric(sql, source, to)
    if source.wide and to.name in INTEGERS:
        return f"CAST({python_functions.call('wide_integer', sql, literals.quoted(to.shown))} AS {to.duck})", to
    if source.wide and to.name in ("float4", "float8"):
        return f"CAST({python_functions.call('wide_double', sql)} AS {to.duck})", to
    if source.name == to.name:  # only nanoseconds differ
        return (f"CAST({sql} AS {to.duck})", to) if source.fine != to.fine else (sql, to)
    if (
        not is_implicit(source, to)
        and (source.name, to.name) not in _EXPLICIT
        and not source.family == to.family == "N"
    ):
        raise TypeMismatchError(f"cannot cast type {source.shown} to {to.shown}", sqlstate="42846")
    if source.name in ("json", "jsonb"):
        if to.name in ("json", "jsonb"):
            return (sql if to.name == "json" else python_functions.call("jsonb_text", sql)), to
        return _from_json(sql, to)
    if to.name in ("json", "jsonb"):
        raise TypeMismatchError(f"cannot cast type {source.shown} to {to.shown}", sqlstate="42846")
    if source.family == "D" and to.family == "D":
        return _moment(sql, source, to)
    return f"CAST({sql} AS {to.duck})", to


def _moment(sql: str, source: PgType, to: PgType) -> tuple[str, PgType]:
    if source.name in ("timestamp", "timestamptz") and to.name in ("timestamp", "timestamptz"):
        return sql, to._replace(fine=source.fine)  # both are what clocks show in UTC
    if source.fine:
        sql = f"CAST({sql} AS TIMESTAMP)"
    return f"CAST({sql} AS {to._replace(fine=False).duck})", to._replace(fine=False)


def _wide(sql: str, source: PgType, to: PgType) -> tuple[str, PgType]:
    """A conversion to a numeric of any size."""
    if source.family != "N" and source.name != "jsonb":
        raise TypeMismatchError(f"cannot cast type {source.shown} to numeric", sqlstate="42846")
    if source.name in ("float4", "float8"):
        sql = f"printf('%.{15 if source.name == 'float8' else 6}g', CAST({sql} AS DOUBLE))"
    if not source.wide:
        sql = python_functions.call("wide_text", f"CAST({sql} AS VARCHAR)")
    return _fitted(sql, to), numeric(0)


def _fitted(sql: str, to: PgType) -> str:
    return python_functions.call("wide_fitted", sql, str(to.precision), str(to.scale)) if to.precision else sql


def _numeric(sql: str, source: PgType, to: PgType) -> tuple[str, PgType]:
    if source.family != "N" and source.name != "jsonb":
        raise TypeMismatchError(f"cannot cast type {source.shown} to numeric", sqlstate="42846")
    if source.name == "jsonb":
        return _from_json(sql, to)
    if source.name in ("float4", "float8"):  # the digits that a float is sure of, as text has them
        digits = 15 if source.name == "float8" else 6
        to = to if to.precision else numeric(15)
        return f"CAST(printf('%.{digits}g', CAST({sql} AS DOUBLE)) AS {to.duck})", to
    if not to.precision:
        return sql if source.name == "numeric" else f"CAST({sql} AS {as_numeric(source).duck})", as_numeric(source)
    return f"CAST({sql} AS {to.duck})", to


def _from_json(sql: str, to: PgType) -> tuple[str, PgType]:
    if to.name == "numeric" and is_wide():
        return _wide(sql, PgType("jsonb"), to)
    to = numeric(quotient_scale()) if to.name == "numeric" and not to.precision else to
    return f"CAST({sql} AS {to.duck})", to


def _from_text(sql: str, source: PgType, to: PgType) -> tuple[str, PgType]:
    sql = as_text(sql, source)
    if to.labels and not to.is_array:
        wrong = f"error('invalid input value for enum {to.name}: ' || {sql})"
        found = f"list_position({literals.enum_list(to)}, {sql}) - 1"
        return f"CASE WHEN {sql} IS NOT NULL THEN coalesce({found}, CAST({wrong} AS INTEGER)) END", to
    if to.name == "numeric" and is_wide():
        return _fitted(python_functions.call("wide_text", sql), to), numeric(0)
    if to.name == "numeric" and not to.precision:
        to = numeric(quotient_scale())
    if to.name in REGS:
        return system_functions.number_of(to.name, sql), to
    if to.name in (*INTEGERS, "oid", "xid", "cid"):
        return f"CAST({python_functions.call('integer_text', sql, literals.quoted(to.shown))} AS {to.duck})", to
    if to.name in ("float4", "float8", "bool", "numeric", "date", "timestamp", "timestamptz", "time", "interval"):
        to = to._replace(fine=False)
        return f"CAST({python_functions.call('plain_text', sql, literals.quoted(to.name))} AS {to.duck})", to
    if to.name == "bytea":
        return f"unhex({python_functions.call('hex_text', sql)})", BYTEA
    if to.name == "jsonpath":
        return python_functions.call("json_path_text", sql), to
    if to.name == "jsonb":
        return python_functions.call("jsonb_text", sql), to
    if to.name == "json":
        return python_functions.call("json_checked", sql), to
    if to.is_array:
        return f"CAST({python_functions.call('list_text', sql, literals.quoted(to.name))} AS {to.duck})", to
    return f"CAST({sql} AS {to.duck})", to


def as_text(sql: str, source: PgType) -> str:
    """A value as the text that PostgreSQL shows."""
    name = source.name
    if source.labels and not source.is_array:
        return f"list_extract({literals.enum_list(source)}, {sql} + 1)"
    if name in ("text", "varchar", "json", "jsonb", "name", "char", "unknown"):
        return sql
    if name in REGS:
        return system_functions.name_of(name, sql)
    if name in VECTORS:
        return f"array_to_string({sql}, ' ')"
    if name == "bpchar":
        return f"rtrim({sql}, ' ')"
    if name in ("float4", "float8"):
        return python_functions.call(f"{name}_text", sql)
    if source.wide:
        return sql
    if name == "numeric" and source.scale:  # DuckDB may leave out the zero before the point
        return f"regexp_replace(CAST({sql} AS VARCHAR), '^(-?)\\.', '\\10.')"
    if name == "interval":
        return python_functions.call("interval_text", sql)
    if name == "bytea":
        return f"('\\x' || lower(hex({sql})))"
    if name in ("timestamp", "timestamptz"):
        text = f"CAST({sql} AS VARCHAR)"
        if source.fine:
            text = f"regexp_replace({text}, '(\\.[0-9]*[1-9])0+$|\\.0+$', '\\1')"
        text = _with_era(text)
        if name == "timestamp":
            return text
        return f"regexp_replace({text}, '^([^a-z]*?)( BC)?$', '\\1+00\\2')"  # infinity has no zone
    if name == "date":
        return _with_era(f"CAST({sql} AS VARCHAR)")
    if name == "record":
        return _record_text(sql, source)
    if source.is_array:
        texts = (
            sql if source.element.family == "S" else f"list_transform({sql}, lambda e: {as_text('e', source.element)})"
        )
        return python_functions.call("array_text", texts)
    return f"CAST({sql} AS VARCHAR)"


def _record_text(sql: str, type: PgType) -> str:
    """A row as PostgreSQL shows it: `(1,two,)`."""
    parts = [_within_text(f"struct_extract({sql}, 'c{n}')", each) for n, (_, each) in enumerate(type.fields)]
    whole = python_functions.call("record_text", f"CAST([{', '.join(parts)}] AS VARCHAR[])")
    return f"(CASE WHEN {sql} IS NOT NULL THEN {whole} END)"


def _within_text(sql: str, type: PgType) -> str:
    """A value within a row or an array, where truth values are letters and char(n) keeps its blanks."""
    if type.name == "bool":
        return f"(CASE WHEN {sql} THEN 't' WHEN NOT {sql} THEN 'f' END)"
    return sql if type.name == "bpchar" else as_text(sql, type)


def _with_era(text: str) -> str:
    """A date of DuckDB's with the era at its end."""
    return f"regexp_replace({text}, ' \\(BC\\)(.*)$', '\\1 BC')"


def to_precision(given: TypedSql, digits: str) -> TypedSql:
    """A time or timestamp whose seconds are rounded to so many digits."""
    if not digits.isdigit() or int(digits) >= 6:
        return given
    value = plain(given)
    unit = 10 ** (6 - int(digits))
    sql = f"make_timestamp(CAST(round(epoch_us({value.sql}) / {unit}.0) AS BIGINT) * {unit})"
    if value.type.name == "time":
        return merged(f"CAST({sql} AS TIME)", value.type, [value])
    return merged(f"(CASE WHEN isfinite({value.sql}) THEN {sql} ELSE {value.sql} END)", value.type, [value])


def limited_interval(given: TypedSql, found: TypedSql, fields: str, digits: int) -> TypedSql:
    """An interval without the fields that its type does not have; a literal is also read with them."""
    if not fields and digits == 6:
        return found
    if given.text is not None:
        return TypedSql(literals.interval_sql(*literals.interval(given.text, fields, digits)), found.type)
    sql, last = found.sql, fields.rpartition(" ")[2]
    months = f"CAST(datepart('year', {sql}) * 12 + datepart('month', {sql}) AS INTEGER)"
    days = f"CAST(datepart('day', {sql}) AS INTEGER)"
    micros = f"epoch_us({sql} - to_months({months}) - to_days({days}))"
    unit = {"HOUR": 3_600_000_000, "MINUTE": 60_000_000}.get(last)
    if last in ("YEAR", "MONTH", "DAY"):
        months = f"({months} // 12 * 12)" if last == "YEAR" else months
        kept = f"to_months({months})" + (f" + to_days({days})" if last == "DAY" else "")
    else:
        part = f"({micros} // {unit} * {unit})" if unit else f"CAST(round({micros} / {10 ** (6 - digits)}.0) AS BIGINT) * {10 ** (6 - digits)}"  # noqa: E501
        kept = f"to_months({months}) + to_days({days}) + to_microseconds({part})"
    return merged(f"({kept})", found.type, [found])


def plain(given: TypedSql) -> TypedSql:
    """An expression without what only columns have: nanoseconds, lengths, and text of no type."""
    type = given.type
    if type.name == "unknown":
        return converted(given, TEXT)
    if type.fine:
        return merged(f"CAST({given.sql} AS TIMESTAMP)", type._replace(fine=False), [given])
    if type.name == "bpchar":
        return merged(f"rtrim({given.sql}, ' ')", TEXT, [given])
    return given._replace(type=TEXT) if type.name in ("varchar", "name", "char") else given


__all__ = ["DIGITS", "TIMESTAMP", "UNKNOWN", "DataError", "as_text", "converted", "plain"]
