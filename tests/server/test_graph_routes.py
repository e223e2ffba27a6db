"""Graphs over HTTP: walks, search and SQL at any reference, without a way to the files of the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from serving import Served, serving

from ontolake import Entity, Field, Relation
from ontolake.graph import Graph
from ontolake.server.rights import Principal, TokenScope

TRY = Principal("try", TokenScope.READ, branches=("try-*",))


class Town(Entity):
    id: Field[str] = Field(primary_key=True)
    note: Field[str]


class Road(Relation[Town, Town]):
    length: Field[int]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    url = f"file://{tmp_path_factory.mktemp('graph')}/towns"
    with Graph.init(url, [Town, Road]) as graph:
        graph.load(Town, [{"id": id, "note": f"the town of {id}"} for id in "abcd"])
        graph.load(Road, [{"left_key": one, "right_key": other, "length": n}
                          for n, (one, other) in enumerate(("ab", "bc", "cd"))])
        graph.branches.create("try-x")
        graph.load(Town, [{"id": "e", "note": "a new one"}])
        graph.index(Town, "note", kind="text")
    with serving({"towns": url}, (TRY,)) as found:
        yield found


def ask(served: Served, what: str, token: str = "reader", accept: str = "application/json", **body: Any) -> Any:
    return served.call("POST", f"/stores/towns/graph/{what}", token=token, json=body, headers={"accept": accept})


def test_walks_along_edges(served: Served) -> None:
    hop = {"edge": "Road", "max_depth": 3}
    answer = ask(served, "traverse", table="Town", roots=["a"], hops=[hop]).json
    assert sorted(answer["rows"]) == [["b", 1], ["c", 2], ["d", 3]]
    back = ask(served, "traverse", table="Town", roots=["c"], hops=[{"edge": "Road", "direction": "in"}]).json
    assert back["rows"] == [["b", 1]]
    narrow = ask(served, "traverse", table="Town", roots=["a"], hops=[{**hop, "where": "length > 0"}]).json
    assert narrow["rows"] == []


def test_searches_by_words(served: Served) -> None:
    found = ask(served, "search", table="Town", text="new", limit=1).json
    names = [column["name"] for column in found["columns"]]
    assert [row[names.index("id")] for row in found["rows"]] == ["e"]


def test_sql_at_any_reference_in_any_form(served: Served) -> None:
    count = "SELECT count(*) AS n FROM Town"
    assert ask(served, "sql", sql=count).json["rows"] == [[5]]
    assert ask(served, "sql", sql=count, ref="try-x").json["rows"] == [[4]]
    stream = ask(served, "sql", sql="SELECT id FROM Town ORDER BY id", limit=2,
                 accept="application/vnd.apache.arrow.stream")
    assert pa.ipc.open_stream(stream.body).read_all().column("id").to_pylist() == ["a", "b"]
    assert stream.headers["x-ontolake-truncated"] == "true"


@pytest.mark.parametrize("sql", [
    "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'", "COPY (SELECT 1) TO '/tmp/ontolake-stolen.csv'",
    "SELECT * FROM '/etc/passwd'", "CREATE TABLE x AS SELECT 1", "SET datafusion.execution.batch_size = 1",
    "INSERT INTO Town VALUES ('z', 'z')", "DROP TABLE Town"])  # fmt: skip
def test_sql_reaches_no_files_and_changes_nothing(served: Served, sql: str) -> None:
    assert ask(served, "sql", "admin", sql=sql).status == 400
    assert not Path("/tmp/ontolake-stolen.csv").exists()


@pytest.mark.parametrize(("what", "body", "status"), [
    ("sql", {"sql": "SELEC"}, 400), ("sql", {"sql": "SELECT 1", "limit": 0}, 422), ("sql", {}, 422),
    ("sql", {"sql": "SELECT 1", "ref": "nowhere"}, 404), ("search", {"table": "Town"}, 400),
    ("search", {"table": "Nothing", "text": "x"}, 404), ("search", {"table": "Town", "vector": [1.0]}, 400),
    ("traverse", {"table": "Town", "hops": [{"edge": "Nothing"}]}, 404),
    ("traverse", {"table": "Town", "hops": [{"edge": "Road", "max_depth": 0}]}, 400),
    ("traverse", {"table": "Town", "hops": [{"edge": "Road", "direction": "up"}]}, 422),
    ("traverse", {"table": "Town", "roots": ["none"], "hops": []}, 404),
])  # fmt: skip
def test_a_bad_request_is_told_why(served: Served, what: str, body: dict[str, Any], status: int) -> None:
    answer = ask(served, what, **body)
    assert answer.status == status, answer.json


def test_a_token_for_some_branches_reads_no_other(served: Served) -> None:
    assert ask(served, "sql", "try", sql="SELECT 1", ref="try-x").status == 200
    for ref in (None, "main", "main~1"):
        assert ask(served, "sql", "try", sql="SELECT 1", **({} if ref is None else {"ref": ref})).status == 403
