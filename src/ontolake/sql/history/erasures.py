"""Erasing a row for good: from every commit, branch and tag, and from the bytes that are stored.

Rows of all versions, their index entries and what commits say of them are deleted on every line of history, in one
transaction each. Then each database is written anew (VACUUM). A native file gives up its write-ahead log; over the seam
branches are made independent of the old pages of their parents, and those are dropped. All other rows stay readable at
every version. What remains is a commit on the first branch with the reason and a salted hash of the key.

Until all that is done the first branch has an entry of the erasure, so that the same call finishes what was cut short.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from typing import Any, NamedTuple

import apsw

from ontolake import faults, urls
from ontolake.engine import past
from ontolake.engine.checkpoints import truncate_log
from ontolake.errors import Contended, Corruption, Invalid, NotFound
from ontolake.history import Garbage
from ontolake.history.erasures import KeyHash, check_reason, names, parts, pattern
from ontolake.history.names import MAIN
from ontolake.sql.catalog.column_files import ERASE
from ontolake.sql.catalog.records import Table
from ontolake.sql.history import merge_state
from ontolake.sql.history.lines import FIRST, BranchLines, base_counter
from ontolake.sql.history.row_history import encoded
from ontolake.sql.history.table_names import full_name
from ontolake.sql.keyspace import homes, keys, levels, ranges
from ontolake.sql.keyspace.commit_log import packed, unpacked
from ontolake.sql.keyspace.layout import LAYOUT, is_described
from ontolake.sql.keyspace.pages import open_pages
from ontolake.sql.keyspace.versions import KeySpan
from ontolake.sql.transactions import SqlSession
from ontolake.sql.types import Type

OpenWriter = Callable[[str], AbstractContextManager[SqlSession]]
"""Gives a session on a branch of the storage, for writing."""

_TABLE = """CREATE TABLE IF NOT EXISTS erasing (
  salt TEXT NOT NULL PRIMARY KEY,
  hash TEXT NOT NULL, -- of the table and the key
  items INTEGER NOT NULL, -- how much was found at first
  bytes INTEGER NOT NULL
) WITHOUT ROWID"""
_MASK = "line_mask"
_ROWS = bytes((keys.ROW,))
_LITERAL = re.compile(r"""[A-Za-z]?'(?:[^']|'')*(?:'|$)|\b\d[\w.]*""")
_OPAQUE = re.compile(r"--|/\*|\$")
_DROPPED, _GAP = "-- erased", "[erased]"
_PREFIX = 17
"""How many bytes of an index entry name its table and index."""


class IndexedColumns(NamedTuple):
    """What stands in the entries of an index before the primary key."""

    types: tuple[Type, ...]
    desc: tuple[bool, ...]


class StoredRow:
    """Under which keys a row is or was stored, and which index entries lead to it."""

    def __init__(self) -> None:
        self.keys: set[bytes] = set()
        self._indexes: dict[bytes, set[IndexedColumns]] = {}

    def add(self, table: Table, key: Any) -> None:
        """Take a definition of the table into account. A key that it cannot have had is left aside."""
        try:
            self.keys.add(encoded(table, key))
        except Invalid:
            return
        for index in (*table.indexes, *table.dropped_indexes):
            if all(id in table.by_id for id in index.column_ids):
                columns = IndexedColumns(tuple(table.by_id[id].type for id in index.column_ids), tuple(index.desc))
                self._indexes.setdefault(keys.entry_prefix(table.id, index.index_id), set()).add(columns)

    def entries(self, connection: apsw.Connection, table: str) -> set[bytes]:
        """The index entries in one of the tables of a database."""
        found: set[bytes] = set()
        for row in self.keys:
            prefix, key = bytes((keys.ENTRY,)) + row[1:9], row[9:]
            span = KeySpan(prefix, keys.after(prefix))
            alike: Any = connection.execute(
                f"SELECT DISTINCT key FROM {table} WHERE key >= ? AND key < ? AND substr(key, ?) = ?",
                (*span, -len(key), key)).fetchall()  # fmt: skip
            found.update(entry for (entry,) in alike if self._leads(entry, key))
        return found

    def _leads(self, entry: bytes, key: bytes) -> bool:
        """Whether an entry that ends like a primary key has it for its primary key, and not only for its end."""
        known = self._indexes.get(entry[:_PREFIX])
        return known is None or any(_end(entry, columns) + len(key) == len(entry) for columns in known)


def _end(entry: bytes, columns: IndexedColumns) -> int:
    try:
        return keys.decode_tuple(columns.types, entry, _PREFIX, columns.desc)[1]
    except Corruption:
        return len(entry)


class RowErasure:
    """What is stored of one row of a table."""

    def __init__(self, lines: BranchLines, writer: OpenWriter, table: str, key: Any) -> None:
        """Raises `NotFound` for a table that no line ever had, `Invalid` for a name that may mean two."""
        self._lines, self._writer = lines, writer
        self._key = key
        self._url = lines.session.url
        self._native = _is_native(self._url)
        self._row = StoredRow()
        self._tables: dict[str, list[Table]] = {}
        self._homes: dict[str, None] = {}
        for id in (FIRST, *(id for id in lines.refs if id != FIRST)):
            self._learn(id)
        self.table = full_name(table, self._tables)
        for each in self._tables[self.table]:
            self._row.add(each, key)

    def _learn(self, line: int) -> None:
        """Read how a line defines and defined its tables, and where its ranges are."""
        session = self._lines.on(line)
        with session.reading():
            newest, _, floor = session.state()
            versions = {newest, *(each for each in _defined(session.connection) if floor <= each <= newest)}
            for version in sorted(versions, reverse=True):
                for name, table in session.catalog(version).by_full_name.items():
                    self._tables.setdefault(name, []).append(table)
            for each in ranges.read(session.connection):
                if each.url != ranges.MAIN:
                    self._homes[homes.resolved(session.url, each.url)] = None

    def check(self) -> None:
        """Raise `Invalid` for what cannot be a key of the table."""
        if not self._row.keys:
            raise Invalid(f"{self._key!r} cannot be a key of {self.table}")

    # counting

    def count(self) -> Garbage:
        """How many versions of the row and of its index entries there are, each once, and their bytes."""
        seen: dict[tuple[Any, ...], int] = {}
        for id in self._databases():
            session = self._lines.on(id)
            with session.reading():
                for connection in (session.connection, *(part.connection for part in session.parts.values())):
                    seen |= self._versions(connection)
        return Garbage(len(seen), sum(seen.values()))

    def _versions(self, connection: apsw.Connection) -> dict[tuple[Any, ...], int]:
        found: dict[tuple[Any, ...], int] = {}
        for table in levels.version_tables(connection):
            if table.name == _MASK:
                continue
            size = "length(key) + length(value)" if table.has_values else "length(key)"
            line = "line" if table.name.startswith("line_") else "0"
            for key in self._row.keys | self._row.entries(connection, table.name):
                sql = f"SELECT {line}, version, {size} FROM {table.name} WHERE key = ?"
                rows: Any = connection.execute(sql, (key,))
                found |= {(table.name, key, *version): length for *version, length in rows}
        return found

    def _databases(self) -> list[int]:
        """The lines that are databases of their own, parents first: all on pages, one in a native file."""
        return [FIRST, *([] if self._native else sorted(id for id in self._lines.refs if id != FIRST))]

    # removing

    def remove(self) -> None:
        """Delete all rows, on every line and in every database, and write all databases anew."""
        refs = self._lines.refs
        for id in self._databases():
            with self._writer(self._lines.name(id)) as session:
                session.connection.pragma("secure_delete", True)
                with session.writing(ERASE):
                    self._scrub_ranges(session)
                    self._scrub_rows(session.connection)
                    self._scrub_commits(session.connection)
                    merge_state.forget(session)
                    self._keep_bases(session, id)
                    faults.reach("sql: row deleted")
                    session.keep()
                session.columns.clear()
                faults.reach("sql: deletion of a row committed")
                self._write_anew(session.connection, session.url)
        self._lines.session.columns.clear()
        for url in self._homes:
            self._remove_from_home(url, {MAIN, *(ref.name for ref in refs.values())})
        if not self._native:
            past.detach(self._url)
            faults.reach("sql: branches detached")
            past.drop_past(self._url)
            faults.reach("sql: past of pages dropped")

    def _remove_from_home(self, url: str, branches: set[str]) -> None:
        """Delete the row from a database that ranges have moved to, on all its branches."""
        native, there = _is_native(url), [MAIN]
        if not native:
            with open_pages(url) as storage:
                for ref in reversed(storage.list_branches()):
                    if ref.name not in branches:
                        storage.delete_branch(ref.id)  # left behind by a branch that was never finished
                there = [ref.name for ref in storage.list_branches()]
        for branch in there:
            with closing(LAYOUT.open(url, branch=branch, readonly=False, takeover=False, synchronous="FULL",
                                     create=False)) as connection:  # fmt: skip
                connection.pragma("secure_delete", True)
                connection.execute("BEGIN IMMEDIATE")
                self._scrub_rows(connection)
                faults.reach("sql: row of a range deleted")
                connection.execute("COMMIT")
                self._write_anew(connection, url)
        if not native:
            past.detach(url)
            past.drop_past(url)

    def _scrub_rows(self, connection: apsw.Connection) -> None:
        for table in levels.version_tables(connection):
            wanted = self._row.keys | self._row.entries(connection, table.name)
            connection.executemany(f"DELETE FROM {table.name} WHERE key = ?", [(key,) for key in wanted])

    def _scrub_commits(self, connection: apsw.Connection) -> None:
        """Take the row out of the keys, texts and metadata of commits, and out of messages of tags."""
        named = any(isinstance(part, str) and part for part in parts(self._key))
        for table in levels.commit_tables(connection):
            id = "line, version" if table == "line_commit" else "version"
            for *where, blob, statement in self._rows(connection, f"SELECT {id}, keys, statement FROM {table}"):
                rest = self._without_row(blob)
                if rest != blob or (named and self._is_named(statement)):
                    connection.execute(f"UPDATE {table} SET keys = ?, statement = ? WHERE ({id}) = ({_marks(where)})",
                                       (rest, self._without_literals(statement), *where))  # fmt: skip
            if named and (table == "line_commit" or is_described(connection)):
                self._scrub_texts(connection, table, id, "message")
                self._scrub_texts(connection, table, id, "metadata")
        if named and connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'tag'").fetchone():
            self._scrub_texts(connection, "tag", "name", "message")

    def _without_row(self, blob: bytes) -> bytes:
        """The keys of a commit without those of the row."""
        if not any(key in blob for key in self._row.keys):
            return blob
        all = unpacked(blob)
        kept = [key for key in all if key not in self._row.keys]
        return blob if len(kept) == len(all) else packed([kept])

    def _scrub_texts(self, connection: apsw.Connection, table: str, id: str, column: str) -> None:
        for *where, text in self._rows(connection, f"SELECT {id}, {column} FROM {table} WHERE {column} IS NOT NULL"):
            if (kept := self._without_key(text)) != text:
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE ({id}) = ({_marks(where)})", (kept, *where))

    def _rows(self, connection: apsw.Connection, sql: str) -> list[Any]:
        return connection.execute(sql).fetchall()

    def _is_named(self, text: str) -> bool:
        return all(names(text, part) for part in parts(self._key))

    def _without_literals(self, statement: str) -> str:
        """The text of a statement without the values in it; nothing of it if they cannot be told from the rest."""
        internal = statement.startswith("-- ")
        if internal and not self._is_named(statement):
            return statement
        found = _DROPPED if internal or _OPAQUE.search(statement) else _LITERAL.sub("…", statement)
        return _DROPPED if self._is_named(found) else found

    def _without_key(self, text: str) -> str:
        for part in parts(self._key):
            if isinstance(part, str):
                for spelling in dict.fromkeys((part, json.dumps(part)[1:-1])):
                    text = pattern(spelling).sub(_GAP, text)
        return text

    def _scrub_ranges(self, session: SqlSession) -> None:
        """Let no range begin at the row: at the next key that there is, or not at all."""
        for before, held in zip(known := ranges.read(session.connection), known[1:], strict=False):
            if not any(key in held.start for key in (each[9:] for each in self._row.keys)):
                continue
            source = session.connection if held.url == ranges.MAIN else session.parts[held.url].connection
            end = held.end or b"\xff" * 10
            following: Any = source.execute(
                "SELECT min(key) FROM (" + " UNION ALL ".join(
                    f"SELECT min(key) AS key FROM {table.name} WHERE key > ?1 AND key < ?2"
                    for table in levels.version_tables(source)) + ")",
                (held.start, end)).get  # fmt: skip
            if before.url == held.url or following is None:
                session.connection.execute("DELETE FROM range WHERE start = ?", (held.start,))
            else:
                session.connection.execute("UPDATE range SET start = ? WHERE start = ?", (following, held.start))

    def _keep_bases(self, session: SqlSession, line: int) -> None:
        """Note at which versions other lines left this one, which their pages will not tell any more."""
        for id, ref in self._lines.refs.items():
            if ref.parent == line and not self._native:
                session.connection.execute("INSERT OR REPLACE INTO counter (name, next) VALUES (?, ?)",
                                           (base_counter(id), self._lines.base(id)))

    def _write_anew(self, connection: apsw.Connection, url: str) -> None:
        """Leave no byte in free space, nor in the write-ahead log of a native file. Raises `Contended`."""
        try:
            connection.execute("VACUUM")
            faults.reach("sql: database written anew")
            busy = _is_native(url) and not truncate_log(connection)
        except apsw.BusyError:
            busy = True
        if busy:
            raise Contended(f"{url}: the row is erased, but others read on, so old bytes of it are still in the file",
                            hint="close all readers, then erase the same row again")


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


def _defined(connection: apsw.Connection) -> set[int]:
    """The versions at which something may have been defined in another way than before, or is about to be."""
    found: set[int] = set()
    for table in levels.version_tables(connection):
        if table.name != _MASK:
            ends = ("version", "until - 1") if table.name.endswith("past") else \
                ("version",) if table.has_values else ("version - 1",)  # fmt: skip
            for end in ends:
                rows: Any = connection.execute(f"SELECT DISTINCT {end} FROM {table.name} WHERE key < ?", (_ROWS,))
                found.update(version for (version,) in rows)
    return found


def _is_native(url: str) -> bool:
    return urls.parse(url).place is urls.Place.SQLITE


# what is under way


def _pending(session: SqlSession, table: str, key: Any) -> tuple[KeyHash, Garbage] | None:
    """The erasure of a row that was begun and not finished."""
    with session.reading():
        if not session.connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'erasing'").fetchone():
            return None
        stored: Any = session.connection.execute("SELECT salt, hash, items, bytes FROM erasing").fetchall()
    for salt, hash, items, size in stored:
        if KeyHash(salt, hash).is_of(table, key):
            return KeyHash(salt, hash), Garbage(items, size)
    return None


def erase(
    lines: BranchLines, writer: OpenWriter, table: str, key: Any, *, reason: str, dry_run: bool, author: str | None
) -> Garbage:  # fmt: skip
    """Erase a row, or count what would go. See `VersionedTables.erase`."""
    check_reason(reason, key)
    if author is not None and not isinstance(author, str):
        raise Invalid(f"author must be text, not {author!r}")
    erasure = RowErasure(lines, writer, table, key)
    table = erasure.table
    begun = _pending(lines.on(FIRST), table, key)
    if begun is None:
        erasure.check()
    found = erasure.count()
    if begun is None and not found.items:
        raise NotFound(f"{table} has no such row in any commit", hint="it may have been erased before")
    if dry_run:
        return found if begun is None else begun[1]
    if begun is None:
        begun = KeyHash.of(table, key), found
        with writer(MAIN) as session, session.writing(ERASE):
            session.connection.execute(_TABLE)
            session.connection.execute("INSERT INTO erasing VALUES (?, ?, ?, ?)", (*begun[0], *begun[1]))
            faults.reach("sql: erasure noted")
            session.keep()
    erasure.remove()
    hash, counted = begun
    with writer(MAIN) as session, session.noted(reason, author), \
            session.writing(ERASE, hash.metadata(table, counted)) as transaction:  # fmt: skip
        transaction.is_exempt = True
        transaction.touch(())
        session.connection.execute("DELETE FROM erasing WHERE salt = ?", (hash.salt,))
        faults.reach("sql: erasure finished")
    return counted
