"""`Sizes`: the thresholds at which a typed store lays out, merges or reads data otherwise.

The defaults suit every store, and any values read what others wrote. Tests set them low, so that a short history goes
through everything that a long one does.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from ontolake.errors import Invalid


@dataclass(frozen=True, slots=True)
class Sizes:
    """Thresholds of typed stores, by default as measured to suit most."""

    # files on objects
    fan: int = 12
    """How many files of one level are merged into one of the next."""
    most_runs: int = 48
    """Beyond this number of runs the smallest neighbours are merged, whatever their levels."""
    level_rows: int = 4096
    """From this number of rows on a new file is above the lowest level; each further level has `fan` times as many."""
    merged_rows: int = 1 << 19
    """The most rows that a commit merges, which bounds how long a commit takes."""
    part_rows: int = 262_144
    """Rows of one file of a commit; further rows go into further files."""
    group_rows: int = 16_384
    """Rows of a row group, which is what the lookup of a key in a big file reads."""
    small_rows: int = 65_536
    """Up to this number of rows a file is read and kept whole."""
    kept_groups: int = 100
    """Up to this number of row groups that a lookup of keys reads are kept in memory."""
    kept_bytes: int = 256 << 20
    """Bytes of tables kept in memory."""
    kept_manifests: int = 4096
    """Manifests and schemas kept in memory."""

    # queries and commits
    planned_rows: int = 2_000
    """From this number of rows on DataFusion answers what it can; below, SQLite is faster."""
    batch_rows: int = 65_536
    """Rows that are converted at a time between Arrow, SQLite and Python."""
    single_rows: int = 8
    """Up to this number of rows SQLite compares a commit row by row, beyond that in one statement."""
    looked_up_keys: int = 2_000
    """Up to this number of changed keys their states before are looked up; beyond that all states are read."""
    column_rows: int = 50_000
    """From this number of rows on the columns of a table are kept beside a native file for full scans."""
    window_commits: int = 500
    """Commits whose changes are read at one moment."""

    # the queue of events on objects
    queue_items: int = 64
    """Events and changes that the queue object holds before it is made smaller."""
    queue_bytes: int = 128 << 10
    """Bytes of events that it holds before it is made smaller."""
    queue_staying: int = 32
    """Up to this number of events stay in the queue object when it is made smaller."""
    page_items: int = 256
    """Events of a page."""
    page_bytes: int = 512 << 10
    """Bytes of a page."""
    queue_lag: int = 4
    """Commits that may change the queue before one of them writes the queue object."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value, least = getattr(self, one.name), 2 if one.name == "fan" else 0 if one.name in _FROM_ZERO else 1
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise Invalid(f"{one.name} must be a whole number of at least {least}, not {value!r}")


_FROM_ZERO = ("planned_rows", "single_rows", "looked_up_keys", "kept_bytes", "queue_staying", "queue_lag")

DEFAULT = Sizes()
