"""Merges: what comes of them, in every shape of history that people make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import pytest

from ontolake.errors import Invalid
from ontolake.history.conflicts import ConflictKind, Resolution, Value
from ontolake.history.conformance.base import VersioningBase, record
from ontolake.history.conformance.workload import HistoryPlayer, HistoryStep
from ontolake.history.errors import MergeConflictError

_CLASH = (("write", "main", "x", record(1, 1)), ("write", "main", "y", record(1, 1)), ("branch", "a", "main"),
          ("write", "a", "x", record(2, 2)), ("write", "main", "x", record(3, 3)))  # fmt: skip
_AFTER = (("write", "a", "y", record(5, 5)), ("merge", "a", "main", None), ("write", "main", "z", record(6, 6)),
          ("merge", "main", "a", None), ("write", "a", "z", None), ("merge", "a", "main", None))
_BOTH = (*_CLASH, ("branch", "b", "main"), ("branch", "c", "a"), ("merge", "c", "main", "ours"),
         ("merge", "b", "a", "ours"), ("merge", "main", "a", "ours"))  # fmt: skip
LEAVING_OUT: Mapping[str, Sequence[tuple[Any, ...]]] = {
    "a strategy": (*_CLASH, ("merge", "a", "main", "ours"), *_AFTER),
    "a resolution": (*_CLASH, ("write", "a", "x", None), ("settle", "a", "main", ["ours"]), *_AFTER),
    "a strategy on both sides": (*_BOTH, *_AFTER[:2]),
    "merges alone": (*_BOTH, ("merge", "a", "main", None)),
}
"""Histories in which a merge does not take a row that its source has changed, by what keeps it out."""


class MergeCases(VersioningBase):
    """Bringing the work of one branch to another."""

    title = "Merges"

    @pytest.fixture
    def forked(self, store: Any) -> Any:
        """A store with the branch `try` and the records x and y on both."""
        self.adapter.write(store, self.main, {"x": record(1, 1), "y": record(1, 1)})
        store.branches.create("try")
        return store

    def conflicts(self, store: Any, source: str, into: str) -> set[tuple[str, str | None, str]]:
        """What a merge has in conflict: key, field, kind."""
        plan = store.merge(source, into, dry_run=True)
        fields = {self.adapter.field(name): name for name in ("f", "g")}
        return {(self.adapter.text(one.key), one.field and fields.get(one.field, one.field), one.kind.value)
                for one in plan.conflicts}  # fmt: skip

    def test_changes_of_one_side_come_over(self, forked: Any) -> None:
        self.adapter.write(forked, "try", {"x": record(2, 1), "y": None, "z": record(3)})
        result = forked.merge("try", self.main, message="bring it", author="ada")
        assert result.status == "fast_forward"
        assert result.tables[self.adapter.table] == (1, 1, 1)
        assert self.state(forked) == {"x": record(2, 1), "z": record(3)}
        commit = self.log(forked)[0]
        assert (commit.id, commit.message, commit.author) == (result.commit.id, "bring it", "ada")
        assert len(commit.parents) == 2

    def test_different_fields_of_one_row_merge(self, forked: Any) -> None:
        self.write(forked, "try", x=record(2, 1))
        self.write(forked, self.main, x=record(1, 5), y=None)
        result = forked.merge("try", self.main)
        assert result.status == "merged"
        assert self.state(forked) == {"x": record(2, 5)}

    def test_a_dry_run_changes_nothing(self, forked: Any) -> None:
        self.write(forked, "try", x=record(2, 1))
        head = self.log(forked)[0].id
        plan = forked.merge("try", self.main, dry_run=True)
        assert (plan.status, plan.commit) == ("fast_forward", None)
        assert plan.tables[self.adapter.table] == (0, 1, 0)
        assert self.log(forked)[0].id == head

    def test_a_merge_again_is_up_to_date(self, forked: Any) -> None:
        self.write(forked, "try", x=record(2, 1))
        forked.merge("try", self.main)
        head = self.log(forked)[0].id
        result = forked.merge("try", self.main)
        assert (result.status, result.commit) == ("up_to_date", None)
        assert self.log(forked)[0].id == head

    def test_both_sides_agreeing_is_no_conflict_but_a_merge(self, forked: Any) -> None:
        self.write(forked, "try", x=record(2, 1), y=None)
        self.write(forked, self.main, x=record(2, 1), y=None)
        result = forked.merge("try", self.main)
        assert result.status == "merged"
        assert len(self.log(forked)[0].parents) == 2
        self.write(forked, self.main, x=record(3, 1))
        assert forked.merge("try", self.main).status == "up_to_date"
        assert self.state(forked) == {"x": record(3, 1)}

    def test_a_function_settles_conflicts_one_by_one(self, forked: Any) -> None:
        self.adapter.write(forked, "try", {"x": record(2, 2), "y": None, "n": record(1, 1)})
        self.adapter.write(forked, self.main, {"x": record(3, 3), "y": record(9, 1), "n": record(2, 2)})
        takes: dict[tuple[str, str | None], Any] = {
            ("x", "f"): "theirs", ("x", "g"): "base", ("y", None): "ours", ("n", "f"): "ours", ("n", "g"): Value(8)}
        fields = {self.adapter.field(name): name for name in ("f", "g")}

        def decide(conflict: Any) -> Any:
            return takes.get((self.adapter.text(conflict.key), conflict.field and fields[conflict.field]))

        del takes["x", "g"]
        with pytest.raises(MergeConflictError) as caught:
            forked.merge("try", self.main, strategy=decide)
        assert [one.field for one in caught.value.conflicts] == [self.adapter.field("g")]
        takes["x", "g"] = "nobody"
        with pytest.raises(Invalid):
            forked.merge("try", self.main, strategy=decide)
        takes["x", "g"] = "base"
        forked.merge("try", self.main, strategy=decide)
        assert self.state(forked) == {"x": record(2, 1), "y": record(9, 1), "n": record(2, 8)}

    def test_conflicts_of_rows_have_kind_field_and_values(self, forked: Any) -> None:
        self.adapter.write(forked, "try", {"x": record(2, 2), "y": None, "n": record(1, 1)})
        self.adapter.write(forked, self.main, {"x": record(3, 1), "y": record(9, 1), "n": record(1, 2)})
        before = self.state(forked)
        with pytest.raises(MergeConflictError) as caught:
            forked.merge("try", self.main)
        assert self.state(forked) == before
        by_row = {(self.adapter.text(one.key), one.field): one for one in caught.value.conflicts}
        f, g = self.adapter.field("f"), self.adapter.field("g")
        assert {*by_row} == {("x", f), ("y", None), ("n", g)}
        x, y, n = by_row["x", f], by_row["y", None], by_row["n", g]
        assert (x.table, x.kind, x.base, x.ours, x.theirs) == (
            self.adapter.table, ConflictKind.DIVERGENT_UPDATE, 1, 3, 2)
        assert (y.kind, y.theirs, y.ours["f"], y.base["f"]) == (ConflictKind.DELETE_UPDATE, None, 9, 1)
        assert (n.kind, n.ours, n.theirs) == (ConflictKind.DIVERGENT_INSERT, 2, 1)

    @pytest.mark.parametrize("side", ["ours", "theirs"])
    def test_a_strategy_settles_conflicts_by_field(self, forked: Any, side: Any) -> None:
        self.adapter.write(forked, "try", {"x": record(2, 5), "y": None})
        self.adapter.write(forked, self.main, {"x": record(3, 1), "y": record(9, 1)})
        forked.merge("try", self.main, strategy=side)
        expected = {"x": record(3, 5), "y": record(9, 1)} if side == "ours" else {"x": record(2, 5)}
        assert self.state(forked) == expected
        assert forked.merge("try", self.main).status == "up_to_date"

    def test_resolutions_settle_single_conflicts(self, forked: Any) -> None:
        self.adapter.write(forked, "try", {"x": record(2, 2), "y": record(2, 1), "n": record(7, 7)})
        self.adapter.write(forked, self.main, {"x": record(3, 3), "y": None, "n": record(8, 8)})
        table, key, field = self.adapter.table, self.adapter.key, self.adapter.field
        resolutions = [Resolution(table, key("x"), field("f"), "theirs"),
                       Resolution(table, key("x"), field("g"), Value(42)), Resolution(table, key("y"), None, "theirs"),
                       Resolution(table, key("n"), None, "ours")]  # fmt: skip
        with pytest.raises(MergeConflictError) as caught:
            forked.merge("try", self.main, resolutions=resolutions[:2])
        assert {self.adapter.text(one.key) for one in caught.value.conflicts} == {"y", "n"}
        forked.merge("try", self.main, resolutions=resolutions)
        assert self.state(forked) == {"x": record(2, 42), "y": record(2, 1), "n": record(8, 8)}

    def test_a_resolution_for_what_is_no_conflict_is_refused(self, forked: Any) -> None:
        self.write(forked, "try", x=record(2, 1))
        before = self.log(forked)[0].id
        with pytest.raises(Invalid):
            forked.merge("try", self.main, resolutions=[Resolution(self.adapter.table, self.adapter.key("y"))])
        with pytest.raises(Invalid):
            forked.merge("try", self.main, strategy="mine")
        with pytest.raises(Invalid):
            forked.merge(self.main, self.main)
        assert self.log(forked)[0].id == before

    def test_what_went_through_a_third_branch_counts(self, forked: Any) -> None:
        """Main sets x, prod takes it, main deletes it, dev takes that; dev to prod deletes it."""
        forked.branches.create("prod")
        forked.branches.create("dev")
        self.write(forked, self.main, z=record(1))
        forked.merge(self.main, "prod")
        self.write(forked, self.main, z=None)
        forked.merge(self.main, "dev")
        forked.merge("dev", "prod")
        assert "z" not in self.state(forked, "prod")

    def test_a_value_taken_back_after_a_crossed_merge_counts(self, forked: Any) -> None:
        """Two branches take each other's state of before; then one takes its value back."""
        self.write(forked, self.main, x=record(5, 1))
        self.write(forked, "try", y=record(5, 1))
        forked.branches.create("then")
        forked.merge("try", self.main)
        forked.merge("then", "try")
        self.write(forked, "try", x=record(1, 1))
        forked.merge("try", self.main)
        assert self.state(forked)["x"] == record(1, 1)

    def test_criss_cross_merges_use_a_virtual_base(self, forked: Any) -> None:
        self.write(forked, self.main, x=record(2, 1))
        self.write(forked, "try", x=record(3, 1))
        forked.branches.create("a")
        forked.branches.create("b", parent="try")
        forked.merge("b", self.main, strategy="ours")
        forked.merge("a", "try", strategy="ours")
        assert (self.state(forked)["x"], self.state(forked, "try")["x"]) == (record(2, 1), record(3, 1))
        assert self.conflicts(forked, "try", self.main) == {("x", "f", "divergent_update")}
        self.write(forked, "try", y=record(8, 1))
        forked.merge("try", self.main, strategy="theirs")
        assert self.state(forked) == {"x": record(3, 1), "y": record(8, 1)}

    @pytest.mark.parametrize("history", LEAVING_OUT.values(), ids=LEAVING_OUT)
    def test_a_row_that_a_merge_left_out_differs_and_later_merges_know_it(self, where: str, history: Any) -> None:
        with closing(HistoryPlayer(self.adapter, where)) as player:
            for kind, *arguments in history:
                player.do(HistoryStep(kind, arguments))
                if kind in ("merge", "settle"):
                    player.check()
                    player.do(HistoryStep("compared", ("main", "a")))
                    player.do(HistoryStep("compared", ("a", "main")))

    def test_many_branches_one_after_the_other(self, forked: Any) -> None:
        names = [f"b{number}" for number in range(4)]
        for name in names:
            forked.branches.create(name)
        for number, name in enumerate(names):
            self.adapter.write(forked, name, {"x": record(1, 1) if number else record(2, 1), name: record(number)})
        for name in names:
            forked.merge(name, self.main)
        assert self.state(forked) == {"x": record(2, 1), "y": record(1, 1),
                                      **{name: record(number) for number, name in enumerate(names)}}
        for name in names:
            forked.merge(self.main, name)
            assert self.state(forked, name) == self.state(forked)

    def test_upkeep_makes_no_difference_to_a_merge(self, forked: Any) -> None:
        self.write(forked, "try", x=record(2, 1))
        self.adapter.upkeep(forked)
        self.write(forked, self.main, y=None)
        self.adapter.upkeep(forked)
        forked.merge("try", self.main)
        self.adapter.upkeep(forked)
        assert self.state(forked) == {"x": record(2, 1)}
        assert forked.merge("try", self.main).status == "up_to_date"

    def test_a_commit_or_a_tag_can_be_merged(self, forked: Any) -> None:
        commit = self.write(forked, "try", x=record(2, 1))
        self.write(forked, "try", x=record(3, 1))
        forked.tags.create("v1", f"try@{commit}")
        forked.merge("v1", self.main)
        assert self.state(forked)["x"] == record(2, 1)
        assert forked.merge("try", self.main).status in ("merged", "fast_forward")
        assert self.state(forked)["x"] == record(3, 1)

    def test_merges_to_and_fro_bring_each_change_once(self, forked: Any) -> None:
        for number in range(2, 6):
            self.write(forked, "try", x=record(number, 1))
            forked.merge("try", self.main)
            self.write(forked, self.main, y=record(1, number))
            forked.merge(self.main, "try")
            assert self.state(forked) == self.state(forked, "try") == {"x": record(number, 1), "y": record(1, number)}
        assert forked.merge(self.main, "try").status == "up_to_date"

    def test_a_deleted_row_that_comes_back_is_a_change(self, forked: Any) -> None:
        self.write(forked, "try", x=None)
        self.write(forked, "try", x=record(1, 1))
        self.write(forked, self.main, x=record(1, 9))
        forked.merge("try", self.main)
        assert self.state(forked)["x"] == record(1, 9), "as it was before: there is nothing to bring"
        self.write(forked, "try", x=None)
        assert self.conflicts(forked, "try", self.main) in (set(), {("x", None, "delete_update")})
        forked.merge("try", self.main, strategy="theirs")
        assert "x" not in self.state(forked)
        self.write(forked, "try", x=record(4, 4))
        forked.merge("try", self.main)
        assert self.state(forked)["x"] == record(4, 4)

    def test_a_resolution_can_go_back_to_the_base(self, forked: Any) -> None:
        self.adapter.write(forked, "try", {"x": record(2, 1), "y": None})
        self.adapter.write(forked, self.main, {"x": record(3, 1), "y": record(9, 1)})
        table, key = self.adapter.table, self.adapter.key
        forked.merge("try", self.main, resolutions=[
            Resolution(table, key("x"), self.adapter.field("f"), "base"), Resolution(table, key("y"), None, "base")])
        assert self.state(forked) == {"x": record(1, 1), "y": record(1, 1)}

    def test_branches_of_branches_merge_past_their_parents(self, forked: Any) -> None:
        self.write(forked, "try", x=record(2, 1))
        forked.branches.create("deep", parent="try")
        forked.branches.create("deeper", parent="deep")
        self.write(forked, "deeper", y=record(1, 7))
        forked.merge("deeper", self.main)
        assert self.state(forked) == {"x": record(2, 1), "y": record(1, 7)}
        assert forked.merge("try", self.main).status == "up_to_date"
        forked.merge(self.main, "deep")
        assert self.state(forked, "deep") == self.state(forked)

    def test_a_branch_that_is_made_again_has_none_of_the_old_history(self, forked: Any) -> None:
        self.write(forked, "try", x=record(2, 1))
        forked.merge("try", self.main)
        forked.branches.delete("try")
        self.write(forked, self.main, x=record(3, 1))
        forked.branches.create("try")
        self.write(forked, "try", x=record(2, 1))
        assert forked.merge("try", self.main).status == "fast_forward"
        assert self.state(forked)["x"] == record(2, 1)

    def test_a_renamed_branch_merges_as_before(self, forked: Any) -> None:
        self.write(forked, "try", x=record(2, 1))
        forked.merge("try", self.main)
        forked.branches.rename("try", "better")
        assert forked.merge("better", self.main).status == "up_to_date"
        self.write(forked, "better", x=record(3, 1))
        self.write(forked, self.main, y=record(1, 3))
        forked.merge("better", self.main)
        assert self.state(forked) == {"x": record(3, 1), "y": record(1, 3)}
