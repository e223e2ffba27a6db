"""Every backend against the one suite: a local file, a directory, memory, and two S3 servers."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from ontolake.storage.conformance import RawFile, RawObjects, StorageConformance

SWEEP = {"maintenance": "inline", "index_every": 3, "gc_grace_ms": 0}


class TestLocalFile(RawFile, StorageConformance):
    """`file:///….db`: everything in one file."""

    sweep_knobs = SWEEP

    @pytest.fixture
    def fresh(self, tmp_path: Path) -> Callable[[], str]:
        numbers = itertools.count()
        return lambda: f"file://{tmp_path}/{next(numbers)}.db"


class TestDirectory(RawObjects, StorageConformance):
    """`file:///…`: objects in a directory."""

    sweep_knobs = SWEEP

    @pytest.fixture
    def fresh(self, tmp_path: Path) -> Callable[[], str]:
        numbers = itertools.count()
        return lambda: f"file://{tmp_path}/{next(numbers)}"


class TestMemory(RawObjects, StorageConformance):
    """`memory://…`: objects that live as long as the process."""

    processes = False
    sweep_knobs = SWEEP

    @pytest.fixture
    def fresh(self) -> Callable[[], str]:
        numbers, name = itertools.count(), secrets.token_hex(6)
        return lambda: f"memory://{name}/{next(numbers)}"
