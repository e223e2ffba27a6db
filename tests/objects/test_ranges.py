"""Coalescing covers every range once, wastes no more than it may, and joins what is near."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ontolake.objects import Range
from ontolake.objects.ranges import Fetch, coalesce, read_ranges

CONTENT = {"a": bytes(range(256)) * 2, "b": bytes(reversed(range(256)))}
ranges = st.builds(Range, st.sampled_from(["a", "b"]), st.integers(0, 600), st.integers(0, 200))
many = st.lists(ranges, max_size=30)


@given(many, st.integers(0, 100), st.integers(1, 400))
def test_every_range_is_within_exactly_one_read(wanted: list[Range], gap: int, limit: int) -> None:
    fetches = coalesce(wanted, gap=gap, limit=limit)
    assert sorted(i for fetch in fetches for i in fetch.answers) == list(range(len(wanted)))
    for fetch in fetches:
        for i in fetch.answers:
            assert wanted[i].key == fetch.key
            assert fetch.start <= wanted[i].start
            assert wanted[i].start + wanted[i].length <= fetch.start + fetch.length


@given(many, st.integers(0, 100), st.integers(1, 400))
def test_reads_are_bounded_and_waste_no_more_than_the_gaps(wanted: list[Range], gap: int, limit: int) -> None:
    for fetch in coalesce(wanted, gap=gap, limit=limit):
        inside = [wanted[i] for i in fetch.answers]
        assert fetch.length <= max([limit, *(part.length for part in inside)])
        assert fetch.start == min(part.start for part in inside)
        assert fetch.start + fetch.length == max(part.start + part.length for part in inside)
        end = fetch.start
        for part in sorted(inside, key=lambda part: part.start):
            assert part.start - end <= gap
            end = max(end, part.start + part.length)


@given(many, st.integers(0, 100))
def test_reads_of_one_key_are_further_apart_than_the_gap(wanted: list[Range], gap: int) -> None:
    fetches = sorted(coalesce(wanted, gap=gap, limit=10**9))
    for one, other in pairwise(fetches):
        assert one.key != other.key or other.start > one.start + one.length + gap


@given(many, st.integers(0, 100), st.integers(1, 400))
def test_the_answers_are_what_single_reads_give(wanted: list[Range], gap: int, limit: int) -> None:
    def read(fetch: Fetch) -> bytes:
        return CONTENT[fetch.key][fetch.start : fetch.start + fetch.length]

    got = read_ranges(wanted, lambda fetches: map(read, fetches), gap=gap, limit=limit)
    assert got == [CONTENT[key][start : start + length] for key, start, length in wanted]


def test_neighbouring_pages_take_one_read() -> None:
    pages = [Range("a", 4096 * n, 4096) for n in range(64)]
    assert coalesce(pages[::-1]) == [Fetch("a", 0, 4096 * 64, tuple(reversed(range(64))))]
