"""`ObjectStorage`: a database on object storage, with compare-and-swap as its only means of agreement.

Frames are objects at dense ordinals, each created only if nobody else has created it, which decides every race
and fences every writer that was overtaken. `root.json` says where the index and the page layers are; it is
replaced by compare-and-swap. Objects that are no longer needed stay for a grace, so that a process that was
paused for less need not ask whether the log was trimmed under it.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ontolake import faults
from ontolake.errors import (
    AlreadyExists,
    Corruption,
    DurabilityUnconfirmed,
    Invalid,
    NotFound,
    StorageError,
    Transient,
)
from ontolake.objects import ObjectStore, Range, cas, open_store
from ontolake.storage.backend import LogStorage
from ontolake.storage.medium import (
    FORMAT_VERSION,
    KIND,
    Gone,
    Logged,
    Root,
    SegmentSpan,
    Stale,
    Taken,
    decode_root,
    encode_root,
)
from ontolake.storage.options import StorageOptions
from ontolake.storage.state import LogState
from ontolake.storage.types import DEFAULT_PAGE_SIZE

ROOT = "root.json"
_WAL, _BLOBS = "wal/", "blobs/"
_BLOB_BIT = 1 << 62
_ORPHAN_AGE = 3600.0
_EMPTIED = b"emptied"
"""What stands in place of a frame that may not stay for the grace. Whoever comes upon it starts again from the root."""
_CLOCK_MARGIN = 5.0
_TRIES = 4
_WINDOW = 32


def _key(segment: int) -> str:
    return f"{_BLOBS}{segment:016x}" if segment & _BLOB_BIT else f"{_WAL}{segment:020d}"


class ObjectMedium:
    """The log, blobs and root of one database as objects. A segment is a frame's ordinal or a blob's number."""

    def __init__(self, store: ObjectStore, page_size: int, options: StorageOptions) -> None:
        self.name = store.url
        self._store = store
        self._grace = math.inf
        self._closed = False
        self._threads: ThreadPoolExecutor | None = None
        self._synced = -math.inf
        self._blobs_since: float | None = None
        root = self._open(page_size, options)
        if root.page_size != page_size:
            raise Invalid(f"{self.name} has pages of {root.page_size} bytes, not of {page_size}",
                          hint=f"open it with page_size={root.page_size}")
        self.page_size, self.log_id = root.page_size, root.log_id

    def _open(self, page_size: int, options: StorageOptions) -> Root:
        try:
            return self.load_root()[0]
        except NotFound:
            if not options.create:
                raise NotFound(f"there is no database at {self.name}",
                               hint="check the URL; onto info tells what is there") from None
        foreign = next((info.key for info in self._store.list()), None)
        if foreign is not None and foreign != ROOT:
            raise Invalid(f"{self.name} holds things that are not ours, such as {foreign!r}",
                          hint="choose an empty place")
        grace_ms = math.ceil(options.gc_grace_ms)
        root = Root(FORMAT_VERSION, KIND, page_size, secrets.randbits(62), LogState(0), 0, grace_ms=grace_ms)
        with contextlib.suppress(AlreadyExists):
            self._create_root(root)
        return self.load_root()[0]

    def _create_root(self, root: Root) -> None:
        nonce = cas.new_nonce()
        root.nonce = nonce.decode()
        cas.create(self._store, ROOT, encode_root(root), nonce)

    # the log
    def append(self, cursor: int, pieces: Sequence[bytes], nonce: bytes) -> tuple[int, int]:
        began = _clock()
        try:
            cas.create(self._store, _key(cursor), b"".join(pieces), nonce)
        except AlreadyExists:
            raise Taken from None
        if _clock() - self._synced >= self._grace and self.load_root()[0].log_start > cursor:
            # We slept so long that what stood here may have been removed, and our frame fell into the gap.
            raise DurabilityUnconfirmed(f"the log of {self.name} went on while this process slept",
                                        hint="open the database again, and retry with the same request id")
        self._synced = began
        return cursor, cursor + 1

    def tail(self, cursor: int, *, expect: int = 1, follow: bool = True) -> Iterator[Logged]:
        window = expect
        while True:
            began = _clock()
            frames = self._frames(cursor, window)
            if frames[0] is not None:
                # Others may have made them visible, but not yet durable.
                self._store.settle(_WAL)
            for ordinal, data in zip(range(cursor, cursor + window), frames, strict=True):
                if data is None:
                    if any(frames[ordinal - cursor :]) and self._frame(ordinal) is None:
                        raise Corruption(f"{_key(ordinal)} of {self.name} is missing: the log goes on after it")
                    self._check_end(ordinal, began, follow)
                    return
                yield Logged(ordinal, ordinal + 1, data)
            cursor, window = cursor + window, min(2 * window, _WINDOW)

    def _frames(self, start: int, count: int) -> list[bytes | None]:
        if self._closed:
            raise Invalid(f"{self.name} is closed", hint="open it again")
        if count == 1:
            return [self._frame(start)]
        ordinals = range(start, start + count)
        try:
            return list(self._pool().map(self._frame, ordinals))
        except RuntimeError:
            # The interpreter is about to end and starts no more threads, but whoever lets go now still reads.
            return [self._frame(ordinal) for ordinal in ordinals]

    def _frame(self, ordinal: int) -> bytes | None:
        try:
            return self._store.get(_key(ordinal)).data
        except NotFound:
            return None

    def _check_end(self, cursor: int, began: float, follow: bool) -> None:
        """Nothing is at `cursor`: the log ends there, unless it was trimmed. Within the grace it cannot have been."""
        if not follow or began - self._synced >= self._grace:
            root, _ = self.load_root()
            if root.log_start > cursor:
                raise Stale
            if root.state.cursor > cursor:
                # It may have come after we looked; if it is not there now either, it is lost.
                if self._frame(cursor) is None:
                    raise Corruption(f"{_key(cursor)} of {self.name} is missing from the log")
                raise Stale
        if follow:
            self._synced = began

    # blobs
    def read(self, spans: Sequence[SegmentSpan]) -> list[bytes | StorageError]:
        found = self._store.get_ranges([Range(_key(segment), offset, length) for segment, offset, length in spans])
        return [Gone(str(data)) if isinstance(data, NotFound) else data for data in found]

    def read_one(self, segment: int, offset: int, length: int) -> bytes:
        try:
            return self._store.get_range(_key(segment), offset, length)
        except NotFound as error:
            raise Gone(str(error)) from None

    def put_blob(self, data: bytes) -> int:
        segment = secrets.randbits(62) | _BLOB_BIT
        if self._blobs_since is None:
            self._blobs_since = _clock()
        for attempt in range(_TRIES):
            try:
                self._store.put(_key(segment), data)
                break
            except Transient:
                # The name is ours alone, so writing it again is safe.
                if attempt + 1 == _TRIES:
                    raise
        return segment

    # the root
    def load_root(self) -> tuple[Root, str]:
        self._synced = -math.inf
        found = self._store.get(ROOT)
        root = decode_root(found.data, self.name)
        self._grace = root.grace_ms / 1000
        return root, found.tag

    def swap_root(self, root: Root, tag: str) -> str:
        since, self._blobs_since = self._blobs_since, None
        if since is not None and _clock() - since > _ORPHAN_AGE / 2:
            raise Transient(f"housekeeping of {self.name} took so long that its blobs may be gone")
        nonce = cas.new_nonce()
        root.nonce = nonce.decode()
        return cas.replace(self._store, ROOT, encode_root(root), tag, nonce)

    # space
    def reclaim(self, root: Root, dropped: Sequence[tuple[int, int]], *, sweep: bool, wipe: bool = False) -> int:
        keys = [_key(segment) for segment, _ in dropped]
        freed = sum(length for _, length in dropped)
        if sweep:
            for key, size in self._unneeded(root, set(keys)):
                keys.append(key)
                freed += size
        if keys:
            self._store.delete(keys)
        if wipe:
            for info in self._store.list(_WAL):
                if info.key >= _key(root.log_start):
                    break
                if info.size > len(_EMPTIED):
                    self._store.put(info.key, _EMPTIED)
                    faults.reach("object: frame emptied")
        return freed

    def _unneeded(self, root: Root, known: set[str]) -> Iterator[tuple[str, int]]:
        """Frames before the oldest one needed and blobs that a crash left, if old enough by the store's clock."""
        now = next(info.modified for info in self._store.list(ROOT))
        # With a margin, since stores keep whole seconds, and a directory the time before the object was there.
        grace = root.grace_ms / 1000 + (_CLOCK_MARGIN if root.grace_ms else 0)
        for info in self._store.list(_WAL):
            if info.key >= _key(root.log_start):
                break
            if now - info.modified >= grace:
                yield info.key, info.size
        live = {_key(part.segment) for run in root.runs for part in run.parts}
        live |= {_key(layer.segment) for layer in root.layers}
        for info in self._store.list(_BLOBS):
            if info.key not in live and info.key not in known and now - info.modified >= max(grace, _ORPHAN_AGE):
                yield info.key, info.size

    def sync(self) -> None:
        """Nothing is buffered: every write was durable when it returned."""

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(16, thread_name_prefix="ontolake-log")
        return self._threads

    def close(self) -> None:
        self._closed = True
        if self._threads is not None:
            self._threads.shutdown()
        self._store.close()


class ObjectStorage(LogStorage):
    """A database under a prefix of an object store: a bucket, a directory or memory."""

    remote = True

    def __init__(self, store: ObjectStore | str, *, page_size: int = DEFAULT_PAGE_SIZE, **knobs: Any) -> None:
        """Open the database, or start a new one. Raises `Invalid` if something else is there."""
        options = StorageOptions.of(knobs)
        opened = open_store(store) if isinstance(store, str) else store
        try:
            super().__init__(ObjectMedium(opened, page_size, options), options)
        except BaseException:
            opened.close()
            raise


def _clock() -> float:
    """Seconds that also pass while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
