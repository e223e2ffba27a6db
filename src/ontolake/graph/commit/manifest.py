"""`__manifest`: the one dataset that says which version of which table a branch shows.

One merge of rows into it makes changes of many tables visible at once. Its key is compared row by row when two
writers meet, and every publish moves the pointer of its branch, so the commits of a branch form one chain.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ontolake import faults
from ontolake.errors import MissingExtra
from ontolake.graph.commit.heads import address_of, commit_conflict, move_head
from ontolake.graph.commit.records import MAIN, CommitDetails, CommitRecord, GraphState, Pin
from ontolake.graph.errors import (
    DamagedGraphError,
    ExpectedVersionMismatch,
    GraphFormatError,
    NoGraphError,
    PublishContendedError,
    UnknownBranchError,
    UnknownCommitError,
    in_short,
    reading,
)
from ontolake.graph.place import GraphPlace
from ontolake.graph.tables.origins import UPKEEP, is_one_of
from ontolake.graph.tables.tiers import rows_to_merge
from ontolake.graph.tables.types import GraphType
from ontolake.history.contention import Beaten, Pace, commit_optimistically

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

MANIFEST = "__manifest"
INTERNAL_SCHEMA_VERSION = 4
STAMP = "omnigraph:internal_schema_version"
COMPACT_AFTER = 24
"""Fragments of the manifest after which a publish compacts it, so that reading it costs the same for ever."""
_MOVED = "if the graph was moved here, onto copy makes one of it that is whole"

_PACE = Pace(60, 0.004, 0.25)
_BLOCK = 2**20
"""Bytes that are read at once: after thousands of commits the manifest still comes in one piece."""
_IN_FLIGHT = 16
"""So many publishes of others may be on their way to the disk."""
_LOST = ("Too many concurrent writers", "Commit conflict", "conflict", "Retryable")


TableLine = tuple[str, str | None]
"""A table, and a line of its versions: None is the first one."""


def row_schema() -> pa.Schema:
    import pyarrow as pa

    key = {"lance-schema:unenforced-primary-key": "true"}
    return pa.schema([
        pa.field("object_id", pa.string(), False, metadata=key), pa.field("object_type", pa.string(), False),
        pa.field("location", pa.string()), pa.field("metadata", pa.string()),
        pa.field("base_objects", pa.list_(pa.string())), pa.field("table_key", pa.string()),
        pa.field("table_version", pa.int64()), pa.field("table_branch", pa.string()),
        pa.field("row_count", pa.int64()),
    ])  # fmt: skip


def _rows(rows: Iterable[Mapping[str, Any]], *, stamped: bool = False) -> pa.Table:
    import pyarrow as pa

    schema = row_schema()
    table = pa.Table.from_pylist([dict(row) for row in rows], schema)
    return table.replace_schema_metadata({STAMP: str(INTERNAL_SCHEMA_VERSION)}) if stamped else table


def table_row(kind: GraphType, history: Mapping[str, GraphType]) -> dict[str, Any]:
    """The row that declares a table; its metadata has the type of today and those of before."""
    types = {one.hash: one.to_json() for one in history.values() if one.key == kind.key}
    types[kind.hash] = kind.to_json()
    return {"object_id": kind.key, "object_type": "table", "location": kind.location, "table_key": kind.key,
            "metadata": json.dumps({"type": kind.hash, "types": types}, separators=(",", ":"))}  # fmt: skip


def version_row(key: str, pin: Pin, commit: CommitRecord) -> dict[str, Any]:
    return {"object_id": f"{key}@{pin.branch or MAIN}:{pin.version}", "object_type": "table_version",
            "metadata": json.dumps({"commit": commit.id, "seq": commit.seq}), "table_key": key,
            "table_version": pin.version, "table_branch": pin.branch and commit.branch,
            "row_count": pin.rows}  # fmt: skip


def tombstone_row(key: str, pin: Pin, commit: CommitRecord) -> dict[str, Any]:
    return {"object_id": f"{key}@{pin.branch or MAIN}:{pin.version}:gone", "object_type": "table_tombstone",
            "table_key": key, "table_version": pin.version,
            "table_branch": pin.branch and commit.branch}  # fmt: skip


def commit_row(commit: CommitRecord) -> dict[str, Any]:
    parents = [one for one in (commit.parent, commit.merged_parent) if one is not None]
    return {"object_id": commit.id, "object_type": "graph_commit", "metadata": commit.to_json(),
            "base_objects": parents}  # fmt: skip


def head_row(branch: str, commit: CommitRecord) -> dict[str, Any]:
    return {"object_id": f"graph_head:{branch}", "object_type": "graph_head", "metadata": commit.to_json(),
            "base_objects": [commit.id], "table_branch": None if branch == MAIN else branch}  # fmt: skip


def _moves_on(before: Pin | None, after: Pin | None) -> bool:
    """Whether the row of a table's version is one that the manifest cannot have yet."""
    return before is not None and after is not None and (
        before.branch != after.branch or before.version < after.version)


def create_manifest(place: GraphPlace, types: Mapping[str, GraphType], first: CommitRecord) -> None:
    """Write the manifest of a new graph, which makes it one. Raises `OSError` from Lance if there is one."""
    rows = [table_row(kind, {}) for kind in types.values()]
    rows += [version_row(key, pin, first) for key, pin in first.pins.items()]
    rows += [commit_row(first), head_row(MAIN, first)]
    faults.reach("graph: before creating the manifest")
    dataset = place.create(MANIFEST, _rows(rows, stamped=True), mode="create")
    faults.reach("graph: manifest created")
    place.settle(dataset)


def read_stamp(dataset: LanceDataset) -> int:
    """The internal schema of a manifest; one without a stamp is of the first."""
    found = (dataset.schema.metadata or {}).get(STAMP.encode(), b"1").decode()
    return int(found) if found.isdigit() else 0


class Manifest:
    """The manifest of one graph: states of branches, commits, publishes."""

    def __init__(self, place: GraphPlace) -> None:
        self.place = place
        try:
            self._main = place.open(MANIFEST, block=_BLOCK)
        except MissingExtra:
            raise
        except (ValueError, OSError) as error:
            # Our own request says what is wrong with a server or credentials; to Lance all of that is one error.
            is_there = any(True for _ in place.store.list(f"{MANIFEST}/"))
            if "not found" in str(error).lower() and not is_there:
                raise NoGraphError(f"there is no graph at {place.url}",
                                   hint="make one with Graph.init, or onto graph init") from None
            raise DamagedGraphError(f"the manifest of {place.url} cannot be read: {in_short(error)}",
                                    hint="restore __manifest/ from a copy") from error
        stamp = read_stamp(self._main)
        if stamp != INTERNAL_SCHEMA_VERSION:
            raise GraphFormatError(place.url, stamp, INTERNAL_SCHEMA_VERSION)
        self._known: dict[str, GraphState] = {}
        self._durable: dict[str, int] = {}
        self._local = threading.local()
        self._commits: dict[str, tuple[dict[str, CommitRecord], int, str]] = {}
        self._lines: dict[str, tuple[set[TableLine], int, str]] = {}
        self._references = place.references(MANIFEST)

    # Reading

    @property
    def _listing(self) -> dict[str, Any] | None:
        return getattr(self._local, "listing", None)

    @_listing.setter
    def _listing(self, found: dict[str, Any] | None) -> None:
        self._local.listing = found

    def branches(self) -> dict[str, Any]:
        """The branches beside main by name, as Lance describes them.

        A deletion that runs meanwhile can make it stumble once.
        """
        if self._listing is not None:
            return self._listing
        for attempt in range(8):
            try:
                return self._references.list(self._main)
            except (OSError, ValueError):
                if attempt == 7:
                    raise
                time.sleep(0.01 * 2**attempt)
        raise AssertionError

    @contextmanager
    def listed(self) -> Iterator[dict[str, Any]]:
        """Look at many branches of one moment, listed once. Not for writing."""
        found = self.branches()
        view, self._listing = self._listing, found
        try:
            yield found
        finally:
            self._listing = view

    def identity(self, branch: str) -> str:
        """What tells this branch from another one of its name that lived before. Raises `UnknownBranchError`."""
        if branch == MAIN:
            return MAIN
        found = self.branches().get(branch)
        if found is None:
            self._known.pop(branch, None)
            raise UnknownBranchError(branch)
        return repr(found["branch_identifier"])

    def dataset(self, branch: str, version: int | None = None) -> LanceDataset:
        """A handle that nobody else has, of the newest version unless one is named: Lance refuses calls that may change
        a handle while another thread uses it."""
        return self._main.checkout_version((None if branch == MAIN else branch, version))

    def state(self, branch: str = MAIN) -> GraphState:
        """What a branch shows now. Costs no reading of rows when nothing was published since the last time."""
        identity = self.identity(branch)
        known = self._known.get(branch)
        try:
            if known is not None and known.identity == identity and self._is_newest(known):
                return known
            dataset = self._main.checkout_version((None if branch == MAIN else branch, None))
            state = self._read(branch, identity, dataset)
        except (OSError, ValueError) as error:
            if branch != MAIN and branch not in self.branches():
                raise UnknownBranchError(branch) from None
            raise DamagedGraphError(f"the manifest of branch {branch!r} cannot be read: {in_short(error)}",
                                    hint=None if branch == MAIN else _MOVED) from error
        self._known[branch] = state
        return state

    def _is_newest(self, state: GraphState) -> bool:
        """Whether nothing was published after a state. Versions follow each other without a gap, so on a local disk it
        is enough to look for the next one; Lance would list them all."""
        line = None if state.branch == MAIN else state.branch
        if self.place.local and self.place.has_version(MANIFEST, line, state.version):
            return not self.place.has_version(MANIFEST, line, state.version + 1)
        return bool(state.dataset.latest_version == state.version)

    def _read(self, branch: str, identity: str, dataset: LanceDataset) -> GraphState:
        rows = dataset.to_table(
            columns=["object_id", "object_type", "metadata"], with_row_address=True,
            filter=f"object_type = 'table' OR object_id = 'graph_head:{branch}'").to_pylist()
        head: CommitRecord | None = None
        address: tuple[int, int] | None = None
        types: dict[str, GraphType] = {}
        history: dict[str, GraphType] = {}
        current: dict[str, str] = {}
        for row in rows:
            if row["object_type"] == "graph_head":
                head, address = CommitRecord.from_json(row["metadata"]), address_of(row)
            else:
                data = json.loads(row["metadata"])
                current[row["object_id"]] = data["type"]
                history |= {hash: GraphType.from_json(one) for hash, one in data["types"].items()}
        if head is None:
            head = self._inherited(branch, dataset)
        for key, pin in head.pins.items():
            types[key] = history[pin.schema]
        return GraphState(branch, identity, dataset.version, head, types, history, dataset, address)

    def _inherited(self, branch: str, dataset: LanceDataset) -> CommitRecord:
        """The head of a branch on which nothing was published yet: that of where it was made."""
        listed = self.branches()
        parent = (listed.get(branch) or {}).get("parent_branch") or MAIN
        while True:
            rows = dataset.to_table(columns=["metadata"], filter=f"object_id = 'graph_head:{parent}'").to_pylist()
            if rows:
                return CommitRecord.from_json(rows[0]["metadata"])
            if parent == MAIN:
                raise DamagedGraphError(f"the manifest has no head for branch {branch!r}")
            parent = (listed.get(parent) or {}).get("parent_branch") or MAIN

    def commits(self, branch: str = MAIN) -> dict[str, CommitRecord]:
        """Every commit that a branch knows, by id. Only those are read that came since the last time."""
        state = self.state(branch)
        known, seen, identity = self._commits.get(branch, ({}, 0, ""))
        if identity != state.identity:
            known, seen = {}, 0
        if seen < state.version:
            rows = state.dataset.to_table(columns=["metadata"], filter="object_type = 'graph_commit' AND "
                                          f"_row_created_at_version > {seen}")  # fmt: skip
            records = (CommitRecord.from_json(text) for text in rows["metadata"].to_pylist())
            known = {**known, **{record.id: record for record in records}}
            self._commits[branch] = (known, state.version, state.identity)
        return dict(known)

    def lines(self, branch: str) -> set[TableLine]:
        """The lines of versions of tables that a commit shows which a branch knows, merged ones included."""
        state = self.state(branch)
        found, seen, identity = self._lines.get(branch, (set(), 0, ""))
        if (seen, identity) != (state.version, state.identity):
            found = {(key, pin.branch) for record in self.commits(branch).values()
                     for key, pin in record.pins.items()}  # fmt: skip
            self._lines[branch] = found, state.version, state.identity
        return found

    def version_of(self, state: GraphState, commit: str) -> int | None:
        """The version of the manifest that a commit made; None if there is no such commit."""
        quoted = commit.replace("'", "''")
        rows = state.dataset.to_table(columns=["object_id", "_row_created_at_version"], filter=(
            f"object_id = '{quoted}' AND object_type = 'graph_commit'")).to_pylist()
        return int(rows[0]["_row_created_at_version"]) if rows else None

    def head_at(self, branch: str, dataset: LanceDataset) -> CommitRecord:
        """The head of a branch in some version of the manifest."""
        rows = dataset.to_table(columns=["metadata"], filter=f"object_id = 'graph_head:{branch}'").to_pylist()
        return CommitRecord.from_json(rows[0]["metadata"]) if rows else self._inherited(branch, dataset)

    def base_of(self, branch: str, listed: Any) -> str:
        """The commit at which a branch was made."""
        try:
            dataset = self._main.checkout_version((branch, listed["parent_version"]))
        except (OSError, ValueError):
            raise UnknownBranchError(branch) from None
        with reading(f"the manifest of branch {branch!r}", _MOVED):
            return self._inherited(branch, dataset).id

    def create_branch(self, name: str, parent: str, version: int) -> LanceDataset:
        """Raises what Lance raises."""
        made: LanceDataset = self.dataset(MAIN).create_branch(name, (None if parent == MAIN else parent, version))
        self._known.pop(name, None)
        self._commits.pop(name, None)
        return made

    def delete_branch(self, name: str) -> None:
        self._references.delete(self.dataset(MAIN), name)
        self._known.pop(name, None)
        self._commits.pop(name, None)

    def commit(self, id: str, branch: str = MAIN) -> CommitRecord:
        """One commit. Raises `UnknownCommitError`."""
        found = self.find(self.state(branch).dataset, id)
        if found is None:
            raise UnknownCommitError(id, branch)
        return found

    def find(self, dataset: LanceDataset, id: str) -> CommitRecord | None:
        quoted = id.replace("'", "''")
        rows = dataset.to_table(columns=["metadata"], filter=f"object_id = '{quoted}' AND "
                                "object_type = 'graph_commit'").to_pylist()  # fmt: skip
        return CommitRecord.from_json(rows[0]["metadata"]) if rows else None

    # Writing

    def publish(
        self, branch: str, id: str, details: CommitDetails, *, expected: Mapping[str, int | None],
        pins: Mapping[str, Pin | None], identity: str,
    ) -> GraphState:  # fmt: skip
        """Make new versions of tables visible as one commit, and return what the branch shows at that commit.

        `expected` has the version at which each touched table must still be, `pins` what it is to be (None drops it).
        `identity` tells the branch from others of its name. Publishing an id again does nothing.
        Raises `ExpectedVersionMismatch`, `PublishContendedError`, `UnknownBranchError`.
        """
        self.place.pay(id)
        attempts = itertools.count()

        def once() -> GraphState:
            is_first = next(attempts) == 0
            state = self.state(branch)
            if state.identity != identity:
                raise UnknownBranchError(branch)
            if not is_first and (done := self.find(state.dataset, id)) is not None:
                return state.at(done)
            try:
                state.expect(expected)
            except ExpectedVersionMismatch:
                if (done := self.find(state.dataset, id)) is not None:
                    return state.at(done)
                raise
            if details.recheck is not None:
                details.recheck(state)
            return self._attempt(state, id, details, pins)

        def too_busy(error: Exception) -> PublishContendedError:
            return PublishContendedError(f"branch {branch!r} is too busy: a publish lost {_PACE.attempts} times",
                                         hint="nothing was published; try again")

        return commit_optimistically(once, Beaten, _PACE, exhausted=too_busy)

    def _attempt(
        self, state: GraphState, id: str, details: CommitDetails, pins: Mapping[str, Pin | None]
    ) -> GraphState:  # fmt: skip
        """Publish on a state. Raises `Beaten` if it is no longer the newest one."""
        types, lineage = [*details.types, *details.past], [CommitRecord.from_json(text) for text in details.lineage]
        shown = {**state.pins, **{key: pin for key, pin in pins.items() if pin is not None}}
        for key, pin in pins.items():
            if pin is None:
                shown.pop(key, None)
        commit = CommitRecord(id, state.head.id, details.merged_parent, state.branch, state.head.seq + 1, details.actor,
                              datetime.now(UTC).isoformat(timespec="microseconds"), details.kind, shown,
                              dict(details.extra))
        history = {**state.history, **{one.hash: one for one in types}}
        current = {one.key: history[shown[one.key].schema] if one.key in shown else one for one in types}
        rows = [table_row(one, history) for one in current.values()]
        rows += [version_row(key, pin, commit) for key, pin in pins.items() if pin is not None]
        rows += [tombstone_row(key, state.pins[key], commit) for key, pin in pins.items() if pin is None]
        known = self.commits(state.branch) if lineage else {}
        rows += [commit_row(one) for one in lineage if one.id not in known]
        rows += [commit_row(commit), head_row(state.branch, commit)]
        rows = list({row["object_id"]: row for row in rows}.values())
        dataset = state.dataset.checkout_version(state.dataset.version) if state.branch == MAIN else (
            self._main.checkout_version((state.branch, state.version)))
        only_new = not types and all(_moves_on(state.pins.get(key), pin) for key, pin in pins.items())
        (head, inherited), address, transaction = self._address(state) if only_new else (None, []), None, None
        faults.reach("graph: before publishing")
        try:
            if head is not None:
                dataset, address, transaction = move_head(self.place, dataset, head, _rows([*inherited, *rows]))
            else:
                (dataset.merge_insert("object_id").when_matched_update_all().when_not_matched_insert_all()
                 .conflict_retries(0).use_index(False).execute(_rows(rows)))  # fmt: skip
        except (OSError, commit_conflict()) as error:
            if not any(sign in str(error) for sign in _LOST):
                raise
            self._known.pop(state.branch, None)
            raise Beaten(f"branch {state.branch!r} has moved on") from error
        faults.reach("graph: published")
        self._settle(state, dataset, transaction)
        new = GraphState(state.branch, state.identity, dataset.version, commit,
                    {key: history[pin.schema] for key, pin in shown.items()}, history, dataset, address)
        self._known[state.branch] = new
        if dataset.stats.dataset_stats()["num_fragments"] > COMPACT_AFTER:
            self.merge_small(new.branch)
        return new

    def adopt(self, records: Sequence[CommitRecord], types: Mapping[str, GraphType]) -> None:
        """Let main know commits of a branch that goes, with their types. Its head stays as it is."""
        def once() -> None:
            state = self.state(MAIN)
            history = {**state.history, **types}
            current = {kind.key: state.types.get(kind.key) or kind for kind in types.values()}
            rows = [table_row(kind, history) for kind in current.values()] + [commit_row(one) for one in records]
            faults.reach("graph: before adopting commits")
            try:
                (self.dataset(MAIN, state.version).merge_insert("object_id").when_matched_update_all()
                 .when_not_matched_insert_all().conflict_retries(0).use_index(False).execute(_rows(rows)))  # fmt: skip
            except (OSError, commit_conflict()) as error:
                if not any(sign in str(error) for sign in _LOST):
                    raise
                raise Beaten("main has moved on") from error
            finally:
                self._known.pop(MAIN, None)
            faults.reach("graph: commits adopted")
            self.place.settle(self.dataset(MAIN))

        commit_optimistically(once, Beaten, _PACE)

    def show(self, state: GraphState, pins: Mapping[str, Pin]) -> GraphState | None:
        """Show the same rows of tables from other versions, under the commit that shows them now.

        None if somebody has published meanwhile. It is no commit: history and heads stay as they are.
        """
        now = self.state(state.branch)
        head, inherited = self._address(now)
        if now.identity != state.identity or head is None or inherited or any(
                now.pins.get(key) != state.pins[key] for key in pins):  # fmt: skip
            return None
        commit = replace(now.head, pins={**now.pins, **pins})
        rows = [version_row(key, pin, commit) for key, pin in pins.items()] + [head_row(now.branch, commit)]
        dataset = self._main.checkout_version((None if now.branch == MAIN else now.branch, now.version))
        faults.reach("graph: before showing upkeep")
        try:
            dataset, address, transaction = move_head(self.place, dataset, head, _rows(rows))
        except commit_conflict():
            self._known.pop(now.branch, None)
            return None
        faults.reach("graph: upkeep shown")
        self._settle(now, dataset, transaction)
        new = replace(now, version=dataset.version, head=commit, dataset=dataset, address=address)
        self._known[now.branch] = new
        return new

    def _address(self, state: GraphState) -> tuple[tuple[int, int] | None, list[dict[str, Any]]]:
        """Where the row of the head is. A branch without one writes the row anew that it has inherited its head from,
        so that its first publishes meet there too; that row is returned with its address."""
        if state.address is not None:
            return state.address, []
        fragments = sorted(state.dataset.get_fragments(), key=lambda fragment: fragment.fragment_id)
        found: dict[str, dict[str, Any]] = {}
        for some in (fragments[-1:], fragments[:-1]):  # the newest has it, unless others have written it
            if some:
                found |= {row["object_id"]: row for row in state.dataset.scanner(
                    fragments=some, filter="object_type = 'graph_head'", with_row_address=True).to_table().to_pylist()}
            own = found.get(f"graph_head:{state.branch}")
            if own is not None:
                return address_of(own), []
        for row in found.values():
            if row["base_objects"] == [state.head.id]:
                return address_of(row), [{name: row[name] for name in row if name != "_rowaddr"}]
        return None, []

    def _settle(self, before: GraphState, dataset: LanceDataset, transaction: Any) -> None:
        """Make a publish durable, and what others published just before: it builds on that. Buckets need nothing."""
        if not self.place.local:
            return
        datasets, line = [], None if before.branch == MAIN else before.branch
        for version in range(max(self._durable.get(before.identity, 0), before.version - _IN_FLIGHT) + 1,
                             before.version + 1):  # fmt: skip
            if self.place.is_recent(dataset, line, version):
                with suppress(OSError, ValueError):  # gone meanwhile
                    datasets.append(self.dataset(before.branch, version))
        self.place.settle(*datasets, line=line, newest=(dataset, transaction))
        self._durable[before.identity] = dataset.version

    def merge_small(self, branch: str) -> None:
        """Merge the small fragments of a branch's manifest, if there are many. A row is seldom rewritten by it."""
        state = self.state(branch)
        target = rows_to_merge(fragment.metadata.num_rows for fragment in state.dataset.get_fragments())
        if target is not None:
            self.compact(state, target_rows_per_fragment=target)

    def compact(self, state: GraphState, **options: Any) -> None:
        """One fragment instead of many. Changes no row. Failing at that harms nobody: somebody else is at it."""
        line = None if state.branch == MAIN else state.branch
        dataset = self._main.checkout_version((line, None))
        begun = dataset.version
        faults.reach("graph: before compacting the manifest")
        try:
            dataset.optimize.compact_files(**options)
        except OSError:
            return
        faults.reach("graph: manifest compacted")
        between = [dataset.checkout_version((line, version)) for version in range(begun + 1, dataset.version)]
        self.place.settle(dataset, *between, line=line)
        if begun == state.version and all(is_one_of(dataset, version, UPKEEP)
                                          for version in range(begun + 1, dataset.version + 1)):  # fmt: skip
            self._known[state.branch] = replace(state, version=dataset.version, dataset=dataset, address=None)
        else:
            self._known.pop(state.branch, None)

    def forget(self, branch: str) -> None:
        self._known.pop(branch, None)
