"""What other processes do in tests of documents: run with `task`, `arguments` and `environment` set by the parent."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ontolake import faults
from ontolake.documents import ConflictError, Patch, Reads, Set, open_space
from ontolake.errors import Contended

sys.path.insert(0, str(Path(__file__).parent))
from documents_program import STEPS, open_for_program


def count_up(url: str, session: str, times: int) -> None:
    """Add one to a counter, reading it first and starting again when somebody was quicker."""
    with open_space(url, "test") as space:
        done = number = 0
        while done < times:
            number += 1
            seen = space.read("counter")
            assert seen.document is not None
            operation = Set("counter", {"n": seen.document["n"] + 1})
            try:
                space.transact(session, number, [operation], reads=Reads([seen.as_read()]))
            except ConflictError:
                continue
            done += 1


def patch_up(url: str, session: str, times: int) -> None:
    """Add one to a counter without looking."""
    with open_space(url, "test") as space:
        for number in range(times):
            space.transact(session, number, [Patch("counter", [{"op": "increment", "path": "/n", "by": 1}])])


def write_many(url: str, session: str, times: int) -> None:
    """Write documents of some kinds."""
    with open_space(url, "test") as space:
        for number in range(times):
            space.transact(session, number, [Set(f"{'odd' if number % 2 else 'even'}/{number}", {"n": number})])


def same_request(url: str, session: str, times: int) -> None:
    """Make the same requests as everybody else."""
    with open_space(url, "test") as space:
        for number in range(times):
            try:
                space.transact("shared", number, [Patch("counter", [{"op": "increment", "path": "/n", "by": 1}])])
            except Contended:
                continue


def run_program(url: str, report: str, n: int) -> None:
    """Go through the program, reporting before and after each step, and die at the n-th fault point of documents."""
    seen: list[str] = []

    def hook(step: str) -> None:
        if step.startswith("documents: "):
            seen.append(step)
            if len(seen) == n + 1:
                faults.kill()

    with Path(report).open("a", buffering=1) as said, faults.arm(hook), open_for_program(url) as space:
        for number, step in enumerate(STEPS):
            said.write(f"doing {number}\n")
            step(space, number)
            said.write(f"done {number}\n")
    Path(report).write_text("\n".join(seen))


TASKS: dict[str, Callable[..., Any]] = {
    "count_up": count_up, "patch_up": patch_up, "write_many": write_many, "same_request": same_request,
    "run_program": run_program}  # fmt: skip

if __name__ == "__child__":
    os.environ.update(globals()["environment"])
    TASKS[globals()["task"]](*globals()["arguments"])
