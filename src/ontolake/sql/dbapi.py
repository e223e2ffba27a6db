"""SQL tables as a DB-API 2.0 module (PEP 249), for pandas and other tools.

`connect(url)` begins a transaction with the first statement, also with a query, so that all that is read until `commit`
or `rollback` is one state; `autocommit=True` makes every statement a transaction of its own. Connections to one place
share what is open there, each with its own transaction; threads may share a connection, and then its transaction.
"""

from __future__ import annotations

import datetime
import inspect
import threading
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from types import TracebackType
from typing import Any

import pyarrow as pa

from ontolake.errors import OntolakeError
from ontolake.sql.cancellation import Timeouts
from ontolake.sql.catalog.records import SqlCatalog
from ontolake.sql.database import open_database
from ontolake.sql.errors import SqlError, SqlSyntaxError
from ontolake.sql.results import Result
from ontolake.sql.row_changes import run_many
from ontolake.sql.shared_databases import SharedConnection
from ontolake.sql.syntax.statements import Parameters, ParameterSets, ParsedStatement, parse
from ontolake.sql.types import Kind, from_arrow

apilevel = "2.0"
threadsafety = 2
paramstyle = "qmark"

Date, Time, Timestamp = datetime.date, datetime.time, datetime.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> datetime.date:
    return Date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> datetime.time:
    return Time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> datetime.datetime:
    return Timestamp(*time.localtime(ticks)[:6])


class _TypeGroup:
    """A group of types, equal to every type code in it. Arrays and JSON are in none."""

    def __init__(self, *kinds: Kind) -> None:
        self._kinds = frozenset(kinds)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, pa.DataType):
            return self is other
        type = from_arrow(other)
        return type is not None and type.kind in self._kinds

    __hash__ = object.__hash__


STRING = _TypeGroup(Kind.UTF8, Kind.ENUM, Kind.UUID)
BINARY = _TypeGroup(Kind.BYTES)
NUMBER = _TypeGroup(Kind.INT64, Kind.DECIMAL, Kind.NUMERIC, Kind.DOUBLE, Kind.REAL, Kind.BOOLEAN)
DATETIME = _TypeGroup(Kind.TIMESTAMP_US, Kind.TIMESTAMP_NS, Kind.DATE, Kind.TIME, Kind.INTERVAL)
ROWID = _TypeGroup()


class Warning(Exception):
    """Named by PEP 249; never raised."""


class Error(Exception):
    """The root of PEP 249's errors. `sqlstate` tells what is wrong; the cause is one of `ontolake.sql.errors`."""

    sqlstate: str | None = None


class InterfaceError(Error): ...


class DatabaseError(Error): ...


class DataError(DatabaseError): ...


class OperationalError(DatabaseError): ...


class IntegrityError(DatabaseError): ...


class InternalError(DatabaseError): ...


class ProgrammingError(DatabaseError): ...


class NotSupportedError(DatabaseError): ...


_ERRORS: dict[str, type[Error]] = {
    **dict.fromkeys(("0A",), NotSupportedError), **dict.fromkeys(("22",), DataError),
    **dict.fromkeys(("23",), IntegrityError), **dict.fromkeys(("24", "25", "26", "2B", "2D", "XX"), InternalError),
    **dict.fromkeys(("07", "20", "21", "34", "3B", "3D", "3F", "42", "44"), ProgrammingError),
    **dict.fromkeys(("08", "28", "40", "53", "54", "55", "57", "58"), OperationalError),
}  # fmt: skip
"""PEP 249's errors by the class of the SQLSTATE, as drivers of PostgreSQL have them."""
_OPTIONS = inspect.signature(open_database).parameters.keys() - {"url", "timeouts"} | Timeouts.__annotations__.keys()
_CONTROLS = ("begin", "begin read only", "commit", "rollback", "use", "call")
"""Statements that no transaction is begun for. What CALL runs commits by itself."""


class _Translating:
    """Raises PEP 249's errors for all others."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, Error):
            return
        state = error.sqlstate if isinstance(error, SqlError) else None
        if state is None and not isinstance(error, OntolakeError):  # what only a mistake of ours lets through
            state = SqlError.default_state
        raised = (OperationalError if state is None else _ERRORS.get(state[:2], DatabaseError))(str(error))
        raised.sqlstate = state
        raise raised from error


_translating = _Translating()


def connect(url: str, *, autocommit: bool = False, **options: Any) -> Connection:
    """A connection to the tables at `url`. The options are those of `open_database`.

    Raises `OperationalError`, and `InterfaceError` for an option that there is not.
    """
    if unknown := options.keys() - _OPTIONS:
        raise InterfaceError(f"open_database has no option {min(unknown)}")
    with _translating:
        return Connection(SharedConnection(url, options), autocommit)


class Connection:
    """A connection as PEP 249 has it."""

    Warning, Error, InterfaceError, DatabaseError = Warning, Error, InterfaceError, DatabaseError
    DataError, OperationalError, IntegrityError = DataError, OperationalError, IntegrityError
    InternalError, ProgrammingError, NotSupportedError = InternalError, ProgrammingError, NotSupportedError

    def __init__(self, shared: SharedConnection, autocommit: bool) -> None:
        self._shared = shared
        self._one = threading.RLock()
        self.database = shared.database
        """What is connected to, for what SQL and PEP 249 have no word for."""
        self.autocommit = autocommit
        self.isolation_level = "SERIALIZABLE"
        """What the caller wants of transactions. They are serializable, which gives every level that SQL has."""
        self._closed = False

    def cursor(self) -> Cursor:
        self._check()
        return Cursor(self)

    def commit(self) -> None:
        """Keep what was done since the last commit."""
        self._end("COMMIT")

    def rollback(self) -> None:
        """Forget what was done since the last commit."""
        self._end("ROLLBACK")

    def _end(self, how: str) -> None:
        with self._one, _translating:
            self._check()
            if self.database.in_transaction:
                self.database.execute(how)

    def close(self) -> None:
        """Give the connection up; what is not committed is forgotten. Raises `InterfaceError` if it is closed."""
        with self._one, _translating:
            self._check()
            self._closed = True
            self._shared.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit, or roll back if the block raises."""
        if self._closed:
            return
        if kind is None:
            self.commit()
        else:
            self.rollback()

    @property
    def closed(self) -> bool:
        return self._closed

    def catalogs(self) -> tuple[SqlCatalog, SqlCatalog | None]:
        """All tables that statements see now, and the temporary ones if there are any. Raises `Error`."""
        with self._one, _translating:
            self._check()
            return self.database.catalog(), self.database.temporary_catalog()

    def _check(self) -> None:
        if self._closed:
            raise InterfaceError("the connection is closed")

    def _parse(self, sql: str) -> Sequence[ParsedStatement]:
        """The statements of a text; what cannot be read fails the transaction, as in PostgreSQL."""
        with self._one, _translating:
            self._check()
            try:
                statements = parse(sql) if isinstance(sql, str) else ()
                if not statements:
                    raise SqlSyntaxError("there is no statement")
            except SqlError:
                self.database.session.fail()
                raise
            return statements

    def _run(self, statement: ParsedStatement, parameters: Parameters) -> Result:
        with self._one, _translating:
            self._begin_before(statement)
            return self.database.run(statement, parameters)

    def _run_many(self, statement: ParsedStatement, sets: ParameterSets) -> int:
        with self._one, _translating:
            self._begin_before(statement)
            return run_many(self.database, statement, sets)

    def _begin_before(self, statement: ParsedStatement) -> None:
        self._check()
        if not self.autocommit and not self.database.in_transaction and statement.kind not in _CONTROLS:
            self.database.execute("BEGIN")


class Cursor:
    """A cursor as PEP 249 has it."""

    arraysize = 1

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.rowcount = -1
        self.description: list[tuple[Any, ...]] | None = None
        self.lastrowid = None
        self._result: Result | None = None
        self._later: list[Result] = []
        self._closed = False

    def execute(self, operation: str, parameters: Parameters = ()) -> Cursor:
        """Run a statement, or several without parameters, whose results `nextset` goes through. Raises `Error`."""
        self._check()
        self._clear()
        statements = self.connection._parse(operation)
        if len(statements) > 1 and parameters:
            raise ProgrammingError("several statements cannot share parameters: run one at a time")
        first, *self._later = [self.connection._run(statement, parameters) for statement in statements]
        self._show(first)
        return self

    def _clear(self) -> None:
        self._result, self.description, self.rowcount, self._later = None, None, -1, []

    def _show(self, result: Result) -> None:
        """Make a result the one that is fetched from."""
        self._result, self.rowcount = result, result.count
        self.description = [_described(*each) for each in result.description] if result.columns else None

    def executemany(self, operation: str, parameters: Iterable[Parameters]) -> Cursor:
        """Run a statement once for each set of parameters. INSERT, UPDATE and DELETE are done for all sets or for none,
        and their rows written together. Raises `Error`."""
        self._check()
        self._clear()
        statement, *others = self.connection._parse(operation)
        if others:
            raise ProgrammingError("several statements cannot share parameters: run one at a time")
        if not isinstance(parameters, Iterable):
            raise ProgrammingError(f"parameters are sets of values, not {parameters!r}")
        self.rowcount = self.connection._run_many(statement, ParameterSets(parameters))
        return self

    def nextset(self) -> bool | None:
        """Go on to the result of the next statement; None if there is none."""
        self._check()
        if not self._later:
            return None
        self._show(self._later.pop(0))
        return True

    def fetchone(self) -> tuple[Any, ...] | None:
        rows = self._rows()
        with _translating:
            return rows.fetchone()

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """The next rows, `arraysize` of them unless `size` says how many."""
        rows = self._rows()
        with _translating:
            return list(islice(rows, self.arraysize if size is None else size))

    def fetchall(self) -> list[tuple[Any, ...]]:
        rows = self._rows()
        with _translating:
            return rows.fetchall()

    def fetch_arrow_table(self) -> pa.Table:
        """All rows as an Arrow table."""
        rows = self._rows()
        with _translating:
            return rows.arrow()

    def __iter__(self) -> Cursor:
        return self

    def __next__(self) -> tuple[Any, ...]:
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Named by PEP 249; values say their sizes themselves."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Named by PEP 249; values are always whole."""

    def close(self) -> None:
        self._closed = True
        self._result, self._later = None, []  # how many rows there were stays known

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _check(self) -> None:
        if self._closed:
            raise InterfaceError("the cursor is closed")
        self.connection._check()

    def _rows(self) -> Result:
        self._check()
        if self._result is None or self.description is None:
            raise ProgrammingError("there are no rows: no query was run")
        return self._result


def _described(name: str, type: pa.DataType) -> tuple[Any, ...]:
    """What PEP 249 says of a column; sizes are known of decimals alone."""
    precision, scale = (type.precision, type.scale) if pa.types.is_decimal(type) else (None, None)
    return name, type, None, None, precision, scale, None
