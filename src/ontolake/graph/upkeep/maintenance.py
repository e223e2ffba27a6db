"""Keeping a graph quick and small: compaction, indexes, and removal of versions that nothing shows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ontolake import faults
from ontolake.graph.commit.branches import GraphBranches
from ontolake.graph.commit.lineage import Lineage, first_parents
from ontolake.graph.commit.records import MAIN, CommitDetails, CommitRecord, GraphState, Pin
from ontolake.graph.commit.tags import TagStore
from ontolake.graph.errors import ExpectedVersionMismatch, PublishContendedError, reading
from ontolake.graph.parts import GraphParts
from ontolake.graph.tables import tiers
from ontolake.graph.tables.indexes import (
    check_index,
    make_index,
    masked,
    mend_indexes,
    missing_indexes,
    refresh_indexes,
    unreadable_indexes,
)
from ontolake.graph.tables.origins import UPKEEP
from ontolake.graph.tables.types import GraphType, resolve_table
from ontolake.history import Garbage
from ontolake.history.contention import Pace, commit_optimistically

if TYPE_CHECKING:
    from lance import LanceDataset

TRIES = 8
"""How often an index, a compaction or a repair is tried while others move the table."""

_R = TypeVar("_R")


def retried(branch: str, done: str, act: Callable[[], _R], tries: int = TRIES) -> _R:
    """What `act` returns, which reads the state anew each time. Raises `PublishContendedError` after the last try."""

    def too_busy(error: Exception) -> PublishContendedError:
        return PublishContendedError(f"branch {branch!r} is too busy: others moved its tables while they were {done}",
                                     hint="no row was changed; try again")

    return commit_optimistically(act, (ExpectedVersionMismatch, PublishContendedError), Pace(tries, 0.04, 0.64),
                                 exhausted=too_busy)


class Optimized(NamedTuple):
    """What was done for one table: fragments before and after, and the indexes that were made."""

    table: str
    fragments_before: int
    fragments_after: int
    indexes: tuple[str, ...]


Compacting = Callable[["LanceDataset"], None]
"""Makes a dataset of few fragments and no deleted rows out of one of many."""


def compact_here(dataset: LanceDataset) -> None:
    """Let Lance do it in this process."""
    dataset.optimize.compact_files(**compaction())


def compaction() -> dict[str, Any]:
    """The options of Lance for a compaction that leaves full files and no deleted rows."""
    return {"materialize_deletions": True, "materialize_deletions_threshold": 0.0,
            "target_rows_per_fragment": tiers.FRAGMENT_ROWS}  # fmt: skip


def optimize(
    parts: GraphParts, branch: str, actor: str | None, *, compacting: Compacting = compact_here,
    tables: Collection[str] | None = None, tries: int = 1,
) -> list[Optimized]:  # fmt: skip
    """See `Graph.optimize`. Other processes may do the `compacting`; where `tables` are named, these are worked on.

    Tables that others move meanwhile are tried again.
    """
    done: dict[str, Optimized] = {}
    retried(branch, "optimized", lambda: _optimize_tables(parts, branch, actor, compacting, tables, done), tries)
    parts.manifest.compact(parts.state(branch))
    return list(done.values())


def _optimize_tables(
    parts: GraphParts, branch: str, actor: str | None, compacting: Compacting, tables: Collection[str] | None,
    done: dict[str, Optimized],
) -> None:  # fmt: skip
    """Work once on each table that needs it, and publish those that nobody else moved.

    Raises `PublishContendedError` if somebody moved one.
    """
    state = parts.state(branch)
    parts.writer.ready(state.branch)
    work = {key: kind for key, kind in state.types.items() if state.pins[key].branch == state.line
            and (kind.table in tables and kind.table not in done if tables is not None
                 else worth_it(parts.tables.at(kind, state.pins[key]), kind))}
    lost: list[str] = []
    told: dict[str, Optimized] = {}

    def check_lost() -> None:
        if lost:
            raise PublishContendedError(f"{', '.join(lost)} moved meanwhile", hint="no row was changed; try again")

    def move(operation: str) -> dict[str, Pin | None]:
        pins: dict[str, Pin | None] = {}
        for key, kind in work.items():
            pin = state.pins[key]
            made: list[str] = []
            before = len(parts.tables.at(kind, pin).get_fragments())

            def act(dataset: LanceDataset, kind: GraphType = kind, made: list[str] = made) -> None:
                _optimize_one(dataset, kind, made, compacting, forked=state.line is not None)

            moved = parts.tables.rework(kind, pin, state.line, operation, act, UPKEEP)
            if moved is None:
                lost.append(key)
            elif moved.version != pin.version:
                pins[key] = pin._replace(version=moved.version)
                told[kind.table] = Optimized(kind.table, before, len(moved.get_fragments()), tuple(made))
        if not pins:
            check_lost()
        return pins

    if work:
        parts.writer.operate(state, dict.fromkeys(work, 1), move, CommitDetails("optimize", actor))
        done |= told
        check_lost()


def worth_it(dataset: LanceDataset, kind: GraphType) -> bool:
    """Whether there is something to compact, or an index that is missing, behind or unreadable."""
    with reading(kind.table):
        stats = dataset.stats.dataset_stats()
        if (stats["num_fragments"] > 1 and stats["num_small_files"] > 1) or stats["num_deleted_rows"]:
            return True
        rows = dataset.count_rows()
        if any(index.num_rows_indexed < rows for index in dataset.describe_indices()):
            return True
        return bool(missing_indexes(dataset, kind) or unreadable_indexes(dataset, kind.table))


def _optimize_one(
    dataset: LanceDataset, kind: GraphType, made: list[str], compacting: Compacting, *, forked: bool
) -> None:  # fmt: skip
    mend_indexes(dataset, kind.table)
    before = masked(dataset, forked=forked)
    if len(dataset.get_fragments()) > 1 or dataset.stats.dataset_stats()["num_deleted_rows"]:
        compacting(dataset)
    made += refresh_indexes(dataset, kind, before)


def create_index(parts: GraphParts, table: Any, column: str, kind: str, branch: str, actor: str | None) -> None:
    """See `Graph.index`."""
    def act(dataset: LanceDataset) -> None:
        make_index(dataset, column, kind)

    def once() -> None:
        state = parts.state(branch)
        key = resolve_table(table, state.pins)
        check_index(state.types[key], column, kind)
        rework_one(parts, state, key, act, UPKEEP, "index", actor)

    retried(branch, "indexed", once)


def rework_one(
    parts: GraphParts, state: GraphState, key: str, act: Any, allowed: frozenset[str], kind: str, actor: str | None
) -> GraphState:  # fmt: skip
    """One table, reworked by Lance and published."""
    type_, pin = state.types[key], state.pins[key]

    def move(operation: str) -> dict[str, Pin | None]:
        moved = parts.tables.rework(type_, pin, state.line, operation, act, allowed)
        if moved is None:
            raise PublishContendedError(f"{type_.table} was written to meanwhile",
                                        hint="nothing was published; try again")
        return {key: Pin(state.line, moved.version, pin.rows, pin.schema)}

    return parts.writer.operate(state, {key: 1}, move, CommitDetails(kind, actor))


# What nothing shows any more


class Removable(NamedTuple):
    """Versions of one dataset that no kept commit shows."""

    table: str
    branch: str
    versions: list[int]


def cleanup(
    parts: GraphParts, keep: timedelta | None, keep_commits: int | None, dry_run: bool
) -> tuple[list[Removable], int]:  # fmt: skip
    """See `Graph.cleanup`."""
    limit = datetime.now(UTC) - keep if keep is not None else None

    def young(state: GraphState) -> Iterator[CommitRecord]:
        records = parts.manifest.commits(state.branch)
        ages = {record.id: age for age, record in enumerate(first_parents(records, state.head.id))}
        for record in records.values():
            old = limit is not None and datetime.fromisoformat(record.created_at) < limit
            many = keep_commits is not None and ages.get(record.id, keep_commits) >= keep_commits
            if not ((old and (keep_commits is None or many)) or (many and (limit is None or old))):
                yield record

    return remove_versions(parts, young, dry_run)


def remove_versions(
    parts: GraphParts, wanted: Callable[[GraphState], Iterable[CommitRecord]], dry_run: bool,
    tables: Collection[str] | None = None,
) -> tuple[list[Removable], int]:  # fmt: skip
    """Remove versions of all tables, or of some, that no commit shows which is `wanted` of any branch.

    Heads, tagged commits, what branches were made from and where two of them met last are always kept.
    """
    manifest = parts.manifest
    states = [manifest.state(branch) for branch in (MAIN, *manifest.branches())]
    pinned: dict[str, dict[str | None, set[int]]] = {}
    kinds: dict[str, GraphType] = {}
    tagged = TagStore(parts).commits()
    shown = list(_met(parts, states))
    for state in states:
        known = manifest.commits(state.branch)
        always = (tagged | {state.head.id}) & known.keys()  # the head as it was committed, before upkeep, too
        shown += [state.head, *(known[id] for id in always), *wanted(state)]
        kinds |= {kind.key: kind for kind in state.types.values()}
    for record in shown:
        for key, pin in record.pins.items():
            pinned.setdefault(key, {}).setdefault(pin.branch, set()).add(pin.version)
    found: list[Removable] = []
    freed = 0
    for key, kind in sorted(kinds.items()):
        if tables is not None and kind.table not in tables:
            continue
        base = parts.tables.base(kind)
        forks: dict[str, Any] = dict(base.branches.list())
        for fork in forks.values():
            pinned.setdefault(key, {}).setdefault(fork["parent_branch"], set()).add(fork["parent_version"])
        for line, kept in sorted(pinned.get(key, {}).items(), key=lambda item: item[0] or ""):
            if line is not None and line not in forks:
                continue
            dataset = base if line is None else base.checkout_version((line, None))
            # What lies behind the last version that is shown may be somebody's who is about to publish it.
            versions = [one["version"] for one in dataset.versions()
                        if one["version"] not in kept and one["version"] < max(kept)]  # fmt: skip
            if line is not None:
                versions = [version for version in versions if version > forks[line]["parent_version"]]
            if not versions:
                continue
            found.append(Removable(kind.table, line or MAIN, versions))
            if not dry_run:
                faults.reach("graph: before removing versions")
                stats = dataset.cleanup_old_versions(versions=versions, error_if_tagged_old_versions=False)
                freed += stats.bytes_removed
                faults.reach("graph: versions removed")
        living = {state.line for state in states}
        for name in sorted(name for name in forks if name not in living and name not in pinned.get(key, {})):
            found.append(Removable(kind.table, name, []))
            if not dry_run:
                GraphBranches(parts).sweep(kind, name)
    return found, freed


def _met(parts: GraphParts, states: Sequence[GraphState]) -> Iterator[CommitRecord]:
    """Where any two branches met last: merging them needs what they had in common, and bases of bases too."""
    known: dict[str, CommitRecord] = {}
    for state in states:
        known |= parts.manifest.commits(state.branch)
    lineage = Lineage(known, parts.orders)
    for one, other in combinations(states, 2):
        yield from (known[base] for base in lineage.all_bases(one.head.id, other.head.id))


def garbage(parts: GraphParts, dry_run: bool) -> Garbage:
    """Versions that no commit shows."""
    found, freed = cleanup(parts, None, None, dry_run)
    return Garbage(sum(max(1, len(one.versions)) for one in found), freed)
