"""The conformance suite of history on graphs, in a directory and in a bucket."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from ontolake.graph.conformance import GraphAdapter
from ontolake.graph.errors import ErasureError
from ontolake.history.conformance import VersioningConformance

_numbers = itertools.count()


class _Suite(VersioningConformance):
    adapter = GraphAdapter

    def test_an_erased_row_is_gone_from_every_commit_and_file(self, where: str) -> None:
        """Not yet: a graph says so, and changes nothing."""
        with self.adapter.open(where) as store:
            self.adapter.write(store, "main", {"x": {"f": 1, "g": 1}})
            with pytest.raises(ErasureError, match="cannot erase"):
                store.erase(self.adapter.table, "x", reason="asked for by its owner", dry_run=False)
            assert self.state(store) == {"x": {"f": 1, "g": 1}}


@pytest.mark.slow
class TestDirectory(_Suite):
    """A graph in a directory."""

    machine_runs = 5
    machine_steps = 12
    crash_runs = 10

    @pytest.fixture
    def fresh(self, tmp_path: Path) -> Callable[[], str]:
        return lambda: f"{tmp_path}/{next(_numbers)}/"


@pytest.mark.slow
class TestBucket(_Suite):
    """A graph on a real server of S3."""

    machine_runs = 1
    machine_steps = 8
    crash_runs = 3

    @pytest.fixture
    def fresh(self, seaweed_url: str) -> Callable[[], str]:
        return lambda: f"{seaweed_url.rstrip('/')}/{next(_numbers)}"
