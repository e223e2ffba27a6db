"""Branches of a database, as users see them. What keeps them is the storage, or the file itself."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager

from ontolake.errors import Invalid
from ontolake.history import (
    Branch,
    BranchError,
    BranchExistsError,
    Point,
    ProtectedBranchError,
    Ref,
    UnknownBranchError,
)
from ontolake.history.names import MAIN, check_branch_name
from ontolake.history.operations import check_flag
from ontolake.history.refs import on_branch
from ontolake.sql.history.lines import BranchKeeper, BranchLines, LineRef, Node, is_hidden
from ontolake.sql.keyspace.levels import DELETED

Protect = Callable[[str, bool | None], bool]
"""Whether a branch is protected, after that was changed unless None was given."""


class SqlBranches:
    """The branches of a database: a `history.Branches`."""

    def __init__(
        self, keeper: BranchKeeper, tagged: Callable[[str], bool], protect: Protect, check_writable: Callable[[], None],
        resolved: Callable[[str | Ref], AbstractContextManager[tuple[BranchLines, Point[Node]]]],
    ) -> None:  # fmt: skip
        """`tagged` tells whether there is a tag of a name, `protect` reads and changes protection, `check_writable`
        raises for a handle that only reads, `resolved` finds what a reference names."""
        self._keeper = keeper
        self._tagged, self._protect, self._check_writable = tagged, protect, check_writable
        self._resolved = resolved

    def list(self) -> Sequence[Branch[int]]:
        """All that live, the first one first; commits are versions."""
        refs = {ref.id: ref for ref in self._keeper.refs()}
        return [self._branch(refs, ref) for ref in refs.values() if not is_hidden(ref.name)]

    def _branch(self, refs: Mapping[int, LineRef], ref: LineRef) -> Branch[int]:
        keeper, protected = self._keeper, self._protect(ref.name, None)
        head = keeper.head(ref)
        if ref.parent is None:
            return Branch(ref.name, head, protected=protected)
        parent = refs[ref.parent]
        base = keeper.base(ref, parent)
        while is_hidden(parent.name) and parent.parent is not None:  # where it would be if that had never been made
            base = min(base, keeper.base(parent, refs[parent.parent]))
            parent = refs[parent.parent]
        return Branch(ref.name, head, base, parent.name, protected)

    def create(self, name: str, *, at: int | str | Ref | None = None, parent: str | None = None) -> Branch[int]:
        """A branch of `parent`, by default `main`, as it was at a version, else at its head; or at a reference, of the
        branch that it names. Copies nothing.

        The databases that ranges have moved to are branched with it. Raises `UnsupportedError` in `:memory:`, or if a
        database on pages has a range in a native file, `BranchExistsError`, `BranchError` for a name that cannot be
        one, `UnknownBranchError`, `NotFound` for a version that is not there.
        """
        check_branch_name(name)
        self._check_writable()
        self._keeper.check()
        if isinstance(at, str | Ref):
            with self._resolved(on_branch(at, parent)) as (lines, point):
                origin, version = lines.reader(point.commit).branch, point.commit[1]
            self._check_free(name, self._keeper.refs())
            self._keeper.create(name, version, origin)
            return Branch(name, version, version, point.branch)
        if at is not None and type(at) is not int:
            raise Invalid(f"{at!r} is not a version", hint="give a number, or a reference such as 'main~1'")
        origin = MAIN if parent is None else parent
        refs = self._keeper.refs()
        _find(origin, refs)
        self._check_free(name, refs)
        version = self._keeper.create(name, at, origin)
        return Branch(name, version, version, origin)

    def delete(self, name: str) -> None:
        """Give a branch up; what others have from it stays until `gc`. Raises `UnknownBranchError`, `BranchError` for
        `main`, `ProtectedBranchError`."""
        self._check_writable()
        ref = self._movable(name, "deleted")
        if self._keeper.is_used(ref):
            self._keeper.rename(ref, f"{DELETED}{ref.id}")
        else:
            self._keeper.delete(ref)

    def rename(self, name: str, new: str) -> Branch[int]:
        """Give a branch another name; its history stays. Raises what `create` and `delete` raise."""
        check_branch_name(new)
        self._check_writable()
        ref = self._movable(name, "renamed")
        self._check_free(new, self._keeper.refs())
        self._keeper.rename(ref, new)
        return next(branch for branch in self.list() if branch.name == new)

    def protect(self, name: str, protected: bool = True) -> Branch[int]:
        """Let a branch change by merges alone, or end that. Raises `UnknownBranchError`."""
        check_flag("protected", protected)
        _find(name, self._keeper.refs())
        self._protect(name, protected)
        return next(branch for branch in self.list() if branch.name == name)

    def purge(self, merged: Container[int]) -> None:
        """Remove deleted branches that nothing has history from: no branch, no tag, and none of `merged`."""
        for ref in reversed(self._keeper.refs()):
            if ref.name.startswith(DELETED) and ref.id not in merged and all(
                other.parent != ref.id for other in self._keeper.refs()
            ):
                self._keeper.delete(ref)

    def _movable(self, name: str, what: str) -> LineRef:
        ref = _find(name, self._keeper.refs())
        if name == MAIN:
            raise BranchError(name, f"is the first one, and cannot be {what}", hint="name another branch")
        if self._protect(name, None):
            raise ProtectedBranchError(name, what)
        return ref

    def _check_free(self, name: str, refs: Sequence[LineRef]) -> None:
        if any(ref.name == name for ref in refs):
            raise BranchExistsError.of(name)
        if self._tagged(name):
            raise BranchExistsError.of(name, is_tag=True)


def _find(name: str, refs: Sequence[LineRef]) -> LineRef:
    for ref in refs:
        if ref.name == name and not is_hidden(name):
            return ref
    raise UnknownBranchError(name)
