"""Writing many keys of the main line at once: a few statements for all of them, and no Python object per row.

Keys that follow each other in `latest`, as those of a whole table do, are named by the first and the last of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import apsw
import pyarrow.compute as pc

from ontolake.sql.keyspace import nodes, packing
from ontolake.sql.keyspace.rows import LIVE
from ontolake.sql.keyspace.vectors import Strings, as_arrow

if TYPE_CHECKING:
    from ontolake.sql.keyspace.versions import Keyspace

_BATCH = 65536
_RUN = "latest WHERE latest.key >= ?1 AND latest.key <= ?2"
_LISTED = "carray(?1) AS wanted CROSS JOIN latest ON latest.key = wanted.value WHERE ?2 IS NULL"


class StoredKeys(NamedTuple):
    """Keys that `latest` has: a table with a condition, and what to bind to its first two parameters, in turns."""

    where: str
    bindings: list[tuple[object, object]]
    wanted: Strings

    @staticmethod
    def of(connection: apsw.Connection, wanted: Strings) -> StoredKeys:
        """Keys that are there, each once, in any order."""
        if is_ascending(wanted):
            ends = (wanted.at(0), wanted.at(-1))
            sql = "SELECT count(*) FROM (SELECT 1 FROM latest WHERE key >= ? AND key <= ? LIMIT ?)"
            if connection.execute(sql, (*ends, len(wanted) + 1)).get == len(wanted):
                return StoredKeys(_RUN, [ends], wanted)
        return StoredKeys(_LISTED, [(apsw.carray(tuple(some.to_list())), None) for some in _batches(wanted)], wanted)


def is_ascending(keys: Strings) -> bool:
    """Whether each key is greater than the one before it, so that none comes twice."""
    column = as_arrow(keys)
    return len(keys) < 2 or bool(pc.all(pc.less(column[:-1], column[1:])).as_py())


def count(connection: apsw.Connection, wanted: Strings) -> int:
    """How many of some keys `latest` has."""
    sql = "SELECT count(*) FROM carray(?) AS wanted CROSS JOIN latest ON latest.key = wanted.value"
    return sum(int(str(connection.execute(sql, (apsw.carray(tuple(some.to_list())),)).get))
               for some in _batches(wanted))  # fmt: skip


def _batches(wanted: Strings) -> Iterator[Strings]:
    return (wanted.slice(begin, min(begin + _BATCH, len(wanted))) for begin in range(0, len(wanted), _BATCH))


def supersede(keyspace: Keyspace, version: int, stored: StoredKeys) -> None:
    """Move what stands under keys to the past, unless it is of this version, which follows."""
    older = f"FROM {stored.where} AND latest.version < ?3"
    found = {row[0] for ends in stored.bindings for row in keyspace.connection.execute(
        f"SELECT DISTINCT latest.version {older}", (*ends, version))}
    if not found:
        return
    for part in _parts(stored.wanted):
        for old in found:
            keyspace.note_node(part, old, version)
    sql = (f"INSERT INTO past SELECT {nodes.expression('latest.version', version)}, latest.key, latest.version, ?3, "
           f"latest.value {older}")  # fmt: skip
    for ends in stored.bindings:
        keyspace.connection.execute(sql, (*ends, version))


def _parts(wanted: Strings) -> set[bytes]:
    """The parts of the keyspace that keys belong to."""
    ends = {nodes.part(wanted.at(0)), nodes.part(wanted.at(-1))}
    return ends if len(ends) == 1 and is_ascending(wanted) else {nodes.part(key) for key in wanted.to_list()}


def remove(connection: apsw.Connection, version: int, stored: StoredKeys) -> None:
    """Leave tombstones instead of keys."""
    for ends in stored.bindings:
        connection.execute(f"INSERT OR REPLACE INTO gone SELECT latest.key, ?3 FROM {stored.where}", (*ends, version))
    for first, last in stored.bindings:
        if last is not None:
            connection.execute("DELETE FROM latest WHERE key >= ? AND key <= ?", (first, last))
        else:
            connection.execute("DELETE FROM latest WHERE key IN (SELECT value FROM carray(?))", (first,))


def write(connection: apsw.Connection, verb: str, version: int, wanted: Strings, values: Strings | None) -> None:
    """Write keys and values to `latest`, many a statement; without values, index entries that carry no columns.

    SQLite cuts keys and values out of one buffer a statement.
    """
    value = f"x'{LIVE.hex()}'" if values is None else packing.VALUE
    into = f"{verb} INTO latest (key, version, value)"
    sql = f"{into} SELECT {packing.KEY}, {version}, {value} FROM carray(?2) AS wanted"
    for first, end in packing.pieces(wanted, values, _BATCH):
        some = wanted.slice(first, end)
        given = None if values is None else values.slice(first, end)
        if (packed := packing.packed(some, given)) is None:
            marks = [LIVE] * len(some)
            connection.executemany(f"{into} VALUES (?, {version}, ?)", zip(
                some.to_list(), marks if given is None else given.to_list(), strict=True))
        else:
            connection.execute(sql, (packed[0], apsw.carray(packed[1])))
