"""Bad input gets an error that names table, row and column, and publishes nothing."""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from graph_support import TYPES, Customer, Order, Placed, customers, described, entity, held
from marking import slow_after

from ontolake.errors import Invalid, OntolakeError
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
    Vector,
)
from ontolake.graph.commit.branches import GraphBranches
from ontolake.graph.commit.transaction import GraphTransaction
from ontolake.graph.read.snapshot import Snapshot
from ontolake.graph.read.traversal import Hop
from ontolake.graph.read.views import TableView
from ontolake.graph.tables.types import graph_type
from ontolake.graph.tags import GraphTags
from ontolake.history import Ref, Resolution
from ontolake.model import Entity, Field, Relation

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
    dataset = filled.parts.manifest.dataset("main")
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


class Page(Entity):
    id: Field[int] = Field(primary_key=True)
    text: Field[str] = Field(default="")
    place: Field[Vector(2)] = Field(default=[0.0, 0.0])  # type: ignore[valid-type]


class Link(Relation[Page, Page]):
    pass


PAGES = [*TYPES, Page, Link]
_NO_LIST: list[Any] = [5, 1.5, True, b"x", object(), "x", {"x": 1}]
_NO_TEXT: list[Any] = [5, 1.5, True, b"x", object(), ["x"], {"x": 1}, [["x"]], "\ud800"]
_TEXT = [None, *_NO_TEXT]
_FLAG: list[Any] = [None, 0, 1.5, "no", b"x", object(), ["x"], {"x": 1}]
_NUMBER: list[Any] = [-1, 1.5, True, "5", b"x", object(), [5], {"x": 1}, timedelta(1)]
_NAMES: list[Any] = [*_NO_LIST, ["nmae"], [5], [["id"]], [None], iter(["id"])]
_FILTER: list[Any] = [5, b"x", object(), ["x"], {"x": 1}, "nmae = 3"]
_TABLE: list[Any] = [None, *_NO_TEXT, int, Hop]
_PATH: list[Any] = [None, 5, 1.5, b"x", object(), ["x"], {"x": 1}, "a\0b", "\ud800"]
_KEYS: list[Any] = [5, 1.5, b"x", object(), {"id": "a"}, [["x"]], ("a", "b"), pa.table({"x": [1]}),
                    pa.table({"id": [[1]]})]  # fmt: skip
_ROWS: list[Any] = [None, 5, b"x", object(), ["x"], {"x": 1}, {5: 1}, [None], [[]], "a\0b", int,
                    pa.table({"id": [5], "name": ["x"]})]  # fmt: skip
_TYPES: list[Any] = [None, *_NO_LIST, [5], [None], [int], ["Customer"], Customer]
_RENAMES: list[Any] = [5, "x", [("a", "b")], {"Page": 5}, {"Page": "text"}, {"Page": {"text": 5}}, {5: {}},
                       {"Page": {"no": "text"}}]  # fmt: skip
_METADATA: list[Any] = [5, "x", ["x"], {5: 1}, {"x": object()}, {"x": {1, 2}}, {"x": "\ud800"}, {"id": "x"},
                        {"renames": 5}]  # fmt: skip
_VECTOR: list[Any] = [5, "ab", b"ab", object(), [1.0], ["a", "b"], [None, 1], {1: 2, 3: 4}]
_HOPS: list[Any] = [None, 5, "Link", [5], [Page], [(Link, 5)], [(Link, "out", "1")], [(Link, "out", 1, 1, 5)], [()],
                    Hop(Link)]  # fmt: skip

_RESOLUTIONS: list[Any] = [None, 5, "x", [5], [("node/Customer", "a")], [Resolution("Customer", "a", None, "mine")],  # type: ignore[arg-type]
                           [Resolution("Customer", "a")]]  # fmt: skip
MERGE = {"strategy": [5, "x", ["ours"], {Customer: 5}, {5: "ours"}], "resolutions": _RESOLUTIONS, "dry_run": _FLAG,
         "message": _NO_TEXT, "author": _NO_TEXT}  # fmt: skip

WRITE = {"branch": _TEXT, "actor": _NO_TEXT}
READ = {"branch": _NO_TEXT, "commit": _NO_TEXT}
SEARCH = {"text": _NO_TEXT, "column": _NO_TEXT, "limit": [None, 0, *_NUMBER], "filter": _FILTER}

Wrong = dict[str, list[Any]]
"""Values that a method must refuse, by argument."""


def wrong_calls(graph: Graph, tmp: Path) -> list[tuple[Callable[..., Any], dict[str, Any], Wrong]]:
    """Every public method with arguments that it takes, and those that it must not take."""
    snapshot, transaction = graph.snapshot(), graph.transaction()
    table, head, new = snapshot.table(Customer), snapshot.commit, f"{tmp}/new/"
    return [
        (Graph.init, {"url": new, "types": TYPES}, {"url": _TEXT, "types": _TYPES, "actor": _NO_TEXT}),
        (Graph.open, {"url": graph.url, "read_only": True}, {"url": _TEXT, "read_only": _FLAG}),
        (Graph.import_, {"url": new, "folder": tmp}, {"url": _TEXT, "folder": _PATH, "actor": _NO_TEXT}),
        (graph.snapshot, {}, READ),
        (graph.at, {}, {"ref": [None, "", 5, Ref(["x"]), Ref("main", 5)]}),  # type: ignore[arg-type]
        (graph.types, {}, {"branch": _TEXT}),
        (graph.internal_schema_version, {}, {"branch": _TEXT}),
        (graph.commits, {}, {"branch": _TEXT, "since": _NO_TEXT, "until": _NO_TEXT}),
        (graph.changes, {"since": head}, {"branch": _TEXT, "since": _TEXT, "until": _NO_TEXT}),
        (graph.diff, {"before": "main", "after": "try"}, {"before": _TEXT, "after": _TEXT}),
        (graph.traverse, {"start": Page, "roots": [1], "hops": [Link]},
         {"start": _TABLE, "roots": ["x", ["x"], object(), [None]], "hops": _HOPS, **READ}),
        (graph.transaction, {}, {"metadata": _METADATA, "message": _NO_TEXT, **WRITE}),
        (graph.load, {"table": Customer, "data": []}, {"table": _TABLE, "data": _ROWS, "mode": _TEXT,
                                                              "message": _NO_TEXT, **WRITE}),
        (transaction.load, {"table": Customer, "data": []}, {"table": _TABLE, "data": _ROWS, "mode": _TEXT}),
        (graph.delete, {"table": Customer, "keys": "x"},
         {"table": _TABLE, "keys": [None, *_KEYS], "where": _FILTER, "cascade": _FLAG, "message": _NO_TEXT,
          **WRITE}),
        (transaction.note, {}, {"metadata": _METADATA}),
        (transaction.delete, {"table": Customer, "where": "false"},
         {"table": _TABLE, "keys": _KEYS, "where": [None, *_FILTER], "cascade": _FLAG}),
        (graph.merge, {"source": "try"},
         {"source": _TEXT, "into": _TEXT, "strategy": [5, "x", ["ours"], {Customer: 5}, {Customer: ["x"]}, {5: "ours"}],
          "dry_run": _FLAG, "actor": _NO_TEXT, "author": _NO_TEXT, "message": _NO_TEXT, "resolutions": _RESOLUTIONS}),
        (graph.revert, {"commit": head}, {"commit": _TEXT, "branch": _TEXT, **MERGE}),
        (graph.cherry_pick, {"commit": head}, {"commit": _TEXT, "branch": _TEXT, **MERGE}),
        (graph.restore, {"to": head}, {"to": _TEXT, "branch": _TEXT, "tables": [*_NO_LIST, [5], ["x"]],
                                       "dry_run": _FLAG, "message": _NO_TEXT, "author": _NO_TEXT}),
        (graph.history, {"table": Customer, "key": "a"}, {"table": _TABLE, "key": _KEYS, "ref": _NO_TEXT}),
        (graph.blame, {"table": Customer, "key": "a"}, {"table": _TABLE, "key": _KEYS, "ref": _NO_TEXT}),
        (graph.erase, {"table": Customer, "key": "a", "reason": "x"},
         {"table": _TABLE, "key": _KEYS, "reason": _TEXT, "dry_run": _FLAG, "author": _NO_TEXT}),
        (graph.schema_plan, {"types": PAGES}, {"types": _TYPES, "renames": _RENAMES, "branch": _TEXT}),
        (graph.schema_apply, {"plan": graph.schema_plan(PAGES)},
         {"plan": [*_TEXT, (), PAGES], "hard": _FLAG, "actor": _NO_TEXT}),
        (graph.optimize, {}, WRITE),
        (graph.keep_optimized, {}, {"every": [0, 1, *_NUMBER]}),
        (graph.index, {"table": Page, "column": "text"}, {"table": _TABLE, "column": _TEXT, "kind": _TEXT, **WRITE}),
        (graph.cleanup, {}, {"keep": [5, 1.5, "1d", [5], timedelta(-1), timedelta.max], "keep_commits": _NUMBER,
                             "dry_run": _FLAG}),
        (graph.gc, {}, {"dry_run": _FLAG}),
        (graph.repair, {}, {"dry_run": _FLAG}),
        (graph.export, {"folder": f"{tmp}/out"}, {"folder": _PATH, "format": _TEXT, **READ}),
        (graph.branches.create, {"name": "new"}, {"name": [*_TEXT, "a b", ""], "at": _NO_TEXT, "parent": _NO_TEXT}),
        (graph.branches.delete, {}, {"name": _TEXT}),
        (graph.branches.rename, {"name": "try", "new": "other"}, {"name": _TEXT, "new": [*_TEXT, "a b", ""]}),
        (graph.branches.protect, {"name": "try"}, {"name": _TEXT, "protected": _FLAG}),
        (graph.tags.get, {}, {"name": _TEXT}),
        (graph.tags.create, {"name": "new"}, {"name": [*_TEXT, "a b", ""], "ref": _NO_TEXT, "branch": _NO_TEXT,
                                                 "message": _NO_TEXT}),
        (graph.tags.delete, {}, {"name": _TEXT}),
        (snapshot.table, {}, {"name": _TABLE}),
        (snapshot.get, {"table": Customer, "key": "a"}, {"table": _TABLE, "key": _KEYS}),
        (snapshot.rows, {}, {"table": _TABLE}),
        (snapshot.sql, {}, {"query": _TEXT}),
        (snapshot.search, {"table": Page, "text": "x"}, {"table": _TABLE, **SEARCH}),
        (snapshot.search, {"table": Page, "vector": [1, 0]}, {"vector": _VECTOR, **SEARCH}),
        (snapshot.traverse, {"start": Page, "roots": [1], "hops": [Link]},
         {"start": _TABLE, "roots": ["x", ["x"], object(), [None]], "hops": _HOPS}),
        (snapshot.neighbours, {"table": Page, "key": 1, "edge": Link},
         {"table": _TABLE, "key": ["x", [1], None, {1: 1}], "edge": _TABLE, "direction": _TEXT}),
        (snapshot.shortest_path, {"table": Page, "source": 1, "target": 2, "edge": Link},
         {"table": _TABLE, "source": ["x", [1], None], "target": ["x", [1], None], "edge": _TABLE, "direction": _TEXT,
          "max_depth": _NUMBER, "where": _FILTER}),
        (table.to_arrow, {}, {"filter": _FILTER, "columns": _NAMES, "limit": _NUMBER}),
        (table.batches, {}, {"filter": _FILTER, "columns": _NAMES}),
        (table.count, {}, {"filter": _FILTER}),
        (table.get, {}, {"key": _KEYS}),
        (table.get_many, {}, {"keys": _KEYS}),
    ]  # fmt: skip


def raised_by(method: Callable[..., Any], arguments: dict[str, Any]) -> Exception | None:
    try:
        found = method(**arguments)
        if isinstance(found, Iterator):
            list(found)
    except Exception as error:
        return error
    return None


def public_arguments() -> Iterator[tuple[str, str]]:
    """Every argument of every public method, by its name."""
    for owner in (Graph, GraphBranches, GraphTags, Snapshot, TableView, GraphTransaction):
        for name, method in inspect.getmembers(owner, inspect.isroutine):
            if not name.startswith("_") and method.__qualname__ not in _OWN:
                yield from ((method.__qualname__, one) for one in inspect.signature(method).parameters if one != "self")


_OWN = {"GraphBranches.sweep", "TableView.row", "TableView.plain", "TableView.key_of", "GraphTransaction.pin",
        "GraphTransaction.finish"}  # fmt: skip
"""Methods that take what others of them return."""


@pytest.mark.slow
def test_arguments_of_a_wrong_type_are_refused_and_change_nothing(url: str, tmp_path: Path) -> None:
    with Graph.init(url, PAGES) as graph:
        with graph.transaction() as tx:
            tx.load(Customer, customers("a", "b"))
            tx.load(Page, [{"id": 1}, {"id": 2}])
            tx.load(Link, [{"left_key": 1, "right_key": 2}])
        graph.index(Page, "text", kind="text")
        graph.branches.create("try")
        graph.load(Customer, customers("c"), branch="try")
        before = graph.branches.list(), graph.tags.list(), described(graph)
        calls = wrong_calls(graph, tmp_path)
        for method, right, wrong in calls:
            for name, values in wrong.items():
                for value in values:
                    error = raised_by(method, {**right, name: value})
                    assert isinstance(error, OntolakeError), (method.__qualname__, name, value, error)
        assert (graph.branches.list(), graph.tags.list(), described(graph)) == before
        assert {(method.__qualname__, name) for method, _, wrong in calls for name in wrong} == set(public_arguments())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph"], "nothing was made anywhere else"


def test_json_is_checked_by_the_stored_type_whatever_rows_come_from(url: str, tmp_path: Path) -> None:
    kind = entity("Thing", tags=(list[str], {"default_factory": list}),
                  facts=(dict[str, int] | None, {"default": None}),
                  both=(list[int] | dict[str, int], {"default_factory": list}))  # fmt: skip
    right: list[dict[str, Any]] = [{"id": "a", "tags": ["x"], "facts": {"x": 1}, "both": [1]},
                                   {"id": "b", "tags": (), "facts": None, "both": {"x": 1}}]  # fmt: skip
    with Graph.init(url, [kind]) as graph:
        graph.load("node/Thing", right)
        graph.load("Thing", pa.table({"id": ["c"], "tags": [' ["x"]'], "facts": ["null"], "both": ["[]"]}))
        head = graph.snapshot().commit
        for column, value in (("tags", {"x": 1}), ("tags", "x"), ("tags", 5), ("tags", "null"), ("facts", [1]),
                              ("facts", "[]")):  # fmt: skip
            row = {**right[0], column: value}
            (tmp_path / "rows.jsonl").write_text(json.dumps(right[1]) + "\n" + json.dumps(row))
            text = pa.Table.from_pylist([{name: json.dumps(one) if name != "id" else one for name, one in each.items()}
                                         for each in (right[0] | {"id": "x"}, row)])  # fmt: skip
            for data in ([right[1], row], tmp_path / "rows.jsonl", text):
                with pytest.raises(ConstraintError, match="JSON") as caught:
                    graph.load("node/Thing", data)
                assert (caught.value.row, caught.value.key, caught.value.column) == (1, "a", column)
        assert graph.snapshot().commit == head
        other = entity("Thing", tags=(dict[str, str], {"default_factory": dict}),
                       facts=(dict[str, int] | None, {"default": None}),
                       both=(list[int] | dict[str, int], {"default_factory": list}))  # fmt: skip
        with pytest.raises(GraphSchemaError, match="JSON"):
            graph.schema_apply(graph.schema_plan([other]))


def test_a_json_column_of_an_older_release_is_what_its_class_says(url: str) -> None:
    kind = entity("Thing", tags=(list[str], {"default_factory": list}))
    stored = graph_type(kind)
    older = stored.with_fields(replace(field, shape=None) for field in stored.fields)
    with Graph.init(url, [older]) as graph:
        graph.load("Thing", [{"id": "a", "tags": {"x": 1}}])
        assert not graph.schema_plan([kind]), "there is nothing to change"
        assert graph.types() == {"node:Thing": older}
        graph.schema_apply(graph.schema_plan([entity("Thing", tags=(list[str], {"default_factory": list}),
                                                     more=(list[str] | None, {"default": None}))]))  # fmt: skip
        assert [field.shape for field in graph.types()["node:Thing"].fields] == [None, None, "list"]
        assert held(graph)["node/Thing"]["a"]["tags"] == {"x": 1}
