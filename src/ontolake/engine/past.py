"""Giving up the past of a database on pages: for erasure, where no old version of a page may stay."""

from __future__ import annotations

from typing import Any

from ontolake.engine.moments import HEADER_PAGE
from ontolake.engine.registry import shared
from ontolake.errors import Contended
from ontolake.storage import BranchRef, Lsn, Page, PageId, Storage

_PAGES = slice(28, 32)
_STEP = 256
_LOCKED = 0x40000000
"""The byte whose page SQLite never writes, since it locks files there."""


def detach(url: str) -> None:
    """Make all branches of a page store independent of what they were made from, once every page of theirs was
    written again, as VACUUM does. Raises `Contended` if a branch has pages that were not."""
    place = shared(url)
    database = place.join({}, create=False, writes=True)
    try:
        storage = database.storage
        refs = [ref for ref in storage.list_branches() if ref.parent is not None]
        durable = storage.get_commit_lsn()
        for ref in refs:
            if not _is_whole(storage, ref, durable):
                raise Contended(f"the branch {ref.name!r} of {url} was made while its past was being dropped",
                                hint="do it again")
        for ref in refs:
            storage.rebase_branch(ref.id, durable)
    finally:
        place.leave(writes=True)


def holders(url: str) -> list[str]:
    """The branches of a page store, by name, that hold what they were made from, so that it cannot be dropped."""
    place = shared(url)
    database = place.join({}, create=False, writes=False)
    try:
        return [ref.name for ref in database.storage.list_branches() if ref.parent is not None]
    finally:
        place.leave(writes=False)


def _is_whole(storage: Storage, ref: BranchRef, at: Lsn) -> bool:
    """Whether a branch has every page of its own."""
    if ref.head_lsn <= ref.base_lsn:
        return False
    count = int.from_bytes(storage.get_page(HEADER_PAGE, at, branch=ref.id).bytes[_PAGES], "big")
    unused = _LOCKED // storage.page_size + 1
    for first in range(1, count + 1, _STEP):
        wanted = [PageId(number) for number in range(first, min(first + _STEP, count + 1)) if number != unused]
        for page in storage.get_pages(wanted, at, branch=ref.id):
            if not isinstance(page, Page) or page.lsn <= ref.base_lsn:
                return False
    return True


def drop_past(url: str) -> int:
    """Drop all versions of pages that are older than the newest commit. Returns the bytes that were freed.

    Branches of the page store hold what they were made from, unless `detach` made them independent of it. On objects,
    frames of the log that others may still look for stay for the grace of the store, emptied.
    """
    place = shared(url)
    database = place.join({}, create=False, writes=True)
    try:
        storage: Any = database.storage
        storage.set_retention_floor(storage.get_commit_lsn())
        freed = storage.compact(thorough=True) if hasattr(storage, "compact") else 0
        return int(freed)
    finally:
        place.leave(writes=True)
