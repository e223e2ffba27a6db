"""Random programs against a naive store: on objects every form of query answers as it does on SQLite.

The programs with migrations and dropped types are the same on SQLite, in memory, in a directory and on a server.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from low import LOW
from marking import slow_after
from tests.ontology.test_machine import play
from tests.ontology.test_oracle import run
from tests.ontology.test_paths import run_paths

from ontolake.ontology.repository.objects.read import datafusion as s3_datafusion

from .conftest import fresh_memory


@pytest.mark.parametrize("seed", slow_after(1, range(8)))
def test_every_query_answers_as_a_naive_store_does_in_memory(engine: str, seed: int) -> None:
    run(fresh_memory(), engine, seed, 12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 22))
def test_every_query_answers_as_a_naive_store_does_in_a_directory(tmp_path: Path, engine: str, seed: int) -> None:
    run(tmp_path.as_uri(), engine, seed, 12)


@pytest.mark.slow
def test_every_query_answers_as_a_naive_store_does_on_a_server(server_url: str, engine: str) -> None:
    run(server_url, engine, 40, 8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1002))
def test_it_does_so_in_long_sessions(engine: str, seed: int) -> None:
    run(fresh_memory(), engine, seed, 40)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60, 64))
def test_every_query_answers_so_through_datafusion_and_row_groups(engine: str, seed: int) -> None:
    assert s3_datafusion.available()
    run(fresh_memory(), engine, seed, 14, LOW)


@pytest.mark.parametrize("seed", slow_after(1, range(70, 72)))
def test_every_query_answers_so_without_datafusion(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_datafusion, "available", lambda: False)
    run(fresh_memory(), "v2", seed, 10, LOW)


@pytest.mark.parametrize("seed", slow_after(1, range(80, 84)))
def test_every_traversal_finds_the_ways_of_a_naive_store(engine: str, seed: int) -> None:
    run_paths(fresh_memory(), engine, seed, 4 if seed == 80 else 10)


@pytest.mark.slow
def test_every_traversal_does_so_in_small_files(engine: str) -> None:
    run_paths(fresh_memory(), engine, 90, 12)


PROGRAMS = (1, 23)
"""Short ones with migrations, a drop and upkeep in them."""


def migrated_and_dropped(engine: str, at: Callable[[Path], str], program: int) -> None:
    assert play(engine, at, 2, 16, program=program) >= {"migrate", "drop"}


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("place", ["sqlite", "memory", "directory"])
def test_migrations_and_drops_leave_what_they_leave_in_a_naive_store(place: str, program: int) -> None:
    at: dict[str, Callable[[Path], str]] = {
        "sqlite": lambda folder: str(folder / "store.db"), "memory": lambda folder: fresh_memory(),
        "directory": lambda folder: (folder / "lake").as_uri()}  # fmt: skip
    migrated_and_dropped("v2", at[place], program)


@pytest.mark.slow
def test_migrations_and_drops_do_so_with_versions_side_by_side() -> None:
    migrated_and_dropped("v1", lambda folder: fresh_memory(), PROGRAMS[1])


@pytest.mark.slow
def test_migrations_and_drops_do_so_on_a_server(seaweed_url: str) -> None:
    migrated_and_dropped("v2", lambda folder: f"{seaweed_url}/{folder.name}", PROGRAMS[1])
