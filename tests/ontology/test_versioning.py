"""Typed stores with engine v3 pass the conformance suite of history, on native files and on pages."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from ontolake.history.conformance import VersioningConformance
from ontolake.ontology.conformance import TypedVersioning


class TypedConformance(VersioningConformance):
    adapter = TypedVersioning
    machine_runs, machine_steps = 6, 20


class TestNativeFile(TypedConformance):
    crash_repeats = None

    @pytest.fixture
    def fresh(self, tmp_path: Path) -> Callable[[], str]:
        return lambda: str(tmp_path / f"{secrets.token_hex(6)}.db")


@pytest.mark.slow
class TestPageFile(TypedConformance):
    machine_runs, machine_steps = 3, 15

    @pytest.fixture
    def fresh(self, tmp_path: Path) -> Callable[[], str]:
        return lambda: f"file://{tmp_path}/{secrets.token_hex(6)}.db"


class TestObjectsInMemory(TypedConformance):
    machine_runs, machine_steps = 2, 10

    @pytest.fixture
    def fresh(self, request: pytest.FixtureRequest) -> Callable[[], str]:
        if "processes" in request.node.name or "killed" in request.node.name:
            pytest.skip("memory belongs to one process")
        return lambda: f"memory://typed-{secrets.token_hex(6)}"


@pytest.mark.slow
class TestDirectoryOfObjects(TypedConformance):
    machine_runs, machine_steps, crash_runs = 3, 15, 6

    @pytest.fixture
    def fresh(self, tmp_path: Path) -> Callable[[], str]:
        return lambda: (tmp_path / secrets.token_hex(6)).as_uri()


@pytest.mark.slow
class TestBucket(TypedConformance):
    machine_runs, machine_steps, crash_runs = 1, 8, 3

    @pytest.fixture
    def fresh(self, seaweed_url: str) -> Callable[[], str]:
        return lambda: f"{seaweed_url.rstrip('/')}/{secrets.token_hex(6)}"
