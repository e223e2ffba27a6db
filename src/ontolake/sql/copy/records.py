"""Cutting the bytes of a file into records and fields, by PostgreSQL's rules for the formats text and csv.

Delimiters, ends of lines, quotes and backslashes are found in whole blocks. A field is where it begins and ends; what
quotes and backslashes mean inside is left to `values`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ontolake.sql.copy.options import CopyOptions
from ontolake.sql.errors import DataError

BLOCK = 8 << 20
"""Bytes that are read at a time."""
_MAX = (1 << 31) - 1
_BACKSLASH, _DOT, _NEWLINE, _RETURN = b"\\.\n\r"

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class FileRecords:
    """Records of a block: where their fields begin and end, how many each has, and the line that it begins on."""

    data: bytes
    starts: Places
    ends: Places
    counts: Places
    lines: Places
    marks: Places
    """Where quotes that open or close, or backslashes, are."""

    def __len__(self) -> int:
        return len(self.counts)

    def part(self, begin: int, end: int | None = None) -> FileRecords:
        """The records from one place up to another."""
        first, behind = int(self.counts[:begin].sum()), int(self.counts[:end].sum())
        return replace(self, starts=self.starts[first:behind], ends=self.ends[first:behind],
                       counts=self.counts[begin:end], lines=self.lines[begin:end])  # fmt: skip


def bad_format(name: str, line: int, why: str) -> DataError:
    error = DataError(f"{name}, line {line}: {why}", sqlstate="22P04")
    error.context = f"COPY, line {line}"
    return error


class RecordReader:
    """Reads records from a source of bytes, block by block. `read` gives up to so many bytes, none at the end."""

    def __init__(self, read: Callable[[int], bytes], options: CopyOptions, name: str) -> None:
        self._read = read
        self._options = options
        self._name = name
        self._eol = b""
        """How lines end; the first one tells."""
        self._line = 1
        self._is_ended = False
        wanted = np.zeros(256, np.bool_)
        wanted[[_NEWLINE, _RETURN, options.delimiter[0]]] = True
        self._wanted = wanted

    def __iter__(self) -> Iterator[FileRecords]:
        """The records. Raises `DataError` (22P04) for bytes that no record can have."""
        rest, size = b"", BLOCK
        while not self._is_ended:
            block = self._read(size)
            while block.endswith(b"\r") and (more := self._read(1)):  # its newline may come with the next block
                block += more
            data = rest + block
            if len(data) > _MAX:
                raise DataError(f"{self._name}, line {self._line}: a record is too long", sqlstate="54000")
            found, used = self._records(data, last=not block)
            rest = data[used:]
            size = BLOCK if len(found) else size * 2
            if len(found):
                yield found
            self._is_ended = self._is_ended or not block

    def _records(self, data: bytes, *, last: bool) -> tuple[FileRecords, int]:
        """The records that are complete, and how many bytes they take."""
        marks, hidden = (self._quotes if self._options.is_csv else self._backslashes)(data)
        buffer = np.frombuffer(data, np.uint8)
        places = np.flatnonzero(self._wanted[buffer])
        places = places[~hidden(places)]
        limit = len(data)
        if not self._options.is_csv:
            limit = self._marker(data, marks, places, last)
        places = places[places < limit]
        kinds = buffer[places]
        self._learn_ends(data, places, kinds)
        ends = self._line_ends(data, buffer, places, kinds)
        width = max(len(self._eol), 1)
        begins = np.concatenate(([0], ends + width)).astype(np.int64)
        complete = last or self._is_ended
        if self._options.is_csv:
            stop = self._csv_marker(buffer, begins, ends)
            if stop is not None:
                begins, ends, self._is_ended, complete = begins[: stop + 1], ends[:stop], True, False
            elif complete and len(marks) % 2:
                raise bad_format(self._name, self._line_of(data, int(marks[-1])), "a field in quotes does not end")
        if complete and begins[-1] < limit:
            ends = np.append(ends, limit)
        begins = begins[: len(ends)]
        used = 0 if not len(ends) else min(int(ends[-1]) + width, len(data))
        lines, behind = self._lines(data, buffer, begins, ends, used)
        records = self._fields(data, places, kinds, begins, ends, lines, marks[marks < used])
        self._line = behind
        return records, used

    def _lines(
        self, data: bytes, buffer: npt.NDArray[np.uint8], begins: Places, ends: Places, used: int
    ) -> tuple[Places, int]:
        """The lines that records begin on, and the one behind them."""
        mark = b"\r" if self._eol == b"\r" else b"\n"
        count = data.count(mark, 0, used)
        if count in (len(ends), len(ends) - 1):  # the usual case: no record has more than one
            return self._line + np.arange(len(ends)), self._line + count
        return self._line + self._count_lines(buffer, begins), self._line + count

    def _fields(
        self, data: bytes, places: Places, kinds: npt.NDArray[np.uint8], begins: Places, ends: Places, lines: Places,
        marks: Places,
    ) -> FileRecords:  # fmt: skip
        """Fields end at delimiters and at the ends of records; the next one begins behind."""
        if not len(ends):
            return FileRecords(data, begins[:0], ends, ends, lines, marks)
        delimiter, width = self._options.delimiter[0], max(len(self._eol), 1)
        kept = (kinds == delimiter) | (kinds == (self._eol or b"\n")[0])
        field_ends, is_end = places[kept], kinds[kept] != delimiter
        known = int(np.searchsorted(field_ends, ends[-1], "right"))
        field_ends, is_end = field_ends[:known], is_end[:known]
        if not known or field_ends[-1] != ends[-1]:  # the last record, without an end of its line
            field_ends, is_end = np.append(field_ends, ends[-1]), np.append(is_end, True)
        field_starts = np.empty_like(field_ends)
        field_starts[0] = begins[0]
        field_starts[1:] = field_ends[:-1] + np.where(is_end[:-1], width, 1)
        counts = np.diff(np.flatnonzero(is_end), prepend=-1)
        return FileRecords(data, field_starts, field_ends, counts, lines, marks)

    # what quotes and backslashes hide

    def _quotes(self, data: bytes) -> tuple[Places, Callable[[Places], npt.NDArray[np.bool_]]]:
        quote, escape = self._options.quote, self._options.escape
        buffer = np.frombuffer(data, np.uint8)
        marks = np.flatnonzero(buffer == quote[0])
        if escape != quote and escape in data:
            marks = _unescaped_quotes(data, quote, escape)
        return marks, lambda places: (np.searchsorted(marks, places) & 1).astype(np.bool_)

    def _backslashes(self, data: bytes) -> tuple[Places, Callable[[Places], npt.NDArray[np.bool_]]]:
        marks = np.flatnonzero(np.frombuffer(data, np.uint8) == _BACKSLASH)
        if len(marks):  # of those in a row, every other one escapes what is behind it
            number = np.arange(len(marks))
            first = np.flatnonzero(np.diff(marks, prepend=-2) != 1)
            run = np.repeat(first, np.diff(np.append(first, len(marks))))
            marks = marks[(number - run) % 2 == 0]
        escaped = np.zeros(len(data) + 1, np.bool_)
        escaped[marks + 1] = True
        return marks, lambda places: escaped[places]

    # ends of lines and of data

    def _learn_ends(self, data: bytes, places: Places, kinds: npt.NDArray[np.uint8]) -> None:
        if self._eol:
            return
        found = places[kinds != self._options.delimiter[0]]
        if len(found):
            at = int(found[0])
            self._eol = data[at : at + 1] if data[at] == _NEWLINE or data[at + 1 : at + 2] != b"\n" else b"\r\n"

    def _line_ends(
        self, data: bytes, buffer: npt.NDArray[np.uint8], places: Places, kinds: npt.NDArray[np.uint8]
    ) -> Places:
        ends: Places
        newlines, returns = places[kinds == _NEWLINE], places[kinds == _RETURN]
        if self._eol == b"\r\n":
            wrong = np.setxor1d(newlines, returns + 1)
            ends = returns
        else:
            ends, wrong = (newlines, returns) if self._eol != b"\r" else (returns, newlines)
        if len(wrong):
            at = int(wrong[0])
            which = "newline" if at < len(data) and data[at] == _NEWLINE else "carriage return"
            raise bad_format(self._name, self._line_of(data, at), f"there is a {which}, and other lines end otherwise")
        return ends

    def _count_lines(self, buffer: npt.NDArray[np.uint8], places: Places) -> Places:
        """How many lines end before each of these places."""
        ends = np.flatnonzero(buffer == (_RETURN if self._eol == b"\r" else _NEWLINE))
        found: Places = np.searchsorted(ends, places)
        return found

    def _line_of(self, data: bytes, at: int) -> int:
        return self._line + data.count(b"\r" if self._eol == b"\r" else b"\n", 0, at)

    def _marker(self, data: bytes, marks: Places, places: Places, last: bool) -> int:
        r"""Where data ends by `\.` in the text format; the length of the block if it does not."""
        buffer = np.frombuffer(data + b"\0", np.uint8)
        found = marks[buffer[np.minimum(marks + 1, len(data))] == _DOT]
        if not len(found) or (found[0] + 2 >= len(data) and not last):
            return len(data)
        at = int(found[0])
        if data[at + 2 : at + 3] not in (b"\n", b"\r"):
            raise bad_format(self._name, self._line_of(data, at), r"the end of data, \., does not end the line")
        kinds = buffer[places]
        self._learn_ends(data, places, kinds)
        if data[at + 2 : at + 2 + len(self._eol)] != self._eol:
            raise bad_format(self._name, self._line_of(data, at), r"the line of \. ends otherwise than others")
        self._is_ended = True
        return at

    def _csv_marker(self, buffer: npt.NDArray[np.uint8], begins: Places, ends: Places) -> int | None:
        r"""The record that is just `\.`, if there is one."""
        short = np.flatnonzero(ends - begins[: len(ends)] == 2)
        at = begins[short]
        found = short[(buffer[at] == _BACKSLASH) & (buffer[at + 1] == _DOT)] if len(short) else short
        return int(found[0]) if len(found) else None


def _unescaped_quotes(data: bytes, quote: bytes, escape: bytes) -> Places:
    """Where quotes open or close a part in quotes, in which another character escapes them."""
    found: list[int] = []
    at = data.find(quote)
    while at >= 0:
        found.append(at)
        at += 1
        if len(found) % 2 == 0:
            at = data.find(quote, at)
            continue
        while True:  # inside: look for what closes it
            closing, escaping = data.find(quote, at), data.find(escape, at)
            if escaping < 0 or (0 <= closing < escaping):
                at = closing
                break
            behind = data[escaping + 1 : escaping + 2]
            at = escaping + (2 if behind in (quote, escape) and behind else 1)
    return np.array(found, np.int64)
