"""Commits groups of writes to spaces of documents: rows have an `id` and a `document`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ontolake.documents.errors import PreconditionFailedError
from ontolake.documents.operations import Delete, HeadIs, Operation, Precondition, Set
from ontolake.documents.parallel import schema
from ontolake.documents.read.feed import TABLE
from ontolake.documents.values import codec
from ontolake.history import UnknownTableError
from ontolake.server.problems import RefusedError
from ontolake.server.writes.bodies import decoded
from ontolake.server.writes.requests import KeyExistsError, RowWrite, StaleHeadError, WriteFailure, WriteNote


def commit_rows(store: Any, branch: str, writes: Sequence[RowWrite], note: WriteNote) -> Any:
    """See `Committer`."""
    operations: list[Operation] = []
    known: dict[str, bool] = {}
    for place, write in enumerate(writes):
        try:
            operations += _operations(store, branch, write, known)
        except Exception as error:
            raise WriteFailure(place, error) from error
    if not operations:
        return None
    head: tuple[Precondition, ...] = ()
    if note.expected is not None:
        if not (note.expected.isascii() and note.expected.isdigit() and len(note.expected) < 19):
            raise StaleHeadError(branch, note.expected, _head(store, branch))
        head = (HeadIs(int(note.expected)),)
    try:
        return store.transact(*store.next_request(), operations, branch=branch, preconditions=head,
                              message=note.message, author=note.author, metadata=note.metadata).seq
    except PreconditionFailedError as error:
        if note.expected is None:
            raise
        raise StaleHeadError(branch, note.expected, _head(store, branch)) from error


def _head(store: Any, branch: str) -> int:
    return next((one.seq for one in store.commits(branch=branch)), 0)


def _operations(store: Any, branch: str, write: RowWrite, known: dict[str, bool]) -> list[Operation]:
    if write.table != TABLE:
        raise UnknownTableError(write.table, [TABLE])
    columns = {field.name: field.type for field in schema("latest") if field.name in ("id", "document")}
    table = decoded(write.body, write.media_type, columns)
    needed = ["id"] if write.mode == "delete" else ["id", "document"]
    for name in needed:
        if name not in table.column_names or table.column(name).null_count:
            raise RefusedError(422, f"column {name!r}: every row needs it")
    ids: list[str] = table.column("id").to_pylist()
    if len(set(ids)) != len(ids):
        raise RefusedError(422, "column 'id': an id is there twice")
    there = {id: known.get(id, state.document is not None)
             for id, state in store.read_many(ids, branch=branch).items()}
    if write.mode == "delete":
        known.update(dict.fromkeys(ids, False))
        return [Delete(id) for id in ids if there[id]]
    if write.mode == "insert" and any(there.values()):
        raise KeyExistsError(TABLE, next(id for id in ids if there[id]))
    found: list[Operation] = []
    for id, text in zip(ids, table.column("document").to_pylist(), strict=True):
        try:
            found.append(Set(id, codec.decode(text)))
        except codec.Unstorable as error:
            raise RefusedError(422, f"column 'document': that of {id!r} is {error.reason}") from error
    known.update(dict.fromkeys(ids, True))
    return found
