"""The databases that this process has open: one for each place, whatever its URL is spelt like.

Connections come and go; the first opens the storage, the last closes it. A forked process starts with none, and
at exit everything that is still open is closed, so that no lease outlives its process.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from typing import Any

from ontolake import urls
from ontolake.engine.database import PageDatabase
from ontolake.errors import Invalid
from ontolake.objects.providers import provider_of
from ontolake.storage import DEFAULT_PAGE_SIZE, open_storage
from ontolake.storage.options import StorageOptions
from ontolake.storage.schemes import is_registered

_log = logging.getLogger("ontolake.engine")


class Shared:
    """The connections of this process to one place."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.RLock()
        self._users = 0
        self._writers = 0
        self._knobs: dict[str, Any] = {}
        self.database: PageDatabase | None = None

    def join(self, knobs: dict[str, Any], *, create: bool, writes: bool) -> PageDatabase:
        """The database, opened if this is its first connection. `leave` gives it back."""
        with self._lock:
            # Counted first: a connection that is collected meanwhile must not be the last one.
            self._users += 1
            self._writers += writes
            try:
                if self.database is None:
                    self.database, self._knobs = _opened(self._url, knobs, create), knobs
                elif any(self._knobs.get(name) != value for name, value in knobs.items()):
                    raise Invalid(f"{self._url} is open in this process with other options than {knobs}",
                                  hint="use the same ones for all connections, or leave them out")
                return self.database
            except BaseException:
                self.leave(writes=writes)
                raise

    def leave(self, *, writes: bool) -> None:
        """A connection is done with the database."""
        with self._lock:
            self._users -= 1
            self._writers -= writes
            if self.database is None:
                return
            try:
                if not self._users:
                    self.close()
                elif writes and not self._writers:
                    self.database.stop_writing()
            except Exception:
                _log.exception("%s was not closed properly", self._url)

    def orphan(self) -> None:
        """This is a forked process's copy: what is open is its parent's, and locks may be held by threads of that."""
        self._lock = threading.RLock()
        if self.database is not None:
            self.database.orphan()
            self.database = None

    def close(self) -> None:
        """Close the database, whoever uses it."""
        database, self.database = self.database, None
        if database is not None:
            database.close()


def _opened(url: str, knobs: dict[str, Any], create: bool) -> PageDatabase:
    settings = {name: value for name, value in knobs.items() if name != "page_size"}
    # A backend that was registered may have knobs of its own, which it checks itself.
    known = {name: value for name, value in settings.items() if name in StorageOptions.__struct_fields__}
    options = StorageOptions.of(known if is_registered(url) else settings)
    page_size = knobs["page_size"] if "page_size" in knobs else _page_size_at(url)
    storage = open_storage(url, page_size=page_size, **settings | {"create": create and options.create})
    return PageDatabase(url, storage, min(options.fence_renew_ms, options.fence_lease_ms / 3) / 1000)


def _page_size_at(url: str) -> int:
    """The size of the pages that are there, for those who do not care."""
    stamp = None if is_registered(url) else urls.detect(url)
    return stamp.page_size if stamp is not None and stamp.page_size else DEFAULT_PAGE_SIZE


_places: dict[tuple[str, ...], Shared] = {}
_guard = threading.Lock()


def shared(url: str) -> Shared:
    """What this process has open at the place that `url` names. Raises `Invalid` for a URL that names none."""
    key, base = _key(url)
    with _guard:
        return _places.setdefault(key, Shared(base))


def _key(url: str) -> tuple[tuple[str, ...], str]:
    """The same for all spellings of one place, and the URL that storage is opened with."""
    if is_registered(url):
        return (url,), url
    location = urls.parse(url)
    local = location.place in (urls.Place.PAGE_FILE, urls.Place.DIRECTORY)
    path = os.path.realpath(location.path) if local else location.path
    namespace = provider_of(location).access(location).namespace if location.place is urls.Place.BUCKET else ""
    return (location.scheme, location.bucket, path, namespace), location.base_url


def _close_all() -> None:
    for place in list(_places.values()):
        try:
            place.close()
        except Exception:
            # Storage may need threads, which an interpreter that ends does not start. The lease lapses by itself.
            _log.debug("a database was not closed properly", exc_info=True)


def _start_anew() -> None:
    """In a forked process: what is open here belongs to the parent."""
    global _guard
    _guard = threading.Lock()
    for place in _places.values():
        place.orphan()
    _places.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_start_anew)
