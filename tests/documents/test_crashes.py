"""Killed at any step of a write, a space keeps what was acknowledged, and has the rest whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from documents_program import STEPS, describe, open_for_program
from documents_support import start_child
from marking import slow_after

PLACES = {"native": "{}/", "pages": "sqlite+file://{}"}


@pytest.fixture(scope="module")
def reference() -> list[dict[str, Any]]:
    """What the space holds before the program and after each of its steps."""
    with open_for_program(":memory:") as space:
        states = [describe(space)]
        for number, step in enumerate(STEPS):
            step(space, number)
            states.append(describe(space))
    return states


def run(url: str, report: Path, n: int) -> tuple[list[str], int]:
    """Run the program in a child that dies at fault point n. Returns what it reported and how it ended."""
    report.unlink(missing_ok=True)
    child = start_child("run_program", url, str(report), n)
    child.join(120)
    assert child.exitcode is not None
    return report.read_text().splitlines(), child.exitcode


def test_there_is_a_fault_point_at_every_kind_of_write(tmp_path: Path) -> None:
    points, code = run(PLACES["native"].format(tmp_path), tmp_path / "report", 10**6)
    assert code == 0
    assert {point.removeprefix("documents: ") for point in points} == {
        "transaction begun", "commit row written", "revisions written", "heads written", "snapshots written",
        "rows written", "committed", "branch created", "branch deleted", "branch committed", "blob written",
        "snapshots added", "snapshots removed"}  # fmt: skip


def sweep(url: str, report: Path, reference: list[dict[str, Any]], first: int = 0, every: int = 1) -> None:
    """Kill the program at every so many-th fault point, on a place of its own: `url` with a number in it."""
    points, code = run(url.format("whole"), report, 10**6)
    assert code == 0
    for n, point in list(enumerate(points))[first::every]:
        place = url.format(n)
        reported, code = run(place, report, n)
        assert code == -9, f"at {n}, {point}: {reported}"
        done = sum(line.startswith("done") for line in reported)
        with open_for_program(place, takeover=True) as space:
            found = describe(space)
            assert found in (reference[done], reference[done + 1]), f"at {n}, {point}"
            if point == "documents: committed":
                assert found == reference[done + 1], "it was committed"
            assert list(space.verify()) == []
            for number in range(done, len(STEPS)):  # the step in flight is repeated, as a client would
                STEPS[number](space, number)
            assert describe(space) == reference[-1], f"taken up again at {n}, {point}"
            assert list(space.verify()) == []


@pytest.mark.parametrize("first", slow_after(1, range(8)))
@pytest.mark.parametrize("place", slow_after(1, PLACES))
def test_a_kill_at_any_step_loses_nothing_and_leaves_nothing_half_done(
    place: str, first: int, tmp_path: Path, reference: list[dict[str, Any]]
) -> None:
    sweep(PLACES[place].format(f"{tmp_path}/{{}}"), tmp_path / "report", reference, first, every=8)


@pytest.mark.slow
def test_a_kill_loses_nothing_on_seaweed(seaweed_url: str, tmp_path: Path, reference: list[dict[str, Any]]) -> None:
    sweep(f"{seaweed_url}/{{}}", tmp_path / "report", reference, every=5)
