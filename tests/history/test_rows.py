"""Rows in Arrow merge by field as plain Python says."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ontolake.history import Conflict, ConflictKind, Counts, Decisions, Resolution, Value
from ontolake.history.rows import MergedRows, RowChanges, RowSides, merge_rows, overridden

SCHEMA = pa.schema([("id", pa.string()), ("f", pa.int64()), ("g", pa.float64())])
KEYS = ["a", "b", "c"]

State = dict[str, dict[str, Any]]
records = st.fixed_dictionaries({"f": st.sampled_from([None, 1, 2]), "g": st.sampled_from([None, 0.5, float("nan")])})
states = st.dictionaries(st.sampled_from(KEYS), records)
sides_or_none = st.sampled_from([None, "ours", "theirs"])


def table(state: State) -> pa.Table:
    return pa.Table.from_pylist([{"id": key, **row} for key, row in state.items()], SCHEMA)


def merged(base: State, ours: State, theirs: State, decisions: Decisions | None = None, **more: Any) -> MergedRows:
    keys = pa.table({"id": pa.array(KEYS)})
    sides = RowSides("t", SCHEMA, ("id",), keys, table(base), table(ours), table(theirs),
                     key_of=lambda row: row["id"], plain=dict, **more)  # fmt: skip
    return merge_rows(sides, decisions or Decisions())


def applied(ours: State, changes: RowChanges) -> State:
    state = {key: dict(row) for key, row in ours.items()}
    for row in changes.puts.to_pylist():
        state[row.pop("id")] = row
    for row in changes.deletes.to_pylist():
        del state[row["id"]]
    return state


def text(value: Any) -> str:
    """Values as text that can be compared: NaN equals itself, and the order of fields does not matter."""
    return json.dumps(value, sort_keys=True)


def oracle(base: State, ours: State, theirs: State, side: str | None) -> tuple[State, set[tuple[str, str | None]]]:
    """The merged state, conflicting rows as `ours` has them, and what is in conflict."""
    state: State = {}
    conflicts: set[tuple[str, str | None]] = set()
    for key in KEYS:
        old, own, new = base.get(key), ours.get(key), theirs.get(key)
        if text(own) == text(new) or text(new) == text(old):
            result = own
        elif text(own) == text(old):
            result = new
        elif own is None or new is None:
            conflicts.add((key, None))
            result = new if side == "theirs" else own
        else:
            result, open_fields = {}, set()
            for name in ("f", "g"):
                mine, other = own[name], new[name]
                if text(mine) == text(other) or (old is not None and text(other) == text(old[name])):
                    result[name] = mine
                elif old is not None and text(mine) == text(old[name]):
                    result[name] = other
                else:
                    open_fields.add((key, name))
                    result[name] = other if side == "theirs" else mine
            conflicts |= open_fields
            if open_fields and side is None:
                result = own
        if result is not None:
            state[key] = result
    return state, conflicts


@given(states, states, states, sides_or_none)
def test_rows_merge_as_plain_python_does(base: State, ours: State, theirs: State, side: Any) -> None:
    found = merged(base, ours, theirs, Decisions(side))
    state, conflicts = oracle(base, ours, theirs, side)
    assert text(sorted(applied(ours, found.changes).items())) == text(sorted(state.items()))
    expected = conflicts if side is None else set()
    assert {(one.key, one.field) for one in found.conflicts} == expected
    assert len(found.conflicts) == len(expected)


@given(states, states, states, sides_or_none)
def test_counts_are_those_of_the_change(base: State, ours: State, theirs: State, side: Any) -> None:
    found = merged(base, ours, theirs, Decisions(side))
    after = applied(ours, found.changes)
    assert found.counts.inserted == len(after.keys() - ours.keys())
    assert found.counts.deleted == len(ours.keys() - after.keys())


@given(states, states, states, sides_or_none)
def test_resolutions_of_every_conflict_give_what_the_strategy_gives(
    base: State, ours: State, theirs: State, side: Any
) -> None:
    side = side or "ours"
    conflicts = merged(base, ours, theirs).conflicts
    decisions = Decisions(None, [Resolution(one.table, one.key, one.field, side) for one in conflicts])
    found = merged(base, ours, theirs, decisions)
    assert found.conflicts == []
    decisions.check_used()
    other = merged(base, ours, theirs, Decisions(side))
    assert text(sorted(applied(ours, found.changes).items())) == text(sorted(applied(ours, other.changes).items()))


ROW = {"a": {"f": 1, "g": 0.5}}


def test_a_conflict_has_the_values_of_all_sides() -> None:
    [conflict] = merged(ROW, {"a": {"f": 2, "g": 0.5}}, {"a": {"f": None, "g": 0.5}}).conflicts
    assert conflict == Conflict("t", "a", ConflictKind.DIVERGENT_UPDATE, "f", 1, 2, None,
                                "both sides changed it, differently")
    [conflict] = merged(ROW, {}, {"a": {"f": 2, "g": 0.5}}).conflicts
    assert conflict[:7] == ("t", "a", ConflictKind.DELETE_UPDATE, None, {"id": "a", "f": 1, "g": 0.5}, None,
                            {"id": "a", "f": 2, "g": 0.5})
    first, second = merged({}, ROW, {"a": {"f": 2, "g": None}}).conflicts
    assert [first.kind, first.field, second.field] == [ConflictKind.DIVERGENT_INSERT, "f", "g"]


@pytest.mark.parametrize(("resolution", "expected"), [
    (Resolution("t", "a", "f", "base"), {"f": 1, "g": 0.5}),
    (Resolution("t", "a", "f", Value(9)), {"f": 9, "g": 0.5}),
    (Resolution("t", "a", None, Value({"f": 8, "g": None})), {"f": 8, "g": None}),
    (Resolution("t", "a", None, Value(None)), None),
    (Resolution("t", "a", None, "theirs"), {"f": 3, "g": 0.5}),
])  # fmt: skip
def test_a_field_or_a_row_is_settled_by_a_value(resolution: Resolution, expected: Any) -> None:
    ours = {"a": {"f": 2, "g": 0.5}}
    decisions = Decisions(None, [resolution])
    found = merged(ROW, ours, {"a": {"f": 3, "g": 0.5}}, decisions)
    assert found.conflicts == []
    assert applied(ours, found.changes).get("a") == expected


def test_a_deleted_row_comes_back_as_the_base_or_a_value_has_it() -> None:
    for take, expected in (("base", ROW["a"]), (Value({"f": 7, "g": 1.5}), {"f": 7, "g": 1.5}), ("ours", None)):
        decisions = Decisions(None, [Resolution("t", "a", None, take)])  # type: ignore[arg-type]
        found = merged(ROW, {}, {"a": {"f": 2, "g": 0.5}}, decisions)
        assert applied({}, found.changes).get("a") == expected


def test_a_column_that_one_side_lacks_is_decided_by_the_other() -> None:
    ours, theirs = {"a": {"f": 2, "g": None}}, {"a": {"f": 1, "g": 1.5}}
    found = merged({"a": {"f": 1, "g": None}}, ours, theirs, our_missing=["g"])
    assert found.conflicts == []
    assert applied(ours, found.changes) == {"a": {"f": 2, "g": 1.5}}


def test_disputed_rows_conflict_unless_both_sides_agree() -> None:
    import numpy as np

    disputed = np.array([True, True, False])
    state = {"a": {"f": 1, "g": 0.5}, "b": {"f": 2, "g": 0.5}}
    found = merged(state, {**state, "b": {"f": 3, "g": 0.5}}, state, disputed=disputed)
    assert [(one.key, one.field, one.base) for one in found.conflicts] == [("b", "f", None)]


def test_overriding_gives_rows_the_state_of_one_side() -> None:
    ours = {"a": {"f": 1, "g": 0.5}, "b": {"f": 2, "g": 0.5}}
    changes = RowChanges(table({"a": {"f": 9, "g": 0.5}, "c": {"f": 9, "g": 0.5}}), pa.table({"id": ["b"]}))
    keys = pa.table({"id": pa.array(["a", "b", "c"])})
    assert applied(ours, overridden(changes, ("id",), keys, None, table(ours))) == ours
    theirs = {"a": {"f": 5, "g": 0.5}, "c": {"f": 6, "g": 0.5}}
    assert applied(ours, overridden(changes, ("id",), keys, table(theirs), table(ours))) == theirs


def test_nothing_changed_is_nothing_to_do() -> None:
    found = merged(ROW, ROW, ROW)
    assert found.changes.is_empty
    assert found.counts == Counts()
