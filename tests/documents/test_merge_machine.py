"""Random histories of many branches: what a space merges is what a git of dictionaries merges."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
from dictionary_git import DictionaryGit, Merged, by_field
from documents_sizes import small_sizes
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from marking import examples
from merge_machine import KEYS, NAMES, MergeMachine, branches, records, values

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


def name_of(branch: str) -> str:
    """What the space calls a branch: its first one has no name."""
    return "" if branch == "main" else branch


class Merges(MergeMachine):
    """A space and a git."""

    @initialize(every=st.integers(0, 3), document=records)
    def start(self, every: int, document: Any) -> None:
        self.sizes = small_sizes()
        self.sizes.__enter__()
        self.folder = tempfile.TemporaryDirectory()
        self.policy = Policy(every=every, keep=1, spacing=2)
        self.git = DictionaryGit(by_field)
        self.open()
        self.timelines: dict[str, list[tuple[int, int]]] = {"main": [(0, 0)]}
        self.begin(document)

    def open(self) -> None:
        self.space = open_space(f"{self.folder.name}/", "s")
        self.space.snapshots.pause = 3600
        self.space.snapshots.policy = self.policy

    def teardown(self) -> None:
        if hasattr(self, "space"):
            self.space.close()
            self.folder.cleanup()
            self.sizes.__exit__(None, None, None)

    def store(self, branch: str, key: str, record: Any) -> None:
        self.commit(branch, Delete(key) if record is None else Set(key, record))

    def commit(self, branch: str, operation: Delete | Patch | Set) -> None:
        self.space.transact(*self.space.next_request(), [operation], branch=name_of(branch))
        self.note(branch)

    def note(self, branch: str) -> None:
        self.timelines[branch].append((self.space.last_seq(), self.git.branches[branch]))

    def create(self, name: str, parent: str, at: int | None = None) -> None:
        timeline = self.timelines[parent]
        seq, commit = timeline[-1] if at is None else timeline[at % len(timeline)]
        made = self.space.branches.create(name, parent=name_of(parent), at=None if at is None else seq)
        self.git.branches[name] = commit
        self.timelines[name] = [(made.head, commit)]

    def drop(self, name: str) -> bool:
        self.space.branches.delete(name)
        return True

    def merge_store(self, source: str, into: str, theirs: bool, expected: Merged | None) -> set[str]:
        one, two = name_of(source), name_of(into)
        try:
            result = self.space.branches.merge(one, two)
            conflicts: set[str] = set()
        except MergeConflictError as error:
            conflicts = {conflict.id for conflict in error.conflicts}
            result = self.space.branches.merge(one, two, resolve=prefer_source if theirs else prefer_target)
            assert set(result.resolved) == conflicts
        # Commits that say no more than that branches were merged are not merged again. The git does merge them, so one
        # of the two may record a merge where the other has nothing to do; then it brings nothing.
        if expected is None or result.commit is None:
            assert (result.taken, result.combined) == ((), ())
        if result.commit is not None:
            assert len(result.commit.parents) == 2
            self.note(into)
        return conflicts

    def state(self, branch: str) -> dict[str, Any]:
        return dict(self.space.snapshot(branch=name_of(branch)).rows())

    @rule(branch=branches, key=st.sampled_from(KEYS), field=st.sampled_from(["f", "g"]), value=values)
    def patch(self, branch: str, key: str, field: str, value: int) -> None:
        if self.alive(branch):
            self.git.write(branch, {key: {**self.git.state(branch).get(key, {}), field: value}})
            self.commit(branch, Patch(key, [{"op": "add", "path": f"/{field}", "value": value}]))

    @rule(name=st.sampled_from(NAMES), parent=branches, at=st.integers(0, 9))
    def branch_from_the_past(self, name: str, parent: str, at: int) -> None:
        if self.alive(parent) and not self.alive(name):
            self.create(name, parent, at)

    def answers(self) -> Any:
        """All that can be asked: states, differences and plans of merges."""
        names = [name_of(branch) for branch in self.git.branches]
        pairs = [(one, two) for one in names for two in names if one != two]
        return (
            [self.state(branch) for branch in self.git.branches],
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


class TestMerges(Merges.TestCase):
    settings = settings(max_examples=examples(20), stateful_step_count=25, deadline=None,
                        suppress_health_check=list(HealthCheck))


@pytest.mark.slow
class TestManyMerges(Merges.TestCase):
    settings = settings(max_examples=examples(60), stateful_step_count=60, deadline=None,
                        suppress_health_check=list(HealthCheck))
