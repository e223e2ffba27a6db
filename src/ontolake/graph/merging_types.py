"""Types in a merge: whoever changed one alone decides, and rows follow; two who changed it differently conflict."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.graph.columns import Sources
from ontolake.graph.differ import equal
from ontolake.graph.errors import ConstraintError
from ontolake.graph.keys import are_distinct, contains, repeated
from ontolake.graph.lineage import first_parents
from ontolake.graph.rows import check_values, key_at
from ontolake.graph.tables import Change
from ontolake.graph.types import LEFT, RIGHT, GraphType

if TYPE_CHECKING:
    from ontolake.graph.constraints import Problem
    from ontolake.graph.manifest import CommitRecord

RENAMES = "renames"
"""Under this name a commit tells which columns it renamed, by table."""


def renames_since(
    commits: Mapping[str, CommitRecord], head: CommitRecord, key: str, since: Collection[str]
) -> dict[str, str] | None:  # fmt: skip
    """How a branch has renamed the columns of a table in the commits `since` a base, old name to new.

    None if it has dropped the table since, and made another of that name.
    """
    names: dict[str, str] = {}
    for record in first_parents(commits, head.id):
        if record.id not in since:
            break
        if key not in record.pins:
            return None
        if record.merged_parent is not None and record.merged_parent not in since:
            continue  # it took names over that the other branch had given already
        step = record.extra.get(RENAMES, {}).get(key, {})  # older than what is known already
        names = {**{old: names.get(new, new) for old, new in step.items()},
                 **{old: new for old, new in names.items() if old not in step.values()}}  # fmt: skip
    return {old: new for old, new in names.items() if old != new}


def join_rows(
    kind: GraphType, before: tuple[pa.Table, Any], theirs: tuple[pa.Table, Any], ours: tuple[pa.Table, Any],
    clashes: Any, their_columns: Sources, our_columns: Sources,
) -> tuple[Any, pa.Table]:  # fmt: skip
    """Rows that both sides changed, in different columns: which of the clashes these are, and what becomes of them.

    Each side is a table with the positions of rows in it. A row that both inserted is joined only over columns that one
    of them does not have.
    """
    at_base, at_theirs, at_ours = (rows[1][clashes] for rows in (before, theirs, ours))
    some = (at_theirs >= 0) & (at_ours >= 0)
    clashes, at_base, at_theirs, at_ours = clashes[some], at_base[some], at_theirs[some], at_ours[some]
    if not len(clashes):
        return clashes, kind.schema.empty_table()
    new, old = theirs[0].take(pa.array(at_theirs)), ours[0].take(pa.array(at_ours))
    inserted = at_base < 0
    base = before[0].take(pa.array(np.where(inserted, 0, at_base))) if before[0].num_rows else new
    fits, columns = np.ones(len(clashes), dtype=bool), {}
    for field in kind.fields:
        name, own, other = field.name, old.column(field.name), new.column(field.name)
        if our_columns[name] is None or their_columns[name] is None:
            columns[name] = other if our_columns[name] is None else own
            continue
        same, stayed = equal(other, own), equal(own, base.column(name)) & ~inserted
        fits &= same | stayed | (equal(other, base.column(name)) & ~inserted)
        columns[name] = pc.if_else(pa.array(stayed), other, own)
    made = pa.table(columns, schema=kind.schema)
    return clashes[fits], made.filter(pa.array(fits))


def check_whole(kind: GraphType, stored: pa.Table, change: Change | None, report: Problem) -> None:
    """That all rows of a table keep the rules of a type after a change; for tables that get another type."""
    rows = stored
    for keys in (change.puts, change.deletes) if change is not None else ():
        if keys is not None and rows.num_rows:
            rows = rows.filter(pc.invert(contains(keys, rows, kind.keys)))
    if change is not None and change.puts is not None:
        rows = pa.concat_tables([rows, change.puts.cast(rows.schema)])
    try:
        check_values(kind, rows)
    except ConstraintError as error:
        report(error)
    ones = {field.name: "unique" for field in kind.fields if field.unique and field.name not in kind.keys}
    ones |= {RIGHT: "cardinality"} if kind.cardinality in ("1:n", "1:1") else {}
    ones |= {LEFT: "cardinality"} if kind.cardinality in ("n:1", "1:1") else {}
    for column, rule in ones.items():
        given = rows.filter(pc.is_valid(rows.column(column)))
        if not are_distinct(given.column(column)):
            for _, again in repeated(given.column(column)):
                report(ConstraintError(kind.table, rule, "the value is there twice", row=again,
                                       key=key_at(kind, given, again), column=column))
