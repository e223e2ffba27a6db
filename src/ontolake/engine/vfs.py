"""The way from a name that SQLite opens to one of our page files. Files of other names are the operating system's."""

from __future__ import annotations

import itertools
import threading
import time

import apsw

from ontolake.engine.pages import PageFile

_PREFIX = "/ontolake-pages/"


class PageVfs(apsw.VFS):
    """Hands the files that were prepared for it to SQLite; attached and temporary files are native ones."""

    NAME = "ontolake"

    def __init__(self) -> None:
        super().__init__(self.NAME, base="")
        self._prepared: dict[str, PageFile] = {}
        self._numbers = itertools.count(1)

    def prepare(self, file: PageFile) -> str:
        """The name under which SQLite can open `file`, once."""
        name = f"{_PREFIX}{next(self._numbers)}"
        self._prepared[name] = file
        return name

    def forget(self, name: str) -> PageFile | None:
        """Take back a file that SQLite has not opened; None if it has."""
        return self._prepared.pop(name, None)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile | PageFile:  # type: ignore[override]
        filename = name.filename() if isinstance(name, apsw.URIFilename) else name
        if filename is None or not filename.startswith(_PREFIX):
            return super().xOpen(name, flags)
        file = self._prepared.pop(filename, None)
        if file is None:
            raise apsw.CantOpenError(f"{filename} is not open here; use ontolake.engine.connect")
        flags[1] = flags[0]
        return file

    def xFullPathname(self, name: str) -> str:
        return name if name.startswith(_PREFIX) else super().xFullPathname(name)

    def xAccess(self, path: str, flags: int) -> bool:
        return not path.startswith(_PREFIX) and super().xAccess(path, flags)

    def xSleep(self, microseconds: int) -> int:
        """Wait for a writer, and let the other threads run meanwhile, of which it may be one."""
        time.sleep(microseconds / 1e6)
        return microseconds


_vfs: PageVfs | None = None
_lock = threading.Lock()


def registered() -> PageVfs:
    """The one VFS of this process."""
    global _vfs
    with _lock:
        if _vfs is None:
            _vfs = PageVfs()
        return _vfs
