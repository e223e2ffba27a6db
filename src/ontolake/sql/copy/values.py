"""Fields into values: what quotes, backslashes and NULL mean, then text as the types of columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.sql.catalog.coercion import coerced, read_texts
from ontolake.sql.catalog.records import ColumnMeta
from ontolake.sql.copy.options import CopyOptions, chosen
from ontolake.sql.copy.records import FileRecords, bad_format
from ontolake.sql.errors import DataError, SqlError
from ontolake.sql.types import Kind, Type

_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.)|$)", re.DOTALL)
_CONTROLS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_PATTERNS = {
    Kind.INT64: r"^-?[0-9]{1,18}$", Kind.DOUBLE: r"^-?[0-9]{1,300}(\.[0-9]+)?$",
    Kind.DECIMAL: r"^-?[0-9]+(\.[0-9]+)?$", Kind.DATE: r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}$",
    Kind.TIMESTAMP_US: r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$",
}  # fmt: skip
"""Texts that Arrow reads as PostgreSQL does, by kind; all others are read one by one."""


_Answer = TypeVar("_Answer")


class FieldColumns(NamedTuple):
    """The columns of a file: their names, and those for which quotes and NULL have another meaning."""

    names: Sequence[str]
    options: CopyOptions
    null: frozenset[str]
    not_null: frozenset[str]

    @classmethod
    def of(cls, names: Sequence[str], known: Collection[str], options: CopyOptions) -> FieldColumns:
        """Columns of a table, which has all that are `known`. Raises `SqlError` if the options name other ones."""
        return cls(names, options, chosen(options.force_null, names, known, "FORCE_NULL"),
                   chosen(options.force_not_null, names, known, "FORCE_NOT_NULL"))  # fmt: skip


def check_header(name: str, records: FileRecords, columns: FieldColumns) -> None:
    """Raise `DataError` if the first record does not have the names of the columns."""
    if records.counts[0] != len(columns.names):
        raise wrong_width(name, records, columns)
    found = [texts.to_pylist()[0] for texts in texts_of(name, records.part(0, 1), columns)]
    for place, (wanted, there) in enumerate(zip(columns.names, found, strict=True), 1):
        if wanted != there:
            raise bad_format(name, 1, f"the header has {there!r} in column {place}, and the column is {wanted}")


def wrong_width(name: str, records: FileRecords, columns: FieldColumns) -> DataError:
    """What is raised for the first record, which has more or fewer fields than there are columns."""
    count, width = int(records.counts[0]), len(columns.names)
    return bad_format(name, int(records.lines[0]), f"there is no data for the column {columns.names[count]}"
                      if count < width else f"there are {count} fields for {width} columns")  # fmt: skip


def texts_of(name: str, records: FileRecords, columns: FieldColumns) -> list[pa.Array]:
    """The fields of records with as many fields as columns, a column of text each.

    Raises `DataError` that names the line.
    """
    width, options = len(columns.names), columns.options
    buffer = np.frombuffer(records.data, np.uint8)
    missing = _equal(buffer, records, options.null)
    starts, ends, special = _quoted(records, options) if options.is_csv else _escaped(records)
    bounds = np.empty(2 * len(starts) + 1, np.int32)  # every other element is what stands between fields
    bounds[:-1:2], bounds[1::2], bounds[-1] = starts, ends, len(buffer)
    fields = pa.Array.from_buffers(pa.binary(), 2 * len(starts), [None, pa.py_buffer(bounds),
                                                                  pa.py_buffer(records.data)])  # fmt: skip
    read: Callable[[bytes], bytes] = _unescaped if not options.is_csv else \
        (lambda raw: _unquoted(raw, options.quote, options.escape))  # fmt: skip
    found = []
    for place, column in enumerate(columns.names):
        absent = missing[place::width]
        if column in columns.not_null:
            absent = np.zeros(len(absent), np.bool_)
        values = fields.take(pa.array(np.arange(place, len(starts), width) * 2, mask=absent))
        inside = special[place::width] & ~absent
        if inside.any():
            values = pc.replace_with_mask(values, pa.array(inside), pa.array(
                [read(raw) for raw in values.filter(pa.array(inside)).to_pylist()], pa.binary()))  # fmt: skip
        if column in columns.null:
            values = pc.if_else(pc.equal(values, options.null), pa.scalar(None, pa.binary()), values)
        found.append(_decoded(name, records, column, values))
    return found


def _equal(buffer: npt.NDArray[np.uint8], records: FileRecords, text: bytes) -> npt.NDArray[np.bool_]:
    """Which fields are this text, as they stand there."""
    found: npt.NDArray[np.bool_] = records.ends - records.starts == len(text)
    if text:
        places = np.flatnonzero(found)
        same = np.ones(len(places), np.bool_)
        for n, byte in enumerate(text):
            same &= buffer[records.starts[places] + n] == byte
        found[places] = same
    return found


def _owners(records: FileRecords, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The fields that these places are in."""
    places = places[(places >= records.starts[0]) & (places < records.ends[-1])] if len(records.starts) else places[:0]
    return np.searchsorted(records.starts, places, "right") - 1


def _quoted(
    records: FileRecords, options: CopyOptions
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Where fields begin and end without the quotes around them, and which have others inside."""
    starts, ends = records.starts.copy(), records.ends.copy()
    special = np.zeros(len(starts), np.bool_)
    if not len(records.marks):
        return starts, ends, special
    buffer, quote = np.frombuffer(records.data, np.uint8), options.quote[0]
    marks = np.bincount(_owners(records, records.marks), minlength=len(starts))
    special = marks > 0
    if options.escape != options.quote:
        escapes = np.bincount(_owners(records, np.flatnonzero(buffer == options.escape[0])), minlength=len(starts))
        around = (marks == 2) & (escapes == 0)
    else:
        around = marks == 2
    places = np.flatnonzero(around)
    places = places[(buffer[starts[places]] == quote) & (buffer[ends[places] - 1] == quote)]
    starts[places] += 1
    ends[places] -= 1
    special[places] = False
    return starts, ends, special


def _escaped(
    records: FileRecords,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    special = np.zeros(len(records.starts), np.bool_)
    special[_owners(records, records.marks)] = True
    return records.starts, records.ends, special


def _unquoted(raw: bytes, quote: bytes, escape: bytes) -> bytes:
    """A field of csv without its quotes."""
    if escape == quote and raw[:1] == quote == raw[-1:] and len(raw) > 1:
        inner = raw[1:-1]
        if quote not in inner.replace(quote + quote, b""):
            return inner.replace(quote + quote, quote)
    found, at, inside = bytearray(), 0, False
    while at < len(raw):
        one, behind = raw[at : at + 1], raw[at + 1 : at + 2]
        if inside and one == escape and behind and behind in (escape, quote):
            found += behind
            at += 2
            continue
        if one == quote:
            inside = not inside
        else:
            found += one
        at += 1
    return bytes(found)


def _unescaped(raw: bytes) -> bytes:
    """A field of the text format with what its backslashes mean."""
    def meaning(match: re.Match[bytes]) -> bytes:
        octal, digits, plain = match.groups()
        if octal is not None:
            return bytes((int(octal, 8) & 0xFF,))
        if digits is not None:
            return bytes((int(digits, 16),))
        return _CONTROLS.get(plain, plain) if plain is not None else b""

    return _ESCAPE.sub(meaning, raw)


def _decoded(name: str, records: FileRecords, column: str, values: pa.Array) -> pa.Array:
    """Bytes as text. Raises `DataError` (22021)."""
    return located(f"{name}, line", records.lines, column, lambda count: as_strings(values.slice(0, count)))


def as_strings(values: pa.Array) -> pa.Array:
    """Bytes as text. Raises `DataError` (22021)."""
    if pc.any(pc.match_substring(values, b"\0")).as_py():
        raise DataError("text cannot have the character 0", sqlstate="22021")
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise DataError("there are bytes that are not UTF-8", sqlstate="22021",
                        hint="say which ENCODING the file has") from error


# values of columns


def located(
    place: str, lines: npt.NDArray[np.int64], column: str | None, attempt: Callable[[int], _Answer]
) -> _Answer:
    """What `attempt` gives for all rows. It is called with how many rows to take; an error names the first line whose
    row makes it fail, behind `place`, such as `orders.csv, line`."""
    try:
        return attempt(len(lines))
    except SqlError as error:
        low, high, raised = 0, len(lines), error
        while high - low > 1:
            middle = (low + high) // 2
            try:
                attempt(middle)
                low = middle
            except SqlError as earlier:
                high, raised = middle, earlier
        raise at_line(raised, f"{place} {lines[high - 1]}", column) from None


def at_line(error: SqlError, place: str, column: str | None = None) -> SqlError:
    """The same error, which names the file and line."""
    where = f"{place}{f', column {column}' if column else ''}"
    error.context = "COPY, " + where.partition(", ")[2]
    error.message = f"{where}: {error.message}"
    error.args = (error.message,)
    return error


def typed(column: ColumnMeta, texts: pa.Array) -> pa.Array:
    """Texts as values of a column. Raises `DataError`."""
    type = column.type
    if type.kind == Kind.UTF8:
        return coerced(column, texts)
    pattern = _PATTERNS.get(Kind(type.kind))
    if pattern and _is_exact(type) and pc.all(pc.match_substring_regex(texts, pattern)).as_py() is not False:
        try:
            return _cast(type, texts)
        except pa.ArrowInvalid:
            pass  # one by one, which says what is wrong
    return read_texts(type, texts)


def _is_exact(type: Type) -> bool:
    """Whether values keep all digits that Arrow reads."""
    return type.kind != Kind.TIMESTAMP_US or not (type.scale or type.zoned)


def _cast(type: Type, texts: pa.Array) -> pa.Array:
    found = texts.cast(type.arrow)
    return pc.add(found, 0.0) if type.kind == Kind.DOUBLE else found  # there is one zero
