"""Rows as PostgreSQL's protocol and its binary files have them: a count of fields, then the length and bytes of each.

A tag makes a message of each row: the letter and four bytes of length come first.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.sql.encodings.binaries import Block, binary_column, lengths_column
from ontolake.sql.encodings.system_values import system_column
from ontolake.sql.encodings.texts import fixed_column, offsets_of, text_column
from ontolake.sql.types import TIMESTAMP, TIMESTAMPTZ, Kind, Type, is_system

ROWS = 16_384
"""Rows that are written at a time."""


def tuple_block(
    batch: pa.RecordBatch, types: Sequence[Type], formats: Sequence[int], tag: bytes
) -> bytes | memoryview:
    """The rows of a batch, each column as text (0) or binary (1). An empty `tag` makes no messages of them."""
    columns = [_encoded(*each) for each in zip(batch.columns, types, formats, strict=True)]
    if not columns:
        return b"".join([_head(tag, 0, 0)] * batch.num_rows)
    missing = [np.asarray(column.is_null()) if column.null_count else None for column in batch.columns]
    blocks = [column for column in columns if isinstance(column, np.ndarray)]
    if len(blocks) == len(columns) and all(each is None for each in missing):
        return _fixed_rows(blocks, tag)
    return _joined_rows(columns, missing, batch.num_rows, tag)


def _head(tag: bytes, size: int, count: int) -> bytes:
    """What stands before fields of so many bytes."""
    return (tag + struct.pack(">i", size + 6) if tag else b"") + struct.pack(">h", count)


def _encoded(column: pa.Array, type: Type, format: int) -> pa.Array | Block:
    if is_system(column.type):
        return system_column(column, format)
    if type.kind == Kind.TIMESTAMP_NS:  # which no client knows
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
        type = TIMESTAMPTZ if type.zoned else TIMESTAMP
    if format:
        return binary_column(column, type)
    return text_column(column, type).cast(pa.binary())


def _fixed_rows(columns: Sequence[Block], tag: bytes) -> memoryview:
    """Rows that all have the same width and no NULL."""
    size = sum(4 + column.shape[1] for column in columns)
    head = _head(tag, size, len(columns))
    rows = np.empty((len(columns[0]), len(head) + size), np.uint8)
    rows[:, : len(head)] = np.frombuffer(head, np.uint8)
    at = len(head)
    for column in columns:
        width = column.shape[1]
        rows[:, at : at + 4] = np.frombuffer(struct.pack(">i", width), np.uint8)
        rows[:, at + 4 : at + 4 + width] = column
        at += 4 + width
    return rows.reshape(-1).data


def _joined_rows(
    columns: Sequence[pa.Array | Block], missing: Sequence[npt.NDArray[np.bool_] | None], count: int, tag: bytes
) -> memoryview:
    """Rows put together from the lengths and values of columns."""
    parts = []
    sizes = np.full(count, 4 * len(columns), np.int64)
    for column, gone in zip(columns, missing, strict=True):
        values = column if isinstance(column, pa.Array) else fixed_column(column)
        absent = np.zeros(count, np.bool_) if gone is None else gone
        if gone is not None and not values.null_count:  # blocks have something where there is NULL
            values = pc.if_else(pa.array(~gone), values, pa.scalar(None, pa.binary()))
        lengths = lengths_column(values, absent)
        sizes += np.maximum(np.frombuffer(lengths.buffers()[2], ">i4"), 0)
        parts += [lengths, values]
    heads = np.empty((count, 7 if tag else 2), np.uint8)
    heads[:, -2:] = np.frombuffer(struct.pack(">h", len(columns)), np.uint8)
    if tag:
        heads[:, 0] = tag[0]
        heads[:, 1:5] = (sizes + 6).astype(">i4").view(np.uint8).reshape(-1, 4)
    joined = pc.binary_join_element_wise(fixed_column(heads), *parts, b"", null_handling="replace",
                                         null_replacement=b"")  # fmt: skip
    return column_bytes(joined)


def message(tag: bytes, body: bytes) -> bytes:
    """A message of the protocol; just its body without a tag."""
    return tag + struct.pack(">i", len(body) + 4) + body if tag else body


def messages(column: pa.Array, tag: bytes) -> pa.Array:
    """A message for each value of a column of bytes without NULLs; the values themselves without a tag."""
    if not tag:
        return column
    ends = offsets_of(column)
    heads = np.empty((len(column), 5), np.uint8)
    heads[:, 0] = tag[0]
    heads[:, 1:5] = (np.diff(ends) + 4).astype(">i4").view(np.uint8).reshape(-1, 4)
    return pc.binary_join_element_wise(fixed_column(heads), column, b"")


def column_bytes(column: pa.Array) -> memoryview:
    """All bytes of a column without NULLs, one value behind the other."""
    ends = offsets_of(column)
    return memoryview(column.buffers()[2] or b"")[int(ends[0]) : int(ends[-1])]
