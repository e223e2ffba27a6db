"""Rows in the form that a client accepts: JSON, lines of JSON, CSV, or an Arrow stream.

Rows are written a part at a time, so that a big answer is never held twice.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import StreamingResponse

from ontolake.server.problems import RefusedError
from ontolake.server.routes import Reply
from ontolake.server.values import plain

if TYPE_CHECKING:
    import pyarrow as pa


class ColumnType(msgspec.Struct):
    """A column of an answer, with its Arrow type."""

    name: str
    type: str


class TableAnswer(msgspec.Struct):
    """Rows by column. `truncated` says that there were more than the limit."""

    columns: list[ColumnType]
    rows: list[list[Any]]
    truncated: bool


JSON, LINES, CSV, ARROW = "application/json", "application/x-ndjson", "text/csv", "application/vnd.apache.arrow.stream"
FORMATS = (JSON, LINES, CSV, ARROW)
_SYNONYMS = {"application/ndjson": LINES, "application/jsonl": LINES, "application/vnd.apache.arrow": ARROW}
_ROWS_A_PART = 1000


def chosen(accept: str | None, offered: Sequence[str] = FORMATS) -> str:
    """The media type that an `Accept` header likes best, the first one if it has no wish.

    Raises `RefusedError` with 406 if it takes none of them.
    """
    best, place = 0.0, None
    for part in (accept or "*/*").split(","):
        name, *parameters = (one.strip().lower() for one in part.split(";"))
        name = _SYNONYMS.get(name, name)
        weight = next((_weight(one[2:]) for one in parameters if one.startswith("q=")), 1.0)
        fitting = next((one for one in offered if name in (one, "*/*", f"{one.partition('/')[0]}/*")), None)
        if fitting is not None and weight > best:
            best, place = weight, fitting
    if place is None:
        raise RefusedError(406, f"nothing fits Accept: {accept}", hint=f"there are {', '.join(offered)}")
    return place


def _weight(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0


def lines_of(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """Rows as lines of JSON, each an object by column."""
    encode = msgspec.json.Encoder().encode
    left = iter(rows)
    while part := list(islice(left, _ROWS_A_PART)):
        yield b"".join(encode(dict(zip(names, map(plain, row), strict=True))) + b"\n" for row in part)


def csv_of(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """Rows as CSV with a header: nothing for NULL, JSON for what has parts."""
    encode = msgspec.json.Encoder().encode
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(names)
    left = iter(rows)
    while True:
        yield text.getvalue().encode()
        text.seek(0)
        text.truncate()
        part = list(islice(left, _ROWS_A_PART))
        if not part:
            return
        writer.writerows([_cell(plain(value), encode) for value in row] for row in part)


def _cell(value: Any, encode: Any) -> Any:
    if value is None or (isinstance(value, str | int | float) and not isinstance(value, bool)):
        return value
    return encode(value).decode()


def arrow_of(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Record batches as an Arrow stream."""
    import pyarrow as pa

    sink = _Sink()
    with pa.ipc.new_stream(pa.PythonFile(sink, "w"), schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield sink.taken()
    yield sink.taken()


def table_reply(table: pa.Table, media_type: str, limit: int, shown: Callable[[Any], Any] = plain) -> Any:
    """A table as an answer of no more rows than `limit`. `shown` makes JSON of a value."""
    truncated = table.num_rows > limit
    table = table.slice(0, limit)
    headers = {"x-ontolake-truncated": "true"} if truncated else {}
    if media_type == ARROW:
        parts = arrow_of(table.schema, table.to_batches(max_chunksize=65_536))
        return StreamingResponse(parts, media_type=media_type, headers=headers)
    rows = (row for batch in table.to_batches()
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
    if media_type in (LINES, CSV):
        write = lines_of if media_type == LINES else csv_of
        return StreamingResponse(write(table.column_names, rows), media_type=media_type, headers=headers)
    columns = [ColumnType(field.name, str(field.type)) for field in table.schema]
    answer = TableAnswer(columns, [[shown(value) for value in row] for row in rows], truncated)
    return Reply(msgspec.json.encode(answer), media_type=media_type)


class _Sink(io.RawIOBase):
    """Keeps what was written until it is taken."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        return len(part)

    def taken(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)
