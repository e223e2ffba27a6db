"""Schemas whose tables something else keeps: read and changed beside tables of the database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ontolake.parallel import Filter
from ontolake.sql import Database, UniqueError, UnknownNameError, UnsupportedError, open_database
from ontolake.sql.plan.foreign import ForeignChange


class Kept:
    """Rows in a list, with the questions that were asked of them."""

    def __init__(self) -> None:
        self.rows = [{"id": 1, "name": "ann", "tags": ["x"], "more": {"a": 1}}, {"id": 2, "name": "bob", "tags": [],
                     "more": None}, {"id": 3, "name": None, "tags": None, "more": {"a": 2}}]  # fmt: skip
        self.schema = pa.schema([("id", pa.int32()), ("name", pa.string()), ("tags", pa.list_(pa.string())),
                                 ("more", pa.struct([("a", pa.int64())]))])
        self.keys, self.hidden = ["id"], list[str]()
        self.asked: list[tuple[list[str], list[Filter]]] = []
        self.moments: list[Any] = []
        self.commits: list[list[ForeignChange]] = []
        self.fails = False

    def names(self) -> Sequence[str]:
        return ["Person", "empty"]

    def open(self, name: str, moment: Any = None) -> Kept:
        self.moments.append(moment)
        return self

    def read(self, columns: Sequence[str], filters: Sequence[Filter]) -> pa.Table:
        self.asked.append((list(columns), list(filters)))
        return pa.Table.from_pylist(self.rows, self.schema).select(list(columns))

    def check_writable(self, name: str) -> None:
        if name == "empty":
            raise UnsupportedError("empty can only be read")

    def commit(self, changes: Sequence[ForeignChange]) -> None:
        if self.fails:
            raise UnsupportedError("not today")
        self.commits.append(list(changes))
        for change in changes:
            gone = {key[0] for key in change.keys}
            self.rows = [row for row in self.rows if row["id"] not in gone]
            if change.new is not None:
                self.rows += change.new.select(["id", "name"]).to_pylist()

    def forget(self) -> None:
        pass


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def db(tmp_path: Path, kept: Kept) -> Iterator[Database]:
    with open_database(str(tmp_path / "shop.db")) as found:
        found.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, person INT, total NUMERIC(10, 2))")
        found.execute("INSERT INTO orders VALUES (1, 1, 2.5), (2, 1, 3), (3, 3, 4)")
        found.mounted.add("people", kept)
        yield found


def test_one_query_joins_a_table_of_each(db: Database) -> None:
    rows = db.execute("SELECT p.name, sum(o.total) FROM people.person p JOIN orders o ON o.person = p.id "
                      "GROUP BY 1 ORDER BY 1").fetchall()
    assert [(name, float(total)) for name, total in rows] == [("ann", 5.5), (None, 4.0)]


def test_system_tables_list_them(db: Database) -> None:
    found = db.execute("SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema NOT IN "
                       "('pg_catalog', 'information_schema') ORDER BY 1, 2").fetchall()  # fmt: skip
    assert found == [("people", "Person"), ("people", "empty"), ("public", "orders")]
    columns = db.execute("SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute "
                         "WHERE attrelid = 'people.\"Person\"'::regclass ORDER BY attnum").fetchall()  # fmt: skip
    assert columns == [("id", "integer", True), ("name", "text", False), ("tags", "text[]", False),
                       ("more", "jsonb", False)]  # fmt: skip
    keys = db.execute("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'people'::regnamespace")
    assert keys.fetchall() == [("PRIMARY KEY (id)",), ("PRIMARY KEY (id)",)]


def test_columns_have_the_types_of_their_values(db: Database) -> None:
    assert db.execute("SELECT * FROM people.person ORDER BY id").fetchall() == [
        (1, "ann", ["x"], {"a": 1}), (2, "bob", [], None), (3, None, None, {"a": 2})]
    assert db.execute("SELECT more->>'a' FROM people.person ORDER BY id").fetchall() == [("1",), (None,), ("2",)]


def test_only_the_columns_and_rows_are_asked_for_that_a_query_needs(db: Database, kept: Kept) -> None:
    assert db.execute("SELECT name FROM people.person WHERE id = ?", (2,)).fetchall() == [("bob",)]
    assert db.execute("SELECT id FROM people.person WHERE name IN ('ann', 'cy')").fetchall() == [(1,)]
    assert kept.asked == [(["id", "name"], [Filter("id", "==", 2)]),
                          (["id", "name"], [Filter("name", "in", ("ann", "cy"))])]


def test_a_condition_that_no_value_of_the_column_fulfils_is_not_pushed(db: Database, kept: Kept) -> None:
    assert db.execute("SELECT id FROM people.person WHERE id > 9999999999").fetchall() == []
    assert kept.asked == [(["id"], [])]


def test_a_name_is_found_but_for_capital_letters_and_by_the_search_path(db: Database) -> None:
    assert db.execute('SELECT count(*) FROM people."Person"').fetchall() == [(3,)]
    db.execute("SET search_path TO people, public")
    assert db.execute("SELECT count(*) FROM person JOIN orders ON person = 1").fetchall() == [(6,)]


def test_a_moment_is_given_to_the_keeper_as_it_stands(db: Database, kept: Kept) -> None:
    db.execute("SELECT id FROM people.person FOR SYSTEM_TIME AS OF 'before'")
    assert kept.moments[-1] == "before"


def test_a_plan_names_the_table(db: Database) -> None:
    assert "foreign scan on people.Person" in db.explain("SELECT * FROM people.person")


@pytest.mark.parametrize("sql", ["SELECT * FROM people.nobody", "INSERT INTO people.nobody VALUES (1)"])
def test_a_table_that_is_not_there(db: Database, sql: str) -> None:
    with pytest.raises(UnknownNameError, match=r"people\.nobody"):
        db.execute(sql)


def test_a_transaction_sees_what_it_has_changed_and_is_one_commit(db: Database, kept: Kept) -> None:
    db.execute("BEGIN")
    db.execute("INSERT INTO people.person (id, name) VALUES (7, 'gus')")
    assert db.execute("UPDATE people.person SET name = upper(name) WHERE id IN (1, 7) RETURNING id, name"
                      ).fetchall() == [(1, "ANN"), (7, "GUS")]
    db.execute("DELETE FROM people.person WHERE id = 2")
    assert db.execute("SELECT id, name FROM people.person ORDER BY id").fetchall() == [
        (1, "ANN"), (3, None), (7, "GUS")]
    assert kept.commits == []
    db.execute("COMMIT")
    assert len(kept.commits) == 1
    assert db.execute("SELECT id FROM people.person ORDER BY id").fetchall() == [(1,), (3,), (7,)]


def test_rolling_back_gives_changes_up(db: Database, kept: Kept) -> None:
    db.execute("BEGIN")
    db.execute("DELETE FROM people.person WHERE id = 1")
    db.execute("SAVEPOINT a")
    db.execute("DELETE FROM people.person WHERE id = 2")
    db.execute("ROLLBACK TO a")
    assert db.execute("SELECT id FROM people.person ORDER BY id").fetchall() == [(2,), (3,)]
    db.execute("ROLLBACK")
    assert db.execute("SELECT count(*) FROM people.person").fetchall() == [(3,)]
    assert kept.commits == []


def test_a_statement_of_its_own_is_a_commit(db: Database, kept: Kept) -> None:
    assert db.execute("UPDATE people.person SET name = 'all'").count == 3
    assert db.execute("MERGE INTO people.person p USING (SELECT 1 AS id UNION ALL SELECT 20) s ON s.id = p.id "
                      "WHEN MATCHED THEN UPDATE SET name = 'one' WHEN NOT MATCHED THEN INSERT (id, name) "
                      "VALUES (s.id, 'new')").count == 2
    assert len(kept.commits) == 2
    assert db.execute("SELECT id, name FROM people.person ORDER BY id").fetchall() == [
        (1, "one"), (2, "all"), (3, "all"), (20, "new")]


def test_a_transaction_changes_one_store(db: Database, kept: Kept) -> None:
    db.execute("BEGIN")
    db.execute("DELETE FROM people.person")
    db.execute("DELETE FROM orders")
    with pytest.raises(UnsupportedError, match="one store only"):
        db.execute("COMMIT")
    assert kept.commits == []
    assert db.execute("SELECT count(*) FROM orders").fetchall() == [(3,)]
    assert not db.in_transaction


def test_a_commit_that_fails_changes_nothing(db: Database, kept: Kept) -> None:
    kept.fails = True
    with pytest.raises(UnsupportedError, match="not today"):
        db.execute("DELETE FROM people.person")
    db.execute("BEGIN")
    db.execute("DELETE FROM people.person")
    with pytest.raises(UnsupportedError, match="not today"):
        db.execute("COMMIT")
    assert not db.in_transaction
    assert db.execute("SELECT count(*) FROM people.person").fetchall() == [(3,)]


@pytest.mark.parametrize("values", ["(1, 'again')", "(9, 'a'), (9, 'b')"])
def test_a_key_is_there_once(db: Database, kept: Kept, values: str) -> None:
    with pytest.raises(UniqueError):
        db.execute(f"INSERT INTO people.person (id, name) VALUES {values}")
    assert kept.commits == []


@pytest.mark.parametrize("sql", [
    "UPDATE people.person SET id = id + 1", "TRUNCATE people.person", "DELETE FROM people.empty",
    "INSERT INTO people.person (id) VALUES (1) ON CONFLICT DO NOTHING",
    "CREATE VIEW v AS SELECT name FROM people.person",
])  # fmt: skip
def test_what_cannot_be_done_to_such_tables_is_refused(db: Database, kept: Kept, sql: str) -> None:
    with pytest.raises(UnsupportedError):
        db.execute(sql)
    assert kept.commits == []


def test_rows_of_such_a_table_go_into_one_of_the_database(db: Database) -> None:
    assert db.execute("INSERT INTO orders SELECT id + 10, id, 1 FROM people.person").count == 3
    with db.connect() as connection:
        assert connection.execute("SELECT count(*) FROM orders WHERE person IN (SELECT id FROM people.person)"
                                  ).fetchall() == [(6,)]
