"""Handles: which ones requests share, and when they are opened anew."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from serving import serving

from ontolake import sql
from ontolake.documents import Set, open_space
from ontolake.errors import OntolakeError
from ontolake.model import Entity, Field
from ontolake.ontology import Session
from ontolake.ontology.errors import QueryError
from ontolake.server.handles import ServedStore
from ontolake.server.problems import RefusedError


class Item(Entity):
    """A thing of a typed store."""

    id: Field[str] = Field(primary_key=True)
    name: Field[str]


@pytest.fixture
def tables(tmp_path: Path) -> ServedStore:
    url = str(tmp_path / "shop.db")
    with sql.open_database(url) as database:
        database.execute("CREATE TABLE item (id INT PRIMARY KEY, name TEXT)")
        database.execute("INSERT INTO item VALUES (1, 'cup')")
        database.branches.create("try")
    return ServedStore("shop", url)


def test_a_branch_that_took_the_name_of_another_is_opened_anew(tables: ServedStore) -> None:
    with tables.writing("try") as store:
        store.execute("INSERT INTO item VALUES (2, 'jug')")
    with tables.writing() as store:
        store.branches.rename("try", "old")
        store.branches.create("try")
    with tables.writing("try") as store:
        store.execute("INSERT INTO item VALUES (3, 'pan')")
    with tables.reading("try") as store:
        assert store.query("SELECT id FROM item ORDER BY id").column("id").to_pylist() == [1, 3]
    with tables.reading("old") as store:
        assert store.query("SELECT id FROM item ORDER BY id").column("id").to_pylist() == [1, 2]
    tables.close()


def test_handles_of_a_deleted_branch_are_not_kept(tables: ServedStore) -> None:
    with tables.reading("try") as store:
        store.query("SELECT 1")
    with tables.writing() as store:
        store.branches.delete("try")
    with pytest.raises(LookupError), tables.reading("try"):
        pass
    tables.close()


def test_a_store_for_reading_takes_no_writes(tmp_path: Path, tables: ServedStore) -> None:
    store = ServedStore("shop", tables.url, writes=False)
    with pytest.raises(RefusedError, match="for reading only"), store.writing():
        pass
    tables.close()


def test_reading_goes_on_while_somebody_writes(tmp_path: Path) -> None:
    open_space(f"{tmp_path}/", "notes").close()
    served = ServedStore("notes", str(tmp_path / "notes.sqlite"))
    with served.writing() as space:
        space.transact(*space.next_request(), [Set("a", {"value": 1})])
    held, done = threading.Event(), threading.Event()

    def write() -> None:
        with served.writing() as space, space._database.write:
            held.set()
            assert done.wait(20)

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        assert held.wait(20)
        with served.reading() as first, served.reading() as second:
            assert first is not second
            assert first.read("a").document == second.read("a").document == {"value": 1}
        done.set()
        writer.result()
    served.close()


def test_types_that_others_add_are_there_for_the_next_request(tmp_path: Path) -> None:
    url = str(tmp_path / "typed.db")
    Session(url).close()
    served = ServedStore("typed", url)
    with served.reading() as store:
        assert store.types == ()
    with Session(url, entity_types=[Item]) as session:
        session.ensure(Item(id="1", name="cup"))
    with served.reading() as store:
        assert [info.name for info in store.types] == ["Item"]
    served.close()


def test_requests_share_handles_of_sql_tables(tables: ServedStore) -> None:
    with tables.reading() as first, tables.reading() as second:
        assert first is second
    with tables.writing() as first, tables.writing() as second:
        assert first is second
    tables.close()


def test_errors_do_not_say_where_the_server_has_a_store(tmp_path: Path) -> None:
    url = str(tmp_path / "shop.db")
    with Session(url, entity_types=[Item]) as session:
        session.ensure(Item(id="a", name="cup"))
    served = ServedStore("shop", url)
    with pytest.raises(QueryError) as unknown, served.reading() as store:
        store.find("None")
    assert "in 'shop'" in str(unknown.value)
    assert str(tmp_path) not in f"{unknown.value} {vars(unknown.value)} {unknown.value.args}"
    served.close()
    Path(url).write_bytes(b"damaged" * 1000)
    with pytest.raises(OntolakeError) as damaged, served.reading():
        pass
    assert str(tmp_path) not in f"{damaged.value} {vars(damaged.value)} {damaged.value.args}"


def test_the_author_of_branches_of_documents_is_the_token(tmp_path: Path) -> None:
    open_space(f"{tmp_path}/", "notes").close()
    with serving({"notes": str(tmp_path / "notes.sqlite")}) as served:
        assert served.call("POST", "/stores/notes/branches", token="writer", json={"name": "try/x"}).status == 201
        assert served.call("DELETE", "/stores/notes/branches/try/x", token="admin").status == 204
        sent = {"name": "try", "sessionId": "s", "localSeq": 1}
        assert served.call("POST", "/stores/notes/memory/branch/create", token="merger", json=sent).status == 201
    with open_space(f"{tmp_path}/", "notes", readonly=True) as space:
        authors = {commit.author for name in ("try/x", "try") for commit in space.commits(branch=name)}
    assert authors == {"writer", "admin", "merger"}
