"""Tags: names for commits. The table is made with the first one; a space keeps every commit anyway."""

from __future__ import annotations

import builtins
from datetime import datetime

import apsw

from ontolake.documents.database import SpaceDatabase, row, rows
from ontolake.documents.errors import UnknownBranchError, UnknownCommitError
from ontolake.documents.history.ancestors import START
from ontolake.documents.history.references import FIRST, SpaceRefs
from ontolake.documents.schema import TAG
from ontolake.documents.values import codec
from ontolake.documents.write.transactions import DELETED
from ontolake.errors import Invalid
from ontolake.faults import reach
from ontolake.history import Tag, TagExistsError, UnknownTagError
from ontolake.history.names import MAIN, check_tag_name, is_name

_ALL = "SELECT name, seq, branch, created_at, message FROM tag ORDER BY name"
_ONE = "SELECT name, seq, branch, created_at, message FROM tag WHERE name = ?"
_INSERT = "INSERT INTO tag (name, branch, seq, message) VALUES (?, ?, ?, ?)"
_STATUS = "SELECT status FROM branch WHERE name = ?"


class SpaceTags:
    """The tags of a space, as `space.tags`."""

    def __init__(self, database: SpaceDatabase) -> None:
        self._database = database

    def list(self) -> builtins.list[Tag[int]]:
        """All tags, by name."""
        with self._database.read as connection:
            found = rows(connection, _ALL) if self._database.has_table("tag") else []
            return [self._tag(each) for each in found]

    def create(self, name: str, ref: str | int | None = None, *, message: str | None = None) -> Tag[int]:
        """Name a commit: that of a reference, else the head of the first branch.

        Raises `TagExistsError` if a tag or a branch has that name, `TagError` for a name that cannot be one,
        `UnknownBranchError`, `UnknownCommitError`.
        """
        check_tag_name(name)
        if message is not None and (not isinstance(message, str) or not codec.is_unicode(message)):
            raise Invalid(f"message must be text, not {message!r}")
        with self._database.write as connection:
            self._check_free(connection, name)
            refs = SpaceRefs(self._database)
            commit = refs.resolve(FIRST if ref is None else ref).commit
            if commit == START:
                raise UnknownCommitError(commit, reason="a tag names a commit, and there is none yet")
            if not self._database.has_table("tag"):
                connection.execute(TAG)
            connection.execute(_INSERT, (name, refs.commits.line(commit), commit, message))
            reach("documents: tag written")
            made = self._tag(row(connection, _ONE, (name,)))
        reach("documents: tag committed")
        return made

    def delete(self, name: str) -> None:
        """Take a name away; the commit stays. Raises `UnknownTagError`."""
        with self._database.write as connection:
            known = is_name(name) and self._database.has_table("tag")
            if not known or row(connection, _ONE, (name,)) is None:
                raise UnknownTagError(name)
            connection.execute("DELETE FROM tag WHERE name = ?", (name,))
            reach("documents: tag deleted")

    def _check_free(self, connection: apsw.Connection, name: str) -> None:
        if has_tag(self._database, connection, name):
            raise TagExistsError.of(name)
        try:
            line = self._database.line(name)
        except UnknownBranchError:
            return
        if name == MAIN or row(connection, _STATUS, (line,))[0] != DELETED:
            raise TagExistsError.of(name, is_branch=True)

    def _tag(self, found: tuple[str, int, str, str, str | None]) -> Tag[int]:
        name, seq, line, created_at, message = found
        return Tag(name, seq, self._database.name(line), datetime.fromisoformat(f"{created_at}+00:00"), message)


def has_tag(database: SpaceDatabase, connection: apsw.Connection, name: str) -> bool:
    """Whether there is a tag of this name. Inside a transaction."""
    return database.has_table("tag") and row(connection, _ONE, (name,)) is not None
