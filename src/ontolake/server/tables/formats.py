"""Rows as bytes of answers: JSON objects, lines of them, CSV, or an Arrow stream.

In JSON a document is the JSON that it is, bytes are base64, times ISO 8601, exact numbers text. In CSV what is missing
is empty and text is quoted.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from ontolake.server.formats import ARROW, CSV
from ontolake.server.values import plain

if TYPE_CHECKING:
    import pyarrow as pa

_ENCODER = msgspec.json.Encoder()
_END = b"\xff\xff\xff\xff\0\0\0\0"
"""What ends an Arrow stream."""
Chunk = bytes | memoryview


def row_objects(rows: pa.Table | pa.RecordBatch, trees: Collection[str] = ()) -> list[dict[str, Any]]:
    """Rows as JSON has them. Columns in `trees` hold JSON as text, and become what it says."""
    names = rows.schema.names
    parts = [plain_column(rows.column(place), name in trees) for place, name in enumerate(names)]
    return [dict(zip(names, values, strict=True)) for values in zip(*parts, strict=True)]


def plain_column(column: Any, is_tree: bool) -> list[Any]:
    """The values of a column as JSON has them."""
    import pyarrow.types as types

    values: list[Any] = column.to_pylist()
    if is_tree:
        return [None if one is None else msgspec.Raw(one.encode()) for one in values]
    kind = column.type
    if types.is_string(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_large_string(kind):
        return values
    return [plain(one) for one in values]


def lines(batches: Iterable[Any], trees: Collection[str] = ()) -> Iterator[bytes]:
    """Rows as lines of JSON."""
    for batch in batches:
        for start in range(0, batch.num_rows, 8192):
            yield _ENCODER.encode_lines(row_objects(batch.slice(start, 8192), trees))


def csv(batches: Iterable[Any], schema: pa.Schema) -> Iterator[bytes]:
    """Rows as CSV, with a header."""
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    def written(table: pa.Table, header: bool) -> bytes:
        sink = io.BytesIO()
        arrow_csv.write_csv(table, sink, arrow_csv.WriteOptions(include_header=header))
        return sink.getvalue()

    yield written(_flat(schema.empty_table()), True)
    for batch in batches:
        yield written(_flat(pa.Table.from_batches([batch])), False)


def _flat(table: pa.Table) -> pa.Table:
    """Columns that CSV has no form for as text."""
    import pyarrow as pa
    import pyarrow.types as types

    for place, field in enumerate(table.schema):
        kind = field.type
        if types.is_nested(kind) or types.is_binary(kind) or types.is_large_binary(kind) or types.is_decimal(kind) \
                or types.is_fixed_size_binary(kind) or types.is_temporal(kind) or types.is_null(kind):
            texts = [_cell(one) for one in table.column(place).to_pylist()]
            table = table.set_column(place, pa.field(field.name, pa.string()), pa.array(texts, pa.string()))
    return table


def _cell(value: Any) -> str | None:
    found = plain(value)
    return found if found is None or isinstance(found, str) else msgspec.json.encode(found).decode()


def arrow(batches: Iterable[Any], schema: pa.Schema) -> Iterator[Chunk]:
    """Rows as an Arrow stream, a batch at a time."""
    import pyarrow as pa
    import pyarrow.types as types

    if not any(types.is_nested(kind) or types.is_dictionary(kind) for kind in schema.types):
        yield memoryview(schema.serialize())  # without the copies that a writer makes
        for batch in batches:
            yield memoryview(batch.serialize())
        yield _END
        return
    sink = _Gathered()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield sink.take()
    yield sink.take()


class _Gathered(io.RawIOBase):
    """What was written since it was last taken."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


def stream_of(kind: str, schema: pa.Schema, trees: Collection[str]) -> Callable[[Iterable[Any]], Iterator[Chunk]]:
    """What writes batches in a format."""
    if kind == ARROW:
        return lambda batches: arrow(batches, schema)
    if kind == CSV:
        return lambda batches: csv(batches, schema)
    return lambda batches: lines(batches, trees)
