"""Records of the catalog: all names of a schema are in one namespace, and old records keep their bytes."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Any

import pytest

from ontolake import engine
from ontolake.sql import Database, DuplicateNameError, open_database
from ontolake.sql.catalog.records import entries_of, is_added

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", ["layout-3", "layout-4"])
def test_records_of_older_layouts_are_written_as_they_were(tmp_path: Path, name: str) -> None:
    place = tmp_path / "old.db"
    place.write_bytes(gzip.decompress((GOLDEN / f"{name}.db.gz").read_bytes()))
    before = hashlib.sha256(place.read_bytes()).digest()
    with open_database(str(place), readonly=True) as db:
        catalog = db.catalog()
        records: list[Any] = [*catalog.databases.values(), *catalog.schemas.values()]
        for table in catalog.by_id.values():
            records += [table.meta, *table.all_columns, *table.indexes, *table.dropped_indexes]
        found = dict(entry for record in records for entry in entries_of(record))
        with db.session.reading():
            assert db.session.keyspace.get_many(list(found)) == found
        assert not any(map(is_added, records))
    assert hashlib.sha256(place.read_bytes()).digest() == before


def layout(place: str) -> int:
    connection = engine.connect(place, readonly=True)
    try:
        return int(connection.pragma("user_version"))
    finally:
        connection.close(True)


def test_a_database_without_new_kinds_has_the_layout_that_it_had(tmp_path: Path) -> None:
    place = f"{tmp_path}/plain.db"
    with open_database(place) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a INT UNIQUE CHECK (a > 0), b TEXT DEFAULT 'x')")
        db.execute("CREATE INDEX ON t (b); ALTER TABLE t ADD COLUMN c INT; ALTER TABLE t RENAME TO u")
    assert layout(place) == 3


@pytest.mark.parametrize("statement", [
    "CREATE TABLE t_a_key (id INT PRIMARY KEY)", "CREATE TABLE t_pkey (id INT PRIMARY KEY)",
    "CREATE INDEX t ON t (a)", "CREATE INDEX t_pkey ON t (a)", "ALTER TABLE u RENAME TO t_a_key",
    "ALTER INDEX t_a_key RENAME TO u", "ALTER TABLE t ADD CONSTRAINT u UNIQUE (id)",
    "CREATE TABLE v (id INT PRIMARY KEY, a INT CONSTRAINT t UNIQUE)",
    "CREATE TABLE v (id INT PRIMARY KEY, a INT CONSTRAINT w UNIQUE, b INT CONSTRAINT w UNIQUE)",
])  # fmt: skip
def test_tables_and_indexes_share_names(db: Database, statement: str) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT UNIQUE); CREATE TABLE u (id INT PRIMARY KEY)")
    before = db.version()
    with pytest.raises(DuplicateNameError) as raised:
        db.execute(statement)
    assert raised.value.sqlstate == "42P07"
    assert db.version() == before


def test_names_that_nobody_gave_make_room(db: Database) -> None:
    db.execute("CREATE TABLE t_a_key (id INT PRIMARY KEY); CREATE TABLE t_pkey (id INT PRIMARY KEY)")
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT UNIQUE)")
    table = db.catalog().by_full_name["main.public.t"]
    assert (table.key_name, [index.name for index in table.indexes]) == ("t_pkey1", ["t_a_key1"])
    db.execute("CREATE TABLE IF NOT EXISTS t_a_key1 (id INT PRIMARY KEY)")  # the name of an index: left alone
    assert "main.public.t_a_key1" not in db.catalog().by_full_name
