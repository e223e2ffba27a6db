"""References to a state of a store: how people write them, and the one rule by which every model reads them.

| text | state |
|---|---|
| `main`, `try` | the head of a branch |
| `2026-q3` | the commit of a tag |
| `main@12`, `@12`, `@01J…` | a commit, on a branch or on the first one |
| `12`, `01J…` | the same, unless a branch or a tag is called so |
| `@2026-11-01T10:00Z`, `try@2026-11-01` | the last commit that was made by then |
| `main~3`, `@12~1` | three commits before, along first parents |
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Generic, NamedTuple, Protocol

from ontolake.errors import Invalid, NotFound
from ontolake.history.errors import UnknownBranchError, UnknownCommitError
from ontolake.history.ids import Id

_HINT = "write BRANCH, TAG, BRANCH@COMMIT, @COMMIT, @TIME, each with ~N for N commits before"
_BACK = re.compile(r"(.*?)~([0-9]{1,9})?", re.DOTALL)
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?")


class Ref(NamedTuple):
    """A state of a store as a user writes it. Without a branch the first one is meant, without a commit its head.

    `branch` is the name of a branch or a tag, `commit` an id or a time as text, `back` the number of commits before it.
    A branch whose name has an `@` or a `~` in it is written with an `@` behind it.
    """

    branch: str | None = None
    commit: str | None = None
    back: int = 0

    @classmethod
    def parse(cls, text: str) -> Ref:
        """Read a reference. Raises `Invalid` if it names nothing."""
        if not isinstance(text, str):
            raise Invalid(f"a reference is text, not {text!r}", hint=_HINT)
        rest, back = text, 0
        if not text.endswith("@") and (counted := _BACK.fullmatch(text)) is not None:
            rest, back = counted[1], 1 if counted[2] is None else int(counted[2])
        branch, at, commit = rest.rpartition("@")
        if not at:
            branch, commit = commit, ""
        if not branch and not commit:
            raise Invalid(f"{text!r} names neither a branch nor a commit", hint=_HINT)
        return cls(branch or None, commit or None, back)

    @property
    def time(self) -> datetime | None:
        """The time that `commit` is, as UTC, which is meant unless it names a zone; None if it is not a time.

        Raises `Invalid`."""
        if self.commit is None or not _TIME.fullmatch(self.commit):
            return None
        try:
            moment = datetime.fromisoformat(self.commit)
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        except (ValueError, OverflowError) as error:
            raise Invalid(f"{self.commit!r} is not a time: {error}", hint="write 2026-11-01T10:00Z") from None

    def __str__(self) -> str:
        branch, commit = self.branch or "", self.commit or ""
        text = f"{branch}@{commit}" if commit or "@" in branch or "~" in branch else branch
        return f"{text}~{self.back}" if self.back else text


def parsed(ref: Ref | str) -> Ref:
    """A reference that is well formed, as text or not. Raises `Invalid`."""
    if not isinstance(ref, Ref):
        return Ref.parse(ref)
    if any(part is not None and not isinstance(part, str) for part in ref[:2]) or type(ref.back) is not int \
            or ref.back < 0:
        raise Invalid(f"{ref!r} is not a reference", hint=_HINT)
    return ref


def on_branch(ref: Ref | str, branch: str | None) -> Ref | str:
    """A reference that is looked at on a branch; as it is if `branch` is None. Raises `Invalid` if it names another."""
    if branch is None:
        return ref
    found = parsed(ref)
    if found.branch is None or found.branch == branch:
        return found._replace(branch=branch)
    if found.commit is not None:
        raise Invalid(f"{str(found)!r} is not on branch {branch!r}", hint="name one branch, or leave branch out")
    return Ref(branch, found.branch, found.back)


class Point(NamedTuple, Generic[Id]):
    """A commit, and the branch on which it is looked at."""

    branch: str
    commit: Id


class Refs(Protocol[Id]):
    """What a store knows of its branches, tags and commits, for `resolve`."""

    @property
    def first(self) -> str:
        """The name of the branch that is meant where none is named."""
        ...

    def head(self, branch: str) -> Id | None:
        """The head of a branch; None if there is no branch of this name."""
        ...

    def tagged(self, name: str) -> Point[Id] | None:
        """What a tag names; None if there is no tag of this name."""
        ...

    def find(self, text: str, branch: str | None) -> Point[Id]:
        """The commit that a text names, on a branch or, where `branch` is None, on whichever one has it.

        Raises `Invalid` if it cannot be the id of a commit, `UnknownCommitError`.
        """
        ...

    def before(self, time: datetime, branch: str) -> Id:
        """The last commit of a branch that was made at a time or before it. Raises `UnknownCommitError`."""
        ...

    def parent(self, point: Point[Id]) -> Id | None:
        """The first parent of a commit; None for the first commit of all."""
        ...


def resolve(ref: Ref | str, refs: Refs[Id]) -> Point[Id]:
    """The commit that a reference names.

    Raises `Invalid` for text that cannot be a reference, `UnknownBranchError` if there is neither a branch nor a tag of
    the name, `UnknownCommitError`.
    """
    ref = parsed(ref)
    point = _start(ref, refs)
    for step in range(ref.back):
        parent = refs.parent(point)
        if parent is None:
            raise UnknownCommitError(str(ref), point.branch, reason=f"history has only {step} commits before "
                                     f"{str(ref._replace(back=0))!r}")
        point = point._replace(commit=parent)
    return point


def _start(ref: Ref, refs: Refs[Id]) -> Point[Id]:
    branch = ref.branch
    if ref.commit is None:
        name = refs.first if branch is None else branch
        head = refs.head(name)
        if head is not None:
            return Point(name, head)
        tagged = refs.tagged(name)
        return _by_id(name, refs) if tagged is None else tagged
    if branch is not None and refs.head(branch) is None:
        raise UnknownBranchError(branch)
    if (time := ref.time) is not None:
        name = refs.first if branch is None else branch
        return Point(name, refs.before(time, name))
    return refs.find(ref.commit, branch)


def _by_id(name: str, refs: Refs[Id]) -> Point[Id]:
    """The commit that is meant by an id alone."""
    try:
        return refs.find(name, None)
    except (Invalid, NotFound):
        raise UnknownBranchError(name) from None
