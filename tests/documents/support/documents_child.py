"""What other processes do in tests of documents: run with `URL` and the name of a task set by the parent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ontolake.documents import ConflictError, Patch, Reads, Set, open_space
from ontolake.errors import Contended


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


TASKS: dict[str, Callable[..., Any]] = {
    "count_up": count_up, "patch_up": patch_up, "write_many": write_many, "same_request": same_request}  # fmt: skip

if __name__ == "__child__":
    TASKS[globals()["task"]](*globals()["arguments"])
