"""Building indexes while rows are being written: write-only, filled in pages, then public.

While an index is write-only every commit keeps it right but nobody reads it, so a row that is written meanwhile is in
it exactly once. If the build fails or its process dies, the index is dropped.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from sqlglot import exp

from ontolake import faults
from ontolake.sql.catalog.records import DROPPED, WRITE_ONLY, IndexMeta, Table, entries_of, now
from ontolake.sql.errors import SqlError, UnsupportedError
from ontolake.sql.keyspace.versions import KeySpan
from ontolake.sql.syntax.statements import ParsedStatement, name_of, position_of
from ontolake.sql.write.ddl import Definer
from ontolake.sql.write.rows import RowWriter, decoded

if TYPE_CHECKING:
    from ontolake.sql.transactions import SqlSession, SqlTransaction

PAGE = 10_000
"""How many rows are filled in per transaction."""


def me() -> str:
    """Who builds: this process."""
    return f"{socket.gethostname()}/{os.getpid()}"


def create(session: SqlSession, statement: ParsedStatement, database: str | None, schema: str) -> bool:
    """Run CREATE INDEX. Returns whether one was made. Raises `UniqueError` if rows break it."""
    assert isinstance(statement.tree, exp.Create)
    tree = statement.tree
    with session.writing(statement.sql) as transaction:
        found = _declared(session, transaction, statement, tree, database, schema)
        if found is None:
            return False
        table, index = found
        at_once = session.transaction is not None or session.keyspace.count(table.span, PAGE + 1) <= PAGE
        definer = Definer(session, transaction, statement, database, schema)
        definer.put(msgspec.structs.replace(table.meta, next_index_id=index.index_id + 1))
        if at_once:
            fill_all(session, transaction, table, index)
            definer.put(index)
            return True
        definer.put(msgspec.structs.replace(index, state=WRITE_ONLY, builder=me()))
    try:
        faults.reach("sql: index declared")
        _fill_in_pages(session, statement.sql, table, index)
        with session.writing(statement.sql) as transaction:
            RowWriter(session.keyspace, transaction).records(entries_of(index))
    except BaseException:
        drop(session, [index])
        raise
    return True


def _declared(
    session: SqlSession, transaction: SqlTransaction, statement: ParsedStatement, tree: exp.Create,
    database: str | None, schema: str,
) -> tuple[Table, IndexMeta] | None:
    """The index that a statement describes, and its table; None if it is there and that is fine."""
    definer = Definer(session, transaction, statement, database, schema)
    node = tree.this
    table = definer.table(node.args["table"])
    parameters = node.args["params"]
    if parameters.args.get("where") is not None:
        raise UnsupportedError("an index on a part of a table is not supported", position=position_of(node, statement))
    ids: list[int] = []
    desc: list[bool] = []
    for each in parameters.args.get("columns") or ():
        inner = each.this if isinstance(each, exp.Ordered) else each
        if not isinstance(inner, exp.Column | exp.Identifier):
            raise UnsupportedError("an index on an expression is not supported", position=position_of(each, statement),
                                   hint="index a column")  # fmt: skip
        name = name_of(inner.this if isinstance(inner, exp.Column) else inner)
        ids.append(table.column(name, position_of(each, statement)).column_id)
        desc.append(bool(isinstance(each, exp.Ordered) and each.args.get("desc")))
    if not ids or len(set(ids)) != len(ids):
        raise SqlError("an index needs columns, each once", sqlstate="42701")
    included = [table.column(name_of(each), position_of(each, statement)).column_id
                for each in parameters.args.get("include") or ()]  # fmt: skip
    name = name_of(node.this) or f"{table.name}_{'_'.join(table.by_id[id].name for id in ids)}_idx"
    if tree.args.get("exists") and definer.has_index(table, name):
        return None
    definer.check_index_name(table, name, node)
    index = IndexMeta(table.meta.next_index_id, table.id, name, tuple(ids), bool(tree.args.get("unique")), now(),
                      tuple(desc), tuple(id for id in included if id not in ids))  # fmt: skip
    return table, index


def fill_all(session: SqlSession, transaction: SqlTransaction, table: Table, index: IndexMeta) -> None:
    """Put the entries of all rows into a new index, in one transaction. Raises `UniqueError`."""
    writer = RowWriter(session.keyspace, transaction)
    start = table.span.start
    while True:
        batch = next(session.keyspace.scan(KeySpan(start, table.span.end), keys=True, limit=PAGE), None)
        if batch is None:
            return
        assert batch.keys is not None
        writer.backfill(index, decoded(table, batch.values))
        start = batch.keys.last() + b"\x00"


def _fill_in_pages(session: SqlSession, statement: str, table: Table, index: IndexMeta) -> None:
    start = table.span.start
    while True:
        with session.writing(f"{statement} -- a page") as transaction:
            batch = next(session.keyspace.scan(KeySpan(start, table.span.end), keys=True, limit=PAGE), None)
            if batch is None:
                return
            assert batch.keys is not None
            current = session.fresh_catalog(transaction).by_id.get(table.id)
            if current is None or all(each.index_id != index.index_id for each in current.indexes):
                raise SqlError(f"{table.full_name} or its new index was dropped meanwhile", sqlstate="42P01")
            RowWriter(session.keyspace, transaction).backfill(index, decoded(current, batch.values))
            start = batch.keys.last() + b"\x00"
        faults.reach("sql: index page filled")


def drop(session: SqlSession, indexes: Sequence[IndexMeta]) -> None:
    """Take indexes out of use."""
    with session.writing("-- drop of an unfinished index") as transaction:
        writer = RowWriter(session.keyspace, transaction)
        for index in indexes:
            writer.records(entries_of(msgspec.structs.replace(index, state=DROPPED, builder="")))


def clean_up(session: SqlSession) -> None:
    """Drop the indexes whose builder is dead. Called when a database is opened to be written to."""
    with session.reading():
        unfinished = [index for table in session.catalog().by_id.values() for index in table.indexes
                      if index.state == WRITE_ONLY and _is_dead(index.builder)]  # fmt: skip
    if unfinished:
        drop(session, unfinished)


def _is_dead(builder: str) -> bool:
    host, _, pid = builder.partition("/")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
