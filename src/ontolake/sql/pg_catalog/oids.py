"""Numbers of objects, as PostgreSQL's `oid`: the same after every reopening, and no two objects of a store share one.

What has an id of the store's own counter gets that id behind the numbers of what is built in, as types have
(`ontolake.sql.types.oids`). What has no id, such as a constraint, gets a number worked out from what it belongs to.
"""

from __future__ import annotations

from hashlib import blake2b

from ontolake.sql.types.oids import FIRST

_DERIVED, _ROOM = 2**30, 2**30
PG_CATALOG, INFORMATION_SCHEMA, PUBLIC, OWNER = 11, 13212, 2200, 10


def counted(id: int) -> int:
    """The number of what has an id: a table, view, sequence, type or foreign key."""
    return FIRST + id if id < _DERIVED // 2 - FIRST else _hashed("id", id)


def _hashed(*parts: int | str) -> int:
    digest = blake2b("\0".join(map(str, parts)).encode(), digest_size=8).digest()
    return _DERIVED + int.from_bytes(digest, "big") % _ROOM


class DerivedOids:
    """Gives numbers to what has no id, and never one of them twice."""

    def __init__(self) -> None:
        self._taken: dict[int, tuple[int | str, ...]] = {}

    def of(self, *parts: int | str) -> int:
        """The number of a thing: its kind, and the ids and names that tell it from others."""
        found = _hashed(*parts)
        while self._taken.setdefault(found, parts) != parts:
            found = _DERIVED + (found + 1) % _ROOM
        return found
