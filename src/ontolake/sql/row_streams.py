"""The rows of a query as they are read: `Database.stream`. A table of any size needs the memory of a few batches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ontolake.errors import Invalid
from ontolake.sql.errors import SqlError
from ontolake.sql.history.table_functions import is_historical
from ontolake.sql.results import Result, python_values
from ontolake.sql.syntax.statements import Parameters, ParsedStatement, parse_one
from ontolake.sql.write.sequences import calls_in

if TYPE_CHECKING:
    from ontolake.sql.database import Database, Version
    from ontolake.sql.sql_connection import SqlConnection

_BEGIN = "BEGIN READ ONLY"


class RowStream:
    """The rows of a query in batches, all of the state in which it began. Iterating gives tuples of what is left.

    Any thread may take the next batch, one at a time. Close it, or use it in a `with` block: until then it holds a
    session. It is closed by itself after the last batch.
    """

    def __init__(
        self, batches: Iterator[pa.RecordBatch], connection: SqlConnection | None = None, timeout: float | None = None
    ) -> None:
        """With a connection, that is closed in the end; a batch may take as many seconds as `timeout` says."""
        self._connection, self._timeout = connection, timeout
        self._batches = batches
        self._lock = threading.Lock()
        self._closed = False
        try:
            self._first: pa.RecordBatch | None = self._next()
        except BaseException:
            self.close()
            raise
        assert self._first is not None
        self.schema: pa.Schema = self._first.schema
        """The names and Arrow types of the columns; the types name those of SQL, as in `Result.typed`."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.schema.names)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches that are left. Raises `SqlError`, and `Invalid` if it was closed before the last one."""
        while (batch := self._take()) is not None:
            yield batch

    def _take(self) -> pa.RecordBatch | None:
        with self._lock:
            batch, self._first = self._first, None
            if batch is None:
                if self._closed:
                    raise Invalid("the rows of the query were closed", hint="take them before the block ends")
                batch = self._next()
            return batch

    def _next(self) -> pa.RecordBatch | None:
        connection = self._connection
        if connection is None:
            return next(self._batches, None)
        with connection.running.run(self._timeout, None, connection):
            batch = next(self._batches, None)
        if batch is None:
            self._release()
        return batch

    def _release(self) -> None:
        connection, self._connection = self._connection, None
        self._batches = iter(())
        if connection is not None:
            connection.close()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for batch in self.batches():
            yield from zip(*map(python_values, batch.columns), strict=True) if batch.num_columns else ()

    def __enter__(self) -> RowStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up the rows that are left. Closing twice does no harm."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._first = None
                closing: Any = self._batches
                if hasattr(closing, "close"):
                    closing.close()
                self._release()


def stream(self: Database, sql: str, params: Parameters = (), *, as_of: Version | None = None) -> RowStream:
    """The rows of a query, now or as they were at a version or time, a batch at a time: a table of any size needs
    little memory. Others may write meanwhile. Raises `SqlError`.

    What is not read as it goes is read first: within a transaction, of temporary tables, and in `:memory:`.
    """
    statement = parse_one(sql)
    if statement.kind != "select":
        raise SqlError(f"{statement.kind.upper()} is no query, whose rows come in batches", sqlstate="42601",
                       hint="use execute")
    statement.check_parameters(params)
    if not _is_streamed(self, statement):
        result: Result = self.run(statement, params, as_of)
        return RowStream(result.batches())
    as_of = getattr(self, "as_of", None) if as_of is None else as_of  # that of a connection
    connection = self.connect()
    try:
        connection.execute(_BEGIN)
        session = connection.session
        with session.reading():
            at = None if as_of is None else connection.version_of(as_of)
            batches = connection.plan_of(statement, at).batches(session, params)
        return RowStream(batches, connection, self.commands.settings.seconds("statement_timeout"))
    except BaseException:
        connection.close()
        raise


def _is_streamed(database: Database, statement: ParsedStatement) -> bool:
    """Whether the rows of a query can be read as they are asked for."""
    tree = statement.tree
    return not (database.is_alone or database.in_transaction or not database.commands.temporary.is_empty
                or database.mounted or tree is None or is_historical(tree) or calls_in(tree))
