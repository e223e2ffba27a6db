"""Every generic verb takes the URL of a store behind a server, and says what it says of a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import serving
from versioned_places import PLACES, VersionedPlace

from ontolake import stores
from ontolake.errors import ExitCode

MODELS = {"typed": "typed", "sql": "sql native", "graph": "graph", "documents": "documents"}


@pytest.fixture(params=list(MODELS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> VersionedPlace:
    """A store of each model, with a branch `try` that changed one row."""
    found = PLACES[MODELS[request.param]](tmp_path)
    found.write("main", {"x": {"f": 1, "g": 1}, "y": {"f": 1, "g": None}})
    with stores.find(found.url).opened(write=True) as store:
        store.branches.create("try")
    found.write("try", {"x": {"f": 2, "g": 1}})
    return found


@pytest.fixture
def url(place: VersionedPlace, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The same store behind a server."""
    monkeypatch.setenv("ONTO_TOKEN", "admin-secret")
    with serving({"shop": place.url}) as served:
        yield f"{served.url}/shop"


def row(place: VersionedPlace) -> Any:
    """The row `x`, read past the server."""
    with stores.find(place.url).opened() as store:
        return place.adapter.records(store.at("main"))["x"]


def test_reading_verbs_say_what_they_say_of_a_file(place: VersionedPlace, url: str, onto: Any) -> None:
    for command in (["log", "URL"], ["diff", "URL", "main", "try"], ["branch", "URL"], ["tag", "URL"],
                    ["blame", "URL", place.table, "x"]):  # fmt: skip
        there, here = (onto(*(where if one == "URL" else one for one in command), "--json").document
                       for where in (url, place.url))
        assert there.pop("url", url) == url
        here.pop("url", None)
        assert there == here, command
    assert onto("verify", url, "--json").document["ok"] is True
    assert onto("info", url, "--json").document["kind"] == "server"
    assert onto("info", url).code == 0
    exported = onto("export", url).out
    assert [one["key"] for one in map(json.loads, exported.splitlines()) if one["table"] == place.table] == ["x", "y"]
    assert "would_remove" in onto("gc", url, "--json").document


def test_changing_verbs_change_the_store_behind_the_server(place: VersionedPlace, url: str, onto: Any) -> None:
    for command in (["branch", "create", url, "more"], ["tag", "create", url, "v1"], ["merge", url, "try"]):
        assert onto(*command).code == 0, command
    with stores.find(place.url).opened() as store:
        assert {one.name for one in store.branches.list()} >= {"try", "more"}
        assert [one.name for one in store.tags.list()] == ["v1"]
    assert row(place) == {"f": 2, "g": 1}
    assert onto("restore", url, "v1").code == 0
    assert row(place) == {"f": 1, "g": 1}
    assert onto("cherry-pick", url, "try").code == 0
    assert row(place) == {"f": 2, "g": 1}
    assert onto("revert", url, "main").code == 0
    assert row(place) == {"f": 1, "g": 1}


def test_a_wrong_token_is_told_and_a_store_that_is_not_there(tmp_path: Path, onto: Any,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    with serving({"shop": PLACES["documents"](tmp_path).url}) as served:
        monkeypatch.setenv("ONTO_TOKEN", "wrong")
        refused = onto("log", f"{served.url}/shop", "--json")
        assert (refused.code, refused.error["type"]) == (ExitCode.USAGE, "UnauthorizedError")
        monkeypatch.setenv("ONTO_TOKEN", "reader-secret")
        assert onto("log", f"{served.url}/other").code == ExitCode.STORAGE
        assert onto("tag", "create", f"{served.url}/shop", "v1").code == ExitCode.REFUSED


def test_sql_runs_behind_a_server(tmp_path: Path, onto: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONTO_TOKEN", "writer-secret")
    place = PLACES["sql native"](tmp_path)
    with serving({"shop": place.url}) as served:
        url = f"{served.url}/shop"
        assert onto("sql", url, f"INSERT INTO {place.table} VALUES ('a', 1, NULL)").code == 0
        found = onto("sql", url, f"SELECT id, f, g FROM {place.table}", "--json").document
        assert found["rows"] == [["a", 1, None]]
        assert "a" in onto("sql", url, f"SELECT id FROM {place.table}").out


def test_typed_stores_are_queried_behind_a_server(tmp_path: Path, onto: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONTO_TOKEN", "reader-secret")
    place = PLACES["typed"](tmp_path)
    place.write("main", {"x": {"f": 1, "g": 1}, "y": {"f": 5, "g": None}})
    with serving({"shop": place.url}) as served:
        command = ["query", "entities", "Recorded", "--where", "f > 2", "--json"]
        there = onto(*command, "--storage-uri", f"{served.url}/shop")
        assert there.code == 0, there.err
        assert there.document["rows"] == onto(*command, "--db", place.url).document["rows"]
        assert len(there.document["rows"]) == 1


def test_rows_are_erased_behind_a_server(place: VersionedPlace, url: str, onto: Any,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["erase", url, place.table, "x", "--reason", "a request"]
    planned = onto(*command, "--json").document
    assert planned["would_erase"]["items"] > 0
    assert row(place) == {"f": 1, "g": 1}
    assert onto(*command, "--token", "wrong").code == ExitCode.REFUSED
    monkeypatch.setenv("ONTO_TOKEN", "merger-secret")
    assert onto(*command, "--token", planned["token"]).code == ExitCode.REFUSED
    assert row(place) == {"f": 1, "g": 1}
    monkeypatch.setenv("ONTO_TOKEN", "admin-secret")
    assert onto(*command, "--token", planned["token"], "--json").document["erased"]["items"] > 0
    with stores.find(place.url).opened() as store:
        states = [store.at("main"), store.at("try"), *(store.snapshot(one.id) for one in store.commits())]
        assert [one for one in states if place.table in one.tables() and "x" in place.adapter.records(one)] == []
        assert list(place.adapter.records(states[0])) == list(place.adapter.records(states[1])) == ["y"]


def test_documents_are_read_and_written_behind_a_server(tmp_path: Path, onto: Any,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONTO_TOKEN", "admin-secret")
    place = PLACES["documents"](tmp_path)
    with serving({"shop": place.url}) as served:
        def run(*words: str, at: str = served.url) -> Any:
            command, rest = words[: 2 if words[0] in ("branch", "blob") else 1], words[1:]
            done = onto("docs", *command, at, "shop", *(rest[1:] if len(command) == 2 else rest))
            assert done.code == 0, (words, done.err)
            return done

        assert run("put", "a", '{"value": {"n": 1}}', "--json").document["seq"] == 1
        run("patch", "a", '[{"op": "replace", "path": "/value/n", "value": 2}]', "--unless-changed-since", "1")
        run("put", "b", '{"value": "only on the first"}')
        run("branch", "create", "try")
        run("put", "a", '{"value": {"n": 3}}', "--branch", "try")
        run("delete", "b", "--branch", "try")
        for command in (["get", "a"], ["get", "a", "--branch", "try"], ["get", "a", "--seq", "1"], ["history", "a"],
                        ["history", "a", "--since", "1", "--limit", "1"], ["list"], ["list", "--branch", "try"],
                        ["log"], ["log", "--branch", "try", "--limit", "2"], ["diff", "try"],
                        ["watch", "--since", "0", "--limit", "3"], ["merge", "try", "--dry-run"]):  # fmt: skip
            assert run(*command).out == run(*command, at=f"{tmp_path}/docs/").out, command
            if command[0] != "list":  # which names the head of the branch, where a file names the newest commit of all
                assert run(*command, "--json").out == run(*command, "--json", at=f"{tmp_path}/docs/").out, command
        stale = onto("docs", "put", served.url, "shop", "a", "{}", "--unless-changed-since", "1")
        assert stale.code == ExitCode.CONFLICT
        assert "merged as seq" in run("merge", "try").out
        assert [one["id"] for one in run("list", "--json", at=f"{tmp_path}/docs/").document["documents"]] == ["a"]
        (tmp_path / "picture").write_bytes(bytes(range(256)))
        hash = run("blob", "put", str(tmp_path / "picture"), "--type", "image/png").out.strip()
        shown = run("blob", "get", hash, "--json").document
        assert shown == {"hash": hash, "content_type": "image/png", "size": 256}
        assert [one["name"] for one in run("branch", "list", "--json").document["branches"]] == ["main", "try"]
        token = run("branch", "delete", "try", "--json").document["token"]
        run("branch", "delete", "try", "--token", token)
        assert len(run("branch", "list", "--json").document["branches"]) == 1
        assert onto("docs", "branch", "list", served.url, "shop", "--deleted").code == ExitCode.USAGE
        assert onto("docs", "branch", "delete", served.url, "shop", "main").code != 0
        assert onto("docs", "get", served.url, "shop", "zz").code == ExitCode.STORAGE
        assert onto("docs", "list", served.url, "other").code == ExitCode.STORAGE


def test_graphs_are_asked_behind_a_server(tmp_path: Path, onto: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ontolake import Entity, Field, Relation
    from ontolake.graph import Graph

    class Stop(Entity):
        id: Field[int] = Field(primary_key=True)
        note: Field[str]

    class Ride(Relation[Stop, Stop]):
        pass

    monkeypatch.setenv("ONTO_TOKEN", "writer-secret")
    place = f"{tmp_path}/stops/"
    with Graph.init(place, [Stop, Ride]) as graph:
        graph.load(Stop, [{"id": id, "note": f"stop {id}"} for id in range(4)])
        graph.load(Ride, [{"left_key": id, "right_key": id + 1} for id in range(3)])
        graph.index(Stop, "note", kind="text")
    with serving({"stops": place}) as served:
        url = f"{served.url}/stops"
        assert onto("graph", "branch", "create", url, "try").code == 0
        for command in (["sql", "URL", "SELECT id, note FROM Stop ORDER BY id", "--limit", "2"], ["log", "URL"],
                        ["traverse", "URL", "Stop", "0", "Ride", "Ride:in", "--depth", "2", "--branch", "try"],
                        ["search", "URL", "Stop", "stop", "--where", "id > 1"], ["diff", "URL", "main", "main~1"],
                        ["branch", "list", "URL"]):  # fmt: skip
            there, here = (onto("graph", *(where if one == "URL" else one for one in command), "--json")
                           for where in (url, place))
            assert (there.code, there.out) == (0, here.out), (command, there.err)
        assert onto("graph", "traverse", url, "Stop", "first", "Ride").code == ExitCode.USAGE
        for refused in (["optimize", url], ["snapshot", url], ["repair", url]):
            assert onto("graph", *refused).code == ExitCode.USAGE, refused
        wrong = onto("docs", "list", served.url, "stops", "--json")
        assert (wrong.code, wrong.error["type"]) == (ExitCode.USAGE, "Invalid")
