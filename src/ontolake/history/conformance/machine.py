"""Random histories of five branches and two tags against the oracle, with upkeep and reopening in between."""

from __future__ import annotations

from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from ontolake.history.conformance.adapter import VersioningAdapter
from ontolake.history.conformance.base import Fresh, VersioningBase, record
from ontolake.history.conformance.oracle import FIELDS
from ontolake.history.conformance.workload import HistoryPlayer, HistoryStep

NAMES = ("a", "b", "c", "d")
branches = st.sampled_from(("main", *NAMES))
names = st.sampled_from(NAMES)
tags = st.sampled_from(("v1", "v2"))
keys = st.sampled_from(("x", "y"))
values = st.sampled_from((None, 1, 2))
records = st.none() | st.builds(record, values, values)
sides = st.sampled_from((None, "ours", "theirs"))
backs = st.integers(0, 3)


class HistoryMachine(RuleBasedStateMachine):
    """One store and one oracle. `adapter` and `place` are set by `machine_for`."""

    adapter: ClassVar[type[VersioningAdapter]]
    place: ClassVar[Any]

    def __init__(self) -> None:
        super().__init__()
        where = type(self).place()
        self.adapter.create(where)
        self.player = HistoryPlayer(self.adapter, where)

    def do(self, kind: str, *arguments: Any) -> None:
        self.player.do(HistoryStep(kind, arguments))

    @initialize(row=st.builds(record, values, values))
    def begin(self, row: Any) -> None:
        self.do("write", "main", "x", row)
        self.do("write", "main", "y", record(0, 0))
        for name in NAMES[:3]:
            self.do("branch", name, "main")

    @rule(branch=branches, key=keys, row=records)
    def write(self, branch: str, key: str, row: Any) -> None:
        self.do("write", branch, key, row)

    @rule(branch=branches, key=keys, field=st.sampled_from(FIELDS), value=values)
    def edit(self, branch: str, key: str, field: str, value: Any) -> None:
        self.do("edit", branch, key, field, value)

    @rule(name=names, parent=branches)
    def branch(self, name: str, parent: str) -> None:
        self.do("branch", name, parent)

    @rule(name=names)
    def delete(self, name: str) -> None:
        self.do("delete", name)

    @rule(name=names, new=names)
    def rename(self, name: str, new: str) -> None:
        self.do("rename", name, new)

    @rule(name=tags, branch=branches)
    def tag(self, name: str, branch: str) -> None:
        self.do("tag", name, branch)

    @rule(name=tags)
    def untag(self, name: str) -> None:
        self.do("untag", name)

    @rule(source=branches, into=branches, side=sides)
    def merge(self, source: str, into: str, side: Any) -> None:
        self.do("merge", source, into, side)

    @rule(first=branches, second=branches, third=branches, side=sides)
    def merge_in_a_ring(self, first: str, second: str, third: str, side: Any) -> None:
        for source, into in ((first, second), (second, third), (third, first)):
            self.do("merge", source, into, side)

    @rule(first=branches, second=branches, side=st.sampled_from(("ours", "theirs")), row=records, other=records)
    def cross(self, first: str, second: str, side: Any, row: Any, other: Any) -> None:
        """Two branches take each other's state of before: their next merge has two bases."""
        if first == second or "d" in (first, second):
            return
        self.do("delete", "d")
        self.do("write", first, "x", row)
        self.do("write", second, "y", other)
        self.do("edit", first, "y", "f", 2)
        self.do("branch", "d", first)
        self.do("merge", second, first, side)
        self.do("merge", "d", second, side)
        self.do("write", second, "x", other)
        self.do("merge", second, first, None)

    @rule(branch=branches, key=keys, row=records, back=backs, side=sides)
    def revert(self, branch: str, key: str, row: Any, back: int, side: Any) -> None:
        self.do("write", branch, key, row)
        self.do("revert", branch, back, side)

    @rule(source=branches, into=branches, key=keys, row=records, side=sides)
    def pick(self, source: str, into: str, key: str, row: Any, side: Any) -> None:
        self.do("write", source, key, row)
        self.do("pick", source, into, side)

    @rule(branch=branches, key=keys, row=records, back=backs)
    def restore(self, branch: str, key: str, row: Any, back: int) -> None:
        self.do("write", branch, key, row)
        self.do("restore", branch, back)

    @rule(source=branches, into=branches, takes=st.lists(st.sampled_from(("ours", "theirs", "base", 7)), min_size=1,
                                                         max_size=3))
    def settle(self, source: str, into: str, takes: Any) -> None:
        self.do("settle", source, into, takes)

    @rule(first=branches, second=branches, key=keys, field=st.sampled_from(FIELDS), take=st.sampled_from(
        ("ours", "theirs", "base", 7)))
    def clash(self, first: str, second: str, key: str, field: str, take: Any) -> None:
        """Two branches change one field, and the conflict is resolved."""
        self.do("edit", first, key, field, 1)
        self.do("edit", second, key, field, 2)
        self.do("settle", first, second, [take])

    @rule(source=branches, into=branches, key=keys, row=records, other=records, side=sides)
    def merge_past(self, source: str, into: str, key: str, row: Any, other: Any, side: Any) -> None:
        """A branch goes on, and what it was before is merged."""
        self.do("write", source, key, row)
        self.do("write", source, key, other)
        self.do("merge_past", source, 1, into, side)

    @rule(tag=tags, source=branches, into=branches, key=keys, row=records, other=records, side=sides)
    def merge_tag(self, tag: str, source: str, into: str, key: str, row: Any, other: Any, side: Any) -> None:
        self.do("write", source, key, row)
        self.do("untag", tag)
        self.do("tag", tag, source)
        self.do("write", source, key, other)
        self.do("merge_tag", tag, into, side)

    @rule(name=names, parent=branches, back=backs)
    def fork(self, name: str, parent: str, back: int) -> None:
        self.do("fork", name, parent, back)

    @rule(name=names, on=st.booleans())
    def protect(self, name: str, on: bool) -> None:
        """Protect a branch, and try everything that is refused then."""
        self.do("protect", name, True)
        self.do("write", name, "x", record(8, 8))
        self.do("revert", name, 0, None)
        self.do("restore", name, 1)
        self.do("pick", "main", name, None)
        self.do("rename", name, "e")
        self.do("delete", name)
        self.do("protect", name, on)

    @rule(branch=branches, other=branches | tags, key=keys, row=records)
    def look(self, branch: str, other: str, key: str, row: Any) -> None:
        """Compare a branch with another one or a tag, both ways, and ask who wrote a record."""
        self.do("write", branch, key, row)
        self.do("compared", other, branch)
        self.do("compared", branch, other)
        self.do("blame", branch, key)

    @rule(branch=branches, tag=tags, key=keys, row=records)
    def erase(self, branch: str, tag: str, key: str, row: Any) -> None:
        """Erase a record that a tag may have, and that was changed since."""
        self.do("tag", tag, branch)
        self.do("write", branch, key, row)
        self.do("erase", key)

    @rule()
    def upkeep(self) -> None:
        self.do("upkeep")

    @rule()
    def reopen(self) -> None:
        self.do("reopen")

    @invariant()
    def heads_and_tags_are_as_the_oracle_says(self) -> None:
        self.player.check()

    def teardown(self) -> None:
        try:
            self.player.check_past()
            self.player.check_times()
        finally:
            self.player.close()


class MachineCases(VersioningBase):
    """Whole histories, made up and shrunk by Hypothesis."""

    title = "Random histories"
    shrink: ClassVar[bool] = True
    """Whether a failing history is made as short as possible, which takes a while."""

    def test_random_histories_match_the_oracle(self, fresh: Fresh) -> None:
        machine = type("Machine", (HistoryMachine,), {"adapter": self.adapter, "place": staticmethod(fresh)})
        run_state_machine_as_test(
            machine, settings=settings(
                max_examples=self.machine_runs, stateful_step_count=self.machine_steps, deadline=None,
                derandomize=True, database=None, suppress_health_check=list(HealthCheck),
                phases=[Phase.generate, Phase.shrink] if self.shrink else [Phase.generate]))  # fmt: skip
