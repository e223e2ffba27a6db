"""What is not as it should be in a graph: finding it, and putting right what can be, beside writers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ontolake.graph.commit.branches import GraphBranches
from ontolake.graph.commit.records import MAIN, CommitDetails, Pin
from ontolake.graph.commit.sidecars import QUARANTINE
from ontolake.graph.errors import DamagedGraphError, UnknownBranchError, in_short
from ontolake.graph.parts import GraphParts
from ontolake.graph.read.resolution import find_snapshot
from ontolake.graph.tables.indexes import mend_indexes, unreadable_indexes
from ontolake.graph.tables.origins import UPKEEP
from ontolake.graph.upkeep.maintenance import retried, rework_one
from ontolake.history import Damage
from ontolake.history.metadata import ERASED

if TYPE_CHECKING:
    from lance import LanceDataset

_DAMAGED = (DamagedGraphError, OSError, ValueError, RuntimeError)
"""What reading raises where files are damaged."""


class Finding(NamedTuple):
    """Something that is not as it should be: `kind` is drift, index, orphan_fork, blocked, quarantined or damage."""

    kind: str
    where: str
    what: str
    repair: str | None
    """What repairing does about it; None if only people can."""


def repair(parts: GraphParts, dry_run: bool) -> list[Finding]:
    """See `Graph.repair`. What others move meanwhile is looked at again."""
    found: list[Finding] = []
    recoverer = parts.recoverer
    if not parts.read_only:
        recoverer.run()
    for branch, (file, reason) in sorted(recoverer.blocked.items()):
        found.append(Finding("blocked", branch, f"{file}: {reason}", "set the file aside"))
        if not dry_run:
            parts.sidecars.set_aside(file, parts.place.store.get(file).data)
    found += [Finding("quarantined", info.key, "a sidecar that could not be read or explained", None)
              for info in parts.place.store.list(f"{QUARANTINE}/")]
    lines: set[str | None] = set()
    for branch in (MAIN, *parts.manifest.branches()):
        try:
            state = parts.line_state(branch)
            lines.add(state.line)
            for look in (_drift, _unreadable_indexes):
                for key in sorted(state.types):
                    found += retried(branch, "repaired", partial(look, parts, branch, key, dry_run))
        except UnknownBranchError:
            continue
    needed = GraphBranches(parts).lines()
    for kind in parts.state(MAIN).types.values():
        try:
            forks = parts.tables.base(kind).branches.list()
        except (OSError, ValueError):
            continue  # told as damage above
        for name in sorted(name for name in forks if (kind.key, name) not in needed and name not in lines):
            found.append(Finding("orphan_fork", f"{kind.table}@{name}", "its branch is gone", "delete it"))
            if not dry_run:
                GraphBranches(parts).sweep(kind, name)
    if not dry_run:
        recoverer.run()
    return found


def _drift(parts: GraphParts, branch: str, key: str, dry_run: bool) -> list[Finding]:
    """A table whose last version is not the one that is shown."""
    state = parts.line_state(branch)
    if key not in state.types:
        return []
    kind, pin = state.types[key], state.pins[key]
    try:
        parts.tables.at(kind, pin)
        latest = parts.tables.latest(kind, state.line) if pin.branch == state.line else None
    except (DamagedGraphError, OSError, ValueError) as error:
        return [Finding("damage", f"{kind.table}@{branch}", in_short(error), None)]
    if latest is None or latest.version == pin.version:
        return []

    def move(operation: str) -> dict[str, Pin | None]:
        restored = parts.tables.restore(kind, pin.branch, pin.version, operation)
        return {key: pin._replace(version=restored.version)}

    if not dry_run:
        parts.writer.operate(state, {key: 1}, move, CommitDetails("repair", None))
    what = f"versions {pin.version + 1} to {latest.version} were never published"
    return [Finding("drift", f"{kind.table}@{branch}", what, f"go back to version {pin.version}")]


def _unreadable_indexes(parts: GraphParts, branch: str, key: str, dry_run: bool) -> list[Finding]:
    """Indexes of a table that cannot be opened, or not even listed; a table that cannot be is told by `_drift`."""
    state = parts.line_state(branch)
    if key not in state.types:
        return []
    table = state.types[key].table
    try:
        dataset = parts.tables.at(state.types[key], state.pins[key])
    except (DamagedGraphError, OSError, ValueError):
        return []
    try:
        broken = unreadable_indexes(dataset, table)
    except _DAMAGED as error:
        return [Finding("damage", f"{table}@{branch}", _no_indexes(error), None)]
    if broken and not dry_run:
        rework_one(parts, state, key, lambda dataset: mend_indexes(dataset, table), UPKEEP, "repair", None)
    return [Finding("index", f"{table}@{branch}", one.what, "make it anew") for one in broken]


def verify(parts: GraphParts) -> Iterator[Damage]:
    """Read every row of every branch, and yield what cannot be read or does not hold."""
    for branch in GraphBranches(parts).list():
        snapshot = find_snapshot(parts, branch=branch.name)
        for name in snapshot.tables():
            view = snapshot.table(name)
            try:
                rows = sum(batch.num_rows for batch in view.batches())
            except _DAMAGED as error:
                yield Damage(f"{name}@{branch.name}", in_short(error))
                continue
            if rows != view.pin.rows and not 0 < view.pin.rows - rows <= _erased(parts, name, view.pin):
                yield Damage(f"{name}@{branch.name}", f"there are {rows} rows, and the manifest says {view.pin.rows}")
            yield from index_damage(view.dataset, name, branch.name)


def _erased(parts: GraphParts, table: str, pin: Pin) -> int:
    """How many rows erasures may have taken from a version since a commit counted them."""
    noted = [record.extra[ERASED] for record in parts.manifest.commits(MAIN).values() if ERASED in record.extra]
    return sum(one["table"] == table and one["lines"].get(pin.branch or MAIN, 0) >= pin.version for one in noted)


def index_damage(dataset: LanceDataset, table: str, branch: str) -> list[Damage]:
    """The indexes of a table that cannot be read, and what to do about it."""
    try:
        broken = unreadable_indexes(dataset, table)
    except _DAMAGED as error:
        return [Damage(f"{table}@{branch}", _no_indexes(error))]
    return [Damage(f"{table}@{branch}", f"{one.what}; run onto graph repair, which makes it anew") for one in broken]


def _no_indexes(error: Exception) -> str:
    return f"its indexes cannot be read: {in_short(error.__cause__ or error)}"
