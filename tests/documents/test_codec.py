"""What is stored comes back as it was, or is refused with the place named."""

from __future__ import annotations

import math
from collections import OrderedDict
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ontolake.documents.values import codec

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)  # fmt: skip


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


@given(json_values)
def test_every_json_value_comes_back_equal_and_of_the_same_type(value: Any) -> None:
    text, copy = codec.seal(value)
    assert repr(copy) == repr(value)
    assert repr(codec.decode(text)) == repr(value)


@pytest.mark.parametrize("number", [2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1, -0.0, 5e-324, 1.7976931348623157e308])
def test_numbers_stay_exact(number: float) -> None:
    text, copy = codec.seal({"n": number})
    assert repr(copy["n"]) == repr(number)
    assert repr(codec.decode(text)["n"]) == repr(number)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, math.nan]}, "/a/1"),
        ({"a": math.inf}, "/a"),
        ({"a": {"b": -math.inf}}, "/a/b"),
        ({"n": 2**64}, "/n"),
        ({"n": [-(2**63) - 1]}, "/n/0"),
        ({"when": datetime(2024, 1, 1)}, "/when"),
        ({"a/b": {"~": b"bytes"}}, "/a~1b/~0"),
        ({"t": (1, 2)}, "/t"),
        ({"s": {1, 2}}, "/s"),
        ({"d": Decimal("1.5")}, "/d"),
        ({"o": object()}, "/o"),
        ({"k": {1: "a"}}, "/k"),
        ({"k": {None: "a"}}, "/k"),
        ({"k": {True: "a"}}, "/k"),
        ({"text": "\ud800"}, "/text"),
        ({"in": {"\udfff": 1}}, "/in"),
    ],
)
def test_what_json_cannot_say_is_refused_with_its_place(value: Any, path: str) -> None:
    with pytest.raises(codec.Unstorable) as refused:
        codec.seal(value)
    assert refused.value.path == path


def test_long_digits_in_text_and_fractions_are_not_taken_for_big_integers() -> None:
    value = {"card": "1234567890123456789012345", "f": 0.12345678901234568, "k" * 30: 1e300}
    assert codec.seal(value)[1] == value


def test_a_document_may_be_nested_to_the_limit_and_no_deeper() -> None:
    codec.seal(nested(codec.MAX_DEPTH))
    for levels in (codec.MAX_DEPTH + 1, 900, 100_000):
        with pytest.raises(codec.Unstorable, match="nested deeper than 200 levels"):
            codec.seal(nested(levels))


def test_a_value_that_contains_itself_is_refused() -> None:
    value: dict[str, Any] = {}
    value["self"] = value
    with pytest.raises(codec.Unstorable, match="nested"):
        codec.seal(value)


def test_many_brackets_side_by_side_are_not_depth() -> None:
    value = {"rows": [[index] for index in range(1000)], "text": "[" * 1000}
    assert codec.seal(value)[1] == value


def test_a_document_beyond_the_limit_of_bytes_is_refused() -> None:
    with pytest.raises(codec.Unstorable, match="67,108,864 are the limit"):
        codec.seal({"text": "x" * codec.MAX_BYTES})


def test_subclasses_of_json_types_are_stored_as_what_they_are() -> None:
    assert codec.seal(OrderedDict(a=1))[1] == {"a": 1}


def test_the_copy_shares_nothing_with_the_value() -> None:
    value = {"a": {"b": [1]}}
    copy = codec.seal(value)[1]
    value["a"]["b"].append(2)
    assert copy == {"a": {"b": [1]}}


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        ([1], [True], False),
        ({"a": 1, "b": [0]}, {"b": [0.0], "a": 1.0}, True),
        ({"a": {"b": False}}, {"a": {"b": 0}}, False),
        (None, 0, False),
        ("1", 1, False),
        ([1, 2], [2, 1], False),
        ({"a": None}, {}, False),
    ],
)
def test_equality_is_that_of_json(a: Any, b: Any, same: bool) -> None:
    assert codec.same(a, b) is same
    assert codec.same(b, a) is same


@pytest.mark.parametrize("text", ["", "{", "NaN", "[1,]", '{"a":1}x', "1e400", "[" * 5000, '"\udcff"'])
def test_text_that_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(codec.Unstorable, match="not JSON"):
        codec.decode(text)
