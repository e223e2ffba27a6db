"""The oracle: the plainest thing that keeps the seam's promises, in memory, to hold backends against.

Every answer is worked out from the list of records, with no index, cache or layer that could be wrong.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from ontolake import faults
from ontolake.errors import AlreadyExists, Fenced, Invalid, NotFound, StorageError
from ontolake.storage.protocol import STORAGE_TRAIT_VERSION
from ontolake.storage.types import (
    DEFAULT_PAGE_SIZE,
    MAIN,
    BranchId,
    BranchRef,
    FenceToken,
    Lsn,
    Page,
    PageId,
    WalRecord,
    WriterId,
)


@dataclass
class OracleBranch:
    """A branch and the records written on it, with their LSNs."""

    id: int
    name: str
    base: int
    parent: int | None
    own: list[tuple[int, WalRecord]] = field(default_factory=list)


@dataclass
class OracleRequest:
    """An append that was made under a request id, and its answer."""

    branch: int
    records: tuple[WalRecord, ...]
    lsn: int


@dataclass
class OracleState:
    """What survives a reopen: all there is to know about a database."""

    page_size: int = DEFAULT_PAGE_SIZE
    lsn: int = 0
    epoch: int = 0
    fence: FenceToken | None = None
    declared: int = 0
    next_branch: int = 1
    branches: dict[int, OracleBranch] = field(default_factory=lambda: {MAIN: OracleBranch(MAIN, "main", 0, None)})
    requests: dict[str, OracleRequest] = field(default_factory=dict)


class Oracle:
    """A handle on a model. Handles of one process share it with its lock."""

    def __init__(
        self, model: OracleState, lock: AbstractContextManager[object] | None = None, *, lease_ms: float = 10_000
    ) -> None:
        self.trait_version = STORAGE_TRAIT_VERSION
        self.page_size = model.page_size
        self.model = model
        self.lock: AbstractContextManager[object] = lock or threading.RLock()
        self._lease = lease_ms / 1000

    # reading
    def seen(self, branch: BranchId | str, until: int) -> list[tuple[int, WalRecord]]:
        """The records a branch sees up to an LSN: its ancestors' up to its base, then its own."""
        found = self.branch(branch)
        before = [] if found.parent is None else self.seen(BranchId(found.parent), min(found.base, until))
        return before + [(lsn, record) for lsn, record in found.own if lsn <= until]

    def get_page(self, page_id: PageId, lsn: Lsn, *, branch: BranchId | str = MAIN) -> Page:
        with self.lock:
            self.branch(branch)
            _check_lsn(lsn)
            if lsn < self.pitr_floor():
                raise NotFound(f"LSN {lsn} lies below the floor {self.pitr_floor()}")
            for at, record in reversed(self.seen(branch, lsn)):
                if record.page_id == page_id:
                    return Page(page_id, Lsn(at), record.bytes)
            raise NotFound(f"page {page_id} was not written by LSN {lsn}")

    def get_pages(
        self, ids: Sequence[PageId], lsn: Lsn, *, branch: BranchId | str = MAIN
    ) -> list[Page | StorageError]:
        found: list[Page | StorageError] = []
        for page_id in ids:
            try:
                found.append(self.get_page(page_id, lsn, branch=branch))
            except StorageError as error:
                found.append(error)
        return found

    def scan_wal(self, after: Lsn, *, branch: BranchId | str = MAIN) -> Iterator[tuple[Lsn, WalRecord]]:
        with self.lock:
            _check_lsn(after)
            if after < self.pitr_floor():
                raise NotFound(f"LSN {after} lies below the floor {self.pitr_floor()}")
            return iter([(Lsn(lsn), record) for lsn, record in self.seen(branch, self.model.lsn) if lsn > after])

    # writing
    def append_wal(
        self,
        token: FenceToken,
        records: Sequence[WalRecord],
        *,
        branch: BranchId | str = MAIN,
        request_id: str | None = None,
    ) -> Lsn:
        kept = tuple(self._kept(record) for record in records)
        if not kept:
            raise Invalid("an empty batch cannot be appended")
        faults.reach("append: before")
        with self.lock:
            self.check_token(token)
            found = self.branch(branch)
            if request_id is not None and request_id in self.model.requests:
                first = self.model.requests[request_id]
                if (first.branch, first.records) != (found.id, kept):
                    raise Invalid(f"request {request_id!r} was made before with other records")
                return Lsn(first.lsn)
            faults.reach("append: checked")
            for record in kept:
                self.model.lsn += 1
                found.own.append((self.model.lsn, record))
            if request_id is not None:
                self.model.requests[request_id] = OracleRequest(found.id, kept, self.model.lsn)
            lsn = self.model.lsn
            self.saved("append")
        faults.reach("append: after")
        return Lsn(lsn)

    def _kept(self, record: WalRecord) -> WalRecord:
        try:
            data = bytes(memoryview(record.bytes))
        except TypeError:
            raise Invalid(f"a record holds bytes, not {type(record.bytes).__name__}") from None
        if record.page_id is not None:
            if not isinstance(record.page_id, int) or not 0 <= record.page_id < 2**64:
                raise Invalid(f"{record.page_id!r} is not a page id")
            if len(data) != self.page_size:
                raise Invalid(f"the image of page {record.page_id} has {len(data)} bytes, not {self.page_size}")
        return WalRecord(data, record.page_id)

    def flush(self) -> None:
        """Nothing waits here."""

    def compact(self) -> None:
        """Nothing to tidy: the model keeps every record."""

    def durable_lsn(self) -> Lsn:
        with self.lock:
            return Lsn(self.model.lsn)

    def get_commit_lsn(self) -> Lsn:
        return self.durable_lsn()

    # the one writer
    def check_token(self, token: FenceToken) -> None:
        fence = self.model.fence
        if fence is None or (token.epoch, token.owner) != (fence.epoch, fence.owner):
            raise Fenced(token.epoch, self.model.epoch, "it was released" if fence is None else None)
        if time.time() >= fence.lease_until:
            raise Fenced(token.epoch, self.model.epoch, "its lease has expired")

    def acquire_fence(self, owner: WriterId) -> FenceToken:
        if not isinstance(owner, (int, str)) or owner == "" or (isinstance(owner, int) and not 0 <= owner < 2**128):
            raise Invalid(f"{owner!r} does not name a writer")
        with self.lock:
            self.model.epoch += 1
            self.model.fence = FenceToken(self.model.epoch, owner, time.time() + self._lease)
            self.saved("acquire")
            return self.model.fence

    def renew_fence(self, token: FenceToken) -> FenceToken:
        with self.lock:
            self.check_token(token)
            self.model.fence = token._replace(lease_until=time.time() + self._lease)
            self.saved("renew")
            return self.model.fence

    def release_fence(self, token: FenceToken) -> None:
        with self.lock:
            if self.model.fence is not None and self.model.fence.epoch == token.epoch:
                self.model.fence = None
                self.saved("release")

    def current_fence(self) -> FenceToken | None:
        with self.lock:
            return self.model.fence

    # branches
    def branch(self, branch: BranchId | str) -> OracleBranch:
        for found in self.model.branches.values():
            if branch in (found.id, found.name):
                return found
        raise NotFound(f"there is no branch {branch!r}")

    def create_branch(self, name: str, base_lsn: Lsn, *, parent: BranchId | str = MAIN) -> BranchId:
        if not isinstance(name, str) or not name.strip():
            raise Invalid(f"{name!r} is not a branch name")
        with self.lock:
            found = self.branch(parent)
            if any(branch.name == name for branch in self.model.branches.values()):
                raise AlreadyExists(f"a branch named {name!r} exists")
            if not self.pitr_floor() <= base_lsn <= self.model.lsn:
                raise NotFound(f"there is no LSN {base_lsn} to branch from")
            made = BranchId(self.model.next_branch)
            self.model.next_branch += 1
            self.model.branches[made] = OracleBranch(made, name, base_lsn, found.id)
            self.saved("branch")
            return made

    def resolve_branch(self, branch: BranchId | str) -> BranchRef:
        with self.lock:
            found = self.branch(branch)
            head = found.own[-1][0] if found.own else found.base
            parent = None if found.parent is None else BranchId(found.parent)
            return BranchRef(BranchId(found.id), found.name, Lsn(found.base), Lsn(head), parent)

    def list_branches(self) -> list[BranchRef]:
        with self.lock:
            return [self.resolve_branch(BranchId(branch)) for branch in self.model.branches]

    def delete_branch(self, branch: BranchId | str) -> None:
        with self.lock:
            found = self.branch(branch)
            if found.id == MAIN:
                raise Invalid("the branch main cannot be deleted")
            if any(other.parent == found.id for other in self.model.branches.values()):
                raise Invalid(f"branch {found.name!r} has branches of its own")
            del self.model.branches[found.id]
            self.saved("delete")

    def rename_branch(self, branch: BranchId | str, name: str) -> None:
        if not isinstance(name, str) or not name.strip():
            raise Invalid(f"{name!r} is not a branch name")
        with self.lock:
            found = self.branch(branch)
            if found.id == MAIN:
                raise Invalid("the branch main cannot be renamed")
            if any(other.name == name for other in self.model.branches.values()):
                raise AlreadyExists(f"a branch named {name!r} exists")
            found.name = name
            self.saved("rename")

    def rebase_branch(self, branch: BranchId | str, base_lsn: Lsn) -> None:
        with self.lock:
            found = self.branch(branch)
            if found.id == MAIN or base_lsn < found.base:
                raise Invalid(f"the base of {found.name!r} cannot move to {base_lsn}")
            if base_lsn > self.model.lsn:
                raise NotFound(f"there is no LSN {base_lsn}")
            found.base = base_lsn
            self.saved("rebase")

    # retention
    def set_retention_floor(self, lsn: Lsn) -> None:
        with self.lock:
            if not self.model.declared <= lsn <= self.model.lsn:
                raise Invalid(f"the floor cannot move from {self.model.declared} to {lsn}")
            self.model.declared = lsn
            self.saved("floor")

    def pitr_floor(self) -> Lsn:
        with self.lock:
            bases = [branch.base for branch in self.model.branches.values() if branch.parent is not None]
            return Lsn(min([self.model.declared, *bases]))

    # a handle's life
    def saved(self, step: str) -> None:
        """The model has changed: here a variant may make it durable."""
        faults.reach(f"{step}: saved")

    def close(self) -> None:
        """Nothing to let go of."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _check_lsn(lsn: int) -> None:
    if not isinstance(lsn, int) or lsn < 0:
        raise Invalid(f"{lsn!r} is not an LSN")
