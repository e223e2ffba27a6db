"""Branches of a native file as databases of their own, and back: for copies between a native file and pages.

`flatten` makes a file what one of its branches is at a version; `join` adds such a database to a file as a branch. Both
work on files that nobody else uses, and take as long as the tables are large.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from ontolake.sql.keyspace import nodes
from ontolake.sql.keyspace.layout import BRANCHED, DESCRIBED, EXTENDED, NEWEST, extend, upgrade
from ontolake.sql.keyspace.levels import (
    FIRST,
    OF_LINE,
    Level,
    StoredLine,
    has_lines,
    levels,
    lines,
    make_room,
    newest,
)
from ontolake.sql.keyspace.ranges import undo
from ontolake.sql.keyspace.rows import TOMBSTONE

_DEAD = f"x'{TOMBSTONE.hex()}'"
_COMMIT = "version, time, statement, author, message, metadata, merged_branch, merged_version, keys"


def stored_lines(path: str) -> list[tuple[StoredLine, int, int]]:
    """All branches of a file, the first one first, each with its newest version and the oldest that can be read."""
    connection = apsw.Connection(path)
    try:
        return [(line, _number(connection, f"SELECT {newest(line.id)}"), _ddl_and_floor(connection, line.id)[1])
                for line in lines(connection)]  # fmt: skip
    finally:
        connection.close()


def next_line(path: str) -> int:
    """The id that the next branch of a file gets."""
    connection = apsw.Connection(path)
    try:
        found: Any = connection.execute("SELECT next FROM counter WHERE name = 'line'").get
        return int(found or 1)
    finally:
        connection.close()


def base_of(connection: apsw.Connection, line: int) -> int:
    """The version at which a branch left a database: what that noted of it, else its newest; 0 if it is empty."""
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'state'").fetchone():
        return 0
    noted: Any = connection.execute("SELECT next FROM counter WHERE name = ?", (f"base {line}",)).get
    return _number(connection, f"SELECT {NEWEST}") if noted is None else int(noted)


# A branch alone


def flatten(path: str, line: int, version: int, floor: int) -> None:
    """Make a file that has branches one that is this branch at a version, and has none. `floor` is the oldest version
    that can be read there."""
    connection = apsw.Connection(path)
    try:
        for name, function, count in (("node_of", nodes.node, 2), ("part_of", nodes.part, 1)):
            connection.create_scalar_function(name, function, count, deterministic=True)  # type: ignore[arg-type]
        connection.execute("BEGIN IMMEDIATE")
        ddl, _ = _ddl_and_floor(connection, line)
        *above, lowest = _until(levels(connection, line), version)
        if lowest.line == FIRST:
            _rewind(connection, lowest.until or 0)
        else:
            for table in ("latest", "past", "gone", '"commit"'):
                connection.execute(f"DELETE FROM {table}")
            _apply(connection, lowest)
        for level in reversed(above):
            _apply(connection, level)
        connection.execute("UPDATE state SET version = 0, ddl = ?, floor = ?",
                           (min(ddl, version), min(floor, version)))
        connection.execute("DELETE FROM past_node")
        connection.execute("INSERT INTO past_node SELECT part_of(key), node, min(version), max(until) FROM past "
                           "GROUP BY 1, 2")
        if has_lines(connection):
            for table in ("line", *OF_LINE):
                connection.execute(f"DROP TABLE {table}")
            connection.execute("DELETE FROM counter WHERE name = 'line'")
            if connection.pragma("user_version") == BRANCHED:
                connection.pragma("user_version", DESCRIBED)
        connection.execute("COMMIT")
        connection.execute("VACUUM")
    finally:
        connection.close()


def _until(found: Sequence[Level], version: int) -> list[Level]:
    """Levels as they are read at a version."""
    *above, lowest = found
    kept = [level for level in above if level.base < version]
    return [Level(line, base, version if until is None else min(until, version))
            for line, base, until in (*kept, lowest)]  # fmt: skip


def _ddl_and_floor(connection: apsw.Connection, line: int) -> tuple[int, int]:
    row: Any = connection.execute("SELECT ddl, floor FROM state" if line == FIRST else
                                  f"SELECT ddl, floor FROM line WHERE id = {line}").fetchone()  # fmt: skip
    return row[0], row[1]


def _rewind(connection: apsw.Connection, version: int) -> None:
    """Take back what the first branch did after a version."""
    connection.execute("DELETE FROM past WHERE version > ?", (version,))  # else one of them would come back
    undo(connection, version)
    connection.execute('DELETE FROM "commit" WHERE version > ?', (version,))


def _apply(connection: apsw.Connection, level: Level) -> None:
    """Do to the first branch what a line did up to a version."""
    line, until = level.line, level.until
    own = f"line = {line} AND version <= {until}"
    first = (f"SELECT key, min(version) AS first FROM (SELECT key, version FROM line_latest WHERE {own} "
             f"UNION ALL SELECT key, version FROM line_gone WHERE {own} "
             f"UNION ALL SELECT key, version FROM line_past WHERE {own}) GROUP BY key")  # fmt: skip
    for sql in (
        # What was there before ends where the line changed it, and so do tombstones of keys that it put again.
        f"CREATE TEMP TABLE mask AS SELECT key, first FROM line_mask WHERE line = {line} AND first <= {until}",
        f"CREATE TEMP TABLE own AS {first}",
        "INSERT INTO past SELECT node_of(version, first), key, version, first, value FROM mask JOIN latest USING (key)",
        "DELETE FROM latest WHERE key IN (SELECT key FROM mask)",
        f"INSERT INTO past SELECT node_of(version, first), key, version, first, {_DEAD} FROM own JOIN gone USING (key)",
        "DELETE FROM gone WHERE key IN (SELECT key FROM own)",
        f"INSERT INTO past SELECT node, key, version, until, value FROM line_past WHERE {own} AND until <= {until}",
        f"INSERT INTO latest SELECT key, version, value FROM line_past WHERE {own} AND until > {until} "
        f"AND value <> {_DEAD}",
        f"INSERT INTO gone SELECT key, version FROM line_past WHERE {own} AND until > {until} AND value = {_DEAD}",
        f"INSERT INTO latest SELECT key, version, value FROM line_latest WHERE {own}",
        f"INSERT INTO gone SELECT key, version FROM line_gone WHERE {own}",
        f'INSERT INTO "commit" ({_COMMIT}) SELECT {_COMMIT} FROM line_commit WHERE {own}',
        "DROP TABLE temp.mask",
        "DROP TABLE temp.own",
    ):
        connection.execute(sql)


# A branch among others


def join(path: str, other: str, line: StoredLine) -> None:
    """Add a database to a file as a branch. `line` says what it is called and where it left its parent.

    What it shares with its parent is not written again, unless the parent no longer has all of it.
    """
    connection = apsw.Connection(other)
    connection.pragma("journal_mode", "DELETE")
    connection.execute("BEGIN IMMEDIATE")
    upgrade(connection)
    is_extended = connection.pragma("user_version") == EXTENDED
    connection.execute("COMMIT")
    connection.close()
    connection = apsw.Connection(path)
    try:
        connection.execute("ATTACH ? AS other", (other,))
        connection.execute("BEGIN IMMEDIATE")
        make_room(connection)
        if is_extended:
            extend(connection)
        _join(connection, line)
        connection.execute("COMMIT")
        connection.execute("DETACH other")
    finally:
        connection.close()


def _join(connection: apsw.Connection, line: StoredLine) -> None:
    assert line.parent is not None
    id, base = line.id, line.base
    _, kept = _ddl_and_floor(connection, line.parent)
    row: Any = connection.execute("SELECT ddl, floor FROM other.state").fetchone()
    ddl, floor = row
    there = NEWEST.replace('"commit"', 'other."commit"').replace("FROM state", "FROM other.state")
    version = _number(connection, f"SELECT {there}")
    whole = kept > floor or floor > base
    low = -1 if whole else base
    connection.execute("INSERT INTO line VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                       (id, line.name, line.parent, base, version, ddl, floor, int(whole)))
    statements = [
        "INSERT INTO line_latest SELECT ?1, key, version, value FROM other.latest WHERE version > ?2",
        "INSERT INTO line_gone SELECT ?1, key, version FROM other.gone WHERE version > ?2",
        "INSERT INTO line_past SELECT ?1, node, key, version, until, value FROM other.past WHERE version > ?2",
        "INSERT INTO line_past_node SELECT ?1, part, node, first, last FROM other.past_node WHERE last > ?2",
        f'INSERT INTO line_commit SELECT ?1, {_COMMIT} FROM other."commit" WHERE version > ?2',
    ]
    mask = (
        "INSERT INTO line_mask SELECT ?1, key, min(first) FROM ("
        "SELECT key, version AS first FROM other.latest WHERE version > ?2 "
        "UNION ALL SELECT key, version FROM other.gone WHERE version > ?2 "
        "UNION ALL SELECT key, CASE WHEN version > ?2 THEN version ELSE until END FROM other.past WHERE until > ?2) "
        "GROUP BY key")  # fmt: skip
    for sql in statements if whole else [*statements, mask]:
        connection.execute(sql, (id, low))
    connection.execute(
        "INSERT INTO counter SELECT name, next FROM other.counter WHERE name IN ('database', 'schema', 'table', ?) "
        "ON CONFLICT (name) DO UPDATE SET next = max(next, excluded.next)", (f"protected {id}",))


def finish(path: str, next_id: int) -> None:
    """Let the next branch of a file have an id that none of its branches ever had."""
    connection = apsw.Connection(path)
    try:
        if has_lines(connection):
            connection.execute("UPDATE counter SET next = max(next, ?) WHERE name = 'line'", (next_id,))
    finally:
        connection.close()


def _number(connection: apsw.Connection, sql: str) -> int:
    found: Any = connection.execute(sql).get
    return int(found)
