"""Everything that a store can hold survives the way between client and server."""

from __future__ import annotations

import contextlib
import math
import types
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ontolake.errors import Invalid
from ontolake.history import wire
from ontolake.history.conflicts import Conflict, ConflictKind, Resolution, Value
from ontolake.history.refs import Point, Ref
from ontolake.history.results import Counts, MergeResult, MergeStatus
from ontolake.history.words import Branch, Change, ChangeKind, Commit, Damage, Garbage, RowVersion, Tag

ZONES = st.sampled_from([None, UTC, timezone(timedelta(hours=-3, minutes=-30)), ZoneInfo("Europe/Berlin"),
                         ZoneInfo("UTC")])  # fmt: skip
HASHABLE = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.uuids()
    | st.decimals(allow_nan=False) | st.dates() | st.times() | st.datetimes(timezones=ZONES) | st.timedeltas()
)  # fmt: skip
KEYS = HASHABLE | st.tuples(HASHABLE, HASHABLE)
VALUES = st.recursive(
    HASHABLE,
    lambda inner: st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple)
    | st.dictionaries(st.text(max_size=5) | st.just("$bytes"), inner, max_size=4)
    | st.dictionaries(KEYS, inner, max_size=3) | st.frozensets(HASHABLE, max_size=3) | st.sets(HASHABLE, max_size=3),
    max_leaves=12,
)  # fmt: skip


def same(left: Any, right: Any) -> bool:
    """Equality that also compares types, NaN, signs of zero, exponents of decimals and zones."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return left.hex() == right.hex()
    if isinstance(left, Decimal):
        return str(left) == str(right)
    if isinstance(left, datetime | time):
        return (left.replace(tzinfo=None), left.fold, str(left.tzinfo)) \
            == (right.replace(tzinfo=None), right.fold, str(right.tzinfo))
    if isinstance(left, dict):
        return len(left) == len(right) and all(same(a, b) and same(left[a], right[b])
                                               for a, b in zip(left, right, strict=True))  # fmt: skip
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@given(VALUES)
@example({"$bytes": "aGk="})
@example({"$map": [["a", 1]]})
@example([-0.0, 1 << 63, -(1 << 63) - 1, (1 << 64) - 1])
@example({1: "a", "1": "b"})
@settings(max_examples=150, deadline=None)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert same(wire.load(wire.dump(value)), value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity"),
                                   Decimal("1.500"), Decimal("1E+400"), Decimal("-0"), datetime.max, date.min,
                                   datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
                                   time(1, 2, fold=1), timedelta.max, UUID(int=0), 1 << 20_000],
                         ids=lambda value: type(value).__name__)  # fmt: skip
def test_odd_values_come_back(value: Any) -> None:
    back = wire.load(wire.dump({"x": (value,)}))["x"][0]

    assert same(back, value) or (math.isnan(back) and math.isnan(value) if isinstance(value, float) else False)


COMMIT = Commit(7, (5, 6), datetime(2026, 11, 1, tzinfo=UTC), "ada", {"kind": "merge", "n": (1, b"x")}, "why")
CONFLICT = Conflict("t", (1, b"k"), ConflictKind.DIVERGENT_UPDATE, "f", Decimal("1.0"), math.inf, None, "so",
                    (("u", (2, date(2026, 1, 1))),))
WORDS = [
    COMMIT, Commit("01J", ()), Commit((1, 2), ((1, 1),)), Branch("main", 7, None, None, True),
    Branch("b", "x", "y", "main"), Tag("v1", 7, "main", datetime(2026, 1, 1, tzinfo=UTC), "m"),
    RowVersion(COMMIT, {"a": b"\0"}), RowVersion(COMMIT, None),
    Change(7, "t", ("a", 1), ChangeKind.UPDATE, {"f": 1}, {"f": Decimal("2.50")}),
    Change(7, "t", None, ChangeKind.SCHEMA, None, {"columns": ["a"]}), CONFLICT,
    Resolution("t", ("a", 1), "f", Value({"$x": b""})), Resolution("t", "k"), Damage("a", "b"), Garbage(3, 1 << 70),
    Ref("main", "12", 3), Point("main", 12), Counts(1, 2, 3),
    MergeResult(MergeStatus.CONFLICTS, "b", "main", None, {"t": Counts(1)}, (CONFLICT,), 5),
    MergeResult(MergeStatus.MERGED, "b", "main", COMMIT, {}, (), "id"),
]  # fmt: skip


@pytest.mark.parametrize("word", WORDS, ids=lambda word: type(word).__name__)
def test_words_of_history_come_back_as_what_they_are(word: Any) -> None:
    back = wire.load(wire.dump([word]))[0]

    assert back == word
    assert type(back) is type(word)
    if isinstance(word, Change | Conflict):
        assert type(back.kind) is type(word.kind)
        assert type(back.key) is type(word.key)
    if isinstance(word, Commit):
        assert type(back.parents) is tuple


def test_plain_json_stands_for_itself() -> None:
    assert wire.encode({"a": [1, 1.5, "x", None, True, {"b": {}}]}) == {"a": [1, 1.5, "x", None, True, {"b": {}}]}


def test_subclasses_and_views_go_as_what_they_are_kinds_of() -> None:
    assert wire.load(wire.dump([ChangeKind.INSERT, bytearray(b"a"), types.MappingProxyType({"a": 1})])) \
        == ["insert", b"a", {"a": 1}]


def test_a_commit_of_a_model_goes_as_a_commit() -> None:
    from ontolake.documents.commits import Commit as SpaceCommit

    back = wire.load(wire.dump(SpaceCommit(7, (5,), None, "ada", {"branch": ""}, "why")))
    assert type(back) is Commit
    assert back == (7, (5,), None, "ada", {"branch": ""}, "why")


@pytest.mark.parametrize("value", [object(), {"a": [1j]}, "\ud800"], ids=["object", "complex", "text"])
def test_what_has_no_form_is_refused(value: Any) -> None:
    with pytest.raises(Invalid):
        wire.dump(value)


DAMAGED = [
    "{", "\xff", '{"$what": 1}', '{"$bytes": 5}', '{"$bytes": "?"}', '{"$decimal": "x"}', '{"$date": []}',
    '{"$map": 1}', '{"$commit": 1}', '{"$commit": []}', '{"$change": [1, 2, 3, "no", 5, 6]}', '{"$tuple": {}}',
    '{"$set": [[1]]}', '{"$result": [1]}', '{"$damage": [1, 2, 3]}', '{"$datetime": ["2026-01-01T00:00", "../x", 0]}',
    '{"$uuid": 1}', '{"$timedelta": [1e99]}', '{"$datetime": [1, 2]}', '{"$zone": "No/Where"}', '{"$int": "x"}',
]  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED)
def test_damaged_data_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        wire.load(text.encode("latin-1"))


def test_deep_nesting_is_refused_and_not_a_crash() -> None:
    with pytest.raises(Invalid):
        wire.load(b"[" * 100_000 + b"]" * 100_000)
    with pytest.raises(Invalid):
        wire.load(b'{"$tuple":[' * 100_000 + b"]}" * 100_000)


@given(st.recursive(st.none() | st.integers(-5, 5) | st.text(), lambda inner: st.lists(inner, max_size=3)
                    | st.dictionaries(st.sampled_from(["a", "b", *wire.TAGS]), inner, max_size=2), max_leaves=10))
@settings(max_examples=150, deadline=None)
def test_any_json_is_decoded_or_refused(data: Any) -> None:
    with contextlib.suppress(Invalid):
        wire.load(msgspec.json.encode(data))
