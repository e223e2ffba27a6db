"""Staging: rows to be written stand in a temporary table first, so that SQL can tell which of them say anything new."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apsw

from ontolake.model.columns import Column
from ontolake.model.types import TypeInfo
from ontolake.ontology.query.compiler.latest import OLD, quoted
from ontolake.ontology.repository.protocol import Row
from ontolake.ontology.repository.raw import written_twice


@contextlib.contextmanager
def stage(
    db: apsw.Connection, info: TypeInfo, rows: Iterable[Row], newest: str, known: set[str]
) -> Iterator[str]:  # fmt: skip
    """A temporary table with these rows in it, gone at the end of the block.

    Its columns are those of the type, and `OLD`: the place of the latest row of the same key, which `newest` finds,
    SQL about the key columns of `new`. `known` has the tables that are there from before.
    """
    # SQLite does not tell case apart, types do; and a type has other columns once it is migrated.
    table = f"temp.stage_{info.kind}_{info.name.encode().hex()}_{info.schema_hash[:12]}"
    columns = [quoted(column.column) for column in (*info.keys, *info.columns)]
    if table not in known:
        db.execute(f"DROP TABLE IF EXISTS {table}")
        db.execute(f"CREATE TABLE {table} ({', '.join(columns)}, {OLD} INTEGER)")
        known.add(table)
    try:
        # Not found while staging: a statement that runs once is much faster than one that runs for every row.
        db.executemany(f"INSERT INTO {table} VALUES ({'?, ' * len(columns)}NULL)", rows)
        db.execute(f"UPDATE {table} AS new SET {OLD} = {newest}")
        yield table
    finally:
        with contextlib.suppress(apsw.Error):
            db.execute(f"DELETE FROM {table}")


def staged_key(info: TypeInfo, column: str) -> str:
    """A key column of `new`, a staged row: an instance key that was not declared is empty."""
    if column == "instance_key" and len(info.keys) < 3:
        return "''"
    return f"new.{quoted(column)}"


def discard_unchanged(
    db: apsw.Connection, info: TypeInfo, source: str, table: str, deleted: str | None = None
) -> None:  # fmt: skip
    """Take staged rows out that say what the latest row of their key, `old`, says. `deleted` tells that it is none."""
    same = [f"{_compared(column)} IS new.{quoted(column.column)}" for column in info.columns] or ["1"]
    same += [] if deleted is None else [f"NOT {deleted}"]
    db.execute(f"DELETE FROM {table} AS new WHERE {OLD} IS NOT NULL AND EXISTS "
               f"(SELECT 1 FROM {source} AS old WHERE old.rowid = new.{OLD} AND {' AND '.join(same)})")


def _compared(column: Column) -> str:
    name = f"old.{quoted(column.column)}"
    collation = column.type.collation
    return name if collation is None else f"{name} COLLATE {collation}"


def refuse_twice(db: apsw.Connection, table: str, type_name: str, where: Mapping[str, Any], commit_id: int) -> None:
    """Raise `SchemaValidationError` if a commit has a row of this key already: which would be the latest?"""
    same = " AND ".join(f"{name} = ?" for name in where)
    if db.execute(f"SELECT 1 FROM {table} WHERE {same} AND commit_id = ?", (*where.values(), commit_id)).get:
        raise written_twice(type_name, where, commit_id)
