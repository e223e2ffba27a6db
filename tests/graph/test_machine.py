"""Random histories of loads, deletions, branches, merges, optimizes and reopens agree with plain dictionaries."""

from __future__ import annotations

import shutil
import tempfile
from typing import Any

import pytest
from graph_support import TYPES, Customer, held
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from marking import examples

from ontolake.graph import Graph, MergeConflictError

KEYS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True)
Rows = dict[str, str]


class Histories(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.mkdtemp()
        self.graph = Graph.init(f"{self.folder}/g/", TYPES)
        self.model: dict[str, Rows] = {"main": {}}
        self.base: dict[str, Rows] = {}
        self.past: list[tuple[str, str, Rows]] = []
        self.count = 0

    def _branch(self, data: Any) -> str:
        return str(data.draw(st.sampled_from(sorted(self.model))))

    def _agree(self, branch: str) -> None:
        found = {key: row["name"] for key, row in held(self.graph, branch)["node/Customer"].items()}
        assert found == self.model[branch]

    @rule(data=st.data(), keys=KEYS, mode=st.sampled_from(["merge", "overwrite"]))
    def load(self, data: Any, keys: list[str], mode: Any) -> None:
        branch = self._branch(data)
        self.count += 1
        new = {key: f"{key}{self.count}" for key in keys}
        commit = self.graph.load(Customer, [{"id": key, "name": name} for key, name in new.items()], mode=mode,
                                 branch=branch)
        assert commit is not None
        self.model[branch] = new if mode == "overwrite" else {**self.model[branch], **new}
        self.past.append((branch, commit.id, dict(self.model[branch])))
        self._agree(branch)

    @rule(data=st.data(), keys=KEYS)
    def delete(self, data: Any, keys: list[str]) -> None:
        branch = self._branch(data)
        gone = [key for key in keys if key in self.model[branch]]
        assert self.graph.delete(Customer, keys, branch=branch) == len(gone)
        self.model[branch] = {key: name for key, name in self.model[branch].items() if key not in gone}
        self._agree(branch)

    @rule(name=st.sampled_from(["one", "two"]))
    def create_or_drop_branch(self, name: str) -> None:
        if name in self.model:
            self.graph.branches.delete(name)
            del self.model[name]
            self.past = [moment for moment in self.past if moment[0] != name]
        else:
            self.graph.branches.create(name)
            self.model[name] = dict(self.model["main"])
            self.base[name] = dict(self.model["main"])
            self._agree(name)

    @rule(name=st.sampled_from(["one", "two"]))
    def merge(self, name: str) -> None:
        if name not in self.model:
            return
        base, source, target = self.base[name], self.model[name], self.model["main"]
        keys = base.keys() | source.keys() | target.keys()
        changed = {key for key in keys if source.get(key) != base.get(key)}
        clash = {key for key in changed if target.get(key) not in (base.get(key), source.get(key))}
        if clash:
            with pytest.raises(MergeConflictError) as caught:
                self.graph.merge(name)
            assert {conflict.key for conflict in caught.value.conflicts} == clash
            return
        self.graph.merge(name)
        merged = {key: source.get(key) if key in changed else target.get(key) for key in keys}
        self.model["main"] = {key: value for key, value in merged.items() if value is not None}
        self.base[name] = dict(source)
        self.past += [("main", commit, rows) for branch, commit, rows in self.past if branch == name]  # known there now
        self._agree("main")

    @rule(data=st.data())
    def optimize(self, data: Any) -> None:
        branch = self._branch(data)
        self.graph.optimize(branch=branch)
        self._agree(branch)

    @rule()
    def collect_garbage(self) -> None:
        self.graph.gc(dry_run=False)
        assert list(self.graph.verify()) == []

    @rule()
    def reopen(self) -> None:
        self.graph.close()
        self.graph = Graph.open(f"{self.folder}/g/")
        assert self.graph.recovered == []
        for branch in self.model:
            self._agree(branch)

    @rule(data=st.data())
    def look_back(self, data: Any) -> None:
        if self.past:
            branch, commit, rows = data.draw(st.sampled_from(self.past))
            found = dict(self.graph.snapshot(commit, branch=branch).rows("Customer"))
            assert {key: row["name"] for key, row in found.items()} == rows

    def teardown(self) -> None:
        if hasattr(self, "graph"):
            self.graph.close()
            shutil.rmtree(self.folder)


TestHistories = pytest.mark.slow(Histories.TestCase)
TestHistories.settings = settings(max_examples=max(12, examples(12)), stateful_step_count=14, deadline=None)
