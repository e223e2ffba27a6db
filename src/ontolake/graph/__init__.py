"""A typed property graph in columnar files, with branches and merges, on a directory or a bucket.

`graph` has the methods of a graph, `parts` what its modules share, `place` where it lives, `references` the branches of
a dataset. `commit/` makes commits, `tables/` are the Lance datasets, `read/` is a graph at a commit, `merge/` has
three-way steps, `upkeep/` keeps it quick and small; `tags` names commits. `arguments` checks what callers pass,
`concurrency` does several things at once, `errors` is what can go wrong. `store`, `parallel` and `splits` are for
`ontolake.stores` and workers, `conformance` for the suite.
"""

from ontolake.graph.errors import (
    BranchError,
    BranchExistsError,
    ClosedGraphError,
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
    "Blob", "BranchError", "BranchExistsError", "ClosedGraphError", "ConstraintError", "DamagedGraphError",
    "DuplicateKeyError", "EndpointError", "ExpectedVersionMismatch", "Graph", "GraphError", "GraphExistsError",
    "GraphFormatError", "GraphSchemaError", "Hop", "MergeConflictError", "NoGraphError", "PublishContendedError",
    "ReadOnlyGraphError", "RecoveryBlockedError", "RemovedCommitError", "RowError", "Unique", "UnknownBranchError",
    "UnknownCommitError", "UnknownTableError", "Vector",
]  # fmt: skip
