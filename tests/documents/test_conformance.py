"""The conformance suite of history, on every place that spaces live in."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from ontolake.documents.conformance import DirectoryAdapter, DocumentsAdapter
from ontolake.history.conformance import VersioningConformance

Fresh = Callable[[], str]


class TestNativeFiles(VersioningConformance):
    """A directory with a native file a space."""

    adapter = DirectoryAdapter
    machine_runs = 10
    crash_repeats = None

    @pytest.fixture
    def fresh(self, tmp_path: Path) -> Fresh:
        numbers = itertools.count()
        return lambda: f"{tmp_path}/{next(numbers)}/ test"


@pytest.mark.slow
class TestPageFiles(VersioningConformance):
    """A directory with a page file a space, over the seam."""

    adapter = DirectoryAdapter
    machine_runs = 8

    @pytest.fixture
    def fresh(self, tmp_path: Path) -> Fresh:
        numbers = itertools.count()
        return lambda: f"sqlite+file://{tmp_path}/{next(numbers)} test"


@pytest.mark.slow
class TestMemory(VersioningConformance):
    """Spaces in the memory of one process."""

    adapter = DocumentsAdapter
    processes = False

    @pytest.fixture
    def fresh(self) -> Fresh:
        return lambda: f"memory://{secrets.token_hex(6)} test"


@pytest.mark.slow
class TestSeaweed(VersioningConformance):
    """Spaces in a bucket."""

    adapter = DocumentsAdapter
    machine_runs = 2
    machine_steps = 12
    crash_runs = 4

    @pytest.fixture
    def fresh(self, seaweed_url: str) -> Fresh:
        numbers = itertools.count()
        return lambda: f"{seaweed_url}/{next(numbers)} test"
