"""Writing what a merge does to a table: definition, rows and index entries, in the transaction of its commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from ontolake.history import Counts
from ontolake.sql.catalog.records import DatabaseMeta, IndexMeta, Record, SchemaMeta, Table, entries_of
from ontolake.sql.history.row_merges import TableChanges
from ontolake.sql.keyspace import keys
from ontolake.sql.keyspace.versions import KeySpan
from ontolake.sql.transactions import SqlSession, SqlTransaction
from ontolake.sql.write import index_builds
from ontolake.sql.write.row_writer import RowWriter
from ontolake.sql.write.rows import Rows, decoded


@dataclass
class TablePlan:
    """What becomes of a table. `added` has all rows of one that is new to the target."""

    table: Table
    records: Sequence[Record] = ()
    fill: Sequence[IndexMeta] = ()
    changes: TableChanges = field(default_factory=TableChanges)
    counts: Counts = field(default_factory=Counts)
    added: Sequence[tuple[bytes, bytes]] | None = None
    replaced: Table | None = None
    """A table of the same name that makes room for it."""
    is_dropped: bool = False
    differing: Sequence[bytes] = ()
    """The keys of rows that the source has and the target has not as they are, as far as they were compared."""

    @property
    def leaves_out(self) -> bool:
        """Whether a row that differs from that of the source stays as it is."""
        puts = self.changes.puts
        written = set(self.changes.deletes)
        if self.differing and puts is not None and puts.num_rows:
            columns = [puts.column(column.name).combine_chunks() for column in self.table.columns]
            written.update(Rows(self.table, columns=columns).keys())
        return not written.issuperset(self.differing)

    @property
    def has_changes(self) -> bool:
        return bool(self.records or self.fill or self.is_dropped or self.added is not None
                    or not self.changes.is_empty)  # fmt: skip


def written(session: SqlSession, transaction: SqlTransaction, plan: TablePlan) -> None:
    """Do what a plan says."""
    writer = RowWriter(session.keyspace, transaction)
    if plan.is_dropped:
        _remove(session, writer, plan.table)
        return
    if plan.added is not None:
        _add(session, transaction, writer, plan)
        return
    if plan.records:
        was = session.fresh_catalog(transaction).by_id[plan.table.id]
        names = [] if was.name == plan.table.name else [entries_of(was.meta)[1][0]]
        writer.define(plan.records, names)
    _change(session, writer, plan.table, plan.changes)
    for index in plan.fill:
        index_builds.fill_all(session, transaction, plan.table, index)
        writer.define([index])


def _remove(session: SqlSession, writer: RowWriter, table: Table) -> None:
    found = [key for key, _ in entries_of(table.meta)]
    there = session.keyspace.get_many(found)
    writer.records([], [key for key in found if key in there])


def _add(session: SqlSession, transaction: SqlTransaction, writer: RowWriter, plan: TablePlan) -> None:
    """Define a table and put its rows. What an earlier table of this id has left behind goes first."""
    assert plan.added is not None
    if plan.replaced is not None:
        _remove(session, writer, plan.replaced)
    table = plan.table
    for family in (keys.ROW, keys.ENTRY):
        prefix = keys.meta_key(family, table.id)
        left = [key for batch in session.keyspace.scan(KeySpan(prefix, keys.after(prefix)), keys=True)
                if batch.keys is not None for key in batch.keys.to_list()]  # fmt: skip
        session.keyspace.delete(transaction.version, left)
    catalog = session.fresh_catalog(transaction)
    meta = table.meta
    database, schema, _ = table.full_name.split(".", 2)
    for record in plan.records:
        if isinstance(record, SchemaMeta):
            known = catalog.schemas.get((meta.db_id, record.schema_name))
            if known is None:
                writer.define([msgspec.structs.replace(record, db_id=meta.db_id)])
            else:
                meta = msgspec.structs.replace(meta, schema_id=known.schema_id)
        elif isinstance(record, DatabaseMeta) and record.db_name in catalog.databases:
            meta = msgspec.structs.replace(meta, db_id=catalog.databases[record.db_name].db_id)
        else:
            writer.define([record])
    parts: list[Record] = [*table.all_columns, *table.indexes, *table.dropped_indexes, meta]
    writer.define(parts)
    table = Table(meta, database, schema, table.all_columns, [*table.indexes, *table.dropped_indexes])
    for begin in range(0, len(plan.added), index_builds.PAGE):
        writer.insert(decoded(table, [value for _, value in plan.added[begin : begin + index_builds.PAGE]]))


def _change(session: SqlSession, writer: RowWriter, table: Table, changes: TableChanges) -> None:
    keyspace = session.keyspace
    if changes.deletes:
        there = keyspace.get_many(changes.deletes)
        writer.delete(decoded(table, list(there.values())))
    if changes.puts is None or not changes.puts.num_rows:
        return
    rows = Rows(table, columns=[changes.puts.column(column.name).combine_chunks() for column in table.columns])
    found = rows.keys()
    there = keyspace.get_many(found)
    known = [n for n, key in enumerate(found) if key in there]
    new = [n for n, key in enumerate(found) if key not in there]
    if known:
        writer.update(decoded(table, [there[found[n]] for n in known]), rows.take(known))
    if new:
        writer.insert(rows.take(new))
