"""Rows in a merge: whoever changed a row alone decides, both may change it in different columns, all else conflicts.

Nothing here reads a graph: the rows of all three sides are given, in the type that the merge gives their table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.errors import Invalid
from ontolake.graph.merge.columns import Sources
from ontolake.graph.merge.differences import equal, positions, same
from ontolake.graph.merge.results import Counts, MergeConflict
from ontolake.graph.tables.changes import TableChange
from ontolake.graph.tables.rows import key_at
from ontolake.graph.tables.types import GraphType, resolve_table

Strategy = Literal["ours", "theirs"]
_STRATEGIES = ("ours", "theirs")


def strategies_by_table(
    strategy: Strategy | Mapping[Any, Strategy] | None, tables: Mapping[str, Any]
) -> dict[str, Strategy]:  # fmt: skip
    """The strategy for each table key. Raises `Invalid` and `UnknownTableError`."""
    if strategy is None:
        return {}
    if isinstance(strategy, str):
        chosen: dict[str, Strategy] = dict.fromkeys(tables, strategy)
    else:
        chosen = {resolve_table(table, tables): one for table, one in strategy.items()}
    for one in chosen.values():
        if one not in _STRATEGIES:
            raise Invalid(f"the strategy {one!r} is not known", hint="ours keeps the target's rows, theirs takes the "
                          "source's")
    return chosen


class Located(NamedTuple):
    """Rows of one side, and for some keys the position of their row; -1 for a key without one."""

    rows: pa.Table
    at: Any


class MergedRows(NamedTuple):
    """What a merge changes in a table of the target, and what it cannot decide."""

    change: TableChange | None
    counts: Counts
    conflicts: list[MergeConflict]


def merge_rows(
    kind: GraphType, keys: pa.Table, base: pa.Table, theirs: pa.Table, ours: pa.Table, *, disputed: Any,
    their_columns: Sources, our_columns: Sources, strategy: Strategy | None,
) -> MergedRows:  # fmt: skip
    """Merge the rows with these keys. `disputed` tells for each key whether several bases disagree on it.

    `their_columns` and `our_columns` have None for columns of `kind` that the side does not have.
    """
    at_base, at_theirs, at_ours = (positions(kind, keys, side) for side in (base, theirs, ours))
    theirs_changed = ~same(kind, theirs, at_theirs, base, at_base) | disputed
    ours_changed = ~same(kind, ours, at_ours, base, at_base) | disputed
    take = theirs_changed & ~ours_changed
    clash = theirs_changed & ours_changed & ~same(kind, theirs, at_theirs, ours, at_ours)
    joined, joined_rows = join_rows(kind, Located(base, at_base), Located(theirs, at_theirs), Located(ours, at_ours),
                                    np.flatnonzero(clash), their_columns, our_columns)  # fmt: skip
    clash[joined] = False
    if strategy == "theirs":
        take |= clash
    in_theirs, in_ours, is_insert = at_theirs >= 0, at_ours >= 0, (at_base < 0) & ~disputed
    conflicts = [_conflict(kind, keys, int(row), is_insert[row], in_theirs[row], in_ours[row])
                 for row in np.flatnonzero(clash)] if strategy is None else []  # fmt: skip
    puts = pa.concat_tables([theirs.take(pa.array(at_theirs[take & in_theirs])), joined_rows])
    deletes = keys.filter(pa.array(take & ~in_theirs))
    inserted = int((take & ~in_ours).sum())
    counts = Counts(inserted, puts.num_rows - inserted, deletes.num_rows)
    change = TableChange(puts if puts.num_rows else None, deletes if deletes.num_rows else None,
                    fresh=counts == (puts.num_rows, 0, 0)) if any(counts) else None  # fmt: skip
    return MergedRows(change, counts, conflicts)


def _conflict(
    kind: GraphType, keys: pa.Table, row: int, is_insert: bool, in_theirs: bool, in_ours: bool
) -> MergeConflict:  # fmt: skip
    what, detail = "divergent_update", "both branches changed it, differently"
    if is_insert:
        what, detail = "divergent_insert", "both branches inserted it, differently"
    elif not in_theirs:
        what, detail = "delete_update", "the source deleted it, the target changed it"
    elif not in_ours:
        what, detail = "delete_update", "the source changed it, the target deleted it"
    return MergeConflict(what, kind.table, key_at(kind, keys, row), detail)


def join_rows(
    kind: GraphType, base: Located, theirs: Located, ours: Located, clashes: Any, their_columns: Sources,
    our_columns: Sources,
) -> tuple[Any, pa.Table]:  # fmt: skip
    """Rows that both sides changed, in different columns: which of the clashes these are, and what becomes of them.

    A row that both inserted is joined only over columns that one of them does not have.
    """
    clashes = clashes[(theirs.at[clashes] >= 0) & (ours.at[clashes] >= 0)]
    if not len(clashes):
        return clashes, kind.schema.empty_table()
    new, old = theirs.rows.take(pa.array(theirs.at[clashes])), ours.rows.take(pa.array(ours.at[clashes]))
    inserted = base.at[clashes] < 0
    before = base.rows.take(pa.array(base.at[clashes], mask=inserted))
    fits, columns = np.ones(len(clashes), dtype=bool), {}
    for field in kind.fields:
        name, own, other = field.name, old.column(field.name), new.column(field.name)
        if our_columns[name] is None or their_columns[name] is None:
            columns[name] = other if our_columns[name] is None else own
            continue
        stayed = equal(own, before.column(name)) & ~inserted
        fits &= equal(other, own) | stayed | (equal(other, before.column(name)) & ~inserted)
        columns[name] = pc.if_else(pa.array(stayed), other, own)
    return clashes[fits], pa.table(columns, schema=kind.schema).filter(pa.array(fits))
