"""Types change by plan, as one commit; old commits keep theirs, and what would lose a row is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa
import pytest
from graph_support import TYPES, Customer, Order, Placed, customers, entity, held

from ontolake.graph import (
    ConstraintError,
    Graph,
    GraphSchemaError,
    RemovedCommitError,
    Unique,
    UnknownTableError,
    Vector,
)
from ontolake.model import Entity, Field


def order(**fields: Any) -> Any:
    """An `Order` with these fields beside its key: name to (type, options)."""
    return entity("Order", int, **fields)


def test_columns_are_added_renamed_widened_and_dropped_in_one_commit(graph: Graph, url: str) -> None:
    graph.load(Order, [{"id": 1, "total": 2.5}, {"id": 2, "total": 3.5}])
    first = order(total=(float, {}), count=(int, {"default": 7}), note=(str | None, {"default": None}))
    plan = graph.schema_plan([first])
    assert {(step.action, step.table, step.column) for step in plan.steps} == {
        ("add_column", "node/Order", "count"), ("add_column", "node/Order", "note"), ("rules", "node/Order", "total"),
        ("drop_type", "node/Customer", None), ("drop_type", "edge/Placed", None)}
    before = next(iter(graph.commits())).id
    commit = graph.schema_apply(plan, actor="ada")
    assert commit is not None
    assert (commit.author, commit.metadata["kind"], commit.parents) == ("ada", "schema", (before,))
    assert held(graph) == {"node/Order": {1: {"id": 1, "total": 2.5, "count": 7, "note": None},
                                          2: {"id": 2, "total": 3.5, "count": 7, "note": None}}}
    second = order(amount=(float, {}), count=(float, {}))
    plan = graph.schema_plan([second], renames={"Order": {"total": "amount"}})
    assert {step.action for step in plan.steps} == {"rename_column", "widen_column", "drop_column"}
    graph.schema_apply(plan)
    assert held(graph)["node/Order"][2] == {"id": 2, "amount": 3.5, "count": 7.0}
    graph.load("Order", [{"id": 3, "amount": 1.0, "count": 0.5}, {"id": 2, "amount": 9.0, "count": 1.0}])
    assert held(graph)["node/Order"][2]["amount"] == 9.0
    with Graph.open(url) as again:
        assert dict(again.snapshot(before).rows("Order"))[2] == {"id": 2, "total": 3.5}
        assert dict(again.snapshot(commit.id).rows("Order"))[1]["count"] == 7
        assert again.snapshot(before).tables() == ["edge/Placed", "node/Customer", "node/Order"]
        with pytest.raises(UnknownTableError):
            again.snapshot().table("Customer")
        assert not again.schema_plan([second])


def test_a_new_column_of_any_type_is_filled_with_its_default(graph: Graph) -> None:
    """The same value wherever it comes from: the change of the type, a load without the column, rows without it."""
    wanted: dict[str, tuple[Any, Any]] = {
        "s": (str, "it's"), "i": (int, 7), "f": (float, 1.5), "b": (bool, True), "d": (date, date(2024, 5, 6)),
        "at": (datetime, datetime(2024, 5, 6, tzinfo=UTC)), "p": (Decimal, Decimal("1.50")), "raw": (bytes, b"\xff"),
        "j": (list[str], ["a"]), "v": (Vector(2), [1.0, 2.0]), "n": (str | None, None),
    }  # fmt: skip
    drop = [kind for kind in graph.types().values() if kind.name == "Order"]
    graph.schema_apply(graph.schema_plan(drop))
    graph.load(Order, [{"id": 1}])
    fields = {name: (kind, {"default": value, **({"max_digits": 10, "decimal_places": 2} if name == "p" else {})})
              for name, (kind, value) in wanted.items()}  # fmt: skip
    graph.schema_apply(graph.schema_plan([order(**fields)]))
    graph.load("Order", pa.table({"id": [2]}))
    graph.load("Order", [{"id": 3}, {"id": 4, "j": ["other"]}])
    expected = {name: value for name, (_, value) in wanted.items()}
    found = held(graph)["node/Order"]
    for key in (1, 2, 3):
        assert found[key] == {"id": key, **expected}
    assert found[4]["j"] == ["other"]


def test_types_are_added_and_come_back_after_a_drop(graph: Graph) -> None:
    class Item(Entity):
        id: Field[str] = Field(primary_key=True)

    graph.load(Customer, customers("a"))
    graph.schema_apply(graph.schema_plan([*TYPES, Item]))
    graph.load(Item, [{"id": "i"}])
    graph.schema_apply(graph.schema_plan(TYPES))
    assert "node/Item" not in graph.snapshot().tables()
    graph.schema_apply(graph.schema_plan([*TYPES, Item]))
    assert held(graph)["node/Item"] == {}
    assert list(held(graph)["node/Customer"]) == ["a"]


def test_a_hard_drop_removes_for_good(graph: Graph, url: str) -> None:
    graph.load(Order, [{"id": 1, "total": 2.5}])
    graph.load(Customer, customers("a"))
    before = next(iter(graph.commits())).id
    graph.schema_apply(graph.schema_plan([order()]), hard=True)
    assert held(graph) == {"node/Order": {1: {"id": 1}}}
    with Graph.open(url) as again:
        assert list(again.verify()) == []
        for table in ("Order", "Customer"):
            with pytest.raises(RemovedCommitError, match="for good"):
                dict(again.snapshot(before).rows(table))


def test_a_hard_drop_takes_nothing_from_other_branches_and_tags(graph: Graph) -> None:
    graph.load(Order, [{"id": 1, "total": 2.5}])
    graph.load(Customer, customers("a"))
    first = next(graph.commits()).id
    graph.load(Customer, customers("b"))
    graph.branches.create("try")
    drops_type = [Customer]
    narrows = [Customer, order(), Placed]
    for what, release in (("branch 'try'", lambda: graph.branches.delete("try")),
                          ("the tag 'v1'", lambda: graph.tags.delete("v1"))):
        for types in (drops_type, narrows):
            before = list(graph.commits())
            with pytest.raises(GraphSchemaError, match=what):
                graph.schema_apply(graph.schema_plan(types), hard=True)
            assert list(graph.commits()) == before
        graph.tags.create("v1") if what != "the tag 'v1'" else None
        release()
    graph.schema_apply(graph.schema_plan(narrows), hard=True)
    assert held(graph)["node/Order"] == {1: {"id": 1}}
    assert list(dict(graph.snapshot(first).rows("Customer"))) == ["a"], "other tables keep their history"
    graph.schema_apply(graph.schema_plan(drops_type), hard=True)
    assert graph.snapshot().tables() == ["node/Customer"]
    assert list(graph.verify()) == []


def test_rules_can_be_loosened_and_tightened_where_rows_fit(graph: Graph) -> None:
    graph.load(Order, [{"id": 1, "total": 2.5}, {"id": 2, "total": 2.5}])
    with pytest.raises(GraphSchemaError, match="do not fit"):
        graph.schema_apply(graph.schema_plan([order(total=(float, {"ge": 3}))]))
    graph.schema_apply(graph.schema_plan([order(total=(float, {"le": 3}))]))
    graph.load("Order", [{"id": 3, "total": -1.0}])
    with pytest.raises(ConstraintError):
        graph.load("Order", [{"id": 4, "total": 4.0}])
    with pytest.raises(GraphSchemaError, match="fit"):
        graph.schema_apply(graph.schema_plan([order(total=(Annotated[float, Unique], {}))]))


@pytest.mark.parametrize("changed", [
    order(total=(str, {"default": ""})), order(total=(float, {}), more=(int, {})),
])  # fmt: skip
def test_what_would_lose_or_misread_a_row_is_refused(graph: Graph, changed: Any) -> None:
    graph.load(Order, [{"id": 1}])
    before = list(graph.commits())
    with pytest.raises(GraphSchemaError, match="Order"):
        graph.schema_plan([Customer, changed, Placed][1:2])
    assert list(graph.commits()) == before


def test_a_plan_is_for_the_graph_that_it_was_made_for(graph: Graph) -> None:
    plan = graph.schema_plan([Customer, Order])
    graph.load(Order, [{"id": 1}])
    with pytest.raises(GraphSchemaError, match="plan"):
        graph.schema_apply(plan)
    assert "edge/Placed" in graph.snapshot().tables()


def test_types_change_on_a_branch_alone(graph: Graph) -> None:
    graph.load(Order, [{"id": 1}])
    graph.branches.create("try")
    graph.schema_apply(graph.schema_plan([Customer, order(total=(float, {"default": 0.0, "ge": 0}), x=(
        int | None, {"default": None}))], branch="try"))
    assert "x" in held(graph, "try")["node/Order"][1]
    assert "x" not in held(graph)["node/Order"][1]
    graph.merge("try")
    assert held(graph) == held(graph, "try")
