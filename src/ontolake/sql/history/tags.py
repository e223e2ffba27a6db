"""Tags: names for commits. Each is kept by an internal branch, so that no cleanup takes it.

The table of tags is in the first branch. In `:memory:` there are no branches; there tags hold `retain` back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from ontolake import faults
from ontolake.errors import NotFound
from ontolake.history import Point, Tag, TagExistsError, UnknownTagError
from ontolake.history.names import check_tag_name
from ontolake.history.operations import check_texts
from ontolake.sql.errors import UnsupportedError
from ontolake.sql.history.lines import TAG, BranchKeeper, BranchLines, CommitNode, LineRef, Node
from ontolake.sql.transactions import SqlSession

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TABLE = """CREATE TABLE IF NOT EXISTS tag (
  name TEXT NOT NULL PRIMARY KEY,
  line INTEGER NOT NULL, -- the id of the branch that the commit is on
  version INTEGER NOT NULL,
  branch TEXT NOT NULL, -- its name when the tag was made
  time INTEGER NOT NULL, -- microseconds since 1970
  message TEXT
) WITHOUT ROWID"""


class StoredTag(NamedTuple):
    """A tag with the commit that it names."""

    tag: Tag[int]
    node: Node


def stored(session: SqlSession) -> list[StoredTag]:
    """All tags by name, from a session on the first branch."""
    with session.reading():
        if not session.connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'tag'").fetchone():
            return []
        rows: Any = session.connection.execute(
            "SELECT name, line, version, branch, time, message FROM tag ORDER BY name").fetchall()
    return [StoredTag(Tag(name, version, branch, _EPOCH + timedelta(microseconds=moment), message),
                      CommitNode((line, version)))
            for name, line, version, branch, moment, message in rows]  # fmt: skip


class SqlTags:
    """The tags of a database: a `history.Tags`."""

    def __init__(
        self, keeper: BranchKeeper, first: Callable[[bool], AbstractContextManager[SqlSession]],
        resolved: Callable[[str | int | None], AbstractContextManager[tuple[BranchLines, Point[Node]]]],
        check_writable: Callable[[], None],
    ) -> None:  # fmt: skip
        """`first` gives a session on the first branch, for writing if True; `resolved` finds what a reference names;
        `check_writable` raises for a handle that only reads."""
        self._keeper = keeper
        self._first, self._resolved, self._check_writable = first, resolved, check_writable

    def list(self) -> Sequence[Tag[int]]:
        """All tags, by name."""
        return [each.tag for each in self.stored()]

    def stored(self) -> Sequence[StoredTag]:
        """All tags with their commits."""
        with self._first(False) as session:
            return stored(session)

    def create(self, name: str, ref: str | int | None = None, *, message: str | None = None) -> Tag[int]:
        """Name a commit, else the head of the branch. Raises `TagExistsError`, `TagError`, `UnknownBranchError`,
        `UnknownCommitError`."""
        check_tag_name(name)
        check_texts(message=message)
        self._check_writable()
        with self._resolved(ref) as (lines, (branch, node)):
            if any(each.tag.name == name for each in self.stored()):
                raise TagExistsError.of(name)
            if lines.find(name) is not None:
                raise TagExistsError.of(name, is_branch=True)
            if self._can_pin():
                self._pin(name, lines.reader(node), node)
        moment = time.time_ns() // 1000
        with self._first(True) as session, session.writing("-- tag"):
            session.connection.execute(_TABLE)
            session.connection.execute("INSERT OR REPLACE INTO tag VALUES (?, ?, ?, ?, ?, ?)",
                                       (name, *node, branch, moment, message))
            faults.reach("sql: tag written")
            session.keep()
        return Tag(name, node[1], branch, _EPOCH + timedelta(microseconds=moment), message)

    def _pin(self, name: str, reader: SqlSession, node: Node) -> None:
        """Keep a commit by an internal branch."""
        self._unpin(name)  # left behind by an attempt that did not come to its end
        self._keeper.create(TAG + name, node[1], reader.branch)
        faults.reach("sql: tag pinned")

    def _unpin(self, name: str) -> None:
        pin = self._pins().get(name)
        if pin is not None:
            self._keeper.delete(pin)

    def _pins(self) -> dict[str, LineRef]:
        """The internal branches that keep tags, by the names of the tags."""
        return {ref.name.removeprefix(TAG): ref for ref in self._keeper.refs() if ref.name.startswith(TAG)}

    def _can_pin(self) -> bool:
        try:
            self._keeper.check()
        except UnsupportedError:
            return False
        return True

    def delete(self, name: str) -> None:
        """Take a name away; the commit stays. Raises `UnknownTagError`."""
        with self._first(True) as session:
            if all(each.tag.name != name for each in stored(session)):
                raise UnknownTagError(name)
            with session.writing("-- tag"):
                session.connection.execute("DELETE FROM tag WHERE name = ?", (name,))
                faults.reach("sql: tag deleted")
                session.keep()
        self._unpin(name)

    def check_kept(self, version: int) -> None:
        """Raise `NotFound` if giving up what is before a version would take a commit that only its tag names."""
        tagged = [each for each in self.stored() if each.node[1] < version]
        if tagged:
            pins = self._pins()
            for each in tagged:
                if each.tag.name not in pins:
                    raise NotFound(f"the tag {each.tag.name!r} names version {each.node[1]}, which has to stay",
                                   hint="delete the tag first, or retain an earlier version")
