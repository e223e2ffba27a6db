"""A process that writes to a graph: `graph_writer.py URL NAME COUNT [BRANCH]`, each commit a customer of that name."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from ontolake.graph import Graph


def main() -> None:
    url, table, name, count = sys.argv[1:5]
    branch = sys.argv[5] if len(sys.argv) > 5 else "main"
    with Graph.open(url) as graph:
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(int(count)):
            commit = graph.load(table, [{"id": f"{name}-{number}"}], branch=branch, actor=name)
            assert commit is not None
            print(commit.id, flush=True)


if __name__ == "__main__":
    main()
