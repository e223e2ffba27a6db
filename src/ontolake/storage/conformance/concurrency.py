"""Many at work: what is read is right while others write, raise the floor, compact, branch and delete."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from ontolake.errors import NotFound
from ontolake.storage.conformance.base import Base, Opener, Start
from ontolake.storage.conformance.tasks import write_busily
from ontolake.storage.protocol import Storage
from ontolake.storage.types import FenceToken, Lsn, Page, PageId

PAGES = 5
AHEAD = 8
"""How many batches a writer may be ahead of the reader that checks them."""

Versions = list[list[tuple[int, int]]]
"""For each page the LSNs that wrote it and the seeds of the images."""


class ConcurrencyCases(Base):
    """Readers, writers and background work side by side."""

    title = "Concurrency"
    busy_batches = 90

    def test_reads_are_right_while_another_writes_and_compacts(
        self, opener: Opener, where: str, start: Start
    ) -> None:
        """Any page at any LSN above the floor, by a handle that was open all the time and by one that is new."""
        steady = opener()
        versions: Versions = [[] for _ in range(PAGES)]
        chance, last, checked = random.Random(1), 0, 0
        for _, last, page, seed in self._busy_writer(start, where):
            versions[page].append((last, seed))
            checked += self._check_reads(steady, versions, last, chance)
        newcomer = opener()
        for storage in (steady, newcomer):
            for _ in range(10):
                checked += self._check_reads(storage, versions, last, chance)
        assert checked > 20
        assert last == steady.durable_lsn() == newcomer.durable_lsn() == self.busy_batches

    def _busy_writer(self, start: Start, where: str) -> Iterator[tuple[str, int, int, int]]:
        """What a writer acknowledges; it works on meanwhile, but never gets far ahead of us."""
        writer = start(write_busily, where, self.busy_batches, PAGES)
        for _ in range(AHEAD):
            writer.tell("go on")
        for _ in range(self.busy_batches):
            yield writer.hear()
            with suppress(OSError):
                writer.tell("go on")
        writer.end()

    def _check_reads(self, storage: Storage, versions: Versions, last: int, chance: random.Random) -> bool:
        """Compare all pages at some LSN. False if the floor had moved past it meanwhile."""
        assert storage.durable_lsn() >= last, "what was acknowledged to another is not seen"
        lsn = chance.randint(min(storage.pitr_floor(), last), last)
        found = storage.get_pages([PageId(page) for page in range(PAGES)], Lsn(lsn))
        if lsn < storage.pitr_floor():
            return False
        for page, written in enumerate(versions):
            before = bisect_right(written, (lsn, self.busy_batches))
            if before == 0:
                assert isinstance(found[page], NotFound)
            else:
                at, seed = written[before - 1]
                assert found[page] == Page(PageId(page), Lsn(at), self.image(seed)), f"page {page} at LSN {lsn}"
        return True

    def test_the_log_is_read_right_while_another_writes_and_compacts(
        self, opener: Opener, where: str, start: Start
    ) -> None:
        """From the floor to where it ends; a floor that moves past the start meanwhile is said so."""
        reader, scans = opener(), 0
        for _ in self._busy_writer(start, where):
            after = reader.pitr_floor()
            try:
                log = list(reader.scan_wal(after))
            except NotFound:
                assert reader.pitr_floor() > after, "not found, though it is above the floor"
                continue
            assert [lsn for lsn, _ in log] == list(range(after + 1, after + 1 + len(log)))
            assert all(record == self.write(lsn, lsn % PAGES) for lsn, record in log)
            scans += 1
        assert [lsn for lsn, _ in reader.scan_wal(reader.pitr_floor())][-1] == self.busy_batches
        assert scans > 0

    def test_branches_come_and_go_while_all_are_written(self, opener: Opener) -> None:
        """Each thread has branches of its own, writes them, finds on them just what it wrote, and deletes them."""
        storage = opener(**self.busy_knobs)
        token = storage.acquire_fence("writer")
        base = storage.append_wal(token, [self.write(1)])

        def live(worker: int) -> None:
            for turn in range(4):
                self._branch_and_back(storage, token, base, worker * 100 + turn)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(live, range(1, 5)))
        for handle in (storage, opener()):
            assert [ref.name for ref in handle.list_branches()] == ["main"]
            assert handle.durable_lsn() == 1 + 4 * 4 * 2
            assert handle.get_page(PageId(1), handle.durable_lsn()).bytes == self.image(1)
            assert len(list(handle.scan_wal(Lsn(0)))) == 1 + 4 * 4

    def _branch_and_back(self, storage: Storage, token: FenceToken, base: Lsn, seed: int) -> None:
        branch = storage.create_branch(f"branch {seed}", base)
        lsn = storage.append_wal(token, [self.write(seed)], branch=branch)
        storage.append_wal(token, [self.write(seed, 2)])
        mine, other = storage.get_pages([PageId(1), PageId(2)], storage.durable_lsn(), branch=branch)
        assert mine == Page(PageId(1), lsn, self.image(seed))
        assert isinstance(other, NotFound), "what is written on main after the fork is seen on the branch"
        storage.delete_branch(branch)
