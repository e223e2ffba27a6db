"""Counting how often directories are listed, by the notices of the kernel."""

from __future__ import annotations

import ctypes
import os
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ACCESS = 0x1
_HEADER = struct.Struct("iIII")
"""Watch, what happened, a number for renames, the length of the name that follows."""


class Listings:
    """Listings of some directories; several of one that follow each other at once may count as one."""

    def __init__(self, folders: list[Path]) -> None:
        system = ctypes.CDLL(None, use_errno=True)
        self._notices = system.inotify_init1(os.O_NONBLOCK)
        assert self._notices >= 0, os.strerror(ctypes.get_errno())
        self._watched = {system.inotify_add_watch(self._notices, os.fsencode(folder), _ACCESS): folder
                         for folder in folders}  # fmt: skip
        assert min(self._watched) > 0, os.strerror(ctypes.get_errno())

    def taken(self) -> Counter[Path]:
        """What was listed since the last time. Files in the directories that were read do not count."""
        found: Counter[Path] = Counter()
        while True:
            try:
                data = os.read(self._notices, 65_536)
            except BlockingIOError:
                return found
            while data:
                watch, _, _, length = _HEADER.unpack_from(data)
                data = data[_HEADER.size + length :]
                if not length:
                    found[self._watched[watch]] += 1

    def close(self) -> None:
        os.close(self._notices)


@contextmanager
def listings(folders: list[Path]) -> Iterator[Listings]:
    counts = Listings(folders)
    try:
        yield counts
    finally:
        counts.close()
