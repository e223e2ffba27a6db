"""Filters as data: what comparing and combining fields gives, without a store."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ontolake.model import Entity, Field, SchemaValidationError
from ontolake.model.filters import (
    DEEPEST,
    Aggregate,
    Compare,
    Condition,
    FieldRef,
    Junction,
    Match,
    Measure,
    Member,
    Negation,
    Shape,
    UnaryTest,
    ValueRef,
    balanced,
    measure_with_refs,
    narrowed,
    parse_path,
    refs_of,
    slots,
    with_refs,
)


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    n: Field[int]
    extra: Field[dict[str, Any]]


N, ID = ValueRef(Thing, "n"), ValueRef(Thing, "id")


def test_what_is_of_one_kind_stands_side_by_side() -> None:
    found = (Thing.n > 1) & (Thing.n < 2) & ((Thing.id > "a") & (Thing.id < "b"))
    assert found.shape == Junction("and", (Compare(">", N), Compare("<", N), Compare(">", ID), Compare("<", ID)))
    assert (found.values, found.depth) == ((1, 2, "a", "b"), 1)
    mixed = (Thing.n > 1) | (found & (Thing.n != 7))
    assert isinstance(mixed.shape, Junction)
    assert (mixed.shape.op, len(mixed.shape.parts), mixed.depth) == ("or", 2, 2)
    assert [*refs_of(mixed.shape)] == [N, N, N, ID, ID, N]


def test_alternatives_of_one_field_are_a_list() -> None:
    assert ((Thing.n == 1) | (Thing.n == 2)).shape == Member("in", N, 2)
    found = reduce(operator.or_, [Thing.n == n for n in range(500)])
    assert (found.shape, found.values, found.depth) == (Member("in", N, 500), tuple(range(500)), 0)
    found = (Thing.id == "a") | (Thing.n == 1) | Thing.n.in_([2, 3]) | (Thing.id == "b")
    assert found.shape == Junction("or", (Compare("==", ID), Member("in", N, 3), Compare("==", ID)))
    assert found.values == ("a", 1, 2, 3, "b")
    for other in (Thing.n != 2, Thing.n > 2, Thing.id == "a", Thing.n == Thing.n):
        assert isinstance(((Thing.n == 1) | other).shape, Junction)
    assert isinstance(((Thing.n == 1) & (Thing.n == 2)).shape, Junction)


def test_two_negations_are_none() -> None:
    one = Thing.n == 1
    assert (~one).shape == Negation("not", Compare("==", N))
    assert ((~one).depth, (~~one).depth, (~~one).shape) == (1, 0, one.shape)


def test_filters_are_as_deep_as_they_may_be() -> None:
    found: Condition = Thing.n > 0
    for number in range(DEEPEST):
        found = (found | (Thing.n > number)) if number % 2 else (found & (Thing.n > number))
    assert found.depth == DEEPEST
    with pytest.raises(SchemaValidationError, match="levels deep"):
        _ = ~found


def test_a_filter_is_narrowed_by_more_conditions() -> None:
    one, two = Thing.n > 1, (Thing.n < 5) & (Thing.id > "a")
    assert narrowed(None, (), [one]) == (one.shape, (1,))
    shape, values = narrowed(one.shape, one.values, [two, Thing.id != "b"])
    assert shape == Junction("and", (Compare(">", N), Compare("<", N), Compare(">", ID), Compare("!=", ID)))
    assert values == (1, 5, "a", "b")
    either = (Thing.n > 1) | (Thing.id > "a")
    assert narrowed(None, (), [either, one])[0] == Junction("and", (either.shape, one.shape))


def test_conditions_are_joined_as_a_flat_tree() -> None:
    assert balanced("OR", ["a"]) == "a"
    assert balanced("OR", ["a", "b", "c", "d", "e"]) == "(((a OR b) OR (c OR d)) OR e)"


@pytest.mark.parametrize(
    ("path", "steps"),
    [("a", ("a",)), ("a.b", ("a", "b")), ("a.0", ("a", 0)), ("a[0]", ("a", 0)), ("[1].b[2][3]", (1, "b", 2, 3)),
     ("a.10b", ("a", "10b")), ("a.²", ("a", "²"))],
)  # fmt: skip
def test_paths_are_split_into_steps(path: str, steps: tuple[str | int, ...]) -> None:
    assert parse_path(path) == steps


@pytest.mark.parametrize("path", ["", "a..b", ".a", "a.", "a[", "a[x]", "a[0", "a[]", "a[²]", "a.[0]", None, 5])
def test_paths_that_are_none_are_refused(path: Any) -> None:
    with pytest.raises(SchemaValidationError):
        parse_path(path)


def test_what_means_nothing_is_a_type_error() -> None:
    for value in (None, True, False):
        with pytest.raises(TypeError, match="is_"):
            _ = Thing.n == value
    wrong: list[Any] = [
        lambda: bool(Thing.n == 1), lambda: bool(Thing.n), lambda: (Thing.n == 1) & True, lambda: Thing.id.in_("abc"),
        lambda: Thing.id.in_([None]), lambda: Thing.id.contains(5), lambda: Thing.extra[True], lambda: Thing.extra[1.5],
        lambda: iter(Thing.n), lambda: Thing.extra.any_path("a").path("b"),
    ]  # fmt: skip
    for ask in wrong:
        with pytest.raises(TypeError):
            ask()
    assert Thing.extra["a"][0].path("b.c").ref.path == ("a", 0, "b", "c")
    assert Thing.extra.any_path("a[*].b").ref.any_path == ("a", "b")
    assert Thing.extra.any_path().ref.any_path == ()
    assert (Thing.n.asc().descending, Thing.n.desc().descending) == (False, True)


def test_conditions_of_any_number_are_joined_as_a_flat_tree() -> None:
    assert balanced("AND", ["a", "b"]) == "(a AND b)"
    assert balanced("AND", ["a", "b", "c"]) == "((a AND b) AND c)"
    assert balanced("AND", list("abcdefg")) == "(((a AND b) AND (c AND d)) AND ((e AND f) AND g))"


def test_the_depth_of_a_filter_is_that_of_its_deepest_part() -> None:
    assert DEEPEST == 100
    one, two = Thing.n > 1, Thing.id > "a"
    assert (one.depth, (one & two).depth, ((one & two) & one).depth, ((one & two) | one).depth) == (0, 1, 1, 2)
    assert (one | (one & ~two)).depth == 3
    assert ((~one & two).depth, (two & ~one).depth, (~(one & two)).depth) == (2, 2, 2)
    assert ((Thing.n == 1) | (Thing.n == 2)).depth == 0
    assert ((Thing.n == 1) | (Thing.n == 2) | two).depth == 1


def test_only_equal_neighbours_of_one_field_become_a_list() -> None:
    n, name = Thing.n, Thing.id
    found = ((name > "a") | (n == 1)) | ((n == 2) | (name > "b"))
    assert found.shape == Junction("or", (Compare(">", ID), Member("in", N, 2), Compare(">", ID)))
    assert found.values == ("a", 1, 2, "b")
    found = (n == 1) | ((name > "b") | (n == 2))
    assert found.shape == Junction("or", (Compare("==", N), Compare(">", ID), Compare("==", N)))
    found = ((n == 1) | (name > "b")) | (n == 2)
    assert found.shape == Junction("or", (Compare("==", N), Compare(">", ID), Compare("==", N)))
    assert (n.in_([1, 2]) | n.in_([3])).shape == Member("in", N, 3)
    assert (n.in_([]) | (n == 3)).shape == Junction("or", (Member("in", N, 0), Compare("==", N)))
    total = Aggregate(Measure("sum", N))
    assert ((total == 1) | (total == 2)).shape == Junction("or", (Compare("==", Measure("sum", N)),) * 2)
    same = Compare("==", N, ID)
    assert ((n == name) | (n == name)).shape == Junction("or", (same, same))


def test_a_filter_is_narrowed_by_nothing_or_by_more() -> None:
    one, two = Thing.n > 1, Thing.id > "a"
    assert narrowed(one.shape, one.values, []) == (one.shape, (1,))
    assert narrowed(one.shape, one.values, [two]) == (Junction("and", (one.shape, two.shape)), (1, "a"))
    assert narrowed(None, (), [one, two]) == (Junction("and", (one.shape, two.shape)), (1, "a"))
    both = one & two
    assert narrowed(None, (), [both]) == (both.shape, (1, "a"))
    assert narrowed(both.shape, both.values, [one]) == (Junction("and", (*both.shape.parts, one.shape)), (1, "a", 1))


EVERY: list[tuple[Shape, list[ValueRef], int]] = [
    (Compare("<", N), [N], 1), (Compare("<", N, ID), [N, ID], 0), (Match("contains", ID), [ID], 1),
    (Member("in", N, 2), [N], 2), (UnaryTest("is_null", N), [N], 0), (Negation("not", Compare("<", N, ID)), [N, ID], 0),
    (Negation("not", Match("contains", ID)), [ID], 1),
    (Junction("and", (UnaryTest("is_null", ID), Negation("not", Member("in", N, 3)), Compare("<", ID))),
     [ID, N, ID], 4),
    (Compare("<", Measure("sum", N)), [], 1),
    (Compare("<", Measure("count_where", None, Member("in", N, 2))), [], 3),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "refs", "values"), EVERY)
def test_the_fields_of_a_filter_are_found_and_exchanged(shape: Shape, refs: list[ValueRef], values: int) -> None:
    assert [*refs_of(shape)] == refs
    assert slots(shape) == values
    there = with_refs(shape, lambda ref: ref._replace(at=3))
    assert [*refs_of(there)] == [ref._replace(at=3) for ref in refs]
    assert with_refs(there, lambda ref: ref._replace(at=None)) == shape


def test_the_fields_of_aggregates_are_exchanged_too() -> None:
    def moved(ref: ValueRef) -> ValueRef:
        return ref._replace(at=1)

    where = Compare("<", ID)
    assert measure_with_refs(Measure("count"), moved) == Measure("count")
    assert measure_with_refs(Measure("sum", N), moved) == Measure("sum", moved(N))
    counted = Measure("count_where", None, where)
    assert measure_with_refs(counted, moved) == Measure("count_where", None, Compare("<", moved(ID)))
    assert with_refs(Compare("<", counted), moved) == Compare("<", measure_with_refs(counted, moved))


@pytest.mark.parametrize("op", ["==", "!=", "<", "<=", ">", ">="])
def test_fields_are_compared_with_values_and_with_fields(op: str) -> None:
    compare = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
               ">=": operator.ge}[op]  # fmt: skip
    found = compare(Thing.n, 5)
    assert (found.shape, found.values, found.depth) == (Compare(op, N), (5,), 0)
    found = compare(Thing.n, Thing.id)
    assert (found.shape, found.values) == (Compare(op, N, ID), ())
    total = Aggregate(Measure("count_where", None, Compare("<", N)), (7,))
    found = compare(total, 5)
    assert (found.shape, found.values) == (Compare(op, total.ref), (7, 5))
    with pytest.raises(TypeError, match="with a value only"):
        compare(total, Thing.n)


def test_what_a_field_cannot_be_compared_with_has_a_test_of_its_own() -> None:
    for value, instead in ((None, r"use \.is_null\(\) or \.is_not_null"), (True, r"use \.is_true\(\) or \.is_false"),
                           (False, r"use \.is_true\(\) or \.is_false")):  # fmt: skip
        with pytest.raises(TypeError, match=f"cannot compare Thing.n with {value} through >=: {instead}"):
            _ = Thing.n >= value
        with pytest.raises(TypeError, match=f"cannot compare sum\\(n\\) with {value} through >=$"):
            _ = Aggregate(Measure("sum", N)) >= value
    assert (Thing.n == 0).values == (0,)
    assert (Thing.n == 1).values == (1,)


def test_fields_print_where_they_are() -> None:
    assert repr(Thing.extra["a"][0]) == "Thing.extra['a'][0]"
    assert repr(FieldRef[int](ValueRef("things", "n", "left"))) == "left(things).n"
    assert repr(Aggregate(Measure("count"))) == "count()"
    assert repr(Aggregate(Measure("sum", N))) == "sum(n)"


@pytest.mark.parametrize(
    "ask",
    [
        lambda text: Thing.n == text, lambda text: Thing.n.contains(text), lambda text: Thing.n.in_(["a", text]),
        lambda text: Thing.n.path(text), lambda text: Thing.n[text], lambda text: Thing.n.any_path(text),
        lambda text: Aggregate(Measure("max", N)) == text,
    ],
)  # fmt: skip
def test_text_that_is_not_unicode_is_refused_by_the_name_of_its_field(ask: Callable[[str], Any]) -> None:
    ask("ä€𝄞")
    with pytest.raises(SchemaValidationError, match="is not Unicode") as caught:
        ask("a\ud800")
    assert (caught.value.type_name, caught.value.field) == ("Thing", "n")


def test_text_of_no_field_is_refused_too() -> None:
    with pytest.raises(SchemaValidationError, match="is not Unicode") as caught:
        _ = Aggregate(Measure("count")) == "\ud800"
    assert (caught.value.type_name, caught.value.field) == (None, None)
    assert f"{'x' * 100!r} is not" in str(_refused("x" * 120 + "\ud800"))


def _refused(text: str) -> SchemaValidationError:
    with pytest.raises(SchemaValidationError) as caught:
        _ = Thing.id == text
    return caught.value


def test_paths_go_on_from_where_a_field_is() -> None:
    assert Thing.extra["a"].path("b[1]")["c.d"].ref == ValueRef(Thing, "extra", path=("a", "b", 1, "c.d"))
    assert Thing.extra["a"].any_path("b.0").ref == ValueRef(Thing, "extra", path=("a",), any_path=("b", "0"))
    for go_on in (lambda: Thing.extra.any_path()["a"], lambda: Thing.extra.any_path("b").any_path("c")):
        with pytest.raises(TypeError, match="behind any_path"):
            go_on()


# any filter means what its parts mean, whatever is put side by side

Row = dict[str, Any]


class Meaning(NamedTuple):
    """A filter, and what it says of a row by Python alone: true, false, or None where a value is missing."""

    condition: Condition
    holds: Callable[[Row], bool | None]


def _leaf(name: str, op: str, value: int) -> Meaning:
    field = getattr(Thing, name)
    compare = {"==": operator.eq, "<": operator.lt}[op]
    return Meaning(compare(field, value), lambda row: None if row[name] is None else compare(row[name], value))


def _listed(name: str, values: list[int]) -> Meaning:
    return Meaning(getattr(Thing, name).in_(values), lambda row: None if row[name] is None and values
                   else row[name] in values)  # fmt: skip


def _both(one: Meaning, two: Meaning) -> Meaning:
    def holds(row: Row) -> bool | None:
        found = {one.holds(row), two.holds(row)}
        return False if False in found else None if None in found else True

    return Meaning(one.condition & two.condition, holds)


def _either(one: Meaning, two: Meaning) -> Meaning:
    def holds(row: Row) -> bool | None:
        found = {one.holds(row), two.holds(row)}
        return True if True in found else None if None in found else False

    return Meaning(one.condition | two.condition, holds)


def _not(one: Meaning) -> Meaning:
    def holds(row: Row) -> bool | None:
        found = one.holds(row)
        return None if found is None else not found

    return Meaning(~one.condition, holds)


NAMES, SMALL = st.sampled_from(["n", "id"]), st.integers(0, 2)
MEANINGS = st.recursive(
    st.builds(_leaf, NAMES, st.sampled_from(["==", "==", "<"]), SMALL)
    | st.builds(_listed, NAMES, st.lists(SMALL, min_size=1, max_size=2)),
    lambda parts: st.builds(_both, parts, parts) | st.builds(_either, parts, parts) | st.builds(_not, parts),
    max_leaves=10,
)  # fmt: skip
ROWS: list[Row] = [{"n": n, "id": name} for n in (None, 0, 1, 2) for name in (None, 0, 1)]


def said(shape: Shape, values: Iterator[Any], row: Row) -> bool | None:
    """What a shape says of a row. Takes its values in the order in which the shape mentions them."""
    if isinstance(shape, Negation):
        found = said(shape.part, values, row)
        return None if found is None else not found
    if isinstance(shape, Junction):
        parts = [said(part, values, row) for part in shape.parts]
        decided = shape.op == "or"
        return decided if decided in parts else None if None in parts else not decided
    mine = [next(values) for _ in range(shape.size if isinstance(shape, Member) else 1)]
    assert isinstance(shape.ref, ValueRef)
    value = row[shape.ref.name]
    if value is None:
        return None
    return value in mine if shape.op in ("in", "==") else value < mine[0]


@given(MEANINGS)
def test_a_filter_means_what_its_parts_mean(one: Meaning) -> None:
    for row in ROWS:
        values = iter(one.condition.values)
        assert said(one.condition.shape, values, row) == one.holds(row), row
        assert not [*values], "every value is of a part"


@given(MEANINGS, st.lists(MEANINGS, min_size=1, max_size=3))
def test_a_narrowed_filter_means_all_of_its_conditions(first: Meaning, more: list[Meaning]) -> None:
    shape, values = narrowed(first.condition.shape, first.condition.values, [one.condition for one in more])
    for row in ROWS:
        expected = {one.holds(row) for one in (first, *more)}
        assert said(shape, iter(values), row) == (False if False in expected else None if None in expected else True)
