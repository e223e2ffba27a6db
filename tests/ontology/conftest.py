"""Where typed stores of tests live: a native file, a page file, and pages in memory, for every engine."""

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


ON_OBJECTS = {"objects in memory", "objects in a directory", "objects", "memory", "directory"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Engine v3 is one of SQLite: it does not go with places of objects."""
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        given = getattr(item, "callspec", None)
        values = set() if given is None else {value for value in given.params.values() if isinstance(value, str)}
        (left if "v3" in values and values & ON_OBJECTS else kept).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def fresh_url(place: str, folder: Path) -> str:
    """A place where nothing is yet."""
    number = next(_count)
    places: dict[str, Callable[[], str]] = {
        "native": lambda: str(folder / f"store{number}.db"),
        "page file": lambda: f"file://{folder}/pages{number}.db",
        "pages in memory": lambda: f"sqlite+memory://typed{number}",
    }
    return places[place]()
