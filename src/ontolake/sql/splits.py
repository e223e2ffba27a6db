"""Splits of SQL tables: ranges of keys at one version, or what some commits wrote."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.errors import NotFound
from ontolake.parallel import Filter, FilterOp, Mode, View, past_schema, with_past
from ontolake.sql.catalog.coercion import as_text
from ontolake.sql.catalog.records import ColumnMeta, Table
from ontolake.sql.errors import DataError
from ontolake.sql.keyspace import vectors
from ontolake.sql.keyspace.columns import storage_of, validity
from ontolake.sql.keyspace.commit_log import unpacked
from ontolake.sql.keyspace.vectors import Strings
from ontolake.sql.keyspace.versions import KeyPlace, Keyspace, KeySpan
from ontolake.sql.plan import scans
from ontolake.sql.plan.access import AccessPath
from ontolake.sql.plan.conditions import ABOVE, BELOW, EQUAL, HIGH, LOW, ColumnCondition
from ontolake.sql.transactions import SqlSession
from ontolake.sql.types import TIMESTAMPS, Kind, Type

MOMENT = pa.timestamp("us", tz="UTC")
NUMBER = pa.decimal128(38, 18)
"""What Spark takes for a number without a precision."""
_AS_TEXT = frozenset({Kind.UUID, Kind.TIME, Kind.INTERVAL, Kind.JSON, Kind.JSONB, Kind.ENUM})
_PRUNED = frozenset({Kind.BOOLEAN, Kind.INT64, Kind.UTF8, Kind.TIMESTAMP_NS, Kind.TIMESTAMP_US, Kind.DECIMAL, Kind.DATE,
                     Kind.BYTES, Kind.UUID})  # fmt: skip
"""Kinds that readers compare as keys do."""
_SAMPLES = 64
"""So many keys are looked at for each split."""


def public_schema(table: Table, mode: Mode) -> pa.Schema:
    """The columns that reading gives. A time without a zone is UTC, and what is finer than microseconds is cut off."""
    return past_schema([pa.field(column.name, public_type(column.type)) for column in table.visible], mode)


def public_type(type: Type) -> pa.DataType:
    """The Arrow type that readers in other processes get: one that Spark knows, which is text where it has no other."""
    if type.kind in TIMESTAMPS:
        return MOMENT
    if type.kind == Kind.NUMERIC:
        return NUMBER
    if type.item is not None:
        return pa.list_(public_type(type.item))
    return pa.string() if type.kind in _AS_TEXT else type.arrow


def shown(batch: pa.RecordBatch | pa.Table, columns: Sequence[ColumnMeta]) -> Any:
    """Rows of these columns as `public_schema` has them."""
    types = {column.name: column.type for column in columns}
    for place, field in enumerate(batch.schema):
        type = types[field.name]
        if type.padded or public_type(type) != type.arrow:
            batch = batch.set_column(place, pa.field(field.name, public_type(type)), _public(type, batch.column(place)))
    return batch


def _public(type: Type, column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        parts = [_public(type, chunk) for chunk in column.chunks]
        return pa.chunked_array(parts, public_type(type))
    if type.kind == Kind.TIMESTAMP_NS:
        return pc.floor_temporal(column, unit="microsecond").cast(pa.timestamp("us")).cast(MOMENT)
    if type.kind == Kind.TIMESTAMP_US:
        return column.cast(pa.timestamp("us")).cast(MOMENT)
    if type.padded:
        return pc.utf8_rpad(column, type.length)
    if type.item is not None:
        offsets = np.asarray(column.offsets)
        items = _public(type.item, column.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0])))
        missing = np.asarray(column.is_null()) if column.null_count else None
        return pa.Array.from_buffers(pa.list_(items.type), len(column), [
            validity(missing), pa.py_buffer((offsets - offsets[0]).astype(np.int32))], children=[items])
    if type.kind == Kind.NUMERIC:
        try:
            return pa.array(map(_number, storage_of(column).to_pylist()), NUMBER)
        except (pa.ArrowInvalid, decimal.InvalidOperation) as error:
            raise DataError(f"a number does not fit {NUMBER}, which is what readers of NUMERIC get: {error}",
                            sqlstate="22003", hint="give the column a precision and a scale") from error
    return as_text(type, column)


def _number(text: str | None) -> decimal.Decimal | None:
    return None if text is None else decimal.Decimal(text)


def conditions(table: Table, filters: Sequence[Filter]) -> list[ColumnCondition]:
    """What filters say of columns, as far as keys can answer it. Numbers that Spark compares otherwise stay out."""
    found = []
    for number, one in enumerate(filters):
        column = table.by_name.get(one.column)
        operator = _operator(one.op)
        if column is None or operator is None or column.type.kind not in _PRUNED:
            continue
        if column.type.kind == Kind.UUID and operator != EQUAL:
            continue
        if column.type.kind == Kind.TIMESTAMP_NS and one.op not in (">=", ">", "<"):
            continue  # what is cut off makes a row later than it looks
        found.append(ColumnCondition(column, operator, _given(one.values), number))
    return found


def _operator(op: FilterOp) -> str | None:
    """What a filter asks of keys; None if their order does not answer it."""
    match op:
        case "==" | "in":
            return EQUAL
        case ">=":
            return LOW
        case ">":
            return ABOVE
        case "<=":
            return HIGH
        case "<":
            return BELOW
        case "startswith" | "is_null" | "is_not_null":
            return None
        case _:
            assert_never(op)


def _given(values: Sequence[Any]) -> Callable[[Any], Sequence[Any]]:
    return lambda parameters: values


def opened(url: str, branch: str) -> SqlSession:
    return SqlSession(url, branch=branch, readonly=True, takeover=False, synchronous="FULL")


@dataclass(frozen=True)
class KeySpans:
    """The rows of a table whose keys, or entries in an index, lie in spans; or those of single keys."""

    url: str
    branch: str
    table: tuple[str, int]
    view: View
    columns: tuple[str, ...]
    kind: str
    spans: tuple[KeySpan, ...]
    keys: tuple[bytes, ...] | None
    index: str | None
    rows: int

    def read(self) -> Iterator[pa.RecordBatch]:
        session = opened(self.url, self.branch)
        try:
            with session.reading():
                table = checked(session, self.table, self.view)
                by = None if self.index is None else table.index(self.index)
                access = AccessPath(self.kind, table, self.keys, self.spans, frozenset(), by)
                columns = [table.by_name[name] for name in self.columns]
                at = None if session.state()[0] == self.view.commit else self.view.commit
                for batch in scans.read(session.keyspace, access, columns or table.primary_key, at):
                    yield shown(batch if columns else batch.select([]), columns)
        finally:
            session.close()


def checked(session: SqlSession, table: tuple[str, int], view: View) -> Table:
    """The table that a split is about, as it was. Raises `NotFound` if the version is given up meanwhile."""
    name, id = table
    found = session.catalog(session.check_version(view.commit)).by_id.get(id)
    if found is None:
        raise NotFound(f"the table {name} in {session.url!r} is not there any more at version {view.commit}",
                       hint="read it again")
    return found


@dataclass(frozen=True)
class VersionRange:
    """What the commits in `(after, until]` did to a table."""

    url: str
    branch: str
    table: tuple[str, int]
    view: View
    columns: tuple[str, ...]
    after: int
    until: int
    rows: int = 0

    def read(self) -> Iterator[pa.RecordBatch]:
        session = opened(self.url, self.branch)
        try:
            with session.reading():
                table = checked(session, self.table, self.view)
                for version, blob in list(session.log.written(self.after, self.until)):
                    keys = [key for key in unpacked(blob) if key.startswith(table.prefix)]
                    if keys:
                        rows, kinds = _changed(session, table, version, keys)
                        yield from with_past(shown(rows, table.columns), kinds, version, self.view.mode, self.columns)
        finally:
            session.close()


def _changed(session: SqlSession, table: Table, version: int, keys: list[bytes]) -> tuple[pa.Table, list[str]]:
    """The rows that a commit left different, by key, and what became of each. Of a row that is gone only the key."""
    before, after = session.keyspace.get_many(keys, version - 1), session.keyspace.get_many(keys, version)
    keys = [key for key in keys if before.get(key) != after.get(key)]
    kinds = ["delete" if key not in after else "update" if key in before else "insert" for key in keys]
    there = [after[key] for key in keys if key in after]
    found = vectors.decode_rows(Strings.of(there), [column.wanted for column in table.visible])
    places = np.cumsum([key in after for key in keys]) - 1
    rows = pa.array(places, pa.int64(), mask=np.array([key not in after for key in keys], dtype=bool))
    columns = {column.name: array.take(rows) for column, array in zip(table.visible, found, strict=True)}
    named, _ = vectors.decode_keys(table.key_types, Strings.of(keys), len(table.prefix))
    columns |= {column.name: array for column, array in zip(table.primary_key, named, strict=True) if not column.hidden}
    return pa.table(columns), kinds


def cuts(keyspace: Keyspace, span: KeySpan, parts: int) -> list[bytes]:
    """Keys that cut a span into about equal parts, found by looking at keys at even distances between its ends.

    Costs a lookup for each key, however many rows there are. Only where keys lie so unevenly that few are found this
    way, all of them are counted.
    """
    run = keyspace.connection.execute
    ends = [run(f"SELECT min(key), max(key) FROM {place.where}", (*place.node, *span)).fetchone()
            for place in keyspace.places(span)]  # fmt: skip
    there: list[Any] = [key for row in ends if row is not None for key in row if key is not None]
    if not there or parts < 2 or min(there) == max(there):
        return []
    first, last = min(there), max(there)
    width = max(len(first), len(last)) + 2
    low, high = (int.from_bytes(key.ljust(width, b"\0"), "big") for key in (first, last))
    samples = parts * _SAMPLES
    found: set[Any] = {keyspace.nearest(KeySpan((low + (high - low) * n // samples).to_bytes(width, "big"), span.end))
                       for n in range(1, samples)}  # fmt: skip
    sorted_keys = sorted(found - {None, first})
    if len(sorted_keys) < 4 * parts:
        return _counted(keyspace, span, parts)
    return [sorted_keys[len(sorted_keys) * n // parts] for n in range(1, parts)]


def _counted(keyspace: Keyspace, span: KeySpan, parts: int) -> list[bytes]:
    """The same by counting, where most keys are: a few more elsewhere make parts no less equal."""
    def count(place: KeyPlace) -> int:
        found: Any = keyspace.connection.execute(f"SELECT count(*) FROM {place.where}", (*place.node, *span)).get
        return int(found)

    total, place = max(((count(each), each) for each in keyspace.places(span)), key=lambda pair: pair[0])
    step, at = -(-total // parts), span.start
    found: list[bytes] = []
    while step and len(found) < parts - 1:
        sql = f"SELECT key FROM {place.where} ORDER BY key LIMIT 1 OFFSET ?"
        key: Any = keyspace.connection.execute(sql, (*place.node, at, span.end, step)).get
        if key is None:
            break
        found.append(key)
        at = key
    return found
