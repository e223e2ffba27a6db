"""The places that every promise of an object store is checked on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from marking import slow_after

from ontolake.objects import ObjectStore, cas, open_store

KINDS = ["directory", "memory", "ministack", "seaweed", "azurite"]


@pytest.fixture(params=slow_after(2, KINDS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty place of each kind."""
    return new_place(request, tmp_path)


@pytest.fixture(params=slow_after(1, [kind for kind in KINDS if kind != "memory"]))
def shared_place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same, for those that other processes can reach."""
    return new_place(request, tmp_path)


def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "directory":
        return f"file://{tmp_path}/lake"
    if request.param == "memory":
        return f"memory://{os.urandom(8).hex()}/some/prefix"
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def store(place: str) -> Iterator[ObjectStore]:
    opened = open_store(place)
    yield opened
    opened.close()


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Injected faults are over at once, so there is nothing to wait for."""
    monkeypatch.setattr(cas, "FIRST_WAIT", 0.0001)
