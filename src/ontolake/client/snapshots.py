"""A store behind a server as it was at one commit: its tables, their rows, and Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ontolake.client.connection import ARROW, StoreConnection, arrow_table
from ontolake.history.errors import UnknownTableError

if TYPE_CHECKING:
    import pyarrow as pa

_PAGE = 10_000
"""Rows of a page."""


class RemoteSnapshot:
    """A `history.Snapshot`. `ref` names the commit for the server, and goes on to do so when branches move."""

    def __init__(self, connection: StoreConnection, ref: str, branch: str, commit: Any) -> None:
        self._connection = connection
        self.ref = ref
        self.branch = branch
        self.commit = commit

    def __repr__(self) -> str:
        return f"<snapshot of {self._connection.url} at {self.ref}>"

    @property
    def address(self) -> Any:
        """The store that it is of."""
        return self._connection.address

    def tables(self) -> Sequence[str]:
        """The names of what holds rows, sorted."""
        found: list[str] = self._connection.get("/tables", ref=self.ref)["tables"]
        return found

    def columns(self, table: str) -> Sequence[Mapping[str, Any]]:
        """The columns of a table: `name`, `type` in Arrow's words, and whether it is of the `key`."""
        found: list[Mapping[str, Any]] = self._connection.get("/schema", table=table, ref=self.ref)["columns"]
        return found

    def rows(self, table: str) -> Iterator[tuple[Any, Any]]:
        """Every row with its key, by key. Raises `NotFound` for a table that is not there."""
        if not isinstance(table, str):
            raise UnknownTableError(table)
        yield from map(tuple, self._connection.lines("/snapshot/rows", table=table, ref=self.ref))

    def to_arrow(
        self, table: str, *, columns: Sequence[str] | None = None, filter: str | None = None, limit: int | None = None
    ) -> pa.Table:  # fmt: skip
        """The rows of a table as an Arrow table: some columns, those that a filter takes, at most `limit`."""
        import pyarrow as pa

        query = {"table": table, "ref": self.ref, "filter": filter,
                 "columns": None if columns is None else ",".join(columns)}  # fmt: skip
        if limit is None:
            return arrow_table(self._connection.raw("/rows", ARROW, **query))
        parts: list[pa.Table] = []
        cursor: str | None = None
        while not parts or cursor is not None:
            wanted = limit - sum(part.num_rows for part in parts)
            if parts and wanted <= 0:
                break
            answer = self._connection.raw("/rows", ARROW, **query, limit=min(wanted, _PAGE), cursor=cursor)
            parts.append(arrow_table(answer))
            cursor = answer.headers.get("ontolake-cursor")
        return pa.concat_tables(parts)
