"""Reading and writing the ordered keyspace, within a transaction of its connection.

Reads are one statement a batch: SQLite strings the values together, so that no Python object is made per row. A branch
of a native file reads several levels (see `levels`): its own versions, and where it has none, those of lines below it.
Only this module and `BranchLog` know that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apsw

from ontolake.sql.keyspace import mass_writes, nodes, packing
from ontolake.sql.keyspace.batches import Batch, fetched_ahead, living, strings
from ontolake.sql.keyspace.keys import after
from ontolake.sql.keyspace.levels import MAIN_LEVELS, OWN, Level, newest, table_of
from ontolake.sql.keyspace.mass_writes import StoredKeys
from ontolake.sql.keyspace.rows import LIVE, TOMBSTONE
from ontolake.sql.keyspace.vectors import Strings

BATCH = 65536
_MANY = 512
_FEW_OUTSIDE = 20_000

_VALUES = "SELECT CAST(group_concat(value, '') AS BLOB), group_concat(length(value))"
_BOTH = _VALUES + ", CAST(group_concat(key, '') AS BLOB), group_concat(length(key))"
_BOUND = "SELECT key FROM {} ORDER BY key LIMIT 1 OFFSET ?"
_LATEST, _PAST = "latest WHERE key >= ? AND key < ?", "past WHERE node = ? AND key >= ? AND key < ?"
_THEN = " AND version <= ?"
_LIVED = " AND version <= ? AND until > ?"
_NO_TOMBSTONE = f" AND value <> x'{TOMBSTONE.hex()}'"
_THESE = (_VALUES.replace("value", "latest.value")
          + " FROM carray(?) AS wanted CROSS JOIN latest ON latest.key = wanted.value")
_EVER = 1 << 62
"""Later than any version."""


class KeySpan(NamedTuple):
    """A range of keys, without its end."""

    start: bytes
    end: bytes


class KeyPlace(NamedTuple):
    """Where some keys of a span are: a table with a condition on the ends of the span, and what to bind before them."""

    where: str
    node: tuple[int, ...]


class _Source(NamedTuple):
    """Where values come from: a table, and what holds for those that lived at a moment."""

    where: str
    filter: str = ""
    node: tuple[int, ...] = ()
    more: tuple[int, ...] = ()
    line: int = 0
    masks: tuple[tuple[int, int], ...] = ()
    """The lines that may have changed keys before they could be read here, and up to which version each counts."""

    @property
    def masked(self) -> str:
        """The same without keys that a nearer level has changed; `bindings` go with it."""
        if not self.masks:
            return self.where + self.filter
        table = self.where.partition(" ")[0]
        masks = [table_of("mask", line) for line, _ in self.masks]
        return self.where + self.filter + "".join(
            f" AND NOT EXISTS (SELECT 1 FROM {mask} m WHERE {own}m.key = {table}.key AND m.first <= ?)"
            for mask, own in masks)  # fmt: skip

    @property
    def bindings(self) -> tuple[int, ...]:
        return (*self.more, *(moment for _, moment in self.masks))

    @property
    def living(self) -> str:
        """The same without tombstones. Where all are read, it is quicker to leave them out afterwards."""
        return self.masked + (_NO_TOMBSTONE if self.node else "")


class Keyspace:
    """The keyspace of one connection. `node` is told of every version that is superseded.

    It is written to at the first of its levels, and read at all of them.
    """

    def __init__(self, connection: apsw.Connection, levels: Sequence[Level] = MAIN_LEVELS) -> None:
        self.connection = connection
        self.levels = tuple(levels)
        self.line = self.levels[0].line
        self.is_branch = self.line != 0
        """Whether versions of other lines may be read too."""
        self.open_nodes: dict[tuple[bytes, int], tuple[int, int]] = {}
        """Nodes that were written to in this transaction, with the first and last version in them."""
        self.all_newer: dict[tuple[int, bytes], int] = {}
        """A version since which all rows of a table have changed. It stays so: what is there only gets newer."""
        latest, own = table_of("latest", self.line)
        line, mark = ("line, ", f"{self.line}, ") if self.line > 0 else ("", "")
        self._get = f"SELECT value FROM {latest} WHERE {own}key = ?"
        self._insert_one = f"INSERT INTO {latest} ({line}key, version, value) VALUES ({mark}?, ?, ?)"
        self._insert_at = f"INSERT INTO {latest} ({line}key, version, value) VALUES ({mark}?, {{}}, {{}})"
        self._replace = f"INSERT OR REPLACE INTO {latest} ({line}key, version, value) VALUES ({mark}?, ?, ?)"
        self._count = f"SELECT count(*) FROM (SELECT 1 FROM {latest} WHERE {own}key >= ? AND key < ? LIMIT ?)"
        if self.line != OWN:
            connection.create_scalar_function("node_of", self._node_of, 3, deterministic=True)  # type: ignore[arg-type]

    def _node_of(self, key: bytes, version: int, until: int) -> int:
        return self.note_node(nodes.part(key), version, until)

    def note_node(self, part: bytes, version: int, until: int) -> int:
        """The node of a span of versions, which a part of the keyspace has something of from now on."""
        found = nodes.node(version, until)
        where = (part, found)
        first, last = self.open_nodes.get(where, (version, until))
        self.open_nodes[where] = (min(first, version), max(last, until))
        return found

    # reading

    def get(self, key: bytes) -> bytes | None:
        """The newest value of a key."""
        found = self.connection.execute(self._get, (key,)).fetchone()
        if found is None and self.is_branch:
            return self.get_many([key]).get(key)
        return None if found is None else found[0]

    def get_many(self, wanted: Sequence[bytes], at: int | None = None) -> dict[bytes, bytes]:
        """The values of those keys that are there, now or at a version."""
        found: dict[bytes, bytes] = {}
        for begin in range(0, len(wanted), _MANY):
            chunk = wanted[begin : begin + _MANY]
            if not self.is_branch:
                found |= self._at_level(0, chunk, at)
                continue
            for level, moment in self._moments(at):
                here = self._at_level(level.line, chunk, moment)
                found |= here
                if level is self.levels[-1]:
                    break
                hidden = self._hidden(level.line, chunk, _EVER if moment is None else moment)
                chunk = [key for key in chunk if key not in here and key not in hidden]
                if not chunk:
                    break
        return found

    def has_all(self, wanted: Strings) -> bool:
        """Whether all of some keys, each given once, are there now."""
        there = len(self.get_many(wanted.to_list())) if self.is_branch else mass_writes.count(self.connection, wanted)
        return there == len(wanted)

    def _at_level(self, line: int, chunk: Sequence[bytes], at: int | None) -> dict[bytes, bytes]:
        """The values that a line itself has for some keys."""
        marks, padded = packing.padded(chunk)
        latest, own = table_of("latest", line)
        if at is None:
            return dict(self._rows(f"SELECT key, value FROM {latest} WHERE {own}key IN ({marks})", padded))
        sql = f"SELECT key, value FROM {latest} WHERE {own}version <= ? AND key IN ({marks})"
        found: dict[bytes, bytes] = dict(self._rows(sql, [at, *padded]))
        if len(found) == len(chunk) or line == OWN:
            return found
        past, own = table_of("past", line)
        parts = {nodes.part(key) for key in chunk}
        for node in sorted({node for part in parts for node in self._nodes(part, at, line)}):
            sql = (f"SELECT key, value FROM {past} WHERE {own}node = ? AND version <= ? AND until > ? "
                   f"AND key IN ({marks}){_NO_TOMBSTONE}")  # fmt: skip
            found.update(self._rows(sql, [node, at, at, *padded]))
        return found

    def _hidden(self, line: int, chunk: Sequence[bytes], moment: int) -> set[bytes]:
        """Those of some keys that a line had changed by a version, so that lower levels do not count."""
        marks, padded = packing.padded(chunk)
        mask, own = table_of("mask", line)
        sql = f"SELECT key FROM {mask} WHERE {own}first <= ? AND key IN ({marks})"
        return {key for (key,) in self._rows(sql, [moment, *padded])}

    def _moments(self, at: int | None) -> Iterator[tuple[Level, int | None]]:
        """The levels that have something of now, or of a version, and the version that each is read at."""
        for level in self.levels:
            if at is None:
                yield level, level.until
            elif at > level.base or level is self.levels[-1]:
                yield level, at if level.until is None else min(at, level.until)

    def scan(
        self, span: KeySpan, at: int | None = None, *, keys: bool = False, limit: int | None = None, ahead: bool = False
    ) -> Iterator[Batch]:
        """What lives in a span now, or lived at a version. By key within latest, and within each node of the past.

        What lives now comes by key as a whole, but on a branch only with a limit; then its keys come along. With
        `ahead` the next batch is fetched while the caller works on one; it must not use the connection then.
        """
        if self.is_branch and at is None and limit is not None:
            return self._scan_by_key(span, limit)
        batches = self._scan(span, at, keys, limit)
        return fetched_ahead(batches, BATCH) if ahead else batches

    def _scan(self, span: KeySpan, at: int | None, keys: bool, limit: int | None) -> Iterator[Batch]:
        for source in self._sources(span, at):
            piece = span
            if not source.node and source.more:
                if (first := self._first(span, source.more[0], source.line)) is None:
                    continue
                piece = KeySpan(first, span.end)
            for batch in self._batches(source, piece, keys, limit):
                yield batch
                if limit is not None and (limit := limit - len(batch.values)) <= 0:
                    return

    def _scan_by_key(self, span: KeySpan, limit: int) -> Iterator[Batch]:
        """What lives in a span now on all levels together, by key, with keys."""
        for step in self.steps(span, None, limit):
            entries = [entry for batch in self._scan(step, None, True, None) if batch.keys is not None
                       for entry in zip(batch.keys.to_list(), batch.values.to_list(), strict=True)]
            entries = sorted(entries)[:limit]
            if entries:
                yield Batch(Strings.of([value for _, value in entries]), Strings.of([key for key, _ in entries]))
            limit -= len(entries)
            if limit <= 0:
                return

    def _sources(self, span: KeySpan, at: int | None) -> list[_Source]:
        """Where all that lives in a span now, or lived at a version, comes from. What surely has some is first."""
        if at is None and not self.is_branch:
            return [_Source(_LATEST)]
        found: list[_Source] = []
        masks: tuple[tuple[int, int], ...] = ()
        for level, moment in self._moments(at):
            found += self._sources_of(level.line, nodes.part(span.start), moment, masks)
            masks = (*masks, (level.line, _EVER if moment is None else moment))
        return found

    def _sources_of(
        self, line: int, part: bytes, at: int | None, masks: tuple[tuple[int, int], ...]
    ) -> list[_Source]:  # fmt: skip
        """Where the versions that one line has now, or had at a version, come from."""
        latest, past = _where("latest", _LATEST, line), _where("past", _PAST, line)
        if at is None or line == OWN:
            return [_Source(latest, line=line, masks=masks)]
        found = sorted(self._nodes(part, at, line), key=lambda node: node != at)
        return [*(_Source(past, "", (node,), (), line, masks) if node == at  # all that stands there lived then
                  else _Source(past, _LIVED, (node,), (at, at), line, masks) for node in found),
                _Source(latest, _THEN, (), (at,), line, masks)]  # fmt: skip

    def _first(self, span: KeySpan, at: int, line: int) -> bytes | None:
        """The first key of a span that a line has not changed since a version."""
        part = nodes.part(span.start)
        if at <= self.all_newer.get((line, part), -1):
            return None
        sql = f"SELECT key FROM {_where('latest', _LATEST, line)}{_THEN} ORDER BY key LIMIT 1"
        found: Any = self.connection.execute(sql, (*span, at)).fetchone()
        if found is None and span == KeySpan(part, after(part)) and self.is_settled():
            self.all_newer[line, part] = at
        return None if found is None else found[0]

    def is_settled(self) -> bool:
        """Whether what can be read now was committed for good."""
        return self.connection.txn_state("main") == apsw.SQLITE_TXN_READ

    def is_ordered(self, *, limited: bool = False) -> bool:
        """Whether a scan of what is there now, or one with a limit, gives values in the order of their keys."""
        return limited or not self.is_branch

    def steps(self, span: KeySpan, at: int | None, size: int | None, *, descending: bool = False) -> Iterator[KeySpan]:
        """The parts of a span from its first key on, or with `descending` from its last.

        Each but the last has at least `size` keys that live now, or lived at a version; later ones have more.
        """
        sources = self._sources(span, at)
        size = BATCH // 16 + 1 if size is None else size
        order = "key DESC" if descending else "key"
        while span.start < span.end:
            edge: bytes | None = None
            for source in sources:  # the nearest edge of all of them, and nothing beyond one that is known
                where = span if edge is None else KeySpan(edge, span.end) if descending else KeySpan(span.start, edge)
                sql = f"SELECT key FROM {source.living} ORDER BY {order} LIMIT 1 OFFSET ?"
                bindings = (*source.node, *where, *source.bindings, size - 1 if descending else size)
                found: Any = self.connection.execute(sql, bindings).fetchone()
                edge = edge if found is None else found[0]
            if edge is None:
                yield span
                return
            yield KeySpan(edge, span.end) if descending else KeySpan(span.start, edge)
            span = KeySpan(span.start, edge) if descending else KeySpan(edge, span.end)
            size = max(size, min(size * 4, BATCH))

    def values_of(self, wanted: Sequence[bytes], at: int | None = None) -> Strings:
        """The values of those keys that are there, now or at a version, in no particular order."""
        if at is not None or self.is_branch:
            return Strings.of(list(self.get_many(wanted, at).values()))
        found = [self._values_of(tuple(wanted[begin : begin + BATCH])) for begin in range(0, len(wanted), BATCH)]
        return found[0] if len(found) == 1 else Strings.joined(found)

    def _values_of(self, wanted: tuple[bytes, ...]) -> Strings:
        try:
            row: Any = self.connection.execute(_THESE, (apsw.carray(wanted),)).fetchone()
        except apsw.TooBigError:
            if len(wanted) == 1:
                raise
            middle = len(wanted) // 2
            return Strings.joined([self._values_of(wanted[:middle]), self._values_of(wanted[middle:])])
        return strings(row[0], row[1])

    def count(self, span: KeySpan, limit: int, at: int | None = None) -> int:
        """How many keys a span has now, or had at a version, but no more than `limit`."""
        if not self.is_branch and at is None:
            if limit >= _EVER and (whole := self._count_whole(span)) is not None:
                return whole
            number: Any = self.connection.execute(self._count, (*span, limit)).get
            return int(number)
        found = 0
        for source in self._sources(span, at):
            if found < limit:
                sql = f"SELECT count(*) FROM (SELECT 1 FROM {source.living} LIMIT ?)"
                number = self.connection.execute(sql, (*source.node, *span, *source.bindings, limit - found)).get
                found += int(number)
        return found

    def _count_whole(self, span: KeySpan) -> int | None:
        """How many keys a span has if few are outside of it: SQLite counts a whole table without looking at rows."""
        sql = "SELECT count(*) FROM (SELECT 1 FROM latest WHERE key {} ? LIMIT ?)"
        outside: list[Any] = [self.connection.execute(sql.format(sign), (edge, _FEW_OUTSIDE + 1)).get
                              for sign, edge in (("<", span.start), (">=", span.end))]  # fmt: skip
        if max(outside) > _FEW_OUTSIDE:
            return None
        number: Any = self.connection.execute("SELECT count(*) FROM latest").get
        return int(number - sum(outside))

    def estimate(self, span: KeySpan, limit: int) -> int:
        """The same as `count`, for a choice that no answer depends on: it does not count as a read."""
        return self.count(span, limit)

    def has_changed(self, span: KeySpan, since: int) -> bool:
        """Whether the line has written or removed a key of a span after a version."""
        found = [table_of(name, self.line) for name in ("latest", "gone")]
        return any(self.connection.execute(f"SELECT 1 FROM {table} WHERE {own}key >= ? AND key < ? AND version > ? "
                                           "LIMIT 1", (*span, since)).fetchone() for table, own in found)  # fmt: skip

    def places(self, span: KeySpan) -> list[KeyPlace]:
        """Where keys of a span can be that are there now, and others besides: good for estimates."""
        return [KeyPlace(source.where, source.node) for source in self._sources(span, None)]

    def nearest(self, span: KeySpan) -> bytes | None:
        """About the first key of a span: one of `places`."""
        found = [self.connection.execute(f"SELECT min(key) FROM {place.where}", (*place.node, *span)).get
                 for place in self.places(span)]  # fmt: skip
        return min((key for key in found if isinstance(key, bytes)), default=None)

    def versions_of(self, key: bytes) -> dict[int, bytes | None]:
        """All versions of a key that are kept, by commit; None for one that removed it."""
        found: dict[int, bytes | None] = {}
        for level, moment in self._moments(None):
            until = _EVER if moment is None else moment
            if level.line == OWN:  # it has no past, and what it removed is no version yet
                found |= dict(self._rows("SELECT version, value FROM own_latest WHERE key = ?", (key,)))
                continue
            (latest, own), (gone, _), (past, _) = (table_of(name, level.line) for name in ("latest", "gone", "past"))
            sql = (f"SELECT p.version, p.value FROM ({self._all_nodes(level.line)}) n "
                   f"CROSS JOIN {past} p ON {own}p.node = n.node AND p.key = ? WHERE p.version <= ?")  # fmt: skip
            for version, value in self._rows(sql, (nodes.part(key), key, until)):
                found[version] = None if value == TOMBSTONE else value
            for value, table in (("value", latest), ("NULL", gone)):
                sql = f"SELECT version, {value} FROM {table} WHERE {own}key = ? AND version <= ?"
                found |= dict(self._rows(sql, (key, until)))
        return found

    def versions_in(self, span: KeySpan) -> list[tuple[int, int | None, bytes]]:
        """All versions of the keys of a span that are kept: from which commit on, up to which, and the value."""
        found: list[tuple[int, int | None, bytes]] = []
        masked: dict[bytes, int] = {}
        for level, moment in self._moments(None):
            last = _EVER if moment is None else moment
            if level.line == OWN:
                found += self._rows("SELECT version, NULL, value FROM own_latest WHERE key >= ? AND key < ?", span)
                masked |= dict(self._rows("SELECT key, first FROM own_mask WHERE key >= ? AND key < ?", span))
                continue
            (latest, own), (past, _) = (table_of(name, level.line) for name in ("latest", "past"))
            rows = self._rows(f"SELECT key, version, NULL, value FROM {latest} WHERE {own}key >= ? AND key < ? "
                              "AND version <= ?", (*span, last))  # fmt: skip
            rows += self._rows(
                f"SELECT p.key, p.version, p.until, p.value FROM ({self._all_nodes(level.line)}) n "
                f"CROSS JOIN {past} p ON {own}p.node = n.node AND p.key >= ? AND p.key < ? "
                f"WHERE p.version <= ?{_NO_TOMBSTONE}", (nodes.part(span.start), *span, last))  # fmt: skip
            for key, version, until, value in rows:
                ended = masked.get(key) if until is None or until > last else until
                found.append((version, ended, value))
            if level is not self.levels[-1]:
                masked |= dict(self._rows(f"SELECT key, first FROM line_mask WHERE line = {level.line} "
                                          "AND key >= ? AND key < ? AND first <= ?", (*span, last)))  # fmt: skip
        return found

    def _all_nodes(self, line: int) -> str:
        table, own = table_of("past_node", line)
        return f"SELECT DISTINCT node FROM {table} WHERE {own}part = ?"

    def _batches(self, source: _Source, span: KeySpan, keys: bool, limit: int | None) -> Iterator[Batch]:
        """Batches of a source. Where each ends is looked up first: a limit on what is strung together costs more."""
        selected = _BOTH if keys else _VALUES
        plain, masked = f"{selected} FROM {source.where}{source.filter}", f"{selected} FROM {source.masked}"
        bound = _BOUND.format(source.where if limit is None else source.living)
        far = _BOUND.format(source.where.removesuffix(" AND key < ?"))
        more = () if limit is None else source.bindings
        size, left, start = BATCH, limit, span.start
        while left is None or left > 0:
            room = size if left is None else min(size, left)
            if limit is None and start > span.start:  # it is a long way to the end: SQLite need not look out for it
                ends: Any = self.connection.execute(far, (*source.node, start, room)).fetchone()
                ends = None if ends is None or ends[0] >= span.end else ends
            else:
                ends = self.connection.execute(bound, (*source.node, start, span.end, *more, room)).fetchone()
            end = span.end if ends is None else ends[0]
            hides = bool(source.masks) and self._hides(source.masks, KeySpan(start, end))
            sql, bindings = (masked, source.bindings) if hides else (plain, source.more)
            try:
                row: Any = self.connection.execute(sql, (*source.node, start, end, *bindings)).fetchone()
            except apsw.TooBigError:
                if size == 1:
                    raise
                size = max(1, size // 16)
                continue
            if row[0] is not None:
                batch = Batch(strings(row[0], row[1]), strings(row[2], row[3]) if keys else None)
                batch = living(batch) if source.node else batch
                left = None if left is None else left - len(batch.values)
                yield batch
            if ends is None:
                return
            start = end

    def _hides(self, masks: Sequence[tuple[int, int]], span: KeySpan) -> bool:
        """Whether nearer levels have changed any key of a span."""
        found = [table_of("mask", line) for line, _ in masks]
        return any(self.connection.execute(f"SELECT 1 FROM {mask} WHERE {own}key >= ? AND key < ? LIMIT 1",
                                           span).fetchone() for mask, own in found)  # fmt: skip

    def _nodes(self, part: bytes, at: int, line: int = 0) -> list[int]:
        """The nodes of a part of the keyspace that hold something of a line that may have lived at a version."""
        version: Any = self.connection.execute(f"SELECT {newest(line)}").get
        path = nodes.ancestors(at, (version or 0) + 1)
        table, own = table_of("past_node", line)
        sql = (f"SELECT node FROM {table} WHERE {own}part = ? AND first <= ? AND last > ? "
               f"AND node IN ({', '.join(map(str, path)) or '0'})")  # fmt: skip
        stored = {row[0] for row in self._rows(sql, (part, at, at))}
        if line != self.line:
            return sorted(stored)
        path_set = set(path)
        here = {node for (where, node), (first, last) in self.open_nodes.items()
                if where == part and node in path_set and first <= at < last}  # fmt: skip
        return sorted(stored | here)

    def _rows(self, sql: str, bindings: Sequence[Any]) -> list[Any]:
        return self.connection.execute(sql, bindings).fetchall()

    # writing

    def insert(self, version: int, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Put keys that are not there now, and have no tombstone: see `revive`. Raises `apsw.ConstraintError`."""
        if self.is_branch:
            entries = self._checked(entries)
        if isinstance(entries, list) and len(entries) <= _MANY:  # one statement for all versions, which SQLite knows
            self.connection.executemany(self._insert_one, [(key, version, value) for key, value in entries])
        else:
            self.connection.executemany(self._insert_at.format(version, "?"), entries)

    def insert_strings(self, version: int, wanted: Strings, values: Strings | None) -> None:
        """Put many keys in their order, as `insert` does; without values, index entries that carry no columns.

        SQLite cuts keys and values out of one buffer a statement, so that no Python object is made per row.
        """
        if self.is_branch:
            marks = [LIVE] * len(wanted)
            self.insert(version, zip(wanted.to_list(), marks if values is None else values.to_list(), strict=True))
            return
        mass_writes.write(self.connection, "INSERT", version, wanted, values)

    def _checked(self, entries: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Entries none of whose keys lower levels have. Raises what SQLite raises for those of its own."""
        found = list(entries)
        for begin in range(0, len(found), _MANY):
            if self.get_many([key for key, _ in found[begin : begin + _MANY]]):
                raise apsw.ConstraintError("UNIQUE constraint failed: a lower level has the key")
        return found

    def put(self, version: int, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Put keys that are there now: what stood there becomes the past, unless this transaction wrote it."""
        if not self.is_branch and len(entries) > _MANY:
            self._put_strings(version, Strings.of([key for key, _ in entries]),
                              Strings.of([value for _, value in entries]))
            return
        self._supersede(version, [key for key, _ in entries])
        self.connection.executemany(self._replace, [(key, version, value) for key, value in entries])

    def put_strings(self, version: int, wanted: Strings, values: Strings) -> None:
        """Put many keys, as `put` does."""
        if self.is_branch:
            self.put(version, list(zip(wanted.to_list(), values.to_list(), strict=True)))
        else:
            self._put_strings(version, wanted, values)

    def _put_strings(self, version: int, wanted: Strings, values: Strings) -> None:
        mass_writes.supersede(self, version, StoredKeys.of(self.connection, wanted))
        mass_writes.write(self.connection, "INSERT OR REPLACE", version, wanted, values)

    def delete(self, version: int, wanted: Sequence[bytes] | Strings) -> None:
        """Leave tombstones for keys that are there now."""
        if not self.is_branch and len(wanted) > _MANY:
            stored = StoredKeys.of(self.connection, wanted if isinstance(wanted, Strings) else Strings.of(wanted))
            mass_writes.supersede(self, version, stored)
            mass_writes.remove(self.connection, version, stored)
            return
        wanted = wanted.to_list() if isinstance(wanted, Strings) else wanted
        self._supersede(version, wanted)
        latest, own = table_of("latest", self.line)
        self.connection.executemany(f"DELETE FROM {latest} WHERE {own}key = ?", ((key,) for key in wanted))
        gone = table_of("gone", self.line)[0]
        mark = f"{self.line}, " if self.line > 0 else ""
        self.connection.executemany(f"INSERT OR REPLACE INTO {gone} VALUES ({mark}?, ?)",
                                    ((key, version) for key in wanted))

    def revive(self, version: int, wanted: Sequence[bytes] | Strings) -> None:
        """Move the tombstones of keys that are to be put again to the past; those of this very transaction vanish.

        `Strings` are in their order.
        """
        gone, own = table_of("gone", self.line)
        if not self.connection.execute(f"SELECT 1 FROM {gone} WHERE {own}1 LIMIT 1").fetchone():
            return
        if isinstance(wanted, Strings):
            sql = f"SELECT key FROM {gone} WHERE {own}key >= ? AND key <= ? ORDER BY key LIMIT ?"
            near = self._rows(sql, (wanted.at(0), wanted.at(-1), len(wanted) + 1))
            if not near:
                return
            wanted = wanted.to_list() if len(near) > _MANY else wanted.among([key for (key,) in near])
        dead = []
        for begin in range(0, len(wanted), _MANY):
            marks, padded = packing.padded(wanted[begin : begin + _MANY])
            dead += self._rows(f"SELECT key FROM {gone} WHERE {own}key IN ({marks})", padded)
        if dead and self.line == OWN:
            self.connection.executemany("DELETE FROM own_gone WHERE key = ?", dead)
        elif dead:
            self.connection.executemany(
                f"INSERT INTO {self._past} key, version, ?2, x'{TOMBSTONE.hex()}' FROM {gone} "
                f"WHERE {own}key = ?1 AND version < ?2", [(key, version) for (key,) in dead])
            self.connection.executemany(f"DELETE FROM {gone} WHERE {own}key = ?", dead)

    def close_nodes(self) -> None:
        """Write down which nodes were written to. Before a commit."""
        if self.open_nodes:
            table, mark, line = ("past_node", "", "") if not self.line else ("line_past_node", f"{self.line}, ",
                                                                             "line, ")
            self.connection.executemany(
                f"INSERT INTO {table} VALUES ({mark}?, ?, ?, ?) ON CONFLICT ({line}part, node) DO UPDATE SET "
                "first = min(first, excluded.first), last = max(last, excluded.last)",
                [(part, node, *span) for (part, node), span in self.open_nodes.items()])  # fmt: skip
            self.open_nodes = {}

    @property
    def _past(self) -> str:
        """The beginning of a statement that fills the past; the columns from `key` on follow."""
        return "past SELECT node_of(key, version, ?2)," if not self.line else \
            f"line_past SELECT {self.line}, node_of(key, version, ?2),"

    def _supersede(self, version: int, wanted: Sequence[bytes]) -> None:
        latest, own = table_of("latest", self.line)
        if self.is_branch:  # what the line has not written itself is changed for the first time
            mask, mark = table_of("mask", self.line)[0], f"{self.line}, " if self.line > 0 else ""
            self.connection.executemany(
                f"INSERT OR IGNORE INTO {mask} SELECT {mark}?1, ?2 "
                f"WHERE NOT EXISTS (SELECT 1 FROM {latest} WHERE {own}key = ?1)", [(key, version) for key in wanted])
        if self.line == OWN:
            return
        self.connection.executemany(
            f"INSERT INTO {self._past} key, version, ?2, value FROM {latest} "
            f"WHERE {own}key = ?1 AND version < ?2", ((key, version) for key in wanted))


def _where(table: str, condition: str, line: int) -> str:
    """A condition on a table, for the rows of a line."""
    named, own = table_of(table, line)
    return condition if not line else condition.replace(f"{table} WHERE ", f"{named} WHERE {own}")
