"""What cannot be: typed errors, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ontolake.errors import OntolakeError
from ontolake.history.conflicts import Resolution, Value
from ontolake.history.conformance.base import Fresh, VersioningBase, record
from ontolake.history.errors import ProtectedBranchError, UnrelatedError
from ontolake.history.refs import Ref

BAD_REFS: list[Any] = [
    "nothing", "nothing@1", "main~99", "main~x", "@", "~", "@2026-13-01", "a\0b", "\ud800", "x" * 5000, "@-1",
    "@9223372036854775808", 5.5, [], {}, True, b"x", object(), Ref(5), Ref("main", 5), Ref("main", None, -1),  # type: ignore[arg-type]
    Ref("main", None, "x"),  # type: ignore[arg-type]
]  # fmt: skip

Call = Callable[[Any], Any]


class BadInputCases(VersioningBase):
    """Wrong arguments, and handles that cannot write."""

    title = "Bad input"

    def prepared(self, store: Any) -> Any:
        """A store with the branches `try`, which is in conflict with the first one, and `kept`, which is protected."""
        self.write(store, self.main, x=record(1, 1))
        self.write(store, self.main, x=record(2, 1), y=record(1))
        store.tags.create("v1")
        store.branches.create("try")
        store.branches.create("kept")
        self.write(store, "try", x=record(3, 1))
        self.write(store, self.main, x=record(4, 1))
        store.branches.protect("kept")
        return store

    def facts(self, store: Any) -> Any:
        return store.branches.list(), store.tags.list(), self.log(store), self.state(store), self.state(store, "try")

    def refused(self, call: Call, given: Any, about: str = "") -> None:
        """Raises unless a call ends in an error of ours."""
        try:
            found = call(given)
            if hasattr(found, "__next__"):
                list(found)
        except OntolakeError:
            return
        except Exception as error:
            raise AssertionError(f"{about} {given!r} raised {error!r}") from error
        raise AssertionError(f"{about} {given!r} was not refused: {found!r}")

    def test_references_that_cannot_be_are_refused_everywhere(self, store: Any) -> None:
        self.prepared(store)
        before, table, key = self.facts(store), self.adapter.table, self.adapter.key("x")
        calls: dict[str, Call] = {
            "snapshot": store.snapshot, "at": store.at, "diff": lambda ref: store.diff(ref, "try"),
            "diff to": lambda ref: store.diff("try", ref), "changes": store.changes,
            "commits": lambda ref: store.commits(since=ref), "tag": lambda ref: store.tags.create("new", ref),
            "branch": lambda ref: store.branches.create("new", at=ref), "merge": store.merge, "revert": store.revert,
            "cherry_pick": store.cherry_pick, "restore": store.restore,
            "blame": lambda ref: store.blame(table, key, ref=ref),
            "history": lambda ref: store.history(table, key, ref=ref)}  # fmt: skip
        for name, call in calls.items():
            for ref in BAD_REFS:
                self.refused(call, ref, name)
        assert self.facts(store) == before

    def test_decisions_that_cannot_be_are_refused(self, store: Any) -> None:
        self.prepared(store)
        before = self.facts(store)
        (conflict,) = store.merge("try", self.main, dry_run=True).conflicts
        right: Any = Resolution(conflict.table, conflict.key, conflict.field, "ours")
        wrong: list[Any] = [
            right._replace(key={}), right._replace(field=[]), right._replace(table=None), right._replace(take="nobody"),
            right._replace(field=None, take=Value(5)), right._replace(field=None, take=Value("x")),
            right._replace(field=None, take=Value([])), "x", None, right]  # fmt: skip
        for one in wrong:
            self.refused(lambda one: store.merge("try", self.main, resolutions=[right, one]), one)
        requests: list[dict[str, Any]] = [
            {"resolutions": 5}, {"strategy": "mine"}, {"strategy": 5}, {"strategy": {self.adapter.table: "mine"}},
            {"message": 5}, {"message": "\ud800"}, {"author": "\ud800"}, {"author": b"x"},
            {"dry_run": "yes"}]  # fmt: skip
        for request in requests:
            self.refused(lambda request: store.merge("try", self.main, **{"strategy": "ours", **request}), request)
        self.refused(lambda flag: store.branches.protect("try", flag), "yes")
        self.refused(lambda message: store.tags.create("new", message=message), 5)
        several: list[Any] = [["nothing"], [None], [[]], 5, "x"]
        for tables in several:
            self.refused(lambda tables: store.restore("v1", tables), tables)
        unknown: list[Any] = ["nothing", None, 5, []]
        for table in unknown:
            self.refused(lambda table: store.blame(table, self.adapter.key("x")), table)
            self.refused(lambda table: store.history(table, self.adapter.key("x")), table)
        assert self.facts(store) == before

    def test_a_protected_branch_can_be_asked_what_would_be(self, store: Any) -> None:
        self.prepared(store)
        before = self.facts(store)
        calls: list[Call] = [lambda dry: store.revert("v1", branch="kept", dry_run=dry),
                             lambda dry: store.restore("v1~1", branch="kept", dry_run=dry),
                             lambda dry: store.cherry_pick("try", branch="kept", dry_run=dry)]  # fmt: skip
        for call in calls:
            assert call(True).tables
            with pytest.raises(ProtectedBranchError):
                call(False)
        assert self.facts(store) == before

    def writes(self) -> dict[str, Call]:
        return {
            "create": lambda store: store.branches.create("new"), "delete": lambda store: store.branches.delete("try"),
            "rename": lambda store: store.branches.rename("try", "new"),
            "protect": lambda store: store.branches.protect("try"), "tag": lambda store: store.tags.create("new"),
            "untag": lambda store: store.tags.delete("v1"),
            "merge": lambda store: store.merge("try", self.main, strategy="theirs"),
            "revert": lambda store: store.revert(self.main), "restore": lambda store: store.restore("v1"),
            "cherry_pick": lambda store: store.cherry_pick("try", strategy="theirs"),
            "write": lambda store: self.write(store, self.main, z=record(1))}  # fmt: skip

    def test_a_handle_that_only_reads_changes_nothing(self, where: str) -> None:
        if not self.handles:
            pytest.skip("this store has no handles")
        with self.adapter.open(where) as store:
            before = self.facts(self.prepared(store))
        with self.adapter.open(where, readonly=True) as store:
            for name, call in self.writes().items():
                self.refused(call, store, name)
            assert store.merge("try", self.main, dry_run=True).conflicts
            assert self.facts(store) == before
        with self.adapter.open(where) as store:
            assert self.facts(store) == before

    def test_a_closed_handle_does_nothing(self, where: str) -> None:
        if not self.handles:
            pytest.skip("this store has no handles")
        with self.adapter.open(where) as closed:
            before = self.facts(self.prepared(closed))
        reads: dict[str, Call] = {
            "commits": lambda store: store.commits(), "changes": lambda store: store.changes("v1"),
            "snapshot": lambda store: store.snapshot(), "at": lambda store: store.at("try"),
            "diff": lambda store: store.diff("v1", "try"), "branches": lambda store: store.branches.list(),
            "tags": lambda store: store.tags.list(), "verify": lambda store: store.verify(),
            "blame": lambda store: store.blame(self.adapter.table, self.adapter.key("x")),
            "history": lambda store: store.history(self.adapter.table, self.adapter.key("x")),
            "plan": lambda store: store.merge("try", self.main, dry_run=True)}  # fmt: skip
        for name, call in {**self.writes(), **reads}.items():
            self.refused(call, closed, name)
        with self.adapter.open(where) as store:
            assert self.facts(store) == before

    def test_states_of_another_store_give_no_made_up_difference(self, where: str, fresh: Fresh) -> None:
        """They have no history in common: rows are compared one by one, or not at all."""
        with self.adapter.open(where) as store:
            self.write(store, self.main, x=record(1))
            store.tags.create("v1")
            self.write(store, self.main, x=record(2))
        elsewhere = fresh()
        self.adapter.create(elsewhere)
        with self.adapter.open(elsewhere) as other:
            self.write(other, self.main, x=record(1), z=record(1))
        head = Ref.parse(self.main)
        with self.adapter.open(where) as store, self.adapter.open(elsewhere) as other:
            for before, after in ((other, store), (store, other)):
                try:
                    changes = list(store.diff(before.at(head), after.at(head)))
                except UnrelatedError:
                    continue
                assert {self.adapter.text(one.key) for one in changes} == {"x", "z"}
        with self.adapter.open(where) as store, self.adapter.open(where, readonly=True) as same:
            assert len(list(store.diff(same.at(Ref.parse("v1")), store.at(head)))) == 1
