"""The storage below a database on our pages, shared with the connections that this process has to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ontolake.engine.registry import shared
from ontolake.storage import Storage


@contextmanager
def open_pages(url: str) -> Iterator[Storage]:
    """The storage of a database; its log is not read again where a connection is open."""
    place = shared(url)
    database = place.join({}, create=False, writes=False)
    try:
        yield database.storage
    finally:
        place.leave(writes=False)
