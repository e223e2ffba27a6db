"""The index finds what a plain dictionary finds, however its entries are spread over tails, runs and parts."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ontolake.errors import Corruption
from ontolake.storage import index
from ontolake.storage.index import (
    FRAMES,
    IndexColumns,
    IndexRun,
    RunPart,
    RunRef,
    Tail,
    encode_part,
    part_ref,
    runs_to_merge,
    split,
)

spaces = st.sampled_from([0, 1, 7, FRAMES])
keys = st.sampled_from([0, 1, 2, 2**40, 2**64 - 1])
entries = st.lists(st.tuples(spaces, keys), max_size=60)


def tail_of(pairs: list[tuple[int, int]], first: int = 1) -> Tail:
    tail = Tail()
    for lsn, (space, key) in enumerate(pairs, first):
        tail.add(space, key, lsn, lsn * 10, lsn * 100, 2**64 - lsn)
    return tail


def expected(pairs: list[tuple[int, int]], space: int, key: int, lsn: int) -> tuple[int, int, int, int] | None:
    lsns = [n for n, pair in enumerate(pairs, 1) if pair == (space, key)]
    at = bisect_right(lsns, lsn) - 1
    return None if at < 0 else (lsns[at], lsns[at] * 10, lsns[at] * 100, 2**64 - lsns[at])


@given(entries, st.integers(0, 70), spaces, keys)
def test_a_tail_finds_the_greatest_version_at_or_below(
    pairs: list[tuple[int, int]], lsn: int, space: int, key: int
) -> None:
    assert tail_of(pairs).find(space, key, lsn) == expected(pairs, space, key, lsn)


@given(entries.filter(bool), st.integers(0, 70), spaces, keys, st.integers(1, 9))
def test_parts_of_any_size_find_the_same(
    pairs: list[tuple[int, int]], lsn: int, space: int, key: int, size: int
) -> None:
    columns = tail_of(pairs).columns()
    before, index.PART_ENTRIES = index.PART_ENTRIES, size
    try:
        pieces = list(split(columns))
    finally:
        index.PART_ENTRIES = before
    parts = {n: RunPart(encode_part(piece), f"part {n}") for n, piece in enumerate(pieces)}
    run = IndexRun(RunRef(len(pairs), tuple(part_ref(piece, n, 0) for n, piece in enumerate(pieces))))
    ref = run.part_for(space, key, lsn)
    found = None if ref is None else parts[ref.segment].find(space, key, lsn)
    assert found == expected(pairs, space, key, lsn)
    again = IndexColumns.joined([part.columns() for part in parts.values()])
    assert all(np.array_equal(a, b) for a, b in zip(again, columns, strict=True))


@given(entries.filter(bool), st.data())
def test_a_flipped_bit_in_a_part_is_noticed(pairs: list[tuple[int, int]], data: st.DataObject) -> None:
    stored = bytearray(encode_part(tail_of(pairs).columns()))
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(Corruption, match="the part"):
        RunPart(bytes(stored), "the part")


@given(st.lists(st.integers(1, 300), min_size=1, max_size=400))
def test_the_number_of_runs_grows_with_the_logarithm(sizes: list[int]) -> None:
    runs: list[int] = []
    for size in sizes:
        runs.append(size)
        count = runs_to_merge(runs)
        runs[-count:] = [sum(runs[-count:])]
    assert sum(runs) == sum(sizes)
    assert all(older >= index.MERGE_RATIO * newer for older, newer in pairwise(runs))


def test_versions_of_a_key_know_the_next_one() -> None:
    columns = tail_of([(0, 1), (0, 1), (0, 2), (1, 1), (0, 1)]).columns()
    following = dict(zip(columns.lsn.tolist(), columns.next_lsn().tolist(), strict=True))
    assert following == {1: 2, 2: 5, 5: 2**64 - 1, 3: 2**64 - 1, 4: 2**64 - 1}
