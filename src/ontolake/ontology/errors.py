"""What can go wrong with typed stores, each class one thing that a caller would do differently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ontolake.errors import Conflict, Invalid, NotFound, SafetyRefusal, SchemaFailure, StorageError, UsageFailure
from ontolake.model.errors import EndUnavailableError, MetadataUnavailableError, ModelError, SchemaValidationError

if TYPE_CHECKING:
    from ontolake.model.schema import SchemaDiff


class OntologyError(ModelError):
    """The root of what goes wrong in typed stores."""


class QueryError(UsageFailure, OntologyError, ValueError):
    """A query asks for something that is not there, or that means nothing. Names the field or type."""


class SchemaOutdatedError(SchemaFailure, OntologyError):
    """The types in code are not those of the store: migrate. `diffs` says what differs, type by type."""

    def __init__(self, diffs: Sequence[SchemaDiff]) -> None:
        self.diffs = tuple(diffs)
        super().__init__(f"the store has other schemas than the code: {'; '.join(str(diff) for diff in diffs)}",
                         hint="look at session.migrate(), then apply it with its token")


class TypeDroppedError(SchemaFailure, OntologyError):
    """A type was dropped, and takes no writes any more."""

    def __init__(self, type_name: str) -> None:
        super().__init__(f"the type {type_name} was dropped: nothing can be written to it",
                         hint="declare it under another name")
        self.type_name = type_name


class DanglingRelationError(SchemaValidationError):
    """A relation leads to an entity that is not there: endpoints were to be checked, or one was asked for."""


class LiveRelationsError(SchemaValidationError):
    """An entity is to be deleted or erased while relations lead to it. `relations` has their types and keys."""

    def __init__(
        self, type_name: str, key: Any, relations: Sequence[tuple[str, Any]], verb: str = "delete"
    ) -> None:  # fmt: skip
        shown = ", ".join(f"{name} {of!r}" for name, of in relations[:3])
        more = f" and {len(relations) - 3} more" if len(relations) > 3 else ""
        super().__init__(f"relations lead to it: {shown}{more}", type_name=type_name, key=key,
                         hint=f"{verb} them first, or with it: {verb}(…, cascade=True)")
        self.relations = tuple(relations)


class UniqueFieldError(SchemaValidationError):
    """Two rows would have one value in a field that is unique. `value` is it, and `keys` are those of the rows."""

    def __init__(self, type_name: str, field: str, value: Any, key: Any, other: Any) -> None:
        super().__init__(f"{value!r} is the value of {other!r} too, and the field is unique", type_name=type_name,
                         key=key, field=field, hint="change one of the two in the same commit")
        self.value = value
        self.keys = (key, other)


class LayoutLacksError(UsageFailure, OntologyError, AttributeError):
    """The engine of a store has no place for something: deletions, branches. `engine` is its version.

    An `AttributeError` too, so that a session on such an engine is none with `branches`.
    """

    def __init__(self, what: str, uri: str, engine: str) -> None:
        super().__init__(f"{uri!r} has the engine {engine}, which keeps no {what}",
                         hint="onto convert --engine-version v3 makes a copy that does")
        self.what = what
        self.engine = engine


class UnknownKeyError(NotFound, OntologyError):
    """There is no row of this key. `key` is it."""

    def __init__(self, type_name: str, key: Any, *, hint: str = "get() answers None where there is none") -> None:
        super().__init__(f"there is no {type_name} {key!r}", hint=hint)
        self.key = key


class MigrationError(OntologyError):
    """A migration could not be done; the store is as it was."""


class MigrationTokenError(SafetyRefusal, MigrationError):
    """The token is not that of the migration as it would be done now: look at the preview again."""


class MissingUpgraderError(SchemaFailure, MigrationError):
    """Nothing says how rows become rows of the next version. `missing` has (type name, from version) pairs, and
    `reasons` what of it does not go without."""

    def __init__(self, missing: Sequence[tuple[str, int]], reasons: Sequence[str] = ()) -> None:
        self.missing = tuple(missing)
        self.reasons = tuple(reasons)
        where = ", ".join(f"{name} from version {version}" for name, version in missing)
        why = f": {'; '.join(reasons)}" if reasons else ""
        super().__init__(f"no upgrader for {where}{why}", hint="write one with @upgrader(Type, from_version=N)")


class BatchSizeExceededError(OntologyError, ValueError):
    """More rows in one commit than the configuration allows."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"{size} rows in one commit, and max_batch_size is {limit}",
                         hint="commit more often, or raise Config.max_batch_size")
        self.size = size
        self.limit = limit


class EventLoopLimitError(OntologyError):
    """Handlers went on emitting events beyond the limit."""


class HandlerError(OntologyError):
    """A handler raised. Names the handler and the event; the cause is chained."""

    def __init__(
        self, message: str, *, handler: str | None = None, event_id: str | None = None, hint: str | None = None
    ) -> None:  # fmt: skip
        super().__init__(message, hint=hint)
        self.handler = handler
        self.event_id = event_id


class UnknownEventError(OntologyError, NotFound):
    """There is no such event."""

    def __init__(self, event_id: str, what: str = "event") -> None:
        super().__init__(f"there is no {what} {event_id!r}", hint="onto events list shows them")
        self.event_id = event_id


class LockContentionError(Conflict, OntologyError):
    """Another writer held the write lock for as long as we were ready to wait. Nothing was changed."""


class LeaseExpiredError(Conflict, OntologyError):
    """This writer's hold on the write lock ran out, or somebody else has it now. Nothing was changed."""


class HeadMismatchError(Conflict, OntologyError):
    """Another commit came first. The difference must be worked out again."""


class StorageBackendError(StorageError, OntologyError):
    """What is stored cannot be used: an unknown or other engine, foreign data, damage."""


class UninitializedStorageError(NotFound, OntologyError):
    """There is no typed store at this place, and none was to be made."""

    def __init__(self, uri: str) -> None:
        super().__init__(f"there is no typed store at {uri!r}", hint="make one with onto init, or open a Session on it")
        self.uri = uri


class UnknownCommitError(NotFound, OntologyError):
    """There is no such commit. `head` is the newest one, if that was looked at."""

    def __init__(self, commit_id: Any, head: int | None = None) -> None:
        newest = "" if head is None else f": the newest is {head}" if head else ": nothing has been committed yet"
        super().__init__(f"there is no commit {commit_id!r}{newest}", hint="see list_commits() or onto commits")
        self.commit_id = commit_id
        self.head = head


__all__ = [
    "BatchSizeExceededError", "DanglingRelationError", "EndUnavailableError", "EventLoopLimitError", "HandlerError",
    "HeadMismatchError", "Invalid", "LayoutLacksError", "LeaseExpiredError", "LiveRelationsError",
    "LockContentionError", "MetadataUnavailableError", "MigrationError", "MigrationTokenError", "MissingUpgraderError",
    "OntologyError", "QueryError", "SchemaOutdatedError", "SchemaValidationError", "StorageBackendError",
    "TypeDroppedError", "UninitializedStorageError", "UniqueFieldError", "UnknownCommitError", "UnknownEventError",
    "UnknownKeyError",
]  # fmt: skip
