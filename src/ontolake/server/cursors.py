"""Cursors: opaque text that says where a listing goes on. A cursor is pinned to the commits that the listing began at,
and belongs to one listing: with other parameters it is refused.

What a cursor names is read without another look at rights, so it is signed: nobody but this process can write one, and
none outlives it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import Any

import msgspec

from ontolake.history import wire
from ontolake.server.problems import RefusedError

_HINT = "take the cursor of the page before, with the same parameters, or begin again"
_SECRET = secrets.token_bytes(32)
_SIGNED = 16
"""Bytes of a signature."""


def listing(*parameters: Any) -> str:
    """A short name for a listing, from what defines it."""
    return hashlib.sha256(msgspec.json.encode(parameters)).hexdigest()[:12]


def write(name: str, position: Any) -> str:
    """The cursor of a position in a listing. Values keep their types."""
    data = msgspec.json.encode([name, wire.encode(position)])
    return base64.urlsafe_b64encode(_signature(data) + data).decode().rstrip("=")


def read(cursor: str, name: str) -> Any:
    """The position of a cursor. Raises `RefusedError` with 400 if it is not one of this listing."""
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        if not hmac.compare_digest(data[:_SIGNED], _signature(data[_SIGNED:])):
            raise ValueError("another signature")
        owner, position = msgspec.json.decode(data[_SIGNED:], type=tuple[str, Any])
        found = wire.decode(position)
    except Exception as error:
        raise RefusedError(400, "the cursor is damaged, or of a server that has ended", hint=_HINT) from error
    if owner != name:
        raise RefusedError(400, "the cursor is that of another listing", hint=_HINT)
    return found


def _signature(data: bytes) -> bytes:
    return hmac.digest(_SECRET, data, "sha256")[:_SIGNED]
