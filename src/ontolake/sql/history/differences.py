"""What lies between two moments: read from the commits that lead from one to the other, not from all rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ontolake.history import Change, Snapshot
from ontolake.sql.catalog.records import SqlCatalog, Table
from ontolake.sql.history.commits import key_of, row_of
from ontolake.sql.history.definitions import defined, redefined
from ontolake.sql.history.snapshots import SqlSnapshot
from ontolake.sql.keyspace import keys
from ontolake.sql.keyspace.commit_log import unpacked
from ontolake.sql.transactions import SqlSession

_PAGE = 10_000


class On(Protocol):
    """Gives a session on a branch."""

    def __call__(self, branch: str | None) -> AbstractContextManager[SqlSession]: ...


def differences(on: On, base: int, before: SqlSnapshot, after: SqlSnapshot) -> Iterator[Change[int]]:
    """What turns one moment into another, by table and key, with the tables that were defined anew. `base` is the
    newest version that both have behind them."""
    then_catalog, now_catalog = _catalog(on, before), _catalog(on, after)
    old, new = then_catalog.by_full_name, now_catalog.by_full_name
    for each in redefined(then_catalog, now_catalog):
        yield Change.of_schema(after.commit, *each)
    written = _written(on, base, before, after)
    for name in sorted({*old, *new}):
        then, now = old.get(name), new.get(name)
        was, is_now = defined(then), defined(now)
        if was != is_now and is_now is not None:
            yield Change.of_schema(after.commit, name, was, is_now)
        if written is None or then is None or now is None or _shape(then) != _shape(now):
            yield from _compared(before, after, name, then is not None, now is not None)
        else:
            yield from _looked_up(on, before, after, then, now, [key for key in written if key.startswith(then.prefix)])
        if is_now is None:
            yield Change.of_schema(after.commit, name, was, None)


def _catalog(on: On, moment: SqlSnapshot) -> SqlCatalog:
    with on(moment.where) as session, session.reading():
        return session.catalog(session.check_version(moment.commit))


def _shape(table: Table) -> Any:
    """What has to be the same for a row that nobody wrote to read the same."""
    return table.id, [(column.column_id, column.name, column.type, column.absent) for column in table.columns]


def _written(on: On, base: int, before: SqlSnapshot, after: SqlSnapshot) -> list[bytes] | None:
    """The keys of rows that were written on the way from one moment to the other; None if that is not kept."""
    found: set[bytes] = set()
    for moment in (before, after):
        with on(moment.where) as session, session.reading():
            if session.state()[2] > base:
                return None
            for _, blob in session.log.written(base, moment.commit):
                found.update(key for key in unpacked(blob) if key[0] == keys.ROW)
    return sorted(found)


def _looked_up(
    on: On, before: SqlSnapshot, after: SqlSnapshot, then: Table, now: Table, written: Sequence[bytes]
) -> Iterator[Change[int]]:
    for begin in range(0, len(written), _PAGE):
        page = written[begin : begin + _PAGE]
        with on(before.where) as session, session.reading():
            old = session.keyspace.get_many(page, before.commit)
        with on(after.where) as session, session.reading():
            new = session.keyspace.get_many(page, after.commit)
        for key in page:
            if old.get(key) != new.get(key):
                first, last = row_of(then, old.get(key)), row_of(now, new.get(key))
                if first != last:
                    yield Change.of(after.commit, now.full_name, key_of(now, key), first, last)


def compared(before: Snapshot[int], after: Snapshot[int]) -> Iterator[Change[int]]:
    """What turns one snapshot into another that shares no history with it: all rows are looked at."""
    old, new = set(before.tables()), set(after.tables())
    for name in sorted(old | new):
        yield from _compared(before, after, name, name in old, name in new)


def _compared(
    before: Snapshot[int], after: Snapshot[int], name: str, was: bool, is_now: bool
) -> Iterator[Change[int]]:
    """All rows of a table that is not the same table on both sides."""
    first = dict(before.rows(name)) if was else {}
    last = dict(after.rows(name)) if is_now else {}
    for key in [*last, *(key for key in first if key not in last)]:
        if first.get(key) != last.get(key):
            yield Change.of(after.commit, name, key, first.get(key), last.get(key))
