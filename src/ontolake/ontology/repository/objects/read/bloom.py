"""Bloom filters of Parquet files: which row groups can have one of some values.

Parquet's split-block filters, as its specification has them; Arrow writes them and says where they are, but does not
look values up.
"""

from __future__ import annotations

import inspect
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

WRITES = "bloom_filter_options" in inspect.signature(pq.write_table).parameters
"""Whether this release of Arrow writes filters."""

FALSE_POSITIVES = 0.0001
"""So rarely that a commit of a thousand new values reads hardly any row group in vain."""

Words = np.ndarray[Any, Any]

_SALTS = np.array([0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31],
                  np.uint32)
_KINDS = bytes.fromhex("1c1c00001c1c00001c1c000000")
"""The end of a filter's header: split blocks, xxHash, not compressed."""

_MASK = (1 << 64) - 1
_PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


def filter_options(names: Iterable[str], group_rows: int) -> dict[str, Any]:
    """What `write_table` is told to write filters of these columns; nothing where Arrow cannot."""
    wanted = {name: {"ndv": group_rows, "fpp": FALSE_POSITIVES} for name in names}
    return {"bloom_filter_options": wanted} if wanted and WRITES else {}


def is_filtered(kind: pa.DataType) -> bool:
    """Whether values of a type are looked up: those of which equal ones always have the same bytes."""
    return kind in (pa.string(), pa.int64())


class ValueHashes(NamedTuple):
    """Values to look for: the upper half of each hash, which chooses a block, and the bits that it sets there."""

    upper: Words
    bits: Words


def sought(values: Iterable[Any]) -> ValueHashes:
    """Texts or whole numbers to look for."""
    hashes = np.array([xxh64(value.encode() if isinstance(value, str) else struct.pack("<q", value))
                       for value in values], np.uint64)  # fmt: skip
    lower = (hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    return ValueHashes(hashes >> np.uint64(32), np.uint32(1) << ((lower[:, None] * _SALTS) >> np.uint32(27)))


def extents(meta: Any, name: str) -> list[tuple[int, int]] | None:
    """Where each row group has the filter of a column, as offset and length; None unless all of them have one."""
    found: list[tuple[int, int]] = []
    for number in range(meta.num_row_groups):
        group = meta.row_group(number)
        for at in range(group.num_columns):
            chunk = group.column(at)
            if chunk.path_in_schema == name:
                start, length = getattr(chunk, "bloom_filter_offset", None), getattr(chunk, "bloom_filter_length", None)
                if not start or not length:
                    return None
                found.append((start, length))
    return found if found and len(found) == meta.num_row_groups else None


def parse(data: bytes) -> Words | None:
    """The blocks of a filter with its header; None for one of another kind."""
    size = 1 << (len(data).bit_length() - 1)
    header = data[: len(data) - size]
    if not header.startswith(b"\x15") or not header.endswith(_KINDS) or _varint(header[1:]) != 2 * size:
        return None
    return np.frombuffer(data, np.uint32, offset=len(header)).reshape(-1, 8)


def possible(blocks: Words, values: ValueHashes) -> bool:
    """Whether one of the values can be there."""
    at = ((values.upper * np.uint64(len(blocks))) >> np.uint64(32)).astype(np.int64)
    bits = values.bits
    some = np.flatnonzero((blocks[at, 0] & bits[:, 0]) == bits[:, 0])  # one word rules most of them out
    return bool(((blocks[at[some]] & bits[some]) == bits[some]).all(axis=1).any())


def _varint(data: bytes) -> int:
    value = 0
    for place, byte in enumerate(data):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            break
    return value


def xxh64(data: bytes) -> int:
    """xxHash of 64 bits, with the seed 0."""
    one, two, three, four, five = _PRIMES
    length, at = len(data), 0
    if length >= 32:
        lanes = [(one + two) & _MASK, two, 0, -one & _MASK]
        while at + 32 <= length:
            for lane, word in enumerate(struct.unpack_from("<4Q", data, at)):
                lanes[lane] = _turned((lanes[lane] + word * two) & _MASK, 31) * one & _MASK
            at += 32
        found = sum(_turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            found = ((found ^ _turned(lane * two & _MASK, 31) * one & _MASK) * one + four) & _MASK
    else:
        found = five
    found = (found + length) & _MASK
    while at + 8 <= length:
        word = struct.unpack_from("<Q", data, at)[0]
        found = (_turned(found ^ (_turned(word * two & _MASK, 31) * one & _MASK), 27) * one + four) & _MASK
        at += 8
    if at + 4 <= length:
        found = (_turned(found ^ (struct.unpack_from("<I", data, at)[0] * one & _MASK), 23) * two + three) & _MASK
        at += 4
    for byte in data[at:]:
        found = _turned(found ^ (byte * five & _MASK), 11) * one & _MASK
    found = (found ^ (found >> 33)) * two & _MASK
    found = (found ^ (found >> 29)) * three & _MASK
    return found ^ (found >> 32)


def _turned(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & _MASK


