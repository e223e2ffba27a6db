"""Erasure in s3/v3: the files that hold a row are written anew without it, and the old ones deleted.

One swap of the head publishes the new files, by an object that says which takes the place of which. Then manifests are
written anew at their places to name them, since they have first and last keys of files, and the old files go. Whatever
of that a crash leaves undone, the next erasure or `gc` does. Commits keep their ids and times.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import UNSET

from ontolake import faults
from ontolake.errors import DurabilityUnconfirmed, Invalid, OntolakeError
from ontolake.history import Garbage
from ontolake.history.erasures import KeyHash
from ontolake.model.stored import StoredType
from ontolake.model.types import Kind
from ontolake.ontology.arrow.physical import COMMIT, ROW, places
from ontolake.ontology.errors import LiveRelationsError, UnknownKeyError
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.deletions import SIDES, keys_of
from ontolake.ontology.repository.objects.files import write_file
from ontolake.ontology.repository.objects.layout import DataFile, ErasureNote
from ontolake.ontology.repository.objects.read.keys import data_file
from ontolake.ontology.repository.objects.upkeep import replacements
from ontolake.ontology.repository.objects.upkeep.checks import manifests
from ontolake.ontology.repository.protocol import Row
from ontolake.ontology.repository.times import now_text

if TYPE_CHECKING:
    from ontolake.ontology.repository.objects.v3 import S3RepositoryV3

Mask = np.ndarray[Any, Any]


class Sought(NamedTuple):
    """Rows of a version of a type that go: those with a key, or with an entity at one of some ends."""

    info: StoredType
    version: int
    key: Row
    sides: Sequence[int] = ()

    @property
    def leading(self) -> Any:
        """The first key that such a row has, if there is only one; else None."""
        return self.key[0] if not self.sides or tuple(self.sides) == (0,) else None

    def rows(self, table: pa.Table) -> Mask:
        """Which rows of a table these are."""
        keys = keys_of(self.info, table)
        if self.sides:
            return np.array([any(key[side] == self.key[0] for side in self.sides) for key in keys], dtype=bool)
        return np.array([key == self.key for key in keys], dtype=bool)


class Holder(NamedTuple):
    """A file that holds rows which go: their commits and numbers, and their keys."""

    file: DataFile
    sought: Sought
    rows: frozenset[tuple[int, int]]
    keys: frozenset[Row]


class ObjectErasure:
    """The erasure of one row: a `KeyErasure`."""

    def __init__(self, repository: S3RepositoryV3, kind: Kind, name: str, key: Row, *, cascade: bool) -> None:
        self._repository = repository
        self._kind, self._name, self._key, self._cascade = kind, name, tuple(key), cascade

    def count(self) -> Garbage:
        """How many rows would go. Raises what `erase` raises."""
        with self._repository.reading():
            return Garbage(_count(self._holders()), 0)

    def erase(self, reason: str, author: str | None) -> Garbage:
        """Remove the rows from every file, note it, and delete the old files.

        Raises `UnknownKeyError` if no commit has the row, `LiveRelationsError` if relations lead or led to it and do
        not go with it, `Invalid` if an event that waits to be handled names it, and `DurabilityUnconfirmed` if the row
        is gone for readers, but not all that held it could be deleted.
        """
        repository = self._repository
        with repository.lock.held(repository.runtime_id):
            replacements.finish(repository)
            with repository.reading():
                holders = self._holders()
            rows = _count(holders)
            told = KeyHash.of(f"{self._kind}/{self._name}", self._key)
            note = ErasureNote(now_text(), author, reason, self._kind, self._name, rows, told.salt, told.hash)
            files = {one.file.path: self._rewritten(one) for one in holders}
            faults.reach("ontology: rows erased")
            replacements.publish(repository, note, files)
            try:
                replacements.finish(repository)
                replacements.sweep(repository, {(one.sought.info.kind, one.sought.info.name) for one in holders})
                replacements.erase_events(repository, self._texts())
            except OntolakeError as error:
                raise DurabilityUnconfirmed(
                    f"{repository.uri!r}: no read shows the row any more, but bytes of it may be left: {error}",
                    hint="onto gc, or the next erasure, deletes them") from error
        return Garbage(rows, 0)

    def _rewritten(self, holder: Holder) -> DataFile | None:
        """The file without the rows; None if none is left."""
        repository, old, sought = self._repository, holder.file, holder.sought
        table = repository.files.table(old)
        table = table.filter(pa.array(~sought.rows(table)))
        if not len(table):
            return None
        path = f"{old.path.removesuffix('.parquet')}-{layout.new_attempt()}.parquet"
        file, data = write_file(sought.info, table, path, old.schema_version_id, level=old.level,
                                updates=min(old.updates, len(table)), replaces=old.replaces, ordered=True,
                                sizes=repository.config.sizes)
        repository.access.write({path: data})
        return file

    # what goes
    def _holders(self) -> list[Holder]:
        own = list(self._held(self._own()))
        if not own:
            raise UnknownKeyError(self._name, self._key if len(self._key) > 1 else self._key[0],
                                  hint="it may have been erased before")
        related = list(self._held(self._related())) if self._kind == "entity" else []
        if related and not self._cascade:
            found = {(one.sought.info.name, key) for one in related for key in one.keys}
            raise LiveRelationsError(self._name, self._key[0], sorted(found), "erase")
        waiting = replacements.naming_events(self._repository, self._texts())
        for item in waiting:
            if item.state.what == "open":
                raise Invalid(f"the event {item.event.id} names the row, and waits to be handled",
                              hint="let it be handled, or drop it with onto events, and erase the row then")
        return own + related

    def _texts(self) -> list[str]:
        return [json.dumps(part, ensure_ascii=False) for part in self._key if isinstance(part, str) and part]

    def _own(self) -> Iterator[Sought]:
        for version in self._repository.every_version(self._kind, self._name):
            info = StoredType(version.schema)
            key = _as_keys(info, self._key)
            if key is not None:
                yield Sought(info, version.schema_version_id, key)

    def _related(self) -> Iterator[Sought]:
        """Relations of all types that lead, or ever led, to the entity."""
        for name in self._repository.every_type("relation"):
            for version in self._repository.every_version("relation", name):
                sides = [number for number, side in enumerate(SIDES) if version.schema.get(side) == self._name]
                if sides:
                    yield Sought(StoredType(version.schema), version.schema_version_id, self._key, sides)

    def _held(self, wanted: Iterator[Sought]) -> Iterator[Holder]:
        sought = {(one.info.kind, one.info.name, one.version): one for one in wanted}
        for (kind, name, version), files in self._files().items():
            one = sought.get((kind, name, version))
            if one is None:
                continue
            for file in files.values():
                found = self._found(one, file)
                if found is not None and len(found):
                    rows = zip(found.column(COMMIT).to_pylist(), found.column(ROW).to_pylist(), strict=True)
                    yield Holder(file, one, frozenset(rows), frozenset(keys_of(one.info, found)))

    def _files(self) -> dict[tuple[Kind, str, int], dict[str, DataFile]]:
        """The files of every version of every type, of all commits that have files, each once."""
        repository = self._repository
        found: dict[tuple[Kind, str, int], dict[str, DataFile]] = {}
        kept = repository.kept_branches()
        for _, manifest in manifests(repository, repository.moment()):
            if manifest.branch not in kept:
                continue
            for key, state in manifest.states.items():
                kind, name = layout.split_key(key)
                for file in (*state.runs, *state.past):
                    found.setdefault((kind, name, file.schema_version_id), {})[file.path] = file
            for one in manifest.files:
                where = found.setdefault((one.kind, one.type_name, one.schema_version_id), {})
                if one.path not in where and one.size is not UNSET:
                    where[one.path] = data_file(one, manifest.commit_id)
        return found

    def _found(self, sought: Sought, file: DataFile) -> pa.Table | None:
        """The rows of a file that go. Reads no file that cannot have any."""
        files, info = self._repository.files, sought.info
        names = [*places(info.keys), COMMIT, ROW]
        if sought.leading is not None:
            if file.low is not None and file.high is not None and not file.low <= sought.leading <= file.high:
                return None
            if file.row_count > files.sizes.small_rows:
                groups = files.groups_of(info, file, [sought.leading])
                if not groups:
                    return None
                table = files.groups(file, groups, names)
            else:
                table = files.table(file, names)
        else:
            table = files.table(file, names)
        return table.filter(pa.array(sought.rows(table)))


def _count(holders: Sequence[Holder]) -> int:
    """How many rows there are, however many files have them."""
    return len({(one.sought.info.name, one.sought.version, row) for one in holders for row in one.rows})


def _as_keys(info: StoredType, key: Row) -> Row | None:
    """A key as a version has it, whose keys may have had other types then; None if it cannot be one."""
    if len(key) != len(info.keys):
        return None
    try:
        return tuple(int(part) if column.sqlite_type == "INTEGER" else str(part)
                     for part, column in zip(key, info.keys, strict=True))
    except ValueError:
        return None
