"""Erasing a row for good: from every commit, every branch and every file.

First a commit on every branch whose head has the row, or files that had it: the row is deleted, its fragments are
compacted, indexes are made anew. From then on nobody builds on the old files. Then each version of the past that has
such files is written anew under its number: with files in which the row is blank, with the row deleted, and without the
indexes of before. Commits stay as they are, and show all but the row. At last the old files go, those with the key at
the very end: as long as one is there, the erasure can be called again and finishes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ontolake import faults
from ontolake.errors import NotFound
from ontolake.graph.commit.records import MAIN, CommitDetails, GraphState, Pin
from ontolake.graph.commit.sidecars import Sidecar, at_work
from ontolake.graph.errors import (
    DamagedGraphError,
    ErasureError,
    PublishContendedError,
    RowError,
    UnknownBranchError,
    reading,
)
from ontolake.graph.parts import GraphParts
from ontolake.graph.tables.changes import TableChange
from ontolake.graph.tables.indexes import index_kind, make_index
from ontolake.graph.tables.origins import UPKEEP
from ontolake.graph.tables.row_files import Line, Offsets, RowSearch, TableFiles, batches, lines_of, open_file, size_of
from ontolake.graph.tables.rows import keys_table
from ontolake.graph.tables.types import GraphType, resolve_table
from ontolake.graph.upkeep.maintenance import retried
from ontolake.history import Garbage
from ontolake.history.contention import Pace, commit_optimistically
from ontolake.history.erasures import ERASURE, KeyHash, check_reason
from ontolake.history.metadata import ERASED, MESSAGE
from ontolake.lance_versions import Deletions, NewFile, Piece, VersionFile, moved_base

if TYPE_CHECKING:
    from lance import LanceDataset

_ROUNDS = 8
_OTHERS = Pace(40, 0.05, 0.5)
"""How long to wait for others who are about to move the table."""
_NAMED = 20
"""Edges that are named at most where they keep a node from being erased."""


class GraphErasure:
    """What is stored of one row."""

    def __init__(self, parts: GraphParts, table: Any, key: Any) -> None:
        """Raises `UnknownTableError`, and `RowError` for what is no key."""
        self._parts = parts
        states = [parts.manifest.state(line) for line in (MAIN, *parts.manifest.branches())]
        types = [kind for state in reversed(states) for kind in (*state.history.values(), *state.types.values())]
        known = {kind.key: kind for kind in types}
        self._key = resolve_table(table, known)
        self._kind = known[self._key]
        keys_of_now = keys_table(self._kind, [key])
        self.name = tuple(keys_of_now.to_pylist()[0].values())
        """The key as it is stored: a value for each of its columns."""
        self._edges = {one.key: one for one in types if self._key in (end for _, end in one.ends)}
        self._states = states
        past = [one for kind in types if kind.key == self._key for one in _keys(kind, key)]
        self._search = RowSearch(parts.place, _distinct([keys_of_now, *past]))

    @property
    def table(self) -> str:
        return self._kind.table

    @property
    def read(self) -> list[str]:
        """The data files of the table that were read to find the row."""
        return list(self._search.read)

    # What there is

    def count(self) -> Garbage:
        """Stored versions of the row, and their bytes.

        Raises `NotFound` if there are none, `ErasureError` if edges lead to it.
        """
        files = TableFiles(self._parts.place, self._kind.location)
        held = self._held(files)
        self._refuse_edges()
        return Garbage(sum(len(rows) for rows in self._search.own(held).values()),
                       size_of(self._parts.place, files, held))

    def _held(self, files: TableFiles) -> dict[str, Offsets]:
        self._ask(self._search, self._kind)
        held = self._search.look(files)
        if not held:
            raise NotFound(f"there is no such row in any commit of {self.table}", hint="it may have been erased before")
        return held

    def _ask(self, search: RowSearch, kind: GraphType) -> None:
        """Ask the indexes of what branches show, if they can be read."""
        pins = {pin[:2]: pin for state in self._states if (pin := state.pins.get(kind.key)) is not None}
        for pin in pins.values():
            with suppress(DamagedGraphError), reading(kind.table):
                search.ask(self._parts.tables.at(kind, pin))

    def _refuse_edges(self) -> None:
        """Edges have the keys of their nodes, those of the past as well. Raises `ErasureError`."""
        found: list[str] = []
        for edge in self._edges.values():
            wanted = [pa.table({column: pa.array(self.name, edge.schema.field(column).type)})
                      for column, end in edge.ends if end == self._key]  # fmt: skip
            search, files = RowSearch(self._parts.place, wanted), TableFiles(self._parts.place, edge.location)
            self._ask(search, edge)
            for name, rows in search.own(search.look(files)).items():
                with reading(edge.table):
                    keys = open_file(self._parts.place, files.data[name].key, edge.keys).take_rows(sorted(rows))
                    found += [f"{edge.table} {tuple(row.values())!r}" for row in keys.to_table().to_pylist()]
        if found:
            named = sorted(set(found))
            more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
            raise ErasureError(f"edges that are stored, deleted ones too, have the key of the {self._kind.name}: "
                               f"{', '.join(named[:_NAMED])}{more}", hint="erase these edges first")

    # Erasing

    def run(self, reason: str, author: str | None) -> Garbage:
        """Erase the row. May be repeated after it was interrupted. Raises what `count` raises, and
        `PublishContendedError` if others leave no time for it."""
        parts, kind = self._parts, self._kind
        files = TableFiles(parts.place, kind.location)
        held = self._held(files)
        counted = self.count()
        referenced = files.referenced()
        loose = {name for name in files.data if name not in referenced
                 and (name in held or self._search.is_keyless(name))}  # fmt: skip
        noted = KeyHash.of(self.table, self.name).metadata(self.table, counted)[ERASED]
        noted["lines"] = {line or MAIN: max(version for one, version in files.versions if one == line)
                          for line in {line for line, _ in files.versions}}  # fmt: skip
        details = CommitDetails(ERASURE, author, extra={MESSAGE: reason, ERASED: noted})
        faults.reach("graph: before erasing")
        shown: dict[Line, int] = {}
        for branch in (MAIN, *parts.manifest.branches()):
            with suppress(UnknownBranchError):  # deleted while we looked
                state = retried(branch, "cleared of a row", partial(self._clear, branch, held, loose, files, details))
                pin = state.pins.get(self._key)
                if pin is not None:
                    shown[pin.branch] = max(pin.version, shown.get(pin.branch, 0))
        faults.reach("graph: heads cleared")
        parts.tables.renew()
        gone = self._rewrite_past(shown)
        self._remove(gone, loose)
        parts.tables.renew()
        parts.snapshots.clear()
        return counted

    def _clear(
        self, branch: str, held: Mapping[str, Offsets], loose: set[str], files: TableFiles, details: CommitDetails
    ) -> GraphState:  # fmt: skip
        """Let a branch show the table without the row, without files that had it, and with new indexes."""
        parts, key = self._parts, self._key
        state = parts.manifest.state(branch)
        pin = state.pins.get(key)
        kind = state.types.get(key)
        if pin is None or kind is None:
            return self._note(state, details) if branch == MAIN else state
        dataset = parts.tables.own(kind, pin)
        with reading(kind.table):
            dirty = _dirty(dataset, held)
            indexed = bool(dataset.describe_indices())
        fenced = pin.branch in lines_of(files, loose) and pin.branch == state.line
        if not dirty and not indexed and not fenced:
            return self._note(state, details) if branch == MAIN else state

        def move(operation: str) -> dict[str, Pin | None]:
            new = pin
            if parts.tables.lookup(kind, dataset, self._wanted(kind), kind.keys).num_rows:
                change = TableChange(None, self._wanted(kind))
                new = parts.tables.apply(kind, pin, state.line, change, operation)
            elif not dirty and not indexed:
                moved = parts.tables.restore(kind, state.line, pin.version, operation)
                return {key: pin._replace(version=moved.version)}
            reworked = parts.tables.rework(kind, new, state.line, operation, partial(_cleaned, held=held), UPKEEP)
            if reworked is None:
                raise PublishContendedError(f"{kind.table} was written to meanwhile", hint="try again")
            return {key: Pin(state.line, reworked.version, new.rows, pin.schema)}

        return parts.writer.operate(state, {key: 1}, move, details)

    def _note(self, state: GraphState, details: CommitDetails) -> GraphState:
        """A commit that changes nothing, and tells of the erasure."""
        return self._parts.writer.operate(state, {}, lambda operation: {}, details)

    def _wanted(self, kind: GraphType) -> pa.Table:
        return keys_table(kind, [self.name if kind.kind == "edge" else self.name[0]])

    # The past

    def _rewrite_past(self, shown: Mapping[Line, int]) -> _Gone:
        """Write versions anew until none has files that had the row, or indexes of before."""
        gone = _Gone()
        for _ in range(_ROUNDS):
            files = TableFiles(self._parts.place, self._kind.location)
            held = self._search.look(files)
            indexes = _old_indexes(files, shown)
            gone.add(files, held, indexes | files.left_indexes())
            past = _Past(self._parts, self._kind, files, held)
            changed = [where for where, version in files.versions.items() if past.concerns(version, indexes)]
            for where in changed:
                past.rewrite(where, indexes)
            self._wait()
            if not changed and not _concerned(TableFiles(self._parts.place, self._kind.location), held, indexes):
                return gone
        raise PublishContendedError(f"{self.table} is too busy: others bring files back that have the row",
                                    hint="the row is deleted everywhere; call erase again")

    def _wait(self) -> None:
        """Wait for others who move the table: they may still build on what was. Raises `PublishContendedError`."""
        def once() -> None:
            for _, data in self._parts.sidecars.list():
                with suppress(ValueError):  # it will be set aside
                    sidecar = Sidecar.from_bytes(data)
                    if at_work(sidecar) and any(move.key == self._key for move in sidecar.tables):
                        raise PublishContendedError(f"somebody else writes to {self.table} and does not come to an end",
                                                    hint="the row is deleted everywhere; call erase again")

        commit_optimistically(once, PublishContendedError, _OTHERS)

    def _remove(self, gone: _Gone, loose: Iterable[str]) -> None:
        """Remove files that no version has any more, those with the key last."""
        files = TableFiles(self._parts.place, self._kind.location)
        referenced, store = files.referenced(), self._parts.place.store
        used = {id for version in files.versions.values() for id in version.indexes}
        faults.reach("graph: before removing erased files")
        store.delete([key for id in sorted(gone.indexes - used) for key in files.indexes.get(id, ())])
        faults.reach("graph: erased indexes removed")
        names = {name for name in (*gone.data, *loose) if name in files.data and name not in referenced}
        last = self._search.own(gone.data).keys()
        for some in (names - last, names & last):
            store.delete([files.data[name].key for name in sorted(some)])
            faults.reach("graph: erased files removed")
        late = [name for name, rows in self._search.look(TableFiles(self._parts.place, self._kind.location)).items()
                if rows and name not in referenced]  # fmt: skip
        if late:
            raise PublishContendedError(f"somebody else has written a file with the row meanwhile: {', '.join(late)}",
                                        hint="the row is deleted everywhere; call erase again")


class _Gone:
    """What is to be removed."""

    def __init__(self) -> None:
        self.data: dict[str, Offsets] = {}
        self.indexes: set[str] = set()

    def add(self, files: TableFiles, held: Mapping[str, Offsets], indexes: Iterable[str]) -> None:
        self.data |= {name: rows for name, rows in held.items() if name in files.data}
        self.indexes.update(indexes)


class _Past:
    """The versions of one table, which get files without some rows."""

    def __init__(self, parts: GraphParts, kind: GraphType, files: TableFiles, held: Mapping[str, Offsets]) -> None:
        self._parts, self._place, self._kind, self._files, self._held = parts, parts.place, kind, files, held
        self._new: dict[str, NewFile] = {}
        self._deletions: dict[tuple[Line, Piece], Deletions | None] = {}
        self._referenced = files.referenced()

    def concerns(self, version: VersionFile, indexes: Iterable[str]) -> bool:
        return _concerns(version, self._held, indexes)

    def rewrite(self, where: tuple[Line, int], indexes: Iterable[str]) -> None:
        """Write one version anew."""
        version = self._files.versions[where]
        renamed: dict[str, NewFile] = {}
        deletions: dict[int, Deletions | None] = {}
        for fragment in version.fragments:
            dirty = [name for name in fragment.files if name in self._held]
            if not dirty:
                continue
            rows = frozenset().union(*(self._held[name] for name in dirty))
            known = (where[0], fragment)
            if known in self._deletions or (live := self._live(where, fragment, rows)):
                if known not in self._deletions:
                    self._deletions[known] = self._delete(where, fragment, live)
                deletions[fragment.id] = self._deletions[known]
            if deletions.get(fragment.id, fragment) is not None:  # something is left of it
                renamed |= {name: self._blanked(name) for name in dirty}
        data = version.rewritten(renamed, deletions, list(indexes), self._base)
        faults.reach("graph: before rewriting a version")
        self._place.store.put(self._files.version_keys[where], data)
        faults.reach("graph: version rewritten")

    def _base(self, path: str) -> str:
        """The folder of another line, which copies of graphs that older releases made have where they came from."""
        return moved_base(path, self._kind.location, self._place.root)

    def _dataset(self, where: tuple[Line, int]) -> LanceDataset:
        return self._parts.tables.own(self._kind, Pin(where[0], where[1], -1, self._kind.hash))

    def _live(self, where: tuple[Line, int], fragment: Piece, rows: Offsets) -> list[int]:
        """Of the rows of a fragment, those that are not deleted."""
        with reading(self._kind.table):
            dataset = self._dataset(where)
            own = [one for one in dataset.get_fragments() if one.fragment_id == fragment.id]
            found = dataset.scanner(columns=[], fragments=own, with_row_address=True).to_table()
        there = found.column("_rowaddr").to_numpy() & np.uint64(0xFFFFFFFF)
        return [row for row in sorted(rows) if row in there]

    def _delete(self, where: tuple[Line, int], fragment: Piece, rows: list[int]) -> Deletions | None:
        """A file that says that rows are deleted, beside those that are; None if none is left."""
        with reading(self._kind.table):
            found = self._dataset(where).get_fragment(fragment.id)
            assert found is not None
            left = found.delete_rows(rows)
        if left is None:
            return None
        made = left.deletion_file
        assert made is not None
        folder = self._kind.location if where[0] is None else f"{self._kind.location}/tree/{where[0]}"
        self._place.settle_files([f"{folder}/{made.path(fragment.id)}"])
        faults.reach("graph: row deleted from a version")
        return Deletions(made.file_type, made.read_version, made.id, made.num_deleted_rows, made.base_id)

    def _blanked(self, name: str) -> NewFile:
        """A copy of a data file in which some rows have no values. Its name follows from what it is, so that an erasure
        that is called again finds it."""
        if name not in self._new:
            rows = sorted(self._held[name])
            digest = hashlib.blake2b(f"{name} {rows}".encode(), digest_size=24).hexdigest()
            new, old = f"{digest}.lance", self._files.data.get(name)
            if old is None:
                raise ErasureError(f"{self._kind.table}: the data file {name} is not where the table is",
                                   hint="erase the row in the graph that has the file")
            key = f"{old.key.removesuffix(name)}{new}"
            if new not in self._referenced:
                self._write_blanked(old.key, key, rows)
            self._new[name] = NewFile(new, next(self._place.store.list(key)).size)
        return self._new[name]

    def _write_blanked(self, key: str, new: str, rows: list[int]) -> None:
        from lance.file import LanceFileWriter

        with reading(self._kind.table):
            reader = open_file(self._place, key)
            about = reader.metadata()
            writer = LanceFileWriter(self._place.uri(new), about.schema, storage_options=self._place.options,
                                     version=f"{about.major_version}.{about.minor_version}")  # fmt: skip
            start = 0
            for batch in batches(reader):
                blank = [row - start for row in rows if start <= row < start + batch.num_rows]
                if blank:
                    places = np.arange(batch.num_rows)
                    batch = batch.take(pa.array(places, mask=np.isin(places, blank)))
                start += batch.num_rows
                for part in batch.combine_chunks().to_batches():
                    writer.write_batch(part)
            writer.close()
            if len(open_file(self._place, new).metadata().columns) != len(about.columns):
                raise ErasureError(f"{self._kind.table}: {key} was written by another Lance, and cannot be copied",
                                   hint="optimize the table, and erase again")
        self._place.settle_files([new])
        faults.reach("graph: blanked file written")


def _keys(kind: GraphType, key: Any) -> list[pa.Table]:
    """A key as a type of the past has it; nothing if it cannot have it."""
    try:
        return [keys_table(kind, [key])]
    except RowError:
        return []


def _distinct(tables: Iterable[pa.Table]) -> list[pa.Table]:
    found: list[pa.Table] = []
    for table in tables:
        if not any(table.equals(one) for one in found):
            found.append(table)
    return found


def _dirty(dataset: LanceDataset, held: Mapping[str, Offsets]) -> set[int]:
    """The fragments with files that have, or had, the row."""
    return {fragment.fragment_id for fragment in dataset.get_fragments()
            if any(file.path in held for file in fragment.metadata.files)}  # fmt: skip


def _cleaned(dataset: LanceDataset, held: Mapping[str, Offsets]) -> None:
    """Compact the fragments in which the row is deleted, and no others, and make all indexes anew."""
    from lance.optimize import Compaction

    indexes = [(index.name, index.field_names[0], index_kind(index)) for index in dataset.describe_indices()]
    for name, _, _ in indexes:  # what Lance would carry over from them has the row
        dataset.drop_index(name)
    dirty = _dirty(dataset, held)
    if dirty:
        options: Any = {"materialize_deletions": True, "materialize_deletions_threshold": 0.0,
                        "target_rows_per_fragment": 1}  # fmt: skip
        tasks = [task for task in Compaction.plan(dataset, options).tasks
                 if dirty & {fragment.id for fragment in task.fragments}]
        faults.reach("graph: before compacting fragments with a row")
        Compaction.commit(dataset, [task.execute(dataset) for task in tasks])
    for name, column, kind in indexes:
        if kind is not None and dataset.count_rows():
            make_index(dataset, column, kind, name)


def _old_indexes(files: TableFiles, shown: Mapping[Line, int]) -> set[str]:
    """The parts of indexes that were made before the row was deleted: no head has them any more."""
    heads = {id for line, version in shown.items() if (line, version) in files.versions
             for id in files.versions[line, version].indexes}  # fmt: skip
    old = {id for (line, version), one in files.versions.items()
           if line not in shown or version < shown[line] for id in one.indexes}  # fmt: skip
    return old - heads


def _concerns(version: VersionFile, held: Mapping[str, Offsets], indexes: Iterable[str]) -> bool:
    return not version.indexes.isdisjoint(indexes) or any(
        name in held for fragment in version.fragments for name in fragment.files)


def _concerned(files: TableFiles, held: Mapping[str, Offsets], indexes: Iterable[str]) -> bool:
    return any(_concerns(version, held, indexes) for version in files.versions.values())


def erase(parts: GraphParts, table: Any, key: Any, *, reason: str, dry_run: bool, author: str | None) -> Garbage:
    """See `Graph.erase`."""
    erasure = GraphErasure(parts, table, key)
    check_reason(reason, erasure.name)
    return erasure.count() if dry_run else erasure.run(reason, author)
