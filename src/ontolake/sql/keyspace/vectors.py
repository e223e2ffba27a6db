"""The rules of `keys` and `rows` for whole Arrow columns at once; both give the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.errors import Corruption
from ontolake.sql.keyspace import columns as blocks
from ontolake.sql.keyspace import rows
from ontolake.sql.keyspace.columns import Numbers, Octets, storage_of, validity
from ontolake.sql.keyspace.columns import stored_array as stored_array
from ontolake.sql.keyspace.columns import stored_list as stored_list
from ontolake.sql.keyspace.keys import END, ESCAPED, SORT_BYTES
from ontolake.sql.types import WIDTHS, Kind, Stored, Type

_PAD = 24
"""Room behind a buffer, so that a column that is not there can be read without looking."""
_HEAD = np.dtype([("flags", ">u2"), ("heads", ">u4")])
_SORTED = (Kind.NUMERIC, Kind.JSONB, Kind.ARRAY)
"""Kinds whose bytes in keys are worked out for each value."""


class Strings(NamedTuple):
    """Byte strings in one buffer: the i-th is `data[offsets[i]:offsets[i + 1]]`."""

    data: Octets
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, strings: Sequence[bytes]) -> Strings:
        lengths = np.fromiter(map(len, strings), np.int64, len(strings))
        return cls(np.frombuffer(b"".join(strings), np.uint8), offsets_of(lengths))

    @classmethod
    def joined(cls, groups: Sequence[Strings]) -> Strings:
        """All of several, one group behind the other."""
        lengths = np.concatenate([np.zeros(0, np.int64), *(np.diff(group.offsets) for group in groups)])
        parts = [group.data[group.offsets[0] : group.offsets[-1]] for group in groups]
        return cls(np.concatenate([np.zeros(0, np.uint8), *parts]), offsets_of(lengths))

    def to_list(self) -> list[bytes]:
        """All of them as `bytes`."""
        count = len(self)
        if not count:
            return []
        width = int(self.offsets[1] - self.offsets[0])
        if width and (np.diff(self.offsets) == width).all():
            begin = int(self.offsets[0])
            strings: list[bytes] = self.data[begin : begin + count * width].view(f"V{width}").tolist()
            return strings
        begin = int(self.offsets[0])
        raw = self.data[begin : self.offsets[-1]].tobytes()
        return [raw[a:b] for a, b in pairwise((self.offsets - begin).tolist())]

    def slice(self, begin: int, end: int) -> Strings:
        """Those from one place up to another, without a copy."""
        return Strings(self.data, self.offsets[begin : end + 1])

    def filtered(self, kept: npt.NDArray[np.bool_]) -> Strings:
        """Those of them that are to be kept."""
        return from_arrow(as_arrow(self).filter(pa.array(kept)))

    def last(self) -> bytes:
        return self.at(-1)

    def at(self, place: int) -> bytes:
        """One of them; from the last one on if `place` is negative."""
        place = place % len(self)
        return self.data[self.offsets[place] : self.offsets[place + 1]].tobytes()

    def among(self, others: Sequence[bytes]) -> list[bytes]:
        """Those of others that are among these."""
        found = pc.is_in(pa.array(others, pa.large_binary()), value_set=as_arrow(self))
        return [each for each, there in zip(others, found.to_pylist(), strict=True) if there]

    def heads(self, ends: Numbers) -> Strings:
        """What each has up to a place in the buffer."""
        return Strings(*_gather(self.data, self.offsets[:-1], ends - self.offsets[:-1]))

    def tails(self, begins: Numbers) -> Strings:
        """What each has from a place in the buffer on."""
        return Strings(*_gather(self.data, begins, self.offsets[1:] - begins))


def offsets_of(lengths: Numbers) -> npt.NDArray[np.int64]:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _gather(data: Octets, starts: Numbers, lengths: Numbers) -> tuple[Octets, npt.NDArray[np.int64]]:
    """Pieces of a buffer, one behind the other."""
    offsets = offsets_of(lengths)
    places = np.arange(offsets[-1], dtype=np.int64)
    places += np.repeat(starts - offsets[:-1], lengths)
    return data[places], offsets


# Columns and pieces of keys and values. A piece is an n × width block, or an Arrow array where widths differ.

_Piece: TypeAlias = "Octets | pa.Array"


def _flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def _nulls(column: pa.Array) -> npt.NDArray[np.bool_] | None:
    if not column.null_count:
        return None
    nulls: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _with_nulls(block: Octets, nulls: npt.NDArray[np.bool_] | None, keep: int) -> _Piece:
    """A block of which a row that is NULL has only the first `keep` bytes."""
    if nulls is None:
        return block
    count, width = block.shape
    mask = np.ones((count, width), np.bool_)
    mask[:, keep:] = ~nulls[:, None]
    return as_arrow(Strings(block[mask], offsets_of(np.where(nulls, keep, width))))


def as_arrow(strings: Strings) -> pa.Array:
    """Byte strings as an Arrow array of large_binary, without a copy."""
    data = np.ascontiguousarray(strings.data)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(strings), [None, pa.py_buffer(strings.offsets), pa.py_buffer(data)])


def from_arrow(column: pa.Array) -> Strings:
    _, offsets, data = column.buffers()
    places = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    return Strings(np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8), places)


def _join(pieces: Sequence[_Piece], count: int) -> Strings:
    """Pieces side by side, row by row."""
    blocks: list[Octets] = []
    columns: list[Any] = []

    def flush() -> None:
        if blocks:
            block = blocks[0] if len(blocks) == 1 else np.hstack(blocks)
            columns.append(as_arrow(Strings(np.ascontiguousarray(block).reshape(-1),
                                           np.arange(count + 1, dtype=np.int64) * block.shape[1])))  # fmt: skip
            blocks.clear()

    for piece in pieces:
        if isinstance(piece, np.ndarray):
            blocks.append(piece)
        else:
            flush()
            columns.append(piece)
    flush()
    if len(columns) == 1:
        return from_arrow(columns[0])
    return from_arrow(pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.large_binary())))


def _same(octets: bytes, count: int) -> Octets:
    return np.broadcast_to(np.frombuffer(octets, np.uint8), (count, len(octets)))


# keys


def encode_keys(
    prefix: bytes, types: Sequence[Type], columns: Sequence[pa.Array], desc: Sequence[bool] = ()
) -> Strings:
    """`prefix` and the tuple of the columns' values, for every row."""
    count = len(columns[0]) if columns else 0
    if not count:
        return Strings.of([])
    flags = desc or (False,) * len(columns)
    pieces: list[_Piece] = [_same(prefix, count)]
    for type, column, flag in zip(types, columns, flags, strict=True):
        pieces += _element(type, _flat(column), flag)
    return _join(pieces, count)


def _element(type: Type, column: pa.Array, desc: bool) -> list[_Piece]:
    count, nulls = len(column), _nulls(column)
    head = np.zeros((count, 2), np.uint8)
    head[:, 0] = type.kind
    if nulls is not None:
        head[:, 1] = nulls
    if type.kind in WIDTHS:
        piece = _with_nulls(np.hstack([head, blocks.key_block(type, column)]), nulls, 2)
        return [_inverted(piece) if desc else piece]
    text = _sort_bytes(type, column)
    if (from_arrow(text).data == 0).any():
        text = pc.replace_substring(text, pattern=b"\x00", replacement=ESCAPED)
    pieces: list[_Piece] = [head, text, _with_nulls(np.ascontiguousarray(_same(END, count)), nulls, 0)]
    return [_inverted(piece) for piece in pieces] if desc else pieces


def _sort_bytes(type: Type, column: pa.Array) -> pa.Array:
    """What a key has of each value before it is escaped; nothing for NULL."""
    if type.kind not in _SORTED:
        return pc.fill_null(storage_of(column).cast(pa.large_binary()), b"")
    encode = SORT_BYTES[type.kind][0]
    return pa.array([b"" if value is None else encode(value) for value in stored_list(type, column)],
                    pa.large_binary())  # fmt: skip


def _of_sort_bytes(type: Type, strings: Strings, nulls: npt.NDArray[np.bool_]) -> pa.Array:
    if type.kind not in _SORTED:
        return _texts(type, strings, nulls)
    decode = SORT_BYTES[type.kind][1]
    return stored_array(type, [None if gone else decode(raw)
                               for raw, gone in zip(strings.to_list(), nulls.tolist(), strict=True)])  # fmt: skip


def _inverted(piece: _Piece) -> _Piece:
    if isinstance(piece, np.ndarray):
        return ~piece
    strings = from_arrow(piece)
    return as_arrow(Strings(~strings.data, strings.offsets))


def decode_keys(
    types: Sequence[Type], keys: Strings, skip: int, desc: Sequence[bool] = ()
) -> tuple[list[pa.Array], npt.NDArray[np.int64]]:
    """The columns of the tuples that begin `skip` bytes into each key, and where each tuple ends in the buffer.

    Raises `Corruption`.
    """
    data = np.concatenate([keys.data, np.zeros(_PAD, np.uint8)])
    cursor = keys.offsets[:-1] + skip
    columns: list[pa.Array] = []
    for number, type in enumerate(types):
        flip = 0xFF if desc and desc[number] else 0
        if (data[cursor] != type.kind ^ flip).any():
            raise Corruption(f"a key has no {type} where one belongs")
        nulls = (data[cursor + 1] ^ flip).astype(np.bool_)
        cursor = cursor + 2
        if (width := WIDTHS.get(Kind(type.kind))) is not None:
            block = np.lib.stride_tricks.sliding_window_view(data, width)[cursor] ^ np.uint8(flip)
            columns.append(blocks.of_key_block(type, block, nulls))
            cursor = cursor + np.where(nulls, 0, width)
            continue
        pair = [each ^ flip for each in END]
        ends = np.flatnonzero((data[:-1] == pair[0]) & (data[1:] == pair[1]))
        if not len(ends):
            ends = np.array([len(data)])
        found = ends[np.minimum(np.searchsorted(ends, cursor), len(ends) - 1)]
        lengths = np.where(nulls, 0, found - cursor)
        if (lengths < 0).any() or (cursor + lengths > keys.offsets[1:]).any():
            raise Corruption(f"a key has {type} that does not end")
        raw, offsets = _gather(data, cursor, lengths)
        texts = as_arrow(Strings(raw ^ np.uint8(flip) if flip else raw, offsets))
        if (raw == flip).any():
            texts = pc.replace_substring(texts, pattern=ESCAPED, replacement=b"\x00")
        columns.append(_of_sort_bytes(type, from_arrow(texts), nulls))
        cursor = np.where(nulls, cursor, found + 2)
    return columns, cursor


# rows


def encode_rows(types: Sequence[Type | None], columns: Sequence[pa.Array | None], count: int) -> Strings:
    """The values of rows whose columns are given by column id; None for a column that was dropped."""
    if not count:
        return Strings.of([])
    width = (len(types) + 7) // 8
    head = np.zeros((count, 6 + width), np.uint8)
    head[:, :6] = np.frombuffer(rows.head(len(types)), np.uint8)
    pieces: list[_Piece] = [head]
    for number, (type, given) in enumerate(zip(types, columns, strict=True)):
        bit = np.uint8(1 << number % 8)
        if type is None or given is None:
            head[:, 6 + number // 8] |= bit
            continue
        column = _flat(given)
        nulls = _nulls(column)
        if nulls is not None:
            head[:, 6 + number // 8] |= nulls.astype(np.uint8) * bit
        pieces += _payloads(type, column, nulls)
    return _join(pieces, count)


def _row_bytes(type: Type, column: pa.Array) -> pa.Array:
    """What the payload of each value has behind its length; nothing for NULL."""
    if type.item is None:
        return pc.fill_null(storage_of(column).cast(pa.large_binary()), b"")
    offsets = np.asarray(column.offsets).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    items = column.values.slice(first, last - first)
    encoded = _items(type.item, items) if len(items) else Strings.of([])
    places, counts = offsets - first, np.diff(offsets)
    if (nulls := _nulls(column)) is not None:
        counts = np.where(nulls, 0, counts)
    raw, offsets = _gather(encoded.data, encoded.offsets[places[:-1]],
                           encoded.offsets[places[:-1] + counts] - encoded.offsets[places[:-1]])  # fmt: skip
    head = np.empty((len(column), 5), np.uint8)
    head[:, 0], head[:, 1:] = type.item.kind, counts.astype(">u4").view(np.uint8).reshape(-1, 4)
    return as_arrow(_join([_with_nulls(head, nulls, 0), as_arrow(Strings(raw, offsets))], len(column)))


def _items(type: Type, column: pa.Array) -> Strings:
    """The elements of arrays as rows have them: `0 | length | payload`, or `1` for NULL."""
    count, nulls = len(column), _nulls(column)
    head = np.zeros((count, 1), np.uint8)
    if nulls is not None:
        head[:, 0] = nulls
    return _join([head, *_payloads(type, column, nulls)], count)


def _payloads(type: Type, column: pa.Array, nulls: npt.NDArray[np.bool_] | None) -> list[_Piece]:
    """The lengths and payloads of a column."""
    count = len(column)
    if (payload := WIDTHS.get(Kind(type.kind))) is not None:
        block = np.empty((count, 4 + payload), np.uint8)
        block[:, :4] = np.frombuffer(payload.to_bytes(4, "big"), np.uint8)
        block[:, 4:] = blocks.row_block(type, column)
        return [_with_nulls(block, nulls, 0)]
    text = _row_bytes(type, column)
    sizes = np.diff(from_arrow(text).offsets)
    lengths = np.hstack([(sizes + more).astype(">u4").view(np.uint8).reshape(count, 4) for more in (4, 0)])
    return [_with_nulls(lengths, nulls, 0), text]


def _of_items(type: Type, strings: Strings, missing: npt.NDArray[np.bool_] | None) -> pa.Array:
    """A column of arrays from what their payloads have behind the lengths. Raises `Corruption`."""
    assert type.item is not None
    data = np.concatenate([strings.data, np.zeros(_PAD, np.uint8)])
    starts, ends = strings.offsets[:-1], strings.offsets[1:]
    there = np.ones(len(strings), np.bool_) if missing is None else ~missing
    if ((ends - starts)[there] < 5).any() or (data[starts[there]] != type.item.kind).any():
        raise Corruption(f"a row value has no {type} where one belongs")
    longs = _view(data, ">u4")
    counts = np.where(there, longs[np.minimum(starts + 1, len(longs) - 1)], 0).astype(np.int64)
    total = offsets_of(counts)
    places = np.zeros(int(total[-1]), np.int64)
    gone = np.zeros(int(total[-1]), np.bool_)
    cursor, left = starts + 5, np.flatnonzero(counts)
    for number in range(int(counts.max(initial=0))):  # the same element of all arrays at a time
        left = left[counts[left] > number]
        at = cursor[left]
        if (at >= ends[left]).any():
            raise Corruption(f"a row value has {type} that ends too early")
        nulls = data[at] != 0
        gone[total[left] + number], places[total[left] + number] = nulls, at + 1
        lengths = longs[np.minimum(at + 1, len(longs) - 1)].astype(np.int64)
        cursor[left] = at + np.where(nulls, 1, 5 + lengths)
    if (cursor[there] != ends[there]).any():
        raise Corruption(f"a row value has {type} that does not end with its last element")
    lengths = np.where(gone, 0, longs[np.minimum(places, len(longs) - 1)]).astype(np.int64)
    items = _column(Wanted(0, type.item), data, longs, places, lengths, gone if gone.any() else None, None)
    return blocks.list_array(type, total.astype(np.int32), items, missing)


class Wanted(NamedTuple):
    """A column to decode: its place in the row, its type, and what it is in rows that are too old for it."""

    place: int
    type: Type
    absent: Stored = None


def decode_rows(
    values: Strings, wanted: Sequence[Wanted], types: Sequence[Type] = (), *, whole: bool = False
) -> list[pa.Array]:
    """Columns of row values, in the order in which they are asked for. Raises `Corruption`; short rows only if `whole`.

    `types` may tell the types of all columns by id; then those of fixed width are passed over without a look.
    """
    if not len(values):
        return [pa.nulls(0, each.type.arrow) for each in wanted]
    try:
        return _decoded_rows(values, wanted, types)
    except IndexError:
        error = Corruption("a row value ends too early")
    except Corruption as raised:
        error = raised
    found = None if whole else _decoded_singly(values, wanted)
    if found is None:
        raise error
    return found


def _decoded_singly(values: Strings, wanted: Sequence[Wanted]) -> list[pa.Array] | None:
    """The same one row at a time, where some are short; None if none is."""
    cells = [rows.split_row(value) for value in values.to_list()]
    if all(row.short is None for row in cells):
        return None
    columns = []
    for place, type, absent in wanted:
        raw = [row.payloads[place] if place < len(row.payloads) else None for row in cells]
        found = [None if each is None else rows.decode_payload(type.kind, each) for each in raw]
        if absent is not None:
            found = [absent if place >= len(row.payloads) else each for row, each in zip(cells, found, strict=True)]
        columns.append(stored_array(type, found))
    return columns


def _decoded_rows(values: Strings, wanted: Sequence[Wanted], types: Sequence[Type]) -> list[pa.Array]:
    count, data, starts = len(values), values.data, values.offsets[:-1]
    by_place: dict[int, list[int]] = {}
    for number, each in enumerate(wanted):
        by_place.setdefault(each.place, []).append(number)
    last = max(by_place, default=-1)
    if int(np.diff(values.offsets).min()) < 6:
        raise Corruption("a row value does not begin as one")
    begun = _records(data, starts, _HEAD)
    if (begun["flags"] != rows.VERSION << 8).any():
        raise Corruption("a row value does not begin as one")
    heads = begun["heads"]
    if (heads == heads[0]).all():  # how many columns, and how long the bitmap is
        fewest, bitmap = int(heads[0]) >> 16, int(heads[0]) & 0xFFFF
        counts, widths = np.full(1, fewest), np.full(1, bitmap)
    else:
        counts, widths = (heads >> 16).astype(np.int64), (heads & 0xFFFF).astype(np.int64)
        fewest, bitmap = int(counts.min()), int(widths.max())
    cursor = starts + 6 + widths
    data = np.concatenate([data, np.zeros(_PAD, np.uint8)]) if fewest <= last or len(widths) > 1 else data
    bitmaps = [data[starts + 6 + n] for n in range(min(bitmap, last // 8 + 1))]
    if len(widths) > 1:
        bitmaps = [np.where(n < widths, each, 0).astype(np.uint8) for n, each in enumerate(bitmaps)]
    if len(data) == len(values.data) and any(each.any() for each in bitmaps):
        data = np.concatenate([data, np.zeros(_PAD, np.uint8)])  # so that what is not there can be read
    longs = _view(data, ">u4")
    columns: list[pa.Array] = [None] * len(wanted)
    for place in range(last + 1):
        nulls = None
        if place // 8 < len(bitmaps):
            nulls = (bitmaps[place // 8] & np.uint8(1 << place % 8)).astype(np.bool_)
            nulls = nulls if nulls.any() else None
        late = np.broadcast_to(counts <= place, count) if place >= fewest else None
        missing = nulls if late is None else late if nulls is None else nulls | late
        here = by_place.get(place, ())
        known = wanted[here[0]].type if here else types[place] if place < len(types) else None
        width = None if known is None else WIDTHS.get(Kind(known.kind))
        if width is not None and missing is None:
            for number in here:
                columns[number] = _plain_column(wanted[number].type, data, cursor, width)
            cursor = cursor + (4 + width)
            continue
        lengths = longs[cursor if missing is None else np.minimum(cursor, len(longs) - 1)].astype(np.int64)
        if missing is not None:
            lengths[missing] = 0
        for number in here:
            columns[number] = _column(wanted[number], data, longs, cursor, lengths, missing, late)
        cursor = cursor + lengths + (4 if missing is None else np.where(missing, 0, 4))
        if width is None and (cursor > values.offsets[1:]).any():
            raise Corruption("a row value ends too early")
    if (cursor > values.offsets[1:]).any():
        raise Corruption("a row value ends too early")
    return columns


def _records(data: Octets, places: Numbers, layout: np.dtype[Any]) -> Numbers:
    """What stands at places in a buffer, in this layout. All of its fields are gathered at once."""
    width = layout.itemsize
    found = np.ndarray((max(len(data) - width + 1, 0),), f"V{width}", data, strides=(1,))[places]
    return found.view(layout)


def _plain_column(type: Type, data: Octets, cursor: Numbers, width: int) -> pa.Array:
    """A column of fixed width that all rows have."""
    found = _records(data, cursor, np.dtype([("length", ">u4"), blocks.row_layout(type.kind)]))
    if (found["length"] != width).any():
        raise Corruption(f"a row value has no {type} where one belongs")
    return blocks.of_row_block(type, found["value"], None)


def _view(data: Octets, dtype: str) -> Numbers:
    """Numbers that may begin at any byte."""
    width = int(dtype[-1])
    return np.ndarray((max(len(data) - width + 1, 0),), dtype, data, strides=(1,))


def _column(
    wanted: Wanted, data: Octets, longs: Numbers, cursor: Numbers, lengths: Numbers,
    missing: npt.NDArray[np.bool_] | None, late: npt.NDArray[np.bool_] | None,
) -> pa.Array:  # fmt: skip
    type = wanted.type
    if (width := WIDTHS.get(Kind(type.kind))) is not None:
        if (lengths != width).any() and (missing is None or (lengths[~missing] != width).any()):
            raise Corruption(f"a row value has no {type} where one belongs")
        layout = np.dtype([("length", ">u4"), blocks.row_layout(type.kind)])
        found = _records(data, cursor if missing is None else np.minimum(cursor, len(data) - 4 - width), layout)
        column = blocks.of_row_block(type, found["value"], missing)
    else:
        sizes = longs[cursor + 4].astype(np.int64)
        if missing is not None:
            sizes[missing] = 0
        if (sizes != np.where(lengths, lengths - 4, 0)).any():
            raise Corruption(f"a row value has no {type} where one belongs")
        strings = Strings(*_gather(data, cursor + 8, sizes))
        column = _texts(type, strings, missing) if type.item is None else _of_items(type, strings, missing)
    if late is not None and wanted.absent is not None:
        column = pc.if_else(pa.array(late), stored_array(type, [wanted.absent])[0], column)
    return column


def _texts(type: Type, strings: Strings, missing: npt.NDArray[np.bool_] | None) -> pa.Array:
    offsets = strings.offsets.astype(np.int32)
    arrow = type.arrow.storage_type if isinstance(type.arrow, pa.BaseExtensionType) else type.arrow
    return blocks.of_storage(type, pa.Array.from_buffers(
        arrow, len(strings), [validity(missing), pa.py_buffer(offsets), pa.py_buffer(strings.data)]))
