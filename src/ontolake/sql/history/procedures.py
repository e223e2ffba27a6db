"""`CALL onto_…`: the verbs of history in SQL. Each answers with one row."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from ontolake.sql.errors import SqlError, TransactionError, UnknownNameError, nearest
from ontolake.sql.history import merge_state
from ontolake.sql.history.table_functions import value_of
from ontolake.sql.results import Result
from ontolake.sql.syntax.statements import Parameters, bound

if TYPE_CHECKING:
    from ontolake.history import MergeResult
    from ontolake.sql.database import Database


_MERGED = (("status", "text"), ("commit_id", "int8"), ("inserted", "int8"), ("updated", "int8"), ("deleted", "int8"))
COLUMNS = {
    "onto_branch": (("name", "text"), ("head", "int8")), "onto_checkout": (("name", "text"), ("head", "int8")),
    "onto_merge": _MERGED, "onto_revert": _MERGED, "onto_tag": (("name", "text"), ("commit_id", "int8")),
}  # fmt: skip
"""The columns that procedures give, with PostgreSQL's names of their types."""


def call(db: Database, name: str, tree: exp.Expr, parameters: Parameters) -> Result:
    """Run a procedure. Raises `SqlError`, and what the verb raises."""
    procedures: dict[str, tuple[Callable[..., dict[str, Any]], int, int]] = {
        "onto_branch": (_branch, 1, 2), "onto_checkout": (_checkout, 1, 1), "onto_merge": (_merge, 1, 2),
        "onto_revert": (_revert, 1, 2), "onto_tag": (_tag, 1, 2),
    }  # fmt: skip
    if name not in procedures:
        raise UnknownNameError(f"there is no procedure {name}", sqlstate="42883", hint=nearest(name, procedures))
    procedure, least, most = procedures[name]
    function = bound(tree, parameters).find(exp.Anonymous)
    arguments = [] if function is None else [value_of(each) for each in function.expressions]
    if not least <= len(arguments) <= most:
        raise SqlError(f"{name} takes {least if least == most else f'{least} to {most}'} arguments, not "
                       f"{len(arguments)}", sqlstate="42883")
    if db.in_transaction:
        raise TransactionError(f"{name} cannot be called within a transaction", sqlstate="25001",
                               hint="COMMIT it first")
    row = procedure(db, *arguments)
    return Result("CALL", 1, table=pa.Table.from_pylist([row]))


def _branch(db: Database, name: str, at: int | None = None) -> dict[str, Any]:
    """A branch of the one that is checked out."""
    made = db.branches.create(name, at=at, parent=db.branch)
    return {"name": made.name, "head": made.head}


def _checkout(db: Database, name: str) -> dict[str, Any]:
    db.checkout(name)
    return {"name": db.branch, "head": db.version()}


def _merge(db: Database, source: str, strategy: Any = None) -> dict[str, Any]:
    return _told(db.conflicts.run(merge_state.MERGE, source, strategy))


def _revert(db: Database, commit: int | str, strategy: Any = None) -> dict[str, Any]:
    return _told(db.conflicts.run(merge_state.REVERT, commit, strategy))


def _told(result: MergeResult[int]) -> dict[str, Any]:
    counts = [sum(each) for each in zip(*result.tables.values(), strict=True)] or [0, 0, 0]
    return {"status": result.status.value, "commit_id": None if result.commit is None else result.commit.id,
            "inserted": counts[0], "updated": counts[1], "deleted": counts[2]}  # fmt: skip


def _tag(db: Database, name: str, ref: Any = None) -> dict[str, Any]:
    made = db.tags.create(name, ref)
    return {"name": made.name, "commit_id": made.commit}
