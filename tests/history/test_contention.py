"""A commit that others beat is tried again, as often as its pace says, and no other error is hidden."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ontolake.errors import Conflict, Invalid
from ontolake.history.contention import ONCE, Pace, commit_optimistically

AT_ONCE = Pace(first=0)


class Beaten:
    """An attempt that somebody else beats a number of times."""

    def __init__(self, times: int, error: type[Exception] = Conflict) -> None:
        self.times, self.error, self.calls = times, error, 0

    def __call__(self) -> int:
        self.calls += 1
        if self.calls <= self.times:
            raise self.error(f"beaten {self.calls}")
        return self.calls


@given(st.integers(0, 10), st.integers(1, 10))
def test_it_is_tried_until_it_is_not_beaten_or_its_attempts_are_used_up(beaten: int, attempts: int) -> None:
    attempt = Beaten(beaten)
    if beaten < attempts:
        assert commit_optimistically(attempt, Conflict, AT_ONCE._replace(attempts=attempts)) == beaten + 1
    else:
        with pytest.raises(Conflict, match=f"^beaten {attempts}$"):
            commit_optimistically(attempt, Conflict, AT_ONCE._replace(attempts=attempts))
        assert attempt.calls == attempts


def test_on_a_head_that_was_named_there_is_one_attempt() -> None:
    attempt = Beaten(1)
    with pytest.raises(Conflict, match="beaten 1"):
        commit_optimistically(attempt, Conflict, ONCE)
    assert attempt.calls == 1


def test_another_error_ends_it() -> None:
    attempt = Beaten(1, Invalid)
    with pytest.raises(Invalid, match="beaten 1"):
        commit_optimistically(attempt, Conflict, AT_ONCE)
    assert attempt.calls == 1


def test_whether_an_error_is_contention_can_depend_on_more_than_its_class() -> None:
    assert commit_optimistically(Beaten(2, OSError), OSError, AT_ONCE, is_contention=lambda e: "beaten" in str(e)) == 3
    attempt = Beaten(2, OSError)
    with pytest.raises(OSError, match="beaten 1"):
        commit_optimistically(attempt, OSError, AT_ONCE, is_contention=lambda e: "full" in str(e))
    assert attempt.calls == 1


def test_the_last_error_is_the_cause_of_the_one_that_is_raised() -> None:
    with pytest.raises(Invalid, match="too busy") as raised:
        commit_optimistically(Beaten(9), Conflict, AT_ONCE, exhausted=lambda error: Invalid(f"too busy: {error}"))
    assert str(raised.value.__cause__) == "beaten 5"


def test_time_can_be_the_limit() -> None:
    attempt = Beaten(9)
    with pytest.raises(Conflict, match="beaten 1"):
        commit_optimistically(attempt, Conflict, AT_ONCE._replace(seconds=0))
    assert attempt.calls == 1


@given(st.integers(1, 60), st.floats(0, 10), st.floats(0, 10))
def test_waits_double_up_to_the_longest(attempt: int, first: float, longest: float) -> None:
    pace = Pace(first=first, longest=longest)
    assert pace.wait(1) == min(first, longest)
    assert 0 <= pace.wait(attempt) <= pace.wait(attempt + 1) <= longest
    assert pace.wait(attempt + 1) == min(longest, 2 * pace.wait(attempt))
    assert pace.wait(1_000_000) <= longest


def test_threads_that_add_to_one_number_lose_nothing() -> None:
    """Many writers, each of which reads, computes and swaps only if nobody came in between."""
    number, swapping = [0], threading.Lock()

    def add() -> None:
        before = number[0]
        with swapping:
            if number[0] != before:
                raise Conflict("somebody was quicker")
            number[0] = before + 1

    def work() -> None:
        for _ in range(200):
            commit_optimistically(add, Conflict, Pace(attempts=1000, first=1e-5, longest=1e-3))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert number[0] == 800
