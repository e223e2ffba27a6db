"""The write lock: an object that says who may write and until when.

A single commit needs no lock, since moving the head is one compare-and-swap. Whoever wants others to stay out, for
several commits or after having lost a race, takes the lock and then moves the head's fence, so that commits under way
fail and come to see the lock. A holder that dies is out when its time is; who takes over moves the fence too, so that
a holder whose time ran out cannot commit any more.
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from ontolake import faults
from ontolake.errors import DurabilityUnconfirmed, OntolakeError, PreconditionFailed
from ontolake.objects import create, new_nonce, replace
from ontolake.ontology.config import Config
from ontolake.ontology.errors import LeaseExpiredError, LockContentionError, StorageBackendError
from ontolake.ontology.renewal import Renewal
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.access import StoreObjects
from ontolake.ontology.repository.objects.layout import LOCK, Head, Lock
from ontolake.ontology.repository.protocol import Lease
from ontolake.ontology.repository.times import now_text

_PAUSE = 0.05
_log = logging.getLogger("ontolake.ontology")

T = TypeVar("T")


class ObjectLock:
    """The write lock of a store as one repository sees it."""

    def __init__(self, access: StoreObjects, uri: str, config: Config) -> None:
        self._access = access
        self._uri = uri
        self._config = config
        self._lease: Lease | None = None
        self._depth = 0
        self._renewal: Renewal | None = None
        self._beaten = False

    def beaten(self) -> None:
        """Another commit came first: the next one takes the lock, so that others wait for it."""
        self._beaten = True

    @contextlib.contextmanager
    def writing(self, owner: str, look: Callable[[], T]) -> Iterator[T]:
        """A block with the head that `look` finds at a moment when nobody else holds the lock.

        Raises `LockContentionError`, and `LeaseExpiredError` if the lock was held and is no more.
        """
        if self._config.readonly:
            raise StorageBackendError(f"{self._uri!r} is open for reading only", hint="open it without readonly")
        taken = self._begin(owner)
        try:
            yield self._found_free(owner, look) if self._lease is None else look()
        finally:
            if taken:
                self._lease = None
                with contextlib.suppress(OntolakeError):  # it will run out
                    drop(self._access, owner)

    def _begin(self, owner: str) -> bool:
        """See to the lock if it is held. Returns whether it was taken for this one commit."""
        if self._lease is not None:
            found = holder(self._access)
            if found is None or found.owner_id not in (owner, self._lease.owner_id):
                self._forget()
                raise lost(found)
            self._lease = found
            return False
        if self._beaten:
            # Its work is done already, so it waits for its turn a little longer.
            patience = max(self._config.lock_timeout, 2.0) * 4
            self._lease = take(self._access, owner, self._config.lease_ttl, patience)
            self._beaten = False
            return True
        return False

    def _found_free(self, owner: str, look: Callable[[], T]) -> T:
        # The head first: whoever takes the lock after the second look moves the head's fence behind the first. The
        # other way round, a commit could come to go by the new fence, and so get in while the lock is held.
        deadline = time.monotonic() + self._config.lock_timeout
        while True:
            head = look()
            found = holder(self._access)
            if found is None or found.owner_id == owner:
                return head
            wait_until_free(self._access, owner, deadline - time.monotonic())

    def check(self) -> None:
        """Raises `LeaseExpiredError` if a lock that is held has run out."""
        if self._lease is not None and self._lease.expires_at <= time.time():
            found = holder(self._access)
            if found is None or found.owner_id != self._lease.owner_id:
                self._forget()
                raise lost(found)
            self._lease = found

    def acquire(self, owner: str) -> Lease:
        """Hold the lock until it is released as often as it was acquired. Raises `LockContentionError`."""
        if self._config.readonly:
            raise StorageBackendError(f"{self._uri!r} is open for reading only", hint="open it without readonly")
        if self._lease is not None and self._lease.owner_id == owner:
            self._depth += 1
            return self.renew(owner)
        ttl = self._config.lease_ttl
        self._lease = take(self._access, owner, ttl, self._config.lock_timeout)
        self._depth = 1
        self._renewal = Renewal("ontolake-write-lock", ttl / 3, lambda: self._beat(owner), lambda: None)
        return self._lease

    def _beat(self, owner: str) -> bool:
        try:
            self._lease = extend(self._access, owner, self._config.lease_ttl)
        except LeaseExpiredError:
            return False
        return True

    def renew(self, owner: str) -> Lease:
        """Raises `LeaseExpiredError` if the lock is no longer held."""
        self._lease = extend(self._access, owner, self._config.lease_ttl)
        return self._lease

    @contextlib.contextmanager
    def held(self, owner: str) -> Iterator[None]:
        """A block in which nobody else commits: with the lock, which was held already or is taken for it.

        Raises `LockContentionError`.
        """
        if self._lease is not None:
            self.check()
            yield
            return
        self.acquire(owner)
        try:
            yield
        finally:
            self.release(owner)

    def release(self, owner: str) -> None:
        """Let others write. A lock that is lost is let go of in silence."""
        if self._depth > 1:
            self._depth -= 1
            return
        self._forget()
        try:
            drop(self._access, owner)
        except OntolakeError as error:
            _log.warning("the write lock of %s could not be released, and will run out: %s", self._uri, error)

    def _forget(self) -> None:
        self._depth = 0
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            renewal.stop()
        self._lease = None

    close = _forget


def holder(access: StoreObjects) -> Lease | None:
    """Who holds the lock, if it has not run out."""
    found = _read(access)[0]
    return None if found is None else Lease(found.owner_id, found.expires_at)


def _read(access: StoreObjects) -> tuple[Lock | None, str | None]:
    found = access.find(LOCK)
    if found is None:
        return None, None
    lock = layout.decode(found.data, Lock, LOCK, access.url)
    return (lock if lock.owner_id and lock.expires_at > time.time() else None), found.tag


def wait_until_free(access: StoreObjects, owner: str, timeout: float) -> str | None:
    """Wait until nobody else holds the lock, and return its tag as it was then; None if there never was a lock.

    Raises `LockContentionError` after `timeout`.
    """
    deadline = time.monotonic() + timeout
    while True:
        found, tag = _read(access)
        if found is None or found.owner_id == owner:
            return tag
        if time.monotonic() >= deadline:
            raise LockContentionError(f"{found.owner_id!r} holds the write lock of {access.url}",
                                      hint="try again, or wait until its lease runs out")
        time.sleep(random.uniform(_PAUSE / 2, _PAUSE))


def take(access: StoreObjects, owner: str, ttl: float, timeout: float) -> Lease:
    """Take the lock and fence off commits under way. Raises `LockContentionError`."""
    deadline = time.monotonic() + timeout
    while True:
        tag = wait_until_free(access, owner, max(0.0, deadline - time.monotonic()))
        lease = Lease(owner, time.time() + ttl)
        try:
            _write(access, lease, ttl, tag)
        except (PreconditionFailed, DurabilityUnconfirmed):
            if time.monotonic() >= deadline:
                raise LockContentionError(f"the write lock of {access.url} could not be taken in time",
                                          hint="try again") from None
            continue
        faults.reach("ontology objects: lock taken")
        fence(access)
        return lease


def extend(access: StoreObjects, owner: str, ttl: float) -> Lease:
    """Renew the lock. Raises `LeaseExpiredError` if it is no longer this owner's, or has run out."""
    while True:
        found, tag = _read(access)
        if found is None or found.owner_id != owner:
            raise lost(None if found is None else Lease(found.owner_id, found.expires_at))
        lease = Lease(owner, time.time() + ttl)
        with contextlib.suppress(PreconditionFailed):  # else somebody took it, or another thread of ours renewed it
            _write(access, lease, ttl, tag)
            return lease


def drop(access: StoreObjects, owner: str) -> None:
    """Let the lock go, if it is still this owner's."""
    found, tag = _read(access)
    if found is not None and found.owner_id == owner:
        try:
            _write(access, Lease("", 0.0), 0.0, tag)
        except PreconditionFailed:
            return


def _write(access: StoreObjects, lease: Lease, ttl: float, tag: str | None) -> None:
    nonce = new_nonce()
    data = layout.encode(Lock(lease.owner_id, now_text(), lease.expires_at, int(ttl * 1000), nonce.decode()))
    if tag is None:
        create(access.store, LOCK, data, nonce)
    else:
        replace(access.store, LOCK, data, tag, nonce)


def fence(access: StoreObjects, *, claims: bool = False) -> None:
    """Move the head without a commit, so that whoever read it before cannot commit.

    Where only `claims` on events were taken over, it can after a look at its own claim.
    """
    while True:
        found = access.find(layout.HEAD)
        if found is None:
            raise access.missing(layout.HEAD, "meta/engine.json")
        head = layout.decode(found.data, Head, layout.HEAD, access.url)
        nonce = new_nonce()
        fenced = msgspec.structs.replace(head, nonce=nonce.decode(), fence=head.fence if claims else nonce.decode())
        try:
            replace(access.store, layout.HEAD, layout.compact(fenced), found.tag, nonce)
            return
        except (PreconditionFailed, DurabilityUnconfirmed):
            continue


def lost(found: Lease | None) -> LeaseExpiredError:
    """What to raise when a lease is gone."""
    who = f"{found.owner_id!r} has it now" if found else "it ran out"
    return LeaseExpiredError(f"the write lock is no longer held: {who}", hint="acquire it again and start over")
