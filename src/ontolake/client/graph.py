"""`RemoteGraph`: a graph behind a server, with the methods of `graph.Graph` that its API has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from ontolake.client.snapshots import RemoteSnapshot
from ontolake.client.store import ClientStore
from ontolake.errors import Invalid
from ontolake.history import Commit, Ref
from ontolake.history.operations import check_texts

if TYPE_CHECKING:
    import pyarrow as pa

    from ontolake.graph.read.traversal import Direction

Mode = Literal["append", "merge", "overwrite"]


MOST_ROWS = 1_000_000
"""How many rows an answer has at most; a server sends no more."""


class RemoteGraphSnapshot(RemoteSnapshot):
    """A graph behind a server as it was at one commit, with the questions that `graph.Snapshot` answers."""

    def sql(self, query: str) -> pa.Table:
        """The answer to a SQL query; tables are called as their types. Raises `Invalid` if it cannot be run."""
        return self._connection.table("/graph/sql", {"sql": query, "ref": self.ref, "limit": MOST_ROWS})

    def search(
        self, table: Any, *, text: str | None = None, vector: Sequence[float] | None = None, column: str | None = None,
        limit: int = 10, filter: Any = None,
    ) -> pa.Table:  # fmt: skip
        """The rows that fit best. See `graph.Snapshot.search`."""
        from ontolake.graph.tables.filters import to_sql

        numbers = None if vector is None else [float(one) for one in vector]
        return self._connection.table("/graph/search", {
            "table": table_name(table), "text": text, "vector": numbers, "column": column, "filter": to_sql(filter),
            "ref": self.ref, "limit": limit})

    def traverse(self, start: Any, roots: Any, hops: Sequence[Any]) -> pa.Table:
        """Walk from nodes of a type (all of them for None) along hops. See `graph.Snapshot.traverse`."""
        from ontolake.graph.read.traversal import Hop, as_hop
        from ontolake.graph.tables.filters import to_sql

        if isinstance(hops, str | Hop) or not isinstance(hops, Iterable):
            raise Invalid(f"the hops are a list, not {hops!r}", hint="put a single one into brackets")
        walked = [one._replace(edge=table_name(one.edge), where=to_sql(one.where), to=to_sql(one.to))._asdict()
                  for one in map(as_hop, hops)]
        return self._connection.table("/graph/traverse", {
            "table": table_name(start), "roots": _keys(roots), "hops": walked, "ref": self.ref, "limit": MOST_ROWS})

    def neighbours(self, table: Any, key: Any, edge: Any, *, direction: Direction = "out") -> list[Any]:
        """The keys of the nodes next to a node."""
        found: list[Any] = self.traverse(table, [key], [(edge, direction)]).column(0).to_pylist()
        return found


class RemoteGraphTransaction:
    """Collects loads and deletions on one branch; leaving the block sends them, an exception drops them."""

    def __init__(self, graph: RemoteGraph, branch: str, message: str | None) -> None:
        self._graph = graph
        self._branch = branch
        self._message = message
        self._steps: list[dict[str, Any]] = []
        self.commit: Commit[str] | None = None
        """The commit that was made; None before that, and if there was nothing to do."""
        self.counts: list[int] = []
        """How many rows each step loaded or deleted."""

    def load(self, table: Any, data: Any, *, mode: Mode = "merge") -> None:
        """Load rows into a table: dicts, objects of its type, or an Arrow table."""
        self._steps.append({"table": table_name(table), "load": _rows(data), "mode": mode})

    def delete(self, table: Any, keys: Any, *, cascade: bool = False) -> None:
        """Delete rows by key, of nodes with their edges if `cascade` says so."""
        some = list(keys) if isinstance(keys, list | set | frozenset | range) else [keys]
        self._steps.append({"table": table_name(table), "delete": some, "cascade": cascade})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            body = {"steps": self._steps, "branch": self._branch, "message": self._message}
            found = self._graph.connection.send("POST", "/graph/commit", body)
            self.commit, self.counts = found["commit"], found["counts"]


class RemoteGraph(ClientStore):
    """A graph behind a server. The actor of commits is the name of the token."""

    def snapshot(self, commit: Any = None, *, branch: str | None = None) -> RemoteGraphSnapshot:
        """The graph as it was at a commit, or at the head of a branch. See `Graph.snapshot`."""
        return self._answering(super().snapshot(commit, branch=branch))

    def at(self, ref: Ref | str) -> RemoteGraphSnapshot:
        """The graph at what a user wrote. See `Graph.at`."""
        return self._answering(super().at(ref))

    def _answering(self, found: RemoteSnapshot) -> RemoteGraphSnapshot:
        return RemoteGraphSnapshot(self.connection, found.ref, found.branch, found.commit)

    def traverse(
        self, start: Any, roots: Any, hops: Sequence[Any], *, branch: str | None = None, commit: str | None = None
    ) -> pa.Table:  # fmt: skip
        """`RemoteGraphSnapshot.traverse` at the head of a branch, or as it was at a commit."""
        return self.snapshot(commit, branch=branch).traverse(start, roots, hops)

    def transaction(
        self, *, branch: str | None = None, actor: str | None = None, message: str | None = None
    ) -> RemoteGraphTransaction:  # fmt: skip
        """Several loads and deletions as one commit. They are sent at the end of the block."""
        check_texts(actor=actor, message=message)
        self.connection.check_writable()
        return RemoteGraphTransaction(self, self._named(branch), message)

    def load(
        self, table: Any, data: Any, *, mode: Mode = "merge", branch: str | None = None, actor: str | None = None,
        message: str | None = None,
    ) -> Commit[str] | None:  # fmt: skip
        """Load rows into one table as one commit; None if there were none."""
        with self.transaction(branch=branch, actor=actor, message=message) as transaction:
            transaction.load(table, data, mode=mode)
        return transaction.commit

    def delete(
        self, table: Any, keys: Any, *, cascade: bool = False, branch: str | None = None, actor: str | None = None,
        message: str | None = None,
    ) -> int:  # fmt: skip
        """Delete rows by key as one commit. Returns how many."""
        with self.transaction(branch=branch, actor=actor, message=message) as transaction:
            transaction.delete(table, keys, cascade=cascade)
        return sum(transaction.counts)


def table_name(table: Any) -> str:
    """The name of a table, or that of the table of a class: `node/Customer`, `edge/Placed`."""
    if isinstance(table, str):
        return table
    from ontolake.model.types import type_info

    info = type_info(table)
    return f"{'node' if info.kind == 'entity' else 'edge'}/{info.name}"


def _keys(roots: Any) -> list[Any] | None:
    """The keys where a walk begins, as they are sent; None for all nodes."""
    if roots is None:
        return None
    if isinstance(roots, str) or not hasattr(roots, "__iter__"):
        return [roots]
    return list(roots.to_pylist() if hasattr(roots, "to_pylist") else roots)


def _rows(data: Any) -> list[Any]:
    """Rows as they are sent: dicts of values."""
    if hasattr(data, "to_pylist"):
        arrow: pa.Table = data
        return list(arrow.to_pylist())
    given: Iterable[Any] = [data] if isinstance(data, Mapping) else data
    return [dict(one) if isinstance(one, Mapping) else one.model_dump() for one in given]
