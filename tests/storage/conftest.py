"""What of the suite is left to `make test`: sweeps, of which the quick tests take a sample."""

from __future__ import annotations

import re

import pytest

SWEEPS = re.compile(r"::test_killed_at_every_write_step\[[1-9]"
                    r"|::TestMemory::test_(one|a)_flipped_byte|::Test(Memory|Oracle)::test_random_histories")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The suite is what users run, too, and so marks nothing as slow itself."""
    for item in items:
        if SWEEPS.search(item.nodeid):
            item.add_marker(pytest.mark.slow)
