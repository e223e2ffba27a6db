"""The commits of a branch: its own, and those of the lines that it has its history from."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import apsw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.errors import Corruption
from ontolake.sql.keyspace.layout import MERGED_INDEX, index_merges, is_described
from ontolake.sql.keyspace.levels import LINE_MERGED_INDEX, MAIN_LEVELS, Level
from ontolake.sql.keyspace.vectors import Strings, as_arrow, offsets_of

_COLUMNS = "version, time, statement, author, message, metadata, merged_branch, merged_version, keys"

_SHORT = 4096
"""Bytes of keys below which they are looked at one by one."""


class BranchLog:
    """The commits that a connection sees, within its transaction."""

    def __init__(self, connection: apsw.Connection, levels: Sequence[Level] = MAIN_LEVELS) -> None:
        self._connection = connection
        self._levels = tuple(levels)

    def _spans(self, low: int, high: int) -> Iterator[tuple[str, tuple[int, ...], Level]]:
        """Where the commits in `(low, high]` are, newest first: a table and a condition, and what to bind."""
        for level in self._levels:
            first, last = max(low, level.base), high if level.until is None else min(high, level.until)
            if first < last:
                table = '"commit" WHERE' if not level.line else f"line_commit WHERE line = {level.line} AND"
                yield f"{table} version > ? AND version <= ?", (first, last), level

    def page(self, low: int, high: int, limit: int) -> list[tuple[Any, ...]]:
        """The newest commits in `(low, high]`: version, time, statement, author, message, metadata, merged version."""
        found: list[tuple[Any, ...]] = []
        for where, bindings, level in self._spans(low, high):
            described = "author, message, metadata, merged_version" if level.line or is_described(self._connection) \
                else "NULL, NULL, NULL, NULL"
            if len(found) < limit:
                sql = f"SELECT version, time, statement, {described} FROM {where} ORDER BY version DESC LIMIT ?"
                found += self._rows(sql, (*bindings, limit - len(found)))
        return found

    def keys(self, version: int) -> bytes | None:
        """The keys that a commit wrote, packed."""
        for where, bindings, _ in self._spans(version - 1, version):
            row: Any = self._connection.execute(f"SELECT keys FROM {where}", bindings).fetchone()
            if row is not None:
                return bytes(row[0])
        return None

    def is_erasure(self, version: int) -> bool:
        """Whether a commit erased a row, which it does not name."""
        for where, bindings, _ in self._spans(version - 1, version):
            row: Any = self._connection.execute(f"SELECT statement FROM {where}", bindings).fetchone()
            if row is not None:
                return str(row[0]).startswith("-- erase")
        return False

    def written(self, low: int, high: int) -> Iterator[tuple[int, bytes]]:
        """The commits in `(low, high]` with the keys that they wrote, packed, oldest first."""
        for where, bindings, _ in reversed(list(self._spans(low, high))):
            rows: Any = self._connection.execute(f"SELECT version, keys FROM {where} ORDER BY version", bindings)
            yield from rows

    def merges(self, low: int, high: int) -> list[tuple[int, int, int]]:
        """The merges in `(low, high]`, oldest first: their versions, and the line and version that they took in."""
        found: list[tuple[int, int, int]] = []
        for where, bindings, level in reversed(list(self._spans(low, high))):
            if level.line or self._has_merges():
                by = where.replace(" WHERE", f" INDEXED BY {LINE_MERGED_INDEX if level.line else MERGED_INDEX} WHERE")
                found += self._rows(f"SELECT version, merged_branch, merged_version FROM {by} "
                                    "AND merged_branch IS NOT NULL ORDER BY version", bindings)  # fmt: skip
        return found

    def _has_merges(self) -> bool:
        sql = "SELECT 1 FROM sqlite_schema WHERE name = ?"
        return self._connection.execute(sql, (MERGED_INDEX,)).fetchone() is not None

    def version_at(self, microseconds: int) -> int:
        """The version that was the newest at a time; 0 if there was none."""
        for where, bindings, _ in self._spans(0, 1 << 62):
            found: Any = self._connection.execute(
                f"SELECT max(version) FROM {where} AND time <= ?", (*bindings, microseconds)).get
            if found is not None:
                return int(found)
        return 0

    def append(self, commit: Sequence[Any], *, is_merge: bool) -> None:
        """Write a commit: all columns of the table in their order."""
        line = self._levels[0].line
        table, mark, own = ('"commit"', "", "") if not line else ("line_commit", f"{line}, ", "line, ")
        self._connection.execute(
            f"INSERT INTO {table} ({own}{_COLUMNS}) VALUES ({mark}?, ?, ?, ?, ?, ?, ?, ?, ?)", commit)
        if is_merge and not line:
            index_merges(self._connection)

    def _rows(self, sql: str, bindings: Sequence[Any]) -> list[Any]:
        return self._connection.execute(sql, bindings).fetchall()


def packed(touched: Sequence[Sequence[bytes] | Strings]) -> bytes:
    """Keys as one blob: how many, their lengths, and all of them one behind the other."""
    if len(touched) == 1 and isinstance(touched[0], list) and len(touched[0]) == 1:  # most commits are of one row
        key: bytes = touched[0][0]
        return struct.pack(">II", 1, len(key)) + key
    groups = [keys if isinstance(keys, Strings) else Strings.of(keys) for keys in touched]
    lengths = np.concatenate([np.zeros(0, np.int64), *(np.diff(group.offsets) for group in groups)]).astype(">u4")
    return struct.pack(">I", len(lengths)) + lengths.tobytes() + b"".join(group.data.tobytes() for group in groups)


def unpacked(blob: bytes) -> list[bytes]:
    """The keys that a commit wrote, each once, in order. Raises `Corruption`."""
    count = int.from_bytes(blob[:4], "big")
    if count == 1 and len(blob) == 8 + int.from_bytes(blob[4:8], "big"):
        return [blob[8:]]
    return sorted(set(_strings(blob, count).to_list()))


def keys_within(blob: bytes, start: bytes, end: bytes) -> list[bytes]:
    """The keys that a commit wrote in a span. Raises `Corruption`."""
    if len(blob) < _SHORT:
        return [key for key in unpacked(blob) if start <= key < end]
    found = as_arrow(_strings(blob, int.from_bytes(blob[:4], "big")))
    within = pc.and_(pc.greater_equal(found, pa.scalar(start, found.type)), pc.less(found, pa.scalar(end, found.type)))
    keys: list[bytes] = found.filter(within).to_pylist()
    return keys


def _strings(blob: bytes, count: int) -> Strings:
    body = 4 + 4 * count
    lengths = np.frombuffer(blob, ">u4", count, 4).astype(np.int64) if len(blob) >= body else None
    if lengths is None or int(lengths.sum()) != len(blob) - body:
        raise Corruption("the keys of a commit cannot be read")
    return Strings(np.frombuffer(blob, np.uint8, offset=body), offsets_of(lengths))
