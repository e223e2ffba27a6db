"""Branches and tags: made, listed, renamed, protected, deleted, and made again under the same name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ontolake.errors import AlreadyExists, Invalid, NotFound
from ontolake.history.conformance.base import VersioningBase, record
from ontolake.history.errors import ProtectedBranchError, TagExistsError, UnknownBranchError, UnknownTagError

BAD_NAMES = ["", " ", "a b", "a..b", "../a", "a//b", "/a", "a/", "a@b", "a~1", "-a", ".a", "a.lock", "a" * 200, "ä\n",
             5, None]  # fmt: skip


class BranchAndTagCases(VersioningBase):
    """Lines of history and names for commits."""

    title = "Branches and tags"

    def test_a_branch_starts_where_it_left_and_goes_its_own_way(self, store: Any) -> None:
        commit = self.write(store, self.main, x=record(1))
        self.write(store, self.main, x=record(2))
        store.branches.create("old", at=commit)
        store.branches.create("new")
        store.branches.create("newer", parent="old")
        self.write(store, "old", y=record(1))
        self.write(store, "newer", z=record(1))
        assert self.state(store, "old") == {"x": record(1), "y": record(1)}
        assert self.state(store, "new") == {"x": record(2)}
        assert self.state(store, "newer") == {"x": record(1), "z": record(1)}
        names = [branch.name or self.main for branch in store.branches.list()]
        assert names[0] == self.main
        assert {*names} == {self.main, "old", "new", "newer"}

    def test_a_name_can_be_used_again_for_another_line(self, store: Any) -> None:
        self.write(store, self.main, x=record(1))
        store.branches.create("try")
        self.write(store, "try", x=record(7))
        store.branches.delete("try")
        with pytest.raises(NotFound):
            store.branches.delete("try")
        store.branches.create("try")
        assert self.state(store, "try") == {"x": record(1)}
        self.write(store, "try", y=record(2))
        assert store.merge("try", self.main).status == "fast_forward"
        assert self.state(store) == {"x": record(1), "y": record(2)}

    def test_names_may_have_parts(self, store: Any) -> None:
        self.write(store, self.main, x=record(1))
        for name in ("try", "try/x", "try/x/y"):
            store.branches.create(name)
        commit = self.write(store, "try/x", x=record(2))
        self.write(store, "try/x", x=record(3))
        self.write(store, "try/x/y", y=record(4))
        self.write(store, "try", z=record(5))
        store.tags.create("try/x.json", f"try/x@{commit}")
        assert self.state(store, "try/x") == {"x": record(3)}
        assert self.state(store, "try/x~1") == self.state(store, "try/x.json") == {"x": record(2)}
        assert {branch.name or self.main for branch in store.branches.list()} == {self.main, "try", "try/x", "try/x/y"}
        assert [tag.name for tag in store.tags.list()] == ["try/x.json"]
        assert store.merge("try/x/y", "try").status == "merged"
        assert self.state(store, "try") == {"x": record(1), "y": record(4), "z": record(5)}
        store.branches.delete("try")
        assert self.state(store, "try/x/y") == {"x": record(1), "y": record(4)}
        store.branches.rename("try/x", "done/x")
        store.branches.create("try/x")
        assert (self.state(store, "done/x"), self.state(store, "try/x")) == ({"x": record(3)}, {"x": record(1)})
        store.tags.delete("try/x.json")
        assert store.merge("done/x", self.main).status == "fast_forward"

    def test_a_renamed_branch_keeps_its_history(self, store: Any) -> None:
        self.write(store, self.main, x=record(1))
        store.branches.create("try")
        commit = self.write(store, "try", x=record(2))
        store.branches.rename("try", "better")
        assert self.state(store, "better") == {"x": record(2)}
        assert self.log(store, "better")[0].id == commit
        assert {branch.name for branch in store.branches.list()} & {"try", "better"} == {"better"}
        with pytest.raises(NotFound):
            self.state(store, "try")
        store.branches.create("try")
        assert self.state(store, "try") == {"x": record(1)}
        self.write(store, "better", y=record(1))
        store.merge("better", self.main)
        assert self.state(store) == {"x": record(2), "y": record(1)}
        with pytest.raises(AlreadyExists):
            store.branches.rename("try", "better")
        with pytest.raises(Invalid):
            store.branches.rename(self.main, "other")

    def test_a_protected_branch_changes_by_merges_alone(self, store: Any) -> None:
        self.write(store, self.main, x=record(1))
        store.branches.create("try")
        store.branches.create("release")
        assert store.branches.protect("release").protected
        with pytest.raises(ProtectedBranchError):
            self.write(store, "release", x=record(2))
        changes: list[Callable[[], Any]] = [
            lambda: store.branches.delete("release"), lambda: store.branches.rename("release", "other"),
            lambda: store.revert(self.log(store, "release")[0].id, branch="release"),
            lambda: store.restore(f"{self.main}~1", branch="release")]  # fmt: skip
        for change in changes:
            with pytest.raises(ProtectedBranchError):
                change()
        assert self.state(store, "release") == {"x": record(1)}
        self.write(store, "try", x=record(3))
        store.merge("try", "release")
        assert self.state(store, "release") == {"x": record(3)}
        assert {one.name for one in store.branches.list() if one.protected} == {"release"}
        store.branches.protect("release", False)
        self.write(store, "release", x=record(4))

    def test_a_tag_names_a_commit_and_keeps_it(self, store: Any) -> None:
        commit = self.write(store, self.main, x=record(1))
        tag = store.tags.create("v1", message="the first")
        self.write(store, self.main, x=record(2))
        store.branches.create("try")
        self.write(store, "try", x=record(3))
        store.tags.create("v2", "try")
        store.tags.create("v0", f"@{commit}")
        assert (tag.name, tag.commit) == ("v1", commit)
        assert [one.name for one in store.tags.list()] == ["v0", "v1", "v2"]
        self.adapter.forget(store)
        self.adapter.upkeep(store)
        assert self.state(store, "v1") == {"x": record(1)}
        assert self.state(store, "v2") == {"x": record(3)}
        assert self.state(store, "v0") == {"x": record(1)}
        store.tags.delete("v0")
        with pytest.raises(UnknownTagError):
            store.tags.delete("v0")
        with pytest.raises(UnknownBranchError):
            self.state(store, "v0")

    def test_a_name_is_a_branch_or_a_tag_and_not_both(self, store: Any) -> None:
        self.write(store, self.main, x=record(1))
        store.branches.create("try")
        store.tags.create("v1")
        with pytest.raises(TagExistsError):
            store.tags.create("try")
        with pytest.raises(TagExistsError):
            store.tags.create("v1")
        with pytest.raises(AlreadyExists):
            store.branches.create("v1")
        with pytest.raises(AlreadyExists):
            store.branches.create("try")
        with pytest.raises(AlreadyExists):
            store.branches.rename("try", "v1")

    @pytest.mark.parametrize("name", BAD_NAMES)
    def test_names_that_cannot_be_are_refused(self, store: Any, name: Any) -> None:
        self.write(store, self.main, x=record(1))
        before = len(self.log(store))
        for create in (store.branches.create, store.tags.create):
            with pytest.raises(Invalid):
                create(name)
        assert len(store.branches.list()) == 1
        assert not store.tags.list()
        assert len(self.log(store)) == before

    def test_unknown_references_are_typed_errors(self, store: Any) -> None:
        self.write(store, self.main, x=record(1))
        for ref in ("nothing", "nothing@1", "nothing~1", f"{self.main}@999999"):
            with pytest.raises(NotFound):
                self.state(store, ref)
        calls: list[Callable[[], Any]] = [
            lambda: store.branches.create("a", parent="nothing"), lambda: store.tags.create("a", "nothing"),
            lambda: store.merge("nothing", self.main), lambda: store.merge(self.main, "nothing"),
            lambda: store.branches.rename("nothing", "b"), lambda: store.branches.protect("nothing")]  # fmt: skip
        for call in calls:
            with pytest.raises(UnknownBranchError):
                call()
        assert self.state(store) == {"x": record(1)}
