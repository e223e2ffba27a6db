"""The oracle: a git of dictionaries. Slow, and easy to believe.

Commits have parents and whole states; every question is answered from whole sets of ancestors and whole states. It
shares no code with the core of `ontolake.history`. Its merge bases and merges are compared with those of the real git.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Record = dict[str, Any]
State = dict[str, Record]

FIELDS = ("f", "g")
"""The fields of every record."""


class Unknown:
    """A value of a virtual base on which its parts do not agree; also one that is not there. It equals nothing."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


class Node(NamedTuple):
    """A commit."""

    parents: tuple[int, ...]
    state: State


class Answer(NamedTuple):
    """What a three-way step gives: the state, and what is in conflict, as `(key, field)`; None for a whole record."""

    state: State
    conflicts: frozenset[tuple[str, str | None]]


def three_way(base: Mapping[str, Any], ours: State, theirs: State, side: str | None) -> Answer:
    """Merge states record by record, and records field by field. Conflicts stay as the chosen side has them."""
    state: State = {}
    conflicts: set[tuple[str, str | None]] = set()
    for key in sorted({*base, *ours, *theirs}):
        old, own, new = base.get(key), ours.get(key), theirs.get(key)
        record = own
        if own == new or new == old:
            pass
        elif own == old:
            record = new
        elif own is None or new is None:
            conflicts.add((key, None))
            record = new if side == "theirs" else own
        else:
            record = {}
            for name in FIELDS:
                before = old[name] if isinstance(old, dict) else Unknown()
                if own[name] == new[name] or new[name] == before:
                    record[name] = own[name]
                elif own[name] == before:
                    record[name] = new[name]
                else:
                    conflicts.add((key, name))
                    record[name] = new[name] if side == "theirs" else own[name]
        if record is not None:
            state[key] = record
    return Answer(state, frozenset(conflicts))


def _virtual(base: Mapping[str, Any], one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The merge of two bases; what they conflict on is unknown."""
    merged: dict[str, Any] = {}
    for key in {*base, *one, *other}:
        old, own, new = base.get(key), one.get(key), other.get(key)
        if own == new or new == old:
            value: Any = own
        elif own == old:
            value = new
        elif not isinstance(own, dict) or not isinstance(new, dict):
            value = Unknown()
        else:
            value = {}
            for name in FIELDS:
                before = old[name] if isinstance(old, dict) else Unknown()
                value[name] = own[name] if own[name] == new[name] or new[name] == before else (
                    new[name] if own[name] == before else Unknown())
        if value is not None:
            merged[key] = value
    return merged


class GitOfDictionaries:
    """Commits are numbers in the order in which they are made; branches and tags are names of commits."""

    def __init__(self, first: str = "main") -> None:
        self.nodes: list[Node] = [Node((), {})]
        self.branches: dict[str, int] = {first: 0}
        self.tags: dict[str, int] = {}
        self.protected: set[str] = set()

    def state(self, commit: int) -> State:
        return self.nodes[commit].state

    def add(self, branch: str, state: State, *more: int) -> int:
        """A commit on a branch, with further parents behind its head."""
        self.nodes.append(Node((self.branches[branch], *more), {key: dict(row) for key, row in state.items()}))
        self.branches[branch] = len(self.nodes) - 1
        return self.branches[branch]

    def write(self, branch: str, changes: Mapping[str, Record | None]) -> int:
        """A commit that sets records, or deletes those that are None."""
        state = {**self.state(self.branches[branch]), **changes}
        return self.add(branch, {key: row for key, row in state.items() if row is not None})

    def ancestors(self, commits: Iterable[int]) -> set[int]:
        """All commits that these were made on, themselves included."""
        seen: set[int] = set()
        waiting = list(commits)
        while waiting:
            commit = waiting.pop()
            if commit not in seen:
                seen.add(commit)
                waiting += self.nodes[commit].parents
        return seen

    def merge_bases(self, one: int, two: int) -> list[int]:
        """Common ancestors that are ancestors of no other common ancestor."""
        common = self.ancestors([one]) & self.ancestors([two])
        below = {old for commit in common for old in self.ancestors(self.nodes[commit].parents)}
        return sorted(common - below)

    def base_state(self, one: int, two: int) -> Mapping[str, Any]:
        """The state to merge against: that of the merge base, or the merge of several."""
        bases = self.merge_bases(one, two)
        known = len(self.nodes)
        virtual = bases[0]
        for base in bases[1:]:
            merged = _virtual(self.base_state(virtual, base), self.state(virtual), self.state(base))
            self.nodes.append(Node((virtual, base), merged))
            virtual = len(self.nodes) - 1
        state = self.state(virtual)
        del self.nodes[known:]
        return state

    def has(self, commit: int, branch: str) -> bool:
        """Whether a branch has a commit in its history."""
        return commit in self.ancestors([self.branches[branch]])

    def merge(self, theirs: int, into: str, side: str | None = None) -> Answer | None:
        """What merging a commit into a branch gives; None if the branch has it. Commits unless there are conflicts."""
        if self.has(theirs, into):
            return None
        ours = self.branches[into]
        answer = three_way(self.base_state(ours, theirs), self.state(ours), self.state(theirs), side)
        if not answer.conflicts or side is not None:
            self.add(into, answer.state, theirs)
        return answer

    def plan(self, theirs: int, into: str) -> tuple[Mapping[str, Any], Answer]:
        """What merging a commit into a branch would give without decisions, and the base of that."""
        ours = self.branches[into]
        base = self.base_state(ours, theirs)
        return base, three_way(base, self.state(ours), self.state(theirs), None)

    def erase(self, key: str) -> None:
        """Take a record out of every commit."""
        self.nodes = [Node(node.parents, {one: row for one, row in node.state.items() if one != key})
                      for node in self.nodes]  # fmt: skip

    def is_idle(self, theirs: int, ours: int) -> bool:
        """Whether the commits that one has and the other has not all leave everything as it was."""
        new = self.ancestors([theirs]) - self.ancestors([ours])
        return all(self.state(parent) == self.state(one) for one in new for parent in self.nodes[one].parents)

    def authors(self, commit: int, key: str, field: str) -> set[int]:
        """The commits that may have written the value that a field has at a commit: no parent of theirs has it."""

        def value(one: int) -> Any:
            row = self.state(one).get(key)
            return ("gone",) if row is None else row[field]

        return {one for one in self.ancestors([commit]) if value(one) == value(commit)
                and all(value(parent) != value(commit) for parent in self.nodes[one].parents)}  # fmt: skip

    def revert(self, commit: int, branch: str, side: str | None = None) -> Answer:
        """Undo a commit: what turns it into its first parent, brought to a branch."""
        before = self.state(self.nodes[commit].parents[0])
        return self._apply(self.state(commit), before, branch, side)

    def pick(self, commit: int, branch: str, side: str | None = None) -> Answer:
        """Repeat a commit: what turned its first parent into it, brought to a branch."""
        before = self.state(self.nodes[commit].parents[0])
        return self._apply(before, self.state(commit), branch, side)

    def restore(self, commit: int, branch: str) -> None:
        """Give a branch an earlier state."""
        if self.state(commit) != self.state(self.branches[branch]):
            self.add(branch, self.state(commit))

    def _apply(self, base: State, theirs: State, branch: str, side: str | None) -> Answer:
        ours = self.state(self.branches[branch])
        answer = three_way(base, ours, theirs, side)
        if (not answer.conflicts or side is not None) and answer.state != ours:
            self.add(branch, answer.state)
        return answer
