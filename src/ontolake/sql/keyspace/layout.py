"""The SQLite tables below SQL tables, and their stamp.

`kv` is the whole keyspace: every version of every key. It is kept in three tables, so that what is read most costs
least: `latest` has the newest version of each living key, `past` what has been superseded and until when, and `gone`
the tombstones of keys that are deleted now. A version in `past` lives from `version` up to, not including, `until`,
and stands under the `node` that is the roundest number of that span. So all that lived at one moment is found under as
many nodes as the moment has bits, whatever the length of the history.

A commit's first parent is the version before it on the same branch. A merge has a second one: a version of another
branch, which is known by the id that the storage gives it, since ids outlive renaming and are never used again.
"""

from __future__ import annotations

import apsw

from ontolake.engine.layout import DatabaseLayout
from ontolake.sql.errors import SqlLayoutError

PAGE_SIZE = 4096
"""Of new native files, as on our pages. Rows that are changed far apart are each on a page of their own, all of which
goes to the log and the disk with a commit: larger pages made that four times as much, and reading no quicker. Files
that were made with pages of 16 KiB keep them."""
MAPPED = 0x7FFF0000
"""How many bytes of a native file are read without a copy: as many as SQLite allows, since a past can be long."""

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
  author TEXT,
  message TEXT,
  metadata TEXT, -- a JSON object
  merged_branch INTEGER, -- the second parent of a merge: the id of its branch,
  merged_version INTEGER, -- and its version there
  keys BLOB NOT NULL -- of the rows and catalog records that it wrote; last, since it can be long
);
CREATE TABLE state (
  version INTEGER NOT NULL, -- of the newest commit, where it is not told by "commit": see NEWEST
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

NEWEST = 'max(version, ifnull((SELECT max(version) FROM "commit"), 0)) FROM state'
"""The newest version of a database. One that only holds ranges of another has no commits of its own; any other writes
a commit and no more, since every further page that a commit touches has to be made durable with it. Version 1 of the
layout told it twice."""

DESCRIBED = 3
"""The first version of the layout whose commits have columns for author, message, metadata and a second parent."""
_ADDED = ("author TEXT", "message TEXT", "metadata TEXT", "merged_branch INTEGER", "merged_version INTEGER")

BRANCHED = 4
"""The version of the layout of a native file that has had branches or tags: what cleans it up has to know them."""

EXTENDED = 5
"""The version of the layout of a database that has had records, columns or types which version 4 cannot read."""

LAYOUT = DatabaseLayout(  # the id reads "onts"
    0x6F6E7473, EXTENDED, PAGE_SIZE, TABLES, "SQL tables of ours", SqlLayoutError, DESCRIBED)  # fmt: skip


MERGED_INDEX = "commit_merged"
"""The index of the commits that are merges. The first merge of a database creates it."""


def index_merges(connection: apsw.Connection) -> None:
    """Make merges quick to find, within the transaction of the first one."""
    connection.execute(f'CREATE INDEX IF NOT EXISTS {MERGED_INDEX} ON "commit" (merged_branch, merged_version) '
                       "WHERE merged_branch IS NOT NULL")


def is_described(connection: apsw.Connection) -> bool:
    """Whether the commits of a database have the columns that came with version 3 of the layout."""
    return bool(connection.pragma("user_version") >= DESCRIBED)


def extend(connection: apsw.Connection) -> None:
    """Note that older versions cannot read a database any more, within the transaction that makes it so."""
    if connection.pragma("user_version") < EXTENDED:
        upgrade(connection)
        connection.pragma("user_version", EXTENDED)


def upgrade(connection: apsw.Connection) -> None:
    """Bring a database of an older layout to this one, within the transaction of a commit."""
    if not is_described(connection):
        for column in _ADDED:
            connection.execute(f'ALTER TABLE "commit" ADD COLUMN {column}')
        connection.pragma("user_version", DESCRIBED)
