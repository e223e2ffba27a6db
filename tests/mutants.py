"""Mutation testing of the modules that hold rules: `make mutants`, or `make mutants ARGS="patches keys"` for some.

Cosmic Ray's operators change one comparison, number or branch of a module at a time, and the tests that
`mutants.toml` names for the module run on the result. A mutant that no test notices has survived. Each mutant is
tried in a process forked from one that has the libraries loaded, and only that process sees the changed source.
Prints every survivor with its line and a table by module; exits with 1 if a module falls below the threshold.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import resource
import signal
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src"

MAX_MEMORY = 4 * 2**30
"""Bytes that the tests of one mutant may allocate: a mutant may grow for ever, too."""


@dataclass(frozen=True)
class Target:
    """A module, the tests that should notice its mutants, and the lines whose mutants change nothing."""

    path: str
    tests: list[str]
    arguments: list[str] = field(default_factory=list)
    timeout: float = 120.0
    """Processor seconds after which the tests count as failed: a mutant may loop for ever."""
    equivalent: list[str] = field(default_factory=list)
    """Lines of which no mutant changes what a caller can see, as they stand in the source."""

    @property
    def longest_wait(self) -> float:
        """Seconds on the clock after which the tests count as failed: long, since other work may share the machine."""
        return 5 * self.timeout

    @property
    def source(self) -> str:
        return (SOURCES / self.path).read_text()

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


class Mutant(NamedTuple):
    """A module's source with one change in it."""

    line: int
    operator: str
    source: str


@dataclass
class Outcome:
    """What became of a module's mutants."""

    target: Target
    killed: int = 0
    seconds: float = 0.0
    survivors: list[Mutant] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.killed + len(self.survivors)

    @property
    def rate(self) -> float:
        return self.killed / self.total if self.total else 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="parts of the paths of the modules to try; all by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants tried at the same time")
    parser.add_argument("--show", action="store_true", help="print the changed line of every survivor")
    options = parser.parse_args()
    settings = tomllib.loads((Path(__file__).parent / "mutants.toml").read_text())
    targets = [target for target in (Target(**one) for one in settings["module"])
               if not options.names or any(name in target.path for name in options.names)]  # fmt: skip
    if not targets:
        parser.error(f"no module of mutants.toml matches {' '.join(options.names)}")
    os.chdir(ROOT)
    sys.path.insert(0, str(SOURCES))
    for library in settings["preload"]:
        importlib.import_module(library)

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        outcomes = []
        for target in targets:
            outcomes.append(try_module(target, settings, options.jobs, progress))
            print_survivors(outcomes[-1], options.show)
    print_table(outcomes, settings["threshold"])
    return int(any(outcome.rate < settings["threshold"] for outcome in outcomes))


def try_module(target: Target, settings: Mapping[str, Any], jobs: int, progress: Progress) -> Outcome:
    """Try all mutants of one module. Exits if its tests fail on the module as it is."""
    started = time.monotonic()
    if wait(fork(target, None), target.longest_wait) != 0:
        sys.exit(f"the tests of {target.path} fail without any mutant: pytest {' '.join(target.tests)}")
    outcome = Outcome(target)
    mutants = list(mutants_of(target, settings["operators"], re.compile(settings["ignored"])))
    task = progress.add_task(target.path, total=len(mutants))
    running: dict[int, tuple[Mutant, float]] = {}
    waiting = iter(mutants)
    while True:
        while len(running) < jobs and (mutant := next(waiting, None)) is not None:
            running[fork(target, mutant)] = mutant, time.monotonic() + target.longest_wait
        if not running:
            break
        for process, (mutant, deadline) in list(running.items()):
            status = poll(process, deadline)
            if status is None:
                continue
            del running[process]
            progress.advance(task)
            if status == 0:
                outcome.survivors.append(mutant)
            else:
                outcome.killed += 1
        time.sleep(0.02)
    outcome.survivors.sort()
    outcome.seconds = time.monotonic() - started
    return outcome


def mutants_of(target: Target, operators: list[str], ignored: re.Pattern[str]) -> Iterator[Mutant]:
    """Every mutant of a module. Raises `ValueError` if a line that `equivalent` names is no longer there."""
    lines = [line.strip() for line in target.source.splitlines()]
    missing = [text for text in target.equivalent if text not in lines]
    if missing:
        raise ValueError(f"mutants.toml names lines that {target.path} does not have: {missing}")
    tree = get_ast(target.source)
    for name in operators:
        operator = get_operator(f"core/{name}")()
        places = [start for node in ast_nodes(tree) for start, _ in operator.mutation_positions(node)]
        for occurrence, (line, _) in enumerate(places):
            source = mutate_code(target.source, operator, occurrence)
            if source is not None and not ignored.search(lines[line - 1]) and (
                    lines[line - 1] not in target.equivalent):
                yield Mutant(line, name, source)


class ChangedSource(MetaPathFinder):
    """Finds one module with another source than the one on disk."""

    def __init__(self, target: Target, source: str) -> None:
        self._target = target
        self._source = source.encode()

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._target.module:
            return None
        source, file = self._source, str(SOURCES / self._target.path)

        class Loader(SourceFileLoader):
            def get_data(self, path: Any) -> bytes:
                return source if path == file else super().get_data(path)

            def path_stats(self, path: Any) -> NoReturn:
                raise OSError("a mutant has no bytecode")

        return spec_from_file_location(name, file, loader=Loader(name, file))


def fork(target: Target, mutant: Mutant | None) -> int:
    """Start the tests in a process of their own. Returns its id."""
    process = os.fork()
    if process:
        return process
    status = 3
    try:
        os.setsid()
        seconds = int(target.timeout)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        if mutant is not None:
            sys.meta_path.insert(0, ChangedSource(target, mutant.source))
        import pytest

        status = int(pytest.main([
            "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-profile=mutants",
            *target.arguments, *target.tests]))  # fmt: skip
    finally:
        os._exit(status)


def poll(process: int, deadline: float) -> int | None:
    """The exit status of a process that has ended or is late, which is killed; None for one that still runs."""
    ended, status = os.waitpid(process, os.WNOHANG)
    if ended:
        return os.waitstatus_to_exitcode(status)
    if time.monotonic() < deadline:
        return None
    os.killpg(process, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def wait(process: int, seconds: float) -> int:
    deadline = time.monotonic() + seconds
    while (status := poll(process, deadline)) is None:
        time.sleep(0.02)
    return status


def print_survivors(outcome: Outcome, show: bool) -> None:
    """Print the line of every survivor, and with `show` what it became."""
    before = outcome.target.source.splitlines()
    for mutant in outcome.survivors:
        place = f"{outcome.target.path}:{mutant.line}"
        print(f"{place}: {mutant.operator}: {before[mutant.line - 1].strip()}", flush=True)
        if show:
            print(f"{place}: became {mutant.source.splitlines()[mutant.line - 1].strip()}", flush=True)


def print_table(outcomes: list[Outcome], threshold: float) -> None:
    table = Table("module", "mutants", "killed", "survived", "rate", "seconds")
    for outcome in outcomes:
        table.add_row(outcome.target.path, str(outcome.total), str(outcome.killed), str(len(outcome.survivors)),
                      f"{outcome.rate:.0%}", f"{outcome.seconds:.0f}",
                      style="" if outcome.rate >= threshold else "red")  # fmt: skip
    Console(width=None if sys.stdout.isatty() else 140).print(table)


if __name__ == "__main__":
    sys.exit(main())
