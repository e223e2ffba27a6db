"""Joins by primary key: a table needs no rows that no row of the other side asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ontolake.sql.catalog.records import ColumnMeta
from ontolake.sql.keyspace import vectors
from ontolake.sql.plan.access import LOOKUP, AccessPath
from ontolake.sql.plan.conditions import inner_parts, table_and_name

if TYPE_CHECKING:
    from ontolake.sql.keyspace.versions import Keyspace
    from ontolake.sql.plan.queries import TableSource

FEW_KEYS = 5_000
"""Up to so many keys that a join asks for are looked up one by one."""
_MANY_ROWS = 50_000
_DENSE = 16
"""A table of marks may have so many times as many places as there are keys."""


class KeyRequest(NamedTuple):
    """`key` is the primary key of the source `name`; its join wants the values that the other column has."""

    name: str
    key: ColumnMeta
    other: str
    column: str


def key_requests(query: exp.Expr, sources: Sequence[TableSource]) -> list[KeyRequest]:
    """What the inner joins of a query ask of its tables by their primary keys."""
    by_alias = {source.alias: source for source in sources}
    found: list[KeyRequest] = []
    for part in inner_parts(query, joined=True):
        if not isinstance(part, exp.EQ):
            continue
        left, right = _resolved(part.this, by_alias), _resolved(part.expression, by_alias)
        if left is None or right is None or left[0] is right[0] or left[1].type.arrow != right[1].type.arrow:
            continue
        if isinstance(left[1].type.arrow, pa.BaseExtensionType) or pa.types.is_nested(left[1].type.arrow):
            continue  # which have no order and no hash in Arrow
        for (source, key), (other, column) in ((left, right), (right, left)):
            if source.table.primary_key == [key]:
                found.append(KeyRequest(source.name, key, other.name, column.name))
    return found


def _resolved(node: exp.Expr, by_alias: Mapping[str, TableSource]) -> tuple[TableSource, ColumnMeta] | None:
    if not isinstance(node, exp.Column):
        return None
    qualifier, name = table_and_name(node)
    source = by_alias.get(qualifier)
    column = None if source is None else source.table.by_name.get(name)
    return None if source is None or column is None else (source, column)


def looked_up(
    keyspace: Keyspace, source: TableSource, wishes: Iterable[KeyRequest], tables: Mapping[str, pa.Table]
) -> AccessPath | None:
    """The keys of a table that its joins ask for, if they are few against the whole of it."""
    for wish in wishes:
        if wish.name != source.name or wish.other not in tables or tables[wish.other].num_rows > FEW_KEYS:
            continue
        wanted = pc.unique(tables[wish.other].column(wish.column).combine_chunks()).drop_null()
        if keyspace.count(source.table.span, len(wanted) * LOOKUP + 1) <= len(wanted) * LOOKUP:
            continue
        keys = vectors.encode_keys(source.table.prefix, source.table.key_types, [wanted]).to_list()
        return AccessPath("multi-get", source.table, keys, (), frozenset())
    return None


def reduced(wishes: Iterable[KeyRequest], tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """Tables without the many rows that no join asks for, so that less has to be joined."""
    for wish in wishes:
        table = tables[wish.name]
        if table.num_rows < _MANY_ROWS:
            continue
        kept = _among(table.column(wish.key.name), tables[wish.other].column(wish.column))
        if kept is not None and pc.sum(kept).as_py() * 2 < table.num_rows:
            tables[wish.name] = table.filter(kept)
    return tables


def _among(keys: pa.ChunkedArray, wanted: pa.ChunkedArray) -> pa.Array | None:
    """Which keys are wanted; None if that is not cheap to tell."""
    if not pa.types.is_integer(keys.type) or not pa.types.is_integer(wanted.type):
        return None
    wanted = wanted.drop_null()
    if not len(wanted):
        return pa.array(np.zeros(len(keys), np.bool_))
    limits: Any = pc.min_max(wanted).as_py()
    low, high = limits["min"], limits["max"]
    if high - low > _DENSE * len(keys):
        return None
    marks = np.zeros(high - low + 1, np.bool_)
    for chunk in wanted.chunks:
        marks[chunk.to_numpy() - low] = True
    found = np.concatenate([_marked(chunk.to_numpy(), marks, low, high) for chunk in keys.chunks])
    return pa.array(found)


def _marked(keys: Any, marks: Any, low: int, high: int) -> Any:
    within = (keys >= low) & (keys <= high)
    return within & marks[np.where(within, keys, low) - low]
