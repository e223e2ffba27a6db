"""The conformance suite of history on graphs, in a directory and in a bucket."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from ontolake.graph.conformance import GraphAdapter
from ontolake.history.conformance import VersioningConformance

_numbers = itertools.count()


@pytest.mark.slow
@pytest.mark.timeout(900)  # the sweep of kills takes a minute of CPU
class TestDirectory(VersioningConformance):
    """A graph in a directory."""

    adapter = GraphAdapter
    machine_runs = 5
    machine_steps = 12

    @pytest.fixture
    def fresh(self, tmp_path: Path) -> Callable[[], str]:
        return lambda: f"{tmp_path}/{next(_numbers)}/"


@pytest.mark.slow
class TestBucket(VersioningConformance):
    """A graph on a real server of S3."""

    adapter = GraphAdapter
    machine_runs = 2
    machine_steps = 12
    crash_runs = 3

    @pytest.fixture
    def fresh(self, seaweed_url: str) -> Callable[[], str]:
        return lambda: f"{seaweed_url.rstrip('/')}/{next(_numbers)}"
