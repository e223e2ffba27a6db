"""`Renewal`: does something again and again in a thread of its own, so that a hold lasts while its owner works."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger("ontolake.ontology")


class Renewal:
    """Calls `beat` every `every` seconds until `stop`, or until it returns False: there is nothing left to renew.
    In the end it calls `finish`, in the same thread.

    A beat that raises is tried again at the next turn; what it was to renew lapses by itself if that goes on.
    """

    def __init__(
        self, name: str, every: float, beat: Callable[[], bool], finish: Callable[[], None] | None = None
    ) -> None:  # fmt: skip
        self._every = every
        self._beat = beat
        self._finish = finish
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._every):
                try:
                    if not self._beat():
                        return
                except Exception as error:
                    _log.warning("%s: not renewed, will try again: %s", self._thread.name, error)
        finally:
            if self._finish is not None:
                self._finish()

    def stop(self) -> None:
        """End it, and wait until a beat that has begun is over."""
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
