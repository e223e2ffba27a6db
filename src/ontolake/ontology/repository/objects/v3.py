"""s3/v3: v2's files, of which every branch has its own state, and in which rows can end their keys.

A branch is a pointer to a manifest in the head, so that making one copies nothing, and branches share the files of what
they have in common. Commits of all branches are numbered together; each manifest leads to those before it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import msgspec
import pyarrow as pa

from ontolake import faults
from ontolake.errors import PreconditionFailed
from ontolake.history import Commit, Garbage
from ontolake.history.errors import ProtectedBranchError, UnknownBranchError
from ontolake.history.names import MAIN, is_name
from ontolake.model.types import Kind, TypeInfo
from ontolake.objects import ObjectStore, new_nonce, replace
from ontolake.ontology.arrow.physical import Type
from ontolake.ontology.config import Config
from ontolake.ontology.errors import HeadMismatchError, UnknownCommitError
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.repository.branched import BranchRow, ErasureRecord, KeyErasure, Names, TagRow
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.base import Restated
from ontolake.ontology.repository.objects.branch_names import HeadNames, branch_row, tag_rows
from ontolake.ontology.repository.objects.layout import (
    BranchEntry,
    CommitFile,
    CommitManifest,
    DataFile,
    ErasureNote,
    Head,
    Schemas,
    type_key,
)
from ontolake.ontology.repository.objects.moment import HeadSnapshot, OtherBranchMoved
from ontolake.ontology.repository.objects.read.execution import Executor
from ontolake.ontology.repository.objects.read.keys import ObjectStates
from ontolake.ontology.repository.objects.v2 import S3RepositoryV2
from ontolake.ontology.repository.protocol import Row, RowChange, SchemaVersion
from ontolake.ontology.repository.times import now_text, parse_time

if TYPE_CHECKING:
    from ontolake.ontology.repository.jobs import ParquetView
    from ontolake.ontology.repository.ranges import KeyRange
    from ontolake.parallel import Split, View

T = TypeVar("T")

_TRIES = 50
"""How often names are changed anew after others moved the head."""


class S3RepositoryV3(S3RepositoryV2):
    """A typed store on objects with deletions and branches, read and written on one branch."""

    engine_version = "v3"
    keeps_deletions = True
    keeps_branches = True
    keeps_unique = True

    def __init__(self, store: ObjectStore, uri: str, config: Config) -> None:
        super().__init__(store, uri, config)
        self.branch_id = 0
        self._views: dict[int, S3RepositoryV3] = {0: self}
        if config.branch != MAIN:
            row = self.branch_named(config.branch)
            if row is None:
                raise UnknownBranchError(config.branch)
            self.branch_id, self._last = row.id, None
            self._views = {row.id: self}

    @classmethod
    def first_head(cls, head: Head) -> Head:
        main = BranchEntry(0, MAIN, 0, 0, None, head.updated_at)
        return msgspec.structs.replace(head, branches=(main,), tags={}, next_branch=1)

    # the moment of a branch
    def snapshot(self, head: Head, tag: str) -> HeadSnapshot:
        if self._last is None or self._last.tag != tag or not tag:
            self.records.redirect(head.erased)
            entry = head.branch(self.branch_id)
            if entry is None:
                raise UnknownBranchError(f"#{self.branch_id}", hint="it was deleted, and its rows are collected")
            self._last = HeadSnapshot(head, tag, self.records, entry)
        return self._last

    def next_head(self, moment: HeadSnapshot, manifest: CommitManifest, path: str) -> Head:
        head, entry = moment.head, self._entry(moment)
        if entry.deleted_at is not None:
            raise UnknownBranchError(entry.name, hint="it was deleted meanwhile")
        is_commit = manifest.commit_id > head.commit_id
        if is_commit and entry.protected and manifest.merged_commit_id is msgspec.UNSET:
            raise ProtectedBranchError(entry.name)
        is_newest = is_commit or (head.manifest_path == entry.manifest_path and manifest.branch == entry.id)
        moved = msgspec.structs.replace(entry, head_commit_id=manifest.commit_id, manifest_path=path,
                                        schemas=manifest.schemas)
        return msgspec.structs.replace(
            head, commit_id=max(head.commit_id, manifest.commit_id),
            manifest_path=path if is_newest else head.manifest_path, updated_at=now_text(),
            runtime_id=self.runtime_id, nonce=new_nonce().decode()).with_branch(moved)

    def _entry(self, moment: HeadSnapshot) -> BranchEntry:
        assert moment.branch is not None
        return moment.branch

    def still_at(self, moment: HeadSnapshot, now: HeadSnapshot, manifest: CommitManifest) -> bool:
        """Whether nothing was committed to the branch since. Raises `OtherBranchMoved` if a commit needs another id."""
        if (now.head.fence, now.head.erased) != (moment.head.fence, moment.head.erased):
            return False
        if self._entry(now).manifest_path != self._entry(moment).manifest_path:
            return False
        if manifest.commit_id == moment.next_commit and now.head.commit_id != moment.head.commit_id:
            raise OtherBranchMoved(self.uri, now)
        return True

    @property
    def advises(self) -> bool:  # type: ignore[override]
        """Indices, catalog and schema files follow the first branch alone."""
        return self.branch_id == 0

    def stamped(self, manifest: CommitManifest, merged: int | None) -> CommitManifest:
        return msgspec.structs.replace(manifest, branch_id=self.branch_id,
                                       merged_commit_id=msgspec.UNSET if merged is None else merged)

    def commit_file(self, info: Type, file: DataFile) -> CommitFile:
        return msgspec.structs.replace(super().commit_file(info, file), size=file.size, low=file.low, high=file.high,
                                       deleted=file.deleted)

    def highest(self) -> int:
        return self.moment().head.commit_id

    def lines(self) -> Iterator[S3RepositoryV3]:
        with self.reading():
            seen: set[str | None] = set()
            for one in self._branches():
                if one.collected_at is None and one.manifest_path not in seen:
                    seen.add(one.manifest_path)
                    yield self.on(one.id)

    def kept_branches(self) -> Collection[int]:
        return {one.id for one in self._branches() if one.collected_at is None}

    def unreachable_branches(self) -> Collection[int]:
        from ontolake.ontology.repository.objects.upkeep.branch_garbage import unreachable

        with self.reading():
            return unreachable(self, self.moment())

    # names
    def branch_rows(self) -> list[BranchRow]:
        return [branch_row(one) for one in self._branches() if one.deleted_at is None]

    def _branches(self) -> Sequence[BranchEntry]:
        known = self.sight.look()[0].branches
        return () if known is msgspec.UNSET else known

    def branch_named(self, name: str) -> BranchRow | None:
        if not is_name(name):
            return None
        return next((row for row in self.branch_rows() if row.name == name), None)

    def branch_row(self, id: int) -> BranchRow:
        found = next((one for one in self._branches() if one.id == id), None)
        # One whose rows were collected may be forgotten, and its commits say no more than that they were there.
        return BranchRow(id, f"#{id}", None, 0, 0, False, True, True) if found is None else branch_row(found)

    def tag_rows(self) -> list[TagRow]:
        return tag_rows(self.sight.look()[0])

    def tag_named(self, name: str) -> TagRow | None:
        return next((row for row in self.tag_rows() if row.name == name), None)

    def change_names(self, change: Callable[[Names], T]) -> T:
        for _ in range(_TRIES):
            with self.lock.writing(self.runtime_id, self.moment) as moment, self.sight.at(moment):
                names = HeadNames(self, moment)
                result = change(names)
                head = msgspec.structs.replace(names.head, nonce=new_nonce().decode(), runtime_id=self.runtime_id)
                faults.reach("ontology: names written, not yet durable")
                try:
                    replace(self.access.store, layout.HEAD, layout.compact(head), moment.tag, head.nonce.encode())
                except PreconditionFailed:
                    continue
                faults.reach("ontology: names durable")
                return result
        raise HeadMismatchError(f"others keep committing to {self.uri!r}", hint="try again")

    # lines of commits
    def on(self, branch_id: int) -> S3RepositoryV3:
        """The same store, through the same connection, on another branch, which may be a deleted one."""
        found = self._views.get(branch_id)
        if found is None:
            found = copy.copy(self)
            for name in ("events", "states"):
                vars(found).pop(name, None)
            found.branch_id, found._last, found.advised = branch_id, None, None
            found.executor = Executor(found)
            self._views[branch_id] = found
        return found

    def on_branch(self, name: str) -> S3RepositoryV3:
        row = self.branch_named(name)
        if row is None:
            raise UnknownBranchError(name)
        return self.on(row.id)

    def holding(self, commit: int) -> S3RepositoryV3:
        if not commit:
            return self
        with self.reading():
            moment = self.moment()
            manifest = self.manifest_of(commit)
            if moment.has(manifest):
                return self
            if self.branch_row(manifest.branch).is_collected:
                raise UnknownCommitError(commit)
        return self.on(manifest.branch)

    def manifest_of(self, commit: int) -> CommitManifest:
        """The manifest of a commit, on whichever branch. Raises `UnknownCommitError`."""
        found = self.moment().find(commit)
        if found is None:
            raise UnknownCommitError(commit)
        return found

    def branch_of(self, commit: int) -> int:
        return self.manifest_of(commit).branch

    def in_line(self, branch_id: int, commit: int) -> bool:
        with self.reading():
            entry = self.sight.look()[0].branch(branch_id)
            return entry is not None and entry.sees(self.branch_of(commit), commit)

    def parents(self, commit: int) -> Sequence[int]:
        found = self.moment().find(commit)
        return () if found is None else found.parents

    def commit_before(self, time: datetime, branch_id: int) -> int | None:
        moment = time.astimezone(UTC)
        return next((one.commit_id for one in self.on(branch_id).moment().line()
                     if parse_time(one.created_at) <= moment), None)  # fmt: skip

    def commit(self, id: int) -> Commit[int]:
        last = self._last
        if last is not None and last.commit_id == id and last.manifest is not None:  # a commit never changes
            return last.commit_from(last.manifest)
        with self.reading():
            return self.moment().commit_from(self.manifest_of(id))

    def commit_ids(self) -> Collection[int]:
        return range(1, self.highest() + 1)

    def commit_changes(self, commit_id: int, info: TypeInfo) -> Iterator[RowChange]:
        there = self.holding(commit_id)
        return super().commit_changes(commit_id, info) if there is self else there.commit_changes(commit_id, info)

    # reading
    def run(self, plan: Plan, values: Values) -> Iterator[Row]:
        there = self if values.as_of is None else self.holding(values.as_of)
        return super().run(plan, values) if there is self else there.run(plan, values)

    def run_arrow(self, plan: Plan, values: Values) -> pa.Table:
        there = self if values.as_of is None else self.holding(values.as_of)
        return super().run_arrow(plan, values) if there is self else there.run_arrow(plan, values)

    def splits(self, info: TypeInfo, whole: KeyRange, parts: int | None) -> Sequence[Split]:
        there = self.holding(whole.view.commit)
        return super().splits(info, whole, parts) if there is self else there.splits(info, whole, parts)

    def parquet(self, info: TypeInfo, view: View, columns: Collection[str], longest: int) -> ParquetView | None:
        there = self.holding(view.commit)
        if there is self:
            return super().parquet(info, view, columns, longest)
        return there.parquet(info, view, columns, longest)

    def resolve(self, ref: str | datetime) -> int:
        from ontolake.ontology.history.references import TypedRefs

        with self.reading():
            return TypedRefs(self).resolve(ref).commit

    def beyond_lines(self) -> Sequence[str]:
        from ontolake.ontology.repository.objects.states import state_of

        with self.reading():
            moment = self.moment()
            found = ["branches"] if moment.head.next_branch != 1 else []
            found += ["tags"] if moment.head.tags else []
            for key in sorted(moment.schemas.types):
                kind, name = layout.split_key(key)
                states = [state_of(self, moment, version) for version in moment.versions(kind, name)]
                if any(file.deleted for one in states if one is not None for file in (*one.runs, *one.past)):
                    found.append(f"deleted rows of {name}")
            return [*found, *(f"unique fields of {name}" for (_, name), one in sorted(self.schemas().items())
                              if one.schema.get("unique"))]

    # schemas
    def every_version(self, kind: Kind, name: str) -> Sequence[SchemaVersion]:
        found = {}
        for path in dict.fromkeys(one.schemas for one in self._branches() if one.schemas is not None):
            for one in self.records.schemas(path).types.get(layout.type_key(kind, name), ()):
                found[one.schema_version_id] = SchemaVersion(
                    kind, name, one.schema_version_id, one.schema, one.schema_hash, one.created_at, one.runtime_id,
                    one.reason)
        return [found[number] for number in sorted(found)]

    def every_type(self, kind: Kind) -> Sequence[str]:
        """The names of the types that any branch has or had."""
        paths = dict.fromkeys(one.schemas for one in self._branches() if one.schemas is not None)
        known = [layout.split_key(key) for path in paths for key in self.records.schemas(path).types]
        return sorted({name for of, name in known if of == kind})

    def new_version(self, info: TypeInfo, moment: HeadSnapshot) -> int:
        """One schema has one version, however many branches have it."""
        known = self.every_version(info.kind, info.name)
        version = next((one.schema_version_id for one in known if one.schema_hash == info.schema_hash), None)
        return 1 + max((one.schema_version_id for one in known), default=0) if version is None else version

    # rows
    @cached_property
    def states(self) -> ObjectStates:
        return ObjectStates(self)

    def erasure(self, kind: Kind, name: str, key: Row, *, cascade: bool) -> KeyErasure:
        from ontolake.ontology.repository.objects.erasure import ObjectErasure

        return ObjectErasure(self, kind, name, key, cascade=cascade)

    # checking and looking after
    def gc(self, *, dry_run: bool = True) -> Garbage:
        from ontolake.ontology.repository.objects.upkeep.branch_garbage import collect_branches
        from ontolake.ontology.repository.objects.upkeep.replacements import finish

        if not dry_run:
            finish(self)
        collect_branches(self, dry_run=dry_run)
        return super().gc(dry_run=dry_run)

    def drop_type(self, kind: Kind, name: str, *, at: int | None = None) -> None:
        """Let a type go on every branch, this one last: what is interrupted can be called again.

        The first branch, which all ask for what was dropped, learns of it even if it never had the type.
        """
        key = type_key(kind, name)
        lines = [self.on(row.id) for row in self.branch_rows()]
        having = [one for one in lines if (manifest := one.moment().manifest) is not None and key in manifest.types]
        if having and at in (None, self.head()):
            first = self.on(0)
            if first not in having:
                first.restate(lambda moment: _noted(moment, key))
            for there in having:
                if there is not self:
                    super(S3RepositoryV3, there).drop_type(kind, name)
        if self in having or not having:
            super().drop_type(kind, name, at=at)

    def erasures(self) -> list[ErasureRecord]:
        from ontolake.ontology.repository.objects.upkeep.replacements import known

        return [ErasureRecord(*msgspec.structs.astuple(one)) for one in known(self).notes]

    def note_erasures(self, records: Sequence[ErasureRecord]) -> None:
        from ontolake.ontology.repository.objects.upkeep.replacements import add_notes

        add_notes(self, [ErasureNote(*one) for one in records])

    def stored_history(self, version: SchemaVersion) -> Iterator[Row]:
        from ontolake.ontology.repository.objects.upkeep.checks import stored_history

        for line in self.lines():
            base = line._entry(line.moment()).base_commit_id
            yield from stored_history(line, version, base or None)

    def close(self) -> None:
        self.sight.close()
        super().close()


def _noted(moment: HeadSnapshot, key: str) -> Restated | None:
    """The newest commit of a branch that does not have a type, with a note that the type was dropped."""
    manifest, schemas = moment.manifest, moment.schemas
    if manifest is None or key in schemas.dropped:
        return None
    return Restated(dict(manifest.types), {}, Schemas(schemas.types, (*schemas.dropped, key)), manifest.dropped)
