"""The writer's place as one process holds it: taken when it is needed, renewed in the background, given up in the end.

A lease that lapsed while the process was paused is noticed at the latest by the next write, and taken anew. One that
another writer has taken over is lost: `losses` counts these.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
import uuid

from ontolake.errors import Fenced, StorageError
from ontolake.storage import FenceToken, Storage

_log = logging.getLogger("ontolake.engine")


class WriterLease:
    """Holds the fence of a storage. Methods are safe to call from threads."""

    def __init__(self, url: str, storage: Storage, renew_every: float) -> None:
        self._url = url
        self._storage = storage
        self._renew_every = renew_every
        self._owner = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
        self._lock = threading.RLock()
        self._token: FenceToken | None = None
        self._last: FenceToken | None = None
        """The token that this process got last and has not given up, whether it still holds or not."""
        self.losses = 0
        """How often another writer has taken the place over."""
        self.epochs = (0, 0)
        """The epoch of the token that was lost last, and of the writer that took over."""
        self._stop: threading.Event | None = None
        self._thread: threading.Thread | None = None

    @property
    def token(self) -> FenceToken | None:
        """The token, as long as it holds by the clock. Somebody may have taken over since."""
        token = self._token
        return token if token is not None and time.time() < token.lease_until else None

    def holder_elsewhere(self) -> FenceToken | None:
        """Whoever else may write now, as the log says."""
        current = self._storage.current_fence()
        if current is None or current.owner == self._owner or time.time() >= current.lease_until:
            return None
        return current

    def take(self) -> FenceToken:
        """Take over as writer and keep renewing the lease. Raises `Contended` if another one was quicker."""
        self.look()
        token = self._storage.acquire_fence(self._owner)
        with self._lock:
            self._token = self._last = token
            if self._thread is None:
                self._stop = threading.Event()
                self._thread = threading.Thread(
                    target=self._renew, args=(self._stop,), name="ontolake-lease", daemon=True)
                self._thread.start()
        return token

    def _renew(self, stop: threading.Event) -> None:
        while not stop.wait(self._renew_every):
            token = self._token
            if token is None:
                continue
            try:
                renewed = self._storage.renew_fence(token)
            except Fenced as fenced:
                self.lost(token, fenced)
            except (StorageError, OSError) as error:
                if not stop.is_set():
                    _log.warning("the lease on %s could not be renewed: %s", self._url, error)
            else:
                with self._lock:
                    if self._token is not None and self._token.epoch == renewed.epoch:
                        self._token = self._last = renewed

    def look(self) -> None:
        """Find out whether another writer has taken over since this process got its last token."""
        last = self._last
        if last is None:
            return
        current = self._storage.current_fence()
        if current is None or current.epoch != last.epoch:
            try:
                self._storage.renew_fence(last)
            except Fenced as fenced:
                self.lost(last, fenced)

    def lost(self, token: FenceToken, fenced: Fenced) -> None:
        """The token turned out to be void: superseded, or only expired."""
        with self._lock:
            if self._token is not None and self._token.epoch == token.epoch:
                self._token = None
            if self._last is not None and self._last.epoch == token.epoch and fenced.current > token.epoch:
                self._last = None
                self.losses, self.epochs = self.losses + 1, (token.epoch, fenced.current)

    def give_up(self) -> None:
        """Let others write at once, if this process still could."""
        with self._lock:
            token, self._token, self._last = self._token, None, None
            thread, self._thread = self._thread, None
            if self._stop is not None:
                self._stop.set()
        # A connection that nobody closed may be collected in any thread, so in that one too.
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        if token is not None:
            with contextlib.suppress(StorageError, OSError):
                self._storage.release_fence(token)
