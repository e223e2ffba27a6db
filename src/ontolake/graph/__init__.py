"""A typed property graph in columnar files, with branches and merges, on a directory or a bucket."""

from ontolake.graph.errors import (
    BranchError,
    BranchExistsError,
    ConstraintError,
    DamagedGraphError,
    DuplicateKeyError,
    EndpointError,
    ExpectedVersionMismatch,
    GraphError,
    GraphExistsError,
    GraphFormatError,
    GraphSchemaError,
    MergeConflictError,
    NoGraphError,
    PublishContendedError,
    ReadOnlyGraphError,
    RecoveryBlockedError,
    RemovedCommitError,
    RowError,
    UnknownBranchError,
    UnknownCommitError,
    UnknownTableError,
)
from ontolake.graph.graph import Graph
from ontolake.graph.read.traversal import Hop
from ontolake.graph.tables.types import Blob, Unique, Vector

__all__ = [
    "Blob", "BranchError", "BranchExistsError", "ConstraintError", "DamagedGraphError", "DuplicateKeyError",
    "EndpointError", "ExpectedVersionMismatch", "Graph", "GraphError", "GraphExistsError", "GraphFormatError",
    "GraphSchemaError", "Hop", "MergeConflictError", "NoGraphError", "PublishContendedError", "ReadOnlyGraphError",
    "RecoveryBlockedError", "RemovedCommitError", "RowError", "Unique", "UnknownBranchError", "UnknownCommitError",
    "UnknownTableError", "Vector",
]  # fmt: skip
