"""The write lock: a row that says who may write and until when.

A single commit needs no row of its own: SQLite's write transaction keeps others out, and inside it the row is
looked at, so that nobody writes while another holds the lock over several commits. A holder that dies is out when
its time is.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

import apsw

from ontolake.ontology.errors import LeaseExpiredError
from ontolake.ontology.repository.protocol import WRITE_LOCK, Lease
from ontolake.ontology.repository.sqlite_control import parse_time


def holder(db: apsw.Connection) -> Lease | None:
    """Who holds the lock, if it has not run out."""
    row = db.execute("SELECT owner_id, expires_at FROM locks WHERE lock_name = ?", (WRITE_LOCK,)).fetchone()
    if row is None:
        return None
    expires = parse_time(row[1]).timestamp()
    return Lease(row[0], expires) if expires > time.time() else None


def take(db: apsw.Connection, owner: str, ttl: float) -> Lease:
    """Write the row, inside a write transaction that found the lock free or its own."""
    moment = time.time()
    db.execute("INSERT OR REPLACE INTO locks VALUES (?, ?, ?, ?)", (WRITE_LOCK, owner, _text(moment),
                                                                   _text(moment + ttl)))
    return Lease(owner, moment + ttl)


def extend(db: apsw.Connection, owner: str, ttl: float) -> Lease:
    """Renew the row. Raises `LeaseExpiredError` if it is no longer this owner's, or has run out."""
    found = holder(db)
    if found is None or found.owner_id != owner:
        raise lost(found)
    expires = time.time() + ttl
    db.execute("UPDATE locks SET expires_at = ? WHERE lock_name = ?", (_text(expires), WRITE_LOCK))
    return Lease(owner, expires)


def drop(db: apsw.Connection, owner: str) -> None:
    db.execute("DELETE FROM locks WHERE lock_name = ? AND owner_id = ?", (WRITE_LOCK, owner))


def lost(found: Lease | None) -> LeaseExpiredError:
    """What to raise when a lease is gone."""
    who = f"{found.owner_id!r} has it now" if found else "it ran out"
    return LeaseExpiredError(f"the write lock is no longer held: {who}", hint="acquire it again and start over")


def _text(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds")
