"""Files of columns beside a native store: `shop.db-columns/` has one for each big table that was scanned.

They are a cache: whoever deletes them loses time only. A file has a checksum and says which state of which store it is
of; one that cannot be read, or is of another state, is as good as none. Files are written under a lock, which whoever
removes rows for good waits for, so that no file with such rows appears afterwards.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import struct
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ontolake import faults, urls
from ontolake.storage.filelock import FileLock

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("ontolake.ontology")
_MAGIC = b"ONTOCOL1"
_TRAILER = struct.Struct("<QQI8s")
"""Lengths of both Arrow parts, a file and a stream, the checksum of what is before it, and the magic."""
_ABOUT = b"ontolake"
_ENDING = ".columns"


class ColumnFile(NamedTuple):
    """What a file holds: rows, successors on other branches than the first, and which state of a store that is."""

    rows: pa.Table
    elsewhere: pa.Table
    about: Mapping[str, Any]


class ColumnFolder:
    """The folder beside a store."""

    def __init__(self, uri: str, timeout: float) -> None:
        self.path = Path(f"{urls.parse(uri).path}-columns")
        self._timeout = timeout

    def mark(self, table: str) -> object:
        """Something that differs once the file of a table is another one; None if there is none."""
        try:
            found = self._file(table).stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def load(self, table: str) -> ColumnFile | None:
        """The file of a table, mapped into memory; None if there is none that can be read."""
        import pyarrow as pa

        path = self._file(table)
        try:
            if path.stat().st_size <= _TRAILER.size:
                return None
            with pa.memory_map(str(path)) as source:
                whole = source.read_buffer()
            return _parsed(whole)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            _log.warning("%s cannot be read, and is made anew: %s", path, error)
            return None

    def save(self, table: str, content: ColumnFile, is_current: Callable[[], bool]) -> bool:
        """Write the file of a table, unless another process writes one or the content is of the past by now.

        `is_current` looks at the store as it is. Returns whether the file was written.
        """
        import pyarrow as pa

        try:
            self.path.mkdir(exist_ok=True)
            with self._locked(wait=False) as is_ours:
                if not is_ours or not is_current():
                    return False
                self._sweep()
                new = self.path / f"{uuid.uuid4().hex}.new"
                try:
                    _write(new, content)
                    faults.reach("ontology: columns written, not yet in place")
                    new.replace(self._file(table))
                finally:
                    new.unlink(missing_ok=True)
            faults.reach("ontology: columns in place")
        except (OSError, pa.ArrowException) as error:
            _log.info("columns of %s are not kept in %s: %s", table, self.path, error)
            return False
        return True

    def is_writable(self) -> bool:
        """Whether files can be written at all."""
        return os.access(self.path if self.path.exists() else self.path.parent, os.W_OK)

    def drop(self) -> None:
        """Remove all files, after whoever writes one has ended.

        Raises `Transient` if that does not end in time, and `OSError` if a file cannot be removed.
        """
        if self.path.is_dir():
            with self._locked(wait=True):
                for one in self.path.glob(f"*{_ENDING}"):
                    one.unlink(missing_ok=True)
                self._sweep()
        faults.reach("ontology: columns dropped")

    def _file(self, table: str) -> Path:
        return self.path / f"{hashlib.sha256(table.encode()).hexdigest()[:24]}{_ENDING}"

    def _sweep(self) -> None:
        """Remove what was left behind. Nobody else writes while the lock is held."""
        for one in self.path.glob("*.new"):
            one.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self, *, wait: bool) -> Iterator[bool]:
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            lock = FileLock(descriptor, str(self.path), self._timeout)
            if wait:
                with lock:
                    yield True
            else:
                yield lock.is_free()  # closing the file releases it
        finally:
            os.close(descriptor)


def _write(path: Path, content: ColumnFile) -> None:
    import pyarrow as pa

    about = {_ABOUT: json.dumps(content.about).encode()}
    lengths = []
    with pa.OSFile(str(path), "wb") as sink:
        rows = content.rows.replace_schema_metadata(about)
        for table, opened in ((rows, pa.ipc.new_file), (content.elsewhere, pa.ipc.new_stream)):
            begun = sink.tell()
            with opened(sink, table.schema) as writer:
                writer.write_table(table)
            lengths.append(sink.tell() - begun)
    with pa.memory_map(str(path)) as source:
        checksum = _checksum(source.read_buffer(), lengths)
    with path.open("ab") as file:
        file.write(_TRAILER.pack(*lengths, checksum, _MAGIC))


def _checksum(content: pa.Buffer, lengths: Sequence[int]) -> int:
    return zlib.crc32(_TRAILER.pack(*lengths, 0, _MAGIC), zlib.crc32(content))


def _parsed(whole: pa.Buffer) -> ColumnFile:
    """Raises `ValueError`, `KeyError`, `TypeError` or `ArrowException` for anything but a whole file."""
    import pyarrow as pa

    size = whole.size - _TRAILER.size
    first, second, checksum, magic = _TRAILER.unpack(whole.slice(size).to_pybytes())
    if magic != _MAGIC or first + second != size:
        raise ValueError("it is not a whole file of columns")
    if _checksum(whole.slice(0, size), (first, second)) != checksum:
        raise ValueError("its checksum is another one")
    rows = pa.ipc.open_file(whole.slice(0, first)).read_all()
    elsewhere = pa.ipc.open_stream(whole.slice(first, second)).read_all()
    return ColumnFile(rows.replace_schema_metadata(None), elsewhere, json.loads(rows.schema.metadata[_ABOUT]))
