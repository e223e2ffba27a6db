"""Looking after a database: checking that rows and indexes fit together, and removing what is no longer kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ontolake import faults
from ontolake.errors import Corruption, NotFound
from ontolake.history import Damage, Garbage
from ontolake.sql.catalog.records import PUBLIC, IndexMeta, Table
from ontolake.sql.keyspace import keys, levels
from ontolake.sql.keyspace.levels import table_of, unpinned
from ontolake.sql.keyspace.rows import split_row
from ontolake.sql.keyspace.versions import KeySpan
from ontolake.sql.write.rows import Rows, decoded

if TYPE_CHECKING:
    from ontolake.sql.transactions import SqlSession

_SHOWN = 20
"""How many rows a report names at most."""


def verify(session: SqlSession) -> Iterator[Damage]:
    """Read all rows, and compare every index with the rows that it should point to."""
    with session.reading():
        found: list[Damage] = []
        try:
            tables = list(session.catalog().by_id.values())
        except Corruption as error:
            yield Damage("catalog", str(error))
            return
        for table in tables:
            found += _verify_table(session, table)
        for (damage,) in session.connection.execute("PRAGMA integrity_check(20)").fetchall():
            if damage != "ok":
                found.append(Damage("sqlite", str(damage)))
    yield from found


def _verify_table(session: SqlSession, table: Table) -> list[Damage]:
    found: list[Damage] = []
    expected: dict[int, dict[bytes, bytes]] = {index.index_id: {} for index in table.indexes if index.state == PUBLIC}
    for batch in session.keyspace.scan(table.span, keys=True):
        assert batch.keys is not None
        try:
            try:
                rows = decoded(table, batch.values, whole=True)
            except Corruption:
                rows = decoded(table, batch.values)
                found += _short(table, rows, batch.values.to_list())
            if rows.keys() != batch.keys.to_list():
                found.append(Damage(table.full_name, "a row stands under another key than its own"))
            for index in table.indexes:
                if index.index_id in expected:
                    expected[index.index_id].update(rows.entries(index))
        except Corruption as error:
            found.append(Damage(table.full_name, str(error)))
    for index in table.indexes:
        if index.index_id in expected:
            found += _verify_index(session, table, index, expected[index.index_id])
    return found


def _short(table: Table, rows: Rows, values: list[bytes]) -> list[Damage]:
    """Name the rows that were stored without their last columns, and the statement that gives them values."""
    groups: dict[tuple[int, int], list[int]] = {}
    for number, value in enumerate(values):
        cells = split_row(value)
        if cells.short is not None:
            groups.setdefault((cells.short, len(cells.payloads)), []).append(number)
    found: list[Damage] = []
    for (short, count), numbers in groups.items():
        columns = [column for column in table.columns if short < column.column_id <= count]
        names = ", ".join(column.name for column in columns)
        given = ", ".join(f"{column.name} = {'DEFAULT' if column.nullable or column.default_expr else '…'}"
                          for column in columns)  # fmt: skip
        shown = "; ".join(rows.describe_key(number) for number in numbers[:_SHOWN])
        more = f"; and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
        found.append(Damage(table.full_name, f"rows were stored without {names}, which read as NULL: give them values "
                            f"with UPDATE {table.full_name} SET {given} for {shown}{more}"))  # fmt: skip
    return found


def _verify_index(session: SqlSession, table: Table, index: IndexMeta, expected: dict[bytes, bytes]) -> list[Damage]:
    there: dict[bytes, bytes] = {}
    for batch in session.keyspace.scan(_entries(table.id, index.index_id), keys=True):
        assert batch.keys is not None
        there.update(zip(batch.keys.to_list(), batch.values.to_list(), strict=True))
    if there == expected:
        return []
    missing, more = expected.keys() - there.keys(), there.keys() - expected.keys()
    return [Damage(f"{table.full_name}, index {index.name}",
                   f"{len(missing)} entries are missing, {len(more)} lead to no row")]  # fmt: skip


def _entries(table: int, index: int) -> KeySpan:
    prefix = keys.entry_prefix(table, index)
    return KeySpan(prefix, keys.after(prefix))


def retain(session: SqlSession, version: int) -> None:
    """Raise the floor. Raises `NotFound` for a version that is to come."""
    with session.writing("-- retain"):
        newest, _, floor = session.state()
        if not 0 <= version <= newest:
            raise NotFound(f"there is no version {version}", hint=f"the newest is {newest}")
        levels.set_state(session.connection, session.keyspace.line, "floor", max(floor, version))
        session.keep()


def gc(session: SqlSession, *, dry_run: bool) -> Garbage:
    """Remove, or count, what lies below the floor: superseded versions, tombstones, and what was dropped.

    In a native file it stays if another branch, or a tag, can read it.
    """
    if dry_run:
        with session.reading():
            return _sweep(session, remove=False)
    with session.writing("-- gc"):
        found = _sweep(session, remove=True)
        floor, line = session.state()[2], session.keyspace.line
        pins = levels.pins(session.connection, line)
        table, own = table_of("past_node", line)
        session.connection.execute(f"DELETE FROM {table} WHERE {own}last <= ?{unpinned(pins, 'first', 'last')}",
                                   (floor,))
        table = '"commit"' if line == levels.FIRST else "line_commit"
        session.connection.execute(
            f"UPDATE {table} SET keys = x'00000000' WHERE {own}version <= ?{unpinned(pins, 'version', 'version')}",
            (floor,))
        faults.reach("sql: garbage removed")
        session.keep()
    return found


def _sweep(session: SqlSession, *, remove: bool) -> Garbage:
    """Count, or remove, the versions that the branch has written and nobody can read any more."""
    floor, line = session.state()[2], session.keyspace.line
    pins = levels.pins(session.connection, line)
    connections = [session.connection, *(part.connection for part in session.parts.values())]
    tables = f" AND NOT (key >= x'{keys.TABLE:02x}' AND key < x'{keys.TABLE + 1:02x}')" if pins else ""
    wanted: list[tuple[str, str, tuple[Any, ...]]] = [
        ("past", f"until <= ?{unpinned(pins, 'version', 'until')}", (floor,)),
        # Of tables that were dropped tombstones stay while a branch may read rows: they tell what is to go later.
        ("gone", f"version <= ?{unpinned(pins, 'version', 'version')}{tables}", (floor,))]  # fmt: skip
    for span, until in _unreachable(session, floor):
        lived = {"latest": str(until), "past": "until", "gone": "version"}
        wanted += [(name, f"key >= ? AND key < ?{unpinned(pins, 'version', end)}", tuple(span))
                   for name, end in lived.items()]  # fmt: skip
    items = size = 0
    for name, where, bindings in reversed(wanted):
        table, own = table_of(name, line)
        value = "0" if name == "gone" else "length(value)"
        sql = f"SELECT count(*), coalesce(sum(length(key) + {value}), 0) FROM {table} WHERE {own}{where}"
        for connection in connections:
            found: Any = connection.execute(sql, bindings).fetchall()
            items, size = items + int(found[0][0]), size + int(found[0][1])
            if remove and found[0][0]:
                connection.execute(f"DELETE FROM {table} WHERE {own}{where}", bindings)
    return Garbage(items, size)


def _unreachable(session: SqlSession, floor: int) -> Iterator[tuple[KeySpan, int]]:
    """The keys of tables and indexes that were dropped before the floor, and when. Ids are never used again."""
    gone, own = table_of("gone", session.keyspace.line)
    tombstones: Any = session.connection.execute(
        f"SELECT key, version FROM {gone} WHERE {own}key >= ? AND key < ? AND version <= ?",
        (bytes((keys.TABLE,)), bytes((keys.TABLE + 1,)), floor)).fetchall()
    living = session.catalog().by_id
    for key, version in tombstones:
        id = int.from_bytes(key[-8:], "big")
        if id in living:  # it was moved to another schema
            continue
        for family in (keys.ROW, keys.ENTRY):
            prefix = keys.meta_key(family, id)
            yield KeySpan(prefix, keys.after(prefix)), version
    for table in session.catalog(floor).by_id.values():
        for index in table.dropped_indexes:
            yield _entries(table.id, index.index_id), floor
