"""ULIDs: ids that sort by the time at which they were made, and grow within one process."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_lock = threading.Lock()
_last = 0


def new_ulid() -> str:
    """A fresh id, greater than every one that this process made before."""
    global _last
    with _lock:
        _last = max((time.time_ns() // 1_000_000) << 80 | secrets.randbits(80), _last + 1)
        return _text(_last)


def derived_ulid(ulid: str, purpose: str) -> str:
    """An id with the time of another that everybody derives alike: whoever comes second finds it taken."""
    digest = hashlib.sha256(f"{purpose}:{ulid}".encode()).digest()
    return ulid[:10] + _text(int.from_bytes(digest[:10]))[10:]


def is_ulid(text: str) -> bool:
    return len(text) == 26 and all(letter in _ALPHABET for letter in text) and text[0] <= "7"


def _text(number: int) -> str:
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))
