"""What the manifest of a graph says, as plain data: pins of tables, commits, what a branch shows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from ontolake.graph.errors import ExpectedVersionMismatch
from ontolake.graph.tables.types import GraphType
from ontolake.history import Commit
from ontolake.history.metadata import BRANCH, GRAPH_RECORD, KIND, MESSAGE, TABLES, TRACES

MAIN = "main"
RECOVERY_ACTOR = "omnigraph:recovery"
PASSIVE = frozenset({"optimize", "index"})
"""Kinds of commits that change no row."""


class Pin(NamedTuple):
    """Which version of a table is shown: on which line of its versions, how many rows, of which schema."""

    branch: str | None
    version: int
    rows: int
    schema: str


Pins = Mapping[str, Pin]


@dataclass(frozen=True)
class CommitRecord:
    """A commit with what it shows."""

    id: str
    parent: str | None
    merged_parent: str | None
    branch: str
    seq: int
    actor: str | None
    created_at: str
    kind: str
    pins: dict[str, Pin]
    extra: dict[str, Any] = field(default_factory=dict)

    def as_history(self) -> Commit[str]:
        parents = tuple(one for one in (self.parent, self.merged_parent) if one is not None)
        extra = {name: value for name, value in self.extra.items() if name not in (MESSAGE, TRACES)}
        message = self.extra.get(MESSAGE)
        return Commit(self.id, parents, datetime.fromisoformat(self.created_at), self.actor,
                      {BRANCH: self.branch, KIND: self.kind, **extra}, None if message is None else str(message))

    def to_json(self) -> str:
        return json.dumps({
            **{name: getattr(self, name) for name in GRAPH_RECORD}, **self.extra,
            TABLES: {key: list(pin) for key, pin in self.pins.items()},
        }, separators=(",", ":"))  # fmt: skip

    @classmethod
    def from_json(cls, text: str) -> CommitRecord:
        data = json.loads(text)
        pins = {key: Pin(*pin) for key, pin in data.pop(TABLES).items()}
        given: dict[str, Any] = {name: data.pop(name) for name in GRAPH_RECORD}
        return cls(**given, pins=pins, extra=data)


@dataclass(frozen=True)
class GraphState:
    """What a branch shows, and the version of the manifest that says so."""

    branch: str
    identity: str
    version: int
    head: CommitRecord
    types: dict[str, GraphType]
    history: dict[str, GraphType]
    """Every type that was ever in use, by its hash."""
    dataset: Any = field(compare=False, repr=False, default=None)
    address: tuple[int, int] | None = None
    """Where the row of the head is: fragment and offset. None before the first publish of a branch."""

    @property
    def pins(self) -> dict[str, Pin]:
        return self.head.pins

    @property
    def line(self) -> str | None:
        """The line of versions on which the branch writes to tables."""
        return line_of(self.branch, self.identity)

    def at(self, commit: CommitRecord) -> GraphState:
        """The same with an earlier commit as the head: others may have made more since."""
        return replace(self, head=commit, types={key: self.history[pin.schema] for key, pin in commit.pins.items()})

    def expect(self, expected: Mapping[str, int | None]) -> None:
        """Raises `ExpectedVersionMismatch` if a table is not at the version at which it should be."""
        for key, version in expected.items():
            actual = self.pins[key].version if key in self.pins else None
            if actual != version:
                raise ExpectedVersionMismatch(key, version, actual)


def line_of(branch: str, identity: str) -> str | None:
    """What a branch's lines of versions of tables are called: no other branch of its name ever has the same.

    So what a deleted branch wrote, and others have merged, is never taken for that of one made later.
    """
    if branch == MAIN:
        return None
    return f"{branch}.{hashlib.blake2s(identity.encode(), digest_size=4).hexdigest()}"


@dataclass(frozen=True)
class CommitDetails:
    """What is to be said of a commit beside the tables that it moves."""

    kind: str
    actor: str | None
    merge_source: str | None = None
    """The branch that is merged, and its head."""
    merged_parent: str | None = None
    types: Sequence[GraphType] = ()
    """New types."""
    past: Sequence[GraphType] = ()
    """Types that only commits of the `lineage` have, by which these are read."""
    lineage: Sequence[str] = ()
    """Commits of a merged branch, as JSON, which the branch is to know from now on."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    recheck: Callable[[GraphState], None] | None = None
    """Sees the state that is built on, and may refuse."""
