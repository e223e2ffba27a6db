"""Commits groups of writes to SQL tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ontolake.server.problems import RefusedError
from ontolake.server.writes.bodies import decoded
from ontolake.server.writes.requests import RowWrite, StaleHeadError, WriteFailure, WriteNote
from ontolake.sql.history.table_names import full_name
from ontolake.sql.splits import public_schema
from ontolake.sql.write import bulk

_STATEMENTS = {"upsert": "-- upsert into", "insert": "-- insert into", "delete": "-- delete from"}


def commit_rows(store: Any, branch: str, writes: Sequence[RowWrite], note: WriteNote) -> Any:
    """See `Committer`."""
    session = store.session
    told = "; ".join(dict.fromkeys(f"{_STATEMENTS[one.mode]} {one.table}" for one in writes))
    with session.noted(note.message, note.author), session.writing(told, note.metadata) as transaction:
        head = transaction.version - 1
        if note.expected is not None and str(head) != note.expected:
            raise StaleHeadError(branch, note.expected, head)
        tables = session.fresh_catalog(transaction).by_full_name
        for place, write in enumerate(writes):
            try:
                _apply(session, transaction, tables, write)
            except Exception as error:
                raise WriteFailure(place, error) from error
    return transaction.version if transaction.dirty else None


def _apply(session: Any, transaction: Any, tables: dict[str, Any], write: RowWrite) -> None:
    table = tables[full_name(write.table, tables)]
    columns = {field.name: field.type for field in public_schema(table, "latest")}
    rows = decoded(write.body, write.media_type, columns)
    if write.mode == "insert":
        bulk.load(session, transaction, table, rows)
    elif write.mode == "upsert":
        bulk.upsert(session, transaction, table, rows)
    else:
        for column in table.primary_key:
            if column.name not in rows.column_names or rows.column(column.name).null_count:
                raise RefusedError(422, f"column {column.name!r}: every row needs it")
        bulk.delete(session, transaction, table, rows)
