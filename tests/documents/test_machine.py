"""Random histories: whatever is written, branched, merged and dropped, a space answers like a fold of its log."""

from __future__ import annotations

import importlib
import pkgutil
import re
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from typing import Any

import pytest
from documents_model import Model, Unfit, equal
from documents_sizes import SIZES, small_sizes
from documents_strategies import documents, patch_lists
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from marking import examples

import ontolake.documents
import ontolake.parallel
from ontolake.documents import (
    Delete,
    MergeConflictError,
    Patch,
    PatchError,
    Policy,
    Set,
    Space,
    open_space,
    prefer_source,
    prefer_target,
)
from ontolake.documents.operations import Operation
from ontolake.history import Conflict
from ontolake.history.pointers import value_at

IDS = ["a", "b", "c"]

operations = st.one_of(
    st.tuples(st.just("set"), st.sampled_from(IDS), documents),
    st.tuples(st.just("patch"), st.sampled_from(IDS), patch_lists),
    st.tuples(st.just("patch"), st.sampled_from(IDS), patch_lists),
    st.tuples(st.just("delete"), st.sampled_from(IDS), st.none()),
)


def as_operation(op: str, id: str, data: Any) -> Operation:
    return Set(id, data) if op == "set" else Patch(id, data) if op == "patch" else Delete(id)


class Histories(RuleBasedStateMachine):
    """One space and one model, told the same things."""

    url: str
    folder: str | None = None

    def open(self) -> Space:
        space = open_space(self.url, "s")
        space.snapshots.pause = 3600
        return space

    @initialize(every=st.integers(0, 4))
    def start(self, every: int) -> None:
        self.sizes = small_sizes()
        self.sizes.__enter__()
        self.set_place()
        self.policy = Policy(every=every, keep=1, spacing=3)
        self.model = Model()
        self.space = self.open()
        self.space.snapshots.policy = self.policy
        self.requests: list[tuple[str, int, list[Operation], str, Any]] = []

    def set_place(self) -> None:
        self.folder = tempfile.mkdtemp()
        self.url = f"{self.folder}/"

    def teardown(self) -> None:
        self.space.close()
        self.sizes.__exit__(None, None, None)
        if self.folder is not None:
            shutil.rmtree(self.folder)

    def branch(self, number: int, *, alive: bool) -> str:
        names = [name for name in self.model.branches if not alive or name not in self.model.deleted]
        return names[number % len(names)]

    @rule(steps=st.lists(operations, min_size=1, max_size=4), number=st.integers(0, 9))
    def transact(self, steps: list[tuple[str, str, Any]], number: int) -> None:
        branch = self.branch(number, alive=True)
        request = ("machine", self.model.seq, [as_operation(*step) for step in steps], branch)
        try:
            seq = self.model.commit(branch, steps)
        except Unfit:
            with pytest.raises(PatchError):
                self.space.transact(*request[:3], branch=branch)
            return
        commit = self.space.transact(*request[:3], branch=branch)
        assert commit.seq == seq
        self.requests.append((*request, commit))

    @rule(number=st.integers(0, 9), parent=st.integers(0, 9), at=st.none() | st.integers(0, 20))
    def create(self, number: int, parent: int, at: int | None) -> None:
        name, of = f"b{len(self.model.branches)}", self.branch(parent, alive=False)
        if at is not None:
            at = min(at, self.model.heads[of])
        assert self.space.branches.create(name, parent=of, at=at).head == self.model.create(name, of, at)

    @precondition(lambda self: len(self.model.branches) - len(self.model.deleted) > 1)
    @rule(number=st.integers(0, 9))
    def delete(self, number: int) -> None:
        names = [name for name in self.model.branches if name and name not in self.model.deleted]
        self.space.branches.delete(names[number % len(names)])
        self.model.delete(names[number % len(names)])

    @precondition(lambda self: len(self.model.branches) > 1)
    @rule(source=st.integers(0, 9), into=st.integers(0, 9), ours=st.booleans())
    def merge(self, source: int, into: int, ours: bool) -> None:
        """The model cannot merge, but knows what must be true of a merge: it ends in a state both sides explain."""
        one, two = self.branch(source, alive=False), self.branch(into, alive=True)
        if one == two:
            return
        before, theirs = self.model.states(two), self.model.states(one)
        conflicts: Sequence[Conflict] = ()
        try:
            result = self.space.branches.merge(one, two)
        except MergeConflictError as error:
            conflicts = error.conflicts
        if conflicts:
            for conflict in conflicts:
                for found, document in ((conflict.theirs, theirs.get(conflict.key)),
                                        (conflict.ours, before.get(conflict.key))):
                    assert equal(found, document if conflict.field is None else value_at(document, conflict.field))
            result = self.space.branches.merge(one, two, resolve=prefer_target if ours else prefer_source)
            kept = before if ours else theirs
            assert all(equal(kept.get(conflict.key), self.space.read(conflict.key, branch=two).document)
                       for conflict in conflicts)  # fmt: skip
        if result.commit is None:
            return
        if result.status == "fast_forward":
            assert all(equal(theirs.get(id), self.space.read(id, branch=two).document) for id in IDS)
        written = [(revision.op, revision.id, revision.data) for id in IDS
                   for revision in self.space.history(id, branch=two, since=self.model.seq)]  # fmt: skip
        assert self.model.commit(two, written) == result.commit.seq

    @precondition(lambda self: self.requests)
    @rule(number=st.integers(0, 99))
    def repeat(self, number: int) -> None:
        session, local_seq, steps, branch, commit = self.requests[number % len(self.requests)]
        assert self.space.transact(session, local_seq, steps, branch=branch) == commit

    @rule(chance=st.randoms(use_true_random=False))
    def drop_snapshots(self, chance: Any) -> None:
        with self.space._database.write as connection:
            for (row,) in connection.execute("SELECT rowid FROM snapshot").fetchall():
                if chance.random() < 0.5:
                    connection.execute("DELETE FROM snapshot WHERE rowid = ?", (row,))

    @rule()
    def compact(self) -> None:
        self.space.snapshots.compact()

    @rule()
    def reopen(self) -> None:
        self.space.close()
        self.space = self.open()
        self.space.snapshots.policy = self.policy

    @invariant()
    def the_current_state_is_that_of_the_model(self) -> None:
        assert self.space.last_seq() == self.model.seq
        for branch in self.model.branches:
            expected = self.model.states(branch)
            assert equal(dict(self.space.snapshot(branch=branch).rows()), expected)
            for id in IDS:
                assert equal(self.space.read(id, branch=branch).document, expected.get(id))

    @rule()
    def every_moment_is_that_of_the_model(self) -> None:
        for branch in self.model.branches:
            for seq in range(self.model.seq + 1):
                expected = self.model.states(branch, seq)
                for id, entity in self.space.read_many(IDS, branch=branch, seq=seq).items():
                    assert equal(entity.document, expected.get(id))
                    assert self.space.read(id, branch=branch, seq=seq) == entity

    @rule()
    def changes_lead_from_moment_to_moment(self) -> None:
        for branch in self.model.branches:
            state: dict[str, Any] = {}
            seq = 0
            for change in self.space.changes(0, branch=branch):
                assert change.commit >= seq
                if change.commit > seq:
                    assert equal(state, self.model.states(branch, change.commit - 1))
                    seq = change.commit
                assert equal(state.pop(change.key, None), change.before)
                if change.after is not None:
                    state[change.key] = change.after
            assert equal(state, self.model.states(branch))

    @precondition(lambda self: len(self.model.branches) > 1)
    @rule(one=st.integers(0, 9), two=st.integers(0, 9), seq=st.integers(0, 20))
    def differences_are_those_of_the_states(self, one: int, two: int, seq: int) -> None:
        after, before = self.branch(one, alive=False), self.branch(two, alive=False)
        seq = min(seq, self.model.seq)
        diff = self.space.branches.diff(after, before, against_seq=seq)
        now, then = self.model.states(after), self.model.states(before, seq)
        assert equal(diff.added, {id: now[id] for id in now if id not in then})
        assert equal(diff.removed, {id: then[id] for id in then if id not in now})
        assert set(diff.modified) == {id for id in now if id in then and not equal(now[id], then[id])}

    @rule()
    def nothing_is_damaged(self) -> None:
        assert list(self.space.verify()) == []


class HistoriesOnPages(Histories):
    """The same over the seam."""

    def set_place(self) -> None:
        self.url = f"memory://{secrets.token_hex(6)}"


class HistoriesOnFiles(Histories):
    """The same over the seam, in a file."""

    def set_place(self) -> None:
        self.folder = tempfile.mkdtemp()
        self.url = f"sqlite+file://{self.folder}"


def test_every_size_is_set_low() -> None:
    """A new one must be named in `documents_sizes`, so that short histories go beyond it."""
    size = re.compile(r"_?(MOST_|[A-Z_]*(PAGE|CHUNK|BATCH|SIZE))[A-Z_]*")
    found = {
        (module.__name__, name)
        for module in (importlib.import_module(one.name)
                       for one in pkgutil.walk_packages(ontolake.documents.__path__, "ontolake.documents."))
        for name, value in vars(module).items() if size.fullmatch(name) and type(value) is int
        and not hasattr(ontolake.parallel, name)
    }  # fmt: skip
    limits = {("ontolake.documents.values.codec", "_MOST_DIGITS")}  # of what can be stored
    assert found - limits == {(module.__name__, name) for module, name in SIZES}


QUICK = settings(max_examples=examples(40), stateful_step_count=25, deadline=None,
                 suppress_health_check=list(HealthCheck))

TestHistories = Histories.TestCase
TestHistories.settings = QUICK
TestHistoriesOnPages = HistoriesOnPages.TestCase
TestHistoriesOnPages.settings = settings(QUICK, max_examples=10)


@pytest.mark.slow
class TestHistoriesOnFiles(HistoriesOnFiles.TestCase):
    settings = settings(QUICK, max_examples=5)


@pytest.mark.slow
def test_histories_on_seaweed(seaweed_url: str) -> None:
    class HistoriesOnSeaweed(Histories):
        def set_place(self) -> None:
            self.url = f"{seaweed_url}/{secrets.token_hex(6)}"

    run_state_machine_as_test(HistoriesOnSeaweed, settings=settings(QUICK, max_examples=5))  # type: ignore[no-untyped-call]


@pytest.mark.slow
class TestManyHistories(Histories.TestCase):
    settings = settings(QUICK, max_examples=150, stateful_step_count=40)
