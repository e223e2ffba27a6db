"""A second connection to a store, for what must go on in another thread while the first is amid a transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import apsw

from ontolake import urls
from ontolake.engine import connect
from ontolake.ontology.config import Config
from ontolake.ontology.errors import LockContentionError
from ontolake.ontology.repository.sqlite.failures import ours

ENDLESS = 10 * 365 * 86400.0
"""How long holds last where nobody else can come, so that nothing has to be renewed."""
_PATIENCE_MS = 250


def is_private(uri: str) -> bool:
    """Whether a store can be reached through one connection only."""
    return urls.parse(uri).path == ":memory:"


class Beside:
    """Opens the connection when it is first needed. To be used from one thread at a time."""

    def __init__(self, uri: str, config: Config, branch: str) -> None:
        self._uri = uri
        self._config = config
        self._branch = branch
        self._db: apsw.Connection | None = None

    @contextlib.contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """A short write transaction. Raises `LockContentionError` if another one is in the way."""
        db = self._db = self._db or self._opened()
        with write_transaction(db, self._uri):
            yield db

    def _opened(self) -> apsw.Connection:
        location = urls.parse(self._uri)
        if location.place is urls.Place.SQLITE:
            db = connect(self._uri)
            # What is lost with the power need not be kept: it ran out by then.
            db.execute("PRAGMA synchronous = NORMAL")
        else:
            options = {name: value for name, value in self._config.connect.items() if name != "takeover"}
            db = connect(self._uri, branch=self._branch, **options)
        db.set_busy_timeout(_PATIENCE_MS)
        return db

    def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()


@contextlib.contextmanager
def write_transaction(db: apsw.Connection, uri: str) -> Iterator[None]:
    """A write transaction of its own, which leaves the write lock alone: it makes no commit of the store."""
    with ours(uri):
        begin_immediate(db, uri)
        try:
            yield
            db.execute("COMMIT")
        finally:
            if not db.get_autocommit():
                db.execute("ROLLBACK")


def begin_immediate(db: apsw.Connection, uri: str) -> None:
    """Raises `LockContentionError` if another writer does not end in time."""
    try:
        db.execute("BEGIN IMMEDIATE")
    except apsw.BusyError as error:
        raise LockContentionError(f"another writer is at {uri!r}, and did not end in time",
                                  hint="try again") from error
