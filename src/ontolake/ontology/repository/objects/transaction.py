"""A commit in the making on objects: everything is written under names of its own, and then the head is moved.

Before the head has moved nothing of it is visible; after that nothing can make it fail.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontolake import faults
from ontolake.errors import Invalid
from ontolake.model.schema import Schema, schema_hash, schema_of
from ontolake.model.stored import StoredType
from ontolake.model.types import TypeInfo, type_info, unstorable
from ontolake.ontology.arrow.columns import ArrowRows
from ontolake.ontology.arrow.physical import (
    COMMIT,
    DELETED,
    REPLACES,
    ROW,
    Type,
    by_key,
    concat,
    encoded,
    key_texts,
    table_of,
)
from ontolake.ontology.errors import HeadMismatchError, LayoutLacksError, MigrationError, TypeDroppedError
from ontolake.ontology.repository.features import check_kept
from ontolake.ontology.repository.metadata import metadata_text
from ontolake.ontology.repository.objects import deletions, layout
from ontolake.ontology.repository.objects.deletions import keys_of
from ontolake.ontology.repository.objects.difference import Difference, difference
from ontolake.ontology.repository.objects.files import required, write_file
from ontolake.ontology.repository.objects.layout import (
    CommitFile,
    CommitManifest,
    DataFile,
    SchemaRecord,
    Schemas,
    TypeEntry,
    TypeState,
    type_key,
)
from ontolake.ontology.repository.objects.moment import HeadSnapshot, OtherBranchMoved
from ontolake.ontology.repository.objects.read.search import leading_type
from ontolake.ontology.repository.objects.uniqueness import check_unique
from ontolake.ontology.repository.objects.upkeep import advisory
from ontolake.ontology.repository.objects.upkeep.merge import level_of, tidy
from ontolake.ontology.repository.protocol import LiveRelation, Row
from ontolake.ontology.repository.times import now_text

if TYPE_CHECKING:
    from ontolake.ontology.events.records import QueueChange
    from ontolake.ontology.repository.objects.base import S3Repository
    from ontolake.parallel import Fragment


class S3Transaction:
    """A commit in the making."""

    def __init__(self, repository: S3Repository, moment: HeadSnapshot) -> None:
        self._repository = repository
        self._moment = moment
        self._attempt = layout.new_attempt()
        self._began = now_text()
        self._folder = layout.commit_folder(moment.next_commit, self._attempt)
        self._versions: dict[Type, int] = {}
        self._declared: dict[Type, pa.Table] = {}
        self._changed: dict[Type, Difference] = {}
        self._rewritten: set[Type] = set()
        self._ascending: set[Type] = set()
        self._adopted: dict[Type, tuple[Sequence[DataFile], int]] = {}
        self._ended: dict[str, pa.Table] = {}
        self._schemas = moment.schemas
        self._objects: dict[str, bytes] = {}
        self._begun: list[Future[None]] = []
        self._tables: dict[str, tuple[DataFile, pa.Table]] = {}
        self.merged: int | None = None
        """The second parent of a merge."""
        self.created_at: datetime | None = None
        """When the commit was made, if it is a copy of one; else now."""

    @property
    def commit_id(self) -> int:
        return self._moment.next_commit

    def register(self, info: TypeInfo, *, reason: str = "initial") -> int:
        version = self._versions.get(info)
        if version is None:
            check_kept(self._repository, [info])
            known = self._repository.current_version(info)
            if known is None:
                if (info.kind, info.name) in self._moment.dropped:
                    raise TypeDroppedError(info.name)
                known = self._repository.new_version(info, self._moment)
                self._put_schema(schema_of(info.cls), known, reason)
            version = self._versions[info] = known
        return version

    def _put_schema(self, schema: Schema, version: int, reason: str) -> None:
        key = type_key(schema["kind"], schema["name"])
        record = SchemaRecord(version, schema, schema_hash(schema), now_text(), self._repository.runtime_id, reason,
                              self.commit_id)
        known = self._schemas.types
        self._schemas = Schemas({**known, key: (*known.get(key, ()), record)}, self._schemas.dropped)

    def reconcile(self, info: TypeInfo, rows: Collection[Row]) -> int:
        self.register(info)
        try:
            table = self._repository.declared(info, rows)
        except UnicodeEncodeError:
            raise unstorable(info, rows) from None
        earlier = self._declared.get(info)
        if earlier is not None:  # the same key once more: the last one counts
            self._ascending.discard(info)
            again = pc.is_in(key_texts(info, earlier), value_set=key_texts(info, table))
            table = pa.concat_tables([earlier.filter(pc.invert(again)), table], promote_options="default")
        self._declared[info] = table
        if earlier is None and isinstance(rows, ArrowRows) and rows.ascending:
            self._ascending.add(info)
        faults.reach("ontology: rows staged")
        found = difference(info, self._repository.scanner, self._state(info), table)
        self._changed[info] = found
        faults.reach("ontology: rows written")
        return len(found.rows)

    def _state(self, info: Type) -> TypeState | None:
        return None if info in self._rewritten else self._moment.state(info.kind, info.name)

    def delete(self, info: Type, keys: Collection[Row]) -> int:
        self._check_deletions()
        version = self._repository.current_version(info)
        if not keys or version is None:
            return 0
        found = deletions.ended_rows(self._repository.scanner, info, self._state(info), keys)
        name = type_key(info.kind, info.name)
        earlier = self._ended.get(name)
        if earlier is not None:
            again = pc.is_in(key_texts(info, found), value_set=key_texts(info, earlier))
            found = found.filter(pc.invert(again))
        if not len(found):
            return 0
        self._ended[name] = found if earlier is None else concat([earlier, found])
        if not any((one.kind, one.name) == (info.kind, info.name) for one in self._versions):
            self._versions[info] = version
        faults.reach("ontology: rows deleted")
        return len(found)

    def keys_besides(self, info: TypeInfo, keys: Collection[Row]) -> Sequence[Row]:
        self._check_deletions()
        if self._repository.current_version(info) is None:
            return []
        kept = {*keys, *self._gone(info)}
        there = self._repository.scanner.scan(info, self._state(info), columns=info.keys)
        return [key for key in keys_of(info, there) if key not in kept]

    def relations_of(self, info: TypeInfo, keys: Collection[Row]) -> Sequence[LiveRelation]:
        self._check_deletions()
        found: list[LiveRelation] = []
        wanted = [key[0] for key in keys]
        for stored, sides in deletions.leading_to(self._moment, info.name):
            there = deletions.relations(self._repository.scanner, stored, self._state(stored), sides, wanted)
            for declared, change in self._changed.items():
                if (declared.kind, declared.name) == (stored.kind, stored.name):
                    rows = deletions.with_ends(stored, change.rows, sides, wanted)
                    there |= dict.fromkeys(keys_of(stored, rows), self.commit_id)
            gone = self._gone(stored)
            found += [LiveRelation(stored, key, commit) for key, commit in there.items() if key not in gone]
        return found

    def _check_deletions(self) -> None:
        if not self._repository.keeps_deletions:
            raise LayoutLacksError("deletions", self._repository.uri, self._repository.engine_version)

    def _gone(self, info: Type) -> set[Row]:
        """The keys of a type that this commit ends."""
        ended = self._ended.get(type_key(info.kind, info.name))
        return set() if ended is None else set(keys_of(info, ended))

    def missing_endpoints(self, info: TypeInfo, *, limit: int = 10) -> Sequence[tuple[str, Any, Row]]:
        found: list[tuple[str, Any, Row]] = []
        rows = self._changed[info].rows
        lefts, rights = (encoded(column, rows) for column in info.keys[:2])
        for side, end, keys in (("left", info.left, lefts), ("right", info.right, rights)):
            there = self._present(type_info(end), set(keys))
            found += [(side, key, (left, right)) for key, left, right in zip(keys, lefts, rights, strict=True)
                      if key not in there]
        return found[:limit]

    def _present(self, info: TypeInfo, keys: set[Any]) -> set[Any]:
        """Those of the keys that entities have, or will have with this commit."""
        there: set[Any] = set()
        if info in self._declared:
            there = keys & set(encoded(info.keys[0], self._declared[info]))
        rest = [*(keys - there)]
        kind = leading_type(info)
        state = self._state(info) if self._repository.current_version(info) is not None else None
        found = self._repository.scanner.find(info, state, pa.array(rest, kind), rest)
        return there | (set(encoded(info.keys[0], found)) - {key[0] for key in self._gone(info)})

    def insert(self, stored: StoredType, version: int, rows: Collection[Row]) -> None:
        """Write rows of a current type as they are, whether they differ or not. Keys are unique."""
        self._versions[stored] = version
        table = table_of(stored, rows)
        self._changed[stored] = Difference(table, len(table))

    def rewrite(self, info: TypeInfo, version: int, rows: Iterable[Row]) -> int:
        table = self._repository.declared(info, rows if isinstance(rows, Collection) else list(rows))
        faults.reach("ontology: rewritten rows staged")
        self._put_schema(schema_of(info.cls), version, "migration")
        self._versions[info] = version
        self._rewritten.add(info)
        self._ascending.discard(info)
        self._declared[info] = table
        self._changed[info] = Difference(table, 0 if self._repository.versions_apart else len(table))
        return len(table)

    @property
    def folder(self) -> str:
        """Where this commit has its objects. Whoever writes some of them elsewhere writes them below it."""
        return self._folder

    def adopt(self, info: TypeInfo, version: int, files: Sequence[DataFile], *, next_row: int) -> int:
        """`rewrite` with rows that others have written as files, sorted and apart by key, numbered below `next_row`."""
        if info.unique:
            raise MigrationError(f"the unique fields of {info.name} cannot be looked at by workers",
                                 hint="migrate the type with session.migrate() or onto migrate")
        self._put_schema(schema_of(info.cls), version, "migration")
        self._versions[info] = version
        self._rewritten.add(info)
        self._adopted[info] = (files, next_row)
        return sum(file.row_count for file in files)

    def attach(self, info: TypeInfo, fragments: Sequence[Fragment]) -> int | None:
        from ontolake.ontology.repository.objects.attachment import attach

        return attach(self._repository, self, info, fragments)

    def add(self, info: TypeInfo, files: Sequence[DataFile], *, next_row: int) -> None:
        """Add files that others have written, sorted and apart by key, with keys that the type does not have yet."""
        self.register(info)
        self._adopted[info] = (files, next_row)

    def finish_queue(self, queue: QueueChange) -> None:
        self._repository.lock.check()
        self._repository.events.alone(queue, self._began)

    def finish(self, metadata: Mapping[str, Any], *, queue: QueueChange | None = None) -> int:
        metadata_text(metadata)
        for info, change in self._changed.items():
            if isinstance(info, TypeInfo) and info.unique:
                check_unique(self._repository.scanner, info, self._state(info), change.rows, self._gone(info))
        while True:
            try:
                return self._finish(metadata, queue)
            except OtherBranchMoved as error:
                self._restamp(error.now)

    def _restamp(self, now: HeadSnapshot) -> None:
        """Take the next free id, after commits to other branches: what differs from this one is still the same.

        Raises `HeadMismatchError` if what was written by others, or is new in schemas, has the id that is taken.
        """
        if self._adopted or self._schemas is not self._moment.schemas:
            raise HeadMismatchError(f"another commit came first at {self._repository.uri!r}",
                                    hint="work the difference out again")
        faults.reach("ontology objects: commit stamped again")
        self._moment = now
        self._attempt = layout.new_attempt()
        self._folder = layout.commit_folder(now.next_commit, self._attempt)
        self._schemas = now.schemas
        self._objects, self._begun, self._tables = {}, [], {}

    def _finish(self, metadata: Mapping[str, Any], queue: QueueChange | None) -> int:
        repository, before = self._repository, self._moment.manifest
        path = f"{self._folder}/{layout.MANIFEST}"
        types = dict(before.types) if before else {}
        states: dict[str, TypeState] = {}
        files: list[CommitFile] = []
        for info, version in self._versions.items():
            key = type_key(info.kind, info.name)
            changed = (info in self._adopted or (info in self._changed and len(self._changed[info].rows))
                       or key in self._ended)
            if key not in types or info in self._rewritten or changed:
                state = self._extended(info, version, files)
                states[key] = state
                types[key] = TypeEntry(version, state.activation_commit_id, path)
        evolved = self._schemas is not self._moment.schemas
        schemas = self._new_schemas() if evolved else before.schemas if before else None
        joined = None if queue is None else repository.events.join(
            queue, self._moment, self.commit_id, self._folder, self._began)
        if joined is not None:
            self._objects |= joined.objects
        parent, newest = self._moment.manifest_path, self._moment.newest
        manifest = CommitManifest(
            self.commit_id, before.commit_id if before else None, parent,
            self.created_at.isoformat() if self.created_at else now_text(), repository.runtime_id,
            dict(metadata), tuple(files), types, states, schemas, self._attempt,
            layout.lineage(newest, self._moment.head.manifest_path), before.dropped if before else {},
            joined.pointer if joined is not None else newest.queue if newest else None,
        )  # fmt: skip
        manifest = repository.stamped(manifest, self.merged)
        try:
            self._objects[path] = layout.compact(manifest)
        except (OverflowError, TypeError) as error:
            raise Invalid(f"the metadata of a commit cannot be kept: {error}") from error
        settled = None
        if evolved and repository.advises:
            settled = advisory.settled(repository, self._moment)
            advisory.unsettle(repository, self._moment)
        repository.access.wait(self._begun)
        repository.publish(self._moment, manifest, path, self._objects, None if joined is None else joined.check)
        faults.reach("ontology: commit durable")
        for file, table in self._tables.values():
            repository.files.remember(file, table)
        if schemas is not None:
            repository.records.remember(schemas, self._schemas)
        if repository.advises:
            repository.after_commit(self._moment, manifest, path, self._schemas if evolved else None, settled)
        if joined is not None:
            repository.events.joined(joined)
        return self.commit_id

    def _new_schemas(self) -> str:
        """Have the schemas written, and those files that tell people of them. Returns where they are."""
        path = f"{self._folder}/{layout.SCHEMAS}"
        self._objects[path] = layout.encode(self._schemas)
        for info, version in self._versions.items() if self._repository.advises else ():
            records = self._schemas.types[type_key(info.kind, info.name)]
            if records[-1].activation_commit_id == self.commit_id and records[-1].schema_version_id == version:
                self._objects[layout.versions_path(info.kind, info.name)] = layout.encode(
                    {"type_kind": info.kind, "type_name": info.name, "versions": records})
        return path

    def _extended(self, info: Type, version: int, files: list[CommitFile]) -> TypeState:
        """The files of a type with those of this commit."""
        repository = self._repository
        state = repository.state_to_extend(info, self._moment, version, self.commit_id, info in self._rewritten)
        adopted: Sequence[DataFile] = ()
        if info in self._adopted:
            adopted, next_row = self._adopted[info]
            files += [repository.commit_file(info, file) for file in adopted]
            state = TypeState(state.schema_version_id, state.activation_commit_id, next_row, (*state.runs, *adopted),
                              state.past)
        rows, updates = self._written(info)
        fresh: dict[str, pa.Table] = {}
        if rows is not None:
            count = len(rows)
            rows = rows.append_column(COMMIT, pa.array(np.full(count, self.commit_id, np.int64)))
            rows = rows.append_column(ROW, pa.array(np.arange(state.next_row, state.next_row + count)))
            rows = repository.physical(info, version, rows)
            table = rows if info in self._ascending and DELETED not in rows.column_names else by_key(info, rows)
            path = repository.data_path(self._folder, info.kind, info.name, version)
            path = f"{path.removesuffix('.parquet')}-rows.parquet" if adopted else path
            for part, file in self._files(info, version, table, updates, path):
                files.append(repository.commit_file(info, file))
                self._tables[file.path] = (file, part)
                fresh[file.path] = part
                state = TypeState(state.schema_version_id, state.activation_commit_id, state.next_row + len(part),
                                  (*state.runs, file), state.past)
        if not fresh and (not adopted or info in self._rewritten):
            return state
        return self._tidied(info, version, state, fresh)

    def _written(self, info: Type) -> tuple[pa.Table | None, int]:
        """The rows of a type that this commit writes, those among them that end their keys marked, and how many of all
        may replace another. They say which ones they replace, if the store keeps that and all of it is known."""
        change, ended = self._changed.get(info), self._ended.get(type_key(info.kind, info.name))
        rows, updates, linked = None, 0, self._repository.keeps_deletions
        if change is not None and len(change.rows):
            rows, updates = change.rows, change.updates
            if change.replaced is not None:
                rows = rows.append_column(REPLACES, change.replaced)
            linked = linked and (change.replaced is not None or not updates)
        if ended is not None:
            parts = [] if rows is None else [rows.append_column(DELETED, pa.array(np.zeros(len(rows), dtype=bool)))]
            rows, updates = concat([*parts, deletions.marks(info, ended)]), updates + len(ended)
        if rows is not None and REPLACES in rows.column_names and not (linked and updates):
            rows = rows.drop_columns([REPLACES])
        return rows, updates

    def _tidied(self, info: Type, version: int, state: TypeState, fresh: dict[str, pa.Table]) -> TypeState:
        """The files of a type with those merged that are due."""
        def place(what: str) -> str:
            return layout.snapshot_path(info.kind, info.name, version, what, self.commit_id, layout.new_attempt())

        merged = tidy(info, state, self._repository.files, place, fresh=fresh)
        self._objects |= merged.objects
        self._tables |= merged.tables
        return merged.state

    def _files(
        self, info: Type, version: int, table: pa.Table, updates: int, path: str
    ) -> Iterator[tuple[pa.Table, DataFile]]:  # fmt: skip
        """The rows of a commit as files: one, or if there are many, several that are made and written at once."""
        sizes = self._repository.config.sizes
        parts = [table.slice(start, sizes.part_rows) for start in range(0, len(table), sizes.part_rows)]
        paths = [path, *(f"{path.removesuffix('.parquet')}-part{n}.parquet" for n in range(2, len(parts) + 1))]

        def made(number: int) -> tuple[DataFile, bytes]:
            rows, most = parts[number], updates
            replaces = REPLACES in rows.column_names
            if replaces:
                most = len(rows) - rows.column(REPLACES).null_count
            if self._repository.keeps_branches:  # files of older engines stay as they have always been
                rows = required(rows)
            return write_file(info, rows, paths[number], version, level=level_of(len(rows), sizes),
                              updates=min(most, len(rows)), replaces=replaces and most > 0, ordered=True, sizes=sizes)

        def begun(number: int) -> DataFile:
            file, data = made(number)
            self._begun.append(self._repository.access.begin(file.path, data))
            return file

        if len(parts) == 1:
            file, self._objects[path] = made(0)
            return iter([(parts[0], file)])
        with ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:  # on a busy machine more get their turn
            return zip(parts, [*pool.map(begun, range(len(parts)))], strict=True)
