"""What a merge, a revert, a restore or a cherry-pick did or, in a dry run, would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, NamedTuple

from ontolake.history.conflicts import Conflict
from ontolake.history.ids import Id
from ontolake.history.words import Commit


class MergeStatus(StrEnum):
    """How a merge ended."""

    UP_TO_DATE = "up_to_date"
    """The target has all commits of the source: nothing was done."""
    FAST_FORWARD = "fast_forward"
    """The target had no commits of its own: the merge commit has the state of the source."""
    MERGED = "merged"
    CONFLICTS = "conflicts"
    """Only a dry run ends so; otherwise conflicts are raised."""


class Counts(NamedTuple):
    """How many rows of a table were changed."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0


@dataclass(frozen=True)
class MergeResult(Generic[Id]):
    """What was done, or would be. `tables` counts the rows that changed, by table.

    `commit` is None if there was nothing to do and in a dry run. `base` is the newest commit that was merged against.
    """

    status: MergeStatus
    source: str
    into: str
    commit: Commit[Id] | None = None
    tables: Mapping[str, Counts] = field(default_factory=dict)
    conflicts: Sequence[Conflict] = ()
    base: Id | None = None
