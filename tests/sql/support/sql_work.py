"""How much a database does for an action."""

from __future__ import annotations

from collections.abc import Callable

from ontolake.sql import Database


def work(db: Database, action: Callable[[], object]) -> int:
    """How many hundreds of steps SQLite takes."""
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    connections = [db._session.connection, *(part.connection for part in db._session.parts.values())]
    for connection in connections:
        connection.set_progress_handler(count, 100)
    try:
        action()
    finally:
        for connection in connections:
            connection.set_progress_handler(None)
    return steps
