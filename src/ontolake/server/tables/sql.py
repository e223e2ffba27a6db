"""Pages of SQL tables: ranges of the keyspace at one version."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

from ontolake.parallel import Filter
from ontolake.server.tables.pages import CHUNK, RowChunk, TableReader
from ontolake.sql.keyspace import vectors
from ontolake.sql.keyspace.vectors import Strings
from ontolake.sql.keyspace.versions import KeySpan
from ontolake.sql.plan.access import choose
from ontolake.sql.plan.scans import row_keys
from ontolake.sql.splits import conditions, public_schema, shown
from ontolake.stores import Store

Entry = tuple[bytes, bytes]


class SqlTable(TableReader):
    """The rows of a SQL table, by primary key. Positions are stored keys."""

    def __init__(self, found: Store, snapshot: Any, table: str) -> None:
        """Raises `NotFound` for a table that is not there."""
        self.found, self._snapshot = found, snapshot
        self.commit, self.branch, self.place = snapshot.commit, snapshot.branch, snapshot.where
        with snapshot.session() as session, session.reading():
            self._table = snapshot.definition(session, table)
        self.table = self._table.full_name
        self.schema = public_schema(self._table, "latest")
        self.keys = [column.name for column in self._table.primary_key if not column.hidden]

    def chunk(self, columns: Sequence[str], filters: Sequence[Filter], after: Any, size: int) -> RowChunk:
        import pyarrow as pa

        chosen = [self._table.by_name[name] for name in columns]
        with self._snapshot.session() as session, session.reading():
            version = session.state()[0]
            at = None if version == self.commit else session.check_version(self.commit)
            entries, is_last = self._entries(session.keyspace, filters, after, size, at)
        arrays = vectors.decode_rows(Strings.of([value for _, value in entries]), [one.wanted for one in chosen],
                                     [one.type for one in self._table.all_columns])  # fmt: skip
        rows = shown(pa.Table.from_arrays([*arrays], names=[one.name for one in chosen]), chosen)
        positions = [key for key, _ in entries]
        return RowChunk(rows, positions, None if is_last or not entries else positions[-1])

    def _entries(
        self, keyspace: Any, filters: Sequence[Filter], after: bytes | None, size: int, at: int | None
    ) -> tuple[list[Entry], bool]:  # fmt: skip
        """Stored rows by key, and whether these are the last ones."""
        table = self._table
        access = choose(table, conditions(table, filters), (), table.visible, keyspace)
        keys = access.keys
        if access.by is not None and keys is None:
            keys = [key for span in access.spans for batch in keyspace.scan(span, at, keys=True)
                    for key in row_keys(access, batch)]  # fmt: skip
        if keys is not None:
            listed = sorted(set(keys))
            rest = listed[0 if after is None else bisect_right(listed, after) :]
            while rest:
                some, rest = rest[:size], rest[size:]
                there = keyspace.get_many(some, at)
                if there:
                    return [(key, there[key]) for key in some if key in there], not rest
            return [], True
        found: list[Entry] = []
        for step in self._steps(keyspace, access.spans, after, size, at):
            part = [entry for batch in keyspace.scan(step, at, keys=True) if batch.keys is not None
                    for entry in zip(batch.keys.to_list(), batch.values.to_list(), strict=True)]
            found += sorted(part)
            if len(found) > size:
                return found[:size], False
        return found, True

    def _steps(
        self, keyspace: Any, spans: Sequence[KeySpan], after: bytes | None, size: int, at: int | None
    ) -> Iterator[KeySpan]:  # fmt: skip
        for span in sorted(spans):
            start = span.start if after is None else max(span.start, after + b"\0")
            if start < span.end:
                yield from keyspace.steps(KeySpan(start, span.end), at, min(size + 1, CHUNK))
