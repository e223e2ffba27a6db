"""Best common ancestors and missing commits, on random DAGs, against plain sets of ancestors."""

from __future__ import annotations

from typing import Any

import pytest
from dictionary_git import DictionaryGit, is_disputed
from hypothesis import given
from hypothesis import strategies as st

from ontolake.history.bases import base_values
from ontolake.history.dag import best_common_ancestors, is_ancestor, missing
from ontolake.history.threeway import Disputed, Outcome, decide


class Counted:
    """The commits of an oracle as a DAG that counts what is asked of it."""

    def __init__(self, git: DictionaryGit) -> None:
        self.git = git
        self.asked: set[int] = set()

    def parents(self, commit: int) -> tuple[int, ...]:
        self.asked.add(commit)
        return self.git.commits[commit].parents

    def order(self, commit: int) -> int:
        return commit


@st.composite
def histories(draw: Any) -> DictionaryGit:
    """Commits on random earlier ones, with a key that has few values, so that changes are often taken back."""
    git = DictionaryGit()
    for number in range(draw(st.integers(1, 25))):
        near = st.integers(max(0, number - 5), number)
        parents = draw(st.lists(near, min_size=1, max_size=3, unique=True))
        value = draw(st.sampled_from([None, 1, 2]))
        git.add({} if value is None else {"x": value}, *parents)
    return git


@given(histories(), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_ancestors_are_those_of_the_sets(git: DictionaryGit, a: int, b: int, c: int) -> None:
    one, two, three = a % len(git.commits), b % len(git.commits), c % len(git.commits)
    dag = Counted(git)
    assert best_common_ancestors(dag, [one], [two]) == git.merge_bases(one, two)
    virtual = git.add({}, one, two)
    assert best_common_ancestors(dag, [one, two], [three]) == git.merge_bases(virtual, three)
    left = git.ancestors(one) - git.ancestors(two, three)
    assert missing(dag, one, [two, three]) == sorted(left, reverse=True)
    assert is_ancestor(dag, one, two) == (one in git.ancestors(two))


def test_several_best_common_ancestors_come_oldest_first() -> None:
    git = DictionaryGit()
    old, middle, new = (git.add({}, 0) for _ in range(3))
    left, right = git.add({}, new, old, middle), git.add({}, middle, new, old)
    assert best_common_ancestors(Counted(git), [left], [right]) == [old, middle, new]


def merged(base: Any, ours: Any, theirs: Any) -> Any:
    outcome = decide(base, theirs, ours, lambda a, b: bool(a == b))
    return {Outcome.KEEP: ours, Outcome.TAKE: theirs, Outcome.CLASH: Disputed()}[outcome]


@given(histories(), st.integers(0, 99), st.integers(0, 99))
def test_a_virtual_base_is_the_merge_of_the_bases(git: DictionaryGit, a: int, b: int) -> None:
    one, two = a % len(git.commits), b % len(git.commits)
    dag = Counted(git)
    found = base_values(
        dag, best_common_ancestors(dag, [one], [two]), ["x", "y"],
        read=lambda commit, keys: {key: git.commits[commit].state.get(key) for key in keys},
        same=lambda x, y: bool(x == y), merge=merged, absent=None)
    expected = git.base_state(one, two).get("x")
    assert found["y"] is None
    assert isinstance(found["x"], Disputed) if is_disputed(expected) else found["x"] == expected


@pytest.mark.parametrize("age", [100, 10_000])
def test_a_walk_goes_no_further_back_than_where_the_heads_met(age: int) -> None:
    git = DictionaryGit()
    trunk = 0
    for _ in range(age):
        trunk = git.add({}, trunk)
    left = right = trunk
    for _ in range(10):
        left, right = git.add({}, left), git.add({}, right)
    dag = Counted(git)
    assert best_common_ancestors(dag, [left], [right]) == [trunk]
    assert len(missing(dag, left, [right])) == 10
    assert len(dag.asked) <= 22


def test_a_walk_goes_no_further_back_than_the_last_merge() -> None:
    """Also where one side takes from the other for ever, and never gives anything back."""
    git = DictionaryGit()
    trunk = side = git.add({}, 0)
    asked = []
    for _ in range(100):
        for _ in range(10):
            trunk = git.add({}, trunk)
        dag = Counted(git)
        best_common_ancestors(dag, [side], [trunk])
        asked.append(len(dag.asked))
        side = git.add({}, git.add({}, side), trunk)
    assert max(asked) < 30


def test_histories_that_are_crossed_very_often_do_not_exhaust_the_stack() -> None:
    git = DictionaryGit()
    left, right = git.add({"x": 1}, 0), git.add({"x": 2}, 0)
    for number in range(3000):
        left, right = git.add({"x": number % 2}, left, right), git.add({"x": 2 + number % 2}, right, left)
    dag = Counted(git)
    found = base_values(
        dag, best_common_ancestors(dag, [left], [right]), ["x"], merge=merged, absent=None,
        read=lambda commit, keys: {"x": git.commits[commit].state.get("x")}, same=lambda a, b: bool(a == b))
    assert isinstance(found["x"], Disputed)
