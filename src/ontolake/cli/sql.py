"""`onto sql`: run statements on SQL tables, or talk to them.

A query opens the tables read-only, so that it disturbs no writer.
"""

from __future__ import annotations

import csv as csvs
import math
import sys
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ontolake.cli.common.output import Heading, Json, Out

if TYPE_CHECKING:
    from ontolake.sql import Database, Result

Url = Annotated[str, typer.Argument(metavar="URL", help="Where the tables are: shop.db, s3://bucket/shop, …")]
Statement = Annotated[str | None, typer.Argument(
    metavar="[SQL]", help='Statements such as "SELECT * FROM t", or - for standard input. Without: a prompt.')]
AsOf = Annotated[str | None, typer.Option("--as-of", metavar="VERSION|TIME", help="As it was then.")]
Branch = Annotated[str, typer.Option("--branch", metavar="BRANCH", help="On this branch.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print comma-separated values.")]
Database_ = Annotated[str | None, typer.Option("--database", metavar="NAME", help="Where a statement names none.")]


def sql(
    url: Url, statement: Statement = None, as_of: AsOf = None, branch: Branch = "main", database: Database_ = None,
    csv: Csv = False, json: Json = False,
) -> None:  # fmt: skip
    """Run SQL on tables that keep their history. [dim]onto sql ranges URL[/] shows which database holds which keys."""
    if url == "ranges" and statement is not None:
        _ranges(statement, Out(json))
        return
    if csv and json:
        raise typer.BadParameter("choose one of --json and --csv")
    if statement is None:
        if json or csv or as_of is not None:
            raise typer.BadParameter("--json, --csv and --as-of need a statement", param_hint="SQL")
        from ontolake.cli.common.sql_shell import Shell
        from ontolake.urls import Place, detect, parse

        if parse(url).place is not Place.SERVER:
            detect(url)  # refuses what is not a store before the first statement, and creates nothing
        shell = Shell(url, lambda: _open(url, branch, database, readonly=False))
        try:
            code = shell.run()
        finally:
            shell.close()
        raise typer.Exit(code)
    text = sys.stdin.read() if statement == "-" else statement
    with _open(url, branch, database, readonly=_only_reads(text)) as opened:
        is_one = as_of is not None or json or csv  # a document or table of values has room for the last result only
        for result in [_run(opened, text, as_of)] if is_one else each_result(opened, text):
            show(result, Out(json), csv=csv)


def _ranges(url: str, out: Out) -> None:
    """Which database holds which keys."""
    from ontolake.sql.keyspace.homes import resolved
    from ontolake.sql.keyspace.ranges import described

    with _open(url, "main", None, readonly=True) as opened:
        found = [(each, described(each.start, opened.catalog()), resolved(url, each.url) if each.url else url)
                 for each in opened.ranges.list()]  # fmt: skip
    if out.json:
        out.document([{"start": each.start.hex(), "end": each.end.hex(), "url": place, "begins_in": begins}
                      for each, begins, place in found])  # fmt: skip
    else:
        out.table([Heading("start"), Heading("end"), Heading("begins in"), Heading("database", whole=True)],
                  [(each.start.hex() or None, each.end.hex() or None, begins, place)
                   for each, begins, place in found])  # fmt: skip


def _open(url: str, branch: str, database: str | None, *, readonly: bool) -> Database:
    from ontolake import stores
    from ontolake.errors import Invalid
    from ontolake.sql import open_database
    from ontolake.urls import Place, parse

    if parse(url).place is Place.SERVER:
        found = stores.find(url)
        if found.model is None or found.model.name != stores.SQL.name:
            raise Invalid(f"{url!r} holds {found.described}, and no SQL tables", hint="onto info says what is there")
        return cast("Database", found.open(write=not readonly, branch=branch))
    return open_database(url, branch=branch, database=database, readonly=readonly)


def _only_reads(text: str) -> bool:
    from ontolake.sql.syntax.statements import parse

    return all(statement.kind in ("select", "explain") for statement in parse(text))


def _run(opened: Database, text: str, as_of: str | None) -> Result:
    from ontolake.sql import Result

    if as_of is None:
        return opened.execute(text)
    moment: int | str = int(as_of) if as_of.isdigit() else as_of
    table = opened.query(text, as_of=moment)
    return Result(f"SELECT {table.num_rows}", table.num_rows, table=table)


def each_result(opened: Database, text: str) -> Iterator[Result]:
    """What each statement of a text gives, as soon as it was run. Raises `SqlError`, also if there is no statement."""
    from ontolake.sql.syntax.statements import parse

    statements = [statement.sql for statement in parse(text)]
    yield from map(opened.execute, statements or [text])


def show(result: Result, out: Out, *, csv: bool = False) -> None:
    """Print a result: a table on a terminal, tabs on a pipe, one JSON document, or CSV."""
    if not result.columns:
        if out.json:
            out.document({"status": result.status, "count": result.count})
        elif not csv:
            out.say(result.status)
        return
    if csv:
        writer = csvs.writer(sys.stdout, lineterminator="\n")
        writer.writerow(result.columns)
        writer.writerows([_csv(cell) for cell in row] for row in result)
    elif out.json:
        head = {"status": result.status, "columns": list(result.columns)}
        out.records(head, "rows", ([_plain(cell) for cell in row] for row in result))
    else:
        columns = [Heading(name, right=_is_number(type)) for name, type in result.description]
        rows = ([_shown(cell) for cell in row] for row in result)
        out.table(columns, list(rows)) if out.terminal else out.stream(columns, rows)


def _is_number(type: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type))


def _plain(cell: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(cell, bytes):
        return {"hex": cell.hex()}
    if isinstance(cell, datetime):
        return cell.isoformat(" ")
    if isinstance(cell, float) and not math.isfinite(cell):
        return str(cell)
    return str(cell) if isinstance(cell, Decimal | date) or not isinstance(cell, _JSON) else cell


_JSON = (type(None), bool, int, float, str, list, dict)


def _csv(cell: Any) -> Any:
    if isinstance(cell, bytes):
        return f"\\x{cell.hex()}"
    return cell.isoformat(" ") if isinstance(cell, datetime) else cell


def _shown(cell: Any) -> str | None:
    """A value on one line, with nothing in it that a terminal would obey."""
    if cell is None:
        return None
    if isinstance(cell, bytes):
        return f"\\x{cell.hex()}"
    if isinstance(cell, datetime):
        return cell.isoformat(" ")
    return "".join(_escaped(str(cell)))


def _escaped(text: str) -> Iterator[str]:
    for character in text:
        yield character if character.isprintable() else repr(character)[1:-1]
