"""Giving up the past of a database on pages: for erasure, where no old version of a page may stay."""

from __future__ import annotations

from typing import Any

from ontolake.engine.registry import shared


def drop_past(url: str) -> int:
    """Drop all versions of pages that are older than the newest commit. Returns the bytes that were freed.

    Branches of the page store hold what they were made from. On objects, files that are not needed any more stay for
    the grace of the store, 10 minutes unless it was opened with another, and go with the next compaction.
    """
    place = shared(url)
    database = place.join({}, create=False, writes=True)
    try:
        storage: Any = database.storage
        storage.set_retention_floor(storage.get_commit_lsn())
        freed = storage.compact() if hasattr(storage, "compact") else 0
        return int(freed)
    finally:
        place.leave(writes=True)
