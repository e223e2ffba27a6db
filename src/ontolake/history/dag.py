"""The commit DAG: best common ancestors, and the commits that one head has and others have not.

Walks go from the heads back, newest first, and stop where nothing that lies below can change the answer. So their cost
grows with what lies between the heads and where they met, not with the age of the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Generic, Protocol

from ontolake.history.ids import Id


class Dag(Protocol[Id]):
    """The commits of a store, by id."""

    def parents(self, commit: Id) -> Sequence[Id]:
        """The commits that a commit was made on, the first one first; none for the first of all."""
        ...

    def order(self, commit: Id) -> int:
        """A number that is greater than that of every parent. It decides in which order commits are visited."""
        ...


_LEFT, _RIGHT, _STALE = 1, 2, 4
_COMMON = _LEFT | _RIGHT


class _Walk(Generic[Id]):
    """Commits that wait to be visited, newest first, each with flags that it hands to its parents.

    The flags of `sides` say who has a commit, the flag `settled` that nothing below it matters. The walk ends when one
    side has no commits left that wait and are not settled.
    """

    def __init__(self, dag: Dag[Id], sides: tuple[int, ...], settled: int) -> None:
        self._dag: Dag[Id] = dag
        self._settled = settled
        self._waiting: list[tuple[int, Id]] = []
        self._flags: dict[Id, int] = {}
        self._open = dict.fromkeys(sides, 0)

    def add(self, commit: Id, flags: int) -> None:
        """Let a commit wait, or give more flags to one that does."""
        known = self._flags.get(commit)
        if known is None:
            heappush(self._waiting, (-self._dag.order(commit), commit))
        elif known | flags == known:
            return
        else:
            self._count(known, -1)
            flags |= known
        self._count(flags, 1)
        self._flags[commit] = flags

    def _count(self, flags: int, by: int) -> None:
        if not flags & self._settled:
            for side in self._open:
                if flags & side:
                    self._open[side] += by

    def __iter__(self) -> Iterator[tuple[Id, int]]:
        while all(self._open.values()):
            _, commit = heappop(self._waiting)
            self._count(self._flags[commit], -1)
            yield commit, self._flags[commit]
            for parent in self._dag.parents(commit):
                self.add(parent, self._flags[commit])

    def settle(self, commit: Id) -> None:
        """Give the flag `settled` to the commit that is being visited."""
        self._flags[commit] |= self._settled


def best_common_ancestors(dag: Dag[Id], left: Iterable[Id], right: Iterable[Id]) -> list[Id]:
    """The common ancestors of two sides that are ancestors of no other one, oldest first: `git merge-base --all`.

    A side is one commit, or several that are taken together. A commit counts as its own ancestor.
    """
    walk = _Walk(dag, (_LEFT, _RIGHT), _STALE)
    for commit in left:
        walk.add(commit, _LEFT)
    for commit in right:
        walk.add(commit, _RIGHT)
    found: list[Id] = []
    for commit, flags in walk:
        if flags & _COMMON == _COMMON and not flags & _STALE:
            found.append(commit)
            walk.settle(commit)
    return found[::-1]


def missing(dag: Dag[Id], head: Id, known: Iterable[Id]) -> list[Id]:
    """The ancestors of `head`, itself included, that no commit of `known` has, newest first: `git rev-list`."""
    walk = _Walk(dag, (_LEFT,), _RIGHT)
    walk.add(head, _LEFT)
    for commit in known:
        walk.add(commit, _RIGHT)
    return [commit for commit, flags in walk if not flags & _RIGHT]


def is_ancestor(dag: Dag[Id], commit: Id, head: Id) -> bool:
    """Whether `head` has `commit` in its history. A commit is in its own."""
    return best_common_ancestors(dag, [commit], [head]) == [commit]
