"""`RemoteGraph`: a graph behind a server, with the methods of `graph.Graph` that its API has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from ontolake.client.store import ClientStore
from ontolake.history import Commit
from ontolake.history.operations import check_texts

if TYPE_CHECKING:
    import pyarrow as pa

Mode = Literal["append", "merge", "overwrite"]


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


def _rows(data: Any) -> list[Any]:
    """Rows as they are sent: dicts of values."""
    if hasattr(data, "to_pylist"):
        arrow: pa.Table = data
        return list(arrow.to_pylist())
    given: Iterable[Any] = [data] if isinstance(data, Mapping) else data
    return [dict(one) if isinstance(one, Mapping) else one.model_dump() for one in given]
