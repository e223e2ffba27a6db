"""Children that run a scenario and die at a given step. One parent prepares what is slow, then forks for each.

Usage: graph_victims.py SCENARIO N=URL… with a place for each fault point N; prints the step at which each child died.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import graph_forking  # noqa: F401
from graph_scenarios import ERASURES, RECOVERIES, SCENARIOS

from ontolake import faults
from ontolake.graph import Graph


class At:
    """Dies at the n-th step of a graph; says which that was."""

    def __init__(self, n: int) -> None:
        self.left = n

    def __call__(self, step: str) -> None:
        if step.startswith("graph:"):
            if self.left == 0:
                os.write(1, f"{step}\n".encode())
                faults.kill()
            self.left -= 1


def main() -> None:
    scenario = {**SCENARIOS, **RECOVERIES, **ERASURES}[sys.argv[1]]
    assert "lance" not in sys.modules
    for place in sys.argv[2:]:
        n, _, url = place.partition("=")
        child = os.fork()
        if child == 0:
            with faults.arm(At(int(n))):
                scenario.act(Graph.open(url))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != -9:
            print(f"lived: {status}", flush=True)


if __name__ == "__main__":
    main()
