"""Copies of stores: the same commits, branches and tags in another place, or nothing there at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from marking import slow_after
from versioned_places import VersionedPlace, documents, documents_on_pages, graph

from ontolake import faults, stores
from ontolake.copies import copy
from ontolake.errors import AlreadyExists, Invalid, NotFound, OntolakeError
from ontolake.graph import DamagedGraphError
from ontolake.history import Ref
from ontolake.model import Entity, Field
from ontolake.ontology import Session
from ontolake.ontology.conformance import TypedVersioning
from ontolake.sql import open_database
from ontolake.sql.conformance import SqlVersioning


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)


def sql(where: str) -> VersionedPlace:
    SqlVersioning.create(where)
    return VersionedPlace(where, where, SqlVersioning)


def typed(where: str) -> VersionedPlace:
    TypedVersioning.create(where)
    return VersionedPlace(where, where, TypedVersioning)


def written(place: VersionedPlace, *, branches: bool = True) -> str:
    """Commits on branches of branches, a tag, a deleted branch, a protected one."""
    place.write(place.first, {"a": {"f": 1, "g": 1}, "b": {"f": 2, "g": 2}}, "two records", "ada")
    place.write(place.first, {"a": {"f": 5, "g": 1}}, "five", "bob")
    with place.adapter.open(place.where) as store:
        store.tags.create("early")
    if branches:
        with place.adapter.open(place.where) as store:
            for name in ("short", "try", "still"):
                store.branches.create(name)
            store.branches.delete("short")
        place.write("try", {"a": {"f": 7, "g": 1}, "c": {"f": 3, "g": None}}, "seven", "eve")
        with place.adapter.open(place.where) as store:
            store.branches.create("deeper", parent="try")
        place.write("deeper", {"d": {"f": 4, "g": 4}}, "deeper", "eve")
        place.write("try", {"c": {"f": 9, "g": None}}, "nine", "eve")
        with place.adapter.open(place.where) as store:
            store.merge("deeper", place.first, message="merged")
            store.branches.protect("still")
    place.write(place.first, {"b": None}, "b is gone", "ada")
    return place.url


def seen(url: str, adapter: Any) -> dict[str, Any]:
    """Branches, tags, and every commit of every branch with its rows."""
    found: dict[str, Any] = {}
    with stores.find(url).opened() as store:
        found["branches"], found["tags"] = store.branches.list(), store.tags.list()
        for branch in found["branches"]:
            # Of SQL tables the commits of another branch are those of a store that is opened at it.
            refs = [branch.name, *(f"{branch.name}~{back}" for back in range(1, 3)), "early"]
            for ref in refs:
                try:
                    found[f"{branch.name}: {ref}"] = adapter.records(store.at(Ref.parse(ref)))
                except OntolakeError as error:
                    found[f"{branch.name}: {ref}"] = type(error)
        found["commits"] = list(store.commits())
        if adapter is TypedVersioning:  # commits of all branches are in one database, and can all be asked for
            for branch in found["branches"]:
                found[f"commits of {branch.name}"] = list(store.commits(branch=branch.name))
                for commit in found[f"commits of {branch.name}"]:
                    found[f"{branch.name} at {commit.id}"] = adapter.records(store.snapshot(commit.id))
            found["changes"] = list(store.changes(0))
    return found


def of_model(name: str, folder: Path, bucket: str) -> str:
    """A place of a model and layout, filled."""
    makers = {
        "documents native": lambda: written(documents(folder)),
        "documents pages": lambda: written(documents_on_pages(folder)),
        "graph directory": lambda: written(graph(folder)),
        "sql native": lambda: written(sql(f"{folder}/tables.db")),
        "sql pages": lambda: written(sql(f"file://{folder}/pages.db")),
        "sql objects": lambda: written(sql(f"sqlite+file://{folder}/objects")),
        "sql bucket": lambda: written(sql(f"{bucket}/sql")),
        "typed native": lambda: written(typed(f"{folder}/typed.db")),
        "typed pages": lambda: written(typed(f"file://{folder}/pages.db")),
        "typed bucket": lambda: written(typed(f"sqlite+{bucket}/typed")),
        "typed files": lambda: written(typed(f"file://{folder}/files")),
    }
    return makers[name]()


def adapter_of(name: str) -> Any:
    from ontolake.documents.conformance import DocumentsAdapter
    from ontolake.graph.conformance import GraphAdapter

    return {"documents": DocumentsAdapter, "graph": GraphAdapter, "sql": SqlVersioning,
            "typed": TypedVersioning}[name.split()[0]]


def target_of(kind: str, folder: Path, bucket: str, name: str = "copy") -> str:
    return {"native": f"{folder}/new/{name}.db", "pages": f"file://{folder}/new/{name}.db",
            "graph": f"{folder}/new/{name}",
            "objects": f"sqlite+file://{folder}/new/{name}", "bucket": f"{bucket}/new/{name}"}[kind]  # fmt: skip


LOCAL = [("sql pages", "objects"), ("documents native", "native"), ("sql native", "native"), ("sql pages", "pages"),
         ("documents native", "pages"), ("documents native", "objects"), ("documents pages", "native"),
         ("documents pages", "objects"), ("sql native", "pages"), ("sql objects", "pages"), ("sql objects", "objects"),
         ("sql pages", "native"), ("sql objects", "native"), ("sql native", "objects"),
         ("graph directory", "graph"), ("typed native", "native"), ("typed native", "pages"),
         ("typed pages", "native"), ("typed pages", "pages"), ("typed native", "objects"),
         ("typed files", "graph")]  # fmt: skip
REMOTE = [("documents native", "bucket"), ("sql pages", "bucket"), ("sql objects", "bucket"), ("sql bucket", "pages"),
          ("sql bucket", "bucket"), ("sql bucket", "objects"), ("graph directory", "bucket"),
          ("typed native", "bucket"), ("typed bucket", "native"), ("typed bucket", "bucket"),
          ("typed files", "bucket")]  # fmt: skip


def check_copied(name: str, kind: str, folder: Path, bucket: str) -> str:
    url, adapter, target = of_model(name, folder, bucket), adapter_of(name), target_of(kind, folder, bucket)
    before = seen(url, adapter)
    copied = copy(url, target)
    assert (copied.model, copied.bytes > 0) == (name.split()[0], True)
    assert seen(target, adapter) == before == seen(url, adapter)
    with stores.find(target).opened() as store:
        assert list(store.verify()) == []
    return target


@pytest.mark.parametrize(("name", "kind"), slow_after(2, LOCAL))
def test_a_copy_has_all_commits_branches_and_tags(name: str, kind: str, tmp_path: Path) -> None:
    check_copied(name, kind, tmp_path, "")
    assert not [path for path in (tmp_path / "new").iterdir() if path.name.startswith(".")], "nothing is left beside it"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), REMOTE)
def test_a_copy_in_a_bucket_has_all_commits_branches_and_tags(
    name: str, kind: str, tmp_path: Path, seaweed_url: str
) -> None:  # fmt: skip
    target = check_copied(name, kind, tmp_path, seaweed_url)
    if name == "graph directory":
        copy(target, f"{tmp_path}/back")
        assert seen(f"{tmp_path}/back", adapter_of(name)) == seen(target, adapter_of(name))


def all_rows(url: str) -> dict[str, Any]:
    """What `seen` tells of a graph, and the rows at every commit of every branch. Nothing of it is damaged."""
    found = seen(url, adapter_of("graph"))
    with stores.find(url).opened() as store:
        for branch in found["branches"]:
            for commit in store.commits(branch=branch.name):
                found[f"{branch.name}@{commit.id}"] = adapter_of("graph").records(store.at(Ref.parse(commit.id)))
        assert list(store.verify()) == []
    return found


def forked_graph(folder: Path) -> str:
    """A graph with branches of branches, one of which has the name of a part of its own layout, below an odd name."""
    place = graph(folder / "a folder, 100%25 näher")
    url = written(place)
    with place.adapter.open(place.where) as store:
        store.branches.create("nodes", parent="deeper")
        store.tags.create("deep", "nodes~1")
    place.write("nodes", {"a": None, "e": {"f": 1, "g": 2}}, "below", "eve")
    with place.adapter.open(place.where) as store:
        store.branches.create("below", parent="nodes")
    place.write("below", {"e": {"f": 2, "g": 2}}, "further below", "eve")
    return url


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["graph", "bucket"])
def test_a_copy_of_a_graph_needs_nothing_of_the_original(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:  # fmt: skip
    bucket = request.getfixturevalue("seaweed_url") if kind == "bucket" else ""
    url, target = forked_graph(tmp_path), target_of(kind, tmp_path, bucket, "a copy")
    before = all_rows(url)
    copy(url, target)
    away = Path(url).rename(tmp_path / "away")
    assert all_rows(target) == before
    copy(target, f"{tmp_path}/again")
    copy(str(away), f"{tmp_path}/mended")  # a directory that was moved becomes whole by a copy
    place = VersionedPlace(target, target, adapter_of("graph"))
    place.write("below", {"new": {"f": 1, "g": 1}})
    with place.adapter.open(target) as store:
        store.erase(place.table, "a", reason="asked for", dry_run=False)
        assert {"a", "new", "d"} & place.adapter.records(store.at(Ref.parse("below"))).keys() == {"new", "d"}
    assert all_rows(f"{tmp_path}/again") == all_rows(f"{tmp_path}/mended") == before


def test_a_graph_that_was_moved_says_what_it_lacks(tmp_path: Path) -> None:
    """Branches name folders with their whole path, which a copy puts right. The first branch can be read."""
    url = forked_graph(tmp_path)
    moved = str(Path(url).rename(tmp_path / "moved"))
    with stores.find(moved).opened() as store:
        assert adapter_of("graph").records(store.at(Ref.parse("main")))["a"]["f"] == 7
        for act in (store.branches.list, lambda: store.at(Ref.parse("try")), lambda: list(store.verify())):
            with pytest.raises(DamagedGraphError, match="cannot be read") as caught:
                act()
            assert "onto copy" in str(caught.value.hint)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pages", "objects"])
def test_a_copy_goes_its_own_way(kind: str, tmp_path: Path) -> None:
    """New branches of the copy have ids that no branch of the source has had, and commits stay apart."""
    url, target = of_model("sql pages", tmp_path, ""), target_of(kind, tmp_path, "")
    with open_database(url, takeover=True) as db:
        db.branches.create("unused")
        db.branches.create("last")
        db.branches.delete("last")
    before = seen(url, SqlVersioning)
    copy(url, target)
    place = VersionedPlace(target, target, SqlVersioning)
    with open_database(target, takeover=True) as db:
        db.branches.create("new")
    place.write("new", {"x": {"f": 1, "g": 1}})
    with open_database(target, takeover=True) as db:
        db.merge("try", "new")
        assert adapter_of("sql").records(db.at(Ref.parse("new")))["c"]["f"] == 9
    assert seen(url, SqlVersioning) == before


@pytest.mark.parametrize("kind", ["native", "pages", "objects"])
def test_a_place_with_something_in_it_is_refused(kind: str, tmp_path: Path) -> None:
    url, target = of_model("sql native", tmp_path, ""), target_of(kind, tmp_path, "")
    copy(url, target)
    before = seen(target, SqlVersioning)
    with pytest.raises(AlreadyExists, match="there is"):
        copy(url, target)
    assert seen(target, SqlVersioning) == before


def test_what_cannot_be_copied_is_refused(tmp_path: Path) -> None:
    url = of_model("sql native", tmp_path, "")
    for target, why in ((url, "is the store that is copied"), (f"file://{url}", "is the store that is copied"),
                        (f"{tmp_path}/folder/", "is a directory"), (":memory:", "in memory"),
                        ("memory://x", "in memory"), ("ftp://host/x", "ftp")):  # fmt: skip
        with pytest.raises(Invalid, match=why):
            copy(url, target)
    (tmp_path / "used").mkdir()
    (tmp_path / "used/notes.txt").write_text("mine")
    with pytest.raises(Invalid, match="holds other files"):
        copy(url, f"sqlite+file://{tmp_path}/used")
    (tmp_path / "stale.db-wal").write_text("of another database")
    with pytest.raises(AlreadyExists, match=r"stale\.db-wal"):
        copy(url, f"{tmp_path}/stale.db")
    with pytest.raises(NotFound):
        copy(f"{tmp_path}/nothing.db", f"{tmp_path}/copy.db")
    with Session(f"{tmp_path}/typed.db", entity_types=[Thing], engine_version="v2") as session:
        session.ensure(Thing(id="a"))
    with pytest.raises(Invalid, match="typed store") as refused:
        copy(f"{tmp_path}/typed.db", f"{tmp_path}/copy.db")
    assert "onto convert" in str(refused.value.hint)
    assert not (tmp_path / "copy.db").exists()


def forgetful(url: str, *, erases: bool) -> None:
    """Tables with branches on several levels, of which some have given up their past, and all perhaps a row."""
    with open_database(url) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT); CREATE INDEX by_v ON t (v)")
        db.execute("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)")
        db.execute("DELETE FROM t WHERE id = 5")
        db.branches.create("one")
        with open_database(url, branch="one") as one:
            one.execute("INSERT INTO t VALUES (5, 50), (6, 60)")
            one.execute("UPDATE t SET v = 10 WHERE id < 3")
            one.branches.create("low", parent="one", at=2)
            one.branches.create("two", parent="one")
            one.execute("DELETE FROM t WHERE id IN (1, 6)")
            one.execute("INSERT INTO t VALUES (1, 100)")
        with open_database(url, branch="two") as two:
            two.execute("DELETE FROM t WHERE id = 3; UPDATE t SET v = v + 1; CREATE TABLE u (id BIGINT PRIMARY KEY)")
            two.retain(two.version())
            two.gc(dry_run=False)
        db.tags.create("v1", "one~1")
        db.execute("UPDATE t SET v = -v; DELETE FROM t WHERE id = 2")
        if erases:
            db.erase("main.public.t", 4, reason="asked for", dry_run=False)
        db.retain(db.version())
        db.gc(dry_run=False)


def everything(url: str) -> dict[str, Any]:
    """What can be read of tables, at every version of every branch."""
    found: dict[str, Any] = {}
    with open_database(url) as db:
        names = [branch.name for branch in db.branches.list()]
        found["branches"], found["tags"] = db.branches.list(), db.tags.list()
        found["v1"] = list(db.at("v1").rows("main.public.t"))
        found["diffs"] = [sorted(db.diff(one, other), key=repr) for one in names for other in names]
    for name in names:
        with open_database(url, branch=name) as db:
            assert not list(db.verify())
            commits = list(db.commits())
            states = {commit.id: list(db.snapshot(commit.id).rows("main.public.t")) for commit in commits
                      if "main.public.t" in db.snapshot(commit.id).tables()}  # fmt: skip
            span = db.execute("SELECT * FROM t FOR SYSTEM_TIME ALL").fetchall() if name != "main" else []
            found[name] = (commits, states, sorted(db.execute("SELECT id FROM t WHERE v > 3").fetchall()),
                           len(span) if db.session.state()[2] == 0 else None)  # fmt: skip
    return found


@pytest.mark.slow
@pytest.mark.parametrize("way", [("{}/a.db", "file://{}/b.db"), ("file://{}/a.db", "{}/b.db"), ("{}/a.db", "{}/b.db"),
                                 ("file://{}/a.db", "sqlite+file://{}/b")],
                         ids=["to pages", "to a native file", "between native files", "between pages"])
@pytest.mark.parametrize("erases", [False, True], ids=["kept", "erased"])
def test_branches_of_tables_whose_past_was_given_up_are_the_same(
    way: tuple[str, str], erases: bool, tmp_path: Path
) -> None:  # fmt: skip
    url, target = (place.format(tmp_path) for place in way)
    forgetful(url, erases=erases)
    before = everything(url)
    copy(url, target)
    assert everything(target) == before
    results = []
    for place in (url, target):
        with open_database(place, branch="two") as two:
            two.execute("INSERT INTO t VALUES (3, 33)")
            two.branches.create("new", parent="two")
        with open_database(place) as db:
            db.merge("one", "low", strategy="theirs")
            results.append([list(db.at(name).rows("main.public.t")) for name in ("new", "low", "two")])
    assert results[0] == results[1]
    with pytest.raises(NotFound), open_database(target) as db:
        db.merge("new", strategy="theirs")  # what was given up stays so


def test_ranges_that_have_moved_are_named(tmp_path: Path) -> None:
    url = sql(f"file://{tmp_path}/pages.db").url
    from ontolake.engine import connect

    db = connect(url)
    db.execute("INSERT INTO range VALUES (x'ff', 'file:///elsewhere.db')")
    db.close()
    with pytest.raises(Invalid, match=r"other databases: file:///elsewhere\.db"):
        copy(url, f"file://{tmp_path}/copy.db")


class Stop(Exception):
    pass


def stop() -> None:
    raise Stop


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), [("sql native", "native"), ("sql pages", "pages"), ("sql native", "objects"),
                                            ("graph directory", "bucket")])  # fmt: skip
def test_an_error_leaves_nothing(name: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    bucket = request.getfixturevalue("seaweed_url") if kind == "bucket" else ""
    url, target = of_model(name, tmp_path, bucket), target_of(kind, tmp_path, bucket)
    shown = False
    for step in range(0, 10_000, 1 if kind != "bucket" else 25):
        at = faults.At(step, stop)
        try:
            with faults.arm(at):
                copy(url, target)
        except (Stop, OntolakeError):
            shown = at.seen[step] in ("copy: file renamed", "copy: directory renamed")
            if shown:
                break
            with pytest.raises(NotFound):
                stores.find(target)
            if (tmp_path / "new").exists():
                assert list((tmp_path / "new").iterdir()) == []
        else:
            break
    assert step > 0
    assert seen(target, adapter_of(name))["tags"]


PROGRAM = """
import os, sys
from ontolake import faults
from ontolake.copies import copy
url, target, stride = sys.argv[1:]
for step in range(0, 100_000, int(stride)):
    child = os.fork()
    if not child:
        with faults.arm(faults.At(step, faults.kill)):
            copy(url, target.format(step))
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status == 0:
        break
    assert os.WIFSIGNALED(status), status
    print(step, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "stride"), [
    ("documents native", "native", 1), ("sql native", "pages", 11), ("sql pages", "pages", 1),
    ("sql native", "objects", 19), ("graph directory", "graph", 61), ("sql native", "bucket", 19),
    ("typed native", "pages", 1), ("typed native", "bucket", 5), ("typed files", "graph", 13),
    ("graph directory", "bucket", 61)])  # fmt: skip
def test_a_copy_that_is_killed_is_no_store(
    name: str, kind: str, stride: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:  # fmt: skip
    bucket = request.getfixturevalue("seaweed_url") if kind == "bucket" else ""
    url, target = of_model(name, tmp_path, bucket), target_of(kind, tmp_path, bucket, "copy{}")
    done = subprocess.run([sys.executable, "-c", PROGRAM, url, target, str(stride)], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    before, steps = seen(url, adapter_of(name)), [int(line) for line in done.stdout.split()]
    assert steps
    for step in steps:
        try:
            stores.find(target.format(step))
        except (NotFound, Invalid):
            continue
        assert seen(target.format(step), adapter_of(name)) == before, "it was shown when it was whole"
    try:
        stores.find(target.format(steps[0]))
    except (NotFound, Invalid):
        pass
    else:
        pytest.fail("a copy that has just begun is taken for a store")


@pytest.mark.slow
def test_a_graph_that_is_written_to_is_copied_as_it_is_in_the_end(tmp_path: Path) -> None:
    place = graph(tmp_path)
    url = written(place)
    rounds: list[str] = []

    def write(step: str) -> None:
        if step == "copy: graph copied, not compared" and len(rounds) < 2:
            rounds.append(step)
            place.write(place.first, {"late": {"f": len(rounds), "g": 0}})

    with faults.arm(write):
        copy(url, f"{tmp_path}/copy")
    assert len(rounds) == 2
    assert seen(f"{tmp_path}/copy", place.adapter) == seen(url, place.adapter)
