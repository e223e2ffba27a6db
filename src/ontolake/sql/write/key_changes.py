"""ADD PRIMARY KEY on a table without one: its rows, which had hidden keys, are written again under the new ones."""

from __future__ import annotations

import msgspec
from sqlglot import exp

from ontolake import faults
from ontolake.sql.catalog.records import DROPPED, PUBLIC, Table, in_order, now
from ontolake.sql.errors import DefinitionError, NotNullError
from ontolake.sql.syntax.statements import position_of
from ontolake.sql.write.ddl import Definer, Definition
from ontolake.sql.write.rows import Rows
from ontolake.sql.write.type_changes import pages


def add(definer: Definer, table: Table, found: Definition, node: exp.Expr) -> None:
    """Give a table a primary key. Raises `DefinitionError`, and `NotNullError` or `UniqueError` if rows break it."""
    hidden = table.primary_key[0]
    if not hidden.hidden:
        raise DefinitionError(f"{table.full_name} has a primary key",
                              hint="make another table with another key, and copy the rows")
    columns = [in_order(table.column(name, position_of(node, definer.statement))) for name in found.primary_key]
    if len({column.column_id for column in columns}) != len(columns):
        raise DefinitionError("a primary key names a column twice", sqlstate="42701")
    if found.key_name:
        definer.check_index_name(table, found.key_name, node)
    moved = list(pages(definer, table))
    for _, rows in moved:
        for column in columns:
            if rows.columns[table.place[column.column_id]].null_count:
                raise NotNullError(f"{table.full_name}.{column.name} has a NULL", table=table.full_name,
                                   constraint=column.name)  # fmt: skip
    for keys, _ in moved:  # new keys may fall among the old ones, so all of these go first
        definer.writer.remove(keys)
    next_id = _renumbered(definer, table)
    definer.put(msgspec.structs.replace(hidden, dropped=True))
    for column in columns:
        definer.put(msgspec.structs.replace(column, nullable=False))
    definer.put(msgspec.structs.replace(
        table.meta, primary_key_column_ids=tuple(column.column_id for column in columns), next_index_id=next_id,
        key_name=found.key_name))  # fmt: skip
    changed = definer.catalog.by_id[table.id]
    for _, rows in moved:
        kept = [rows.columns[table.place[column.column_id]] for column in changed.columns]
        definer.writer.insert(Rows(changed, columns=kept))
        faults.reach("sql: rows of a page have new keys")


def _renumbered(definer: Definer, table: Table) -> int:
    """Give all indexes, whose entries end with keys, new ids. Returns the next id that is free."""
    next_id = table.meta.next_index_id
    for index in table.indexes:
        definer.put(msgspec.structs.replace(index, state=DROPPED))
        if index.state == PUBLIC:  # whoever is building one is told that it is gone
            definer.put(msgspec.structs.replace(index.numbered(next_id, index.column_ids), created_at=now()))
            next_id += 1
    return next_id
