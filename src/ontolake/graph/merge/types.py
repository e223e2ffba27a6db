"""Types in a merge: whoever changed one alone decides, and rows follow; two who changed it differently conflict."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ontolake.arrow_keys import are_distinct, contains, repeated
from ontolake.graph.commit.lineage import first_parents
from ontolake.graph.errors import ConstraintError
from ontolake.graph.tables.changes import TableChange
from ontolake.graph.tables.rows import check_values, key_at
from ontolake.graph.tables.types import LEFT, RIGHT, GraphType
from ontolake.history.conflicts import Conflict, ConflictKind
from ontolake.history.metadata import RENAMES

if TYPE_CHECKING:
    from ontolake.graph.commit.records import CommitRecord
    from ontolake.graph.tables.constraints import Problem


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


def alike(one: GraphType | None, other: GraphType | None) -> bool:
    """Whether two types differ in nothing but the order of their columns; None is a type that is not there."""
    first, second = (kind and kind.with_fields(sorted(kind.fields, key=lambda field: field.name))
                     for kind in (one, other))  # fmt: skip
    return first == second


def misfits(
    types: Mapping[str, GraphType], added: Mapping[str, GraphType], dropped: Collection[str]
) -> list[Conflict]:  # fmt: skip
    """Why the types of the target, with those that the source added and without those that it dropped, are no graph.

    The `rows` of a conflict name the other table, without a key.
    """
    left = {key: kind for key, kind in {**types, **added}.items() if key not in dropped}
    found = [schema_conflict(key, f"it leads to {table_of(end)}, which "
                             + ("the source" if end in dropped else "the target") + " has dropped", others=(end,))
             for key, kind in left.items() for _, end in kind.ends if end not in left]  # fmt: skip
    names: dict[str, list[str]] = {}
    for key, kind in left.items():
        names.setdefault(kind.name.lower(), []).append(key)
    found += [schema_conflict(key, "the source has added it, and the target has another type of that name",
                              others=tuple(other for other in names[kind.name.lower()] if other != key))
              for key, kind in added.items() if len(names.get(kind.name.lower(), ())) > 1 and key in left]  # fmt: skip
    return found


def table_of(key: str) -> str:
    """A table key as users see it."""
    return key.replace(":", "/", 1)


def schema_conflict(
    key: str, detail: str, *, base: GraphType | None = None, ours: GraphType | None = None,
    theirs: GraphType | None = None, others: tuple[str, ...] = (),
) -> Conflict:  # fmt: skip
    """Two definitions of a table that do not fit, each as JSON has it."""
    before, own, other = (None if kind is None else kind.to_json() for kind in (base, ours, theirs))
    return Conflict(table_of(key), None, ConflictKind.SCHEMA, None, before, own, other, detail,
                    tuple((table_of(one), None) for one in others))


def check_whole(kind: GraphType, stored: pa.Table, change: TableChange | None, report: Problem) -> None:
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
