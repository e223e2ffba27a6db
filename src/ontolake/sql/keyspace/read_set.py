"""What a transaction has read: keys and ranges of keys, whether or not anything was there."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from ontolake.sql.keyspace.keys import ROW, after
from ontolake.sql.keyspace.versions import KeySpan

_MANY = 100_000
"""More single keys than this are remembered as the ranges of their tables."""
_PART = 9


class ReadSet:
    """The keys and spans that a transaction has read. The catalog is not among them."""

    def __init__(self) -> None:
        self.keys: set[bytes] = set()
        self.spans: set[KeySpan] = set()

    def add_keys(self, keys: Iterable[bytes]) -> None:
        self.keys.update(keys)
        if len(self.keys) > _MANY:
            self.spans.update(KeySpan(part, after(part)) for part in {key[:_PART] for key in self.keys})
            self.keys.clear()

    def add_span(self, span: KeySpan) -> None:
        if span.start >= bytes((ROW,)):
            self.spans.add(span)

    def parts(self) -> set[bytes]:
        """The ids of all tables of which something was read."""
        return {key[1:_PART] for key in self.keys if key[0] >= ROW} | {span.start[1:_PART] for span in self.spans}


def joined(spans: Iterable[KeySpan]) -> list[KeySpan]:
    """Spans by key, those that overlap or touch as one."""
    found: list[KeySpan] = []
    for span in sorted(spans):
        if found and span.start <= found[-1].end:
            found[-1] = KeySpan(found[-1].start, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


def first_common(keys: Sequence[bytes], spans: Sequence[KeySpan]) -> bytes | None:
    """The first of some sorted keys that lies in one of some spans, which are sorted and apart."""
    if len(keys) > len(spans):
        for span in spans:
            at = bisect_left(keys, span.start)
            if at < len(keys) and keys[at] < span.end:
                return keys[at]
        return None
    for key in keys:
        at = bisect_right(spans, (key, b"\xff" * 16)) - 1
        if at >= 0 and spans[at].start <= key < spans[at].end:
            return key
    return None
