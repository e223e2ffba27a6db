"""Random histories of many branches, told to a store and to a git of dictionaries: what merge machines share."""

from __future__ import annotations

from typing import Any

from dictionary_git import DictionaryGit, Merged
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

KEYS = ["x", "y"]
NAMES = ["a", "b", "c", "d"]

branches = st.sampled_from(["main", *NAMES])
values = st.integers(1, 2)
records = st.fixed_dictionaries({}, optional={"f": values, "g": values})


class MergeMachine(RuleBasedStateMachine):
    """One store and one git. A subclass says how its store writes, branches, merges and reads."""

    git: DictionaryGit

    def store(self, branch: str, key: str, record: Any) -> None:
        """Write one record in a commit; None deletes it."""
        raise NotImplementedError

    def create(self, name: str, parent: str) -> None:
        """Make a branch at the head of another, in the store and in the git."""
        raise NotImplementedError

    def drop(self, name: str) -> bool:
        """Delete a branch from the store, if that is allowed."""
        raise NotImplementedError

    def merge_store(self, source: str, into: str, theirs: bool, expected: Merged | None) -> set[str]:
        """Merge, and settle conflicts for one side. Returns the keys that were in conflict."""
        raise NotImplementedError

    def state(self, branch: str) -> dict[str, Any]:
        """The records of a branch by key."""
        raise NotImplementedError

    def begin(self, record: Any) -> None:
        self.write("main", "x", record)
        for name in NAMES[:3]:
            self.create(name, "main")

    def alive(self, *names: str) -> bool:
        return all(name in self.git.branches for name in names)

    def write(self, branch: str, key: str, record: Any) -> None:
        self.git.write(branch, {key: record})
        self.store(branch, key, record)

    @rule(branch=branches, key=st.sampled_from(KEYS), record=st.none() | records)
    def change(self, branch: str, key: str, record: Any) -> None:
        if self.alive(branch):
            self.write(branch, key, record)

    @rule(name=st.sampled_from(NAMES), parent=branches)
    def branch(self, name: str, parent: str) -> None:
        if self.alive(parent) and not self.alive(name):
            self.create(name, parent)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        if self.alive(name) and self.drop(name):
            del self.git.branches[name]

    @rule(source=branches, into=branches, theirs=st.booleans())
    def merge(self, source: str, into: str, theirs: bool) -> None:
        if source != into and self.alive(source, into):
            expected = self.git.merge(source, into, take_theirs=theirs)
            conflicts = self.merge_store(source, into, theirs, expected)
            assert conflicts == (set() if expected is None else expected.conflicts)

    @rule(first=branches, second=branches, third=branches, theirs=st.booleans())
    def merge_in_a_ring(self, first: str, second: str, third: str, theirs: bool) -> None:
        for source, into in ((first, second), (second, third), (third, first)):
            self.merge(source, into, theirs)

    @rule(first=branches, second=branches, theirs=st.booleans(), changed=records, other=records)
    def cross(self, first: str, second: str, theirs: bool, changed: Any, other: Any) -> None:
        """Two branches take each other's state of before, then one takes a value back: their merge has two bases."""
        if first == second or not self.alive(first, second) or self.alive("d"):
            return
        before = self.git.state(second).get("x")
        self.write(first, "x", changed)
        self.write(second, "y", other)
        self.create("d", first)
        self.merge(second, first, theirs)
        self.merge("d", second, theirs)
        self.delete("d")
        self.write(second, "x", before)
        self.merge(second, first, theirs)

    @invariant()
    def every_branch_has_the_state_of_the_git(self) -> None:
        for branch in self.git.branches:
            assert self.state(branch) == self.git.state(branch)
