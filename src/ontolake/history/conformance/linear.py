"""One branch: commits, the past by commit, tag and time, and what is said about a commit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
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
        states = {commit.id: self.state(store, f"@{commit.id}") for commit in commits[:2]}
        for time in (commit.time for commit in commits[:2] if commit.time is not None):
            newest = next(one for one in commits if one.time is not None and one.time <= time)  # two may have one time
            assert self.state(store, f"{self.main}@{time.isoformat()}") == states[newest.id]
        with pytest.raises(NotFound):
            store.at(Ref.parse("@2001-01-01T00:00Z"))
        with pytest.raises(Invalid):
            store.at(Ref.parse("@2001-13-45T00:00Z"))

    def test_the_time_of_a_commit_names_it_in_any_zone(self, store: Any) -> None:
        for number in range(3):
            self.write(store, self.main, x=record(number))
        commits = self.log(store)
        for commit in commits[:3]:
            assert commit.time is not None
            made = commit.time
            last = next(one for one in commits if one.time is not None and one.time <= made)
            for zone in (UTC, timezone(timedelta(hours=-7)), timezone(timedelta(hours=5, minutes=30))):
                assert store.at(f"@{made.astimezone(zone).isoformat()}").commit == last.id
        for text in ("0001-01-01T00:00+14:00", "0900-01-01", "9999-12-31T23:59-14:00"):
            with pytest.raises((NotFound, Invalid)):
                store.at(f"@{text}")

    def test_a_reference_stands_wherever_a_commit_does(self, store: Any) -> None:
        ids = [self.write(store, self.main, x=record(number)) for number in range(4)]
        store.tags.create("v1", f"{self.main}~2")
        store.branches.create("old", at="v1~1")
        store.branches.create("new", at=f"{self.main}~1")
        new = self.write(store, "new", y=record(9))
        assert self.adapter.records(store.snapshot("old")) == {"x": record(0)}
        for ref in (f"{self.main}~1", f"@{ids[2]}", f"{self.main}@{ids[2]}", "v1~0", Ref.parse(f"{self.main}~3")):
            assert store.snapshot(ref).commit == store.at(ref).commit
        assert store.snapshot(f"{self.main}~1").commit == ids[2]
        assert store.snapshot(str(ids[1])).commit == ids[1]
        assert store.snapshot(f"@{ids[1]}", branch="new").commit == ids[1]
        assert [self.adapter.text(one.key) for one in store.diff(f"{self.main}~1", "new")] == ["y"]
        assert [one.after["f"] for one in store.diff(ids[0], Ref.parse("v1"))] == [1]
        assert [one.after["f"] for one in store.changes("v1", f"{self.main}~1")] == [2]
        assert [one.after["f"] for one in store.changes(f"{self.main}~1")] == [3]
        assert [one.id for one in store.commits(since="v1")] == ids[:1:-1]
        assert next(store.commits(since=f"{self.main}~1", branch="new")).id == new
        for ref in ("nothing", f"{self.main}~99", "@x y", f"nothing@{ids[0]}"):
            for call in (store.snapshot, store.at, lambda ref: store.branches.create("never", at=ref),
                         lambda ref: list(store.diff(ref, self.main)), lambda ref: list(store.changes(ref)),
                         lambda ref: list(store.commits(since=ref)), lambda ref: store.tags.create("never", ref)):
                with pytest.raises((NotFound, Invalid)):
                    call(ref)
        with pytest.raises(Invalid):
            store.snapshot(f"{self.main}@{ids[0]}", branch="new")

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
