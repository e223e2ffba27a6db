"""Changing the type of a column: one migration of all rows and of the indexes that they are in.

A type that keeps the bytes of all values only changes the catalog. Any other makes a column with an id of its own, in
the old one's place; the old one stays for the rows of the past, which are read as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ontolake import faults
from ontolake.sql.catalog import coercion
from ontolake.sql.catalog.records import DROPPED, PUBLIC, ColumnMeta, IndexMeta, Table, in_order, now
from ontolake.sql.errors import DataError, DefinitionError, NotNullError, SqlError, TypeMismatchError, UnsupportedError
from ontolake.sql.keyspace.vectors import stored_array
from ontolake.sql.keyspace.versions import KeySpan
from ontolake.sql.plan import execution
from ontolake.sql.plan.limits import gives_one_value
from ontolake.sql.syntax.statements import DIALECT, literal, name_of, position_of
from ontolake.sql.types import Kind, Type
from ontolake.sql.write import defaults, index_builds, index_expressions
from ontolake.sql.write.ddl import Definer
from ontolake.sql.write.rows import Rows, decoded

Convert = Callable[[Rows], pa.Array]


def change_type(definer: Definer, table: Table, column: ColumnMeta, to: Type, using: exp.Expr | None) -> None:
    """Make a column one of another type, in the transaction of a statement.

    Raises `TypeMismatchError` if values of the old type do not become such by themselves, `DataError` and
    `NotNullError` for a value that cannot, which name its row, and what INSERT raises for rows that break a rule.
    """
    where = f"{table.full_name}.{column.name}"
    if column in table.primary_key or any(column.column_id in index.column_ids for index in table.indexes):
        in_order(msgspec.structs.replace(column, logical_type=to))
    if using is not None:
        _check_using(definer, table, using)
    elif to == column.type:
        return
    elif not coercion.is_assignable(to, column.type) and not _is_text_of(to, column.type):
        raise TypeMismatchError(f"{where} is {column.type}, which does not become {to} by itself",
                                hint=f"say how: USING CAST({column.name} AS {to})")
    kept = using is None and _is_same_inside(column.type, to)
    new = msgspec.structs.replace(column, logical_type=to) if kept else msgspec.structs.replace(
        column, logical_type=to, column_id=table.meta.next_column_id, absent=None)  # fmt: skip
    new = new if kept else msgspec.structs.replace(new, origin=definer.origin(new))
    new = _with_default(column, new, where)

    def convert(rows: Rows) -> pa.Array:
        if using is not None:
            found = execution.run(exp.select(exp.alias_(using.copy(), "v")).from_("t0"), {"t0": rows.arrow()})
            return coercion.coerced(new, found.column(0))
        given = rows.columns[table.place[column.column_id]]
        return coercion.coerced(new, coercion.as_text(column.type, given) if _is_text_of(to, column.type) else given)

    if kept:
        for _, rows in pages(definer, table):
            _converted(rows, new, convert)
        definer.put(new)
    else:
        _migrate(definer, table, column, new, convert)


_NUMBERS = (Kind.INT64, Kind.DECIMAL, Kind.NUMERIC, Kind.DOUBLE, Kind.REAL)
"""Types that the numbers of a sequence are taken for."""


def _check_using(definer: Definer, table: Table, using: exp.Expr) -> None:
    for each in using.find_all(exp.Column):
        table.column(name_of(each.this), position_of(each, definer.statement))
    if using.find(exp.Query, exp.Window) or not all(map(gives_one_value, using.find_all(exp.Anonymous))):
        raise UnsupportedError("USING makes a value of one row: it has no queries, aggregates or windows in it")


def _with_default(old: ColumnMeta, new: ColumnMeta, where: str) -> ColumnMeta:
    """The new column with a default of its type. Raises `DefinitionError` if the old one does not become one."""
    if new.counting and new.type.kind != Kind.INT64:
        raise DefinitionError(f"{where} counts its rows, and is SMALLINT, INTEGER or BIGINT, not {new.type}",
                              sqlstate="22023", hint="DROP IDENTITY first")
    if new.type.kind in _NUMBERS and defaults.counts(new.default_expr):
        return new
    try:
        if new.default_expr is not None and _is_text_of(new.type, old.type):
            text = coercion.as_text(old.type, stored_array(old.type, [defaults.value(old)]))[0].as_py()
            new = msgspec.structs.replace(new, default_expr=None if text is None else literal(text).sql(DIALECT))
        defaults.value(new)
        return new
    except SqlError as error:
        raise DefinitionError(f"the DEFAULT of {where}, {new.default_expr}, is no {new.type}: {error.message}",
                              sqlstate="42804", hint="DROP DEFAULT first, and set another afterwards") from error


def _is_same_inside(old: Type, new: Type) -> bool:
    """Whether a value that both types can hold has the same bytes in both."""
    if old.item is not None and new.item is not None:
        return _is_same_inside(old.item, new.item)
    return ((old.kind, old.scale, old.type_id) == (new.kind, new.scale, new.type_id)
            and (old.padded or not new.padded))  # fmt: skip


def _is_text_of(to: Type, old: Type) -> bool:
    return to.kind == Kind.UTF8 and old.kind not in (Kind.UTF8, Kind.BYTES)


def pages(definer: Definer, table: Table) -> Iterator[tuple[list[bytes], Rows]]:
    """All rows with their keys, a page at a time. Pages that are behind may be written to."""
    start = table.span.start
    while True:
        span = KeySpan(start, table.span.end)
        batch = next(definer.session.keyspace.scan(span, keys=True, limit=index_builds.PAGE), None)
        if batch is None:
            return
        assert batch.keys is not None
        start = batch.keys.last() + b"\x00"
        yield batch.keys.to_list(), decoded(table, batch.values)


def _converted(rows: Rows, new: ColumnMeta, convert: Convert) -> pa.Array:
    """A column of converted values. Raises errors that name the row."""
    where = f"{rows.table.full_name}.{new.name}"
    try:
        found = convert(rows)
    except SqlError as error:
        if not error.sqlstate.startswith("22"):
            raise
        number = _first(rows, convert)
        raise DataError(f"{where} of the row {rows.describe_key(number)} does not become {new.type}: {error.message}",
                        sqlstate=error.sqlstate, hint="change the row, or say in USING what is to become of it",
                        ) from error  # fmt: skip
    if not new.nullable and found.null_count:
        number = pc.index(pc.is_null(found), True).as_py()
        raise NotNullError(f"{where} of the row {rows.describe_key(number)} would be NULL",
                           table=rows.table.full_name, constraint=new.name)  # fmt: skip
    return found


def _first(rows: Rows, convert: Convert) -> int:
    """The first row that cannot be converted, found by halving."""
    low, high = 0, len(rows)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            convert(rows.take(range(low, middle)))
        except SqlError:
            high = middle
        else:
            low = middle
    return low


def _migrate(definer: Definer, table: Table, old: ColumnMeta, new: ColumnMeta, convert: Convert) -> None:
    """Give all rows the new column and all indexes that are concerned new entries."""
    in_key = old in table.primary_key
    writer = definer.writer
    moved: list[tuple[list[bytes], Rows]] = []
    if in_key:  # new keys may fall among the old ones, so all of these go first
        moved = list(pages(definer, table))
        for found, _ in moved:
            writer.remove(found)
    rebuilt = _redefine(definer, table, old, new)
    changed = definer.catalog.by_id[table.id]
    for found, rows in moved or pages(definer, table):
        values = _converted(rows, new, convert)
        columns = [values if column.column_id == new.column_id else rows.columns[table.place[column.column_id]]
                   for column in changed.columns]  # fmt: skip
        after = Rows(changed, columns=columns)
        if in_key:
            writer.insert(after)
        else:
            writer.rewrite(found, after)
            for index in rebuilt:
                writer.backfill(index, after)
        faults.reach("sql: type of a page changed")


def _redefine(definer: Definer, table: Table, old: ColumnMeta, new: ColumnMeta) -> list[IndexMeta]:
    """Change the records of the catalog. Returns the indexes that are to be filled again."""

    def renewed(ids: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(new.column_id if id == old.column_id else id for id in ids)

    key, next_id = table.meta.primary_key_column_ids, table.meta.next_index_id
    rebuilt: list[IndexMeta] = []
    for index in table.indexes:
        if old.column_id not in (*index.column_ids, *index.include_ids, *key) \
                and old.name not in index_expressions.columns_of(index):  # fmt: skip
            continue
        definer.put(msgspec.structs.replace(index, state=DROPPED))
        if index.state == PUBLIC:  # whoever is building one is told that it is gone
            renumbered = index.numbered(next_id + len(rebuilt), renewed(index.column_ids))
            rebuilt.append(msgspec.structs.replace(renumbered, include_ids=renewed(index.include_ids),
                                                   created_at=now()))  # fmt: skip
    for index in rebuilt:
        definer.put(index)
    definer.put(msgspec.structs.replace(old, dropped=True))
    definer.put(new)
    definer.put(msgspec.structs.replace(
        table.meta, primary_key_column_ids=renewed(key), next_column_id=new.column_id + 1,
        next_index_id=next_id + len(rebuilt)))  # fmt: skip
    return rebuilt
