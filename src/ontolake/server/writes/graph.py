"""Commits groups of writes to graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ontolake.errors import Conflict
from ontolake.graph.errors import ExpectedVersionMismatch
from ontolake.graph.splits import public_schema
from ontolake.history import UnknownTableError
from ontolake.history.contention import DEFAULT_PACE, ONCE, commit_optimistically
from ontolake.server.problems import RefusedError
from ontolake.server.writes.bodies import decoded
from ontolake.server.writes.requests import RowWrite, StaleHeadError, WriteFailure, WriteNote


def commit_rows(store: Any, branch: str, writes: Sequence[RowWrite], note: WriteNote) -> Any:
    """See `Committer`."""
    return commit_optimistically(lambda: _once(store, branch, writes, note), ExpectedVersionMismatch,
                                 DEFAULT_PACE if note.expected is None else ONCE)


def _once(store: Any, branch: str, writes: Sequence[RowWrite], note: WriteNote) -> Any:
    transaction = store.transaction(branch=branch, actor=note.author, metadata=note.metadata, message=note.message)
    if note.expected is not None and transaction.base.id != note.expected:
        raise StaleHeadError(branch, note.expected, transaction.base.id)
    kinds = {kind.table: kind for kind in store.types(branch).values()}
    for place, write in enumerate(writes):
        try:
            _apply(transaction, kinds, write)
        except Exception as error:
            raise WriteFailure(place, error) from error
    try:
        done = transaction.finish(only=note.expected is not None)
    except Conflict as error:
        if note.expected is None or isinstance(error, ExpectedVersionMismatch):
            raise
        raise StaleHeadError(branch, note.expected, store.snapshot(branch=branch).commit) from error
    return None if done is None else done.id


def _apply(transaction: Any, kinds: dict[str, Any], write: RowWrite) -> None:
    kind = kinds.get(write.table)
    if kind is None:
        raise UnknownTableError(write.table, kinds)
    columns = {field.name: field.type for field in public_schema(kind, "latest")}
    table = decoded(write.body, write.media_type, columns)
    if write.mode != "delete":
        transaction.load(kind.table, table, mode="append" if write.mode == "insert" else "merge")
        return
    for name in kind.keys:
        if name not in table.column_names:
            raise RefusedError(422, f"column {name!r}: every row needs it")
    transaction.delete(kind.table, table.select(list(kind.keys)))
