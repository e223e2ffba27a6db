"""Records of the catalog beside databases, schemas, tables, columns and indexes, each kind under a prefix of its own.

A new kind is a class here and a line in `KINDS`: reading, writing, branches, merges and changes go by the methods of
`CatalogObject`, not by the kind. What has a name in a schema is a `SchemaObject`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Self

import msgspec

from ontolake.sql.keyspace import keys
from ontolake.sql.types import Kind, Type

ColumnIds = Callable[[int, int], int]
"""The id that a column, by the ids of its table and its own, has on another branch. Raises `KeyError`."""


class CatalogObject(msgspec.Struct, frozen=True, kw_only=True):
    """A record under its own key."""

    family: ClassVar[int]
    what: ClassVar[str]
    """What people call such a thing."""

    @property
    def ids(self) -> tuple[int, ...]:
        """What the key is made of, behind the prefix."""
        return ()

    @property
    def key(self) -> bytes:
        """The key of the record."""
        return keys.meta_key(self.family, *self.ids)

    @property
    def origin(self) -> tuple[int, ...] | bytes:
        """What it is known by on all branches. Its key may differ: a schema of one name may have two ids."""
        return self.key

    @property
    def owner_id(self) -> int:
        """The id of the table or object that the record goes with; 0 for one that stands alone."""
        return 0

    def with_columns(self, ids: ColumnIds) -> Self:
        """The record with the ids that columns have on another branch. Raises `KeyError` for one that is not there."""
        return self

    def definition(self) -> dict[str, Any]:
        """What it is, for people and for comparing: without ids and times."""
        left_out = ("created_at",)
        return {name: value for name, value in msgspec.to_builtins(self).items()
                if not name.endswith(("_id", "_ids")) and name not in left_out}  # fmt: skip


class SchemaObject(CatalogObject, frozen=True, kw_only=True):
    """Something that has a name in a schema. Ids come from the counter of tables, so that no two things share one."""

    object_id: int
    db_id: int
    schema_id: int
    name: str
    created_at: datetime

    is_relation: ClassVar[bool] = True
    """Whether its name cannot be that of a table or index of the schema."""

    @property
    def ids(self) -> tuple[int, ...]:
        return self.db_id, self.schema_id, self.object_id

    @property
    def origin(self) -> tuple[int, ...] | bytes:
        return self.family, self.object_id


class SequenceMeta(SchemaObject, frozen=True, kw_only=True):
    """A sequence of numbers. Where it stands is kept apart, under a key of its own."""

    family = keys.SEQUENCE
    what = "sequence"

    bits: int = 64
    start: int = 1
    increment: int = 1
    least: int = 1
    greatest: int = 2**63 - 1
    cache: int = 1
    cycle: bool = False
    table_id: int = 0
    """The table that it goes with, and the column."""
    column_id: int = 0
    internal: bool = False
    """Whether it is part of an identity column."""

    @property
    def owner_id(self) -> int:
        return self.table_id

    def with_columns(self, ids: ColumnIds) -> Self:
        if not self.table_id:
            return self
        return msgspec.structs.replace(self, column_id=ids(self.table_id, self.column_id))


class ViewMeta(SchemaObject, frozen=True, kw_only=True):
    """A query under a name. Tables in it have full names, and its columns are those that it had when it was made."""

    family = keys.VIEW
    what = "view"

    sql: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    """The Arrow types of the columns."""


class CommentMeta(CatalogObject, frozen=True, kw_only=True):
    """What people say of a thing: of a table or an object by its id, or of a part of it by its number or name."""

    family = keys.COMMENT
    what = "comment"

    object_id: int
    kind: str
    """Of what: `table`, `column`, `index`, `constraint`, `sequence`, …"""
    part_id: int = 0
    part: str = ""
    text: str

    @property
    def key(self) -> bytes:
        return keys.name_key(self.family, self.object_id, self.part_id, name=f"{self.kind} {self.part}")

    @property
    def owner_id(self) -> int:
        return self.object_id

    def with_columns(self, ids: ColumnIds) -> Self:
        if self.kind != "column":
            return self
        return msgspec.structs.replace(self, part_id=ids(self.object_id, self.part_id))


class ForeignKeyMeta(CatalogObject, frozen=True, kw_only=True):
    """A rule that rows of a table name rows of another, or are NULL there."""

    family = keys.FOREIGN_KEY
    what = "foreign key"

    object_id: int
    table_id: int
    name: str
    column_ids: tuple[int, ...]
    parent_id: int
    parent_column_ids: tuple[int, ...]
    on_delete: str = "NO ACTION"
    on_update: str = "NO ACTION"
    set_ids: tuple[int, ...] = ()
    """Which columns SET NULL and SET DEFAULT are about, if not all."""
    full: bool = False
    """Whether it is MATCH FULL: all columns are NULL, or none is."""
    deferrable: bool = False
    deferred: bool = False
    created_at: datetime

    @property
    def ids(self) -> tuple[int, ...]:
        return self.table_id, self.object_id

    @property
    def owner_id(self) -> int:
        return self.table_id

    def with_columns(self, ids: ColumnIds) -> Self:
        return msgspec.structs.replace(
            self, column_ids=tuple(ids(self.table_id, id) for id in self.column_ids),
            set_ids=tuple(ids(self.table_id, id) for id in self.set_ids),
            parent_column_ids=tuple(ids(self.parent_id, id) for id in self.parent_column_ids))


class EnumMeta(SchemaObject, frozen=True, kw_only=True):
    """An enum: its values in their order, each with the number that stands for it in keys and rows."""

    family = keys.USER_TYPE
    what = "type"

    labels: tuple[tuple[str, float], ...]

    @property
    def type(self) -> Type:
        """The type of columns."""
        return Type(Kind.ENUM, type_id=self.object_id, name=self.name, labels=self.labels)


KINDS: Mapping[int, type[CatalogObject]] = {
    kind.family: kind for kind in (SequenceMeta, ViewMeta, CommentMeta, ForeignKeyMeta, EnumMeta)
}  # fmt: skip
"""The kinds of records, by the first byte of their keys."""


def entries(record: CatalogObject, value: bytes, live: bytes) -> list[tuple[bytes, bytes]]:
    """The keys and values that a record is kept under: itself, and its name if that leads to it."""
    found = [(record.key, value)]
    if isinstance(record, SchemaObject):
        name = keys.name_key(keys.NAME, record.db_id, record.schema_id, name=f"{record.what} {record.name}")
        found.append((name, live + bytes((record.family,)) + record.object_id.to_bytes(8, "big")))
    return found
