"""Bad input gets an error that names table, row and column, and publishes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from graph_support import TYPES, Customer, Order, Placed, customers, held
from marking import slow_after

from ontolake.errors import Invalid, StorageError
from ontolake.graph import (
    ConstraintError,
    DamagedGraphError,
    DuplicateKeyError,
    EndpointError,
    Graph,
    GraphExistsError,
    GraphFormatError,
    GraphSchemaError,
    NoGraphError,
    ReadOnlyGraphError,
    RowError,
    UnknownBranchError,
    UnknownTableError,
)
from ontolake.model import Entity, Field

BAD: list[tuple[str, Any, Any, type[RowError], dict[str, Any]]] = [
    ("merge", Customer, customers("x", "y", "x"), DuplicateKeyError, {"row": 2, "key": "x", "column": "id"}),
    ("append", Customer, customers("new", "a"), DuplicateKeyError, {"row": 1, "key": "a"}),
    ("merge", Customer, [{"id": "x"}], RowError, {"column": "name"}),
    ("merge", Customer, [{"id": "x", "name": None}], ConstraintError, {"row": 0, "column": "name"}),
    ("merge", Customer, [{"id": "", "name": "x"}], ConstraintError, {"row": 0, "column": "id"}),
    ("merge", Customer, [*customers("x"), {"id": "y", "nmae": "y"}], RowError, {"row": 1, "column": "nmae"}),
    ("merge", Customer, [*customers("x"), 5], RowError, {"row": 1}),
    ("merge", Customer, [*customers("x"), {"id": 5, "name": "y"}], RowError, {"row": 1, "column": "id"}),
    ("merge", Customer, customers("x", email="a@x"), ConstraintError, {"row": 0, "key": "x", "column": "email"}),
    ("merge", Customer, customers("x", "y", email="new"), ConstraintError, {"row": 1, "column": "email"}),
    ("merge", Order, [{"id": 9}, {"id": 10, "total": -0.5}], ConstraintError, {"row": 1, "key": 10}),
    ("merge", Order, [{"id": True}], RowError, {"row": 0, "column": "id"}),
    ("merge", Order, pa.table({"id": ["x"]}), RowError, {"column": "id"}),
    ("merge", Order, pa.table({"id": [1.5]}), RowError, {"column": "id"}),
    ("merge", Placed, [{"left_key": "a", "right_key": 77}], EndpointError, {"row": 0, "column": "right_key"}),
    ("merge", Placed, [{"left_key": "a", "right_key": 2}, {"left_key": "no", "right_key": 3}], EndpointError,
     {"row": 1, "key": ("no", 3), "column": "left_key"}),
    ("merge", Placed, [{"left_key": "b", "right_key": 1}], ConstraintError, {"row": 0, "column": "right_key"}),
]  # fmt: skip


@pytest.fixture
def filled(graph: Graph) -> Graph:
    with graph.transaction() as tx:
        tx.load(Customer, [*customers("a", email="a@x"), *customers("b")])
        tx.load(Order, [{"id": 1}, {"id": 2}, {"id": 3}])
        tx.load(Placed, [{"left_key": "a", "right_key": 1}])
    return graph


def test_bad_rows_are_named_and_nothing_is_published(filled: Graph) -> None:
    before, commits = held(filled), list(filled.commits())
    for mode, table, rows, kind, fields in BAD:
        with pytest.raises(kind) as caught:
            filled.load(table, rows, mode=mode)  # type: ignore[arg-type]
        assert {name: getattr(caught.value, name) for name in fields} == fields, caught.value
        assert table.__name__ in str(caught.value)
    assert (held(filled), list(filled.commits())) == (before, commits)


def test_a_node_with_edges_cannot_go(filled: Graph) -> None:
    for attempt in (lambda: filled.delete(Customer, "a"),
                    lambda: filled.load(Customer, customers("b"), mode="overwrite")):
        with pytest.raises(EndpointError) as caught:
            attempt()
        assert caught.value.key == ("a", 1)
    with filled.transaction() as tx:  # in one go with its edge it can
        tx.delete(Placed, ("a", 1))
        tx.delete(Customer, "a")
    assert list(held(filled)["node/Customer"]) == ["b"]


def test_a_unique_value_may_move_in_one_commit(filled: Graph) -> None:
    with filled.transaction() as tx:
        tx.load(Customer, [*customers("a"), *customers("b", email="a@x")])
    assert held(filled)["node/Customer"]["b"]["email"] == "a@x"


def test_unknown_tables_branches_modes_and_filters(filled: Graph) -> None:
    with pytest.raises(UnknownTableError, match="Nobody"):
        filled.load("Nobody", [])
    with pytest.raises(UnknownBranchError, match="nowhere"):
        filled.load(Customer, [], branch="nowhere")
    with pytest.raises(UnknownBranchError):
        filled.snapshot(branch="nowhere")
    with pytest.raises(Invalid, match="mode"):
        filled.load(Customer, [], mode="upsert")  # type: ignore[arg-type]
    table = filled.snapshot().table(Customer)
    with pytest.raises(Invalid, match="nmae"):
        table.to_arrow(columns=["nmae"])
    with pytest.raises(Invalid, match="filter"):
        table.to_arrow(filter="nmae = 3")
    with pytest.raises(RowError):
        table.get(("a", "b"))


def test_files_that_are_not_there_or_not_readable(filled: Graph, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"id": "x", "name": "x"}\n{oops\n')
    (tmp_path / "bad.parquet").write_text("no")
    for path, match in ((tmp_path / "none.jsonl", "no file"), (tmp_path / "bad.jsonl", "line 2"),
                        (tmp_path / "bad.parquet", "Parquet")):
        with pytest.raises(RowError, match=match):
            filled.load(Customer, path)


def test_types_that_make_no_graph(tmp_path: Path) -> None:
    class Reserved(Entity):
        id: Field[str] = Field(primary_key=True)
        rowid: Field[int] = Field(name="_rowid")

    class Dotted(Entity):
        id: Field[str] = Field(primary_key=True)
        x: Field[int] = Field(name="a.b")

    for types in ([Reserved], [Dotted], [Placed]):
        with pytest.raises(GraphSchemaError):
            Graph.init(f"{tmp_path}/g/", types)
    assert not (tmp_path / "g").exists()


def test_places_with_and_without_a_graph(filled: Graph, url: str, tmp_path: Path) -> None:
    with pytest.raises(GraphExistsError):
        Graph.init(url, TYPES)
    with pytest.raises(NoGraphError):
        Graph.open(f"{tmp_path}/nothing/")
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(Invalid):
        Graph.open("memory://graph")
    with Graph.open(url, read_only=True) as reader:
        with pytest.raises(ReadOnlyGraphError):
            reader.load(Customer, customers("x"))
        with pytest.raises(ReadOnlyGraphError):
            reader.branches.create("x")
        assert reader.snapshot().get(Customer, "a") is not None


@pytest.mark.parametrize(("stamp", "match"), [("3", "export"), ("5", "upgrade"), (None, "export")])
def test_a_graph_of_another_release_is_refused_before_any_data(
    filled: Graph, url: str, stamp: str | None, match: str
) -> None:
    dataset = filled._manifest.dataset("main")
    stamped = {} if stamp is None else {"omnigraph:internal_schema_version": stamp}
    dataset.update_schema_metadata(stamped, replace=True)
    for read_only in (True, False):
        with pytest.raises(GraphFormatError, match=match) as caught:
            Graph.open(url, read_only=read_only)
        assert caught.value.found == int(stamp or 1)


def spoil(root: Path, how: str) -> None:
    for path in root.rglob({"version": "*.manifest", "deletions": "_deletions/*"}.get(how, "*.lance")):
        if path.is_file():
            data = path.read_bytes()
            path.unlink()
            if how in ("short", "version"):
                path.write_bytes(data[:20])
            elif how == "garbage":
                path.write_bytes(bytes(len(data)))


@pytest.mark.parametrize("how", slow_after(1, ["short", "garbage", "gone", "version", "deletions"]))
def test_damaged_datasets_are_named_by_whatever_reads_them(
    filled: Graph, url: str, tmp_path: Path, how: str
) -> None:
    filled.delete(Customer, "b")
    filled.branches.create("try")
    filled.load(Customer, customers("d"), branch="try")
    filled.close()
    before = [path.read_bytes() for path in sorted((tmp_path / "graph" / "__manifest" / "_versions").iterdir())]
    spoil(tmp_path / "graph" / "nodes", how)
    with Graph.open(url) as again:
        snapshot = again.snapshot()
        table = snapshot.table(Customer)
        for act in (table.to_arrow, lambda: table.to_arrow(filter="name = 'A'"), lambda: table.get("a"),
                    lambda: table.get_many(["a"]), lambda: list(table.batches()), lambda: table.count("name = 'A'"),
                    lambda: snapshot.sql("SELECT * FROM customer"), lambda: list(snapshot.rows("Customer")),
                    lambda: snapshot.traverse(Customer, ["a"], [Placed]), lambda: list(again.diff("main", "try")),
                    lambda: again.merge("try", dry_run=True), lambda: again.delete(Customer, where="name = 'A'"),
                    lambda: again.load(Customer, customers("a")), lambda: again.export(tmp_path / "out")):
            with pytest.raises(DamagedGraphError, match="node/Customer"):
                act()
            shutil.rmtree(tmp_path / "out", ignore_errors=True)
        assert {damage.where for damage in again.verify()} >= {"node/Customer@main", "node/Customer@try"}
        assert len(snapshot.table(Placed).to_arrow()) == 1
    after = [path.read_bytes() for path in sorted((tmp_path / "graph" / "__manifest" / "_versions").iterdir())]
    assert after == before, "nothing was published"


def test_a_damaged_manifest_is_no_graph_to_open(filled: Graph, url: str, tmp_path: Path) -> None:
    for content in (b"short", b""):
        for path in (tmp_path / "graph" / "__manifest").rglob("*.manifest"):
            path.write_bytes(content)
        with pytest.raises(DamagedGraphError, match="manifest"):
            Graph.open(url)


def test_a_filter_is_to_blame_for_itself(filled: Graph) -> None:
    table = filled.snapshot().table(Customer)
    for wrong in ("nmae = 3", "name =", "CAST(name AS int) > 3"):
        for act in (lambda: table.to_arrow(filter=wrong), lambda: table.count(wrong),  # noqa: B023
                    lambda: list(table.batches(filter=wrong)), lambda: filled.delete(Customer, where=wrong)):  # noqa: B023
            with pytest.raises(Invalid, match="filter"):
                act()
    with pytest.raises(Invalid, match="empty"):
        filled.delete(Customer, where="")
    assert len(held(filled)["node/Customer"]) == 2


def test_a_path_without_a_slash_is_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("people", str(tmp_path / "others")):
        with Graph.init(name, TYPES) as graph:
            graph.load(Customer, customers("a"))
        for again in (name, f"{name}/"):
            with Graph.open(again, read_only=True) as graph:
                assert graph.snapshot().table(Customer).count() == 1
    (tmp_path / "rows.csv").write_text("a,b\n")
    for wrong in ("shop.db", "sqlite:///shop.db", "rows.csv", ":memory:", ""):
        with pytest.raises(Invalid):
            Graph.init(wrong, TYPES)
    with pytest.raises(NoGraphError):
        Graph.open("nothing", read_only=True)


@pytest.mark.parametrize("wrong", [5, b"x", 1.5, object(), ["a"]])
def test_what_is_no_text_names_nothing(graph: Graph, wrong: Any) -> None:
    for act in (lambda: graph.snapshot(wrong), lambda: graph.branches.create("x", at=wrong),
                lambda: graph.snapshot().sql(wrong), lambda: graph.snapshot().search(Customer, text="a", limit="1")):  # type: ignore[arg-type]
        with pytest.raises(StorageError):
            act()
