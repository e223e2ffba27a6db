"""Runs a conformance suite from a program, in a place of its own that is removed in the end.

pytest is needed only when something is run.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ontolake import urls
from ontolake.errors import Invalid


class CaseResult(NamedTuple):
    """How one test went; `message` says why it failed or was skipped."""

    topic: str
    test: str
    outcome: Literal["passed", "failed", "skipped"]
    seconds: float
    message: str


OnResult = Callable[[CaseResult], None]


class Scratch(NamedTuple):
    """A new place: stores are made at `start`, a slash, a name of their own and `end`."""

    start: str
    end: str
    kind: urls.Place


@contextmanager
def scratch(url: str) -> Iterator[Scratch]:
    """A new place below a URL, or beside it where that is a file, which is removed in the end.

    Raises `Invalid` for what is no URL, and what removing raises.
    """
    location = urls.parse(url)
    name = f"conformance-{secrets.token_hex(6)}"
    if location.holds_objects and location.place is not urls.Place.DIRECTORY:
        below = f"{location.base_url.rstrip('/')}/{name}"
        try:
            yield Scratch(below, "", location.place)
        finally:
            _empty(below)
        return
    is_file = location.place is not urls.Place.DIRECTORY
    path = Path(location.path).absolute()
    folder = path.with_name(f"{path.name}-{name}") if is_file else path / name
    created = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True)
    native = location.place is urls.Place.SQLITE
    try:
        yield Scratch(str(folder) if native else folder.as_uri(), ".db" if is_file else "", location.place)
    finally:
        shutil.rmtree(folder)
        for parent in created[1:]:
            with suppress(OSError):
                parent.rmdir()


def _empty(url: str) -> None:
    from ontolake.objects import open_store

    store = open_store(url)
    try:
        store.delete([info.key for info in store.list()])
    finally:
        store.close()


def need_pytest() -> None:
    """Raise `Invalid` if pytest or Hypothesis is missing."""
    for name in ("pytest", "hypothesis"):
        if importlib.util.find_spec(name) is None:
            raise Invalid(f"the conformance suite needs {name}, which is not installed", hint=f"pip install {name}")


def run_file(file: Path, name: str, only: str | None, on_result: OnResult | None) -> list[CaseResult]:
    """Run the class `name` of a test module; `only` selects tests as pytest's `-k` does. Raises `Invalid`."""
    import pytest

    listener = _Listener(on_result)
    arguments = [f"{file}::{name}", "--disable-plugin-autoload", "-p", "no:terminal", "-p", "no:cacheprovider"]
    arguments += ["--import-mode=importlib", "-c", os.devnull, "--rootdir", str(file.parent), "--noconftest"]
    arguments += ["-o", f"python_classes={name}", *(["-k", only] if only else [])]
    code = pytest.main(arguments, plugins=[listener])
    if code == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        raise Invalid(f"there is no test that matches {only!r}")
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise Invalid(f"the suite did not run: pytest ended with {code!r}", hint=listener.trouble or None)
    return listener.results


class _Listener:
    """A pytest plugin that turns reports into results, one for each test when it has ended."""

    def __init__(self, on_result: OnResult | None) -> None:
        self.results: list[CaseResult] = []
        self.trouble = ""
        self._on_result = on_result
        self._topics: dict[str, str] = {}
        self._reports: dict[str, list[Any]] = {}

    def pytest_itemcollected(self, item: Any) -> None:
        for owner in item.cls.__mro__:
            if item.originalname in vars(owner):
                self._topics[item.nodeid] = vars(owner).get("title", owner.__name__)
                return

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.trouble = str(report.longrepr)

    def pytest_runtest_logreport(self, report: Any) -> None:
        reports = self._reports.setdefault(report.nodeid, [])
        reports.append(report)
        if report.when != "teardown":
            return
        failed = next((r for r in reports if r.failed), None)
        skipped = next((r for r in reports if r.skipped), None)
        seconds = sum(r.duration for r in reports)
        topic, test = self._topics.get(report.nodeid, ""), report.nodeid.rpartition("::")[2]
        if failed is not None:
            result = CaseResult(topic, test, "failed", seconds, _reason(failed))
        elif skipped is not None:
            result = CaseResult(topic, test, "skipped", seconds, skipped.longrepr[2].removeprefix("Skipped: "))
        else:
            result = CaseResult(topic, test, "passed", seconds, "")
        self.results.append(result)
        if self._on_result is not None:
            self._on_result(result)


def _reason(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longrepr)
