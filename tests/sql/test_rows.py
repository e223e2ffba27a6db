"""Row values, byte by byte as the layout has them, one rule at a time."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ontolake.errors import Corruption, Invalid
from ontolake.sql.keyspace import rows
from ontolake.sql.types import WIDTHS, Kind

PAYLOADS: list[tuple[Kind, Any, str]] = [
    (Kind.BOOLEAN, False, "00"),
    (Kind.BOOLEAN, True, "01"),
    (Kind.INT64, 1299, "0000000000000513"),
    (Kind.INT64, -1, "ffffffffffffffff"),
    (Kind.INT64, -(2**63), "8000000000000000"),
    (Kind.TIMESTAMP_NS, 2**63 - 1, "7fffffffffffffff"),
    (Kind.TIMESTAMP_NS, -2, "fffffffffffffffe"),
    (Kind.UTF8, "paid", "00000004 70616964"),
    (Kind.UTF8, "€\x00", "00000004 e282ac 00"),
    (Kind.UTF8, "", "00000000"),
    (Kind.BYTES, b"\xff\x00", "00000002 ff00"),
    (Kind.BYTES, b"", "00000000"),
    (Kind.DOUBLE, 1.0, "3ff0000000000000"),
    (Kind.DOUBLE, -0.0, "8000000000000000"),
    (Kind.DATE, 20495, "0000500f"),
    (Kind.DATE, -1, "ffffffff"),
    (Kind.DECIMAL, 1299, "00000000000000000000000000000513"),
    (Kind.DECIMAL, -1, "ffffffffffffffffffffffffffffffff"),
]
"""Values and their payloads, worked out by hand."""

KINDS = [Kind.INT64, Kind.INT64, Kind.UTF8, Kind.INT64, Kind.TIMESTAMP_NS]
ORDER = bytes.fromhex(
    "01 00 0005 0001 00"
    "00000008 00000000000003e9" "00000008 000000000000002a" "00000008 00000004 70616964"
    "00000008 0000000000000513" "00000008 189328db1ad74000"
)  # fmt: skip
"""The row (1001, 42, 'paid', 1299, TIMESTAMP '2026-02-11 10:00:00')."""
VALUES: list[Any] = [1001, 42, "paid", 1299, 1770804000 * 10**9]


def is_same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and repr(left) == repr(right)


def test_the_marks_of_deleted_and_live_keys_are_those_of_the_layout() -> None:
    assert rows.TOMBSTONE.hex() == "0101"
    assert rows.LIVE.hex() == "0100"


@pytest.mark.parametrize(("kind", "value", "payload"), PAYLOADS)
def test_a_column_is_its_length_and_its_payload(kind: Kind, value: Any, payload: str) -> None:
    raw = bytes.fromhex(payload)
    data = bytes.fromhex("01 00 0001 0001 00") + len(raw).to_bytes(4, "big") + raw
    assert rows.encode_row([kind], [value]) == data
    (found,) = rows.decode_row([kind], data)
    assert is_same(found, value)
    assert is_same(rows.decode_payload(kind, raw), value)
    assert rows.split_row(data) == ([raw], None)


def test_a_row_has_its_columns_in_the_order_of_their_ids() -> None:
    assert rows.encode_row(KINDS, VALUES) == ORDER
    assert rows.decode_row(KINDS, ORDER) == VALUES
    assert rows.split_row(ORDER).payloads[2] == b"\0\0\0\4paid"


@pytest.mark.parametrize(("values", "expected"), [
    ([], "01 00 0000 0000"),
    ([None], "01 00 0001 0001 01"),
    ([None, False, None], "01 00 0003 0001 05 00000001 00"),
    ([None] * 8, "01 00 0008 0001 ff"),
    ([None] * 8 + [True], "01 00 0009 0002 ff00 00000001 01"),
    ([True] + [None] * 8, "01 00 0009 0002 fe01 00000001 01"),
    ([None] * 16 + [True], "01 00 0011 0003 ffff00 00000001 01"),
])  # fmt: skip
def test_the_null_bitmap_has_the_first_column_in_its_least_bit(values: list[bool | None], expected: str) -> None:
    data, kinds = bytes.fromhex(expected), [Kind.BOOLEAN] * len(values)
    assert rows.encode_row(kinds, values) == data
    assert rows.decode_row(kinds, data) == values
    assert rows.split_row(data) == ([None if value is None else bytes((value,)) for value in values], None)
    width = (len(values) + 7) // 8
    assert rows.head(len(values)) == data[:6]
    assert len(data) == 6 + width + 5 * sum(value is not None for value in values)


def test_a_row_that_is_older_than_a_column_reads_as_the_value_for_absent_ones() -> None:
    data = bytes.fromhex("01 00 0002 0001 02 00000001 01")
    kinds = [Kind.BOOLEAN, Kind.INT64, Kind.INT64, Kind.UTF8]
    assert rows.decode_row(kinds, data) == [True, None, None, None]
    assert rows.decode_row(kinds, data, [False, 6, 7, "new"]) == [True, None, 7, "new"]
    assert rows.split_row(data) == ([b"\x01", None], None)


def test_a_row_may_have_more_columns_than_are_asked_for() -> None:
    assert rows.decode_row(KINDS[:2], ORDER) == [1001, 42]


def test_a_short_row_reads_as_null_where_it_ends() -> None:
    data = bytes.fromhex("01 00 0004 0001 02 00000001 01")
    assert rows.decode_row([Kind.BOOLEAN, Kind.INT64, Kind.INT64, Kind.UTF8], data, [None, 6, 7, "new"]) == [
        True, None, None, None]  # fmt: skip
    assert rows.split_row(data) == ([b"\x01", None, None, None], 2), "the second is NULL, the third is not there"


@pytest.mark.parametrize("values", [[1], [1, 2, 3]])
def test_only_whole_rows_are_written(values: list[int]) -> None:
    with pytest.raises(Invalid, match=f"a row has {len(values)} values for 2 columns"):
        rows.encode_row([Kind.INT64, Kind.INT64], values)


def test_a_row_that_is_cut_within_a_column_is_damaged() -> None:
    kinds = [Kind.BOOLEAN, Kind.INT64, Kind.UTF8, Kind.DOUBLE, Kind.DATE, Kind.BYTES, Kind.DECIMAL]
    payloads = ["01", "000000000000002a", "00000004 70616964", "3ff0000000000000", "0000500f", "00000002 ff00",
                "00000000000000000000000000000513"]  # fmt: skip
    raw = [bytes.fromhex(each) for each in payloads]
    whole = bytes.fromhex("01 00 0007 0001 00") + b"".join(len(each).to_bytes(4, "big") + each for each in raw)
    ends = [7 + sum(4 + len(each) for each in raw[:n]) for n in range(8)]
    for cut in range(len(whole)):
        if cut in ends:
            assert rows.split_row(whole[:cut]).short == ends.index(cut)
            assert rows.decode_row(kinds, whole[:cut])[ends.index(cut):] == [None] * (7 - ends.index(cut))
            continue
        with pytest.raises(Corruption, match=f"a row value of {cut} bytes is not one"):
            rows.split_row(whole[:cut])
        with pytest.raises(Corruption, match=f"a row value of {cut} bytes is not one"):
            rows.decode_row(kinds, whole[:cut])
    assert rows.split_row(whole) == (raw, None)


@pytest.mark.parametrize(("data", "told"), [
    ("02 00 0001 0001 00 00000001 01", "it begins with 0200"),
    ("00 00 0001 0001 00 00000001 01", "it begins with 0000"),
    ("01 01 0001 0001 00 00000001 01", "it begins with 0101"),
    ("01 02 0001 0001 00 00000001 01", "it begins with 0102"),
    ("01 01", "requires a buffer"),
])  # fmt: skip
def test_what_is_not_a_live_row_is_named(data: str, told: str) -> None:
    for read in (rows.split_row, lambda raw: rows.decode_row([Kind.BOOLEAN], raw)):
        with pytest.raises(Corruption, match=f"{told}($| of)"):
            read(bytes.fromhex(data))


@pytest.mark.parametrize("kind", Kind)
def test_a_payload_of_another_size_is_damaged(kind: Kind) -> None:
    sizes = WIDTHS
    for size in range(20):
        raw = b"\0\0\0\5" + b"\0" * (size - 4) if kind not in sizes and size > 3 else bytes(size)
        if size == sizes.get(kind, 9):
            rows.decode_payload(kind, raw)
            continue
        with pytest.raises(Corruption, match=f"a payload of {size} bytes is not a {kind.name}"):
            rows.decode_payload(kind, raw)
        with pytest.raises(Corruption):
            rows.decode_row([kind], bytes.fromhex("01 00 0001 0001 00") + size.to_bytes(4, "big") + raw + bytes(9))


def test_text_of_another_length_than_it_says_is_named() -> None:
    with pytest.raises(Corruption, match=r"it says 5 bytes and has 3$"):
        rows.decode_payload(Kind.UTF8, b"\0\0\0\5abc")


def test_text_that_is_not_utf8_is_damaged() -> None:
    with pytest.raises(Corruption, match="decode"):
        rows.decode_payload(Kind.UTF8, b"\0\0\0\1\xff")
    with pytest.raises(Corruption, match="decode"):
        rows.decode_row([Kind.UTF8], bytes.fromhex("01 00 0001 0001 00 00000005 00000001 ff"))


def test_a_double_that_is_no_number_stays_one() -> None:
    (found,) = rows.decode_row([Kind.DOUBLE], rows.encode_row([Kind.DOUBLE], [math.nan]))
    assert isinstance(found, float)
    assert math.isnan(found)
