"""Commits whose rows a cleanup has removed are not found, by whatever asks for them; all others are as they were."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from graph_support import Customer, customers, held

from ontolake.errors import NotFound
from ontolake.graph import BranchError, DamagedGraphError, Graph, RemovedCommitError, UnknownCommitError


def write(graph: Graph, *names: str, branch: str = "main") -> list[str]:
    """A commit for each name."""
    found = [graph.load(Customer, customers(name), branch=branch) for name in names]
    return [commit.id for commit in found if commit is not None]


QUESTIONS: dict[str, Callable[[Graph, str, Path], Any]] = {
    "snapshot": lambda graph, commit, _: graph.snapshot(commit),
    "reference": lambda graph, commit, _: list(graph.diff(f"main@{commit}", "main")),
    "later": lambda graph, commit, _: list(graph.diff("main", f"main@{commit}")),
    "changes": lambda graph, commit, _: list(graph.changes(commit)),
    "traverse": lambda graph, commit, _: graph.traverse(Customer, None, ["Placed"], commit=commit),
    "export": lambda graph, commit, folder: graph.export(folder / "out", commit=commit),
    "branch": lambda graph, commit, _: graph.branches.create("made", at=commit),
    "tag": lambda graph, commit, _: graph.tags.create("made", commit),
}


def test_a_removed_commit_is_not_found(graph: Graph, url: str, tmp_path: Path) -> None:
    """By the process that removed it, by one that has it open, and by one that opens the graph then."""
    ids = write(graph, "a", "b", "c", "d", "e")
    graph.tags.create("kept", ids[1])
    with Graph.open(url) as other:
        held_snapshots = [other.snapshot(ids[2]), graph.snapshot(ids[2])]
        assert [snapshot.table(Customer).count() for snapshot in held_snapshots] == [3, 3]
        graph.optimize()  # and no head has a file in common with older commits
        graph.cleanup(keep_commits=1, dry_run=False)
        with Graph.open(url) as later:
            for name, ask in QUESTIONS.items():
                for one in (graph, other, later):
                    with pytest.raises(RemovedCommitError, match="cleanup") as caught:
                        ask(one, ids[2], tmp_path)
                    assert isinstance(caught.value, NotFound), name
            assert [branch.name for branch in later.branches.list()] == ["main"]
            assert [tag.name for tag in later.tags.list()] == ["kept"]
            for snapshot in held_snapshots:  # what was begun may end, with the rows as they were
                with suppress(RemovedCommitError):
                    assert snapshot.table(Customer).to_arrow().num_rows == 3
            for one in (graph, other, later):
                assert len(list(one.diff("main@kept", "main"))) == 3
                assert [row for row, _ in one.snapshot("kept").rows("Customer")] == ["a", "b"]
                assert list(one.verify()) == []
    graph.branches.create("old", at=ids[1])
    assert list(held(graph, "old")["node/Customer"]) == ["a", "b"]


def test_a_head_that_cannot_be_read_is_damage(graph: Graph, url: str, tmp_path: Path) -> None:
    write(graph, "a", "b")
    versions = (tmp_path / "graph" / "nodes").glob("*/_versions/*.manifest")
    max(versions, key=lambda path: path.stat().st_mtime_ns).unlink()
    with Graph.open(url, read_only=True) as again, pytest.raises(DamagedGraphError):
        again.snapshot().table(Customer).to_arrow()


@pytest.mark.slow
def test_branches_and_tags_at_any_commit_that_a_branch_knows(graph: Graph) -> None:
    """Its own, those of before it was made, and those that a merge brought."""
    first = write(graph, "a", "b", "c")
    graph.branches.create("try", at=first[1])
    own = write(graph, "t", "u", branch="try")
    graph.branches.create("deep", parent="try")
    deep = write(graph, "v", branch="deep")
    write(graph, "d")
    graph.merge("try")
    rows = {first[0]: "a", first[1]: "ab", own[0]: "abt", own[1]: "abtu", deep[0]: "abtuv"}
    known = {"main": [*first[:2], *own], "try": [*first[:2], *own], "deep": [*first[:2], *own, *deep]}
    for parent, commits in known.items():
        for number, commit in enumerate(commits):
            made = graph.branches.create(f"{parent}-{number}", at=commit, parent=parent)
            assert (made.head, made.base) == (commit, commit)
            assert "".join(held(graph, made.name)["node/Customer"]) == rows[commit]
            assert [one for one in graph.branches.list() if one.name == made.name] == [made]
            write(graph, "z", branch=made.name)
            assert "".join(held(graph, made.name)["node/Customer"]) == f"{rows[commit]}z"
            graph.tags.create(f"tag-{parent}-{number}", commit, branch=parent)
            assert graph.tags.get(f"tag-{parent}-{number}") == commit
    with pytest.raises(UnknownCommitError):
        graph.branches.create("none", at=deep[0], parent="main")
    assert graph.branches.create("found", at=deep[0]).parent == "deep"


def test_a_commit_of_a_branch_that_is_gone(graph: Graph) -> None:
    write(graph, "a")
    graph.branches.create("try")
    own = write(graph, "t", "u", branch="try")
    write(graph, "b")
    merge = graph.merge("try").commit
    graph.branches.delete("try")
    assert merge is not None
    assert [key for key, _ in graph.snapshot(own[0]).rows("Customer")] == ["a", "t"]
    with pytest.raises(BranchError, match="gone"):
        graph.branches.create("x", at=own[0])
    graph.tags.create("merged", own[0])
    graph.cleanup(keep_commits=1, dry_run=False)
    assert [key for key, _ in graph.snapshot("merged").rows("Customer")] == ["a", "t"]
    graph.branches.create("x", at=merge.id)
    assert held(graph, "x") == held(graph)
