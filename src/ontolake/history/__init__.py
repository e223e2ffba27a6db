"""Data that keeps its history: the words that every store uses, and the rules of merging that models share.

`words` and `contract` have the words and protocols, `ids` the types of ids, `names` what branches and tags may be
called, `refs` how states are written, `metadata` the keys of commit metadata, `conflicts` and `results` what merges
answer, `pointers` the fields of documents in them, `errors` what goes wrong. `contention` is the loop for commits that
others may beat, `erasures` what is kept of a row that was erased. The core is pure and reads nothing but what its
callers hand it: `dag` is the commits as a graph, `bases` the base of a merge, `threeway` the rule for one value,
`trees` that for JSON, `rows` that for rows in Arrow, `blame` who wrote what; `operations` leads through merge, revert,
restore and cherry-pick. `wire` has values and words as JSON that loses nothing, `wire_errors` errors.
`conformance` is the suite that every model passes.
"""

from ontolake.history.conflicts import Conflict, ConflictKind, Decisions, Resolution, Strategy, Value
from ontolake.history.contract import (
    Branched,
    Branches,
    Maintained,
    Snapshot,
    Tags,
    VersionControlled,
    Versioned,
    check_snapshots,
)
from ontolake.history.errors import (
    BranchError,
    BranchExistsError,
    MergeConflictError,
    ProtectedBranchError,
    RevertError,
    TagError,
    TagExistsError,
    UnknownBranchError,
    UnknownCommitError,
    UnknownTableError,
    UnknownTagError,
    UnrelatedError,
)
from ontolake.history.ids import Id, Id_co, Key, Row
from ontolake.history.refs import Point, Ref
from ontolake.history.results import Counts, MergeResult, MergeStatus
from ontolake.history.words import Branch, Change, ChangeKind, Commit, Damage, Garbage, RowVersion, Tag, net

__all__ = [
    "Branch",
    "BranchError",
    "BranchExistsError",
    "Branched",
    "Branches",
    "Change",
    "ChangeKind",
    "Commit",
    "Conflict",
    "ConflictKind",
    "Counts",
    "Damage",
    "Decisions",
    "Garbage",
    "Id",
    "Id_co",
    "Key",
    "Maintained",
    "MergeConflictError",
    "MergeResult",
    "MergeStatus",
    "Point",
    "ProtectedBranchError",
    "Ref",
    "Resolution",
    "RevertError",
    "Row",
    "RowVersion",
    "Snapshot",
    "Strategy",
    "Tag",
    "TagError",
    "TagExistsError",
    "Tags",
    "UnknownBranchError",
    "UnknownCommitError",
    "UnknownTableError",
    "UnknownTagError",
    "UnrelatedError",
    "Value",
    "VersionControlled",
    "Versioned",
    "check_snapshots",
    "net",
]
