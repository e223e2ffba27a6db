"""Bulk loads: whole columns are encoded at once, sorted by key, and written with their index entries in that order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import apsw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontolake import faults
from ontolake.sql.catalog.coercion import coerced
from ontolake.sql.catalog.records import IndexMeta, Table
from ontolake.sql.errors import TypeMismatchError, UniqueError
from ontolake.sql.keyspace import keys, vectors
from ontolake.sql.keyspace.vectors import Strings
from ontolake.sql.keyspace.versions import KeySpan
from ontolake.sql.write import defaults
from ontolake.sql.write.rows import Rows, RowWriter, checked_keys, decoded, duplicate

if TYPE_CHECKING:
    from ontolake.sql.transactions import SqlSession, SqlTransaction


def load(
    session: SqlSession, transaction: SqlTransaction, table: Table,
    data: pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch],
) -> int:  # fmt: skip
    """Insert Arrow rows into a table. Returns how many. Raises what INSERT raises."""
    rows = Rows(table, columns=_columns(table, _as_table(data)))
    if not len(rows):
        return 0
    if rows.few:
        RowWriter(session.keyspace, transaction).insert(rows)
        return len(rows)
    rows.check()
    found, rows = _sorted(rows.key_strings(), rows)
    written = checked_keys(table, found.to_list())
    _insert(session, transaction, rows, written, rows.values())
    faults.reach("sql: rows written")
    transaction.touch(found)
    for index in table.indexes:
        _load_index(session, transaction, rows, index)
        faults.reach("sql: index written")
    return len(rows)


def upsert(session: SqlSession, transaction: SqlTransaction, table: Table, data: pa.Table) -> int:
    """Insert Arrow rows whose keys are new, and change those that differ. Returns how many were written.

    Raises what INSERT and UPDATE raise, and `UniqueError` if a key comes twice.
    """
    rows = Rows(table, columns=_columns(table, data))
    if not len(rows):
        return 0
    keyspace = session.keyspace
    rows.check()
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


def _columns(table: Table, data: pa.Table) -> list[pa.Array]:
    """The columns of a table from those that are given, by name."""
    if len(set(data.column_names)) != data.num_columns:
        raise TypeMismatchError("two columns have one name", sqlstate="42701")
    for name in data.column_names:
        table.column(name)
    return [coerced(column, data.column(column.name)) if column.name in data.column_names
            else defaults.values(column, data.num_rows) for column in table.columns]  # fmt: skip


def _sorted(found: Strings, rows: Rows) -> tuple[Strings, Rows]:
    """Keys and rows in the order of the keys. Raises `UniqueError` if a key comes twice."""
    order = _order(found)
    if order is not None:
        found = _taken(found, order)
        rows = Rows(rows.table, columns=[column.take(pa.array(order)) for column in rows.columns])
    column = vectors.as_arrow(found)
    same = pc.equal(column[1:], column[:-1])
    if pc.any(same).as_py():
        raise duplicate(rows, int(same.index(True).as_py()) + 1)
    return found, rows


def _order(found: Strings) -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
    """Where keys stand once they are sorted; None if they are."""
    column = vectors.as_arrow(found)
    if len(found) < 2 or pc.all(pc.less_equal(column[:-1], column[1:])).as_py():
        return None
    width = int(found.offsets[1] - found.offsets[0])
    if (np.diff(found.offsets) == width).all():
        begin = int(found.offsets[0])
        block = found.data[begin : begin + len(found) * width].reshape(len(found), width)
        padded = np.zeros((len(found), -(-width // 8) * 8), np.uint8)
        padded[:, :width] = block
        words = padded.view(">u8").astype(np.uint64)
        varying = [words[:, n] for n in range(words.shape[1]) if (words[:, n] != words[0, n]).any()]
        return np.lexsort(varying[::-1]).astype(np.int64)
    order: np.ndarray[tuple[int], np.dtype[np.int64]] = pc.array_sort_indices(column).to_numpy().astype(np.int64)
    return order


def _taken(found: Strings, order: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Strings:
    return vectors.from_arrow(vectors.as_arrow(found).take(pa.array(order)))


def _insert(
    session: SqlSession, transaction: SqlTransaction, rows: Rows, found: list[bytes], values: list[bytes]
) -> None:
    keyspace = session.keyspace
    keyspace.revive(transaction.version, found)
    try:
        keyspace.insert(transaction.version, zip(found, values, strict=True))
    except apsw.ConstraintError as error:
        taken = set(keyspace.get_many(found, transaction.version - 1)) or set(found[:1])
        number = next(n for n, key in enumerate(found) if key in taken)
        raise duplicate(rows, number) from error


def _load_index(session: SqlSession, transaction: SqlTransaction, rows: Rows, index: IndexMeta) -> None:
    table, keyspace = rows.table, session.keyspace
    if index.unique:
        _check_unique(session, rows, index)
    entries = rows.entry_strings(index)
    order = _order(entries)
    if order is not None:
        entries = _taken(entries, order)
    found = checked_keys(table, entries.to_list())
    keyspace.revive(transaction.version, found)
    if index.include_ids:
        values = rows.included(index)
        if order is not None:
            values = [values[n] for n in order.tolist()]
        keyspace.insert(transaction.version, zip(found, values, strict=True))
    else:
        keyspace.insert_marks(transaction.version, found)


def _check_unique(session: SqlSession, rows: Rows, index: IndexMeta) -> None:
    """Raise `UniqueError` if rows break a unique index, among themselves or with what is there."""
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
            values, _ = keys.decode_tuple(types, begin, len(prefix), index.desc)
            shown = ", ".join(str(type.load(value)) for type, value in zip(types, values, strict=True))
            names = ", ".join(table.by_id[id].name for id in index.column_ids)
            raise UniqueError(f"{table.full_name} has a row with ({names}) = ({shown}) already", table=table.full_name,
                              constraint=index.name)  # fmt: skip
        seen.add(begin)
