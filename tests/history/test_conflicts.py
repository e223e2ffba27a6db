"""Strategies and resolutions settle conflicts, and say what they cannot settle."""

from __future__ import annotations

from typing import Any

import pytest

from ontolake.errors import Invalid
from ontolake.history import Conflict, ConflictKind, Decisions, MergeConflictError, Resolution, Value

FIELD = Conflict("t", ("a", 1), ConflictKind.DIVERGENT_UPDATE, "f", 1, 2, 3)
RULE = Conflict("t", "a", ConflictKind.UNIQUE, "email", rows=(("t", "b"),))


def test_a_resolution_of_the_field_comes_before_that_of_the_row_and_the_strategy() -> None:
    row, field = Resolution("t", ("a", 1), None, "ours"), Resolution("t", ("a", 1), "f", Value(9))
    assert Decisions("theirs").take(FIELD) == "theirs"
    assert Decisions("theirs", [row]).take(FIELD) == "ours"
    assert Decisions("theirs", [row, field]).take(FIELD) == Value(9)
    assert Decisions({"other": "ours"}).take(FIELD) is None
    assert Decisions({"t": "ours"}).take(FIELD) == "ours"


def test_a_value_for_the_row_has_a_value_for_each_field() -> None:
    whole = Resolution("t", ("a", 1), None, Value({"f": 7, "g": {"h": 8}}))
    decisions = Decisions(None, [whole])
    assert decisions.take(FIELD) == Value(7)
    assert decisions.take(FIELD._replace(field="/g/h")) == Value(8)
    assert decisions.whole("t", ("a", 1)) == whole.take


def test_keys_of_several_parts_may_come_as_lists() -> None:
    resolution = Resolution.parse({"table": "t", "key": ["a", 1], "field": "f", "take": "theirs"})
    assert Decisions(None, [resolution]).take(FIELD) == "theirs"


def test_resolutions_are_read_from_json() -> None:
    assert Resolution.parse({"table": "t", "key": 1, "take": {"value": None}}) == Resolution("t", 1, None, Value(None))
    wrong: list[Any] = [None, [], {"table": "t", "take": "ours"}, {"table": 1, "key": 1, "take": "ours"},
                        {"table": "t", "key": 1, "take": "mine"}, {"table": "t", "key": 1}]  # fmt: skip
    for data in wrong:
        with pytest.raises(Invalid):
            Resolution.parse(data)


def test_what_is_not_in_conflict_cannot_be_resolved() -> None:
    decisions = Decisions(None, [Resolution("t", "b", "f", "ours")])
    with pytest.raises(Invalid, match="not in conflict"):
        decisions.check_used()
    used = Decisions(None, [Resolution("t", ("a", 1), "f", "ours")])
    used.take(FIELD)
    used.check_used()


@pytest.mark.parametrize("wrong", [
    lambda: Decisions("mine"),  # type: ignore[arg-type]
    lambda: Decisions({"t": "mine"}),  # type: ignore[dict-item]
    lambda: Decisions(None, ["ours"]),  # type: ignore[list-item]
    lambda: Decisions(None, [Resolution("t", 1, None, "mine")]),  # type: ignore[arg-type]
    lambda: Decisions(None, [Resolution("t", 1), Resolution("t", 1)]),
])  # fmt: skip
def test_malformed_decisions_are_refused(wrong: Any) -> None:
    with pytest.raises(Invalid):
        wrong()


def test_a_rule_is_settled_by_a_side() -> None:
    assert Decisions("theirs").side(RULE) == "theirs"
    assert Decisions(None, [Resolution("t", "a", "email", "ours")]).side(RULE) == "ours"
    assert Decisions().side(RULE) is None
    with pytest.raises(Invalid, match="settled by a side"):
        Decisions(None, [Resolution("t", "a", None, Value({}))]).side(RULE)


def test_a_rule_is_settled_by_naming_any_of_its_rows() -> None:
    other = Decisions("theirs", [Resolution("t", "b", take="ours")])
    assert [other.side(RULE), other.side(RULE)] == ["ours", "ours"], "asked again it says the same"
    other.check_used()
    both = Decisions(None, [Resolution("t", "a", take="theirs"), Resolution("t", "b", take="ours")])
    assert both.side(RULE) == "theirs", "that of the row itself comes first"
    elsewhere = Decisions(None, [Resolution("t", "b", take="ours")])
    assert elsewhere.take(Conflict("t", "b", ConflictKind.DELETE_UPDATE)) == "ours"
    assert elsewhere.side(RULE) is None, "that decided another conflict of the row"
    assert Decisions(None, [Resolution("t", "b", take=Value({}))]).side(RULE) is None


def test_the_error_names_the_first_conflict_and_counts_the_others() -> None:
    error = MergeConflictError("try", "main", [FIELD, RULE])
    assert "divergent update of t ('a', 1), field 'f', and 1 more" in str(error)
    assert error.conflicts == (FIELD, RULE)
    assert error.exit_code == 6
