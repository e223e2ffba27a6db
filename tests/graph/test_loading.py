"""Rows come in from anywhere, whole loads become commits, and every commit can be read again."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from graph_support import TYPES, Customer, Order, Placed, customers, held

from ontolake.graph import ConstraintError, Graph, RowError, UnknownCommitError
from ontolake.graph.tables.datasets import _in_pieces
from ontolake.history import Ref
from ontolake.model import Entity, Field


def test_arrow_files_dicts_and_objects_give_the_same_rows(graph: Graph, tmp_path: Path) -> None:
    rows = customers("a", "b")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    table = pa.Table.from_pylist(rows)
    found = []
    for data in (rows, iter(rows), table, table.to_batches()[0], table.to_reader(), tmp_path / "rows.parquet",
                 str(tmp_path / "rows.jsonl"), [Customer(**row) for row in rows]):
        graph.load(Customer, data, mode="overwrite")
        found.append(held(graph)["node/Customer"])
    assert all(one == found[0] for one in found)
    assert found[0]["a"] == {"id": "a", "name": "A", "tier": None, "email": None}


def test_a_merge_changes_and_adds_an_overwrite_replaces_an_append_adds(graph: Graph) -> None:
    graph.load(Customer, customers("a", "b"), mode="append")
    graph.load(Customer, customers("b", "c", tier="gold"))
    found = held(graph)["node/Customer"]
    assert [(key, row["tier"]) for key, row in found.items()] == [("a", None), ("b", "gold"), ("c", "gold")]
    graph.load(Customer, customers("z"), mode="overwrite")
    assert list(held(graph)["node/Customer"]) == ["z"]
    graph.load(Customer, [], mode="overwrite")
    assert held(graph)["node/Customer"] == {}


def test_a_transaction_is_one_commit_over_many_tables(graph: Graph) -> None:
    before = len(list(graph.commits()))
    with graph.transaction(actor="ada", metadata={"ticket": 7}) as tx:
        tx.load(Placed, [{"left_key": "a", "right_key": 1}])
        tx.load(Customer, customers("a", "b"))
        tx.load(Order, [{"id": 1, "total": 2.5}])
        tx.delete(Customer, "b")
        tx.load(Customer, customers("a", tier="gold"))
    commit, *rest = graph.commits()
    assert len(rest) == before
    assert tx.commit == commit
    assert (commit.author, commit.metadata["ticket"]) == ("ada", 7)
    assert held(graph) == {
        "node/Customer": {"a": {"id": "a", "name": "A", "tier": "gold", "email": None}},
        "node/Order": {1: {"id": 1, "total": 2.5}},
        "edge/Placed": {("a", 1): {"left_key": "a", "right_key": 1, "note": None}},
    }


def test_an_exception_in_a_transaction_publishes_nothing(graph: Graph) -> None:
    before = list(graph.commits())
    def fail() -> None:
        with graph.transaction() as tx:
            tx.load(Customer, customers("a"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(graph.commits()) == before
    assert held(graph)["node/Customer"] == {}


def test_nothing_to_do_makes_no_commit(graph: Graph) -> None:
    before = list(graph.commits())
    assert graph.load(Customer, []) is None
    assert graph.delete(Customer, "nobody") == 0
    assert list(graph.commits()) == before


def test_deleting_by_key_filter_and_with_edges(graph: Graph) -> None:
    with graph.transaction() as tx:
        tx.load(Customer, customers("a", "b", "c", "d"))
        tx.load(Order, [{"id": 1}, {"id": 2}])
        tx.load(Placed, [{"left_key": "a", "right_key": 1}, {"left_key": "b", "right_key": 2}])
    assert graph.delete(Customer, ["c", "nobody"]) == 1
    assert graph.delete(Customer, where=Customer.name == "D") == 1
    assert graph.delete(Placed, ("b", 2)) == 1
    assert graph.delete(Customer, where="id = 'a'", cascade=True) == 1
    found = held(graph)
    assert (list(found["node/Customer"]), found["edge/Placed"]) == (["b"], {})


def test_every_commit_can_be_read_again(graph: Graph, url: str) -> None:
    states = []
    for number in range(6):
        commit = graph.load(Customer, customers(f"k{number}"))
        assert commit is not None
        states.append((commit.id, held(graph)))
    graph.delete(Customer, where="true")
    with Graph.open(url, read_only=True) as again:
        for id, state in states:
            snapshot = again.at(Ref.parse(f"@{id}"))
            assert {table: dict(snapshot.rows(table)) for table in snapshot.tables()} == state
        assert [commit.id for commit in again.commits()][1:-1] == [id for id, _ in reversed(states)]
        with pytest.raises(UnknownCommitError):
            again.snapshot("01ARZ3NDEKTSV4RRFFQ69G5FAV")


def test_filters_columns_counts_and_keys(graph: Graph) -> None:
    graph.load(Customer, [*customers("a", "b", tier="gold"), *customers("c", "it's")])
    table = graph.snapshot().table("node/Customer")
    assert table.to_arrow(filter=Customer.tier == "gold", columns=["id"]).to_pylist() == [{"id": "a"}, {"id": "b"}]
    assert table.to_arrow(filter="tier IS NULL AND id > 'c'", columns=["id"]).to_pylist() == [{"id": "it's"}]
    assert table.count(~(Customer.id.in_(["a", "it's"]) | Customer.name.startswith("B"))) == 1
    assert len(table) == table.count() == 4
    assert table.get("it's") == {"id": "it's", "name": "IT'S", "tier": None, "email": None}
    assert table.get("nobody") is None
    assert sorted(table.get_many(["a", "zz", "c"])["id"].to_pylist()) == ["a", "c"]


def test_a_graph_can_be_used_without_its_classes(graph: Graph, url: str) -> None:
    graph.load(Customer, customers("a"))
    with Graph.open(url) as again:
        again.load("Customer", customers("b"))
        again.load("node:Order", [{"id": 1}])
        again.load("edge/Placed", [{"left_key": "b", "right_key": 1}])
        assert {kind.table: kind for kind in again.types().values()}.keys() == set(again.snapshot().tables())
        assert list(held(again)["edge/Placed"]) == [("b", 1)]


def test_values_of_every_type_come_back(tmp_path: Path) -> None:
    import enum
    from datetime import date
    from decimal import Decimal
    from uuid import UUID

    from ontolake.model import Entity, Field

    class Colour(enum.Enum):
        RED = "red"

    class Everything(Entity):
        id: Field[UUID] = Field(primary_key=True)
        at: Field[datetime]
        day: Field[date]
        price: Field[Decimal] = Field(max_digits=10, decimal_places=2)
        raw: Field[bytes]
        colour: Field[Colour]
        tags: Field[list[str]]
        on: Field[bool]

    one = Everything(id=UUID(int=5), at=datetime(2024, 5, 6, tzinfo=UTC), day=date(2024, 5, 6), price=Decimal("1.50"),
                     raw=b"\x00\xff", colour=Colour.RED, tags=["x", "y"], on=True)
    with Graph.init(f"{tmp_path}/every/", [Everything]) as graph:
        graph.load(Everything, [one])
        found = graph.snapshot().get(Everything, str(UUID(int=5)))
        assert found == {"id": str(UUID(int=5)), "at": one.at, "day": one.day, "price": one.price, "raw": one.raw,
                         "colour": "red", "tags": ["x", "y"], "on": True}


def test_the_place_is_laid_out_as_documented(graph: Graph, tmp_path: Path) -> None:
    root = tmp_path / "graph"
    graph.load(Customer, customers("a"))
    from ontolake.graph.tables.types import fnv1a64

    assert f"{fnv1a64('a'):016x}" == "af63dc4c8601ec8c"  # as published for this hash
    names = {path.name for path in (root / "nodes").iterdir()}
    assert names == {f"{fnv1a64(name):016x}" for name in ("Customer", "Order")}
    assert list((root / "__recovery").iterdir()) == []
    rows = graph.parts.manifest.state().dataset.to_table()
    assert rows.column_names == ["object_id", "object_type", "location", "metadata", "base_objects", "table_key",
                                 "table_version", "table_branch", "row_count"]
    kinds = rows["object_type"].to_pylist()
    assert [kinds.count(kind) for kind in ("table", "table_version", "graph_commit", "graph_head")] == [3, 4, 2, 1]
    assert graph.internal_schema_version() == 4
    for dataset in (graph.parts.manifest.state().dataset, *(graph.snapshot().table(one).dataset for one in TYPES)):
        assert dataset.has_stable_row_ids


@pytest.mark.parametrize(("column", "fits", "fails"), [
    ("price", [Decimal("0"), Decimal("9.99")], Decimal("-0.01")), ("weight", [0.5, 2], 0),
])  # fmt: skip
def test_bounds_may_be_written_as_whole_numbers(tmp_path: Path, column: str, fits: list[Any], fails: Any) -> None:
    class Item(Entity):
        id: Field[int] = Field(primary_key=True)
        price: Field[Decimal] = Field(ge=0, max_digits=10, decimal_places=2, default=Decimal(1))
        weight: Field[float] = Field(gt=0, default=1.0)

    with Graph.init(f"{tmp_path}/g/", [Item]) as graph:
        graph.load(Item, [{"id": number, column: value} for number, value in enumerate(fits)])
        with pytest.raises(ConstraintError, match=f"{column}.*must be") as raised:
            graph.load(Item, [{"id": 9, column: fails}])
        assert raised.value.column == column
        assert graph.snapshot().table("Item").to_arrow().num_rows == 2


def test_what_a_factory_makes_stands_where_nothing_was_given(tmp_path: Path) -> None:
    numbers = iter(range(100, 200))

    class Item(Entity):
        id: Field[int] = Field(primary_key=True)
        code: Field[int] = Field(default_factory=lambda: next(numbers))
        labels: Field[list[str]] = Field(default_factory=list, name="tags")
        note: Field[str | None] = Field(default_factory=lambda: "made")

    with Graph.init(f"{tmp_path}/g/", [Item]) as graph:
        graph.load(Item, pa.table({"id": [1, 2]}))
        graph.load(Item, [{"id": 3, "code": 7, "tags": ["x"], "note": None}, {"id": 4}])
        graph.load(Item, [Item(id=5)])
        rows = {key: tuple(row.values())[1:] for key, row in held(graph)["node/Item"].items()}
        assert rows == {1: (100, [], "made"), 2: (101, [], "made"), 3: (7, ["x"], None), 4: (102, [], "made"),
                        5: (103, [], "made")}
        with pytest.raises(RowError, match="default_factory") as raised:  # the graph itself does not know it
            graph.load("Item", pa.table({"id": [6]}))
        assert raised.value.column == "code"


def test_rows_are_handed_to_lance_in_batches_that_own_their_memory() -> None:
    """It counts all that a batch is a part of, again for each: a million rows in one piece were too many for it."""
    rows = pa.table({"id": range(20_000), "name": [f"n{number}" for number in range(20_000)]}).slice(100)
    pieces = _in_pieces(rows)
    assert pieces == rows
    batches = pieces.to_batches()
    assert len(batches) == 3
    assert sum(batch.get_total_buffer_size() for batch in batches) < 1.5 * rows.nbytes
    assert _in_pieces(rows.slice(0, 0)).schema == rows.schema
