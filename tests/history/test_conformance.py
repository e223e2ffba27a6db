"""The suite on the simplest model there can be, and on models that are wrong in one place."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from reference_store import ReferenceAdapter

from ontolake.history.conformance import VersioningConformance

_numbers = itertools.count()


class TestReference(VersioningConformance):
    """A store of dictionaries in memory."""

    adapter = ReferenceAdapter
    processes = False
    handles = False
    machine_runs = 60

    @pytest.fixture
    def fresh(self) -> Callable[[], str]:
        return lambda: f"reference {next(_numbers)}"
