"""Building indexes while rows are being written: write-only, filled in the order of its keys, then public.

The entries of all rows, as they were when the index was declared, are sorted first and then written in pages, a
transaction each. While an index is write-only every commit keeps it right but nobody reads it; a page takes a row that
was written since as it is now, so it is in the index exactly once. If the build fails or its process dies, the index
is dropped.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ontolake import faults
from ontolake.sql.catalog.column_files import is_erased
from ontolake.sql.catalog.records import (
    DROPPED,
    WRITE_ONLY,
    IndexExpression,
    IndexMeta,
    Table,
    entries_of,
    in_order,
    now,
    virtual_id,
)
from ontolake.sql.errors import SerializationError, SqlError
from ontolake.sql.keyspace import keys
from ontolake.sql.keyspace.commit_log import unpacked
from ontolake.sql.keyspace.vectors import Strings, as_arrow, decode_keys, decode_rows
from ontolake.sql.keyspace.versions import BATCH, Keyspace, KeySpan
from ontolake.sql.syntax.statements import ParsedStatement, name_of, position_of
from ontolake.sql.write import index_expressions, sorted_runs
from ontolake.sql.write.ddl import Definer
from ontolake.sql.write.row_writer import RowWriter
from ontolake.sql.write.rows import decoded, entry_places, plain_entries, unique_violation
from ontolake.sql.write.sorted_runs import Entries, SortedRuns

if TYPE_CHECKING:
    from ontolake.sql.transactions import SqlSession, SqlTransaction

PAGE = 100_000
"""Entries that one transaction writes."""


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
    ids: list[int] = []
    desc: list[bool] = []
    expressions: list[IndexExpression] = []
    labels: list[str] = []
    for each in parameters.args.get("columns") or ():
        inner = each.this if isinstance(each, exp.Ordered) else each
        if isinstance(inner, exp.Column | exp.Identifier):
            name = name_of(inner.this if isinstance(inner, exp.Column) else inner)
            ids.append(in_order(table.column(name, position_of(each, statement))).column_id)
            labels.append(name)
        else:
            expressions.append(index_expressions.expression(table, inner, position_of(each, statement)))
            ids.append(virtual_id(table.meta.next_index_id, len(expressions)))
            labels.append(index_expressions.label(inner))
        desc.append(bool(isinstance(each, exp.Ordered) and each.args.get("desc")))
    if not ids or len(set(ids)) != len(ids):
        raise SqlError("an index needs columns, each once", sqlstate="42701")
    where = parameters.args.get("where")
    predicate = "" if where is None else index_expressions.predicate(table, where.this, position_of(node, statement))
    included = [table.column(name_of(each), position_of(each, statement)).column_id
                for each in parameters.args.get("include") or ()]  # fmt: skip
    name = name_of(node.this) or definer.free_name(table.meta.schema_id, f"{table.name}_{'_'.join(labels)}_idx")
    if tree.args.get("exists") and definer.has_index(table, name):
        return None
    definer.check_index_name(table, name, node)
    index = IndexMeta(table.meta.next_index_id, table.id, name, tuple(ids), bool(tree.args.get("unique")), now(),
                      tuple(desc), tuple(id for id in included if id not in ids), expressions=tuple(expressions),
                      predicate=predicate)  # fmt: skip
    table.know(index)
    return table, index


def fill_all(session: SqlSession, transaction: SqlTransaction, table: Table, index: IndexMeta) -> None:
    """Put the entries of all rows into a new index, in one transaction. Raises `UniqueError`."""
    table.know(index)
    with SortedRuns() as runs:
        for batch in session.keyspace.scan(table.span, ahead=True):
            runs.add(decoded(table, batch.values).entry_set(index))
        for entries in runs.slices(PAGE):
            _put(session, transaction, table, index, entries)


def _put(session: SqlSession, transaction: SqlTransaction, table: Table, index: IndexMeta, entries: Entries) -> None:
    """Write sorted entries that are not there. Raises `UniqueError`."""
    if not len(entries):
        return
    keyspace = session.keyspace
    if index.unique:
        _check_unique(keyspace, table, index, entries.keys)
    keyspace.revive(transaction.version, entries.keys)
    keyspace.insert_strings(transaction.version, entries.keys, entries.values)
    transaction.touch(())


def _check_unique(keyspace: Keyspace, table: Table, index: IndexMeta, found: Strings) -> None:
    """Raise `UniqueError` if sorted entries have the same values as each other, or as entries that are there."""
    heads = _heads(table, index, found)
    if not len(heads):
        return
    span = KeySpan(heads.at(0), keys.after(heads.at(-1)))
    there = [_heads(table, index, batch.keys) for batch in keyspace.scan(span, keys=True) if batch.keys is not None]
    if there:
        heads = Strings.joined([heads, *there])
        places = sorted_runs.order(heads)
        heads = heads if places is None else sorted_runs.taken(heads, places)
    column = as_arrow(heads)
    same = pc.equal(column[1:], column[:-1])
    if pc.any(same).as_py():
        raise unique_violation(table, index, heads.at(int(same.index(True).as_py())))


def _heads(table: Table, index: IndexMeta, found: Strings) -> Strings:
    """How entries begin up to their primary keys, of those whose indexed values are all there: NULLs are distinct."""
    types = [table.by_id[id].type for id in index.column_ids]
    columns, ends = decode_keys(types, found, len(keys.entry_prefix(0, 0)), index.desc)
    heads = found.heads(ends)
    whole = np.ones(len(found), np.bool_)
    for column in columns:
        whole &= column.is_valid().to_numpy(zero_copy_only=False)
    return heads if whole.all() else heads.filtered(whole)


class _Snapshot:
    """The rows of a table when its index was declared, and what was written since."""

    def __init__(self, session: SqlSession, table: Table, index: IndexMeta) -> None:
        self._session, self._table, self._index = session, table, index
        self._plain = None if index.expressions or index.predicate else [
            table.columns[n] for n in entry_places(table, index)]  # fmt: skip
        """The columns that the entries consist of, unless they have to be worked out."""
        with session.reading():
            declared = session.keyspace.versions_of(keys.meta_key(keys.INDEX, table.id, index.index_id))
            self._at = self._seen = max(declared)
            self._kept = self._known() if self._moment() is None else None
            self._spans = list(session.keyspace.steps(table.span, self._moment(), BATCH)) if self._kept is None else []
        self._stale: set[bytes] = set()

    def _known(self) -> list[list[pa.Array]] | None:
        """The columns that the entries consist of, if the cache has them."""
        return None if self._plain is None else self._session.columns.known(self._session, self._table, self._plain)

    def _moment(self) -> int | None:
        version, _, floor = self._session.state()
        if floor > self._at or is_erased(self._session, self._at):
            raise SerializationError(f"the past of {self._table.full_name} was removed while an index was built",
                                     hint="create the index again")  # fmt: skip
        return None if version == self._at else self._at

    def entries(self) -> Iterator[Entries]:
        """The entries of all rows, in no particular order. Others may write in between."""
        for arrays in self._kept or ():
            yield plain_entries(self._table, self._index, arrays)
        for span in self._spans:
            with self._session.reading():
                batches = [batch.values for batch in self._session.keyspace.scan(span, self._moment())]
            for values in batches:
                yield self._entries(values)

    def _entries(self, values: Strings) -> Entries:
        if self._plain is None:
            return decoded(self._table, values).entry_set(self._index)
        types = [column.type for column in self._table.all_columns]
        return plain_entries(self._table, self._index,
                             decode_rows(values, [column.wanted for column in self._plain], types))  # fmt: skip

    def catch_up(self, transaction: SqlTransaction, current: Table) -> set[bytes]:
        """Put the entries of rows that were written since, unless their writers have.

        Returns the entries that such rows had in the snapshot. Raises `UniqueError`.
        """
        session = self._session
        self._moment()
        newest = session.state()[0]
        changed = {key for _, blob in session.log.written(self._seen, newest) for key in unpacked(blob)
                   if key.startswith(current.prefix)}  # fmt: skip
        self._seen = newest
        if changed:
            wanted = sorted(changed)
            old = decoded(self._table, list(session.keyspace.get_many(wanted, self._at).values()))
            self._stale.update(key for key, _ in old.entries(self._index))
            now_there = decoded(current, list(session.keyspace.get_many(wanted).values()))
            RowWriter(session.keyspace, transaction).backfill(self._index, now_there)
        return self._stale


def _fill_in_pages(session: SqlSession, statement: str, table: Table, index: IndexMeta) -> None:
    snapshot = _Snapshot(session, table, index)
    with SortedRuns() as runs:
        for entries in snapshot.entries():
            runs.add(entries)
        for entries in runs.slices(PAGE):
            with session.writing(f"{statement} -- a page") as transaction:
                current = session.fresh_catalog(transaction).by_id.get(table.id)
                if current is None or all(each.index_id != index.index_id for each in current.indexes):
                    raise SqlError(f"{table.full_name} or its new index was dropped meanwhile", sqlstate="42P01")
                stale = snapshot.catch_up(transaction, current)
                _put(session, transaction, current, index, entries.without(stale))
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
