"""Rows as Parquet holds them: typed Arrow columns, and the way from encoded rows and back, column by column.

A moment with a zone and one without are different values of one type, which Parquet cannot tell apart; a file that has
some without has a column beside it that says which. Decimals are text, so that they come back as they were.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ontolake.arrow_values import numbers, one_array, text_scalar
from ontolake.model.columns import Column
from ontolake.model.stored import StoredType
from ontolake.model.types import TypeInfo
from ontolake.ontology.arrow.columns import ArrowRows
from ontolake.ontology.repository.arrow import arrow_schema
from ontolake.ontology.repository.protocol import Row

COMMIT, VERSION, ROW = "commit_id", "schema_version_id", "row_id"
SUPERSEDED = "$superseded_by"
"""In files of replaced rows: the commit of the successor, or of a later state. Earlier releases took it from the runs
they merged alone, and missed states between them."""

FIRST = "$first_commit"
"""In merged runs: the commit of the key's first state within the commits of the run. Absent where every row has its
own commit."""

DELETED = "$deleted"
"""In files from v3 on: whether a row ends its key, and is a copy of its last state. Absent where none does."""

REPLACES = "$replaces"
"""In runs from v3 on: the `row_id` of the row of an older run that a row replaces; null where there is none. Only files
that say so in the manifest have it."""

_OURS = "$"
_ZONED = 32
"""How long the text of a moment with a zone is: 26 characters up to the microseconds, 6 for the zone."""

Type = TypeInfo | StoredType


def place(column: Column) -> str:
    """The name of a column in files. What begins like ours gets one more sign."""
    return column.column if not column.column.startswith(_OURS) else _OURS + column.column


def naive_place(column: Column) -> str:
    """The name of the column that says which moments are without a zone."""
    return f"{_OURS}naive:{column.column}"


def physical_type(column: Column) -> pa.DataType:
    return column.type.physical_type()


def places(columns: Sequence[Column]) -> list[str]:
    """The names of these columns in files, with those that go along."""
    found = [place(column) for column in columns]
    return found + [naive_place(column) for column in columns if column.type.zoned]


def table_of(info: Type, rows: Collection[Row]) -> pa.Table:
    """Encoded rows (keys, then the other columns) as a table, without commits and places."""
    columns = (*info.keys, *info.columns)
    parts: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    found: dict[str, pa.Array] = {}
    for column, values in zip(columns, parts, strict=True):
        found[place(column)] = physical(column, column.type.to_arrow(values))
        if column.type.zoned and any(value is not None and len(value) < _ZONED for value in values):
            found[naive_place(column)] = pa.array([value is not None and len(value) < _ZONED for value in values],
                                                  pa.bool_())
    return pa.table(found)


def declared_table(info: Type, rows: Collection[Row]) -> pa.Table:
    """Declared rows as a table; those that are columns already stay so."""
    if isinstance(rows, ArrowRows):
        found: dict[str, Any] = {}
        for column, values in rows.columns():
            if values.type == pa.timestamp("us"):  # without a zone
                found[place(column)] = pc.assume_timezone(values, "UTC")
                found[naive_place(column)] = values.is_valid()
            else:
                found[place(column)] = physical(column, values)
        return pa.table(found)
    return table_of(info, rows)


def physical(column: Column, values: Any) -> Any:
    """Arrow values of a column as files hold them."""
    wanted = column.type.physical_type()
    return values if values.type == wanted else values.cast(wanted)


def encoded(column: Column, table: pa.Table) -> list[Any]:
    """The values of a column as rows have them."""
    scalar = column.type
    found = scalar.from_arrow(table.column(place(column)))
    if scalar.zoned and naive_place(column) in table.column_names:
        flags = table.column(naive_place(column)).to_pylist()
        return [text[:26] if flag and text else text for text, flag in zip(found, flags, strict=True)]
    return found


def rows_of(columns: Sequence[Column], table: pa.Table) -> Iterator[Row]:
    """Encoded rows of these columns, the commit behind them."""
    parts = [encoded(column, table) for column in columns]
    return zip(*parts, table.column(COMMIT).to_pylist(), strict=True)


def public_table(columns: Sequence[Column], table: pa.Table) -> pa.Table:
    """A table as callers get it: under the stored names, in the declared types, `commit_id` behind them."""
    schema = arrow_schema(columns)
    arrays = []
    for column, field in zip(columns, schema, strict=False):
        values = table.column(place(column))
        arrays.append(values if values.type == field.type else values.cast(field.type))
    return pa.table([*arrays, table.column(COMMIT)], schema=schema)


def empty_table(info: Type, columns: Sequence[Column] | None = None) -> pa.Table:
    """No rows of a type."""
    return _no_rows(info) if columns is None else _no_rows_of(columns)


@lru_cache(maxsize=256)
def _no_rows(info: Type) -> pa.Table:
    return _no_rows_of((*info.keys, *info.columns))


def _no_rows_of(wanted: Sequence[Column]) -> pa.Table:
    fields = [pa.field(place(column), physical_type(column)) for column in wanted]
    return pa.schema([*fields, pa.field(COMMIT, pa.int64()), pa.field(ROW, pa.int64())]).empty_table()


def key_texts(info: Type, table: pa.Table) -> pa.Array:
    """One value per row that tells keys apart: text, or numbers for an entity whose key is a number."""
    parts = [_key_values(column, table) for column in info.keys]
    if len(parts) == 1:
        return parts[0]
    # Lengths in front, so that no two different keys become one text.
    texts = [part if part.type == pa.string() else part.cast(pa.string()) for part in parts]
    pieces: list[Any] = []
    for part in texts[:-1]:
        pieces += [pc.binary_length(part).cast(pa.string()), text_scalar(":"), part]
    return pc.binary_join_element_wise(*pieces, texts[-1], text_scalar(""))


def _key_values(column: Column, table: pa.Table) -> pa.Array:
    if column.type.encodes_arrow():
        return pa.array(encoded(column, table), pa.int64() if column.sqlite_type == "INTEGER" else pa.string())
    return one_array(table.column(place(column)))


def key_text(info: Type, key: Sequence[Any]) -> Any:
    """The same for one encoded key."""
    if len(key) == 1:
        return key[0]
    texts = [str(part) for part in key]
    return "".join(f"{len(part.encode())}:{part}" for part in texts[:-1]) + texts[-1]


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables below each other; what one lacks is missing there."""
    if len(tables) == 1:
        return tables[0]
    return pa.concat_tables(tables, promote_options="default")


def flags(table: pa.Table) -> Any:
    """For each row whether it ends its key, as numpy has it."""
    import numpy as np

    if DELETED not in table.column_names:
        return np.zeros(len(table), dtype=bool)
    return numbers(pc.fill_null(table.column(DELETED), False)).astype(bool)


def living(table: pa.Table) -> pa.Table:
    """The rows that do not end their keys, without the mark."""
    if DELETED not in table.column_names:
        return table
    marks = flags(table)
    table = table.drop_columns([DELETED])
    return table.filter(pa.array(~marks)) if marks.any() else table


def by_row(table: pa.Table) -> pa.Table:
    """In the order in which rows were written."""
    import numpy as np

    parts = [numbers(chunk) for chunk in table.column(ROW).chunks if len(chunk)]
    if all(one[-1] < two[0] for one, two in pairwise(parts)) and all((one[1:] > one[:-1]).all() for one in parts):
        return table
    # Runs are numbered one after the other: only those that are not in order are sorted.
    rows = np.concatenate(parts)
    lengths = np.array([len(chunk) for chunk in table.column(ROW).chunks if len(chunk)], dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    highest = np.maximum.accumulate(np.maximum.reduceat(rows, starts))
    lowest = np.minimum.accumulate(np.minimum.reduceat(rows, starts)[::-1])[::-1]
    cuts = [0, *starts[1:][highest[:-1] < lowest[1:]].tolist(), len(rows)]
    return pa.concat_tables([_by_row(table.slice(start, end - start), rows[start:end])
                             for start, end in pairwise(cuts)])


def _by_row(table: pa.Table, rows: Any) -> pa.Table:
    import numpy as np

    if bool((rows[1:] > rows[:-1]).all()):
        return table
    return table.take(pa.array(np.argsort(rows, kind="stable")))


def by_key(info: Type, table: pa.Table) -> pa.Table:
    """In the order of keys, and of rows where keys are the same."""
    names = [name for name in (*places(info.keys), ROW) if name in table.column_names]
    first = table.column(names[0]).combine_chunks()
    if len(info.keys) == 1 and len(first) > 1 and pc.all(pc.less(first[:-1], first[1:])).as_py():
        return table
    return table.take(pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names]))
