"""A space at one commit of a branch, in the words of `ontolake.history`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ontolake.documents.database import SpaceDatabase, row, rows
from ontolake.documents.names import name_of
from ontolake.documents.read import replay
from ontolake.documents.read.feed import TABLE
from ontolake.documents.values.codec import Document
from ontolake.history.errors import UnknownTableError

_PAGE_SIZE = 500
_IDS = "SELECT id FROM head WHERE branch = ? AND id > ? AND (? IS NULL OR id < ?) ORDER BY id LIMIT ?"
_CUT = "SELECT id FROM head WHERE branch = ? AND id > ? ORDER BY id LIMIT 1 OFFSET ?"


class SpaceMoment:
    """The documents of a branch as they were at a commit: a `history.Snapshot`."""

    def __init__(self, database: SpaceDatabase, line: str, commit: int, branch: str | None = None) -> None:
        """`branch` is the name under which the line is looked at, if it is not that of the line."""
        self.branch = name_of(line) if branch is None else branch
        self.line = line
        self.commit = commit
        self._database = database

    @property
    def url(self) -> str:
        return self._database.url

    def is_of(self, database: SpaceDatabase) -> bool:
        """Whether it shows the space of a database."""
        return self._database is database or self._database.place == database.place

    def tables(self) -> Sequence[str]:
        """Documents are all in one."""
        return [TABLE]

    def rows(self, table: str = TABLE) -> Iterator[tuple[str, Document]]:
        """Every living document with its id, by id. Raises `NotFound` for a table of another name."""
        if table != TABLE:
            raise UnknownTableError(table, [TABLE])
        return ((id, document) for id, document, _ in self.between())

    def between(
        self, low: str = "", high: str | None = None, *, page: int = _PAGE_SIZE
    ) -> Iterator[tuple[str, Document, int]]:  # fmt: skip
        """Every living document with an id in `[low, high)`, by id: id, document, and the commit that touched it last.

        They are read a page at a time, each in a short transaction of its own.
        """
        after, first = low, True
        while True:
            with self._database.read as connection:
                view = self._database.view(self.line, self.commit)
                # Whatever a branch has ever touched has a head there; what came later is sorted out by reading.
                touched = {id for branch, _ in view
                           for (id,) in rows(connection, _IDS, (branch, after, high, high, page))}
                if first and low:
                    touched.add(low)
                ids = sorted(touched)[:page]
                found = replay.find_many(connection, view, ids)
            if not ids:
                return
            for id in ids:
                state = found[id]
                if state.document is not None:
                    yield id, state.document, state.changed
            after, first = ids[-1], False

    def widest(self) -> tuple[str, int]:
        """The line of history with the most ids of all that the branch sees, and their number."""
        with self._database.read as connection:
            view = self._database.view(self.line, self.commit)
            count, line = max((row(connection, "SELECT count(*) FROM head WHERE branch = ?", (one,))[0], one)
                              for one, _ in view)
        return line, count

    def cuts(self, line: str, step: int, limit: int) -> list[str]:
        """Ids of a line of history, `step` apart and in order: `limit` of them, or fewer if there are no more."""
        found: list[str] = []
        with self._database.read as connection:
            while len(found) < limit:
                cut = row(connection, _CUT, (line, found[-1] if found else "", step - 1))
                if cut is None:
                    break
                found.append(cut[0])
        return found
