"""`LogStorage`: the seam on top of any medium. What is asked for is checked against the log, and becomes a frame of it.

A writer's token, a branch and a request id are checked against the log as this process knows it; the frame is then
appended only if the log still ends there, so nothing can come between the check and the write.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from xxhash import xxh3_64_intdigest

from ontolake.errors import Contended, Invalid, NotFound, StorageError
from ontolake.storage.frame import LogCommit, digest_of
from ontolake.storage.group import GroupCommit, Waiting
from ontolake.storage.index import REQUESTS
from ontolake.storage.log import Log, request_key
from ontolake.storage.maintenance import Maintenance
from ontolake.storage.medium import Medium, Taken
from ontolake.storage.options import StorageOptions
from ontolake.storage.protocol import STORAGE_TRAIT_VERSION
from ontolake.storage.reader import PageReader
from ontolake.storage.state import LogState, check_lsn, is_text
from ontolake.storage.types import MAIN, BranchId, BranchRef, FenceToken, Lsn, Page, PageId, WalRecord, WriterId

_LAST = 2**64 - 1
_NOTHING = object()
_forks = 0


def _forked() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)


class PendingAppend(Waiting):
    """An `append_wal` that waits for its group."""

    def __init__(self, token: FenceToken, branch: BranchId | str, commit: LogCommit) -> None:
        self.token = token
        self.branch = branch
        self.commit = commit


class LogStorage:
    """A `Storage` over a `Medium`."""

    trait_version = STORAGE_TRAIT_VERSION
    remote: bool
    """Whether a read costs a round trip, so that those above should ask for many pages at once."""

    def __init__(self, medium: Medium, options: StorageOptions) -> None:
        self.page_size = medium.page_size
        self.log = Log(medium, options)
        self.group: GroupCommit[PendingAppend] = GroupCommit(self._write_group, options.group_commit_window_ms)
        self._name = medium.name
        self._lease = options.fence_lease_ms / 1000
        self._reader = PageReader(self.log, options)
        self._cached = self.log.pages.young
        self._maintenance = Maintenance(self.log, options)
        self._closed = False
        self._forks = _forks

    # reading
    def get_page(self, page_id: PageId, lsn: Lsn, *, branch: BranchId | str = MAIN) -> Page:
        try:
            _, _, durable, floor, _ = self.log.moment
            if floor <= lsn <= durable:
                page = self._cached.get((branch, page_id))
                if page is not None and page[1] <= lsn:
                    return page
        except TypeError:
            check_lsn(lsn, "lsn")
        self._check_open()
        return self._reader.page(page_id, lsn, branch)

    def get_pages(
        self, ids: Sequence[PageId], lsn: Lsn, *, branch: BranchId | str = MAIN
    ) -> list[Page | StorageError]:
        self._check_open()
        return self._reader.pages(ids, lsn, branch)

    def scan_wal(self, after: Lsn, *, branch: BranchId | str = MAIN) -> Iterator[tuple[Lsn, WalRecord]]:
        check_lsn(after, "after")
        with self.log.lock:
            log = self._fresh()
            log.state.check_readable(after)
            lineage = dict(log.state.lineage(log.state.branch(branch)))
            return log.scan(after, log.moment.durable, lineage)

    # writing
    def append_wal(
        self,
        token: FenceToken,
        records: Sequence[WalRecord],
        *,
        branch: BranchId | str = MAIN,
        request_id: str | None = None,
    ) -> Lsn:
        lsn = self.group.commit(PendingAppend(token, branch, self.prepared(records, request_id)))
        self.after_append()
        return Lsn(lsn)

    def after_append(self) -> None:
        """Housekeeping that appends have made due."""
        self._maintenance.after_append()

    def prepared(self, records: Sequence[WalRecord], request_id: str | None) -> LogCommit:
        """A batch that is ready for its group. Raises `Invalid` if its shape is wrong."""
        self._check_open()
        kept = self._checked(records)
        if request_id is not None and (not is_text(request_id) or not request_id):
            raise Invalid(f"a request id is a non-empty string, not {request_id!r}")
        return LogCommit(-1, kept, [xxh3_64_intdigest(record[0]) for record in kept], request_id)

    def _checked(self, records: Sequence[WalRecord]) -> list[WalRecord]:
        """The records with bytes of their own, once their shape is known to be right."""
        kept, size = [], self.page_size
        if not hasattr(records, "__iter__"):
            raise Invalid(f"records come as a list, not as {type(records).__name__}")
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

    def _write_group(self, group: Sequence[PendingAppend]) -> None:
        """One durable write for all that can be accepted; the others get their error."""
        log = self.log
        with log.lock:
            while True:
                try:
                    log.settle()
                    state, ordinal = log.state, log.state.ordinal
                    accepted = self._accept(group)
                    if log.state is not state or state.ordinal != ordinal:
                        # Checking one of them has read on in the log: what was accepted before may no longer be.
                        continue
                    if not accepted:
                        return
                    log.append_commits([item.commit for item in accepted])
                except Taken:
                    continue
                except StorageError as error:
                    for item in group:
                        if item.error is None and not item.lsn:
                            item.error = error
                    return
                break
            end = log.moment.durable
            for item in reversed(accepted):
                item.lsn = end
                end -= len(item.commit.records)
            if len(accepted) < len(group):
                for item in group:
                    if item.error is None and not item.lsn:
                        # The same request twice in one group: both get the one answer.
                        item.lsn = self._applied_request(item.commit) or 0

    def _accept(self, group: Sequence[PendingAppend]) -> list[PendingAppend]:
        """Those whose token, branch and request id allow them to be written now."""
        accepted: list[PendingAppend] = []
        requests: dict[str, int] = {}
        checked: object = _NOTHING
        for item in group:
            if item.error is not None or item.lsn:
                continue
            commit = item.commit
            try:
                if item.token is not checked:
                    self._check_token(item.token)
                    checked = item.token
                commit.branch = self._find_branch(item.branch)
                if commit.request_id is not None:
                    commit.digest = digest_of(commit.branch, commit.records, commit.sums)
                    item.lsn = self._applied_request(commit) or 0
                    if item.lsn:
                        continue
                    if commit.request_id in requests:
                        if requests[commit.request_id] != commit.digest:
                            raise _other_records(commit.request_id)
                        continue
                    requests[commit.request_id] = commit.digest
                accepted.append(item)
            except Exception as error:  # whatever is wrong with one must not become the error of the others
                item.error = error
        return accepted

    def _check_token(self, token: FenceToken) -> None:
        if isinstance(token, FenceToken) and type(token.epoch) is int and token.epoch > self.log.state.epoch:
            self.log.refresh()
        self.log.state.check_token(token)

    def _find_branch(self, branch: BranchId | str) -> int:
        if type(branch) is int and branch in self.log.state.branches:
            return branch
        try:
            return self.log.state.branch(branch).id
        except NotFound:
            self.log.refresh()
            return self.log.state.branch(branch).id

    def _applied_request(self, commit: LogCommit) -> int | None:
        """The LSN that a request id was answered with; `Invalid` if it came with other records."""
        if commit.request_id is None:
            return None
        key, check = request_key(commit.request_id)
        found = self.log.find(REQUESTS, key, _LAST)
        if found is None or found[1] != check:
            return None
        lsn, _, digest, _ = found
        if digest != commit.digest:
            raise _other_records(commit.request_id)
        return lsn

    def flush(self) -> None:
        with self.log.lock:
            self._check_open()
            self.log.medium.sync()

    def durable_lsn(self) -> Lsn:
        with self.log.lock:
            log = self._fresh()
            return Lsn(log.moment.durable)

    def get_commit_lsn(self) -> Lsn:
        return self.durable_lsn()

    # the one writer
    def acquire_fence(self, owner: WriterId) -> FenceToken:
        seen: list[int] = []

        def propose(state: LogState) -> dict[str, Any]:
            if seen and state.epoch != seen[0]:
                raise Contended(f"{state.token().owner!r} took the fence first, with epoch {state.epoch}")
            seen[:] = [state.epoch]
            return state.acquire(owner, time.time() + self._lease)

        with self.log.lock:
            log = self._fresh()
            log.append_change(propose)
            return log.state.token()

    def renew_fence(self, token: FenceToken) -> FenceToken:
        with self.log.lock:
            log = self._fresh()
            log.append_change(lambda state: state.renew(token, time.time() + self._lease))
            return log.state.token()

    def release_fence(self, token: FenceToken) -> None:
        with self.log.lock:
            log = self._fresh()
            log.append_change(lambda state: state.release(token))

    def current_fence(self) -> FenceToken | None:
        with self.log.lock:
            log = self._fresh()
            return log.state.token() if log.state.held else None

    # branches
    def create_branch(self, name: str, base_lsn: Lsn, *, parent: BranchId | str = MAIN) -> BranchId:
        with self.log.lock:
            log = self._fresh()
            log.append_change(lambda state: state.create_branch(name, base_lsn, parent))
            return BranchId(log.state.branch(name).id)

    def resolve_branch(self, branch: BranchId | str) -> BranchRef:
        with self.log.lock:
            log = self._fresh()
            return log.state.branch(branch).ref()

    def list_branches(self) -> list[BranchRef]:
        with self.log.lock:
            log = self._fresh()
            return [branch.ref() for branch in log.state.branches.values()]

    def delete_branch(self, branch: BranchId | str) -> None:
        with self.log.lock:
            log = self._fresh()
            log.append_change(lambda state: state.delete_branch(branch))

    def rename_branch(self, branch: BranchId | str, name: str) -> None:
        with self.log.lock:
            log = self._fresh()
            log.append_change(lambda state: state.rename_branch(branch, name))

    def rebase_branch(self, branch: BranchId | str, base_lsn: Lsn) -> None:
        with self.log.lock:
            log = self._fresh()
            log.append_change(lambda state: state.rebase_branch(branch, base_lsn))

    # retention
    def set_retention_floor(self, lsn: Lsn) -> None:
        with self.log.lock:
            log = self._fresh()
            log.append_change(lambda state: state.set_floor(lsn))

    def pitr_floor(self) -> Lsn:
        with self.log.lock:
            log = self._fresh()
            return Lsn(log.moment.floor)

    def compact(self, *, thorough: bool = False) -> int:
        """Index the tail, drop versions nobody can read any more, and free their space. Returns bytes freed.

        With `thorough` no byte of them stays, not even where leaving it would be cheaper, or for the grace.
        """
        self._check_open()
        return self._maintenance.compact(thorough=thorough)

    # opening and closing
    def _fresh(self) -> Log:
        """The log, read to its end."""
        self._check_open()
        self.log.refresh()
        return self.log

    def _check_open(self) -> None:
        if self._closed:
            raise Invalid(f"{self._name} is closed", hint="open it again")
        if self._forks != _forks:
            # Locks, threads and connections do not survive a fork in a state that could be relied on.
            raise Invalid(f"{self._name} was opened by another process, before a fork", hint="open it again here")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._forks != _forks:
                return
            self._maintenance.close()
            with self.log.lock:
                self.log.pages.clear()
                self.log.medium.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _other_records(request_id: str) -> Invalid:
    return Invalid(f"request id {request_id!r} was used before with other records",
                   hint="give every new append an id of its own")
