"""Page stores as commands see them: opened where they are and never created, and described."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ontolake.errors import Invalid, NotFound
from ontolake.storage.types import DEFAULT_PAGE_SIZE, BranchRef
from ontolake.stores import Site, locate

if TYPE_CHECKING:
    from ontolake.storage import LocalFileStorage, ObjectStorage
    from ontolake.storage.medium import Medium

FOR_EVER = 10.0**10
"""A window in seconds that lets no floor move by itself: how far back a store reaches is not a command's to say."""


def page_size(site: Site) -> int:
    """The page size of the stamp; the default for one that cannot be, which opening reports as damage."""
    size = site.stamp.page_size or 0
    return size if 512 <= size <= 65536 and not size & (size - 1) else DEFAULT_PAGE_SIZE


def find_pages(url: str) -> Site:
    """The page store at `url`. Raises `NotFound` if nothing is there, `Invalid` if something else is."""
    site = locate(url)
    if site.stamp.kind != "pages":
        raise Invalid(f"{url!r} holds no pages of ours, but {site.described}", hint=f"see onto info {url}")
    return site


def open_pages(site: Site, **knobs: Any) -> LocalFileStorage | ObjectStorage:
    """The store, with housekeeping switched off."""
    from ontolake.storage import LocalFileStorage, ObjectStorage

    settings = {"page_size": page_size(site), "create": False, "maintenance": "off", "pitr_window": FOR_EVER, **knobs}
    if site.location.holds_objects:
        return ObjectStorage(site.location.base_url, **settings)
    return LocalFileStorage(site.location.path, **settings)


def open_medium(site: Site) -> Medium:
    """What lies beneath the store: its log, index and root."""
    from ontolake.storage.options import StorageOptions

    options = StorageOptions(create=False)
    if site.location.holds_objects:
        from ontolake.objects import open_store
        from ontolake.storage.object import ObjectMedium

        return ObjectMedium(open_store(site.location.base_url), page_size(site), options)
    from ontolake.storage.local import FileMedium

    return FileMedium(Path(site.location.path).absolute(), page_size(site), options)


def lsn_of_commit(url: str, branch: str, commit: int) -> int:
    """The LSN at which a commit was the newest one of the typed store in these pages. Raises `NotFound`."""
    from ontolake.engine.moments import commit_at, last_lsn
    from ontolake.storage import open_storage

    with open_storage(url, create=False) as storage:
        ref = storage.resolve_branch(branch)
        head = commit_at(storage, ref, storage.get_commit_lsn())
        newest = _newest_commit(url, branch, head)
        if not 1 <= commit <= newest:
            raise NotFound(f"{branch} has no commit {commit}", hint=f"commits are numbered from 1 to {newest}")
        lsn = head if commit == newest else last_lsn(head, lambda lsn: _newest_commit(url, branch, lsn) <= commit)
        if _newest_commit(url, branch, lsn) != commit:
            raise NotFound(f"commit {commit} of {branch} cannot be branched from: the pages of then are no longer kept",
                           hint="choose a later commit")
        return commit_at(storage, ref, lsn)


def _newest_commit(url: str, branch: str, lsn: int) -> int:
    """The newest commit of a typed store at an LSN; 0 before the first."""
    from ontolake.engine import connect

    db = connect(url, branch=branch, at=lsn)
    try:
        if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'commits'").fetchone():
            return 0
        found: Any = db.execute("SELECT coalesce(max(id), 0) FROM commits").get
        return int(found)
    finally:
        db.close(True)


def stored_bytes(site: Site) -> int:
    """How much room the store takes."""
    if not site.location.holds_objects:
        return Path(site.location.path).stat().st_blocks * 512
    from ontolake.objects import open_store

    objects = open_store(site.location.base_url)
    try:
        return sum(info.size for info in objects.list())
    finally:
        objects.close()


def description(site: Site) -> dict[str, Any]:
    """Everything that `onto storage info` tells, under the names that `--json` prints."""
    with open_pages(site) as storage:
        fence = storage.current_fence()
        facts = {
            "url": site.location.url,
            "kind": site.stamp.kind,
            "engine": site.stamp.engine,
            "format_version": site.stamp.version,
            "page_size": storage.page_size,
            "durable_lsn": storage.durable_lsn(),
            "commit_lsn": storage.get_commit_lsn(),
            "pitr_floor": storage.pitr_floor(),
            "fence": None if fence is None else {
                "owner": fence.owner,
                "epoch": fence.epoch,
                "lease_until": moment(fence.lease_until),
                "expired": fence.lease_until <= time.time(),
            },
            "branches": [branch_facts(ref, storage.list_branches()) for ref in storage.list_branches()],
        }  # fmt: skip
    medium = open_medium(site)
    try:
        root, _ = medium.load_root()
    finally:
        medium.close()
    return facts | {
        "index_runs": [run.entries for run in root.runs],
        "page_layers": len(root.layers),
        "log_start": root.log_start,
        "bytes": stored_bytes(site),
    }


def branch_facts(ref: BranchRef, refs: list[BranchRef]) -> dict[str, Any]:
    """A branch under the names that `--json` prints."""
    parent = next((other.name for other in refs if other.id == ref.parent), None)
    return {"name": ref.name, "id": ref.id, "parent": parent, "base_lsn": ref.base_lsn, "head_lsn": ref.head_lsn}


def moment(seconds: float) -> str:
    """A point in time, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
