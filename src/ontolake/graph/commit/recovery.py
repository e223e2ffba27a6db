"""What an interrupted operation left behind is finished, undone or dropped when a graph is opened for writing.

Which of the three is decided by proof: every version that an operation makes carries the operation's id. Everything is
published under ids that follow from the operation's, so that two who recover at once recover once. What was done is a
row in the audit, `_graph_commit_recoveries.lance`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ontolake import faults
from ontolake.graph.commit.manifest import Manifest
from ontolake.graph.commit.records import MAIN, RECOVERY_ACTOR, CommitDetails, Pin, line_of
from ontolake.graph.commit.sidecars import Sidecar, Sidecars, TableMove, at_work
from ontolake.graph.commit.ulid import derived_ulid, is_ulid
from ontolake.graph.errors import (
    DamagedGraphError,
    ExpectedVersionMismatch,
    PublishContendedError,
    UnknownBranchError,
    in_short,
)
from ontolake.graph.place import GraphPlace
from ontolake.graph.tables.datasets import STEP, GraphTables, own_versions
from ontolake.graph.tables.origins import transaction_at
from ontolake.graph.tables.types import GraphType
from ontolake.history.metadata import OPERATION, ORIGINAL_ACTOR, RECOVERED

if TYPE_CHECKING:
    import pyarrow as pa

AUDIT = "_graph_commit_recoveries.lance"


class Recovery(NamedTuple):
    """One thing that was recovered: `action` is rolled_forward, rolled_back, completed, dropped, discarded or
    quarantined."""

    operation: str
    action: str
    branch: str
    commit: str | None
    actor: str | None
    kind: str
    tables: list[str]
    reason: str
    recovered_at: str


class Unexplained(Exception):
    """What is found does not fit what a sidecar says."""


class Recoverer:
    """Goes through the sidecars of a graph."""

    def __init__(self, place: GraphPlace, manifest: Manifest, tables: GraphTables, sidecars: Sidecars) -> None:
        self.place, self.manifest, self.tables, self.sidecars = place, manifest, tables, sidecars
        self.blocked: dict[str, tuple[str, str]] = {}
        """Branches that take no writes, with the file and the reason."""
        self.purging: Callable[[Sidecar], None] | None = None
        """Removes for good what an operation has dropped."""

    def purge(self, sidecar: Sidecar) -> None:
        """The last step of an operation that was published. Raises `PublishContendedError` if it has to wait."""
        if sidecar.purged and self.purging is not None:
            self.purging(sidecar)

    def run(self) -> list[Recovery]:
        """Recover all that can be. What cannot be explained stays, and blocks its branch."""
        self.blocked = {}
        self.sidecars.sweep()
        done: list[Recovery] = []
        for file, data in self.sidecars.list():
            try:
                sidecar = Sidecar.from_bytes(data)
                if not is_ulid(sidecar.operation) or file != sidecar.key:
                    raise ValueError("its operation is not that of its name")
            except ValueError as error:
                done.append(self._quarantine(file, data, str(error)))
                continue
            if at_work(sidecar):
                continue
            try:
                done.append(self._recover(sidecar))
            except PublishContendedError:
                continue  # what it has dropped cannot be removed yet: the next one does it
            except (Unexplained, DamagedGraphError) as error:
                self.blocked[sidecar.branch] = (file, str(error))
        return done

    def _quarantine(self, file: str, data: bytes, reason: str) -> Recovery:
        where = self.sidecars.set_aside(file, data)
        name = file.rpartition("/")[2].removesuffix(".json")
        return self._audit(Recovery(name, "quarantined", "", None, None, "", [],
                                    f"{reason}; the file is {where}", _now()))

    def _recover(self, sidecar: Sidecar) -> Recovery:
        if sidecar.kind == "create branch" or sidecar.kind == "delete branch":
            raise Unexplained(f"the kind {sidecar.kind!r} is not known")
        try:
            state = self.manifest.state(sidecar.branch)
        except UnknownBranchError:
            return self._end(sidecar, "dropped", None, "its branch is gone")
        if state.identity != sidecar.identity:
            return self._end(sidecar, "dropped", None, "its branch is gone, and another has its name")
        if self.manifest.find(state.dataset, sidecar.operation) is not None:
            self.place.settle(state.dataset, line=None if sidecar.branch == MAIN else sidecar.branch)
            self.purge(sidecar)
            return self._end(sidecar, "completed", sidecar.operation, "it was published" + (
                f"; what {', '.join(sidecar.purged)} had before was removed for good" if sidecar.purged else ""))
        undone = derived_ulid(sidecar.operation, "rollback")
        if self.manifest.find(state.dataset, undone) is not None:
            return self._end(sidecar, "rolled_back", undone, "it was undone")
        for move in sidecar.tables:
            actual = state.pins[move.key].version if move.key in state.pins else None
            if actual != move.expected and not (move.expected == 0 and actual is None):
                return self._end(sidecar, "discarded", None, f"{move.key} was published by somebody else since")
        moved: dict[str, int | None] = {move.key: self._moved(sidecar, move) for move in sidecar.tables}
        steps = {move.key: move for move in sidecar.tables}
        if all(version is None for version in moved.values()) and (moved or not sidecar.types):
            return self._end(sidecar, "dropped", None, "no table had moved")
        if all(version is not None for version in moved.values()):
            return self._forward(sidecar, {key: version for key, version in moved.items() if version is not None})
        return self._back(sidecar, [steps[key] for key, version in moved.items() if version is not None], undone)

    def _kind(self, sidecar: Sidecar, move: TableMove) -> GraphType:
        for data in sidecar.types:  # a merge also names types that only older commits of the source have
            found = GraphType.from_json(data)
            if (found.key, found.hash) == (move.key, move.schema):
                return found
        state = self.manifest.state(sidecar.branch)
        kind = state.types.get(move.key) or state.history.get(move.schema)
        if kind is None:
            raise Unexplained(f"the table {move.key} is not known")
        return kind

    def _moved(self, sidecar: Sidecar, move: TableMove) -> int | None:
        """The version to which an operation brought a table, or None if it did not get to the end."""
        kind = self._kind(sidecar, move)
        if kind.location != move.path:
            raise Unexplained(f"{move.key} is at {kind.location}, not at {move.path}")
        try:
            base = self.tables.base(kind)
            line = line_of(sidecar.branch, sidecar.identity)
            if line is not None:
                if line not in base.branches.list():
                    return None
                base = base.checkout_version((line, None))
            if base.latest_version < move.expected:
                raise Unexplained(f"{move.key} ends at version {base.latest_version}, before {move.expected}")
            found = list(own_versions(base, move.expected, move.transaction))
            last: int | None = None
            for version, transaction in found:
                step = transaction.transaction_properties[STEP]
                if step == f"{move.steps}/{move.steps}" and self._whole(base, version, move):
                    last = version
        except (OSError, ValueError) as error:
            if move.expected == 0:
                return None
            raise Unexplained(f"{move.key} cannot be read: {in_short(error)}") from error
        return last

    def _whole(self, base: Any, version: int, move: TableMove) -> bool:
        """Whether a version has what was pinned and the operation's steps, and nothing of anybody else's."""
        for step in range(move.steps, 0, -1):
            transaction = transaction_at(base, version)
            marks = (transaction and transaction.transaction_properties) or {}
            if marks.get(STEP) != f"{step}/{move.steps}":
                return False
            version -= 1
        if version == move.expected or move.expected == 0:
            return True
        operation: Any = getattr(transaction_at(base, version), "operation", None)
        return type(operation).__name__ == "Restore" and operation.version == move.expected

    def _forward(self, sidecar: Sidecar, moved: dict[str, int]) -> Recovery:
        pins: dict[str, Pin | None] = {}
        line = line_of(sidecar.branch, sidecar.identity)
        for move in sidecar.tables:
            kind = self._kind(sidecar, move)
            base = self.tables.base(kind)
            dataset = base.checkout_version((line, moved[move.key]))
            self.place.settle(dataset, line=line)
            pins[move.key] = Pin(line, moved[move.key], dataset.count_rows(), move.schema)
        pins |= dict.fromkeys(sidecar.dropped)
        expected = {move.key: move.expected or None for move in sidecar.tables}
        faults.reach("graph: before rolling forward")
        details = CommitDetails(
            sidecar.kind, RECOVERY_ACTOR, merged_parent=sidecar.merged_parent, lineage=sidecar.lineage,
            types=[GraphType.from_json(data) for data in sidecar.types],
            extra={**sidecar.extra, RECOVERED: "rolled_forward", ORIGINAL_ACTOR: sidecar.actor})  # fmt: skip
        try:
            self.manifest.publish(sidecar.branch, sidecar.operation, details, expected=expected, pins=pins,
                                  identity=sidecar.identity)
        except ExpectedVersionMismatch as error:
            return self._end(sidecar, "discarded", None, f"{error.table_key} was published by somebody else since")
        self.purge(sidecar)
        return self._end(sidecar, "rolled_forward", sidecar.operation, "every table had moved")

    def _back(self, sidecar: Sidecar, moves: list[TableMove], id: str) -> Recovery:
        pins: dict[str, Pin | None] = {}
        state = self.manifest.state(sidecar.branch)
        for move in moves:
            if move.key not in state.pins:
                continue  # a table that was to be created: nothing shows it
            kind = state.types[move.key]
            restored = self.tables.restore(kind, state.line, move.expected, id)
            pin = state.pins[move.key]
            pins[move.key] = Pin(state.line, restored.version, pin.rows, pin.schema)
        faults.reach("graph: before rolling back")
        expected: dict[str, int | None] = {move.key: move.expected for move in moves if move.key in pins}
        extra = {RECOVERED: "rolled_back", OPERATION: sidecar.operation, ORIGINAL_ACTOR: sidecar.actor}
        try:
            self.manifest.publish(sidecar.branch, id, CommitDetails("rollback", RECOVERY_ACTOR, extra=extra),
                                  expected=expected, pins=pins, identity=sidecar.identity)
        except ExpectedVersionMismatch as error:
            return self._end(sidecar, "discarded", None, f"{error.table_key} was published by somebody else since")
        names = ", ".join(move.key for move in moves)
        return self._end(sidecar, "rolled_back", id, f"only {names} had moved")

    def _end(self, sidecar: Sidecar, action: str, commit: str | None, reason: str) -> Recovery:
        found = Recovery(sidecar.operation, action, sidecar.branch, commit, sidecar.actor, sidecar.kind,
                         [move.key for move in sidecar.tables], reason, _now())
        self._audit(found)
        self.sidecars.remove(sidecar.operation)
        return found

    # The audit

    def _audit(self, recovery: Recovery) -> Recovery:
        """Write a row, once per operation: whoever comes second finds it there."""
        import pyarrow as pa

        row = pa.Table.from_pylist([{**recovery._asdict(), "tables": json.dumps(recovery.tables)}], _audit_schema())
        faults.reach("graph: before the audit")
        for _ in range(20):
            try:
                dataset = self.place.open(AUDIT)
            except (OSError, ValueError):
                try:
                    dataset = self.place.create(AUDIT, pa.Table.from_batches([], _audit_schema()), mode="create")
                except (OSError, ValueError):
                    continue
            try:
                (dataset.merge_insert("operation").when_not_matched_insert_all().conflict_retries(0).use_index(False)
                 .execute(row))  # fmt: skip
            except OSError:
                continue
            self.place.settle(dataset)
            faults.reach("graph: audit written")
            return recovery
        raise DamagedGraphError(f"the audit {AUDIT} cannot be written", hint="check the rights to the graph's folder")

    def audit(self) -> Iterator[Recovery]:
        """What was ever recovered, oldest first."""
        try:
            dataset = self.place.open(AUDIT)
        except (OSError, ValueError):
            return
        rows = dataset.to_table().sort_by("recovered_at").to_pylist()
        for row in rows:
            yield Recovery(**{**row, "tables": json.loads(row["tables"])})


def _audit_schema() -> pa.Schema:
    import pyarrow as pa

    key = {"lance-schema:unenforced-primary-key": "true"}
    return pa.schema([pa.field("operation", pa.string(), False, metadata=key),
                      *(pa.field(name, pa.string()) for name in Recovery._fields[1:])])  # fmt: skip


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
