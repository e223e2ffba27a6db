"""Reads all that a page store keeps and tells what is damaged.

Every version that can still be read is either in the log above the floor or visible at the floor. So reading the
whole log, and every page of every branch at its head and at the floor, leaves nothing out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ontolake.cli.common.output import Progress
from ontolake.cli.common.page_store import open_medium, open_pages
from ontolake.errors import Corruption, NotFound, StorageError, Transient
from ontolake.history import Damage
from ontolake.objects import open_store
from ontolake.storage import frame as frames
from ontolake.storage.index import FRAMES, REQUESTS
from ontolake.storage.lookup import Lookup
from ontolake.storage.medium import Medium, Root, Stale
from ontolake.storage.protocol import Storage
from ontolake.storage.types import BranchRef, Lsn, PageId
from ontolake.stores import Site

LOG = "wal/"
"""Where an object store keeps the frames of the log, each under its number."""
_BATCH = 256
Numbers = npt.NDArray[np.uint64]


@dataclass
class Checked:
    """What was read, and what was found."""

    frames: int = 0
    records: int = 0
    pages: int = 0
    branches: int = 0
    damage: list[Damage] = field(default_factory=list)

    def found(self, where: str, error: StorageError) -> None:
        self.damage.append(Damage(where, error.message))


@dataclass
class _Versions:
    """Which page versions there are, by branch: a row is branch, page and LSN."""

    rows: list[tuple[int, int, int]] = field(default_factory=list)
    arrays: list[Numbers] = field(default_factory=list)

    def joined(self) -> Numbers:
        logged = np.array(self.rows, dtype=np.uint64).reshape(-1, 3)
        return np.concatenate([logged, *self.arrays])


def check(site: Site, progress: Progress) -> Checked:
    """Read everything. Raises what opening raises, except for damage, which is told in the result."""
    result, versions = Checked(), _Versions()
    try:
        medium = open_medium(site)
    except Corruption as error:
        result.found("header", error)
        return result
    try:
        root, _ = medium.load_root()
        end = _check_log(medium, root, result, versions, progress)
        if site.location.holds_objects and not result.damage:
            _check_gap(site, end, result)
        _read_index(medium, root, result, versions)
    except Corruption as error:
        result.found("root", error)
    finally:
        medium.close()
    try:
        with open_pages(site, cache_bytes=0) as storage:
            _check_pages(storage, versions.joined(), result, progress)
    except Corruption as error:
        # Usually what reading the log has found already.
        if error.message not in [damage.what for damage in result.damage]:
            result.found("log", error)
    return result


def _check_log(medium: Medium, root: Root, result: Checked, versions: _Versions, progress: Progress) -> int:
    """Every frame from the oldest that is kept: whole, ours, and a continuation of the one before it.

    Returns where the log ends.
    """
    previous, end = None, root.log_start
    try:
        for logged in medium.tail(root.log_start, expect=8, follow=False):
            name = f"frame {logged.segment:#x} of {medium.name}"
            header, body = frames.decode(logged.frame, name=name)
            if header.log_id != medium.log_id:
                raise Corruption(f"{name} belongs to another database")
            if previous is not None and (header.ordinal, header.prev, header.first_lsn) != (
                    previous.ordinal + 1, previous.sum, previous.first_lsn + previous.records):
                raise Corruption(f"{name} does not continue the log")
            if header.kind == frames.DATA:
                lsn = header.first_lsn
                for commit in frames.decode_commits(header, body):
                    for record in commit.records:
                        if record.page_id is not None:
                            versions.rows.append((commit.branch, record.page_id, lsn))
                        lsn += 1
            previous, end = header, logged.cursor
            result.frames += 1
            result.records += header.records
            progress("log", result.frames, None)
    except Corruption as error:
        result.found("log", error)
    except Stale:
        raise Transient(f"the log of {medium.name} was trimmed while it was read", hint="run it again") from None
    return end


def _check_gap(site: Site, end: int, result: Checked) -> None:
    """An object that is lost looks like the end of the log, unless there are later ones."""
    objects = open_store(site.location.base_url)
    try:
        # In order, so what is written meanwhile continues at the end.
        ordinals = [int(info.key.removeprefix(LOG)) for info in objects.list(LOG)]
    finally:
        objects.close()
    behind = sum(ordinal > end for ordinal in ordinals)
    if behind and end not in ordinals:
        what = f"object {LOG}{end:020d} is missing, and {behind} later ones cannot be read"
        result.damage.append(Damage("log", what))


def _read_index(medium: Medium, root: Root, result: Checked, versions: _Versions) -> None:
    try:
        for columns in Lookup(medium, 1).columns(root.runs):
            pages = columns.take((columns.space != FRAMES) & (columns.space != REQUESTS))
            versions.arrays.append(np.stack([pages.space, pages.key, pages.lsn], axis=1))
    except Corruption as error:
        result.found("index", error)


def _check_pages(storage: Storage, versions: Numbers, result: Checked, progress: Progress) -> None:
    refs, floor, durable = storage.list_branches(), storage.pitr_floor(), storage.durable_lsn()
    moments = sorted({floor, durable})
    wanted = [(ref, lsn, _visible(versions, ref, refs, lsn)) for ref in refs for lsn in moments]
    total, known = sum(len(ids) for _, _, ids in wanted), set(result.damage)
    result.branches = len(refs)
    for ref, lsn, ids in wanted:
        for start in range(0, len(ids), _BATCH):
            batch = [PageId(int(page_id)) for page_id in ids[start : start + _BATCH]]
            for damage in _check_batch(storage, batch, ref, lsn):
                if damage not in known:
                    known.add(damage)
                    result.damage.append(damage)
            result.pages += len(batch)
            progress("pages", result.pages, total)


def _visible(versions: Numbers, branch: BranchRef, refs: list[BranchRef], lsn: int) -> Numbers:
    """The pages that a branch has at an LSN: its own, and those of its parents up to where it left them."""
    by_id = {ref.id: ref for ref in refs}
    seen, ref, cap = [], branch, int(lsn)
    while True:
        mine = (versions[:, 0] == np.uint64(ref.id)) & (versions[:, 2] <= np.uint64(cap))
        seen.append(versions[mine, 1])
        if ref.parent is None:
            return np.unique(np.concatenate(seen))
        cap = min(cap, ref.base_lsn)
        ref = by_id[ref.parent]


def _check_batch(storage: Storage, ids: list[PageId], branch: BranchRef, lsn: Lsn) -> Iterator[Damage]:
    for page_id, page in zip(ids, storage.get_pages(ids, lsn, branch=branch.id), strict=True):
        if isinstance(page, Corruption):
            yield Damage(f"page {page_id}", page.message)
        elif isinstance(page, NotFound):
            moved = storage.pitr_floor() > lsn or branch.id not in [ref.id for ref in storage.list_branches()]
            if not moved:
                yield Damage(f"page {page_id}", f"it was written on {branch.name!r} by LSN {lsn} and is not found")
        elif isinstance(page, StorageError):
            raise page
