"""The seam: what a durable backend offers, and all that anything above it may use.

A backend is a dumb durable store. It orders and keeps records, gives back the version of a page that
was visible at an LSN, lets one writer in at a time, and never looks inside a record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from ontolake.errors import Invalid, StorageError
from ontolake.storage.types import MAIN, BranchId, BranchRef, FenceToken, Lsn, Page, PageId, WalRecord, WriterId

STORAGE_TRAIT_VERSION = 1
"""Major version of this protocol. A change of a signature, a byte layout or a promise raises it."""


@runtime_checkable
class Storage(Protocol):
    """A durable, versioned page store with one writer at a time. Methods are safe to call from threads.

    `branch` arguments take a `BranchId` or a branch's name.
    """

    trait_version: int
    page_size: int

    # reading
    def get_page(self, page_id: PageId, lsn: Lsn, *, branch: BranchId | str = MAIN) -> Page:
        """The version of a page with the greatest LSN ≤ `lsn`; an LSN above the durable one reads the latest.

        Raises `NotFound` if the page was not written by then or `lsn` is below `pitr_floor()`, `Corruption`
        if the image does not match its checksum, `Transient` if the backend failed in passing.
        """
        ...

    def get_pages(
        self, ids: Sequence[PageId], lsn: Lsn, *, branch: BranchId | str = MAIN
    ) -> list[Page | StorageError]:
        """`get_page` of every id, in order, in as few round trips as possible; errors stand in their place."""
        ...

    def scan_wal(self, after: Lsn, *, branch: BranchId | str = MAIN) -> Iterator[tuple[Lsn, WalRecord]]:
        """Every durable record with an LSN above `after` that the branch sees, in order, ending at the
        durable LSN of the moment of the call. Raises `NotFound` if `after` is below `pitr_floor()`."""
        ...

    # writing
    def append_wal(
        self,
        token: FenceToken,
        records: Sequence[WalRecord],
        *,
        branch: BranchId | str = MAIN,
        request_id: str | None = None,
    ) -> Lsn:
        """Append one atomic batch and return the LSN of its last record, once it is durable.

        A `request_id` makes a retry safe: the same id with the same records returns the first answer.
        Raises `Fenced`, `Invalid` (empty batch, wrong image size, the same id with other records),
        `NotFound` (unknown branch), `DurabilityUnconfirmed`, `Transient`.
        """
        ...

    def flush(self) -> None:
        """Wait until everything acknowledged is settled. Idempotent."""
        ...

    # where the log stands
    def durable_lsn(self) -> Lsn:
        """The latest durable LSN, other processes' writes included. Never decreases."""
        ...

    def get_commit_lsn(self) -> Lsn:
        """The latest durable LSN that ends a batch: where a fresh reader may read."""
        ...

    # the one writer
    def acquire_fence(self, owner: WriterId) -> FenceToken:
        """Take over as the writer at once; every earlier token is fenced. `Contended` if another won the race."""
        ...

    def renew_fence(self, token: FenceToken) -> FenceToken:
        """The same token with a longer lease. `Fenced` if it was superseded, released or has expired.

        `Fenced.current` is the epoch that was issued last: newer than the token's if another writer has taken over.
        """
        ...

    def release_fence(self, token: FenceToken) -> None:
        """Give the place up. Releasing a token that is no longer valid does nothing."""
        ...

    def current_fence(self) -> FenceToken | None:
        """The token that was issued last, None if it was released or none was ever issued."""
        ...

    # branches
    def create_branch(self, name: str, base_lsn: Lsn, *, parent: BranchId | str = MAIN) -> BranchId:
        """A copy-on-write branch of `parent` as it was at `base_lsn`; copies no page.

        Raises `NotFound` (unknown parent, base below the floor or above the durable LSN), `Invalid` (bad name),
        `AlreadyExists` (a branch of that name lives).
        """
        ...

    def resolve_branch(self, branch: BranchId | str) -> BranchRef:
        """The branch's pointers. Raises `NotFound`."""
        ...

    def list_branches(self) -> list[BranchRef]:
        """All live branches, `main` first."""
        ...

    def delete_branch(self, branch: BranchId | str) -> None:
        """Remove a branch. Raises `NotFound`, or `Invalid` for `main` and for a branch that has branches."""
        ...

    def rename_branch(self, branch: BranchId | str, name: str) -> None:
        """Give a branch another name; its id and its pages stay. Raises `NotFound`, `Invalid` for `main` and for a name
        that cannot be one, `AlreadyExists`."""
        ...

    def rebase_branch(self, branch: BranchId | str, base_lsn: Lsn) -> None:
        """Let a branch see its parent as of a later LSN, where it has no page of its own; its own pages stay.

        For a branch on which all pages were written again, so that it no longer holds the floor back. Raises
        `NotFound` (unknown branch, LSN above the durable one), `Invalid` for `main` and for a base before the old one.
        """
        ...

    # retention
    def set_retention_floor(self, lsn: Lsn) -> None:
        """Declare that nothing below `lsn` is needed any more. Live branches hold the floor back to their base.

        Raises `Invalid` if `lsn` lies below an earlier declaration or above the durable LSN.
        """
        ...

    def pitr_floor(self) -> Lsn:
        """The oldest LSN that can be read. Every read at or above it is answered. Never decreases."""
        ...

    def close(self) -> None:
        """Let go of files, connections and threads. Idempotent."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def check_trait_version(storage: Storage) -> Storage:
    """Return `storage`, or raise `Invalid` if it was built for another major version of the seam."""
    found = getattr(storage, "trait_version", None)
    if found != STORAGE_TRAIT_VERSION:
        raise Invalid(
            f"{type(storage).__name__} implements version {found} of the storage seam, "
            f"this build needs version {STORAGE_TRAIT_VERSION}",
            hint="install matching versions of ontolake and of the backend",
        )
    return storage
