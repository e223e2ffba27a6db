"""The log of a database as one process knows it: followed, appended to, and folded into a state and an index.

Everything that changes is a frame in one log, so the order of frames decides every race. Whoever appends does so
where this process thinks the log ends; if somebody was there first it reads on, and the caller checks again.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from xxhash import xxh3_128_intdigest

from ontolake import faults
from ontolake.errors import Corruption, DurabilityUnconfirmed, NotFound, StorageError, Transient
from ontolake.storage import frame as frames
from ontolake.storage.cache import Cache
from ontolake.storage.frame import CONTROL, DATA, Commit, Header
from ontolake.storage.index import FRAMES, REQUESTS, Entry, Tail
from ontolake.storage.lookup import Lookup, View
from ontolake.storage.medium import Gone, Logged, Medium, Root, Stale, Taken
from ontolake.storage.options import Options
from ontolake.storage.state import State
from ontolake.storage.types import Lsn, Page, PageId, WalRecord

T = TypeVar("T")
_LOADS = 8


class Log:
    """One process's view of the log. `lock` is held while it is read on, appended to, or replaced.

    `durable` and `floor` may be read without it. `pages` caches the newest version of a page under its branch and
    id, and older ones under their LSN; what it holds under branch and id is never older than `durable`.
    """

    def __init__(self, medium: Medium, options: Options) -> None:
        self.medium = medium
        self.lock = threading.RLock()
        self.lookup = Lookup(medium, options.cached_parts)
        self.pages: Cache[Page] = Cache(options.cache_bytes // medium.page_size)
        self.lineages: dict[int | str, Sequence[tuple[int, int]]] = {}
        self.durable = 0
        self.floor = 0
        self.state: State
        self.root: Root
        self.root_tag = ""
        self._uncertain = False
        self._index_every = options.index_every
        self._long_tail = 0
        with self.lock:
            self._load(expect=4)

    # following
    def refresh(self) -> None:
        """Take over what other processes have appended."""
        with self.lock:
            try:
                self._read_tail(1)
            except Stale:
                self._load()
            self._uncertain = False
            if self.lookup.view.active.frames > self._long_tail:
                # Nobody here indexes the tail, but another process may have.
                self._adopt_root()
                self._long_tail = self.lookup.view.active.frames + 4 * self._index_every

    def reload(self) -> None:
        """Start again from the root."""
        with self.lock:
            self._load()

    def moved_since(self, generation: int) -> bool:
        """Whether the index has changed since the root of that generation; the newest is then in use."""
        with self.lock:
            if self.root.generation == generation:
                self._adopt_root()
            return self.root.generation != generation

    def find(self, space: int, key: int, lsn: int) -> Entry | None:
        """The entry of the index with the greatest LSN ≤ `lsn`, branches left aside."""
        return self.again(lambda: self.lookup.find(space, key, lsn))

    def again(self, action: Callable[[], T]) -> T:
        """Run `action`, and run it again when what it looked at had moved. What is missing for good is damage."""
        while True:
            generation = self.root.generation
            try:
                result = action()
            except (Gone, Corruption) as error:
                if self.moved_since(generation):
                    continue
                raise _damage(error) from None
            doubts = isinstance(result, list) and any(isinstance(found, Gone | Corruption) for found in result)
            if doubts and self.moved_since(generation):
                continue
            if doubts and isinstance(result, list):
                result[:] = [_damage(found) if isinstance(found, Gone) else found for found in result]
            return result

    def _adopt_root(self) -> None:
        root, _ = self.medium.load_root()
        if root.generation != self.root.generation:
            self._load()

    def _load(self, *, expect: int = 1) -> None:
        """Start from the root, and once more if the log is trimmed in between."""
        for _ in range(_LOADS):
            self.root, self.root_tag = self.medium.load_root()
            self.state = self.root.state.copy()
            self.lookup.view = View(Tail(), (), ()).with_runs(self.root.runs)
            self._long_tail = 4 * self._index_every
            self._forget()
            try:
                return self._read_tail(expect)
            except Stale:
                continue
        raise Transient(f"the log of {self.medium.name} is trimmed faster than it can be read")

    def _read_tail(self, expect: int) -> None:
        for logged in self.medium.tail(self.state.cursor, expect=expect):
            header, body = self._decode(logged)
            state = self.state
            if header.ordinal != state.ordinal or header.prev != state.prev or header.first_lsn != state.next_lsn:
                raise Corruption(f"frame {logged.segment:#x} of {self.medium.name} does not continue the log")
            self._advance(header, logged.cursor, len(logged.frame))
            if header.kind == DATA:
                self._apply_commits(header, list(frames.decode_commits(header, body)), logged.segment)
            else:
                self._apply_change(header, frames.decode_change(body))

    def _decode(self, logged: Logged) -> tuple[Header, memoryview]:
        header, body = frames.decode(logged.frame, name=f"frame {logged.segment:#x} of {self.medium.name}")
        if header.log_id != self.medium.log_id:
            raise Corruption(f"frame {logged.segment:#x} of {self.medium.name} belongs to another database")
        return header, body

    def scan(self, after: int, until: int, lineage: dict[int, int]) -> Iterator[tuple[Lsn, WalRecord]]:
        """The records after one LSN up to another that a lineage sees."""
        start = self.find(FRAMES, 0, after + 1) if after < until else None
        if start is None:
            if after < until:
                raise NotFound(f"the log of {self.medium.name} no longer reaches back to LSN {after + 1}")
            return
        lsn = start[0] - 1
        try:
            for logged in self.medium.tail(start[1], expect=8):
                header, body = self._decode(logged)
                if header.kind != DATA:
                    continue
                if header.first_lsn != lsn + 1:
                    raise Corruption(f"the log of {self.medium.name} jumps from LSN {lsn} to {header.first_lsn}")
                for commit in frames.decode_commits(header, body):
                    cap = min(lineage.get(commit.branch, 0), until)
                    for record in commit.records:
                        lsn += 1
                        if after < lsn <= cap:
                            yield Lsn(lsn), record
                if lsn >= until:
                    return
        except Stale:
            pass
        self.refresh()
        if lsn >= self.floor:
            raise Corruption(f"the log of {self.medium.name} breaks off at LSN {lsn}")
        raise NotFound(f"the log of {self.medium.name} was trimmed while it was read, at LSN {lsn + 1}",
                       hint="start again at pitr_floor()")

    # appending
    def settle(self) -> None:
        """If the outcome of the last append is unknown, look at the log before anything is decided."""
        if self._uncertain:
            self.refresh()

    def append_commits(self, commits: Sequence[Commit]) -> None:
        """Make a group of commits durable in one frame. Raises `Taken` after reading on, and what the medium does."""
        body, records, meta_length = frames.encode_commits(commits)
        header, segment = self._append(DATA, body, self.state.epoch, records, meta_length)
        self._apply_commits(header, commits, segment)

    def append_change(self, propose: Callable[[State], dict[str, Any] | None]) -> None:
        """Append what `propose` makes of the state, which it checks; None means there is nothing to do.

        For a log that is locked and was read to its end; if it has gone on all the same, `propose` is asked again.
        """
        while (change := propose(self.state)) is not None:
            epoch = change["epoch"] if change["op"] == "acquire" else self.state.epoch
            try:
                header, _ = self._append(CONTROL, frames.encode_change(change), epoch)
            except Taken:
                continue
            self._apply_change(header, change)
            return

    def _append(
        self, kind: int, body: bytes, epoch: int, records: int = 0, meta_length: int = 0
    ) -> tuple[Header, int]:
        state, nonce, now = self.state, secrets.token_bytes(16), time.time_ns() // 1000
        data, total = frames.encode(
            kind, body, log_id=self.medium.log_id, ordinal=state.ordinal, epoch=epoch, nonce=nonce,
            first_lsn=state.next_lsn, records=records, meta_length=meta_length, time_us=now, prev=state.prev)
        faults.reach("append: checked, not yet written")
        # Until the answer is known, the next call must look at the log before it relies on its own memory.
        self._uncertain = True
        try:
            segment, cursor = self.medium.append(state.cursor, data, nonce)
        except (Taken, Stale) as error:
            self.reload() if isinstance(error, Stale) else self.refresh()
            raise Taken from None
        except OSError as error:
            raise DurabilityUnconfirmed(f"{self.medium.name}: {error}") from error
        header = Header(kind, self.medium.log_id, state.ordinal, epoch, nonce, state.next_lsn, records, meta_length,
                        len(body), now, state.prev, total)
        self._advance(header, cursor, len(data))
        self._uncertain = False
        return header, segment

    # folding
    def _advance(self, header: Header, cursor: int, length: int) -> None:
        state, tail = self.state, self.lookup.view.active
        state.cursor, state.ordinal, state.prev = cursor, header.ordinal + 1, header.sum
        tail.frames += 1
        tail.bytes += length

    def _apply_commits(self, header: Header, commits: Sequence[Commit], segment: int) -> None:
        tail, lsn, state = self.lookup.view.active, header.first_lsn, self.state
        tail.add(FRAMES, 0, lsn, segment, header.ordinal, header.time_us)
        fresh: list[tuple[tuple[int, PageId], Page]] = []
        for commit in commits:
            branch = commit.branch
            for (payload, page_id), checksum, offset in zip(commit.records, commit.sums, commit.offsets, strict=True):
                if page_id is not None:
                    key = (branch, page_id)
                    tail.put(key, (lsn, segment, offset, checksum))
                    fresh.append((key, Page(page_id, Lsn(lsn), payload)))
                lsn += 1
            if branch in state.branches:
                state.branches[branch].head = lsn - 1
            if commit.request_id is not None:
                request, check = request_key(commit.request_id)
                tail.add(REQUESTS, request, lsn - 1, check, commit.digest, header.time_us)
        state.next_lsn = lsn
        with self.pages.lock:
            # Readers must not find an older version under `durable`, so both change together.
            for place, page in fresh:
                self.pages.put(place, page)
            self.durable = lsn - 1

    def _apply_change(self, header: Header, change: dict[str, Any]) -> None:
        if header.epoch < self.state.epoch:
            raise Corruption(f"a frame of epoch {header.epoch} follows epoch {self.state.epoch} in "
                             f"{self.medium.name}")
        self.state.apply(change, header.epoch)
        if change["op"] in ("branch", "unbranch"):
            self._forget()
        self.floor = self.state.floor

    def _forget(self) -> None:
        """Branches changed or the log was loaded anew: what readers remember may no longer hold."""
        with self.pages.lock:
            self.lineages = {}
            self.pages.clear()
            self.floor = self.state.floor
            self.durable = self.state.next_lsn - 1

    # the index, for housekeeping
    def freeze(self) -> tuple[tuple[Tail, ...], State, Root, str]:
        """Start a new tail; the old ones stay readable until a root that covers them is published."""
        with self.lock:
            active, frozen, runs = self.lookup.view
            if active.frames:
                frozen = (*frozen, active)
                self.lookup.view = View(Tail(), frozen, runs)
            return frozen, self.state.copy(), self.root, self.root_tag

    def published(self, root: Root, tag: str, tails: Sequence[Tail]) -> None:
        """Use a root of our own making, which covers these tails, from now on."""
        with self.lock:
            if self.root.generation >= root.generation:
                # Loaded anew meanwhile: what is in use covers this root, or is it.
                return
            active, frozen, _ = self.lookup.view
            frozen = tuple(tail for tail in frozen if not any(tail is covered for covered in tails))
            self.lookup.view = View(active, frozen, ()).with_runs(root.runs)
            self.root, self.root_tag = root, tag


def _damage(error: StorageError) -> StorageError:
    return Corruption(f"{error.message}, although the index refers to it") if isinstance(error, Gone) else error


def request_key(request_id: str) -> tuple[int, int]:
    """A request id as an index key, and more of its hash to tell apart two that share it."""
    whole = xxh3_128_intdigest(request_id.encode())
    return whole >> 64, whole & (2**64 - 1)
