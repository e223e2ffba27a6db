"""The SQLite tables below SQL tables, their stamp, and how a connection to them is set up.

`kv` is the whole keyspace: every version of every key. It is kept in three tables, so that what is read most costs
least: `latest` has the newest version of each living key, `past` what has been superseded and until when, and `gone`
the tombstones of keys that are deleted now. A version in `past` lives from `version` up to, not including, `until`,
and stands under the `node` that is the roundest number of that span. So all that lived at one moment is found under as
many nodes as the moment has bits, whatever the length of the history.
"""

from __future__ import annotations

import apsw

from ontolake.sql.errors import LayoutError

APPLICATION_ID = 0x6F6E7473  # "onts"
LAYOUT_VERSION = 1
PAGE_SIZE = 16384
SYNCHRONOUS = ("NORMAL", "FULL")

TABLES = """\
CREATE TABLE latest (
  key BLOB NOT NULL PRIMARY KEY,
  version INTEGER NOT NULL,
  value BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE past (
  node INTEGER NOT NULL,
  key BLOB NOT NULL,
  version INTEGER NOT NULL,
  until INTEGER NOT NULL,
  value BLOB NOT NULL,
  PRIMARY KEY (node, key)
) WITHOUT ROWID;
CREATE TABLE gone (
  key BLOB NOT NULL PRIMARY KEY,
  version INTEGER NOT NULL
) WITHOUT ROWID;
CREATE VIEW kv AS
  SELECT key, version, value FROM latest
  UNION ALL SELECT key, version, value FROM past
  UNION ALL SELECT key, version, x'0101' FROM gone;
CREATE TABLE past_node ( -- which nodes hold anything of a table, and of when
  part BLOB NOT NULL,
  node INTEGER NOT NULL,
  first INTEGER NOT NULL,
  last INTEGER NOT NULL,
  PRIMARY KEY (part, node)
) WITHOUT ROWID;
CREATE TABLE "commit" (
  version INTEGER NOT NULL PRIMARY KEY,
  time INTEGER NOT NULL, -- microseconds since 1970
  statement TEXT NOT NULL,
  keys BLOB NOT NULL -- of the rows and catalog records that it wrote
);
CREATE TABLE state (
  version INTEGER NOT NULL, -- of the newest commit
  ddl INTEGER NOT NULL, -- of the newest commit that changed the catalog
  floor INTEGER NOT NULL -- nothing before this version can be read any more
);
CREATE TABLE counter (
  name TEXT NOT NULL PRIMARY KEY,
  next INTEGER NOT NULL
);
CREATE TABLE range (
  start BLOB NOT NULL PRIMARY KEY, -- up to where the next one starts
  url TEXT NOT NULL -- of the database that holds its keys; '' is this one
);
INSERT INTO range VALUES (x'', '');
INSERT INTO state VALUES (0, 0, 0);
INSERT INTO counter VALUES ('database', 1), ('schema', 1), ('table', 100);
"""


def set_up(connection: apsw.Connection, name: str, *, native: bool, synchronous: str, readonly: bool) -> None:
    """Prepare a connection for use, and a database that is empty with it. Raises `LayoutError`.

    A database that is not ours is left exactly as it is.
    """
    connection.pragma("busy_timeout", 5000)
    # Else SQLite plans a statement anew for every value that stands in a range, which costs more than running it.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    is_new = not _is_ours(connection, name)
    if is_new and readonly:
        raise LayoutError(name, "is empty", hint="open it for writing first")
    if native:
        if is_new:
            connection.pragma("page_size", PAGE_SIZE)
        if not readonly:
            connection.pragma("journal_mode", "WAL")
        connection.pragma("synchronous", synchronous)
        connection.pragma("mmap_size", 268435456)
    connection.pragma("cache_size", -64000)
    connection.pragma("temp_store", "MEMORY")
    if is_new:
        _create(connection, name)


def _create(connection: apsw.Connection, name: str) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _is_ours(connection, name):  # somebody else may have been quicker
            connection.execute(TABLES)
            connection.pragma("application_id", APPLICATION_ID)
            connection.pragma("user_version", LAYOUT_VERSION)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _is_ours(connection: apsw.Connection, name: str) -> bool:
    """Whether these are SQL tables that this version can read; False for an empty database. Raises `LayoutError`."""
    application, version = connection.pragma("application_id"), connection.pragma("user_version")
    if application == APPLICATION_ID:
        if version > LAYOUT_VERSION:
            raise LayoutError(name, f"has layout version {version}; this version of Ontolake knows {LAYOUT_VERSION}",
                              hint="open it with a newer version of Ontolake")
        return True
    if application or version or connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall():
        raise LayoutError(name, "is a database, but does not hold SQL tables of ours", hint="choose another place")
    return False
