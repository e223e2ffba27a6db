"""Lines of history in a native file: what branches have written, in tables beside those of the first one.

The versions of keys that the first branch has written are in `latest`, `past` and `gone`; those of all others are in
tables of the same form that begin with the id of the branch. A branch is one record, and copies nothing: it has its own
versions and, where it has none, those of its parent as of the version at which it left. So what a branch can read is
a list of levels, its own first. `line_mask` has the keys of lower levels that a branch has written to, and since when.
The tables come with the first branch or tag; a file without them is as it always was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import apsw

from ontolake.sql.keyspace.layout import BRANCHED, NEWEST, upgrade

FIRST = 0
"""The line of the first branch."""

OWN = -1
"""The level of what an open transaction has written itself: temporary tables of its connection, see `overlay`."""

DELETED = "deleted:"
"""How the names of lines begin that are deleted, and that others have history from."""

LINE_MERGED_INDEX = "line_commit_merged"
"""The index of the commits of branches that are merges."""

TABLES = f"""\
CREATE TABLE line ( -- branches but the first, and what keeps tags
  id INTEGER NOT NULL PRIMARY KEY,
  name TEXT NOT NULL,
  parent INTEGER NOT NULL, -- the id of the line that it left,
  base INTEGER NOT NULL, -- and the version at which it did
  version INTEGER NOT NULL, -- of the newest commit, where it is not told by line_commit
  ddl INTEGER NOT NULL, -- of the newest commit that changed the catalog
  floor INTEGER NOT NULL, -- nothing before this version can be read any more
  whole INTEGER NOT NULL -- 1 if it has all its keys and commits itself
);
CREATE TABLE line_latest (
  line INTEGER NOT NULL,
  key BLOB NOT NULL,
  version INTEGER NOT NULL,
  value BLOB NOT NULL,
  PRIMARY KEY (line, key)
) WITHOUT ROWID;
CREATE TABLE line_past (
  line INTEGER NOT NULL,
  node INTEGER NOT NULL,
  key BLOB NOT NULL,
  version INTEGER NOT NULL,
  until INTEGER NOT NULL,
  value BLOB NOT NULL,
  PRIMARY KEY (line, node, key)
) WITHOUT ROWID;
CREATE TABLE line_gone (
  line INTEGER NOT NULL,
  key BLOB NOT NULL,
  version INTEGER NOT NULL,
  PRIMARY KEY (line, key)
) WITHOUT ROWID;
CREATE TABLE line_mask ( -- keys that the parent has and the line has changed or removed
  line INTEGER NOT NULL,
  key BLOB NOT NULL,
  first INTEGER NOT NULL, -- the version that did it first
  PRIMARY KEY (line, key)
) WITHOUT ROWID;
CREATE TABLE line_past_node (
  line INTEGER NOT NULL,
  part BLOB NOT NULL,
  node INTEGER NOT NULL,
  first INTEGER NOT NULL,
  last INTEGER NOT NULL,
  PRIMARY KEY (line, part, node)
) WITHOUT ROWID;
CREATE TABLE line_commit (
  line INTEGER NOT NULL,
  version INTEGER NOT NULL,
  time INTEGER NOT NULL,
  statement TEXT NOT NULL,
  author TEXT,
  message TEXT,
  metadata TEXT,
  merged_branch INTEGER,
  merged_version INTEGER,
  keys BLOB NOT NULL,
  PRIMARY KEY (line, version)
) WITHOUT ROWID;
CREATE INDEX {LINE_MERGED_INDEX} ON line_commit (line, version) WHERE merged_branch IS NOT NULL;
"""

OF_LINE = ("line_latest", "line_past", "line_gone", "line_mask", "line_past_node", "line_commit")
"""The tables that hold what lines have written."""
_LINE = "SELECT id, name, parent, base, whole FROM line"


class StoredLine(NamedTuple):
    """A line as its record tells."""

    id: int
    name: str
    parent: int | None
    base: int
    whole: bool = False


_MAIN = StoredLine(FIRST, "main", None, 0)


def _stored(row: Any) -> StoredLine:
    return StoredLine(row[0], row[1], row[2], row[3], bool(row[4]))


class Level(NamedTuple):
    """The versions that one line has written, as far as a branch can read them."""

    line: int
    base: int
    """Versions up to this one are those of the next level."""
    until: int | None
    """The newest version that is read; None for all of them."""


MAIN_LEVELS = (Level(FIRST, 0, None),)
"""What the first branch reads."""


class VersionTable(NamedTuple):
    """A table that holds versions of keys. Each has a column `key`; where there are values, one called `value`."""

    name: str
    has_values: bool


def version_tables(connection: apsw.Connection) -> list[VersionTable]:
    """All tables of a database that hold versions of keys, or keys alone, of all its branches."""
    names = ["latest", "past", "gone"]
    names += ["line_latest", "line_past", "line_gone", "line_mask"] if has_lines(connection) else []
    return [VersionTable(name, name.endswith(("latest", "past"))) for name in names]


def commit_tables(connection: apsw.Connection) -> list[str]:
    """All tables of a database that hold commits, whose column `keys` names what they wrote."""
    return ['"commit"', *(["line_commit"] if has_lines(connection) else [])]


def has_lines(connection: apsw.Connection) -> bool:
    """Whether a database has the tables for lines."""
    return connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'line_mask'").fetchone() is not None


def make_room(connection: apsw.Connection) -> None:
    """Create the tables for lines if they are not there. Inside a transaction that writes."""
    if not has_lines(connection):
        upgrade(connection)
        connection.execute(TABLES)
        connection.execute("INSERT OR IGNORE INTO counter (name, next) VALUES ('line', 1)")
        connection.pragma("user_version", max(BRANCHED, connection.pragma("user_version")))


def lines(connection: apsw.Connection) -> list[StoredLine]:
    """All lines by id, the first one first."""
    rows: Any = connection.execute(f"{_LINE} ORDER BY id").fetchall() if has_lines(connection) else []
    return [_MAIN, *map(_stored, rows)]


def find(connection: apsw.Connection, name: str) -> StoredLine | None:
    """The line of a name."""
    if name == "main":
        return _MAIN
    row: Any = connection.execute(f"{_LINE} WHERE name = ?", (name,)).fetchone() if has_lines(connection) else None
    return None if row is None else _stored(row)


def by_id(connection: apsw.Connection, id: int) -> StoredLine | None:
    """The line of an id; None if it was removed."""
    row: Any = connection.execute(f"{_LINE} WHERE id = ?", (id,)).fetchone()
    return None if row is None else _stored(row)


def levels(connection: apsw.Connection, line: int) -> tuple[Level, ...]:
    """What a line can read, its own versions first."""
    known = {each.id: each for each in lines(connection)} if line != FIRST else {}
    found: list[Level] = []
    until: int | None = None
    while line != FIRST:
        each = known[line]
        if until is None or until > each.base or each.whole:
            found.append(Level(line, 0 if each.whole else each.base, until))
        if each.whole:
            return tuple(found)
        assert each.parent is not None
        line, until = each.parent, each.base if until is None else min(until, each.base)
    return (*found, Level(FIRST, 0, until))


def newest(line: int) -> str:
    """SQL for the newest version of a line, and where it is told: `SELECT` goes before it, `ddl` and `floor` may."""
    if line == FIRST:
        return NEWEST
    return (f"max(version, base, ifnull((SELECT max(version) FROM line_commit WHERE line = {line}), 0)) "
            f"FROM line WHERE id = {line}")


def set_state(connection: apsw.Connection, line: int, column: str, value: int) -> None:
    """Change `version`, `ddl` or `floor` of a line."""
    table, where = ("state", "") if line == FIRST else ("line", f" WHERE id = {line}")
    connection.execute(f"UPDATE {table} SET {column} = ?{where}", (value,))


def add(connection: apsw.Connection, name: str, parent: int, base: int) -> int:
    """Write the record of a line that leaves another at a version. Returns its id. Inside a transaction."""
    make_room(connection)
    row: Any = connection.execute(f"SELECT ddl, floor, {newest(parent)}").fetchone()
    ddl, floor, _ = row
    sql = "UPDATE counter SET next = next + 1 WHERE name = 'line' RETURNING next - 1"
    given: Any = connection.execute(sql).fetchall()
    id = int(given[0][0])
    connection.execute("INSERT INTO line VALUES (?, ?, ?, ?, ?, ?, ?, 0)",
                       (id, name, parent, base, base, min(ddl, base), floor))
    return id


def remove(connection: apsw.Connection, line: int) -> None:
    """Remove a line with all that it has written. Inside a transaction."""
    connection.execute("DELETE FROM line WHERE id = ?", (line,))
    for table in OF_LINE:
        connection.execute(f"DELETE FROM {table} WHERE line = ?", (line,))


def table_of(name: str, line: int) -> tuple[str, str]:
    """The table in which a line keeps something, and the condition that makes it that of the line."""
    if line == OWN:
        return f"own_{name}", ""
    return (name, "") if line == FIRST else (f"line_{name}", f"line = {line} AND ")


def pins(connection: apsw.Connection, line: int) -> list[tuple[int, int]]:
    """The moments of a line that other lines can read, as spans with both ends. No cleanup takes what lived then."""
    if not has_lines(connection):
        return []
    rows: Any = connection.execute("SELECT id, parent, base, floor, whole FROM line").fetchall()
    known = {id: tuple(rest) for id, *rest in rows}
    found: list[tuple[int, int]] = []
    for id, (_, _, floor, _) in known.items():
        at, reach = id, None
        while at in known:
            parent, base, _, whole = known[at]
            if whole:
                break
            reach = base if reach is None else min(reach, base)
            if parent == line:
                found.append((min(floor, reach), reach))
                break
            at = parent
    return _joined(found)


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans without those that others have in them; those that touch are one."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if found and low <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return found


def unpinned(spans: Sequence[tuple[int, int]], first: str, until: str) -> str:
    """SQL: what lived from `first` up to, not including, `until` lived at no moment of these spans."""
    return "".join(f" AND NOT ({first} <= {high} AND {until} > {low})" for low, high in spans)
