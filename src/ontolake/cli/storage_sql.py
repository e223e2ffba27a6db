"""`onto storage sql`: a read-only look at a SQLite database, now or at any moment of its past, on any branch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontolake.cli.common.output import Heading, Json, Out, Url
from ontolake.errors import ExecutionFailure, OntolakeError

if TYPE_CHECKING:
    import apsw

Statement = Annotated[str, typer.Argument(metavar="SQL", help='One statement, such as "SELECT * FROM t".')]
Branch = Annotated[str, typer.Option("--branch", metavar="BRANCH", help="Look at this branch.")]
At = Annotated[int | None, typer.Option("--at", metavar="LSN", min=0, help="Look at the commit at or before this LSN.")]


class QueryFailed(ExecutionFailure):
    """A statement that SQLite cannot run, or that would write."""


def sql(url: Url, statement: Statement, branch: Branch = "main", at: At = None, json: Json = False) -> None:
    """Run a query. Nothing is written, and a writer is not disturbed."""
    import apsw

    from ontolake.engine import connect
    from ontolake.stores import locate

    out = Out(json)
    connection = connect(locate(url).url, branch=branch, at=at, readonly=True)
    try:
        names = _columns(connection, statement)
        cursor = connection.execute(statement)
        if json:
            head = {"url": url, "branch": branch, "at": at, "columns": names}
            out.records(head, "rows", ([_plain(cell) for cell in row] for row in cursor))
        else:
            rows = ([_shown(cell) for cell in row] for row in cursor)
            columns = [Heading(name) for name in names]
            out.table(columns, list(rows)) if out.terminal else out.stream(columns, rows)
    except apsw.Error as error:
        if isinstance(error, OntolakeError):
            raise
        raise QueryFailed(str(error) or type(error).__name__, hint=_near(statement, error)) from error
    finally:
        connection.close(True)


def _columns(connection: apsw.Connection, statement: str) -> list[str]:
    """The names of the result's columns. Raises `QueryFailed` for anything but one statement that only reads."""
    from apsw.ext import query_info

    info = query_info(connection, statement)
    if not info.query.strip():
        raise QueryFailed("there is no statement to run")
    if info.query_remaining is not None and info.query_remaining.strip():
        raise QueryFailed("one statement at a time", hint="run the command once for each")
    if not info.is_readonly:
        raise QueryFailed("this statement would write, and this command only reads",
                          hint="connect with ontolake.engine.connect to write")
    return [column[0] for column in info.description]


def _near(statement: str, error: Exception) -> str | None:
    offset = getattr(error, "error_offset", -1)
    return f"near {statement[offset : offset + 30]!r}" if offset >= 0 else None


def _plain(cell: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(cell, bytes):
        return {"hex": cell.hex()}
    return str(cell) if isinstance(cell, float) and not math.isfinite(cell) else cell


def _shown(cell: Any) -> str | None:
    """A value on one line, with nothing in it that a terminal would obey."""
    if cell is None:
        return None
    if isinstance(cell, bytes):
        return f"x'{cell.hex()}'"
    return "".join(_escaped(str(cell)))


def _escaped(text: str) -> Iterator[str]:
    for character in text:
        yield character if character.isprintable() else repr(character)[1:-1]
