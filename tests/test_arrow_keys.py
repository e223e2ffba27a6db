"""Keys by the million are compared as plain sets would compare them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from marking import slow_after

from ontolake import arrow_keys as keys_module
from ontolake.arrow_keys import KeySet, are_distinct, codes, contains, repeated

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.one_of(st.integers(-5, 30), st.sampled_from([-2**63, 2**63 - 1, 2**40])),
    pa.int32(): st.integers(-9, 9), pa.uint64(): st.sampled_from([0, 5, 2**64 - 1]),
    pa.string(): st.sampled_from("abcdef"), pa.float64(): st.sampled_from([1.5, 2.5, -0.5]),
}  # fmt: skip


def column(values: list[Any], kind: pa.DataType, cut: int) -> pa.ChunkedArray:
    """The values in two chunks, as what is read often comes."""
    return pa.chunked_array([pa.array(values[:cut], kind), pa.array(values[cut:], kind)], kind)


@st.composite
def keys(draw: st.DrawFn) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], pa.Table, pa.Table]:
    """Two lists of keys of one to three columns, and the same as tables."""
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    row = st.tuples(*(VALUES[kind] for kind in kinds))
    first, second = draw(st.lists(row, max_size=12)), draw(st.lists(row, max_size=12))
    cut = draw(st.integers(0, 12))
    one, two = (pa.table({f"c{n}": column([row[n] for row in rows], kind, cut) for n, kind in enumerate(kinds)})
                for rows in (first, second))
    return first, second, one, two


@given(keys())
def test_codes_repetitions_and_membership(given: Any) -> None:
    first, second, one, two = given
    names = one.column_names
    found = codes(*one.columns).tolist()
    assert [[a == b for a in found] for b in found] == [[a == b for a in first] for b in first]
    assert are_distinct(*one.columns) == (len(set(first)) == len(first))
    places: dict[Any, list[int]] = {}
    for number, key in enumerate(first):
        places.setdefault(key, []).append(number)
    assert repeated(*one.columns) == sorted((at[0], at[1]) for at in places.values() if len(at) > 1)
    assert contains(one, two, names).to_pylist() == [key in first for key in second]
    both = KeySet([one.column(0), two.column(0)])
    assert both.has(two.column(0)).all()
    assert KeySet(one.column(0)).has_all(two.column(0)) == ({row[0] for row in second} <= {row[0] for row in first})


def test_keys_far_apart_and_close_together_are_told_apart_alike() -> None:
    for step in (1, 10**12):
        there = pa.chunked_array([[number * step for number in range(0, 2000, 2)]])
        asked = pa.chunked_array([[number * step for number in range(-10, 2010)]])
        assert KeySet(there).has(asked).tolist() == [0 <= n < 2000 and n % 2 == 0 for n in range(-10, 2010)]
        assert are_distinct(there, there)
        assert not are_distinct(pa.chunked_array([*there.chunks, *there.chunks]))


@pytest.mark.parametrize("others", slow_after(1, [0, 1, 2]))
def test_one_repetition_among_many_rows_is_found(others: int) -> None:
    random = np.random.default_rng(3)
    numbers = np.unique(random.integers(-2**62, 2**62, 300_000))
    # Rows that no hash of fewer bits can tell apart by itself: some of these share it with others.
    numbers = random.permutation(np.concatenate([numbers, numbers[:70_000] ^ 1]))
    numbers = random.permutation(np.unique(numbers))
    rest = [np.full(len(numbers), other) for other in range(others)]
    assert are_distinct(*map(pa.array, (numbers, *rest)))
    for at in (0, len(numbers) // 2):
        again = np.append(numbers, numbers[at])
        assert not are_distinct(*map(pa.array, (again, *(np.append(one, one[at]) for one in rest))))
        if rest:
            assert are_distinct(*map(pa.array, (again, *(np.append(one, -1) for one in rest))))


def test_rows_that_share_what_is_sorted_are_compared_whole() -> None:
    """Multiples of the inverse of what numbers are mixed with: the high bits of what comes out are the same."""
    inverse = pow(keys_module._MIX % 2**64, -1, 2**64)
    numbers = np.array([inverse * number % 2**64 for number in range(1, 5000)], dtype=np.uint64).view(np.int64)
    assert are_distinct(pa.array(numbers))
    assert not are_distinct(pa.array(np.append(numbers, numbers[77])))


@pytest.mark.parametrize("at", [0, keys_module._BLOCK - 1, keys_module._BLOCK, -1])
def test_a_repetition_among_sorted_rows_is_found(at: int) -> None:
    left, right = np.divmod(np.arange(2 * keys_module._BLOCK + 5), 3)
    assert are_distinct(pa.array(left), pa.array(right))
    again = [pa.array(np.insert(part, at % len(part), part[at])) for part in (left, right)]
    assert not are_distinct(*again)
    assert are_distinct(*again, pa.array(np.arange(len(again[0]))))


def test_keys_beyond_others_without_gaps_are_seen() -> None:
    there = KeySet(pa.array(np.arange(7, 100_000)))
    for asked, among in (([7, 99_999], True), ([6, 8], False), ([8, 100_000], False), ([], True)):
        assert there.has_all(pa.array(asked, pa.int64())) == among
        assert there.has_all(pa.array([8] * 50_000 + asked, pa.int64())) == among
