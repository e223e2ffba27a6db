"""Rows as the text, and as the binary tuples, that COPY … TO writes."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ontolake.sql.copy.binary_files import END, HEAD
from ontolake.sql.copy.options import CopyOptions, chosen
from ontolake.sql.encodings.texts import text_column
from ontolake.sql.encodings.tuples import column_bytes, message, messages, tuple_block
from ontolake.sql.errors import DataError
from ontolake.sql.types import Type

ROWS = 32_768
"""Rows that are turned into text at a time."""
_ESCAPES = (("\\", "\\\\"), ("\b", "\\b"), ("\f", "\\f"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\v", "\\v"))


class RowFormatter:
    """Turns rows into lines. With a `tag` each line is a message of PostgreSQL's protocol, which begins with it."""

    def __init__(self, names: Sequence[str], options: CopyOptions, tag: bytes = b"") -> None:
        """Raises `UnknownNameError` if the options name columns that are not copied."""
        self._names, self._options, self._tag = names, options, tag
        forced = chosen(options.force_quote, names, names, "FORCE_QUOTE")
        self._forced = [name in forced for name in names]

    def head(self) -> bytes | memoryview:
        """What comes before all rows."""
        if not self._options.header:
            return b""
        names = [pa.array([name], pa.string()) for name in self._names]
        return self._lines([self._field(name, False) for name in names], 1)

    def lines(self, batch: pa.RecordBatch) -> bytes | memoryview:
        """The lines of rows, in the encoding of the file. Raises `DataError` for text that it does not have."""
        fields = [self._field(text_column(column).cast(pa.string()), forced)
                  for column, forced in zip(batch.columns, self._forced, strict=True)]  # fmt: skip
        return self._lines(fields, batch.num_rows)

    def end(self) -> bytes:
        """What comes behind all rows."""
        return b""

    def _lines(self, fields: list[pa.Array], count: int) -> bytes | memoryview:
        options = self._options
        if not fields:
            return b"".join([message(self._tag, b"\n")] * count)
        rows = pc.binary_join_element_wise(*fields, options.delimiter.decode(), null_handling="replace",
                                           null_replacement=options.null.decode())  # fmt: skip
        lines = pc.binary_join_element_wise(rows, "\n", "").cast(pa.binary())
        try:
            if options.encoding != "utf-8":
                lines = pa.array([codecs.encode(line.decode(), options.encoding) for line in lines.to_pylist()],
                                 pa.binary())  # fmt: skip
        except UnicodeEncodeError as error:
            raise DataError(f"the encoding {options.encoding} has no {error.object[error.start]!r}",
                            sqlstate="22P05") from error
        return column_bytes(messages(lines, self._tag))

    def _field(self, texts: pa.Array, forced: bool) -> pa.Array:
        return self._quoted(texts, forced) if self._options.is_csv else self._escaped(texts)

    def _escaped(self, texts: pa.Array) -> pa.Array:
        delimiter = self._options.delimiter.decode()
        if not pc.any(pc.match_substring_regex(texts, f"[\\x08-\\x0d\\\\\\x{ord(delimiter):02x}]")).as_py():
            return texts
        for plain, escaped in (*_ESCAPES, *(() if delimiter == "\t" else ((delimiter, f"\\{delimiter}"),))):
            texts = pc.replace_substring(texts, plain, escaped)
        return texts

    def _quoted(self, texts: pa.Array, forced: bool) -> pa.Array:
        options = self._options
        quote, escape = options.quote.decode(), options.escape.decode()
        needed = pc.equal(texts, options.null.decode())
        for each in (options.delimiter.decode(), quote, "\n", "\r"):
            needed = pc.or_(needed, pc.match_substring(texts, each))
        if len(self._names) == 1:
            needed = pc.or_(needed, pc.equal(texts, "\\."))
        if forced:
            needed = pc.is_valid(texts)
        if not pc.any(needed).as_py():
            return texts
        inner = texts if escape == quote else pc.replace_substring(texts, escape, escape + escape)
        inner = pc.replace_substring(inner, quote, escape + quote)
        return pc.if_else(needed, pc.binary_join_element_wise(quote, inner, quote, ""), texts)


class TupleFormatter:
    """Turns rows into the tuples of the binary format."""

    def __init__(self, types: Sequence[Type], tag: bytes = b"") -> None:
        self._types, self._tag = types, tag
        self._formats = [1] * len(types)
        self._head = HEAD
        """What is still to be written before the first row: it is one message with it."""

    def head(self) -> bytes | memoryview:
        """What comes before all rows."""
        return b""

    def lines(self, batch: pa.RecordBatch) -> bytes | memoryview:
        """The tuples of rows."""
        if not self._head:
            return tuple_block(batch, self._types, self._formats, self._tag)
        first = bytes(tuple_block(batch.slice(0, 1), self._types, self._formats, b""))
        head, self._head = self._head, b""
        rest = tuple_block(batch.slice(1), self._types, self._formats, self._tag) if batch.num_rows > 1 else b""
        return b"".join([message(self._tag, head + first), rest])

    def end(self) -> bytes:
        """What comes behind all rows."""
        head, self._head = self._head, b""
        return message(self._tag, head + END)


def write(
    batches: Iterable[pa.RecordBatch], formatter: RowFormatter | TupleFormatter, put: Callable[[Any], object]
) -> int:
    """Write rows. Returns how many there were."""
    count = 0
    if head := formatter.head():
        put(head)
    for batch in batches:
        for begin in range(0, batch.num_rows, ROWS):
            put(formatter.lines(batch.slice(begin, ROWS)))
        count += batch.num_rows
    if end := formatter.end():
        put(end)
    return count
