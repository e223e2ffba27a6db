"""Data that keeps its history: the words that every store uses, and the rules of merging that models share.

`contract` has the words and protocols, `dag` the commits as a graph, `bases` the base of a merge, `threeway` the rule
by which one value is merged. The last three are pure: they read nothing but what their callers hand them.
"""

from ontolake.history.contract import (
    Branch,
    Branched,
    Branches,
    Change,
    ChangeKind,
    Commit,
    Damage,
    Garbage,
    Id,
    Id_co,
    Key,
    Maintained,
    Ref,
    Row,
    Snapshot,
    Versioned,
    check_snapshots,
    net,
)

__all__ = [
    "Branch",
    "Branched",
    "Branches",
    "Change",
    "ChangeKind",
    "Commit",
    "Damage",
    "Garbage",
    "Id",
    "Id_co",
    "Key",
    "Maintained",
    "Ref",
    "Row",
    "Snapshot",
    "Versioned",
    "check_snapshots",
    "net",
]
