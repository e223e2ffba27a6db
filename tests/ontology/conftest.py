"""Where typed stores of tests live: a native file, a page file, pages in memory, and objects, for every engine."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from marking import slow_after

_count = itertools.count()


@pytest.fixture(params=slow_after(1, ["v2", "v3", "v1"]))
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=slow_after(1, ["native", "pages in memory", "page file"]))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(str(request.param), tmp_path)


@pytest.fixture
def native(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


def fresh_url(place: str, folder: Path) -> str:
    """A place where nothing is yet."""
    number = next(_count)
    places: dict[str, Callable[[], str]] = {
        "native": lambda: str(folder / f"store{number}.db"),
        "page file": lambda: f"file://{folder}/pages{number}.db",
        "pages in memory": lambda: f"sqlite+memory://typed{number}",
        "objects in memory": lambda: f"memory://typed{number}",
        "objects in a directory": lambda: (folder / f"objects{number}").as_uri(),
    }
    return places[place]()
