"""The log of a database as one process knows it: followed, appended to, and folded into a state and an index.

Everything that changes is a frame in one log, so the order of frames decides every race. Whoever appends does so
where this process thinks the log ends; if somebody was there first it reads on, and the caller checks again.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple, TypeVar

from xxhash import xxh3_128_intdigest

from ontolake import faults
from ontolake.errors import Corruption, DurabilityUnconfirmed, NotFound, StorageError, Transient
from ontolake.storage import frame as frames
from ontolake.storage.cache import Cache
from ontolake.storage.frame import CONTROL, DATA, Header, LogCommit
from ontolake.storage.index import FRAMES, REQUESTS, Entry, Tail
from ontolake.storage.lookup import IndexView, Lookup
from ontolake.storage.medium import Gone, Logged, Medium, Root, Stale, Taken
from ontolake.storage.options import StorageOptions
from ontolake.storage.state import LogState
from ontolake.storage.types import Lsn, Page, PageId, WalRecord

T = TypeVar("T")
_LOADS = 8


class LogMoment(NamedTuple):
    """What readers need to know of the log, all of it from one moment: they take it once and use nothing else.

    `lineages` fills as branches are asked for, and is a new one whenever branches change.
    """

    view: IndexView
    lineages: dict[int | str, Sequence[tuple[int, int]]]
    durable: int
    floor: int
    generation: int


class Log:
    """One process's view of the log. `lock` is held while it is read on, appended to, or replaced.

    Readers need no lock: they take `moment`. `pages` caches the newest version of a page under its branch and id, and
    older ones under their LSN; what it holds under branch and id is the newest at the `durable` of the moment.
    """

    def __init__(self, medium: Medium, options: StorageOptions) -> None:
        self.medium = medium
        self.lock = threading.RLock()
        self.lookup = Lookup(medium, options.cached_parts)
        self.pages: Cache[Page] = Cache(options.cache_bytes // medium.page_size)
        self.state: LogState
        self.root: Root
        self.root_tag = ""
        self.moment: LogMoment
        self._view: IndexView
        self._in_doubt = False
        self._nonce, self._appends = secrets.token_bytes(10), count()  # together a new one for each append
        self._branches_changed = False
        self._index_every = options.index_every
        self._long_tail = 0
        with self.lock:
            self._load(expect=4)

    # following
    def refresh(self) -> None:
        """Take over what other processes have appended."""
        with self.lock:
            if self._in_doubt:
                self._load()
                return
            try:
                self._read_tail(1)
            except (Stale, Corruption):
                # Trimmed under us, or we hold on to something that never came into the log: the root decides.
                self._load()
            if self._view.frames > self._long_tail:
                # Nobody here indexes the tail, but another process may have.
                self._adopt_root()
                self._long_tail = self._view.frames + 4 * self._index_every

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
        return self.again(lambda: self.lookup.find(self.moment.view, space, key, lsn))

    def again(self, action: Callable[[], T]) -> T:
        """Run `action`, and run it again when what it looked at had moved. What is missing for good is damage."""
        while True:
            generation = self.moment.generation
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
        """Start from the root, and once more if the log is trimmed in between. Readers see nothing of it until then."""
        self._in_doubt = True
        for _ in range(_LOADS):
            self.root, self.root_tag = self.medium.load_root()
            self.state = self.root.state.copy()
            self._view = IndexView(Tail(), (), ()).with_runs(self.root.runs)
            self._long_tail = 4 * self._index_every
            fresh: list[tuple[tuple[int, PageId], Page]] = []
            try:
                for logged in self.medium.tail(self.state.cursor, expect=expect):
                    fresh += self._fold(logged)
            except Stale:
                continue
            self._publish(fresh, anew=True)
            self._in_doubt = False
            return
        raise Transient(f"the log of {self.medium.name} is trimmed faster than it can be read")

    def _read_tail(self, expect: int) -> None:
        for logged in self.medium.tail(self.state.cursor, expect=expect):
            # An interrupt half-way leaves the doubt standing, and the next call starts again from the root.
            self._in_doubt = True
            self._publish(self._fold(logged))
            self._in_doubt = False

    def _decode(self, logged: Logged) -> tuple[Header, memoryview]:
        header, body = frames.decode(logged.frame, name=f"frame {logged.segment:#x} of {self.medium.name}")
        if header.log_id != self.medium.log_id:
            raise Corruption(f"frame {logged.segment:#x} of {self.medium.name} belongs to another database")
        return header, body

    def scan(self, after: int, until: int, lineage: dict[int, int]) -> Iterator[tuple[Lsn, WalRecord]]:
        """The records after one LSN up to another that a lineage sees."""
        if after >= until:
            return
        start = self.find(FRAMES, 0, after + 1)
        if start is None:
            raise NotFound(f"the log of {self.medium.name} no longer reaches back to LSN {after + 1}")
        lsn = start[0] - 1
        try:
            for logged in self.medium.tail(start[1], expect=8, follow=False):
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
        if lsn >= self.moment.floor:
            raise Corruption(f"the log of {self.medium.name} breaks off at LSN {lsn}")
        raise NotFound(f"the log of {self.medium.name} was trimmed while it was read, at LSN {lsn + 1}",
                       hint="start again at pitr_floor()")

    # appending
    def settle(self) -> None:
        """If the outcome of the last step is unknown, look at the log before anything is decided."""
        if self._in_doubt:
            self.refresh()

    def append_commits(self, commits: Sequence[LogCommit]) -> None:
        """Make a group of commits durable in one frame. Raises `Taken` after reading on, and what the medium does."""
        body, records, meta_length = frames.encode_commits(commits)
        header, segment = self._append(DATA, body, self.state.epoch, records, meta_length)
        self._publish(self._fold_commits(header, commits, segment))
        self._in_doubt = False

    def append_change(self, propose: Callable[[LogState], dict[str, Any] | None]) -> None:
        """Append what `propose` makes of the state, which it checks; None means there is nothing to do.

        For a log that is locked and was read to its end; if it has gone on all the same, `propose` is asked again.
        """
        while (change := propose(self.state)) is not None:
            epoch = change["epoch"] if change["op"] == "acquire" else self.state.epoch
            try:
                header, _ = self._append(CONTROL, frames.encode_change(change), epoch)
            except Taken:
                continue
            self._fold_change(header, change)
            self._publish(())
            self._in_doubt = False
            return

    def _append(
        self, kind: int, body: bytes, epoch: int, records: int = 0, meta_length: int = 0
    ) -> tuple[Header, int]:
        """Append a frame and leave the doubt standing until the caller has folded it."""
        state, nonce, now = self.state, self._nonce + next(self._appends).to_bytes(6), time.time_ns() // 1000
        head, header = frames.encode(Header(kind, self.medium.log_id, state.ordinal, epoch, nonce, state.next_lsn,
                                            records, meta_length, len(body), now, state.prev), body)
        faults.reach("append: checked, not yet written")
        self._in_doubt = True
        try:
            segment, cursor = self.medium.append(state.cursor, (head, body), nonce)
        except Taken:
            self._in_doubt = False  # nothing was written
            self.refresh()
            raise
        except Stale:
            self.refresh()
            raise Taken from None
        except OSError as error:
            raise DurabilityUnconfirmed(f"{self.medium.name}: {error}") from error
        self._advance(header, cursor, len(head) + len(body))
        return header, segment

    # folding
    def _fold(self, logged: Logged) -> list[tuple[tuple[int, PageId], Page]]:
        """Take a frame over into state and index. Returns the pages it wrote, under their branch and id."""
        header, body = self._decode(logged)
        state = self.state
        if header.ordinal != state.ordinal or header.prev != state.prev or header.first_lsn != state.next_lsn:
            raise Corruption(f"frame {logged.segment:#x} of {self.medium.name} does not continue the log")
        self._advance(header, logged.cursor, len(logged.frame))
        if header.kind == DATA:
            return self._fold_commits(header, list(frames.decode_commits(header, body)), logged.segment)
        self._fold_change(header, frames.decode_change(body))
        return []

    def _advance(self, header: Header, cursor: int, length: int) -> None:
        state, tail = self.state, self._view.active
        state.cursor, state.ordinal, state.prev = cursor, header.ordinal + 1, header.sum
        tail.frames += 1
        tail.bytes += length

    def _fold_commits(
        self, header: Header, commits: Sequence[LogCommit], segment: int
    ) -> list[tuple[tuple[int, PageId], Page]]:
        tail, lsn, state = self._view.active, header.first_lsn, self.state
        tail.add(FRAMES, 0, lsn, segment, header.ordinal, header.time_us)
        entries, offset = tail.entries, frames.first_payload(header)
        fresh: list[tuple[tuple[int, PageId], Page]] = []
        for commit in commits:
            branch = commit.branch
            for (payload, page_id), checksum in zip(commit.records, commit.sums, strict=True):
                if page_id is not None:
                    key = (branch, page_id)
                    entries[key].append((lsn, segment, offset, checksum))
                    fresh.append((key, Page(page_id, lsn, payload)))
                lsn += 1
                offset += len(payload)
            if branch in state.branches:
                state.branches[branch].head = lsn - 1
            if commit.request_id is not None:
                request, check = request_key(commit.request_id)
                tail.add(REQUESTS, request, lsn - 1, check, commit.digest, header.time_us)
        state.next_lsn = lsn
        return fresh

    def _fold_change(self, header: Header, change: dict[str, Any]) -> None:
        if header.epoch < self.state.epoch:
            raise Corruption(f"a frame of epoch {header.epoch} follows epoch {self.state.epoch} in "
                             f"{self.medium.name}")
        self.state.apply(change, header.epoch)
        if change["op"] in ("branch", "unbranch", "rename", "rebase", "floor"):
            self._branches_changed = True

    def _publish(self, fresh: Sequence[tuple[tuple[int, PageId], Page]], *, anew: bool = False) -> None:
        """Let readers see what was folded: the cached pages and the moment change together."""
        durable = self.state.next_lsn - 1
        with self.pages.lock:
            if anew or self._branches_changed:
                self._branches_changed = False
                self.pages.clear()
                lineages: dict[int | str, Sequence[tuple[int, int]]] = {}
                floor = self.state.floor
            else:
                lineages, floor = self.moment.lineages, self.moment.floor
            self.pages.put_all(fresh)
            self.moment = LogMoment(self._view, lineages, durable, floor, self.root.generation)

    # the index, for housekeeping
    def freeze(self) -> tuple[tuple[Tail, ...], LogState, Root, str]:
        """Start a new tail; the old ones stay readable until a root that covers them is published."""
        with self.lock:
            self.settle()
            active, frozen, runs = self._view
            if active.frames:
                frozen = (*frozen, active)
                self._use(IndexView(Tail(), frozen, runs))
            return frozen, self.state.copy(), self.root, self.root_tag

    def published(self, root: Root, tag: str, tails: Sequence[Tail]) -> None:
        """Use a root of our own making, which covers these tails, from now on."""
        with self.lock:
            if self.root.generation >= root.generation:
                # Loaded anew meanwhile: what is in use covers this root, or is it.
                return
            active, frozen, _ = self._view
            frozen = tuple(tail for tail in frozen if not any(tail is covered for covered in tails))
            self.root, self.root_tag = root, tag
            self._use(IndexView(active, frozen, ()).with_runs(root.runs))

    def _use(self, view: IndexView) -> None:
        self._view = view
        self.moment = self.moment._replace(view=view, generation=self.root.generation)


def _damage(error: StorageError) -> StorageError:
    return Corruption(f"{error.message}, although the index refers to it") if isinstance(error, Gone) else error


def request_key(request_id: str) -> tuple[int, int]:
    """A request id as an index key, and more of its hash to tell apart two that share it."""
    whole = xxh3_128_intdigest(request_id.encode())
    return whole >> 64, whole & (2**64 - 1)
