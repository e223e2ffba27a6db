"""The three-way rule for one value, case by case."""

from __future__ import annotations

import pytest

from ontolake.history.threeway import Disputed, Outcome, decide


def equal(a: object, b: object) -> bool:
    return a == b


@pytest.mark.parametrize(("base", "theirs", "ours", "outcome"), [
    (1, 1, 1, Outcome.KEEP),  # nobody changed it
    (1, 1, 2, Outcome.KEEP),  # only the target did
    (1, 2, 2, Outcome.KEEP),  # both did alike
    (1, 2, 1, Outcome.TAKE),
    (1, 2, 3, Outcome.CLASH),
    (None, 1, None, Outcome.TAKE),
    (None, 1, 2, Outcome.CLASH),
    (1, None, 1, Outcome.TAKE),
    (1, None, 2, Outcome.CLASH),
    (1, 2, None, Outcome.CLASH),
    (1, None, None, Outcome.KEEP),
])
def test_a_change_is_kept_out_taken_or_clashes(
    base: int | None, theirs: int | None, ours: int | None, outcome: Outcome
) -> None:
    assert decide(base, theirs, ours, equal) is outcome


def test_the_caller_says_what_is_the_same() -> None:
    def same_letters(a: str, b: str) -> bool:
        return a.lower() == b.lower()

    assert decide("a", "A", "b", same_letters) is Outcome.KEEP
    assert decide("a", "b", "A", same_letters) is Outcome.TAKE
    assert decide("a", "b", "B", same_letters) is Outcome.KEEP
    assert decide("a", "b", "c", same_letters) is Outcome.CLASH


def test_on_a_disputed_base_all_that_differs_clashes() -> None:
    assert decide(Disputed(), 1, 1, equal) is Outcome.KEEP
    assert decide(Disputed(), 1, 2, equal) is Outcome.CLASH
    assert decide(Disputed(), None, 2, equal) is Outcome.CLASH


def test_disputed_values_equal_nothing() -> None:
    disputed = Disputed()
    assert disputed != disputed
    assert disputed not in (None, 1, Disputed())
    assert repr(disputed) == "Disputed()"
