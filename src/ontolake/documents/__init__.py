"""JSON documents that keep their history: transactions with conflict detection, branches, merges, reads of any moment.

    with open_space("shop/", "orders") as space:
        space.transact("session-1", 1, [Set("order-1", {"value": {"state": "new"}})])
        space.read("order-1").document
"""

from ontolake.documents.blobs import Blob, meta_id
from ontolake.documents.codec import Document
from ontolake.documents.commits import Commit
from ontolake.documents.differences import Diff
from ontolake.documents.errors import (
    BranchError,
    BranchExistsError,
    BranchNameError,
    BranchPointError,
    ConflictError,
    DocumentError,
    FutureSeqError,
    InvalidOperationError,
    MergeConflictError,
    PatchError,
    PreconditionFailedError,
    ProtocolError,
    UnknownBranchError,
    UnknownCommitError,
)
from ontolake.documents.operations import (
    Absent,
    Delete,
    DocumentState,
    Exists,
    HeadIs,
    Patch,
    PendingRead,
    Read,
    Reads,
    Revision,
    Set,
    ValueIs,
)
from ontolake.documents.resolutions import prefer_source, prefer_target
from ontolake.documents.snapshots import Policy
from ontolake.documents.space import Space, open_space
from ontolake.errors import LayoutError

Entity = DocumentState
"""The name that `DocumentState` had before; `ontolake.Entity` is another thing."""

__all__ = [
    "Absent",
    "Blob",
    "BranchError",
    "BranchExistsError",
    "BranchNameError",
    "BranchPointError",
    "Commit",
    "ConflictError",
    "Delete",
    "Diff",
    "Document",
    "DocumentError",
    "DocumentState",
    "Entity",
    "Exists",
    "FutureSeqError",
    "HeadIs",
    "InvalidOperationError",
    "LayoutError",
    "MergeConflictError",
    "Patch",
    "PatchError",
    "PendingRead",
    "Policy",
    "PreconditionFailedError",
    "ProtocolError",
    "Read",
    "Reads",
    "Revision",
    "Set",
    "Space",
    "UnknownBranchError",
    "UnknownCommitError",
    "ValueIs",
    "meta_id",
    "open_space",
    "prefer_source",
    "prefer_target",
]
