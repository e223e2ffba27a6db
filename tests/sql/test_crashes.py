"""Killed at any step of a statement, a database keeps what was acknowledged, and has the rest whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from sql_program import STEPS, KillAt, describe, open_for_program, start_child

from ontolake import faults
from ontolake.sql import Database, UniqueError
from ontolake.sql.write import index_builds

PLACES = {"native": "{}/t.db", "pages": "file://{}/t.db"}
SWEEPS = [*(("native", first, 40) for first in range(40)), ("pages", 0, 9)]
"""At which fault points the program is killed, from the first one on: on a native file at all, a few in each test."""


@pytest.fixture(scope="module", autouse=True)
def pages_as_before() -> Iterator[None]:
    """The program builds indexes in small pages; tests of other modules do not."""
    before = index_builds.PAGE
    yield
    index_builds.PAGE = before


@pytest.fixture(scope="module")
def reference() -> list[dict[str, Any]]:
    """What the database holds before the program and after each of its steps."""
    with open_for_program(":memory:") as db:
        states = [describe(db)]
        for step in STEPS:
            step(db)
            states.append(describe(db))
    return states


class Point(NamedTuple):
    """A fault point of the program: its name, and that it is the n-th of a step."""

    step: int
    n: int
    name: str


class Stage:
    """A place for the program as it was before each of its steps, under one URL: ranges know where they are."""

    def __init__(self, place: str, folder: Path) -> None:
        self.options = {} if place == "native" else {"takeover": True}
        self.points: list[Point] = []
        self._live, self._kept = folder / "live", folder / "kept"
        self._live.mkdir()
        self.url = PLACES[place].format(self._live)
        for number, step in enumerate(STEPS):
            shutil.copytree(self._live, self._kept / str(number))
            hook = KillAt(-1)
            with faults.arm(hook), open_for_program(self.url) as db:
                step(db)
            self.points += [Point(number, n, name) for n, name in enumerate(hook.seen)]

    def killed_at(self, point: Point) -> int:
        """Go through the program from the step of a fault point on, and die there. How many steps are acknowledged."""
        shutil.rmtree(self._live)
        shutil.copytree(self._kept / str(point.step), self._live)
        report = self._live / "report"
        child = start_child(self.url, str(report), point.step, point.n)
        child.join(120)
        reported = report.read_text().splitlines()
        assert child.exitcode == -9, f"at {point}: {reported}"
        return point.step + sum(line.startswith("done") for line in reported)


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Stage]:
    return cache(lambda place: Stage(place, tmp_path_factory.mktemp("stage")))


def test_there_is_a_fault_point_at_every_kind_of_write(stages: Callable[[str], Stage]) -> None:
    assert {point.name for point in stages("native").points} >= {
        "sql: index page filled", "sql: index declared", "sql: commit written", "sql: committed",
        "sql: type of a page changed", "sql: range split", "sql: range copied", "sql: range committed",
        "sql: range merged", "sql: batch copied", "sql: rows of a page have new keys"}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("place", "first", "every"), SWEEPS)
def test_a_kill_at_any_step_loses_nothing(
    place: str, first: int, every: int, reference: list[dict[str, Any]], stages: Callable[[str], Stage]
) -> None:
    stage = stages(place)
    for point in stage.points[first::every]:
        done = stage.killed_at(point)
        with open_for_program(stage.url, **stage.options) as db:
            assert describe(db) in (reference[done], reference[done + 1]), f"at {point}"
            assert list(db.verify()) == []
            if describe(db) != reference[done + 1]:  # the step in flight is repeated, as a user would
                STEPS[done](db)
            after = min(done + 3, len(STEPS))  # from then on it is the same for every point of a step
            for step in STEPS[done + 1 : after]:
                step(db)
            assert describe(db) == reference[after], f"taken up again at {point}"
            assert list(db.verify()) == []
            ids = [table.id for table in db.catalog().by_id.values()]
            assert len(set(ids)) == len(ids)


def fill(db: Database, count: int = 300) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)")
    db.bulk_load("t", pa.table({"id": range(count), "a": range(count)}))


def test_rows_written_while_an_index_is_built_are_in_it_once(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_builds, "PAGE", 50)
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
    monkeypatch.setattr(index_builds, "PAGE", 50)
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

    monkeypatch.setattr(index_builds, "PAGE", 50)
    monkeypatch.setattr(index_builds, "drop", lambda *given: None)  # as if the process had not come to it
    monkeypatch.setattr(index_builds, "me", lambda: f"{index_builds.socket.gethostname()}/999999999")
    with open_for_program(native_place) as db:
        index_builds.PAGE = 50
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
