"""Where typed stores on objects live in tests: in memory, in a directory, and on a real server."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from marking import slow_after

_count = itertools.count()


def fresh_memory() -> str:
    """A place in memory where nothing is yet."""
    return f"memory://typed-objects-{next(_count)}"


@pytest.fixture(params=slow_after(1, ["memory", "directory"]))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_memory() if request.param == "memory" else f"{(tmp_path / 'lake').as_uri()}"


@pytest.fixture
def memory() -> str:
    return fresh_memory()


@pytest.fixture(params=slow_after(1, ["v3", "v2", "v1"]))
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["seaweed", "azurite"])
def server_url(request: pytest.FixtureRequest) -> str:
    """A place on a real server: S3, and Azure."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def native() -> str:
    return fresh_memory()
