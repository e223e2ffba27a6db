"""Snapshots only save work: taken every ten patches, thinned out in the background, and never needed."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from documents_support import OpenSpace, increment, rows, write
from hypothesis import given
from hypothesis import strategies as st
from waiting import wait_for

from ontolake.documents import Delete, Patch, Policy, Set, Space
from ontolake.documents.upkeep.snapshots import superfluous
from ontolake.documents.values import codec
from ontolake.errors import Invalid
from ontolake.history import Garbage


def seqs(space: Space, id: str = "a", branch: str = "") -> list[int]:
    return [seq for b, i, seq, _ in rows(space, "snapshot") if (b, i) == (branch, id)]


def patch_times(space: Space, count: int, id: str = "a", **options: Any) -> None:
    for _ in range(count):
        write(space, Patch(id, [increment()]), **options)


def test_every_tenth_patch_makes_a_snapshot_of_the_state_at_its_end(space: Space) -> None:
    write(space, Set("a", {"n": 0}))
    patch_times(space, 25)
    assert seqs(space) == [11, 21]
    values = [codec.decode(value) for _, _, _, value in rows(space, "snapshot")]
    assert values == [{"n": 10}, {"n": 20}]


def test_the_state_at_the_end_of_a_commit_is_what_a_snapshot_holds(space: Space) -> None:
    write(space, Set("a", {"n": 0}))
    write(space, *(Patch("a", [increment()]) for _ in range(12)))
    assert [(seq, codec.decode(value)) for _, _, seq, value in rows(space, "snapshot")] == [(2, {"n": 12})]
    assert space.read("a").document == {"n": 12}
    write(space, *(Patch("a", [increment()]) for _ in range(11)), Delete("a"))
    assert seqs(space) == [2], "a tombstone needs none"


def test_a_set_makes_the_count_start_again(space: Space) -> None:
    write(space, Set("a", {"n": 0}))
    patch_times(space, 9)
    write(space, Set("a", {"n": 0}))
    patch_times(space, 9)
    assert seqs(space) == []
    patch_times(space, 1)
    assert seqs(space) == [21]


def test_the_count_goes_on_after_a_reopen_and_in_other_processes(native_place: str, open_here: OpenSpace) -> None:
    one, two = open_here(native_place), open_here(native_place)
    write(one, Set("a", {"n": 0}))
    for number in range(20):
        patch_times((one, two)[number % 2], 1)
    assert seqs(one) == [11, 21]


def test_how_often_can_be_chosen(space: Space) -> None:
    write(space, Set("a", {"n": 0}))
    space.snapshots.policy = Policy(every=3)
    patch_times(space, 7)
    assert seqs(space) == [4, 7]
    space.snapshots.policy = Policy(every=0)
    patch_times(space, 20)
    assert seqs(space) == [4, 7]
    assert space.read("a").document == {"n": 27}


@pytest.mark.parametrize("options", [{"every": -1}, {"keep": 0}, {"spacing": -1}, {"every": 1.5}, {"keep": True}])
def test_a_policy_that_cannot_be_is_refused(options: Any) -> None:
    with pytest.raises(Invalid, match=next(iter(options))):
        Policy(**options)


# clearing away


def test_the_two_newest_are_kept(space: Space) -> None:
    space.snapshots.policy = Policy(spacing=0)
    write(space, Set("a", {"n": 0}))
    patch_times(space, 60)
    assert len(seqs(space)) == 6
    assert space.snapshots.compact(dry_run=True).removed == 4
    assert len(seqs(space)) == 6
    done = space.snapshots.compact()
    assert (done.removed, done.added) == (4, 0)
    assert seqs(space) == [51, 61]
    assert space.snapshots.compact().removed == 0


def test_older_ones_stay_where_the_way_would_get_long(space: Space) -> None:
    write(space, Set("a", {"n": 0}))
    patch_times(space, 200)
    space.snapshots.compact()
    assert seqs(space) == [41, 91, 141, 191, 201]
    patch_times(space, 50)
    space.snapshots.compact()
    assert seqs(space) == [41, 91, 141, 191, 241, 251]
    assert [space.read("a", seq=seq).document for seq in range(1, 252)] == [{"n": n} for n in range(251)]


def test_the_first_snapshot_on_a_child_stays(space: Space) -> None:
    """Without it, every read would go back through the parents."""
    write(space, Set("a", {"n": 0}))
    patch_times(space, 9)
    space.branches.create("side")
    patch_times(space, 50, branch="side")
    first = seqs(space, branch="side")[0]
    space.snapshots.compact()
    assert seqs(space, branch="side")[0] == first


def test_missing_ones_are_added(space: Space) -> None:
    space.snapshots.policy = Policy(every=0)
    write(space, Set("a", {"n": 0}), Set("b", {"n": 0}), Set("c", {"n": 0}))
    patch_times(space, 30)
    patch_times(space, 30, "b")
    write(space, Delete("b"))
    patch_times(space, 5, "c")
    space.snapshots.policy = Policy()
    assert space.snapshots.compact(dry_run=True).added == 1
    assert seqs(space) == []
    assert space.snapshots.compact().added == 1
    assert seqs(space) == [31]
    assert space.read("a").document == {"n": 30}
    assert list(space.verify()) == []


@pytest.mark.slow
def test_compacting_reaches_every_entity_and_branch(native: Space) -> None:
    native.snapshots.policy = Policy(every=2, keep=1, spacing=0)
    native.branches.create("side")
    for branch in ("", "side"):
        for number in range(250):
            write(native, Set(f"e{number}", {"n": 0}), *[Patch(f"e{number}", [increment()])] * 2, branch=branch)
            write(native, *[Patch(f"e{number}", [increment()])] * 2, branch=branch)
    assert len(rows(native, "snapshot")) == 1000
    assert native.snapshots.compact().removed == 500
    assert len(rows(native, "snapshot")) == 500


def test_all_can_be_dropped_and_nothing_is_lost(space: Space) -> None:
    write(space, Set("a", {"n": 0}))
    patch_times(space, 45)
    with space._database.write as connection:
        connection.execute("DELETE FROM snapshot")
    assert space.read("a").document == {"n": 45}
    assert space.read("a", seq=30).document == {"n": 29}
    patch_times(space, 10)
    assert space.read("a").document == {"n": 55}


def test_old_ones_are_cleared_away_in_the_background(space: Space) -> None:
    space.snapshots.pause = 0.01
    space.snapshots.policy = Policy(every=1, keep=2, spacing=0)
    write(space, Set("a", {"n": 0}))
    patch_times(space, 30)
    wait_for(lambda: len(seqs(space)) == 2)
    assert space.read("a").document == {"n": 30}
    wait_for(lambda: "ontolake-snapshots" not in {thread.name for thread in threading.enumerate()})
    patch_times(space, 5)
    wait_for(lambda: seqs(space) == [35, 36])


def test_rounds_in_the_background_come_to_what_compacting_does(space: Space) -> None:
    write(space, Set("a", {"n": 0}))
    for count in (35, 5, 120, 10, 60, 210):
        patch_times(space, count)
        run_a_round(space)
    kept = seqs(space)
    assert space.snapshots.compact().removed == 0
    assert len(kept) < 15


def run_a_round(space: Space) -> None:
    """What the background task does after a pause."""
    snapshots = space.snapshots
    rounds = [(branch, id, count + snapshots.policy.keep + 1) for (branch, id), count in snapshots._added.items()]
    snapshots._added.clear()
    snapshots._thin(rounds, snapshots.policy)


def test_none_is_removed_inside_a_commit(native: Space) -> None:
    native.snapshots.policy = Policy(every=1, keep=1, spacing=0)
    deleted: list[str] = []
    native._database.connection.trace_v2(
        1, lambda event: deleted.append(event["sql"]) if "DELETE" in event["sql"] else None
    )
    write(native, Set("a", {"n": 0}))
    patch_times(native, 20)
    assert deleted == []
    assert len(seqs(native)) == 20


def test_closing_ends_the_background_task(native_place: str, open_here: OpenSpace) -> None:
    space = open_here(native_place)
    write(space, Set("a", {"n": 0}))
    patch_times(space, 40)
    space.close()
    space.close()
    assert "ontolake-snapshots" not in {thread.name for thread in threading.enumerate()}


def test_garbage_is_what_the_policy_does_not_keep(space: Space) -> None:
    space.snapshots.policy = Policy(every=1, keep=1, spacing=0)
    write(space, Set("a", {"n": 0}))
    patch_times(space, 5)
    assert space.gc() == Garbage(4, 4 * len('{"n":1}'))
    assert space.gc(dry_run=False).items == 4
    assert space.gc() == Garbage(0, 0)


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(1, 4), st.integers(0, 60), st.booleans()
)
def test_thinning_keeps_the_newest_and_never_leaves_too_long_a_way(
    distances: list[int], keep: int, spacing: int, anchored: bool
) -> None:
    positions = [sum(distances[: number + 1]) for number in range(len(distances))]
    gone = superfluous(positions, distances, Policy(keep=keep, spacing=spacing), anchored=anchored)
    kept = [position for position in positions if position not in gone]
    assert kept[-keep:] == positions[-keep:]
    if spacing:
        ways = [here - before for before, here in zip([0, *kept], kept, strict=False)]
        assert all(way <= max(spacing, *distances) for way in ways)
        assert not anchored or kept[0] == positions[0]
        again = [here - before for before, here in zip([0, *kept], kept, strict=False)]
        assert superfluous(kept, again, Policy(keep=keep, spacing=spacing), anchored=anchored) == [], "once is enough"
    else:
        assert kept == positions[-keep:]
