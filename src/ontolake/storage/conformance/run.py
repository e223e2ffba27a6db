"""Runs the suite from a program: against a URL, below which it makes and removes its own places, or as a class.

pytest is needed only when something is run.
"""

from __future__ import annotations

import inspect
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ontolake import urls
from ontolake.errors import Invalid
from ontolake.storage.options import StorageOptions
from ontolake.storage.schemes import open_storage
from ontolake.suites import CaseResult, OnResult, need_pytest, run_file, scratch

INLINE = {"maintenance": "inline", "index_every": 3, "gc_grace_ms": 0}
"""What makes background work of our backends happen at once."""
BUSY = {"index_every": 2}
"""What makes it go on all the time."""


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
    need_pytest()
    StorageOptions.of(dict(knobs or {}))
    with _place(url) as place, tempfile.TemporaryDirectory() as folder:
        open_storage(f"{place.start}/first{place.end}", **dict(knobs or {})).close()
        # A name of its own: a module of a name that was imported before would not be loaded again.
        file = Path(folder, f"target_{secrets.token_hex(6)}.py")
        file.write_text(_module(place, dict(knobs or {})))
        return run_file(file, "TestTarget", only, on_result)


def run_class(suite: type, *, only: str | None = None, on_result: OnResult | None = None) -> list[CaseResult]:
    """Run a subclass of `StorageConformance` that stands at the top of its module."""
    need_pytest()
    return run_file(Path(inspect.getfile(suite)), suite.__name__, only, on_result)


@contextmanager
def _place(url: str) -> Iterator[_Place]:
    """A new place below a URL, which is removed in the end."""
    if urls.parse(url).place is urls.Place.SQLITE:
        raise Invalid(f"{url!r} names a native SQLite file, which has no pages of ours",
                      hint="write file:///absolute/path.db for a page file")
    dear = {"reads": 3, "crash_steps": 10, "recovery_runs": 8, "history_examples": 10, "flips": 60, "racers": 3}
    with scratch(url) as (start, end, kind):
        raw = "RawFile" if kind is urls.Place.PAGE_FILE else "RawObjects"
        local = kind in (urls.Place.PAGE_FILE, urls.Place.DIRECTORY)
        settings: dict[str, Any] = {} if local else {"processes": False} if kind is urls.Place.MEMORY else dear
        yield _Place(start, end, f"{raw}, StorageConformance", settings)


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
