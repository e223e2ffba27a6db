"""The drawing of `onto log --graph`: every commit once, each before its parents, lanes that part and meet."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ontolake.cli.common.commit_lanes import draw, newest_first


def drawn(parents: dict[int, tuple[int, ...]]) -> list[str]:
    order = newest_first(parents, {commit: commit for commit in parents})
    return [line.drawing + ("" if line.commit is None else f" {line.commit}") for line in draw(order, parents)]


def test_one_line_of_commits_is_one_lane() -> None:
    assert drawn({1: (), 2: (1,), 3: (2,)}) == ["* 3", "* 2", "* 1"]


def test_branches_meet_where_they_parted() -> None:
    assert drawn({1: (), 2: (1,), 3: (1,)}) == ["* 3", "| * 2", "|/", "* 1"]


def test_a_merge_has_a_lane_for_each_parent() -> None:
    assert drawn({1: (), 2: (1,), 3: (1,), 4: (2, 3)}) == ["* 4", "|\\", "| * 3", "* | 2", "|/", "* 1"]


def test_lanes_are_crossed_and_moved() -> None:
    assert drawn({1: (), 2: (1,), 3: (1,), 4: (1,), 5: (4, 3)}) == [
        "* 5", "|\\", "* | 4", "| * 3", "| | * 2", "|/  |", "|__/", "* 1"]  # fmt: skip
    assert drawn({1: (), 2: (1,), 3: (1,), 4: (2, 3), 5: (3, 2)}) == [
        "* 5", "|\\", "| | * 4", "| | |\\", "|_|_|/", "* | | 3", "| |/", "| * 2", "|/", "* 1"]  # fmt: skip


def test_parents_that_are_not_shown_are_left_out() -> None:
    assert drawn({3: (2,), 4: (3, 1)}) == ["* 4", "* 3"]


@given(st.lists(st.lists(st.integers(0, 30), max_size=3), min_size=1, max_size=30))
def test_every_commit_is_drawn_once_before_its_parents(choices: list[list[int]]) -> None:
    parents = {commit: tuple(dict.fromkeys(one % commit for one in some)) if commit else ()
               for commit, some in enumerate(choices)}
    order = newest_first(parents, {commit: commit for commit in parents})
    assert sorted(order) == sorted(parents)
    place = {commit: number for number, commit in enumerate(order)}
    assert all(place[commit] < place[parent] for commit, some in parents.items() for parent in some)
    lines = list(draw(order, parents))
    assert [line.commit for line in lines if line.commit is not None] == order
    assert all(line.drawing.count("*") == (line.commit is not None) for line in lines)
