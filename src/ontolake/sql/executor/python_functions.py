"""Functions that DuckDB does not have, or has otherwise, written in Python over whole columns.

A function is made known to DuckDB when a query first needs it. What it raises reaches the caller as the same error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from ontolake.sql.errors import SqlError
from ontolake.sql.executor import (
    angles,
    exact_functions,
    formats,
    json_functions,
    json_paths,
    literals,
    number_formats,
    patterns,
    text_functions,
    wide_numbers,
)
from ontolake.sql.executor.connections import define
from ontolake.sql.executor.pg_types import DIGITS, QUOTIENT_SCALES, PgType, WideNumber, quotient_scale
from ontolake.sql.types import documents

_CONTEXT = Context(prec=120, rounding=ROUND_HALF_UP)


class _Function(NamedTuple):
    apply: Callable[..., Any]
    arguments: tuple[str, ...]
    returns: str


def call(name: str, *arguments: str) -> str:
    """A call of one of these functions in DuckDB's SQL."""
    function = _FUNCTIONS[name]
    define(f"onto_{name}", lambda root: _create(root, f"onto_{name}", function))
    return f"onto_{name}({', '.join(arguments)})"


def _create(root: Any, name: str, function: _Function) -> None:
    root.create_function(name, _over_columns(function.apply, _RETURNS[function.returns], len(function.arguments)), list(function.arguments), function.returns,  # noqa: E501
                         type="arrow", null_handling="special", side_effects=False)  # fmt: skip


_RETURNS = {
    "VARCHAR": pa.string(), "BLOB": pa.binary(), "BOOLEAN": pa.bool_(), "INTEGER": pa.int32(), "DOUBLE": pa.float64(),
    "TIMESTAMP": pa.timestamp("us"),
    "VARCHAR[]": pa.list_(pa.string()), "VARCHAR[][]": pa.list_(pa.list_(pa.string())),
    f"DECIMAL({DIGITS}, {QUOTIENT_SCALES[0]})": pa.decimal128(DIGITS, QUOTIENT_SCALES[0]),
}  # fmt: skip


def _over_columns(apply: Callable[..., Any], type: pa.DataType, arity: int) -> Callable[..., pa.Array]:
    def whole(*columns: pa.Array) -> pa.Array:
        lists = [column.to_pylist() for column in columns]
        try:
            return pa.array([None if None in row else apply(*row) for row in zip(*lists, strict=True)], type)
        except SqlError as error:
            raise ValueError(f"{error.sqlstate}|{error}") from None
        except WideNumber:
            raise ValueError(f"22003|{TOO_FINE}") from None
        except ArithmeticError:
            raise ValueError("22003|value out of range") from None

    # DuckDB counts the parameters of what it is given
    by_arity: dict[int, Callable[..., pa.Array]] = {
        1: lambda a: whole(a), 2: lambda a, b: whole(a, b), 3: lambda a, b, c: whole(a, b, c),
        4: lambda a, b, c, d: whole(a, b, c, d), 5: lambda a, b, c, d, e: whole(a, b, c, d, e),
        6: lambda a, b, c, d, e, f: whole(a, b, c, d, e, f),
    }  # fmt: skip
    return by_arity[arity]


# arithmetic


def divided(a: str, scale_a: int, b: str, scale_b: int) -> str:
    """The quotient of two numerics as PostgreSQL rounds it."""
    return _exact("divide", exact_functions.quotient, a, scale_a, b, scale_b)


def multiplied(a: str, scale_a: int, b: str, scale_b: int) -> str:
    """The product of two numerics with more digits behind the point than DuckDB can keep."""
    return _exact("multiply", _CONTEXT.multiply, a, scale_a, b, scale_b)


def _exact(word: str, apply: Callable[[Decimal, Decimal], Decimal], a: str, scale_a: int, b: str, scale_b: int) -> str:
    scale = quotient_scale()
    name = f"onto_{word}_{scale_a}_{scale_b}_{scale}"
    types = [f"DECIMAL({DIGITS}, {scale_a})", f"DECIMAL({DIGITS}, {scale_b})"]
    define(name, lambda root: root.create_function(name, _decimals(apply, scale), types, f"DECIMAL({DIGITS}, {scale})",
                                                   type="arrow", side_effects=False))  # fmt: skip
    return f"{name}({a}, {b})"


def exact(name: str, *texts: str) -> str:
    """A root, logarithm, power or variance of numerics, which are given as texts."""
    scale = quotient_scale()
    apply, arity = exact_functions.FUNCTIONS[name]
    unit, type = Decimal(1).scaleb(-scale), pa.decimal128(DIGITS, scale)

    def settled(*row: str) -> Decimal | None:
        found = apply(*row)
        if found is None:
            return None
        if found.adjusted() + scale >= DIGITS:
            raise SqlError(TOO_LARGE, sqlstate="22003")
        rounded = found.quantize(unit, context=_CONTEXT)
        if rounded != found:
            raise SqlError(TOO_FINE, sqlstate="22003")
        return rounded

    full = f"onto_{name}_{scale}"
    define(full, lambda root: root.create_function(full, _over_columns(settled, type, arity), ["VARCHAR"] * arity,
                                                   f"DECIMAL({DIGITS}, {scale})", type="arrow", null_handling="special",
                                                   side_effects=False))  # fmt: skip
    return f"{full}({', '.join(texts)})"


TOO_LARGE = "a numeric value is out of range: it has more than 38 digits"
TOO_FINE = "a numeric value has more digits behind the point than 38 digits leave room for"


def _decimals(apply: Callable[[Decimal, Decimal], Decimal], scale: int) -> Callable[..., pa.Array]:
    unit, type = Decimal(1).scaleb(-scale), pa.decimal128(DIGITS, scale)

    def whole(first: pa.Array, second: pa.Array) -> pa.Array:
        try:
            found = [None if a is None or b is None else apply(a, b).quantize(unit, context=_CONTEXT)
                     for a, b in zip(first.to_pylist(), second.to_pylist(), strict=True)]  # fmt: skip
            return pa.array(found, type)
        except (pa.ArrowInvalid, ArithmeticError):
            raise ValueError(f"22003|{TOO_LARGE}") from None
        except SqlError as error:
            raise ValueError(f"{error.sqlstate}|{error}") from None

    return whole


# text


def float_text(value: float, digits: int = 17) -> str:
    """A floating point number as PostgreSQL shows it."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    shortest = repr(value) if digits == 17 else formats.shortest_float4(value)
    number = Decimal(shortest)
    exponent = number.adjusted() if number else 0
    if -5 < exponent < (15 if digits == 17 else 6):
        text = f"{number:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    sign, figures, _ = number.as_tuple()
    written = "".join(map(str, figures)).rstrip("0") or "0"
    mantissa = written[0] + ("." + written[1:] if len(written) > 1 else "")
    return f"{'-' if sign else ''}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def _integer_text(text: str, type: str) -> str:
    if not re.fullmatch(r"\s*[+-]?\d+\s*", text):
        raise SqlError(f'invalid input syntax for type {type}: "{text}"', sqlstate="22P02")
    return text.strip()


def _plain_text(text: str, type: str) -> str:
    """A text in the way that DuckDB reads the type."""
    sql, _ = literals.read(text, PgType(type, scale=-1) if type == "numeric" else PgType(type))
    if type == "interval":
        months, days, micros = literals.interval(text)
        return f"{months} months {days} days {micros} microseconds"
    if type == "timestamptz" or "to_microseconds" in sql or "timezone" in sql:
        return formats.evaluated_moment(text)
    found = re.search(r"'(.*)'", sql)
    return found[1] if found else sql.lower()


def _hex_text(text: str) -> str:
    found = re.search(r"'(.*)'", literals.read(text, PgType("bytea"))[0])
    return found[1] if found else ""


def _list_text(text: str, type: str) -> str:
    items = literals.array_items(text, PgType(type))
    return "[" + ", ".join("NULL" if item is None else literals.quoted(item) for item in items) + "]"


def array_text(items: list[Any]) -> str:
    """An array as PostgreSQL shows it."""

    def shown(item: Any) -> str:
        if item is None:
            return "NULL"
        if isinstance(item, list):
            return array_text(item)
        text = {True: "t", False: "f"}[item] if isinstance(item, bool) else str(item)
        if text == "" or text.upper() == "NULL" or re.search(r'[\s,"\\{}]', text):
            return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        return text

    return "{" + ",".join(map(shown, items)) + "}"


def _record_text(items: list[str | None]) -> str:
    """A row as PostgreSQL shows it."""

    def shown(item: str | None) -> str:
        if item is None:
            return ""
        if item == "" or re.search(r'[\s,"\\()]', item):
            return '"' + item.replace("\\", "\\\\").replace('"', '""') + '"'
        return item

    return "(" + ",".join(map(shown, items)) + ")"


def _initcap(text: str) -> str:
    return re.sub(r"[^\W_]+", lambda found: found[0][0].upper() + found[0][1:].lower(), text)


_FUNCTIONS: dict[str, _Function] = {
    "float8_text": _Function(float_text, ("DOUBLE",), "VARCHAR"),
    "float4_text": _Function(lambda value: float_text(value, 8), ("FLOAT",), "VARCHAR"),
    "integer_text": _Function(_integer_text, ("VARCHAR", "VARCHAR"), "VARCHAR"),
    "plain_text": _Function(_plain_text, ("VARCHAR", "VARCHAR"), "VARCHAR"),
    "hex_text": _Function(_hex_text, ("VARCHAR",), "VARCHAR"),
    "list_text": _Function(_list_text, ("VARCHAR", "VARCHAR"), "VARCHAR"),
    "record_text": _Function(_record_text, ("VARCHAR[]",), "VARCHAR"),
    "array_text": _Function(array_text, ("VARCHAR[]",), "VARCHAR"),
    "interval_text": _Function(formats.interval_text, ("INTERVAL",), "VARCHAR"),
    "jsonb_key": _Function(documents.sort_bytes, ("VARCHAR",), "BLOB"),
    "jsonb_text": _Function(literals.canonical_json, ("VARCHAR",), "VARCHAR"),
    "json_checked": _Function(lambda text: (literals.load_json(text), text)[1], ("VARCHAR",), "VARCHAR"),
    "initcap": _Function(_initcap, ("VARCHAR",), "VARCHAR"),
    "quote_literal": _Function(formats.quote_literal, ("VARCHAR",), "VARCHAR"),
    "quote_ident": _Function(formats.quote_ident, ("VARCHAR",), "VARCHAR"),
    "encode": _Function(formats.encoded, ("VARCHAR", "VARCHAR"), "VARCHAR"),
    "decode": _Function(formats.decoded, ("VARCHAR", "VARCHAR"), "VARCHAR"),
    "similar": _Function(patterns.similar, ("VARCHAR", "VARCHAR", "VARCHAR"), "BOOLEAN"),
    "to_char_time": _Function(formats.time_text, ("TIMESTAMP", "VARCHAR"), "VARCHAR"),
    "to_char_interval": _Function(formats.span_text, ("INTERVAL", "VARCHAR"), "VARCHAR"),
    "to_char_number": _Function(number_formats.number_text, ("VARCHAR", "VARCHAR"), "VARCHAR"),
    "to_time": _Function(formats.read_time, ("VARCHAR", "VARCHAR"), "TIMESTAMP"),
    "to_number": _Function(
        number_formats.read_number, ("VARCHAR", "VARCHAR"), f"DECIMAL({DIGITS}, {QUOTIENT_SCALES[0]})"),
    "format": _Function(formats.formatted, ("VARCHAR", "VARCHAR[]"), "VARCHAR"),
    "split_pattern": _Function(patterns.split_pattern, ("VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR[]"),
    "match_pattern": _Function(patterns.match_pattern, ("VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR[][]"),
    "replace_pattern": _Function(patterns.replace_pattern, ("VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR"),
    "replace_nth": _Function(
        patterns.replace_nth, ("VARCHAR", "VARCHAR", "VARCHAR", "INTEGER", "INTEGER", "VARCHAR"), "VARCHAR"),
    "count_matches": _Function(patterns.count_matches, ("VARCHAR", "VARCHAR", "INTEGER", "VARCHAR"), "INTEGER"),
    "matches_pattern": _Function(patterns.matches_pattern, ("VARCHAR", "VARCHAR", "VARCHAR"), "BOOLEAN"),
    "find_match": _Function(
        patterns.find_match, ("VARCHAR", "VARCHAR", "INTEGER", "INTEGER", "VARCHAR", "INTEGER"), "VARCHAR[]"),
    "similar_part": _Function(patterns.similar_part, ("VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR"),
    "json_path": _Function(json_paths.query, ("VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR[]"),
    "json_path_match": _Function(json_paths.match, ("VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR"), "BOOLEAN"),
    "json_path_text": _Function(lambda text: json_paths.read_path(text).text, ("VARCHAR",), "VARCHAR"),
    "json_path_exists": _Function(json_paths.is_there, ("VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR"), "BOOLEAN"),
    "text_array": _Function(text_functions.split_text, ("VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR[]"),
    "unicode_text": _Function(text_functions.unicode_text, ("VARCHAR",), "VARCHAR"),
    "identifier_parts": _Function(text_functions.identifier_parts, ("VARCHAR",), "VARCHAR[]"),
    "digest": _Function(text_functions.digest, ("BLOB", "VARCHAR"), "BLOB"),
    "bytes_edit": _Function(text_functions.changed_bytes, ("BLOB", "VARCHAR", "INTEGER", "INTEGER"), "BLOB"),
    "bytes_number": _Function(text_functions.byte_number, ("BLOB", "VARCHAR", "INTEGER"), "INTEGER"),
    "bytes_trim": _Function(text_functions.trimmed_bytes, ("BLOB", "BLOB", "VARCHAR"), "BLOB"),
    "bytes_place": _Function(lambda data, part: data.find(part) + 1, ("BLOB", "BLOB"), "INTEGER"),
    "bytes_overlay": _Function(text_functions.overlaid_bytes, ("BLOB", "BLOB", "INTEGER", "INTEGER"), "BLOB"),
    "wide_text": _Function(wide_numbers.read, ("VARCHAR",), "VARCHAR"),
    "wide_fitted": _Function(wide_numbers.fitted, ("VARCHAR", "INTEGER", "INTEGER"), "VARCHAR"),
    "wide_key": _Function(wide_numbers.key, ("VARCHAR",), "BLOB"),
    "wide_integer": _Function(wide_numbers.whole, ("VARCHAR", "VARCHAR"), "VARCHAR"),
    "wide_double": _Function(wide_numbers.double, ("VARCHAR",), "DOUBLE"),
    "wide_one": _Function(wide_numbers.of_one, ("VARCHAR", "VARCHAR"), "VARCHAR"),
    "wide_two": _Function(wide_numbers.of_two, ("VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR"),
    "wide_scale": _Function(wide_numbers.scale, ("VARCHAR", "VARCHAR"), "INTEGER"),
    "wide_several": _Function(wide_numbers.of_several, ("VARCHAR[]", "VARCHAR"), "VARCHAR"),
    "degrees": _Function(angles.of_degrees, ("DOUBLE", "VARCHAR"), "DOUBLE"),
    "atan2d": _Function(angles.atan2d, ("DOUBLE", "DOUBLE"), "DOUBLE"),
    "json_get": _Function(json_functions.get, ("VARCHAR", "VARCHAR[]", "VARCHAR"), "VARCHAR"),
    "json_contains": _Function(json_functions.contains, ("VARCHAR", "VARCHAR"), "BOOLEAN"),
    "json_exists": _Function(json_functions.exists, ("VARCHAR", "VARCHAR[]", "VARCHAR"), "BOOLEAN"),
    "json_edit": _Function(json_functions.edit, ("VARCHAR", "VARCHAR", "VARCHAR[]", "VARCHAR"), "VARCHAR"),
    "json_list": _Function(json_functions.listed, ("VARCHAR", "VARCHAR"), "VARCHAR[]"),
    "json_kind": _Function(json_functions.kind_of, ("VARCHAR", "VARCHAR"), "VARCHAR"),
    "json_made": _Function(json_functions.made, ("VARCHAR[]", "VARCHAR"), "VARCHAR"),
}  # fmt: skip
