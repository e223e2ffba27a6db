"""Differences and merges: per entity, three-way against the nearest common ancestor."""

from __future__ import annotations

from typing import Any

import pytest
from documents_support import OpenSpace, add, everything, increment, remove, replace, write

from ontolake.documents import (
    BranchError,
    ConflictError,
    Delete,
    MergeConflictError,
    Patch,
    ProtocolError,
    Set,
    Space,
    prefer_source,
    prefer_target,
)
from ontolake.history import Counts, MergeResult


def documents_of(space: Space, branch: str = "") -> dict[str, Any]:
    return dict(space.snapshot(branch=branch).rows())


def counts(result: MergeResult[int]) -> tuple[int, int, int]:
    """How many documents a merge has inserted, updated and deleted."""
    return result.tables.get("documents", Counts())


# differences


def test_diff_gives_added_removed_and_modified(space: Space) -> None:
    write(space, Set("same", {}), Set("changed", {"n": 1}), Set("removed", {"r": 1}), Set("back", {"n": 1}))
    space.branches.create("side")
    write(space, Set("added", {"a": 1}), Patch("changed", [increment()]), Delete("removed"), branch="side")
    write(space, Set("back", {"n": 2}), Set("short", {}), branch="side")
    write(space, Set("back", {"n": 1.0}), Delete("short"), branch="side")
    diff = space.branches.diff("side")
    assert diff.added == {"added": {"a": 1}}
    assert diff.removed == {"removed": {"r": 1}}
    assert diff.modified == {"changed": ({"n": 1}, {"n": 2})}
    back = space.branches.diff("", "side")
    assert (back.added, back.removed, back.modified) == (diff.removed, diff.added, {"changed": ({"n": 2}, {"n": 1})})


def test_diff_of_two_moments(space: Space) -> None:
    for number in range(4):
        write(space, Set("a", {"n": number}), Set(f"e{number}", {}))
    diff = space.branches.diff("", seq=3, against_seq=1)
    assert (sorted(diff.added), diff.removed, diff.modified) == (["e1", "e2"], {}, {"a": ({"n": 0}, {"n": 2})})
    assert space.branches.diff("", against_seq=0).added.keys() == {"a", "e0", "e1", "e2", "e3"}
    assert space.branches.diff("").added == {}


def test_diff_of_siblings_and_cousins(space: Space) -> None:
    write(space, Set("a", {}))
    space.branches.create("one")
    write(space, Set("b", {}))
    space.branches.create("two")
    space.branches.create("three", parent="two")
    write(space, Set("c", {}), branch="one")
    write(space, Set("d", {}), branch="two")
    write(space, Delete("a"), branch="three")
    diff = space.branches.diff("three", "one")
    assert (sorted(diff.added), sorted(diff.removed)) == (["b"], ["a", "c"])


# merges


def test_a_merge_takes_what_only_the_source_changed(space: Space) -> None:
    write(space, Set("a", {"n": 1}), Set("b", {"n": 1}), Set("c", {}))
    space.branches.create("side")
    write(space, Patch("a", [increment()]), Delete("c"), Set("d", {}), branch="side")
    write(space, Set("b", {"n": 5}))
    result = space.branches.merge("side")
    assert counts(result) == (1, 1, 1)
    assert documents_of(space) == {"a": {"n": 2}, "b": {"n": 5}, "d": {}}
    assert result.commit is not None
    assert result.commit.parents == (4, 3)
    assert result.commit.metadata["merged"] == "side"


def test_a_merge_changes_the_target_alone(space: Space) -> None:
    space.branches.create("side")
    write(space, Set("a", {}), branch="side")
    write(space, Set("b", {}))
    space.branches.merge("side")
    assert documents_of(space, "side") == {"a": {}}


def test_a_merge_with_nothing_to_bring_makes_no_commit(space: Space) -> None:
    write(space, Set("a", {}))
    space.branches.create("side")
    write(space, Set("b", {}))
    before = space.last_seq()
    assert space.branches.merge("side").commit is None
    assert space.last_seq() == before


def test_fields_that_were_changed_apart_are_combined(space: Space) -> None:
    write(space, Set("a", {"value": {"name": "x", "size": 1}}))
    space.branches.create("side")
    write(space, Patch("a", [replace("/value/name", "y")]), branch="side")
    write(space, Patch("a", [replace("/value/size", 2)]))
    result = space.branches.merge("side")
    assert (result.status, counts(result)) == ("merged", (0, 1, 0))
    assert space.read("a").document == {"value": {"name": "y", "size": 2}}


def test_conflicts_are_shown_and_nothing_is_written(space: Space) -> None:
    write(space, Set("a", {"n": 1}), Set("b", {"x": 1}), Set("free", {}))
    space.branches.create("side")
    write(space, Set("a", {"n": 2}), Delete("b"), Set("free", {"f": 1}), branch="side")
    write(space, Set("a", {"n": 3}))
    write(space, Set("b", {"x": 2}))
    before = everything(space)
    with pytest.raises(MergeConflictError) as refused:
        space.branches.merge("side")
    assert isinstance(refused.value, ConflictError)
    assert refused.value.exit_code == 6
    assert (refused.value.of, refused.value.seq, refused.value.conflict_seq) == ("a", 1, 4)
    a, b = refused.value.conflicts
    assert (a.key, a.field, a.base, a.theirs, a.ours) == ("a", "/n", 1, 2, 3)
    assert (b.key, b.field, b.base, b.theirs, b.ours) == ("b", None, {"x": 1}, None, {"x": 2})
    assert everything(space) == before
    plan = space.branches.plan_merge("side")
    assert (plan.status, plan.base, counts(plan)) == ("conflicts", 1, (0, 1, 0))
    assert [conflict.key for conflict in plan.conflicts] == ["a", "b"]


@pytest.mark.parametrize(
    ("resolve", "expected"), [(prefer_source, {"a": {"n": 2}}), (prefer_target, {"a": {"n": 3}, "b": {}})]
)
def test_conflicts_are_decided_by_the_caller(space: Space, resolve: Any, expected: Any) -> None:
    write(space, Set("a", {"n": 1}), Set("b", {"x": 1}))
    space.branches.create("side")
    write(space, Set("a", {"n": 2}), Delete("b"), branch="side")
    write(space, Set("a", {"n": 3}), Set("b", {}))
    result = space.branches.merge("side", resolve=resolve)
    assert result.commit is not None
    assert documents_of(space) == expected
    assert space.branches.merge("side").commit is None, "what was decided is not asked again"


def test_a_decision_may_be_a_third_document(space: Space) -> None:
    space.branches.create("side")
    write(space, Set("a", {"n": 2}), branch="side")
    write(space, Set("a", {"n": 3}))
    space.branches.merge("side", resolve=lambda conflict: {"both": [conflict.theirs, conflict.ours]})
    assert space.read("a").document == {"both": [{"n": 2}, {"n": 3}]}


def test_a_second_merge_starts_from_the_first(space: Space) -> None:
    write(space, Set("a", {"n": 1}))
    space.branches.create("side")
    for number in range(2, 6):
        write(space, Set("a", {"n": number}), branch="side")
        assert counts(space.branches.merge("side")) == (0, 1, 0)
        assert space.read("a").document == {"n": number}
    write(space, Set("a", {"n": 1}))
    assert space.branches.merge("side").commit is None, "taken back on the target after the merge: it stays so"
    assert space.read("a").document == {"n": 1}


def test_what_was_merged_from_elsewhere_is_no_common_ancestor(space: Space) -> None:
    write(space, Set("a", {"n": 1}))
    space.branches.create("side")
    space.branches.create("other")
    write(space, Set("a", {"n": 2}), branch="side")
    write(space, Set("a", {"n": 3}), branch="other")
    space.branches.merge("other")
    plan = space.branches.plan_merge("side")
    assert plan.base == 1
    assert [conflict.base for conflict in plan.conflicts] == [1]


def test_what_an_ancestor_merged_counts_for_its_children(space: Space) -> None:
    write(space, Set("a", {"n": 1}))
    space.branches.create("side")
    write(space, Set("a", {"n": 2}), branch="side")
    space.branches.merge("side")
    space.branches.create("child")
    space.branches.create("below", parent="side")
    write(space, Set("a", {"n": 3}), branch="below")
    plan = space.branches.plan_merge("below", "child")
    assert (plan.base, counts(plan)) == (3, (0, 1, 0))
    space.branches.merge("below", "child")
    assert documents_of(space, "child") == {"a": {"n": 3}}


def test_what_came_by_way_of_a_third_branch_is_known(space: Space) -> None:
    write(space, Set("a", {"n": 1}))
    for name in ("one", "two", "three"):
        space.branches.create(name)
    write(space, Set("a", {"n": 2}), branch="one")
    space.branches.merge("one", "two")
    space.branches.merge("two", "three")
    write(space, Set("a", {"n": 1}), branch="three")
    plan = space.branches.plan_merge("one", "three")
    assert (plan.base, plan.status) == (5, "up_to_date"), "taken back after it came: it stays so"
    write(space, Set("a", {"n": 3}), branch="one")
    assert [(each.base, each.ours) for each in space.branches.plan_merge("one", "three").conflicts] == [(2, 1)]


def test_a_deletion_comes_by_way_of_a_third_branch(space: Space) -> None:
    write(space, Set("a", {}))
    space.branches.create("prod")
    space.branches.create("dev")
    write(space, Set("x", {"n": 1}))
    space.branches.merge("", "prod")
    write(space, Delete("x"))
    space.branches.merge("", "dev")
    result = space.branches.merge("dev", "prod")
    assert counts(result) == (0, 0, 1)
    assert documents_of(space, "prod") == {"a": {}}


def test_a_value_taken_back_comes_by_way_of_a_third_branch(space: Space) -> None:
    write(space, Set("x", {"n": 1}))
    space.branches.create("prod")
    space.branches.create("dev")
    write(space, Set("x", {"n": 2}))
    space.branches.merge("", "prod")
    write(space, Set("x", {"n": 1}))
    space.branches.merge("", "dev")
    assert counts(space.branches.merge("dev", "prod")) == (0, 1, 0)
    assert documents_of(space, "prod") == {"x": {"n": 1}}


def test_the_base_is_the_newest_commit_not_the_one_that_was_merged_last(space: Space) -> None:
    """Both sides take in the first branch's old commit, by way of others, later than they got the value of `source`."""
    for name in ("one", "two"):
        space.branches.create(name)
    write(space, Set("x", {"n": 1}))
    space.branches.create("source")
    best = write(space, Set("x", {"n": 2}), branch="source").seq
    space.branches.create("target", parent="source")
    write(space, Set("x", {"n": 1}), branch="target")
    for name in ("one", "two"):
        space.branches.merge("", name)
        write(space, Set(name, {}), branch=name)
    space.branches.merge("one", "source")
    space.branches.merge("two", "target")
    plan = space.branches.plan_merge("source", "target")
    assert (counts(plan), plan.conflicts) == ((1, 0, 0), []), "x, unchanged in the source, is not set back to 2"
    assert plan.base == best
    space.branches.merge("source", "target")
    assert documents_of(space, "target") == {"x": {"n": 1}, "one": {}, "two": {}}


def test_a_merge_that_brings_nothing_is_recorded(space: Space) -> None:
    write(space, Set("x", {"n": 1}))
    space.branches.create("side")
    for branch in ("", "side"):
        write(space, Set("x", {"n": 2}), branch=branch)
    result = space.branches.merge("side")
    assert counts(result) == (0, 0, 0)
    assert result.commit is not None
    assert result.commit.parents == (3, 4)
    assert next(space.commits()).id == result.commit.seq
    write(space, Set("x", {"n": 1}))
    assert space.branches.merge("side").commit is None, "what was decided after the merge is not undone"
    write(space, Set("y", {}), branch="side")
    assert counts(space.branches.merge("side")) == (1, 0, 0)
    assert documents_of(space) == {"x": {"n": 1}, "y": {}}
    assert list(space.verify()) == []


def test_merging_to_and_fro_comes_to_an_end(space: Space) -> None:
    write(space, Set("x", {"n": 1}))
    space.branches.create("side")
    write(space, Set("x", {"n": 2}), branch="side")
    made = [space.branches.merge(source, into).commit for source, into in [("side", ""), ("", "side")] * 3]
    assert [commit is not None for commit in made] == [True, True, False, False, False, False]


def test_criss_crossed_histories_merge_against_the_merge_of_their_bases(space: Space) -> None:
    write(space, Set("x", {"n": 1}), Set("y", {"n": 1}))
    for name in ("a", "b"):
        space.branches.create(name)
    write(space, Set("x", {"n": 2}), branch="a")
    write(space, Set("y", {"n": 2}), branch="b")
    space.branches.create("a-before", parent="a")
    space.branches.merge("b", "a")
    space.branches.merge("a-before", "b")
    write(space, Set("x", {"n": 1}), branch="b")
    plan = space.branches.plan_merge("b", "a")
    assert (plan.base, counts(plan)) == (5, (0, 1, 0)), "taken back on b after it had come from a"
    assert counts(space.branches.merge("b", "a")) == (0, 1, 0)
    assert documents_of(space, "a") == {"x": {"n": 1}, "y": {"n": 2}}


def test_what_bases_do_not_agree_on_is_a_conflict_unless_both_sides_do(space: Space) -> None:
    write(space, Set("x", {"n": 1, "m": {"k": 1}}))
    for name in ("a", "b"):
        space.branches.create(name)
    write(space, Patch("x", [replace("/n", 2), replace("/m/k", 2)]), branch="a")
    write(space, Patch("x", [replace("/n", 3), replace("/m/k", 3)]), branch="b")
    space.branches.create("a-before", parent="a")
    space.branches.merge("b", "a", resolve=lambda conflict: {"n": 1, "m": {"k": 9}})
    space.branches.merge("a-before", "b", resolve=lambda conflict: {"n": 3, "m": {"k": 9}, "new": 1})
    (conflict,) = space.branches.plan_merge("b", "a").conflicts
    assert (conflict.key, conflict.field, conflict.base, conflict.theirs, conflict.ours) == ("x", "/n", None, 3, 1)
    seen: list[Any] = []
    space.branches.merge("b", "a", resolve=lambda conflict: seen.append(conflict))
    assert (seen[0].base, seen[0].field) == ({"m": {}}, None), "as a whole, without what the bases do not agree on"
    assert (seen[0].theirs, seen[0].ours) == ({"n": 3, "m": {"k": 9}, "new": 1}, {"n": 1, "m": {"k": 9}})
    assert not space.read("x", branch="a").exists


def test_a_merge_that_brings_nothing_is_refused_if_what_it_looked_at_has_changed(native: Space) -> None:
    write(native, Set("x", {"n": 1}), Set("y", {"n": 1}))
    native.branches.create("side")
    write(native, Set("x", {"n": 2}), Set("y", {"n": 2}), branch="side")
    write(native, Set("x", {"n": 2}), Set("y", {"n": 3}))

    def meddle(conflict: Any) -> Any:
        write(native, Set("x", {"n": 1}))
        return conflict.ours

    with pytest.raises(ConflictError) as refused:
        native.branches.merge("side", resolve=meddle)
    assert (refused.value.of, refused.value.conflict_seq) == ("x", 5)


@pytest.mark.slow
def test_a_merge_goes_no_further_back_than_the_last_one(native: Space) -> None:
    """However long two branches have lived side by side."""
    write(native, Set("a", {"n": 0}))
    native.branches.create("side")
    connection = native._database.connection
    costs: list[int] = []
    for number in range(1, 5):
        for _ in range(300):
            write(native, Set("b", {"n": number}))
        write(native, Set("a", {"n": number}), branch="side")
        steps: list[None] = []
        connection.set_progress_handler(lambda steps=steps: bool(steps.append(None)), 100)
        plan = native.branches.plan_merge("", "side")
        connection.set_progress_handler(None)
        assert counts(plan) == ((1 if number == 1 else 0), int(number > 1), 0)
        costs.append(len(steps))
        native.branches.merge("", "side")
    assert max(costs) < 2 * costs[0]


def test_merges_in_both_directions(space: Space) -> None:
    write(space, Set("a", {"n": 1}), Set("b", {"n": 1}))
    space.branches.create("side")
    write(space, Set("a", {"n": 2}), branch="side")
    write(space, Set("b", {"n": 2}))
    assert counts(space.branches.merge("", "side")) == (0, 1, 0)
    write(space, Set("b", {"n": 3}), branch="side")
    assert counts(space.branches.merge("side")) == (0, 2, 0)
    assert documents_of(space) == documents_of(space, "side") == {"a": {"n": 2}, "b": {"n": 3}}
    write(space, Set("a", {"n": 4}))
    assert counts(space.branches.merge("", "side")) == (0, 1, 0)


def test_siblings_merge_against_where_their_lines_part(space: Space) -> None:
    write(space, Set("a", {"x": 1, "y": 1}))
    space.branches.create("one")
    write(space, Patch("a", [replace("/x", 2)]))
    space.branches.create("two")
    write(space, Patch("a", [replace("/y", 3)]), branch="one")
    result = space.branches.merge("one", "two")
    assert counts(result) == (0, 1, 0)
    assert space.read("a", branch="two").document == {"x": 2, "y": 3}
    assert space.read("a").document == {"x": 2, "y": 1}


def test_a_grandchild_merges_into_the_first_branch(space: Space) -> None:
    write(space, Set("a", {}))
    space.branches.create("child")
    write(space, Set("b", {}), branch="child")
    space.branches.create("grandchild", parent="child")
    write(space, Set("c", {}), Delete("a"), branch="grandchild")
    assert counts(space.branches.merge("grandchild")) == (2, 0, 1)
    assert documents_of(space) == {"b": {}, "c": {}}


def test_a_stale_merge_is_refused(space: Space) -> None:
    """Somebody changes the target between looking and committing: what was looked at is among the merge's reads."""
    write(space, Set("a", {"n": 1}), Set("b", {}))
    space.branches.create("side")
    write(space, Set("a", {"n": 2}), branch="side")
    meddled: list[bool] = []

    def meddle(conflict: Any) -> Any:
        write(space, Set("a", {"n": 4}))
        meddled.append(True)
        return conflict.theirs

    write(space, Set("a", {"n": 3}))
    with pytest.raises(ConflictError) as refused:
        space.branches.merge("side", resolve=meddle)
    assert meddled
    assert (refused.value.of, refused.value.conflict_seq) == ("a", 5)
    assert space.read("a").document == {"n": 4}


def test_a_merge_is_not_disturbed_by_changes_elsewhere(space: Space) -> None:
    write(space, Set("a", {"n": 1}))
    space.branches.create("side")
    write(space, Set("a", {"n": 2}), branch="side")
    write(space, Set("a", {"n": 3}))

    def meddle(conflict: Any) -> Any:
        write(space, Set("unrelated", {}))
        return conflict.theirs

    assert space.branches.merge("side", resolve=meddle).commit is not None


def test_a_repeated_merge_gets_its_first_answer(space: Space) -> None:
    space.branches.create("side")
    write(space, Set("a", {}), branch="side")
    first = space.branches.merge("side", session_id="s", local_seq=1)
    write(space, Set("b", {}), branch="side")
    assert space.branches.merge("side", session_id="s", local_seq=1).commit == first.commit
    assert not space.read("b").exists
    with pytest.raises(ProtocolError, match="another request"):
        space.branches.merge("", "side", session_id="s", local_seq=1)


def test_impossible_merges_are_refused(space: Space) -> None:
    space.branches.create("side")
    write(space, Set("a", {}))
    with pytest.raises(BranchError, match="into itself"):
        space.branches.merge("side", "side")
    space.branches.delete("side")
    with pytest.raises(BranchError, match="was deleted"):
        space.branches.merge("", "side")


def test_a_merge_looks_only_at_what_changed(native_place: str, open_here: OpenSpace) -> None:
    """The same statements, with as many ids, however many documents there are."""
    looked: list[list[str]] = []
    for size in (20, 2000):
        space = open_here(native_place, f"of{size}")
        write(space, *(Set(f"e{number}", {}) for number in range(size)))
        space.branches.create("side")
        write(space, Set("e7", {"n": 1}), branch="side")
        looked.append([])
        space._database.connection.trace_v2(1, lambda event: looked[-1].append(event["sql"]))
        plan = space.branches.plan_merge("side")
        space._database.connection.trace_v2(0, None)
        assert counts(plan) == (0, 1, 0)
    assert looked[0] == looked[1]
    assert len(looked[0]) < 35


def test_a_merge_asks_as_many_statements_however_many_merges_there_were(native: Space) -> None:
    write(native, Set("e", {"n": 0}))
    looked: list[str] = []
    counts = []
    for number in range(12):
        native.branches.create(f"side{number}")
        write(native, Patch("e", [increment()]), branch=f"side{number}")
        looked.clear()
        native._database.connection.trace_v2(1, lambda event: looked.append(event["sql"]))
        native.branches.merge(f"side{number}")
        native._database.connection.trace_v2(0, None)
        counts.append(len(looked))
    assert counts[-1] <= counts[1], counts
    assert native.read("e").document == {"n": 12}


@pytest.mark.slow
def test_merging_a_thousand_entities_in_one_commit(native: Space) -> None:
    write(native, *(Set(f"e{number:04}", {"n": 0}) for number in range(1200)))
    native.branches.create("side")
    patches = [[increment(), remove("/n") if number % 2 else add("/m")] for number in range(1200)]
    write(native, *(Patch(f"e{number:04}", patches[number]) for number in range(1200)), branch="side")
    assert counts(native.branches.merge("side")) == (0, 1200, 0)
    assert documents_of(native) == documents_of(native, "side")
