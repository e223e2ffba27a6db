"""Values of the base of a merge, on small histories drawn by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ontolake.history.bases import base_values
from ontolake.history.threeway import Disputed, Outcome, decide

State = dict[str, Any]


class Drawn:
    """A history given as parents and states by commit. It writes down which values are read where."""

    def __init__(self, parents: Mapping[int, Sequence[int]], states: Mapping[int, State]) -> None:
        self._parents = parents
        self._states = states
        self.read_at: list[tuple[int, list[str]]] = []
        self.merged: list[tuple[Any, Any, Any]] = []

    def parents(self, commit: int) -> Sequence[int]:
        return self._parents[commit]

    def order(self, commit: int) -> int:
        return commit

    def base(self, bases: Sequence[int], keys: Iterable[str]) -> State:
        return base_values(self, bases, keys, read=self._read, same=equal, merge=self._merge, absent="absent")

    def _read(self, commit: int, keys: Sequence[str]) -> State:
        self.read_at.append((commit, list(keys)))
        return {key: self._states[commit].get(key) for key in keys}

    def _merge(self, base: Any, ours: Any, theirs: Any) -> Any:
        self.merged.append((base, ours, theirs))
        return merged(base, ours, theirs)


def equal(a: Any, b: Any) -> bool:
    return bool(a == b)


def merged(base: Any, ours: Any, theirs: Any) -> Any:
    outcome = decide(base, theirs, ours, equal)
    return {Outcome.KEEP: ours, Outcome.TAKE: theirs, Outcome.CLASH: Disputed()}[outcome]


def test_before_the_first_commit_every_value_is_absent() -> None:
    drawn = Drawn({}, {})
    assert drawn.base([], ["x", "y"]) == {"x": "absent", "y": "absent"}
    assert drawn.read_at == []


def test_without_keys_nothing_is_read() -> None:
    drawn = Drawn({1: []}, {1: {"x": 1}})
    assert drawn.base([1], []) == {}
    assert drawn.read_at == []


def test_one_base_gives_its_values_of_the_keys_at_hand() -> None:
    drawn = Drawn({1: []}, {1: {"x": 1, "y": 2, "z": 3}})
    assert drawn.base([1], iter(["x", "z"])) == {"x": 1, "z": 3}
    assert (drawn.read_at, drawn.merged) == ([(1, ["x", "z"])], [])


def test_values_on_which_all_bases_agree_need_no_merge() -> None:
    """Each base is read once, and nothing below them is asked for: this history does not know their parents."""
    drawn = Drawn({}, {2: {"x": 1}, 3: {"x": 1}, 4: {"x": 1}})
    assert drawn.base([2, 3, 4], ["x"]) == {"x": 1}
    assert drawn.read_at == [(2, ["x"]), (3, ["x"]), (4, ["x"])]
    assert drawn.merged == []


def test_two_bases_are_merged_against_their_own_base_where_they_differ() -> None:
    drawn = Drawn({1: [], 2: [1], 3: [1]}, {
        1: {"left": 0, "right": 0, "both": 0, "kept": 5},
        2: {"left": 1, "right": 0, "both": 1, "kept": 5},
        3: {"left": 0, "right": 2, "both": 2, "kept": 5},
    })
    found = drawn.base([2, 3], ["left", "right", "both", "kept"])
    assert isinstance(found.pop("both"), Disputed)
    assert found == {"left": 1, "right": 2, "kept": 5}
    assert drawn.read_at[2:] == [(1, ["left", "right", "both"])], "below, only what differs is read"
    assert drawn.merged == [(0, 1, 0), (0, 0, 2), (0, 1, 2)]


def test_bases_that_have_nothing_in_common_are_merged_against_absent_values() -> None:
    drawn = Drawn({1: [], 2: []}, {1: {"x": 1}, 2: {"x": 2}})
    assert isinstance(drawn.base([1, 2], ["x"])["x"], Disputed)
    assert drawn.merged == [("absent", 1, 2)]


def test_a_third_base_is_merged_with_what_the_first_two_gave() -> None:
    """Commit 2 is a base of 4 and 5, but of 3 and 4 only 1 is."""
    drawn = Drawn({1: [], 2: [1], 3: [1], 4: [2], 5: [2]}, {
        1: {"x": 1, "y": 1}, 2: {"x": 2, "y": 2}, 3: {"x": 1, "y": 1}, 4: {"x": 2, "y": 2}, 5: {"x": 5, "y": 1},
    })
    assert drawn.base([3, 4, 5], ["x", "y"]) == {"x": 5, "y": 1}
    # Of 3 and 4 the newer value of 4 is taken; 5 then changed both values of 2 that 4 left alone.
    assert drawn.merged == [(1, 1, 2), (1, 1, 2), (2, 2, 5), (2, 2, 1)]
    assert [commit for commit, _ in drawn.read_at] == [3, 4, 1, 5, 2]


def test_two_of_three_bases_are_merged_without_a_look_at_the_third() -> None:
    """Of 3 and 4 the base is 1, though 3 and 5 have a better one."""
    drawn = Drawn({1: [], 2: [1], 3: [2], 4: [1], 5: [2]}, {1: {"x": 1}, 2: {"x": 2}, 3: {"x": 2}, 4: {"x": 1},
                                                            5: {"x": 2}})  # fmt: skip
    assert drawn.base([3, 4, 5], ["x"]) == {"x": 2}
    assert drawn.merged == [(1, 2, 1)]


def test_bases_of_bases_are_merged_too() -> None:
    """A history that is crossed twice: 4 and 5 have the bases 2 and 3, and these have 1."""
    drawn = Drawn({1: [], 2: [1], 3: [1], 4: [2, 3], 5: [3, 2]}, {
        1: {"x": 1, "y": 1}, 2: {"x": 2, "y": 1}, 3: {"x": 1, "y": 3}, 4: {"x": 2, "y": 4}, 5: {"x": 5, "y": 3},
    })
    assert drawn.base([4, 5], ["x", "y"]) == {"x": 5, "y": 4}
    assert drawn.merged == [(1, 2, 1), (1, 1, 3), (2, 2, 5), (3, 4, 3)]


def test_what_is_disputed_below_is_disputed_above() -> None:
    drawn = Drawn({1: [], 2: [1], 3: [1], 4: [2, 3], 5: [3, 2]}, {
        1: {"x": 1}, 2: {"x": 2}, 3: {"x": 3}, 4: {"x": 2}, 5: {"x": 3},
    })
    assert isinstance(drawn.base([4, 5], ["x"])["x"], Disputed)
    assert drawn.merged[0] == (1, 2, 3)
    assert isinstance(drawn.merged[1][0], Disputed)
