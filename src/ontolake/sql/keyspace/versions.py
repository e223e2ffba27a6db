"""Reading and writing the ordered keyspace, within a transaction of its connection.

Reads are one statement a batch: SQLite strings the values together, so that no Python object is made per row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import apsw
import numpy as np

from ontolake.sql.keyspace import nodes
from ontolake.sql.keyspace.keys import after
from ontolake.sql.keyspace.layout import NEWEST
from ontolake.sql.keyspace.rows import LIVE, TOMBSTONE
from ontolake.sql.keyspace.vectors import Strings, offsets_of

BATCH = 65536
_MANY = 512

_VALUES = "SELECT CAST(group_concat(value, '') AS BLOB), group_concat(length(value))"
_BOTH = _VALUES + ", CAST(group_concat(key, '') AS BLOB), group_concat(length(key))"
_BOUND = "SELECT key FROM {} ORDER BY key LIMIT 1 OFFSET ?"
_INSERT = "INSERT INTO latest (key, version, value) VALUES (?, ?, ?)"
_REPLACE = "INSERT OR REPLACE INTO latest (key, version, value) VALUES (?, ?, ?)"
_FIRST = "SELECT key FROM latest WHERE key >= ? AND key < ? AND version <= ? ORDER BY key LIMIT 1"
_LATEST, _PAST = "latest WHERE key >= ? AND key < ?", "past WHERE node = ? AND key >= ? AND key < ?"
_THEN = " AND version <= ?"
_LIVED = " AND version <= ? AND until > ?"
_NO_TOMBSTONE = f" AND value <> x'{TOMBSTONE.hex()}'"
_THESE = (_VALUES.replace("value", "latest.value")
          + " FROM carray(?) AS wanted CROSS JOIN latest ON latest.key = wanted.value")
_OPEN = ("SELECT node FROM past_node WHERE part = ? AND first <= ? AND last > ? AND node IN ({})")
_COUNT = "SELECT count(*) FROM (SELECT 1 FROM latest WHERE key >= ? AND key < ? LIMIT ?)"


class KeySpan(NamedTuple):
    """A range of keys, without its end."""

    start: bytes
    end: bytes


class Batch(NamedTuple):
    """Values of a scan, and their keys if they were asked for."""

    values: Strings
    keys: Strings | None


class _Source(NamedTuple):
    """Where values come from: a table, and what holds for those that lived at a moment."""

    where: str
    filter: str = ""
    node: tuple[int, ...] = ()
    more: tuple[int, ...] = ()

    @property
    def living(self) -> str:
        """The same without tombstones. Where all are read, it is quicker to leave them out afterwards."""
        return self.where + self.filter + (_NO_TOMBSTONE if self.node else "")


class Keyspace:
    """The keyspace of one connection. `node` is told of every version that is superseded."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.open_nodes: dict[tuple[bytes, int], tuple[int, int]] = {}
        """Nodes that were written to in this transaction, with the first and last version in them."""
        self.all_newer: dict[bytes, int] = {}
        """A version since which all rows of a table have changed. It stays so: what is there only gets newer."""
        connection.create_scalar_function("node_of", self._node_of, 3, deterministic=True)  # type: ignore[arg-type]

    def _node_of(self, key: bytes, version: int, until: int) -> int:
        found = nodes.node(version, until)
        where = (nodes.part(key), found)
        first, last = self.open_nodes.get(where, (version, until))
        self.open_nodes[where] = (min(first, version), max(last, until))
        return found

    # reading

    def get(self, key: bytes) -> bytes | None:
        """The newest value of a key."""
        found = self.connection.execute("SELECT value FROM latest WHERE key = ?", (key,)).fetchone()
        return None if found is None else found[0]

    def get_many(self, wanted: Sequence[bytes], at: int | None = None) -> dict[bytes, bytes]:
        """The values of those keys that are there, now or at a version."""
        found: dict[bytes, bytes] = {}
        for begin in range(0, len(wanted), _MANY):
            chunk = wanted[begin : begin + _MANY]
            marks = _marks(len(chunk))
            padded = [*chunk, *([None] * (marks.count("?") - len(chunk)))]
            if at is None:
                found.update(self._rows(f"SELECT key, value FROM latest WHERE key IN ({marks})", padded))
                continue
            sql = f"SELECT key, value FROM latest WHERE version <= ? AND key IN ({marks})"
            found.update(self._rows(sql, [at, *padded]))
            for node in sorted({node for part in {nodes.part(key) for key in chunk} for node in self._nodes(part, at)}):
                sql = ("SELECT key, value FROM past WHERE node = ? AND version <= ? AND until > ? "
                       f"AND key IN ({marks}){_NO_TOMBSTONE}")  # fmt: skip
                found.update(self._rows(sql, [node, at, at, *padded]))
        return found

    def scan(
        self, span: KeySpan, at: int | None = None, *, keys: bool = False, limit: int | None = None, ahead: bool = False
    ) -> Iterator[Batch]:
        """What lives in a span now, or lived at a version. By key within latest, and within each node of the past.

        With `ahead` the next batch is fetched while the caller works on one; it must not use the connection then.
        """
        batches = self._scan(span, at, keys, limit)
        return _ahead(batches) if ahead else batches

    def _scan(self, span: KeySpan, at: int | None, keys: bool, limit: int | None) -> Iterator[Batch]:
        for source in self._sources(span, at):
            if at is not None and source.where is _LATEST:
                if (first := self._first(span, at)) is None:
                    return
                span = KeySpan(first, span.end)
            for batch in self._batches(source, span, keys, limit):
                yield batch
                if limit is not None and (limit := limit - len(batch.values)) <= 0:
                    return

    def _sources(self, span: KeySpan, at: int | None) -> list[_Source]:
        """Where all that lives in a span now, or lived at a version, comes from. What surely has some is first."""
        if at is None:
            return [_Source(_LATEST)]
        found = sorted(self._nodes(nodes.part(span.start), at), key=lambda node: node != at)
        past = [_Source(_PAST, "", (node,)) if node == at  # all that stands there has this moment in its span
                else _Source(_PAST, _LIVED, (node,), (at, at)) for node in found]  # fmt: skip
        return [*past, _Source(_LATEST, _THEN, (), (at,))]

    def _first(self, span: KeySpan, at: int) -> bytes | None:
        """The first key of a span that has not changed since a version."""
        part = nodes.part(span.start)
        if at <= self.all_newer.get(part, -1):
            return None
        found: Any = self.connection.execute(_FIRST, (*span, at)).fetchone()
        if found is None and span == KeySpan(part, after(part)) and self.is_settled():
            self.all_newer[part] = at
        return None if found is None else found[0]

    def is_settled(self) -> bool:
        """Whether what can be read now was committed for good."""
        return self.connection.txn_state("main") == apsw.SQLITE_TXN_READ

    def is_ordered(self) -> bool:
        """Whether a scan of what is there now gives values in the order of their keys."""
        return True

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
                bindings = (*source.node, *where, *source.more, size - 1 if descending else size)
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
        if at is not None:
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
        return _strings(row[0], row[1])

    def count(self, span: KeySpan, limit: int) -> int:
        """How many keys a span has now, but no more than `limit`."""
        found: Any = self.connection.execute(_COUNT, (*span, limit)).get
        return int(found)

    def _batches(self, source: _Source, span: KeySpan, keys: bool, limit: int | None) -> Iterator[Batch]:
        """Batches of a source. Where each ends is looked up first: a limit on what is strung together costs more."""
        sql = f"{_BOTH if keys else _VALUES} FROM {source.where}{source.filter}"
        bound = _BOUND.format(source.where if limit is None else source.living)
        far = _BOUND.format(source.where.removesuffix(" AND key < ?"))
        more = () if limit is None else source.more
        size, left, start = BATCH, limit, span.start
        while left is None or left > 0:
            room = size if left is None else min(size, left)
            if limit is None and start > span.start:  # it is a long way to the end: SQLite need not look out for it
                ends: Any = self.connection.execute(far, (*source.node, start, room)).fetchone()
                ends = None if ends is None or ends[0] >= span.end else ends
            else:
                ends = self.connection.execute(bound, (*source.node, start, span.end, *more, room)).fetchone()
            end = span.end if ends is None else ends[0]
            try:
                row: Any = self.connection.execute(sql, (*source.node, start, end, *source.more)).fetchone()
            except apsw.TooBigError:
                if size == 1:
                    raise
                size = max(1, size // 16)
                continue
            if row[0] is not None:
                batch = Batch(_strings(row[0], row[1]), _strings(row[2], row[3]) if keys else None)
                batch = _living(batch) if source.node else batch
                left = None if left is None else left - len(batch.values)
                yield batch
            if ends is None:
                return
            start = end

    def _nodes(self, part: bytes, at: int) -> list[int]:
        """The nodes of a part of the keyspace that hold something that may have lived at a version."""
        newest: Any = self.connection.execute(f"SELECT {NEWEST}").get
        path = nodes.ancestors(at, newest + 1)
        sql = _OPEN.format(", ".join(map(str, path)) or "0")
        stored = {row[0] for row in self._rows(sql, (part, at, at))}
        path_set = set(path)
        here = {node for (where, node), (first, last) in self.open_nodes.items()
                if where == part and node in path_set and first <= at < last}  # fmt: skip
        return sorted(stored | here)

    def _rows(self, sql: str, bindings: Sequence[Any]) -> list[Any]:
        return self.connection.execute(sql, bindings).fetchall()

    # writing

    def insert(self, version: int, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Put keys that are not there now, and have no tombstone: see `revive`. Raises `apsw.ConstraintError`."""
        if isinstance(entries, list) and len(entries) <= _MANY:  # one statement for all versions, which SQLite knows
            self.connection.executemany(_INSERT, [(key, version, value) for key, value in entries])
        else:
            self.connection.executemany(
                f"INSERT INTO latest (key, version, value) VALUES (?, {version}, ?)", entries)

    def insert_marks(self, version: int, wanted: Sequence[bytes]) -> None:
        """Put index entries that carry no columns, as `insert` does."""
        self.connection.executemany(
            f"INSERT INTO latest (key, version, value) VALUES (?, {version}, x'{LIVE.hex()}')",
            ((key,) for key in wanted))

    def put(self, version: int, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Put keys that are there now: what stood there becomes the past, unless this transaction wrote it."""
        self._supersede(version, [key for key, _ in entries])
        self.connection.executemany(_REPLACE, [(key, version, value) for key, value in entries])

    def delete(self, version: int, wanted: Sequence[bytes]) -> None:
        """Leave tombstones for keys that are there now."""
        self._supersede(version, wanted)
        self.connection.executemany("DELETE FROM latest WHERE key = ?", ((key,) for key in wanted))
        self.connection.executemany(
            "INSERT OR REPLACE INTO gone (key, version) VALUES (?, ?)", ((key, version) for key in wanted))

    def revive(self, version: int, wanted: Sequence[bytes]) -> None:
        """Move the tombstones of keys that are to be put again to the past; those of this very transaction vanish."""
        if not self.connection.execute("SELECT 1 FROM gone LIMIT 1").fetchone():
            return
        dead = []
        for begin in range(0, len(wanted), _MANY):
            chunk = wanted[begin : begin + _MANY]
            marks = _marks(len(chunk))
            padded = [*chunk, *([None] * (marks.count("?") - len(chunk)))]
            dead += self._rows(f"SELECT key FROM gone WHERE key IN ({marks})", padded)
        if dead:
            self.connection.executemany(
                f"INSERT INTO past SELECT node_of(key, version, ?2), key, version, ?2, x'{TOMBSTONE.hex()}' FROM gone "
                "WHERE key = ?1 AND version < ?2", [(key, version) for (key,) in dead])
            self.connection.executemany("DELETE FROM gone WHERE key = ?", dead)

    def close_nodes(self) -> None:
        """Write down which nodes were written to. Before a commit."""
        if self.open_nodes:
            self.connection.executemany(
                "INSERT INTO past_node VALUES (?, ?, ?, ?) ON CONFLICT (part, node) DO UPDATE SET "
                "first = min(first, excluded.first), last = max(last, excluded.last)",
                [(part, node, *span) for (part, node), span in self.open_nodes.items()])  # fmt: skip
            self.open_nodes = {}

    def _supersede(self, version: int, wanted: Sequence[bytes]) -> None:
        self.connection.executemany(
            "INSERT INTO past SELECT node_of(key, version, ?2), key, version, ?2, value FROM latest "
            "WHERE key = ?1 AND version < ?2", ((key, version) for key in wanted))


def _ahead(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The same batches; while the caller works on one that is full, the next one is fetched."""
    for first in batches:
        if len(first.values) >= BATCH:
            break
        yield first
    else:
        return
    with ThreadPoolExecutor(1, "sql-ahead") as pool:
        waiting = pool.submit(next, batches, None)
        yield first
        while (batch := waiting.result()) is not None:
            waiting = pool.submit(next, batches, None)
            yield batch


def _living(batch: Batch) -> Batch:
    """A batch without its tombstones."""
    values, keys = batch
    short = np.flatnonzero(np.diff(values.offsets) == len(TOMBSTONE))
    dead = short[values.data[values.offsets[short] + 1] == TOMBSTONE[1]]
    if not len(dead):
        return batch
    kept = np.ones(len(values), np.bool_)
    kept[dead] = False
    return Batch(values.filtered(kept), None if keys is None else keys.filtered(kept))


def _marks(count: int) -> str:
    """Placeholders for so many values or a few more, so that few different statements are made."""
    size = 1
    while size < count:
        size *= 2
    return ", ".join("?" * size)


def _strings(data: bytes | None, lengths: str | None) -> Strings:
    sizes = np.fromstring(lengths or "", np.int64, sep=",")
    data = data or b""
    return Strings(np.frombuffer(data, np.uint8), offsets_of(sizes))
