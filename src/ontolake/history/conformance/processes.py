"""Other processes: writers side by side, and writers that are killed at any step."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Sequence

import pytest

from ontolake.history.conformance.base import Fresh, VersioningBase, record
from ontolake.history.conformance.oracle import State
from ontolake.history.conformance.workload import CRASHING, HistoryPlayer

PATIENCE = 120.0
"""Seconds that a child may take."""


class ProcessCases(VersioningBase):
    """What a crash leaves, and what two writers make of one store."""

    title = "Processes"

    def child(self, *arguments: str) -> subprocess.Popen[str]:
        name = f"{self.adapter.__module__}:{self.adapter.__qualname__}"
        command, *rest = arguments
        return subprocess.Popen([sys.executable, "-m", "ontolake.history.conformance.child", command, name, *rest],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip

    def ended(self, child: subprocess.Popen[str]) -> tuple[list[str], str, int]:
        out, err = child.communicate(timeout=PATIENCE)
        return out.splitlines(), err, child.returncode

    def test_two_processes_lose_nothing(self, where: str) -> None:
        if not self.processes:
            pytest.skip("this store lives in one process")
        with self.adapter.open(where) as store:
            self.write(store, self.main, x=record(1))
        children = [self.child("write", where, self.main, prefix, "10") for prefix in ("p", "q")]
        for child in children:
            _, err, code = self.ended(child)
            assert code == 0, err
        with self.adapter.open(where) as store:
            expected = {f"{prefix}{number}": record(number) for prefix in "pq" for number in range(10)}
            assert self.state(store) == {"x": record(1), **expected}
            assert len([one for one in self.log(store) if one.id]) >= 21

    def test_killed_at_any_step_a_history_is_whole(self, fresh: Fresh) -> None:
        """What was acknowledged is there; the step in flight is there as a whole or not at all; work goes on."""
        if not self.processes:
            pytest.skip("this store lives in one process")
        expected = self._expected(fresh())
        first = fresh()
        self.adapter.create(first)
        lines, err, code = self.ended(self.child("crash", first, "-1"))
        assert code == 0, err
        self._check(first, expected[-1:], "the end")
        points = lines[-1].split()[1:]
        numbers, missed = chosen(points, self.crash_runs), 0
        for n in numbers:
            where = fresh()
            self.adapter.create(where)
            lines, err, code = self.ended(self.child("crash", where, str(n)))
            if code == 0:  # what happens in the background may reach fewer points another time
                missed += 1
                self._check(where, expected[-1:], "the end")
                continue
            assert code == -9, f"point {n} ({points[n]}): {err}"
            acknowledged = max(len(lines) - 1, 0)
            self._check(where, expected[acknowledged : acknowledged + 2], points[n])
        assert missed <= len(numbers) // 2, f"only {len(numbers) - missed} of {len(numbers)} children were killed"

    def _expected(self, where: str) -> list[dict[str, State]]:
        """What all branches and tags have after each step, from none to all, as the oracle says."""
        self.adapter.create(where)
        player = HistoryPlayer(self.adapter, where)
        states = [player.states()]
        for step in CRASHING:
            player.do(step)
            player.check()
            states.append(player.states())
        player.close()
        return states

    def _check(self, where: str, expected: Sequence[dict[str, State]], point: str) -> None:
        """A store has one of these states, and takes further commits."""
        with self.adapter.open(where) as store:
            refs = [branch.name or self.main for branch in store.branches.list()]
            refs += [tag.name for tag in store.tags.list()]
            found = {"main" if ref == self.main else ref: self.state(store, ref) for ref in refs}
        assert found in expected, f"killed at {point}: {found}, the oracle says {expected}"
        with self.adapter.open(where) as store:
            assert {ref: self.state(store, ref) for ref in refs} == {
                self.main if ref == "main" else ref: state for ref, state in found.items()}
            self.write(store, self.main, after=record(1, 1))
            assert self.state(store)["after"] == record(1, 1)
            assert not list(store.verify())


def chosen(points: Sequence[str], most: int) -> list[int]:
    """Fault points to be killed at: all of them, or about `most`, every kind of step among them."""
    if len(points) <= most:
        return list(range(len(points)))
    chance = random.Random(7)
    by_kind: dict[str, list[int]] = {}
    for n, point in enumerate(points):
        by_kind.setdefault(re.sub(r"[0-9a-fA-F]{6,}|[0-9]+", "#", point), []).append(n)
    for numbers in by_kind.values():
        chance.shuffle(numbers)
    kinds = list(by_kind.values())
    chance.shuffle(kinds)
    picked: list[int] = []
    while len(picked) < most:
        picked += [numbers.pop() for numbers in kinds if numbers][: most - len(picked)]
    return sorted(picked)
