"""Databases that the connections of a process share: one open database for each URL and set of options.

So connections to one place never meet as strangers: a bucket takes one writer at a time, and caches are filled once.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from ontolake import urls
from ontolake.sql.connecting import open_own
from ontolake.sql.database import Database, open_database


class SharedDatabase:
    """An open database, and how many connections to it are open."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.count = 0


_open: weakref.WeakValueDictionary[Any, SharedDatabase] = weakref.WeakValueDictionary()
"""Held by their connections alone: when all are forgotten without being closed, so is the database."""
_lock = threading.RLock()


class SharedConnection:
    """A connection to a database that others of this process may use as well, each in its own transaction.

    `:memory:` is a database of its own for each connection. Raises what `open_database` raises.
    """

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        location = urls.parse(url)
        self._shared: SharedDatabase | None = None
        if location.path == ":memory:":
            self.database = open_own(url, options)
            return
        local = location.place in (urls.Place.SQLITE, urls.Place.PAGE_FILE, urls.Place.DIRECTORY)
        path = os.path.realpath(location.path) if local else location.path
        self._key = (os.getpid(), location.scheme, location.seam, location.place, location.bucket, path,
                     tuple(sorted(options.items())))  # fmt: skip
        with _lock:
            shared = _open.get(self._key)
            if shared is None or shared.database.session.closed:
                shared = SharedDatabase(open_database(url, **options))
                _open[self._key] = shared
            self.database = shared.database.connect()
            shared.count += 1
            self._shared = shared

    def close(self) -> None:
        """Give the connection up, and the database with the last one."""
        self.database.close()
        shared, self._shared = self._shared, None
        if shared is None:
            return
        with _lock:
            shared.count -= 1
            if shared.count == 0:
                if _open.get(self._key) is shared:
                    del _open[self._key]
                shared.database.close()
