"""Random histories of many branches: what a graph merges is what a git of dictionaries merges."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from typing import Any

import pytest
from dictionary_git import DictionaryGit, Merged, by_field
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from marking import examples
from merge_machine import MergeMachine, branches, records

from ontolake.graph import Graph, MergeConflictError, UnknownCommitError
from ontolake.graph.commit import manifest
from ontolake.model import Entity, Field


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    f: Field[int | None]
    g: Field[float | None]


def shown(row: Any) -> dict[str, Any]:
    """A row without what has no value: to a git of dictionaries that is not there."""
    return {name: row[name] for name in "fg" if row[name] is not None}


class Merges(MergeMachine):
    """A graph and a git."""

    @initialize(row=records)
    def start(self, row: Any) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(manifest, "COMPACT_AFTER", 3)
        self.folder = tempfile.TemporaryDirectory()
        self.graph = Graph.init(f"{self.folder.name}/g/", [Thing])
        self.git = DictionaryGit(by_field, by_field)
        self.cleaned = False
        self.past: dict[str, dict[str, Any]] = {}
        self.begin(row)

    def teardown(self) -> None:
        if hasattr(self, "graph"):
            self.graph.close()
            self.folder.cleanup()
            self.patch.undo()

    def write(self, branch: str, key: str, record: Any) -> None:
        if record is not None or key in self.git.state(branch):
            super().write(branch, key, record)

    def store(self, branch: str, key: str, record: Any) -> None:
        if record is None:
            assert self.graph.delete(Thing, [key], branch=branch) == 1
        else:
            self.graph.load(Thing, [{"id": key, "f": record.get("f"), "g": record.get("g")}], branch=branch)

    def create(self, name: str, parent: str) -> None:
        self.graph.branches.create(name, parent=parent)
        self.git.branches[name] = self.git.branches[parent]

    def drop(self, name: str) -> bool:
        if any(one.parent == name for one in self.graph.branches.list()):
            return False
        self.graph.branches.delete(name)
        return True

    def merge_store(self, source: str, into: str, theirs: bool, expected: Merged | None) -> set[str]:
        try:
            result = self.graph.merge(source, into)
            conflicts: set[str] = set()
        except MergeConflictError as error:
            conflicts = {conflict.key for conflict in error.conflicts}
            result = self.graph.merge(source, into, strategy="theirs" if theirs else "ours")
        assert (result.status == "up_to_date") == (expected is None)
        if expected is not None:
            assert result.commit is not None
            assert len(result.commit.parents) == 2
        return conflicts

    def state(self, branch: str) -> dict[str, Any]:
        snapshot = self.graph.snapshot(branch=branch)
        found = self.past[snapshot.commit] = {key: shown(row) for key, row in snapshot.rows("Thing")}
        return found

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


@pytest.mark.slow
class TestMerges(Merges.TestCase):
    settings = settings(max_examples=max(6, examples(10)), stateful_step_count=16, deadline=None,
                        suppress_health_check=list(HealthCheck))
