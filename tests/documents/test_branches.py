"""Branches see what their parents were when they left them, and nothing is copied, lost or used twice."""

from __future__ import annotations

from typing import Any

import pytest
from documents_support import OpenSpace, add, everything, increment, rows, write

from ontolake.documents import (
    BranchError,
    BranchExistsError,
    BranchNameError,
    BranchPointError,
    Delete,
    Patch,
    ProtocolError,
    Set,
    Space,
    UnknownBranchError,
)
from ontolake.documents.values import codec
from ontolake.errors import AlreadyExists, Invalid, NotFound
from ontolake.history import Branch


def test_a_space_starts_with_one_branch(space: Space) -> None:
    assert space.branches.list() == [Branch("", 0, None, None)]


def test_a_new_branch_starts_at_the_head_of_its_parent(space: Space) -> None:
    write(space, Set("a", {"n": 1}))
    branch = space.branches.create("side")
    assert branch == Branch("side", 2, 1, "")
    assert space.branches.list() == [Branch("", 1, None, None), branch]
    assert space.read("a", branch="side").document == {"n": 1}


def test_writes_on_either_side_stay_there(space: Space) -> None:
    write(space, Set("a", {"n": 1}), Set("b", {}))
    space.branches.create("side")
    write(space, Set("a", {"n": 2}))
    write(space, Delete("b"), Set("c", {}), branch="side")
    assert space.read("a", branch="side").document == {"n": 1}
    assert space.read("a").document == {"n": 2}
    assert (space.read("b").exists, space.read("b", branch="side").deleted) == (True, True)
    assert (space.read("c").exists, space.read("c", branch="side").exists) == (False, True)


def test_a_branch_may_start_in_the_past(space: Space) -> None:
    for number in range(25):
        write(space, Patch("a", [add("/n", number)]))
    space.branches.create("early", at=5)
    space.branches.create("empty", at=0)
    assert space.read("a", branch="early").document == {"n": 4}
    assert space.read("a", branch="empty").document is None
    write(space, Patch("a", [increment()]), branch="early")
    assert space.read("a", branch="early").document == {"n": 5}
    write(space, Patch("a", [add("/fresh")]), branch="empty")
    assert space.read("a", branch="empty").document == {"fresh": 1}


def test_a_patch_on_a_child_starts_from_the_inherited_document_at_any_depth(space: Space) -> None:
    write(space, Set("a", {"path": []}))
    parent = ""
    for depth in range(12):
        name = f"b{depth}"
        space.branches.create(name, parent=parent)
        write(space, Set("a", {"parent": "moved on"}), branch=parent)
        if depth % 3 == 0:
            write(space, Patch("a", [{"op": "append", "path": "/path", "value": depth}]), branch=name)
        parent = name
    assert space.read("a", branch="b11").document == {"path": [0, 3, 6, 9]}
    write(space, Patch("a", [{"op": "append", "path": "/path", "value": "end"}]), branch="b11")
    assert space.read("a", branch="b11").document == {"path": [0, 3, 6, 9, "end"]}


def test_a_grandchild_may_fork_before_its_parent_did(space: Space) -> None:
    write(space, Set("a", {"n": 1}))
    write(space, Set("a", {"n": 2}))
    space.branches.create("child", at=2)
    write(space, Set("a", {"n": 3}), branch="child")
    space.branches.create("grandchild", parent="child", at=1)
    assert space.read("a", branch="grandchild").document == {"n": 1}


def test_the_past_of_a_branch_is_that_of_its_parents_up_to_the_fork(space: Space) -> None:
    write(space, Set("a", {"n": 1}))
    write(space, Set("a", {"n": 2}))
    space.branches.create("child", at=1)  # seq 3
    write(space, Set("a", {"n": 4}))
    write(space, Set("a", {"n": 5}), branch="child")
    states = [space.read("a", branch="child", seq=seq).document for seq in range(6)]
    assert states == [None, {"n": 1}, {"n": 1}, {"n": 1}, {"n": 1}, {"n": 5}]


def test_creating_a_branch_copies_nothing(space: Space) -> None:
    write(space, *(Set(f"e{number}", {}) for number in range(50)))
    before = everything(space)
    space.branches.create("side")
    after = everything(space)
    assert [table for table in after if after[table] != before[table]] == ["commit", "branch"]
    assert (len(after["commit"]), len(after["branch"])) == (2, 2)


def test_creating_and_deleting_are_commits(space: Space) -> None:
    write(space, Set("a", {}))
    space.branches.create("side", session_id="s", local_seq=1)
    space.branches.delete("side", session_id="s", local_seq=2)
    created, deleted = rows(space, "commit")[1:]
    assert created[:4] == (2, "side", "s", 1)
    assert codec.decode(created[6]) == {"localSeq": 1, "command": "branch/create", "name": "side", "parent": "",
                                        "atSeq": None}  # fmt: skip
    assert deleted[:4] == (3, "side", "s", 2)
    assert codec.decode(deleted[6]) == {"localSeq": 2, "command": "branch/delete", "name": "side"}
    assert len(rows(space, "revision")) == 1
    assert rows(space, "branch")[1][:5] == ("side", "", 1, 2, 2)
    assert rows(space, "branch")[1][6] == "deleted"


def test_repeating_a_command_of_a_session_does_it_once(space: Space) -> None:
    first = space.branches.create("side", session_id="s", local_seq=1)
    assert space.branches.create("side", session_id="s", local_seq=1) == first
    space.branches.delete("side", session_id="s", local_seq=2)
    space.branches.delete("side", session_id="s", local_seq=2)
    assert space.last_seq() == 2
    for repeat in (
        lambda: space.branches.create("other", session_id="s", local_seq=1),
        lambda: space.branches.create("side", at=0, session_id="s", local_seq=1),
        lambda: space.branches.delete("side", session_id="s", local_seq=1),
        lambda: space.transact("s", 1, [Set("a", {})]),
    ):
        with pytest.raises(ProtocolError, match="another request"):
            repeat()


def test_the_head_of_a_branch_is_its_newest_change(space: Space) -> None:
    write(space, Set("a", {}))
    space.branches.create("side")
    write(space, Set("a", {}))
    write(space, Set("a", {}), branch="side")
    write(space, Set("a", {}))
    assert {branch.name: branch.head for branch in space.branches.list()} == {"": 5, "side": 4}


# deleting


def test_a_deleted_branch_can_be_read_and_has_children_but_cannot_be_written(space: Space) -> None:
    write(space, Set("a", {"n": 1}))
    space.branches.create("side")
    write(space, Set("a", {"n": 2}), branch="side")
    space.branches.create("child", parent="side")
    space.branches.delete("side")
    assert [branch.name for branch in space.branches.list()] == ["", "child"]
    assert [branch.name for branch in space.branches.list(deleted=True)] == ["", "side", "child"]
    assert space.read("a", branch="side").document == {"n": 2}
    assert space.read("a", branch="child").document == {"n": 2}
    write(space, Set("a", {"n": 3}), branch="child")
    before = space.last_seq()
    with pytest.raises(BranchError, match="can only be read"):
        write(space, Set("a", {}), branch="side")
    with pytest.raises(BranchError, match="was deleted"):
        space.branches.delete("side")
    assert space.last_seq() == before
    assert space.branches.create("again", parent="side").base == 3


def test_what_a_deleted_branch_had_can_still_be_merged(space: Space) -> None:
    space.branches.create("side")
    write(space, Set("a", {}), branch="side")
    space.branches.delete("side")
    assert space.branches.merge("side").commit is not None
    assert space.read("a").exists


def test_the_first_branch_is_never_deleted(space: Space) -> None:
    with pytest.raises(BranchNameError, match="is the first one") as refused:
        space.branches.delete("")
    assert isinstance(refused.value, Invalid)
    assert space.last_seq() == 0


def test_a_name_is_free_again_once_its_branch_is_deleted(space: Space) -> None:
    write(space, Set("a", {"n": 0}))
    space.branches.create("side")
    with pytest.raises(BranchExistsError) as refused:
        space.branches.create("side")
    assert isinstance(refused.value, AlreadyExists)
    write(space, Set("a", {"n": 1}), branch="side")
    space.branches.create("child", parent="side")
    old = space.snapshot(branch="side")
    space.branches.delete("side")
    write(space, Set("b", {}))
    made = space.branches.create("side")
    assert (made.name, made.parent, made.base) == ("side", "", 6)
    with pytest.raises(BranchExistsError):
        space.branches.create("side")
    write(space, Set("c", {}), branch="side")
    assert dict(space.snapshot(branch="side").rows()) == {"a": {"n": 0}, "b": {}, "c": {}}
    assert dict(old.rows()) == dict(space.snapshot(branch="child").rows()) == {"a": {"n": 1}}, "another line of history"
    assert [branch.name for branch in space.branches.list()] == ["", "child", "side"]
    assert [branch.name for branch in space.branches.list(deleted=True)] == ["", "side", "child", "side"]
    assert [change.key for change in space.diff(old, space.snapshot(branch="side"))] == ["a", "b", "c"]
    assert {commit.branch for commit in space.commits(branch="side")} == {"", "side"}
    assert [revision.branch for revision in space.history("c", branch="side")] == ["side"]
    space.branches.merge("child")
    assert space.branches.merge("side").tables == {"documents": (1, 0, 0)}
    assert dict(space.snapshot().rows()) == {"a": {"n": 1}, "b": {}, "c": {}}
    space.branches.delete("side")
    with pytest.raises(BranchError, match="was deleted"):
        write(space, Set("d", {}), branch="side")
    assert list(space.verify()) == []


def test_requests_that_are_repeated_after_a_name_was_used_again_get_their_first_answer(space: Space) -> None:
    space.branches.create("side", session_id="s", local_seq=1)
    first = space.transact("s", 2, [Set("a", {})], branch="side")
    space.branches.delete("side", session_id="s", local_seq=3)
    space.branches.create("side", session_id="s", local_seq=4)
    before = space.last_seq()
    assert space.transact("s", 2, [Set("a", {})], branch="side") == first
    space.branches.delete("side", session_id="s", local_seq=3)
    assert space.branches.create("side", session_id="s", local_seq=4).head == before == space.last_seq()
    assert not space.read("a", branch="side").exists


# bad input


@pytest.mark.parametrize("name", ["", None, 5, "a\nb", "a\0", " side", "\ud800", "x" * 256])
def test_a_name_that_cannot_be_is_refused(native: Space, name: Any) -> None:
    with pytest.raises(BranchNameError):
        native.branches.create(name)
    assert native.last_seq() == 0


@pytest.mark.parametrize("at", [2, -1, 99, 1.5, True])
def test_a_branch_cannot_start_where_its_parent_never_was(native: Space, at: Any) -> None:
    write(native, Set("a", {}))
    with pytest.raises(BranchPointError) as refused:
        native.branches.create("side", at=at)
    assert isinstance(refused.value, NotFound)
    assert native.last_seq() == 1


def test_a_branch_cannot_start_beyond_the_head_of_its_parent(space: Space) -> None:
    """Even if the space has moved on elsewhere."""
    write(space, Set("a", {}))
    space.branches.create("one")
    write(space, Set("a", {}), branch="one")
    with pytest.raises(BranchError, match="never was at seq 3: its newest commit is 1"):
        space.branches.create("two", at=3)


def test_unknown_branches_are_named(space: Space) -> None:
    for use in (
        lambda: space.branches.create("side", parent="no"), lambda: space.branches.delete("no"),
        lambda: space.branches.get("no"), lambda: space.branches.diff("no"), lambda: space.branches.merge("no"),
        lambda: space.branches.merge("", "no"), lambda: space.branches.diff("", "no"),
    ):  # fmt: skip
        with pytest.raises(UnknownBranchError, match="no branch 'no'") as refused:
            use()
        assert isinstance(refused.value, NotFound)
    for name in ("\ud800", ["no"], None):
        with pytest.raises(ProtocolError, match="a branch is named by text"):
            space.branches.get(name)  # type: ignore[arg-type]
    assert space.last_seq() == 0


def test_a_session_needs_both_its_parts(native: Space) -> None:
    for options in ({"session_id": "s"}, {"local_seq": 1}, {"session_id": "", "local_seq": 1}):
        with pytest.raises(ProtocolError):
            native.branches.create("side", **options)


def test_another_connection_learns_of_new_branches(native_place: str, open_here: OpenSpace) -> None:
    one, two = open_here(native_place), open_here(native_place)
    with pytest.raises(UnknownBranchError):
        two.read("a", branch="side")
    one.branches.create("side")
    write(two, Set("a", {}), branch="side")
    assert one.read("a", branch="side").exists
