"""Native files, which several processes may start to use at once."""

from __future__ import annotations

import threading
from pathlib import Path

import apsw
import pytest
from waiting import wait_for

from ontolake.documents import open_space
from ontolake.documents.schema import LAYOUT
from ontolake.engine import connection as connection_module
from ontolake.engine.connection import write_ahead


def test_a_switch_to_a_write_ahead_log_waits_for_those_who_are_in_the_file(tmp_path: Path) -> None:
    reader, other = (apsw.Connection(str(tmp_path / "a.db")) for _ in range(2))
    reader.execute("CREATE TABLE t (a); BEGIN; SELECT * FROM t").fetchall()
    tried: list[str] = []

    def note(_: object, statement: str, __: object) -> bool:
        tried.append(statement)
        return True

    other.set_exec_trace(note)
    thread = threading.Thread(target=write_ahead, args=(other,))
    thread.start()
    wait_for(lambda: len(tried) > 1)
    reader.execute("COMMIT")
    thread.join(60)
    assert other.pragma("journal_mode") == "wal"


def test_a_switch_to_a_write_ahead_log_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_BUSY_MS", 20)
    reader, other = (apsw.Connection(str(tmp_path / "a.db")) for _ in range(2))
    reader.execute("CREATE TABLE t (a); BEGIN; SELECT * FROM t").fetchall()
    with pytest.raises(apsw.BusyError):
        write_ahead(other)


@pytest.mark.parametrize("statement", [1, 2, 3])
def test_a_database_that_another_makes_while_it_is_looked_at_is_not_taken_for_a_strange_one(
    tmp_path: Path, statement: int
) -> None:
    path = str(tmp_path / "a.sqlite")
    connection, executed = apsw.Connection(path), 0

    def make(*_: object) -> bool:
        nonlocal executed
        executed += 1
        if executed == statement:
            open_space(f"{tmp_path}/", "a").close()
        return True

    connection.set_exec_trace(make)
    assert LAYOUT._is_ours(connection, path) == (statement == 1)
