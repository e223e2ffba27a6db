"""Objects in this process, for tests and trials. A name is shared by all who open it, until the process ends."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from ontolake import faults
from ontolake.errors import AlreadyExists, NotFound, PreconditionFailed, StorageError
from ontolake.objects.keys import check, check_prefix, check_range
from ontolake.objects.ranges import Fetch, read_ranges
from ontolake.objects.store import Object, ObjectInfo, Range


class _Space:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, tuple[Object, float]] = {}


_spaces: dict[str, _Space] = {}
_spaces_lock = threading.Lock()
_versions = itertools.count(1)  # one count for all, so that a tag is never given twice


class MemoryStore:
    """The objects under `prefix` of the memory space `name`."""

    def __init__(self, name: str, prefix: str = "") -> None:
        self.url = f"memory://{name}/{prefix}".rstrip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        with _spaces_lock:
            self._space = _spaces.setdefault(name, _Space())

    def get(self, key: str) -> Object:
        found = self._space.objects.get(self._full(key))
        if found is None:
            raise NotFound(f"no object {key!r} in {self.url}")
        return found[0]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(start, length)
        return self.get(key).data[start : start + length]

    def get_ranges(self, ranges: Sequence[Range]) -> list[bytes | StorageError]:
        return read_ranges(ranges, lambda fetches: map(self._fetch, fetches))

    def put(self, key: str, data: bytes) -> str:
        full = self._full(key)
        with self._writing():
            return self._write(full, data)

    def put_if_absent(self, key: str, data: bytes) -> str:
        full = self._full(key)
        with self._writing():
            if full in self._space.objects:
                raise AlreadyExists(f"object {key!r} is in {self.url} already")
            return self._write(full, data)

    def put_if_match(self, key: str, data: bytes, tag: str) -> str:
        full = self._full(key)
        with self._writing():
            found = self._space.objects.get(full)
            if found is None or found[0].tag != tag:
                state = "is not there" if found is None else "has changed"
                raise PreconditionFailed(f"object {key!r} in {self.url} {state}", hint="read it again")
            return self._write(full, data)

    def list(self, prefix: str = "", *, after: str | None = None) -> Iterator[ObjectInfo]:
        start = self._prefix + check_prefix(prefix)
        with self._space.lock:
            found = [(full, entry) for full, entry in self._space.objects.items() if full.startswith(start)]
        cut = len(self._prefix)
        for full, (stored, modified) in sorted(found, key=lambda item: item[0]):
            if after is None or full[cut:] > after:
                yield ObjectInfo(full[cut:], len(stored.data), modified)

    def delete(self, keys: Iterable[str]) -> None:
        for full in [self._full(key) for key in keys]:
            with self._writing():
                self._space.objects.pop(full, None)

    def settle(self, prefix: str) -> None:
        """Nothing to do: what is visible is all there is."""

    def close(self) -> None:
        """Nothing to let go of: the objects stay, for whoever opens the name next."""

    def _full(self, key: str) -> str:
        return self._prefix + check(key)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        faults.reach("memory: before write")  # outside the lock: a test may pause one writer and run another
        with self._space.lock:
            yield
        faults.reach("memory: after write")

    def _write(self, full: str, data: bytes) -> str:
        tag = str(next(_versions))
        self._space.objects[full] = (Object(bytes(data), tag), time.time())
        return tag

    def _fetch(self, fetch: Fetch) -> bytes | StorageError:
        try:
            return self.get_range(fetch.key, fetch.start, fetch.length)
        except StorageError as error:
            return error
