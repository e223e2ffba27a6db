"""Frames: how one durable step of the log is written down, the same on every medium.

A frame holds either a group of commits or one change of the database's state (a fence, a branch, the
floor). Its header chains it to the frame before it, and checksums cover every byte.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec
from xxhash import xxh3_64_intdigest

from ontolake.errors import Corruption
from ontolake.storage.types import PageId, WalRecord

DATA, CONTROL = 1, 2

_MAGIC = b"OLF1"
_HEADER = struct.Struct("<4sHHQQQ16sQIIQQQQ")
_SUM = struct.Struct("<Q")
HEADER_SIZE = _HEADER.size + _SUM.size
_NO_PAGE, _PAGE = 0, 1
_DIRECTORY = 25
"""Bytes for each record between meta and payloads: flag, page, length and checksum."""


class Header(NamedTuple):
    """What a frame says of itself. `prev` is the `sum` of the frame before it; `time_us` counts from 1970."""

    kind: int
    log_id: int
    ordinal: int
    epoch: int
    nonce: bytes
    first_lsn: int
    records: int
    meta_length: int
    body_length: int
    time_us: int
    prev: int
    sum: int = 0


class LogCommit:
    """One `append_wal` on its way into a frame, or out of one. `sums` has the checksum of each record."""

    __slots__ = ("branch", "digest", "records", "request_id", "sums")

    def __init__(
        self, branch: int, records: Sequence[WalRecord], sums: Sequence[int], request_id: str | None = None,
        digest: int = 0,
    ) -> None:
        self.branch = branch
        self.records = records
        self.sums = sums
        self.request_id = request_id
        self.digest = digest


def digest_of(branch: int, records: Sequence[WalRecord], sums: Sequence[int]) -> int:
    """A checksum of everything that makes two appends the same append."""
    pages = [-1 if record.page_id is None else record.page_id for record in records]
    return xxh3_64_intdigest(msgspec.msgpack.encode((branch, [len(record.bytes) for record in records], sums, pages)))


def encode(header: Header, body: bytes) -> tuple[bytes, Header]:
    """What comes before the body to make a frame, and the header with its `sum`, which the next frame has as `prev`."""
    kind, log_id, ordinal, epoch, nonce, first_lsn, records, meta_length, body_length, time_us, prev, _ = header
    head = _HEADER.pack(_MAGIC, kind, 0, log_id, ordinal, epoch, nonce, first_lsn, records, meta_length,
                        body_length, time_us, prev, xxh3_64_intdigest(body))
    total = xxh3_64_intdigest(head)
    return head + _SUM.pack(total), header._replace(sum=total)


def decode(frame: bytes, *, name: str) -> tuple[Header, memoryview]:
    """Header and body of a frame. Raises `Corruption` naming the frame if a checksum does not hold."""
    if len(frame) < HEADER_SIZE:
        raise Corruption(f"{name} is cut short: {len(frame)} bytes")
    head = frame[: _HEADER.size]
    (total,) = _SUM.unpack_from(frame, _HEADER.size)
    magic, kind, _, log_id, ordinal, epoch, nonce, first, records, meta, length, time_us, prev, body_sum = (
        _HEADER.unpack(head))
    if magic != _MAGIC or total != xxh3_64_intdigest(head):
        raise Corruption(f"the header of {name} does not match its checksum")
    body = memoryview(frame)[HEADER_SIZE:]
    if len(body) != length or body_sum != xxh3_64_intdigest(body):
        raise Corruption(f"the body of {name} does not match its checksum")
    return Header(kind, log_id, ordinal, epoch, nonce, first, records, meta, length, time_us, prev, total), body


def encode_commits(commits: Sequence[LogCommit]) -> tuple[bytes, int, int]:
    """Body of a data frame, its number of records, and the length of its meta part."""
    meta = msgspec.msgpack.encode([(c.branch, len(c.records), c.request_id, c.digest) for c in commits])
    payloads, pages = zip(*chain.from_iterable([commit.records for commit in commits]), strict=True)
    count = len(payloads)
    flags = bytes([_PAGE]) * count
    if None in pages:
        flags = bytes([_NO_PAGE if page_id is None else _PAGE for page_id in pages])
        pages = tuple(page_id or 0 for page_id in pages)
    sums = chain.from_iterable([commit.sums for commit in commits])
    directory = array("Q", [*pages, *map(len, payloads), *sums])
    return b"".join((meta, flags, directory.tobytes(), *payloads)), count, len(meta)


def first_payload(header: Header) -> int:
    """Where the bytes of a data frame's records begin: they lie one after another to its end."""
    return HEADER_SIZE + header.meta_length + _DIRECTORY * header.records


def decode_commits(header: Header, body: memoryview) -> Iterator[LogCommit]:
    """The commits of a data frame, as they were given to `encode_commits`."""
    count, meta_length = header.records, header.meta_length
    meta: list[tuple[int, int, str | None, int]] = msgspec.msgpack.decode(body[:meta_length])
    start = meta_length + count
    flags = body[meta_length:start]
    pages = body[start : start + 8 * count].cast("Q")
    lengths = body[start + 8 * count : start + 16 * count].cast("Q")
    sums = body[start + 16 * count : start + 24 * count].cast("Q")
    at, i = start + 24 * count, 0
    for branch, size, request_id, digest in meta:
        records: list[WalRecord] = []
        for j in range(i, i + size):
            page_id = PageId(pages[j]) if flags[j] == _PAGE else None
            records.append(WalRecord(bytes(body[at : at + lengths[j]]), page_id))
            at += lengths[j]
        yield LogCommit(branch, records, sums[i : i + size].tolist(), request_id, digest)
        i += size


def encode_change(change: dict[str, Any]) -> bytes:
    """Body of a control frame."""
    return msgspec.msgpack.encode(change)


def decode_change(body: memoryview) -> dict[str, Any]:
    """The change that a control frame holds."""
    change: dict[str, Any] = msgspec.msgpack.decode(body)
    return change
