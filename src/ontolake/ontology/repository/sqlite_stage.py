"""Staging: rows to be written stand in a temporary table first, so that SQL can tell which of them say anything new."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

import apsw

from ontolake.model.columns import Column
from ontolake.model.types import TypeInfo
from ontolake.ontology.repository.protocol import Row
from ontolake.ontology.repository.sqlite_functions import DECIMAL
from ontolake.ontology.repository.sqlite_latest import is_latest, quoted
from ontolake.ontology.repository.sqlite_statements import key_columns


@contextlib.contextmanager
def stage(db: apsw.Connection, info: TypeInfo, rows: Collection[Row], extra: str = "") -> Iterator[str]:
    """A temporary table with these rows in it, gone at the end of the block. Its columns are those of the type."""
    table = f"temp.{quoted('stage_' + info.kind + '_' + info.name)}"
    columns = [quoted(column.column) for column in (*info.keys, *info.columns)]
    db.execute(f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(columns)})")
    try:
        slots = ", ".join("?" * len(columns))
        db.executemany(f"INSERT INTO {table} VALUES ({slots})", rows)
        yield table
    finally:
        with contextlib.suppress(apsw.Error):
            db.execute(f"DELETE FROM {table}")


def staged(info: TypeInfo, alias: str, column: str) -> str:
    """A key column of a staged row: an instance key that was not declared is empty."""
    if column == "instance_key" and len(info.keys) < 3:
        return "''"
    return f"{alias}.{quoted(column)}"


def unchanged(info: TypeInfo, source: str, table: str) -> str:
    """A condition on `new`, a staged row: the latest row of its key in `source` is the same."""
    keys = key_columns(info)
    same = [f"old.{quoted(key)} = {staged(info, 'new', key)}" for key in keys]
    same += [f"{_compared(column, 'old')} IS new.{quoted(column.column)}" for column in info.columns]
    return f"EXISTS (SELECT 1 FROM {source} AS old WHERE {' AND '.join(same)} AND {is_latest('old', source, keys)})"


def _compared(column: Column, alias: str) -> str:
    name = f"{alias}.{quoted(column.column)}"
    return f"{name} COLLATE {DECIMAL}" if column.scalar == "Decimal" else name
