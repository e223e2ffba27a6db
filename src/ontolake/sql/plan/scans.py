"""Reading rows the way an access says, as Arrow batches."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

import pyarrow as pa

from ontolake.sql.catalog.records import ColumnMeta, Table
from ontolake.sql.keyspace import keys, vectors
from ontolake.sql.keyspace.batches import Batch
from ontolake.sql.keyspace.versions import Keyspace
from ontolake.sql.plan.access import AccessPath


def read(
    keyspace: Keyspace, access: AccessPath, columns: Sequence[ColumnMeta], at: int | None = None,
    limit: int | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """The rows that an access finds, now or at a version; these columns of them, and no more rows than `limit`."""
    for arrays in _arrays(keyspace, access, columns, at, limit):
        batch = pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])
        if limit is not None:
            batch = batch.slice(0, limit)
            limit -= batch.num_rows
        yield batch
        if limit is not None and limit <= 0:
            return


def read_table(
    keyspace: Keyspace, access: AccessPath, columns: Sequence[ColumnMeta], at: int | None = None,
    limit: int | None = None,
) -> pa.Table:
    """The same as one table."""
    return pa.Table.from_batches(read(keyspace, access, columns, at, limit), schema_of(columns))


def schema_of(columns: Sequence[ColumnMeta]) -> pa.Schema:
    """The Arrow schema that these columns are read with."""
    return pa.schema([(column.name, column.type.arrow) for column in columns])


def empty_table(columns: Sequence[ColumnMeta]) -> pa.Table:
    """These columns without rows. Arrow does not make empty arrays of every type by itself."""
    return pa.table({column.name: vectors.stored_array(column.type, []) for column in columns})


def _arrays(
    keyspace: Keyspace, access: AccessPath, columns: Sequence[ColumnMeta], at: int | None, limit: int | None
) -> Iterator[list[pa.Array]]:
    wanted = [column.wanted for column in columns]
    types = [column.type for column in access.table.all_columns]
    if access.keys is not None:
        found = keyspace.values_of(access.keys, at)
        if len(found):
            yield vectors.decode_rows(found, wanted, types)
    elif access.by is None:
        for span in access.spans:
            for batch in keyspace.scan(span, at, limit=limit, ahead=True):
                yield vectors.decode_rows(batch.values, wanted, types)
    else:
        for span in access.spans:
            for batch in keyspace.scan(span, at, keys=True, limit=limit):
                if access.kind == "index-only range":
                    yield _from_entries(access, batch, columns)
                    continue
                yield vectors.decode_rows(keyspace.values_of(row_keys(access, batch), at), wanted, types)


def _key_columns(table: Table, access: AccessPath) -> tuple[list[ColumnMeta], list[bool]]:
    assert access.by is not None
    return [table.by_id[id] for id in access.by.column_ids], list(access.by.desc)


def row_keys(access: AccessPath, batch: Batch) -> list[bytes]:
    """The row keys that index entries lead to."""
    assert access.by is not None
    assert batch.keys is not None
    columns, desc = _key_columns(access.table, access)
    skip = len(keys.entry_prefix(0, 0))
    _, ends = vectors.decode_keys([column.type for column in columns], batch.keys, skip, desc)
    tails = batch.keys.tails(ends)
    prefix = access.table.prefix
    return [prefix + tail for tail in tails.to_list()]


def _from_entries(access: AccessPath, batch: Batch, columns: Sequence[ColumnMeta]) -> list[pa.Array]:
    """Columns from index entries alone: those of the key, and those that the index includes."""
    assert access.by is not None
    assert batch.keys is not None
    table, index = access.table, access.by
    indexed, desc = _key_columns(table, access)
    parts = [*indexed, *table.primary_key]
    flags = [*desc, *[False] * len(table.primary_key)]
    decoded, _ = vectors.decode_keys(
        [column.type for column in parts], batch.keys, len(keys.entry_prefix(0, 0)), flags)
    known = {column.column_id: array for column, array in zip(parts, decoded, strict=True)}
    included = [id for id in index.include_ids if any(column.column_id == id for column in columns)]
    if included:
        wanted = [vectors.Wanted(index.include_ids.index(id), table.by_id[id].type) for id in included]
        known |= dict(zip(included, vectors.decode_rows(batch.values, wanted), strict=True))
    return [known[column.column_id] for column in columns]
