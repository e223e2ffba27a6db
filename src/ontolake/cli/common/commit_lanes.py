"""Commits of all branches as a drawing in text: one line a commit, lines in between where branches part and meet."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple


class Line(NamedTuple):
    """A line of the drawing; `commit` is None where lanes only part or meet."""

    drawing: str
    commit: Any = None


def newest_first(parents: Mapping[Any, Sequence[Any]], ranks: Mapping[Any, Any]) -> list[Any]:
    """The commits, each before its parents, those of the highest rank first."""
    children = dict.fromkeys(parents, 0)
    for some in parents.values():
        for parent in some:
            if parent in children:
                children[parent] += 1
    order = {commit: place for place, commit in enumerate(sorted(parents, key=lambda one: ranks[one], reverse=True))}
    ready = [(order[commit], commit) for commit, count in children.items() if not count]
    heapify(ready)
    found = []
    while ready:
        _, commit = heappop(ready)
        found.append(commit)
        for parent in parents[commit]:
            if parent in children:
                children[parent] -= 1
                if not children[parent]:
                    heappush(ready, (order[parent], parent))
    return found


def draw(commits: Iterable[Any], parents: Mapping[Any, Sequence[Any]]) -> Iterator[Line]:
    """The lines for commits that come each before its parents. Parents that are not among them are left out."""
    lanes: list[Hashable] = []  # the commit that each lane leads to; None for a lane that is free
    for commit in commits:
        if commit in lanes:
            place = lanes.index(commit)
            for other in [one for one in range(place + 1, len(lanes)) if lanes[one] == commit]:
                yield Line(_joined(lanes, place, other))
                lanes[other] = None
        else:
            place = lanes.index(None) if None in lanes else len(lanes)
            lanes[place : place + 1] = [commit]
        while lanes[-1] is None:
            lanes.pop()
        yield Line(" ".join("*" if one == place else "|" if lane is not None else " "
                            for one, lane in enumerate(lanes)), commit)  # fmt: skip
        known = [parent for parent in parents[commit] if parent in parents]
        lanes[place] = known[0] if known else None
        for parent in known[1:]:
            if place + 1 < len(lanes) and lanes[place + 1] is None:
                lanes[place + 1] = parent
                yield Line(_parted(lanes, place, shifted=False))
            else:
                lanes.insert(place + 1, parent)
                yield Line(_parted(lanes, place, shifted=True))
        while lanes and lanes[-1] is None:
            lanes.pop()


def _joined(lanes: Sequence[Hashable], place: int, other: int) -> str:
    """`| |/`: a lane ends in one to its left, `|_|/` across those in between."""
    cells = [" "] * (2 * len(lanes))
    for one, lane in enumerate(lanes):
        if lane is not None and one != other:
            cells[2 * one] = "|"
    for one in range(place + 1, other):
        cells[2 * one - 1] = "_"
        if cells[2 * one] == " ":
            cells[2 * one] = "_"
    cells[2 * other - 1] = "/"
    return "".join(cells).rstrip()


def _parted(lanes: Sequence[Hashable], place: int, *, shifted: bool) -> str:
    r"""`|\`: a new lane leaves to the right; `|\ \` if it moves those that stood there."""
    cells = [" "] * (2 * len(lanes))
    for one, lane in enumerate(lanes):
        if lane is None:
            continue
        if one == place + 1 or (shifted and one > place):
            cells[2 * one - 1] = "\\"
        else:
            cells[2 * one] = "|"
    return "".join(cells).rstrip()
