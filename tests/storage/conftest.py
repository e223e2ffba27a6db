"""What of the suite is left to `make test`: sweeps, of which the quick tests take a sample."""

from __future__ import annotations

import re

import pytest

SWEEPS = re.compile(r"::test_(killed_at_every|killed_while|one_flipped_byte|the_log_is_read_right|reads_are_right)"
                    r"|::TestMemory::test_(a_flipped_byte|killed|random_histories|renewing_extends|a_writer_paused)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The suite is what users run, too, and so marks nothing as slow itself."""
    for item in items:
        if SWEEPS.search(item.nodeid):
            item.add_marker(pytest.mark.slow)
