"""SQL tables as a DB-API 2.0 module (PEP 249), for pandas and other tools.

`connect(url)` begins a transaction with the first statement that writes, as PEP 249 has it; `autocommit=True` makes
every statement a commit of its own.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

import pyarrow as pa

from ontolake.errors import Conflict, OntolakeError
from ontolake.sql import errors
from ontolake.sql.database import Database, open_database
from ontolake.sql.results import Result
from ontolake.sql.syntax.statements import Parameters, parse_one

apilevel = "2.0"
threadsafety = 1
paramstyle = "qmark"

Date, Time, Timestamp = datetime.date, datetime.time, datetime.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> datetime.date:
    return Date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> datetime.time:
    return Time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> datetime.datetime:
    return Timestamp(*time.localtime(ticks)[:6])


class _Kind:
    """A group of types, equal to every type code in it."""

    def __init__(self, *tests: Any) -> None:
        self._tests = tests

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, pa.DataType) and any(test(other) for test in self._tests))

    __hash__ = object.__hash__


STRING = _Kind(pa.types.is_string)
BINARY = _Kind(pa.types.is_binary)
NUMBER = _Kind(pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
DATETIME = _Kind(pa.types.is_timestamp, pa.types.is_date)
ROWID = _Kind()


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


_ERRORS: tuple[tuple[type[OntolakeError], type[Error]], ...] = (
    (errors.UnsupportedError, NotSupportedError), (errors.ConstraintViolation, IntegrityError),
    (errors.DataError, DataError), (errors.TypeMismatchError, ProgrammingError), (Conflict, OperationalError),
    (errors.TransactionError, OperationalError), (errors.SqlError, ProgrammingError),
    (OntolakeError, OperationalError),
)  # fmt: skip


_NO_CHANGES = ("select", "explain", "begin", "begin read only", "commit", "rollback", "use")


class _Translating:
    """Raises PEP 249's errors for ours."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OntolakeError):
            raised = next(theirs for ours, theirs in _ERRORS if isinstance(error, ours))(str(error))
            raised.sqlstate = getattr(error, "sqlstate", None)
            raise raised from error


_translating = _Translating()


def connect(url: str, *, autocommit: bool = False, **options: Any) -> Connection:
    """A connection to the tables at `url`. The options are those of `open_database`. Raises `OperationalError`."""
    with _translating:
        return Connection(open_database(url, **options), autocommit)


class Connection:
    """A connection as PEP 249 has it."""

    Warning, Error, InterfaceError, DatabaseError = Warning, Error, InterfaceError, DatabaseError
    DataError, OperationalError, IntegrityError = DataError, OperationalError, IntegrityError
    InternalError, ProgrammingError, NotSupportedError = InternalError, ProgrammingError, NotSupportedError

    def __init__(self, database: Database, autocommit: bool) -> None:
        self.database = database
        self.autocommit = autocommit
        self._closed = False

    def cursor(self) -> Cursor:
        self._check()
        return Cursor(self)

    def commit(self) -> None:
        """Keep what was done since the last commit."""
        self._check()
        if self.database.in_transaction:
            with _translating:
                self.database.execute("COMMIT")

    def rollback(self) -> None:
        """Forget what was done since the last commit."""
        self._check()
        if self.database.in_transaction:
            with _translating:
                self.database.execute("ROLLBACK")

    def close(self) -> None:
        """Give the connection up; what is not committed is forgotten."""
        if not self._closed:
            self._closed = True
            if self.database.in_transaction:
                self.database.execute("ROLLBACK")
            self.database.close()

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

    def _check(self) -> None:
        if self._closed:
            raise InterfaceError("the connection is closed")

    def _run(self, sql: str, parameters: Parameters) -> Result:
        self._check()
        with _translating:
            begins = not self.autocommit and not self.database.in_transaction
            if begins and parse_one(sql).kind not in _NO_CHANGES:
                self.database.execute("BEGIN")
            return self.database.execute(sql, parameters)


class Cursor:
    """A cursor as PEP 249 has it."""

    arraysize = 1

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.rowcount = -1
        self.description: list[tuple[Any, ...]] | None = None
        self.lastrowid = None
        self._result: Result | None = None
        self._closed = False

    def execute(self, operation: str, parameters: Parameters = ()) -> Cursor:
        """Run a statement. Raises `Error`."""
        self._check()
        self._result, self.description = None, None
        self._result = result = self.connection._run(operation, parameters)
        self.rowcount = result.count
        if result.columns:
            self.description = [(name, type, None, None, None, None, None) for name, type in result.description]
        return self

    def executemany(self, operation: str, parameters: Sequence[Parameters]) -> Cursor:
        """Run a statement once for each set of parameters. Raises `Error`."""
        count = 0
        for each in parameters:
            count += self.execute(operation, each).rowcount
        self.rowcount = count
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._rows().fetchone()

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        found = []
        rows = self._rows()
        for _ in range(self.arraysize if size is None else size):
            if (row := rows.fetchone()) is None:
                break
            found.append(row)
        return found

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows().fetchall()

    def fetch_arrow_table(self) -> pa.Table:
        """All rows as an Arrow table."""
        return self._rows().arrow()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._rows())

    def setinputsizes(self, sizes: Sequence[Any]) -> None: ...

    def setoutputsize(self, size: int, column: int | None = None) -> None: ...

    def close(self) -> None:
        self._closed = True
        self._result = None

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _check(self) -> None:
        if self._closed:
            raise InterfaceError("the cursor is closed")

    def _rows(self) -> Result:
        self._check()
        if self._result is None or self.description is None:
            raise ProgrammingError("there are no rows: no query was run")
        return self._result
