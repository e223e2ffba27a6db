"""The `commit` row and the commit that callers get for it: the same one when it is made and ever after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import apsw

from ontolake import history
from ontolake.documents.database import SpaceDatabase, row, rows
from ontolake.documents.errors import ProtocolError
from ontolake.documents.values import codec
from ontolake.history.metadata import BRANCH, LOCAL_SEQ, MERGED, RESOLVED_PENDING_READS, SESSION_ID

INSERT = """\
INSERT INTO "commit" (
  seq, branch, session_id, local_seq, invocation_ref, authorization_ref, original, resolution, created_at)
VALUES (?, ?, ?, ?, NULL, NULL, ?, ?, coalesce(?, strftime('%Y-%m-%d %H:%M:%f', 'now')))"""

_COLUMNS = "seq, branch, session_id, local_seq, resolution, created_at"
_ONE = f'SELECT {_COLUMNS} FROM "commit" WHERE seq = ?'
_BEFORE = 'SELECT max(seq) FROM "commit" WHERE branch = ? AND seq <= ?'
_PAGE = f'SELECT {_COLUMNS} FROM "commit" WHERE branch = ? AND seq > ? AND seq <= ? ORDER BY seq DESC LIMIT ?'
_PAGE_SIZE = 500
_LAST_REQUEST = 'SELECT local_seq, seq FROM "commit" WHERE session_id = ? ORDER BY local_seq DESC LIMIT 1'


class MergedLine(NamedTuple):
    """What a merge took in: a line of history up to a seq. `bases` are the commits that it was merged against.

    Merges of versions that did not always choose the right base have none.
    """

    branch: str
    seq: int
    bases: tuple[int, ...] = ()


class Remarks(NamedTuple):
    """What is said about a commit beside its changes: by people, and by the operation that made it."""

    message: str | None = None
    author: str | None = None
    metadata: Mapping[str, Any] = {}


NO_REMARKS = Remarks()


def remarks(message: str | None, author: str | None, metadata: Mapping[str, Any] | None = None) -> Remarks:
    """Remarks that can be stored. Raises `ProtocolError` for a message or an author that is not text."""
    for name, text in (("message", message), ("author", author)):
        if text is not None and (not isinstance(text, str) or not codec.is_unicode(text)):
            raise ProtocolError(f"{name} must be text, not {text!r}")
    return Remarks(message, author, metadata or {})


@dataclass(slots=True)
class CommitRow:
    """What the store keeps of a commit. `branch` is a line of history; `created_at` is UTC, as SQLite writes it."""

    seq: int
    branch: str
    session_id: str
    local_seq: int
    created_at: str
    resolved: Sequence[tuple[int, int]]
    """The local_seqs that pending reads named, each with the seq it was accepted as."""
    merged: MergedLine | None
    remarks: Remarks = NO_REMARKS

    @classmethod
    def read(cls, seq: int, branch: str, session_id: str, local_seq: int, decided: str, created_at: str) -> CommitRow:
        """The row as `_COLUMNS` select it."""
        found = codec.decode(decided)
        resolved = [(each["localSeq"], each["seq"]) for each in found["resolvedPendingReads"]]
        merged = merged_in(decided) if "merged" in found else None
        said = Remarks(found.get("message"), found.get("author"), found.get("metadata", {}))
        return cls(seq, branch, session_id, local_seq, created_at, resolved, merged, said)


class Commit(history.Commit[int]):
    """A commit of a space, in the words of documents: its id is its seq, its author the session unless one is named."""

    __slots__ = ()

    @property
    def seq(self) -> int:
        return self.id

    @property
    def branch(self) -> str:
        return str(self.metadata[BRANCH])

    @property
    def session_id(self) -> str:
        return str(self.metadata.get(SESSION_ID, self.author))

    @property
    def local_seq(self) -> int:
        return int(self.metadata[LOCAL_SEQ])

    @property
    def resolved_pending_reads(self) -> Sequence[tuple[int, int]]:
        """The local_seqs that pending reads named, each with the seq it was accepted as."""
        return tuple(self.metadata[RESOLVED_PENDING_READS])


def resolution(
    seq: int, resolved: Sequence[tuple[int, int]], merged: MergedLine | None = None, said: Remarks = NO_REMARKS
) -> str:
    """What the store decided about a commit, and what was said about it, as the `resolution` column keeps it."""
    if not resolved and merged is None and said is NO_REMARKS:
        return f'{{"seq":{seq},"resolvedPendingReads":[]}}'
    decided: dict[str, Any] = {
        "seq": seq,
        "resolvedPendingReads": [{"localSeq": local_seq, "seq": accepted} for local_seq, accepted in resolved],
    }
    if merged is not None:
        decided["merged"] = {"branch": merged.branch, "seq": merged.seq, "bases": merged.bases}
    noted = {"message": said.message, "author": said.author, "metadata": said.metadata or None}
    decided |= {name: value for name, value in noted.items() if value is not None}
    return codec.encode(decided)


def merged_in(decided: str) -> MergedLine | None:
    """What a commit took in, by its `resolution`; None if it is not a merge."""
    found = codec.decode(decided).get("merged")
    return None if found is None else MergedLine(found["branch"], found["seq"], tuple(found.get("bases", ())))


def build(database: SpaceDatabase, connection: apsw.Connection, before: int, made: CommitRow) -> Commit:
    """The commit of a row; `before` is the commit before it on its branch, 0 for none."""
    said = made.remarks
    metadata: dict[str, Any] = {**said.metadata, BRANCH: database.name(made.branch), LOCAL_SEQ: made.local_seq,
                                RESOLVED_PENDING_READS: tuple(made.resolved)}
    parents = (before,) if before else ()
    merged = made.merged
    if merged is not None:
        metadata[MERGED] = database.name(merged.branch)
        parents = (*parents, parent(database, connection, merged.branch, merged.seq + 1))
    author = made.session_id
    if said.author is not None:
        author, metadata[SESSION_ID] = said.author, made.session_id
    # As `datetime('now')` writes it, in UTC; the offset behind it saves the copy that naming the zone would take.
    time = datetime.fromisoformat(f"{made.created_at}+00:00")
    return Commit(made.seq, parents, time, author, metadata, said.message)


def stored(database: SpaceDatabase, connection: apsw.Connection, seq: int) -> Commit:
    """The commit of a seq that is known to be there."""
    found = CommitRow.read(*row(connection, _ONE, (seq,)))
    return build(database, connection, parent(database, connection, found.branch, seq), found)


def last_request(connection: apsw.Connection, session_id: str) -> tuple[int, int] | None:
    """The newest local_seq of a session, and the seq of its commit."""
    found = row(connection, _LAST_REQUEST, (session_id,))
    return None if found is None else (int(found[0]), int(found[1]))


def parent(database: SpaceDatabase, connection: apsw.Connection, branch: str, seq: int) -> int:
    """The commit before `seq` that a branch sees, 0 for none."""
    for name, limit in database.view(branch, seq - 1):
        (found,) = row(connection, _BEFORE, (name, limit))
        if found:
            return int(found)
    return 0


def newest_first(database: SpaceDatabase, branch: str, since: int, until: int) -> Iterator[Commit]:
    """The commits that a branch sees in `(since, until]`, newest first, a page at a time."""
    with database.read:
        view = database.view(branch, until)
    for name, limit in view:
        while limit > since:
            with database.read as connection:
                page = rows(connection, _PAGE, (name, since, limit, _PAGE_SIZE))
                if not page:
                    break
                before = [found[0] for found in page[1:]] + [parent(database, connection, name, page[-1][0])]
                made = [build(database, connection, each, CommitRow.read(*found))
                        for each, found in zip(before, page, strict=True)]
            yield from made
            limit = page[-1][0] - 1
