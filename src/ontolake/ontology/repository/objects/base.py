"""What both engines on objects share: one head, commits by moving it, schemas, the write lock, reading.

An engine adds where rows of a version are, and what else stands in them.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa

from ontolake import faults
from ontolake.errors import DurabilityUnconfirmed, OntolakeError, PreconditionFailed
from ontolake.history import Commit, Damage, Garbage
from ontolake.model.stored import StoredType
from ontolake.model.types import Kind, TypeInfo
from ontolake.objects import ObjectStore, new_nonce, replace
from ontolake.ontology.arrow.physical import Type, declared_table, public_table, rows_of
from ontolake.ontology.config import Config
from ontolake.ontology.errors import HeadMismatchError, StorageBackendError, UnknownCommitError
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.access import StoreObjects
from ontolake.ontology.repository.objects.files import Files
from ontolake.ontology.repository.objects.layout import (
    CommitFile,
    CommitManifest,
    DataFile,
    Head,
    Schemas,
    TypeEntry,
    TypeState,
    type_key,
)
from ontolake.ontology.repository.objects.lease import ObjectLock
from ontolake.ontology.repository.objects.moment import HeadSnapshot, Records, Sight
from ontolake.ontology.repository.objects.read.execution import Executor
from ontolake.ontology.repository.objects.read.scan import LATEST, Adapt, Scanner, Span
from ontolake.ontology.repository.objects.single import SingleRows
from ontolake.ontology.repository.objects.states import past_state
from ontolake.ontology.repository.objects.transaction import S3Transaction
from ontolake.ontology.repository.objects.upkeep import advisory
from ontolake.ontology.repository.protocol import Lease, Row, RowChange, SchemaVersion
from ontolake.ontology.repository.single_line import SingleLine
from ontolake.ontology.repository.times import now_text
from ontolake.ontology.repository.versions import version_for

if TYPE_CHECKING:
    from ontolake.ontology.repository.jobs import CommitLog, FileJobs, ParquetView
    from ontolake.ontology.repository.objects.queue.events import S3EventStore
    from ontolake.ontology.repository.ranges import KeyRange
    from ontolake.parallel import Shape, Split, View

log = logging.getLogger(__name__)

_TRIES = 20


class Restated(NamedTuple):
    """A new manifest of the newest commit: its types, the states that differ, schemas, and dropped types."""

    types: dict[str, TypeEntry]
    states: dict[str, TypeState]
    schemas: Schemas
    dropped: dict[str, TypeEntry]


class S3Repository(SingleRows, SingleLine, ABC):
    """A typed store on objects, whichever engine version it has."""

    backend = "s3"
    engine_version: str
    takes_columns = True
    seen_head = 0
    branch_id = 0
    """The branch that is read and written; 0 is the first one."""
    versions_apart: bool
    """Whether every version of a type has files of its own, and reads see the current one only."""

    def __init__(self, store: ObjectStore, uri: str, config: Config) -> None:
        self.access = StoreObjects(store)
        self.uri = uri
        self.config = config
        self.runtime_id = uuid.uuid4().hex
        self.records = Records(self.access, config.sizes.kept_manifests)
        self.files = Files(self.access, config.sizes)
        self.scanner = Scanner(self.files, self.adapting())
        self.executor = Executor(self)
        self.sight = Sight(self.access, self.records)
        self._last: HeadSnapshot | None = None
        self.advised: str | None = None
        """The manifest up to which this repository has seen to it that what is advisory is up to date."""
        self.lock = ObjectLock(self.access, uri, config)

    # the engine's part
    @classmethod
    def first_head(cls, head: Head) -> Head:
        """The head of a new store."""
        return head

    @abstractmethod
    def data_path(self, folder: str, kind: Kind, name: str, version: int) -> str:
        """Where a commit puts its rows of a type."""

    @abstractmethod
    def physical(self, info: Type, version: int, rows: pa.Table) -> pa.Table:
        """Rows with what else the engine writes beside the columns."""

    @abstractmethod
    def state_to_extend(
        self, info: Type, moment: HeadSnapshot, version: int, commit_id: int, rewritten: bool
    ) -> TypeState:  # fmt: skip
        """The files to which a commit adds its own."""

    def new_version(self, info: TypeInfo, moment: HeadSnapshot) -> int:
        """The version of a type that is not known yet."""
        return 1

    advises = True
    """Whether what is advisory follows this branch."""

    def commit_file(self, info: Type, file: DataFile) -> CommitFile:
        """What a manifest says of a file that its commit wrote."""
        return CommitFile(info.kind, info.name, file.path, file.row_count, file.schema_version_id, file.content_sha256)

    def stamped(self, manifest: CommitManifest, merged: int | None) -> CommitManifest:
        """A new manifest with what else the engine says of a commit."""
        return manifest

    @abstractmethod
    def activation(self, info: TypeInfo) -> int: ...

    def activations(self, kind: Kind, name: str) -> Mapping[int, int]:
        records = self.moment().schemas.types.get(type_key(kind, name), ())
        return {one.schema_version_id: one.activation_commit_id for one in records}

    def adapting(self) -> Adapt | None:
        """How rows of another version become rows of the current one; None where versions are apart."""
        return None

    def declared(self, info: TypeInfo, rows: Collection[Row]) -> pa.Table:
        """Declared rows as a table."""
        return declared_table(info, rows)

    def storage_info(self) -> dict[str, Any]:
        return {"backend": self.backend, "engine_version": self.engine_version, "uri": self.uri}

    # the moment
    def moment(self) -> HeadSnapshot:
        """The head as it is now, or as it was when the block began that is being read in."""
        return self.snapshot(*self.sight.look())

    def snapshot(self, head: Head, tag: str) -> HeadSnapshot:
        """A moment that was read, as the branch has it that is read."""
        if self._last is None or self._last.tag != tag or not tag:
            self._last = HeadSnapshot(head, tag, self.records)
        return self._last

    def reading(self) -> contextlib.AbstractContextManager[None]:
        return self.sight.pinned()

    def head(self) -> int:
        return self.moment().commit_id

    def highest(self) -> int:
        return self.head()

    def state(self) -> object:
        return self.moment().tag

    def lines(self) -> Iterator[S3Repository]:
        """The store on each branch of which there are files: on the only one."""
        yield self

    def kept_branches(self) -> Collection[int]:
        """The branches whose commits have their files."""
        return {0}

    def unreachable_branches(self) -> Collection[int]:
        """Those of them that nothing leads to any more, so that their files can go."""
        return ()

    # schemas
    def schemas(self) -> Mapping[tuple[Kind, str], SchemaVersion]:
        return self.moment().current

    def schema_versions(self, kind: Kind, name: str) -> Sequence[SchemaVersion]:
        return self.moment().versions(kind, name)

    def dropped(self) -> Collection[tuple[Kind, str]]:
        return self.moment().dropped

    def current_version(self, info: Type) -> int | None:
        """The current version of a type if it is that of the code; None for a type that is not known (any more).

        Raises `SchemaOutdatedError` if the store has another schema.
        """
        return version_for(info, self.moment().current.get((info.kind, info.name)))

    def drop_type(self, kind: Kind, name: str, *, at: int | None = None) -> None:
        key = type_key(kind, name)

        def without(moment: HeadSnapshot) -> Restated:
            manifest = moment.manifest
            if at is not None and moment.commit_id != at:
                raise HeadMismatchError(f"commit {moment.commit_id} came after commit {at}, which was read",
                                        hint="read again and work it out again")
            if manifest is None or key not in manifest.types:
                raise StorageBackendError(f"there is no {kind} type {name} in {self.uri!r}",
                                          hint="storage_info() and onto schema history list the types")
            types = dict(manifest.types)
            dropped = {**manifest.dropped, key: types.pop(key)}
            return Restated(types, {}, Schemas(moment.schemas.types, (*moment.schemas.dropped, key)), dropped)

        self.restate(without)

    # writing
    @contextlib.contextmanager
    def transaction(self, owner: str) -> Iterator[S3Transaction]:
        with self.lock.writing(owner, self.moment) as moment, self.sight.at(moment):
            yield S3Transaction(self, moment)

    def acquire_lease(self, owner: str) -> Lease:
        return self.lock.acquire(owner)

    def renew_lease(self, owner: str) -> Lease:
        return self.lock.renew(owner)

    def release_lease(self, owner: str) -> None:
        self.lock.release(owner)

    def publish(
        self, moment: HeadSnapshot, manifest: CommitManifest, path: str, objects: Mapping[str, bytes],
        check: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        """Write the objects of a commit, and make its manifest the newest one. Raises what `move_head` raises."""
        head = self.next_head(moment, manifest, path)
        fresh = {key: data for key, data in objects.items() if key.startswith(layout.FRESH)}
        others = {key: data for key, data in objects.items() if key not in fresh}
        with self.access.written(fresh, others, {layout.HEAD: layout.compact(head)}):
            faults.reach("ontology: commit written, not yet durable")
            self.move_head(moment, manifest, path, head, check)

    def next_head(self, moment: HeadSnapshot, manifest: CommitManifest, path: str) -> Head:
        """The head that follows: one that leads to a manifest, the next one or another one of the same commit."""
        return Head(manifest.commit_id, path, now_text(), self.runtime_id, new_nonce().decode(), moment.head.fence)

    def move_head(
        self, moment: HeadSnapshot, manifest: CommitManifest, path: str, head: Head,
        check: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        """The commit point: make a manifest, all of which is durable, the newest one.

        Raises `HeadMismatchError` if the head is no longer at `moment`, `LeaseExpiredError` if a lock that was held
        has run out, and `DurabilityUnconfirmed` if it cannot be told what happened. Where claims on events were taken
        over since, `check` raises if that of this commit was one of them.
        """
        self.lock.check()
        faults.reach("ontology objects: before the head is moved")
        at, tag = moment.tag, ""
        while not tag:
            try:
                tag = replace(self.access.store, layout.HEAD, layout.compact(head), at, head.nonce.encode())
            except PreconditionFailed as error:
                now = self._now()
                if now is None or not self.still_at(moment, now, manifest):
                    raise self._beaten() from error
                if check is not None:
                    check()
                at, head = now.tag, self.next_head(now, manifest, path)
            except DurabilityUnconfirmed:
                if not self._settled(moment, path, manifest):
                    raise
                break
        faults.reach("ontology objects: head moved")
        self.records.remember(path, manifest)
        self._last = None
        if tag:
            self.snapshot(head, tag)

    def _now(self) -> HeadSnapshot | None:
        """The head as it is, whatever is pinned; None if it is gone."""
        found = self.access.find(layout.HEAD)
        if found is None:
            return None
        head = layout.decode(found.data, Head, layout.HEAD, self.access.url)
        self._last = None
        return self.snapshot(head, found.tag)

    def still_at(self, moment: HeadSnapshot, now: HeadSnapshot, manifest: CommitManifest) -> bool:
        """Whether the head was moved since only because claims were taken over."""
        return (now.head.manifest_path, now.head.fence) == (moment.head.manifest_path, moment.head.fence)

    def _beaten(self) -> HeadMismatchError:
        self.lock.beaten()
        return HeadMismatchError(f"another commit came first at {self.uri!r}", hint="work the difference out again")

    def _settled(self, moment: HeadSnapshot, path: str, manifest: CommitManifest) -> bool:
        """Whether our manifest is in the chain, although somebody may have written the head since.

        Raises `HeadMismatchError` if it is not and cannot come to be: another commit has its place.
        """
        try:
            now = self._now()
            if now is None:
                return False
            if path in (now.head.manifest_path, now.manifest_path):
                return True
            other = now.find(manifest.commit_id)
        except OntolakeError as error:
            log.warning("it cannot be told whether commit %d was made: %s", manifest.commit_id, error)
            return False
        if other is None:
            return False
        if f"/{manifest.commit_id}-{other.attempt}/" in f"/{path}":
            return True
        self.still_at(moment, now, manifest)
        raise self._beaten()

    def restate(self, change: Callable[[HeadSnapshot], Restated | None]) -> CommitManifest | None:
        """Write a new manifest of the newest commit, with other types or files. None if there is nothing to do."""
        for _ in range(_TRIES):
            with self.lock.writing(self.runtime_id, self.moment) as moment:
                restated = change(moment)
                before = moment.manifest
                if restated is None or before is None:
                    return None
                manifest, path, objects = self._restated(moment, before, restated)
                with contextlib.suppress(HeadMismatchError):
                    self.publish(moment, manifest, path, objects)
                    changed = restated.schemas if restated.schemas is not moment.schemas else None
                    if self.advises:
                        self.after_commit(moment, manifest, path, changed)
                    return manifest
        raise HeadMismatchError(f"others keep committing to {self.uri!r}", hint="try again")

    def _restated(
        self, moment: HeadSnapshot, before: CommitManifest, restated: Restated
    ) -> tuple[CommitManifest, str, dict[str, bytes]]:  # fmt: skip
        types, states, schemas, dropped = restated
        folder = layout.commit_folder(before.commit_id, layout.new_attempt())
        path = f"{folder}/{layout.MANIFEST}"
        here = {key: state for key, state in before.states.items() if key in types} | states
        entries = {key: TypeEntry(entry.schema_version_id, entry.activation_commit_id, path) if key in here else entry
                   for key, entry in types.items()}
        objects: dict[str, bytes] = {}
        at = before.schemas
        if schemas is not moment.schemas:
            at = f"{folder}/{layout.SCHEMAS}"
            objects[at] = layout.encode(schemas)
        manifest = msgspec.structs.replace(before, types=entries, states=here, schemas=at, dropped=dropped)
        objects[path] = layout.compact(manifest)
        return manifest, path, objects

    def after_commit(
        self, before: HeadSnapshot, manifest: CommitManifest, path: str, schemas: Schemas | None,
        settled: bool | None = None,
    ) -> None:  # fmt: skip
        """Bring up to date what is advisory. The commit is made, and nothing here can take it back."""
        try:
            known = advisory.settled(self, before) if settled is None else settled
            head = self.next_head(before, manifest, path)
            advisory.write_advisory(self, before, HeadSnapshot(head, "", self.records, head.branch(0)), schemas, known)
        except Exception as error:
            log.warning("the indices of %s are behind: %s", self.uri, error)

    # reading
    def run(self, plan: Plan, values: Values) -> Iterator[Row]:
        with self.reading():
            return self.executor.run(plan, values)

    def run_arrow(self, plan: Plan, values: Values) -> pa.Table:
        with self.reading():
            return self.executor.run_arrow(plan, values)

    def files_of(self, info: Type) -> TypeState | None:
        """The files to read a type from: the current ones, or those of the version that `info` stands for."""
        if self.current_version(info) is None:
            return None
        return self.moment().state(info.kind, info.name) if info.version is None else past_state(self, info)

    def table(self, info: Type, span: Span = LATEST) -> pa.Table:
        """Rows of a type as they are stored, those of the current version."""
        return self.scanner.scan(info, self.files_of(info), span)

    def read_stored(self, stored: StoredType) -> Iterator[Row]:
        return rows_of(stored.all_columns, self.table(stored))

    def count_stored(self, stored: StoredType) -> int:
        return len(self.table(stored))

    def arrow_stored(self, stored: StoredType) -> pa.Table:
        found = public_table(stored.all_columns, self.table(stored))
        return found.drop_columns([found.column_names[-1]])

    def commits(self, *, since: int = 0, until: int | None = None, limit: int | None = None) -> Iterator[Commit[int]]:
        return self.moment().commits(since, until, limit)

    def commit(self, id: int) -> Commit[int]:
        for found in self.commits(since=id - 1, until=id):
            return found
        raise UnknownCommitError(id)

    def commit_changes(self, commit_id: int, info: TypeInfo) -> Iterator[RowChange]:
        with self.reading():
            return self.executor.changes(info, commit_id)

    # parallel readers and writers
    def splits(self, info: TypeInfo, whole: KeyRange, parts: int | None) -> Sequence[Split]:
        from ontolake.ontology.repository.objects.read.splits import object_splits

        return object_splits(self, info, whole, parts)

    def shape(self, info: TypeInfo) -> Shape | None:
        from ontolake.ontology.repository.objects.attachment import shape_of

        return None if info.unique else shape_of(self, info)  # unique fields are looked at row by row

    def unshaped(self, info: TypeInfo, table: pa.Table) -> pa.Table:
        from ontolake.ontology.repository.objects.attachment import unshaped

        return unshaped(info, table)

    def parquet(self, info: TypeInfo, view: View, columns: Collection[str], longest: int) -> ParquetView | None:
        from ontolake.ontology.repository.objects.read.parquet import parquet_view

        return parquet_view(self, info, view, columns, longest)

    @property
    def jobs(self) -> FileJobs | None:
        from ontolake.ontology.repository.objects.jobs.offer import ObjectJobs

        return ObjectJobs(self)

    def commit_log(self) -> CommitLog:
        from ontolake.ontology.repository.objects.jobs.commits import ObjectCommits

        return ObjectCommits(self)

    # checking and looking after
    def gc(self, *, dry_run: bool = True) -> Garbage:
        """Remove what no commit needs and no reader can still be looking at, or tell what would go."""
        from ontolake.ontology.repository.objects.upkeep import maintenance

        found = maintenance.garbage(self)
        if not dry_run:
            maintenance.collect(self, found.token)
        return Garbage(len(found.keys), found.bytes)

    def check(self) -> Iterator[Damage]:
        from ontolake.ontology.repository.objects.upkeep.checks import check

        return check(self)

    def commit_ids(self) -> Collection[int]:
        return {commit.id for commit in self.commits()}

    def every_version(self, kind: Kind, name: str) -> Sequence[SchemaVersion]:
        return self.schema_versions(kind, name)

    def stored_history(self, version: SchemaVersion) -> Iterator[Row]:
        from ontolake.ontology.repository.objects.upkeep.checks import stored_history

        return stored_history(self, version)

    @cached_property
    def events(self) -> S3EventStore:
        from ontolake.ontology.repository.objects.queue.events import S3EventStore

        return S3EventStore(self)

    def close(self) -> None:
        self.lock.close()
        self.access.close()
