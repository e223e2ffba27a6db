"""Following a space: changes as they commit, whichever process makes them.

A commit of this process wakes the watcher at once. Those of others are found by asking for the newest seq, often
while there is something going on and seldom when there is not.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator

from ontolake.documents.database import SpaceDatabase
from ontolake.documents.names import check_id
from ontolake.documents.read import feed
from ontolake.errors import Invalid
from ontolake.history import Change

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.002, 0.1
_LONGEST_REMOTE_PAUSE = 1.0


def wanted_by(ids: Collection[str] | None, prefix: str | None) -> feed.Wanted | None:
    """What to watch for: some ids, all that start with a prefix, or everything. Raises `Invalid` for both at once."""
    if ids is not None and prefix is not None:
        raise Invalid("watch takes ids or a prefix, not both")
    if ids is not None:
        if isinstance(ids, str) or not isinstance(ids, Iterable):
            raise Invalid(f"ids is a collection, not {ids!r}", hint="write [id], or prefix=")
        chosen = frozenset(check_id(id) for id in ids)
        return chosen.__contains__
    if prefix is not None:
        if not isinstance(prefix, str):
            raise Invalid(f"a prefix is text, not {prefix!r}")
        return lambda id: id.startswith(prefix)
    return None


def watch(
    database: SpaceDatabase, branch: str, since: int, wanted: feed.Wanted | None, idle_timeout: float | None
) -> Iterator[Change[int]]:
    """Changes after `since`, as they come. Ends when the space is closed, or `idle_timeout` seconds after the last."""
    deadline = None if idle_timeout is None else time.monotonic() + idle_timeout
    while (last := wait(database, since, None if deadline is None else deadline - time.monotonic())) is not None:
        if last == since:
            return
        for change in _until_closed(database, feed.changes(database, branch, since, last, wanted)):
            yield change
            deadline = None if idle_timeout is None else time.monotonic() + idle_timeout
        since = last


def wait(database: SpaceDatabase, since: int, timeout: float | None) -> int | None:
    """The newest seq as soon as it is after `since`; `since` when that takes longer than `timeout` seconds, None when
    the space is closed."""
    longest = _LONGEST_PAUSE if database.native else _LONGEST_REMOTE_PAUSE
    pause = _SHORTEST_PAUSE
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        announced = database.announced
        last = _last_seq(database)
        if last is None or last > since:
            return last
        left = pause if deadline is None else min(pause, deadline - time.monotonic())
        if left <= 0:
            return since
        database.wait(announced, left)
        pause = min(pause * 1.5, longest)


def _until_closed(database: SpaceDatabase, changes: Iterator[Change[int]]) -> Iterator[Change[int]]:
    """Changes, which end early when the space is closed between two pages."""
    try:
        yield from changes
    except Invalid:
        if not database.closed:
            raise


def _last_seq(database: SpaceDatabase) -> int | None:
    with database.lock:
        if database.closed:
            return None
        with database.read:
            return database.last_seq()
