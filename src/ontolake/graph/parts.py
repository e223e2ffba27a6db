"""`GraphParts`: what the modules of a graph share, and what the public `Graph` is made of."""

from __future__ import annotations

from dataclasses import dataclass, field

from ontolake.graph.arguments import check_text
from ontolake.graph.commit.manifest import Manifest
from ontolake.graph.commit.names import BranchNames
from ontolake.graph.commit.records import GraphState
from ontolake.graph.commit.recovery import Recoverer
from ontolake.graph.commit.sidecars import Sidecars
from ontolake.graph.commit.writer import CommitWriter
from ontolake.graph.concurrency import Turns
from ontolake.graph.errors import ReadOnlyGraphError
from ontolake.graph.place import GraphPlace
from ontolake.graph.read.snapshot import Snapshot
from ontolake.graph.tables.datasets import GraphTables


@dataclass(eq=False)
class GraphParts:
    """The parts of one open graph."""

    place: GraphPlace
    read_only: bool
    manifest: Manifest
    tables: GraphTables
    sidecars: Sidecars
    recoverer: Recoverer
    turns: Turns
    writer: CommitWriter
    names: BranchNames
    orders: dict[str, int] = field(default_factory=dict)
    """The order of commits in the DAG, as far as it was worked out; see `Lineage`."""
    identities: dict[str, str] = field(default_factory=dict)
    """Which branch of its name each branch is: one that is made anew is another."""
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    """The last snapshots that were asked for, by commit."""

    @classmethod
    def open(cls, place: GraphPlace, *, read_only: bool) -> GraphParts:
        """Raises `NoGraphError`, `GraphFormatError`, `DamagedGraphError`."""
        manifest, tables, sidecars, turns = Manifest(place), GraphTables(place), Sidecars(place), Turns()
        recoverer = Recoverer(place, manifest, tables, sidecars)
        names = BranchNames(place, manifest)
        writer = CommitWriter(manifest, tables, sidecars, recoverer, turns, names)
        return cls(place, read_only, manifest, tables, sidecars, recoverer, turns, writer, names)

    @property
    def url(self) -> str:
        return self.place.url

    def state(self, branch: str) -> GraphState:
        """What a branch shows now. Raises `UnknownBranchError`."""
        check_text(branch=branch)
        return self.line_state(self.names.line(branch))

    def line_state(self, line: str) -> GraphState:
        """What the branch of a line shows now: that is what Lance calls it, whatever people do."""
        state = self.manifest.state(line)
        if self.identities.setdefault(line, state.identity) != state.identity:
            self.identities[line] = state.identity
            self.tables.forget(line)
            self.snapshots.clear()
        return state

    def require_writable(self) -> None:
        """Raises `ReadOnlyGraphError`."""
        if self.read_only:
            raise ReadOnlyGraphError(self.url)
