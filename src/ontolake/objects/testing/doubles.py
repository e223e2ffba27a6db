"""Stores around a real one that add latency, count, or fail at a chosen operation.

All three pass everything else on, so a test sees the behaviour of the store inside.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from ontolake.errors import StorageError, Transient
from ontolake.objects.store import Object, ObjectInfo, ObjectStore, Range

T = TypeVar("T")

READS = frozenset({"get", "get_range", "get_ranges", "list"})
WRITES = frozenset({"put", "put_if_absent", "put_if_match", "delete"})


class _Around:
    """Passes every operation to `inner` by way of `_call`, which the doubles override."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.url = inner.url

    def _call(self, verb: str, key: str, sent: int, operation: Callable[[], T]) -> T:
        raise NotImplementedError

    def get(self, key: str) -> Object:
        return self._call("get", key, 0, lambda: self.inner.get(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._call("get_range", key, 0, lambda: self.inner.get_range(key, start, length))

    def get_ranges(self, ranges: Sequence[Range]) -> list[bytes | StorageError]:
        key = ranges[0].key if ranges else ""
        return self._call("get_ranges", key, 0, lambda: self.inner.get_ranges(ranges))

    def put(self, key: str, data: bytes) -> str:
        return self._call("put", key, len(data), lambda: self.inner.put(key, data))

    def put_if_absent(self, key: str, data: bytes) -> str:
        return self._call("put_if_absent", key, len(data), lambda: self.inner.put_if_absent(key, data))

    def put_if_match(self, key: str, data: bytes, tag: str) -> str:
        return self._call("put_if_match", key, len(data), lambda: self.inner.put_if_match(key, data, tag))

    def delete(self, keys: Iterable[str]) -> None:
        names = [*keys]
        self._call("delete", names[0] if names else "", 0, lambda: self.inner.delete(names))

    def settle(self, prefix: str) -> None:
        self.inner.settle(prefix)

    def close(self) -> None:
        self.inner.close()

    # Last, since the name hides the builtin for what follows in the class.
    def list(self, prefix: str = "", *, after: str | None = None) -> Iterator[ObjectInfo]:
        return iter(self._call("list", prefix, 0, lambda: [*self.inner.list(prefix, after=after)]))


class SlowStore(_Around):
    """Adds `latency` seconds to every operation. Many ranges at once, or keys deleted, cost it once."""

    def __init__(self, inner: ObjectStore, latency: float) -> None:
        super().__init__(inner)
        self.latency = latency

    def _call(self, verb: str, key: str, sent: int, operation: Callable[[], T]) -> T:
        time.sleep(self.latency)
        return operation()


class CountingStore(_Around):
    """Counts operations, and bytes sent and received, by verb."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        self.operations: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """All operations since the last `reset`."""
        return self.operations.total()

    @property
    def writes(self) -> int:
        """The operations that change something."""
        return sum(self.operations[verb] for verb in WRITES)

    def reset(self) -> None:
        with self._lock:
            self.operations.clear()
            self.sent.clear()
            self.received.clear()

    def _call(self, verb: str, key: str, sent: int, operation: Callable[[], T]) -> T:
        with self._lock:
            self.operations[verb] += 1
            self.sent[verb] += sent
        result = operation()
        with self._lock:
            self.received[verb] += _size(result)
        return result


@dataclass(frozen=True)
class Fault:
    """What happens at the `n`-th operation (from 0) of those that count.

    `fail` raises `error` instead of doing it; `lose` does it and then raises `error`, as when the response is
    lost; `delay` waits `seconds` first; `before` and `after` call `action`, which may kill the process. `writes`
    (the default), `reads` or `all` operations count, of these only `verbs` and keys that start with `prefix`.
    `times` operations in a row are hit.
    """

    n: int
    kind: Literal["fail", "lose", "delay", "before", "after"]
    count: Literal["writes", "reads", "all"] = "writes"
    verbs: Collection[str] = READS | WRITES
    prefix: str = ""
    times: int = 1
    seconds: float = 0.0
    action: Callable[[], None] | None = None
    error: Callable[[str], StorageError] = Transient

    def counts(self, verb: str, key: str) -> bool:
        """Whether an operation is one of those that `n` counts."""
        group = {"writes": WRITES, "reads": READS, "all": READS | WRITES}[self.count]
        return verb in group and verb in self.verbs and key.startswith(self.prefix)


class FaultyStore(_Around):
    """Does what `plan` says at chosen operations. `seen` lists all operations as (verb, key)."""

    def __init__(self, inner: ObjectStore, plan: Fault | Iterable[Fault] = ()) -> None:
        super().__init__(inner)
        self._plan = [plan] if isinstance(plan, Fault) else [*plan]
        self._counts = [0] * len(self._plan)
        self._lock = threading.Lock()
        self.seen: list[tuple[str, str]] = []

    def _call(self, verb: str, key: str, sent: int, operation: Callable[[], T]) -> T:
        hits = self._hits(verb, key)
        for fault in hits:
            if fault.kind == "fail":
                raise fault.error(f"injected: {verb} {key!r} failed")
            if fault.kind == "delay":
                time.sleep(fault.seconds)
            if fault.kind == "before" and fault.action:
                fault.action()
        result = operation()
        for fault in hits:
            if fault.kind == "after" and fault.action:
                fault.action()
            if fault.kind == "lose":
                raise fault.error(f"injected: the response to {verb} {key!r} was lost")
        return result

    def _hits(self, verb: str, key: str) -> list[Fault]:
        hits: list[Fault] = []
        with self._lock:
            self.seen.append((verb, key))
            for i, fault in enumerate(self._plan):
                if fault.counts(verb, key):
                    if fault.n <= self._counts[i] < fault.n + fault.times:
                        hits.append(fault)
                    self._counts[i] += 1
        return hits


def _size(result: object) -> int:
    if isinstance(result, Object):
        return len(result.data)
    if isinstance(result, bytes):
        return len(result)
    if isinstance(result, list):
        return sum(len(part) for part in result if isinstance(part, bytes))
    return 0
