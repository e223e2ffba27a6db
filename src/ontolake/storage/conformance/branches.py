"""C7: a branch sees its parent as it was at the base, and what is written on it is seen nowhere else."""

from __future__ import annotations

import pytest

from ontolake.errors import AlreadyExists, Invalid, NotFound
from ontolake.storage.conformance.base import Base, Opener
from ontolake.storage.conformance.workload import compact
from ontolake.storage.protocol import Storage
from ontolake.storage.types import MAIN, BranchId, BranchRef, FenceToken, Lsn, PageId, WalRecord

ONE, TWO = PageId(1), PageId(2)


class BranchCases(Base):
    """C7."""

    title = "C7 branches"

    def test_a_fresh_branch_is_its_parent_at_the_base(self, storage: Storage) -> None:
        token = storage.acquire_fence("writer")
        for seed in (1, 2, 3):
            storage.append_wal(token, [self.write(seed)])
        before = self.observe(storage)
        side = storage.create_branch("side", Lsn(2))
        assert storage.resolve_branch(side) == BranchRef(side, "side", Lsn(2), Lsn(2), MAIN)
        assert storage.resolve_branch("side") == storage.resolve_branch(side)
        after = self.observe(storage)
        assert after.logs["main"] == before.logs["main"], "creating a branch changes nothing on its parent"
        assert after.branches["main"] == before.branches["main"]
        assert (after.durable, after.floor) == (before.durable, before.floor)
        assert storage.get_page(ONE, Lsn(3), branch=side).lsn == 2
        assert storage.get_page(ONE, Lsn(1), branch=side).lsn == 1
        assert list(storage.scan_wal(Lsn(0), branch=side)) == before.logs["main"][:2]

    def test_writes_are_seen_on_their_own_branch_only(self, storage: Storage) -> None:
        """After the fork neither side sees the other, whatever LSN is asked for."""
        token = storage.acquire_fence("writer")
        base = storage.append_wal(token, [self.write(1), self.write(2, 2)])
        left = storage.create_branch("left", base)
        right = storage.create_branch("right", base)
        storage.append_wal(token, [self.write(10)])
        storage.append_wal(token, [self.write(20)], branch=left)
        storage.append_wal(token, [self.write(30, 2)], branch=right)
        last = storage.append_wal(token, [self.write(11, 2)])
        assert self._images(storage, last) == {"main": (10, 11), "left": (20, 2), "right": (1, 30)}
        assert self._images(storage, base) == {"main": (1, 2), "left": (1, 2), "right": (1, 2)}
        heads = {ref.name: (ref.base_lsn, ref.head_lsn) for ref in storage.list_branches()}
        assert heads == {"main": (0, 6), "left": (2, 4), "right": (2, 5)}

    def _images(self, storage: Storage, lsn: Lsn) -> dict[str, tuple[int, int]]:
        """The seeds of the images of pages 1 and 2, on every branch."""
        seeds = {self.image(seed): seed for seed in range(100)}
        return {
            ref.name: (
                seeds[storage.get_page(ONE, lsn, branch=ref.id).bytes],
                seeds[storage.get_page(TWO, lsn, branch=ref.id).bytes],
            )
            for ref in storage.list_branches()
        }

    def test_three_levels_with_siblings(self, opener: Opener) -> None:
        """main ← a ← b ← c with siblings at every level, everybody writing after every fork; also after a
        compaction and a reopen."""
        storage = opener()
        token = storage.acquire_fence("writer")
        storage.append_wal(token, [self.write(1), self.write(2, 2)])
        self._fork(storage, token, "a", "main", 10)
        self._fork(storage, token, "a2", "main", 20)
        self._fork(storage, token, "b", "a", 30)
        self._fork(storage, token, "b2", "a", 40)
        self._fork(storage, token, "c", "b", 50)
        self._fork(storage, token, "c2", "b", 60)
        expected = {
            "main": (29, 2), "a": (49, 10), "a2": (20, 2), "b": (69, 30), "b2": (40, 10), "c": (50, 50), "c2": (60, 30),
        }  # fmt: skip
        assert self._images(storage, storage.durable_lsn()) == expected
        compact(storage)
        assert self._images(storage, storage.durable_lsn()) == expected
        storage.close()
        storage = opener()
        assert self._images(storage, storage.durable_lsn()) == expected
        parents = {ref.name: ref.parent for ref in storage.list_branches()}
        ids = {ref.name: ref.id for ref in storage.list_branches()}
        expected_parents = {"main": None, "a": "main", "a2": "main", "b": "a", "b2": "a", "c": "b", "c2": "b"}
        assert parents == {name: ids.get(parent or "") for name, parent in expected_parents.items()}

    def _fork(self, storage: Storage, token: FenceToken, name: str, parent: str, seed: int) -> None:
        """Branch off, write page 1 on the child, page 2 too unless its name ends in 2, then page 1 on the parent."""
        child = storage.create_branch(name, storage.durable_lsn(), parent=parent)
        storage.append_wal(token, [self.write(seed)], branch=child)
        if not name.endswith("2"):
            storage.append_wal(token, [self.write(seed, 2)], branch=child)
        storage.append_wal(token, [self.write(seed + 9)], branch=parent)

    def test_reading_a_branch_below_its_base_reads_its_ancestors(self, storage: Storage) -> None:
        token = storage.acquire_fence("writer")
        storage.append_wal(token, [self.write(1)])
        a = storage.create_branch("a", Lsn(1))
        storage.append_wal(token, [self.write(2)], branch=a)
        storage.append_wal(token, [self.write(3)], branch=a)
        b = storage.create_branch("b", Lsn(3), parent=a)
        storage.append_wal(token, [self.write(4)], branch=b)
        for branch, versions in ((MAIN, [1, 1, 1, 1]), (a, [1, 2, 3, 3]), (b, [1, 2, 3, 4])):
            assert [storage.get_page(ONE, Lsn(lsn), branch=branch).lsn for lsn in (1, 2, 3, 4)] == versions

    def test_a_branch_of_a_branch_at_an_older_base(self, storage: Storage) -> None:
        """Forked from below its parent's base, it sees what the grandparent held there, and nothing of the parent."""
        token = storage.acquire_fence("writer")
        storage.append_wal(token, [self.write(1)])
        storage.append_wal(token, [self.write(2)])
        a = storage.create_branch("a", Lsn(2))
        storage.append_wal(token, [self.write(3)], branch=a)
        b = storage.create_branch("b", Lsn(1), parent=a)
        assert storage.get_page(ONE, Lsn(100), branch=b) == storage.get_page(ONE, Lsn(1))
        assert [lsn for lsn, _ in storage.scan_wal(Lsn(0), branch=b)] == [1]
        storage.append_wal(token, [self.write(4)], branch=b)
        assert [lsn for lsn, _ in storage.scan_wal(Lsn(0), branch=b)] == [1, 4]
        assert [lsn for lsn, _ in storage.scan_wal(Lsn(0), branch=a)] == [1, 2, 3]

    def test_the_log_of_a_branch_is_its_ancestors_up_to_the_base_then_its_own(self, storage: Storage) -> None:
        token = storage.acquire_fence("writer")
        storage.append_wal(token, [WalRecord(b"m1"), WalRecord(b"m2")])
        a = storage.create_branch("a", Lsn(1))
        storage.append_wal(token, [WalRecord(b"a3")], branch=a)
        storage.append_wal(token, [WalRecord(b"m4")])
        b = storage.create_branch("b", Lsn(4), parent=a)
        storage.append_wal(token, [WalRecord(b"a5")], branch=a)
        storage.append_wal(token, [WalRecord(b"b6")], branch=b)
        assert self._log(storage, MAIN, 0) == ["1 m1", "2 m2", "4 m4"]
        assert self._log(storage, a, 0) == ["1 m1", "3 a3", "5 a5"]
        assert self._log(storage, b, 0) == ["1 m1", "3 a3", "6 b6"]
        assert self._log(storage, b, 1) == ["3 a3", "6 b6"]
        assert self._log(storage, b, 3) == ["6 b6"]

    def _log(self, storage: Storage, branch: BranchId, after: int) -> list[str]:
        return [f"{lsn} {record.bytes.decode()}" for lsn, record in storage.scan_wal(Lsn(after), branch=branch)]

    def test_a_branch_at_zero_starts_empty(self, storage: Storage) -> None:
        token = storage.acquire_fence("writer")
        storage.append_wal(token, [self.write(1)])
        empty = storage.create_branch("empty", Lsn(0))
        with pytest.raises(NotFound):
            storage.get_page(ONE, Lsn(1), branch=empty)
        storage.append_wal(token, [self.write(2)], branch=empty)
        assert storage.get_page(ONE, Lsn(9), branch=empty).lsn == 2

    def test_a_deleted_branch_is_gone_and_its_name_is_free(self, opener: Opener) -> None:
        """A new branch of the same name has an id of its own and nothing of the old one."""
        storage = opener()
        token = storage.acquire_fence("writer")
        storage.append_wal(token, [self.write(1)])
        old = storage.create_branch("side", Lsn(1))
        storage.append_wal(token, [self.write(2)], branch=old)
        storage.delete_branch(old)
        for branch in (old, "side"):
            for use in (storage.resolve_branch, storage.delete_branch, lambda b: storage.scan_wal(Lsn(0), branch=b)):
                with pytest.raises(NotFound):
                    use(branch)
        new = storage.create_branch("side", Lsn(1))
        assert new != old
        assert storage.resolve_branch(new).head_lsn == 1
        assert storage.get_page(ONE, Lsn(9), branch=new).lsn == 1
        storage.append_wal(token, [self.write(3)], branch="side")
        for handle in (storage, opener()):
            assert handle.get_page(ONE, Lsn(9), branch="side").bytes == self.image(3)
            with pytest.raises(NotFound):
                handle.get_page(ONE, Lsn(9), branch=old)

    def test_what_may_not_be_deleted(self, storage: Storage) -> None:
        """`main`, and a branch that others stand on; once those are gone it may."""
        a = storage.create_branch("a", Lsn(0))
        b = storage.create_branch("b", Lsn(0), parent=a)
        for branch in (MAIN, "main", a, "a"):
            with pytest.raises(Invalid):
                storage.delete_branch(branch)
        storage.delete_branch(b)
        storage.delete_branch(a)
        assert [ref.name for ref in storage.list_branches()] == ["main"]

    def test_a_renamed_branch_keeps_its_id_and_pages(self, opener: Opener) -> None:
        storage = opener()
        token = storage.acquire_fence("writer")
        storage.append_wal(token, [self.write(1)])
        side = storage.create_branch("side", Lsn(1))
        storage.append_wal(token, [self.write(2)], branch=side)
        storage.rename_branch("side", "other")
        for handle in (storage, opener()):
            assert handle.resolve_branch("other").id == side
            assert handle.get_page(ONE, Lsn(9), branch="other").bytes == self.image(2)
            with pytest.raises(NotFound):
                handle.resolve_branch("side")
        again = storage.create_branch("side", Lsn(1))
        assert again != side
        for wrong, error in (("side", AlreadyExists), ("main", AlreadyExists), ("", Invalid)):
            with pytest.raises(error):
                storage.rename_branch("other", wrong)
        with pytest.raises(Invalid):
            storage.rename_branch(MAIN, "first")
        with pytest.raises(NotFound):
            storage.rename_branch("nothing", "x")

    def test_a_branch_that_has_all_pages_of_its_own_lets_go_of_its_parents(self, opener: Opener) -> None:
        storage = opener()
        token = storage.acquire_fence("writer")
        storage.append_wal(token, [self.write(1), self.write(2, 2)])
        side = storage.create_branch("side", Lsn(2))
        storage.append_wal(token, [self.write(3), self.write(4, 2)])
        storage.append_wal(token, [self.write(5)], branch=side)
        storage.set_retention_floor(Lsn(5))
        assert storage.pitr_floor() == 2
        storage.rebase_branch(side, Lsn(5))
        for handle in (storage, opener()):
            assert handle.resolve_branch(side)[2:4] == (5, 5)
            assert handle.pitr_floor() == 5
            assert handle.get_page(ONE, Lsn(5), branch=side).bytes == self.image(5)
            assert handle.get_page(PageId(2), Lsn(5), branch=side).bytes == self.image(4)
        compact(storage)
        assert storage.get_page(ONE, Lsn(5), branch=side).bytes == self.image(5)
        storage.rebase_branch(side, Lsn(5))
        for wrong, error in ((Lsn(4), Invalid), (Lsn(6), NotFound), (Lsn(-1), Invalid)):
            with pytest.raises(error):
                storage.rebase_branch(side, wrong)
        with pytest.raises(Invalid):
            storage.rebase_branch(MAIN, Lsn(5))
        with pytest.raises(NotFound):
            storage.rebase_branch("nothing", Lsn(5))

    def test_a_name_is_used_once_at_a_time(self, opener: Opener) -> None:
        first, second = opener(), opener()
        side = first.create_branch("side", Lsn(0))
        for storage in (first, second):
            for name in ("side", "main"):
                with pytest.raises(AlreadyExists) as refused:
                    storage.create_branch(name, Lsn(0))
                assert name in str(refused.value)
            assert [ref.id for ref in storage.list_branches()] == [MAIN, side]

    def test_branches_need_no_token_and_are_seen_by_all(self, opener: Opener) -> None:
        """Made by one handle while another writes: the writer is not fenced, and sees the branch."""
        writer, other = opener(), opener()
        token = writer.acquire_fence("writer")
        writer.append_wal(token, [self.write(1)])
        side = other.create_branch("side", Lsn(1))
        assert writer.append_wal(token, [self.write(2)], branch="side") == 2
        assert other.resolve_branch(side).head_lsn == 2
        other.delete_branch(side)
        with pytest.raises(NotFound):
            writer.append_wal(token, [self.write(3)], branch=side)
        assert writer.append_wal(token, [self.write(4)]) == 3
