"""What becomes of columns when a type follows another, and when two types that grew from one are joined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from graph_support import Customer, Order, Placed, entity

from ontolake.graph import Graph
from ontolake.graph.commit.records import Pin
from ontolake.graph.merge.columns import JoinedType, join_types, rules_of, sources_since, translated, with_ids
from ontolake.graph.place import GraphPlace
from ontolake.graph.tables.datasets import GraphTables
from ontolake.graph.tables.types import GraphField, GraphType

KEY = GraphField("id", "str")
A = GraphField("a", "int")


def node(*fields: GraphField) -> GraphType:
    return GraphType("node", "T", ("id",), (KEY, *fields))


def ids(kind: GraphType) -> dict[str, str | None]:
    return {field.name: field.id for field in kind.fields}


# Ids


def test_a_column_keeps_its_id_under_another_name_and_a_new_one_gets_its_own() -> None:
    old = node(A, GraphField("b", "int", id="#b"), GraphField("c", "int", id="#c"))
    new = node(GraphField("x", "int"), GraphField("b", "int"), GraphField("y", "int"), GraphField("n", "int"))
    assert ids(with_ids(old, new, {"a": "x", "c": "y"}, "commit")) == {
        "id": None, "x": "a", "b": "#b", "y": "#c", "n": "#5bc7d62295e1821b"}
    again = with_ids(old, new, {"a": "x", "c": "y"}, "another commit")
    assert ids(again)["n"] not in ("#5bc7d62295e1821b", None)
    back = with_ids(node(GraphField("x", "int", id="a")), node(A), {"x": "a"}, "commit")
    assert ids(back) == {"id": None, "a": "a"}


def test_the_rules_of_a_column_are_all_but_its_name_and_id() -> None:
    assert rules_of(GraphField("a", "int", nullable=True, ge=1, id="#1")) == {"type": "int", "nullable": True, "ge": 1}


# Where columns come from


@pytest.fixture
def unread(tmp_path: Path) -> GraphTables:
    """Tables that are not there: whoever reads them fails."""
    return GraphTables(GraphPlace(f"{tmp_path}/nowhere/"))


OLDER, NEWER = Pin(None, 3, 0, "old"), Pin(None, 5, 0, "new")


def test_columns_with_ids_are_found_by_them(unread: GraphTables) -> None:
    """No file is read: the ids tell."""
    old = node(A, GraphField("b", "int", id="#b"), GraphField("c", "int", id="#c,#d"))
    new = GraphType("node", "T", ("id",), (
        GraphField("id", "str", id="id"), GraphField("x", "int", id="a"), GraphField("a", "int", id="#new"),
        GraphField("y", "int", id="#b"), GraphField("z", "int", id="#d,#e")))  # fmt: skip
    assert sources_since(unread, (OLDER, old), (NEWER, new), {}) == {
        "id": "id", "x": "a", "a": None, "y": "b", "z": "c"}


def test_columns_without_ids_are_found_by_the_renames_that_commits_tell(unread: GraphTables) -> None:
    """The base is no ancestor of the side here, so the numbers of columns in files tell nothing."""
    old = node(A, GraphField("b", "int"), GraphField("c", "int", id="#c"))
    new = node(GraphField("x", "int"), GraphField("a", "int"), GraphField("b", "int"), GraphField("c", "int"))
    assert sources_since(unread, (NEWER, old), (OLDER, new), {"a": "x", "gone": "other"}) == {
        "id": "id", "x": "a", "a": None, "b": "b", "c": None}


def test_nothing_is_read_of_a_side_that_has_not_moved(unread: GraphTables) -> None:
    kind = node(A)
    assert sources_since(unread, (OLDER, kind), (OLDER, kind), {}) == {"id": "id", "a": "a"}


def test_a_column_without_id_that_was_dropped_and_added_again_is_another(graph: Graph) -> None:
    """Types of older releases have no ids: the files tell a column that was added again from the one before."""

    def shown() -> tuple[Pin, GraphType]:
        state = graph.parts.state("main")
        kind = state.types["node:Order"]
        return state.pins["node:Order"], kind.with_fields(replace(field, id=None) for field in kind.fields)

    def evolve(**fields: Any) -> None:
        graph.schema_apply(graph.schema_plan([Customer, entity("Order", int, **fields), Placed]))

    graph.load(Order, [{"id": 1}])
    base = shown()
    evolve(total=(float, {"ge": 0, "default": 0.0}), note=(str, {"default": ""}))
    assert sources_since(graph.parts.tables, base, shown(), {}) == {"id": "id", "total": "total", "note": None}
    evolve()
    evolve(total=(float, {"ge": 0, "default": 0.0}))
    assert sources_since(graph.parts.tables, base, shown(), {}) == {"id": "id", "total": None}
    assert sources_since(graph.parts.tables, base, (shown()[0], base[1]), {}) == {"id": "id", "total": None}
    evolve(total=(float, {"ge": 0, "default": 0.0}), count=(int, {"default": 0}))
    narrow = shown()
    evolve(total=(float, {"ge": 0, "default": 0.0}), count=(float, {"default": 0}))
    assert sources_since(graph.parts.tables, narrow, shown(), {})["count"] == "count", "widened, and stored anew"


def test_rows_follow_their_columns() -> None:
    rows = pa.table({"id": ["1", "2"], "a": [1, 2], "gone": [True, False]})
    new = node(GraphField("x", "float"), GraphField("n", "int", default=7, has_default=True),
               GraphField("m", "str", nullable=True))
    found = translated(rows, new, {"id": "id", "x": "a", "n": None, "m": None})
    assert found.schema == new.schema
    assert found.to_pylist() == [{"id": "1", "x": 1.0, "n": 7, "m": None}, {"id": "2", "x": 2.0, "n": 7, "m": None}]


# Joining two types


def join(
    base: GraphType, theirs: GraphType, ours: GraphType, theirs_from: Mapping[str, str | None] | None = None,
    ours_from: Mapping[str, str | None] | None = None,
) -> JoinedType | list[str]:  # fmt: skip
    """The types joined, with the columns of a side from those of the same name unless told otherwise."""

    def sources(kind: GraphType, given: Mapping[str, str | None] | None) -> dict[str, str | None]:
        return {field.name: field.name if field.name in base.by_name else None for field in kind.fields} | (
            dict(given or {}))

    return join_types(base, theirs, ours, sources(theirs, theirs_from), sources(ours, ours_from))


def joined(*arguments: Any) -> JoinedType:
    found = join(*arguments)
    assert isinstance(found, JoinedType), found
    return found


B = GraphField("b", "int")
STRICT = GraphField("a", "int", ge=0)
STRICTER = GraphField("a", "int", ge=1)
RENAMED = GraphField("x", "int", id="a")


def test_a_column_that_nobody_changed_stays() -> None:
    same = {"id": "id", "a": "a"}
    assert joined(node(A), node(A), node(A)) == JoinedType(node(A), same, same, same)


def test_a_column_that_one_side_added_is_new_to_the_other() -> None:
    added = GraphField("n", "int", id="#n")
    with_it, without = {"id": "id", "n": "n"}, {"id": "id", "n": None}
    assert joined(node(), node(added), node()) == JoinedType(node(added), without, with_it, without)
    assert joined(node(), node(), node(added)) == JoinedType(node(added), without, without, with_it)


def test_a_column_that_both_added_alike_is_one_with_the_ids_of_both() -> None:
    there, none = {"id": "id", "n": "n"}, {"id": "id", "n": None}
    found = joined(node(), node(GraphField("n", "int", id="#2,#3")), node(GraphField("n", "int", id="#1,#2")))
    assert found == JoinedType(node(GraphField("n", "int", id="#1,#2,#3")), none, there, there)
    older = joined(node(), node(GraphField("n", "int", id="#2")), node(GraphField("n", "int")))
    assert older == JoinedType(node(GraphField("n", "int")), none, there, there)


def test_columns_that_both_added_differently_conflict() -> None:
    assert join(node(), node(GraphField("n", "int"), A), node(GraphField("n", "str"), GraphField("a", "str"))) == [
        "a", "n"]


def test_a_column_that_one_side_dropped_goes_unless_the_other_changed_it() -> None:
    nothing = {"id": "id"}
    assert joined(node(A), node(), node(A)) == JoinedType(node(), nothing, nothing, nothing)
    assert joined(node(A), node(A), node()) == JoinedType(node(), nothing, nothing, nothing)
    assert joined(node(A), node(), node()) == JoinedType(node(), nothing, nothing, nothing)
    assert join(node(A), node(), node(STRICT)) == ["a"]
    assert join(node(A), node(STRICT), node()) == ["a"]
    assert join(node(A), node(), node(RENAMED), None, {"x": "a"}) == ["x"]
    assert join(node(A), node(RENAMED), node(), {"x": "a"}) == ["x"]


def test_a_column_has_the_name_of_the_side_that_renamed_it() -> None:
    a, x = {"id": "id", "x": "a"}, {"id": "id", "x": "x"}
    assert joined(node(A), node(RENAMED), node(A), {"x": "a"}) == JoinedType(node(RENAMED), a, x, a)
    assert joined(node(A), node(A), node(RENAMED), None, {"x": "a"}) == JoinedType(node(RENAMED), a, a, x)
    assert joined(node(A), node(RENAMED), node(RENAMED), {"x": "a"}, {"x": "a"}) == JoinedType(node(RENAMED), a, x, x)
    other = GraphField("y", "int", id="a")
    assert join(node(A), node(RENAMED), node(other), {"x": "a"}, {"y": "a"}) == ["y"]


def test_a_column_has_the_rules_of_the_side_that_changed_them() -> None:
    assert joined(node(A), node(STRICT), node(A)).kind == node(STRICT)
    assert joined(node(A), node(A), node(STRICT)).kind == node(STRICT)
    assert joined(node(A), node(STRICT), node(STRICT)).kind == node(STRICT)
    assert join(node(A, B), node(STRICT, B), node(STRICTER, B)) == ["a"]


def test_a_column_may_have_its_name_from_one_side_and_its_rules_from_the_other() -> None:
    both = node(replace(RENAMED, ge=0))
    assert joined(node(A), node(RENAMED), node(STRICT), {"x": "a"}) == JoinedType(
        both, {"id": "id", "x": "a"}, {"id": "id", "x": "x"}, {"id": "id", "x": "a"})  # fmt: skip
    assert joined(node(A), node(STRICT), node(RENAMED), None, {"x": "a"}).kind == both


def test_a_new_column_may_take_the_name_of_a_renamed_one() -> None:
    new = GraphField("a", "str", id="#new")
    kind, moved = node(RENAMED, new), {"x": "a", "a": None}
    base, here, other = {"id": "id", "x": "a", "a": None}, {"id": "id", "x": "x", "a": "a"}, {
        "id": "id", "x": "a", "a": None}  # fmt: skip
    assert joined(node(A), kind, node(A), moved) == JoinedType(kind, base, here, other)
    assert joined(node(A), node(A), kind, None, moved) == JoinedType(kind, base, other, here)


def test_two_columns_of_one_name_conflict() -> None:
    added = GraphField("x", "str", id="#x")
    assert join(node(A), node(RENAMED), node(A, added), {"x": "a"}) == ["x"]
    assert join(node(A), node(A, added), node(RENAMED), None, {"x": "a"}) == ["x"]


def test_the_cardinality_is_that_of_the_side_that_changed_it() -> None:
    edge = GraphType("edge", "E", ("left_key", "right_key"), (
        GraphField("left_key", "str"), GraphField("right_key", "str")), "L", "R")  # fmt: skip
    one, other = replace(edge, cardinality="1:n"), replace(edge, cardinality="n:1")
    assert joined(edge, one, edge).kind == one
    assert joined(edge, edge, one).kind == one
    assert joined(edge, one, one).kind == one
    assert join(edge, one, other) == ["its rules"]
