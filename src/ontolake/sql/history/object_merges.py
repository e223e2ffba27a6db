"""Merging the records of the catalog beside tables, columns and indexes: three-way, by part, whatever their kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ontolake.history import Conflict, ConflictKind, Decisions
from ontolake.sql.catalog.objects import CatalogObject, SchemaObject
from ontolake.sql.catalog.records import DatabaseMeta, SchemaMeta, SqlCatalog, Table, entries_of
from ontolake.sql.history.definitions import Differing, either
from ontolake.sql.transactions import SqlSession, SqlTransaction
from ontolake.sql.write.row_writer import RowWriter

_PLACE = ("db_id", "schema_id", "created_at")


@dataclass
class ObjectChanges:
    """Records that a merge puts, with the schemas that theirs are in, and those that it removes."""

    puts: list[CatalogObject] = field(default_factory=list)
    removed: list[CatalogObject] = field(default_factory=list)
    scopes: list[tuple[DatabaseMeta, SchemaMeta]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.puts or self.removed)


class ObjectMerge:
    """Brings what a side changed in the records of a catalog to another."""

    def __init__(self, base: SqlCatalog, ours: SqlCatalog, theirs: SqlCatalog, decisions: Decisions) -> None:
        self._base, self._ours, self._theirs = base, ours, theirs
        self._decisions = decisions
        self.changes = ObjectChanges()
        self.conflicts: list[Conflict] = []

    def run(self, wanted: Callable[[str], bool]) -> ObjectMerge:
        """Merge the records whose name, or whose table's, is wanted."""
        was, own, new = (_by_origin(catalog) for catalog in (self._base, self._ours, self._theirs))
        for origin in {**own, **new}:
            states = was.get(origin), own.get(origin), new.get(origin)
            found = next(record for record in reversed(states) if record is not None)
            if wanted(self._name(found)) and not _is_same(states[0], states[2]):
                self._merge(*states)
        return self

    def _merge(self, base: CatalogObject | None, ours: CatalogObject | None, theirs: CatalogObject | None) -> None:
        if _is_same(ours, theirs):
            return
        try:
            merged = _combined(base, ours, theirs)
        except Differing as error:
            side = self._side((base, ours, theirs), str(error))
            if side != "theirs":
                return
            merged = theirs
        if merged is None:
            assert ours is not None
            self.changes.removed.append(ours)
            return
        if isinstance(merged, SchemaObject) and (ours is None or merged.name != _name_of(ours)):
            schema = self._own_schema(merged)
            other = self._ours.objects.get((schema, merged.name))
            if (what := self._ours.relation(schema, merged.name)) is not None or other is not None:
                side = self._side((base, other, theirs), f"the target has another {what or 'thing'} of this name")
                if side != "theirs" or other is None:
                    return
                self.changes.removed.append(other)
        if ours is not None and ours.key != merged.key:
            self.changes.removed.append(ours)
        self.changes.puts.append(merged)
        if isinstance(merged, SchemaObject):
            self.changes.scopes += _scope(self._theirs, merged)

    def _own_schema(self, object: SchemaObject) -> int:
        """The id that the schema of one of their objects has here."""
        for database, schema in _scope(self._theirs, object):
            known = self._ours.databases.get(database.db_name)
            found = None if known is None else self._ours.schemas.get((known.db_id, schema.schema_name))
            if found is not None:
                return found.schema_id
        return object.schema_id

    def _side(self, states: tuple[CatalogObject | None, ...], why: str) -> str | None:
        found = next(record for record in reversed(states) if record is not None)
        base, ours, theirs = (None if record is None else record.definition() for record in states)
        conflict = Conflict(self._name(found), None, ConflictKind.SCHEMA, None, base, ours, theirs,
                            f"{found.what}: {why}")
        side = self._decisions.side(conflict)
        if side is None:
            self.conflicts.append(conflict)
        return side

    def _name(self, record: CatalogObject) -> str:
        """The full name of a thing, or of what it goes with."""
        for catalog in (self._theirs, self._ours, self._base):
            if isinstance(record, SchemaObject) and record.key in catalog.records:
                return catalog.object_name(record)
            if (table := catalog.by_id.get(record.owner_id)) is not None:
                return table.full_name
            for each in catalog.objects.values():
                if each.object_id == record.owner_id:
                    return catalog.object_name(each)
        return record.what


def _by_origin(catalog: SqlCatalog) -> dict[Any, CatalogObject]:
    return {record.origin: record for record in catalog.records.values()}


def _name_of(record: CatalogObject) -> str:
    return record.name if isinstance(record, SchemaObject) else ""


def _is_same(one: CatalogObject | None, other: CatalogObject | None) -> bool:
    if one is None or other is None:
        return one is other
    return _compared(one) == _compared(other)


def _compared(record: CatalogObject) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__ if name not in _PLACE}


def _combined(
    base: CatalogObject | None, ours: CatalogObject | None, theirs: CatalogObject | None
) -> CatalogObject | None:  # fmt: skip
    """The record with the changes of both sides. Raises `Differing`."""
    if base is None or ours is None or theirs is None:
        if _is_same(base, ours):
            return theirs
        raise Differing("both sides changed it, or one removed what the other changed")
    parts = [_compared(record) for record in (base, ours, theirs)]
    return msgspec.structs.replace(ours, **{
        name: either(name, *(part[name] for part in parts)) for name in parts[1]})  # fmt: skip


def _scope(catalog: SqlCatalog, object: SchemaObject) -> list[tuple[DatabaseMeta, SchemaMeta]]:
    return [(database, schema) for database in catalog.databases.values() if database.db_id == object.db_id
            for schema in catalog.schemas.values() if schema.schema_id == object.schema_id]  # fmt: skip


def write(
    session: SqlSession, transaction: SqlTransaction, changes: ObjectChanges, theirs: Mapping[int, Table]
) -> None:  # fmt: skip
    """Write what a merge does to records, once its tables are written. `theirs` are the tables of the source."""
    writer = RowWriter(session.keyspace, transaction)
    gone = [key for record in changes.removed for key, _ in entries_of(record)]
    there = session.keyspace.get_many(gone)
    writer.define([], [key for key in gone if key in there])
    places: dict[int, tuple[int, int]] = {}
    for database, schema in changes.scopes:
        catalog = session.fresh_catalog(transaction)
        if database.db_name not in catalog.databases:
            writer.define([database])
        own = session.fresh_catalog(transaction).databases[database.db_name]
        if (own.db_id, schema.schema_name) not in catalog.schemas:
            writer.define([msgspec.structs.replace(schema, db_id=own.db_id)])
        found = session.fresh_catalog(transaction).schemas[own.db_id, schema.schema_name]
        places[schema.schema_id] = own.db_id, found.schema_id
    catalog = session.fresh_catalog(transaction)

    def column_id(table: int, column: int) -> int:
        """The id here of a column that the source knows by another."""
        source, target = theirs.get(table), catalog.by_id[table]
        if source is None or column not in source.by_id:
            return target.by_id[column].column_id
        wanted = source.by_id[column]
        same = next((each for each in target.all_columns if each.identity == wanted.identity), None)
        return (same or target.by_name[wanted.name]).column_id

    kept: list[CatalogObject] = []
    for record in changes.puts:
        try:
            placed = record.with_columns(column_id)
        except KeyError:
            continue  # its table or column is not here
        if isinstance(placed, SchemaObject) and placed.schema_id in places:
            db_id, schema_id = places[placed.schema_id]
            placed = msgspec.structs.replace(placed, db_id=db_id, schema_id=schema_id)
        kept.append(placed)
    writer.define(kept)
