"""Random histories of many branches: what a graph merges is what a git of dictionaries merges."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from typing import Any

import pytest
from dictionary_git import DictionaryGit, Disputed, by_field, is_disputed
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from marking import examples

from ontolake.graph import Graph, MergeConflictError, UnknownCommitError, manifest
from ontolake.model import Entity, Field

KEYS = ["x", "y"]
NAMES = ["a", "b", "c", "d"]


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    f: Field[int | None]
    g: Field[float | None]


branches = st.sampled_from(["main", *NAMES])
rows = st.fixed_dictionaries({"f": st.none() | st.integers(1, 2), "g": st.sampled_from([None, 1.0, 2.0])})


def virtual_rule(base: Any, ours: Any, theirs: Any) -> Any:
    """Bases merge by field, too, but a row of which they dispute one field is disputed as a whole."""
    found = by_field(base, ours, theirs)
    return Disputed() if is_disputed(found) else found


def shown(row: Any) -> dict[str, Any]:
    """A row without what has no value: to a git of dictionaries that is not there."""
    return {name: row[name] for name in "fg" if row[name] is not None}


class Merges(RuleBasedStateMachine):
    """One graph and one git of dictionaries, told the same things."""

    @initialize(begun=rows)
    def start(self, begun: Any) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(manifest, "COMPACT_AFTER", 3)
        self.folder = tempfile.TemporaryDirectory()
        self.graph = Graph.init(f"{self.folder.name}/g/", [Thing])
        self.git = DictionaryGit(by_field, virtual_rule)
        self.cleaned = False
        self.past: dict[str, dict[str, Any]] = {}
        self.change("main", "x", begun)
        for name in NAMES[:3]:
            self.branch(name, "main")

    def teardown(self) -> None:
        if hasattr(self, "graph"):
            self.graph.close()
            self.folder.cleanup()
            self.patch.undo()

    def alive(self, *names: str) -> bool:
        return all(name in self.git.branches for name in names)

    @rule(branch=branches, key=st.sampled_from(KEYS), row=rows)
    def change(self, branch: str, key: str, row: Any) -> None:
        if self.alive(branch):
            self.graph.load(Thing, [{"id": key, **row}], branch=branch)
            self.git.write(branch, {key: shown(row)})

    @rule(branch=branches, key=st.sampled_from(KEYS))
    def remove(self, branch: str, key: str) -> None:
        if self.alive(branch) and key in self.git.state(branch):
            assert self.graph.delete(Thing, [key], branch=branch) == 1
            self.git.write(branch, {key: None})

    @rule(name=st.sampled_from(NAMES), parent=branches)
    def branch(self, name: str, parent: str) -> None:
        if self.alive(parent) and not self.alive(name):
            self.graph.branches.create(name, parent=parent)
            self.git.branches[name] = self.git.branches[parent]

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        if self.alive(name) and not any(one.parent == name for one in self.graph.branches.list()):
            self.graph.branches.delete(name)
            del self.git.branches[name]

    @rule(source=branches, into=branches, theirs=st.booleans())
    def merge(self, source: str, into: str, theirs: bool) -> None:
        if source == into or not self.alive(source, into):
            return
        expected = self.git.merge(source, into, take_theirs=theirs)
        try:
            result = self.graph.merge(source, into)
            conflicts: set[str] = set()
        except MergeConflictError as error:
            conflicts = {conflict.key for conflict in error.conflicts}
            result = self.graph.merge(source, into, strategy="theirs" if theirs else "ours")
        assert conflicts == (set() if expected is None else expected.conflicts)
        assert (result.status == "up_to_date") == (expected is None)
        if expected is not None:
            assert result.commit is not None
            assert len(result.commit.parents) == 2

    @rule(first=branches, second=branches, third=branches, theirs=st.booleans())
    def merge_in_a_ring(self, first: str, second: str, third: str, theirs: bool) -> None:
        for source, into in ((first, second), (second, third), (third, first)):
            self.merge(source, into, theirs)

    @rule(first=branches, second=branches, theirs=st.booleans(), changed=rows, other=rows)
    def cross(self, first: str, second: str, theirs: bool, changed: Any, other: Any) -> None:
        """Two branches take each other's state of before, then one takes a value back: their merge has two bases."""
        if first == second or not self.alive(first, second) or self.alive("d"):
            return
        before = self.git.state(second).get("x")
        self.change(first, "x", changed)
        self.change(second, "y", other)
        self.branch("d", first)
        self.merge(second, first, theirs)
        self.merge("d", second, theirs)
        self.delete("d")
        if before is None:
            self.remove(second, "x")
        else:
            self.change(second, "x", {"f": before.get("f"), "g": before.get("g")})
        self.merge(second, first, theirs)

    @rule(kind=st.sampled_from(["optimize", "gc", "cleanup", "reopen"]), branch=branches, one=branches, two=branches)
    def keep_up(self, kind: str, branch: str, one: str, two: str) -> None:
        """Whatever upkeep does, the next merge is the same."""
        pair = one != two and self.alive(one, two)
        before = self.graph.merge(one, two, dry_run=True) if pair else None
        diff = list(self.graph.diff(one, two)) if pair else []
        if kind == "optimize" and self.alive(branch):
            self.graph.optimize(branch=branch)
        elif kind == "gc":
            self.graph.gc(dry_run=False)
        elif kind == "cleanup":
            self.graph.cleanup(keep=timedelta(0), keep_commits=1, dry_run=False)
            self.cleaned = True
        elif kind == "reopen":
            self.graph.close()
            self.graph = Graph.open(f"{self.folder.name}/g/")
        if before is not None:
            after = self.graph.merge(one, two, dry_run=True)
            assert (after.conflicts, after.tables) == (before.conflicts, before.tables)
            assert [change[1:] for change in self.graph.diff(one, two)] == [change[1:] for change in diff]

    @rule(branch=branches, number=st.integers(0, 99))
    def follow(self, branch: str, number: int) -> None:
        """Changes since any commit that a branch knows lead from its state to that of the branch."""
        if self.cleaned or not self.alive(branch):
            return
        since = sorted(self.past)[number % len(self.past)]
        state = {key: dict(row) for key, row in self.past[since].items()}
        try:
            for change in self.graph.changes(since, branch=branch):
                if change.after is None:
                    del state[change.key]
                else:
                    state[change.key] = shown(change.after)
        except UnknownCommitError:
            return
        assert state == self.git.state(branch)
        assert since not in {commit.id for commit in self.graph.commits(since=since, branch=branch)}

    @invariant()
    def every_branch_has_the_state_of_the_git(self) -> None:
        for branch in self.git.branches:
            found = {key: shown(row) for key, row in self.graph.snapshot(branch=branch).rows("Thing")}
            assert found == self.git.state(branch)
            self.past[self.graph.snapshot(branch=branch).commit] = found


@pytest.mark.slow
class TestMerges(Merges.TestCase):
    settings = settings(max_examples=max(6, examples(10)), stateful_step_count=16, deadline=None,
                        suppress_health_check=list(HealthCheck))
