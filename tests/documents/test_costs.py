"""What diffs and merges cost: what changed, not what is stored, in a few statements for any number of documents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from ontolake.documents import ConflictError, Delete, Patch, Read, Reads, Set, Space, open_space
from ontolake.documents.operations import Operation
from ontolake.documents.read.replay import CHUNK

CHANGED = 200
_STEPS_A_TICK = 50


class Cost(NamedTuple):
    """SQL statements, and steps of SQLite's virtual machine in ticks."""

    statements: int
    ticks: int


def cost(space: Space, action: Callable[[], object]) -> Cost:
    connection = space._database.connection
    counted = [0, 0]

    def statement(*_: object) -> bool:
        counted[0] += 1
        return True

    def tick() -> bool:
        counted[1] += 1
        return False

    connection.exec_trace = statement
    connection.set_progress_handler(tick, _STEPS_A_TICK)
    try:
        action()
    finally:
        connection.exec_trace = None
        connection.set_progress_handler(None)
    return Cost(*counted)


def key(number: int) -> str:
    return f"r{number:06}"


def forked(folder: Path, size: int, changed: int = CHANGED) -> Space:
    """A space of some size with a branch `try` that has changed documents all over it, and main another one."""
    space = open_space(f"{folder}/{size}/", "costs")
    space.transact(*space.next_request(), [Set(key(number), {"f": 0, "g": number}) for number in range(size)])
    space.branches.create("try")
    space.branches.create("other")
    ids = [key(number) for number in range(0, size - 1, max((size - 1) // changed, 1))][:changed]
    kinds: list[Callable[[str], Operation]] = [
        lambda id: Set(id, {"f": 1, "g": 0}), lambda id: Delete(id),
        lambda id: Patch(id, [{"op": "replace", "path": "/f", "value": 2}])]
    space.transact(*space.next_request(), [kinds[number % 3](id) for number, id in enumerate(ids)], branch="try")
    space.transact(*space.next_request(), [Set(key(size - 1), {"f": 5, "g": 5})])
    return space


@pytest.mark.slow
def test_a_diff_and_a_merge_cost_what_changed(tmp_path: Path) -> None:
    costs: dict[str, list[Cost]] = {"diff": [], "plan": [], "merge": []}
    for size in (1_000, 30_000):
        with forked(tmp_path, size) as space:
            costs["diff"].append(cost(space, lambda: list(space.diff("main", "try"))))
            costs["plan"].append(cost(space, lambda: space.merge("try", dry_run=True)))
            costs["merge"].append(cost(space, lambda: space.merge("try")))
    for what, (small, large) in costs.items():
        assert large.statements == small.statements, what
        assert large.ticks < 1.5 * small.ticks, f"{what}: {small} at 1,000, {large} at 30,000"


@pytest.mark.parametrize("what", ["diff", "merge"])
def test_reading_takes_a_few_statements_for_many_documents(tmp_path: Path, what: str) -> None:
    """More documents take more statements only by the page."""
    found = []
    for changed in (CHUNK // 2, 4 * CHUNK):
        with forked(tmp_path / str(changed), 4 * CHUNK + 1, changed) as space:
            found.append(cost(space, (lambda: list(space.diff("main", "try"))) if what == "diff"
                              else lambda: space.merge("try", dry_run=True)).statements)  # fmt: skip
    assert found[1] - found[0] <= 30, f"{found} statements"


def test_what_only_the_source_changed_is_not_read_from_the_base(tmp_path: Path) -> None:
    """Two sides are read of such documents, three of those that both changed."""
    with forked(tmp_path, 3_000, 3) as space:
        written = [Set(key(number), {"f": 1, "g": 2}) for number in range(0, 3_000, 10)]
        space.transact(*space.next_request(), written, branch="other")
        one_side = cost(space, lambda: space.merge("other", dry_run=True))
        space.transact(*space.next_request(), [Set(one.id, {"f": 1, "g": 7}) for one in written])
        both_sides = cost(space, lambda: space.merge("other", dry_run=True))
        assert one_side.ticks < 0.8 * both_sides.ticks, f"{one_side} against {both_sides}"


def test_reads_cost_nothing_where_the_branch_has_not_moved(tmp_path: Path) -> None:
    """A merge depends on all that it writes; commits of other branches meanwhile must not take a look at each."""
    with forked(tmp_path, 1_000) as space:
        seen = space.last_seq()
        space.transact(*space.next_request(), [Set("elsewhere", {})], branch="other")
        reads = Reads([Read(key(number), "", seen) for number in range(500)])
        found = cost(space, lambda: space.transact(*space.next_request(), [Set("x", {})], reads=reads))
        assert found.statements < 20
        with pytest.raises(ConflictError):
            space.transact(*space.next_request(), [Set("x", {})], reads=Reads([Read("x", "", seen)]))


def test_reads_of_a_branch_see_what_its_parent_did_before_the_fork(tmp_path: Path) -> None:
    with forked(tmp_path, 10) as space:
        seen = space.last_seq()
        space.transact(*space.next_request(), [Set("x", {"f": 1})])
        space.branches.create("late")
        with pytest.raises(ConflictError):
            space.transact(*space.next_request(), [Set("y", {})], reads=Reads([Read("x", "", seen)]), branch="late")
