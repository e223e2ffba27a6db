"""Every patch does what it says, to a copy, or fails and says where."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from documents_model import Unfit, patched
from documents_strategies import documents, patch_lists
from hypothesis import example, given

from ontolake.documents import InvalidOperationError, PatchError
from ontolake.documents.values import patches
from ontolake.documents.values.codec import MAX_BYTES, MAX_DEPTH

DOCUMENT = {"value": {"n": 1, "f": 0.5, "list": [1, 2, 3], "object": {"k": "v"}, "yes": True, "nothing": None}}


def apply(patch: dict[str, Any], document: dict[str, Any] | None = DOCUMENT) -> dict[str, Any]:
    return patches.apply(document, patches.seal([patch])[1])


def result(path: str, op: str, **members: Any) -> dict[str, Any]:
    """What one patch makes of the value of the document above."""
    return apply({"op": op, "path": path, **members})["value"]


class TestReplace:
    def test_puts_a_value_over_another(self) -> None:
        assert result("/value/n", "replace", value={"new": 1})["n"] == {"new": 1}
        assert result("/value/list/2", "replace", value="c")["list"] == [1, 2, "c"]

    def test_may_add_a_key_where_the_parent_exists(self) -> None:
        assert result("/value/object/new", "replace", value=1)["object"] == {"k": "v", "new": 1}

    @pytest.mark.parametrize("path", ["/missing/x", "/value/no/x", "/value/list/3", "/value/list/-", "/value/n/x"])
    def test_needs_the_parent_and_the_index(self, path: str) -> None:
        with pytest.raises(PatchError) as failed:
            apply({"op": "replace", "path": path, "value": 1})
        assert failed.value.path == path

    def test_of_the_root_gives_another_document(self) -> None:
        assert apply({"op": "replace", "path": "", "value": {"x": 1}}) == {"x": 1}


class TestAdd:
    def test_creates_missing_object_parents(self) -> None:
        assert apply({"op": "add", "path": "/a/b/0/c", "value": 1}, {}) == {"a": {"b": {"0": {"c": 1}}}}

    def test_inserts_into_an_array(self) -> None:
        assert result("/value/list/0", "add", value=9)["list"] == [9, 1, 2, 3]
        assert result("/value/list/3", "add", value=9)["list"] == [1, 2, 3, 9]
        assert result("/value/list/-", "add", value=9)["list"] == [1, 2, 3, 9]

    @pytest.mark.parametrize("path", [f"/value/list/{end}" for end in ("4", "01", "x", "-/x", "3/x")])
    def test_never_leaves_a_gap_in_an_array(self, path: str) -> None:
        with pytest.raises(PatchError):
            apply({"op": "add", "path": path, "value": 1})

    def test_does_not_go_through_a_scalar(self) -> None:
        with pytest.raises(PatchError, match="neither an object nor an array"):
            apply({"op": "add", "path": "/value/n/x", "value": 1})


class TestRemove:
    def test_takes_out_a_key_or_an_element(self) -> None:
        assert "n" not in result("/value/n", "remove")
        assert result("/value/list/0", "remove")["list"] == [2, 3]

    @pytest.mark.parametrize("path", ["/missing", "/value/x", "/value/list/3", "/value/list/-", "/value/n/x"])
    def test_of_a_missing_path_is_an_error(self, path: str) -> None:
        with pytest.raises(PatchError):
            apply({"op": "remove", "path": path})


class TestMoveAndCopy:
    def test_move_takes_out_and_adds(self) -> None:
        moved = apply({"op": "move", "from": "/value/n", "path": "/made/here"})
        assert moved["made"] == {"here": 1}
        assert "n" not in moved["value"]
        assert result("/value/list/0", "move", **{"from": "/value/list/2"})["list"] == [3, 1, 2]

    def test_move_onto_itself_changes_nothing(self) -> None:
        assert apply({"op": "move", "from": "/value/list/1", "path": "/value/list/1"}) == DOCUMENT

    def test_move_may_replace_an_ancestor(self) -> None:
        assert apply({"op": "move", "from": "/value/object", "path": ""}) == {"k": "v"}

    def test_copy_leaves_the_source_and_shares_nothing_with_it(self) -> None:
        copied = apply({"op": "copy", "from": "/value/object", "path": "/twin"})
        assert copied["twin"] == copied["value"]["object"]
        assert copied["twin"] is not copied["value"]["object"]

    def test_copy_of_the_whole_document_into_itself_works(self) -> None:
        assert apply({"op": "copy", "from": "", "path": "/old"}, {"a": 1}) == {"a": 1, "old": {"a": 1}}

    @pytest.mark.parametrize("op", ["move", "copy"])
    def test_the_source_must_exist(self, op: str) -> None:
        with pytest.raises(PatchError) as failed:
            apply({"op": op, "from": "/gone", "path": "/x"})
        assert failed.value.path == "/gone"

    def test_copies_that_double_a_document_end_at_the_limit(self) -> None:
        double = [{"op": "copy", "from": "", "path": f"/{number}"} for number in range(10)]
        with pytest.raises(PatchError, match=f"more than {MAX_BYTES:,} bytes"):
            patches.apply({"text": "x" * (MAX_BYTES // 500)}, patches.seal(double)[1])

    def test_no_patch_makes_a_document_too_deep(self) -> None:
        deep = [{"op": "copy", "from": "", "path": "/a" * 20} for _ in range(2 * MAX_DEPTH // 20)]
        with pytest.raises(PatchError, match="nested deeper"):
            patches.apply({}, patches.seal(deep)[1])
        down = [{"op": "add", "path": "/a" * (MAX_DEPTH - 5), "value": {}},
                {"op": "move", "from": "/a", "path": "/b" * 9}]  # fmt: skip
        with pytest.raises(PatchError, match="nested deeper"):
            patches.apply({}, patches.seal(down)[1])


class TestTest:
    def test_passes_or_fails_by_json_equality(self) -> None:
        assert apply({"op": "test", "path": "/value/n", "value": 1.0}) == DOCUMENT
        assert apply({"op": "test", "path": "", "value": DOCUMENT}) == DOCUMENT
        for path, value in [("/value/n", True), ("/value/yes", 1), ("/value/nothing", 0), ("/value/list", [1, 2])]:
            with pytest.raises(PatchError, match="not the one that was tested for"):
                apply({"op": "test", "path": path, "value": value})

    def test_fails_where_there_is_nothing(self) -> None:
        with pytest.raises(PatchError, match="nothing at this path"):
            apply({"op": "test", "path": "/value/x", "value": None})


class TestArrays:
    def test_splice_replaces_a_part(self) -> None:
        assert result("/value/list", "splice", index=1, remove=1, add=["a", "b"])["list"] == [1, "a", "b", 3]
        assert result("/value/list", "splice", index=3, remove=0, add=[4])["list"] == [1, 2, 3, 4]
        assert result("/value/list", "splice", index=0, remove=3, add=[])["list"] == []

    @pytest.mark.parametrize(("index", "remove"), [(4, 0), (3, 1), (0, 4)])
    def test_splice_stays_within_the_array(self, index: int, remove: int) -> None:
        with pytest.raises(PatchError, match="beyond the end of an array of 3"):
            result("/value/list", "splice", index=index, remove=remove, add=[])

    def test_append_adds_one_element_even_if_it_is_a_list(self) -> None:
        assert result("/value/list", "append", value=[4])["list"] == [1, 2, 3, [4]]

    def test_add_unique_adds_only_what_is_new(self) -> None:
        assert result("/value/list", "add-unique", value=3.0)["list"] == [1, 2, 3]
        assert result("/value/list", "add-unique", value=True)["list"] == [1, 2, 3, True]

    def test_remove_by_value_removes_all_that_are_equal_and_may_find_none(self) -> None:
        document = {"l": [1, True, 1.0, {"a": 1}, {"a": 1}]}
        assert apply({"op": "remove-by-value", "path": "/l", "value": 1}, document) == {"l": [True, {"a": 1}, {"a": 1}]}
        assert apply({"op": "remove-by-value", "path": "/l", "value": {"a": 1}}, document) == {"l": [1, True, 1.0]}
        assert apply({"op": "remove-by-value", "path": "/l", "value": "x"}, document) == document

    @pytest.mark.parametrize(("op", "value"), [("add-unique", 2), ("remove-by-value", 9)])
    def test_a_patch_that_changes_nothing_gives_the_document_back_uncopied(self, op: str, value: int) -> None:
        assert apply({"op": op, "path": "/value/list", "value": value}) is DOCUMENT

    @pytest.mark.parametrize("op", ["append", "add-unique", "remove-by-value"])
    @pytest.mark.parametrize("path", ["/value/n", "/value/object", "/value/missing"])
    def test_they_need_an_array(self, op: str, path: str) -> None:
        with pytest.raises(PatchError):
            apply({"op": op, "path": path, "value": 1})


class TestIncrement:
    def test_adds_and_keeps_integers_exact(self) -> None:
        assert result("/value/n", "increment", by=2**60)["n"] == 2**60 + 1
        assert result("/value/f", "increment", by=-0.25)["f"] == 0.25

    @pytest.mark.parametrize("path", ["/value/yes", "/value/nothing", "/value/list", "/value/missing"])
    def test_needs_a_number(self, path: str) -> None:
        with pytest.raises(PatchError):
            apply({"op": "increment", "path": path, "by": 1})

    @pytest.mark.parametrize(("number", "by"), [(2**64 - 1, 1), (-(2**63), -1), (1.7e308, 1.7e308)])
    def test_refuses_a_sum_that_json_readers_would_not_keep(self, number: float, by: float) -> None:
        with pytest.raises(PatchError, match="beyond what JSON readers keep"):
            apply({"op": "increment", "path": "/n", "by": by}, {"n": number})


def test_an_absent_document_counts_as_an_empty_one() -> None:
    assert apply({"op": "add", "path": "/a", "value": 1}, None) == {"a": 1}
    with pytest.raises(PatchError):
        apply({"op": "replace", "path": "/a/b", "value": 1}, None)


def test_a_failure_names_the_patch_and_the_path() -> None:
    listed = [{"op": "add", "path": "/a", "value": 1}, {"op": "remove", "path": "/b"}]
    with pytest.raises(PatchError) as failed:
        patches.apply({}, patches.seal(listed)[1])
    assert (failed.value.patch, failed.value.path) == (1, "/b")


@pytest.mark.parametrize(
    ("patch", "path"),
    [
        ("text", "/0"),
        (None, "/0"),
        ({}, "/0"),
        ({"op": "explode", "path": "/a"}, "/0/op"),
        ({"op": 7, "path": "/a"}, "/0/op"),
        ({"op": "add", "value": 1}, "/0"),
        ({"op": "add", "path": "/a"}, "/0"),
        ({"op": "add", "path": 5, "value": 1}, "/0/path"),
        ({"op": "add", "path": "a", "value": 1}, "/0"),
        ({"op": "add", "path": "/a~2", "value": 1}, "/0"),
        ({"op": "test", "path": "a", "value": 1}, "/0"),
        ({"op": "copy", "path": "/a", "from": "b"}, "/0"),
        ({"op": "add", "path": "/a", "value": 1, "vlaue": 2}, "/0"),
        ({"op": "remove", "path": "/a", "value": 1}, "/0"),
        ({"op": "add", "path": "", "value": [1]}, "/0"),
        ({"op": "replace", "path": "", "value": None}, "/0"),
        ({"op": "remove", "path": ""}, "/0"),
        ({"op": "move", "path": "/a", "from": ""}, "/0"),
        ({"op": "move", "path": "/a/b/c", "from": "/a/b"}, "/0"),
        ({"op": "append", "path": "", "value": 1}, "/0"),
        ({"op": "increment", "path": "", "by": 1}, "/0"),
        ({"op": "increment", "path": "/a", "by": 0}, "/0"),
        ({"op": "increment", "path": "/a", "by": 0.0}, "/0"),
        ({"op": "increment", "path": "/a", "by": "1"}, "/0/by"),
        ({"op": "increment", "path": "/a", "by": True}, "/0/by"),
        ({"op": "increment", "path": "/a", "by": float("nan")}, "/0/by"),
        ({"op": "increment", "path": "/a", "by": float("inf")}, "/0/by"),
        ({"op": "increment", "path": "/a", "by": 2**70}, "/0/by"),
        ({"op": "splice", "path": "/a", "index": 0, "remove": 1}, "/0"),
        ({"op": "splice", "path": "/a", "index": -1, "remove": 1, "add": []}, "/0/index"),
        ({"op": "splice", "path": "/a", "index": 0, "remove": "1", "add": []}, "/0/remove"),
        ({"op": "splice", "path": "/a", "index": 0, "remove": 1, "add": 5}, "/0/add"),
        ({"op": "splice", "path": "/a", "index": 0, "remove": 1, "add": [float("nan")]}, "/0/add/0"),
        ({"op": "add", "path": "/a", "value": {"b": float("nan")}}, "/0/value/b"),
        ({"op": "add", "path": "/a", "value": 2**64}, "/0/value"),
        ({"op": "test", "path": "/a", "value": (1, 2)}, "/0/value"),
        ({"op": "add", "path": "/a" * (MAX_DEPTH + 1), "value": 1}, "/0"),
        ({"op": "add", "path": "/a" * MAX_DEPTH, "value": {}}, "/0"),
        ({"op": "append", "path": "/a" * MAX_DEPTH, "value": 1}, "/0"),
        ({"op": "splice", "path": "", "index": 0, "remove": 0, "add": [1]}, "/0"),
        ({"op": "splice", "path": "/a" * MAX_DEPTH, "index": 0, "remove": 0, "add": [1]}, "/0"),
    ],
)
def test_a_malformed_patch_is_refused_with_its_place(patch: Any, path: str) -> None:
    with pytest.raises(InvalidOperationError) as refused:
        patches.seal([patch], 3)
    assert refused.value.operation == 3
    assert refused.value.path == path


@pytest.mark.parametrize("listed", [[], None, "add", {"op": "remove", "path": "/a"}, iter([])])
def test_patches_come_in_a_list_that_is_not_empty(listed: Any) -> None:
    with pytest.raises(InvalidOperationError, match="a list of at least one patch"):
        patches.seal(listed)


def test_a_path_may_be_as_deep_as_a_document() -> None:
    assert apply({"op": "add", "path": "/a" * MAX_DEPTH, "value": 1}, {})


@pytest.mark.parametrize(("start", "by", "total"), [
    (2**64 - 2, 1, 2**64 - 1), (-(2**63) + 1, -1, -(2**63)), (2**64 - 1, 1, None), (-(2**63), -1, None),
])
def test_an_increment_may_reach_the_greatest_and_least_integer_and_no_further(
    start: int, by: int, total: int | None
) -> None:
    patch = {"op": "increment", "path": "/n", "by": by}
    if total is not None:
        assert apply(patch, {"n": start}) == {"n": total}
    else:
        with pytest.raises(PatchError, match="beyond what JSON readers keep"):
            apply(patch, {"n": start})


def test_copies_of_a_list_may_take_all_the_room_and_not_a_byte_more(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = patches.seal([{"op": "copy", "from": "/a", "path": "/b"}, {"op": "copy", "from": "/a", "path": "/c"}])[1]
    document = {"a": "12345678"}  # ten bytes as JSON
    monkeypatch.setattr(patches, "MAX_BYTES", 20)
    assert patches.apply(document, twice) == {"a": "12345678", "b": "12345678", "c": "12345678"}
    monkeypatch.setattr(patches, "MAX_BYTES", 19)
    with pytest.raises(PatchError, match="more than 19 bytes") as caught:
        patches.apply(document, twice)
    assert caught.value.patch == 1


@pytest.mark.parametrize("op", ["copy", "move"])
def test_a_value_may_be_copied_or_moved_as_deep_as_a_document_goes_and_no_deeper(op: str) -> None:
    fits = {"op": op, "from": "/value", "path": "/a" * (MAX_DEPTH - 2)}
    assert apply(fits, {"value": {"k": {"j": 1}}})
    with pytest.raises(PatchError, match="deep"):
        apply({**fits, "path": "/a" * (MAX_DEPTH - 1)}, {"value": {"k": {"j": 1}}})


@pytest.mark.parametrize(("patch", "written"), [
    ({"op": "add", "path": "/list/2", "value": 1}, [("list",)]),
    ({"op": "add", "path": "/list/-", "value": 1}, [("list",)]),
    ({"op": "add", "path": "/object/key", "value": 1}, [("object", "key")]),
    ({"op": "remove", "path": "/a/b/0"}, [("a", "b")]),
    ({"op": "remove", "path": "/a/b/c"}, [("a", "b", "c")]),
    ({"op": "move", "from": "/x/1", "path": "/y/k"}, [("x",), ("y", "k")]),
    ({"op": "copy", "from": "/x/1", "path": "/y/0"}, [("y",)]),
    ({"op": "replace", "path": "/list/2", "value": 1}, [("list", "2")]),
])
def test_what_goes_into_an_array_or_out_of_it_moves_all_behind_it(
    patch: dict[str, Any], written: list[tuple[str, ...]]
) -> None:
    [sealed] = patches.seal([patch])[1]
    assert list(sealed.written()) == written


@given(documents, patch_lists)
@example({"list": [{"a": 1}]}, [{"op": "copy", "path": "/list/0/b", "from": ""}])
def test_patching_agrees_with_the_naive_way_and_changes_nothing_it_was_given(
    document: dict[str, Any], listed: list[dict[str, Any]]
) -> None:
    before, listed_before = copy.deepcopy(document), copy.deepcopy(listed)
    sealed = patches.seal(listed)[1]
    try:
        expected: Any = patched(document, listed)
    except Unfit:
        with pytest.raises(PatchError):
            patches.apply(document, sealed)
    else:
        assert repr(_ordered(patches.apply(document, sealed))) == repr(_ordered(expected))
        assert repr(_ordered(patches.apply(document, sealed))) == repr(_ordered(expected)), "patches are not used up"
    assert document == before
    assert listed == listed_before


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value)}
    return [_ordered(element) for element in value] if isinstance(value, list) else value
