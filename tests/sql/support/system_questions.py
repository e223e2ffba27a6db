"""What clients of PostgreSQL ask of system tables, and the same tables in PostgreSQL and here to ask it of.

The files of psql, SQLAlchemy, asyncpg, psycopg, Django and pgbench were logged by a server; those of tools that are not
at hand are statements of ours that ask the same. `{c book}` stands for the number of the table book.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "files" / "system_questions"
CLIENTS = sorted(path.stem for path in FOLDER.glob("*.sql") if path.stem != "schema")
_NUMBERS = """
SELECT 'c ' || oid::regclass::text, oid::int8 FROM pg_class
WHERE oid >= 16384 AND relnamespace IN (SELECT oid FROM pg_namespace WHERE nspname IN ('public', 'sales'))
UNION ALL SELECT 't ' || oid::regtype::text, oid::int8 FROM pg_type WHERE oid >= 16384
UNION ALL SELECT 'n ' || nspname, oid::int8 FROM pg_namespace
UNION ALL SELECT 'k ' || conname, oid::int8 FROM pg_constraint WHERE oid >= 16384
UNION ALL SELECT 'd ' || datname, oid::int8 FROM pg_database WHERE oid >= 16384
UNION ALL SELECT 'f ' || adrelid::regclass::text || ' ' || adnum::text, oid::int8 FROM pg_attrdef
"""


def schema() -> list[str]:
    """The statements that make tables with columns, defaults and constraints of every kind."""
    return [each for each in (FOLDER / "schema.sql").read_text().split(";\n") if each.strip()]


def questions(client: str) -> list[str]:
    """What a client asks."""
    return (FOLDER / f"{client}.sql").read_text().strip().removesuffix(";").split(";\n\n")


class Answers:
    """One server's answers, with names in place of numbers."""

    def __init__(self, ask: Callable[[str], tuple[list[str], list[Any]]]) -> None:
        """`ask` runs a statement and gives the names of the columns, and the rows."""
        self._ask = ask
        self._numbers = dict(ask(_NUMBERS)[1])
        self._names: Mapping[int, str] = {number: name for name, number in self._numbers.items()}

    def to(self, question: str) -> tuple[list[str], list[str]]:
        """The names of the columns, and the rows as text, sorted."""
        asked = re.sub(r"\{([a-z] [^}]*)\}", lambda found: str(self._numbers[found[1]]), question)
        columns, rows = self._ask(asked)
        return columns, sorted(repr([self._named(value) for value in row]) for row in rows)

    def _named(self, value: Any) -> Any:
        if isinstance(value, bool):
            return value
        if isinstance(value, int):
            return self._names.get(value, value)
        if isinstance(value, list | tuple):
            return [self._named(each) for each in value]
        if isinstance(value, str):
            return re.sub(r"\b\d{5,10}\b", lambda found: self._names.get(int(found[0]), found[0]), value)
        return value
