"""What an object store offers: whole objects under keys, ranges of them, and compare-and-swap.

A store makes one attempt at each operation and reports honestly how it went. What to do about a lost
response is decided in one place, `ontolake.objects.cas`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from ontolake.errors import StorageError


class Object(NamedTuple):
    """An object's bytes, and the tag that names this version of it in `put_if_match`."""

    data: bytes
    tag: str


class ObjectInfo(NamedTuple):
    """What a listing says of an object; `modified` is in seconds since 1970, by the store's clock."""

    key: str
    size: int
    modified: float


class Range(NamedTuple):
    """Some bytes of an object."""

    key: str
    start: int
    length: int


@runtime_checkable
class ObjectStore(Protocol):
    """Objects under one prefix. Keys are relative, with `/` between parts. Safe to call from threads.

    No key may be the directory of another (`a` and `a/b`): a disk cannot hold both. What else a key may not be is
    in `ontolake.objects.keys`.

    Every write is durable when it returns. Errors: `NotFound` for a missing object, `AlreadyExists` and
    `PreconditionFailed` from conditional writes, `Transient` when the outcome is unknown or another try may
    help, `Invalid` for a missing bucket, wrong credentials or a malformed key.
    """

    url: str

    def get(self, key: str) -> Object: ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """`length` bytes from `start`; fewer where the object ends sooner."""
        ...

    def get_ranges(self, ranges: Sequence[Range]) -> list[bytes | StorageError]:
        """Many ranges at once, in parallel, neighbours in one request; errors stand in their place."""
        ...

    def put(self, key: str, data: bytes) -> str:
        """Write, whatever is there. Returns the new tag."""
        ...

    def put_if_absent(self, key: str, data: bytes) -> str: ...

    def put_if_match(self, key: str, data: bytes, tag: str) -> str:
        """Replace the version `tag`; `PreconditionFailed` if another is there, or none."""
        ...

    def list(self, prefix: str = "", *, after: str | None = None) -> Iterator[ObjectInfo]:
        """Objects whose key starts with `prefix`, in key order, those greater than `after` only."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; those that are not there are passed over."""
        ...

    def settle(self, prefix: str) -> None:
        """Make durable what other writers have made visible under `prefix`, where that can differ."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Together(Protocol):
    """A store in which many writes at once cost about as much as one: a directory, where syncing takes the time."""

    def put_all(self, objects: Mapping[str, bytes], ahead: Mapping[str, bytes] = ...) -> None:
        """Write objects under keys that nobody knows yet, all durable when it returns; until then they may be there in
        part. `ahead` is what conditional writes bring next: it is made ready as far as that goes."""
        ...

    def forget(self, ahead: Mapping[str, bytes]) -> None:
        """What was made ready, and was not used, is not needed any more."""
        ...

    def put_unsynced(self, key: str, data: bytes) -> None:
        """Write what can be made anew: after a crash it may be the old one, missing or cut short."""
        ...
