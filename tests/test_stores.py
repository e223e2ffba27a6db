"""The table of models: `ontolake.stores` knows what is at a URL and opens it, and `ontolake.open` asks it."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from marking import slow_after

import ontolake
from ontolake import stores
from ontolake.documents import Set, Space, open_space
from ontolake.errors import Invalid, NotFound, OntolakeError, StorageError
from ontolake.graph import Graph
from ontolake.graph.errors import ErasureError
from ontolake.history import Branched, Maintained, VersionControlled, Versioned
from ontolake.model import Entity, Field
from ontolake.ontology import LayoutLacksError, Session, TypedStore
from ontolake.parallel import open_parallel
from ontolake.sql import Database, open_database
from ontolake.sql.errors import UnsupportedError
from ontolake.storage import open_storage


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)


def typed(url: str) -> str:
    with Session(url, entity_types=[Thing]) as session:
        session.ensure(Thing(id="a"))
    return url


def documents(folder: str) -> str:
    with open_space(folder, "orders") as space:
        space.transact(*space.next_request(), [Set("a", {"value": 1})])
        return space.url


def graph(url: str) -> str:
    with Graph.init(url, types=[Thing]) as made:
        made.load("node/Thing", [{"id": "a"}])
    return url


def sql(url: str) -> str:
    with open_database(url) as database:
        database.execute("CREATE TABLE thing (id text PRIMARY KEY)")
        database.execute("INSERT INTO thing VALUES ('a')")
    return url


def write_typed(store: Any) -> None:
    with store.repository.transaction("a test"):
        pass


def write_document(store: Any) -> None:
    store.transact(*store.next_request(), [Set("b", {"value": 2})])


def write_node(store: Any) -> None:
    store.load("node/Thing", [{"id": "b"}])


def write_row(store: Any) -> None:
    store.execute("INSERT INTO thing VALUES ('b')")


PLACES: dict[str, tuple[str, Callable[[Path], str], type, Callable[[Any], None]]] = {
    "typed, native file": ("typed", lambda at: typed(f"{at}/shop.db"), TypedStore, write_typed),
    "typed, page file": ("typed", lambda at: typed(f"file://{at}/shop.db"), TypedStore, write_typed),
    "typed, pages in objects": ("typed", lambda at: typed(f"sqlite+file://{at}/shop"), TypedStore, write_typed),
    "typed, objects": ("typed", lambda at: typed(f"{at}/shop/"), TypedStore, write_typed),
    "documents, native file": ("documents", lambda at: documents(f"{at}/shop/"), Space, write_document),
    "documents, page file": ("documents", lambda at: documents(f"sqlite+file://{at}/shop"), Space, write_document),
    "graph": ("graph", lambda at: graph(f"{at}/shop/"), Graph, write_node),
    "sql, native file": ("sql", lambda at: sql(f"{at}/shop.db"), Database, write_row),
    "sql, page file": ("sql", lambda at: sql(f"file://{at}/shop.db"), Database, write_row),
}


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, type, Callable[[Any], None]]:
    model, make, kind, write = PLACES[request.param]
    return model, make(tmp_path), kind, write


def test_a_store_of_each_model_is_found_and_opened(place: tuple[str, str, type, Callable[[Any], None]]) -> None:
    model, url, kind, write = place
    store = stores.find(url)
    assert store.model is not None
    assert store.model.name == model
    with ontolake.open(url) as opened:
        assert type(opened) is kind
        before = [commit.id for commit in opened.commits()]
        with pytest.raises(OntolakeError):
            write(opened)
    if model != "typed":  # which is written to by a Session
        with ontolake.open(url, write=True) as opened:
            write(opened)
            assert len(list(opened.commits())) == len(before) + 1


def erases(store: VersionControlled[Any]) -> bool:
    """Whether rows can be erased for good: a dry run says so."""
    table = store.snapshot().tables()[0]
    try:
        return store.erase(table, "a", reason="never", dry_run=True).items > 0
    except (UnsupportedError, ErasureError):
        return False


def test_a_store_offers_the_verbs_of_its_model(place: tuple[str, str, type, Callable[[Any], None]]) -> None:
    store = stores.find(place[1])
    with store.opened() as opened:
        assert store.offers("log") == store.offers("diff") == store.offers("export") == isinstance(opened, Versioned)
        assert store.offers("verify") == store.offers("gc") == isinstance(opened, Maintained)
        assert store.offers("branch") == isinstance(opened, Branched)
        for verb in stores.HISTORY - {"branch", "erase"}:
            assert store.offers(verb) == isinstance(opened, VersionControlled), verb
        assert store.offers("copy") == isinstance(opened, VersionControlled)
        assert store.offers("erase") == (isinstance(opened, VersionControlled) and erases(opened))


def test_the_parallel_side_is_of_the_same_model(place: tuple[str, str, type, Callable[[Any], None]]) -> None:
    model, url, _, _ = place
    with open_parallel(url) as store:
        assert store.model == model
        splits = [split for table in store.tables() for split in store.splits(table, store.view())]
        assert sum(batch.num_rows for split in splits for batch in split.read()) == 1


@pytest.mark.parametrize("name", ["shop.db", "shop/", "file://./shop.db", "file://./shop", "memory://nobody"])
@pytest.mark.parametrize("write", [False, True])
def test_nothing_is_created(name: str, write: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFound, match="there is nothing at"):
        ontolake.open(name, write=write)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", [Path("shop.db"), None, 3, "", "ftp://host/shop", "shop", "x" * 5000 + ".db",
                                 "x" * 5000, "\ud800.db"], ids=lambda url: repr(url)[:20])  # fmt: skip
def test_what_is_no_url_is_refused(url: Any) -> None:
    with pytest.raises(Invalid):
        ontolake.open(url)


@pytest.mark.parametrize("make", [lambda at: typed(f"{at}/shop.db"), lambda at: typed(f"{at}/shop/"),
                                  lambda at: sql(f"{at}/shop.db")])  # fmt: skip
def test_a_branch_where_there_can_be_none_is_refused(make: Callable[[Path], str], tmp_path: Path) -> None:
    with pytest.raises(OntolakeError, match="branch"):
        ontolake.open(make(tmp_path), branch="try")


@pytest.mark.parametrize("make", [typed, sql])
def test_a_branch_that_is_not_there_is_named(make: Callable[[str], str], tmp_path: Path) -> None:
    url = make(f"file://{tmp_path}/shop.db")
    for branch in ("try", ""):
        for write in (False, True):
            with pytest.raises(NotFound, match=f"there is no branch '{branch}'"):
                ontolake.open(url, branch=branch, write=write)


def test_a_place_that_cannot_be_listed_is_reported(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(StorageError, match="cannot read"):
        ontolake.open(f"{tmp_path}/")


def test_what_is_compared_must_be_a_snapshot(place: tuple[str, str, type, Callable[[Any], None]]) -> None:
    with ontolake.open(place[1]) as store:
        for wrong in (1.5, True, None):
            with pytest.raises(Invalid, match="before must be a snapshot"):
                list(store.diff(wrong, store.snapshot()))  # type: ignore[arg-type]
        with pytest.raises(OntolakeError):
            store.snapshot("x")  # type: ignore[arg-type]


def test_the_stamp_counts_and_not_the_name(tmp_path: Path) -> None:
    """A page file under the URL of a native one and the other way round, a directory without its slash."""
    typed(f"file://{tmp_path}/pages.db")
    sql(f"{tmp_path}/native.db")
    graph(f"{tmp_path}/folder/")
    names = {"pages.db": "typed", "native.db": "sql", "folder": "graph"}
    for name, model in names.items():
        with ontolake.open(f"{tmp_path}/{name}") as store:
            assert next(iter(store.commits())).id
        assert stores.find(f"{tmp_path}/{name}").model == next(one for one in stores.MODELS if one.name == model)
    with ontolake.open(f"file://{tmp_path}/native.db") as store:
        assert type(store) is Database
    typed(f"{tmp_path}/objects/")
    for name, kind in (("objects", TypedStore), ("folder", Graph)):
        with ontolake.open(f"sqlite+file://{tmp_path}/{name}") as store:
            assert type(store) is kind


def test_what_is_of_no_model_is_refused_with_its_name(tmp_path: Path) -> None:
    apsw.Connection(f"{tmp_path}/own.db").execute("CREATE TABLE latest (key)")
    open_storage(f"file://{tmp_path}/pages.db").close()
    for url, what, todo in ((f"{tmp_path}/own.db", "a native SQLite database", "none of its tables are ours"),
                            (f"file://{tmp_path}/pages.db", "a page", "for pages there is onto storage")):  # fmt: skip
        assert stores.find(url).model is None
        with pytest.raises(Invalid, match=what) as refused:
            ontolake.open(url)
        assert refused.value.hint is not None
        assert todo in refused.value.hint
        with pytest.raises(Invalid, match=f"{what}.*cannot be read in parallel"):
            open_parallel(url)


@pytest.mark.parametrize("name", slow_after(1, ["sql", "typed"]))
def test_a_branch_is_opened_on_pages(name: str, tmp_path: Path) -> None:
    url = {"sql": sql, "typed": typed}[name](f"file://{tmp_path}/shop.db")
    if name == "sql":
        with open_storage(url) as storage:
            storage.create_branch("try", storage.durable_lsn())
    else:
        with ontolake.open(url, write=True) as store:
            store.branches.create("try")
    with open_parallel(url, branch="try", write=True, types=[Thing] if name == "typed" else []) as store:
        assert store.model == name
    if name == "sql":
        with ontolake.open(url, write=True, branch="try") as store:
            write_row(store)
            assert len(list(store.snapshot().rows("main.public.thing"))) == 2
        with ontolake.open(url) as store:
            assert len(list(store.snapshot().rows("main.public.thing"))) == 1
    with pytest.raises(NotFound):
        ontolake.open(url, branch="other")


@pytest.mark.parametrize("make", [documents, graph])
def test_a_branch_is_not_ignored_where_all_are_opened(make: Callable[[str], str], tmp_path: Path) -> None:
    url = make(f"{tmp_path}/shop/")
    with pytest.raises(Invalid, match="opened with all its branches"):
        ontolake.open(url, branch="try")


def test_the_table_imports_no_model() -> None:
    program = ("import sys, ontolake.stores as stores; stores.MODELS; stores.locate; import ontolake.parallel\n"
               "models = {one.module.rpartition('.')[0] for one in stores.MODELS}\n"
               "assert len(models) == 4\n"
               "sys.exit(' '.join((models | {'pyarrow', 'apsw'}) & set(sys.modules)) or 0)")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


FIRST = ["Conflict", "Corruption", "Entity", "Field", "Graph", "Invalid", "MissingExtra", "NotFound", "OntolakeError",
         "Relation", "Session", "StorageError", "Transient", "open", "open_database", "open_space"]  # fmt: skip


def test_the_names_that_a_user_needs_first_are_at_the_top() -> None:
    assert sorted(name for name in dir(ontolake) if name in FIRST) == FIRST
    assert (ontolake.Session, ontolake.Entity, ontolake.Field) == (Session, Entity, Field)
    assert ontolake.Graph is Graph
    assert ontolake.open_space is open_space
    assert ontolake.open_database is open_database
    assert ontolake.open is stores.open
    assert all(getattr(ontolake, name) is not None for name in FIRST)
    with pytest.raises(AttributeError, match="module 'ontolake' has no attribute 'Sesion'"):
        ontolake.Sesion  # noqa: B018


def test_import_is_quick_and_brings_no_arrow() -> None:
    program = ("import sys, ontolake\n"
               "sys.exit(' '.join({'pyarrow', 'apsw', 'msgspec', 'pydantic'} & set(sys.modules)) or 0)")

    def cpu() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0, done.stderr
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(cpu() for _ in range(3)) < 0.1, "seconds of processor time, the interpreter's own start included"


def test_a_typed_store_on_objects_offers_what_its_engine_has(tmp_path: Path) -> None:
    for engine, has_branches in (("v2", False), ("v3", True)):
        url = f"{tmp_path}/{engine}/"
        with Session(url, entity_types=[Thing], engine_version=engine) as session:
            session.ensure(Thing(id="a"))
        assert stores.find(url).offers("merge") is stores.find(url).offers("branch") is has_branches
        with pytest.raises(NotFound if has_branches else LayoutLacksError):
            ontolake.open(url, branch="try")
        with pytest.raises(NotFound if has_branches else LayoutLacksError):
            Session(url, entity_types=[Thing], branch="try")
