"""psql's backslash commands and SQLAlchemy's inspector over the wire, beside PostgreSQL for the same tables."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pg_serving import pg_serving

from ontolake.sql import open_database

sys.path.insert(0, str(Path(__file__).parents[2] / "sql" / "support"))

from system_questions import schema

pytestmark = pytest.mark.slow

COMMANDS = [
    r"\d", r"\d book", r"\d author", r"\d sales.orders", r"\d sales.lines", r'\d "Odd Name"', r"\d cheap",
    r"\d ticket", r"\d book_price_desc_idx", r"\d book_cheap_idx", r"\d book_lower_idx", r"\d+ book", r"\d+ author",
    r"\d+ cheap", r"\d+ sales.totals", r"\d+ ticket", r"\d nothing", r"\dt", r"\dt sales.*", r"\dt b*", r"\di",
    r"\dv", r"\dv+", r"\ds", r"\dm", r"\df", r"\df lower", r"\da", r"\dT", r"\dT+", r"\dT mood", r"\dD", r"\dp",
    r"\dp book", r"\z", r"\dy", r"\db", r"\dc", r"\dd", r"\ddp", r"\des", r"\det", r"\deu", r"\dew", r"\dO", r"\dP",
    r"\drds", r"\dRp", r"\dRs", r"\dX", r"\dE", r"\dtisv", r"\dtS pg_am", r"\sv cheap", r"\encoding", r"\dA", r"\dA+",
]  # fmt: skip
DIFFERENT = {
    r"\dt+": "sizes are not known", r"\di+": "sizes are not known", r"\ds+": "sizes are not known",
    r"\dn": "the owner of public", r"\l": "there are no templates", r"\dx": "there is no PL/pgSQL",
    r"\dC": "casts are not listed", r"\do +": "operators are not listed",
    r"\dF": "there is no text search", r"\dL": "there is SQL alone", r"\da sum": "functions have no comments",
    r"\dconfig": "settings have other defaults",
}  # fmt: skip
"""Commands that print something else here, and why."""


class Twins:
    """The same tables in PostgreSQL and in a server of ours, by their URLs."""

    def __init__(self, original: str, ours: str) -> None:
        self.original, self.ours = original, ours


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    import psycopg
    from postgres import Unavailable, running

    path = str(tmp_path_factory.mktemp("twins") / "main.db")
    with open_database(path) as database:
        for statement in schema():
            database.execute(statement)
    try:
        with running(user="ontolake") as address, pg_serving({"main": path}) as served:
            with psycopg.connect(address, autocommit=True) as first:
                first.execute("CREATE DATABASE main")
            with psycopg.connect(address.replace("dbname=postgres", "dbname=main"), autocommit=True) as connection:
                for statement in schema():
                    connection.execute(statement.encode())
            folder = dict(part.split("=", 1) for part in address.split())["host"]
            yield Twins(f"postgresql://ontolake@/main?host={folder}", served.url("main"))
    except Unavailable as error:
        pytest.skip(str(error))


def printed(url: str, commands: list[str]) -> dict[str, str]:
    """What psql prints for each command."""
    script = "".join(f"\\echo === {n}\n{command}\n" for n, command in enumerate(commands))
    done = subprocess.run(["psql", "-X", "-P", "pager=off", url], input=script, capture_output=True, text=True,
                          timeout=200, check=False)  # fmt: skip
    assert not re.search("ERROR", done.stderr), done.stderr
    parts = re.split(r"^=== (\d+)\n", done.stdout, flags=re.MULTILINE)
    return {commands[int(parts[n])]: parts[n + 1] for n in range(1, len(parts), 2)}


def test_backslash_commands_print_what_postgresql_prints(twins: Twins) -> None:
    wanted, found = printed(twins.original, COMMANDS), printed(twins.ours, COMMANDS)
    assert list(found) == COMMANDS
    for command in COMMANDS:
        assert found[command] == wanted[command], command


def test_commands_that_print_something_else_are_named(twins: Twins) -> None:
    commands = list(DIFFERENT)
    wanted, found = printed(twins.original, commands), printed(twins.ours, commands)
    assert [command for command in commands if found[command] == wanted[command]] == []


def inspected(url: str) -> dict[str, Any]:
    """All that SQLAlchemy's inspector finds out."""
    import sqlalchemy

    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://").replace(
        "postgres://", "postgresql+psycopg://"))
    inspector = sqlalchemy.inspect(engine)
    found: dict[str, Any] = {"schemas": sorted(inspector.get_schema_names())}
    everything = sqlalchemy.engine.reflection.ObjectKind.ANY
    for name in (None, "public", "sales"):
        found[f"{name} names"] = [sorted(each(schema=name)) for each in (
            inspector.get_table_names, inspector.get_view_names, inspector.get_sequence_names)]
        for kind in ("columns", "pk_constraint", "foreign_keys", "indexes", "unique_constraints", "check_constraints",
                     "table_comment", "table_options"):  # fmt: skip
            rows = getattr(inspector, f"get_multi_{kind}")(schema=name, kind=everything)
            found[f"{name} {kind}"] = {table: _shown(each) for table, each in rows.items()}
        for view in inspector.get_view_names(schema=name):
            found[f"{name} {view}"] = inspector.get_view_definition(view, schema=name)
    found["enums"] = inspector.get_enums(schema="*")  # type: ignore[attr-defined]
    engine.dispose()
    return found


def _shown(value: Any) -> Any:
    """Types as text, which compares; rows in the order of their names."""
    if isinstance(value, list):
        shown = [_shown(each) for each in value]
        return sorted(shown, key=lambda each: str(each.get("name"))) if shown and isinstance(shown[0], dict) else shown
    if isinstance(value, dict):
        return {name: _shown(each) for name, each in value.items()}
    return repr(value) if type(value).__module__.startswith("sqlalchemy") else value


def test_sqlalchemy_reflects_what_it_reflects_from_postgresql(twins: Twins) -> None:
    pytest.importorskip("sqlalchemy")
    wanted, found = inspected(twins.original), inspected(twins.ours)
    assert wanted["public columns"], "something is compared"
    for part, each in wanted.items():
        assert found[part] == each, part
