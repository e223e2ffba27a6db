"""A git of dictionaries: commits with parents and states, and merges by the commit DAG. The oracle of merge tests.

Slow and easy to believe: every question is answered from whole sets of ancestors and whole states. It shares no code
with ontolake; `tests/history/test_git.py` compares it with the real git.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Disputed:
    """What a virtual base has where its parts conflict. Every instance is equal to nothing but itself."""


class Commit(NamedTuple):
    parents: tuple[int, ...]
    state: dict[Any, Any]


class Merged(NamedTuple):
    """What a merge gives: the state with conflicts left as ours has them, and the keys that are in conflict."""

    state: dict[Any, Any]
    conflicts: set[Any]


Rule = Callable[[Any, Any, Any], Any]
"""Base, ours, theirs → the merged value, or something disputed. None stands for a key that is not there."""


def whole(base: Any, ours: Any, theirs: Any) -> Any:
    """The rule of git for files that are not merged line by line, and of tables that are merged by row."""
    if ours == theirs or theirs == base:
        return ours
    return theirs if ours == base else Disputed()


def by_field(base: Any, ours: Any, theirs: Any) -> Any:
    """Rows, which are flat dictionaries, merge field by field where all three are there."""
    found = whole(base, ours, theirs)
    if not isinstance(found, Disputed) or not all(isinstance(one, dict) for one in (base, ours, theirs)):
        return found
    fields = {name: whole(base.get(name), ours.get(name), theirs.get(name)) for name in {**base, **ours, **theirs}}
    return {name: value for name, value in fields.items() if value is not None}


def is_disputed(value: Any) -> bool:
    return isinstance(value, Disputed) or (isinstance(value, dict) and any(map(is_disputed, value.values())))


def merge_states(
    rule: Rule, base: dict[Any, Any], ours: dict[Any, Any], theirs: dict[Any, Any]
) -> dict[Any, Any]:
    merged = {key: rule(base.get(key), ours.get(key), theirs.get(key)) for key in {**base, **ours, **theirs}}
    return {key: value for key, value in merged.items() if value is not None}


class DictionaryGit:
    """Commits are numbers in the order in which they are made; branches are names of commits."""

    def __init__(self, rule: Rule = whole, virtual_rule: Rule | None = None) -> None:
        self.rule = rule
        self.virtual_rule = virtual_rule or rule
        self.commits: list[Commit] = [Commit((), {})]
        self.branches: dict[str, int] = {"main": 0}

    def state(self, branch: str) -> dict[Any, Any]:
        return self.commits[self.branches[branch]].state

    def add(self, state: dict[Any, Any], *parents: int) -> int:
        self.commits.append(Commit(parents, dict(state)))
        return len(self.commits) - 1

    def write(self, branch: str, changes: dict[Any, Any]) -> int:
        """A commit that sets keys, or deletes those whose value is None."""
        state = {**self.state(branch), **changes}
        head = self.add({key: value for key, value in state.items() if value is not None}, self.branches[branch])
        self.branches[branch] = head
        return head

    def ancestors(self, *commits: int) -> set[int]:
        found: set[int] = set()
        waiting = list(commits)
        while waiting:
            commit = waiting.pop()
            if commit not in found:
                found.add(commit)
                waiting += self.commits[commit].parents
        return found

    def merge_bases(self, one: int, two: int) -> list[int]:
        """Common ancestors that are ancestors of no other common ancestor."""
        common = self.ancestors(one) & self.ancestors(two)
        below = {old for commit in common for old in self.ancestors(*self.commits[commit].parents)}
        return sorted(common - below)

    def base_state(self, one: int, two: int) -> dict[Any, Any]:
        """The state to merge against: that of the merge base, or of the merge of several."""
        bases = self.merge_bases(one, two)
        if not bases:
            return {}
        known = len(self.commits)
        virtual = bases[0]
        for base in bases[1:]:
            merged = merge_states(self.virtual_rule, self.base_state(virtual, base), self.commits[virtual].state,
                                  self.commits[base].state)
            virtual = self.add(merged, virtual, base)
        state = self.commits[virtual].state
        del self.commits[known:]
        return state

    def plan(self, source: str, into: str) -> Merged | None:
        """What merging a branch gives; None if the target has it already."""
        ours, theirs = self.branches[into], self.branches[source]
        if theirs in self.ancestors(ours):
            return None
        mine = self.commits[ours].state
        merged = merge_states(self.rule, self.base_state(ours, theirs), mine, self.commits[theirs].state)
        conflicts = {key for key, value in merged.items() if is_disputed(value)}
        kept = {key: mine.get(key) if key in conflicts else value for key, value in merged.items()}
        return Merged({key: value for key, value in kept.items() if value is not None}, conflicts)

    def merge(self, source: str, into: str, take_theirs: bool = False) -> Merged | None:
        """Merge, and settle every conflict for one side."""
        plan = self.plan(source, into)
        if plan is None:
            return None
        theirs = self.state(source)
        state = {**plan.state, **({key: theirs.get(key) for key in plan.conflicts} if take_theirs else {})}
        head = self.add({key: value for key, value in state.items() if value is not None},
                        self.branches[into], self.branches[source])
        self.branches[into] = head
        return plan
