"""Writing what COPY reads to a table, batch by batch, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlglot import exp

from ontolake import faults
from ontolake.sql import cancellation
from ontolake.sql.catalog.coercion import READ_FROM_TEXT, coerced
from ontolake.sql.catalog.records import ColumnMeta, Table
from ontolake.sql.copy.binary_files import TupleReader
from ontolake.sql.copy.options import CopyOptions
from ontolake.sql.copy.records import FileRecords, RecordReader
from ontolake.sql.copy.values import FieldColumns, at_line, check_header, located, texts_of, typed, wrong_width
from ontolake.sql.errors import SqlError, TypeMismatchError, UniqueError, UnsupportedError
from ontolake.sql.plan import execution
from ontolake.sql.syntax.statements import name_of
from ontolake.sql.write import bulk, defaults
from ontolake.sql.write.rows import Rows
from ontolake.sql.write.sequences import Numbers

if TYPE_CHECKING:
    from ontolake.sql.transactions import SqlSession, SqlTransaction

Lines = npt.NDArray[np.int64]


class TableLoader:
    """Inserts rows into some columns of a table; the others get their defaults."""

    def __init__(
        self, session: SqlSession, transaction: SqlTransaction, table: Table, columns: Sequence[ColumnMeta],
        where: exp.Expr | None,
    ) -> None:  # fmt: skip
        """Raises `UnsupportedError` for a condition with a subquery."""
        self._session, self._transaction = session, transaction
        self._table, self.columns = table, columns
        self._numbers = Numbers(session, transaction)
        self._where = None if where is None else _condition(where, table)
        self.count = 0
        """How many rows were inserted."""

    def load_records(self, reader: RecordReader, options: CopyOptions, name: str) -> None:
        """Insert the records of a file. Raises `SqlError` that names the file and line."""
        with self._named():
            self._load_records(reader, options, name)

    def load_tuples(self, reader: TupleReader, name: str) -> None:
        """Insert the tuples of a binary file. Raises `SqlError` that names the file and row."""
        with self._named():
            for rows, arrays in reader:
                self._add(f"{name}, line", rows, arrays)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Have errors say which table the data was for."""
        try:
            yield
        except SqlError as error:
            if error.context is not None and error.context.startswith("COPY, "):
                error.context = f"COPY {self._table.name}, {error.context.removeprefix('COPY, ')}"
            raise

    def _load_records(self, reader: RecordReader, options: CopyOptions, name: str) -> None:
        fields = FieldColumns.of([column.name for column in self.columns], self._table.by_name, options)
        is_first = options.header
        for records in reader:
            if is_first:
                is_first = False
                if options.checks_header:
                    check_header(name, records, fields)
                records = records.part(1)
            self._add_records(name, records, fields)

    def _add_records(self, name: str, records: FileRecords, fields: FieldColumns) -> None:
        wrong = np.flatnonzero(records.counts != len(fields.names))
        whole = records if not len(wrong) else records.part(0, int(wrong[0]))
        if len(whole):
            self._add(f"{name}, line", whole.lines, self._typed(name, whole, fields))
        if len(wrong):
            rest = records.part(int(wrong[0]), int(wrong[0]) + 1)
            if (count := int(rest.counts[0])) < len(fields.names):  # errors in fields that are there come first
                self._typed(name, rest, fields._replace(names=fields.names[:count]))
            raise wrong_width(name, rest, fields)

    def _typed(self, name: str, records: FileRecords, fields: FieldColumns) -> list[pa.Array]:
        return [located(f"{name}, line", records.lines, column.name, _reading(column, texts))
                for column, texts in zip(self.columns, texts_of(name, records, fields), strict=False)]  # fmt: skip

    def load_arrow(self, batches: Iterable[pa.RecordBatch], name: str) -> None:
        """Insert Arrow rows, by the names of columns. Raises `SqlError` that names the row."""
        done = 0
        place = f"{name}, row"
        for batch in batches:
            rows = np.arange(done + 1, done + batch.num_rows + 1)
            done += batch.num_rows
            self._add(place, rows, [located(place, rows, column.name, _coercion(column, batch.column(column.name)))
                                    for column in self.columns])  # fmt: skip

    def _add(self, place: str, lines: Lines, given: Sequence[pa.Array]) -> None:
        cancellation.check()
        if not len(lines):
            return
        known = {column.column_id: values for column, values in zip(self.columns, given, strict=True)}
        columns = [known[column.column_id] if column.column_id in known
                   else defaults.values(column, len(lines), self._numbers)
                   for column in self._table.columns]  # fmt: skip
        if self._where is not None:
            names = [column.name for column in self._table.columns]
            kept = _true(self._where, pa.table(columns, names=names))
            columns, lines = [column.filter(kept) for column in columns], lines[kept.to_numpy(zero_copy_only=False)]

        def checked(count: int) -> Rows:
            rows = Rows(self._table, columns=[column.slice(0, count) for column in columns]).complete()
            rows.check()
            return rows

        if not len(lines):
            return
        rows = located(place, lines, None, checked)
        try:
            self.count += bulk.load_rows(self._session, self._transaction, rows)
        except UniqueError as error:
            raise _at_row(error, rows, place, lines) from None
        faults.reach("sql: batch copied")


def _coercion(column: ColumnMeta, given: pa.Array) -> Callable[[int], pa.Array]:
    lenient = column.type.kind in READ_FROM_TEXT
    return lambda count: coerced(column, given.slice(0, count), lenient=lenient)


def _reading(column: ColumnMeta, texts: pa.Array) -> Callable[[int], pa.Array]:
    return lambda count: typed(column, texts.slice(0, count))


def _condition(where: exp.Expr, table: Table) -> exp.Expr:
    if where.find(exp.Query) is not None:
        raise UnsupportedError("WHERE of COPY cannot have a subquery")
    where = where.copy()
    for column in where.find_all(exp.Column):
        if name_of(column.args.get("table")) == table.name:
            column.set("table", None)
    return where


def _true(where: exp.Expr, rows: pa.Table) -> pa.Array:
    """Which rows a condition is true of. Raises `SqlError`."""
    found = execution.run(exp.select(exp.alias_(exp.paren(where.copy()), "w")).from_("t0"), {"t0": rows}).column(0)
    if not pa.types.is_boolean(found.type) and not pa.types.is_null(found.type):
        raise TypeMismatchError("the condition of WHERE is not a boolean")
    kept = found.cast(pa.bool_()).fill_null(False)
    return kept.combine_chunks()


def _at_row(error: UniqueError, rows: Rows, place: str, lines: Lines) -> SqlError:
    """The same error, which names the line whose row is there already."""
    table, places = rows.table, np.arange(len(rows))
    if error.constraint == table.key_name:
        keys = rows.keys()
    else:
        index = next(each for each in table.indexes if each.name == error.constraint)
        which = rows.matches(index)
        places = places if which is None else np.flatnonzero(which.to_numpy(zero_copy_only=False))
        keys = [key for key, _ in rows.entries(index)]
    same = [int(lines[n]) for n, key in zip(places, keys, strict=True) if key.startswith(error.key)]
    return at_line(error, f"{place} {same[min(1, len(same) - 1)]}")
