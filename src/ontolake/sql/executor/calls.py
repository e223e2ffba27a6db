"""Calls of functions: which one a name and the types of its arguments mean, and what it is in DuckDB."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from ontolake.sql.errors import SqlError, UnknownNameError, UnsupportedError, nearest
from ontolake.sql.executor import casts, literals, operators, python_functions, records, wide_calls
from ontolake.sql.executor.pg_types import (
    DIGITS,
    FLOAT8,
    INT4,
    INTEGERS,
    INTERVAL,
    JSON,
    JSONB,
    PREFERRED,
    TEXT,
    TIMESTAMP,
    PgType,
    WideNumber,
    as_numeric,
    common,
    is_implicit,
    numeric,
    quotient_scale,
)
from ontolake.sql.executor.signatures import AGGREGATES, ROW_FUNCTIONS, SCALARS, WINDOWS, Signature
from ontolake.sql.executor.typed import TypedSql, merged

_WILD = {"any", "sortable", "same", "element", "array"}
_UNSORTABLE = ("bool", "json", "jsonb", "uuid", "bytea", "record")


class Modifiers:
    """What stands around the arguments of an aggregate: DISTINCT, ORDER BY, FILTER and OVER, in DuckDB's SQL."""

    def __init__(self, distinct: str = "", order: str = "", filter: str = "", over: str = "") -> None:
        self.distinct, self.order, self.filter, self.over = distinct, order, filter, over


_PLAIN = Modifiers()


def unknown_function(name: str, arguments: Sequence[TypedSql]) -> SqlError:
    """The error for a function that there is not for these arguments."""
    known = {*SCALARS, *AGGREGATES, *WINDOWS, *SPECIAL, *ROW_FUNCTIONS}
    types = ", ".join(each.type.shown for each in arguments)
    hint = "no function matches the types of the arguments; CAST may help" if name in known else nearest(name, known)
    if hint is not None and hint.startswith("there are"):
        hint = None
    return UnknownNameError(f"function {name}({types}) does not exist", sqlstate="42883", hint=hint)


def chosen(candidates: Sequence[Signature], arguments: Sequence[TypedSql]) -> Signature | None:
    """The function whose arguments are closest to those that are given; None if none fits."""
    best: tuple[tuple[int, int], Signature] | None = None
    for each in candidates:
        if len(each.arguments) != len(arguments):
            continue
        exact = liked = 0
        for wanted, given in zip(each.arguments, arguments, strict=True):
            name = "text" if given.type.family == "S" else given.type.name
            if wanted in _WILD:
                if wanted == "array" and not given.type.is_array and name != "unknown":
                    break
                if wanted == "sortable" and name in _UNSORTABLE:
                    break
                continue
            if name == wanted:
                exact += 1
            elif not is_implicit(given.type, PgType(wanted)):
                break
            liked += wanted in PREFERRED or (name == "unknown" and wanted == "text")
        else:
            if best is None or (exact, liked) > best[0]:
                best = ((exact, liked), each)
    return None if best is None else best[1]


def function(name: str, arguments: list[TypedSql], modifiers: Modifiers = _PLAIN, table: str = "scalar") -> TypedSql:
    """A call. Raises `UnknownNameError` (42883)."""
    tables = {"scalar": SCALARS, "aggregate": AGGREGATES, "window": WINDOWS}[table]
    found = chosen(tables.get(name, ()), arguments)
    if found is None:
        raise unknown_function(name, arguments)
    values = _arguments(found, arguments)
    returns = _returns(found, values)
    sql = _filled(found.sql, values, modifiers)
    result = merged(sql, returns, values)
    return result._replace(volatile=True) if found.volatile else result


def _arguments(found: Signature, arguments: list[TypedSql]) -> list[TypedSql]:
    """The arguments as those that a function takes."""
    array = next((given.type for wanted, given in zip(found.arguments, arguments, strict=True)
                  if wanted == "array" and given.type.is_array), None)  # fmt: skip
    values = []
    for wanted, given in zip(found.arguments, arguments, strict=True):
        if wanted == "array":
            values.append(given if given.type.is_array else casts.converted(given, array or TEXT.array))
        elif wanted == "element" and array is not None:
            values.append(casts.converted(given, array.element))
        elif wanted == "same":
            type = common([arguments[0].type, given.type])
            if type is None:
                raise unknown_function(found.name, arguments)
            values.append(casts.converted(given, type))
        elif wanted in _WILD:
            is_text = given.type.name == "unknown"
            values.append(casts.converted(given, TEXT) if is_text else given)
        elif wanted == "numeric":
            values.append(casts.converted(given, PgType("numeric", 0, -1) if given.type.name == "unknown"
                                          else as_numeric(given.type)))  # fmt: skip
        else:
            value = casts.plain(given) if given.type.name != "unknown" else given
            values.append(casts.converted(value, PgType(wanted)))
    return values


def _returns(found: Signature, values: list[TypedSql]) -> PgType:
    name = found.returns
    if name.startswith("="):
        type = values[int(name[1:] or 0)].type
        return type._replace(length=0) if type.family != "S" else TEXT
    scale = values[0].type.scale if values and values[0].type.name == "numeric" else 0
    special = {"whole": numeric(0), "numeric0": numeric(0), "total": numeric(scale),
               "quotient": numeric(quotient_scale()), "array0": values[0].type.array if values else TEXT}  # fmt: skip
    return special.get(name) or PgType(name)


def _filled(template: str, values: list[TypedSql], modifiers: Modifiers) -> str:
    def place(found: re.Match[str]) -> str:
        word = found[1]
        if word in ("d", "o", "f", "w"):
            return {"d": modifiers.distinct, "o": modifiers.order, "f": modifiers.filter, "w": modifiers.over}[word]
        if word == "type":
            return literals.quoted(values[0].type.shown)
        value = values[int(word[0])]
        if word.endswith("t"):
            return f"list_transform({value.sql}, lambda e: {casts.as_text('e', value.type.element)})"
        if word.endswith("j"):
            return json_text(value)
        if word.endswith("s"):
            return _shown(value)
        if word.endswith("k"):
            return f"CAST(to_json({casts.as_text(value.sql, value.type)}) AS VARCHAR)"
        return value.sql

    sql = re.sub(r"\{(\w+)\}", place, template)
    for name in set(re.findall(r"@(\w+)\(", template)):
        sql = sql.replace(f"@{name}(", python_functions.call(name)[:-1])
    return sql


def json_text(value: TypedSql) -> str:
    """A value as the text of JSON."""
    type = value.type
    if type.name in ("json", "jsonb"):
        return value.sql
    if type.name in ("float4", "float8"):
        text = casts.as_text(value.sql, type)
        return f"(CASE WHEN isfinite({value.sql}) THEN {text} ELSE CAST(to_json({text}) AS VARCHAR) END)"
    if type.name in ("numeric", *INTEGERS, "bool"):
        return casts.as_text(value.sql, type)
    if type.name in ("timestamp", "timestamptz"):
        text = f"replace({casts.as_text(value.sql, type)}, ' ', 'T')"
        text = f"replace({text}, '+00', '+00:00')" if type.name == "timestamptz" else text
        return f"CAST(to_json({text}) AS VARCHAR)"
    if type.name == "record":
        parts = [f"{literals.quoted(json.dumps(name, ensure_ascii=False) + ':')} || coalesce({json_text(each)}, 'null')"
                 for name, each in records.fields(value)]  # fmt: skip
        whole = " || ',' || ".join(parts)
        return f"(CASE WHEN {value.sql} IS NOT NULL THEN '{{' || {whole} || '}}' END)"
    if type.is_array:
        inner = json_text(TypedSql("e", type.element))
        items = f"list_transform({value.sql}, lambda e: coalesce({inner}, 'null'))"
        return f"('[' || array_to_string({items}, ',') || ']')"
    return f"CAST(to_json({casts.as_text(value.sql, type)}) AS VARCHAR)"


# functions with rules of their own


def _choice(name: str) -> Callable[[list[TypedSql]], TypedSql]:
    def apply(arguments: list[TypedSql]) -> TypedSql:
        values = operators.unified(arguments, name.upper())
        type = common([each.type for each in values])
        return merged(f"{name}({', '.join(each.sql for each in values)})", type or TEXT, values)

    return apply


def _nullif(arguments: list[TypedSql]) -> TypedSql:
    one, other = operators.matched("=", *arguments)
    kept = arguments[0] if arguments[0].type.name != "unknown" else casts.converted(arguments[0], TEXT)
    return merged(f"(CASE WHEN {one.sql} = {other.sql} THEN NULL ELSE {kept.sql} END)", kept.type, (kept, other))


def _rounded(name: str) -> Callable[[list[TypedSql]], TypedSql]:
    def apply(arguments: list[TypedSql]) -> TypedSql:
        if len(arguments) == 1:
            return function(name, arguments)
        value, places = arguments
        if value.type.name in ("float4", "float8") or value.type.family not in "NX":
            raise unknown_function(name, arguments)
        to = PgType("numeric", 0, -1) if value.type.name == "unknown" else as_numeric(value.type)
        value, places = casts.converted(value, to), casts.converted(places, INT4)
        if places.value is None or places.value < 0:
            factor = f"power(CAST(10 AS DOUBLE), {places.sql})"
            if places.value is not None:
                power = 10**-places.value
                whole = f"CAST({name}({value.sql} / {power}.0) AS DECIMAL({DIGITS}, 0))"
                return merged(f"({whole} * {power})", numeric(0), arguments)
            sql = f"CAST({name}(CAST({value.sql} AS DOUBLE) * {factor}) / {factor} AS {numeric(value.type.scale).duck})"
            return merged(sql, numeric(value.type.scale), arguments)
        if places.value > quotient_scale():
            raise WideNumber
        scale = places.value
        if scale >= value.type.scale:
            to = numeric(scale)
            return merged(f"CAST({value.sql} AS {to.duck})", to, arguments)
        sql = f"round({value.sql}, {scale})"
        if name == "trunc":
            half = f"(CASE WHEN {value.sql} < 0 THEN 0.5 ELSE -0.5 END / CAST(1{'0' * scale} AS DOUBLE))"
            unit = numeric(scale + 1)
            sql = f"(CASE WHEN {value.sql} = round({value.sql}, {scale}) THEN round({value.sql}, {scale}) ELSE " \
                  f"round({value.sql} + CAST({half} AS {unit.duck}), {scale}) END)"  # fmt: skip
        return merged(f"CAST({sql} AS {numeric(scale).duck})", numeric(scale), arguments)

    return apply


def _modulo(arguments: list[TypedSql]) -> TypedSql:
    if any(each.type.name in ("float4", "float8") for each in arguments):
        raise unknown_function("mod", arguments)
    return operators.arithmetic("%", *arguments)


def _whole_quotient(arguments: list[TypedSql]) -> TypedSql:
    values = [casts.converted(each, as_numeric(each.type)) for each in arguments]
    texts = [casts.as_text(each.sql, each.type) for each in values]
    return merged(f"trunc({python_functions.exact('exact_div', *texts)})", numeric(0), values)


def _logarithm(name: str) -> Callable[[list[TypedSql]], TypedSql]:
    def apply(arguments: list[TypedSql]) -> TypedSql:
        exact = any(each.type.name in ("numeric", *INTEGERS) for each in arguments) and not any(
            each.type.name in ("float4", "float8") for each in arguments) and any(
            each.type.name == "numeric" for each in arguments)  # fmt: skip
        if exact:
            texts = [casts.as_text(each.sql, each.type) for each in arguments]
            name_, texts = ("exact_ln", texts) if name == "ln" else ("exact_log", ["'10'", *texts][-2:])
            return merged(python_functions.exact(name_, *texts), numeric(quotient_scale()), arguments)
        values = [casts.converted(each, FLOAT8) for each in arguments]
        checked = [f"(CASE WHEN {each.sql} = 0 THEN error('2201E|cannot take logarithm of zero') WHEN {each.sql} < 0 "
                   f"THEN error('2201E|cannot take logarithm of a negative number') ELSE {each.sql} END)"
                   for each in values]  # fmt: skip
        sql = f"{name}({checked[0]})" if len(checked) == 1 else f"(ln({checked[1]}) / ln({checked[0]}))"
        if len(values) == 2:
            texts = [casts.as_text(each.sql, each.type) for each in arguments]
            return merged(python_functions.exact("exact_log", *texts), numeric(quotient_scale()), arguments)
        return merged(sql, FLOAT8, arguments)

    return apply


def _exact_or_float(name: str) -> Callable[[list[TypedSql]], TypedSql]:
    """A function that is exact for numerics, and DuckDB's for others."""

    def apply(arguments: list[TypedSql]) -> TypedSql:
        if arguments[0].type.name != "numeric":
            return function(name, arguments)
        text = casts.as_text(arguments[0].sql, arguments[0].type)
        return merged(python_functions.exact(f"exact_{name}", text), numeric(quotient_scale()), arguments)

    return apply


def _row_to_json(arguments: list[TypedSql]) -> TypedSql:
    if arguments[0].type.name != "record":
        raise unknown_function("row_to_json", arguments)
    return merged(json_text(arguments[0]), JSON, arguments)


def deviation(name: str, given: TypedSql, modifiers: Modifiers) -> TypedSql:
    """variance(), stddev() and the like of integers and numerics."""
    value = casts.converted(given, as_numeric(given.type))
    wide = f"CAST({value.sql} AS DECIMAL({DIGITS}, {value.type.scale}))"
    around = f"{modifiers.filter}{modifiers.over}"
    texts = [f"CAST({sql}{around} AS VARCHAR)"
             for sql in (f"count({wide})", f"sum({wide})", f"sum({wide} * {wide})")]  # fmt: skip
    if value.type.scale == 0:
        texts[2] = f"CAST(sum(CAST({value.sql} AS HUGEINT) * CAST({value.sql} AS HUGEINT)){around} AS VARCHAR)"
    kind = "deviation" if name.startswith("stddev") else "variance"
    form = "population" if name.endswith("_pop") else "sample"
    sql = python_functions.exact("exact_variance", *texts, f"'{kind}:{form}'")
    return merged(sql, numeric(quotient_scale()), [given])


def _shown(value: TypedSql) -> str:
    """A value as functions of text show it: a truth value is a letter."""
    if value.type.name == "bool":
        return f"(CASE WHEN {value.sql} THEN 't' WHEN NOT {value.sql} THEN 'f' END)"
    return casts.converted(value, TEXT, explicit=True).sql


def _concat(arguments: list[TypedSql]) -> TypedSql:
    return merged(f"concat({', '.join(map(_shown, arguments))})", TEXT, arguments)


def _concat_ws(arguments: list[TypedSql]) -> TypedSql:
    return merged(f"concat_ws({', '.join(map(_shown, arguments))})", TEXT, arguments)


def _format(arguments: list[TypedSql]) -> TypedSql:
    texts = [_shown(each) for each in arguments]
    values = f"CAST([{', '.join(texts[1:])}] AS VARCHAR[])"
    return merged(python_functions.call("format", texts[0], values), TEXT, arguments)


def overlap(a: str, b: str, c: str, d: str) -> str:
    """Whether two periods have a moment in common: NULL where that depends on an end that is not known."""
    first, last = f"least({a}, {b})", f"greatest({a}, {b})"
    start, end = f"least({c}, {d})", f"greatest({c}, {d})"
    known = (f"CASE WHEN {first} = {start} THEN TRUE WHEN {first} > {start} THEN {first} < {end} "
             f"ELSE {start} < {last} END")  # fmt: skip
    certain = f"(({a} > {c} AND {a} < {d}) OR ({c} > {a} AND {c} < {b}) OR ({b} > {c} AND {b} < {d}))"
    return (f"(CASE WHEN {a} IS NOT NULL AND {b} IS NOT NULL AND {c} IS NOT NULL AND {d} IS NOT NULL THEN {known} "
            f"WHEN {certain} THEN TRUE WHEN coalesce({a}, {b}) = coalesce({c}, {d}) AND ({a} IS NULL OR {b} IS NULL) "
            f"AND ({c} IS NULL OR {d} IS NULL) THEN TRUE END)")  # fmt: skip


def spread_over(name: str, given: list[TypedSql], array: TypedSql) -> TypedSql:
    """A call whose last arguments are the elements of an array. Raises `UnsupportedError`."""
    texts = f"list_transform({array.sql}, lambda e: {_shown(TypedSql('e', array.type.element))})"
    present = f"list_filter({texts}, lambda e: e IS NOT NULL)"
    parts = [*given, array]
    if name == "concat" and not given:
        return merged(f"array_to_string({present}, '')", TEXT, parts)
    if name == "concat_ws" and len(given) == 1:
        return merged(f"array_to_string({present}, {_shown(given[0])})", TEXT, parts)
    if name == "format" and len(given) == 1:
        values = f"coalesce({texts}, CAST([] AS VARCHAR[]))"
        return merged(python_functions.call("format", _shown(given[0]), values), TEXT, parts)
    if name in ("json_build_array", "jsonb_build_array") and not given:
        return SPECIAL["to_json" if name == "json_build_array" else "to_jsonb"]([array])
    raise UnsupportedError(f"VARIADIC is not supported with {name}", hint="give the arguments one by one")


_FIELDS = {"year", "month", "day", "hour", "minute", "decade", "century", "millennium", "quarter", "week", "dow",
           "isodow", "doy", "isoyear"}  # fmt: skip
_ALIASES = {
    "years": "year",
    "months": "month",
    "days": "day",
    "hours": "hour",
    "minutes": "minute",
    "secs": "second",
    "seconds": "second",
    "sec": "second",
    "min": "minute",
    "mins": "minute",
    "mon": "month",
    "y": "year",
}


def extracted(field: str, given: TypedSql, *, exact: bool) -> TypedSql:
    """EXTRACT, a numeric, and date_part, a floating point number."""
    field = _ALIASES.get(field.lower(), field.lower())
    value = casts.plain(given) if given.type.name != "unknown" else casts.converted(given, TIMESTAMP)
    if value.type.family not in "DT":
        raise unknown_function("extract" if exact else "date_part", [TypedSql("", TEXT), given])
    sql, scale = value.sql, 0
    is_date, span = value.type.name == "date", value.type.name == "interval"
    if is_date and field in ("hour", "minute", "second", "milliseconds", "microseconds"):
        raise UnsupportedError(f'unit "{field}" not supported for type date', sqlstate="0A000")
    if field == "second":
        scale = 6
        found = f"(CAST(datepart('microsecond', {sql}) AS DECIMAL(18, 0)) * CAST(0.000001 AS DECIMAL(7, 6)))"
    elif field in ("milliseconds", "millisecond", "microseconds", "microsecond"):
        scale = 3 if field.startswith("milli") else 0
        found = f"CAST(datepart('microsecond', {sql}) AS DECIMAL(18, 3))"
        found = f"CAST({found} * CAST(0.001 AS DECIMAL(4, 3)) AS DECIMAL(38, 3))" if scale else found
    elif field == "epoch":
        scale = 6 if not is_date else 0
        micros = f"epoch_us({sql})"
        if span:  # a year has 365.25 days here
            years = f"datepart('year', {sql})"
            micros = f"({micros} + CAST(trunc({years}) * 5.25 * 86400000000 AS BIGINT))"
        found = f"CAST(CAST({micros} AS DECIMAL(38, 6)) * CAST(0.000001 AS DECIMAL(7, 6)) AS DECIMAL(38, 6))"
        if is_date:
            found = f"(epoch_us(CAST({sql} AS TIMESTAMP)) // 1000000)"
    elif field == "julian" and not span:
        found = f"julian({sql})"
    elif field in ("timezone", "timezone_hour", "timezone_minute") and value.type.name == "timestamptz":
        found = "0"
    elif field.startswith("timezone"):
        raise UnsupportedError(f'unit "{field}" not supported for type {value.type.shown}')
    elif field in ("year", "isoyear") and not span:  # there is no year 0
        found = f"(datepart('{field}', {sql}) - CAST(datepart('{field}', {sql}) <= 0 AS BIGINT))"
    elif field == "decade" and not span:
        found = f"floor(datepart('year', {sql}) / 10.0)"
    elif field in _FIELDS:
        found = f"datepart('{field}', {sql})"
    else:
        raise SqlError(f'unit "{field}" not recognized for type {value.type.shown}', sqlstate="22023")
    if not exact:
        return merged(f"CAST({found} AS DOUBLE)", FLOAT8, [value])
    return merged(f"CAST({found} AS {numeric(scale).duck})", numeric(scale), [value])


def _date_part(arguments: list[TypedSql]) -> TypedSql:
    if arguments[0].text is None:
        raise UnsupportedError("date_part takes a field that stands in the statement")
    return extracted(arguments[0].text, arguments[1], exact=False)


def substring(arguments: list[TypedSql]) -> TypedSql:
    """substring and substr: a part of a text or of bytes, by places or by a pattern."""
    given = arguments[0]
    if len(arguments) == 3 and arguments[1].type.family in "SX" and arguments[2].type.family in "SX" and all(
            each.text is not None or each.type.family == "S" for each in arguments[1:]):  # fmt: skip
        texts = [casts.converted(casts.plain(each), TEXT).sql for each in arguments]
        return merged(python_functions.call("similar_part", *texts), TEXT, arguments)
    if len(arguments) == 2 and arguments[1].is_null:
        return merged("CAST(NULL AS VARCHAR)", TEXT, arguments)
    if (len(arguments) == 2 and arguments[1].type.family in "SX" and arguments[1].text is not None) or (
        len(arguments) == 2 and arguments[1].type.family == "S"
    ):
        values = [casts.converted(casts.plain(each), TEXT) for each in arguments]
        return merged(
            python_functions.call("match_pattern", values[0].sql, values[1].sql, "''") + "[1][1]", TEXT, values
        )
    is_bytes = given.type.name == "bytea"
    value = given if is_bytes else casts.converted(casts.plain(given), TEXT)
    numbers = [casts.converted(each, INT4) for each in arguments[1:]]
    start = numbers[0].sql
    if len(numbers) == 1:
        end = f"{'octet_length' if is_bytes else 'length'}({value.sql}) + 1"
    else:
        check = f"(CASE WHEN {numbers[1].sql} < 0 THEN error('22011|negative substring length not allowed') ELSE {numbers[1].sql} END)"  # noqa: E501
        end = f"(CAST({start} AS BIGINT) + {check})"
    if is_bytes:
        inner = f"hex({value.sql})[2 * greatest({start}, 1) - 1 : 2 * greatest({end} - 1, 0)]"
        return merged(f"unhex({inner})", PgType("bytea"), [value, *numbers])
    sql = f"substring({value.sql}, greatest({start}, 1), greatest({end} - greatest({start}, 1), 0))"
    return merged(sql, TEXT, [value, *numbers])


def _overlay(arguments: list[TypedSql]) -> TypedSql:
    if arguments[0].type.name == "bytea":
        data, part = arguments[0], casts.converted(arguments[1], arguments[0].type)
        numbers = [casts.converted(each, INT4).sql for each in arguments[2:]]
        numbers += [f"CAST(octet_length({part.sql}) AS INTEGER)"] if len(numbers) == 1 else []
        return merged(python_functions.call("bytes_overlay", data.sql, part.sql, *numbers), data.type, arguments)
    text, new = (casts.converted(casts.plain(each), TEXT) for each in arguments[:2])
    start = casts.converted(arguments[2], INT4)
    length = casts.converted(arguments[3], INT4).sql if len(arguments) > 3 else f"length({new.sql})"
    sql = f"(left({text.sql}, {start.sql} - 1) || {new.sql} || substring({text.sql}, {start.sql} + {length}))"
    return merged(sql, TEXT, arguments)


def _counted(nulls: bool) -> Callable[[list[TypedSql]], TypedSql]:
    test = "IS NULL" if nulls else "IS NOT NULL"
    return lambda arguments: merged(
        "(" + " + ".join(f"CAST(({each.sql} {test}) AS INTEGER)" for each in arguments) + ")", INT4, arguments
    )


def _made_json(what: str, type: PgType) -> Callable[[list[TypedSql]], TypedSql]:
    def apply(arguments: list[TypedSql]) -> TypedSql:
        if what == "object" and len(arguments) % 2:
            raise SqlError("argument list must have even number of elements", sqlstate="22023")
        values = [casts.converted(each, TEXT) if each.type.name == "unknown" else each for each in arguments]
        parts = ", ".join(_filled("{0k}", [each], _PLAIN) if what == "object" and n % 2 == 0 else json_text(each)
                          for n, each in enumerate(values))  # fmt: skip
        call = python_functions.call("json_made", f"CAST([{parts}] AS VARCHAR[])", f"'{what}:{type.name}'")
        return merged(call, type, values)

    return apply


def _to_json(type: PgType) -> Callable[[list[TypedSql]], TypedSql]:
    def apply(arguments: list[TypedSql]) -> TypedSql:
        value = casts.converted(arguments[0], TEXT) if arguments[0].type.name == "unknown" else arguments[0]
        text = json_text(value)
        return merged(python_functions.call("jsonb_text", text) if type.name == "jsonb" else text, type, [value])

    return apply


def _json_path(type: PgType, kind: str) -> Callable[[list[TypedSql]], TypedSql]:
    def apply(arguments: list[TypedSql]) -> TypedSql:
        value = casts.converted(arguments[0], type)
        keys = ", ".join(casts.converted(each, TEXT, explicit=True).sql for each in arguments[1:])
        sql = python_functions.call("json_get", value.sql, f"CAST([{keys}] AS VARCHAR[])", f"'{kind}'")
        return merged(sql, TEXT if kind in ("text", "raw") else type, arguments)

    return apply


def _make_interval(arguments: list[TypedSql]) -> TypedSql:
    units = ("years", "months", "weeks", "days", "hours", "minutes", "seconds")
    parts = [f"to_{unit}(CAST({each.sql} AS {'DOUBLE' if unit == 'seconds' else 'INTEGER'}))"
             for unit, each in zip(units, arguments, strict=False)]  # fmt: skip
    return merged(f"({' + '.join(parts) or 'to_days(0)'})", INTERVAL, arguments)


def _date_bin(arguments: list[TypedSql]) -> TypedSql:
    width = casts.converted(arguments[0], INTERVAL)
    value, origin = (
        casts.converted(casts.plain(each) if each.type.name != "unknown" else each, TIMESTAMP)
        if each.type.name in ("unknown", "date")
        else casts.plain(each)
        for each in arguments[1:]
    )
    return merged(f"time_bucket({width.sql}, {value.sql}, {origin.sql})", value.type, (width, value, origin))


SPECIAL: dict[str, Callable[[list[TypedSql]], TypedSql]] = {
    "coalesce": _choice("coalesce"), "greatest": _choice("greatest"), "least": _choice("least"), "nullif": _nullif,
    "round": _rounded("round"), "trunc": _rounded("trunc"), "mod": _modulo, "div": _whole_quotient,
    "power": lambda given: operators.power(*given), "pow": lambda given: operators.power(*given),
    "ln": _logarithm("ln"), "log": _logarithm("log10"), "log10": _logarithm("log10"), "concat": _concat,
    "concat_ws": _concat_ws, "format": _format, "date_part": _date_part, "substr": substring, "substring": substring,
    "overlay": _overlay, "num_nulls": _counted(True), "num_nonnulls": _counted(False),
    "json_build_object": _made_json("object", JSON), "jsonb_build_object": _made_json("object", JSONB),
    "json_build_array": _made_json("array", JSON), "jsonb_build_array": _made_json("array", JSONB),
    "to_json": _to_json(JSON), "to_jsonb": _to_json(JSONB), "array_to_json": _to_json(JSON),
    "jsonb_extract_path": _json_path(JSONB, "jsonb"), "json_extract_path": _json_path(JSON, "json"),
    "jsonb_extract_path_text": _json_path(JSONB, "text"), "json_extract_path_text": _json_path(JSON, "raw"),
    "make_interval": _make_interval, "date_bin": _date_bin, "row_to_json": _row_to_json,
    "sqrt": _exact_or_float("sqrt"), "exp": _exact_or_float("exp"),
}  # fmt: skip
"""Functions whose result depends on more than the types of the arguments."""
_ARITY = {"nullif": (2, 2), "round": (1, 2), "trunc": (1, 2), "mod": (2, 2), "div": (2, 2), "power": (2, 2),
          "pow": (2, 2), "ln": (1, 1), "log": (1, 2), "log10": (1, 1), "date_part": (2, 2), "substr": (2, 3),
          "substring": (2, 3), "overlay": (3, 4), "to_json": (1, 1), "to_jsonb": (1, 1), "array_to_json": (1, 1),
          "make_interval": (0, 7), "date_bin": (3, 3), "json_build_object": (0, 99), "jsonb_build_object": (0, 99),
          "row_to_json": (1, 2), "sqrt": (1, 1), "exp": (1, 1),
          "json_build_array": (0, 99), "jsonb_build_array": (0, 99)}  # fmt: skip


def called(name: str, arguments: list[TypedSql]) -> TypedSql:
    """A call of a function that gives one value for one row. Raises `UnknownNameError` (42883)."""
    if (found := wide_calls.called(name, arguments)) is not None:
        return found
    if name in SPECIAL:
        least, most = _ARITY.get(name, (1, 99))
        if not least <= len(arguments) <= most:
            raise unknown_function(name, arguments)
        return SPECIAL[name](arguments)
    return function(name, arguments)


def mean(given: TypedSql, modifiers: Modifiers) -> TypedSql:
    """avg() of integers and numerics, which is a numeric."""
    value = casts.converted(given, as_numeric(given.type))
    total = f"sum({modifiers.distinct}{value.sql}{modifiers.order}){modifiers.filter}{modifiers.over}"
    count = f"count({modifiers.distinct}{value.sql}){modifiers.filter}{modifiers.over}"
    sql = python_functions.divided(total, value.type.scale, f"CAST(nullif({count}, 0) AS DECIMAL(38, 0))", 0)
    return merged(sql, numeric(quotient_scale()), [given])
