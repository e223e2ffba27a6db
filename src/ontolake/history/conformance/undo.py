"""Ways back: revert, cherry-pick, restore, erase."""

from __future__ import annotations

from typing import Any

import pytest

from ontolake.errors import Invalid, NotFound, OntolakeError
from ontolake.history.conformance.base import VersioningBase, record
from ontolake.history.errors import MergeConflictError, RevertError


class UndoCases(VersioningBase):
    """Undoing, repeating and bringing back."""

    title = "Revert, cherry-pick, restore, erase"

    def test_a_revert_undoes_one_commit_and_leaves_the_rest(self, store: Any) -> None:
        self.adapter.write(store, self.main, {"x": record(1, 1), "y": record(1), "z": record(1)})
        bad = self.adapter.write(store, self.main, {"x": record(9, 1), "y": None, "n": record(1)})
        self.write(store, self.main, x=record(9, 5))
        result = store.revert(bad, message="undo")
        assert result.commit is not None
        assert self.state(store) == {"x": record(1, 5), "y": record(1), "z": record(1)}
        assert self.log(store)[0].message == "undo"
        assert len(self.log(store)[0].parents) == 1
        store.revert(result.commit.id)
        assert self.state(store) == {"x": record(9, 5), "z": record(1), "n": record(1)}

    def test_a_revert_of_what_was_changed_since_is_a_conflict(self, store: Any) -> None:
        self.write(store, self.main, x=record(1))
        bad = self.write(store, self.main, x=record(2))
        self.write(store, self.main, x=record(3))
        with pytest.raises(MergeConflictError):
            store.revert(bad)
        assert self.state(store) == {"x": record(3)}
        assert len(store.revert(bad, dry_run=True).conflicts) == 1
        store.revert(bad, strategy="theirs")
        assert self.state(store) == {"x": record(1)}

    def test_a_revert_of_a_merge_undoes_what_it_brought(self, store: Any) -> None:
        self.write(store, self.main, x=record(1))
        store.branches.create("try")
        self.write(store, "try", x=record(2), y=record(2))
        self.write(store, self.main, z=record(3))
        merged = store.merge("try", self.main).commit
        store.revert(merged.id)
        assert self.state(store) == {"x": record(1), "z": record(3)}

    def test_a_merge_that_was_reverted_is_not_merged_again(self, store: Any) -> None:
        """As with git: the branch has these commits. The revert of the revert brings them back."""
        self.write(store, self.main, x=record(1))
        store.branches.create("try")
        self.write(store, "try", x=record(2))
        self.write(store, self.main, z=record(3))
        undone = store.revert(store.merge("try", self.main).commit.id).commit
        assert store.merge("try", self.main).status == "up_to_date"
        self.write(store, "try", y=record(4))
        store.merge("try", self.main)
        assert self.state(store) == {"x": record(1), "y": record(4), "z": record(3)}
        store.revert(undone.id)
        assert self.state(store) == {"x": record(2), "y": record(4), "z": record(3)}

    def test_work_goes_on_after_an_erasure(self, where: str) -> None:
        """Merges, tags and other rows are what they were without the row; the key can be used again."""
        with self.adapter.open(where) as store:
            self.adapter.write(store, self.main, {"x": record(1), "y": record(1, 1)})
            store.branches.create("try")
            self.adapter.write(store, "try", {"x": record(2), "y": record(2, 1)})
            self.adapter.write(store, self.main, {"x": record(3), "y": record(1, 5)})
            store.tags.create("v1")
            if not self.adapter.erases:
                return
            store.erase(self.adapter.table, self.adapter.key("x"), reason="asked for", dry_run=False)
            self.adapter.upkeep(store)
            store.merge("try", self.main)
            assert self.state(store) == {"y": record(2, 5)}
            assert self.state(store, "v1") == {"y": record(1, 5)}
            self.write(store, "try", x=record(7))
            store.merge("try", self.main)
            assert self.state(store) == {"x": record(7), "y": record(2, 5)}
            assert not list(store.verify())

    def test_a_revert_that_changes_nothing_makes_no_commit(self, store: Any) -> None:
        self.write(store, self.main, x=record(1))
        bad = self.write(store, self.main, x=record(2))
        store.revert(bad)
        head = self.log(store)[0].id
        assert store.revert(bad).status == "up_to_date"
        assert self.log(store)[0].id == head

    def test_the_first_commit_cannot_be_reverted(self, store: Any) -> None:
        self.write(store, self.main, x=record(1))
        first = self.log(store)[-1].id
        with pytest.raises(RevertError):
            store.revert(first)
        store.branches.create("try")
        elsewhere = self.write(store, "try", x=record(2))
        with pytest.raises(Invalid):
            store.revert(f"try@{elsewhere}")
        assert self.state(store) == {"x": record(1)}

    def test_a_cherry_pick_repeats_one_commit(self, store: Any) -> None:
        self.write(store, self.main, x=record(1, 1))
        store.branches.create("try")
        self.write(store, "try", y=record(1))
        wanted = self.adapter.write(store, "try", {"x": record(2, 1), "n": record(1)})
        self.write(store, "try", y=None)
        self.write(store, self.main, x=record(1, 7))
        result = store.cherry_pick(f"try@{wanted}")
        assert self.state(store) == {"x": record(2, 7), "n": record(1)}
        assert len(self.log(store)[0].parents) == 1
        assert self.log(store)[0].id == result.commit.id
        self.write(store, self.main, x=record(3, 7))
        with pytest.raises(MergeConflictError):
            store.cherry_pick(f"try@{wanted}")

    def test_a_restore_brings_a_state_back_as_a_new_commit(self, store: Any) -> None:
        good = self.adapter.write(store, self.main, {"x": record(1), "y": record(1)})
        self.adapter.write(store, self.main, {"x": record(2), "y": None, "n": record(1)})
        self.write(store, self.main, x=record(3))
        before = len(self.log(store))
        plan = store.restore(f"@{good}", dry_run=True)
        assert plan.tables[self.adapter.table] == (1, 1, 1)
        store.restore(f"@{good}")
        assert self.state(store) == {"x": record(1), "y": record(1)}
        assert len(self.log(store)) == before + 1
        store.tags.create("good")
        store.restore(f"{self.main}~1")
        assert self.state(store)["x"] == record(3)
        store.restore("good")
        assert self.state(store)["x"] == record(1)
        assert store.restore("good").status == "up_to_date"

    def test_blame_looks_through_merges(self, store: Any) -> None:
        first = self.write(store, self.main, x=record(1, 1))
        store.branches.create("try")
        second = self.write(store, "try", x=record(2, 1))
        self.write(store, self.main, y=record(1))
        store.merge("try", self.main)
        blamed = store.blame(self.adapter.table, self.adapter.key("x"))
        assert {name: blamed[self.adapter.field(name)].id for name in ("f", "g")} == {"f": second, "g": first}

    def test_an_erased_row_is_gone_from_every_commit_and_file(self, where: str) -> None:
        secret = "needle-in-the-haystack"
        with self.adapter.open(where) as store:
            first = self.adapter.write(store, self.main, {secret: record(1), "y": record(1)})
            store.branches.create("try")
            self.adapter.write(store, "try", {secret: record(2)})
            self.adapter.write(store, self.main, {secret: record(3), "z": record(1)})
            store.tags.create("v1")
            self.adapter.write(store, self.main, {secret: None})
            counted = store.erase(self.adapter.table, self.adapter.key(secret), "asked for by its owner")
            assert counted.items > 0
            assert secret in self.state(store, "v1")
            store.erase(self.adapter.table, self.adapter.key(secret), reason="asked for by its owner", dry_run=False)
            for ref in (self.main, "try", "v1", f"@{first}"):
                try:
                    assert secret not in self.state(store, ref)
                except NotFound:
                    assert ref == f"@{first}", "heads and tags stay"
            assert self.state(store)["z"] == record(1)
            assert not list(store.history(self.adapter.table, self.adapter.key(secret)))
            with pytest.raises(OntolakeError):
                store.erase(self.adapter.table, self.adapter.key(secret), reason="again", dry_run=False)
            with pytest.raises(Invalid):
                store.erase(self.adapter.table, self.adapter.key("y"), reason="", dry_run=False)
        stored = self.adapter.stored(where)
        if stored is not None:
            assert not any(secret.encode() in blob for blob in stored)
        with self.adapter.open(where) as store:
            assert self.state(store) == {"y": record(1), "z": record(1)}
            assert not list(store.verify())
