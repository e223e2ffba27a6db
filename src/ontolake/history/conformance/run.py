"""Runs the suite from a program, for one adapter, below a URL: it makes and removes its own places."""

from __future__ import annotations

import secrets
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from ontolake import urls
from ontolake.errors import Invalid
from ontolake.history.conformance.adapter import VersioningAdapter
from ontolake.suites import CaseResult, OnResult, Scratch, need_pytest, run_file, scratch


def run(
    adapter: str, url: str, *, only: str | None = None, on_result: OnResult | None = None
) -> list[CaseResult]:  # fmt: skip
    """Run the suite for an adapter, `module:Class`, in a new place below `url`, which is removed in the end.

    `only` selects tests as pytest's `-k` does. Raises `Invalid` if pytest or Hypothesis is missing, and what making a
    store there raises.
    """
    need_pytest()
    found = adapter_named(adapter)
    with scratch(url) as place, tempfile.TemporaryDirectory() as folder:
        found.create(found.place(place.start, f"first{place.end}"))
        # A name of its own: a module of a name that was imported before would not be loaded again.
        file = Path(folder, f"target_{secrets.token_hex(6)}.py")
        file.write_text(_module(found, place))
        return run_file(file, "TestModel", only, on_result)


def adapter_named(name: str) -> type[VersioningAdapter]:
    """The adapter that `module:Class` names, or the first one that a module defines. Raises `Invalid`."""
    module_name, _, cls = name.partition(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        raise Invalid(f"there is no module {module_name}, so there is no adapter for the suite") from None
    found: Any = getattr(module, cls, None) if cls else next(
        (one for one in vars(module).values() if isinstance(one, type) and issubclass(one, VersioningAdapter)
         and one.__module__ == module_name), None)  # fmt: skip
    if found is None or not issubclass(found, VersioningAdapter):
        raise Invalid(f"{name!r} names no adapter for the suite", hint="subclass VersioningAdapter")
    return found  # type: ignore[no-any-return]


def _module(adapter: type[VersioningAdapter], place: Scratch) -> str:
    """The test module for a place. A file rather than an object, as pytest wants it."""
    settings: dict[str, Any] = {"shrink": False}
    if place.kind is urls.Place.MEMORY:
        settings["processes"] = False
    elif place.kind not in (urls.Place.SQLITE, urls.Place.PAGE_FILE, urls.Place.DIRECTORY):
        settings |= {"machine_runs": 4, "crash_runs": 6}
    lines = "\n".join(f"    {name} = {value!r}" for name, value in settings.items())
    return f'''
import itertools

import pytest

from ontolake.history.conformance import VersioningConformance
from {adapter.__module__} import {adapter.__qualname__} as Adapter

START, END = {place.start!r}, {place.end!r}
NUMBERS = itertools.count()


class TestModel(VersioningConformance):
    adapter = Adapter
{lines}

    @pytest.fixture
    def fresh(self):
        return lambda: Adapter.place(START, f"{{next(NUMBERS)}}{{END}}")
'''
