"""`LogStorage`: the seam on top of any medium. Appending, fencing, branches, retention; the log is the truth.

Everything that changes is a frame in one log, so the order of frames decides every race: a token that was
superseded, a branch that was deleted, a floor that moved. A writer checks its request against the log as it
knows it and appends where it thinks the log ends; if somebody was there first it reads on and checks again.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from xxhash import xxh3_64_intdigest, xxh3_128_intdigest

from ontolake import faults
from ontolake.errors import Contended, Corruption, DurabilityUnconfirmed, Invalid, NotFound, StorageError, Transient
from ontolake.storage import frame as frames
from ontolake.storage.frame import CONTROL, DATA, Commit, Header
from ontolake.storage.group import GroupCommit, Waiting
from ontolake.storage.index import FRAMES, REQUESTS, Tail
from ontolake.storage.lookup import Lookup, View
from ontolake.storage.maintenance import Maintenance
from ontolake.storage.medium import Logged, Medium, Stale, Taken
from ontolake.storage.options import Options
from ontolake.storage.protocol import STORAGE_TRAIT_VERSION
from ontolake.storage.reading import PageReader
from ontolake.storage.state import State, check_lsn
from ontolake.storage.types import MAIN, BranchId, BranchRef, FenceToken, Lsn, Page, PageId, WalRecord, WriterId

_LAST = 2**64 - 1
_LOADS = 8


class Append(Waiting):
    """An `append_wal` that waits for its group."""

    __slots__ = ("branch", "commit", "token")

    def __init__(self, token: FenceToken, branch: BranchId | str, commit: Commit) -> None:
        super().__init__()
        self.token = token
        self.branch = branch
        self.commit = commit


class LogStorage:
    """A `Storage` over a `Medium`."""

    trait_version = STORAGE_TRAIT_VERSION
    remote: bool
    """Whether a read costs a round trip, so that those above should ask for many pages at once."""

    def __init__(self, medium: Medium, options: Options) -> None:
        self.page_size = medium.page_size
        self._medium = medium
        self._options = options
        self._log_lock = threading.RLock()
        self._lookup = Lookup(medium, options.cached_parts)
        self._reader = PageReader(self, medium, self._lookup, options)
        self.group: GroupCommit[Append] = GroupCommit(self._write_group, options.group_commit_window_ms)
        self._uncertain = False
        self._long_tail = 4 * options.index_every
        self._closed = False
        self._durable = 0
        self._floor = 0
        with self._log_lock:
            self._load(expect=4)
        self._maintenance = Maintenance(self, medium, self._lookup, options)
        self._cached = self._reader.cache.young

    # reading
    def get_page(self, page_id: PageId, lsn: Lsn, *, branch: BranchId | str = MAIN) -> Page:
        if self._floor <= lsn <= self._durable:
            page = self._cached.get((branch, page_id))
            if page is not None and page[1] <= lsn:
                return page
        return self._reader.page(page_id, lsn, branch)

    def get_pages(
        self, ids: Sequence[PageId], lsn: Lsn, *, branch: BranchId | str = MAIN
    ) -> list[Page | StorageError]:
        return self._reader.pages(ids, lsn, branch)

    def scan_wal(self, after: Lsn, *, branch: BranchId | str = MAIN) -> Iterator[tuple[Lsn, WalRecord]]:
        check_lsn(after, "after")
        with self._log_lock:
            self._catch_up()
            self._state.check_readable(after)
            lineage = dict(self._state.lineage(self._state.branch(branch)))
            until = self._state.next_lsn - 1
        return self._scan(after, until, lineage)

    def _scan(self, after: int, until: int, lineage: dict[int, int]) -> Iterator[tuple[Lsn, WalRecord]]:
        if after >= until:
            return
        start = self._reader.find(FRAMES, 0, after + 1)
        if start is None:
            raise NotFound(f"the log of {self._medium.name} no longer reaches back to LSN {after + 1}")
        lsn = start[0] - 1
        try:
            for logged in self._medium.tail(start[1], expect=8):
                header, body = self._decode(logged)
                if header.kind != DATA:
                    continue
                if header.first_lsn != lsn + 1:
                    raise Corruption(f"the log of {self._medium.name} jumps from LSN {lsn} to {header.first_lsn}")
                for commit in frames.decode_commits(header, body):
                    cap = lineage.get(commit.branch, 0)
                    for record in commit.records:
                        lsn += 1
                        if after < lsn <= min(cap, until):
                            yield Lsn(lsn), record
                if lsn >= until:
                    return
        except Stale:
            pass
        self.refresh()
        if lsn >= self._floor:
            raise Corruption(f"the log of {self._medium.name} breaks off at LSN {lsn}")
        raise NotFound(f"the log of {self._medium.name} was trimmed while it was read, at LSN {lsn + 1}",
                       hint="start again at pitr_floor()")

    # writing
    def append_wal(
        self,
        token: FenceToken,
        records: Sequence[WalRecord],
        *,
        branch: BranchId | str = MAIN,
        request_id: str | None = None,
    ) -> Lsn:
        lsn = self.group.commit(Append(token, branch, self.prepared(records, request_id)))
        self.after_append()
        return Lsn(lsn)

    def after_append(self) -> None:
        """Housekeeping that appends have made due."""
        self._maintenance.after_append()

    def prepared(self, records: Sequence[WalRecord], request_id: str | None) -> Commit:
        """A batch that is ready for its group. Raises `Invalid` if its shape is wrong."""
        kept = self._checked(records)
        if request_id is not None and (not isinstance(request_id, str) or not request_id):
            raise Invalid(f"a request id is a non-empty string, not {request_id!r}")
        return Commit(-1, kept, [xxh3_64_intdigest(record[0]) for record in kept], request_id)

    def _checked(self, records: Sequence[WalRecord]) -> list[WalRecord]:
        """The records with bytes of their own, once their shape is known to be right."""
        if self._closed:
            raise Invalid(f"{self._medium.name} is closed")
        kept, size = [], self.page_size
        for i, record in enumerate(records):
            if type(record) is not WalRecord:
                raise Invalid(f"record {i} is not a WalRecord but {type(record).__name__}")
            payload, page_id = record
            if type(payload) is not bytes:
                if not isinstance(payload, (bytes, bytearray, memoryview)):
                    raise Invalid(f"record {i} holds {type(payload).__name__}, not bytes")
                payload = bytes(payload)
                record = WalRecord(payload, page_id)
            if page_id is not None:
                if type(page_id) is not int or not 0 <= page_id <= _LAST:
                    raise Invalid(f"record {i} names page {page_id!r}, which is no integer of 0 to 2^64-1")
                if len(payload) != size:
                    raise Invalid(f"record {i}, page {page_id}: an image has {size} bytes, this one {len(payload)}")
            kept.append(record)
        if not kept:
            raise Invalid("an empty batch cannot be appended: it would have no LSN")
        return kept

    def _write_group(self, group: Sequence[Append]) -> None:
        """One durable write for all that can be accepted; the others get their error."""
        with self._log_lock:
            while True:
                try:
                    if self._uncertain:
                        self._catch_up()
                    accepted = self._accept(group)
                    if not accepted:
                        return
                    self._append_commits([item.commit for item in accepted])
                except Taken:
                    self._catch_up()
                    continue
                except StorageError as error:
                    for item in group:
                        if item.error is None and not item.lsn:
                            item.error = error
                    return
                break
            end = self._durable
            for item in reversed(accepted):
                item.lsn = end
                end -= len(item.commit.records)
            for item in group:
                if item.error is None and not item.lsn:
                    # The same request twice in one group: both get the one answer.
                    item.lsn = self._applied_request(item.commit) or 0

    def _accept(self, group: Sequence[Append]) -> list[Append]:
        """Those whose token, branch and request id allow them to be written now."""
        accepted: list[Append] = []
        requests: dict[str, int] = {}
        checked: FenceToken | None = None
        for item in group:
            if item.error is not None or item.lsn:
                continue
            commit = item.commit
            try:
                if item.token is not checked:
                    if isinstance(item.token, FenceToken) and item.token.epoch > self._state.epoch:
                        self._catch_up()
                    self._state.check_token(item.token)
                    checked = item.token
                commit.branch = self._find_branch(item.branch)
                if commit.request_id is not None:
                    commit.digest = frames.digest_of(commit.branch, commit.records, commit.sums)
                    item.lsn = self._applied_request(commit) or 0
                    if item.lsn:
                        continue
                    if requests.setdefault(commit.request_id, commit.digest) != commit.digest:
                        raise _other_records(commit.request_id)
                    if any(other.commit.request_id == commit.request_id for other in accepted):
                        continue
                accepted.append(item)
            except StorageError as error:
                item.error = error
        return accepted

    def _find_branch(self, branch: BranchId | str) -> int:
        if branch in self._state.branches:
            return int(branch)
        try:
            return self._state.branch(branch).id
        except NotFound:
            self._catch_up()
            return self._state.branch(branch).id

    def _applied_request(self, commit: Commit) -> int | None:
        """The LSN that a request id was answered with; `Invalid` if it came with other records."""
        if commit.request_id is None:
            return None
        key, check = _request_key(commit.request_id)
        found = self._reader.find(REQUESTS, key, _LAST)
        if found is None or found[1] != check:
            return None
        lsn, _, digest, _ = found
        if digest != commit.digest:
            raise _other_records(commit.request_id)
        return lsn

    def _append_commits(self, commits: Sequence[Commit]) -> None:
        body, records, meta_length = frames.encode_commits(commits)
        header, segment = self._append_frame(DATA, body, records=records, meta_length=meta_length)
        self._apply_commits(header, commits, segment)

    def _append_change(self, propose: Callable[[State], dict[str, Any] | None]) -> None:
        """Append what `propose` makes of the newest state, which it checks; None means there is nothing to do."""
        with self._log_lock:
            self._catch_up()
            while True:
                change = propose(self._state)
                if change is None:
                    return
                try:
                    epoch = change["epoch"] if change["op"] == "acquire" else self._state.epoch
                    header, _ = self._append_frame(CONTROL, frames.encode_change(change), epoch=epoch)
                except Taken:
                    self._catch_up()
                    continue
                self._apply_change(header, change)
                return

    def _append_frame(
        self, kind: int, body: bytes, *, epoch: int | None = None, records: int = 0, meta_length: int = 0
    ) -> tuple[Header, int]:
        """Make one frame durable at the end of the log as it is known here, and move the cursor past it."""
        state = self._state
        epoch = state.epoch if epoch is None else epoch
        nonce, now = secrets.token_bytes(16), time.time_ns() // 1000
        data, total = frames.encode(
            kind, body, log_id=self._medium.log_id, ordinal=state.ordinal, epoch=epoch, nonce=nonce,
            first_lsn=state.next_lsn, records=records, meta_length=meta_length, time_us=now, prev=state.prev)
        faults.reach("append: checked, not yet written")
        # Until the answer is known, the next call must look at the log before it relies on its own memory.
        self._uncertain = True
        try:
            segment, cursor = self._medium.append(state.cursor, data, nonce)
        except Taken:
            self._uncertain = False
            raise
        except Stale:
            self._load()
            raise Taken from None
        except OSError as error:
            raise DurabilityUnconfirmed(f"{self._medium.name}: {error}") from error
        self._lookup.view.active.frames += 1
        self._lookup.view.active.bytes += len(data)
        state.cursor, state.ordinal, state.prev = cursor, state.ordinal + 1, total
        self._uncertain = False
        header = Header(kind, self._medium.log_id, state.ordinal - 1, epoch, nonce, state.next_lsn, records,
                        meta_length, len(body), now, 0, total)
        return header, segment

    # following the log
    def _load(self, *, expect: int = 1) -> None:
        """Start again from the root, and once more if the log is trimmed in between."""
        for _ in range(_LOADS):
            self._root, self._root_tag = self._medium.load_root()
            self._state = self._root.state.copy()
            self._lookup.view = View(Tail(), (), ()).with_runs(self._root.runs)
            self._reader.forget()
            try:
                return self._read_tail(expect)
            except Stale:
                continue
        raise Transient(f"the log of {self._medium.name} is trimmed faster than it can be read")

    def _catch_up(self) -> None:
        """Take over what other processes have appended."""
        try:
            self._read_tail(1)
        except Stale:
            self._load()
        self._uncertain = False
        view = self._lookup.view
        if view.active.frames > self._long_tail and not self._maintenance.busy:
            self._adopt_root()
            self._long_tail = self._lookup.view.active.frames + 4 * self._options.index_every

    def _adopt_root(self) -> None:
        """Use another process's index, for instance instead of a tail that keeps growing."""
        root, _ = self._medium.load_root()
        if root.generation != self._root.generation:
            self._load()

    def _read_tail(self, expect: int) -> None:
        for logged in self._medium.tail(self._state.cursor, expect=expect):
            header, body = self._decode(logged)
            state = self._state
            if header.ordinal != state.ordinal or header.prev != state.prev or header.first_lsn != state.next_lsn:
                raise Corruption(f"frame {logged.segment:#x} of {self._medium.name} does not continue the log")
            state.cursor, state.ordinal, state.prev = logged.cursor, state.ordinal + 1, header.sum
            self._lookup.view.active.frames += 1
            self._lookup.view.active.bytes += len(logged.frame)
            if header.kind == DATA:
                self._apply_commits(header, list(frames.decode_commits(header, body)), logged.segment)
            else:
                self._apply_change(header, frames.decode_change(body))
        self._publish()

    def _decode(self, logged: Logged) -> tuple[Header, memoryview]:
        header, body = frames.decode(logged.frame, name=f"frame {logged.segment:#x} of {self._medium.name}")
        if header.log_id != self._medium.log_id:
            raise Corruption(f"frame {logged.segment:#x} of {self._medium.name} belongs to another database")
        return header, body

    def _apply_commits(self, header: Header, commits: Sequence[Commit], segment: int) -> None:
        tail, lsn, state = self._lookup.view.active, header.first_lsn, self._state
        tail.add(FRAMES, 0, lsn, segment, header.ordinal, header.time_us)
        fresh: list[tuple[tuple[int, int], Page]] = []
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
                request, check = _request_key(commit.request_id)
                tail.add(REQUESTS, request, lsn - 1, check, commit.digest, header.time_us)
        state.next_lsn = lsn
        self._reader.wrote(fresh)
        self._durable = lsn - 1

    def _apply_change(self, header: Header, change: dict[str, Any]) -> None:
        if header.epoch < self._state.epoch:
            raise Corruption(f"a frame of epoch {header.epoch} follows epoch {self._state.epoch} in "
                             f"{self._medium.name}")
        self._state.apply(change, header.epoch)
        if change["op"] in ("branch", "unbranch"):
            self._reader.forget()
        self._publish()

    def _publish(self) -> None:
        """Let readers see what was applied."""
        self._floor = self._state.floor
        self._durable = self._state.next_lsn - 1

    def refresh(self) -> None:
        """Read on in the log."""
        with self._log_lock:
            self._catch_up()

    def moved_since(self, generation: int) -> bool:
        """Whether the index has changed since the root of that generation; the newest is then in use."""
        with self._log_lock:
            if self._root.generation == generation:
                self._adopt_root()
            return self._root.generation != generation

    def check_image(self, image: bytes, checksum: int, name: str) -> None:
        """Raise `Corruption` unless the bytes are those that were written."""
        if len(image) != self.page_size or xxh3_64_intdigest(image) != checksum:
            raise Corruption(f"{name} of {self._medium.name} does not match its checksum")

    def flush(self) -> None:
        with self._log_lock:
            self._medium.sync()

    def durable_lsn(self) -> Lsn:
        self.refresh()
        return Lsn(self._durable)

    def get_commit_lsn(self) -> Lsn:
        return self.durable_lsn()

    # the one writer
    def acquire_fence(self, owner: WriterId) -> FenceToken:
        taken_over: list[int] = []

        def propose(state: State) -> dict[str, Any]:
            if taken_over and state.epoch != taken_over[0]:
                raise Contended(f"{state.token().owner!r} took the fence first, with epoch {state.epoch}")
            taken_over[:] = [state.epoch]
            return state.acquire(owner, self._lease_end())

        with self._log_lock:
            self._append_change(propose)
            return self._state.token()

    def renew_fence(self, token: FenceToken) -> FenceToken:
        with self._log_lock:
            self._append_change(lambda state: state.renew(token, self._lease_end()))
            return self._state.token()

    def release_fence(self, token: FenceToken) -> None:
        self._append_change(lambda state: state.release(token))

    def current_fence(self) -> FenceToken | None:
        with self._log_lock:
            self._catch_up()
            return self._state.token() if self._state.held else None

    def _lease_end(self) -> float:
        return time.time() + self._options.fence_lease_ms / 1000

    # branches
    def create_branch(self, name: str, base_lsn: Lsn, *, parent: BranchId | str = MAIN) -> BranchId:
        with self._log_lock:
            self._append_change(lambda state: state.create_branch(name, base_lsn, parent))
            return BranchId(self._state.branch(name).id)

    def resolve_branch(self, branch: BranchId | str) -> BranchRef:
        with self._log_lock:
            self._catch_up()
            return self._state.branch(branch).ref()

    def list_branches(self) -> list[BranchRef]:
        with self._log_lock:
            self._catch_up()
            return [branch.ref() for branch in self._state.branches.values()]

    def delete_branch(self, branch: BranchId | str) -> None:
        self._append_change(lambda state: state.delete_branch(branch))

    # retention
    def set_retention_floor(self, lsn: Lsn) -> None:
        self._append_change(lambda state: state.set_floor(lsn))

    def pitr_floor(self) -> Lsn:
        self.refresh()
        return Lsn(self._floor)

    def compact(self) -> int:
        """Index the tail, drop versions nobody can read any more, and free their space. Returns bytes freed."""
        return self._maintenance.compact()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._maintenance.close()
            with self._log_lock:
                self._medium.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _request_key(request_id: str) -> tuple[int, int]:
    """A request id as an index key, and more of its hash to tell apart two that share it."""
    whole = xxh3_128_intdigest(request_id.encode())
    return whole >> 64, whole & _LAST


def _other_records(request_id: str) -> Invalid:
    return Invalid(f"request id {request_id!r} was used before with other records",
                   hint="give every new append an id of its own")
