"""One branch: commits, the past by commit, tag and time, and what is said about a commit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ontolake.errors import Invalid, NotFound
from ontolake.history.conformance.base import VersioningBase, record
from ontolake.history.contract import VersionControlled
from ontolake.history.refs import Ref


class LinearCases(VersioningBase):
    """Reading what was."""

    title = "Linear history"

    def test_the_store_meets_the_contract(self, store: Any) -> None:
        assert isinstance(store, VersionControlled)

    def test_every_commit_can_be_read_for_ever(self, store: Any) -> None:
        states = []
        for number in range(12):
            changes = {"x": record(number), f"k{number % 4}": record(number, 1) if number % 3 else None}
            commit = self.adapter.write(store, self.main, changes)
            states.append((commit, self.state(store)))
        self.adapter.upkeep(store)
        for commit, state in states:
            assert self.state(store, f"@{commit}") == state
            assert self.state(store, f"{self.main}@{commit}") == state
        assert [one.id for one in self.log(store)][:12] == [commit for commit, _ in reversed(states)]

    def test_a_number_of_commits_before(self, store: Any) -> None:
        for number in range(4):
            self.write(store, self.main, x=record(number))
        assert self.state(store, f"{self.main}~0")["x"] == record(3)
        assert self.state(store, f"{self.main}~2")["x"] == record(1)
        head = self.log(store)[1].id
        assert self.state(store, f"@{head}~1")["x"] == record(1)
        with pytest.raises(NotFound):
            store.at(Ref.parse(f"{self.main}~999"))

    def test_a_time_names_the_last_commit_by_then(self, store: Any) -> None:
        self.write(store, self.main, x=record(1))
        self.write(store, self.main, x=record(2))
        commits = self.log(store)
        assert all(commit.time is not None and commit.time.tzinfo is not None for commit in commits)
        later = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
        assert self.state(store, f"@{later}")["x"] == record(2)
        with pytest.raises(NotFound):
            store.at(Ref.parse("@2001-01-01T00:00Z"))
        with pytest.raises(Invalid):
            store.at(Ref.parse("@2001-13-45T00:00Z"))

    def test_a_commit_tells_message_author_and_time(self, store: Any) -> None:
        commit = self.adapter.write(store, self.main, {"x": record(1)}, message="First order", author="ada")
        found = self.log(store)[0]
        assert (found.id, found.message, found.author) == (commit, "First order", "ada")
        assert found.time is not None
        assert abs((datetime.now(UTC) - found.time).total_seconds()) < 300

    def test_a_difference_has_the_changed_rows_with_both_states(self, store: Any) -> None:
        first = self.adapter.write(store, self.main, {"x": record(1), "y": record(1), "z": record(1)})
        self.adapter.write(store, self.main, {"x": record(2), "y": None, "w": record(5)})
        changes = list(store.diff(store.at(Ref.parse(f"@{first}")), store.at(Ref.parse(self.main))))
        kinds = {self.adapter.text(one.key): (one.kind.value, one.before and one.before["f"], one.after
                                              and one.after["f"]) for one in changes}  # fmt: skip
        assert kinds == {"x": ("update", 1, 2), "y": ("delete", 1, None), "w": ("insert", None, 5)}

    def test_the_history_of_a_row_is_its_states_newest_first(self, store: Any) -> None:
        commits = [self.write(store, self.main, x=record(1)), self.write(store, self.main, x=record(2))]
        self.write(store, self.main, y=record(9))
        commits += [self.write(store, self.main, x=None), self.write(store, self.main, x=record(4))]
        self.adapter.upkeep(store)
        versions = list(store.history(self.adapter.table, self.adapter.key("x")))
        assert [one.commit.id for one in versions] == commits[::-1]
        assert [one.row and one.row["f"] for one in versions] == [4, None, 2, 1]

    def test_blame_names_the_commit_that_wrote_each_field(self, store: Any) -> None:
        first = self.write(store, self.main, x=record(1, 1))
        self.write(store, self.main, x=record(2, 1))
        third = self.write(store, self.main, x=record(3, 1))
        self.write(store, self.main, y=record(3, 3))
        blamed = store.blame(self.adapter.table, self.adapter.key("x"))
        assert {name: blamed[self.adapter.field(name)].id for name in ("f", "g")} == {"f": third, "g": first}
        with pytest.raises(NotFound):
            store.blame(self.adapter.table, self.adapter.key("nothing"))
