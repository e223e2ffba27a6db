"""Statements that change rows: those of this database, or of another store that a schema of it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from ontolake.sql.keyspace.versions import Keyspace
from ontolake.sql.results import Result
from ontolake.sql.syntax.statements import Parameters, ParameterSets, ParsedStatement, parse_one
from ontolake.sql.transactions import SqlTransaction
from ontolake.sql.write import many_changes
from ontolake.sql.write.chains import run_chain
from ontolake.sql.write.dml import Changer
from ontolake.sql.write.foreign import ForeignWriter
from ontolake.sql.write.row_writer import RowWriter, Writer

if TYPE_CHECKING:
    from ontolake.sql.database import Database

_TOGETHER = ("insert", "update", "delete")
"""Statements that are run for many sets of parameters in one transaction."""


def change(self: Database, statement: ParsedStatement, params: Parameters) -> Result:
    """Run INSERT, UPDATE, DELETE, MERGE or TRUNCATE, or several of them in one statement. Raises `SqlError`."""
    if self.mounted and self.mounted.is_mentioned(statement.sql):
        return _changed_anywhere(self, statement, params)
    if isinstance(params, ParameterSets):
        return _changed_often(self, statement, params)
    return _changed(self, statement, params, RowWriter)


def execute_many(self: Database, sql: str, sets: Iterable[Parameters]) -> int:
    """Run a statement once for each set of parameters. Returns how many rows that gave or changed.

    INSERT, UPDATE and DELETE are one commit, done for all sets or for none; rows of many sets are written together.
    Raises `SqlError`.
    """
    return run_many(self, parse_one(sql), ParameterSets(sets))


def run_many(self: Database, statement: ParsedStatement, sets: ParameterSets) -> int:
    """Run a statement that was read already, as `execute_many` does."""
    together = statement.kind in _TOGETHER and self.commands.temporary.is_empty and not self.mounted
    if not sets or not together:
        return sum(self.run(statement, each).count for each in sets)
    return self.run(statement, sets).count


def _changed_often(self: Database, statement: ParsedStatement, sets: ParameterSets) -> Result:
    """Run a statement for each of some sets of parameters, in one transaction."""
    assert statement.tree is not None
    session, tree = self.session, statement.tree
    with session.writing(statement.sql) as transaction:
        catalog = session.fresh_catalog(transaction)
        where = (catalog, self.database, self._path)
        names = self.names_of(statement, catalog, None)

        def run(params: Parameters) -> int:
            writer = RowWriter(session.keyspace, transaction)
            changer = Changer(session, transaction, statement, params, names, where, {}, writer)
            return changer.run(names.expanded(tree)).count

        count = run(sets[0])  # which prepares the statement
        rest, prepared = sets[1:], statement.prepared
        many = many_changes.change(session, transaction, statement, prepared[1], rest) \
            if rest and prepared is not None and prepared[0] == where else None  # fmt: skip
        count += sum(map(run, rest)) if many is None else many
    return Result(f"{statement.kind.upper()} {count}", count)


def _changed_anywhere(self: Database, statement: ParsedStatement, params: Parameters) -> Result:
    """Run a statement that may change rows of another store: all of them or none."""
    is_open = self.session.transaction is not None

    def writer(keyspace: Keyspace, transaction: SqlTransaction) -> Writer:
        return ForeignWriter(RowWriter(keyspace, transaction), self.mounted)

    def done(transaction: SqlTransaction) -> None:
        if not is_open:
            self.mounted.check_alone(is_dirty=transaction.dirty)
            self.mounted.end(commit=True)

    with self.mounted.statement():
        return _changed(self, statement, params, writer, (object(),), done)


def _changed(
    self: Database, statement: ParsedStatement, params: Parameters,
    writes: Callable[[Keyspace, SqlTransaction], Writer], about: tuple[object, ...] = (),
    done: Callable[[SqlTransaction], None] = lambda transaction: None,
) -> Result:  # fmt: skip
    """Run a statement. What it prepares is for statements `about` the same; `done` is called before it is committed."""
    assert statement.tree is not None
    session = self.session
    with session.writing(statement.sql) as transaction:
        catalog = session.fresh_catalog(transaction)
        where = (catalog, self.database, self._path, *about)
        names = self.names_of(statement, catalog, None)

        def changer(given: Mapping[str, pa.Table], writer: Writer) -> Changer:
            return Changer(session, transaction, statement, params, names, where, given, writer)

        writer = writes(session.keyspace, transaction)
        tree = names.expanded(statement.tree)
        result = run_chain(tree, changer, writer) if statement.kind == "chain" else changer({}, writer).run(tree)
        done(transaction)
        return result
