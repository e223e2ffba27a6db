"""The rules of merging one entity: edits, merges of documents, and virtual bases with what is disputed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from documents_model import Unfit, equal, patched
from documents_strategies import documents, patch_lists
from hypothesis import given

from ontolake.documents import patches, threeway
from ontolake.documents.threeway import GONE, DocumentOutcome
from ontolake.history.threeway import Disputed


def test_what_only_the_source_changed_is_taken() -> None:
    assert threeway.merge({"a": 1}, {"a": 2}, {"a": 1}) == threeway.TAKE
    assert threeway.merge(None, {"a": 2}, None) == threeway.TAKE
    assert threeway.merge({"a": 1}, None, {"a": 1}) == threeway.TAKE


@pytest.mark.parametrize(
    ("base", "source", "target"),
    [({"a": 1}, {"a": 1}, {"a": 2}), ({"a": 1}, {"a": 1}, None), ({"a": 1}, {"a": 2}, {"a": 2}), ({"a": 1}, None, None),
     (None, {"a": 1}, {"a": 1}), (None, None, {"a": 1}),
     ({"a": {"b": 1}, "c": 1}, {"a": {"b": 2}, "c": 1}, {"a": {"b": 2}})],
)  # fmt: skip
def test_what_the_source_left_alone_or_both_did_alike_stays(base: Any, source: Any, target: Any) -> None:
    assert threeway.merge(base, source, target) == threeway.NOTHING


@pytest.mark.parametrize(
    ("base", "source", "target", "paths"),
    [
        ({"a": 1}, {"a": 2}, {"a": 3}, ("/a",)),
        ({"a": 1}, None, {"a": 2}, ("",)),
        ({"a": 1}, {"a": 2}, None, ("",)),
        (None, {"a": 1}, {"a": 2}, ("",)),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, {}, ("/a/b",)),
        ({"a": {"b": 1}}, {"a": 5}, {"a": {"b": 2}}, ("/a/b",)),
        ({"a": [1, 2]}, {"a": [1, 2, 3]}, {"a": [0, 1, 2]}, ("/a",)),
        ({}, {"x": {"y": 1}}, {"x": {"z": 1}}, ("/x",)),
        ({"t": 1}, {"t": True}, {"t": 2}, ("/t",)),
        ({"a~b": {"c/d": 1}}, {"a~b": {"c/d": 2}}, {"a~b": {"c/d": 3}}, ("/a~0b/c~1d",)),
    ],
)
def test_changes_that_meet_are_conflicts_with_their_paths(base: Any, source: Any, target: Any, paths: Any) -> None:
    assert threeway.merge(base, source, target) == DocumentOutcome("conflict", paths=paths)


def test_changes_to_separate_fields_are_combined() -> None:
    base = {"a": 1, "b": {"c": 1, "d": 1}, "gone": 1, "l": [1]}
    source = {"a": 1, "b": {"c": 2, "d": 1, "e": {"f": 1}}, "l": [1, 2]}
    target = {"a": 9, "b": {"c": 1, "d": 9}, "gone": 1, "l": [1], "new": 9}
    outcome = threeway.merge(base, source, target)
    assert outcome.kind == "combine"
    merged = patches.apply(target, patches.seal(outcome.patches)[1])
    assert merged == {"a": 9, "b": {"c": 2, "d": 9, "e": {"f": 1}}, "l": [1, 2], "new": 9}


def test_a_combination_puts_adds_and_removes() -> None:
    base = {"a": {"n": 1, "old": 1, "o~/": {"k": 1}}, "top": 1, "list": [1]}
    source = {"a": {"n": 2, "o~/": {"k": 1, "new": 2}}, "list": [1], "made": {}}
    target = {**base, "other": 1}
    outcome = threeway.merge(base, source, target)
    assert outcome.kind == "combine"
    assert outcome.paths == ()
    assert sorted(outcome.patches, key=lambda patch: patch["path"]) == [
        {"op": "replace", "path": "/a/n", "value": 2},
        {"op": "remove", "path": "/a/old"},
        {"op": "add", "path": "/a/o~0~1/new", "value": 2},
        {"op": "add", "path": "/made", "value": {}},
        {"op": "remove", "path": "/top"},
    ]


def test_what_both_did_alike_is_not_done_again() -> None:
    base = {"a": 1, "b": 1, "c": 1}
    outcome = threeway.merge(base, {"a": 2, "c": 2}, {"a": 2, "c": 1, "d": 1})
    assert outcome == DocumentOutcome("combine", [{"op": "replace", "path": "/c", "value": 2}])


def test_all_conflicts_are_named_in_order() -> None:
    base = {"z": 1, "a": {"b": {"c": 1}, "d": 1}, "free": 1, "agreed": 1}
    source = {"z": 2, "a": {"b": 7}, "free": 2, "agreed": 2}
    target = {"z": 3, "a": {"b": {"c": 2}, "d": 2}, "free": 1, "agreed": 2}
    assert threeway.merge(base, source, target) == DocumentOutcome("conflict", paths=("/a/b/c", "/a/d", "/z"))


def test_removal_against_a_change_is_a_conflict_and_against_removal_is_none() -> None:
    assert threeway.merge({"a": 1, "b": 1}, {"b": 1}, {"a": 2, "b": 1}).paths == ("/a",)
    assert threeway.merge({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"b": 1}).paths == ("/a",)
    assert threeway.merge({"a": 1, "b": 1}, {"b": 1}, {"b": 2}) == threeway.NOTHING


def test_on_a_disputed_base_all_that_differs_is_a_conflict() -> None:
    assert threeway.merge(Disputed(), {"a": 1}, {"a": 2}) == DocumentOutcome("conflict", paths=("",))
    assert threeway.merge(Disputed(), {"a": 1}, None) == DocumentOutcome("conflict", paths=("",))
    assert threeway.merge(Disputed(), {"a": 1}, {"a": 1}) == threeway.NOTHING


def test_a_disputed_field_conflicts_unless_both_sides_have_the_same() -> None:
    base = {"x": Disputed(), "y": 1}
    assert threeway.merge(base, {"x": 1, "y": 1}, {"x": 2, "y": 1}) == DocumentOutcome("conflict", paths=("/x",))
    assert threeway.merge(base, {"x": 1, "y": 1}, {"y": 1}) == DocumentOutcome("conflict", paths=("/x",))
    agreed = threeway.merge(base, {"x": 1, "y": 2}, {"x": 1, "y": 1, "z": 1})
    assert agreed == DocumentOutcome("combine", [{"op": "replace", "path": "/y", "value": 2}])


# edits


@pytest.mark.parametrize(("before", "after", "found"), [
    ({}, {}, {}),
    ({"a": 1}, {"a": 1.0}, {}),
    ({"a": 1}, {"a": True}, {("a",): True}),
    ({"a": 1}, {"b": 1}, {("a",): GONE, ("b",): 1}),
    ({"a": {"b": 1, "c": 1}}, {"a": {"b": 2, "d": 1}}, {("a", "b"): 2, ("a", "c"): GONE, ("a", "d"): 1}),
    ({"a": {"b": {"c": 1}}}, {"a": {"b": {}}}, {("a", "b", "c"): GONE}),
    ({"a": {"b": 1}}, {"a": 1}, {("a",): 1}),
    ({"a": 1}, {"a": {"b": 1}}, {("a",): {"b": 1}}),
    ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, {("a",): [{"b": 2}]}),
    ({"a": {}}, {"a": None}, {("a",): None}),
    ({"a": {}}, {"a": []}, {("a",): []}),
])
def test_edits_are_the_paths_at_which_documents_differ(before: Any, after: Any, found: Any) -> None:
    assert threeway.edits(before, after) == found


def test_edits_come_in_the_order_of_the_documents() -> None:
    before = dict.fromkeys("qwertz", 1)
    after = dict.fromkeys("yxcv", 1)
    assert "".join(key for (key,) in threeway.edits(before, after)) == "qwertzyxcv"


# virtual bases


DISPUTED = "disputed"


def shown(base: Any) -> Any:
    """A base with a word in place of what is disputed, which equals nothing."""
    if isinstance(base, dict):
        return {key: shown(value) for key, value in base.items()}
    return DISPUTED if isinstance(base, Disputed) else base


@pytest.mark.parametrize(("base", "ours", "theirs", "merged"), [
    ({"a": 1}, {"a": 1}, {"a": 1}, {"a": 1}),
    ({"a": 1}, {"a": 2}, {"a": 1}, {"a": 2}),
    ({"a": 1}, {"a": 1}, {"a": 2}, {"a": 2}),
    ({"a": 1}, None, {"a": 1}, None),
    ({"a": 1}, {"a": 1}, None, None),
    (None, None, {"a": 1}, {"a": 1}),
    # Each side changed something else.
    ({"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 1}, {"a": 1, "c": 1, "d": 1}, {"a": 2, "d": 1}),
    ({"o": {"a": 1, "b": 1}}, {"o": {"a": 2, "b": 1}}, {"o": {"a": 1}}, {"o": {"a": 2}}),
    # One is not a document: all is disputed.
    (None, {"a": 1}, {"a": 2}, DISPUTED),
    ({"a": 1}, None, {"a": 2}, DISPUTED),
    ({"a": 1}, {"a": 2}, None, DISPUTED),
    (Disputed(), {"a": 1}, {"a": 2}, DISPUTED),
    ({"a": 1}, Disputed(), {"a": 2}, DISPUTED),
    # Only what clashes is disputed; what both did alike is not.
    ({"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 2, "c": 2}, {"a": 3, "b": 2, "c": 1}, {"a": DISPUTED, "b": 2, "c": 2}),
    ({"o": {"a": 1}}, {"o": {"a": 2}}, {"o": {"a": 3}}, {"o": {"a": DISPUTED}}),
    ({"a": 1}, {}, {"a": 2}, {"a": DISPUTED}),
    ({"a": 1}, {"a": 2}, {}, {"a": DISPUTED}),
    # Of two paths that meet the shorter one is disputed, whoever wrote it.
    ({"o": {"p": {"a": 1}}}, {"o": {"p": {"a": 2}}}, {"o": {"p": 3}}, {"o": {"p": DISPUTED}}),
    ({"o": {"p": {"a": 1}}}, {"o": {"p": 3}}, {"o": {"p": {"a": 2}}}, {"o": {"p": DISPUTED}}),
    ({"o": {"a": 1, "b": 1}}, {"o": {"a": 2, "b": 2}}, {}, {"o": DISPUTED}),
    ({"o": {"a": 1, "b": 1}}, {}, {"o": {"a": 2, "b": 2}}, {"o": DISPUTED}),
    ({"o": {"a": 1}}, {"o": 5, "x": 1}, {"o": {"a": 1, "b": 1}, "y": 1}, {"o": DISPUTED, "x": 1, "y": 1}),
    # What is disputed below stays disputed unless both sides agree.
    ({"a": Disputed(), "b": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 2}),
    ({"a": Disputed()}, {"a": 1}, {"a": 2}, {"a": DISPUTED}),
])
def test_a_virtual_base_is_disputed_where_its_parts_clash(base: Any, ours: Any, theirs: Any, merged: Any) -> None:
    before = copy.deepcopy((shown(base), shown(ours), shown(theirs)))
    assert shown(threeway.virtual(base, ours, theirs)) == merged
    assert (shown(base), shown(ours), shown(theirs)) == before, "what is merged does not change"


@pytest.mark.parametrize(("base", "left"), [
    (None, None),
    (Disputed(), None),
    ({}, {}),
    ({"a": 1, "b": Disputed(), "o": {"c": Disputed(), "d": [1]}}, {"a": 1, "o": {"d": [1]}}),
])
def test_what_is_disputed_is_not_shown(base: Any, left: Any) -> None:
    assert threeway.undisputed(base) == left


# at random


@given(documents, patch_lists, patch_lists)
def test_a_merge_brings_every_change_of_both_sides_or_is_a_conflict(base: Any, one: Any, two: Any) -> None:
    try:
        source, target = patched(base, one), patched(base, two)
    except Unfit:
        return
    outcome = threeway.merge(base, source, target)
    if outcome.kind == "conflict":
        assert not equal(source, base)
        assert not equal(target, base)
        assert outcome.paths
        return
    merged = {"nothing": target, "take": source}.get(outcome.kind)
    if merged is None:
        merged = patches.apply(target, patches.seal(outcome.patches)[1])
    for side in (source, target):
        for path, value in threeway.edits(base, side).items():
            holder: Any = merged
            for token in path[:-1]:
                holder = holder[token]
            if value is GONE:
                assert path[-1] not in holder
            else:
                assert equal(holder[path[-1]], value)
    wanted = threeway.edits(base, source).keys() | threeway.edits(base, target).keys()
    assert threeway.edits(base, merged).keys() <= wanted


@given(documents, documents)
def test_edits_lead_from_one_document_to_the_other(before: Any, after: Any) -> None:
    listed = [threeway._patch(before, path, value) for path, value in threeway.edits(before, after).items()]
    result = patches.apply(before, patches.seal(listed)[1]) if listed else before
    assert equal(result, after)


@given(documents, patch_lists, patch_lists)
def test_a_virtual_base_has_what_a_merge_has(base: Any, one: Any, two: Any) -> None:
    """What merges cleanly is the same in both; what conflicts is disputed, and nothing else is."""
    try:
        source, target = patched(base, one), patched(base, two)
    except Unfit:
        return
    outcome, virtual = threeway.merge(base, source, target), threeway.virtual(base, target, source)
    if outcome.kind == "conflict":
        assert not equal(threeway.undisputed(virtual), virtual)
        return
    merged = {"nothing": target, "take": source}.get(outcome.kind)
    if merged is None:
        merged = patches.apply(target, patches.seal(outcome.patches)[1])
    assert equal(virtual, merged)
