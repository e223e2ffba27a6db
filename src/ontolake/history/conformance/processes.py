"""Other processes: writers and mergers side by side, and processes that are killed at any step."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ontolake.history.conformance import tasks
from ontolake.history.conformance.adapter import VersioningAdapter
from ontolake.history.conformance.base import Fresh, VersioningBase, record
from ontolake.history.conformance.oracle import GitOfDictionaries
from ontolake.history.conformance.workload import CRASHING, HistoryStep, Played
from ontolake.suites.peers import Forker, ProcessPeer

Start = Callable[..., ProcessPeer]


class Run(NamedTuple):
    """How a process that played steps ended: how many were acknowledged and, unless it was killed, the fault points
    that it saw and what it knows of the history."""

    done: int
    points: list[str] | None
    played: Played | None


class ProcessCases(VersioningBase):
    """What a crash leaves, and what two processes make of one store."""

    title = "Processes"

    @pytest.fixture(scope="class")
    @classmethod
    def forker(cls) -> Iterator[Forker]:
        """The helper that forks processes: it has loaded the adapter, and opens nothing itself."""
        if not cls.processes:
            pytest.skip("this store lives in one process")
        forker = Forker(cls.adapter)
        yield forker
        forker.close()

    @pytest.fixture
    def start(self, forker: Forker) -> Iterator[Start]:
        """Starts a process at a task: `start(task, where, …)`. Those left over when the test ends are killed."""
        with forker.starting() as start:
            yield start

    def test_two_processes_lose_nothing(self, where: str, start: Start) -> None:
        with self.adapter.open(where) as store:
            self.write(store, self.main, x=record(1))
        for peer in [start(tasks.write, where, self.main, prefix, 10) for prefix in ("p", "q")]:
            peer.end()
        with self.adapter.open(where) as store:
            expected = {f"{prefix}{number}": record(number) for prefix in "pq" for number in range(10)}
            assert self.state(store) == {"x": record(1), **expected}
            assert len([one for one in self.log(store) if one.id]) >= 21

    @pytest.mark.parametrize("merges", [[("a", "main"), ("a", "main")], [("a", "b"), ("b", "a")],
                                        [("a", "main"), ("b", "main")]], ids=["same", "opposite", "two into one"])
    def test_two_processes_merge_at_once(
        self, merges: list[tuple[str, str]], where: str, start: Start
    ) -> None:  # fmt: skip
        """Both merges end; what was merged is there, and no merge is recorded twice."""
        with self.adapter.open(where) as store:
            self.write(store, self.main, x=record(1), y=record(1))
            for name, key in (("a", "x"), ("b", "y")):
                store.branches.create(name)
                self.write(store, name, **{key: record(2), f"new {name}": record(3)})
        mergers = [start(tasks.merge, where, *(self._named(name) for name in pair)) for pair in merges]
        self._go(mergers)
        assert all(merger.hear() in ("merged", "fast_forward", "up_to_date") for merger in mergers)
        for merger in mergers:
            merger.end()
        wrote = {"a": {"x": record(2), "new a": record(3)}, "b": {"y": record(2), "new b": record(3)}}
        has = {name: {name} for name in ("main", "a", "b")}
        for source, into in merges:
            has[into] |= {source}
        both = set(merges) == {("a", "b"), ("b", "a")}
        with self.adapter.open(where) as store:
            for name, sources in has.items():
                expected = {"x": record(1), "y": record(1)}
                for source in ({"a", "b"} if both and name != "main" else sources) & {*wrote}:
                    expected |= wrote[source]
                assert self.state(store, self._named(name)) == expected, f"{name} after {merges}"
                self._check_log(store, name, sum(into == name for _, into in {*merges}))
            assert not list(store.verify())

    def test_two_processes_write_and_merge_at_once(self, where: str, start: Start) -> None:
        with self.adapter.open(where) as store:
            self.write(store, self.main, x=record(1))
            store.branches.create("a")
            self.write(store, "a", x=record(2), z=record(3))
        merger = start(tasks.merge, where, "a", self.main)
        writer = start(tasks.write, where, self.main, "p", 5)
        self._go([merger])
        for peer in (writer, merger):
            peer.end()
        with self.adapter.open(where) as store:
            written = {f"p{number}": record(number) for number in range(5)}
            assert self.state(store) == {"x": record(2), "z": record(3), **written}
            self._check_log(store, "main", 1)
            assert not list(store.verify())

    def _named(self, branch: str) -> str:
        return self.main if branch == "main" else branch

    def _go(self, mergers: Sequence[ProcessPeer]) -> None:
        """Let processes begin at the same time."""
        for merger in mergers:
            assert merger.hear() == "ready"
        for merger in mergers:
            merger.tell("go")

    def _check_log(self, store: Any, branch: str, merges: int) -> None:
        """The commits of a branch form one line with so many merges at most, and at least one if there were any."""
        log = self.log(store, self._named(branch))
        ids = [commit.id for commit in log]
        assert len({*ids}) == len(ids), f"a commit of {branch} appears twice"
        assert all(commit.parents for commit in log[:-1]), f"{branch} begins more than once"
        assert all(earlier.time <= later.time for later, earlier in pairwise(log) if later.time and earlier.time)
        found = sum(len(commit.parents) > 1 for commit in log)
        assert bool(merges) <= found <= merges + (branch != "main"), f"{found} merges on {branch}"

    def test_killed_at_any_step_a_history_is_whole(self, fresh: Fresh, forker: Forker, start: Start) -> None:
        """What was acknowledged is there; the step in flight is there as a whole or not at all; work goes on.

        Where a store can be copied, every fault point of every kind of step is swept, each on a copy of the store as
        it was before the step; elsewhere some fault points of the whole history.
        """
        rehearsal = start(tasks.rehearse, fresh())
        pictures, modules = rehearsal.hear()
        rehearsal.end()
        forker.load(modules)
        where = fresh()
        self.adapter.create(where)
        if self.adapter.files(where) is None:
            self._sweep_wholes(fresh, start, pictures)
        else:
            self._sweep_steps(where, start, pictures)

    def _sweep_steps(self, where: str, start: Start, pictures: Sequence[tasks.Picture]) -> None:
        """Kill a process at the fault points of each step, every time on the store as it was before that step."""
        played, missed = Played(GitOfDictionaries(), {}), 0
        swept: Counter[tuple[str, str]] = Counter()
        for number, step in enumerate(CRASHING):
            copy = StoreCopy(self.adapter, where)
            points = _run(start, where, played, [step], -1).points
            assert points is not None
            for n, point in enumerate(points):
                kind = step.kind, _kind(point)
                if self.crash_repeats is not None and swept[kind] >= self.crash_repeats:
                    continue
                swept[kind] += 1
                copy.put_back()
                run = _run(start, where, played, [step], n)
                missed += run.points is not None
                self._look(start, where, pictures[number + run.done : number + 2], f"{point} of {step}")
            copy.put_back()
            played = _run(start, where, played, [step], -1).played or played
        assert missed <= swept.total() // 20, f"{missed} of {swept.total()} processes were not killed"

    def _sweep_wholes(self, fresh: Fresh, start: Start, pictures: Sequence[tasks.Picture]) -> None:
        """Kill processes that play the whole history, each in a place of its own, at some fault points."""
        def run(n: int) -> tuple[str, Run]:
            where = fresh()
            self.adapter.create(where)
            return where, _run(start, where, Played(GitOfDictionaries(), {}), CRASHING, n)

        where, whole = run(-1)
        assert whole.points is not None
        self._look(start, where, pictures[-1:], "the end")
        numbers, missed = chosen(whole.points, self.crash_runs), 0
        for n in numbers:
            where, ended = run(n)
            missed += ended.points is not None  # what happens in the background may reach fewer points another time
            self._look(start, where, pictures[ended.done : ended.done + 2], whole.points[n])
        assert missed <= len(numbers) // 2, f"only {len(numbers) - missed} of {len(numbers)} processes were killed"

    def _look(self, start: Start, where: str, expected: Sequence[tasks.Picture], point: str) -> None:
        try:
            start(tasks.look, where, expected).end()
        except AssertionError as error:
            raise AssertionError(f"killed at {point}: {error}") from None


class StoreCopy:
    """The files of a store as they are now, to be put back where they were: a store may know its own place."""

    def __init__(self, adapter: type[VersioningAdapter], where: str) -> None:
        self._adapter, self._where = adapter, where
        self._kept: dict[str, bytes | None] = {}
        for path in self._paths():
            self._kept[str(path)] = path.read_bytes() if path.is_file() else None

    def put_back(self) -> None:
        """Write all files as they were, and remove what came since."""
        for path in reversed(self._paths()):
            path.rmdir() if path.is_dir() else path.unlink()
        for name, data in self._kept.items():
            Path(name).mkdir() if data is None else Path(name).write_bytes(data)

    def _paths(self) -> list[Path]:
        """All files and folders of the store, each after the folder that it is in."""
        roots = self._adapter.files(self._where) or ()
        return sorted(path for root in roots for path in (root, *root.rglob("*")))


def _run(start: Start, where: str, played: Played, steps: Sequence[HistoryStep], n: int) -> Run:
    """Play steps in another process, which is killed at the n-th fault point, or not at all if n is negative."""
    peer, done, points, after = start(tasks.play, where, played, steps, n), 0, None, None
    while (said := peer.hear()) is not None:
        if said == "done":
            done += 1
        else:
            points, after = said
    peer.abandon()
    return Run(done, points, after)


def _kind(point: str) -> str:
    """The name of a fault point without what differs between two runs of the same code."""
    return re.sub(r"[0-9a-fA-F]{6,}|[0-9]+", "#", point)


def chosen(points: Sequence[str], most: int) -> list[int]:
    """Fault points to be killed at: all of them, or about `most`, every kind of step among them."""
    if len(points) <= most:
        return list(range(len(points)))
    chance = random.Random(7)
    by_kind: dict[str, list[int]] = {}
    for n, point in enumerate(points):
        by_kind.setdefault(_kind(point), []).append(n)
    for numbers in by_kind.values():
        chance.shuffle(numbers)
    kinds = list(by_kind.values())
    chance.shuffle(kinds)
    picked: list[int] = []
    while len(picked) < most:
        picked += [numbers.pop() for numbers in kinds if numbers][: most - len(picked)]
    return sorted(picked)
