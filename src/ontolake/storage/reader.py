"""Reading pages: find the version, fetch its image, check it, remember it.

A reader holds no lock. If the place it was told to look at has been compacted away meanwhile, it starts again
from the newest root; only when nothing has moved is a missing or damaged image reported.
"""

from __future__ import annotations

from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

from ontolake.errors import Corruption, Invalid, NotFound, StorageError
from ontolake.storage.index import Entry
from ontolake.storage.log import Log, LogMoment
from ontolake.storage.lookup import IndexView
from ontolake.storage.medium import SegmentSpan
from ontolake.storage.options import StorageOptions
from ontolake.storage.state import check_lsn
from ontolake.storage.types import BranchId, Lsn, Page, PageId

Lineage = Sequence[tuple[int, int]]


class PageReader:
    """Answers `get_page` and `get_pages` from a `Log`."""

    def __init__(self, log: Log, options: StorageOptions) -> None:
        self._log = log
        self._medium = log.medium
        self._size = log.medium.page_size
        self._batch = options.batch_read_max
        self._caching = options.cache_bytes >= self._size

    def page(self, page_id: PageId, lsn: Lsn, branch: BranchId | str) -> Page:
        page = self._straight(page_id, lsn, branch)
        if page is not None:
            return page
        found = self.pages((page_id,), lsn, branch)[0]
        if isinstance(found, StorageError):
            raise found
        return found

    def _straight(self, page_id: PageId, lsn: Lsn, branch: BranchId | str) -> Page | None:
        """The page, if it can be had without reading on in the log and without surprises; else None."""
        log = self._log
        moment = log.moment
        view, lineages, durable, floor, _ = moment
        lineage = lineages.get(branch) if type(branch) in (int, str) else None
        if lineage is None or type(lsn) is not int or type(page_id) is not int or not floor <= lsn <= durable:
            return None
        own = lineage[0][0]
        try:
            found = log.lookup.find(view, own, page_id, lsn) or self._locate(view, page_id, lsn, lineage[1:])
            if found is None:
                return None
            version, segment, offset, checksum = found
            if self._caching:
                page = self._cached(own, page_id, version)
                if page is not None:
                    return page
            image = self._medium.read_one(segment, offset, self._size)
        except StorageError:
            return None
        if xxh3_64_intdigest(image) != checksum:
            return None
        page = Page(page_id, Lsn(version), image)
        if self._caching:
            self._remember((page,), own, lsn, moment)
        return page

    def _cached(self, branch: int, page_id: PageId, version: int) -> Page | None:
        page = self._log.pages.get((branch, page_id))
        return page if page is not None and page.lsn == version else self._log.pages.get(version)

    def pages(self, ids: Sequence[PageId], lsn: Lsn, branch: BranchId | str) -> list[Page | StorageError]:
        check_lsn(lsn, "lsn")
        try:
            wanted = list(ids)
        except TypeError:
            raise Invalid(f"page ids come as a list, not as {type(ids).__name__}") from None
        for page_id in wanted:
            if not isinstance(page_id, int) or isinstance(page_id, bool) or not 0 <= page_id < 2**64:
                raise Invalid(f"{page_id!r} is no page: pages have numbers from 0 to 2^64-1")
        return self._log.again(lambda: self._pages(wanted, lsn, branch))

    def _pages(self, ids: Sequence[PageId], lsn: int, branch: BranchId | str) -> list[Page | StorageError]:
        log = self._log
        if lsn > log.moment.durable:
            log.refresh()
        try:
            moment, lineage = self._lineage(branch)
        except NotFound as error:
            return [error for _ in ids]
        view, lsn = moment.view, min(lsn, moment.durable)
        if lsn < moment.floor:
            return [NotFound(f"LSN {lsn} is no longer kept: the oldest that can be read is {moment.floor}")
                    for _ in ids]
        self._prefetch(view, ids, lsn, lineage)
        results: list[Page | StorageError | None] = [None] * len(ids)
        missing: dict[int, tuple[Entry, list[int]]] = {}
        own = lineage[0][0]
        for i, page_id in enumerate(ids):
            entry = self._locate(view, page_id, lsn, lineage)
            if entry is None:
                results[i] = NotFound(f"page {page_id} was not written by LSN {lsn} on branch {branch!r}")
                continue
            page = self._cached(own, page_id, entry[0])
            if page is not None:
                results[i] = page
            else:
                missing.setdefault(entry[0], (entry, []))[1].append(i)
        if missing:
            self._fetch(ids, missing, results)
            fresh = [read for _, places in missing.values() if isinstance(read := results[places[0]], Page)]
            self._remember(fresh, own, lsn, moment)
        return [found for found in results if found is not None]

    def _fetch(
        self, ids: Sequence[PageId], missing: dict[int, tuple[Entry, list[int]]],
        results: list[Page | StorageError | None],
    ) -> None:
        entries = [entry for entry, _ in missing.values()]
        images: list[bytes | StorageError] = []
        for start in range(0, len(entries), self._batch):
            batch = entries[start : start + self._batch]
            images += self._medium.read([SegmentSpan(segment, offset, self._size) for _, segment, offset, _ in batch])
        for ((version, _, _, checksum), places), image in zip(missing.values(), images, strict=True):
            page_id = ids[places[0]]
            result: Page | StorageError
            if isinstance(image, StorageError):
                result = image
            elif len(image) != self._size or xxh3_64_intdigest(image) != checksum:
                where = f"page {page_id} at LSN {version} of {self._medium.name}"
                result = Corruption(f"{where} does not match its checksum")
            else:
                result = Page(page_id, Lsn(version), image)
            for place in places:
                results[place] = result

    def _remember(self, pages: Sequence[Page], branch: int, lsn: int, moment: LogMoment) -> None:
        """Cache pages that were read at `lsn`: as the newest ones if nothing has changed since, else by version."""
        log = self._log
        with log.pages.lock:
            newest = lsn == log.moment.durable and log.moment.lineages is moment.lineages
            log.pages.put_all([((branch, page.id) if newest else page.lsn, page) for page in pages])

    def _lineage(self, branch: BranchId | str) -> tuple[LogMoment, Lineage]:
        """The moment to read at, and the branches to look at, in order."""
        log = self._log
        if type(branch) not in (int, str):
            raise NotFound(f"there is no branch {branch!r}")
        moment = log.moment
        known = moment.lineages.get(branch)
        if known is None:
            with log.lock:
                log.settle()
                try:
                    found = log.state.branch(branch)
                except NotFound:
                    log.refresh()
                    found = log.state.branch(branch)
                moment = log.moment
                known = moment.lineages[branch] = log.state.lineage(found)
        return moment, known

    def _locate(self, view: IndexView, page_id: int, lsn: int, lineage: Lineage) -> Entry | None:
        for branch, cap in lineage:
            found = self._log.lookup.find(view, branch, page_id, lsn if lsn < cap else cap)
            if found is not None:
                return found
        return None

    def _prefetch(self, view: IndexView, ids: Sequence[PageId], lsn: int, lineage: Lineage) -> None:
        if len(ids) > 1 and view.runs:
            for branch, cap in lineage:
                self._log.lookup.prefetch(view, branch, ids, min(lsn, cap))
