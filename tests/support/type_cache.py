"""What mypy knows already: tests that run it begin with a copy of the cache of `make lint`, if there is one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).parents[2]


def known_types(place: Path) -> Path:
    """A cache for mypy below `place`. Without one of `make lint` it is empty, and mypy reads every library anew."""
    cache = place / "cache"
    for file in (ROOT / ".mypy_cache").rglob("*.db"):
        copy = cache / file.relative_to(ROOT / ".mypy_cache")
        copy.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(file)) as known, closing(sqlite3.connect(copy)) as own:
            known.backup(own)  # whole, even if somebody is writing it
    return cache
