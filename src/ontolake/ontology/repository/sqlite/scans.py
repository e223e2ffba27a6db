"""Full scans of big tables of native stores, answered from columns that are kept in memory and in files."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import apsw

from ontolake import urls
from ontolake.model.columns import Column
from ontolake.ontology.config import Config
from ontolake.ontology.errors import StorageBackendError
from ontolake.ontology.repository.arrow import arrow_schema
from ontolake.ontology.repository.sqlite.beside import is_private
from ontolake.ontology.repository.sqlite.column_files import ColumnFolder
from ontolake.ontology.repository.sqlite.columns import (
    ColumnReader,
    Extent,
    Moment,
    TableColumns,
    from_file,
    nonce_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("ontolake.ontology")
_TAIL = 8
"""A file is written anew once this part of the rows is newer than it, one in so many."""
_PAST = 1.5
"""Where there are this many times as many rows as keys, the first scan reads only what it is asked for."""


class ColumnScans:
    """The columns of a store's tables, shared by all branches of a connection."""

    def __init__(self, uri: str, config: Config) -> None:
        self._path = urls.parse(uri).path
        self._config = config
        self._tables: dict[str, TableColumns] = {}
        self._scanned: set[str] = set()
        self._is_full = config.readonly
        """Whether nothing can be written beside the store."""
        self.folder = ColumnFolder(uri, config.lock_timeout)

    def scan(self, reader: ColumnReader, table: str, columns: Sequence[Column], moment: Moment) -> pa.Table | None:
        """What a full scan finds; None if the rows have to be read by SQL. Within a read transaction."""
        import pyarrow as pa

        extent = reader.extent()
        if extent is None or extent.place < self._config.sizes.column_rows:
            return None
        try:
            held = self._held(reader, table, columns, extent)
            if held is None and self._is_late(reader, table, extent):
                return None
            found = self._tables[table] = reader.read(extent, held)
            answer = found.scanned(columns, moment)
        except (pa.ArrowException, ValueError, OverflowError) as error:
            _log.info("%s is not scanned by columns: %s", table, error)
            self._tables.pop(table, None)
            return None
        self._save(table, found)
        return answer

    def drop(self) -> None:
        """Forget all columns, in memory and in files.

        Raises `Transient` if another process does not end writing them in time, `StorageBackendError` if they stay.
        """
        self._tables.clear()
        try:
            self.folder.drop()
        except OSError as error:
            raise StorageBackendError(f"rows are gone from {self._path!r}, but not from {str(self.folder.path)!r}: "
                                      f"{error}", hint="remove that folder") from error

    def _held(
        self, reader: ColumnReader, table: str, columns: Sequence[Column], extent: Extent
    ) -> TableColumns | None:  # fmt: skip
        """What is there of a table and still true. Raises `ValueError` if it is ahead of what this connection sees."""
        mark = self.folder.mark(table)
        held = self._tables.pop(table, None)
        if held is not None and held.mark == mark and reader.is_prefix(held, extent) and _has(held, columns):
            return held
        stored = None if mark is None else self.folder.load(table)
        held = None if stored is None else from_file(stored, table, mark)
        if held is None:
            return None
        if held.nonce == extent.nonce and (held.commit > extent.commit or held.place > extent.place):
            raise ValueError("another process has read on")
        return held if reader.is_prefix(held, extent) and _has(held, columns) else None

    def _is_late(self, reader: ColumnReader, table: str, extent: Extent) -> bool:
        """Whether the columns are not worth reading yet."""
        if self._is_full:
            return True
        if table in self._scanned or extent.place <= _PAST * (extent.place - reader.past_rows()):
            return False
        self._scanned.add(table)
        return True

    def _save(self, table: str, found: TableColumns) -> None:
        """Write columns if enough of them are new, and read them from the file from then on."""
        new = len(found.places) - found.saved
        if self._is_full or (found.saved and new * _TAIL < found.saved):
            return
        if self.folder.save(table, found.file(table), lambda: self._nonce() == found.nonce):
            del self._tables[table]
        elif not found.saved:
            self._tables.pop(table, None)
            self._is_full = not self.folder.is_writable()

    def _nonce(self) -> str | None:
        """The nonce of the store as it is now, whatever this process is in the middle of reading."""
        db = apsw.Connection(self._path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            db.set_busy_timeout(1000)
            return nonce_of(db)
        except apsw.Error:
            return None
        finally:
            db.close()


def scans_of(uri: str, config: Config) -> ColumnScans | None:
    """The scans of a store; None for one that is no native file."""
    native = urls.parse(uri).place is urls.Place.SQLITE and not is_private(uri)
    return ColumnScans(uri, config) if native else None


def _has(held: TableColumns, columns: Sequence[Column]) -> bool:
    """Whether rows have these columns, in their types."""
    wanted = arrow_schema(columns)
    there = held.rows.schema
    return len(wanted) == len(there) and all(there.get_field_index(field.name) >= 0 and
                                             there.field(field.name).type == field.type for field in wanted)
