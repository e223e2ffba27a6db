"""Walking through a snapshot: hops along edges, neighbours, shortest paths, on an adjacency index.

The index is two arrays per edge type and direction (compressed sparse rows over positions of nodes), made when it is
first needed and kept with the snapshot, which never changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.errors import Invalid, NotFound
from ontolake.graph.filters import to_sql
from ontolake.graph.types import LEFT, RIGHT, GraphType

if TYPE_CHECKING:
    from ontolake.graph.snapshot import Snapshot

Direction = Literal["out", "in", "both"]


class Hop(NamedTuple):
    """One step of a walk: along which edges, which way, how often, past which edges and nodes."""

    edge: Any
    direction: Direction = "out"
    min_depth: int = 1
    max_depth: int = 1
    where: Any = None
    """A filter on the edges."""
    to: Any = None
    """A filter on the nodes that the hop ends at."""


class _Nodes:
    """The nodes of a type by position."""

    def __init__(self, snapshot: Snapshot, key: str) -> None:
        kind = snapshot.types[key]
        self.kind = kind
        column = snapshot.table(key).to_arrow(columns=[kind.keys[0]]).column(0).combine_chunks()
        self.keys = column
        self.dense = _dense(column)

    def positions(self, values: Any) -> Any:
        """Where each key is; -1 where it is not."""
        if self.dense is not None and pa.types.is_integer(values.type):
            given = values.to_numpy(zero_copy_only=False)
            low, table = self.dense
            if len(given) and given.min() >= low and given.max() < low + len(table):
                return table.take(given - low if low else given)
            inside = (given >= low) & (given < low + len(table))
            return np.where(inside, table[np.where(inside, given - low, 0)], -1)
        found = pc.index_in(values, self.keys)
        return pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)


def _dense(column: Any) -> tuple[int, Any] | None:
    """A table from integer keys to positions, where keys lie close together."""
    if not pa.types.is_integer(column.type) or len(column) == 0:
        return None
    values = column.to_numpy(zero_copy_only=False)
    low, high = int(values.min()), int(values.max())
    if high - low >= 4 * len(values) + 1024:
        return None
    table = np.full(high - low + 1, -1, dtype=np.int64)
    table[values - low] = np.arange(len(values))
    return low, table


class _Adjacency(NamedTuple):
    """For each node its neighbours: `targets[starts[n]:starts[n + 1]]`."""

    starts: Any
    targets: Any


def _nodes(snapshot: Snapshot, key: str) -> _Nodes:
    found = snapshot._adjacency.get(key)
    if found is None:
        found = snapshot._adjacency[key] = _Nodes(snapshot, key)
    assert isinstance(found, _Nodes)
    return found


def _adjacency(snapshot: Snapshot, edge: GraphType, outwards: bool, where: str | None) -> _Adjacency:
    name = f"{edge.key}:{outwards}:{where or ''}"
    found = snapshot._adjacency.get(name)
    if found is None:
        table = snapshot.table(edge).to_arrow(columns=[LEFT, RIGHT], filter=where)
        (_, left), (_, right) = edge.ends
        sources = _nodes(snapshot, left).positions(table.column(LEFT).combine_chunks())
        targets = _nodes(snapshot, right).positions(table.column(RIGHT).combine_chunks())
        if len(sources) and (sources.min() < 0 or targets.min() < 0):
            whole = (sources >= 0) & (targets >= 0)
            sources, targets = sources[whole], targets[whole]
        sizes = [len(_nodes(snapshot, key).keys) for key in (left, right)]
        found = _sorted(sources, targets, *sizes) if outwards else _sorted(targets, sources, *sizes[::-1])
        snapshot._adjacency[name] = found
    assert isinstance(found, _Adjacency)
    return found


def _sorted(origins: Any, ends: Any, size: int, end_size: int) -> _Adjacency:
    """Edges by where they begin. Both ends go into one number, which sorts far quicker than places of numbers do."""
    starts = np.zeros(size + 1, dtype=np.int64)
    np.cumsum(np.bincount(origins, minlength=size), out=starts[1:])
    bits = max(end_size - 1, 1).bit_length()
    if bits + max(size - 1, 1).bit_length() > 62:
        return _Adjacency(starts, ends[np.argsort(origins, kind="stable")])
    both = np.left_shift(origins, bits, dtype=np.int64)
    both |= ends
    both.sort()
    both &= (1 << bits) - 1
    return _Adjacency(starts, both)


def _spread(adjacency: _Adjacency, nodes: Any) -> Any:
    """The neighbours of many nodes, each as often as an edge leads there."""
    begin, end = adjacency.starts[nodes], adjacency.starts[nodes + 1]
    counts = end - begin
    total = int(counts.sum())
    if total == 0:
        return np.empty(0, dtype=np.int64)
    offsets = np.repeat(begin - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
    return adjacency.targets[np.arange(total) + offsets]


def _ways(snapshot: Snapshot, hop: Hop, at: str) -> tuple[GraphType, list[bool], str]:
    """The edge type of a hop, which ways it goes from a node type, and the type that it ends at."""
    edge = snapshot.table(hop.edge).kind
    if edge.kind != "edge":
        raise Invalid(f"{edge.table} has no edges to walk along", hint="name an edge type")
    (_, left), (_, right) = edge.ends
    ways = {"out": [True], "in": [False], "both": [True, False]}.get(hop.direction)
    if ways is None:
        raise Invalid(f"the direction {hop.direction!r} is not known", hint="choose out, in or both")
    if hop.direction == "both" and left != right:
        raise Invalid(f"{edge.name} leads from {left} to {right}: it can be walked both ways only between one type")
    start, end = (left, right) if hop.direction != "in" else (right, left)
    if start != at:
        raise Invalid(f"{edge.name} cannot be walked {hop.direction} from {at.partition(':')[2]}",
                      hint=f"it leads from {left.partition(':')[2]} to {right.partition(':')[2]}")
    if not 0 <= hop.min_depth <= hop.max_depth:
        raise Invalid(f"a hop goes from min_depth to max_depth, not from {hop.min_depth} to {hop.max_depth}")
    if (hop.max_depth > 1 or hop.min_depth == 0) and start != end:
        raise Invalid(f"{edge.name} leads from one type to another, so it can be walked once in a hop")
    return edge, ways, end


def traverse(snapshot: Snapshot, start: Any, roots: Any, hops: Sequence[Any]) -> pa.Table:
    """See `Snapshot.traverse`."""
    kind = snapshot.table(start).kind
    if kind.kind != "node":
        raise Invalid(f"{kind.table} is no node type to start from")
    at = kind.key
    current = _start(snapshot, at, roots)
    depths = np.zeros(len(current), dtype=np.int64)
    walked = 0
    for given in hops:
        hop = given if isinstance(given, Hop) else Hop(given) if not isinstance(given, tuple) else Hop(*given)
        edge, ways, end = _ways(snapshot, hop, at)
        current, depths = _hop(snapshot, edge, ways, hop, current)
        depths = depths + walked
        walked += hop.max_depth
        at = end
        if hop.to is not None:
            allowed = _positions(snapshot, at, hop.to)
            keep = np.isin(current, allowed)
            current, depths = current[keep], depths[keep]
    nodes = _nodes(snapshot, at)
    name = nodes.kind.keys[0]
    return pa.table({name: nodes.keys.take(pa.array(current)), "depth": pa.array(depths)})


def _start(snapshot: Snapshot, key: str, roots: Any) -> Any:
    nodes = _nodes(snapshot, key)
    if roots is None:
        return np.arange(len(nodes.keys))
    if isinstance(roots, str) or not hasattr(roots, "__iter__"):
        roots = [roots]
    if isinstance(roots, pa.ChunkedArray):
        roots = roots.combine_chunks()
    values = roots if isinstance(roots, pa.Array) else pa.array(list(roots), nodes.keys.type)
    found = nodes.positions(values)
    if (found < 0).any():
        missing = values[int(np.flatnonzero(found < 0)[0])].as_py()
        raise NotFound(f"there is no {nodes.kind.name} {missing!r}")
    return np.unique(found)


def _hop(snapshot: Snapshot, edge: GraphType, ways: list[bool], hop: Hop, current: Any) -> tuple[Any, Any]:
    """The nodes at the least depth at which each is reached."""
    where = to_sql(hop.where)
    parts = [_adjacency(snapshot, edge, way, where) for way in ways]
    found = [current] if hop.min_depth == 0 else []
    depths = [np.zeros(len(current), dtype=np.int64)] if hop.min_depth == 0 else []
    size = len(parts[0].starts) - 1
    repeated = hop.max_depth > 1
    seen = np.zeros(size, dtype=bool) if repeated else None
    if seen is not None:
        seen[current] = True
    frontier = current
    for depth in range(1, hop.max_depth + 1):
        reached = np.concatenate([_spread(part, frontier) for part in parts]) if parts else frontier
        frontier = _distinct(reached, len(_ends(snapshot, edge, ways)))
        if seen is not None:
            frontier = frontier[~seen[frontier]]
            seen[frontier] = True
        if depth >= hop.min_depth:
            found.append(frontier)
            depths.append(np.full(len(frontier), depth, dtype=np.int64))
        if len(frontier) == 0:
            break
    if not found:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    return np.concatenate(found), np.concatenate(depths)


def _ends(snapshot: Snapshot, edge: GraphType, ways: list[bool]) -> Any:
    (_, left), (_, right) = edge.ends
    return _nodes(snapshot, right if ways[0] else left).keys


def _distinct(nodes: Any, size: int) -> Any:
    """Each node once, sorted: by marking where there are many, by sorting where there are few."""
    if len(nodes) * 8 < size:
        return np.unique(nodes)
    marks = np.zeros(size, dtype=bool)
    marks[nodes] = True
    return np.flatnonzero(marks)


def _positions(snapshot: Snapshot, key: str, filter: Any) -> Any:
    nodes = _nodes(snapshot, key)
    found = snapshot.table(key).to_arrow(columns=[nodes.kind.keys[0]], filter=filter).column(0).combine_chunks()
    return nodes.positions(found)


def shortest_path(
    snapshot: Snapshot, start: Any, source: Any, target: Any, *, edge: Any, direction: Direction, max_depth: int,
    where: Any,
) -> list[Any] | None:  # fmt: skip
    """See `Snapshot.shortest_path`."""
    key = snapshot.table(start).kind.key
    hop = Hop(edge, direction, 1, max(max_depth, 1), where)
    kind, ways, end = _ways(snapshot, hop, key)
    if end != key:
        raise Invalid(f"{kind.name} leads to another type, so there are no paths along it")
    parts = [_adjacency(snapshot, kind, way, to_sql(where)) for way in ways]
    nodes = _nodes(snapshot, key)
    begin, goal = (int(_start(snapshot, key, [one])[0]) for one in (source, target))
    came = np.full(len(nodes.keys), -1, dtype=np.int64)
    came[begin] = begin
    frontier = np.array([begin])
    for _ in range(max_depth):
        if came[goal] >= 0 or len(frontier) == 0:
            break
        following: list[Any] = []
        for part in parts:
            counts = part.starts[frontier + 1] - part.starts[frontier]
            reached, origins = _spread(part, frontier), np.repeat(frontier, counts)
            new = came[reached] < 0
            came[reached[new]] = origins[new]
            following.append(np.unique(reached[new]))
        frontier = np.unique(np.concatenate(following))
    if came[goal] < 0:
        return None
    path = [goal]
    while path[-1] != begin:
        path.append(int(came[path[-1]]))
    found: list[Any] = nodes.keys.take(pa.array(path[::-1])).to_pylist()
    return found
