"""The commits of a graph as a DAG: what a commit was made of, and where two lines of history met last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ontolake.graph.manifest import CommitRecord


def first_parents(commits: Mapping[str, CommitRecord], head: str) -> Iterator[CommitRecord]:
    """The commits of a branch from its head back, along first parents."""
    current: str | None = head
    while current is not None:
        record = commits.get(current)
        if record is None:
            return
        yield record
        current = record.parent


def ancestors(commits: Mapping[str, CommitRecord], head: str) -> set[str]:
    """A commit and all that went into it, merged branches included."""
    found: set[str] = set()
    waiting = [head]
    while waiting:
        current = waiting.pop()
        if current in found:
            continue
        found.add(current)
        record = commits.get(current)
        if record is not None:
            waiting += [one for one in (record.parent, record.merged_parent) if one is not None]
    return found


def merge_base(commits: Mapping[str, CommitRecord], a: str, b: str) -> str | None:
    """The best common ancestor: one that is no ancestor of another common one; the newest if there are several."""
    common = {id for id in ancestors(commits, a) & ancestors(commits, b) if id in commits}
    best = set(common)
    for id in common:
        if id in best:
            record = commits[id]
            for parent in (record.parent, record.merged_parent):
                if parent is not None:
                    best -= ancestors(commits, parent)
    return max(best, default=None)
