"""Names of branches and tags: renamed, protected, used again, kept when the branch goes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from graph_support import Customer, Order, customers, held

from ontolake import faults
from ontolake.errors import Invalid
from ontolake.graph import BranchError, Graph, UnknownBranchError
from ontolake.graph.commit.manifest import MANIFEST
from ontolake.history import ProtectedBranchError, Ref


class Stopped(BaseException):
    """A process ends at a step."""


@contextmanager
def stopped(wanted: str) -> Iterator[None]:
    def hook(step: str) -> None:
        if step == wanted:
            raise Stopped

    with faults.arm(hook):
        yield


def write(graph: Graph, name: str, branch: str = "main") -> str:
    commit = graph.load(Customer, customers(name), branch=branch)
    assert commit is not None
    return commit.id


def keys(graph: Graph, ref: str = "main") -> str:
    return "".join(key for key, _ in graph.at(Ref.parse(ref)).rows("Customer"))


def test_a_renamed_branch_is_written_to_merged_and_deleted_by_its_new_name(graph: Graph, url: str) -> None:
    write(graph, "a")
    graph.branches.create("try")
    write(graph, "b", "try")
    assert graph.branches.rename("try", "better").name == "better"
    graph.branches.create("try", parent="better")
    write(graph, "c", "try")
    write(graph, "d", "better")
    with Graph.open(url) as other:
        assert [(one.name, one.parent) for one in other.branches.list()] == [
            ("main", None), ("better", "main"), ("try", "better")]
        assert (keys(other, "better"), keys(other, "try")) == ("abd", "abc")
        assert other.snapshot(branch="try").branch == "try"
        with pytest.raises(BranchError, match="try was made from it"):
            other.branches.delete("better")
        other.optimize(branch="try")
    result = graph.merge("try", "better")
    assert result.commit is not None
    assert (keys(graph, "better"), result.commit.metadata["merged_branch"]) == ("abcd", "try")
    graph.branches.rename("try", "again")
    graph.branches.delete("again")
    graph.branches.rename("better", "try")
    assert [one.name for one in graph.branches.list()] == ["main", "try"]
    graph.branches.delete("try")
    assert [one.name for one in graph.branches.list()] == ["main"]
    graph.branches.create("try")
    assert keys(graph, "try") == "a"
    graph.repair(dry_run=False)
    assert list(graph.verify()) == []


def test_a_rename_that_is_cut_off_leaves_one_name_or_the_other(graph: Graph) -> None:
    write(graph, "a")
    graph.branches.create("try")
    for step, name in (("graph: before naming branches", "try"), ("graph: branches named", "better")):
        with stopped(step), pytest.raises(Stopped):
            graph.branches.rename("try", "better")
        with Graph.open(graph.url) as other:
            assert [one.name for one in other.branches.list()] == ["main", name]
            assert keys(other, name) == "a"


def test_a_protected_branch_takes_merges_and_upkeep(graph: Graph) -> None:
    write(graph, "a")
    graph.branches.create("try")
    write(graph, "b", "try")
    graph.branches.protect("main")
    with pytest.raises(ProtectedBranchError):
        write(graph, "c")
    with pytest.raises(ProtectedBranchError):
        graph.schema_apply(graph.schema_plan([Customer]))
    with pytest.raises(ProtectedBranchError):
        graph.cherry_pick("try")
    assert graph.cherry_pick("try", dry_run=True).tables["node/Customer"].inserted == 1
    graph.optimize()
    graph.merge("try")
    assert keys(graph) == "ab"
    assert not graph.branches.protect("main", False).protected
    write(graph, "c")


def test_a_tagged_commit_outlives_its_branch(graph: Graph, url: str) -> None:
    write(graph, "a")
    graph.branches.create("try")
    first = write(graph, "b", "try")
    write(graph, "c", "try")
    tag = graph.tags.create("v1", f"try@{first}", message="kept")
    graph.branches.delete("try")
    for _ in range(2):
        graph.cleanup(keep=timedelta(0), keep_commits=1, dry_run=False)
        graph.gc(dry_run=False)
        with Graph.open(url) as other:
            assert other.tags.list() == [tag]
            assert (keys(other, "v1"), keys(other), keys(other, "v1~1")) == ("ab", "a", "a")
    write(graph, "d")
    assert graph.merge("v1").status == "merged"
    assert keys(graph) == "abd"
    with pytest.raises(Invalid):
        graph.branches.create("v1")


def test_tags_of_older_releases_are_read_and_kept(graph: Graph) -> None:
    write(graph, "a")
    graph.branches.create("try")
    write(graph, "b", "try")
    manifest = graph.parts.manifest
    manifest.dataset("main").tags.create("old", ("try", manifest.state("try").version))
    assert [tag.name for tag in graph.tags.list()] == ["old"]
    assert keys(graph, "old") == "ab"
    graph.branches.delete("try")
    assert keys(graph, "old") == "ab"
    assert not manifest.dataset("main").tags.list()
    graph.tags.delete("old")
    with pytest.raises(UnknownBranchError):
        keys(graph, "old")


def test_a_graph_without_renames_has_no_object_for_names(graph: Graph) -> None:
    write(graph, "a")
    graph.branches.create("try")
    write(graph, "b", "try")
    graph.merge("try")
    graph.branches.delete("try")
    roots = {info.key.partition("/")[0] for info in graph.parts.place.store.list()}
    assert {one for one in roots if one.startswith("__")} <= {MANIFEST, "__recovery"}


def test_a_restore_of_some_tables_leaves_others_alone(graph: Graph) -> None:
    good = write(graph, "a")
    with graph.transaction() as tx:
        tx.load(Customer, customers("b"))
        tx.load(Order, [{"id": 1}])
    graph.restore(good, tables=[Customer], message="back")
    assert (keys(graph), list(held(graph)["node/Order"])) == ("a", [1])
    assert next(iter(graph.commits())).message == "back"
