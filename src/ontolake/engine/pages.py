"""A database file whose bytes are our pages: what SQLite reads, writes, locks and commits goes to the seam.

A read transaction reads at one LSN. What a transaction writes is collected, and appended as one batch when
SQLite commits; a rollback forgets it. SQLite's page n is page n of the seam, and page 1 is always the last of
a batch, so that its version tells where a commit ended.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NoReturn

import apsw

from ontolake.engine.ahead import ReadAhead
from ontolake.engine.database import PageDatabase
from ontolake.engine.failures import for_sqlite
from ontolake.engine.moments import HEADER_PAGE
from ontolake.errors import NotFound, StorageError, Transient
from ontolake.storage import BranchId, Lsn, Page, PageId, WalRecord
from ontolake.storage.cache import Cache

_NONE, _RESERVED = apsw.SQLITE_LOCK_NONE, apsw.SQLITE_LOCK_RESERVED
_COMMIT = apsw.SQLITE_FCNTL_COMMIT_PHASETWO
_PRAGMA = apsw.SQLITE_FCNTL_PRAGMA
_FETCHED = 4096
_VERSIONS, _CHANGES, _VALID_FOR = slice(18, 20), slice(24, 28), slice(92, 96)
_ROLLBACK = b"\1\1"
"""What the header says of a database that keeps no write-ahead log of SQLite's own."""


class PageFile:
    """The file that one connection has open. Called by SQLite, one call at a time."""

    def __init__(self, database: PageDatabase, branch: BranchId, at: Lsn | None, leave: Callable[[], None]) -> None:
        self._database = database
        self._storage = database.storage
        self._remote = database.remote
        self._page_size = database.storage.page_size
        self._branch = branch
        self._at = at
        self._leave = leave
        self.losses = database.losses
        # What does not change needs no locks.
        self._characteristics = apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE if at is None else apsw.SQLITE_IOCAP_IMMUTABLE
        self._level = _NONE
        self._lsn = at if at is not None else Lsn(-1)
        self._size = -1
        self._first: bytes | None = None
        """Page 1 as SQLite is to see it, which every transaction begins with; None if it has to be looked up."""
        self._dirty: dict[int, bytes] = {}
        self._fetched: Cache[bytes] = Cache(_FETCHED)
        self._ahead = ReadAhead()

    # reading
    def xRead(self, amount: int, offset: int) -> bytes:
        size = self._page_size
        if offset + amount <= size:
            first = self._first
            return (first if first is not None else self._header())[offset : offset + amount]
        if self._lsn < 0:
            self._look()
        number, start = divmod(offset, size)
        if start + amount <= size:
            page = self._page(number + 1)
            return page if amount == size else page[start : start + amount]
        end = offset + amount
        numbers = range(number, (end + size - 1) // size)
        pages = (self._page(n + 1).ljust(size, b"\0")[max(offset - n * size, 0) : end - n * size] for n in numbers)
        return b"".join(pages)

    def _header(self) -> bytes:
        if self._lsn < 0:
            self._look()
        self._first = self._page(HEADER_PAGE)
        return self._first

    def _page(self, number: int) -> bytes:
        written = self._dirty.get(number)
        if written is not None:
            return written
        try:
            if self._remote:
                return self._fetched.get(number) or self._fetch(number)
            return self._storage.get_page(PageId(number), self._lsn, branch=self._branch).bytes
        except NotFound:
            return self._never_written()
        except (StorageError, OSError) as error:
            _refuse(error)

    def _fetch(self, number: int) -> bytes:
        """A page, and with it those that are likely to be asked for next."""
        last = 1 if number == HEADER_PAGE else self.xFileSize() // self._page_size
        numbers = self._ahead.guess(number, last)
        wanted = [PageId(n) for n in numbers if self._fetched.get(n) is None]
        found = self._storage.get_pages(wanted, self._lsn, branch=self._branch)
        for page in found:
            if isinstance(page, Page):
                self._fetched.put(page.id, page.bytes)
                self._ahead.learn(page.id, page.bytes, last)
        first = found[0]
        if isinstance(first, StorageError):
            raise first
        return first.bytes

    def _never_written(self) -> bytes:
        """SQLite takes a short read for zeros, as in a file that ends here. But the page must not have been there."""
        try:
            self._storage.resolve_branch(self._branch)
            floor = self._storage.pitr_floor()
            if self._lsn < floor:
                raise NotFound(f"LSN {self._lsn} is no longer kept: the oldest that can be read is {floor}",
                               hint="begin a new transaction, or connect at a later LSN")
        except (StorageError, OSError) as error:
            _refuse(error)
        return b""

    def xFileSize(self) -> int:
        if self._lsn < 0:
            self._look()
        if self._size < 0:
            head = self._first if self._first is not None else self._header()
            if len(head) >= 32:
                page_size, pages = struct.unpack_from(">H10xI", head, 16)
                self._size = pages * (65536 if page_size == 1 else page_size)
            else:
                self._size = 0
        return self._size

    def _look(self) -> None:
        """Read at the newest commit from now on."""
        try:
            lsn = self._database.snapshot()
        except (StorageError, OSError) as error:
            _refuse(error)
        if lsn != self._lsn:
            self._lsn, self._size, self._first = lsn, -1, None
            self._fetched.clear()
            self._ahead.forget()

    # writing
    def xWrite(self, data: bytes, offset: int) -> None:
        size = self._page_size
        end = max(self.xFileSize(), offset + len(data))
        number, start = divmod(offset, size)
        if start == 0 and len(data) == size:
            self._dirty[number + 1] = data
        else:
            self._write_pieces(data, offset)
        if number == 0:
            self._first = self._dirty[HEADER_PAGE]
        self._size = end

    def _write_pieces(self, data: bytes, offset: int) -> None:
        """A write that is not just one page: SQLite's pages can be of another size if they came from a backup."""
        size, at = self._page_size, 0
        while at < len(data):
            number, start = divmod(offset + at, size)
            piece = data[at : at + size - start]
            page = bytearray(self._page(number + 1).ljust(size, b"\0"))
            page[start : start + len(piece)] = piece
            self._dirty[number + 1] = bytes(page)
            at += len(piece)

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
            return self._pinned(pragma, pragma.name.lower(), (pragma.value or "").lower())
        return False

    def _pinned(self, pragma: apsw.VFSFcntlPragma, name: str, value: str) -> bool:
        """Whether a pragma would change what cannot change here. It is then answered with what is and stays."""
        if name == "journal_mode" and value not in ("", "memory"):
            # The log of the seam is the journal; one of SQLite's own would only cost.
            pragma.result = "memory"
        elif name == "locking_mode" and value not in ("", "normal"):
            # Holding a lock between transactions would keep nobody out, and hide who took over.
            pragma.result = "normal"
        else:
            return name == "page_size" and value not in ("", str(self._page_size))
        return True

    def _commit(self) -> None:
        if not self._dirty:
            return
        try:
            first = self._dirty.pop(HEADER_PAGE, None) or self._page(HEADER_PAGE).ljust(self._page_size, b"\0")
            if first[_VERSIONS] != _ROLLBACK:
                first = _out_of_wal_mode(first)
            records = [WalRecord(image, PageId(number)) for number, image in sorted(self._dirty.items())]
            records.append(WalRecord(first, HEADER_PAGE))
            self._lsn = self._database.commit(records, self._branch, self._lsn)
            if self._remote:
                self._keep(records)
        except BaseException as error:
            # Whatever went wrong, even an interrupt: SQLite must not take its cache for what is stored.
            _refuse(error)
        finally:
            self._dirty, self._first, self._size = {}, None, -1

    def _keep(self, records: Sequence[WalRecord]) -> None:
        """Nobody else has written, so what was fetched before is as new as what was written now."""
        last = self._size // self._page_size
        for image, number in records:
            if number is not None:
                self._fetched.put(number, image)
                self._ahead.learn(number, image, last)

    # locking
    def xLock(self, level: int) -> None:
        if self._level == _NONE and self._at is None:
            self._look()
        if level >= _RESERVED > self._level:
            try:
                self._database.begin_write(self, self._branch, self._lsn)
            except (StorageError, OSError) as error:
                _refuse(error)
        if level > self._level:
            self._level = level

    def xUnlock(self, level: int) -> None:
        if self._level >= _RESERVED > level:
            self._dirty, self._first, self._size = {}, None, -1
            self._database.end_write(self, self._branch)
        if level < self._level:
            self._level = level

    def xCheckReservedLock(self) -> bool:
        return False

    # the rest
    def xSectorSize(self) -> int:
        return self._page_size

    def xDeviceCharacteristics(self) -> int:
        return self._characteristics

    def xClose(self) -> None:
        self._leave()


def _out_of_wal_mode(first: bytes) -> bytes:
    """Page 1 of a database that was copied from one in WAL mode, changed so that its writer notices."""
    page = bytearray(first)
    page[_VERSIONS] = _ROLLBACK
    count = (int.from_bytes(page[_CHANGES], "big") + 1) % 2**32
    page[_CHANGES] = page[_VALID_FOR] = count.to_bytes(4, "big")
    return bytes(page)


def _refuse(error: BaseException) -> NoReturn:
    """Raise an error so that SQLite and whoever called it both understand."""
    if isinstance(error, OSError):
        cause = error
        error = Transient(f"a page could not be read: {cause}")
        error.__cause__ = cause
    raise for_sqlite(error)
