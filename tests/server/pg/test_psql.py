"""psql against `onto pg` in a process of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pg_serving import PgProcess

from ontolake.sql import open_database

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PgProcess]:
    folder = tmp_path_factory.mktemp("psql")
    with open_database(str(folder / "shop.db")) as database:
        database.execute("CREATE TABLE item (id INT PRIMARY KEY, name TEXT, price NUMERIC(10, 2))")
        database.execute("INSERT INTO item VALUES (1, 'nut', 1.5), (2, NULL, 2)")
    with PgProcess(folder, "shop.db") as found:
        yield found


def psql(wire: PgProcess, *commands: str, script: str | None = None) -> tuple[str, str]:
    """What psql prints, and its errors."""
    arguments = [part for command in commands for part in ("-c", command)]
    done = subprocess.run(["psql", "-X", "-A", "-t", wire.url, *arguments], input=script, capture_output=True,
                          text=True, timeout=60, check=False)  # fmt: skip
    return done.stdout, done.stderr


def test_queries_and_changes(wire: PgProcess) -> None:
    said, wrong = psql(wire, "SELECT 1", "SELECT * FROM item ORDER BY id", "INSERT INTO item VALUES (3, 'bolt', 3)",
                       "DELETE FROM item WHERE id = 3", "SELECT 1; SELECT 2")  # fmt: skip
    assert (said, wrong) == ("1\n1|nut|1.50\n2||2.00\nINSERT 0 1\nDELETE 1\n1\n2\n", "")


def test_an_error_fails_the_transaction(wire: PgProcess) -> None:
    said, wrong = psql(wire, script="BEGIN; DELETE FROM item; SELECT 1 / 0; SELECT 1; COMMIT; "
                                    "SELECT count(*) FROM item;")  # fmt: skip
    assert said == "BEGIN\nDELETE 2\nROLLBACK\n2\n"
    assert [line.split(":")[0] for line in wrong.splitlines()] == ["ERROR", "ERROR"]
    assert "aborted" in wrong


def test_it_ends_when_it_is_told(tmp_path: Path) -> None:
    with open_database(str(tmp_path / "one.db")) as database:
        database.execute("CREATE TABLE t (a INT PRIMARY KEY)")
    with PgProcess(tmp_path, "one.db") as found:
        assert psql(found, "SELECT count(*) FROM t") == ("0\n", "")
        assert found.end() == 0
