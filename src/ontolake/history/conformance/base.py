"""What every part of the suite stands on: settings that a subclass may change, and fixtures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from ontolake.history.conformance.adapter import VersioningAdapter
from ontolake.history.conformance.oracle import Record, State
from ontolake.history.refs import Ref
from ontolake.history.words import Commit

Fresh = Callable[[], str]


def record(f: int | None = None, g: int | None = None) -> Record:
    return {"f": f, "g": g}


class VersioningBase:
    """A subclass names its `adapter` and gives a fixture `fresh`."""

    adapter: ClassVar[type[VersioningAdapter]]
    title: ClassVar[str]
    """What this part of the suite is about, for reports."""
    machine_runs: ClassVar[int] = 15
    """How many random histories are played."""
    machine_steps: ClassVar[int] = 25
    """How many steps such a history has at most."""
    crash_repeats: ClassVar[int | None] = 1
    """How often processes are killed at each fault point of each kind of step, where a store can be copied; None for
    every time that it is reached."""
    crash_runs: ClassVar[int] = 12
    """How many processes are killed where a store cannot be copied: each plays the whole history."""
    processes: ClassVar[bool] = True
    """False for a store that lives in the memory of one process."""

    handles: ClassVar[bool] = True
    """False for a store that is opened only once: nothing can be closed or only read."""

    @pytest.fixture
    def fresh(self) -> Fresh:
        """A function that returns a new place at every call, where no store has ever been."""
        raise NotImplementedError("a subclass of VersioningConformance gives a fixture `fresh`")

    @pytest.fixture
    def where(self, fresh: Fresh) -> str:
        """A place with an empty store."""
        place = fresh()
        self.adapter.create(place)
        return place

    @pytest.fixture
    def store(self, where: str) -> Iterator[Any]:
        """An empty store, open for writing."""
        with self.adapter.open(where) as store:
            yield store

    # for the tests

    def write(self, store: Any, branch: str, **changes: Record | None) -> Any:
        """One commit on a branch; None deletes. Returns its id."""
        return self.adapter.write(store, branch, changes)

    def state(self, store: Any, ref: str | None = None) -> State:
        """The records at a reference."""
        return self.adapter.records(store.at(Ref.parse(self.adapter.first if ref is None else ref)))

    def log(self, store: Any, branch: str | None = None) -> list[Commit[Any]]:
        """The commits of a branch, newest first."""
        return list(store.commits(branch=self.adapter.first if branch is None else branch))

    @property
    def main(self) -> str:
        return self.adapter.first
