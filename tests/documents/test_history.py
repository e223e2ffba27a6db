"""A space speaks the one vocabulary of history: commits, changes, snapshots, branches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from documents_support import add, increment, write

from ontolake.documents import Delete, Patch, Set, Space
from ontolake.errors import Invalid, NotFound
from ontolake.history import Branched, Change, ChangeKind, Maintained, Ref, net


def changes(space: Space, *args: Any, **options: Any) -> list[tuple[int, str, Any, Any]]:
    return [(change.commit, change.key, change.before, change.after) for change in space.changes(*args, **options)]


def test_a_space_is_a_branched_and_maintained_store(space: Space) -> None:
    assert isinstance(space, Branched)
    assert isinstance(space, Maintained)


# commits


def test_commits_come_newest_first_with_their_parents(space: Space) -> None:
    write(space, Set("a", {}))
    write(space, Set("a", {}))
    space.branches.create("side", at=1)
    write(space, Set("a", {}))
    write(space, Set("a", {}), branch="side")
    assert [(commit.seq, commit.parents) for commit in space.commits()] == [(4, (2,)), (2, (1,)), (1, ())]
    assert [(commit.seq, commit.parents) for commit in space.commits(branch="side")] == [(5, (3,)), (3, (1,)), (1, ())]
    assert [commit.seq for commit in space.commits(since=1, until=4)] == [4, 2]
    assert list(space.commits(since=4)) == []


def test_a_commit_is_the_same_when_made_and_when_listed(space: Space) -> None:
    made = [write(space, Set("a", {}))]
    space.branches.create("side")
    made.append(write(space, Set("b", {}), branch="side"))
    made.append(write(space, Set("b", {}), branch="side"))
    made.append(write(space, Set("c", {})))
    merged = space.branches.merge("side").commit
    assert merged is not None
    assert list(space.commits()) == [merged, made[3], made[0]]
    assert list(space.commits(branch="side"))[:2] == [made[2], made[1]]
    assert merged.parents == (5, 4), "the newest commit of each side"


def test_a_commit_says_when_and_by_whom(space: Space) -> None:
    commit = space.transact("session-7", 3, [Set("a", {})])
    assert commit.time is not None
    assert abs(datetime.now(UTC) - commit.time) < timedelta(minutes=1)
    assert (commit.author, commit.session_id, commit.local_seq, commit.branch) == ("session-7", "session-7", 3, "")


@pytest.mark.slow
def test_many_commits_are_listed_page_by_page(native: Space) -> None:
    for number in range(1203):
        write(native, Set("a", {"n": number}))
    listed = list(native.commits())
    assert [commit.seq for commit in listed] == list(range(1203, 0, -1))
    assert [commit.parents for commit in listed] == [(seq,) for seq in range(1202, 0, -1)] + [()]


# changes


def test_changes_tell_what_every_commit_did(space: Space) -> None:
    write(space, Set("a", {"n": 1}), Set("b", {}))
    write(space, Patch("a", [increment()]))
    write(space, Delete("b"), Delete("never"))
    assert list(space.changes(0)) == [
        Change(1, "documents", "a", ChangeKind.INSERT, None, {"n": 1}),
        Change(1, "documents", "b", ChangeKind.INSERT, None, {}),
        Change(2, "documents", "a", ChangeKind.UPDATE, {"n": 1}, {"n": 2}),
        Change(3, "documents", "b", ChangeKind.DELETE, {}, None),
    ]
    assert changes(space, 1, 2) == [(2, "a", {"n": 1}, {"n": 2})]
    assert changes(space, 3) == []


def test_an_entity_changes_at_most_once_a_commit(space: Space) -> None:
    write(space, Set("a", {"n": 1}), Set("b", {}), Patch("a", [increment()]), Delete("b"), Set("c", {}), Delete("c"))
    write(space, Delete("a"), Set("a", {"n": 9}))
    assert changes(space, 0) == [(1, "a", None, {"n": 2}), (2, "a", {"n": 2}, {"n": 9})]


def test_changes_of_a_branch_are_those_it_sees(space: Space) -> None:
    write(space, Set("a", {"n": 1}))
    write(space, Set("a", {"n": 2}))
    space.branches.create("side", at=1)
    write(space, Patch("a", [increment()]), branch="side")
    write(space, Set("a", {"n": 5}))
    space.branches.create("below", parent="side")
    write(space, Delete("a"), branch="below")
    assert changes(space, 0, branch="side") == [(1, "a", None, {"n": 1}), (4, "a", {"n": 1}, {"n": 2})]
    assert changes(space, 2, branch="below") == [(4, "a", {"n": 1}, {"n": 2}), (7, "a", {"n": 2}, None)]
    assert changes(space, 2) == [(5, "a", {"n": 2}, {"n": 5})]


@pytest.mark.slow
def test_many_changes_are_read_page_by_page(native: Space) -> None:
    for number in range(450):
        write(native, Patch("a", [add("/n", number)]), Set(f"e{number}", {}))
    told = changes(native, 0)
    assert [commit for commit, *_ in told] == [number for number in range(1, 451) for _ in range(2)]
    assert told[-2] == (450, "a", {"n": 448}, {"n": 449})
    assert changes(native, 201)[0] == (202, "a", {"n": 200}, {"n": 201})


def test_what_a_change_holds_belongs_to_the_caller(space: Space) -> None:
    for number in range(5):
        write(space, Patch("a", [add(f"/k{number}", [])]))
    for number, change in enumerate(space.changes(0)):
        assert change.before == ({f"k{before}": [] for before in range(number)} if number else None)
        change.after["k0"].append("meddled")
        change.after["mine"] = True
    assert space.read("a").document == {f"k{number}": [] for number in range(5)}
    assert [change.after for change in space.changes(3)] == [
        {f"k{number}": [] for number in range(4)}, {f"k{number}": [] for number in range(5)}]  # fmt: skip


# one entity


def test_the_history_of_an_entity_has_every_operation_and_what_it_led_to(space: Space) -> None:
    write(space, Set("a", {"n": 1}), Patch("a", [increment()]), Set("b", {}))
    space.branches.create("side")
    write(space, Delete("a"), branch="side")
    write(space, Set("a", {"n": 7}))
    told = [(r.seq, r.op_index, r.op, r.data, r.document, r.branch) for r in space.history("a", branch="side")]
    assert told == [
        (1, 0, "set", {"n": 1}, {"n": 1}, ""),
        (1, 1, "patch", [increment()], {"n": 2}, ""),
        (3, 0, "delete", None, None, "side"),
    ]
    assert [revision.seq for revision in space.history("a", since=1)] == [4]
    assert [revision.seq for revision in space.history("a", until=3)] == [1, 1]
    assert list(space.history("never")) == []


def test_a_long_history_is_read_page_by_page(native: Space) -> None:
    write(native, Set("a", {"n": 0}))
    for _ in range(260):
        write(native, Patch("a", [increment()]), Patch("a", [increment()]))
    told = list(native.history("a"))
    assert [revision.document["n"] for revision in told] == list(range(521))
    assert [(revision.seq, revision.op_index) for revision in told[-2:]] == [(261, 0), (261, 1)]


# snapshots


def test_a_snapshot_has_every_living_document_by_id(space: Space) -> None:
    write(space, *(Set(f"e{number:02}", {"n": number}) for number in range(20)))
    write(space, Delete("e03"))
    space.branches.create("side")
    write(space, Set("e03", {"back": True}), Delete("e04"), branch="side")
    first, now, side = space.snapshot(1), space.snapshot(), space.snapshot(branch="side")
    write(space, Set("later", {}))
    assert (first.commit, now.commit, side.commit, side.branch) == (1, 4, 4, "side")
    assert list(now.tables()) == ["documents"]
    assert [key for key, _ in first.rows("documents")] == [f"e{number:02}" for number in range(20)]
    assert [key for key, _ in now.rows("documents")] == [f"e{number:02}" for number in range(20) if number != 3]
    assert dict(side.rows("documents"))["e03"] == {"back": True}
    assert "e04" not in dict(side.rows("documents"))
    assert list(space.snapshot(0).rows("documents")) == []
    with pytest.raises(NotFound, match="no table 'other'"):
        now.rows("other")


def test_a_big_snapshot_is_read_page_by_page(native: Space) -> None:
    write(native, *(Set(f"e{number:04}", {"n": number}) for number in range(0, 1300, 2)))
    native.branches.create("side")
    write(native, *(Set(f"e{number:04}", {"n": number}) for number in range(1, 1300, 2)), branch="side")
    assert list(native.snapshot(branch="side").rows()) == [(f"e{n:04}", {"n": n}) for n in range(1300)]
    assert len(list(native.snapshot().rows())) == 650


def test_moments_as_users_write_them(space: Space) -> None:
    write(space, Set("a", {"n": 1}))
    space.branches.create("side")
    write(space, Set("a", {"n": 2}), branch="side")
    assert dict(space.at(Ref.parse("side")).rows()) == {"a": {"n": 2}}
    assert dict(space.at(Ref.parse("side@1")).rows()) == {"a": {"n": 1}}
    assert dict(space.at(Ref.parse("@1")).rows()) == {"a": {"n": 1}}
    for text in ("side@x", "@-1", "@1.5", "@" + "9" * 30):
        with pytest.raises(Invalid, match="is not a seq"):
            space.at(Ref.parse(text))
    with pytest.raises(NotFound):
        space.at(Ref.parse("nowhere"))
    with pytest.raises(NotFound):
        space.at(Ref.parse("@99"))


def test_the_difference_of_two_snapshots_is_the_net_of_the_changes_between_them(space: Space) -> None:
    write(space, Set("a", {"n": 1}), Set("b", {}), Set("c", {}))
    write(space, Patch("a", [increment()]), Delete("b"))
    write(space, Set("d", {}), Set("e", {}), Set("b", {}))
    write(space, Delete("e"), Delete("c"))
    told = list(space.diff(space.snapshot(1), space.snapshot()))
    assert [(change.key, change.kind, change.before, change.after) for change in told] == [
        ("a", "update", {"n": 1}, {"n": 2}), ("c", "delete", {}, None), ("d", "insert", None, {})]  # fmt: skip
    expected = sorted((change.key, change.before, change.after) for change in net(space.changes(1)))
    assert [(change.key, change.before, change.after) for change in told] == expected


# damage


def test_a_sound_space_has_no_damage(space: Space) -> None:
    write(space, Set("a", {"n": 1}), Set("b", {}))
    for _ in range(25):
        write(space, Patch("a", [increment()]))
    space.branches.create("side", at=9)
    for _ in range(15):
        write(space, Patch("a", [increment()]), Delete("b"), branch="side")
    space.put_blob(b"abc")
    assert list(space.verify()) == []


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE snapshot SET value = '{\"n\":99}'", "its snapshot at seq 11 is not what the log says"),
        ("UPDATE snapshot SET value = 'nonsense'", "its snapshot at seq 11 is not what the log says"),
        ("UPDATE snapshot SET seq = 99", "has a snapshot at seq 99, where nothing changed"),
        ("UPDATE head SET op_index = 7", "its head points to (16, 7), but its last revision is (16, 0)"),
        ("UPDATE revision SET data = '[]x' WHERE seq = 5", "the revision at seq 5, operation 0, cannot be applied"),
        ("UPDATE revision SET data = '[{\"op\":\"remove\",\"path\":\"/x\"}]' WHERE seq = 5", "cannot be applied"),
        ("UPDATE revision SET commit_seq = 1 WHERE seq = 5", "says that it belongs to commit 1"),
        ("DELETE FROM head", "has a revision but no head"),
        ("UPDATE branch SET head_seq = 3", "says that its head is seq 3, but its newest commit is 16"),
        ('PRAGMA foreign_keys = OFF; DELETE FROM "commit" WHERE seq = 4', "points to a commit that is not there"),
    ],
)
def test_damage_is_found_and_named(native: Space, statement: str, words: str) -> None:
    write(native, Set("a", {"n": 0}))
    for _ in range(15):
        write(native, Patch("a", [increment()]))
    native._database.connection.execute(statement)
    found = [f"{damage.where} {damage.what}" for damage in native.verify()]
    assert [text for text in found if words in text], found
