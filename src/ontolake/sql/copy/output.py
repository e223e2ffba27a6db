"""Rows as the text that COPY … TO writes."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.sql.copy.options import CopyOptions, chosen
from ontolake.sql.encodings.texts import text_column
from ontolake.sql.errors import DataError

ROWS = 32_768
"""Rows that are turned into text at a time."""
_ESCAPES = (("\\", "\\\\"), ("\b", "\\b"), ("\f", "\\f"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\v", "\\v"))


class RowFormatter:
    """Turns rows into lines."""

    def __init__(self, names: Sequence[str], options: CopyOptions) -> None:
        """Raises `UnknownNameError` if the options name columns that are not copied."""
        self._names, self._options = names, options
        forced = chosen(options.force_quote, names, names, "FORCE_QUOTE")
        self._forced = [name in forced for name in names]

    def header(self) -> bytes:
        names = [pa.array([name], pa.string()) for name in self._names]
        return self._lines([self._field(name, False) for name in names], 1)

    def lines(self, batch: pa.RecordBatch) -> bytes:
        """The lines of rows, in the encoding of the file. Raises `DataError` for text that it does not have."""
        fields = [self._field(text_column(column).cast(pa.string()), forced)
                  for column, forced in zip(batch.columns, self._forced, strict=True)]  # fmt: skip
        return self._lines(fields, batch.num_rows)

    def _lines(self, fields: list[pa.Array], count: int) -> bytes:
        options = self._options
        if not fields:
            return b"\n" * count
        rows = pc.binary_join_element_wise(*fields, options.delimiter.decode(), null_handling="replace",
                                           null_replacement=options.null.decode())  # fmt: skip
        lines = pc.binary_join_element_wise(rows, "\n", "")
        ends = np.frombuffer(lines.buffers()[1], np.int32)
        data = lines.buffers()[2][int(ends[0]) : int(ends[count])].to_pybytes()
        try:
            return data if options.encoding == "utf-8" else codecs.encode(data.decode(), options.encoding)
        except UnicodeEncodeError as error:
            raise DataError(f"the encoding {options.encoding} has no {error.object[error.start]!r}",
                            sqlstate="22P05") from error

    def _field(self, texts: pa.Array, forced: bool) -> pa.Array:
        return self._quoted(texts, forced) if self._options.is_csv else self._escaped(texts)

    def _escaped(self, texts: pa.Array) -> pa.Array:
        delimiter = self._options.delimiter.decode()
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


def write(batches: Iterable[pa.RecordBatch], formatter: RowFormatter, put: Callable[[bytes], object]) -> int:
    """Write rows. Returns how many there were."""
    count = 0
    for batch in batches:
        for begin in range(0, batch.num_rows, ROWS):
            put(formatter.lines(batch.slice(begin, ROWS)))
        count += batch.num_rows
    return count
