"""What the references of users mean on SQL tables: a `history.refs.Refs` over lines of history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from ontolake.errors import Invalid
from ontolake.history import Point, UnknownBranchError, UnknownCommitError
from ontolake.history.refs import Ref, resolve
from ontolake.sql.history.lines import BranchLines, Node
from ontolake.sql.history.tags import StoredTag


class References:
    """Finds commits by what users write."""

    def __init__(self, lines: BranchLines, first: str, tags: Callable[[], Sequence[StoredTag]]) -> None:
        self.lines = lines
        self._first = first
        self._tags = tags

    @property
    def first(self) -> str:
        return self._first

    def resolve(self, ref: Ref | str | int, branch: str | None = None) -> Point[Node]:
        """The commit that a reference names; a number is one of the branch. Raises what `refs.resolve` raises."""
        if isinstance(ref, int):
            return self.find(str(ref), branch)
        return resolve(ref, self)

    def line(self, branch: str) -> int:
        """The line of a branch. Raises `UnknownBranchError`."""
        found = self.lines.find(branch)
        if found is None:
            raise UnknownBranchError(branch)
        return found

    def head(self, branch: str) -> Node | None:
        line = self.lines.find(branch)
        return None if line is None else self.lines.node(line, self.lines.head(line))

    def tagged(self, name: str) -> Point[Node] | None:
        return next((Point(each.tag.branch, each.node) for each in self._tags() if each.tag.name == name), None)

    def find(self, text: str, branch: str | None) -> Point[Node]:
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise Invalid(f"{text!r} is not a version", hint="commits are numbered from 1")
        name = self._first if branch is None else branch
        line, version = self.line(name), int(text)
        session = self.lines.on(line)
        with session.reading():
            newest, _, floor = session.state()
        if not floor <= version <= newest:
            raise UnknownCommitError(version, name, reason=f"versions from {floor} to {newest} can be read")
        return Point(name, self.lines.node(line, version))

    def before(self, time: datetime, branch: str) -> Node:
        line = self.line(branch)
        session = self.lines.on(line)
        with session.reading():
            version = session.version_at(int(time.timestamp() * 1_000_000))
            floor = session.state()[2]
        if not version or version < floor:
            raise UnknownCommitError(time.isoformat(), branch, reason="no commit that is kept is so old")
        return self.lines.node(line, version)

    def parent(self, point: Point[Node]) -> Node | None:
        return next(iter(self.lines.parents(point.commit)), None)
