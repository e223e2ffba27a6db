"""Commits and what they changed, in the words of `ontolake.history`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ontolake.errors import Corruption, Invalid, NotFound
from ontolake.history import Change, Commit, Ref, UnknownCommitError
from ontolake.history.metadata import STATEMENT
from ontolake.sql.catalog.records import Table
from ontolake.sql.history.definitions import defined, redefined
from ontolake.sql.keyspace import keys
from ontolake.sql.keyspace.commit_log import unpacked
from ontolake.sql.keyspace.rows import decode_row

if TYPE_CHECKING:
    from ontolake.sql.transactions import SqlSession

_PAGE = 500
_PUBLISHED = "-- publish "
"""What stood before the metadata of a commit where layouts up to version 2 kept it: in the text of its statement."""
_DEFINING = (keys.TABLE, keys.COLUMN, keys.INDEX, *range(keys.FIRST_ADDED, keys.NAME))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def newest_first(session: SqlSession, since: int | None, until: int | None) -> Iterator[Commit[int]]:
    """The commits in `(since, until]`. Raises `NotFound` for versions that are not kept."""
    low, high = _range(session, since, until)
    while high > low:
        with session.reading():
            page = _page(session, low, high)
        if not page:
            return
        yield from page
        high = page[-1].id - 1


def one(session: SqlSession, version: int) -> Commit[int]:
    """The commit of a version. Raises `UnknownCommitError`. Inside a transaction."""
    found = _page(session, version - 1, version)
    if not found:
        raise UnknownCommitError(version, session.branch)
    return found[0]


def _page(session: SqlSession, low: int, high: int) -> list[Commit[int]]:
    found = []
    for version, moment, statement, author, message, stored, merged in session.log.page(low, high, _PAGE):
        metadata = {STATEMENT: statement}
        if stored is not None or statement.startswith(_PUBLISHED):
            metadata |= _metadata(version, statement, stored)
        parents = (() if version <= 1 else (version - 1,)) + (() if merged is None else (merged,))
        found.append(Commit(version, parents, _EPOCH + timedelta(microseconds=moment), author, metadata, message))
    return found


def _metadata(version: int, statement: str, stored: str | None) -> dict[str, Any]:
    """What a commit says of itself. Raises `Corruption` if it cannot be read."""
    if stored is None:
        try:
            return dict(json.loads(statement.removeprefix(_PUBLISHED)))
        except ValueError:
            return {}  # it was too long to be kept whole
    try:
        return dict(json.loads(stored))
    except (TypeError, ValueError) as error:
        raise Corruption(f"the metadata of commit {version} cannot be read") from error


def versions(session: SqlSession, since: int, until: int | None) -> range:
    """The versions in `(since, until]`. Raises `NotFound` for those that are not kept."""
    low, high = _range(session, since, until)
    return range(low + 1, high + 1)


def _range(session: SqlSession, since: int | None, until: int | None) -> tuple[int, int]:
    with session.reading():
        version, _, floor = session.state()
    low, high = floor if since is None else since, version if until is None else until
    for given in (low, high):
        if type(given) is not int or not floor <= given <= version:
            raise NotFound(f"there is no version {given!r}", hint=f"versions from {floor} to {version} can be read")
    return low, high


def changes(session: SqlSession, version: int) -> list[Change[int]]:
    """What one commit did to definitions and to rows, by table and key. Dropping a table deletes its rows, before it
    goes itself; no other change of a definition is one of rows."""
    with session.reading():
        packed = session.log.keys(version)
        if packed is None:
            return []
        touched = unpacked(packed)
        written = [key for key in touched if key[0] == keys.ROW]
        before, after = session.keyspace.get_many(written, version - 1), session.keyspace.get_many(written, version)
        old, new = session.catalog(version - 1), session.catalog(version)
        is_defining = any(key[0] in _DEFINING for key in touched)
        dropped = [table for id, table in old.by_id.items() if id not in new.by_id] if is_defining else []
        lost = {table.id: _rows(session, table, version - 1) for table in dropped}
    result: list[Change[int]] = []
    for gone in dropped:
        result += [Change.of(version, gone.full_name, key_of(gone, key), row_of(gone, value), None)
                   for key, value in lost[gone.id]]
        result.append(Change.of_schema(version, gone.full_name, defined(gone), None))
    for id, defining in sorted(new.by_id.items()) if is_defining else ():
        was, is_now = defined(old.by_id.get(id)), defined(defining)
        if was != is_now:
            result.append(Change.of_schema(version, defining.full_name, was, is_now))
    if is_defining:
        result += [Change.of_schema(version, *each) for each in redefined(old, new)]
    for key in written:
        id = int.from_bytes(key[1:9], "big")
        then, now = old.by_id.get(id), new.by_id.get(id)
        table = then if now is None or key not in after else now  # a key may be of a type that was changed since
        if table is None or id in lost:
            continue
        first, last = row_of(then, before.get(key)), row_of(now, after.get(key))
        if first != last:
            result.append(Change.of(version, table.full_name, key_of(table, key), first, last))
    return result


def _rows(session: SqlSession, table: Table, version: int) -> list[tuple[bytes, bytes]]:
    """All rows of a table at a version, by key."""
    found: list[tuple[bytes, bytes]] = []
    for batch in session.keyspace.scan(table.span, version, keys=True):
        assert batch.keys is not None
        found += zip(batch.keys.to_list(), batch.values.to_list(), strict=True)
    return sorted(found)


def row_of(table: Table | None, value: bytes | None) -> dict[str, Any] | None:
    """A row as Python values by column name."""
    if table is None or value is None:
        return None
    stored = decode_row(table.kinds, value, table.absent)
    return {column.name: column.type.show(stored[column.column_id - 1]) for column in table.visible}


def key_of(table: Table, key: bytes) -> Any:
    """A primary key as a Python value, or a tuple of them where it has several columns."""
    values, _ = keys.decode_tuple(table.key_types, key, len(table.prefix))
    found = tuple(type.show(value) for type, value in zip(table.key_types, values, strict=True))
    return found[0] if len(found) == 1 else found


def number(ref: Ref) -> int | None:
    """The version that a user wrote. Raises `Invalid`."""
    if ref.commit is None:
        return None
    if not (ref.commit.isascii() and ref.commit.isdigit() and len(ref.commit) < 19):
        raise Invalid(f"{ref.commit!r} is not a version", hint="commits are numbered from 1")
    return int(ref.commit)


