"""The write lock: a row that says who may write and until when.

A single commit needs no row of its own: SQLite's write transaction keeps others out, and inside it the row is
looked at, so that nobody writes while another holds the lock over several commits. Who holds it renews it in the
background. A holder that dies is out when its time is, and one that was held up for too long finds out before it
writes. While a write transaction is open nobody can take the lock, so it cannot be lost under one; the row is
renewed as the transaction ends.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime

import apsw

from ontolake.ontology.config import Config
from ontolake.ontology.errors import LeaseExpiredError, LockContentionError
from ontolake.ontology.renewal import Renewal
from ontolake.ontology.repository.protocol import WRITE_LOCK, Lease
from ontolake.ontology.repository.sqlite.beside import ENDLESS, Beside, begin_immediate, is_private, write_transaction
from ontolake.ontology.repository.times import parse_time

_log = logging.getLogger("ontolake.ontology")
_PAUSE = 0.005


class WriteLock:
    """The write lock of a store as one connection sees it."""

    def __init__(self, db: apsw.Connection, uri: str, config: Config, seam_branch: str) -> None:
        """`seam_branch` is the branch of the pages below the store."""
        self._db = db
        self._uri = uri
        self._config = config
        self._seam_branch = seam_branch
        self._owner: str | None = None
        self._depth = 0
        self._renewal: Renewal | None = None
        self._private = is_private(uri)
        self._ttl = ENDLESS if self._private else config.lease_ttl

    def begin(self, owner: str) -> None:
        """Begin a write transaction while nobody else holds the lock.

        Raises `LockContentionError`, and `LeaseExpiredError` if this connection held the lock and does no more.
        """
        deadline = time.monotonic() + self._config.lock_timeout
        while True:
            begin_immediate(self._db, self._uri)
            found = holder(self._db)
            if found is None and self._owner is None:
                return
            if found is not None and found.owner_id in (owner, self._owner):
                return
            self._db.execute("ROLLBACK")
            if self._owner is not None:
                self._stop_renewing()  # and stay out until it is released
                raise lost(found)
            if time.monotonic() >= deadline:
                assert found is not None
                raise LockContentionError(f"{found.owner_id!r} holds the write lock of {self._uri!r}",
                                          hint="try again, or wait until its lease runs out")
            time.sleep(_PAUSE)

    def keep(self) -> None:
        """Renew the row as part of the transaction that is about to be committed, if the lock is held."""
        if self._owner is not None:
            self._db.execute("UPDATE locks SET expires_at = ? WHERE lock_name = ? AND owner_id = ?",
                             (_text(time.time() + self._ttl), WRITE_LOCK, self._owner))

    def acquire(self, owner: str) -> Lease:
        """Hold the lock until it is released as often as it was acquired. Raises `LockContentionError`."""
        if self._owner == owner:
            lease = self.renew(owner)
            self._depth += 1
            return lease
        self.begin(owner)
        try:
            lease = take(self._db, owner, self._ttl)
            self._db.execute("COMMIT")
        finally:
            if not self._db.get_autocommit():
                self._db.execute("ROLLBACK")
        self._owner, self._depth = owner, 1
        if not self._private:
            beside = Beside(self._uri, self._config, self._seam_branch)
            self._renewal = Renewal("ontolake-write-lock", self._ttl / 3, lambda: self._beat(beside, owner),
                                    beside.close)
        return lease

    def _beat(self, beside: Beside, owner: str) -> bool:
        try:
            with beside.writing() as db:
                extend(db, owner, self._ttl)
        except LockContentionError:
            return True  # perhaps our own transaction, which renews it
        except LeaseExpiredError:
            return False
        return True

    def renew(self, owner: str) -> Lease:
        """Raises `LeaseExpiredError` if the lock is no longer held."""
        with write_transaction(self._db, self._uri):
            return extend(self._db, owner, self._ttl)

    def release(self, owner: str) -> None:
        """Let others write. A lock that is lost is let go of in silence."""
        if self._owner is not None and self._depth > 1:
            self._depth -= 1
            return
        self._owner, self._depth = None, 0
        self._stop_renewing()
        try:
            with write_transaction(self._db, self._uri):
                drop(self._db, owner)
        except LockContentionError:
            _log.warning("the write lock of %s could not be released, and will run out", self._uri)

    def _stop_renewing(self) -> None:
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            renewal.stop()

    def close(self) -> None:
        """Let go of the lock if it is held."""
        if self._owner is not None:
            self._depth = 1
            self.release(self._owner)


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
