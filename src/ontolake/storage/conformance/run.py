"""Runs the suite from a program: against a URL, below which it makes and removes its own places, or as a class.

pytest is needed only when something is run.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ontolake import urls
from ontolake.errors import Invalid
from ontolake.storage.options import StorageOptions
from ontolake.storage.schemes import open_storage

INLINE = {"maintenance": "inline", "index_every": 3, "gc_grace_ms": 0}
"""What makes background work of our backends happen at once."""
BUSY = {"index_every": 2}
"""What makes it go on all the time."""


class CaseResult(NamedTuple):
    """How one test went; `message` says why it failed or was skipped."""

    topic: str
    test: str
    outcome: Literal["passed", "failed", "skipped"]
    seconds: float
    message: str


OnResult = Callable[[CaseResult], None]


class _Place(NamedTuple):
    """Where stores are made, as the start and the end of a URL, and how the suite is set up there."""

    start: str
    end: str
    bases: str
    settings: dict[str, Any]


def run(
    url: str,
    *,
    knobs: Mapping[str, Any] | None = None,
    only: str | None = None,
    on_result: OnResult | None = None,
) -> list[CaseResult]:
    """Run the suite against the backend of `url`; `only` selects tests as pytest's `-k` does.

    Everything it writes lies in one new place below the URL (beside it, for a page file), and is removed in the
    end. `on_result` is called after every test. Raises `Invalid` if pytest or Hypothesis is missing or the knobs
    are wrong, and whatever opening a store there raises.
    """
    _need_pytest()
    StorageOptions.of(dict(knobs or {}))
    with _place(url) as place, tempfile.TemporaryDirectory() as folder:
        open_storage(f"{place.start}/first{place.end}", **dict(knobs or {})).close()
        # A name of its own: a module of a name that was imported before would not be loaded again.
        file = Path(folder, f"target_{secrets.token_hex(6)}.py")
        file.write_text(_module(place, dict(knobs or {})))
        return _run(file, "TestTarget", only, on_result)


def run_class(suite: type, *, only: str | None = None, on_result: OnResult | None = None) -> list[CaseResult]:
    """Run a subclass of `StorageConformance` that stands at the top of its module."""
    _need_pytest()
    return _run(Path(inspect.getfile(suite)), suite.__name__, only, on_result)


def _need_pytest() -> None:
    for name in ("pytest", "hypothesis"):
        if importlib.util.find_spec(name) is None:
            raise Invalid(f"the conformance suite needs {name}, which is not installed", hint=f"pip install {name}")


@contextmanager
def _place(url: str) -> Iterator[_Place]:
    """A new place below a URL, which is removed in the end."""
    location = urls.parse(url)
    name = f"conformance-{secrets.token_hex(6)}"
    if location.place in (urls.Place.PAGE_FILE, urls.Place.DIRECTORY):
        is_file = location.place is urls.Place.PAGE_FILE
        path = Path(location.path).absolute()
        folder = path.with_name(f"{path.name}-{name}") if is_file else path / name
        made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
        folder.mkdir(parents=True)
        bases = "RawFile, StorageConformance" if is_file else "RawObjects, StorageConformance"
        try:
            yield _Place(folder.as_uri(), ".db" if is_file else "", bases, {})
        finally:
            shutil.rmtree(folder)
            for parent in made[1:]:
                with suppress(OSError):
                    parent.rmdir()
    elif location.holds_objects:
        dear = {"reads": 3, "crash_steps": 10, "recovery_runs": 8, "history_examples": 10, "flips": 60, "racers": 3}
        settings = {"processes": False} if location.place is urls.Place.MEMORY else dear
        below = f"{location.base_url.rstrip('/')}/{name}"
        try:
            yield _Place(below, "", "RawObjects, StorageConformance", settings)
        finally:
            _empty(below)
    else:
        raise Invalid(f"{url!r} names a native SQLite file, which has no pages of ours",
                      hint="write file:///absolute/path.db for a page file")  # fmt: skip


def _empty(url: str) -> None:
    from ontolake.objects import open_store

    store = open_store(url)
    try:
        store.delete([info.key for info in store.list()])
    finally:
        store.close()


def _module(place: _Place, knobs: dict[str, Any]) -> str:
    """The test module for a place. A file rather than an object, so that other processes can load it too."""
    settings = {"knobs": knobs, "sweep_knobs": INLINE, "busy_knobs": BUSY, **place.settings}
    lines = "\n".join(f"    {name} = {value!r}" for name, value in settings.items())
    return f'''
import datetime
import itertools

import pytest

from ontolake.storage.conformance import RawFile, RawObjects, StorageConformance

START, END = {place.start!r}, {place.end!r}
NUMBERS = itertools.count()


class TestTarget({place.bases}):
{lines}

    @pytest.fixture
    def fresh(self):
        return lambda: f"{{START}}/{{next(NUMBERS)}}{{END}}"
'''


def _run(file: Path, name: str, only: str | None, on_result: OnResult | None) -> list[CaseResult]:
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
