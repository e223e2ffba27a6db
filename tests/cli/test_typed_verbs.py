"""The verbs that mean the same on any store: typed data, documents, and bare pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ontolake.documents import Delete, Set, open_space
from ontolake.ontology import Config, Session
from ontolake.sql import open_database
from ontolake.storage import WalRecord, open_storage


@pytest.fixture(params=["directory", "pages"])
def space(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a space with three commits, native or over the seam: a is set and set again, b comes and goes."""
    place = f"{tmp_path}/docs/" if request.param == "directory" else f"sqlite+file://{tmp_path}/docs"
    with open_space(place, "shop") as space:
        space.transact(*space.next_request(), [Set("a", {"n": 1}), Set("b", {"n": 2})])
        space.transact(*space.next_request(), [Set("a", {"n": 3})])
        space.transact(*space.next_request(), [Delete("b")])
    return f"{tmp_path}/docs/shop.sqlite" if request.param == "directory" else f"file://{tmp_path}/docs/shop.db"


@pytest.fixture
def pages(tmp_path: Path) -> str:
    url = f"file://{tmp_path}/bare.db"
    with open_storage(url) as store:
        token = store.acquire_fence("a test")
        store.append_wal(token, [WalRecord(b"a note")])
        store.release_fence(token)
    return url


def test_a_directory_needs_no_slash_and_a_space_is_named_by_its_file(onto, tmp_path: Path) -> None:
    with Session(f"file://{tmp_path}/lake/"):
        pass
    assert onto("info", f"{tmp_path}/lake", "--json").document["model"] == "typed"
    with open_space(f"{tmp_path}/docs/", "shop") as space:
        space.transact(*space.next_request(), [Set("a", {"n": 1})])
    told = onto("info", f"{tmp_path}/docs")
    assert told.code == 2
    assert "'shop.sqlite'" in told.err
    assert "a space of documents is a file" in told.err
    open_storage(f"file://{tmp_path}/many/shop/").close()
    assert f"a store may lie below it: {tmp_path}/many/shop\n" in onto("info", f"{tmp_path}/many").err


def test_info(onto, native, space: str, pages: str) -> None:
    assert onto("info", native.url, "--json").document["model"] == "typed"
    assert "a typed store in a native SQLite database" in onto("info", native.url).out
    facts = onto("info", space, "--json").document
    assert (facts["model"], facts["head"]) == ("documents", 3)
    assert "a space of documents" in onto("info", space).out
    assert "model" not in onto("info", pages, "--json").document


def test_log(onto, native, space: str, pages: str) -> None:
    for url, ids in ((native.url, [2, 1]), (space, [3, 2, 1])):
        assert [one["id"] for one in onto("log", url, "--json").document["commits"]] == ids
        assert [one["id"] for one in onto("log", url, "--since", "1", "--limit", "1", "--json").document["commits"]] \
            == ids[:1]  # fmt: skip
        assert [line.split("\t")[0] for line in onto("log", url).out.splitlines()] == ["commit", *map(str, ids)]
    assert onto("log", pages, "--json").document["records"][0]["bytes"] == 6
    assert onto("log", native.url, "--since", "99").code == 5
    assert onto("log", native.url, "--since", "soon").code == 5


def test_diff(onto, shop) -> None:
    told = onto("diff", shop.url, "1", "--json").document
    assert (told["before"], told["after"]) == (1, 2)
    assert [(one["table"], one["key"], one["kind"]) for one in told["changes"]] == [
        ("entity/Customer", "c2", "update"), ("relation/Rated", ["c2", 1, "2024"], "insert")]  # fmt: skip
    back = onto("diff", shop.url, "@2", "@1", "--json").document["changes"]
    assert [(one["kind"], one["before"], one["after"]) for one in back] == [
        ("update", told["changes"][0]["after"], told["changes"][0]["before"]),
        ("delete", told["changes"][1]["after"], None)]  # fmt: skip
    assert onto("diff", shop.url, "2", "--json").document["changes"] == []
    assert onto("diff", shop.url, "one").code in (2, 5), "there is no such branch, or none at all"
    assert onto("diff", shop.url, "main@one").code == 2
    assert onto("diff", shop.url, "9").code == 5


def test_diff_of_documents(onto, space: str) -> None:
    documents = onto("diff", space, "1", "--json").document["changes"]
    assert [(one["key"], one["kind"]) for one in documents] == [("a", "update"), ("b", "delete")]


def test_export(onto, space: str, pages: str, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in onto("export", space).out.splitlines()]
    assert rows == [{"table": "documents", "key": "a", "row": {"n": 3}}]
    past = [json.loads(line)["key"] for line in onto("export", space, "--as-of", "1").out.splitlines()]
    assert past == ["a", "b"]
    target = tmp_path / "out.jsonl"
    assert onto("export", space, "-o", str(target), "--json").document["rows"] == 1
    assert onto("export", space, "--format", "parquet", "-o", str(tmp_path / "p")).code == 2
    refused = onto("export", pages)
    assert (refused.code, refused.out) == (2, "")
    assert "hint: for pages there is onto storage" in refused.err


def test_verify_and_gc(onto, native, space: str, pages: str) -> None:
    for url in (native.url, space, pages):
        assert onto("verify", url, "--json").document["ok"] is True
        assert onto("gc", url).code == 0
    preview = onto("gc", space, "--json").document
    assert onto("gc", space, "--token", "wrong").code == 7
    assert "removed" in onto("gc", space, "--token", preview["token"], "--json").document


def test_branches(onto, native, space: str, pages: str) -> None:
    assert [one["head"] for one in onto("branch", space, "--json").document["branches"]] == [3]
    assert onto("branch", space, "create", "try", "--at", "1").code == 0
    assert [one["name"] for one in onto("branch", "list", space, "--json").document["branches"]] == ["main", "try"]
    seen = [one["id"] for one in onto("log", space, "--branch", "try", "--json").document["commits"]]
    assert (seen[-1], {2, 3} & set(seen)) == (1, set())
    assert len(onto("diff", space, "try", "--json").document["changes"]) == 2
    preview = onto("branch", "delete", space, "try", "--json").document
    assert onto("branch", "delete", space, "try", "--token", "wrong").code == 7
    assert onto("branch", "delete", space, "try", "--token", preview["token"]).code == 0
    assert onto("branch", "delete", space, "try").code == 2
    assert onto("branch", pages, "create", "side").code == 0
    assert [one["name"] for one in onto("branch", pages, "--json").document["branches"]] == ["main", "side"]
    refused = onto("branch", native.url)
    assert (refused.code, refused.out) == (2, "")
    assert "no branches" in refused.err
    assert "onto convert" in refused.err


@pytest.mark.parametrize("shop", ["page file v2"], indirect=True)
def test_a_branch_of_typed_pages_begins_at_a_commit_and_can_be_opened(onto, shop) -> None:
    t = shop.types
    for n in range(3, 6):
        with Session(shop.url, entity_types=[t.Customer], config=Config()) as session:
            session.ensure(t.Customer(id=f"c{n}", name=f"Number {n}"))
    count = ("query", "entities", "Customer", *shop.at, "--count")
    for commit in range(1, 6):
        made = onto("branch", "create", shop.url, f"at{commit}", "--at", str(commit), "--json").document["created"]
        assert made["parent"] == "main"
        found = onto("log", shop.url, "--branch", f"at{commit}", "--json").document["commits"]
        assert [one["id"] for one in found] == list(range(commit, 0, -1))
        assert onto(*count, "--branch", f"at{commit}").out == onto(*count, "--as-of", str(commit)).out
        with Session(shop.url, entity_types=[t.Customer], config=Config(branch=f"at{commit}")) as session:
            session.ensure(t.Customer(id="mine", name=f"on {commit}"))
        assert onto("log", shop.url, "--branch", f"at{commit}", "--json").document["commits"][0]["id"] == commit + 1
    assert onto("branch", "create", shop.url, "deeper", "--at", "3", "--from", "at4").code == 0
    assert len(onto("log", shop.url, "--branch", "deeper", "--json").document["commits"]) == 3
    for wrong in ("0", "6", "99"):
        refused = onto("branch", "create", shop.url, "never", "--at", wrong)
        assert (refused.code, refused.out) == (5, "")
        assert f"no commit {wrong}" in refused.err
        assert "from 1 to 5" in refused.err
    assert onto("branch", "create", shop.url, "never", "--at", "x").code == 2
    names = [one["name"] for one in onto("branch", shop.url, "--json").document["branches"]]
    assert names == ["main", "at1", "at2", "at3", "at4", "at5", "deeper"]


@pytest.mark.parametrize("shop", ["page file v2"], indirect=True)
def test_a_typed_store_over_the_seam_has_the_branches_of_its_pages(onto, shop, tmp_path: Path) -> None:
    assert onto("branch", shop.url, "create", "try").code == 0
    t = shop.types
    with Session(shop.url, entity_types=[t.Customer], config=Config(branch="try")) as session:
        session.ensure(t.Customer(id="c3", name="Eve"))
    assert [one["name"] for one in onto("branch", shop.url, "--json").document["branches"]] == ["main", "try"]
    count = ("query", "entities", "Customer", *shop.at, "--count")
    assert onto(*count).out == "2\n"
    assert onto(*count, "--branch", "try").out == "3\n"
    assert onto(*count, "--branch", "none").code == 5
    assert [one["id"] for one in onto("log", shop.url, "--branch", "try", "--json").document["commits"]] == [3, 2, 1]
    assert len(onto("commits", *shop.at, "--branch", "try", "--json").document["commits"]) == 3
    changes = onto("diff", shop.url, "main", "try", "--json").document["changes"]
    assert [(one["key"], one["kind"]) for one in changes] == [("c3", "insert")]
    changes = onto("diff", shop.url, "try@3", "try@1", "--json").document["changes"]
    assert [(one["key"], one["kind"]) for one in changes] == [
        ("c2", "update"), (["c2", 1, "2024"], "delete"), ("c3", "delete")]  # fmt: skip
    dump = tmp_path / "dump.jsonl"
    assert onto("export", shop.url, "--branch", "try", "--type", "Customer", "-o", str(dump)).code == 0
    assert onto("import", str(dump), *shop.at, "--branch", "try", "--json").document["commit_id"] is None
    assert onto("import", str(dump), *shop.at, "--json").document["inserted"] == 1


def test_where_there_are_no_branches_none_can_be_asked_for(onto, shop) -> None:
    if shop.url.endswith("pages.db"):
        return
    for command in (("log", shop.url), ("export", shop.url), ("query", "entities", "Customer", *shop.at)):
        done = onto(*command, "--branch", "try")
        assert (done.code, done.out) == (2, ""), command
        assert "no branches" in done.err


def test_what_is_foreign_is_refused_with_a_hint(onto, tmp_path: Path) -> None:
    import sqlite3

    other = tmp_path / "other.db"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE recipe (name)")
    for verb in ("log", "export", "verify", "gc", "branch"):
        done = onto(verb, str(other), "--json")
        assert (done.code, done.out, done.error["type"]) == (2, "", "Invalid"), verb
        assert done.error["hint"]
    assert onto("info", str(other), "--json").document["kind"] == "sqlite"


def test_a_store_may_be_named_by_its_bare_path(onto, shop) -> None:
    path = shop.url.removeprefix("file://") + ("/" if shop.url.endswith("lake") else "")
    for verb in ("log", "verify", "export"):
        assert onto(verb, path).code == 0, verb
    assert onto("info", path, "--json").document["head"] == 2


@pytest.mark.parametrize("place", ["{}/tables.db", "file://{}/tables.db"])
def test_sql_tables_answer_the_same_verbs(onto, tmp_path: Path, place: str) -> None:
    url = place.format(tmp_path)
    with open_database(url) as database:
        database.execute("CREATE DATABASE app")
    with open_database(url, database="app") as database:
        database.execute("CREATE TABLE orders (id INT PRIMARY KEY, total INT)")
        database.execute("INSERT INTO orders VALUES (1, 5)")
    assert onto("info", url, "--json").document["model"] == "sql"
    assert [one["id"] for one in onto("log", url, "--json").document["commits"]] == [3, 2, 1]
    (change,) = onto("diff", url, "2", "--json").document["changes"]
    assert (change["table"], change["key"], change["after"]) == ("app.public.orders", 1, {"id": 1, "total": 5})
    assert json.loads(onto("export", url).out) == {"table": "app.public.orders", "key": 1, "row": {"id": 1, "total": 5}}
    assert onto("verify", url, "--json").document["ok"] is True
    assert onto("gc", url).code == 0
    assert [one["name"] for one in onto("branch", url, "--json").document["branches"]] == ["main"]
