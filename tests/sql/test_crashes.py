"""Killed at any step of a statement, a database keeps what was acknowledged, and has the rest whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sql_program import STEPS, describe, open_for_program, start_child

from ontolake import faults
from ontolake.sql import Database, UniqueError, indexing

PLACES = {"native": "{}/t.db", "pages": "file://{}/t.db"}


@pytest.fixture(scope="module")
def reference() -> list[dict[str, Any]]:
    """What the database holds before the program and after each of its steps."""
    with open_for_program(":memory:") as db:
        states = [describe(db)]
        for step in STEPS:
            step(db)
            states.append(describe(db))
    return states


def run(place: str, folder: Path, n: int) -> tuple[list[str], int]:
    """Run the program in a child that dies at fault point n. Returns what it reported and how it ended."""
    report = folder / "report"
    child = start_child(PLACES[place].format(folder), str(report), n)
    child.join(120)
    assert child.exitcode is not None
    return report.read_text().splitlines(), child.exitcode


def sweep(place: str, tmp_path: Path, reference: list[dict[str, Any]], every: int, first: int = 0) -> None:
    (tmp_path / "whole").mkdir()
    points, code = run(place, tmp_path / "whole", 10**6)
    assert code == 0
    assert {"sql: index page filled", "sql: index declared", "sql: commit written", "sql: committed",
            "sql: type of a page changed", "sql: range split",
            "sql: range copied", "sql: range committed", "sql: range merged"} <= set(points)
    for n in range(first, len(points), every):
        folder = tmp_path / str(n)
        folder.mkdir()
        reported, code = run(place, folder, n)
        assert code == -9, f"at {n}, {points[n]}: {reported}"
        done = sum(line.startswith("done") for line in reported)
        options = {} if place == "native" else {"takeover": True}
        with open_for_program(PLACES[place].format(folder), **options) as db:
            assert describe(db) in (reference[done], reference[done + 1]), f"at {n}, {points[n]}"
            assert list(db.verify()) == []
            if describe(db) != reference[done + 1]:  # the step in flight is repeated, as a user would
                STEPS[done](db)
            for step in STEPS[done + 1 :]:
                step(db)
            assert describe(db) == reference[-1], f"taken up again at {n}, {points[n]}"
            assert list(db.verify()) == []
            ids = [table.id for table in db.catalog().by_id.values()]
            assert len(set(ids)) == len(ids)


def test_a_kill_at_some_steps_loses_nothing(tmp_path: Path, reference: list[dict[str, Any]]) -> None:
    sweep("native", tmp_path, reference, 20)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_a_kill_at_any_step_loses_nothing(part: int, tmp_path: Path, reference: list[dict[str, Any]]) -> None:
    sweep("native", tmp_path, reference, 4, part)


@pytest.mark.slow
def test_a_kill_at_any_ninth_step_on_pages_loses_nothing(tmp_path: Path, reference: list[dict[str, Any]]) -> None:
    sweep("pages", tmp_path, reference, 9)


def fill(db: Database, count: int = 300) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)")
    db.bulk_load("t", pa.table({"id": range(count), "a": range(count)}))


def test_rows_written_while_an_index_is_built_are_in_it_once(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "PAGE", 50)
    fill(db)
    states = []
    changes = iter([
        "INSERT INTO t VALUES (1000, 7), (-5, 8)", "UPDATE t SET a = a + 10000 WHERE id IN (3, 299)",
        "DELETE FROM t WHERE id IN (10, 290)", "UPDATE t SET a = 1 WHERE id = 3",
        "INSERT INTO t VALUES (10, 10)", "DELETE FROM t WHERE id = 1000",
    ])  # fmt: skip

    def hook(step: str) -> None:
        if step in ("sql: index declared", "sql: index page filled"):
            states.append(db.catalog().by_full_name["main.public.t"].indexes[0].state)
            assert "full scan" in db.explain("SELECT id FROM t WHERE a = 5"), "nobody reads an unfinished index"
            if (sql := next(changes, None)) is not None:
                db.execute(sql)

    with faults.arm(hook):
        db.execute("CREATE INDEX by_a ON t (a)")
    assert set(states) == {"write-only"}
    assert len(states) > 5
    assert list(db.verify()) == []
    assert "index-only range" in db.explain("SELECT id FROM t WHERE a = 5")
    assert db.execute("SELECT id FROM t WHERE a = 1 ORDER BY id").fetchall() == [(1,), (3,)]


def test_a_build_that_fails_leaves_no_index(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "PAGE", 50)
    fill(db)
    db.execute("UPDATE t SET a = 5 WHERE id = 280")
    with pytest.raises(UniqueError):
        db.execute("CREATE UNIQUE INDEX by_a ON t (a)")
    assert db.catalog().by_full_name["main.public.t"].indexes == []
    db.execute("INSERT INTO t VALUES (5000, 5)")
    db.execute("UPDATE t SET a = id; CREATE UNIQUE INDEX by_a ON t (a)")
    assert list(db.verify()) == []
    with pytest.raises(UniqueError):
        db.execute("INSERT INTO t VALUES (6000, 5)")


def test_an_index_whose_builder_died_is_dropped_when_the_database_is_opened(
    native_place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(BaseException):
        pass

    def die(step: str) -> None:
        if step == "sql: index page filled":
            raise Died

    monkeypatch.setattr(indexing, "PAGE", 50)
    monkeypatch.setattr(indexing, "drop", lambda *given: None)  # as if the process had not come to it
    monkeypatch.setattr(indexing, "me", lambda: f"{indexing.socket.gethostname()}/999999999")
    with open_for_program(native_place) as db:
        indexing.PAGE = 50
        fill(db)
        with faults.arm(die), pytest.raises(Died):
            db.execute("CREATE INDEX by_a ON t (a)")
        assert [index.state for index in db.catalog().by_full_name["main.public.t"].indexes] == ["write-only"]
        db.execute("INSERT INTO t VALUES (9999, 1)")
    monkeypatch.undo()
    with open_for_program(native_place) as db:
        assert db.catalog().by_full_name["main.public.t"].indexes == []
        db.execute("CREATE INDEX by_a ON t (a)")
        assert list(db.verify()) == []
