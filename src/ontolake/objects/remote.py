"""Objects in a bucket or container of any provider, through obstore.

Conditional writes are sent once, so that an answer is never about an earlier try of our own; everything else
may be repeated safely and is, a few times. A server that cannot be reached is reported within about 15 seconds.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

import obstore

from ontolake import faults
from ontolake.errors import Invalid, NotFound, PreconditionFailed, StorageError
from ontolake.objects.keys import check, check_prefix, check_range
from ontolake.objects.listing import in_key_order, start_after
from ontolake.objects.providers import provider_of
from ontolake.objects.ranges import Fetch, read_ranges
from ontolake.objects.requests import REQUESTS
from ontolake.objects.responses import RangeBeyondEnd, explain
from ontolake.objects.store import Object, ObjectInfo, Range
from ontolake.urls import Location

T = TypeVar("T")

PARALLEL = 32
"""Requests of one `get_ranges` or `delete` under way at a time."""

_CLIENT = {"connect_timeout": "3s", "timeout": "30s", "user_agent": "ontolake"}
_BACKOFF = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2}
_REPEAT = {"max_retries": 3, "retry_timeout": timedelta(seconds=8), "backoff": _BACKOFF}
_ONCE = {"max_retries": 0, "retry_timeout": timedelta(seconds=8), "backoff": _BACKOFF}

_used_by: int | None = None
"""The process that made the first request, in this process or the one it was forked from."""


class RemoteStore:
    """The objects of a bucket under a prefix. No request is made before the first use."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._provider = provider_of(location)
        self._prefix = f"{location.path}/" if location.path else ""
        self.url = f"{location.scheme}://{location.bucket}/{location.path}".rstrip("/")
        access = self._provider.access(location)
        self.endpoint = access.endpoint
        self._options = access.obstore()
        self._options["client_options"].update(_CLIENT)
        self._lock = threading.Lock()
        self._clients: tuple[Any, Any] | None = None
        self._pool: ThreadPoolExecutor | None = None

    def get(self, key: str) -> Object:
        full = self._full(key)

        def request() -> Object:
            result = obstore.get(self._client(), full)
            return Object(bytes(result.bytes()), self._tag(result.meta))

        return self._ask(key, "get", request)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(start, length)
        full = self._full(key)
        # HTTP has no empty range; one byte says as well whether the object is there.
        wanted = max(length, 1)
        try:
            data = self._ask(key, "get", lambda: bytes(
                obstore.get_range(self._client(), full, start=start, length=wanted)))
        except RangeBeyondEnd:
            return b""
        return data[:length]

    def get_ranges(self, ranges: Sequence[Range]) -> list[bytes | StorageError]:
        return read_ranges(ranges, self._fetch_all)

    def put(self, key: str, data: bytes) -> str:
        return self._put(key, data, "overwrite", self._client())

    def put_if_absent(self, key: str, data: bytes) -> str:
        return self._put(key, data, "create", self._client(once=True))

    def put_if_match(self, key: str, data: bytes, tag: str) -> str:
        try:
            return self._put(key, data, {self._provider.version_field: tag}, self._client(once=True))
        except NotFound:
            raise PreconditionFailed(f"object {key!r} in {self.url} is not there", hint="read it again") from None

    def list(self, prefix: str = "", *, after: str | None = None) -> Iterator[ObjectInfo]:
        whole = self._prefix + check_prefix(prefix)
        base = whole[: whole.rfind("/") + 1]
        last = None if after is None else self._prefix + after
        if last is not None and last > whole and not last.startswith(whole):
            return  # past all that start with the prefix
        for info in in_key_order(self._list_requests(base, start_after(whole, last, base)), base):
            if not info.key.startswith(whole):
                if info.key > whole:
                    return
            elif last is None or info.key > last:
                yield info._replace(key=info.key[len(self._prefix) :])

    def delete(self, keys: Iterable[str]) -> None:
        names = list(dict.fromkeys(keys))
        full = [self._full(key) for key in names]
        if not full:
            return
        what = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        faults.reach(f"remote: before delete {what}")
        if not (self._provider.deletes_many and self._delete_many(what, full)):
            for outcome in self._executor().map(lambda name: self._outcome(lambda: self._delete_one(name)), full):
                if isinstance(outcome, StorageError) and not isinstance(outcome, NotFound):
                    raise outcome
        faults.reach(f"remote: after delete {what}")

    def settle(self, prefix: str) -> None:
        """Nothing to do: what is visible is durable."""

    def close(self) -> None:
        with self._lock:
            pool, self._pool, self._clients = self._pool, None, None
        if pool is not None:
            pool.shutdown(wait=True)

    def _full(self, key: str) -> str:
        return self._prefix + check(key)

    def _tag(self, meta: Any) -> str:
        tag = meta[self._provider.version_field]
        if not isinstance(tag, str):
            raise Invalid(f"the server at {self.endpoint} gives objects no tags", hint="conditional writes need them")
        return tag

    def _put(self, key: str, data: bytes, mode: Any, client: Any) -> str:
        full = self._full(key)
        faults.reach(f"remote: before put {key}")
        # In one request: a write in parts could neither be conditional nor be left half done unseen.
        tag = self._ask(key, "put", lambda: self._tag(obstore.put(client, full, data, mode=mode, use_multipart=False)))
        faults.reach(f"remote: after put {key}")
        return tag

    def _delete_many(self, what: str, full: Sequence[str]) -> bool:
        """Whether all are gone. Not if a provider gave up at one that is not there: the others may be left."""
        try:
            self._ask(what, "delete", lambda: obstore.delete(self._client(), full))
        except NotFound:
            return len(full) == 1
        return True

    def _delete_one(self, full: str) -> None:
        self._ask(full, "delete", lambda: obstore.delete(self._client(), full))

    def _list_requests(self, base: str, start: str | None) -> Iterator[ObjectInfo]:
        def chunks() -> Iterator[Any]:
            folder = base.rstrip("/") or None
            iterator = self._ask(
                base, "", lambda: iter(obstore.list(self._client(), prefix=folder, offset=start, chunk_size=1000))
            )
            while (chunk := self._ask(base, "list", lambda: next(iterator, None))) is not None:
                yield chunk

        for chunk in chunks():
            for meta in chunk:
                yield ObjectInfo(meta["path"], meta["size"], meta["last_modified"].timestamp())

    def _fetch_all(self, fetches: Sequence[Fetch]) -> Iterable[bytes | StorageError]:
        def fetch(one: Fetch) -> bytes | StorageError:
            return self._outcome(lambda: self.get_range(one.key, one.start, one.length))

        if len(fetches) == 1:
            return [fetch(fetches[0])]
        return self._executor().map(fetch, fetches) if fetches else []

    @staticmethod
    def _outcome(call: Callable[[], T]) -> T | StorageError:
        try:
            return call()
        except StorageError as error:
            return error

    def _ask(self, key: str, operation: str, request: Callable[[], T]) -> T:
        """The answer to `request`, or our error for what obstore raises. It is counted, unless `operation` is empty."""
        if operation:
            REQUESTS.add(operation)
        try:
            return request()
        except StorageError:
            raise
        except Exception as error:
            raise explain(error, key, self._location, self.endpoint) from error

    def _client(self, *, once: bool = False) -> Any:
        """Made when first needed, so that a store opened before a fork can be used after it."""
        _refuse_after_fork(self.url)
        with self._lock:
            if self._clients is None:
                self._clients = (self._make_client(_REPEAT), self._make_client(_ONCE))
            return self._clients[1 if once else 0]

    def _make_client(self, retries: dict[str, Any]) -> Any:
        try:
            return self._provider.client(self._location.bucket, {"retry_config": retries, **self._options})
        except Exception as error:
            raise explain(error, "", self._location, self.endpoint) from error

    def _executor(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="ontolake-objects")
            return self._pool


def _refuse_after_fork(url: str) -> None:
    """A forked process has the sockets of obstore's runtime but not its threads.

    A request from it would never be answered, and what it does to the shared sockets crashes the parent.
    """
    global _used_by
    if _used_by is None:
        _used_by = os.getpid()
    elif _used_by != os.getpid():
        raise Invalid(f"cannot use {url} in a process forked from one that has used a bucket",
                      hint="start processes with the spawn or forkserver method, or fork before the first use")
