"""Types in a merge: whoever changed one alone decides, and rows follow; two who changed it differently conflict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ontolake.graph.errors import ConstraintError
from ontolake.graph.keys import are_distinct, contains, repeated
from ontolake.graph.lineage import first_parents
from ontolake.graph.rows import check_values, defaults, key_at
from ontolake.graph.tables import Change
from ontolake.graph.types import LEFT, RIGHT, GraphType

if TYPE_CHECKING:
    from ontolake.graph.constraints import Problem
    from ontolake.graph.manifest import CommitRecord

RENAMES = "renames"
"""Under this name a commit tells which columns it renamed, by table."""


def renames_since(
    commits: Mapping[str, CommitRecord], head: CommitRecord, key: str, before: set[str]
) -> dict[str, str] | None:  # fmt: skip
    """How a branch has renamed the columns of a table since the commits `before`, old name to new.

    None if it has dropped the table since, and made another of that name.
    """
    names: dict[str, str] = {}
    for record in first_parents(commits, head.id):
        if record.id in before:
            break
        if key not in record.pins:
            return None
        step = record.extra.get(RENAMES, {}).get(key, {})  # older than what is known already
        names = {**{old: names.get(new, new) for old, new in step.items()},
                 **{old: new for old, new in names.items() if old not in step.values()}}  # fmt: skip
    return {old: new for old, new in names.items() if old != new}


def translated(table: pa.Table, old: GraphType, new: GraphType, renames: Mapping[str, str]) -> pa.Table:
    """Rows of a type as another has them: renamed and widened, without what was dropped, with defaults for the rest."""
    back = {now: before for before, now in renames.items() if before in old.by_name}
    columns = {}
    for field in new.fields:
        name = back.get(field.name, None if field.name in back.values() else field.name)
        columns[field.name] = table.column(name).cast(field.arrow_type) if name in old.by_name else (
            defaults(new, field, table.num_rows))
    return pa.table(columns, schema=new.schema)


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
