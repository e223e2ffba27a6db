"""The words of the seam: pages, log sequence numbers, records, fence tokens and branches."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

PageId: TypeAlias = int
"""Identity of a page, 0 … 2⁶⁴-1, for the life of the database."""

Lsn: TypeAlias = int
"""Log sequence number: counts records from 1 without gaps, over all branches; 0 is the empty state."""

BranchId: TypeAlias = int

WriterId = int | str
"""Names a writer: a non-empty string, or an integer of up to 128 bits."""

MAIN = BranchId(0)
"""The branch every database starts with."""

DEFAULT_PAGE_SIZE = 4096


class Page(NamedTuple):
    """One version of a page: its image, and the LSN that wrote it."""

    id: PageId
    lsn: Lsn
    bytes: bytes


class WalRecord(NamedTuple):
    """One record of the log. With a `page_id` it carries that page's new image, without it is opaque."""

    bytes: bytes
    page_id: PageId | None = None


class FenceToken(NamedTuple):
    """The right to write: the highest epoch wins; `lease_until` is in seconds since 1970."""

    epoch: int
    owner: WriterId
    lease_until: float


class BranchRef(NamedTuple):
    """A branch: where it left its parent, and the last LSN written on it (`base_lsn` when none was)."""

    id: BranchId
    name: str
    base_lsn: Lsn
    head_lsn: Lsn
    parent: BranchId | None
