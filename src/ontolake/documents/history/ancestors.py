"""The commits of a space as a DAG, read a page at a time, and what lies between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import apsw

from ontolake.documents import commits
from ontolake.documents.commits import MergedLine
from ontolake.documents.database import SpaceDatabase, View, row, rows
from ontolake.documents.errors import UnknownCommitError
from ontolake.documents.values import codec
from ontolake.history.dag import missing

PAGE_SIZE = 200
"""Commits that are read at once."""

_LINE = 'SELECT branch FROM "commit" WHERE seq = ?'
_COMMITS = """\
SELECT seq, iif(instr(resolution, '"merged"'), resolution, NULL) FROM "commit"
WHERE branch = ? AND seq <= ?
ORDER BY seq DESC LIMIT ?"""
_TOUCHED = "SELECT id FROM revision WHERE branch = ? AND seq > ? AND seq <= ?"
_TOUCHED_BY = "SELECT id FROM revision WHERE commit_seq IN (SELECT value FROM json_each(?))"

START = 0
"""The commit before the first one: the space when it was empty."""


class Between(NamedTuple):
    """What lies between two commits: entities that may differ, and whether anything was written or merged."""

    ids: set[str]
    has_writes: bool
    has_merges: bool


class Commits:
    """The commits of a space by seq: a `history.dag.Dag`. Rows of commits never change, so each is read once."""

    def __init__(self, database: SpaceDatabase) -> None:
        self._database = database
        self._parents: dict[int, tuple[int, ...]] = {START: ()}
        self._lines: dict[int, str] = {START: ""}
        self._read: dict[int, tuple[int, str | None]] = {}
        """Of commits that were read the one before on the line, and the resolution of those that are merges."""
        self._merged: dict[int, MergedLine] = {}

    def head(self, line: str, seq: int) -> int:
        """The last commit that a line sees at a seq."""
        with self._database.joined as connection:
            return commits.parent(self._database, connection, line, seq + 1)

    def parents(self, commit: int) -> Sequence[int]:
        known = self._parents.get(commit)
        if known is None:
            known = self._parents[commit] = self._found(commit)
        return known

    def _found(self, commit: int) -> tuple[int, ...]:
        """The parents of a commit. What a merge took in is looked for only here: few of a page are ever asked for."""
        if commit not in self._read:
            with self._database.joined as connection:
                self._read_page(connection, self.line(commit), commit)
        before, decided = self._read[commit]
        merged = None if decided is None else commits.merged_in(decided)
        if merged is None:
            return (before,)
        self._merged[commit] = merged
        return (before, self.head(merged.branch, merged.seq))

    def order(self, commit: int) -> int:
        return commit

    def line(self, commit: int) -> str:
        """The line on which a commit was made."""
        known = self._lines.get(commit)
        if known is None:
            with self._database.joined as connection:
                found = row(connection, _LINE, (commit,))
            if found is None:
                raise UnknownCommitError(commit)
            known = self._lines[commit] = str(found[0])
        return known

    def view(self, commit: int) -> View:
        """What is seen at a commit."""
        with self._database.joined:
            return self._database.view(self.line(commit), commit)

    def merged(self, commit: int) -> MergedLine | None:
        """What a commit took in, if it is a merge."""
        self.parents(commit)
        return self._merged.get(commit)

    def _read_page(self, connection: apsw.Connection, line: str, newest: int) -> None:
        """Read a page of commits of a line; one more than is kept, as the parent of the last."""
        page = rows(connection, _COMMITS, (line, newest, PAGE_SIZE + 1))
        ended = len(page) <= PAGE_SIZE
        before = [seq for seq, _ in page[1:]]
        if ended:
            before.append(self.head(line, page[-1][0] - 1))
        for (seq, decided), parent in zip(page, before, strict=False):
            self._read[seq], self._lines[seq] = (parent, decided), line

    def between(self, commit: int, base: int) -> Between:
        """What lies between a commit and one of its ancestors.

        Every entity that differs was written by a commit that came in between, if the merges among these were made
        against one base each. Otherwise all that either side has written since the two lines parted is in question.
        """
        between = missing(self, commit, [base])
        merges = [found for each in between if (found := self.merged(each)) is not None]
        with self._database.joined as connection:
            written = {id for (id,) in rows(connection, _TOUCHED_BY, (codec.encode(between),))}
        if all(len(found.bases) == 1 for found in merges):
            return Between(written, bool(written), bool(merges))
        return Between(self.differing(commit, base), bool(written), True)

    def differing(self, one: int, other: int) -> set[str]:
        """The entities that may differ between any two commits."""
        new, old = self.view(one), self.view(other)
        with self._database.joined as connection:
            return touched(connection, new, old) | touched(connection, old, new)


def touched(connection: apsw.Connection, view: View, since: View) -> set[str]:
    """The entities that have revisions in one view and not in the other."""
    limits = dict(since)
    return {
        id
        for branch, limit in view
        for (id,) in rows(connection, _TOUCHED, (branch, limits.get(branch, 0), limit))
    }
