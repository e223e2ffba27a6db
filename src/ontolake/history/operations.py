"""Merge, revert, cherry-pick and restore: one way for all models.

Each is the same three-way step: bring the change from a base to another state to the head of a branch. They differ in
what the base and the other state are, and in whether the commit has a second parent. A model hands in a `Mergeable`,
which finds commits, works out the change by the shared rules, and publishes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from ontolake.errors import Invalid
from ontolake.history.conflicts import Conflict, Decisions, Resolution, Strategy
from ontolake.history.contention import Pace, commit_optimistically
from ontolake.history.dag import Dag, best_common_ancestors, is_ancestor
from ontolake.history.errors import BranchError, MergeConflictError, RevertError, UnrelatedError
from ontolake.history.ids import Id
from ontolake.history.metadata import CHERRY_PICKED, RESTORES, REVERTS
from ontolake.history.refs import Point
from ontolake.history.results import Counts, MergeResult, MergeStatus
from ontolake.history.words import Commit

C = TypeVar("C")
"""What a model calls a set of changes."""


@dataclass(frozen=True)
class Sides(Generic[Id]):
    """A three-way step: bring what differs between `bases` and `theirs` to `ours`, which is the head of `into`.

    Several bases are to be merged first (`history.bases`). `tables` limits the step to some tables.
    """

    bases: Sequence[Id]
    theirs: Id
    ours: Id
    source: str
    into: str
    tables: frozenset[str] | None = None
    is_merge: bool = False
    """Whether the commit gets `theirs` as its second parent."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What the operation adds to the metadata of the commit."""


@dataclass(frozen=True)
class MergePlan(Generic[C]):
    """What a step would do: the changes as the model has them, how many rows, and what is not settled.

    `changes` is false if there is nothing to do, rows and definitions included.
    """

    changes: C
    tables: Mapping[str, Counts] = field(default_factory=dict)
    conflicts: Sequence[Conflict] = ()


@dataclass(frozen=True)
class CommitNote:
    """What people say about a commit."""

    message: str | None = None
    author: str | None = None


class Moved(Exception):
    """The head of the target is not what it was when the step was planned: plan again."""


class Mergeable(Protocol[Id, C]):
    """What a model gives to the operations, as of one moment."""

    @property
    def dag(self) -> Dag[Id]: ...

    def resolve(self, ref: str | Id) -> Point[Id]:
        """The commit that a reference names. Raises what `refs.resolve` raises."""
        ...

    def head(self, branch: str) -> Id:
        """The head of a branch that can be written to. Raises `UnknownBranchError`, and whatever the model raises for a
        store that is closed or read-only."""
        ...

    def is_news(self, theirs: Id, ours: Id) -> bool:
        """Whether `theirs` has a commit that `ours` has not and that means something: upkeep does not."""
        ...

    def plan(self, sides: Sides[Id], decisions: Decisions) -> MergePlan[C]:
        """Work out a step. Reads only what changed."""
        ...

    def publish(self, sides: Sides[Id], plan: MergePlan[C], note: CommitNote) -> Commit[Id]:
        """Make the commit, with `theirs` as second parent if it is a merge. Raises `Moved` if the head of the target is
        no longer `ours`; nothing was written then."""
        ...


@dataclass(frozen=True)
class MergeRequest:
    """What a caller wants of an operation beside its commits."""

    strategy: Strategy = None
    resolutions: Sequence[Resolution] = ()
    dry_run: bool = False
    message: str | None = None
    author: str | None = None

    @classmethod
    def of(
        cls, strategy: Strategy = None, resolutions: Iterable[Resolution] = (), dry_run: bool = False,
        message: str | None = None, author: str | None = None,
    ) -> MergeRequest:  # fmt: skip
        """A request that was checked. Raises `Invalid` for what is not text, a flag or a resolution."""
        check_texts(message=message, author=author)
        check_flag("dry_run", dry_run)
        if not isinstance(resolutions, Iterable):
            raise Invalid(f"resolutions must be a list, not {resolutions!r}", hint="write [Resolution(…)]")
        request = cls(strategy, tuple(resolutions), dry_run, message, author)
        Decisions(request.strategy, request.resolutions)
        return request


def check_texts(**texts: Any) -> None:
    """Raise `Invalid` for what is neither None nor text that can be stored: half a surrogate pair cannot."""
    for name, text in texts.items():
        if text is not None and not (isinstance(text, str) and _is_unicode(text)):
            raise Invalid(f"{name} must be text, not {text!r}", hint=f"give {name} as text, or leave it out")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_flag(name: str, value: Any) -> None:
    """Raise `Invalid` for what is neither True nor False."""
    if not isinstance(value, bool):
        raise Invalid(f"{name} must be True or False, not {value!r}")


TRIES = 8
"""How often a step is planned anew because the target has moved on meanwhile."""

Open = Callable[[], Mergeable[Id, C]]
"""Gives the model as it is now; called again for each try."""


def merge(opened: Open[Id, C], source: str, into: str, request: MergeRequest) -> MergeResult[Id]:
    """Bring the commits of `source`, which is any reference, into the branch `into`. See `contract.Branched.merge`."""

    def sides(model: Mergeable[Id, C]) -> Sides[Id] | MergeResult[Id]:
        ours, theirs = model.head(into), model.resolve(source)
        if source == into or (theirs.branch == into and theirs.commit == ours):
            raise BranchError(into, "cannot be merged into itself", hint="name two branches")
        bases = best_common_ancestors(model.dag, [ours], [theirs.commit])
        if not bases:
            raise UnrelatedError(source, into)
        if not model.is_news(theirs.commit, ours):
            return MergeResult(MergeStatus.UP_TO_DATE, source, into, base=bases[-1])
        return Sides(bases, theirs.commit, ours, source, into, is_merge=True)

    return _run(opened, sides, into, request)


def revert(opened: Open[Id, C], commit: str | Id, branch: str, request: MergeRequest) -> MergeResult[Id]:
    """Undo one commit on a branch. See `contract.Branched.revert`."""

    def sides(model: Mergeable[Id, C]) -> Sides[Id]:
        ours, (_, id) = model.head(branch), model.resolve(commit)
        if not is_ancestor(model.dag, id, ours):
            raise RevertError(id, f"is not in the history of branch {branch!r}",
                              hint="cherry-pick takes commits of other branches")
        return Sides([id], _parent(model, id, "reverted"), ours, f"revert of {id}", branch,
                     metadata={REVERTS: id})

    return _run(opened, sides, branch, request)


def cherry_pick(opened: Open[Id, C], commit: str | Id, branch: str, request: MergeRequest) -> MergeResult[Id]:
    """Do on a branch what one commit did elsewhere. See `contract.Branched.cherry_pick`."""

    def sides(model: Mergeable[Id, C]) -> Sides[Id]:
        ours, (_, id) = model.head(branch), model.resolve(commit)
        return Sides([_parent(model, id, "picked")], id, ours, f"pick of {id}", branch,
                     metadata={CHERRY_PICKED: id})

    return _run(opened, sides, branch, request)


def restore(
    opened: Open[Id, C], to: str | Id, branch: str, tables: Iterable[str] | None, request: MergeRequest
) -> MergeResult[Id]:  # fmt: skip
    """Bring an earlier state back on a branch. See `contract.Branched.restore`."""
    some = None if tables is None else frozenset(tables)

    def sides(model: Mergeable[Id, C]) -> Sides[Id]:
        ours = model.head(branch)
        id = model.resolve(to).commit
        return Sides([ours], id, ours, f"restore of {to}", branch, some, metadata={RESTORES: id})

    return _run(opened, sides, branch, request)


def _parent(model: Mergeable[Id, C], commit: Id, what: str) -> Id:
    parents = model.dag.parents(commit)
    if not parents:
        raise RevertError(commit, f"is the first one, and cannot be {what}", hint="there is no state before it")
    return parents[0]


def _run(
    opened: Open[Id, C], sides_of: Callable[[Mergeable[Id, C]], Sides[Id] | MergeResult[Id]], into: str,
    request: MergeRequest,
) -> MergeResult[Id]:  # fmt: skip
    def once() -> MergeResult[Id]:
        model = opened()
        sides = sides_of(model)
        if isinstance(sides, MergeResult):
            Decisions(request.strategy, request.resolutions).check_used()
            return sides
        decisions = Decisions(request.strategy, request.resolutions)
        plan = model.plan(sides, decisions)
        if not plan.conflicts:
            decisions.check_used()
        if plan.conflicts and not request.dry_run:
            raise MergeConflictError(sides.source, sides.into, plan.conflicts)
        status = MergeStatus.CONFLICTS if plan.conflicts else _status(sides)
        result: MergeResult[Id] = MergeResult(status, sides.source, sides.into, None, plan.tables, plan.conflicts,
                                              sides.bases[-1])
        if request.dry_run:
            return result
        if not sides.is_merge and not any(any(counts) for counts in plan.tables.values()) and not plan.changes:
            return MergeResult(MergeStatus.UP_TO_DATE, sides.source, sides.into, base=sides.bases[-1])
        commit = model.publish(sides, plan, CommitNote(request.message, request.author))
        return MergeResult(status, sides.source, sides.into, commit, plan.tables, (), sides.bases[-1])

    return commit_optimistically(once, Moved, Pace(TRIES), exhausted=lambda error: BranchError(
        into, "was changed again and again while it was merged into", hint="try again when fewer writers are at work"))


def _status(sides: Sides[Any]) -> MergeStatus:
    return MergeStatus.FAST_FORWARD if sides.is_merge and sides.bases[-1] == sides.ours else MergeStatus.MERGED
