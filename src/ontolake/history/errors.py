"""What can go wrong with branches, tags, commits and merges, on any model.

A model whose errors have a root of its own derives from these, so that callers can handle one class for all models.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from ontolake.errors import AlreadyExists, ExecutionFailure, Invalid, NotFound, SafetyRefusal, UsageFailure
from ontolake.errors import Conflict as ConflictGroup

if TYPE_CHECKING:
    from ontolake.history.conflicts import Conflict


class UnknownBranchError(UsageFailure, NotFound):
    """There is no branch, and where a tag may stand no tag, of this name. `branch` is the name."""

    def __init__(self, branch: str, *, hint: str | None = None) -> None:
        super().__init__(f"there is no branch {branch!r}", hint=hint or "onto branch and onto tag list what there is")
        self.branch = branch


class UnknownTagError(UsageFailure, NotFound):
    """There is no tag of this name. `tag` is the name."""

    def __init__(self, tag: str) -> None:
        super().__init__(f"there is no tag {tag!r}", hint="onto tag lists what there is")
        self.tag = tag


class UnknownCommitError(UsageFailure, NotFound):
    """A commit that is not there, not on the branch that was named, or no longer kept."""

    def __init__(self, commit: Any, branch: str | None = None, *, reason: str | None = None) -> None:
        where = f" on branch {branch!r}" if branch else ""
        super().__init__(f"there is no commit {commit!r}{where}" + (f": {reason}" if reason else ""),
                         hint="onto log shows what there is")
        self.commit = commit
        self.branch = branch


class UnknownTableError(UsageFailure, NotFound):
    """There is no table of this name. `table` is the name, and `known` are those that there are."""

    def __init__(self, table: Any, known: Iterable[str] = (), *, hint: str | None = None) -> None:
        super().__init__(f"there is no table {table!r}", hint=hint or f"there are {', '.join(sorted(known)) or 'none'}")
        self.table = table


class BranchError(Invalid, ExecutionFailure):
    """Something cannot be done with this branch. `branch` is its name."""

    def __init__(self, branch: Any, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"branch {branch!r} {reason}", hint=hint)
        self.branch = branch


class BranchExistsError(AlreadyExists, BranchError):
    """A branch or a tag of this name is there already."""

    @classmethod
    def of(cls, name: str, *, is_tag: bool = False) -> Self:
        """The error for the name of a branch that lives, or of a tag."""
        if is_tag:
            return cls(name, "cannot be called that: there is a tag of this name", hint="use another name")
        return cls(name, "is there already", hint="delete it first, or use another name")


class TagError(Invalid, ExecutionFailure):
    """A tag cannot be called that. `tag` is the name."""

    def __init__(self, tag: Any, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"tag {tag!r} {reason}", hint=hint)
        self.tag = tag


class TagExistsError(AlreadyExists, TagError):
    """A tag or a branch of this name is there already."""

    @classmethod
    def of(cls, name: str, *, is_branch: bool = False) -> Self:
        """The error for the name of a tag that is there, or of a branch."""
        if is_branch:
            return cls(name, "cannot be called that: there is a branch of this name", hint="use another name")
        return cls(name, "is there already", hint="delete it first, or use another name")


class ProtectedBranchError(SafetyRefusal, BranchError):
    """A branch that is protected was to be changed other than by a merge, renamed or deleted."""

    def __init__(self, branch: str, what: str = "written to") -> None:
        super().__init__(branch, f"is protected and cannot be {what}",
                         hint="work on another branch and merge it, or end the protection: onto branch protect --off")


class UnrelatedError(Invalid, ExecutionFailure):
    """Two states have no commit in common, so there is nothing to merge against."""

    def __init__(self, source: Any, into: Any) -> None:
        super().__init__(f"{source!r} and {into!r} have no common history",
                         hint="merge branches of one store; to bring rows from another one, export and load them")


class RevertError(Invalid, ExecutionFailure):
    """A commit that cannot be reverted or picked. `commit` is its id."""

    def __init__(self, commit: Any, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"commit {commit!r} {reason}", hint=hint)
        self.commit = commit


class MergeConflictError(ConflictGroup, ExecutionFailure):
    """Both sides changed the same things in ways that cannot be combined. `conflicts` has them all.

    Nothing was changed. A strategy or resolutions settle conflicts of every kind.
    """

    def __init__(self, source: Any, into: Any, conflicts: Sequence[Conflict]) -> None:
        more = f", and {len(conflicts) - 1} more" if len(conflicts) > 1 else ""
        super().__init__(f"{source!r} cannot be merged into {into!r}: {conflicts[0]}{more}",
                         hint="nothing was changed; pass strategy='ours' or 'theirs', or resolutions")
        self.source = source
        self.into = into
        self.conflicts = tuple(conflicts)
