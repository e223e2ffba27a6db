"""A space at one commit of a branch, and the differences of two, in the words of `ontolake.history`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ontolake.documents import reading
from ontolake.documents.codec import Document
from ontolake.documents.database import Database, rows
from ontolake.documents.feed import TABLE
from ontolake.documents.merging import Diff
from ontolake.documents.names import name_of
from ontolake.errors import Invalid, NotFound
from ontolake.history import Change, Ref

_PAGE_SIZE = 500
_IDS = "SELECT id FROM head WHERE branch = ? AND id > ? ORDER BY id LIMIT ?"


class Moment:
    """The documents of a branch as they were at a commit: a `history.Snapshot`."""

    def __init__(self, database: Database, line: str, commit: int) -> None:
        self.branch = name_of(line)
        self.line = line
        self.commit = commit
        self._database = database

    def tables(self) -> Sequence[str]:
        """Documents are all in one."""
        return [TABLE]

    def rows(self, table: str = TABLE) -> Iterator[tuple[str, Document]]:
        """Every living document with its id, by id. Raises `NotFound` for a table of another name."""
        if table != TABLE:
            raise NotFound(f"a space has no table {table!r}", hint=f"its documents are in {TABLE!r}")
        return self._rows()

    def _rows(self) -> Iterator[tuple[str, Document]]:
        after = ""
        while True:
            with self._database.read as connection:
                view = self._database.view(self.line, self.commit)
                # Whatever a branch has ever touched has a head there; what came later is sorted out by reading.
                touched = {id for branch, _ in view for (id,) in rows(connection, _IDS, (branch, after, _PAGE_SIZE))}
                ids = sorted(touched)[:_PAGE_SIZE]
                found = reading.find_many(connection, view, ids)
            if not ids:
                return
            yield from ((id, document) for id in ids if (document := found[id].document) is not None)
            after = ids[-1]


def read_ref(ref: Ref) -> tuple[int | None, str]:
    """The seq and the branch that a user wrote."""
    if ref.commit is None:
        return None, ref.branch or ""
    if not (ref.commit.isascii() and ref.commit.isdigit() and len(ref.commit) < 19):
        raise Invalid(f"{ref.commit!r} is not a seq", hint="commits of a space are numbered from 1")
    return int(ref.commit), ref.branch or ""


def differences(diff: Diff, commit: int) -> Iterator[Change[int]]:
    """A difference as changes, by id."""
    for id in sorted(diff.added.keys() | diff.removed.keys() | diff.modified.keys()):
        if id in diff.modified:
            before: Document | None = diff.modified[id].before
            after: Document | None = diff.modified[id].after
        else:
            before, after = diff.removed.get(id), diff.added.get(id)
        yield Change.of(commit, TABLE, id, before, after)
