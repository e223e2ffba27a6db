"""A transaction is refused when something that it read has changed: too often at times, too seldom never."""

from __future__ import annotations

from typing import Any

import pytest
from documents_model import Unfit, equal, patched
from documents_strategies import any_paths, documents, patch_lists
from documents_support import add, remove, replace, write
from hypothesis import given

from ontolake.documents import (
    ConflictError,
    Delete,
    FutureSeqError,
    Patch,
    PendingRead,
    ProtocolError,
    Read,
    Reads,
    Set,
    Space,
    UnknownBranchError,
)
from ontolake.documents.values import codec, edits
from ontolake.documents.write.conflicts import Later, first_conflict
from ontolake.history import pointers

START = {"value": {"a": {"x": 1, "y": {"z": 2}}, "b": 1, "list": [{"k": 1}, {"k": 2}]}}


def confirmed(*reads: Read) -> Reads:
    return Reads(confirmed=reads)


MISSING = object()


def look(document: dict[str, Any], path: str) -> Any:
    try:
        return edits.look_up(document, pointers.parse(path))
    except KeyError:
        return MISSING


def conflict(document: dict[str, Any], listed: list[dict[str, Any]], path: str, *, shallow: bool) -> bool:
    later = [Later(7, "patch", codec.encode(listed))]
    return first_conflict(later, pointers.parse(path), shallow=shallow, before=lambda: document) == 7


@given(documents, patch_lists, any_paths)
def test_no_change_of_what_was_read_goes_unnoticed(document: Any, listed: Any, path: str) -> None:
    try:
        after = patched(document, listed)
    except Unfit:
        return
    before, now = look(document, path), look(after, path)
    changed = (before is MISSING) != (now is MISSING) or (before is not MISSING and not equal(before, now))
    if changed:
        assert conflict(document, listed, path, shallow=False)
    if _keys(before) != _keys(now):
        assert conflict(document, listed, path, shallow=True)


def _keys(value: Any) -> Any:
    return set(value) if isinstance(value, dict) else len(value) if isinstance(value, list) else repr(value)


@pytest.mark.parametrize(
    ("path", "listed", "expected"),
    [
        ("/value/a", [replace("/value/a/x")], True),
        ("/value/a/y/z", [replace("/value/a", {})], True),
        ("/value/a/x", [replace("/value/a/x")], True),
        ("/value/a/x", [replace("/value/a/y")], False),
        ("/value/b", [replace("/value/a/x"), add("/value/c")], False),
        ("", [replace("/value/b")], True),
        ("/value/a", [{"op": "test", "path": "/value/a/x", "value": 1}], False),
        ("/value/b", [{"op": "move", "from": "/value/b", "path": "/value/c"}], True),
        ("/value/c", [{"op": "move", "from": "/value/b", "path": "/value/c"}], True),
        ("/value/b", [{"op": "copy", "from": "/value/b", "path": "/value/c"}], False),
        ("/value/list/1/k", [add("/value/list/0", {})], True),  # everything behind has moved
        ("/value/list/1/k", [remove("/value/list/0")], True),
        ("/value/list/1", [replace("/value/list/0/k")], False),
        ("/value/list/1", [replace("/value/list/0", {})], False),
        ("/value/list/0", [{"op": "append", "path": "/value/list", "value": 1}], True),
    ],
)
def test_a_patch_conflicts_with_a_recursive_read_when_one_path_leads_to_the_other(
    path: str, listed: Any, expected: bool
) -> None:
    assert conflict(START, listed, path, shallow=False) is expected


@pytest.mark.parametrize(
    ("path", "listed", "expected"),
    [
        ("/value/a", [replace("/value/a/x")], False),
        ("/value/a", [replace("/value/a/y/z")], False),
        ("/value/a", [add("/value/a/x", 5)], False),
        ("/value/a", [replace("/value/a/new")], True),
        ("/value/a", [add("/value/a/new/deep")], True),
        ("/value/a", [add("/value/a/y/deep/er")], False),
        ("/value/a", [remove("/value/a/x")], True),
        ("/value/a", [replace("/value/a", {"x": 1, "y": 1})], True),
        ("/value/a", [replace("/value", {})], True),
        ("/value/a", [replace("/value/b")], False),
        ("/value/list", [add("/value/list/-", 1)], True),
        ("/value/list", [replace("/value/list/0/k")], False),
        ("/value/list/1", [add("/value/list/0", {"k": 0})], True),
        ("", [replace("/value/b")], False),
        ("", [add("/source")], True),
    ],
)
def test_a_patch_conflicts_with_a_shallow_read_only_when_the_keys_of_that_container_changed(
    path: str, listed: Any, expected: bool
) -> None:
    assert conflict(START, listed, path, shallow=True) is expected


def test_keys_that_changed_and_changed_back_conflict_with_a_shallow_read() -> None:
    there, back = codec.encode([add("/value/a/n")]), codec.encode([remove("/value/a/n")])
    later = [Later(7, "patch", there), Later(8, "patch", back)]
    assert first_conflict(later, ("value", "a"), shallow=True, before=lambda: START) == 7


# through transactions


def test_reads_that_still_stand_let_the_transaction_through(space: Space) -> None:
    write(space, Set("a", START), Set("b", START))
    seen = space.read("a")
    write(space, Set("b", {"other": True}))
    write(space, Patch("a", [replace("/value/b")]))
    commit = write(space, Set("c", {}), reads=confirmed(seen.as_read("/value/a")))
    assert commit.seq == 4


@pytest.mark.parametrize("operation", [Set("a", START), Delete("a")])
def test_a_later_set_or_delete_always_conflicts(space: Space, operation: Any) -> None:
    write(space, Set("a", START))
    write(space, operation)
    for shallow in (False, True):
        with pytest.raises(ConflictError) as refused:
            write(space, Set("b", {}), reads=confirmed(Read("a", "/value/b", 1, shallow=shallow)))
        assert (refused.value.of, refused.value.seq, refused.value.conflict_seq) == ("a", 1, 2)
    assert space.last_seq() == 2


def test_the_first_conflict_is_the_one_that_is_named(space: Space) -> None:
    for _ in range(4):
        write(space, Set("a", START))
    with pytest.raises(ConflictError) as refused:
        write(space, Set("b", {}), reads=confirmed(Read("a", "", 2)))
    assert refused.value.conflict_seq == 3


def test_a_read_of_what_is_not_there_conflicts_with_its_creation(space: Space) -> None:
    absent = space.read("a")
    write(space, Patch("a", [add("/value/x")]))
    with pytest.raises(ConflictError):
        write(space, Set("b", {}), reads=confirmed(absent.as_read()))
    write(space, Set("b", {}), reads=confirmed(Read("a", "/value/y", 0)))


def test_own_later_commits_conflict_with_a_confirmed_read_too(space: Space) -> None:
    space.transact("me", 1, [Set("a", START)])
    space.transact("me", 2, [Set("a", START)])
    with pytest.raises(ConflictError):
        space.transact("me", 3, [Set("b", {})], reads=confirmed(Read("a", "", 1)))


def test_a_read_from_the_future_breaks_the_protocol(space: Space) -> None:
    write(space, Set("a", START))
    with pytest.raises(FutureSeqError) as refused:
        write(space, Set("b", {}), reads=confirmed(Read("a", "", 2)))
    assert isinstance(refused.value, ProtocolError)
    assert space.last_seq() == 1


@pytest.mark.parametrize(
    "reads",
    [
        Reads(confirmed=[Read("", "", 0)]),
        Reads(confirmed=[Read("a", "x", 0)]),
        Reads(confirmed=[Read("a", 5, 0)]),  # type: ignore[arg-type]
        Reads(confirmed=[Read("a", "", -1)]),
        Reads(confirmed=[Read("a", "", True)]),
        Reads(confirmed=[Read("a", "", 2**63)]),
        Reads(confirmed=["a"]),  # type: ignore[list-item]
        Reads(confirmed=5),  # type: ignore[arg-type]
        Reads(confirmed=[Read("a", "", 0, shallow=object())]),  # type: ignore[arg-type]
        Reads(pending=None),  # type: ignore[arg-type]
        Reads(pending=[PendingRead("a", "", 1, 0)]),  # type: ignore[arg-type]
        Reads(pending=[PendingRead("a", "", iter([1]), 0)]),  # type: ignore[arg-type]
        Reads(pending=[PendingRead("a", "", [], 0)]),
        Reads(pending=[PendingRead("a", "", [-1], 0)]),
        Reads(pending=[PendingRead("a", "", [1], -1)]),
        Reads(pending=[PendingRead("a", "~", [1], 0)]),
        "reads",
    ],
)
def test_malformed_reads_are_refused(native: Space, reads: Any) -> None:
    with pytest.raises(ProtocolError):
        write(native, Set("b", {}), reads=reads)
    assert native.last_seq() == 0


# pending reads


def pending(id: str, local_seqs: list[int], basis: int, path: str = "") -> Reads:
    return Reads(pending=[PendingRead(id, path, local_seqs, basis)])


def test_a_pending_read_overlooks_the_commits_it_names(space: Space) -> None:
    space.transact("me", 1, [Set("a", START)])
    space.transact("me", 2, [Patch("a", [replace("/value/b", 2)])])
    space.transact("me", 3, [Patch("a", [replace("/value/b", 3)])])
    commit = space.transact("me", 4, [Set("b", {})], reads=pending("a", [3, 2], 1))
    assert commit.resolved_pending_reads == ((2, 2), (3, 3))


def test_a_pending_read_sees_the_commits_it_does_not_name(space: Space) -> None:
    space.transact("me", 1, [Set("a", START)])
    space.transact("me", 2, [Patch("a", [replace("/value/b", 2)])])
    space.transact("you", 1, [Patch("a", [replace("/value/b", 3)])])
    with pytest.raises(ConflictError) as refused:
        space.transact("me", 3, [Set("b", {})], reads=pending("a", [2], 1, "/value/b"))
    assert (refused.value.seq, refused.value.conflict_seq) == (1, 3)
    space.transact("me", 3, [Set("b", {})], reads=pending("a", [2], 1, "/value/a"))


def test_a_pending_read_of_a_commit_that_was_never_accepted_is_refused(space: Space) -> None:
    space.transact("me", 1, [Set("a", START)])
    space.transact("you", 2, [Set("c", START)])
    with pytest.raises(ConflictError, match="local_seq 2, which was never accepted") as refused:
        space.transact("me", 3, [Set("b", {})], reads=pending("a", [1, 2], 0))
    assert refused.value.conflict_seq is None
    assert space.last_seq() == 2


@pytest.mark.parametrize("local_seq", [3, 4])
def test_a_pending_read_names_earlier_commits_only(space: Space, local_seq: int) -> None:
    space.transact("me", 4, [Set("a", START)])
    with pytest.raises(ProtocolError, match="not before 3"):
        space.transact("me", 3, [Set("b", {})], reads=pending("a", [local_seq], 0))


def test_a_basis_above_the_head_breaks_the_protocol(space: Space) -> None:
    space.transact("me", 1, [Set("a", START)])
    with pytest.raises(ProtocolError, match="names seq 2, but the last commit is 1"):
        space.transact("me", 2, [Set("b", {})], reads=pending("a", [1], 2))


# branches


def test_a_read_is_checked_on_the_branch_it_names(space: Space) -> None:
    write(space, Set("a", START))
    space.branches.create("side")
    write(space, Set("a", {"main": True}))
    write(space, Set("x", {}), branch="side", reads=confirmed(Read("a", "", 1)))
    with pytest.raises(ConflictError):
        write(space, Set("x", {}), branch="side", reads=confirmed(Read("a", "", 1, branch="")))
    with pytest.raises(UnknownBranchError):
        write(space, Set("x", {}), reads=confirmed(Read("a", "", 1, branch="nowhere")))


def test_the_scan_sees_what_the_parents_wrote_up_to_the_fork(space: Space) -> None:
    write(space, Set("a", START))
    write(space, Patch("a", [replace("/value/b")]))
    space.branches.create("child")
    space.branches.create("grandchild", parent="child")
    write(space, Set("a", {"after": "the fork"}))
    for branch in ("child", "grandchild"):
        with pytest.raises(ConflictError) as refused:
            write(space, Set("x", {}), branch=branch, reads=confirmed(Read("a", "", 1)))
        assert refused.value.conflict_seq == 2
        write(space, Set("x", {}), branch=branch, reads=confirmed(Read("a", "", 2)))
