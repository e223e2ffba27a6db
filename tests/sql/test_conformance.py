"""SQL tables pass the conformance suite of history, on every layout that has branches."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ontolake.history.conformance import VersioningConformance
from ontolake.sql.conformance import SqlVersioning


class SqlConformance(VersioningConformance):
    adapter = SqlVersioning
    machine_runs, machine_steps = 4, 15


@pytest.mark.slow
class TestPageFile(SqlConformance):
    @pytest.fixture
    def fresh(self, tmp_path: Path) -> Callable[[], str]:
        return lambda: f"file://{tmp_path}/{secrets.token_hex(6)}.db"


class TestNativeFile(SqlConformance):
    crash_repeats = None

    @pytest.fixture
    def fresh(self, tmp_path: Path) -> Callable[[], str]:
        return lambda: f"{tmp_path}/{secrets.token_hex(6)}.db"


class TestMemory(SqlConformance):
    processes = False
    machine_runs = 2

    @pytest.fixture
    def fresh(self) -> Callable[[], str]:
        return lambda: f"memory://{secrets.token_hex(6)}"


@pytest.mark.slow
@pytest.mark.timeout(900)  # the sweep of kills takes most of a minute of CPU
class TestDirectory(SqlConformance):
    machine_runs, machine_steps = 2, 12

    @pytest.fixture
    def fresh(self, tmp_path: Path) -> Callable[[], str]:
        return lambda: f"file://{tmp_path}/{secrets.token_hex(6)}/"


@pytest.mark.slow
class TestSeaweed(VersioningConformance):
    """Pages in a bucket."""

    adapter = SqlVersioning
    machine_runs, machine_steps, crash_runs = 2, 12, 2

    @pytest.fixture
    def fresh(self, request: pytest.FixtureRequest) -> Callable[[], str]:
        base: Any = request.getfixturevalue("seaweed_url")
        return lambda: f"{base}/{secrets.token_hex(6)}"
