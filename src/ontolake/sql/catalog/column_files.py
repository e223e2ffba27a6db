"""Decoded columns in files: what does not fit into memory, and the folder `shop.db-columns/` beside a native database.

They are a cache: whoever deletes them loses time only. A file of the folder has the columns of one table on one branch
at one version, each with a checksum; what is damaged, or of another database or history, is not used. Files are written
under a lock, which an erasure waits for, so that none with an erased row appears afterwards.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import struct
import tempfile
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ontolake import faults, urls
from ontolake.sql.keyspace.vectors import Wanted
from ontolake.sql.keyspace.versions import KeySpan
from ontolake.storage.filelock import FileLock

if TYPE_CHECKING:
    from ontolake.sql.transactions import SqlSession

ERASE = "-- erase"
"""What stands for a statement in the commit of an erasure."""
_log = logging.getLogger("ontolake.sql")
_MAGIC = b"ONTOSQC1"
_TRAILER = struct.Struct("<QI8s")
"""The length of the index, its checksum, and the magic."""
_ENDING = ".columns"
_ALIGNED = 64
_TIMEOUT = 30.0


def mapped(arrays: Sequence[pa.Array], folder: Path | None) -> list[pa.Array] | None:
    """The same arrays, mapped from a file that has no name any more; None if there is no room for it."""
    for place in (folder, None):
        try:
            if place is not None:
                place.mkdir(exist_ok=True)
            descriptor, name = tempfile.mkstemp(".new", dir=place)
        except OSError:
            continue
        try:
            os.close(descriptor)
            places = _write(Path(name), (_message(array) for array in arrays))
            with pa.memory_map(name) as source:
                whole = source.read_buffer()
            return [_array(whole.slice(*where[:2]), array.type) for where, array in zip(places, arrays, strict=True)]
        except (OSError, pa.ArrowException) as error:
            _log.info("columns cannot be kept in %s: %s", name, error)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(name)
    return None


def copied(array: pa.Array) -> pa.Array:
    """The same array in memory of its own: whoever has given it may change it or keep what it is a part of."""
    return _array(_message(array), array.type)


def _message(array: pa.Array) -> pa.Buffer:
    return pa.RecordBatch.from_arrays([array], names=["c"]).serialize()


def _write(path: Path, messages: Iterable[pa.Buffer]) -> list[tuple[int, int, int]]:
    """Write messages one behind the other: where each begins, its length and checksum."""
    places = []
    with pa.OSFile(str(path), "wb") as sink:
        for message in messages:
            places.append((sink.tell(), message.size, zlib.crc32(message)))
            sink.write(message)
            sink.write(bytes(-sink.tell() % _ALIGNED))
    return places


def _array(message: pa.Buffer, type: pa.DataType) -> pa.Array:
    return pa.ipc.read_record_batch(message, pa.schema([("c", type)])).column(0)


class SavedChunk(NamedTuple):
    """A chunk of a file: where each of its columns is."""

    span: KeySpan
    rows: int
    columns: Mapping[str, tuple[int, int, int]]
    whole: pa.Buffer

    def load(self, wanted: Wanted) -> pa.Array | None:
        """A column; None if it is not there or damaged."""
        place = self.columns.get(_name(wanted))
        if place is None:
            return None
        try:
            message = self.whole.slice(place[0], place[1])
            found = _array(message, wanted.type.arrow) if zlib.crc32(message) == place[2] else None
        except (pa.ArrowException, IndexError, ValueError):
            found = None
        return found if found is not None and len(found) == self.rows else None


def _name(wanted: Wanted) -> str:
    return repr(tuple(wanted))


class SavedTable(NamedTuple):
    """What a file has of a table: the version that it is of, the time of that commit, and chunks."""

    version: int
    time: int
    chunks: list[SavedChunk]


class TableToSave(NamedTuple):
    """The chunks of a table that are to be saved, each with what was decoded of it and what is in a file already."""

    table: int
    version: int
    chunks: Sequence[tuple[KeySpan, int | None, Mapping[Wanted, pa.Array], SavedChunk | None]]


def is_erased(session: SqlSession, since: int) -> bool:
    """Whether a row was erased after a version, or is being erased. Inside a transaction."""
    connection = session.connection
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'erasing'").fetchone() is None:
        return False
    if connection.execute("SELECT 1 FROM erasing LIMIT 1").fetchone() is not None:
        return True
    newest = session.state()[0]
    return any(row[2] == ERASE for row in session.log.page(since, newest, newest - since))


def _time_of(session: SqlSession, version: int) -> int | None:
    found = session.log.page(version - 1, version, 1)
    return int(found[0][1]) if found else None


class SavedColumns:
    """The folder beside a native database."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def beside(url: str) -> SavedColumns | None:
        """The folder of a database; None if that is not a file."""
        parsed = urls.parse(url)
        if parsed.place is not urls.Place.SQLITE or not parsed.path or parsed.path == ":memory:":
            return None
        return SavedColumns(Path(f"{parsed.path}-columns"))

    def load(self, session: SqlSession, table: int) -> SavedTable | None:
        """What is saved of a table; None if there is nothing, or it is of another history. Inside a transaction."""
        path = self._file(session.line, table)
        try:
            with pa.memory_map(str(path)) as source:
                whole = source.read_buffer()
            found = _parsed(whole)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, struct.error, pa.ArrowException) as error:
            _log.warning("%s cannot be read, and is made anew: %s", path, error)
            return None
        if _time_of(session, found.version) != found.time or is_erased(session, found.version):
            return None
        return found

    def save(self, session: SqlSession, tables: Sequence[TableToSave]) -> None:
        """Write the files of tables, unless another process writes or a row was erased meanwhile."""
        if not tables:
            return
        try:
            self.path.mkdir(exist_ok=True)
            with self._locked(wait=False) as is_ours, session.reading():
                if not is_ours or is_erased(session, min(each.version for each in tables)):
                    return
                self._sweep()
                for each in tables:
                    if (time := _time_of(session, each.version)) is not None:
                        self._save(session.line, each, time)
        except (OSError, pa.ArrowException) as error:
            _log.info("columns are not kept in %s: %s", self.path, error)

    def _save(self, line: int, given: TableToSave, time: int) -> None:
        new = self.path / f"{uuid.uuid4().hex}.new"
        try:
            columns = [_columns(arrays, saved) for _, _, arrays, saved in given.chunks]
            places = iter(_write(new, (_message(each) if isinstance(each, pa.Array) else each
                                       for some in columns for each in some.values())))  # fmt: skip
            index = {"version": given.version, "time": time, "chunks": [
                {"start": span.start.hex(), "end": span.end.hex(), "rows": rows or 0,
                 "columns": {name: next(places) for name in some}}
                for (span, rows, _, _), some in zip(given.chunks, columns, strict=True)]}  # fmt: skip
            text = json.dumps(index).encode()
            with new.open("ab") as file:
                file.write(text + _TRAILER.pack(len(text), zlib.crc32(text), _MAGIC))
            faults.reach("sql: columns written, not yet in place")
            new.replace(self._file(line, given.table))
        finally:
            new.unlink(missing_ok=True)
        faults.reach("sql: columns in place")

    def drop(self) -> None:
        """Remove all files, after whoever writes one has ended. Raises `Transient` if that does not end in time."""
        if self.path.is_dir():
            with self._locked(wait=True):
                for one in self.path.glob(f"*{_ENDING}"):
                    one.unlink(missing_ok=True)
                self._sweep()
        faults.reach("sql: columns dropped")

    def _file(self, line: int, table: int) -> Path:
        return self.path / f"{line}-{table}{_ENDING}"

    def _sweep(self) -> None:
        """Remove what was left behind. Nobody else writes while the lock is held."""
        for one in self.path.glob("*.new"):
            one.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self, *, wait: bool) -> Iterator[bool]:
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            lock = FileLock(descriptor, str(self.path), _TIMEOUT)
            if wait:
                with lock:
                    yield True
            else:
                yield lock.is_free()  # closing the file releases it
        finally:
            os.close(descriptor)


def _columns(arrays: Mapping[Wanted, pa.Array], saved: SavedChunk | None) -> dict[str, Any]:
    """The columns of a chunk by name: arrays, and messages of the file that it comes from."""
    known = {} if saved is None else {name: saved.whole.slice(*place[:2]) for name, place in saved.columns.items()}
    return known | {_name(wanted): array for wanted, array in arrays.items()}


def _parsed(whole: pa.Buffer) -> SavedTable:
    """Raises `ValueError`, `KeyError`, `TypeError` or `struct.error` for anything but a whole file."""
    size = whole.size - _TRAILER.size
    if size < 0:
        raise ValueError("it is too short")
    length, checksum, magic = _TRAILER.unpack(whole.slice(size).to_pybytes())
    if magic != _MAGIC or length > size:
        raise ValueError("it is not a whole file of columns")
    text = whole.slice(size - length, length).to_pybytes()
    if zlib.crc32(text) != checksum:
        raise ValueError("its checksum is another one")
    index: dict[str, Any] = json.loads(text)
    chunks = [SavedChunk(KeySpan(bytes.fromhex(each["start"]), bytes.fromhex(each["end"])), each["rows"],
                         {name: tuple(place) for name, place in each["columns"].items()}, whole)
              for each in index["chunks"]]  # fmt: skip
    return SavedTable(index["version"], index["time"], chunks)
