"""SQLite's errors as ours."""

from __future__ import annotations

from types import TracebackType

import apsw

from ontolake.engine.failures import translate
from ontolake.errors import OntolakeError
from ontolake.sql.errors import SerializationError, SqlError, TransactionError


class ours:
    """Raises our errors for those of SQLite, inside a `with` block."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, apsw.Error) or isinstance(error, OntolakeError):
            return
        url = self._url
        if isinstance(error, apsw.BusyError | apsw.LockedError):
            raise SerializationError(f"somebody else is writing to {url}, or has written since this transaction began",
                                     hint="roll back and try again") from error
        if isinstance(error, apsw.ReadOnlyError):
            raise TransactionError(f"{url} cannot be written to: {error}", sqlstate="25006") from error
        if isinstance(error, apsw.TooBigError):
            raise SqlError(f"a value is too long to be stored: {error}", sqlstate="54000") from error
        raise translate(error, url) from error
