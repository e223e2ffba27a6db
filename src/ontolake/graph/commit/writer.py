"""`CommitWriter`: the one way in which anything is ever published.

The order of a commit: write the sidecar, move the tables, publish, remove the sidecar. Nothing is visible before the
publish, and everything is after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ontolake.errors import Conflict
from ontolake.graph.commit.manifest import Manifest
from ontolake.graph.commit.names import BranchNames
from ontolake.graph.commit.records import PASSIVE, CommitDetails, GraphState, Pin
from ontolake.graph.commit.recovery import Recoverer
from ontolake.graph.commit.sidecars import Sidecar, Sidecars, TableMove
from ontolake.graph.commit.ulid import new_ulid
from ontolake.graph.concurrency import Turns, together
from ontolake.graph.errors import RecoveryBlockedError, RowError, UnknownBranchError
from ontolake.graph.tables.changes import TableChange
from ontolake.graph.tables.datasets import GraphTables
from ontolake.history import ProtectedBranchError
from ontolake.history.erasures import ERASURE
from ontolake.history.metadata import TRACES

_DEFINITE = (Conflict, RowError, UnknownBranchError)
"""Errors after which it is certain that nothing was published."""

_ALLOWED = PASSIVE | {"merge", "repair", ERASURE}
"""Kinds of commits that a protected branch takes."""


class CommitWriter:
    """Turns changes of tables into commits."""

    def __init__(
        self, manifest: Manifest, tables: GraphTables, sidecars: Sidecars, recoverer: Recoverer, turns: Turns,
        names: BranchNames,
    ) -> None:  # fmt: skip
        self.names = names
        self.manifest, self.tables, self.sidecars, self.recoverer = manifest, tables, sidecars, recoverer
        self.turns = turns
        self.committed: Callable[[GraphState, Iterable[str]], None] | None = None
        """Told of every commit that changes rows, with what the branch shows and the tables that it moved."""
        self._unsettled = False

    def ready(self, branch: str) -> None:
        """Settle what this process left undone. Raises `RecoveryBlockedError` if the line takes no writes."""
        if self._unsettled:
            self._unsettled = False
            self.recoverer.run()
        if branch in self.recoverer.blocked:
            raise RecoveryBlockedError(branch, *self.recoverer.blocked[branch])

    def commit(self, state: GraphState, changes: Mapping[str, TableChange], details: CommitDetails) -> GraphState:
        """Make changes, each from what `state` shows, one commit of its branch."""
        def move(operation: str) -> dict[str, Pin | None]:
            pins, problems = together([
                partial(self.tables.apply, state.types[key], state.pins[key], state.line, change, operation)
                for key, change in changes.items()])  # fmt: skip
            if problems:  # first what leaves open how far it got
                raise min(problems, key=lambda problem: isinstance(problem, _DEFINITE))
            return dict(zip(changes, pins, strict=True))

        moves = {key: change.steps for key, change in changes.items()}
        traces = {key: trace for key, change in changes.items()
                  if (trace := self.tables.traces.of(state.types[key], state.pins[key], change)) is not None}
        if traces:
            details = replace(details, extra={**details.extra, TRACES: traces})
        return self.operate(state, moves, move, details)

    def operate(
        self, state: GraphState, moves: Mapping[str, int], move: Callable[[str], dict[str, Pin | None]],
        details: CommitDetails, *, dropped: Sequence[str] = (), purged: Sequence[str] = (),
    ) -> GraphState:  # fmt: skip
        """Run one operation under a sidecar: `moves` says how many steps each table takes, `move` takes them.

        Once it is published, tables that are `dropped` are no longer shown, and nothing of before is left of those that
        are to be `purged`.
        """
        self.ready(state.branch)
        if details.kind not in _ALLOWED and self.names.is_protected(state.branch, state.identity):
            raise ProtectedBranchError(self.names.name(state.branch))
        operation = new_ulid()
        new = {one.key: one for one in details.types}
        sidecar = Sidecar(
            operation, state.branch, state.identity, details.actor, details.kind,
            [TableMove(key, (new.get(key) or state.types[key]).location,
                       state.pins[key].version if key in state.pins else 0, operation, steps,
                       (new.get(key) or state.types[key]).hash) for key, steps in moves.items()],
            merge_source=details.merge_source, merged_parent=details.merged_parent,
            types=[one.to_json() for one in (*details.types, *details.past)], dropped=list(dropped),
            lineage=list(details.lineage), purged=list(purged), extra=dict(details.extra),
        )  # fmt: skip
        expected = {key: state.pins[key].version if key in state.pins else None for key in (*moves, *dropped)}

        def publish() -> GraphState:
            pins = move(operation)
            pins |= dict.fromkeys(dropped)
            return self.manifest.publish(state.branch, operation, details, expected=expected, pins=pins,
                                         identity=state.identity)

        with self.turns.writing(state.branch):
            self.manifest.state(state.branch).expect(expected)  # before a table moves in vain
            published = self._under(sidecar, publish)
        if self.committed is not None and details.kind not in PASSIVE:
            self.committed(published, moves)
        return published

    def _under(self, sidecar: Sidecar, publish: Callable[[], GraphState]) -> GraphState:
        """Publish under a sidecar, which goes when it is certain what came of it."""
        operation = sidecar.operation
        try:
            self.sidecars.write(sidecar)
            published = publish()
        except _DEFINITE:
            self.sidecars.leave(operation)
            self.sidecars.remove(operation)
            raise
        except BaseException:
            self._unsettled = True  # it may or may not have been published
            self.sidecars.leave(operation)
            raise
        try:
            self.recoverer.purge(sidecar)
            self.sidecars.leave(operation)
            self.sidecars.remove(operation, published=True)
        except BaseException:
            self._unsettled = True
            self.sidecars.leave(operation)
            raise
        return published
