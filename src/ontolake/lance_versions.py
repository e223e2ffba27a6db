"""The file in which Lance keeps a version of a table: which files the version is made of.

Lance writes such a file once. An erasure writes it anew: under the number that the version has, with other files in
the place of those that had the row. So every commit stays readable, and none has to be told of it. A copy in another
place writes it anew as well, for a line that left another names the folder of that one with its whole path.

The format is that of Lance 2: messages of protobuf, the first of which is found from the end of the file. What is not
understood is kept as it is.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

_MAGIC = b"LANC"
_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_NUMBER, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5

# Fields of messages, as table.proto of Lance numbers them.
_FRAGMENTS, _VERSION, _INDEXES, _BASES, _TRANSACTION = 2, 3, 6, 18, 23
_ID, _FILES, _DELETIONS = 1, 2, 3
_PATH, _SIZE = 1, 6
_BASE_PATH = 4
_FILE_TYPE, _READ_VERSION, _FILE_ID, _COUNT, _BASE = 1, 2, 3, 4, 7


class Entry(NamedTuple):
    """One field of a message."""

    field: int
    wire: int
    value: Any


Message = list[Entry]


def decode(data: bytes) -> Message:
    """The fields of a message, in their order. Raises `ValueError`."""
    found: Message = []
    at = 0
    try:
        while at < len(data):
            tag, at = _varint(data, at)
            wire = tag & 7
            value: int | bytes
            if wire == _NUMBER:
                value, at = _varint(data, at)
            elif wire in (_EIGHT, _FOUR, _BYTES):
                size, at = _varint(data, at) if wire == _BYTES else ({_EIGHT: 8, _FOUR: 4}[wire], at)
                value, at = data[at : at + size], at + size
            else:
                raise ValueError(f"a field of the kind {wire} is not known")
            found.append(Entry(tag >> 3, wire, value))
    except IndexError as error:
        raise ValueError("a message ends too soon") from error
    if at != len(data):
        raise ValueError("a message ends too soon")
    return found


def encode(message: Sequence[Entry]) -> bytes:
    """What `decode` reads as this."""
    parts: list[bytes] = []
    for field, wire, value in message:
        parts.append(_number(field << 3 | wire))
        if wire == _NUMBER:
            parts.append(_number(value))
        else:
            parts += [_number(len(value)), value] if wire == _BYTES else [value]
    return b"".join(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _number(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _first(message: Message, field: int, default: Any = None) -> Any:
    return next((entry.value for entry in message if entry.field == field), default)


def _with(message: Message, field: int, wire: int, value: Any) -> Message:
    """A message in which a field has another value; None takes it away."""
    new = [Entry(field, wire, value)] if value is not None else []
    at = next((number for number, entry in enumerate(message) if entry.field == field), len(message))
    rest = [entry for entry in message[at:] if entry.field != field]
    return [*message[:at], *new, *rest]


class Piece(NamedTuple):
    """A fragment of a version: its number, the names of its data files, and which of its rows are deleted."""

    id: int
    files: tuple[str, ...]
    deletions: bytes
    """What says so; empty if none are. The same bytes mean the same rows."""


class Deletions(NamedTuple):
    """The file that says which rows of a fragment are deleted."""

    file_type: str
    read_version: int
    id: int
    rows: int
    base: int | None = None

    def to_bytes(self) -> bytes:
        given = ((_FILE_TYPE, int(self.file_type == "bitmap") or None), (_READ_VERSION, self.read_version),
                 (_FILE_ID, self.id), (_COUNT, self.rows), (_BASE, self.base))  # fmt: skip
        return encode([Entry(field, _NUMBER, value) for field, value in given if value is not None])


class NewFile(NamedTuple):
    """What stands in the place of a data file."""

    name: str
    size: int


class VersionFile:
    """What one such file says. Raises `ValueError` if it is none."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        if len(data) < _FOOTER.size:
            raise ValueError("it is too short")
        at, *self._format, magic = _FOOTER.unpack_from(data, len(data) - _FOOTER.size)
        if magic != _MAGIC:
            raise ValueError("it does not end as a file of Lance does")
        self._message = decode(self._section(at))

    def _section(self, at: int) -> bytes:
        if at + _LENGTH.size > len(self._data):
            raise ValueError("it ends too soon")
        (size,) = _LENGTH.unpack_from(self._data, at)
        return self._data[at + _LENGTH.size : at + _LENGTH.size + size]

    @property
    def version(self) -> int:
        return int(_first(self._message, _VERSION, 0))

    @cached_property
    def fragments(self) -> list[Piece]:
        return [_fragment(decode(entry.value)) for entry in self._message if entry.field == _FRAGMENTS]

    @cached_property
    def indexes(self) -> frozenset[str]:
        """The ids of all parts of indexes."""
        return frozenset(id for id, _ in self._indexes())

    def brought(self, index: str) -> bool:
        """Whether a part of an index came with this version, or was taken over, wherever it is now."""
        at = _first(self._message, _TRANSACTION)
        try:
            return at is not None and uuid.UUID(index).bytes in self._section(at)
        except ValueError:  # a name that Lance did not give
            return False

    def _indexes(self) -> Iterator[tuple[str, Entry]]:
        at = _first(self._message, _INDEXES)
        for entry in decode(self._section(at)) if at is not None else ():
            own = decode(_first(decode(entry.value), _ID, b""))
            yield str(uuid.UUID(bytes=bytes(_first(own, _ID, bytes(16))))), entry

    @property
    def has_bases(self) -> bool:
        """Whether it takes files from folders that it names with their whole path."""
        return any(entry.field == _BASES for entry in self._message)

    def rewritten(
        self, files: Mapping[str, NewFile], deletions: Mapping[int, Deletions | None], indexes: Collection[str],
        base: Callable[[str], str] = str,
    ) -> bytes:  # fmt: skip
        """The same version with other data files, with more rows deleted, and without some indexes.

        `deletions` are by the number of a fragment, which goes if that is None. `base` tells where the folders are that
        a line takes files of others from.
        """
        message: Message = []
        for entry in self._message:
            if entry.field == _FRAGMENTS:
                old = decode(entry.value)
                id = _fragment(old).id
                if deletions.get(id, old) is None:
                    continue
                entry = entry._replace(value=encode(_renewed(old, files, deletions.get(id))))
            elif entry.field == _BASES:
                folder = decode(entry.value)
                path = base(_first(folder, _BASE_PATH, b"").decode())
                entry = entry._replace(value=encode(_with(folder, _BASE_PATH, _BYTES, path.encode())))
            message.append(entry)
        parts = b""
        kept = [entry for id, entry in self._indexes() if id not in indexes]
        message = _with(message, _INDEXES, _NUMBER, 0 if kept else None)
        if kept:
            parts = _framed(encode(kept))
        transaction = _first(self._message, _TRANSACTION)
        if transaction is not None:
            message = _with(message, _TRANSACTION, _NUMBER, len(parts))
            parts += _framed(self._section(transaction))
        return parts + _framed(encode(message)) + _FOOTER.pack(len(parts), *self._format, _MAGIC)


def moved_base(path: str, table: str, root: str) -> str:
    """The folder of a line of a table, which another line names, where the table is below `root`.

    `table` is the path of the table below the root of its graph, wherever that has been when the line was made.
    """
    found = re.search(f"(?:^|/){re.escape(table)}(/tree/.+)?/?$", path)
    return f"{root}/{table}{found[1] or ''}" if found else path


def _framed(section: bytes) -> bytes:
    return _LENGTH.pack(len(section)) + section


def _fragment(message: Message) -> Piece:
    files = (_first(decode(entry.value), _PATH, b"").decode() for entry in message if entry.field == _FILES)
    return Piece(int(_first(message, _ID, 0)), tuple(files), bytes(_first(message, _DELETIONS, b"")))


def _renewed(message: Message, files: Mapping[str, NewFile], deletions: Deletions | None) -> Message:
    found: Message = []
    for entry in message:
        if entry.field == _FILES:
            file = decode(entry.value)
            new = files.get(_first(file, _PATH, b"").decode())
            if new is not None:
                file = _with(_with(file, _PATH, _BYTES, new.name.encode()), _SIZE, _NUMBER, new.size)
                entry = entry._replace(value=encode(file))
        found.append(entry)
    return found if deletions is None else _with(found, _DELETIONS, _BYTES, deletions.to_bytes())
