"""Random sessions against a naive store: on objects every form of query answers as it does on SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.ontology.test_oracle import run

from .conftest import fresh_memory


@pytest.mark.parametrize("seed", range(8))
def test_every_query_answers_as_a_naive_store_does_in_memory(engine: str, seed: int) -> None:
    run(fresh_memory(), engine, seed, 12)


@pytest.mark.parametrize("seed", range(20, 22))
def test_every_query_answers_as_a_naive_store_does_in_a_directory(tmp_path: Path, engine: str, seed: int) -> None:
    run(tmp_path.as_uri(), engine, seed, 12)


def test_every_query_answers_as_a_naive_store_does_on_a_server(seaweed_url: str, engine: str) -> None:
    run(seaweed_url, engine, 40, 8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1002))
def test_it_does_so_in_long_sessions(engine: str, seed: int) -> None:
    run(fresh_memory(), engine, seed, 40)
