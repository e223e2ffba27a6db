"""Page stores as commands see them: opened where they are and never created, and described."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ontolake import urls
from ontolake.errors import Invalid, NotFound
from ontolake.storage.types import DEFAULT_PAGE_SIZE, BranchRef

if TYPE_CHECKING:
    from ontolake.storage import LocalFileStorage, ObjectStorage
    from ontolake.storage.medium import Medium

FOR_EVER = 10.0**10
"""A window in seconds that lets no floor move by itself: how far back a store reaches is not a command's to say."""


class Found(NamedTuple):
    """What is at a URL."""

    location: urls.Location
    stamp: urls.Stamp

    @property
    def page_size(self) -> int:
        size = self.stamp.page_size or 0
        # A size that cannot be is damage, which opening with any other one will report.
        return size if 512 <= size <= 65536 and not size & (size - 1) else DEFAULT_PAGE_SIZE


def find(url: str) -> Found:
    """What is at `url`. Raises `NotFound` if nothing is, and what `urls.detect` raises.

    A directory that is there is taken for one, whether or not its name ends in a slash.
    """
    if url and "://" not in url and Path(url).is_dir():
        url = f"{url.rstrip('/')}/"
    location, stamp = urls.parse(url), urls.detect(url)
    if stamp is None:
        hint = "check the path; a store is made by the first program that opens it for writing"
        if location.place is urls.Place.MEMORY or location.path == ":memory:":
            hint = "what is in memory lives in the process that made it, and no other can see it"
        raise NotFound(f"there is nothing at {url!r}", hint=hint)
    return Found(location, stamp)


def find_pages(url: str) -> Found:
    """The page store at `url`. Raises `NotFound` if nothing is there, `Invalid` if something else is."""
    found = find(url)
    if found.stamp.kind != "pages":
        raise Invalid(f"{url!r} holds no pages of ours, but {described(found.stamp)}", hint=f"see onto info {url}")
    return found


def described(stamp: urls.Stamp) -> str:
    """A stamp in words."""
    return {"pages": "a page store", "sqlite": "a native SQLite database"}.get(stamp.kind, f"a store of {stamp.kind}")


def open_pages(found: Found, **knobs: Any) -> LocalFileStorage | ObjectStorage:
    """The store, with housekeeping switched off."""
    from ontolake.storage import LocalFileStorage, ObjectStorage

    settings = {"page_size": found.page_size, "create": False, "maintenance": "off", "pitr_window": FOR_EVER, **knobs}
    if found.location.holds_objects:
        return ObjectStorage(found.location.base_url, **settings)
    return LocalFileStorage(found.location.path, **settings)


def open_medium(found: Found) -> Medium:
    """What lies beneath the store: its log, index and root."""
    from ontolake.storage.options import Options

    options = Options(create=False)
    if found.location.holds_objects:
        from ontolake.objects import open_store
        from ontolake.storage.object import ObjectMedium

        return ObjectMedium(open_store(found.location.base_url), found.page_size, options)
    from ontolake.storage.local import FileMedium

    return FileMedium(Path(found.location.path).absolute(), found.page_size, options)


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


def stored_bytes(found: Found) -> int:
    """How much room the store takes."""
    if not found.location.holds_objects:
        return Path(found.location.path).stat().st_blocks * 512
    from ontolake.objects import open_store

    objects = open_store(found.location.base_url)
    try:
        return sum(info.size for info in objects.list())
    finally:
        objects.close()


def description(found: Found) -> dict[str, Any]:
    """Everything that `onto storage info` tells, under the names that `--json` prints."""
    with open_pages(found) as storage:
        fence = storage.current_fence()
        facts = {
            "url": found.location.url,
            "kind": found.stamp.kind,
            "engine": found.stamp.engine,
            "format_version": found.stamp.version,
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
    medium = open_medium(found)
    try:
        root, _ = medium.load_root()
    finally:
        medium.close()
    return facts | {
        "index_runs": [run.entries for run in root.runs],
        "page_layers": len(root.layers),
        "log_start": root.log_start,
        "bytes": stored_bytes(found),
    }


def branch_facts(ref: BranchRef, refs: list[BranchRef]) -> dict[str, Any]:
    """A branch under the names that `--json` prints."""
    parent = next((other.name for other in refs if other.id == ref.parent), None)
    return {"name": ref.name, "id": ref.id, "parent": parent, "base_lsn": ref.base_lsn, "head_lsn": ref.head_lsn}


def moment(seconds: float) -> str:
    """A point in time, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
