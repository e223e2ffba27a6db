"""What a merge of graphs did, or would do: what it brings to each table, and its conflicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ontolake.history import Commit


class MergeConflict(NamedTuple):
    """One thing that both branches decided differently.

    `kind` is divergent_insert, divergent_update, delete_update, orphan_edge, unique, cardinality, value or schema.
    """

    kind: str
    table: str
    key: Any
    detail: str

    def __str__(self) -> str:
        return f"{self.kind.replace('_', ' ')} of {self.table}" + (f" {self.key!r}" if self.key is not None else "") + (
            f": {self.detail}" if self.detail else "")


class Counts(NamedTuple):
    """How many rows of a table a merge brings."""

    inserted: int
    updated: int
    deleted: int


@dataclass
class MergeResult:
    """What a merge did, or would do. `status` is up_to_date, fast_forward, merged or conflicts."""

    status: str
    source: str
    into: str
    base: str | None
    commit: Commit[str] | None = None
    tables: dict[str, Counts] = field(default_factory=dict)
    conflicts: list[MergeConflict] = field(default_factory=list)
