"""A process that makes a commit for every line that it is told: `graph_appender.py URL`.

Prints the key of each row when its commit is there. What others beat is tried again.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from graph_erasures import Person, person

from ontolake.errors import Conflict, Contended
from ontolake.graph import Graph


def write(graph: Graph, key: str, branch: str) -> None:
    while True:
        try:
            graph.load(Person, [person(key)], branch=branch)
        except (Conflict, Contended):
            continue
        print(key, flush=True)
        return


if __name__ == "__main__":
    with Graph.open(sys.argv[1]) as graph:
        write(graph, "other", "main")
        for number, _ in enumerate(sys.stdin):
            write(graph, f"other{number}", "work" if number % 2 else "main")
