"""Every error Ontolake raises, under one root, grouped by what the caller should do next.

An error says what happened, where, and what to do; it carries fields as well as text, and where a
builtin describes the same thing (`LookupError`, `ValueError`) it is that builtin too.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar


class ExitCode(IntEnum):
    """What the command line ends with. An error has the code of its group: the first base class that sets one."""

    OK = 0
    GENERAL = 1
    USAGE = 2
    SCHEMA = 3
    EXECUTION = 4
    STORAGE = 5
    CONFLICT = 6
    REFUSED = 7
    INTERRUPTED = 130  # 128 and the number of the signal, as shells have it
    PIPE_CLOSED = 141


class OntolakeError(Exception):
    """The root of all errors. `exit_code` is what the command line ends with; groups set it, other classes never do."""

    exit_code: ClassVar[int] = ExitCode.GENERAL

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(cls: type[OntolakeError], arguments: tuple[Any, ...], fields: dict[str, Any]) -> OntolakeError:
    """An error that went through pickle, whatever its constructor takes."""
    error = cls.__new__(cls, *arguments)
    error.args = arguments
    error.__dict__.update(fields)
    return error


# The groups: one class a code. A class that belongs to several has the code of the base that it names first.


class UsageFailure(OntolakeError):
    """The group of wrong arguments, URLs, names and queries."""

    exit_code = ExitCode.USAGE


class SchemaFailure(OntolakeError):
    """The group of what does not match a schema, or a layout that this version knows."""

    exit_code = ExitCode.SCHEMA


class ExecutionFailure(OntolakeError):
    """The group of what was understood and could not be done."""

    exit_code = ExitCode.EXECUTION


class StorageError(OntolakeError):
    """Something went wrong on the way to the bytes. The group of storage that is missing, damaged or away."""

    exit_code = ExitCode.STORAGE


class ConflictFailure(OntolakeError):
    """The group of what somebody else's work is in the way of."""

    exit_code = ExitCode.CONFLICT


class SafetyRefusal(OntolakeError):
    """The group of destructive work that was not confirmed with the token of its preview."""

    exit_code = ExitCode.REFUSED


class NotFound(StorageError, LookupError):
    """What was asked for is not there: a page, branch, object, or an LSN that is no longer kept."""


class Invalid(UsageFailure, StorageError, ValueError):
    """The request or the configuration is wrong; asking again will not help."""


class LayoutError(SchemaFailure, Invalid):
    """A database at `place` holds something else than what is opened, or a layout that this version does not know."""

    def __init__(self, place: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"{place} {reason}", hint=hint)
        self.place = place


class MissingExtra(Invalid, ImportError):
    """A package that this needs is not installed. `extra` is the extra of Ontolake that brings it."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(f"{what} needs the package {package}, which is not installed",
                         hint=f"pip install 'ontolake[{extra}]'")
        self.package = package
        self.extra = extra


class Corruption(StorageError):
    """Stored bytes do not match their checksum. Suspect bytes are never returned."""


class Transient(StorageError):
    """The backend failed in passing. Trying again may help; says nothing about the outcome."""


class DurabilityUnconfirmed(StorageError):
    """A write may or may not have happened. Treat it as not acknowledged."""


class Conflict(ConflictFailure, StorageError):
    """Somebody else was first."""


class Contended(Conflict):
    """A compare-and-swap for the writer's place was lost. Back off and try again, or give way."""


class PreconditionFailed(Conflict):
    """An object is not in the state that a conditional write named. Read it again."""


class AlreadyExists(PreconditionFailed):
    """An object, or a name, that was to be created is there already."""


class Fenced(Conflict):
    """This writer lost its place. Stop writing under this token or handle; acquire a new one, or open it again."""

    def __init__(self, held: int, current: int, reason: str | None = None, *, hint: str | None = None) -> None:
        self.held = held
        self.current = current
        why = reason or f"a newer writer holds epoch {current}"
        super().__init__(f"fenced: the token of epoch {held} is no longer valid, {why}",
                         hint=hint or "acquire the fence again before writing")
