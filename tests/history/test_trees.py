"""JSON merges by path: objects by key, arrays by identity or position."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ontolake.history import ConflictKind, Decisions, Resolution, Value
from ontolake.history.threeway import Disputed, Outcome
from ontolake.history.trees import differing, merge_trees, same_json, virtual_tree

leaves = st.sampled_from([None, True, 0, 1, 1.0, "x"])
trees = st.recursive(leaves, lambda inner: st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
                     | st.lists(inner, max_size=2), max_leaves=6)  # fmt: skip
documents = st.dictionaries(st.sampled_from("abc"), trees, max_size=3)
maybe = st.none() | documents


def merge(base: Any, ours: Any, theirs: Any, decisions: Decisions | None = None) -> Any:
    return merge_trees("documents", "d", base, ours, theirs, decisions or Decisions())


@given(maybe, maybe)
def test_one_side_alone_decides(base: Any, changed: Any) -> None:
    assert merge(base, base, changed).tree == changed
    assert merge(base, changed, base).tree == changed
    assert merge(base, changed, changed).tree == changed
    assert not merge(base, changed, copy.deepcopy(changed)).conflicts


@given(maybe, maybe, maybe)
def test_merging_is_symmetric(base: Any, one: Any, other: Any) -> None:
    """Whichever side is the target: the same conflicts, and without any the same document."""
    left, right = merge(base, one, other), merge(base, other, one)
    assert sorted(str(each.field) for each in left.conflicts) == sorted(str(each.field) for each in right.conflicts)
    if not left.conflicts and not _has_lists(left.tree):
        assert left.tree == right.tree


def _has_lists(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, dict) and any(map(_has_lists, value.values())))


@given(maybe, maybe, maybe, st.sampled_from(["ours", "theirs"]))
def test_a_side_settles_every_conflict(base: Any, ours: Any, theirs: Any, side: Any) -> None:
    conflicts = merge(base, ours, theirs).conflicts
    by_strategy = merge(base, ours, theirs, Decisions(side))
    assert by_strategy.conflicts == ()
    decisions = Decisions(None, [Resolution(one.table, one.key, one.field, side) for one in conflicts])
    by_hand = merge(base, ours, theirs, decisions)
    assert by_hand.tree == by_strategy.tree
    decisions.check_used()


@given(documents, documents, documents)
def test_what_one_side_alone_changed_is_in_the_result(base: Any, ours: Any, theirs: Any) -> None:
    merged = merge(base, ours, theirs)
    if merged.conflicts or merged.tree is None:
        return
    absent = object()
    for key in {*base, *ours, *theirs}:
        old, own, new = (side.get(key, absent) for side in (base, ours, theirs))
        if same_json(own, old):
            assert same_json(merged.tree.get(key, absent), new)
        elif same_json(new, old):
            assert same_json(merged.tree.get(key, absent), own)


def test_fields_of_nested_objects_merge() -> None:
    base = {"value": {"a": 1, "b": 2}, "gone": 1}
    merged = merge(base, {"value": {"a": 5, "b": 2}, "gone": 1}, {"value": {"a": 1, "b": 6, "c": 7}})
    assert merged.tree == {"value": {"a": 5, "b": 6, "c": 7}}
    assert merged.outcome is Outcome.CLASH


@pytest.mark.parametrize(("base", "ours", "theirs", "field", "kind"), [
    ({"a": 1}, {"a": 2}, {"a": 3}, "/a", ConflictKind.DIVERGENT_UPDATE),
    ({}, {"a": 2}, {"a": 3}, "/a", ConflictKind.DIVERGENT_INSERT),
    ({"a": 1}, {}, {"a": 3}, "/a", ConflictKind.DELETE_UPDATE),
    ({"a": {"b": 1}}, {}, {"a": {"b": 2}}, "/a", ConflictKind.DELETE_UPDATE),
    ({"a": 1}, None, {"a": 3}, None, ConflictKind.DELETE_UPDATE),
    (None, {"a": 1}, {"a": 3}, "/a", ConflictKind.DIVERGENT_INSERT),
    ({"a": [1, 2]}, {"a": [2]}, {"a": [1, 3]}, "/a", ConflictKind.DIVERGENT_UPDATE),
    ({"a": [1, 2]}, {"a": [5, 2]}, {"a": [6, 2]}, "/a/0", ConflictKind.DIVERGENT_UPDATE),
    ({"a": [1]}, {"a": [1, 2]}, {"a": [1, 3]}, "/a", ConflictKind.DIVERGENT_UPDATE),
])  # fmt: skip
def test_conflicts_name_the_path_and_the_kind(base: Any, ours: Any, theirs: Any, field: Any, kind: Any) -> None:
    [conflict] = merge(base, ours, theirs).conflicts
    assert (conflict.field, conflict.kind) == (field, kind)


def test_arrays_merge_by_the_identity_of_elements() -> None:
    base = {"items": [{"id": 1, "n": 1}, {"id": 2, "n": 1}, {"id": 3, "n": 1}]}
    ours = {"items": [{"id": 1, "n": 5}, {"id": 2, "n": 1}]}
    theirs = {"items": [{"id": 2, "n": 7}, {"id": 1, "n": 1}, {"id": 9, "n": 1}, {"id": 3, "n": 1}]}
    merged = merge(base, ours, theirs)
    assert merged.tree == {"items": [{"id": 2, "n": 7}, {"id": 1, "n": 5}, {"id": 9, "n": 1}]}
    [conflict] = merge(base, {"items": [{"id": 1, "n": 5}]}, {"items": [{"id": 1, "n": 6}]}).conflicts
    assert conflict.field == "/items/id=1/n"


def test_elements_without_identity_merge_by_position_while_nothing_moved() -> None:
    assert merge({"a": [1, 2]}, {"a": [5, 2]}, {"a": [1, 6]}).tree == {"a": [5, 6]}
    assert merge({"a": [1, 2]}, {"a": [5, 2]}, {"a": [1, 2, 3]}).tree == {"a": [5, 2, 3]}
    assert merge({"a": [1, 2, 3]}, {"a": [2, 3]}, {"a": [1, 2]}).conflicts


def test_values_of_the_users_own_settle_fields_and_documents() -> None:
    sides = ({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 3, "b": 4})
    assert merge(*sides, Decisions(None, [Resolution("documents", "d", "/a", Value(9))])).tree == {"a": 9, "b": 4}
    assert merge(*sides, Decisions(None, [Resolution("documents", "d", None, Value({"z": 1}))])).tree == {"z": 1}
    assert merge(*sides, Decisions(None, [Resolution("documents", "d", None, Value(None))])).tree is None
    assert merge(*sides, Decisions(None, [Resolution("documents", "d", "/a", "base")])).tree == {"a": 1, "b": 4}


def test_a_virtual_base_disputes_what_its_parts_conflict_on() -> None:
    virtual = virtual_tree({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 3, "b": 5})
    assert isinstance(virtual, dict)
    assert isinstance(virtual["a"], Disputed)
    assert virtual["b"] == 5
    [conflict] = merge(virtual, {"a": 2, "b": 5}, {"a": 3, "b": 5}).conflicts
    assert (conflict.field, conflict.base) == ("/a", None)
    assert merge(virtual, {"a": 2, "b": 5}, {"a": 2, "b": 6}).tree == {"a": 2, "b": 6}
    inserted = virtual_tree(None, {"a": 1, "b": 1}, {"a": 2, "b": 1})
    assert isinstance(inserted, dict)
    assert isinstance(inserted["a"], Disputed)
    assert inserted["b"] == 1
    assert isinstance(virtual_tree({"a": 1}, None, {"a": 2}), Disputed)


def test_differing_fields_are_leaves() -> None:
    assert list(differing({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": 1, "c": 3}, "e": 1})) == ["/a/c", "/d", "/e"]
    assert list(differing(None, {"a": {"x~/y": 1}})) == ["/a"]
    assert not same_json({"a": 1}, {"a": True})
    assert same_json({"a": 1}, {"a": 1.0})
