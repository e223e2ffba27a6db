"""The places that every promise about documents is checked on, and what the tests share."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from marking import slow_after

from ontolake.documents import Space, open_space

sys.path.insert(0, str(Path(__file__).parent / "support"))  # tests are imported by file and see no neighbours

STORES: dict[str, Callable[[Path], str]] = {
    "native": lambda folder: f"{folder}/",
    "pages": lambda folder: f"sqlite+file://{folder}",
    "memory": lambda folder: f"memory://{secrets.token_hex(6)}",
}
"""The kinds of place that spaces live in. All but `memory` can be reached by other processes."""


def _url(request: pytest.FixtureRequest, folder: Path) -> str:
    if request.param == "seaweed":
        url: str = request.getfixturevalue("seaweed_url")
        return url
    return STORES[request.param](folder)


@pytest.fixture(params=slow_after(1, ["native", "memory", "pages", "seaweed"]))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where spaces can be opened, of each kind."""
    return _url(request, tmp_path)


@pytest.fixture(params=slow_after(1, ["native", "pages", "seaweed"]))
def shared_place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where spaces can be opened by other processes too."""
    return _url(request, tmp_path)


@pytest.fixture
def native_place(tmp_path: Path) -> str:
    """A directory of native files, for what is about them alone or would be the same anywhere."""
    return STORES["native"](tmp_path)


OpenSpace = Callable[..., Space]


@pytest.fixture
def open_here() -> Iterator[OpenSpace]:
    """`open_space`; everything is closed when the test ends."""
    opened: list[Space] = []

    def open_and_keep(url: str, name: str = "test", **options: Any) -> Space:
        opened.append(open_space(url, name, **options))
        opened[-1].snapshots.pause = 3600  # so that none goes in the background while a test counts them
        return opened[-1]

    yield open_and_keep
    for space in opened:
        space.close()


@pytest.fixture
def space(place: str, open_here: OpenSpace) -> Space:
    """An empty space, of each kind."""
    return open_here(place)


@pytest.fixture
def native(native_place: str, open_here: OpenSpace) -> Space:
    """An empty space on a native file."""
    return open_here(native_place)
