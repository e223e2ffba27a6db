"""C8: the floor rises when told to, never past what a branch needs, and everything above it stays readable."""

from __future__ import annotations

import pytest

from ontolake.errors import Invalid, NotFound
from ontolake.storage.conformance.base import Base, Opener
from ontolake.storage.conformance.observe import Observation, version
from ontolake.storage.conformance.workload import EVERYTHING, compact
from ontolake.storage.protocol import Storage
from ontolake.storage.types import FenceToken, Lsn, PageId


class RetentionCases(Base):
    """C8."""

    title = "C8 retention"

    def _fill(self, storage: Storage, count: int = 12) -> FenceToken:
        token = storage.acquire_fence("writer")
        for seed in range(1, count + 1):
            storage.append_wal(token, [self.write(seed, seed % 3)])
        return token

    def test_everything_is_kept_until_told_otherwise(self, opener: Opener) -> None:
        storage = opener()
        self._fill(storage)
        compact(storage)
        for handle in (storage, opener()):
            assert handle.pitr_floor() == 0
            for lsn in range(3, 13):
                assert handle.get_page(PageId(lsn % 3), Lsn(lsn)).lsn == lsn

    def test_reads_below_the_floor_are_not_found(self, opener: Opener) -> None:
        """And say so by the LSN; at the floor and above, every answer is as before."""
        storage = opener()
        self._fill(storage)
        storage.set_retention_floor(Lsn(7))
        for handle in (storage, opener()):
            assert handle.pitr_floor() == 7
            for lsn in (0, 3, 6):
                with pytest.raises(NotFound) as missing:
                    handle.get_page(PageId(0), Lsn(lsn))
                assert str(lsn) in str(missing.value)
                assert all(isinstance(page, NotFound) for page in handle.get_pages([PageId(0), PageId(1)], Lsn(lsn)))
                with pytest.raises(NotFound):
                    list(handle.scan_wal(Lsn(lsn)))
            assert [handle.get_page(PageId(page), Lsn(7)).lsn for page in range(3)] == [6, 7, 5]
            assert [lsn for lsn, _ in handle.scan_wal(Lsn(7))] == [8, 9, 10, 11, 12]
            compact(handle)

    def test_a_page_last_written_long_before_the_floor_stays(self, opener: Opener) -> None:
        """The floor takes versions, not pages: what was current at the floor is still there."""
        storage = opener(**self.sweep_knobs)
        token = storage.acquire_fence("writer")
        storage.append_wal(token, [self.write(1, 7)])
        for seed in range(2, 30):
            storage.append_wal(token, [self.write(seed)])
        storage.set_retention_floor(Lsn(25))
        compact(storage)
        for handle in (storage, opener()):
            for lsn in (25, 29, 100):
                page = handle.get_page(PageId(7), Lsn(lsn))
                assert (page.lsn, page.bytes) == (1, self.image(1))

    def test_a_branch_holds_the_floor_back(self, opener: Opener) -> None:
        """All that is at or above the floor can be read on every branch; once the branch is gone the floor rises."""
        storage = opener(**self.sweep_knobs)
        token = self._fill(storage)
        side = storage.create_branch("side", Lsn(4))
        storage.append_wal(token, [self.write(50, 1)], branch=side)
        before = self.observe(storage)
        storage.set_retention_floor(Lsn(10))
        for handle in (storage, opener(**self.sweep_knobs)):
            assert handle.pitr_floor() <= 4
            assert self._from(self.observe(handle), 4) == self._from(before, 4)
            compact(handle)
            assert self._from(self.observe(handle), 4) == self._from(before, 4)
        storage.delete_branch(side)
        for handle in (storage, opener()):
            assert handle.pitr_floor() == 10
            compact(handle)
            assert self._from(self.observe(handle), 10, ["main"]) == self._from(before, 10, ["main"])

    def _from(self, seen: Observation, floor: int, names: list[str] | None = None) -> object:
        """What an observation says of the time from `floor` on."""
        pages = {
            key: versions
            for key, versions in seen.pages.items()
            if key[1] >= (floor if self.reads is None else seen.durable) and (names is None or key[0] in names)
        }
        logs = {
            name: [entry for entry in log if entry[0] > floor]
            for name, log in seen.logs.items()
            if names is None or name in names
        }
        return seen.durable, pages, logs

    def test_the_window_takes_nothing_that_a_branch_needs(self, opener: Opener) -> None:
        """A floor that rises by itself, because the past is older than is kept, stops at the branch as well."""
        storage = opener(**self.sweep_knobs, pitr_window=0)
        token = self._fill(storage)
        before = self.observe(storage)
        storage.create_branch("side", Lsn(storage.pitr_floor() + 1))
        floor = storage.pitr_floor()
        for seed in range(60, 66):
            storage.append_wal(token, [self.write(seed)], branch="side")
            compact(storage)
            risen = storage.pitr_floor()
            assert floor <= risen <= storage.resolve_branch("side").base_lsn
            floor = risen
        with opener() as reader:
            assert reader.pitr_floor() == floor
            for lsn in range(floor, 13):
                found = reader.get_pages(EVERYTHING, Lsn(lsn))
                if self.reads is None:
                    assert {page_id: version(page) for page_id, page in zip(EVERYTHING, found, strict=True)} == (
                        before.pages["main", lsn])  # fmt: skip

    def test_the_lowest_of_several_bases_counts(self, opener: Opener) -> None:
        """Branches of branches too; as each goes, the floor rises to what the next one needs."""
        storage = opener()
        self._fill(storage)
        old = storage.create_branch("old", Lsn(3))
        storage.create_branch("middle", Lsn(6))
        storage.create_branch("twig", Lsn(5), parent="middle")
        storage.set_retention_floor(Lsn(9))
        floors = [storage.pitr_floor()]
        for name in ("old", "twig", "middle"):
            storage.delete_branch(name)
            compact(storage)
            floors.append(storage.pitr_floor())
        assert floors == [3, 5, 6, 9]
        assert opener().pitr_floor() == 9
        assert old not in [ref.id for ref in storage.list_branches()]

    def test_a_held_back_floor_can_still_be_branched_from(self, opener: Opener) -> None:
        """Whatever can be read can be branched from."""
        storage = opener()
        self._fill(storage)
        storage.create_branch("old", Lsn(4))
        storage.set_retention_floor(Lsn(9))
        new = storage.create_branch("new", Lsn(5))
        storage.delete_branch("old")
        assert storage.pitr_floor() == 5
        compact(storage)
        assert storage.get_page(PageId(2), Lsn(5), branch=new).bytes == self.image(5)
        with pytest.raises(NotFound):
            storage.create_branch("older", Lsn(4))

    def test_the_floor_moves_forward_only(self, storage: Storage) -> None:
        """Saying the same again is fine; less is refused, even while a branch holds the real floor lower."""
        self._fill(storage)
        storage.create_branch("old", Lsn(2))
        storage.set_retention_floor(Lsn(6))
        storage.set_retention_floor(Lsn(6))
        with pytest.raises(Invalid) as refused:
            storage.set_retention_floor(Lsn(5))
        assert "5" in str(refused.value)
        assert "6" in str(refused.value)
        storage.delete_branch("old")
        assert storage.pitr_floor() == 6

    def test_the_floor_stays_below_what_is_durable(self, storage: Storage) -> None:
        self._fill(storage)
        with pytest.raises(Invalid):
            storage.set_retention_floor(Lsn(13))
        assert storage.pitr_floor() == 0
        storage.set_retention_floor(Lsn(12))
        assert storage.pitr_floor() == 12
        assert storage.get_page(PageId(0), Lsn(12)).lsn == 12

    def test_writing_goes_on_over_a_risen_floor(self, opener: Opener) -> None:
        """Raise and compact after every few appends: the newest versions are always right."""
        storage = opener(**self.sweep_knobs)
        token = storage.acquire_fence("writer")
        for seed in range(1, 31):
            storage.append_wal(token, [self.write(seed, seed % 3)])
            if seed % 5 == 0:
                storage.set_retention_floor(Lsn(seed))
                compact(storage)
                latest = storage.get_pages([PageId(page) for page in range(3)], Lsn(seed))
                assert sorted(page.lsn for page in latest if isinstance(page, tuple)) == [seed - 2, seed - 1, seed]
        with opener() as storage:
            assert storage.durable_lsn() == storage.pitr_floor() == 30
            assert storage.append_wal(storage.acquire_fence("next"), [self.write(31)]) == 31
