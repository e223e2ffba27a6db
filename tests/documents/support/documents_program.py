"""A fixed program that uses every way of writing, step by step, so that it can be interrupted and taken up again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ontolake.documents import Delete, Exists, Patch, PendingRead, Policy, Read, Reads, Set, Space, open_space

SESSION = "program"


def _bump(times: int = 1) -> list[dict[str, Any]]:
    return [{"op": "increment", "path": "/n", "by": 1}] * times


def _transact(*operations: Any, **options: Any) -> Callable[[Space, int], None]:
    return lambda space, number: space.transact(SESSION, number, operations, **options) and None


def _compact(space: Space, number: int) -> None:
    """Clear away snapshots of which there are too many, and make up for one that is missing."""
    space.snapshots.compact()
    with space._database.write as connection:
        connection.execute("DELETE FROM snapshot WHERE seq = (SELECT max(seq) FROM snapshot)")
    space.snapshots.compact()


STEPS: list[Callable[[Space, int], Any]] = [
    _transact(Set("a", {"n": 0}), Set("b", {"list": []})),
    _transact(Patch("a", _bump()), Patch("b", [{"op": "append", "path": "/list", "value": 1}])),
    _transact(Patch("a", _bump(3)), Patch("a", _bump()), Delete("b"), preconditions=[Exists("b")]),
    lambda space, number: space.branches.create("side", session_id=SESSION, local_seq=number),
    _transact(Patch("a", [{"op": "add", "path": "/side", "value": 1}]), branch="side", reads=Reads([Read("a", "", 3)])),
    _transact(Set("c", {}), branch="side", reads=Reads(pending=[PendingRead("a", "", [4], 3)])),
    _transact(Patch("a", _bump()), Set("b", {"back": True})),
    lambda space, number: space.branches.merge("side", session_id=SESSION, local_seq=number),
    lambda space, number: space.put_blob(b"bytes", content_type="text/plain"),
    _compact,
    lambda space, number: space.branches.delete("side", session_id=SESSION, local_seq=number),
    _transact(Patch("a", _bump(2)), Patch("a", _bump(2)), Delete("c")),
]


def open_for_program(url: str, **options: Any) -> Space:
    """The space, with snapshots often enough for a short program, and none removed behind its back."""
    space = open_space(url, "test", **options)
    space.snapshots.policy = Policy(every=2, keep=1, spacing=0)
    space.snapshots.pause = 3600
    return space


def describe(space: Space) -> dict[str, Any]:
    """All that the program can have changed, but for when and how quickly it can be read."""
    branches = [branch.name for branch in space.branches.list(deleted=True)]
    with space._database.read as connection:
        blobs = connection.execute("SELECT hash FROM blob_store").fetchall()
    return {
        "seq": space.last_seq(),
        "branches": (space.branches.list(), space.branches.list(deleted=True)),
        "states": {
            (branch, seq): dict(space.snapshot(seq, branch=branch).rows())
            for branch in branches
            for seq in range(space.last_seq() + 1)
        },
        "commits": [commit._replace(time=None) for branch in branches for commit in space.commits(branch=branch)],
        "blobs": blobs,
    }
