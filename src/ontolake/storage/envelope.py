"""How things lie in a page file: one after another, each in an envelope that says where it begins and ends.

The mark behind a thing is set once it is known to be durable. So a reader can tell a write that was cut off,
which never happened, from one that was acknowledged and then damaged, which is corruption.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from xxhash import xxh3_64, xxh3_64_intdigest

FRAME, BLOB = 1, 2

_MAGIC = b"OLE1"
_HEAD = struct.Struct("<4sIQQQ")
_SUM = struct.Struct("<Q")
_MARK = struct.Struct("<QQ")
HEAD_SIZE = _HEAD.size + _SUM.size
MARK_SIZE = _MARK.size
UNMARKED = bytes(MARK_SIZE)


class Envelope(NamedTuple):
    """One thing in the file: `payload` and `mark` are where those lie, `end` is where the next one begins."""

    type: int
    offset: int
    length: int
    sum: int

    @property
    def payload(self) -> int:
        return self.offset + HEAD_SIZE

    @property
    def mark(self) -> int:
        return self.offset + HEAD_SIZE + self.length + -self.length % 8

    @property
    def end(self) -> int:
        return self.mark + MARK_SIZE


class Envelopes:
    """Writes and recognises the envelopes of one file; those of another are not mistaken for them."""

    def __init__(self, log_id: int) -> None:
        self._seed = log_id
        self._mark = xxh3_64_intdigest(b"mark", seed=log_id) | 1
        self._needle = self._mark.to_bytes(8, "little")

    def head(self, kind: int, offset: int, pieces: Sequence[bytes]) -> tuple[bytes, int]:
        """What stands before a payload given in pieces, and the length of that payload."""
        digest, length = xxh3_64(), 0
        for piece in pieces:
            digest.update(piece)
            length += len(piece)
        head = _HEAD.pack(_MAGIC, kind, length, offset, digest.intdigest())
        return head + _SUM.pack(xxh3_64_intdigest(head, seed=self._seed)), length

    def parse(self, head: bytes, offset: int) -> Envelope | None:
        """The envelope that begins at `offset`, None if there is none or it is damaged."""
        if len(head) < HEAD_SIZE or head[:4] != _MAGIC:
            return None
        _, kind, length, where, checksum = _HEAD.unpack_from(head)
        if where != offset or _SUM.unpack_from(head, _HEAD.size)[0] != xxh3_64_intdigest(
                head[: _HEAD.size], seed=self._seed):
            return None
        return Envelope(kind, offset, length, checksum)

    def mark(self, offset: int) -> bytes:
        """What stands behind the thing at `offset` once it is durable."""
        return _MARK.pack(self._mark, offset)

    def traces(self, data: bytes, start: int, after: int) -> bool:
        """Whether bytes that lie at `start` show that something at `after`, or later, was once complete."""
        at = data.find(self._needle)
        while at >= 0:
            if len(data) >= at + MARK_SIZE and _MARK.unpack_from(data, at)[1] >= after:
                return True
            at = data.find(self._needle, at + 1)
        at = data.find(_MAGIC)
        while at >= 0:
            if start + at > after and self.parse(data[at : at + HEAD_SIZE], start + at) is not None:
                return True
            at = data.find(_MAGIC, at + 1)
        return False
