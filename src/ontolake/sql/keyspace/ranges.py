"""Ranges: which database holds which part of the keyspace.

The routing table is in the main database. A range goes from its start up to the start of the next one; its keys are in
the main database, or in one of their own. There is one writer. It writes all ranges at one version, then publishes
that version in the main database; whoever reads looks at nothing newer than what is published, and whoever writes next
first removes what was never published.
"""

from __future__ import annotations

import secrets
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from ontolake import faults
from ontolake.errors import Invalid, NotFound
from ontolake.sql.cancellation import check
from ontolake.sql.errors import DefinitionError, TransactionError, UnsupportedError
from ontolake.sql.keyspace import homes, keys, levels
from ontolake.sql.keyspace.batches import Batch
from ontolake.sql.keyspace.layout import NEWEST
from ontolake.sql.keyspace.levels import FIRST, MAIN_LEVELS, Level, newest, set_state, table_of
from ontolake.sql.keyspace.read_set import ReadSet
from ontolake.sql.keyspace.rows import LIVE
from ontolake.sql.keyspace.vectors import Strings
from ontolake.sql.keyspace.versions import Keyspace, KeySpan

if TYPE_CHECKING:
    from ontolake.sql.catalog.records import SqlCatalog
    from ontolake.sql.transactions import SqlSession

MAIN = ""
_MARK, _OWNER = "range", "owner"
"""Counters that tell whose ranges a home holds, and who a main database is."""
_ANYBODY = 1
"""The mark that earlier releases left in every home, whoever moved a range there. No owner has it."""
_LAST = b"\xff" * 9
_COPY = (
    ("latest", "key, version, value"), ("past", "node, key, version, until, value"), ("gone", "key, version"),
)  # fmt: skip


_COPY_LINES = (
    ("line_latest", "line, key, version, value"), ("line_past", "line, node, key, version, until, value"),
    ("line_gone", "line, key, version"), ("line_mask", "line, key, first"),
)  # fmt: skip


class RoutedRange(NamedTuple):
    """Keys from `start` up to `end`, either of which is empty where there is no bound, and the URL that holds them.

    An empty URL is that of the main database.
    """

    start: bytes
    end: bytes
    url: str


class RangeKeyspace(Keyspace):
    """The keys of the ranges in one database. `limit` is the newest version that may be read there, if not all may."""

    limit: int | None = None
    changes_before: int
    """How many rows the connection had ever changed when the transaction began."""

    def begin(self, *, write: bool) -> int:
        """Let a branch write in the transaction that has begun. Returns the newest version that it has here."""
        if write and self.line != FIRST:
            base = self.levels[0].base
            self.connection.execute("INSERT OR IGNORE INTO line VALUES (?, '', 0, ?, ?, 0, 0, 0)",
                                    (self.line, base, base))
        found: Any = self.connection.execute(f"SELECT {newest(self.line)}").get
        return int(found or 0)

    def moment(self, at: int | None) -> int | None:
        return self.limit if at is None else at

    def is_settled(self) -> bool:
        return False  # whoever writes next may take back what was not published


class Routed(Keyspace):
    """A keyspace whose ranges are in several databases. Every key goes to the one that its range is in."""

    def __init__(self, connection: apsw.Connection, levels: Sequence[Level] = MAIN_LEVELS) -> None:
        super().__init__(connection, levels)
        self._starts: list[bytes] = [b""]
        self._homes: list[RangeKeyspace | None] = [None]
        self.parts: list[RangeKeyspace] = []
        self.reads: ReadSet | None = None
        """Where to note what is read of now: keys, and spans as far as they were looked at."""

    def route(self, ranges: Sequence[RoutedRange], parts: dict[str, RangeKeyspace]) -> None:
        """Go by these ranges from now on."""
        self._starts = [each.start for each in ranges]
        self._homes = [parts.get(each.url) for each in ranges]
        self.parts = list(parts.values())
        self.all_newer = {}  # a range that has come home brings its older rows along

    def _home(self, key: bytes) -> RangeKeyspace | None:
        return self._homes[bisect_right(self._starts, key) - 1]

    def home(self, key: bytes) -> RangeKeyspace | None:
        """The database that a key was moved to; None if it is in the main one."""
        return self._home(key) if self.parts else None

    def is_elsewhere(self, key: bytes) -> bool:
        """Whether a key is not in the main database."""
        return bool(self.parts) and self._home(key) is not None

    def _sorted(self, wanted: Iterable[Any], key: Any = None) -> dict[RangeKeyspace | None, list[Any]]:
        found: dict[RangeKeyspace | None, list[Any]] = {}
        for each in wanted:
            found.setdefault(self._home(each if key is None else key(each)), []).append(each)
        return found

    def pieces(self, span: KeySpan) -> Iterator[tuple[RangeKeyspace | None, KeySpan]]:
        """The parts of a span, one for each range that it touches."""
        for number, start in enumerate(self._starts):
            end = self._starts[number + 1] if number + 1 < len(self._starts) else span.end
            low, high = max(start, span.start), min(end, span.end)
            if low < high:
                yield self._homes[number], KeySpan(low, high)

    def get(self, key: bytes) -> bytes | None:
        if self.reads is not None:
            self.reads.keys.add(key)
        home = self._home(key) if self.parts else None
        if home is None:
            return super().get(key)
        return home.get(key) if home.limit is None else home.get_many([key], home.limit).get(key)

    def get_many(self, wanted: Sequence[bytes], at: int | None = None) -> dict[bytes, bytes]:
        check()
        if self.reads is not None and at is None:
            self.reads.add_keys(wanted)
        if not self.parts:
            return super().get_many(wanted, at)
        found: dict[bytes, bytes] = {}
        for home, some in self._sorted(wanted).items():
            found |= super().get_many(some, at) if home is None else home.get_many(some, home.moment(at))
        return found

    def scan(
        self, span: KeySpan, at: int | None = None, *, keys: bool = False, limit: int | None = None, ahead: bool = False
    ) -> Iterator[Batch]:
        if self.reads is None or at is not None:
            return self._scan_all(span, at, keys, limit, ahead)
        if limit is None or not self.is_ordered(limited=True):
            self.reads.add_span(span)
            return self._scan_all(span, at, keys, limit, ahead)
        return self._scan_noted(span, limit)

    def _scan_noted(self, span: KeySpan, limit: int) -> Iterator[Batch]:
        """A scan in the order of keys that notes how far it came: what lies behind is not read."""
        assert self.reads is not None
        left = limit
        for batch in self._scan_all(span, None, True, limit, False):
            assert batch.keys is not None
            left -= len(batch.values)
            if len(batch.values):
                self.reads.add_span(KeySpan(span.start, batch.keys.last() + b"\x00"))
            yield batch
        if left > 0:
            self.reads.add_span(span)

    def _scan_all(self, span: KeySpan, at: int | None, keys: bool, limit: int | None, ahead: bool) -> Iterator[Batch]:
        if not self.parts:
            for batch in super().scan(span, at, keys=keys, limit=limit, ahead=ahead):
                check()
                yield batch
            return
        for home, piece in self.pieces(span):
            if home is None:
                batches = super().scan(piece, at, keys=keys, limit=limit)
            else:
                batches = home.scan(piece, home.moment(at), keys=keys, limit=limit)
            for batch in batches:
                check()
                yield batch
                if limit is not None and (limit := limit - len(batch.values)) <= 0:
                    return

    def values_of(self, wanted: Sequence[bytes], at: int | None = None) -> Strings:
        if self.reads is not None and at is None:
            self.reads.add_keys(wanted)
        if not self.parts:
            return super().values_of(wanted, at)
        return Strings.joined([
            super(Routed, self).values_of(some, at) if home is None else home.values_of(some, home.moment(at))
            for home, some in self._sorted(wanted).items()])  # fmt: skip

    def versions_of(self, key: bytes) -> dict[int, bytes | None]:
        if self.reads is not None:
            self.reads.keys.add(key)
        home = self.home(key)
        return super().versions_of(key) if home is None else home.versions_of(key)

    def versions_in(self, span: KeySpan) -> list[tuple[int, int | None, bytes]]:
        if self.reads is not None:
            self.reads.add_span(span)
        return [version for home, piece in self.pieces(span)
                for version in (super(Routed, self).versions_in if home is None else home.versions_in)(piece)]

    def is_ordered(self, *, limited: bool = False) -> bool:
        return super().is_ordered(limited=limited) and all(part.limit is None for part in self.parts)

    def steps(self, span: KeySpan, at: int | None, size: int | None, *, descending: bool = False) -> Iterator[KeySpan]:
        pieces = list(self.pieces(span)) if self.parts else [(None, span)]
        for home, piece in reversed(pieces) if descending else pieces:
            if home is None:
                yield from super().steps(piece, at, size, descending=descending)
            else:
                yield from home.steps(piece, home.moment(at), size, descending=descending)

    def count(self, span: KeySpan, limit: int, at: int | None = None) -> int:
        if self.reads is not None and at is None:
            self.reads.add_span(span)
        return self._counted(span, limit, at)

    def has_changed(self, span: KeySpan, since: int) -> bool:
        return any((super(Routed, self).has_changed if home is None else home.has_changed)(piece, since)
                   for home, piece in self.pieces(span))

    def estimate(self, span: KeySpan, limit: int) -> int:
        return self._counted(span, limit, None)

    def _counted(self, span: KeySpan, limit: int, at: int | None) -> int:
        if not self.parts:
            return super().count(span, limit, at)
        found = 0
        for home, piece in self.pieces(span):
            if found < limit:
                found += super().count(piece, limit - found, at) if home is None else \
                    home.count(piece, limit - found, home.moment(at))
        return found

    def has_all(self, wanted: Strings) -> bool:
        if self.parts or self.reads is not None:
            return len(self.get_many(wanted.to_list())) == len(wanted)
        return super().has_all(wanted)

    def insert(self, version: int, entries: Iterable[tuple[bytes, bytes]]) -> None:
        if not self.parts:
            super().insert(version, entries)
            return
        for home, some in self._sorted(entries, lambda entry: entry[0]).items():
            (super().insert if home is None else home.insert)(version, some)

    def insert_strings(self, version: int, wanted: Strings, values: Strings | None) -> None:
        if not self.parts:
            super().insert_strings(version, wanted, values)
            return
        given = [LIVE] * len(wanted) if values is None else values.to_list()
        self.insert(version, zip(wanted.to_list(), given, strict=True))

    def revive(self, version: int, wanted: Sequence[bytes] | Strings) -> None:
        if not self.parts:
            super().revive(version, wanted)
            return
        wanted = wanted.to_list() if isinstance(wanted, Strings) else wanted
        for home, some in self._sorted(wanted).items():
            (super().revive if home is None else home.revive)(version, some)

    def put(self, version: int, entries: Sequence[tuple[bytes, bytes]]) -> None:
        check()
        if not self.parts:
            super().put(version, entries)
            return
        for home, some in self._sorted(entries, lambda entry: entry[0]).items():
            (super().put if home is None else home.put)(version, some)

    def put_strings(self, version: int, wanted: Strings, values: Strings) -> None:
        check()
        if not self.parts:
            super().put_strings(version, wanted, values)
        else:
            self.put(version, list(zip(wanted.to_list(), values.to_list(), strict=True)))

    def delete(self, version: int, wanted: Sequence[bytes] | Strings) -> None:
        if not self.parts:
            super().delete(version, wanted)
            return
        wanted = wanted.to_list() if isinstance(wanted, Strings) else wanted
        for home, some in self._sorted(wanted).items():
            (super().delete if home is None else home.delete)(version, some)


def read(connection: apsw.Connection) -> list[RoutedRange]:
    """The routing table, by key."""
    rows: Any = connection.execute("SELECT start, url FROM range ORDER BY start").fetchall()
    ends = [start for start, _ in rows[1:]] + [b""]
    return [RoutedRange(start, end, url) for (start, url), end in zip(rows, ends, strict=True)]


def is_home(connection: apsw.Connection) -> bool:
    """Whether a database holds ranges of another one."""
    return connection.execute("SELECT 1 FROM counter WHERE name = ?", (_MARK,)).fetchone() is not None


def undo(connection: apsw.Connection, published: int, line: int = FIRST) -> None:
    """Remove the versions of a line that were written to a range but never published. Inside a transaction."""
    written: Any = connection.execute(f"SELECT {newest(line)}").get
    if written is None or written <= published:
        return
    latest, own = table_of("latest", line)
    gone, past = table_of("gone", line)[0], table_of("past", line)[0]
    mark = f"{line}, " if line else ""
    for sql in (
        f"DELETE FROM {latest} WHERE {own}version > ?",
        f"DELETE FROM {gone} WHERE {own}version > ?",
        f"INSERT OR REPLACE INTO {latest} SELECT {mark}key, version, value FROM {past} "
        f"WHERE {own}until > ? AND value <> x'0101'",
        f"INSERT OR REPLACE INTO {gone} SELECT {mark}key, version FROM {past} WHERE {own}until > ? "
        "AND value = x'0101'",
        f"DELETE FROM {past} WHERE {own}until > ?",
        *([f"DELETE FROM line_mask WHERE {own}first > ?"] if line else []),
    ):
        connection.execute(sql, (published,))
    set_state(connection, line, "version", published)


class KeyRanges:
    """Looks at and changes the ranges of a database."""

    def __init__(self, session: SqlSession) -> None:
        self._session = session

    def list(self) -> Sequence[RoutedRange]:
        """All ranges, by key."""
        with self._session.reading():
            return read(self._session.connection)

    def split(self, key: bytes) -> None:
        """Let a range begin at `key`; it stays in the database that it is in. Raises `DefinitionError`."""
        self._check_key(key)
        with self._session.writing("-- split"):
            held = self._holding(key)
            if held.start == key:
                raise DefinitionError(f"a range begins at {key.hex()} already", sqlstate="42710")
            self._session.connection.execute("INSERT INTO range (start, url) VALUES (?, ?)", (key, held.url))
            faults.reach("sql: range split")
            self._session.keep()

    def merge(self, start: bytes) -> None:
        """Join the range that begins at `start` to the one before it, in the database of that one."""
        self._check_key(start)
        with self._session.writing("-- merge"):
            ranges = read(self._session.connection)
            number = next((n for n, each in enumerate(ranges) if each.start == start and n), None)
            if number is None:
                raise NotFound(f"no range begins at {start.hex()}", hint="see ranges.list()")
            left, right = ranges[number - 1], ranges[number]
            if left.url != right.url:
                self._transfer(right, left.url)
            self._session.connection.execute("DELETE FROM range WHERE start = ?", (start,))
            faults.reach("sql: range merged")
            self._session.keep()
        self._session.reroute()

    def move(self, start: bytes, url: str) -> None:
        """Move the range that begins at `start` to a database of its own at `url`, or, with "", to the main one.

        A relative path is relative to the folder of the main database. Raises `Invalid` if something else is at `url`
        or it cannot keep a range, `UnsupportedError` on a branch, `NotFound`.
        """
        self._check_key(start)
        url = self._known(url)
        if self._session.branch != "main":
            raise UnsupportedError("ranges of a branch cannot be moved", hint="move them on main")
        with self._session.writing("-- move"):
            if self._beginning(start).url == url:
                return
            self._owner()
            self._session.keep()  # before a home carries it: a move that stops has to know that home for its own
        faults.reach("sql: owner of ranges kept")
        with self._session.writing("-- move"):
            held = self._beginning(start)  # somebody else may have written in between
            if held.url == url:
                return
            self._transfer(held, url)
            faults.reach("sql: range moved")
            self._session.keep()
        self._session.reroute()

    def _transfer(self, held: RoutedRange, url: str) -> None:
        """Copy a range to where it is to be, make that its home, and remove it from where it was."""
        session = self._session
        known = session.parts.get(url)
        source = session.connection if held.url == MAIN else session.parts[held.url].connection
        if url == MAIN:
            self._copy(source, session.connection, held)
        elif known is not None:
            self._copy(source, known.connection, held)
            self._note_versions(known.connection)
        else:
            target = session.connect(homes.resolved(session.url, url))
            try:
                target.execute("BEGIN IMMEDIATE")
                self._claim(target, url)
                self._copy(source, target, held)
                self._note_versions(target)
                target.execute("COMMIT")
            finally:
                target.close(True)
        faults.reach("sql: range copied")
        session.connection.execute("UPDATE range SET url = ? WHERE start = ?", (url, held.start))
        where, bindings = _where(held)
        if source is session.connection:
            for table in levels.version_tables(source):
                source.execute(f"DELETE FROM {table.name} WHERE {where}", bindings)

    def _note_versions(self, home: apsw.Connection) -> None:
        """Let a home know how far each line has come, so that nothing there is taken for unpublished."""
        main = self._session.connection
        version: Any = main.execute(f"SELECT {newest(FIRST)}").get
        home.execute("UPDATE state SET version = max(version, ?)", (version,))
        for line in levels.lines(main)[1:]:
            found: Any = main.execute(f"SELECT {newest(line.id)}").get
            home.execute("INSERT INTO line VALUES (?, '', 0, ?, ?, 0, 0, 0) "
                         "ON CONFLICT (id) DO UPDATE SET version = max(version, excluded.version)",
                         (line.id, line.base, found))

    def _undo_lines(self, home: apsw.Connection) -> None:
        """Remove what was written to a home and never published, on any branch, before it is copied."""
        for line in levels.lines(home):
            published: Any = self._session.connection.execute(f"SELECT {newest(line.id)}").get
            undo(home, published or 0, line.id)

    def _owner(self) -> int:
        """What the homes of this database carry, so that no other one takes them for its own."""
        connection = self._session.connection
        given = _ANYBODY + 1 + secrets.randbelow(sys.maxsize - _ANYBODY)
        connection.execute("INSERT OR IGNORE INTO counter (name, next) VALUES (?, ?)", (_OWNER, given))
        owner: Any = connection.execute("SELECT next FROM counter WHERE name = ?", (_OWNER,)).get
        return int(owner)

    def _claim(self, target: apsw.Connection, url: str) -> None:
        """Make sure that a database is empty, or holds what an earlier attempt has left behind, which is removed."""
        owner = self._owner()
        mark: Any = target.execute("SELECT next FROM counter WHERE name = ?", (_MARK,)).get
        version: Any = target.execute(f"SELECT {NEWEST}").get
        if mark is None and version:
            raise Invalid(f"{url} holds tables already", hint="move the range to an empty place")
        if mark == _ANYBODY:
            raise Invalid(f"{url} was used for ranges by an earlier release; whose is not known",
                          hint=f"move the range to an empty place, or delete {url} if no database has a range in it")
        if mark not in (None, owner):
            raise Invalid(f"{url} holds ranges of another database", hint="move the range to an empty place")
        if levels.has_lines(self._session.connection):
            levels.make_room(target)
        for table in ("latest", "past", "gone", "past_node", *(levels.OF_LINE if levels.has_lines(target) else ())):
            target.execute(f"DELETE FROM {table}")
        target.execute("INSERT OR IGNORE INTO counter (name, next) VALUES (?, ?)", (_MARK, owner))

    def _copy(self, source: apsw.Connection, target: apsw.Connection, held: RoutedRange) -> None:
        where, bindings = _where(held)
        if source is not self._session.connection:
            self._undo_lines(source)
        branched = levels.has_lines(source)
        for table, columns in [*_COPY, *(_COPY_LINES if branched else ())]:
            target.execute(f"DELETE FROM {table} WHERE {where}", bindings)  # an earlier attempt may have left some
            marks = ", ".join("?" * len(columns.split(",")))
            rows: Any = source.execute(f"SELECT {columns} FROM {table} WHERE {where}", bindings)
            target.executemany(f"INSERT OR REPLACE INTO {table} ({columns}) VALUES ({marks})", rows)
        for table, key in [("past_node", "part, node"), ("line_past_node", "line, part, node")][: 1 + branched]:
            nodes: Any = source.execute(f"SELECT {key}, first, last FROM {table}").fetchall()
            marks = ", ".join("?" * (len(key.split(",")) + 2))
            target.executemany(
                f"INSERT INTO {table} VALUES ({marks}) ON CONFLICT ({key}) DO UPDATE SET "
                "first = min(first, excluded.first), last = max(last, excluded.last)", nodes)

    def _known(self, url: str) -> str:
        """The URL that a place is known by, if it holds a range already. Raises `Invalid`."""
        if url == MAIN:
            return MAIN
        main = self._session.url
        place = homes.resolved(main, url)
        if homes.is_same(place, main):
            return MAIN
        return next((each for each in self._session.parts if homes.is_same(place, homes.resolved(main, each))), url)

    def _beginning(self, start: bytes) -> RoutedRange:
        """The range that begins at a key. Raises `NotFound`."""
        held = next((each for each in read(self._session.connection) if each.start == start), None)
        if held is None:
            raise NotFound(f"no range begins at {start.hex()}", hint="split one off first")
        return held

    def _holding(self, key: bytes) -> RoutedRange:
        return [each for each in read(self._session.connection) if each.start <= key][-1]

    def _check_key(self, key: bytes) -> None:
        if not isinstance(key, bytes) or not bytes((keys.ROW,)) <= key < _LAST:
            raise DefinitionError(f"{key!r} cannot begin a range", sqlstate="22023",
                                  hint="give the bytes of a key of rows or index entries; the catalog stays together")
        if self._session.transaction is not None:
            raise TransactionError("ranges cannot be changed within a transaction", sqlstate="25001",
                                   hint="COMMIT it first")


def _where(held: RoutedRange) -> tuple[str, tuple[bytes, ...]]:
    return ("key >= ? AND key < ?", (held.start, held.end)) if held.end else ("key >= ?", (held.start,))


def described(key: bytes, catalog: SqlCatalog) -> str:
    """What stands at a key, for people."""
    if not key or key[0] < keys.ROW:
        return "catalog"
    table = catalog.by_id.get(int.from_bytes(key[1:9].ljust(8, b"\x00"), "big"))
    name = table.full_name if table is not None else "a table that is not there"
    return f"rows of {name}" if key[0] == keys.ROW else f"indexes of {name}"
