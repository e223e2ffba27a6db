"""What an open transaction has written: a level of its own above a state that nobody else can change.

The level is in temporary tables of the transaction's connection, of the form that branches have. So a transaction
reads its own writes by the rules of `levels`, SQLite's savepoints cover them, and nothing is locked until they are
moved into the keyspace, at the version that the transaction gets when it commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import apsw

from ontolake.sql.keyspace.levels import OWN, Level
from ontolake.sql.keyspace.versions import Keyspace

_TABLES = """\
CREATE TEMP TABLE IF NOT EXISTS own_latest (
  key BLOB NOT NULL PRIMARY KEY, version INTEGER NOT NULL, value BLOB NOT NULL)
  WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS own_gone (key BLOB NOT NULL PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS own_mask (key BLOB NOT NULL PRIMARY KEY, first INTEGER NOT NULL) WITHOUT ROWID;
"""
_BATCH = 4096
_PUT = "SELECT key, value FROM own_latest WHERE key IN (SELECT key FROM own_mask)"
_ADDED = "SELECT key, value FROM own_latest WHERE key NOT IN (SELECT key FROM own_mask)"
_REMOVED = "SELECT key FROM own_gone WHERE key IN (SELECT key FROM own_mask)"


def prepare(connection: apsw.Connection) -> None:
    """Make room for a transaction's writes. Outside a transaction: a savepoint must not take the tables along."""
    connection.execute(_TABLES)


def clear(connection: apsw.Connection) -> None:
    """Forget what a transaction has written."""
    for name in ("own_latest", "own_gone", "own_mask"):
        connection.execute(f"DELETE FROM {name}")


def above(levels: Sequence[Level], snapshot: int, limit: int | None = None) -> tuple[Level, ...]:
    """The levels that a transaction reads: its own, and those that it found. `limit` is the newest version that may
    be read there."""
    first, *rest = levels
    return Level(OWN, snapshot, None), first if limit is None else first._replace(until=limit), *rest


def move(source: apsw.Connection, target: Keyspace, version: int) -> None:
    """Write what a transaction has written on a connection to a keyspace, at a version. What the keys were is known
    from the transaction, so nobody may have changed them since it began. The writes stay where they are."""
    for removed in _chunks(source, _REMOVED):
        target.delete(version, [key for (key,) in removed])
    for put in _chunks(source, _PUT):
        target.put(version, put)
    for added in _chunks(source, _ADDED):
        target.revive(version, [key for key, _ in added])
        target.insert(version, added)


def _chunks(connection: apsw.Connection, sql: str) -> Iterator[list[Any]]:
    rows = connection.execute(sql)
    while chunk := list(islice(rows, _BATCH)):
        yield chunk
