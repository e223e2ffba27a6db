"""What tables there are: the records of the catalog, and a catalog as it was at one version.

Records are ordinary keys, so the catalog has the same history as the rows, and changes in the same commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import msgspec

from ontolake.decoders import learn
from ontolake.errors import Corruption
from ontolake.sql.catalog.objects import (
    KINDS,
    CatalogObject,
    CommentMeta,
    EnumMeta,
    ForeignKeyMeta,
    SchemaObject,
    ViewMeta,
    entries,
)
from ontolake.sql.errors import LISTING, DefinitionError, UnknownNameError, nearest
from ontolake.sql.keyspace import keys
from ontolake.sql.keyspace.rows import LIVE, decode_row
from ontolake.sql.keyspace.vectors import Wanted
from ontolake.sql.keyspace.versions import Keyspace, KeySpan
from ontolake.sql.types import Stored, Type, array_of


class DatabaseMeta(msgspec.Struct, frozen=True):
    db_id: int
    db_name: str
    owner: str
    created_at: datetime


class SchemaMeta(msgspec.Struct, frozen=True):
    schema_id: int
    db_id: int
    schema_name: str
    created_at: datetime


class Check(msgspec.Struct, frozen=True):
    """A condition that no row may make false."""

    name: str
    sql: str


class TableMeta(msgspec.Struct, frozen=True):
    table_id: int
    db_id: int
    schema_id: int
    table_name: str
    primary_key_column_ids: tuple[int, ...]
    created_at: datetime
    next_column_id: int = 1
    next_index_id: int = 1
    checks: tuple[Check, ...] = ()
    key_name: str = ""
    """What the primary key is called, if not as the table with `_pkey` behind."""


class ColumnMeta(msgspec.Struct, frozen=True, dict=True):
    """A column. `absent` is a row of one column: what older rows read as. A dropped one stays, so that its id does."""

    column_id: int
    table_id: int
    name: str
    logical_type: Type
    nullable: bool
    default_expr: str | None
    ordinal: int
    absent: bytes | None = None
    dropped: bool = False
    origin: str = ""
    """What names a column that was added later on all branches: its id may be another there."""
    counting: str = ""
    """Whether it is an identity column: `always` or `default`, as GENERATED says."""
    generated: str = ""
    """The expression that its values are worked out by, if nobody may give it others."""
    hidden: bool = False
    """Whether it is the key of a table that has none: queries do not show it."""

    @property
    def identity(self) -> str:
        return self.origin or str(self.column_id)

    @cached_property
    def absent_value(self) -> Stored:
        return None if self.absent is None else decode_row([self.logical_type.kind], self.absent)[0]

    @property
    def type(self) -> Type:
        return self.logical_type

    @cached_property
    def wanted(self) -> Wanted:
        return Wanted(self.column_id - 1, self.logical_type, self.absent_value)


def in_order(column: ColumnMeta) -> ColumnMeta:
    """The column, if its values can be in a key or index. Raises `DefinitionError`."""
    if not column.type.has_order:
        raise DefinitionError(f"{column.name} is {column.type}, which has no order for a key or index",
                              sqlstate="42704", hint="use JSONB")
    return column


PUBLIC, WRITE_ONLY, DROPPED = "public", "write-only", "dropped"


class IndexExpression(msgspec.Struct, frozen=True):
    """An expression that an index is on, and its type."""

    sql: str
    type: Type


class IndexMeta(msgspec.Struct, frozen=True):
    """An index. While it is `write-only` it is kept right but not read; a dropped one stays, so that its id does."""

    index_id: int
    table_id: int
    name: str
    column_ids: tuple[int, ...]
    unique: bool
    created_at: datetime
    desc: tuple[bool, ...]
    include_ids: tuple[int, ...] = ()
    state: str = PUBLIC
    constraint: bool = False
    builder: str = ""
    """Which process is building it."""
    expressions: tuple[IndexExpression, ...] = ()
    """What stands in place of columns: in `column_ids` an id below zero, see `virtual_id`, means one of these."""
    predicate: str = ""
    """The condition of the rows that it has, if not all."""

    def numbered(self, index_id: int, column_ids: Iterable[int]) -> IndexMeta:
        """The index with another id and other columns; those of its expressions follow."""
        ids = tuple(id if id > 0 else virtual_id(index_id, -id % _VIRTUAL) for id in column_ids)
        return msgspec.structs.replace(self, index_id=index_id, column_ids=ids)


_VIRTUAL = 100


def virtual_id(index_id: int, number: int) -> int:
    """The id of an expression of an index, counted from 1, where others have ids of columns."""
    return -(index_id * _VIRTUAL + number)


Record = DatabaseMeta | SchemaMeta | TableMeta | ColumnMeta | IndexMeta | CatalogObject

_RECORDS: dict[int, type[Record]] = {
    keys.DATABASE: DatabaseMeta, keys.SCHEMA: SchemaMeta, keys.TABLE: TableMeta, keys.COLUMN: ColumnMeta,
    keys.INDEX: IndexMeta, **KINDS,
}  # fmt: skip
_ADDED: dict[type[Record], tuple[str, ...]] = {
    ColumnMeta: ("counting", "generated", "hidden"), IndexMeta: ("expressions", "predicate"),
}  # fmt: skip
"""Parts of records that came with version 5 of the layout. A record that has none of them is written as before."""
learn(CatalogObject, SchemaObject, *_RECORDS.values())


S = TypeVar("S", bound=SchemaObject)


def now() -> datetime:
    return datetime.now(UTC)


def is_added(record: Record) -> bool:
    """Whether version 4 of the layout cannot hold a record."""
    if isinstance(record, ColumnMeta) and not record.type.is_original:
        return True
    return isinstance(record, CatalogObject) or any(getattr(record, part) for part in _ADDED.get(type(record), ()))


def _encoded(record: Record) -> bytes:
    if isinstance(record, ColumnMeta) and record.type != record.type.plain:
        record = msgspec.structs.replace(record, logical_type=record.type.plain)
    added = _ADDED.get(type(record))
    if not added:
        return LIVE + msgspec.json.encode(record)
    parts: dict[str, Any] = msgspec.to_builtins(record)
    return LIVE + msgspec.json.encode({name: value for name, value in parts.items() if value or name not in added})


def entries_of(record: Record) -> list[tuple[bytes, bytes]]:
    """The keys and values that a record is kept under: itself, and its name where names lead to ids."""
    value = _encoded(record)
    match record:
        case DatabaseMeta():
            return [(keys.meta_key(keys.DATABASE, record.db_id), value),
                    (keys.name_key(keys.DATABASE_NAME, name=record.db_name), _id(record.db_id))]
        case SchemaMeta():
            return [(keys.meta_key(keys.SCHEMA, record.db_id, record.schema_id), value),
                    (keys.name_key(keys.SCHEMA_NAME, record.db_id, name=record.schema_name), _id(record.schema_id))]
        case TableMeta():
            return [(keys.meta_key(keys.TABLE, record.db_id, record.schema_id, record.table_id), value),
                    (keys.name_key(keys.TABLE_NAME, record.db_id, record.schema_id, name=record.table_name),
                     _id(record.table_id))]  # fmt: skip
        case ColumnMeta():
            return [(keys.meta_key(keys.COLUMN, record.table_id, record.column_id), value)]
        case IndexMeta():
            return [(keys.meta_key(keys.INDEX, record.table_id, record.index_id), value)]
        case _:
            return entries(record, value, LIVE)


def _id(number: int) -> bytes:
    return LIVE + number.to_bytes(8, "big")


class EntryParts(NamedTuple):
    """The keys of an index's entries: how they begin, and the types, directions and places of what follows."""

    prefix: bytes
    types: list[Type]
    desc: tuple[bool, ...]
    places: list[int]


class Table:
    """A table as a catalog has it."""

    def __init__(
        self, meta: TableMeta, database: str, schema: str, columns: Iterable[ColumnMeta], indexes: Iterable[IndexMeta],
        parts: Iterable[CatalogObject] = (),
    ) -> None:  # fmt: skip
        self.meta = meta
        self.id = meta.table_id
        self.name = meta.table_name
        self.key_name = meta.key_name or f"{meta.table_name}_pkey"
        self.full_name = f"{database}.{schema}.{meta.table_name}"
        self.all_columns = sorted(columns, key=lambda column: column.column_id)
        """By id, those that were dropped too: a column's place in a row is its place in this list."""
        self.columns = sorted((column for column in self.all_columns if not column.dropped),
                              key=lambda column: column.ordinal)  # fmt: skip
        known = list(indexes)
        self.indexes = [index for index in known if index.state != DROPPED]
        self.dropped_indexes = [index for index in known if index.state == DROPPED]
        self.visible = [column for column in self.columns if not column.hidden]
        """The columns that `*` stands for."""
        self.generated = [column for column in self.columns if column.generated]
        self.by_name = {column.name: column for column in self.columns}
        self.by_id = {column.column_id: column for column in self.all_columns}
        self.place = {column.column_id: number for number, column in enumerate(self.columns)}
        """Where a column stands among the living ones, by its id."""
        self.expressions: dict[str, list[ColumnMeta]] = {}
        """The expressions that indexes are on, as columns that no row holds."""
        for index in known:
            self.know(index)
        self.primary_key = [self.by_id[id] for id in meta.primary_key_column_ids]
        self.key_types = [column.type for column in self.primary_key]
        self.prefix = keys.row_prefix(self.id)
        self.span = KeySpan(self.prefix, keys.after(self.prefix))
        self.kinds = [column.type.kind for column in self.all_columns]
        self.absent = [column.absent_value for column in self.all_columns]
        self.key_places = [self.place[column.column_id] for column in self.primary_key]
        self.places = [self.place.get(column.column_id) for column in self.all_columns]
        """Where the columns by id stand among the living ones; None for those that were dropped."""
        self.is_plain = self.places == list(range(len(self.columns)))
        """Whether the living columns are all there ever were, in that order."""
        self.required = [(self.place[column.column_id], column) for column in self.columns if not column.nullable]
        self._entries: dict[int, tuple[IndexMeta, EntryParts]] = {}
        self.parts = list(parts)
        """Records that go with the table: its foreign keys, comments and sequences."""
        self.foreign_keys = [part for part in self.parts if isinstance(part, ForeignKeyMeta)]
        self.referenced_by: list[ForeignKeyMeta] = []
        """The foreign keys of all tables that are about rows of this one."""
        self.comments = [part for part in self.parts if isinstance(part, CommentMeta)]

    def column(self, name: str, position: int | None = None) -> ColumnMeta:
        """The column of this name. Raises `UnknownNameError`."""
        found = self.by_name.get(name)
        if found is None:
            raise UnknownNameError(f"{self.full_name} has no column {name}", sqlstate="42703", position=position,
                                   hint=nearest(name, self.by_name))  # fmt: skip
        return found

    def entry_parts(self, index: IndexMeta) -> EntryParts:
        """What the entries of an index are made of."""
        known = self._entries.get(index.index_id)
        if known is not None and known[0] is index:  # an index that could not be built may have had the same id
            return known[1]
        ids = (*index.column_ids, *self.meta.primary_key_column_ids)
        desc = (*index.desc, *(False,) * len(self.primary_key))
        found = EntryParts(keys.entry_prefix(self.id, index.index_id), [self.by_id[id].type for id in ids], desc,
                           [self.place[id] for id in ids])  # fmt: skip
        self._entries[index.index_id] = (index, found)
        return found

    def know(self, index: IndexMeta) -> None:
        """Take up the expressions of an index as columns that no row holds."""
        for id in index.column_ids:
            if id < 0:
                part = index.expressions[-id % _VIRTUAL - 1]
                column = ColumnMeta(id, self.id, part.sql, part.type, True, None, 0, hidden=True)
                self.by_id[id] = column
                self.place[id] = len(self.columns) + list(index.column_ids).index(id)
                if all(each.column_id != id for each in self.expressions.setdefault(part.sql, [])):
                    self.expressions[part.sql].append(column)

    def parts_of(self, index: IndexMeta) -> list[str]:
        """What an index is on, for people: names of columns, and expressions."""
        return [self.by_id[id].name for id in index.column_ids]

    def index(self, name: str) -> IndexMeta | None:
        return next((index for index in self.indexes if index.name == name), None)


_SPANS = (KeySpan(keys.META_START, bytes((keys.DATABASE_NAME,))),
          KeySpan(bytes((keys.FIRST_ADDED,)), bytes((keys.NAME,))))  # fmt: skip
"""Where records are. What is between and behind leads from names to ids."""


class SqlCatalog:
    """All databases, schemas, tables and indexes at one version."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.databases: dict[str, DatabaseMeta] = {}
        self.schemas: dict[tuple[int, str], SchemaMeta] = {}
        self.tables: dict[tuple[int, str], Table] = {}
        """By schema id and name."""
        self.by_full_name: dict[str, Table] = {}
        self.by_id: dict[int, Table] = {}
        self.objects: dict[tuple[int, str], SchemaObject] = {}
        """Views, sequences and other things with a name, by schema id and name."""
        self.records: dict[bytes, CatalogObject] = {}
        """All records of kinds that are not databases, schemas, tables, columns or indexes, by key."""

    @classmethod
    def read(cls, keyspace: Keyspace, version: int, at: int | None = None) -> SqlCatalog:
        """The catalog now, or as it was at a version. Raises `Corruption`."""
        found = cls(version)
        records: dict[int, list[Record]] = {family: [] for family in _RECORDS}
        for span in _SPANS:
            for batch in keyspace.scan(span, at, keys=True):
                assert batch.keys is not None
                for key, value in zip(batch.keys.to_list(), batch.values.to_list(), strict=True):
                    kind = _RECORDS.get(key[0])
                    if kind is None:
                        raise Corruption(f"the catalog record {key.hex()} is of a kind that is not known")
                    records[key[0]].append(_decoded(kind, key, value))
        found._fill(records)
        return found

    def _fill(self, records: dict[int, list[Record]]) -> None:
        columns: dict[int, list[ColumnMeta]] = {}
        indexes: dict[int, list[IndexMeta]] = {}
        databases: dict[int, DatabaseMeta] = {}
        schemas: dict[int, SchemaMeta] = {}
        tables: list[TableMeta] = []
        for record in (record for family in sorted(records) for record in records[family]):
            match record:
                case DatabaseMeta():
                    databases[record.db_id] = self.databases[record.db_name] = record
                case SchemaMeta():
                    schemas[record.schema_id] = self.schemas[record.db_id, record.schema_name] = record
                case TableMeta():
                    tables.append(record)
                case ColumnMeta():
                    columns.setdefault(record.table_id, []).append(record)
                case IndexMeta():
                    indexes.setdefault(record.table_id, []).append(record)
                case CatalogObject():
                    self.records[record.key] = record
                    if isinstance(record, SchemaObject):
                        self.objects[record.schema_id, record.name] = record
        parts: dict[int, list[CatalogObject]] = {}
        for part in self.records.values():
            if part.owner_id:
                parts.setdefault(part.owner_id, []).append(part)
        enums = {each.object_id: each.type for each in self.records.values() if isinstance(each, EnumMeta)}
        for id, found in columns.items() if enums else ():
            columns[id] = [_resolved(column, enums) for column in found]
        for meta in tables:
            schema = schemas[meta.schema_id]
            table = Table(meta, databases[meta.db_id].db_name, schema.schema_name, columns.get(meta.table_id, ()),
                          sorted(indexes.get(meta.table_id, ()), key=lambda index: index.index_id),
                          parts.get(meta.table_id, ()))  # fmt: skip
            self.tables[schema.schema_id, meta.table_name] = table
            self.by_full_name[table.full_name] = table
            self.by_id[table.id] = table
        for table in self.by_id.values():
            for foreign in table.foreign_keys:
                if (parent := self.by_id.get(foreign.parent_id)) is not None:
                    parent.referenced_by.append(foreign)

    def database(self, name: str, position: int | None = None) -> DatabaseMeta:
        """The database of this name. Raises `UnknownNameError`."""
        found = self.databases.get(name)
        if found is None:
            raise UnknownNameError(f"there is no database {name}", sqlstate="3D000", position=position,
                                   hint=nearest(name, self.databases))  # fmt: skip
        return found

    def schema(self, database: str, name: str, position: int | None = None) -> SchemaMeta:
        """The schema of this name. Raises `UnknownNameError`."""
        db = self.database(database, position)
        found = self.schemas.get((db.db_id, name))
        if found is None:
            names = [each for (db_id, each) in self.schemas if db_id == db.db_id]
            hint = LISTING if name in ("information_schema", "pg_catalog") else nearest(name, names)
            raise UnknownNameError(f"there is no schema {database}.{name}", sqlstate="3F000", position=position,
                                   hint=hint)  # fmt: skip
        return found

    def table(self, database: str, schema: str, name: str, position: int | None = None) -> Table:
        """The table of this name. Raises `UnknownNameError`."""
        try:
            found = self.tables.get((self.schema(database, schema, position).schema_id, name))
        except UnknownNameError:
            if self.by_full_name or self.databases:
                raise
            found = None  # nothing was ever made here: speak of the table, which is what was asked for
        if found is None:
            wanted, names = f"{database}.{schema}.{name}", self.by_full_name
            close = [each for each in names if each.rsplit(".", 1)[0] == f"{database}.{schema}"]
            hint = nearest(name, [each.rsplit(".", 1)[1] for each in close]) if close else nearest(wanted, names)
            raise UnknownNameError(f"there is no table {wanted}", position=position, hint=hint)
        return found

    def relation(self, schema_id: int, name: str) -> str | None:
        """What a schema has of this name, among all that share its names: tables, views, sequences and indexes."""
        if (schema_id, name) in self.tables:
            return "table"
        object = self.objects.get((schema_id, name))
        if object is not None and object.is_relation:
            return object.what
        for (schema, _), table in self.tables.items():
            if schema == schema_id and (name == table.key_name or table.index(name) is not None):
                return "index"
        return None

    def object(self, kind: type[S], database: str, schema: str, name: str, position: int | None = None) -> S:
        """The view, sequence or other thing of a kind and name. Raises `UnknownNameError`."""
        found = self.objects.get((self.schema(database, schema, position).schema_id, name))
        if not isinstance(found, kind):
            names = [each.name for each in self.objects.values() if isinstance(each, kind)]
            raise UnknownNameError(f"there is no {kind.what} {database}.{schema}.{name}", position=position,
                                   hint=nearest(name, names))  # fmt: skip
        return found

    def object_name(self, object: SchemaObject) -> str:
        """The full name of a thing that a schema holds."""
        database = next(each.db_name for each in self.databases.values() if each.db_id == object.db_id)
        schema = next(each.schema_name for each in self.schemas.values() if each.schema_id == object.schema_id)
        return f"{database}.{schema}.{object.name}"

    def has(self, database: str, schema: str, name: str) -> bool:
        """Whether there is a table of this name."""
        found = self._schema_of(database, schema)
        return found is not None and (found.schema_id, name) in self.tables

    def view(self, database: str, schema: str, name: str) -> ViewMeta | None:
        """The view of this name, if there is one."""
        found = self._schema_of(database, schema) if self.has_views else None
        view = None if found is None else self.objects.get((found.schema_id, name))
        return view if isinstance(view, ViewMeta) else None

    @cached_property
    def has_views(self) -> bool:
        return any(isinstance(each, ViewMeta) for each in self.objects.values())

    def _schema_of(self, database: str, schema: str) -> SchemaMeta | None:
        db = self.databases.get(database)
        return None if db is None else self.schemas.get((db.db_id, schema))

    def default_database(self) -> str:
        """The database that is meant where none is named: `main`, or the only one there is."""
        return next(iter(self.databases)) if len(self.databases) == 1 else "main"

    def find_index(self, name: str, holds: Callable[[Table], bool]) -> tuple[Table, IndexMeta] | None:
        """The index of this name on one of the tables that are meant."""
        for table in self.by_full_name.values():
            if holds(table) and (index := table.index(name)) is not None:
                return table, index
        return None


def _resolved(column: ColumnMeta, enums: Mapping[int, Type]) -> ColumnMeta:
    """A column whose type has the values of its enum."""
    type = column.type
    if type.type_id in enums:
        return msgspec.structs.replace(column, logical_type=enums[type.type_id])
    if type.item is not None and type.item.type_id in enums:
        return msgspec.structs.replace(column, logical_type=array_of(enums[type.item.type_id]))
    return column


def _decoded(kind: type[Record], key: bytes, value: bytes) -> Record:
    try:
        if not value.startswith(LIVE):
            raise msgspec.DecodeError(f"it begins with {value[:2].hex()}")
        return msgspec.json.decode(value[len(LIVE) :], type=kind)
    except msgspec.MsgspecError as error:
        raise Corruption(f"the catalog record {key.hex()} cannot be read: {error}") from error
