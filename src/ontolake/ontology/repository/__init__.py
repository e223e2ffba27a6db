"""Typed stores by backend and engine version."""

from ontolake.ontology.repository.opening import open_repository
from ontolake.ontology.repository.protocol import Lease, Repository, RowChange, SchemaVersion, Transaction
from ontolake.ontology.repository.sqlite_v1 import SqliteRepositoryV1
from ontolake.ontology.repository.sqlite_v2 import SqliteRepositoryV2

__all__ = [
    "Lease", "Repository", "RowChange", "SchemaVersion", "SqliteRepositoryV1", "SqliteRepositoryV2", "Transaction",
    "open_repository",
]  # fmt: skip
