"""Unique fields in sqlite/v3: what a commit wrote is compared with the living rows of the same values, by an index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ontolake.model.columns import Column
from ontolake.model.types import TypeInfo
from ontolake.ontology.errors import UniqueFieldError
from ontolake.ontology.keys import decoded_key
from ontolake.ontology.query.compiler.latest import BRANCH, DELETED, quoted
from ontolake.ontology.query.compiler.statements import key_columns

if TYPE_CHECKING:
    from ontolake.ontology.repository.sqlite.v3 import SqliteRepositoryV3


def check_unique(repository: SqliteRepositoryV3, info: TypeInfo, commit_id: int) -> None:
    """Raise `UniqueFieldError` if a row that a commit wrote has a value of another living row."""
    layout = repository.layout_of(info)
    if layout is None:
        return
    for column in info.unique:
        for sql in clash_statements(repository, info, layout.table_name, column):
            found: Any = repository.db.execute(sql, (commit_id,)).fetchone()
            if found is not None:
                width = len(info.keys)
                one, two = (decoded_key(info, found[start : start + width]) for start in (1, 1 + width))
                raise UniqueFieldError(info.name, column.name, column.decode(found[0]), one, two)


def clash_statements(repository: SqliteRepositoryV3, info: TypeInfo, table: str, column: Column) -> list[str]:
    """SQL that finds a value, the key of a row that a commit, which is bound, gave it to, and that of another row."""
    keys, width = key_columns(info), len(info.keys)
    name = quoted(column.column)
    shown = ", ".join([f"new.{name}", *(f"new.{key}" for key in keys[:width]), *(f"old.{key}" for key in keys[:width])])
    new, old = (f"({', '.join(f'{alias}.{key}' for key in keys)})" for alias in ("new", "old"))
    latest = repository.latest(info, "old", None)
    return [
        f"SELECT {shown} FROM main.{quoted(table)} AS new CROSS JOIN main.{quoted(table)} AS old "
        f"ON old.{name} = new.{name} AND {old} {order} {new} WHERE new.commit_id = ?1 AND "
        f"new.{BRANCH} = {repository.branch_id} AND NOT new.{DELETED} AND {latest} LIMIT 1"
        for order in ("<", ">")
    ]  # fmt: skip
