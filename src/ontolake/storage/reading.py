"""Reading pages: find the version, fetch its image, check it, remember it.

A reader holds no lock. If the place it was told to look at has been compacted away meanwhile, it starts again
from the newest root; only when nothing has moved is a missing or damaged image reported.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from xxhash import xxh3_64_intdigest

from ontolake.errors import Corruption, NotFound, StorageError
from ontolake.storage.cache import Cache
from ontolake.storage.index import Entry
from ontolake.storage.lookup import Lookup
from ontolake.storage.medium import Gone, Medium, Span
from ontolake.storage.options import Options
from ontolake.storage.state import check_lsn
from ontolake.storage.types import BranchId, Lsn, Page, PageId

if TYPE_CHECKING:
    from ontolake.storage.log import LogStorage

T = TypeVar("T")


class PageReader:
    """Answers `get_page` and `get_pages` for a `LogStorage`.

    The cache holds the newest version of a page under its branch and id, older versions under their LSN, which
    names an image uniquely.
    """

    def __init__(self, storage: LogStorage, medium: Medium, lookup: Lookup, options: Options) -> None:
        self._storage = storage
        self._medium = medium
        self._lookup = lookup
        self._batch = options.batch_read_max
        self._lock = threading.Lock()
        self._applied = 0
        self._lineages: dict[BranchId | str, Sequence[tuple[int, int]]] = {}
        self._caching = options.cache_bytes >= medium.page_size
        self.cache: Cache[Page] = Cache(options.cache_bytes // medium.page_size)

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
        storage, lineage = self._storage, self._lineages.get(branch)
        applied, durable = self._applied, storage._durable
        if lineage is None or type(lsn) is not int or not storage._floor <= lsn <= durable:
            return None
        try:
            found = self._lookup.find(lineage[0][0], page_id, lsn)
            if found is None:
                found = self._locate(page_id, lsn, lineage[1:])
                if found is None:
                    return None
            version, segment, offset, checksum = found
            page = self.cache.get(version)
            if page is not None:
                return page
            image = self._medium.read_one(segment, offset, self._medium.page_size)
        except StorageError:
            return None
        if xxh3_64_intdigest(image) != checksum:
            return None
        page = Page(page_id, Lsn(version), image)
        if self._caching:
            with self._lock:
                newest = lsn == durable and applied == self._applied
                self.cache.put((lineage[0][0], page_id) if newest else version, page)
        return page

    def pages(self, ids: Sequence[PageId], lsn: Lsn, branch: BranchId | str) -> list[Page | StorageError]:
        check_lsn(lsn, "lsn")
        return self.again(lambda: self._pages(ids, lsn, branch))

    def _pages(self, ids: Sequence[PageId], lsn: int, branch: BranchId | str) -> list[Page | StorageError]:
        storage = self._storage
        if lsn > storage._durable:
            storage.refresh()
        applied, durable = self._applied, storage._durable
        newest, lsn = lsn >= durable, min(lsn, durable)
        try:
            storage._state.check_readable(lsn)
            lineage = self._lineage(branch)
        except NotFound as error:
            return [error for _ in ids]
        own = lineage[0][0]
        if len(ids) > 1:
            self._prefetch(ids, lsn, lineage)
        results: list[Page | StorageError | None] = [None] * len(ids)
        wanted: dict[int, tuple[Entry, list[int]]] = {}
        cache = self.cache
        for i, page_id in enumerate(ids):
            entry = self._locate(page_id, lsn, lineage)
            if entry is None:
                results[i] = NotFound(f"page {page_id} was not written by LSN {lsn} on branch {branch!r}")
                continue
            page = cache.get((own, page_id)) or cache.get(entry[0])
            if page is not None and page.lsn == entry[0]:
                results[i] = page
            else:
                wanted.setdefault(entry[0], (entry, []))[1].append(i)
        if wanted:
            self._fetch(ids, wanted, results, (own, applied) if newest else None)
        return [found for found in results if found is not None]

    def _fetch(
        self, ids: Sequence[PageId], wanted: dict[int, tuple[Entry, list[int]]],
        results: list[Page | StorageError | None], newest: tuple[int, int] | None,
    ) -> None:
        size = self._medium.page_size
        entries = [entry for entry, _ in wanted.values()]
        images: list[bytes | StorageError] = []
        for start in range(0, len(entries), self._batch):
            images += self._medium.read(
                [Span(segment, offset, size) for _, segment, offset, _ in entries[start : start + self._batch]])
        with self._lock:
            current = newest is not None and newest[1] == self._applied
            for ((version, _, _, checksum), places), image in zip(wanted.values(), images, strict=True):
                page_id = ids[places[0]]
                result: Page | StorageError
                if isinstance(image, StorageError):
                    result = image
                elif len(image) != size or xxh3_64_intdigest(image) != checksum:
                    result = Corruption(f"page {page_id} at LSN {version} of {self._medium.name} does not match "
                                        "its checksum")
                else:
                    result = Page(page_id, Lsn(version), image)
                    if current and newest is not None:
                        self.cache.put((newest[0], page_id), result)
                    else:
                        self.cache.put(version, result)
                for place in places:
                    results[place] = result

    def find(self, space: int, key: int, lsn: int) -> Entry | None:
        """The entry of the index with the greatest LSN ≤ `lsn`, branches left aside."""
        return self.again(lambda: self._lookup.find(space, key, lsn))

    def again(self, action: Callable[[], T]) -> T:
        """Run `action`, and run it again when what it looked at had moved. What is missing for good is damage."""
        storage = self._storage
        while True:
            generation = storage._root.generation
            try:
                result = action()
            except (Gone, Corruption) as error:
                if storage.moved_since(generation):
                    continue
                raise _damage(error) from None
            doubts = isinstance(result, list) and any(isinstance(found, Gone | Corruption) for found in result)
            if doubts and storage.moved_since(generation):
                continue
            if doubts and isinstance(result, list):
                result[:] = [_damage(found) if isinstance(found, Gone) else found for found in result]
            return result

    def wrote(self, fresh: Sequence[tuple[tuple[int, int], Page]]) -> None:
        """Take over new versions of pages, each with its branch and id."""
        with self._lock:
            self._applied += 1
            if self._caching:
                put = self.cache.put
                for key, page in fresh:
                    put(key, page)

    def forget(self) -> None:
        """Empty the cache: branches changed, or the log was loaded anew."""
        with self._lock:
            self._applied += 1
            self._lineages = {}
            self.cache.clear()

    def _lineage(self, branch: BranchId | str) -> Sequence[tuple[int, int]]:
        known = self._lineages
        if branch not in known:
            storage = self._storage
            with storage._log_lock:
                known = self._lineages
                try:
                    found = storage._state.branch(branch)
                except NotFound:
                    storage.refresh()
                    known, found = self._lineages, storage._state.branch(branch)
                known[branch] = storage._state.lineage(found)
        return known[branch]

    def _locate(self, page_id: int, lsn: int, lineage: Sequence[tuple[int, int]]) -> Entry | None:
        for branch, cap in lineage:
            found = self._lookup.find(branch, page_id, lsn if lsn < cap else cap)
            if found is not None:
                return found
        return None

    def _prefetch(self, ids: Sequence[PageId], lsn: int, lineage: Sequence[tuple[int, int]]) -> None:
        if self._lookup.view.runs:
            for branch, cap in lineage:
                self._lookup.prefetch(branch, ids, min(lsn, cap))


def _damage(error: StorageError) -> StorageError:
    return Corruption(f"{error.message}, although the index refers to it") if isinstance(error, Gone) else error
