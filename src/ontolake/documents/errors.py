"""What can go wrong with documents, each class one thing that a caller would do differently.

Where an error means the same as one of `ontolake.errors`, it is that one too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ontolake.errors import ConflictFailure, ExecutionFailure, LayoutError, NotFound, UsageFailure
from ontolake.history import Conflict
from ontolake.history import errors as shared


class DocumentError(ExecutionFailure):
    """The root of all errors of documents."""


class SpaceLayoutError(LayoutError, DocumentError):
    """The database is not a space, or one of a layout that this version does not know."""


class InvalidOperationError(UsageFailure, DocumentError, ValueError):
    """An operation, document, patch or read is malformed; asking again will not help.

    `operation` is its index in the transaction, `path` the place inside the document or patch list.
    """

    def __init__(self, reason: str, *, operation: int | None = None, path: str = "", hint: str | None = None) -> None:
        super().__init__(_placed(reason, operation, path), hint=hint)
        self.reason = reason
        self.operation = operation
        self.path = path


class PatchError(DocumentError):
    """A well-formed patch does not fit the document that it meets: read the document again.

    `operation` is the index of the operation in the transaction, `patch` that of the patch in its list, `path`
    the pointer that failed.
    """

    def __init__(self, reason: str, *, patch: int, path: str, operation: int | None = None) -> None:
        super().__init__(_placed(f"patch {patch} does not fit: {reason}", operation, path))
        self.reason = reason
        self.operation = operation
        self.patch = patch
        self.path = path


class ConflictError(ConflictFailure, DocumentError):
    """What the transaction read has changed since: read again, decide again, try again.

    `of` is the entity, `seq` what was read, `conflict_seq` the first later commit that touched it, or None when a
    pending read names a commit that was never accepted.
    """

    def __init__(self, of: str, seq: int, conflict_seq: int | None, reason: str | None = None) -> None:
        why = reason or f"it was read at seq {seq} and changed at seq {conflict_seq}"
        super().__init__(f"conflict on {of!r}: {why}", hint="read again and retry under a new local_seq")
        self.of = of
        self.seq = seq
        self.conflict_seq = conflict_seq


class MergeConflictError(shared.MergeConflictError, ConflictError):
    """Both sides changed the same documents in ways that cannot be combined. `conflicts` has them all.

    `of` is the first document in conflict, `seq` the commit that was merged against, `conflict_seq` the one that last
    changed the document on the target.
    """

    def __init__(self, source: str, into: str, conflicts: Sequence[Conflict], base: int, changed: int) -> None:
        plain = shared.MergeConflictError(source, into, conflicts)
        DocumentError.__init__(self, plain.message, hint=plain.hint)
        self.source, self.into, self.conflicts = source, into, plain.conflicts
        self.of = str(conflicts[0].key)
        self.seq = base
        self.conflict_seq = changed


class ProtocolError(UsageFailure, DocumentError, ValueError):
    """The caller broke the rules between client and store: a reused local_seq, a seq that cannot be."""


class FutureSeqError(ProtocolError, shared.UnknownCommitError):
    """A seq beyond the last commit was named."""

    def __init__(self, what: str, seq: int, head: int) -> None:
        DocumentError.__init__(self, f"{what} names seq {seq}, but the last commit is {head}",
                               hint=f"use a seq from 0 to {head}")
        self.commit, self.branch = seq, None
        self.seq = seq
        self.head = head


class PreconditionFailedError(ConflictFailure, DocumentError):
    """The space is not in the state that the transaction asked for. `precondition` is the one at `index`."""

    def __init__(self, index: int, precondition: object, found: str) -> None:
        super().__init__(f"precondition {index}, {precondition!r}, does not hold: {found}",
                         hint="read again and decide again")
        self.index = index
        self.precondition = precondition
        self.found = found


class BranchError(shared.BranchError, DocumentError):
    """Something cannot be done with this branch."""

    def __init__(self, branch: str, reason: str, *, hint: str | None = None) -> None:
        shared.BranchError.__init__(self, branch, reason, hint=hint)
        self.reason = reason


class UnknownBranchError(shared.UnknownBranchError, BranchError):
    """There is no branch of this name, or none that lives."""

    def __init__(self, branch: str, reason: str | None = None, *, hint: str | None = None) -> None:
        BranchError.__init__(self, branch, reason or "is not there",
                             hint=hint or "onto branch and onto tag list what there is")
        if reason is None:
            self.message = f"there is no branch {branch!r}"


class UnknownCommitError(shared.UnknownCommitError, DocumentError):
    """A commit that is not there, or not on the branch that was named."""


class BranchExistsError(shared.BranchExistsError, BranchError):
    """A branch that lives, or a tag, has this name."""


class BranchPointError(BranchError, NotFound):
    """A branch never was where another one is to leave it."""


class BranchNameError(BranchError):
    """No branch can be called this, or the branch of this name must stay."""


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise the errors of documents for those that the shared core raises."""
    try:
        yield
    except shared.UnknownBranchError as error:
        if isinstance(error, DocumentError):
            raise
        raise UnknownBranchError(error.branch) from None
    except shared.UnknownCommitError as error:
        if isinstance(error, DocumentError):
            raise
        ours = UnknownCommitError(error.commit, error.branch)
        ours.args, ours.message = error.args, error.message
        raise ours from None
    except shared.BranchError as error:
        if type(error) is not shared.BranchError:
            raise
        raise BranchError(error.branch, error.message.partition("' ")[2], hint=error.hint) from None


def _placed(reason: str, operation: int | None, path: str) -> str:
    where = [f"operation {operation}"] if operation is not None else []
    where += [f"at {path!r}"] if path else []
    return f"{' '.join(where)}: {reason}" if where else reason
