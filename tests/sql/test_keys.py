"""Keys, byte by byte as the layout has them, one rule at a time. `test_encoding.py` checks their order at random."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ontolake.errors import Corruption
from ontolake.sql.keyspace import keys
from ontolake.sql.types import BIGINT, BOOLEAN, BYTES, DATE, DOUBLE, TEXT, TIMESTAMP_NS, Type, decimal

ONE, HUNDRED = "0000000000000001", "0000000000000064"

ELEMENTS: list[tuple[Type, Any, str]] = [
    (BOOLEAN, False, "01 00 00"),
    (BOOLEAN, True, "01 00 01"),
    (BOOLEAN, None, "01 01"),
    (BIGINT, 1001, "02 00 80000000000003e9"),
    (BIGINT, -1, "02 00 7fffffffffffffff"),
    (BIGINT, -(2**63), "02 00 0000000000000000"),
    (BIGINT, 2**63 - 1, "02 00 ffffffffffffffff"),
    (BIGINT, None, "02 01"),
    (TEXT, "paid", "03 00 70616964 0001"),
    (TEXT, "€", "03 00 e282ac 0001"),
    (TEXT, "a\x00\x01b", "03 00 61 00ff 01 62 0001"),
    (TEXT, "", "03 00 0001"),
    (TEXT, None, "03 01"),
    (TIMESTAMP_NS, 0, "04 00 8000000000000000"),
    (TIMESTAMP_NS, -2, "04 00 7ffffffffffffffe"),
    (TIMESTAMP_NS, None, "04 01"),
    (decimal(38, 2), 1299, "05 00 80000000000000000000000000000513"),
    (decimal(38, 2), -1, "05 00 7fffffffffffffffffffffffffffffff"),
    (decimal(38, 2), None, "05 01"),
    (DOUBLE, 1.0, "06 00 bff0000000000000"),
    (DOUBLE, -1.0, "06 00 400fffffffffffff"),
    (DOUBLE, 0.0, "06 00 8000000000000000"),
    (DOUBLE, math.inf, "06 00 fff0000000000000"),
    (DOUBLE, -math.inf, "06 00 000fffffffffffff"),
    (DOUBLE, math.nan, "06 00 fff8000000000000"),
    (DOUBLE, None, "06 01"),
    (DATE, 0, "07 00 80000000"),
    (DATE, -1, "07 00 7fffffff"),
    (DATE, None, "07 01"),
    (BYTES, b"\xff\x00", "08 00 ff 00ff 0001"),
    (BYTES, None, "08 01"),
]
"""Values and their elements of a tuple, worked out by hand."""


def complement(encoded: bytes) -> bytes:
    return bytes(byte ^ 0xFF for byte in encoded)


def is_same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and (left == right or (left != left and right != right))


def test_prefixes_and_catalog_keys_are_those_of_the_layout() -> None:
    families = [keys.DATABASE, keys.SCHEMA, keys.TABLE, keys.COLUMN, keys.INDEX,
                keys.DATABASE_NAME, keys.SCHEMA_NAME, keys.TABLE_NAME, keys.ROW, keys.ENTRY]  # fmt: skip
    assert bytes(families).hex(" ") == "01 02 03 04 05 06 07 08 20 30"
    assert keys.META_START.hex() == "01"
    assert keys.meta_key(keys.TABLE, 1, 1, 100).hex() == "03" + ONE + ONE + HUNDRED
    assert keys.name_key(keys.TABLE_NAME, 1, 1, name="orders").hex() == "08" + ONE + ONE + "0006" + "6f7264657273"
    assert keys.name_key(keys.DATABASE_NAME, name="é" * 200).hex() == "06" + "0190" + "c3a9" * 200, "bytes are counted"
    assert keys.row_prefix(100).hex() == "20" + HUNDRED
    assert keys.entry_prefix(100, 1).hex() == "30" + HUNDRED + ONE


@pytest.mark.parametrize(("prefix", "expected"), [
    ("20", "21"), ("2001", "2002"), ("20ff", "21"), ("20ffff", "21"), ("20fffe", "20ffff"), ("ff", ""), ("", ""),
])  # fmt: skip
def test_the_key_after_a_prefix_is_the_least_above_all_that_start_with_it(prefix: str, expected: str) -> None:
    assert keys.after(bytes.fromhex(prefix)).hex() == expected


@pytest.mark.parametrize(("type", "value", "expected"), ELEMENTS)
def test_an_element_is_its_tag_its_null_flag_and_its_payload(type: Type, value: Any, expected: str) -> None:
    encoded = bytes.fromhex(expected)
    assert keys.element(type.kind, value) == encoded
    assert keys.element(type.kind, value, desc=True) == complement(encoded)
    for desc, data in (((), encoded), ([False], encoded), ([True], complement(encoded))):
        assert keys.encode_tuple([type], [value], desc) == data
        (found,), end = keys.decode_tuple([type], b"\x20\x01" + data + b"\x00\x01", 2, desc)
        assert is_same(found, value)
        assert end == 2 + len(data)


def test_negative_zero_has_the_key_of_zero() -> None:
    (found,), _ = keys.decode_tuple([DOUBLE], keys.element(DOUBLE.kind, -0.0))
    assert math.copysign(1.0, found) == 1.0  # type: ignore[arg-type]
    assert keys.element(DOUBLE.kind, -0.0).hex(" ") == "06 00 80 00 00 00 00 00 00 00"


def test_a_tuple_is_its_elements_one_after_the_other() -> None:
    types = [BIGINT, TEXT, BOOLEAN]
    encoded = bytes.fromhex("02 00 800000000000002a" "fc ff 8f9e969b fffe" "01 01")
    assert keys.encode_tuple(types, [42, "paid", None], [False, True, False]) == encoded
    assert keys.decode_tuple(types, encoded, desc=[False, True, False]) == ([42, "paid", None], len(encoded))
    ascending = bytes.fromhex("02 00 800000000000002a" "03 00 70616964 0001" "01 01")
    assert keys.encode_tuple(types, [42, "paid", None]) == ascending
    assert keys.decode_tuple(types, ascending) == ([42, "paid", None], len(ascending))


@pytest.mark.parametrize(("values", "desc", "expected"), [
    ([42], (), "02 00 800000000000002a"),
    ([None], (), "02 01"),
    ([42], [True, False], "fd ff 7fffffffffffffd5"),
    ([None], [True, False], "fd fe"),
    ([], (), ""),
])  # fmt: skip
def test_fewer_values_than_types_are_a_prefix(values: list[Any], desc: Any, expected: str) -> None:
    assert keys.encode_tuple([BIGINT, TEXT], values, desc) == bytes.fromhex(expected)


@pytest.mark.parametrize(("type", "desc", "data", "told"), [
    (BIGINT, False, "ffff 03 00 61 0001", "tag 0x3 where 0x2 belongs, at byte 2"),
    (BIGINT, True, "ffff fc ff 9e fffe", "tag 0x3 where 0x2 belongs, at byte 2"),
    (BIGINT, False, "ffff 02 00 80000000000000", "it ends too early"),
    (BIGINT, True, "ffff fd ff 80000000000000", "it ends too early"),
    (TEXT, False, "ffff 03 00 616263", "not found"),
    (TEXT, True, "ffff fc ff 616263 0001", "not found"),
    (TEXT, False, "ffff 03 00 c3 0001", "decode"),
    (TEXT, False, "ffff 03", "out of range"),
    (TEXT, False, "ffff", "out of range"),
])  # fmt: skip
def test_bytes_that_are_no_key_are_named(type: Type, desc: bool, data: str, told: str) -> None:
    raw = bytes.fromhex(data)
    with pytest.raises(Corruption, match=told) as raised:
        keys.decode_tuple([type], raw, 2, [desc])
    assert f"the key {raw.hex()} is not one" in str(raised.value)
