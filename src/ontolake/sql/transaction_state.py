"""What an open transaction has read and written, and what it has to see to before it commits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ontolake.sql.catalog.records import SqlCatalog, Table
from ontolake.sql.keyspace.read_set import ReadSet
from ontolake.sql.keyspace.vectors import Strings
from ontolake.sql.write.pending import Position, Reference

if TYPE_CHECKING:
    from ontolake.sql.write.rows import Rows


class SqlTransaction:
    """What a transaction has done so far."""

    def __init__(self, version: int, began_with: int) -> None:
        self.version = version
        """The version that it writes at. A private one gets another when it commits."""
        self.snapshot = version - 1
        """The version that it reads, besides its own writes."""
        self.moment = time.time_ns() // 1000
        """When it began, in microseconds since 1970."""
        self.began_with = began_with
        """The version of the catalog before it."""
        self.touched: list[Sequence[bytes] | Strings] = []
        """The keys of rows and catalog records that it wrote."""
        self.reads = ReadSet()
        """What it has read, if it is private and may write."""
        self.statements: list[str] = []
        self.metadata: dict[str, Any] = {}
        """What its commit says of itself."""
        self.message: str | None = None
        self.author: str | None = None
        self.merged: tuple[int, int] | None = None
        """The second parent of a merge: its line and version."""
        self.is_exempt = False
        """Whether it may change a protected branch."""
        self.is_readonly = False
        self.is_private = False
        """Whether it writes to a level of its own, and keeps nobody from writing."""
        self.failed = False
        """Whether a statement has failed, so that only ROLLBACK is left."""
        self.ddl = False
        self.is_extended = False
        """Whether it has written what older versions cannot read."""
        self.dirty = False
        """Whether it has written anything."""
        self.catalog: SqlCatalog | None = None
        self.loaded: dict[int, tuple[Table, Strings, Sequence[pa.Array]]] = {}
        """The keys and columns that it has loaded into empty tables, by the ids of the tables, for the column cache."""
        self.sequences: dict[int, Position] = {}
        """Where the sequences stand that it has used."""
        self.references: list[Reference] = []
        """What it has done to rows that foreign keys are about."""
        self.deferred: dict[str, bool] = {}
        """What SET CONSTRAINTS has said, by name; '' stands for all."""

    def touch(self, keys: Sequence[bytes] | Strings) -> None:
        self.dirty = True
        if len(keys):
            self.touched.append(keys)

    def take_over(self, other: SqlTransaction) -> None:
        """Become the commit of what another one has done."""
        self.touched, self.statements, self.metadata = other.touched, other.statements, other.metadata
        self.message, self.author, self.ddl, self.dirty = other.message, other.author, other.ddl, other.dirty
        self.merged, self.is_exempt = other.merged, other.is_exempt
        self.sequences, self.is_extended = other.sequences, other.is_extended

    def refer(self, table: Table, old: Rows | None, new: Rows | None) -> None:
        """Note rows that were written, if foreign keys are about them."""
        if (table.foreign_keys and new is not None) or (table.referenced_by and old is not None):
            self.references.append(Reference(old, new))
