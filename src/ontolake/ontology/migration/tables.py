"""Rows of one version of a type as rows of another, a table at a time, for workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ontolake.model.stored import StoredType
from ontolake.model.types import TypeInfo
from ontolake.ontology.arrow.physical import declared_table, naive_place, public_table, rows_of, table_of
from ontolake.ontology.migration.rewrite import upgraded_rows, upgraded_table
from ontolake.ontology.migration.upgraders import Upgrader

if TYPE_CHECKING:
    import pyarrow as pa


def upgraded_rows_of(info: TypeInfo, stored: StoredType, chain: Sequence[Upgrader], rows: pa.Table) -> pa.Table:
    """Stored rows of one version as those of another, all at once where that says the same."""
    if _at_once(stored, chain, rows):
        shown = public_table(stored.all_columns, rows)
        return declared_table(info, upgraded_table(info, stored, chain, shown.drop_columns([shown.column_names[-1]])))
    return table_of(info, list(upgraded_rows(info, stored, chain, rows_of(stored.all_columns, rows))))


def _at_once(stored: StoredType, chain: Sequence[Upgrader], rows: pa.Table) -> bool:
    """Whether rows can stay a table: an upgrader asks for it, or there is none and no moment without a zone."""
    if chain:
        return any(one.arrow for one in chain)
    names = {naive_place(column) for column in stored.all_columns if column.type.zoned}
    return names.isdisjoint(rows.column_names)


def user_code(info: TypeInfo, chain: Sequence[Upgrader]) -> list[Any]:
    """What of the user's own code workers need."""
    ends = [info.left, info.right] if info.kind == "relation" else []
    return [info.cls, *ends, *(one.function for one in chain)]
