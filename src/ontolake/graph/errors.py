"""What can go wrong with graphs, each class one thing that a caller would do differently.

Where an error means the same as one of `ontolake.errors`, it is that one too.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ontolake.errors import (
    AlreadyExists,
    Conflict,
    Contended,
    Corruption,
    ExecutionFailure,
    Invalid,
    NotFound,
    OntolakeError,
    SchemaFailure,
    Transient,
)
from ontolake.history import errors as history
from ontolake.objects.providers import PROVIDERS


class GraphError(ExecutionFailure):
    """The root of all errors of graphs."""


class GraphExistsError(AlreadyExists, GraphError):
    """A graph was to be created where one is."""


class NoGraphError(NotFound, GraphError):
    """There is no graph at a URL."""


class GraphFormatError(SchemaFailure, GraphError, Invalid):
    """A graph is stamped with another internal schema than the one this build serves. `found` is the stamp."""

    def __init__(self, url: str, found: int, served: int) -> None:
        if found < served:
            what, hint = "an older", ("export it with the release that wrote it (onto graph export), then run "
                                      "onto graph import with this one: it is not converted in place")
        else:
            what, hint = "a newer", "upgrade ontolake first: this build would misread it"
        super().__init__(f"{url} was written by {what} release: its internal schema is {found}, this build serves "
                         f"{served}", hint=hint)
        self.found = found
        self.served = served


class DamagedGraphError(Corruption, GraphError):
    """Something that the graph needs is missing or cannot be read."""


_SOURCE = re.compile(r"[.,]* /\S+\.rs:\d+:\d+.*$")
_UNREACHABLE = (*(f"Generic {provider.lance_name} error" for provider in PROVIDERS.values()), "error sending request",
                "operation timed out")


_CONTENTION = ("Incompatible transaction", "ommit conflict", "Retryable", "Too many concurrent writers")


def is_contention(error: BaseException) -> bool:
    """Whether Lance gave up because somebody else's commit came first. Nothing is wrong with what is there."""
    return type(error).__name__ == "CommitConflictError" or any(sign in str(error) for sign in _CONTENTION)


def in_short(error: BaseException) -> str:
    """What an error says, in one line and without the places in the source of libraries that some tell."""
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    return _SOURCE.sub("", first)[:300]


@contextmanager
def reading(table: str, hint: str = "onto verify says what is damaged, and what to do") -> Iterator[None]:
    """Tell what Lance raises where rows of a table cannot be read: `DamagedGraphError`, or `Transient` for a bucket
    that does not answer. What the operating system refuses, such as room on a disk, stays as it is."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        told = re.search(r"\(os error (\d+)\)", str(error))
        refused = int(told[1]) if told is not None else getattr(error, "errno", None)
        if isinstance(error, OntolakeError) or refused not in (None, errno.ENOENT):
            raise
        if is_contention(error):
            raise
        text = in_short(error)
        if any(sign in text for sign in _UNREACHABLE):
            raise Transient(f"{table}: the storage does not answer: {text}", hint="try again") from error
        raise DamagedGraphError(f"{table} cannot be read: {text}", hint=hint) from error


class UnknownTableError(history.UnknownTableError, GraphError):
    """A table that the snapshot does not have."""


class UnknownBranchError(history.UnknownBranchError, GraphError):
    """A branch that is not there."""


class UnknownCommitError(history.UnknownCommitError, GraphError):
    """A commit that is not there, or not on the branch that was named."""


class RemovedCommitError(UnknownCommitError):
    """A commit of which rows were removed, by a cleanup or with what was dropped for good. It is still in the log."""

    def __init__(self, commit: str, branch: str | None = None) -> None:
        super().__init__(commit, branch)
        self.message = f"the rows of commit {commit!r} were removed by a cleanup, or dropped for good"
        self.hint = "name a newer commit; cleanup keeps what is tagged"


class BranchError(history.BranchError, GraphError):
    """Something cannot be done with this branch."""


class BranchExistsError(history.BranchExistsError, BranchError):
    """A branch or a tag of this name is there already."""


class ExpectedVersionMismatch(Conflict, GraphError):
    """Somebody else published a table first. Nothing was published; read again and decide again."""

    def __init__(self, table_key: str, expected: int | None, actual: int | None) -> None:
        super().__init__(f"{table_key} was expected at version {expected} and is at {actual}: somebody else published "
                         "it meanwhile", hint="nothing was published; read again and retry")
        self.table_key = table_key
        self.expected = expected
        self.actual = actual


class PublishContendedError(Contended, GraphError):
    """A publish lost against others again and again. Nothing was published."""


class RowError(SchemaFailure, GraphError, ValueError):
    """Rows that cannot be taken. Names the table, and the row (from 0), key and column where there is one."""

    def __init__(
        self, table: str, reason: str, *, row: int | None = None, key: Any = None, column: str | None = None,
        hint: str | None = None,
    ) -> None:  # fmt: skip
        where = table
        if row is not None:
            where += f" row {row}"
        if key is not None:
            where += f" {key!r}"
        if column is not None:
            where += f", column {column!r}"
        super().__init__(f"{where}: {reason}", hint=hint)
        self.table = table
        self.reason = reason
        self.row = row
        self.key = key
        self.column = column


class DuplicateKeyError(RowError):
    """A key twice in one load, or one that is there already where rows are appended."""


class ConstraintError(RowError):
    """A value that its column forbids, or a value twice where it must be unique. `constraint` says which rule."""

    def __init__(self, table: str, constraint: str, reason: str, **where: Any) -> None:
        super().__init__(table, reason, **where)
        self.constraint = constraint


class EndpointError(ConstraintError):
    """An edge to a node that is not there, or a node that goes while edges lead to it."""

    def __init__(self, table: str, reason: str, **where: Any) -> None:
        super().__init__(table, "endpoint", reason, **where)


class GraphSchemaError(SchemaFailure, GraphError, Invalid):
    """Types that cannot make a graph, or a change of types that cannot be made."""


class ErasureError(Invalid, GraphError):
    """A row that cannot be erased from every commit."""


class RecoveryBlockedError(Conflict, GraphError):
    """An interrupted operation cannot be explained, so its branch takes no writes. `file` is its sidecar."""

    def __init__(self, branch: str, file: str, reason: str) -> None:
        super().__init__(f"branch {branch!r} takes no writes: the interrupted operation in {file} cannot be explained: "
                         f"{reason}", hint="onto graph repair shows what there is, and can set the file aside; other "
                                           "branches are not affected")
        self.branch = branch
        self.file = file
        self.reason = reason


class ReadOnlyGraphError(Invalid, GraphError):
    """A write to a graph that was opened for reading."""

    def __init__(self, url: str) -> None:
        super().__init__(f"{url} was opened for reading only", hint="open it without read_only=True")


class ClosedGraphError(Invalid, GraphError):
    """Something was asked of a graph that was closed."""

    def __init__(self, url: str) -> None:
        super().__init__(f"the graph {url} is closed", hint="open it again")


class MergeConflictError(history.MergeConflictError, GraphError):
    """Both branches changed the same things in ways that cannot be combined. `conflicts` has them all."""


@contextmanager
def graph_errors() -> Iterator[None]:
    """Raise what `ontolake.history` raises as the errors of graphs that mean the same."""
    try:
        yield
    except GraphError:
        raise
    except history.MergeConflictError as error:
        raise MergeConflictError(error.source, error.into, error.conflicts) from None
    except (history.UnknownBranchError, history.UnknownCommitError, history.BranchError) as error:
        for shared, own in _OWN.items():
            if type(error) is shared:
                changed: OntolakeError = own.__new__(own)
                changed.__dict__.update(error.__dict__)
                changed.args = error.args
                raise changed from None
        raise


_OWN: dict[type, type[OntolakeError]] = {
    history.UnknownBranchError: UnknownBranchError, history.UnknownCommitError: UnknownCommitError,
    history.BranchError: BranchError,
}  # fmt: skip
