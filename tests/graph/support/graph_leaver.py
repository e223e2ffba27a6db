"""A process that loads many rows and ends without closing its graph: `graph_leaver.py URL`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pyarrow as pa
from graph_support import Order

from ontolake.graph import Graph

if __name__ == "__main__":
    graph = Graph.open(sys.argv[1])
    graph.load(Order, pa.table({"id": pa.array(range(20_000), pa.int64())}))
