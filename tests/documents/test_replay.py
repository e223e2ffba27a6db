"""Any entity at any moment on any branch, for a price that does not grow with its history."""

from __future__ import annotations

from typing import Any

import apsw
import pytest
from documents_support import OpenSpace, add, increment, write

from ontolake.documents import (
    Delete,
    FutureSeqError,
    InvalidOperationError,
    Patch,
    Policy,
    ProtocolError,
    Read,
    Set,
    Space,
    UnknownBranchError,
    commits,
)
from ontolake.documents.history import merges
from ontolake.documents.read import feed, moments, replay
from ontolake.documents.upkeep import snapshots
from ontolake.documents.write import conflicts, transactions
from ontolake.errors import Corruption, NotFound


def replayed(space: Space, id: str, seq: int | None = None, branch: str = "") -> int:
    """How many patches a read has to replay."""
    with space._database.read as connection:
        view = space._database.view(branch, replay.NOW if seq is None else seq)
        return replay.find(connection, view, id, current=seq is None).replayed


def test_every_moment_of_an_entity_can_be_read(space: Space) -> None:
    write(space, Set("a", {"n": 0}))
    for _ in range(35):
        write(space, Patch("a", [increment()]))
    write(space, Delete("a"))
    write(space, Patch("a", [add("/n", 100)]))
    for seq in range(1, 37):
        assert space.read("a", seq=seq).document == {"n": seq - 1}
    assert space.read("a", seq=0).document is None
    assert space.read("a", seq=37).document is None
    assert space.read("a", seq=38).document == space.read("a").document == {"n": 100}


def test_an_entity_says_what_was_read_and_when_it_changed(space: Space) -> None:
    write(space, Set("a", {}))
    write(space, Set("b", {}))
    found = space.read("a")
    assert (found.id, found.document, found.seq, found.changed, found.branch) == ("a", {}, 2, 1, "")
    assert space.read("b", seq=1).changed == 0
    assert found.as_read("/x", shallow=True) == Read("a", "/x", 2, "", True)


def test_what_never_was_differs_from_what_was_deleted(space: Space) -> None:
    write(space, Set("a", {}), Delete("a"))
    assert (space.read("a").deleted, space.read("b").deleted) == (True, False)
    assert (space.read("a").exists, space.read("b").exists) == (False, False)


def test_many_are_read_at_one_moment_in_the_order_asked_for(space: Space) -> None:
    for number in range(30):
        write(space, *(Set(f"e{other}", {"n": 0}) for other in range(number, number + 1)))
        write(space, *(Patch(f"e{other}", [increment()]) for other in range(number + 1)))
    write(space, Delete("e3"))
    ids = ["e7", "missing", "e3", "e0", "e29", "e7"]
    found = space.read_many(ids)
    assert list(found) == ["e7", "missing", "e3", "e0", "e29"]
    assert {id: entity.document for id, entity in found.items()} == {
        "e7": {"n": 23}, "missing": None, "e3": None, "e0": {"n": 30}, "e29": {"n": 1}}  # fmt: skip
    assert {entity.seq for entity in found.values()} == {61}
    assert found["e3"].deleted
    for seq in (0, 1, 17, 40, 60):
        several = space.read_many((f"e{number}" for number in range(30)), seq=seq)
        assert several == {id: space.read(id, seq=seq) for id in several}


def test_reading_nothing_is_nothing(space: Space) -> None:
    assert space.read_many([]) == {}


def test_reading_many_through_branches(space: Space) -> None:
    write(space, *(Set(f"e{number}", {"n": 0}) for number in range(5)))
    write(space, Patch("e0", [increment()]), Delete("e1"))
    space.branches.create("child", at=1)
    write(space, Patch("e0", [add("/child", 1)]), Delete("e2"), branch="child")
    space.branches.create("grandchild", parent="child")
    write(space, Patch("e0", [add("/grand", 1)]), Set("e3", {}), Set("new", {}), branch="grandchild")
    ids = [f"e{number}" for number in range(5)] + ["new"]
    documents = {id: entity.document for id, entity in space.read_many(ids, branch="grandchild").items()}
    assert documents == {"e0": {"n": 0, "child": 1, "grand": 1}, "e1": {"n": 0}, "e2": None, "e3": {}, "e4": {"n": 0},
                         "new": {}}  # fmt: skip
    assert documents == {id: space.read(id, branch="grandchild").document for id in ids}


@pytest.mark.parametrize("seq", [3, 10**6])
def test_a_seq_from_the_future_is_refused(space: Space, seq: int) -> None:
    write(space, Set("a", {}))
    write(space, Set("a", {}))
    for read in (
        lambda: space.read("a", seq=seq), lambda: space.read_many(["a"], seq=seq), lambda: space.changes(seq),
        lambda: space.changes(0, seq), lambda: space.history("a", until=seq), lambda: space.snapshot(seq),
        lambda: space.commits(since=seq), lambda: space.branches.diff("", seq=seq), lambda: space.watch(since=seq),
    ):  # fmt: skip
        with pytest.raises(FutureSeqError, match=f"names seq {seq}, but the last commit is 2") as refused:
            read()
        assert isinstance(refused.value, NotFound | ProtocolError)


@pytest.mark.parametrize("seq", [-1, 1.0, "1", True])
def test_what_is_no_seq_is_refused(native: Space, seq: Any) -> None:
    write(native, Set("a", {}))
    with pytest.raises(ProtocolError):
        native.read("a", seq=seq)


def test_an_unknown_branch_is_refused(space: Space) -> None:
    for read in (
        lambda: space.read("a", branch="no"), lambda: space.read_many(["a"], branch="no"),
        lambda: space.changes(0, branch="no"), lambda: space.history("a", branch="no"),
        lambda: space.commits(branch="no"), lambda: space.snapshot(branch="no"), lambda: space.watch(branch="no"),
    ):  # fmt: skip
        with pytest.raises(UnknownBranchError, match="no branch 'no'"):
            read()


@pytest.mark.parametrize("id", ["", None, 5, "a\0"])
def test_an_id_that_cannot_be_is_refused(native: Space, id: Any) -> None:
    for read in (lambda: native.read(id), lambda: native.read_many([id]), lambda: native.history(id)):
        with pytest.raises(InvalidOperationError):
            read()


# the price


def test_the_current_state_is_never_more_than_ten_patches_from_a_full_document(native: Space) -> None:
    write(native, Set("a", {"n": 0}))
    distances = []
    for _ in range(45):
        write(native, Patch("a", [increment()]))
        distances.append(replayed(native, "a"))
    assert max(distances) == 9
    assert distances[9] == 0, "the tenth patch makes a snapshot"


def test_sets_need_no_snapshots_to_be_read_quickly(native: Space) -> None:
    """Reading starts at the last set, it does not go through all that came before."""
    for number in range(300):
        write(native, Set("a", {"n": number}))
    steps = _steps(native, lambda: native.read("a"))
    assert _steps(native, lambda: native.read("a", seq=150)) < 2 * steps
    assert _steps(native, lambda: native.read_many(["a"], seq=150)) < 20 * steps


def _steps(space: Space, read: Any) -> int:
    """About how much SQLite had to do, in instructions of its virtual machine."""
    done = 0

    def count() -> bool:
        nonlocal done
        done += 1
        return False

    connection: apsw.Connection = space._database.connection
    connection.set_progress_handler(count, 1)
    try:
        read()
    finally:
        connection.set_progress_handler(None)
    return done


def test_the_past_costs_no_more_the_longer_the_history(native: Space) -> None:
    native.snapshots.policy = Policy(every=10, keep=2, spacing=50)
    write(native, Set("a", {"n": 0}))
    for _ in range(600):
        write(native, Patch("a", [increment()]))
    native.snapshots.compact()
    assert max(replayed(native, "a", seq) for seq in range(1, 601)) <= 50
    assert replayed(native, "a") <= 9


def test_a_long_inherited_history_is_not_replayed_again_for_every_patch_on_a_child(native: Space) -> None:
    write(native, Set("a", {"n": 0}))
    for _ in range(9):
        write(native, Patch("a", [increment()]))
    space = native
    parent = ""
    for depth in range(6):
        space.branches.create(f"b{depth}", parent=parent)
        parent = f"b{depth}"
        write(space, Patch("a", [increment()]), branch=parent)
        assert replayed(space, "a", branch=parent) < 10
    assert space.read("a", branch=parent).document == {"n": 15}


STATEMENTS = {
    f"{module.__name__}.{name}": statement
    for module in (commits, conflicts, feed, merges, moments, replay, snapshots, transactions)
    for name, statement in vars(module).items()
    if isinstance(statement, str) and statement.startswith(("SELECT", "WITH", "DELETE", "UPDATE"))
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_walks_through_a_whole_table(native: Space, name: str) -> None:
    statement = STATEMENTS[name]
    count = statement.count("?") if "?1" not in statement else max(int(part[0]) for part in statement.split("?")[1:])
    plan = native._database.connection.execute("EXPLAIN QUERY PLAN " + statement, ["[]"] * count).fetchall()
    scanned = [detail for *_, detail in plan if detail.startswith("SCAN ")]
    small = ("SCAN w ", "SCAN wanted", "SCAN CONSTANT ROW", "SCAN (subquery")
    assert [detail for detail in scanned if not detail.startswith(small)] == []


# damage


def test_revisions_that_do_not_fit_are_reported_as_damage(native: Space) -> None:
    write(native, Set("a", {}))
    write(native, Patch("a", [add("/x")]))
    damage = '[{"op":"remove","path":"/y"}]'
    native._database.connection.execute("UPDATE revision SET data = ? WHERE seq = 2", (damage,))
    for read in (lambda: native.read("a"), lambda: native.read_many(["a"]), lambda: list(native.changes(0))):
        with pytest.raises(Corruption):
            read()
    native._database.connection.execute("UPDATE revision SET data = '[nonsense' WHERE seq = 2")
    with pytest.raises(Corruption, match=r"verify\(\) lists the damage"):
        native.read("a")


def test_a_reader_sees_what_another_connection_writes(native_place: str, open_here: OpenSpace) -> None:
    writer, reader = open_here(native_place), open_here(native_place, readonly=True)
    for number in range(3):
        write(writer, Set("a", {"n": number}))
        assert reader.read("a").document == {"n": number}
