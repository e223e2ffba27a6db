"""The `commit` row and the commit that callers get for it: the same one when it is made and ever after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import apsw

from ontolake import history
from ontolake.documents import codec
from ontolake.documents.database import SpaceDatabase, row, rows
from ontolake.documents.names import name_of
from ontolake.history.metadata import BRANCH, LOCAL_SEQ, MERGED, RESOLVED_PENDING_READS

INSERT = """\
INSERT INTO "commit" (
  seq, branch, session_id, local_seq, invocation_ref, authorization_ref, original, resolution, created_at)
VALUES (?, ?, ?, ?, NULL, NULL, ?, ?, coalesce(?, datetime('now')))"""

_COLUMNS = "seq, branch, session_id, local_seq, resolution, created_at"
_ONE = f'SELECT {_COLUMNS} FROM "commit" WHERE seq = ?'
_BEFORE = 'SELECT max(seq) FROM "commit" WHERE branch = ? AND seq <= ?'
_PAGE = f'SELECT {_COLUMNS} FROM "commit" WHERE branch = ? AND seq > ? AND seq <= ? ORDER BY seq DESC LIMIT ?'
_PAGE_SIZE = 500


class MergedLine(NamedTuple):
    """What a merge took in: a line of history up to a seq. `bases` are the commits that it was merged against.

    Merges of versions that did not always choose the right base have none.
    """

    branch: str
    seq: int
    bases: tuple[int, ...] = ()


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

    @classmethod
    def read(cls, seq: int, branch: str, session_id: str, local_seq: int, decided: str, created_at: str) -> CommitRow:
        """The row as `_COLUMNS` select it."""
        found = codec.decode(decided)
        resolved = [(each["localSeq"], each["seq"]) for each in found["resolvedPendingReads"]]
        merged = merged_in(decided) if "merged" in found else None
        return cls(seq, branch, session_id, local_seq, created_at, resolved, merged)


class Commit(history.Commit[int]):
    """A commit of a space, in the words of documents: its id is its seq, its author the session."""

    __slots__ = ()

    @property
    def seq(self) -> int:
        return self.id

    @property
    def branch(self) -> str:
        return str(self.metadata[BRANCH])

    @property
    def session_id(self) -> str:
        return str(self.author)

    @property
    def local_seq(self) -> int:
        return int(self.metadata[LOCAL_SEQ])

    @property
    def resolved_pending_reads(self) -> Sequence[tuple[int, int]]:
        """The local_seqs that pending reads named, each with the seq it was accepted as."""
        return tuple(self.metadata[RESOLVED_PENDING_READS])


def resolution(seq: int, resolved: Sequence[tuple[int, int]], merged: MergedLine | None = None) -> str:
    """What the store decided about a commit, as the `resolution` column keeps it."""
    if not resolved and merged is None:
        return f'{{"seq":{seq},"resolvedPendingReads":[]}}'
    decided: dict[str, Any] = {
        "seq": seq,
        "resolvedPendingReads": [{"localSeq": local_seq, "seq": accepted} for local_seq, accepted in resolved],
    }
    if merged is not None:
        decided["merged"] = {"branch": merged.branch, "seq": merged.seq, "bases": merged.bases}
    return codec.encode(decided)


def merged_in(decided: str) -> MergedLine | None:
    """What a commit took in, by its `resolution`; None if it is not a merge."""
    found = codec.decode(decided).get("merged")
    return None if found is None else MergedLine(found["branch"], found["seq"], tuple(found.get("bases", ())))


def build(database: SpaceDatabase, connection: apsw.Connection, before: int, made: CommitRow) -> Commit:
    """The commit of a row; `before` is the commit before it on its branch, 0 for none."""
    metadata: dict[str, Any] = {BRANCH: name_of(made.branch), LOCAL_SEQ: made.local_seq,
                                RESOLVED_PENDING_READS: tuple(made.resolved)}
    parents = (before,) if before else ()
    merged = made.merged
    if merged is not None:
        metadata[MERGED] = name_of(merged.branch)
        parents = (*parents, parent(database, connection, merged.branch, merged.seq + 1))
    # As `datetime('now')` writes it, in UTC; the offset behind it saves the copy that naming the zone would take.
    return Commit(made.seq, parents, datetime.fromisoformat(f"{made.created_at}+00:00"), made.session_id, metadata)


def stored(database: SpaceDatabase, connection: apsw.Connection, seq: int) -> Commit:
    """The commit of a seq that is known to be there."""
    found = CommitRow.read(*row(connection, _ONE, (seq,)))
    return build(database, connection, parent(database, connection, found.branch, seq), found)


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
