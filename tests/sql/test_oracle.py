"""Random statements, transactions and looks into the past give what SQLite gives."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import apsw
import pytest
from lowered import lower
from marking import slow_after

from ontolake.sql import Database, UniqueError, open_database

PLACES = {"native": "{}/t.db", "pages": "file://{}/p.db"}
WORDS = ["", "a", "b", "aa", "ab", "zebra", "ÄÖ", "x'y", "10", "a\x01b"]


class Pair:
    """Our tables and SQLite's, given the same statements. Keeps what every version looked like."""

    def __init__(self, db: Database, rng: random.Random) -> None:
        self.db, self.rng = db, rng
        self.oracle = apsw.Connection(":memory:")
        self.tables: dict[str, list[tuple[str, str]]] = {}
        self.states: dict[int, dict[str, list[Any]]] = {}
        self.names = iter(range(10_000))

    def both(self, sql: str, params: tuple[Any, ...] = ()) -> None:
        """Run a statement on both sides; both take it, or both refuse it as breaking a unique key."""
        refused = False
        self.oracle.execute("SAVEPOINT s")
        try:
            self.oracle.execute(sql, params)
        except apsw.ConstraintError:
            refused = True
            self.oracle.execute("ROLLBACK TO s")
        self.oracle.execute("RELEASE s")
        try:
            self.db.execute(sql, params)
        except UniqueError:
            assert refused, sql
        else:
            assert not refused, sql

    def ours(self, table: str, at: int | None = None) -> list[Any]:
        names = ", ".join(name for name, _ in self.tables[table])
        result = self.db.query(f"SELECT {names} FROM {table}", as_of=at)
        return sorted(map(tuple, (row.values() for row in result.to_pylist())), key=repr)

    def theirs(self, table: str) -> list[Any]:
        names = ", ".join(name for name, _ in self.tables[table])
        return sorted(self.oracle.execute(f"SELECT {names} FROM {table}").fetchall(), key=repr)

    def compare(self) -> None:
        for table in self.tables:
            assert self.ours(table) == self.theirs(table), table
        if not self.db.in_transaction:
            self.states[self.db.version()] = {table: self.theirs(table) for table in self.tables}

    # random statements

    def value(self, kind: str) -> Any:
        rng = self.rng
        if rng.random() < 0.2:
            return None
        return rng.randint(-5, 20) if kind == "BIGINT" else rng.choice(WORDS)

    def create(self) -> None:
        name = f"t{next(self.names)}"
        columns = [("id", "BIGINT"), ("k", "TEXT"), ("a", "BIGINT"), ("b", "TEXT")]
        key = self.rng.choice(["id", "k, id", "id, k"])
        unique = self.rng.choice(["", ", UNIQUE (a, b)"])
        declared = ", ".join(f"{c} {kind}" + (" NOT NULL" if c in ("id", "k") else "") for c, kind in columns)
        self.both(f"CREATE TABLE {name} ({declared}, PRIMARY KEY ({key}){unique})")
        self.tables[name] = columns

    def table(self) -> str:
        return self.rng.choice(list(self.tables))

    def insert(self) -> None:
        table, rng = self.table(), self.rng
        columns = self.tables[table]
        rows = [[rng.randint(0, 40), rng.choice(WORDS), *(self.value(kind) for _, kind in columns[2:])]
                for _ in range(rng.choice([1, 1, 2, 60]))]
        marks = ", ".join(f"({', '.join('?' * len(columns))})" for _ in rows)
        action = rng.choice(["", "", " ON CONFLICT DO NOTHING"])
        names = ", ".join(name for name, _ in columns)
        self.both(f"INSERT INTO {table} ({names}) VALUES {marks}{action}", tuple(cell for row in rows for cell in row))

    def upsert(self) -> None:
        table = self.table()
        key = "id" if "PRIMARY KEY (id)" in self.schema(table) else "id, k"
        row = (self.rng.randint(0, 40), self.rng.choice(WORDS), self.value("BIGINT"))
        self.both(f"INSERT INTO {table} (id, k, a) VALUES (?, ?, ?) ON CONFLICT ({key}) "
                  f"DO UPDATE SET a = excluded.a + 1 WHERE {table}.a IS NULL OR {table}.a < 10", row)

    def schema(self, table: str) -> str:
        return str(self.oracle.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).get)

    def where(self, table: str) -> tuple[str, tuple[Any, ...]]:
        rng = self.rng
        parts: list[str] = []
        values: list[Any] = []
        for name, kind in rng.sample(self.tables[table], rng.choice([0, 1, 1, 2])):
            shape = rng.choice(
                ["= ?", "< ?", ">= ?", "> ?", "BETWEEN ? AND ?", "IN (?, ?, ?)", "IS NULL", "IS NOT NULL"])
            parts.append(f"{name} {shape}")
            values += [rng.randint(-5, 20) if kind == "BIGINT" else rng.choice(WORDS) for _ in range(shape.count("?"))]
        joined = rng.choice([" AND ", " AND ", " OR "]).join(parts)
        return (f" WHERE {joined}" if parts else ""), tuple(values)

    def update(self) -> None:
        table = self.table()
        where, values = self.where(table)
        # SQLite refuses what would be unique again once all rows have moved.
        step = "b = b || 'y'" if "UNIQUE" in self.schema(table) else "a = a + 1"
        change = self.rng.choice([step, "b = ?", "a = NULL", "a = ?, b = b || 'x'", "id = id + 100"])
        given = tuple([self.rng.choice(WORDS) if "b = ?" in change else self.rng.randint(0, 9)] * change.count("?"))
        self.both(f"UPDATE {table} SET {change}{where}", (*given, *values))

    def delete(self) -> None:
        table = self.table()
        where, values = self.where(table)
        self.both(f"DELETE FROM {table}{where or ' WHERE id < 10'}", values)

    def index(self) -> None:
        table, rng = self.table(), self.rng
        columns = rng.sample([name for name, _ in self.tables[table]], rng.choice([1, 2]))
        listed = ", ".join(f"{name} {rng.choice(['ASC', 'DESC'])}" for name in columns)
        self.both(f"CREATE INDEX i{next(self.names)} ON {table} ({listed})")

    def alter(self) -> None:
        table = self.table()
        name = f"c{next(self.names)}"
        kind = self.rng.choice(["BIGINT", "TEXT"])
        default = self.rng.choice(["", " DEFAULT 7" if kind == "BIGINT" else " DEFAULT 'dflt'"])
        added = [column for column, _ in self.tables[table] if column.startswith("c")]
        if added and self.rng.random() < 0.4 and not self.indexed(table, added[0]):
            self.both(f"ALTER TABLE {table} DROP COLUMN {added[0]}")
            self.tables[table] = [column for column in self.tables[table] if column[0] != added[0]]
        elif len(added) < 9:
            self.both(f"ALTER TABLE {table} ADD COLUMN {name} {kind}{default}")
            self.tables[table] = [*self.tables[table], (name, kind)]

    def indexed(self, table: str, column: str) -> bool:
        found = self.oracle.execute("SELECT sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = ?", (table,))
        return any(column in (row[0] or "") for row in found.fetchall())

    def query(self) -> None:
        table = self.table()
        where, values = self.where(table)
        sql = self.rng.choice([
            "SELECT id, k, a, b FROM {t}{w}", "SELECT count(*), sum(a), min(b), max(id) FROM {t}{w}",
            "SELECT a, count(*) FROM {t}{w} GROUP BY a", "SELECT DISTINCT b FROM {t}{w}",
            "SELECT k, count(b) FROM {t}{w} GROUP BY k HAVING count(*) > 1",
        ]).format(t=table, w=where)  # fmt: skip
        ours = sorted(self.db.execute(sql, values).fetchall(), key=repr)
        assert ours == sorted(self.oracle.execute(sql, values).fetchall(), key=repr), (sql, values)

    def few(self) -> None:
        """Rows in the order of the primary key, from anywhere."""
        table, rng = self.table(), self.rng
        key = re.search(r"PRIMARY KEY \((.*?)\)", self.schema(table))
        assert key is not None
        where, values = self.where(table)
        down = rng.choice(["", " DESC"])
        order = ", ".join(f"{name}{down}" for name in key[1].split(", "))
        limit = f" LIMIT {rng.choice([0, 1, 3, 10])}" + rng.choice(["", " OFFSET 2"]) if rng.random() < 0.8 else ""
        sql = f"SELECT {rng.choice(['id, k, a, b', 'id + 1, k', 'b, id'])} FROM {table}{where} ORDER BY {order}{limit}"
        ours = self.db.execute(sql, values).fetchall()
        assert ours == self.oracle.execute(sql, values).fetchall(), (sql, values)

    def join(self) -> None:
        left, right = self.table(), self.table()
        kind = self.rng.choice(["JOIN", "LEFT JOIN"])
        sql = (f"SELECT x.id, y.k, y.a FROM {left} AS x {kind} {right} AS y ON x.a = y.a AND y.id > 3 "
               f"WHERE x.id <= ?")
        value = (self.rng.randint(0, 30),)
        ours = sorted(self.db.execute(sql, value).fetchall(), key=repr)
        assert ours == sorted(self.oracle.execute(sql, value).fetchall(), key=repr), sql

    def past(self, version: int | None = None) -> None:
        if not self.states or self.db.in_transaction:
            return
        version = self.rng.choice(list(self.states)) if version is None else version
        with self.db._session.reading():
            known = self.db._session.catalog(version).by_full_name
        for name, rows in self.states[version].items():
            columns = [column.name for column in known[f"main.public.{name}"].columns]
            found = self.db.query(f"SELECT {', '.join(columns)} FROM {name}", as_of=version).to_pylist()
            assert sorted(map(tuple, (row.values() for row in found)), key=repr) == rows, (version, name)


    def upkeep(self) -> None:
        """Give up some of the past and remove it. What is kept must read as before, now and then."""
        if self.db.in_transaction or not self.states:
            return
        floor = self.rng.choice([0, 0, *self.states])
        if floor:
            self.db.retain(floor)
            self.states = {version: state for version, state in self.states.items() if version >= floor}
        expected = self.db.gc(dry_run=True)
        assert self.db.gc(dry_run=False) == expected
        assert self.db.gc(dry_run=False).items == 0
        self.compare()
        for version in list(self.states)[:3] + list(self.states)[-3:]:
            self.past(version)


@pytest.mark.parametrize("low", slow_after(1, [True, False]), ids=["low thresholds", "real thresholds"])
@pytest.mark.parametrize("place", slow_after(1, PLACES))
@pytest.mark.parametrize("seed", slow_after(1, range(3)))
def test_random_histories_are_those_of_sqlite(
    place: str, seed: int, low: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"{place} {seed}")
    url = PLACES[place].format(tmp_path)
    if low:
        lower(monkeypatch, "sql", "engine", "storage")
    with open_database(url, synchronous="NORMAL", cache=2000 if low else None, on_error="continue") as db:
        pair = Pair(db, rng)
        pair.create()
        pair.create()
        actions = ([pair.insert] * 5 + [pair.update] * 3 + [pair.delete, pair.upsert] * 2 + [pair.query] * 6
                   + [pair.join] * 2 + [pair.few] * 3
                   + [pair.index, pair.alter, pair.past, pair.past, pair.upkeep])  # fmt: skip
        for _ in range(45):
            if rng.random() < 0.2:
                run_transaction(pair, actions)
            else:
                rng.choice(actions)()
            pair.compare()
        assert list(db.verify()) == []
        floor = min(pair.states)
        assert [change.commit for change in db.changes(floor)] == sorted(
            change.commit for change in db.changes(floor))  # fmt: skip
        pair.upkeep()
        assert list(db.verify()) == []
    with open_database(url, readonly=True) as again:
        pair.db = again
        pair.compare()
        for _ in range(5):
            pair.past()


def run_transaction(pair: Pair, actions: list[Any]) -> None:
    """Some statements together, with a savepoint, kept or not."""
    rng = pair.rng
    columns = dict(pair.tables)
    pair.db.execute("BEGIN")
    pair.oracle.execute("BEGIN")
    for _ in range(rng.randint(1, 3)):
        rng.choice(actions)()
        pair.compare()
    inner = dict(pair.tables)
    for side in (pair.db, pair.oracle):
        side.execute("SAVEPOINT half")
    rng.choice(actions)()
    if rng.random() < 0.5:
        for side in (pair.db, pair.oracle):
            side.execute("ROLLBACK TO half")
        pair.tables = inner
        pair.compare()
    rng.choice(actions)()
    end = rng.choice(["COMMIT", "ROLLBACK"])
    for side in (pair.db, pair.oracle):
        side.execute(end)
    if end == "ROLLBACK":
        pair.tables = columns
