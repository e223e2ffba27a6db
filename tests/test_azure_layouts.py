"""Every layout on Azure: written, closed, read again by another handle, at a branch and in the past.

Objects, typed stores, graphs and page storage have tests of their own there; here are the layouts above them.
"""

from __future__ import annotations

import base64
import subprocess
import sys

import pytest

from ontolake import engine, urls
from ontolake.documents import Patch, Set, open_space
from ontolake.errors import Invalid, NotFound, Transient
from ontolake.graph import Graph
from ontolake.model import Entity, Field
from ontolake.objects.testing import AzuriteServer
from ontolake.ontology import Session
from ontolake.sql import open_database

pytestmark = pytest.mark.slow


class Item(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int] = Field(default=0)


def test_documents(azurite_url: str) -> None:
    with open_space(azurite_url, "shop") as space:
        space.transact("worker", 1, [Set("stock/pen", {"value": {"count": 10}})])
        space.transact("worker", 2, [Patch("stock/pen", [{"op": "increment", "path": "/value/count", "by": -3}])])
    with open_space(azurite_url, "shop") as again:
        assert again.read("stock/pen").document == {"value": {"count": 7}}
        assert again.last_seq() == 2


def test_sql_tables(azurite_url: str) -> None:
    url = f"{azurite_url}/sql"
    with open_database(url) as database:
        database.execute("CREATE DATABASE app; CREATE SCHEMA app.public")
        database.execute("CREATE TABLE app.public.t (id BIGINT PRIMARY KEY, name TEXT)")
        database.execute("INSERT INTO app.public.t VALUES (1, 'a'), (2, 'b')")
    with open_database(url) as again:
        again.execute("UPDATE app.public.t SET name = 'c' WHERE id = 2")
        assert again.execute("SELECT id, name FROM app.public.t ORDER BY id").fetchall() == [(1, "a"), (2, "c")]


def test_sqlite_over_the_seam(azurite_url: str) -> None:
    url = f"sqlite+{azurite_url}"
    first = engine.connect(url)
    first.execute("CREATE TABLE t (x); INSERT INTO t VALUES (1), (2)")
    first.close()
    again = engine.connect(url)
    assert again.execute("SELECT sum(x) FROM t").fetchall() == [(3,)]
    again.close()
    stamp = urls.detect(azurite_url)
    assert stamp is not None
    assert (stamp.kind, stamp.engine) == ("pages", "objects")


def test_a_typed_store_over_the_seam(azurite_url: str) -> None:
    url = f"sqlite+{azurite_url}/typed"
    with Session(url, entity_types=[Item]) as session:
        session.ensure([Item(id="a", size=1), Item(id="b", size=2)])
        session.commit()
    with Session(url, entity_types=[Item]) as again:
        assert again.query().entities(Item).where(Item.size > 1).first().id == "b"


def test_the_command_line_finds_what_is_there(azurite_url: str) -> None:
    with Session(f"{azurite_url}/typed", entity_types=[Item]) as session:
        session.ensure([Item(id="a")])
        session.commit()
    Graph.init(f"{azurite_url}/graph", [Item]).close()
    for place, said in (("typed", b"typed"), ("graph", b"graph")):
        command = [sys.executable, "-m", "ontolake", "info", f"{azurite_url}/{place}", "--json"]
        done = subprocess.run(command, capture_output=True, check=True)
        assert said in done.stdout


def test_a_graph_says_what_is_wrong(azurite: AzuriteServer, azurite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Invalid, match=r"container 'no-such-one' .* does not exist"):
        Graph.init("az://no-such-one/graph", [Item])
    with pytest.raises(NotFound, match=azurite_url):
        Graph.open(azurite_url)
    Graph.init(azurite_url, [Item]).close()
    with monkeypatch.context() as wrong:
        wrong.setenv("AZURE_STORAGE_ACCOUNT_KEY", base64.b64encode(b"wrong").decode())
        with pytest.raises(Invalid, match="AZURE_STORAGE_ACCOUNT_KEY"):
            Graph.open(azurite_url)
    with monkeypatch.context() as away:
        away.setenv("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:9/ontolake")
        with pytest.raises(Transient):
            Graph.open(azurite_url)
