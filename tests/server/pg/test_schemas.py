"""Typed stores, graphs and documents as schemas of a SQL database: one query joins them, a transaction is a commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from pg_serving import PgServed, pg_serving

from ontolake import Entity, Field, Relation
from ontolake.documents import Set, open_space
from ontolake.graph import Graph
from ontolake.history.refs import Ref
from ontolake.ontology import Session
from ontolake.server.handles import ServedStore
from ontolake.server.pg.schemas import StoreSchema
from ontolake.server.rights import ForbiddenError, Principal, TokenScope
from ontolake.sql import Database, SerializationError, SqlError, UniqueError, UnsupportedError, open_database

WRITER, READER = Principal("zoe", TokenScope.WRITE), Principal("rob", TokenScope.READ)
OTHER = Principal("else", TokenScope.WRITE, ("shop",))


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    age: Field[int]


class Knows(Relation[Customer, Customer]):
    since: Field[int]


class Stores(NamedTuple):
    folder: Path
    typed: ServedStore
    graph: ServedStore
    documents: ServedStore

    @property
    def typed_url(self) -> str:
        return str(self.folder / "people.db")


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    with Session(str(tmp_path / "people.db"), entity_types=[Customer]) as session:
        session.ensure([Customer(id="c1", name="ann", age=3), Customer(id="c2", name="bob", age=4)])
    with Graph.init(f"{tmp_path}/graph", [Customer, Knows]) as graph:
        graph.load(Customer, [{"id": id, "name": id, "age": 1} for id in ("c1", "c2")])
        graph.load(Knows, [{"left_key": "c1", "right_key": "c2", "since": 1999}])
    with open_space(f"{tmp_path}/", "notes") as space:
        space.transact(*space.next_request(), [Set("n1", {"about": "c1", "stars": 5})])
    found = Stores(tmp_path, ServedStore("people", str(tmp_path / "people.db")),
                   ServedStore("net", f"{tmp_path}/graph/"), ServedStore("notes", str(tmp_path / "notes.sqlite")))
    yield found
    for store in found[1:]:
        store.close()


@pytest.fixture
def db(stores: Stores) -> Iterator[Database]:
    with open_database(str(stores.folder / "shop.db")) as found:
        found.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, customer TEXT, total NUMERIC(10, 2))")
        found.execute("INSERT INTO orders VALUES (1, 'c1', 5), (2, 'c1', 7)")
        for store in stores[1:]:
            found.mounted.add(store.name, StoreSchema(store, WRITER))
        yield found


def ages(url: str) -> dict[str, int]:
    with Session(url, entity_types=[Customer]) as session:
        return {row.id: row.age for row in session.query().entities(Customer).collect()}


def test_one_query_joins_all_four_models(db: Database) -> None:
    assert db.execute("""
        SELECT c.name, friend.name, sum(o.total), n.document->>'stars'
        FROM people.customer c JOIN net.knows k ON k.left_key = c.id
        JOIN people.customer friend ON friend.id = k.right_key
        JOIN orders o ON o.customer = c.id JOIN notes.documents n ON n.document->>'about' = c.id
        GROUP BY 1, 2, 4""").fetchall() == [("ann", "bob", 12, "5")]


def test_a_transaction_is_one_commit_by_the_name_of_the_token(db: Database, stores: Stores) -> None:
    db.execute("BEGIN")
    db.execute("INSERT INTO people.customer (id, name, age) VALUES ('c3', 'cy', 9)")
    db.execute("UPDATE people.customer SET age = age + 1")
    db.execute("DELETE FROM people.customer WHERE id = 'c2'")
    assert ages(stores.typed_url) == {"c1": 3, "c2": 4}
    db.execute("COMMIT")
    assert ages(stores.typed_url) == {"c1": 4, "c3": 10}
    with Session(stores.typed_url) as session:
        newest, *older = session.commits()
    assert (newest.author, len(older)) == ("zoe", 1)


def test_a_transaction_sees_one_commit_and_fails_if_there_is_another(db: Database, stores: Stores) -> None:
    db.execute("BEGIN")
    assert db.execute("SELECT age FROM people.customer WHERE id = 'c1'").fetchall() == [(3,)]
    with Session(stores.typed_url, entity_types=[Customer]) as session:
        session.ensure(Customer(id="c1", name="ann", age=30))
    assert db.execute("SELECT age FROM people.customer WHERE id = 'c1'").fetchall() == [(3,)]
    db.execute("UPDATE people.customer SET age = age + 1 WHERE id = 'c1'")
    with pytest.raises(SerializationError):
        db.execute("COMMIT")
    assert ages(stores.typed_url) == {"c1": 30, "c2": 4}
    db.execute("UPDATE people.customer SET age = age + 1 WHERE id = 'c1'")
    assert ages(stores.typed_url)["c1"] == 31


def test_rows_are_checked_as_the_store_checks_them(db: Database, stores: Stores) -> None:
    with pytest.raises(UniqueError):
        db.execute("INSERT INTO people.customer (id, name, age) VALUES ('c1', 'again', 1)")
    with pytest.raises(SqlError, match=r"Customer\.age"):
        db.execute("INSERT INTO people.customer (id, name) VALUES ('c9', 'nobody')")
    assert ages(stores.typed_url) == {"c1": 3, "c2": 4}


def test_the_past_is_read_and_not_changed(db: Database, stores: Stores) -> None:
    db.execute("UPDATE people.customer SET age = 50")
    past = "SELECT age FROM people.customer FOR SYSTEM_TIME AS OF 1 ORDER BY id"
    assert db.execute(past).fetchall() == [(3,), (4,)]
    db.mounted.add("before", StoreSchema(stores.typed, WRITER, Ref.parse("main@1")))
    assert db.execute("SELECT age FROM before.customer ORDER BY id").fetchall() == [(3,), (4,)]
    with pytest.raises(SqlError) as caught:
        db.execute("UPDATE before.customer SET age = 1")
    assert caught.value.sqlstate == "25006"


@pytest.mark.parametrize("sql", ["DELETE FROM net.knows", "DELETE FROM notes.documents"])
def test_graphs_and_documents_are_only_read(db: Database, sql: str) -> None:
    with pytest.raises(UnsupportedError, match="only be read"):
        db.execute(sql)


def test_a_branch_is_a_schema_like_any_other(db: Database, stores: Stores) -> None:
    with Session(stores.typed_url) as session:
        session.branches.create("try")
    db.mounted.add("attempt", StoreSchema(stores.typed, WRITER, Ref.parse("try")))
    db.execute("UPDATE attempt.customer SET age = 99 WHERE id = 'c1'")
    assert db.execute("SELECT a.age, b.age FROM attempt.customer a JOIN people.customer b USING (id) WHERE id = 'c1'"
                      ).fetchall() == [(99, 3)]


@pytest.mark.parametrize(("who", "sql"), [
    (OTHER, "SELECT * FROM people.customer"), (OTHER, "SELECT * FROM people.customer FOR SYSTEM_TIME AS OF 1"),
    (READER, "DELETE FROM people.customer"),
    (Principal("try", TokenScope.WRITE, branches=("try",)), "SELECT * FROM people.customer"),
])  # fmt: skip
def test_a_token_needs_the_right_to_the_other_store_too(db: Database, stores: Stores, who: Principal, sql: str) -> None:
    db.mounted.add("people", StoreSchema(stores.typed, who))
    with pytest.raises(ForbiddenError):
        db.execute(sql)
    assert ages(stores.typed_url) == {"c1": 3, "c2": 4}


# over the wire


@pytest.fixture
def wire(stores: Stores) -> Iterator[PgServed]:
    with open_database(str(stores.folder / "shop.db")) as found:
        found.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, customer TEXT, total NUMERIC(10, 2))")
        found.execute("INSERT INTO orders VALUES (1, 'c1', 5)")
    urls = {"shop": str(stores.folder / "shop.db"), "people": stores.typed_url, "net": f"{stores.folder}/graph/",
            "notes": str(stores.folder / "notes.sqlite")}
    with pg_serving(urls, (Principal("shopper", TokenScope.WRITE, ("shop",)),)) as served:
        yield served


def test_a_database_shows_the_other_stores_as_schemas(wire: PgServed, stores: Stores) -> None:
    with wire.connect("shop", "writer") as connection:
        assert connection.execute(
            "SELECT c.name, o.total FROM orders o JOIN people.customer c ON c.id = o.customer WHERE o.id = 1"
        ).fetchall() == [("ann", 5)]
        with connection.transaction():
            connection.execute("UPDATE people.customer SET age = age + 10 WHERE id = 'c1'")
            connection.execute("INSERT INTO people.customer (id, name, age) VALUES ('c5', 'eve', 5)")
    assert ages(stores.typed_url) == {"c1": 13, "c2": 4, "c5": 5}


def test_a_store_of_another_model_is_a_database_of_its_own(wire: PgServed, stores: Stores) -> None:
    with wire.connect("people", "writer") as connection:
        connection.execute("DELETE FROM customer WHERE id = 'c2'")
        assert connection.execute("SELECT id FROM customer").fetchall() == [("c1",)]
        connection.execute("CREATE TEMP TABLE mine AS SELECT id FROM customer")
        assert connection.execute("SELECT count(*) FROM mine").fetchall() == [(1,)]
    with wire.connect("net", "reader") as connection:
        assert connection.execute("SELECT left_key, since FROM knows").fetchall() == [("c1", 1999)]
    with wire.connect("notes", "reader") as connection:
        assert connection.execute("SELECT document FROM documents").fetchall() == [({"about": "c1", "stars": 5},)]
    assert ages(stores.typed_url) == {"c1": 3}


def test_the_name_of_the_database_has_the_moment(wire: PgServed) -> None:
    with wire.connect("people", "writer") as connection:
        connection.execute("UPDATE customer SET age = 77")
    with wire.connect("people@main:1", "writer") as connection:
        assert connection.execute("SELECT age FROM customer ORDER BY id").fetchall() == [(3,), (4,)]
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("DELETE FROM customer")


@pytest.mark.parametrize("sql", ["CREATE TABLE t (a INT)", "DROP TABLE customer", "SELECT * FROM onto_log()",
                                 "TRUNCATE customer", "CALL onto_branch('x')"])  # fmt: skip
def test_what_only_sql_tables_have_is_refused_in_other_stores(wire: PgServed, sql: str) -> None:
    with wire.connect("people") as connection, pytest.raises(psycopg.errors.FeatureNotSupported):
        connection.execute(sql)


def test_a_token_for_one_store_sees_no_other(wire: PgServed) -> None:
    with wire.connect("shop", "shopper") as connection, pytest.raises(psycopg.errors.InvalidSchemaName):
        connection.execute("SELECT * FROM people.customer")
    with wire.connect("shop", "reader") as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("DELETE FROM people.customer")
