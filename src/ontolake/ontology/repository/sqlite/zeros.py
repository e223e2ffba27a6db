"""Negative zeros on sqlite/v2. A REAL column of SQLite holds -0.0 as 0, so a column beside the fields names those that
were negative. A table gets it when the first such value is written, and reads of it put the sign back.

0.0 and -0.0 are equal: no filter tells them apart, and changing one into the other alone makes no commit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import apsw

from ontolake.model.columns import Column
from ontolake.model.stored import StoredType
from ontolake.model.types import TypeInfo
from ontolake.ontology.query.compiler.latest import quoted
from ontolake.ontology.query.compiler.statements import key_columns
from ontolake.ontology.repository.protocol import Row

MARK = '"~negative"'
"""The numbers of the fields of a row that are -0.0, with commas around each; NULL for none."""


def floats(info: TypeInfo | StoredType) -> list[Column]:
    """The fields that are floats, in the order of their numbers, which is the same for every class of a schema."""
    return sorted((column for column in info.columns if column.sqlite_type == "REAL"), key=lambda column: column.column)


def is_marked(db: apsw.Connection, table: str) -> bool:
    """Whether a table has the column."""
    return any(f'"{row[1]}"' == MARK for row in db.execute(f"PRAGMA main.table_xinfo({quoted(table)})"))


def add_mark(db: apsw.Connection, table: str) -> None:
    db.execute(f"ALTER TABLE main.{quoted(table)} ADD COLUMN {MARK} TEXT")


def marked_source(info: TypeInfo | StoredType, table: str, more: Sequence[str] = ()) -> str:
    """The rows of a table that has the column, with the signs of their zeros. `more` has columns beside the fields."""
    negative = {column.column: f"instr({MARK}, ',{number},')" for number, column in enumerate(floats(info))}
    fields = [quoted(column.column) if column.column not in negative else
              f"CASE WHEN {negative[column.column]} THEN -0.0 ELSE {quoted(column.column)} END AS "
              f"{quoted(column.column)}" for column in info.columns]
    names = ["row_id AS rowid", *key_columns(info), "commit_id", "schema_version_id", *more, *fields]
    return f"(SELECT {', '.join(names)} FROM main.{quoted(table)})"


def staged_mark(info: TypeInfo) -> str:
    """SQL for the column of a staged row, `new`."""
    parts = [f"CASE WHEN {_is_negative(column)} THEN '{number},' ELSE '' END"
             for number, column in enumerate(floats(info))]
    return f"nullif(',' || {' || '.join(parts)}, ',')"


def any_staged(db: apsw.Connection, info: TypeInfo, stage: str) -> bool:
    """Whether a staged row has a negative zero."""
    wanted = " OR ".join(map(_is_negative, floats(info)))
    return bool(wanted) and db.execute(f"SELECT 1 FROM {stage} AS new WHERE {wanted} LIMIT 1").get is not None


def _is_negative(column: Column) -> str:
    value = f"new.{quoted(column.column)}"
    return f"({value} = 0.0 AND atan2({value}, -1.0) < 0)"  # the one function of SQLite that tells them apart


def mark_of(places: Sequence[int], row: Row) -> str | None:
    """The column of a row, whose floats stand at these places in the order of their numbers."""
    found = ",".join(str(number) for number, place in enumerate(places)
                     if row[place] == 0.0 and math.copysign(1.0, row[place]) < 0)
    return f",{found}," if found else None
