"""Whole objects with a second try: what fails in passing is asked for again, what is missing is named."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from ontolake import faults
from ontolake.errors import NotFound, Transient
from ontolake.objects import Object, ObjectInfo, ObjectStore, Range
from ontolake.objects.store import Together
from ontolake.ontology.errors import StorageBackendError

TRIES = 4
FIRST_WAIT = 0.02
THREADS = 8

T = TypeVar("T")


def again(operation: Callable[[], T]) -> T:
    """Do what may be done more than once; the last `Transient` is raised."""
    for attempt in range(TRIES - 1):
        try:
            return operation()
        except Transient:
            time.sleep(FIRST_WAIT * 2**attempt)
    return operation()


class StoreObjects:
    """The objects of one store."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.url = store.url
        self._together = store if isinstance(store, Together) else None  # which takes long to find out
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="ontolake-objects")  # starts none yet

    def find(self, key: str) -> Object | None:
        """An object; None if it is not there."""
        try:
            return again(lambda: self.store.get(key))
        except NotFound:
            return None

    def need(self, key: str, why: str) -> bytes:
        """An object that must be there. Raises `StorageBackendError` if it is not."""
        found = self.find(key)
        if found is None:
            raise self.missing(key, why)
        return found.data

    def missing(self, key: str, why: str) -> StorageBackendError:
        return StorageBackendError(f"the object {key!r} is missing in {self.url}, and {why} names it",
                                   hint="restore it from a copy; nothing was changed")

    def some(self, key: str, start: int, length: int) -> bytes:
        """Bytes of a data file. Raises `StorageBackendError` if it is gone or too short."""
        try:
            found = again(lambda: self.store.get_range(key, start, length))
        except NotFound:
            raise self.missing(key, "a manifest") from None
        if len(found) != length:
            raise self._short(key, start + len(found), start + length)
        return found

    def _short(self, key: str, size: int, wanted: int) -> StorageBackendError:
        return StorageBackendError(f"the object {key!r} in {self.url} ends at {size} bytes, before {wanted}",
                                   hint="it was cut short; restore it from a copy")

    def whole(self, wanted: Sequence[tuple[str, int]]) -> list[bytes]:
        """Several data files of known sizes, all at once."""
        if len(wanted) == 1:
            return [self.some(wanted[0][0], 0, wanted[0][1])]
        found = again(lambda: self.store.get_ranges([Range(key, 0, size) for key, size in wanted]))
        done: list[bytes] = []
        for (key, size), data in zip(wanted, found, strict=True):
            if isinstance(data, bytes) and len(data) == size:
                done.append(data)
            elif isinstance(data, bytes):
                raise self._short(key, len(data), size)
            else:
                done.append(self.some(key, 0, size))  # asks again, and says what is wrong
        return done

    def write(self, objects: Mapping[str, bytes]) -> None:
        """Write objects that nobody else writes, at once; all are durable when it returns."""
        faults.reach("ontology objects: before writing")
        if len(objects) < 2:
            for key, data in objects.items():
                self._put(key, data)
        else:
            self.wait([self._pool.submit(self._put, key, data) for key, data in objects.items()])
        faults.reach("ontology objects: written")

    @contextmanager
    def written(self, fresh: Mapping[str, bytes], others: Mapping[str, bytes], ahead: Mapping[str, bytes]
                ) -> Iterator[None]:  # fmt: skip
        """A block that begins when all these objects are durable, in which what is `ahead` is put by a swap.

        Those that are `fresh` have keys that nobody knows before that swap.
        """
        store = self._together
        if store is None:
            self.write({**fresh, **others})
            yield
            return
        faults.reach("ontology objects: before writing")
        begun = [self._pool.submit(self._put, key, data) for key, data in others.items()]
        try:
            try:
                again(lambda: store.put_all(fresh, ahead))
            finally:
                self.wait(begun)
            faults.reach("ontology objects: written")
            yield
        finally:
            store.forget(ahead)

    def write_advisory(self, objects: Mapping[str, bytes]) -> None:
        """Write what can be made anew, and need not survive a crash."""
        if self._together is None:
            self.write(objects)
            return
        for key, data in objects.items():
            self._together.put_unsynced(key, data)

    def begin(self, key: str, data: bytes) -> Future[None]:
        """Write an object under a key that nobody knows yet, in the background; `wait` says when it is durable."""
        store = self._together
        if store is not None:
            return self._pool.submit(again, lambda: store.put_all({key: data}))
        return self._pool.submit(self._put, key, data)

    def wait(self, begun: Iterable[Future[None]]) -> None:
        """Until all of these are written. Raises what the first one raised that failed."""
        failed: BaseException | None = None
        for future in begun:
            failed = failed or future.exception()
        if failed is not None:
            raise failed

    def _put(self, key: str, data: bytes) -> None:
        again(lambda: self.store.put(key, data))

    def delete(self, keys: Collection[str]) -> None:
        """Delete objects; those that are not there are no matter."""
        if keys:
            again(lambda: self.store.delete(sorted(keys)))

    def listed(self, folder: str) -> list[ObjectInfo]:
        """The objects in a folder."""
        return again(lambda: [*self.store.list(folder)])

    def close(self) -> None:
        self._pool.shutdown()
        self.store.close()
