"""Walking through a snapshot: hops along edges, neighbours, shortest paths, on an adjacency index.

The index is two arrays per edge type and direction (compressed sparse rows over positions of nodes), made when it is
first needed and kept with the snapshot, which never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.errors import Invalid, NotFound
from ontolake.graph.arguments import check_number
from ontolake.graph.tables.filters import to_sql
from ontolake.graph.tables.rows import array_of, column_of
from ontolake.graph.tables.types import LEFT, RIGHT, GraphType

if TYPE_CHECKING:
    from ontolake.graph.read.views import SnapshotTables

Direction = Literal["out", "in", "both"]
_WAYS = {"out": [True], "in": [False], "both": [True, False]}
_FAR = np.iinfo(np.int64).max


class Hop(NamedTuple):
    """One step of a walk: along which edges, which way, how often, past which edges and nodes.

    It ends at nodes that are from `min_depth` to `max_depth` edges away from the nearest other node where it begins; a
    node with an edge to itself is one edge away. With a `min_depth` of 0 it also ends where it begins.
    """

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

    def __init__(self, snapshot: SnapshotTables, key: str) -> None:
        kind = snapshot.types[key]
        self.kind = kind
        column = snapshot.table(key).to_arrow(columns=[kind.keys[0]]).column(0).combine_chunks()
        self.keys = column
        self.dense = _dense(column)

    def positions(self, values: Any) -> Any:
        """Where each key is; -1 where it is not."""
        if self.dense is not None and pa.types.is_integer(values.type) and not values.null_count:
            given = values.to_numpy(zero_copy_only=False)
            low, table = self.dense
            if len(given) and given.min() >= low and given.max() < low + len(table):
                return table.take(given - low if low else given)
            inside = (given >= low) & (given < low + len(table))
            return np.where(inside, table[np.where(inside, given - low, 0)], -1)
        found = pc.index_in(values, self.keys, skip_nulls=True)
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


def _nodes(snapshot: SnapshotTables, key: str) -> _Nodes:
    found = snapshot.adjacency.get(key)
    if found is None:
        found = snapshot.adjacency[key] = _Nodes(snapshot, key)
    assert isinstance(found, _Nodes)
    return found


def _adjacency(snapshot: SnapshotTables, edge: GraphType, outwards: bool, where: str | None) -> _Adjacency:
    name = f"{edge.key}:{outwards}:{where or ''}"
    found = snapshot.adjacency.get(name)
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
        snapshot.adjacency[name] = found
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


def _depth(given: Any) -> int:
    if type(given) is not int:
        raise Invalid(f"a depth is a number of edges, not {given!r}")
    return given


def as_hop(given: Any) -> Hop:
    """A hop from what a caller wrote: an edge type, the parts of a `Hop` in a tuple, or one. Raises `Invalid`."""
    if isinstance(given, Hop) or not isinstance(given, tuple):
        return given if isinstance(given, Hop) else Hop(given)
    if not 1 <= len(given) <= len(Hop._fields):
        raise Invalid(f"a hop has from 1 to {len(Hop._fields)} parts, not {len(given)}",
                      hint=f"they are {', '.join(Hop._fields)}")
    return Hop(*given)


def _ways(snapshot: SnapshotTables, hop: Hop, at: str) -> tuple[GraphType, list[bool], str]:
    """The edge type of a hop, which ways it goes from a node type, and the type that it ends at."""
    edge = snapshot.table(hop.edge).kind
    if edge.kind != "edge":
        raise Invalid(f"{edge.table} has no edges to walk along", hint="name an edge type")
    (_, left), (_, right) = edge.ends
    ways = _WAYS.get(hop.direction) if isinstance(hop.direction, str) else None
    if ways is None:
        raise Invalid(f"the direction {hop.direction!r} is not known", hint="choose out, in or both")
    if hop.direction == "both" and left != right:
        raise Invalid(f"{edge.name} leads from {left} to {right}: it can be walked both ways only between one type")
    start, end = (left, right) if hop.direction != "in" else (right, left)
    if start != at:
        raise Invalid(f"{edge.name} cannot be walked {hop.direction} from {at.partition(':')[2]}",
                      hint=f"it leads from {left.partition(':')[2]} to {right.partition(':')[2]}")
    least, most = _depth(hop.min_depth), _depth(hop.max_depth)
    if not 0 <= least <= most:
        raise Invalid(f"a hop goes from min_depth to max_depth, not from {least} to {most}")
    if (hop.max_depth > 1 or hop.min_depth == 0) and start != end:
        raise Invalid(f"{edge.name} leads from one type to another, so it can be walked once in a hop")
    return edge, ways, end


def traverse(snapshot: SnapshotTables, start: Any, roots: Any, hops: Sequence[Any]) -> pa.Table:
    """See `Snapshot.traverse`."""
    kind = snapshot.table(start).kind
    if kind.kind != "node":
        raise Invalid(f"{kind.table} is no node type to start from")
    if isinstance(hops, str | Hop) or not isinstance(hops, Iterable):
        raise Invalid(f"the hops are a list, not {hops!r}", hint="put a single one into brackets")
    at = kind.key
    current = _start(snapshot, at, roots)
    depths = np.zeros(len(current), dtype=np.int64)
    for given in hops:
        hop = as_hop(given)
        edge, ways, end = _ways(snapshot, hop, at)
        current, depths = _hop(snapshot, edge, ways, hop, current, depths)
        at = end
        if hop.to is not None:
            allowed = _positions(snapshot, at, hop.to)
            keep = np.isin(current, allowed)
            current, depths = current[keep], depths[keep]
    nodes = _nodes(snapshot, at)
    name = nodes.kind.keys[0]
    return pa.table({name: nodes.keys.take(pa.array(current)), "depth": pa.array(depths)})


def _start(snapshot: SnapshotTables, key: str, roots: Any) -> Any:
    nodes = _nodes(snapshot, key)
    if roots is None:
        return np.arange(len(nodes.keys))
    if isinstance(roots, str) or not hasattr(roots, "__iter__"):
        roots = [roots]
    if isinstance(roots, pa.ChunkedArray):
        roots = roots.combine_chunks()
    field = nodes.kind.by_name[nodes.kind.keys[0]]
    if isinstance(roots, pa.Array):
        values = column_of(nodes.kind, field, pa.chunked_array([roots])).combine_chunks()
    else:
        values = array_of(nodes.kind, field, list(roots))
    found = nodes.positions(values)
    if (found < 0).any():
        missing = values[int(np.flatnonzero(found < 0)[0])].as_py()
        raise NotFound(f"there is no {nodes.kind.name} {missing!r}")
    return np.unique(found)


def _hop(
    snapshot: SnapshotTables, edge: GraphType, ways: list[bool], hop: Hop, current: Any, depths: Any
) -> tuple[Any, Any]:  # fmt: skip
    """The nodes that a hop ends at, each with the least number of edges from a root, nearest first.

    `current` are the nodes where it begins, `depths` how many edges led there.
    """
    where = to_sql(hop.where)
    parts = [_adjacency(snapshot, edge, way, where) for way in ways]
    size = len(_ends(snapshot, edge, ways))
    if hop.min_depth == hop.max_depth == 1:
        fronts = {int(depth): current[depths == depth] for depth in np.unique(depths)}
        return _one_step(parts, fronts, size)
    near, total = np.full(size, _FAR), np.full(size, _FAR)
    for step, nodes, reached in (_from_one if len(current) == 1 else _from_many)(parts, current, depths, size, hop):
        near[nodes] = np.minimum(near[nodes], step)
        total[nodes] = np.minimum(total[nodes], reached)
    if hop.min_depth == 0:
        near[current], total[current] = 0, np.minimum(total[current], depths)
    found = np.flatnonzero((near >= hop.min_depth) & (near < _FAR))
    order = np.argsort(total[found], kind="stable")
    return found[order], total[found][order]


_Steps = Iterator[tuple[int, Any, Any]]
"""What a search has reached: after how many steps which nodes, and how many edges these are from a root."""


def _from_one(parts: list[_Adjacency], current: Any, depths: Any, size: int, hop: Hop) -> _Steps:
    """Breadth first, from a single node."""
    seen = np.zeros(size, dtype=bool)
    front = current
    for step in range(1, hop.max_depth + 1):
        front = _spread_all(parts, front, size)
        front = front[~seen[front]]
        seen[front] = seen[current] = True  # only an edge to itself leads back to where it begins
        if not len(front):
            return
        yield step, front, depths[0] + step


def _from_many(parts: list[_Adjacency], current: Any, depths: Any, size: int, hop: Hop) -> _Steps:
    """Breadth first, from many nodes at once.

    A node remembers from which two of them it was reached, those with the lowest depths. One more is of no use to it
    or to what lies behind: wherever that leads, one of the two is another node, and has led there no later.
    """
    first, second = np.full(size, -1), np.full(size, -1)
    low, next_low = np.full(size, _FAR), np.full(size, _FAR)
    first[current], low[current] = current, depths
    nodes, origins, base = current, current, depths
    for step in range(1, hop.max_depth + 1):
        spread = [(_spread(part, nodes), part.starts[nodes + 1] - part.starts[nodes]) for part in parts]
        ends = np.concatenate([reached for reached, _ in spread])
        origins = np.concatenate([np.repeat(origins, counts) for _, counts in spread])
        base = np.concatenate([np.repeat(base, counts) for _, counts in spread])
        if step == 1:
            loops = ends == origins
            yield 1, ends[loops], base[loops] + 1
        fresh = (first[ends] != origins) & (second[ends] != origins) & (base < next_low[ends])
        ends, origins, base = ends[fresh], origins[fresh], base[fresh]
        order = np.lexsort((origins, base, ends))
        ends, origins, base = ends[order], origins[order], base[order]
        again = np.concatenate(([False], (ends[1:] == ends[:-1]) & (origins[1:] == origins[:-1])))[: len(ends)]
        ends, origins, base = ends[~again], origins[~again], base[~again]
        rank = np.arange(len(ends)) - np.searchsorted(ends, ends)
        kept = []
        for place in (0, 1):
            here = np.flatnonzero(rank == place)
            here = here[base[here] < next_low[ends[here]]]
            node, origin, depth = ends[here], origins[here], base[here]
            lower = depth < low[node]
            second[node], next_low[node] = np.where(lower, first[node], origin), np.where(lower, low[node], depth)
            first[node], low[node] = np.where(lower, origin, first[node]), np.where(lower, depth, low[node])
            kept.append(here)
            yield step, node, depth + step
        taken = np.concatenate(kept)
        nodes, origins, base = ends[taken], origins[taken], base[taken]
        if not len(nodes):
            return


def _one_step(parts: list[_Adjacency], fronts: dict[int, Any], size: int) -> tuple[Any, Any]:
    """A hop along one edge: costs what it reaches, and not what there is."""
    found = [(_spread_all(parts, front, size), depth + 1) for depth, front in sorted(fronts.items())]
    if len(found) == 1:
        [(nodes, depth)] = found
        return nodes, np.full(len(nodes), depth, dtype=np.int64)
    if not found:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    nodes, first = np.unique(np.concatenate([nodes for nodes, _ in found]), return_index=True)
    depths = np.repeat([depth for _, depth in found], [len(nodes) for nodes, _ in found])[first]
    order = np.argsort(depths, kind="stable")
    return nodes[order], depths[order]


def _spread_all(parts: list[_Adjacency], front: Any, size: int) -> Any:
    return _distinct(np.concatenate([_spread(part, front) for part in parts]), size)


def _ends(snapshot: SnapshotTables, edge: GraphType, ways: list[bool]) -> Any:
    (_, left), (_, right) = edge.ends
    return _nodes(snapshot, right if ways[0] else left).keys


def _distinct(nodes: Any, size: int) -> Any:
    """Each node once, sorted: by marking where there are many, by sorting where there are few."""
    if len(nodes) * 8 < size:
        return np.unique(nodes)
    marks = np.zeros(size, dtype=bool)
    marks[nodes] = True
    return np.flatnonzero(marks)


def _positions(snapshot: SnapshotTables, key: str, filter: Any) -> Any:
    nodes = _nodes(snapshot, key)
    found = snapshot.table(key).to_arrow(columns=[nodes.kind.keys[0]], filter=filter).column(0).combine_chunks()
    return nodes.positions(found)


def shortest_path(
    snapshot: SnapshotTables, start: Any, source: Any, target: Any, *, edge: Any, direction: Direction, max_depth: int,
    where: Any,
) -> list[Any] | None:  # fmt: skip
    """See `Snapshot.shortest_path`."""
    check_number(0, max_depth=max_depth)
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
