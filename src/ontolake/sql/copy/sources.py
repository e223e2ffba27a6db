"""Where COPY reads from and writes to: files by their paths, file objects, and Arrow data."""

from __future__ import annotations

import codecs
import io
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from ontolake.sql.errors import DataError, SqlError, TypeMismatchError

_STATES: tuple[tuple[type[OSError], str], ...] = (
    (FileNotFoundError, "58P01"), (PermissionError, "42501"), (IsADirectoryError, "42809"), (OSError, "58030"))


def arrow_batches(source: Any) -> Iterable[pa.RecordBatch] | None:
    """The batches of Arrow data; None for another source."""
    if isinstance(source, pa.RecordBatch):
        return [source]
    if isinstance(source, pa.Table):
        return source.to_batches(max_chunksize=1 << 17)  # type: ignore[no-any-return]
    if isinstance(source, pa.RecordBatchReader):
        return source  # type: ignore[no-any-return]
    if hasattr(source, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(source)  # type: ignore[no-any-return]
    if hasattr(source, "__arrow_c_array__"):
        return [pa.record_batch(source)]
    if hasattr(source, "to_batches"):
        return source.to_batches()  # type: ignore[no-any-return]
    return None


def shown(source: Any) -> str:
    """The name of a file or file object, for errors."""
    found = source if isinstance(source, str | os.PathLike) else getattr(source, "name", None)
    return str(found) if isinstance(found, str | os.PathLike) else "the data"


@contextmanager
def reading(source: Any, encoding: str) -> Iterator[Callable[[int], bytes]]:
    """A function that gives the bytes of a file, in UTF-8. Raises `SqlError` for a file that cannot be read."""
    if isinstance(source, str | os.PathLike):
        with _translated(source), open(source, "rb") as file:
            yield _reader(file, encoding)
    elif hasattr(source, "read"):
        yield _reader(source, encoding)
    else:
        raise TypeMismatchError(f"COPY takes a path, a file object or Arrow data, not a {type(source).__name__}",
                                hint="for text use io.StringIO")


def _reader(file: Any, encoding: str) -> Callable[[int], bytes]:
    decoder = None if encoding == "utf-8" else codecs.getincrementaldecoder(encoding)()

    def read(size: int) -> bytes:
        found = file.read(size)
        if isinstance(found, str):
            return found.encode("utf-8", "surrogatepass")
        if decoder is None:
            return bytes(found)
        try:
            while not (text := decoder.decode(found, final=not found)) and found:
                found = file.read(size)
        except UnicodeDecodeError as error:
            raise DataError(f"{shown(file)} has bytes that are not {encoding}", sqlstate="22021") from error
        return text.encode()

    return read


@contextmanager
def writing(target: Any) -> Iterator[Callable[[bytes], object]]:
    """A function that takes bytes for a file. A file by its path is there when all is written, or as it was.

    Raises `SqlError` for a file that cannot be written.
    """
    if isinstance(target, str | os.PathLike):
        with _translated(target):
            path = Path(target)
            if path.exists() and not stat.S_ISREG(path.stat().st_mode):
                with path.open("wb") as file:
                    yield file.write
                return
            part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
            try:
                with part.open("xb") as file:
                    yield file.write
                part.replace(path)
            finally:
                with suppress(OSError):
                    part.unlink()
    elif isinstance(target, io.TextIOBase):
        yield lambda data: target.write(bytes(data).decode())
    elif hasattr(target, "write"):
        yield target.write
    else:
        raise TypeMismatchError(f"COPY writes to a path or a file object, not to a {type(target).__name__}")


@contextmanager
def _translated(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        state = next(state for kind, state in _STATES if isinstance(error, kind))
        raise SqlError(f"{os.fspath(path)}: {error.strerror or error}", sqlstate=state) from error
