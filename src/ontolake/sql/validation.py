"""Whether a transaction may commit: nobody has changed since its snapshot what it has read or written.

Commits since then tell the keys of rows and catalog records that they wrote. Index entries are not among them: for the
ranges of an index that a transaction has read, the versions that stand there are asked. So transactions that pass have
read what they would read if they ran now, one after the other in the order of their versions.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from ontolake.sql.catalog.records import PUBLIC, SqlCatalog, Table
from ontolake.sql.errors import SerializationError
from ontolake.sql.keyspace import keys
from ontolake.sql.keyspace.commit_log import unpacked
from ontolake.sql.keyspace.ranges import described
from ontolake.sql.keyspace.read_set import first_common, joined
from ontolake.sql.keyspace.vectors import Strings
from ontolake.sql.keyspace.versions import KeySpan

if TYPE_CHECKING:
    from ontolake.sql.transactions import SqlSession, SqlTransaction

_LONG = 1 << 16
_PART = 9
_HARMLESS = (keys.DATABASE_NAME, keys.SCHEMA_NAME, keys.TABLE_NAME, keys.NAME, keys.COMMENT, keys.SEQUENCE_STATE)
"""Records that no statement goes by: names change together with what has them."""
_OF_TABLES = (keys.TABLE, keys.COLUMN, keys.INDEX, keys.FOREIGN_KEY)


@lru_cache(maxsize=4)
def _long_list(blob: bytes) -> list[bytes]:
    return unpacked(blob)


def check(session: SqlSession, transaction: SqlTransaction, catalog: SqlCatalog) -> None:
    """Raise `SerializationError` if a commit since a transaction's snapshot forbids it to commit now.

    `session` is the one that writes, inside its transaction; `catalog` the one that the transaction has read.
    """
    newest, _, floor = session.state()
    since = transaction.snapshot
    if newest == since:
        return
    if floor > since:
        raise _conflict(since, "versions since then are no longer kept")
    written = _written(transaction)
    reads = transaction.reads
    single = written | reads.keys
    spans = joined([*reads.spans, *_defined(written)])
    used = reads.parts() | {key[1:_PART] for key in written if key[0] >= keys.ROW}
    changed: set[bytes] = set()
    for version, blob in session.log.written(since, newest):
        found = _long_list(blob) if len(blob) > _LONG else unpacked(blob)
        if not found:
            _check_unnamed(session, version, since, used, catalog)
        common = next((key for key in found if key in single), None) or first_common(found, spans)
        if common is not None:
            raise _conflict(since, f"version {version} has changed {described(common, catalog)}, which it used")
        if found and found[0][0] < keys.ROW:
            records = [key for key in found if key[0] < keys.ROW and key[0] not in _HARMLESS]
            _check_catalog(session, transaction, version, records, used, catalog)
        changed.update(key[1:_PART] for key in found if key[0] == keys.ROW)
    entries = {KeySpan(key, key + b"\x00") for key in reads.keys if key[0] == keys.ENTRY}
    for span in joined({*entries, *(span for span in reads.spans if span.start[0] == keys.ENTRY)}):
        if span.start[1:_PART] in changed and session.keyspace.has_changed(span, since):
            raise _conflict(since, f"a later version has changed {described(span.start, catalog)} in a range that "
                            "it used")


def _written(transaction: SqlTransaction) -> set[bytes]:
    found: set[bytes] = set()
    for group in transaction.touched:
        found.update(group.to_list() if isinstance(group, Strings) else group)
    return found


def _defined(written: Iterable[bytes]) -> list[KeySpan]:
    """All keys of the tables that a transaction has defined in another way: rows that came meanwhile count."""
    tables = {found for key in written if (found := _table(key)) is not None}
    prefixes = [bytes((family,)) + table for table in tables for family in (keys.ROW, keys.ENTRY)]
    return [KeySpan(prefix, keys.after(prefix)) for prefix in prefixes]


def _table(key: bytes) -> bytes | None:
    """The id of the table that a catalog record belongs to, if it belongs to one."""
    if key[0] == keys.TABLE:
        return key[17:25]
    return key[1:_PART] if key[0] in (keys.COLUMN, keys.INDEX) else None


def _check_catalog(
    session: SqlSession, transaction: SqlTransaction, version: int, records: list[bytes], used: set[bytes],
    catalog: SqlCatalog,
) -> None:  # fmt: skip
    """A transaction goes by the catalog that it found: what it may have named there has to stay as it was."""
    since = transaction.snapshot
    if records and transaction.ddl:
        raise _conflict(since, f"version {version} has changed the catalog, as it does itself")
    if any(key[0] in _OF_TABLES for key in records):
        current = session.catalog()
        for id in (int.from_bytes(each, "big") for each in used):
            if _definition(catalog.by_id.get(id)) != _definition(current.by_id.get(id)):
                raise _conflict(since, f"version {version} has defined a table that it used in another way")
    others = [key for key in records if key[0] not in _OF_TABLES]
    if others and session.keyspace.get_many(others, since):
        raise _conflict(since, f"version {version} has changed or dropped something that it could name")


def _definition(table: Table | None) -> tuple[object, ...] | None:
    return None if table is None else (
        table.meta, table.all_columns, table.indexes, table.foreign_keys, table.referenced_by)


def _check_unnamed(session: SqlSession, version: int, since: int, used: set[bytes], catalog: SqlCatalog) -> None:
    """A commit that names no keys fills a new index, or has erased a row."""
    building = any(table.id.to_bytes(8, "big") in used and any(index.state != PUBLIC for index in table.indexes)
                   for table in catalog.by_id.values())  # fmt: skip
    if building or session.log.is_erasure(version):
        raise _conflict(since, f"version {version} has changed what it used")


def _conflict(since: int, why: str) -> SerializationError:
    return SerializationError(f"the transaction has read version {since}, and cannot be committed any more: {why}",
                              hint="roll back and run the transaction again")
