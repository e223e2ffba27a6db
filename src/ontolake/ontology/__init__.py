"""Typed ontology: entities and relations that keep their history, reconciled, queried at any commit, migrated.

`session` gathers `intents` by `declarations`, `commit` writes what is new of them; `config`, `sizes` and `errors` are
theirs. `query/` asks, `migration/` changes schemas, `events/` is the queue, `moving/` imports, exports and converts,
`arrow/` takes and gives tables. `repository/` has the backends. `typed_store` opens a store as it is, `versioned` in
the words of history, to which `history/` adds branches and merges; `keys` are those of rows, `conformance` is for the
suite of history. `verification` reads everything, `renewal` keeps a hold alive, `remote` is what
sessions send to servers. `store` and `parallel/` are for
`ontolake.stores` and workers.
"""

from ontolake.ontology.config import Config
from ontolake.ontology.errors import (
    BatchSizeExceededError,
    DanglingRelationError,
    EventLoopLimitError,
    HandlerError,
    HeadMismatchError,
    LayoutLacksError,
    LeaseExpiredError,
    LiveRelationsError,
    LockContentionError,
    MetadataUnavailableError,
    MigrationError,
    MigrationTokenError,
    MissingUpgraderError,
    OntologyError,
    QueryError,
    SchemaOutdatedError,
    SchemaValidationError,
    StorageBackendError,
    TypeDroppedError,
    UninitializedStorageError,
    UniqueFieldError,
    UnknownCommitError,
    UnknownEventError,
    UnknownKeyError,
)
from ontolake.ontology.events import (
    Event,
    EventDeadLetter,
    EventSelection,
    EventStore,
    Handler,
    HandlerContext,
    RunReport,
    Schedule,
    StoredEvent,
    on_event,
)
from ontolake.ontology.migration.rewrite import MigrationPreview, MigrationResult, TypeMigration
from ontolake.ontology.migration.upgraders import Upgrader, upgrader
from ontolake.ontology.query.aggregates import avg, avg_len, count, count_where, left, max_, min_, right, sum_
from ontolake.ontology.query.builder import Query
from ontolake.ontology.query.results import Path, Results
from ontolake.ontology.repository import (
    Repository,
    SqliteRepositoryV1,
    SqliteRepositoryV2,
    SqliteRepositoryV3,
    open_repository,
)
from ontolake.ontology.session import Session
from ontolake.ontology.typed_store import TypedStore

__all__ = [
    "BatchSizeExceededError", "Config", "DanglingRelationError", "Event", "EventDeadLetter", "EventLoopLimitError",
    "EventSelection", "EventStore", "Handler", "HandlerContext", "HandlerError", "HeadMismatchError",
    "LayoutLacksError", "LeaseExpiredError", "LiveRelationsError", "LockContentionError", "MetadataUnavailableError",
    "MigrationError", "MigrationPreview", "MigrationResult", "MigrationTokenError", "MissingUpgraderError",
    "OntologyError", "Path", "Query", "QueryError", "Repository", "Results", "RunReport", "Schedule",
    "SchemaOutdatedError", "SchemaValidationError", "Session", "SqliteRepositoryV1", "SqliteRepositoryV2",
    "SqliteRepositoryV3", "StorageBackendError", "StoredEvent", "TypeDroppedError", "TypeMigration", "TypedStore",
    "UninitializedStorageError", "UniqueFieldError", "UnknownCommitError", "UnknownEventError", "UnknownKeyError",
    "Upgrader", "avg", "avg_len", "count", "count_where", "left", "max_", "min_", "on_event", "open_repository",
    "right", "sum_", "upgrader",
]  # fmt: skip
