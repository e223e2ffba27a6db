"""Which commits wrote a document: all its states, and for each of its fields the commit that gave it its value.

The log of a document on a line is folded once, oldest first. So the cost grows with the versions of the document, not
with the age of the space.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

import apsw

from ontolake.documents import commits
from ontolake.documents.database import SpaceDatabase, rows
from ontolake.documents.history.ancestors import START, Commits
from ontolake.documents.read import replay
from ontolake.documents.values import codec
from ontolake.documents.values.codec import Document
from ontolake.errors import NotFound
from ontolake.history import Commit, RowVersion
from ontolake.history.blame import blame
from ontolake.history.pointers import format as pointer
from ontolake.history.pointers import parse

_LOG = "SELECT seq, op, data FROM revision WHERE branch = ? AND id = ? ORDER BY seq, op_index"
_WRITERS = """\
SELECT DISTINCT r.branch, r.seq FROM branch b CROSS JOIN revision r
WHERE r.branch = b.name AND r.id = ?1 AND r.seq <= ?2 ORDER BY r.seq DESC"""


class Fields(Mapping[str, Any]):
    """The leaves of a document by JSON pointer: values that are no objects, and empty objects. Looked up on demand."""

    def __init__(self, document: Document | None) -> None:
        self._document: Document = {} if document is None else document

    def __getitem__(self, path: str) -> Any:
        value: Any = self._document
        for token in parse(path):
            if not isinstance(value, dict):
                raise KeyError(path)
            value = value[token]
        return value

    def __iter__(self) -> Iterator[str]:
        return _leaves((), self._document)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _leaves(path: tuple[str, ...], node: Document) -> Iterator[str]:
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield from _leaves((*path, key), value)
        else:
            yield pointer((*path, key))


class EntityLog:
    """All states of one document, on every line of history that is asked for."""

    def __init__(self, database: SpaceDatabase, connection: apsw.Connection, dag: Commits, id: str) -> None:
        self._database = database
        self._connection = connection
        self._dag = dag
        self._id = id
        self._folded: dict[str, tuple[list[int], list[Document | None]]] = {}

    def _line(self, line: str) -> tuple[list[int], list[Document | None]]:
        """The seqs that wrote the document on a line, and what it was after each."""
        known = self._folded.get(line)
        if known is None:
            parent, fork = self._database.lineage(line)
            document = None if parent is None else replay.find(
                self._connection, self._database.view(parent, fork), self._id).document
            seqs: list[int] = []
            states: list[Document | None] = []
            for seq, op, data in rows(self._connection, _LOG, (line, self._id)):
                document = replay.applied(document, op, data)
                if seqs and seqs[-1] == seq:
                    states[-1] = document
                else:
                    seqs.append(seq)
                    states.append(document)
            known = self._folded[line] = (seqs, states)
        return known

    def _last(self, commit: int) -> tuple[int, Document | None]:
        for line, limit in self._dag.view(commit):
            seqs, states = self._line(line)
            at = bisect_right(seqs, limit)
            if at:
                return seqs[at - 1], states[at - 1]
        return START, None

    def wrote(self, commit: int) -> int | None:
        """The newest commit at or before another, along first parents, that wrote the document."""
        return self._last(commit)[0] or None

    def at(self, commit: int) -> Document | None:
        """The document at a commit."""
        return self._last(commit)[1]


def blame_document(database: SpaceDatabase, id: str, commit: int) -> dict[str, Commit[int]]:
    """For each leaf of a document, by JSON pointer, the commit that wrote it. Raises `NotFound`."""
    with database.read as connection:
        dag = Commits(database)
        log = EntityLog(database, connection, dag, id)
        document = log.at(commit)
        if document is None:
            raise NotFound(f"there is no document {id!r} at commit {commit}", hint="history() has what it was before")
        fields = Fields(document)
        authors = blame(commit, {name: fields[name] for name in fields}, parents=dag.parents, wrote=log.wrote,
                        read=lambda at: Fields(log.at(at)), same=codec.same)  # fmt: skip
        made = {seq: commits.stored(database, connection, seq) for seq in {*authors.values()}}
    return {name: made[seq] for name, seq in authors.items()}


def versions(database: SpaceDatabase, id: str, commit: int) -> Iterator[RowVersion[int]]:
    """All states of a document that a commit has in its history, newest first."""
    with database.read as connection:
        dag = Commits(database)
        log = EntityLog(database, connection, dag, id)
        found = []
        for seq in _ancestors(dag, commit, rows(connection, _WRITERS, (id, commit))):
            after = log.at(seq)
            if not any(codec.same(log.at(parent), after) for parent in dag.parents(seq)):
                found.append(RowVersion(commits.stored(database, connection, seq), codec.duplicate(after)))
    yield from found


def _ancestors(dag: Commits, head: int, writers: Sequence[tuple[str, int]]) -> list[int]:
    """Of commits, newest first, those that a head has in its history. Walks no further back than the oldest of them."""
    limits = dict(dag.view(head))
    merged = {seq for line, seq in writers if seq > limits.get(line, START)}
    oldest = min(merged, default=head + 1)
    seen, waiting = {head}, [-head]
    while waiting and -waiting[0] >= oldest:
        for parent in dag.parents(-heappop(waiting)):
            if parent not in seen:
                seen.add(parent)
                heappush(waiting, -parent)
    return [seq for _, seq in writers if seq not in merged or seq in seen]
