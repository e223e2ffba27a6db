"""Keys and values are byte for byte as the layout has them, sort as SQL sorts, and are the same for whole columns."""

from __future__ import annotations

import math
from functools import cmp_to_key
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from marking import examples

from ontolake.errors import Corruption
from ontolake.sql.keyspace import keys, rows, vectors
from ontolake.sql.types import BIGINT, BOOLEAN, BYTES, DATE, DOUBLE, TEXT, TIMESTAMP, Kind, Type, decimal

ALL = [BOOLEAN, BIGINT, TEXT, TIMESTAMP, decimal(38, 4), DOUBLE, DATE, BYTES]
INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-1, 0, 1, -(2**63), 2**63 - 1])
VALUES: dict[int, st.SearchStrategy[Any]] = {
    Kind.BOOLEAN: st.booleans(),
    Kind.INT64: INT64,
    Kind.UTF8: st.text(st.sampled_from("a\x00b\x01ÿ€🙂") | st.characters(exclude_categories=["Cs"]), max_size=6),
    Kind.TIMESTAMP_NS: INT64,
    Kind.DECIMAL: st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(-3, 3),
    Kind.DOUBLE: st.floats(),
    Kind.DATE: st.integers(-(2**31), 2**31 - 1),
    Kind.BYTES: st.binary(max_size=6) | st.sampled_from([b"\x00", b"\x00\x01", b"\x00\xff", b"\xff\x00"]),
}  # fmt: skip


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Type], list[bool], list[list[Any]]]:
    types = draw(st.lists(st.sampled_from(ALL), min_size=1, max_size=4))
    desc = draw(st.lists(st.booleans(), min_size=len(types), max_size=len(types)))
    one = st.tuples(*(st.none() | VALUES[type.kind] for type in types)).map(list)
    return types, desc, draw(st.lists(one, min_size=1, max_size=12))


def columns_of(types: list[Type], table: list[list[Any]]) -> list[pa.Array]:
    return [vectors.stored_array(type, [row[n] for row in table]) for n, type in enumerate(types)]


def same(left: Any, right: Any) -> bool:
    return left == right or (isinstance(left, float) and math.isnan(left) and math.isnan(right))


def compare(left: Any, right: Any) -> int:
    """SQL's order of two values of one type, NULL last, NaN above all numbers."""

    def rank(value: Any) -> tuple[Any, ...]:
        if value is None:
            return (2,)
        if isinstance(value, float) and math.isnan(value):
            return (1,)
        return (0, value.encode() if isinstance(value, str) else value)

    a, b = rank(left), rank(right)
    return (a > b) - (a < b)


def test_golden_keys() -> None:
    row = keys.row_prefix(100) + keys.encode_tuple([BIGINT], [1001])
    assert row.hex() == "20000000000000006402008000" + "0000000003e9"
    entry = keys.entry_prefix(100, 1) + keys.encode_tuple([BIGINT, BIGINT], [42, 1001])
    assert entry.hex() == "30" "0000000000000064" "0000000000000001" "0200800000000000002a" "020080000000000003e9"


def test_golden_metadata_keys() -> None:
    one = "0000000000000001"
    assert keys.meta_key(keys.DATABASE, 1).hex() == f"01{one}"
    assert keys.meta_key(keys.SCHEMA, 1, 1).hex() == f"02{one}{one}"
    assert keys.meta_key(keys.TABLE, 1, 1, 100).hex() == f"03{one}{one}0000000000000064"
    assert keys.meta_key(keys.COLUMN, 100, 5).hex() == "0400000000000000640000000000000005"
    assert keys.meta_key(keys.INDEX, 100, 1).hex() == f"050000000000000064{one}"
    assert keys.name_key(keys.DATABASE_NAME, name="app").hex() == "060003" + b"app".hex()
    assert keys.name_key(keys.SCHEMA_NAME, 1, name="public").hex() == f"07{one}0006" + b"public".hex()
    assert keys.name_key(keys.TABLE_NAME, 1, 1, name="orders").hex() == f"08{one}{one}0006" + b"orders".hex()


@pytest.mark.parametrize(("type", "value", "expected"), [
    (BOOLEAN, True, "010001"), (BOOLEAN, None, "0101"), (BIGINT, -1, "02007fffffffffffffff"),
    (TEXT, "a\x00b", "03006100ff620001"), (TEXT, "", "03000001"), (TIMESTAMP, 0, "04008000000000000000"),
    (decimal(10, 2), -1, "05007f" + "ff" * 15), (DOUBLE, 1.0, "0600bff0000000000000"),
    (DOUBLE, -1.0, "0600400fffffffffffff"), (DOUBLE, -0.0, "06008000000000000000"),
    (DATE, 1, "070080000001"), (BYTES, b"\xff", "0800ff0001"),
])  # fmt: skip
def test_golden_elements(type: Type, value: Any, expected: str) -> None:
    assert keys.element(type.kind, value).hex() == expected
    inverted = bytes(255 - byte for byte in bytes.fromhex(expected))
    assert keys.element(type.kind, value, desc=True) == inverted


def test_golden_row() -> None:
    created = TIMESTAMP.store("2026-02-11 10:00:00")
    kinds = [Kind.INT64, Kind.INT64, Kind.UTF8, Kind.INT64, Kind.TIMESTAMP_NS]
    value = rows.encode_row(kinds, [1001, 42, "paid", 1299, created])
    assert value.hex() == (
        "01" "00" "0005" "0001" "00"
        "00000008" "00000000000003e9" "00000008" "000000000000002a" "00000008" "00000004" "70616964"
        "00000008" "0000000000000513" "00000008" + f"{created:016x}"
    )  # fmt: skip
    assert rows.encode_row(kinds, [1, 2, None, 3, 4])[6] == 0b00100, "the null bitmap begins at its least bit"
    assert rows.TOMBSTONE == b"\x01\x01"


@settings(max_examples=examples(200))
@given(tables())
def test_byte_order_is_sql_order(given: tuple[list[Type], list[bool], list[list[Any]]]) -> None:
    types, desc, table = given

    def by_sql(left: list[Any], right: list[Any]) -> int:
        for n, flag in enumerate(desc):
            if found := compare(left[n], right[n]):
                return -found if flag else found
        return 0

    encoded = [keys.encode_tuple(types, row, desc) for row in table]
    for left, a in zip(table, encoded, strict=True):
        for right, b in zip(table, encoded, strict=True):
            assert (a > b) - (a < b) == by_sql(left, right)
    assert [keys.encode_tuple(types, row, desc) for row in sorted(table, key=cmp_to_key(by_sql))] == sorted(encoded)


@settings(max_examples=examples(200))
@given(tables())
def test_columns_and_single_values_give_the_same_keys(given: tuple[list[Type], list[bool], list[list[Any]]]) -> None:
    types, desc, table = given
    found = vectors.encode_keys(b"\x20pre", types, columns_of(types, table), desc)
    assert found.to_list() == [b"\x20pre" + keys.encode_tuple(types, row, desc) for row in table]
    tailed = vectors.Strings.of([key + b"tail\x00\x01" for key in found.to_list()])
    columns, ends = vectors.decode_keys(types, tailed, 4, desc)
    assert (tailed.offsets[1:] - ends == 6).all()
    for n, type in enumerate(types):
        columns[n].validate(full=True)
        decoded = [keys.decode_tuple(types, key, 4, desc)[0][n] for key in found.to_list()]
        assert all(map(same, decoded, [row[n] for row in table]))
        assert all(map(same, vectors.stored_list(type, columns[n]), decoded))


@settings(max_examples=examples(200))
@given(tables(), st.integers(0, 9))
def test_columns_and_single_values_give_the_same_rows(
    given: tuple[list[Type], list[bool], list[list[Any]]], more: int
) -> None:
    types, _, table = given
    kinds = [type.kind for type in types]
    found = vectors.encode_rows(types, columns_of(types, table), len(table))
    assert found.to_list() == [rows.encode_row(kinds, row) for row in table]
    later = [*types, *[BIGINT] * more]  # columns that were added since
    wanted = [vectors.Wanted(n, type, 7 if n >= len(types) else None) for n, type in enumerate(later)]
    columns = vectors.decode_rows(found, wanted)
    for n, type in enumerate(later):
        columns[n].validate(full=True)
        expected = [row[n] if n < len(types) else 7 for row in table]
        assert all(map(same, vectors.stored_list(type, columns[n]), expected))
    absent = [None] * len(types) + [7] * more
    for row, value in zip(table, found.to_list(), strict=True):
        assert all(map(same, rows.decode_row([type.kind for type in later], value, absent), row + [7] * more))


def test_rows_of_several_ages_are_read_together() -> None:
    old, new = rows.encode_row([2], [1]), rows.encode_row([2, 3], [2, None])
    newest = rows.encode_row([2, 3], [3, "c"])
    found = vectors.decode_rows(vectors.Strings.of([old, new, newest]), [
        vectors.Wanted(1, TEXT, "x"), vectors.Wanted(0, BIGINT)])  # fmt: skip
    assert found[0].to_pylist() == ["x", None, "c"]
    assert found[1].to_pylist() == [1, 2, 3]


def test_dropped_columns_are_null_in_their_place() -> None:
    found = vectors.encode_rows([None, BIGINT], [None, pa.array([5])], 1)
    assert found.to_list() == [rows.encode_row([2, 2], [None, 5])]


@pytest.mark.parametrize("damaged", [
    b"\x02\x00\x00\x01\x00\x01\x00", rows.TOMBSTONE, b"\x01\x00\x00\x01\x00\x01\x00\x00\x00\x00\x20ab"])
def test_damaged_rows_are_reported(damaged: bytes) -> None:
    with pytest.raises(Corruption):
        vectors.decode_rows(vectors.Strings.of([damaged]), [vectors.Wanted(0, BIGINT)])


def test_damaged_keys_are_reported() -> None:
    with pytest.raises(Corruption):
        keys.decode_tuple([BIGINT], b"\x03\x00ab\x00\x01")
    with pytest.raises(Corruption):
        keys.decode_tuple([BIGINT], b"\x02\x00\x80")
    for bad in (b"\x02\x00\x80\x00", b"\x03\x00abc"):
        with pytest.raises(Corruption):
            vectors.decode_keys([TEXT], vectors.Strings.of([bad]), 0)
