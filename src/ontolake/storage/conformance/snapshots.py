"""C3 and C6: a page as it was at any LSN, one by one or many at once, and records byte for byte."""

from __future__ import annotations

import random

import pytest

from ontolake.errors import NotFound, StorageError
from ontolake.storage.conformance.base import Base, Opener
from ontolake.storage.conformance.workload import EVERYTHING, NEVER, PAGES, Player, compact, oracle_player, program
from ontolake.storage.protocol import Storage
from ontolake.storage.types import Lsn, Page, PageId, WalRecord


class SnapshotCases(Base):
    """C3 and C6."""

    title = "C3, C6 snapshots"

    def test_a_page_is_read_as_it_was_at_an_lsn(self, storage: Storage) -> None:
        """Three versions with other writes between them: each LSN gives the greatest version at or below it."""
        token = storage.acquire_fence("writer")
        for seed, page in enumerate([2, 1, 2, 2, 1, 2, 1, 2], 1):
            storage.append_wal(token, [self.write(seed, page)])
        expected = {1: None, 2: 2, 3: 2, 4: 2, 5: 5, 6: 5, 7: 7, 8: 7}
        for lsn, version in expected.items():
            if version is None:
                with pytest.raises(NotFound):
                    storage.get_page(PageId(1), Lsn(lsn))
            else:
                assert storage.get_page(PageId(1), Lsn(lsn)) == Page(PageId(1), Lsn(version), self.image(version))

    def test_lsns_inside_a_batch_can_be_read(self, storage: Storage) -> None:
        """A batch is one commit, yet each of its records has an LSN, and a page may be in it twice."""
        token = storage.acquire_fence("writer")
        batch = [self.write(1), self.write(2, 2), WalRecord(b"note"), self.write(4), self.write(5, 2)]
        storage.append_wal(token, batch)
        at = [[storage.get_page(PageId(page), Lsn(lsn)).lsn for lsn in range(2, 6)] for page in (1, 2)]
        assert at == [[1, 1, 4, 4], [2, 2, 2, 5]]
        assert storage.get_page(PageId(1), Lsn(3)).bytes == self.image(1)

    def test_an_lsn_above_the_durable_one_reads_the_latest(self, storage: Storage) -> None:
        token = storage.acquire_fence("writer")
        storage.append_wal(token, [self.write(1)])
        for lsn in (2, 1000, 2**63):
            assert storage.get_page(PageId(1), Lsn(lsn)) == Page(PageId(1), Lsn(1), self.image(1))

    def test_reading_twice_gives_the_same(self, storage: Storage) -> None:
        """Later writes do not change what an earlier LSN gives."""
        token = storage.acquire_fence("writer")
        lsn = storage.append_wal(token, [self.write(1), self.write(2, 2)])
        before = storage.get_pages([PageId(1), PageId(2)], lsn)
        for seed in range(10, 15):
            storage.append_wal(token, [self.write(seed), self.write(seed + 50, 2)])
            assert storage.get_pages([PageId(1), PageId(2)], lsn) == before

    def test_random_versions_against_the_oracle(self, opener: Opener) -> None:
        """Every page at every LSN, before and after a compaction and a reopen; `Page.lsn` never above the asked one."""
        storage, oracle = opener(), oracle_player(self.page_size).storage
        chance = random.Random(3)
        tokens = storage.acquire_fence("writer"), oracle.acquire_fence("writer")
        for turn in range(25):
            batch = [self.write(turn * 10 + i, chance.choice(PAGES)) for i in range(chance.randint(1, 4))]
            assert storage.append_wal(tokens[0], batch) == oracle.append_wal(tokens[1], batch)
        for _ in range(2):
            for lsn in range(0, oracle.durable_lsn() + 2, 1 if self.reads is None else 5):
                found = storage.get_pages(EVERYTHING, Lsn(lsn))
                assert all(not isinstance(page, Page) or page.lsn <= lsn for page in found)
                assert _plain(found) == _plain(oracle.get_pages(EVERYTHING, Lsn(lsn)))
            compact(storage)
            storage.close()
            storage = opener()

    def test_a_batch_of_reads_equals_single_reads(self, opener: Opener) -> None:
        """On every branch, at old and new LSNs, with ids that repeat, are unknown, or come in any order."""
        player = Player(opener)
        for op in program(21, 25, self.page_size):
            player.do(op)
        storage, chance = player.storage, random.Random(5)
        floor, durable = storage.pitr_floor(), storage.durable_lsn()
        for ref in storage.list_branches():
            for _ in range(5):
                ids = chance.choices(EVERYTHING, k=chance.randint(1, 12))
                lsn = Lsn(chance.randint(floor, durable + 2))
                assert _plain(storage.get_pages(ids, lsn, branch=ref.id)) == _plain(
                    [self._single(storage, page_id, lsn, ref.name) for page_id in ids]
                )

    def _single(self, storage: Storage, page_id: PageId, lsn: Lsn, branch: str) -> Page | StorageError:
        try:
            return storage.get_page(page_id, lsn, branch=branch)
        except StorageError as error:
            return error

    def test_a_batch_of_no_ids_is_empty(self, storage: Storage) -> None:
        assert storage.get_pages([], Lsn(0)) == []

    def test_one_missing_page_does_not_spoil_a_batch(self, storage: Storage) -> None:
        token = storage.acquire_fence("writer")
        lsn = storage.append_wal(token, [self.write(1, 1), self.write(2, 2)])
        first, missing, second, again = storage.get_pages([PageId(2), NEVER, PageId(1), PageId(2)], lsn)
        assert first == again == Page(PageId(2), Lsn(2), self.image(2))
        assert second == Page(PageId(1), Lsn(1), self.image(1))
        assert isinstance(missing, NotFound)
        assert str(NEVER) in str(missing)

    def test_more_ids_than_one_request_may_carry(self, opener: Opener) -> None:
        """`batch_read_max` bounds a request to the backend, not what a caller may ask for."""
        storage = opener(batch_read_max=4)
        token = storage.acquire_fence("writer")
        for start in range(0, 20, 5):
            storage.append_wal(token, [self.write(page, page) for page in range(start, start + 5)])
        ids = [PageId(page) for page in range(25)] * 2
        pages = storage.get_pages(ids, storage.durable_lsn())
        assert [page.bytes if isinstance(page, Page) else None for page in pages] == [
            self.image(page) if page < 20 else None for page in ids
        ]


def _plain(pages: list[Page | StorageError]) -> list[Page | str]:
    """Errors by their kind, since their texts may differ."""
    return [type(page).__name__ if isinstance(page, StorageError) else page for page in pages]
