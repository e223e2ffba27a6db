"""The conformance suite of history on graphs, in a directory and in a bucket."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from ontolake.graph.conformance import GraphAdapter
from ontolake.history.conformance import VersioningConformance

_numbers = itertools.count()


class _Suite(VersioningConformance):
    adapter = GraphAdapter


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
