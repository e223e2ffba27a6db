"""The past by its own schemas on objects: the programs that run on SQLite, with every file small and merged often."""

from __future__ import annotations

from pathlib import Path

import pytest
from low import LOW
from marking import slow_after
from tests.ontology.past import run_past

from .conftest import fresh_memory


@pytest.mark.parametrize("seed", slow_after(1, range(20, 24)))
def test_the_past_is_told_as_it_was_written(engine: str, seed: int) -> None:
    assert run_past(fresh_memory(), engine, seed, 10 if seed == 20 else 25, LOW) == {"migrate"}


@pytest.mark.slow
def test_the_past_is_told_as_it_was_written_in_a_directory(tmp_path: Path, engine: str) -> None:
    assert run_past(tmp_path.as_uri(), engine, 30, 15) == {"migrate"}
