"""Processes that write to a graph at the same time: `graph_writer.py URL COUNT TABLE…`, one for each table.

Each makes so many commits of one row, and prints their ids.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import graph_forking  # noqa: F401

from ontolake.graph import Graph


def write(url: str, table: str, count: int, ready: int, go: int) -> None:
    with Graph.open(url) as graph:
        os.write(ready, b".")
        os.read(go, 1)
        for number in range(count):
            commit = graph.load(table, [{"id": f"{table}-{number}"}], actor=table)
            assert commit is not None
            os.write(1, f"{commit.id}\n".encode())


def main() -> None:
    url, count, tables = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    (heard, ready), (go, held) = os.pipe(), os.pipe()
    children = []
    for table in tables:
        children.append(os.fork())
        if children[-1] == 0:
            os.close(held)
            write(url, table, count, ready, go)
            os._exit(0)
    os.close(ready)
    while len(os.read(heard, 1)) and (tables := tables[1:]):
        pass
    os.close(held)  # which all of them wait for
    for child in children:
        assert os.waitpid(child, 0)[1] == 0


if __name__ == "__main__":
    main()
