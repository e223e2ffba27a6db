"""Where queues of events live in tests: in SQLite and on objects."""

from __future__ import annotations

from pathlib import Path

import pytest
from marking import slow_after

from ..conftest import fresh_url

SQLITE = ("native", "page file", "pages in memory")


@pytest.fixture(params=slow_after(2, ["native", "objects in memory", "page file", "pages in memory",
                                      "objects in a directory"]))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return place(str(request.param), tmp_path)


@pytest.fixture(params=slow_after(1, ["native", "objects in a directory"]))
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place that several processes can open."""
    return place(str(request.param), tmp_path)


@pytest.fixture(params=["native", "objects in memory"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """One place of each kind, the quickest."""
    return place(str(request.param), tmp_path)


def place(kind: str, folder: Path) -> str:
    """A place of a kind where nothing is yet."""
    if kind in SQLITE:
        return fresh_url(kind, folder)
    if kind == "objects in memory":
        return fresh_url("pages in memory", folder).removeprefix("sqlite+")
    return (folder / "lake").as_uri()
