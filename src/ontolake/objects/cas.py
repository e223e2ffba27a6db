"""Conditional writes whose outcome is known: the one place that decides what a lost response meant.

Everything written here carries a nonce of its own. Whoever is unsure reads the object back and looks for the
nonce, so neither a response lost on the way nor content that went from A to B and back to A can mislead.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterator

from ontolake.errors import (
    AlreadyExists,
    DurabilityUnconfirmed,
    Invalid,
    NotFound,
    PreconditionFailed,
    StorageError,
    Transient,
)
from ontolake.objects.store import Object, ObjectStore

TRIES = 5
"""How often a write, and each reading back, is tried."""

FIRST_WAIT = 0.05
"""Seconds before the second try, at most; doubles with every further one."""

PATIENCE = 15.0
"""Seconds after which nothing is tried again, for servers that take long to fail."""

_MIN_NONCE = 16


def new_nonce() -> bytes:
    """A nonce for one write: 32 hexadecimal digits, so that it fits into JSON as well as into binary data."""
    return secrets.token_hex(16).encode()


def create(store: ObjectStore, key: str, data: bytes, nonce: bytes) -> str:
    """Create an object that nobody replaces later, and return its tag; `nonce` must occur in `data`.

    Raises `AlreadyExists` if somebody else's object is there, `DurabilityUnconfirmed` if it cannot be told
    whether ours is, and `Invalid` as the store does or if `data` does not carry the nonce.
    """
    _check(key, data, nonce)
    for _ in _tries():
        try:
            return store.put_if_absent(key, data)
        except (PreconditionFailed, Transient):
            found = _read_back(store, key)
            if found is not None and nonce in found.data:
                return found.tag
            if found is not None:
                raise AlreadyExists(f"object {key!r} is in {store.url} already, written by somebody else") from None
    raise _unconfirmed(store, key)


def replace(store: ObjectStore, key: str, data: bytes, tag: str, nonce: bytes) -> str:
    """Replace the version `tag` of an object, and return the new tag; `nonce` must occur in `data`.

    Raises `PreconditionFailed` if the object is not at `tag` and our write did not happen, `Invalid` as the store
    does or if `data` does not carry the nonce, and `DurabilityUnconfirmed` if it cannot be told whether our write
    happened: no answer came, or a response was lost and somebody else has written since, maybe over ours.
    """
    _check(key, data, nonce)
    in_doubt = False  # once a response was lost, our write may have happened, and may yet
    for _ in _tries():
        try:
            return store.put_if_match(key, data, tag)
        except (PreconditionFailed, Transient) as error:
            in_doubt = in_doubt or isinstance(error, Transient)
            found = _read_back(store, key)
            if found is not None and nonce in found.data:
                return found.tag
            if found is None or found.tag != tag:
                if in_doubt:
                    raise _unconfirmed(store, key) from error
                raise PreconditionFailed(f"object {key!r} in {store.url} has changed", hint="read it again") from None
            # Still at `tag`, so trying again is safe: at most one of our tries can match it.
    raise _unconfirmed(store, key)


def _check(key: str, data: bytes, nonce: bytes) -> None:
    if len(nonce) < _MIN_NONCE:
        raise Invalid(f"a nonce of {len(nonce)} bytes for {key!r} is too short", hint="use new_nonce()")
    if nonce not in data:
        raise Invalid(f"the data for {key!r} does not carry its nonce", hint="put the nonce into the object")


def _read_back(store: ObjectStore, key: str) -> Object | None:
    for _ in _tries():
        try:
            return store.get(key)
        except NotFound:
            return None
        except Transient:
            continue
        except StorageError as error:
            raise _unconfirmed(store, key) from error
    raise _unconfirmed(store, key)


def _tries() -> Iterator[int]:
    """Counts the tries, and waits before each but the first."""
    begun = time.monotonic()
    for attempt in range(TRIES):
        if attempt:
            time.sleep(random.uniform(0, FIRST_WAIT * 2 ** (attempt - 1)))
        yield attempt
        if time.monotonic() - begun > PATIENCE:
            return


def _unconfirmed(store: ObjectStore, key: str) -> DurabilityUnconfirmed:
    return DurabilityUnconfirmed(
        f"it is not known whether {key!r} was written to {store.url}",
        hint="treat it as not written, and read the object before deciding again",
    )
