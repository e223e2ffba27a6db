"""What every benchmark prints: ratios measured in one run, each beside the target it is held to.

Absolute times mean little on a machine that does other things too; both sides of a ratio are measured in turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any


class Report:
    """Collects ratios and prints them as a table, or as JSON with `--json`. `--small` asks for a short run.

    A script has two parts. `as_users_do` measures defaults: it sets nothing and calls no upkeep; it is what runs unless
    the command line says otherwise. `tuned` measures stores with settings and upkeep of their own. Both flags together
    run both parts.
    """

    def __init__(self, subject: str) -> None:
        parser = argparse.ArgumentParser(description=f"Benchmark of {subject}")
        parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
        parser.add_argument("--small", action="store_true", help="a short run with little data")
        parser.add_argument("--as-users-do", action="store_true", help="default settings, no upkeep (the default)")
        parser.add_argument("--tuned", action="store_true", help="chosen settings, upkeep between the measurements")
        parser.add_argument("--scale", type=float, default=0.1, help="of generated tables, where there is a choice")
        options = parser.parse_args()
        self.scale = float(options.scale)
        self.tuned = bool(options.tuned)
        self.as_users_do = bool(options.as_users_do) or not self.tuned
        self.subject, self.small, self._json = subject, bool(options.small), bool(options.json)
        self.rows: list[dict[str, Any]] = []

    def at_least(self, name: str, ratio: float, target: float, detail: str = "") -> None:
        """Higher is better: the ratio should reach the target."""
        self._add(name, ratio, "≥", target, ratio >= target, detail)

    def at_most(self, name: str, ratio: float, target: float, detail: str = "") -> None:
        """Lower is better: the ratio should stay within the target."""
        self._add(name, ratio, "≤", target, ratio <= target, detail)

    def _add(self, name: str, ratio: float, sign: str, target: float, held: bool, detail: str) -> None:
        self.rows.append({"name": name, "ratio": round(ratio, 3), "target": f"{sign} {target:g}", "held": held,
                          "detail": detail})
        if not self._json:
            mark = "ok    " if held else "MISSED"
            print(f"{mark} {ratio:9.2f}  ({sign} {target:g})  {name}" + (f"  [{detail}]" if detail else ""), flush=True)

    def steady(self, name: str, taken: Taken, target: float = 1.3) -> None:
        """What is repeated costs in the end what it did in the beginning: the last tenth against the first.

        That is processor time, with that of what goes on in the background, since a disk has its moods.
        """
        part = max(len(taken.work) // 10, 3)
        first, last = statistics.mean(taken.work[:part]), statistics.mean(taken.work[-part:])
        self.at_most(f"{name}: the last {part} of {len(taken.work):,} / the first {part}, processor time",
                     last / first, target, f"{last * 1000:.2f} ms against {first * 1000:.2f} ms")

    def compare(self, name: str, ours: Taken, theirs: Taken, target: float) -> None:
        """How many times as long ours takes, by the medians."""
        mine, other = ours.median, theirs.median
        self.at_most(name, mine / other, target, f"{_shown(mine)} against {_shown(other)}")

    def compare_work(self, name: str, ours: Taken, theirs: Taken, target: float) -> None:
        """How many times as much processor time ours takes, by the medians."""
        mine, other = ours.work_median, theirs.work_median
        self.at_most(f"{name}, processor time", mine / other, target, f"{_shown(mine)} against {_shown(other)}")

    def note(self, text: str) -> None:
        if not self._json:
            print(f"       {text}", flush=True)

    def finish(self) -> None:
        if self._json:
            json.dump({"subject": self.subject, "rows": self.rows}, sys.stdout, indent=2)
            print()
        else:
            missed = sum(not row["held"] for row in self.rows)
            print(f"{self.subject}: {len(self.rows) - missed} of {len(self.rows)} targets held")


def seconds(action: Callable[[], object]) -> float:
    """How long one call takes."""
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def _shown(taken: float) -> str:
    return f"{taken:.2f} s" if taken >= 1 else f"{taken * 1000:.2f} ms" if taken >= 0.001 else f"{taken * 1e6:.1f} µs"


class Taken:
    """How long each of many calls took, and how much processor time of this process."""

    def __init__(self) -> None:
        self.time: list[float] = []
        self.work: list[float] = []

    def add(self, action: Callable[[], object]) -> None:
        begun, worked = time.perf_counter(), time.process_time()
        action()
        self.time.append(time.perf_counter() - begun)
        self.work.append(time.process_time() - worked)

    @property
    def median(self) -> float:
        return statistics.median(self.time)

    @property
    def work_median(self) -> float:
        return statistics.median(self.work)


def repeated(times: int, *actions: Callable[[int], object]) -> list[Taken]:
    """Many calls of each action, in turns. Actions are told the number of the call."""
    taken = [Taken() for _ in actions]
    for number in range(times):
        for found, action in zip(taken, actions, strict=True):
            found.add(lambda action=action, number=number: action(number))  # type: ignore[misc]
    return taken


def in_turns(*actions: Callable[[], object], rounds: int = 5) -> list[float]:
    """Median time of each action, measured in turns so that what else the machine does hits all alike."""
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(rounds):
        for taken, action in zip(times, actions, strict=True):
            taken.append(seconds(action))
    return [statistics.median(taken) for taken in times]
