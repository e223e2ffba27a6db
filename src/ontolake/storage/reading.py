"""Reading pages: find the version, fetch its image, check it, remember it.

A reader holds no lock. If the place it was told to look at has been compacted away meanwhile, it starts again
from the newest root; only when nothing has moved is a missing or damaged image reported.
"""

from __future__ import annotations

from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

from ontolake.errors import Corruption, Invalid, NotFound, StorageError
from ontolake.storage.index import Entry
from ontolake.storage.log import Log
from ontolake.storage.medium import Span
from ontolake.storage.options import Options
from ontolake.storage.state import check_lsn
from ontolake.storage.types import BranchId, Lsn, Page, PageId

Lineage = Sequence[tuple[int, int]]


class PageReader:
    """Answers `get_page` and `get_pages` from a `Log`."""

    def __init__(self, log: Log, options: Options) -> None:
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
        lineages, durable = log.lineages, log.durable
        if type(lsn) is not int or not log.floor <= lsn <= durable or type(branch) not in (int, str):
            return None
        lineage = lineages.get(branch)
        if lineage is None:
            return None
        try:
            found = log.lookup.find(lineage[0][0], page_id, lsn) or self._locate(page_id, lsn, lineage[1:])
            if found is None:
                return None
            version, segment, offset, checksum = found
            page = log.pages.get(version)
            if page is not None:
                return page
            image = self._medium.read_one(segment, offset, self._size)
        except (StorageError, TypeError):
            return None
        if xxh3_64_intdigest(image) != checksum:
            return None
        page = Page(page_id, Lsn(version), image)
        if self._caching:
            self._remember((page,), lineage[0][0], lsn, lineages)
        return page

    def pages(self, ids: Sequence[PageId], lsn: Lsn, branch: BranchId | str) -> list[Page | StorageError]:
        check_lsn(lsn, "lsn")
        wanted = list(ids)
        for page_id in wanted:
            if not isinstance(page_id, int) or isinstance(page_id, bool) or not 0 <= page_id < 2**64:
                raise Invalid(f"{page_id!r} is no page: pages have numbers from 0 to 2^64-1")
        return self._log.again(lambda: self._pages(wanted, lsn, branch))

    def _pages(self, ids: Sequence[PageId], lsn: int, branch: BranchId | str) -> list[Page | StorageError]:
        log = self._log
        if lsn > log.durable:
            log.refresh()
        try:
            lineage = self._lineage(branch)
            lineages, lsn = log.lineages, min(lsn, log.durable)
            if lsn < log.floor:
                raise NotFound(f"LSN {lsn} is no longer kept: the oldest that can be read is {log.floor}")
        except NotFound as error:
            return [error for _ in ids]
        self._prefetch(ids, lsn, lineage)
        results: list[Page | StorageError | None] = [None] * len(ids)
        missing: dict[int, tuple[Entry, list[int]]] = {}
        own = lineage[0][0]
        for i, page_id in enumerate(ids):
            entry = self._locate(page_id, lsn, lineage)
            if entry is None:
                results[i] = NotFound(f"page {page_id} was not written by LSN {lsn} on branch {branch!r}")
                continue
            page = log.pages.get((own, page_id))
            if page is None or page.lsn != entry[0]:
                page = log.pages.get(entry[0])
            if page is not None:
                results[i] = page
            else:
                missing.setdefault(entry[0], (entry, []))[1].append(i)
        if missing:
            self._fetch(ids, missing, results)
            fresh = [read for _, places in missing.values() if isinstance(read := results[places[0]], Page)]
            self._remember(fresh, own, lsn, lineages)
        return [found for found in results if found is not None]

    def _fetch(
        self, ids: Sequence[PageId], missing: dict[int, tuple[Entry, list[int]]],
        results: list[Page | StorageError | None],
    ) -> None:
        entries = [entry for entry, _ in missing.values()]
        images: list[bytes | StorageError] = []
        for start in range(0, len(entries), self._batch):
            images += self._medium.read(
                [Span(segment, offset, self._size) for _, segment, offset, _ in entries[start : start + self._batch]])
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

    def _remember(self, pages: Sequence[Page], branch: int, lsn: int, lineages: object) -> None:
        """Cache pages that were read at `lsn`: as the newest ones if nothing has changed since, else by version."""
        log = self._log
        with log.pages.lock:
            newest = lsn == log.durable and lineages is log.lineages
            for page in pages:
                log.pages.put((branch, page.id) if newest else page.lsn, page)

    def _lineage(self, branch: BranchId | str) -> Lineage:
        log = self._log
        if type(branch) not in (int, str):
            raise NotFound(f"there is no branch {branch!r}")
        known = log.lineages.get(branch)
        if known is None:
            with log.lock:
                try:
                    found = log.state.branch(branch)
                except NotFound:
                    log.refresh()
                    found = log.state.branch(branch)
                known = log.lineages[branch] = log.state.lineage(found)
        return known

    def _locate(self, page_id: int, lsn: int, lineage: Lineage) -> Entry | None:
        for branch, cap in lineage:
            found = self._log.lookup.find(branch, page_id, lsn if lsn < cap else cap)
            if found is not None:
                return found
        return None

    def _prefetch(self, ids: Sequence[PageId], lsn: int, lineage: Lineage) -> None:
        if len(ids) > 1 and self._log.lookup.view.runs:
            for branch, cap in lineage:
                self._log.lookup.prefetch(branch, ids, min(lsn, cap))
