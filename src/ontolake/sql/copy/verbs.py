"""COPY as a statement, and as methods of a database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ontolake.sql.catalog.records import ColumnMeta, SqlCatalog, Table
from ontolake.sql.copy import output, sources
from ontolake.sql.copy.binary_files import TupleReader
from ontolake.sql.copy.loading import TableLoader
from ontolake.sql.copy.options import CopyOptions, read_options
from ontolake.sql.copy.records import RecordReader
from ontolake.sql.errors import DefinitionError, SqlError, SqlSyntaxError, UnsupportedError
from ontolake.sql.plan import scans
from ontolake.sql.plan.access import AccessPath
from ontolake.sql.results import Result
from ontolake.sql.syntax.commands import TokenReader
from ontolake.sql.syntax.statements import Parameters, ParsedStatement, bound, parse_one
from ontolake.sql.types import TEXT, Type, from_arrow

if TYPE_CHECKING:
    from ontolake.sql.database import Database


def copy_from(
    self: Database, table: str, source: Any, *, columns: Sequence[str] | None = None, format: str = "csv",
    where: str | None = None, message: str | None = None, author: str | None = None, **options: Any,
) -> int:  # fmt: skip
    """Insert the rows of a file into a table as one commit. Returns how many there were.

    `source` is a path, a binary or text file object, or Arrow data, whose columns go by name. The options are those of
    COPY in small letters: `header`, `delimiter`, `null`, `quote`, `escape`, `force_null`, `force_not_null`, `encoding`.
    `message` and `author` are kept with the commit. Raises `SqlError` that names the file and line; then nothing was
    inserted.
    """
    statement = _statement(f"-- copy into {table}", table, columns, {"format": format, **options}, into=True)
    statement.options["source"] = source
    if where is not None:
        statement.tree = parse_one(f"SELECT {where}").tree
    with self.session.noted(message, author):
        return self.run(statement, ()).count


def copy_to(
    self: Database, query_or_table: str, target: Any, *, columns: Sequence[str] | None = None, format: str = "csv",
    params: Parameters = (), **options: Any,
) -> int:  # fmt: skip
    """Write the rows of a table or query to a path or a file object. Returns how many there were.

    The options are those of COPY in small letters: `header`, `delimiter`, `null`, `quote`, `escape`, `force_quote`,
    `encoding`. A file at a path is replaced when all is written. Raises `SqlError`.
    """
    given = {"format": format, **options}
    statement = _statement(f"-- copy {query_or_table}", query_or_table, columns, given, into=False)
    statement.options["source"] = target
    return self.run(statement, params).count


def _statement(
    text: str, name: str, columns: Sequence[str] | None, options: dict[str, Any], *, into: bool
) -> ParsedStatement:
    """What `copy_from` and `copy_to` ask for, as COPY says it. Raises `SqlSyntaxError`."""
    found = ParsedStatement("copy", text, 0, None)
    tokens = TokenReader(name)
    try:
        names: list[str] | None = tokens.names()
        tokens.end()
    except SqlSyntaxError:
        if into:
            raise
        names = None
        found.inner = parse_one(name)
    found.options = {"table": names, "columns": list(columns or ()), "into": into, "options": options}
    return found


def run(db: Database, statement: ParsedStatement, params: Parameters) -> Result:
    """Run COPY. Raises `SqlError`."""
    options = read_options(statement.options["options"], into=statement.options["into"])
    source = statement.options.get("source", statement.options.get("file"))
    if source is None:
        into = statement.options["into"]
        way, verb = ("FROM STDIN", "copy_from") if into else ("TO STDOUT", "copy_to")
        raise UnsupportedError(f"COPY {way} needs a client", position=statement.position(0),
                               hint=f"use Database.{verb} with a file object")
    count = _load(db, statement, params, options, source) if statement.options["into"] else \
        _write(db, statement, params, options, source)  # fmt: skip
    return Result(f"COPY {count}", count)


def _load(db: Database, statement: ParsedStatement, params: Parameters, options: CopyOptions, source: Any) -> int:
    batches, name = sources.arrow_batches(source), sources.shown(source)
    with db.session.writing(statement.sql) as transaction:
        table = _table(db, statement, db.session.fresh_catalog(transaction))
        names: Sequence[str] = statement.options["columns"]
        if batches is not None and not names:
            batches, names = _named(batches)
        where = None
        if statement.tree is not None:
            where = bound(statement.tree, params).expressions[0]
        loader = TableLoader(db.session, transaction, table, _columns(table, names), where)
        if batches is not None:
            loader.load_arrow(batches, "the Arrow data")
            return loader.count
        with sources.reading(source, options.encoding) as read:
            if options.is_binary:
                loader.load_tuples(TupleReader(read, loader.columns, name), name)
            else:
                loader.load_records(RecordReader(read, options, name), options, name)
        return loader.count


def _named(batches: Iterable[pa.RecordBatch]) -> tuple[Iterable[pa.RecordBatch], list[str]]:
    """Batches, and the names of their columns."""
    if isinstance(batches, pa.RecordBatchReader):
        return batches, batches.schema.names
    listed = iter(batches)
    first = next(listed, None)
    if first is None:
        return (), []

    def again() -> Iterable[pa.RecordBatch]:
        yield first
        yield from listed

    return again(), first.schema.names


def _write(db: Database, statement: ParsedStatement, params: Parameters, options: CopyOptions, target: Any) -> int:
    if statement.inner is not None:
        if statement.inner.kind != "select":
            raise UnsupportedError("COPY of a statement other than a query is not supported",
                                   hint="run it with RETURNING, and write the rows that it gives")
        result = db.run(statement.inner, params)
        table = result.typed()
        types = result.types or [from_arrow(type) or TEXT for type in table.schema.types]
        return _written(table.column_names, types, table.to_batches(), options, target)
    with db.session.reading():
        found = _table(db, statement, db.session.catalog())
        columns = _columns(found, statement.options["columns"])
        access = AccessPath("full scan", found, None, [found.span], frozenset())
        return _written([column.name for column in columns], [column.type for column in columns],
                        scans.read(db.session.keyspace, access, columns), options, target)  # fmt: skip


def _written(
    names: Sequence[str], types: Sequence[Type], batches: Iterable[pa.RecordBatch], options: CopyOptions, target: Any
) -> int:
    tag = getattr(target, "tag", b"")
    formatter = output.TupleFormatter(types, tag) if options.is_binary else output.RowFormatter(names, options, tag)
    with sources.writing(target) as put:
        return output.write(batches, formatter, put)


def _table(db: Database, statement: ParsedStatement, catalog: SqlCatalog) -> Table:
    """The table that is copied. Raises `SqlError` for a view."""
    quoted = ".".join('"' + name.replace('"', '""') + '"' for name in statement.options["table"])
    try:
        return db.find_table(quoted, catalog)
    except UnsupportedError as error:
        raise SqlError(f"{'.'.join(statement.options['table'])} is a view", sqlstate="42809",
                       hint="write COPY (SELECT …) TO") from error


def _columns(table: Table, names: Sequence[str]) -> list[ColumnMeta]:
    """The columns that are copied: those that are named, or all but generated ones.

    Raises `UnknownNameError`, and `DefinitionError` for one that is generated or named twice.
    """
    if not names:
        return [column for column in table.visible if not column.generated]
    found = [table.column(name) for name in names]
    for column in found:
        if column.generated:
            raise DefinitionError(f"the generated column {column.name} cannot be copied", sqlstate="42P10",
                                  hint="COPY (SELECT …) TO writes it")
    if len({column.column_id for column in found}) != len(found):
        raise DefinitionError("a column is named twice", sqlstate="42701")
    return found
