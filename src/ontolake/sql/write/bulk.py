"""Bulk loads: whole columns are encoded at once, sorted by key, and written with their index entries in that order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import apsw
import pyarrow as pa
import pyarrow.compute as pc

from ontolake import faults
from ontolake.sql.catalog.coercion import READ_FROM_TEXT, coerced
from ontolake.sql.catalog.records import IndexMeta, Table
from ontolake.sql.errors import TypeMismatchError
from ontolake.sql.keyspace import keys, vectors
from ontolake.sql.keyspace.batches import ahead
from ontolake.sql.keyspace.vectors import Strings
from ontolake.sql.keyspace.versions import KeySpan
from ontolake.sql.write import defaults, sorted_runs
from ontolake.sql.write.row_writer import RowWriter
from ontolake.sql.write.rows import Rows, checked_keys, checked_strings, decoded, duplicate, unique_violation
from ontolake.sql.write.sequences import Numbers

if TYPE_CHECKING:
    from ontolake.sql.transactions import SqlSession, SqlTransaction

_KEPT = 8192
"""Rows from which on the columns of a first load are kept for queries: fewer are quickly read."""
_PIECE = 65536
"""Rows that are encoded and written at once."""


def load(
    session: SqlSession, transaction: SqlTransaction, table: Table,
    data: pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch],
) -> int:  # fmt: skip
    """Insert Arrow rows into a table. Returns how many. Raises what INSERT raises."""
    return load_rows(session, transaction,
                     Rows(table, columns=_columns(table, _as_table(data), Numbers(session, transaction))))  # fmt: skip


def load_rows(session: SqlSession, transaction: SqlTransaction, rows: Rows) -> int:
    """Insert rows that are worked out. Returns how many. Raises what INSERT raises."""
    table = rows.table
    if not len(rows):
        return 0
    if rows.few:
        RowWriter(session.keyspace, transaction).insert(rows)
        return len(rows)
    rows.complete().check()
    found, rows = _sorted(checked_strings(table, rows.key_strings()), rows)
    is_first = not session.keyspace.estimate(table.span, 1)
    _insert(session, transaction, rows, found)
    faults.reach("sql: rows written")
    transaction.touch(found)
    for index in table.indexes:
        _load_index(session, transaction, rows, index)
        faults.reach("sql: index written")
    transaction.refer(table, None, rows)
    if is_first and len(rows) >= _KEPT:
        transaction.loaded[table.id] = (table, found, rows.columns)
    else:
        transaction.loaded.pop(table.id, None)
    return len(rows)


def upsert(session: SqlSession, transaction: SqlTransaction, table: Table, data: pa.Table) -> int:
    """Insert Arrow rows whose keys are new, and change those that differ. Returns how many were written.

    Raises what INSERT and UPDATE raise, and `UniqueError` if a key comes twice.
    """
    rows = Rows(table, columns=_columns(table, data, Numbers(session, transaction)))
    if not len(rows):
        return 0
    keyspace = session.keyspace
    rows.complete().check()
    found = rows.key_strings()
    if len(rows) > 1:
        found, rows = _sorted(found, rows)
    if not keyspace.count(table.span, 1):
        return load(session, transaction, table, rows.arrow())
    written = checked_keys(table, found.to_list())
    there = keyspace.get_many(written)
    new = [n for n, key in enumerate(written) if key not in there]
    known = [n for n, key in enumerate(written) if key in there]
    count = load(session, transaction, table, rows.take(new).arrow())
    old, now = decoded(table, [there[written[n]] for n in known]), rows.take(known)
    pairs = zip(old.encoded(), now.encoded(), strict=True) if known else ()
    changed = [n for n, (before, after) in enumerate(pairs) if before != after]
    RowWriter(keyspace, transaction).update(old.take(changed), now.take(changed))
    return count + len(changed)


def delete(session: SqlSession, transaction: SqlTransaction, table: Table, keys: pa.Table) -> int:
    """Delete rows by the columns of the primary key. Returns how many were there."""
    given = [coerced(column, keys.column(column.name), lenient=column.type.kind in READ_FROM_TEXT)
             for column in table.primary_key]  # fmt: skip
    wanted = vectors.encode_keys(table.prefix, table.key_types, given).to_list()
    there = session.keyspace.get_many(wanted)
    RowWriter(session.keyspace, transaction).delete(decoded(table, [there[key] for key in sorted(there)]))
    return len(there)


def _as_table(data: pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch]) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        return pa.Table.from_batches(data)
    except (TypeError, ValueError) as error:
        raise TypeMismatchError(f"a bulk load takes Arrow data, not {type(data).__name__}: {error}",
                                hint="give a pyarrow Table, RecordBatch or an iterable of batches") from error


def _columns(table: Table, data: pa.Table, numbers: Numbers) -> list[pa.Array]:
    """The columns of a table from those that are given, by name. Raises `DefinitionError` for one that is generated."""
    if len(set(data.column_names)) != data.num_columns:
        raise TypeMismatchError("two columns have one name", sqlstate="42701")
    for name in data.column_names:
        defaults.check_given(table.column(name))
    return [coerced(column, data.column(column.name), lenient=column.type.kind in READ_FROM_TEXT)
            if column.name in data.column_names else defaults.values(column, data.num_rows, numbers)
            for column in table.columns]  # fmt: skip


def _sorted(found: Strings, rows: Rows) -> tuple[Strings, Rows]:
    """Keys and rows in the order of the keys. Raises `UniqueError` if a key comes twice."""
    places = sorted_runs.order(found)
    if places is not None:
        found = sorted_runs.taken(found, places)
        rows = Rows(rows.table, columns=[column.take(pa.array(places)) for column in rows.columns])
    column = vectors.as_arrow(found)
    same = pc.equal(column[1:], column[:-1])
    if pc.any(same).as_py():
        raise duplicate(rows, int(same.index(True).as_py()) + 1)
    return found, rows


def _insert(session: SqlSession, transaction: SqlTransaction, rows: Rows, found: Strings) -> None:
    """Write sorted rows. The next ones are encoded while SQLite writes some."""
    keyspace = session.keyspace
    keyspace.revive(transaction.version, found)
    pieces = [rows.slice(begin, min(begin + _PIECE, len(rows))) for begin in range(0, len(rows), _PIECE)]
    begin = 0
    try:
        for values in ahead(each.value_strings for each in pieces):
            end = begin + len(values)
            keyspace.insert_strings(transaction.version, found.slice(begin, end), values)
            begin = end
    except apsw.ConstraintError as error:
        listed = found.to_list()
        taken = set(keyspace.get_many(listed, transaction.version - 1)) or set(listed[:1])
        number = next(n for n, key in enumerate(listed) if key in taken)
        raise duplicate(rows, number) from error


def _load_index(session: SqlSession, transaction: SqlTransaction, rows: Rows, index: IndexMeta) -> None:
    keyspace = session.keyspace
    if index.unique:
        _check_unique(session, rows, index)
    entries = rows.entry_set(index).sorted()
    keyspace.revive(transaction.version, entries.keys)
    keyspace.insert_strings(transaction.version, entries.keys, entries.values)


def _check_unique(session: SqlSession, rows: Rows, index: IndexMeta) -> None:
    """Raise `UniqueError` if rows break a unique index, among themselves or with what is there."""
    rows = rows.indexed(index)
    table = rows.table
    columns = [rows.columns[table.place[id]] for id in index.column_ids]
    whole = pc.is_valid(columns[0])
    for column in columns[1:]:
        whole = pc.and_(whole, pc.is_valid(column))
    columns = [column.filter(whole) for column in columns]
    types = [table.by_id[id].type for id in index.column_ids]
    prefix = keys.entry_prefix(table.id, index.index_id)
    found = vectors.encode_keys(prefix, types, columns, index.desc).to_list()
    doubled = len(set(found)) != len(found)
    if not doubled and not session.keyspace.count(KeySpan(prefix, keys.after(prefix)), 1):
        return
    seen: set[bytes] = set()
    for begin in found:
        if begin in seen or session.keyspace.count(KeySpan(begin, keys.after(begin)), 1):
            raise unique_violation(table, index, begin)
        seen.add(begin)
