"""Functions that give several rows for one: each is the list of its values in DuckDB."""

from __future__ import annotations

from collections.abc import Callable

from ontolake.sql.executor import calls, casts, python_functions
from ontolake.sql.executor.pg_types import (
    INT4,
    INT8,
    INTERVAL,
    JSON,
    JSONB,
    NUMBERS,
    TEXT,
    VECTORS,
    PgType,
    as_numeric,
    common,
    numeric,
)
from ontolake.sql.executor.typed import TypedSql


def _series(arguments: list[TypedSql]) -> tuple[str, PgType]:
    if not 2 <= len(arguments) <= 3:
        raise calls.unknown_function("generate_series", arguments)
    type = common([each.type for each in arguments[:2]])
    if type is None or type.name not in ("unknown", *NUMBERS, "date", "timestamp", "timestamptz"):
        raise calls.unknown_function("generate_series", arguments)
    if type.family == "D":
        type = PgType("timestamptz" if type.name in ("timestamptz", "date") else "timestamp")
        ends = [
            casts.converted(casts.plain(each) if each.type.name != "unknown" else each, type) for each in arguments[:2]
        ]
        step = casts.converted(arguments[2], INTERVAL) if len(arguments) == 3 else None
        if step is None:
            raise calls.unknown_function("generate_series", arguments)
        return f"generate_series(CAST({ends[0].sql} AS TIMESTAMP), CAST({ends[1].sql} AS TIMESTAMP), {step.sql})", type
    type = common([each.type for each in arguments])
    if type is not None and type.name == "numeric":
        return _numeric_series(arguments)
    if type is None or type.name not in ("int2", "int4", "int8"):
        raise calls.unknown_function("generate_series", arguments)
    type = INT8 if type.name == "int8" else INT4
    sqls = [casts.converted(each, type).sql for each in arguments]
    if len(sqls) == 3:
        sqls[2] = f"(CASE WHEN {sqls[2]} = 0 THEN error('22023|step size cannot equal zero') ELSE {sqls[2]} END)"
    return f"CAST(generate_series({', '.join(sqls)}) AS {type.duck}[])", type


def _numeric_series(arguments: list[TypedSql]) -> tuple[str, PgType]:
    """Numerics from one to another: their places are counted, so that nothing is lost."""
    values = [casts.converted(each, as_numeric(each.type)) for each in arguments]
    type = numeric(max(each.type.scale for each in values))
    low, high, *steps = (f"CAST({each.sql} AS {type.duck})" for each in values)
    step = steps[0] if steps else f"CAST(1 AS {type.duck})"
    wrong = f"CAST(error('22023|step size cannot equal zero') AS {type.duck})"
    checked = f"(CASE WHEN {step} = 0 THEN {wrong} ELSE {step} END)"
    count = f"CAST(floor(CAST({high} - {low} AS DOUBLE) / CAST({checked} AS DOUBLE) + 1e-9) AS BIGINT)"
    one = f"lambda e: CAST({low} + e * {step} AS {type.duck})"
    return f"list_transform(range(0, greatest({count}, -1) + 1), {one})", type


def _elements(arguments: list[TypedSql]) -> tuple[str, PgType]:
    if len(arguments) != 1 or not arguments[0].type.is_array:
        raise calls.unknown_function("unnest", arguments)
    return arguments[0].sql, arguments[0].type.element


def _json_rows(kind: str, type: PgType, source: PgType) -> Callable[[list[TypedSql]], tuple[str, PgType]]:
    def apply(arguments: list[TypedSql]) -> tuple[str, PgType]:
        value = casts.converted(arguments[0], source)
        return python_functions.call("json_list", value.sql, f"'{kind}'"), type

    return apply


def _pattern_rows(name: str, type: PgType) -> Callable[[list[TypedSql]], tuple[str, PgType]]:
    def apply(arguments: list[TypedSql]) -> tuple[str, PgType]:
        texts = [casts.converted(casts.plain(each), TEXT).sql for each in arguments]
        return python_functions.call(name, *texts, *(["''"] if len(texts) == 2 else [])), type

    return apply


def _path_rows(arguments: list[TypedSql]) -> tuple[str, PgType]:
    if not 2 <= len(arguments) <= 4:
        raise calls.unknown_function("jsonb_path_query", arguments)
    document, path = casts.converted(arguments[0], JSONB), casts.converted(arguments[1], PgType("jsonpath"))
    variables = casts.converted(arguments[2], JSONB).sql if len(arguments) > 2 else "'{}'"
    silent = f"CASE WHEN {arguments[3].sql} THEN 'silent' ELSE '' END" if len(arguments) > 3 else "''"
    return python_functions.call("json_path", document.sql, path.sql, variables, silent), JSONB


def _subscripts(arguments: list[TypedSql]) -> tuple[str, PgType]:
    first = 0 if arguments[0].type.name in VECTORS else 1
    return f"CAST(range({first}, len({arguments[0].sql}) + {first}) AS INTEGER[])", INT4


def _places(arguments: list[TypedSql]) -> tuple[str, PgType]:
    """`_pg_expandarray`: the elements of an array, each with its place."""
    if len(arguments) != 1 or not arguments[0].type.is_array:
        raise calls.unknown_function("_pg_expandarray", arguments)
    array, type = arguments[0].sql, arguments[0].type.element
    one = f"lambda e: {{'c0': {array}[e], 'c1': CAST(e AS INTEGER)}}"
    return f"list_transform(range(1, len({array}) + 1), {one})", PgType("record", fields=(("x", type), ("n", INT4)))


def _split_rows(arguments: list[TypedSql]) -> tuple[str, PgType]:
    return calls.function("string_to_array", arguments).sql, TEXT


SPREADING: dict[str, Callable[[list[TypedSql]], tuple[str, PgType]]] = {
    "generate_series": _series, "unnest": _elements, "generate_subscripts": _subscripts, "string_to_table": _split_rows,
    "_pg_expandarray": _places, "pg_partition_ancestors": lambda _: ("CAST([] AS BIGINT[])", PgType("regclass")),
    "jsonb_array_elements": _json_rows("elements:jsonb", JSONB, JSONB),
    "json_array_elements": _json_rows("elements:json", JSON, JSON),
    "jsonb_array_elements_text": _json_rows("elements:text", TEXT, JSONB),
    "json_array_elements_text": _json_rows("elements:raw", TEXT, JSON),
    "jsonb_object_keys": _json_rows("keys:jsonb", TEXT, JSONB), "json_object_keys": _json_rows("keys:json", TEXT, JSON),
    "jsonb_path_query": _path_rows, "regexp_matches": _pattern_rows("match_pattern", TEXT.array),
    "regexp_split_to_table": _pattern_rows("split_pattern", TEXT),
}  # fmt: skip
"""Functions that give rows: the list of their values in DuckDB, and the type of one."""
NAMED_ROWS = {"jsonb_array_elements", "json_array_elements", "jsonb_array_elements_text", "json_array_elements_text"}
"""Those whose column is named value."""
PAIRS = {"jsonb_each": ("jsonb", JSONB), "json_each": ("json", JSON), "jsonb_each_text": ("text", JSONB),
         "json_each_text": ("text", JSON)}  # fmt: skip
"""Functions that give rows of a key and a value."""
