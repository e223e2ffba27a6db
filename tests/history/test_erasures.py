"""What stays of an erasure tells nothing of the key to those who do not know it."""

from __future__ import annotations

from typing import Any

import pytest

from ontolake.errors import Invalid
from ontolake.history import Garbage
from ontolake.history.erasures import KeyHash, check_reason, names


@pytest.mark.parametrize("key", ["a@b.example", 123456789012, ("a", 1), ["a", 1], "\ud800"])
def test_a_hash_is_known_again_by_its_key_alone(key: Any) -> None:
    kept = KeyHash.of("people", key)
    assert kept.is_of("people", key)
    assert not kept.is_of("persons", key)
    assert not kept.is_of("people", "another")
    assert KeyHash.of("people", key) != kept, "each has a salt of its own"
    assert str(key) not in str(kept.metadata("people", Garbage(1, 2)))


def test_parts_of_a_key_are_not_taken_for_others() -> None:
    assert not KeyHash.of("t", ("a", "b")).is_of("t", ("ab",))
    assert not KeyHash.of("t", ("a", "b")).is_of("t", ("b", "a"))


@pytest.mark.parametrize(("reason", "key"), [
    ("", "a"), (" \n", "a"), (None, "a"), (3, "a"), ("\ud800", "a"), ("for ada", "ada"), ("row 7", 7),
    ("of (x, 12)", ("y", 12)), ("a@b.example asked", "a@b.example"),
])  # fmt: skip
def test_a_reason_is_needed_that_does_not_name_the_row(reason: Any, key: Any) -> None:
    with pytest.raises(Invalid):
        check_reason(reason, key)


@pytest.mark.parametrize(("reason", "key"), [("on request", "a"), ("ticket 77", 7), ("canada", "ada"), ("why", "")])
def test_other_reasons_stay(reason: str, key: Any) -> None:
    assert check_reason(reason, key) == reason


def test_a_key_is_found_as_a_word() -> None:
    assert names("WHERE id = 'a.b'", "a.b")
    assert not names("WHERE id = 'axb'", "a.b")
    assert not names("'needles'", "needle")
