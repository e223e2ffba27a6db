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
