"""A process that plays a history and is killed in the midst of it, or writes beside another one.

`python -m ontolake.history.conformance.child crash MODULE:CLASS WHERE N` plays `CRASHING` and is killed at the n-th
fault point; it writes a line after each step that was acknowledged and, if it ends, the fault points that it saw.
`… child write MODULE:CLASS WHERE BRANCH PREFIX COUNT` writes so many records, one commit each.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from ontolake import faults
from ontolake.errors import Conflict
from ontolake.history.conformance.workload import CRASHING, HistoryPlayer


def adapter_of(name: str) -> Any:
    module, _, cls = name.partition(":")
    return getattr(import_module(module), cls)


def tell(*words: str) -> None:
    """A line for the parent, at once: the next step may be the last."""
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


def crash(adapter: Any, where: str, n: int) -> None:
    """Play, and end at the n-th fault point; at none if n is negative."""
    hook = faults.At(n, faults.kill)
    with faults.arm(hook):
        player = HistoryPlayer(adapter, where)
        tell("open")
        for step in CRASHING:
            player.do(step)
            tell(step.kind)
        player.close()
    tell("points", *(name.replace(" ", "_") for name in hook.seen))


def write(adapter: Any, where: str, branch: str, prefix: str, count: int) -> None:
    """Write records while another process does the same; a writer that is in the way is waited for."""
    done = 0
    while done < count:
        try:
            with adapter.open(where) as store:
                while done < count:
                    adapter.write(store, branch, {f"{prefix}{done}": {"f": done, "g": None}})
                    done += 1
        except Conflict:
            continue


def main(arguments: list[str]) -> None:
    command, name, where, *more = arguments
    if command == "crash":
        crash(adapter_of(name), where, int(more[0]))
    else:
        write(adapter_of(name), where, more[0], more[1], int(more[2]))


if __name__ == "__main__":
    main(sys.argv[1:])
