"""Places for graphs, and the graph that most tests begin with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))  # tests are imported by file and see no neighbours

pytest.importorskip("lance")

from graph_support import TYPES

from ontolake.graph import Graph


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"{tmp_path}/graph/"


@pytest.fixture
def graph(url: str) -> Iterator[Graph]:
    """An empty graph of customers, orders and who placed them."""
    with Graph.init(url, TYPES) as made:
        yield made
