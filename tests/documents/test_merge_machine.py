"""Random histories of many branches: what a space merges is what a git of dictionaries merges."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
from dictionary_git import DictionaryGit, by_field
from documents_sizes import small_sizes
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from marking import examples

from ontolake.documents import (
    Delete,
    MergeConflictError,
    Patch,
    Policy,
    Set,
    open_space,
    prefer_source,
    prefer_target,
)

IDS = ["x", "y"]
NAMES = ["a", "b", "c", "d"]

branches = st.sampled_from(["main", *NAMES])
values = st.integers(1, 2)
documents = st.fixed_dictionaries({}, optional={"f": values, "g": values})


def name_of(branch: str) -> str:
    """What the space calls a branch: its first one has no name."""
    return "" if branch == "main" else branch


class Merges(RuleBasedStateMachine):
    """One space and one git of dictionaries, told the same things."""

    @initialize(every=st.integers(0, 3), begun=documents)
    def start(self, every: int, begun: Any) -> None:
        self.sizes = small_sizes()
        self.sizes.__enter__()
        self.folder = tempfile.TemporaryDirectory()
        self.policy = Policy(every=every, keep=1, spacing=2)
        self.git = DictionaryGit(by_field)
        self.open()
        self.timelines: dict[str, list[tuple[int, int]]] = {"main": [(0, 0)]}
        self.write("main", {"x": begun})
        for name in NAMES[:3]:
            self.create(name, "main", None)

    def open(self) -> None:
        self.space = open_space(f"{self.folder.name}/", "s")
        self.space.snapshots.pause = 3600
        self.space.snapshots.policy = self.policy

    def teardown(self) -> None:
        if hasattr(self, "space"):
            self.space.close()
            self.folder.cleanup()
            self.sizes.__exit__(None, None, None)

    def alive(self, *names: str) -> bool:
        return all(name in self.git.branches for name in names)

    def write(self, branch: str, changes: dict[str, Any]) -> None:
        written = [Delete(id) if value is None else Set(id, value) for id, value in changes.items()]
        self.space.transact(*self.space.next_request(), written, branch=name_of(branch))
        self.git.write(branch, changes)
        self.note(branch)

    def note(self, branch: str) -> None:
        self.timelines[branch].append((self.space.last_seq(), self.git.branches[branch]))

    def create(self, name: str, parent: str, at: int | None) -> None:
        timeline = self.timelines[parent]
        seq, commit = timeline[-1] if at is None else timeline[at % len(timeline)]
        made = self.space.branches.create(name, parent=name_of(parent), at=None if at is None else seq)
        self.git.branches[name] = commit
        self.timelines[name] = [(made.head, commit)]

    @rule(branch=branches, id=st.sampled_from(IDS), document=st.none() | documents)
    def change(self, branch: str, id: str, document: Any) -> None:
        if self.alive(branch):
            self.write(branch, {id: document})

    @rule(branch=branches, id=st.sampled_from(IDS), field=st.sampled_from(["f", "g"]), value=values)
    def patch(self, branch: str, id: str, field: str, value: int) -> None:
        if self.alive(branch):
            patches = [{"op": "add", "path": f"/{field}", "value": value}]
            self.space.transact(*self.space.next_request(), [Patch(id, patches)], branch=name_of(branch))
            self.git.write(branch, {id: {**self.git.state(branch).get(id, {}), field: value}})
            self.note(branch)

    @rule(name=st.sampled_from(NAMES), parent=branches, at=st.none() | st.integers(0, 9))
    def branch(self, name: str, parent: str, at: int | None) -> None:
        if self.alive(parent) and not self.alive(name):
            self.create(name, parent, at)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        if self.alive(name):
            self.space.branches.delete(name)
            del self.git.branches[name]

    @rule(source=branches, into=branches, theirs=st.booleans())
    def merge(self, source: str, into: str, theirs: bool) -> None:
        if source == into or not self.alive(source, into):
            return
        expected = self.git.merge(source, into, take_theirs=theirs)
        one, two = name_of(source), name_of(into)
        try:
            result = self.space.branches.merge(one, two)
            conflicts: set[str] = set()
        except MergeConflictError as error:
            conflicts = {conflict.id for conflict in error.conflicts}
            result = self.space.branches.merge(one, two, resolve=prefer_source if theirs else prefer_target)
            assert set(result.resolved) == conflicts
        assert conflicts == (set() if expected is None else expected.conflicts)
        # Commits that say no more than that branches were merged are not merged again. The git does merge them, so one
        # of the two may record a merge where the other has nothing to do; then it brings nothing.
        if expected is None or result.commit is None:
            assert (result.taken, result.combined) == ((), ())
        if result.commit is not None:
            assert len(result.commit.parents) == 2
            self.note(into)

    @rule(first=branches, second=branches, third=branches, theirs=st.booleans())
    def merge_in_a_ring(self, first: str, second: str, third: str, theirs: bool) -> None:
        for source, into in ((first, second), (second, third), (third, first)):
            self.merge(source, into, theirs)

    @rule(first=branches, second=branches, theirs=st.booleans(), changed=documents, other=documents)
    def cross(self, first: str, second: str, theirs: bool, changed: Any, other: Any) -> None:
        """Two branches take each other's state of before, then one takes a value back: their merge has two bases."""
        if first == second or not self.alive(first, second) or self.alive("d"):
            return
        before = self.git.state(second).get("x")
        self.write(first, {"x": changed})
        self.write(second, {"y": other})
        self.create("d", first, None)
        self.merge(second, first, theirs)
        self.merge("d", second, theirs)
        self.delete("d")
        self.write(second, {"x": before})
        self.merge(second, first, theirs)

    def answers(self) -> Any:
        """All that can be asked: states, differences and plans of merges."""
        names = [name_of(branch) for branch in self.git.branches]
        pairs = [(one, two) for one in names for two in names if one != two]
        return (
            [dict(self.space.snapshot(branch=name).rows()) for name in names],
            [self.space.branches.diff(one, two) for one, two in pairs],
            [self.space.branches.plan_merge(one, two) for one, two in pairs],
            [[commit._replace(time=None) for commit in self.space.commits(branch=name)] for name in names],
        )

    @precondition(lambda self: hasattr(self, "space"))
    @rule(drop=st.booleans(), again=st.booleans(), forget=st.booleans())
    def keep_up(self, drop: bool, again: bool, forget: bool) -> None:
        """Nothing changes by compacting, opening again, or if merges do not say what they were made against."""
        before = self.answers()
        with self.space._database.write as connection:
            if drop:
                connection.execute("DELETE FROM snapshot")
            if forget:
                connection.execute("""UPDATE "commit" SET resolution = json_remove(resolution, '$.merged.bases')""")
        self.space.snapshots.compact()
        if again:
            self.space.close()
            self.open()
        assert self.answers() == before
        assert list(self.space.verify()) == []

    @invariant()
    def every_branch_has_the_state_of_the_git(self) -> None:
        for branch in self.git.branches:
            assert dict(self.space.snapshot(branch=name_of(branch)).rows()) == self.git.state(branch)


class TestMerges(Merges.TestCase):
    settings = settings(max_examples=examples(20), stateful_step_count=25, deadline=None,
                        suppress_health_check=list(HealthCheck))


@pytest.mark.slow
class TestManyMerges(Merges.TestCase):
    settings = settings(max_examples=examples(60), stateful_step_count=60, deadline=None,
                        suppress_health_check=list(HealthCheck))
