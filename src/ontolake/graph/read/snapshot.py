"""A graph as it was at one commit: tables to read, query, search and walk through. It never changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ontolake.graph.read.views import SnapshotTables

if TYPE_CHECKING:
    import pyarrow as pa

    from ontolake.graph.read.traversal import Direction


class Snapshot(SnapshotTables):
    """What a branch showed at a commit."""

    def sql(self, query: str) -> pa.Table:
        """The answer to a SQL query; tables are called as their types. Raises `Invalid` if it cannot be run."""
        from ontolake.graph.read.queries import sql

        return sql(self, query)

    def search(
        self, table: Any, *, text: str | None = None, vector: Sequence[float] | None = None, column: str | None = None,
        limit: int = 10, filter: Any = None,
    ) -> pa.Table:  # fmt: skip
        """The rows that fit best: by words (needs a text index), by nearness of vectors, or by both.

        Raises `Invalid` where there is no index or no such column.
        """
        from ontolake.graph.read.queries import search

        with self._guard():
            return search(self.table(table), text=text, vector=vector, column=column, limit=limit, filter=filter)

    def traverse(self, start: Any, roots: Any, hops: Sequence[Any]) -> pa.Table:
        """Walk from nodes of a type (all of them for None) along hops, and return where that leads, each node once.

        A hop is an edge type, or a `Hop` with a direction, depths and filters. The result has the key of the nodes and
        `depth`, how many edges away they are at least. Raises `Invalid`, and `NotFound` for roots that are not there.
        """
        from ontolake.graph.read.traversal import traverse

        return traverse(self, start, roots, hops)

    def neighbours(self, table: Any, key: Any, edge: Any, *, direction: Direction = "out") -> list[Any]:
        """The keys of the nodes next to a node."""
        found: list[Any] = self.traverse(table, [key], [(edge, direction)]).column(0).to_pylist()
        return found

    def shortest_path(
        self, table: Any, source: Any, target: Any, *, edge: Any, direction: Direction = "out", max_depth: int = 64,
        where: Any = None,
    ) -> list[Any] | None:  # fmt: skip
        """The keys of the nodes on a shortest path, both ends included; None if there is none."""
        from ontolake.graph.read.traversal import shortest_path

        return shortest_path(self, table, source, target, edge=edge, direction=direction, max_depth=max_depth,
                             where=where)

    def __repr__(self) -> str:
        return f"Snapshot({self.branch!r}, {self.commit!r})"
