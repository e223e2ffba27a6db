"""Keys and values are byte for byte as the layout has them, sort as SQL sorts, and are the same for whole columns."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from marking import examples

from ontolake.errors import Corruption
from ontolake.sql.keyspace import keys, rows, vectors
from ontolake.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL,
    JSON,
    JSONB,
    NUMERIC,
    REAL,
    SMALLINT,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NS,
    TIMESTAMPTZ,
    UUID,
    IntervalParts,
    Items,
    Kind,
    Type,
    array_of,
    decimal,
)
from ontolake.sql.types.moments import DAY

MOOD = Type(Kind.ENUM, type_id=1, name="mood", labels=(("sad", -1.0), ("so-so", 0.5), ("ok", 1.0), ("happy", 7.0)))
SCALARS = [BOOLEAN, SMALLINT, INTEGER, BIGINT, TEXT, TIMESTAMP_NS, TIMESTAMP, TIMESTAMPTZ, decimal(38, 4), DOUBLE,
           REAL, DATE, BYTES, NUMERIC, UUID, TIME, INTERVAL, JSONB, MOOD]  # fmt: skip
ALL = [*SCALARS, *map(array_of, SCALARS)]
INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-1, 0, 1, -(2**63), 2**63 - 1])
JSONS = st.recursive(
    st.none() | st.booleans() | st.sampled_from([0, -1, 1.5, 10, 100, 1e30]) | st.text("ab€", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab€", max_size=2), inner, max_size=3),
    max_leaves=6)  # fmt: skip
DECIMALS = st.integers(-200, 200).map(lambda number: Decimal(number).scaleb(-2)) | st.decimals().filter(
    lambda number: not number.is_snan() and (not number.is_finite() or abs(number.adjusted()) < 60))  # fmt: skip
INT32 = st.integers(-(2**31), 2**31 - 1) | st.integers(-40, 40)
VALUES: dict[int, st.SearchStrategy[Any]] = {
    Kind.BOOLEAN: st.booleans(),
    Kind.UTF8: st.text(st.sampled_from("a\x00b\x01ÿ€🙂") | st.characters(exclude_categories=["Cs"]), max_size=6),
    Kind.TIMESTAMP_NS: INT64,
    Kind.DECIMAL: st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(-3, 3),
    Kind.DOUBLE: st.floats(),
    Kind.DATE: st.integers(-(2**31), 2**31 - 1),
    Kind.BYTES: st.binary(max_size=6) | st.sampled_from([b"\x00", b"\x00\x01", b"\x00\xff", b"\xff\x00"]),
    Kind.TIMESTAMP_US: INT64,
    Kind.REAL: st.floats(width=32),
    Kind.NUMERIC: DECIMALS.map(NUMERIC.store),
    Kind.UUID: st.binary(min_size=16, max_size=16),
    Kind.TIME: st.integers(0, DAY - 1),  # Arrow's own check of values takes no 24:00
    Kind.INTERVAL: st.builds(
        IntervalParts, INT32, INT32, st.integers(-(2**53), 2**53) | st.integers(-3 * DAY, 3 * DAY)),
    Kind.JSONB: JSONS.map(lambda value: JSONB.store(json.dumps(value))),
    Kind.ENUM: st.sampled_from([-1.0, 0.5, 1.0, 7.0]),
}  # fmt: skip


def values(type: Type) -> st.SearchStrategy[Any]:
    """Stored forms of a type."""
    if type.item is not None:
        kind = type.item.kind
        return st.lists(st.none() | values(type.item), max_size=4).map(lambda items: Items(kind, tuple(items)))
    if type.kind == Kind.INT64:
        ends = (-(1 << type.bits - 1), (1 << type.bits - 1) - 1)
        return st.integers(*ends) | st.sampled_from([-1, 0, 1, *ends])
    return VALUES[type.kind]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Type], list[bool], list[list[Any]]]:
    types = draw(st.lists(st.sampled_from(ALL), min_size=1, max_size=4))
    desc = draw(st.lists(st.booleans(), min_size=len(types), max_size=len(types)))
    one = st.tuples(*(st.none() | values(type) for type in types)).map(list)
    return types, desc, draw(st.lists(one, min_size=1, max_size=12))


def columns_of(types: list[Type], table: list[list[Any]]) -> list[pa.Array]:
    return [vectors.stored_array(type, [row[n] for row in table]) for n, type in enumerate(types)]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, Items) and isinstance(right, Items):
        return left.kind == right.kind and len(left.values) == len(right.values) and all(
            map(same, left.values, right.values))  # fmt: skip
    return left == right or (isinstance(left, float) and math.isnan(left) and math.isnan(right))


def equal(type: Type, left: Any, right: Any) -> bool:
    """Whether SQL takes two values for equal. A key has the one that it gives back in another form."""
    return same(left, right) or compare(type, left, right) == 0


def compare(type: Type, left: Any, right: Any) -> int:
    """SQL's order of two values of one type, NULL last, NaN above all numbers."""
    if None in (left, right):
        return (left is None) - (right is None)
    if type.item is not None:
        for a, b in zip(left.values, right.values, strict=False):
            if found := compare(type.item, a, b):
                return found
        return (len(left.values) > len(right.values)) - (len(left.values) < len(right.values))
    if type.kind == Kind.JSONB:
        return compare_json(json.loads(left), json.loads(right), top=True)

    def rank(value: Any) -> tuple[Any, ...]:
        if type.kind == Kind.NUMERIC:
            value = Decimal(value)
        if type.kind == Kind.INTERVAL:
            value = (value.months * 30 + value.days) * DAY + value.microseconds
        if value != value:
            return (1,)
        return (0, value.encode() if isinstance(value, str) else value)

    a, b = rank(left), rank(right)
    return (a > b) - (a < b)


def compare_json(left: Any, right: Any, top: bool = False) -> int:
    """PostgreSQL's order of JSONB: by kind, then the number of elements, then one after the other."""
    kinds = [next(n for n, kind in enumerate((type(None), str, (int, float), bool, list, dict))
                  if isinstance(value, kind) and not (n == 2 and isinstance(value, bool)))
             for value in (left, right)]  # fmt: skip
    if top and [] in (left, right) and left != right:
        return -1 if left == [] else 1
    if kinds[0] != kinds[1]:
        return 1 if kinds[0] > kinds[1] else -1
    if kinds[0] < 4:
        return 0 if left is None else (left > right) - (left < right)
    if len(left) != len(right):
        return 1 if len(left) > len(right) else -1
    pairs = zip(left, right, strict=True)
    if kinds[0] == 5:
        flat = [[part for key in sorted(side, key=lambda key: (len(key.encode()), key)) for part in (key, side[key])]
                for side in (left, right)]  # fmt: skip
        pairs = zip(*flat, strict=True)
    return next((found for a, b in pairs if (found := compare_json(a, b))), 0)


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
    (TEXT, "a\x00b", "03006100ff620001"), (TEXT, "", "03000001"), (TIMESTAMP_NS, 0, "04008000000000000000"),
    (decimal(10, 2), -1, "05007f" + "ff" * 15), (DOUBLE, 1.0, "0600bff0000000000000"),
    (DOUBLE, -1.0, "0600400fffffffffffff"), (DOUBLE, -0.0, "06008000000000000000"),
    (DATE, 1, "070080000001"), (BYTES, b"\xff", "0800ff0001"), (TIMESTAMP, -1, "09007fffffffffffffff"),
    (REAL, 1.0, "0a00bf800000"), (REAL, -1.0, "0a00407fffff"), (NUMERIC, "0.00", "0b00030001"),
    (NUMERIC, "12.50", "0b0004" "80" "00ff00ff02" "0d33" "00ff0001"),
    (NUMERIC, "-12.5", "0b00027ffffffdf2ccff0001"), (UUID, bytes(range(16)), "0c00" + bytes(range(16)).hex()),
    (TIME, DAY, "0d0080000014" "1dd76000"),
    (INTERVAL, IntervalParts(1, 1, -1), "0e00" "800000000000001e" "000000141dd75fff"),
    (JSONB, "[]", "0f0000ff0001"), (JSONB, '{"a": true}', "0f0006" "00ff00ff00ff01" "6100ff" "0401" "0001"),
    (array_of(BIGINT), Items(2, (1, None)), "1000" "02" "01" "0200ff80" + "00ff" * 6 + "01" "01" "0201" "00ff" "0001"),
    (MOOD, 1.0, "1100bff0000000000000"), (JSON, "{}", "12007b7d0001"),
])  # fmt: skip
def test_golden_elements(type: Type, value: Any, expected: str) -> None:
    assert keys.element(type.kind, value).hex() == expected
    inverted = bytes(255 - byte for byte in bytes.fromhex(expected))
    assert keys.element(type.kind, value, desc=True) == inverted


def test_golden_row() -> None:
    created = TIMESTAMP_NS.store("2026-02-11 10:00:00")
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
            if found := compare(types[n], left[n], right[n]):
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
        assert all(equal(type, a, row[n]) for a, row in zip(decoded, table, strict=True))
        assert not type.is_exact_in_keys or all(map(same, decoded, [row[n] for row in table]))
        assert all(map(same, vectors.stored_list(type, columns[n]), decoded))


def test_the_end_of_a_day_is_a_time() -> None:
    """24:00, which PostgreSQL has and Arrow's check of values refuses, comes back from keys and rows."""
    column = vectors.stored_array(TIME, [DAY, 0])
    encoded_keys, encoded_rows = vectors.encode_keys(b"", [TIME], [column]), vectors.encode_rows([TIME], [column], 2)
    assert encoded_keys.to_list() == [keys.encode_tuple([TIME], [DAY]), keys.encode_tuple([TIME], [0])]
    assert vectors.stored_list(TIME, vectors.decode_keys([TIME], encoded_keys, 0, [False])[0][0]) == [DAY, 0]
    assert vectors.stored_list(TIME, vectors.decode_rows(encoded_rows, [vectors.Wanted(0, TIME)])[0]) == [DAY, 0]


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
