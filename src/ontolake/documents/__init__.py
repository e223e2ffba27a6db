"""JSON documents that keep their history: transactions with conflict detection, branches, merges, reads of any moment.

    with open_space("shop/", "orders") as space:
        space.transact("session-1", 1, [Set("order-1", {"value": {"state": "new"}})])
        space.read("order-1").document

`space` has the methods of a space, `operations` what a transaction is made of. `write/` makes commits, `read/` reads
states and changes, `history/` has branches, tags, merges and blame, `upkeep/` snapshots, erasure and verification.
`values/` is about documents alone. `schema` has the tables, `database` the connection, `commits` the row of a commit;
`blobs` keeps binary data. `names` checks ids and names, `errors` is what can go wrong, `wire` is what clients and
servers say to each other. `places` says which database a URL means; `store` and `parallel` are for `ontolake.stores`,
`conformance` for the suite of history.
"""

from ontolake.documents.blobs import Blob, meta_id
from ontolake.documents.commits import Commit
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
from ontolake.documents.history.differences import Diff
from ontolake.documents.history.resolutions import prefer_source, prefer_target
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
from ontolake.documents.space import Space, open_space
from ontolake.documents.upkeep.snapshots import Policy
from ontolake.documents.values.codec import Document
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
