"""Encoded values as JSON: one form for exports, imports and what commands print.

Moments are ISO 8601, bytes base64, decimals and UUIDs text, enums their values, JSON columns as they are. What JSON
lacks, NaN and the infinities, is written as Python's json module writes it: NaN, Infinity, -Infinity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ontolake.model.columns import Column
from ontolake.model.types import TypeInfo


def plain(column: Column, value: Any) -> Any:
    """An encoded value as what a JSON document would hold."""
    return None if value is None else column.type.to_json(value)


def text_of(column: Column) -> Callable[[Any], str]:
    """A function that writes encoded values of a column as JSON."""
    return column.type.json_writer()


def record(info: TypeInfo, row: Sequence[Any]) -> dict[str, Any]:
    """A row of `all_columns` as fields by stored name."""
    return {column.stored: plain(column, value) for column, value in zip(info.all_columns, row, strict=False)}


def plain_key(info: TypeInfo, row: Sequence[Any]) -> Any:
    """The key of a row of `all_columns`: a value for an entity, a list for a relation."""
    keys = [plain(column, row[info.all_columns.index(column)]) for column in info.keys]
    return keys[0] if info.kind == "entity" else keys
