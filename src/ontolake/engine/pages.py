"""A database file whose bytes are our pages: what SQLite reads, writes, locks and commits goes to the seam.

A read transaction reads at one LSN. What a transaction writes is collected, and appended as one batch when
SQLite commits; a rollback forgets it. SQLite's page n is page n of the seam, and page 1 is always the last of
a batch, so that its version tells where a commit ended.
"""

from __future__ import annotations

import struct

import apsw

from ontolake.engine.database import Database, release
from ontolake.engine.failing import for_sqlite
from ontolake.errors import NotFound, StorageError
from ontolake.storage import BranchId, Lsn, PageId, WalRecord

_NONE, _SHARED, _RESERVED = apsw.SQLITE_LOCK_NONE, apsw.SQLITE_LOCK_SHARED, apsw.SQLITE_LOCK_RESERVED
_COMMIT = apsw.SQLITE_FCNTL_COMMIT_PHASETWO
_PRAGMA = apsw.SQLITE_FCNTL_PRAGMA
_FIRST_WINDOW, _LAST_WINDOW, _KEPT_AHEAD = 8, 256, 2048


class PageFile:
    """The file that one connection has open. Called by SQLite, one call at a time."""

    def __init__(self, database: Database, branch: BranchId, at: Lsn | None, readonly: bool) -> None:
        self._database = database
        self._storage = database.storage
        self._page_size = database.storage.page_size
        self._branch = branch
        self._at = at
        self._readonly = readonly
        self._level = _NONE
        self._lsn = at if at is not None else Lsn(-1)
        self._size = -1
        self._dirty: dict[int, bytes] = {}
        self._ahead: dict[int, bytes] = {}
        self._window, self._window_end = _FIRST_WINDOW, -1

    # reading
    def xRead(self, amount: int, offset: int) -> bytes:
        if self._level == _NONE:
            self._look()
        size = self._page_size
        number, start = divmod(offset, size)
        if start + amount <= size:
            page = self._page(number + 1)
            return page if amount == size else page[start : start + amount]
        end = offset + amount
        numbers = range(number, (end + size - 1) // size)
        return b"".join(self._page(n + 1)[max(offset - n * size, 0) : end - n * size] for n in numbers)

    def _page(self, number: int) -> bytes:
        written = self._dirty.get(number)
        if written is not None:
            return written
        try:
            if self._database.remote:
                return self._read_ahead(number)
            return self._storage.get_page(PageId(number), self._lsn, branch=self._branch).bytes
        except NotFound:
            # Never written: SQLite takes a short read for zeros, as in a file that ends here.
            return b""
        except StorageError as error:
            raise for_sqlite(error) from None

    def _read_ahead(self, number: int) -> bytes:
        """The page, and with it those that follow if the file seems to be read from front to back."""
        found = self._ahead.get(number)
        if found is not None:
            return found
        sequential = self._window_end - self._window <= number <= self._window_end + _FIRST_WINDOW
        self._window = min(2 * self._window, _LAST_WINDOW) if sequential else _FIRST_WINDOW
        last = max(number, min(number + self._window - 1, self.xFileSize() // self._page_size))
        self._window_end = last
        if len(self._ahead) + self._window > _KEPT_AHEAD:
            self._ahead.clear()
        wanted = [PageId(n) for n in range(number, last + 1)]
        pages = self._storage.get_pages(wanted, self._lsn, branch=self._branch)
        for page in pages[1:]:
            if not isinstance(page, StorageError):
                self._ahead[page.id] = page.bytes
        if isinstance(pages[0], StorageError):
            raise pages[0]
        self._ahead[number] = pages[0].bytes
        return pages[0].bytes

    def xFileSize(self) -> int:
        if self._level == _NONE:
            self._look()
        if self._size < 0:
            self._size = 0
            head = self._dirty.get(1) or self._head()
            if len(head) >= 32:
                (page_size,) = struct.unpack_from(">H", head, 16)
                (pages,) = struct.unpack_from(">I", head, 28)
                self._size = pages * (65536 if page_size == 1 else page_size)
        return self._size

    def _head(self) -> bytes:
        try:
            return self._storage.get_page(PageId(1), self._lsn, branch=self._branch).bytes
        except NotFound:
            return b""
        except StorageError as error:
            raise for_sqlite(error) from None

    def _look(self) -> None:
        """Read at the newest commit from now on, or at the moment this file was opened for."""
        if self._at is not None:
            return
        try:
            lsn = self._database.snapshot()
        except StorageError as error:
            raise for_sqlite(error) from None
        if lsn != self._lsn:
            self._lsn, self._size = lsn, -1
            self._ahead.clear()

    # writing
    def xWrite(self, data: bytes, offset: int) -> None:
        size = self._page_size
        self.xFileSize()
        number, start = divmod(offset, size)
        if start == 0 and len(data) == size:
            self._dirty[number + 1] = bytes(data)
        else:
            at = 0
            while at < len(data):
                number, start = divmod(offset + at, size)
                piece = data[at : at + size - start]
                page = bytearray(self._page(number + 1).ljust(size, b"\0"))
                page[start : start + len(piece)] = piece
                self._dirty[number + 1] = bytes(page)
                at += len(piece)
        self._size = max(self._size, offset + len(data))

    def xTruncate(self, size: int) -> None:
        last = (size + self._page_size - 1) // self._page_size
        for number in [number for number in self._dirty if number > last]:
            del self._dirty[number]
        self._size = size

    def xSync(self, flags: int) -> None:
        """Nothing to do: what counts is the commit."""

    def xFileControl(self, operation: int, pointer: int) -> bool:
        if operation == _COMMIT:
            self._commit()
            return True
        if operation == _PRAGMA:
            pragma = apsw.VFSFcntlPragma(pointer)
            if pragma.name.lower() == "journal_mode" and (pragma.value or "memory").lower() != "memory":
                # The log of the seam is the journal; one of SQLite's own would only cost.
                pragma.result = "memory"
                return True
        return False

    def _commit(self) -> None:
        if not self._dirty:
            return
        try:
            first = self._dirty.pop(1, None) or self._head().ljust(self._page_size, b"\0")
            records = [WalRecord(image, PageId(number)) for number, image in sorted(self._dirty.items())]
            self._lsn = self._database.commit([*records, WalRecord(first, PageId(1))], self._branch)
        except StorageError as error:
            raise for_sqlite(error) from None
        finally:
            self._dirty.clear()
            self._ahead.clear()
            self._size = -1

    # locking
    def xLock(self, level: int) -> None:
        if self._level == _NONE:
            self._look()
        if level >= _RESERVED > self._level:
            if self._readonly:
                raise apsw.ReadOnlyError("this connection is for reading only")
            try:
                self._database.begin_write(self, self._branch, self._lsn)
            except StorageError as error:
                raise for_sqlite(error) from None
        self._level = max(self._level, level)

    def xUnlock(self, level: int) -> None:
        if self._level >= _RESERVED > level:
            if self._dirty:
                self._dirty.clear()
                self._size = -1
            self._database.end_write(self)
        self._level = min(self._level, level)

    def xCheckReservedLock(self) -> bool:
        return False

    # the rest
    def xSectorSize(self) -> int:
        return self._page_size

    def xDeviceCharacteristics(self) -> int:
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE

    def xClose(self) -> None:
        self._database.end_write(self)
        release(self._database)


class PageVfs(apsw.VFS):
    """Hands the files that were prepared for it to SQLite; temporary files go to the operating system."""

    NAME = "ontolake"

    def __init__(self) -> None:
        super().__init__(self.NAME, base="")
        self._prepared: dict[str, PageFile] = {}
        self._count = 0

    def prepare(self, file: PageFile) -> str:
        """The name under which SQLite can open `file`, once."""
        self._count += 1
        name = f"/ontolake-{self._count}"
        self._prepared[name] = file
        return name

    def forget(self, name: str) -> PageFile | None:
        return self._prepared.pop(name, None)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile | PageFile:  # type: ignore[override]
        filename = name.filename() if isinstance(name, apsw.URIFilename) else name
        file = self._prepared.pop(filename, None) if filename else None
        if file is not None:
            return file
        if flags[0] & (apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL):
            raise apsw.CantOpenError(f"{filename} is not open here; use ontolake.engine.connect")
        return super().xOpen(name, flags)

    def xFullPathname(self, name: str) -> str:
        return name

    def xAccess(self, path: str, flags: int) -> bool:
        return False if path.startswith("/ontolake-") else super().xAccess(path, flags)
