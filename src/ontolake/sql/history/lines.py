"""Lines of history: branches, internal ones too, by ids that outlive names, and the commit DAG over them.

A commit is known by its line and its version there, its node. Versions count on from where a line left its parent, so
what a line has from its parent is named by the parent's line.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any, NamedTuple, Protocol

from ontolake import engine, urls
from ontolake.history import UnknownCommitError
from ontolake.sql.keyspace.layout import NEWEST
from ontolake.sql.keyspace.levels import DELETED
from ontolake.sql.transactions import SqlSession

Node = tuple[int, int]
"""A line and a version on it."""

TAG = "tag:"
"""Prefixes of internal branches. They keep tagged commits, and deleted lines that other branches have
their history from."""

FIRST = 0
"""The line of the first branch."""

OpenSession = Callable[[str], AbstractContextManager[SqlSession]]
"""Gives a session on a branch, also an internal one."""


def is_hidden(name: str) -> bool:
    """Whether a branch is internal, not one that a user made."""
    return name.startswith((TAG, DELETED))


class LineRef(NamedTuple):
    """A branch, internal ones too."""

    id: int
    name: str
    parent: int | None
    base: int | None = None
    """The version at which it left its parent, where that is told at once."""


class BranchKeeper(Protocol):
    """Keeps the branches of a database, internal ones too."""

    def check(self) -> None:
        """Raise `UnsupportedError` where there can be none but the first."""

    def refs(self) -> list[LineRef]:
        """All of them, the first one first."""

    def head(self, ref: LineRef) -> int:
        """The newest version of one."""

    def base(self, ref: LineRef, parent: LineRef) -> int:
        """The version at which one left its parent."""

    def is_used(self, ref: LineRef) -> bool:
        """Whether one has commits of its own, or others have history from it."""

    def create(self, name: str, at: int | None, parent: str) -> int:
        """Make one at a version of its parent, else at its head. Returns the version. Raises `NotFound`."""

    def delete(self, ref: LineRef) -> None:
        """Remove one with all that it has written."""

    def rename(self, ref: LineRef, new: str) -> None:
        """Give one another name."""


class CommitNode(tuple[int, int]):
    """A node that people see as its version."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self[1])

    __str__ = __repr__


class _Line(NamedTuple):
    id: int
    name: str
    base: int
    parent: int | None


class BranchLines:
    """The lines of a database as they are now: a `history.dag.Dag`. Use it in a `with` block."""

    def __init__(
        self, session: SqlSession, opened: OpenSession, keeper: BranchKeeper, bases: dict[int, int]
    ) -> None:  # fmt: skip
        """`bases` remembers at which versions lines left their parents: that never changes."""
        self.session = session
        self._keeper = keeper
        self._opened = opened
        self._bases = bases
        self._stack = ExitStack()
        self._refs: dict[int, LineRef] | None = None
        self._sessions: dict[int, SqlSession] = {session.line: session}
        self._heads: dict[int, int] = {}
        self._floors: dict[int, int] = {}
        self._merges: dict[int, tuple[list[int], list[Node]]] = {}
        self._orders: dict[Node, int] = {}

    def __enter__(self) -> BranchLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up the sessions that were opened on the way."""
        self._stack.close()

    # lines

    @property
    def refs(self) -> dict[int, LineRef]:
        """All branches, by id."""
        if self._refs is None:
            self._refs = {ref.id: ref for ref in self._keeper.refs()}
        return self._refs

    def find(self, branch: str) -> int | None:
        """The line of a branch that lives; None if no branch has this name."""
        if branch == self.session.branch:
            return self.session.line
        if branch == "main":
            return FIRST
        return next((id for id, ref in self.refs.items() if ref.name == branch and not is_hidden(branch)), None)

    def _line(self, id: int) -> _Line:
        if id == FIRST:
            return _Line(FIRST, "main", 0, None)
        ref = self.refs[id]
        assert ref.parent is not None
        if id not in self._bases:
            self._bases[id] = self._keeper.base(ref, self.refs[ref.parent])
        return _Line(id, ref.name, self._bases[id], ref.parent)

    def name(self, id: int) -> str:
        """The name of the branch of the storage that is a line."""
        return self._line(id).name

    def base(self, id: int) -> int:
        """The version at which a line left its parent."""
        return self._line(id).base

    def on(self, id: int) -> SqlSession:
        """A session on a line, for reading."""
        if id not in self._sessions:
            self._sessions[id] = self._stack.enter_context(self._opened(self._line(id).name))
        return self._sessions[id]

    def head(self, id: int) -> int:
        """The newest version of a line, as it was when it was first asked for."""
        if id not in self._heads:
            session = self.on(id)
            with session.reading():
                self._heads[id] = session.state()[0]
        return self._heads[id]

    def node(self, id: int, version: int) -> Node:
        """The commit that a line has under a version."""
        while id != FIRST:
            if id not in self.refs:
                break  # it is gone for good
            line = self._line(id)
            if version > line.base or line.parent is None:
                break
            id = line.parent
        return CommitNode((id, version))

    def common(self, left: str, left_version: int, right: str, right_version: int) -> int:
        """The newest version that two branches have in common, up to a version on each."""
        by_name = {ref.name: id for id, ref in self.refs.items()}
        one = self._lineage(by_name.get(left, FIRST), left_version)
        other = self._lineage(by_name.get(right, FIRST), right_version)
        return max((min(one[id], other[id]) for id in one if id in other), default=0)

    def _lineage(self, id: int, version: int) -> dict[int, int]:
        """The lines that a version of a line has its history from, and how far on each."""
        found = {id: version}
        while id != FIRST:
            line = self._line(id)
            assert line.parent is not None
            id, version = line.parent, min(version, line.base)
            found[id] = version
        return found

    def has(self, id: int, node: Node) -> bool:
        """Whether the versions of a line include a commit."""
        return node[1] <= self.head(id) and self.node(id, node[1]) == node

    def reader(self, node: Node) -> SqlSession:
        """A session that can read the state at a commit. Raises `UnknownCommitError` if none can any more."""
        if self._reads(node[0], node):
            return self.on(node[0])
        candidates = [node[0], *(id for id in self._sessions if id != node[0])]
        for id in dict.fromkeys([*candidates, *([] if node[0] == self.session.line else self.refs)]):
            if self._reads(id, node):
                return self.on(id)
        for id in self.refs:
            if self._reads(id, node):
                return self.on(id)
        raise UnknownCommitError(node[1], reason="it is no longer kept")

    def _reads(self, id: int, node: Node) -> bool:
        if (id != FIRST and id != self.session.line and id not in self.refs) or not self.has(id, node):
            return False
        if id not in self._floors:
            session = self.on(id)
            with session.reading():
                self._floors[id] = session.state()[2]
        return self._floors[id] <= node[1]

    # the DAG

    def merges(self, id: int) -> tuple[list[int], list[Node]]:
        """The versions of a line that are merges, oldest first, and what each took in."""
        if id not in self._merges:
            found: list[tuple[int, int, int]] = []
            if id in self._sessions or id == FIRST or id in self.refs:
                self.head(id)  # before: what is newer has merges that nobody asks for
                session = self.on(id)
                with session.reading():
                    found = session.log.merges(self._line(id).base, session.state()[0])
            self._merges[id] = [row[0] for row in found], [CommitNode(row[1:]) for row in found]
        return self._merges[id]

    def merged(self) -> set[int]:
        """The lines that were merged into others. Reads nothing if none was deleted."""
        if not any(ref.name.startswith(DELETED) for ref in self.refs.values()):
            return set()
        return {node[0] for id in self.refs for node in self.merges(id)[1] if node[0] != id}

    def parents(self, commit: Node) -> Sequence[Node]:
        id, version = commit
        if version <= 1:
            return ()
        versions, merged = self.merges(id)
        place = bisect_right(versions, version) - 1
        second = [merged[place]] if place >= 0 and versions[place] == version else []
        return [self.node(id, version - 1), *second]

    def order(self, commit: Node) -> int:
        """How long the longest way to the first commit is."""
        waiting = [commit]
        while waiting:
            anchor, _, needed = self._anchor(waiting[-1])
            if anchor in self._orders:
                waiting.pop()
                continue
            orders = [self._known(node) for node in needed]
            missing = [node for node, order in zip(needed, orders, strict=True) if order is None]
            if missing:
                waiting += missing
                continue
            highest = max((order for order in orders if order is not None), default=0)
            self._orders[anchor] = highest + (len(needed) > 1)
            waiting.pop()
        found = self._known(commit)
        assert found is not None
        return found

    def _known(self, commit: Node) -> int | None:
        anchor, further, _ = self._anchor(commit)
        return None if anchor not in self._orders else self._orders[anchor] + further

    def _anchor(self, commit: Node) -> tuple[Node, int, list[Node]]:
        """The last merge of a line up to a commit, or where the line begins; how far it is from there to the commit;
        and whose orders decide the anchor's own."""
        id, version = commit
        versions, merged = self.merges(id)
        place = bisect_right(versions, version) - 1
        if place >= 0:
            at = versions[place]
            return (id, at), version - at, [self.node(id, at - 1), merged[place]]
        if id == FIRST or id not in self.refs:
            return (id, 0), version, []
        line = self._line(id)
        assert line.parent is not None
        return (id, line.base), version - line.base, [self.node(line.parent, line.base)]


def base_counter(line: int) -> str:
    """Where a line notes at which version another one left it, if that cannot be told from pages any more."""
    return f"base {line}"


def version_of(url: str, branch: str, lsn: int | None = None, counter: str = "") -> int:
    """The newest version that a branch of the storage has, now or at an LSN, or what a counter says there."""
    native = urls.parse(url).place is urls.Place.SQLITE
    options: dict[str, Any] = {} if native else {"branch": branch, "at": lsn}
    connection = engine.connect(url, readonly=True, **options)
    try:
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'state'").fetchone():
            return 0
        found: Any = connection.execute(
            f"SELECT coalesce((SELECT next FROM counter WHERE name = ?), (SELECT {NEWEST}))",
            (counter,)).get  # fmt: skip
        return int(found)
    finally:
        connection.close(True)
