"""`RemoteDatabase`: SQL tables behind a server, with the methods of `sql.Database` that its API has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ontolake.client.connection import ARROW_FIRST, arrow_table
from ontolake.client.store import ClientStore
from ontolake.errors import Invalid
from ontolake.history.operations import check_texts

if TYPE_CHECKING:
    import pyarrow as pa

MOST_ROWS = 5_000_000
"""How many rows a query gives at most; a server allows for no more."""
SECONDS = 600.0


class RemoteResult:
    """The answer of one statement, as `sql.Result` has it. `columns` is empty for one that gives no rows."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        self.status: str = answer["status"]
        self.count: int = answer["count"]
        self.notices = tuple(answer["notices"])
        self.columns: Sequence[str] = [one["name"] for one in answer["columns"]]
        self.types: Sequence[str] = [one["type"] for one in answer["columns"]]
        self._rows = iter([tuple(row) for row in answer["rows"]])

    def __iter__(self) -> Any:
        return self._rows

    @property
    def description(self) -> list[tuple[str, Any]]:
        """The names and Arrow types of the columns."""
        return [(name, _arrow_type(type)) for name, type in zip(self.columns, self.types, strict=True)]

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or None."""
        return next(self._rows, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left."""
        return list(self._rows)


def _arrow_type(text: str) -> Any:
    """An Arrow type by its name; text for one that has parameters."""
    import pyarrow as pa

    try:
        return pa.type_for_alias(text)
    except ValueError:
        return pa.decimal128(38, 0) if text.startswith("decimal") else pa.string()


class RemoteDatabase(ClientStore):
    """SQL tables behind a server. Every call of `execute` is a transaction of its own, whatever statements it has."""

    def execute(
        self, sql: str, params: Any = (), *, message: str | None = None, author: str | None = None,
        timeout: float = SECONDS,
    ) -> RemoteResult:  # fmt: skip
        """Run a statement, or several as one transaction. Returns the result of the last. Raises `SqlError`."""
        check_texts(message=message, author=author)
        body = self._request(sql, params, None, timeout) | {"message": message}
        connection = self.connection
        if not connection.write:
            _check_reads(sql, self.url)
        answer = connection.transport.request("POST", f"{connection.address.path}/sql", body=body)
        return RemoteResult(answer.value)

    def query(self, sql: str, params: Any = (), *, as_of: Any = None, timeout: float = SECONDS) -> pa.Table:
        """The rows of a query as an Arrow table, now or as they were at a version or time. Raises `SqlError`."""
        if not self.connection.write:
            _check_reads(sql, self.url)
        body = self._request(sql, params, as_of, timeout)
        answer = self.connection.transport.request("POST", f"{self.connection.address.path}/sql", body=body,
                                                   headers={"accept": ARROW_FIRST})
        return arrow_table(answer)

    def explain(self, sql: str, params: Any = (), *, analyze: bool = False) -> str:
        """How a query would be answered. Raises `SqlError`."""
        rows = self.query(f"EXPLAIN {'ANALYZE ' if analyze else ''}{sql}", params)
        return "\n".join(str(row) for row in rows.column(0).to_pylist())

    def _request(self, sql: str, params: Any, as_of: Any, timeout: float) -> dict[str, Any]:
        given = dict(params) if isinstance(params, Mapping) else list(params)
        moment = as_of if as_of is None or isinstance(as_of, int | str) else as_of.isoformat()
        return {"sql": sql, "params": given, "branch": self.branch, "as_of": moment, "limit": MOST_ROWS,
                "timeout": timeout}  # fmt: skip


def _check_reads(sql: str, url: str) -> None:
    """Raise `Invalid` for a statement that could write, on a handle that only reads."""
    from ontolake.sql.syntax.statements import parse

    if any(one.kind not in ("select", "explain") for one in parse(sql)):
        raise Invalid(f"{url} was opened to be read only", hint="open it with write=True")
