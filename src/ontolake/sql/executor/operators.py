"""Operators: which there are for which types, what they give, and how DuckDB is asked for them."""

from __future__ import annotations

from decimal import Decimal

from ontolake.sql.errors import SqlError, TypeMismatchError, UnknownNameError
from ontolake.sql.executor import casts, literals, parameter_types, python_functions
from ontolake.sql.executor.pg_types import (
    BOOL,
    BYTEA,
    DATE,
    DIGITS,
    FLOAT4,
    FLOAT8,
    INT4,
    INT8,
    INTEGERS,
    INTERVAL,
    JSONB,
    OIDS,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    PgType,
    as_numeric,
    common,
    is_wide,
    numeric,
    quotient_scale,
)
from ontolake.sql.executor.typed import TypedSql, merged

_RANK = ("int2", "int4", "int8", "numeric", "float4", "float8")
_ORDERED = {"=", "<>", "<", "<=", ">", ">="}
_MOMENTS = ("date", "timestamp", "timestamptz")
_UNORDERED = ("json", "point")


def missing(operator: str, *types: PgType) -> SqlError:
    """The error for an operator that there is not for types."""
    shown = f" {operator} ".join(each.shown for each in types) if len(types) > 1 else f"{operator} {types[0].shown}"
    return UnknownNameError(
        f"operator does not exist: {shown}",
        sqlstate="42883",
        hint="no operator matches the types of the operands; CAST may help",
    )


def boolean(given: TypedSql, what: str) -> TypedSql:
    """A condition. Raises `TypeMismatchError` if it is something else."""
    if given.type.name == "unknown":
        return casts.converted(given, BOOL)
    if given.type.name != "bool":
        raise TypeMismatchError(f"argument of {what} must be type boolean, not type {given.type.shown}")
    return given


def unified(values: list[TypedSql], what: str) -> list[TypedSql]:
    """Values as those of their common type. Raises `TypeMismatchError` if there is none."""
    found = common([each.type for each in values])
    if found is None:
        known = [each.type for each in values if each.type.name != "unknown"]
        other = next(each for each in known if common([known[0], each]) is None)
        raise TypeMismatchError(
            f"{what} types {known[0].shown} and {other.shown} cannot be matched", hint="convert one with CAST"
        )
    return [cast_to(each, found) for each in values]


def cast_to(given: TypedSql, to: PgType) -> TypedSql:
    """A value as one of the common type of several."""
    if given.type == to:
        return given
    if to.name == "numeric" and given.type.family == "N":
        # DuckDB brings digits together
        return casts.converted(given, as_numeric(given.type)) if given.type.name in INTEGERS else given
    return casts.converted(given, to)


# comparisons


def compared(operator: str, left: TypedSql, right: TypedSql) -> TypedSql:
    """A comparison. Raises 42883 for types that do not compare."""
    left, right = matched(operator, left, right)
    sql = f"({left.sql} {operator} {right.sql})"
    if left.type.is_array and operator[0] in "<>" and operator != "<>":  # DuckDB would make BETWEEN of two, and fail
        sql = f"(CASE WHEN {sql} THEN TRUE WHEN {left.sql} IS NOT NULL AND {right.sql} IS NOT NULL THEN FALSE END)"
    return merged(sql, BOOL, (left, right))


def matched(operator: str, left: TypedSql, right: TypedSql) -> tuple[TypedSql, TypedSql]:
    """Two operands as values that DuckDB compares as PostgreSQL does."""
    left, right = alike(operator, left, right)
    if is_wide() and "numeric" in (left.type.name, right.type.name) and left.type.family == right.type.family == "N":
        return keyed(casts.converted(left, numeric(0))), keyed(casts.converted(right, numeric(0)))
    return (keyed(left), keyed(right)) if left.type.name == right.type.name == "jsonb" else (left, right)


def keyed(given: TypedSql) -> TypedSql:
    """A jsonb value, or a numeric of any size, as bytes that sort as it does."""
    if given.type.wide:
        return merged(python_functions.call("wide_key", given.sql), BYTEA, [given])
    return merged(python_functions.call("jsonb_key", given.sql), BYTEA, [given])


def alike(operator: str, left: TypedSql, right: TypedSql) -> tuple[TypedSql, TypedSql]:
    """Two operands as values of one type that can be compared."""
    one, other = left.type, right.type
    if one.name == other.name == "unknown":
        return casts.converted(left, TEXT), casts.converted(right, TEXT)
    for kept in ("bpchar", "name"):  # which a parameter beside them is, too, though they are compared as text
        if "unknown" in (one.name, other.name) and kept in (one.name, other.name):
            parameter_types.expect(left if one.name == "unknown" else right, PgType(kept))
    if one.name == "unknown":
        return _read_as(_unpadded(left, other), _comparable(right)), _comparable(right)
    if other.name == "unknown":
        return _comparable(left), _read_as(_unpadded(right, one), _comparable(left))
    if "bpchar" in (one.name, other.name) and one.family == other.family == "S":
        return _comparable(left), _comparable(right)
    found = common([one, other])
    if found is None or (found.name in _UNORDERED):
        raise missing(operator, one, other)
    if one.family == other.family == "N":
        if found.name in ("float4", "float8"):
            return casts.converted(left, FLOAT8), casts.converted(right, FLOAT8)
        return left, right
    if one.fine != other.fine:
        return casts.plain(left), casts.plain(right)
    return casts.converted(left, found), casts.converted(right, found)


def _unpadded(given: TypedSql, other: PgType) -> TypedSql:
    """A literal without the blanks at its end, where char(n) does not count them."""
    text = given.text
    return given if text is None or other.name != "bpchar" else given._replace(text=text.rstrip(" "))


def _comparable(given: TypedSql) -> TypedSql:
    return casts.plain(given) if given.type.name in ("bpchar", "varchar", "name", "char") else given


def _read_as(unknown: TypedSql, other: TypedSql) -> TypedSql:
    """A literal as the type of the other operand."""
    type = other.type
    if type.name == "numeric":
        type = PgType("numeric", 0, -1)
    found = casts.converted(unknown, type)
    if other.type.fine and not found.type.fine and unknown.text is not None:  # beyond what nanoseconds reach
        return found._replace(sql=f"CAST(least(greatest({found.sql}, TIMESTAMP '1677-09-22'), "
                                  f"TIMESTAMP '2262-04-11') AS TIMESTAMP_NS)")  # fmt: skip
    return found


def rows_compared(operator: str, left: list[TypedSql], right: list[TypedSql]) -> TypedSql:
    """A comparison of rows, element by element. Raises `SqlSyntaxError` for rows of different lengths."""
    if len(left) != len(right):
        raise SqlError("unequal number of entries in row expressions", sqlstate="42601")
    pairs = [matched(operator, one, other) for one, other in zip(left, right, strict=True)]
    parts = [each for pair in pairs for each in pair]
    if operator in ("=", "<>"):
        joined = " AND ".join(f"({one.sql} = {other.sql})" for one, other in pairs)
        return merged(f"({joined})" if operator == "=" else f"(NOT ({joined}))", BOOL, parts)
    strict = operator[0]
    sql = f"({pairs[-1][0].sql} {operator} {pairs[-1][1].sql})"
    for one, other in reversed(pairs[:-1]):
        sql = f"(({one.sql} {strict} {other.sql}) OR (({one.sql} = {other.sql}) AND {sql}))"
    return merged(sql, BOOL, parts)


# arithmetic


def arithmetic(operator: str, left: TypedSql, right: TypedSql) -> TypedSql:
    """`+ - * / %` of two operands. Raises 42883 for types that there is none for."""
    left, right = _known(operator, left, right)
    left, right = (casts.converted(each, INT8) if each.type.name in OIDS else each for each in (left, right))
    one, other = left.type, right.type
    if one.family == "N" and other.family == "N":
        return _numbers(operator, left, right)
    if one.name == "jsonb" and operator == "-":
        return _json_minus(left, right)
    left, right = casts.plain(left), casts.plain(right)
    found = _times(operator, left, right)
    if found is None:
        raise missing(operator, one, other)
    return found


def _known(operator: str, left: TypedSql, right: TypedSql) -> tuple[TypedSql, TypedSql]:
    """Operands of which a literal without a type has the one that the other suggests."""
    if left.type.name == right.type.name == "unknown":
        if left.is_null or right.is_null:
            return casts.converted(left, INT4), casts.converted(right, INT4)
        raise SqlError(f"operator is not unique: unknown {operator} unknown", sqlstate="42725", hint="CAST may help")
    for unknown, other, swap in ((left, right, False), (right, left, True)):
        if unknown.type.name != "unknown":
            continue
        type = other.type
        if type.name == "numeric":
            type = PgType("numeric", 0, -1)
        elif type.name in ("timestamp", "timestamptz") and operator == "+":
            type = INTERVAL
        elif type.name == "date" and operator == "+":
            type = INT4 if unknown.text is not None and unknown.text.strip().lstrip("-").isdigit() else INTERVAL
        elif type.name == "interval" and operator in "*/":
            type = FLOAT8
        elif type.name == "jsonb":
            type = TEXT
        read = casts.converted(unknown, type)
        return (left, read) if swap else (read, right)
    return left, right


def _numbers(operator: str, left: TypedSql, right: TypedSql) -> TypedSql:
    one, other = left.type, right.type
    name = max(one.name, other.name, key=_RANK.index)
    if name == "float4" and (one.name != "float4" or other.name != "float4"):
        name = "float8"
    if name in ("float4", "float8"):
        return _floats(operator, left, right, FLOAT4 if name == "float4" else FLOAT8)
    if name == "numeric":
        return _decimals(operator, left, right)
    type = PgType(name)
    left, right = casts.converted(left, type), casts.converted(right, type)
    if operator == "/":
        return merged(f"({left.sql} // {right.sql})", type, (left, right))
    if operator == "%" and right.value in (None, -1):  # which DuckDB takes for too large
        return merged(f"({left.sql} % CASE WHEN {right.sql} = -1 THEN 1 ELSE {right.sql} END)", type, (left, right))
    return merged(f"({left.sql} {operator} {right.sql})", type, (left, right))


def _floats(operator: str, left: TypedSql, right: TypedSql, type: PgType) -> TypedSql:
    if operator == "%":
        raise missing(operator, left.type, right.type)
    left, right = casts.converted(left, type), casts.converted(right, type)
    a, b = left.sql, right.sql
    if operator == "/":
        b = f"(CASE WHEN {b} = 0 AND {a} IS NOT NULL THEN error('22012|division by zero') ELSE {b} END)"
    sql = f"({a} {operator} {b})"
    return merged(finite(sql, (left.sql, right.sql), type), type, (left, right))


def finite(sql: str, parts: tuple[str, ...], type: PgType) -> str:
    """A floating point result that is an error where it is infinite and its operands are not."""
    if len(sql) > 400:  # which would be written twice, and again and again further out
        return sql
    inputs = " AND ".join(f"isfinite({part})" for part in parts)
    return (f"(CASE WHEN isinf({sql}) AND {inputs} THEN CAST(error('22003|value out of range: overflow') AS {type.duck}) "  # noqa: E501
            f"ELSE {sql} END)")  # fmt: skip


def _decimals(operator: str, left: TypedSql, right: TypedSql) -> TypedSql:
    left, right = casts.converted(left, as_numeric(left.type)), casts.converted(right, as_numeric(right.type))
    if is_wide():
        return wide(operator, [left, right])
    one, other = left.type, right.type
    if operator == "/":
        return divided(left, right)
    whole = max((one.precision or DIGITS) - one.scale, (other.precision or DIGITS) - other.scale)
    if operator == "*":
        scale = one.scale + other.scale
        if scale > quotient_scale() + 4:
            sql = python_functions.multiplied(left.sql, one.scale, right.sql, other.scale)
            return merged(sql, numeric(quotient_scale()), (left, right))
        digits = min(DIGITS, (one.precision or DIGITS) + (other.precision or DIGITS))
        return merged(f"({left.sql} * {right.sql})", numeric(scale, digits), (left, right))
    scale = max(one.scale, other.scale)
    type = numeric(scale, min(DIGITS, whole + scale + 1))
    return merged(f"({left.sql} {operator} {right.sql})", type, (left, right))


def wide(name: str, given: list[TypedSql]) -> TypedSql:
    """An operator or function of numerics of any size."""
    values = [casts.converted(each, numeric(0)) for each in given]
    function = {1: "wide_one", 2: "wide_two"}[len(values)]
    sql = python_functions.call(function, *(each.sql for each in values), literals.quoted(name))
    return merged(sql, numeric(0), values)


def divided(left: TypedSql, right: TypedSql) -> TypedSql:
    """The quotient of two numerics."""
    sql = python_functions.divided(left.sql, left.type.scale, right.sql, right.type.scale)
    return merged(sql, numeric(quotient_scale()), (left, right))


def _times(operator: str, left: TypedSql, right: TypedSql) -> TypedSql | None:
    """Arithmetic of dates, times and intervals."""
    one, other, parts = left.type.name, right.type.name, (left, right)
    a, b = left.sql, right.sql
    if (
        operator == "+"
        and (
            other in _MOMENTS
            or (other, one) == ("time", "interval")
            or (one == "interval" and other in INTEGERS)
            or (one in INTEGERS and other == "date")
        )
        and one not in _MOMENTS
    ):
        return _times(operator, right, left) if one not in ("time",) or other != "time" else None
    if operator in "+-" and one == "date" and other in INTEGERS:
        return merged(f"({a} {operator} CAST({b} AS INTEGER))", DATE, parts) if other != "int8" else None
    if operator in "+-" and one in _MOMENTS and other == "interval":
        type = TIMESTAMPTZ if one == "timestamptz" else TIMESTAMP
        return merged(f"(CAST({a} AS TIMESTAMP) {operator} {b})", type, parts)
    if operator in "+-" and one == "time" and other == "interval":
        return merged(f"({a} {operator} {b})", TIME, parts)
    if operator == "+" and {one, other} == {"date", "time"}:
        day, clock = (a, b) if one == "date" else (b, a)
        return merged(f"({day} + {clock})", TIMESTAMP, parts)
    if operator == "-" and one == other == "date":
        return merged(f"CAST(({a} - {b}) AS INTEGER)", INT4, parts)
    if operator == "-" and one == other == "time":
        return merged(f"to_microseconds(date_diff('microsecond', {b}, {a}))", INTERVAL, parts)
    if operator == "-" and one in _MOMENTS and other in _MOMENTS:
        return merged(f"(CAST({a} AS TIMESTAMP) - CAST({b} AS TIMESTAMP))", INTERVAL, parts)
    if operator in "+-" and one == other == "interval":
        return merged(f"({a} {operator} {b})", INTERVAL, parts)
    if operator == "*" and other == "interval" and left.type.family == "N":
        return _times(operator, right, left)
    if operator in "*/" and one == "interval" and right.type.family == "N":
        factor = f"CAST({b} AS DOUBLE)"
        if operator == "/":
            factor = f"(1.0 / CASE WHEN {factor} = 0 THEN error('22012|division by zero') ELSE {factor} END)"
        return merged(_scaled(a, factor), INTERVAL, parts)
    return None


def _scaled(span: str, factor: str) -> str:
    """An interval times a number, whose fractions go on to the smaller units."""
    whole = f"(datepart('year', {span}) * 12 + datepart('month', {span}))"
    months = f"({whole} * {factor})"
    days = f"(datepart('day', {span}) * {factor} + ({months} - trunc({months})) * 30)"
    clock = f"({span} - to_months(CAST({whole} AS INTEGER)) - to_days(CAST(datepart('day', {span}) AS INTEGER)))"
    micros = f"(epoch_us({clock}) * {factor} + ({days} - trunc({days})) * 86400000000)"
    return (f"(to_months(CAST(trunc({months}) AS INTEGER)) + to_days(CAST(trunc({days}) AS INTEGER)) "
            f"+ to_microseconds(CAST(round({micros}) AS BIGINT)))")  # fmt: skip


def power(left: TypedSql, right: TypedSql) -> TypedSql:
    """`^` and power(): numerics give a numeric here only by way of floating point."""
    types = {left.type.name, right.type.name}
    if not all(each.type.family == "N" or each.type.name == "unknown" for each in (left, right)):
        raise missing("^", left.type, right.type)
    if is_wide() and "numeric" in types and not types & {"float4", "float8"}:
        return wide("power", [left, right])
    if "numeric" in types and "unknown" in types and not types & {"float4", "float8"}:
        to = PgType("numeric", 0, -1)
        return power(*(casts.converted(each, to) if each.type.name == "unknown" else each for each in (left, right)))
    if "numeric" in types and not types & {"float4", "float8", "unknown"}:
        texts = [casts.as_text(each.sql, each.type) for each in (left, right)]
        return merged(python_functions.exact("exact_power", *texts), numeric(quotient_scale()), (left, right))
    a, b = casts.converted(left, FLOAT8), casts.converted(right, FLOAT8)
    checked = (f"(CASE WHEN {a.sql} = 0 AND {b.sql} < 0 THEN error('2201F|zero raised to a negative power is undefined') "  # noqa: E501
               f"WHEN {a.sql} < 0 AND {b.sql} <> trunc({b.sql}) THEN error('2201F|a negative number raised to a "
               f"non-integer power yields a complex result') ELSE {a.sql} END)")  # fmt: skip
    sql = finite(f"power({checked}, {b.sql})", (a.sql, b.sql), FLOAT8)
    return merged(sql, FLOAT8, (left, right))


def negated(given: TypedSql) -> TypedSql:
    """`-` of one operand."""
    if given.type.name == "unknown":
        if not given.is_null:
            raise SqlError("operator is not unique: - unknown", sqlstate="42725", hint="CAST may help")
        given = casts.converted(given, FLOAT8)
    if given.value is not None and given.type.name in ("int4", "int8") and given.type == integer(given.value).type \
            == integer(-given.value).type:  # fmt: skip
        return integer(-given.value)
    if given.type.family not in "NT":
        raise missing("-", given.type)
    if given.type.wide:
        return wide("neg", [given])
    sql = f"(- {given.sql})"
    return merged(f"CAST({sql} AS {given.type.duck})" if given.type.name in INTEGERS else sql, given.type, (given,))


def integer(value: int) -> TypedSql:
    """An integer that stands in a statement."""
    for type, limit in ((INT4, 2**31), (INT8, 2**63)):
        if -limit <= value < limit:
            return TypedSql(f"CAST({value} AS {type.duck})", type, value=value)
    sql, found = literals.number(Decimal(value))
    return TypedSql(sql, found, value=value)


# text


def concatenated(left: TypedSql, right: TypedSql) -> TypedSql:
    """`||` of texts, of a text and anything, of arrays, of bytes and of jsonb."""
    one, other = left.type, right.type
    if one.is_array or other.is_array:
        return _arrays_joined(left, right)
    if "jsonb" in (one.name, other.name):
        a, b = casts.converted(left, JSONB), casts.converted(right, JSONB)
        return merged(
            python_functions.call("json_edit", a.sql, "'concat'", "CAST([] AS VARCHAR[])", b.sql), JSONB, (a, b)
        )
    if "bytea" in (one.name, other.name) and {one.name, other.name} <= {"bytea", "unknown"}:
        a, b = casts.converted(left, PgType("bytea")), casts.converted(right, PgType("bytea"))
        return merged(f"({a.sql} || {b.sql})", PgType("bytea"), (a, b))
    if one.family not in "SX" and other.family not in "SX":
        raise missing("||", one, other)
    a, b = (casts.converted(each, TEXT, explicit=True) for each in (left, right))
    return merged(f"({a.sql} || {b.sql})", TEXT, (a, b))


def _arrays_joined(left: TypedSql, right: TypedSql) -> TypedSql:
    array = left.type if left.type.is_array else right.type
    if left.type.name == "unknown" or right.type.name == "unknown":
        left, right = (casts.converted(each, array) for each in (left, right))
    if left.type.is_array and right.type.is_array:
        left, right = unified([left, right], "||")
        return merged(f"list_concat({left.sql}, {right.sql})", left.type, (left, right))
    if left.type.is_array:
        value = casts.converted(right, array.element)
        return merged(f"list_append({left.sql}, {value.sql})", array, (left, right))
    value = casts.converted(left, array.element)
    return merged(f"list_prepend({value.sql}, {right.sql})", array, (left, right))


def _json_minus(left: TypedSql, right: TypedSql) -> TypedSql:
    if right.type.is_array:
        keys = right.sql
    elif right.type.name in INTEGERS:
        keys = f"[chr(0) || CAST({right.sql} AS VARCHAR)]"
    elif right.type.family == "S":
        keys = f"[{right.sql}]"
    else:
        raise missing("-", left.type, right.type)
    return merged(python_functions.call("json_edit", left.sql, "'minus'", keys, "''"), JSONB, (left, right))
