"""Filters as data: what comparing and combining fields gives, without a store."""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any

import pytest

from ontolake.model import Entity, Field, SchemaValidationError
from ontolake.model.filters import (
    DEEPEST,
    Compare,
    Condition,
    Junction,
    Member,
    Negation,
    Ref,
    balanced,
    narrowed,
    parse_path,
    refs_of,
)


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    n: Field[int]
    extra: Field[dict[str, Any]]


N, ID = Ref(Thing, "n"), Ref(Thing, "id")


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
