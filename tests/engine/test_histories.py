"""Random programs of SQL on our pages and on a native file: every statement gives the same answer on both."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from lowered import KNOBS, lower
from marking import slow_after

from ontolake import engine
from ontolake.storage import Lsn, open_storage

Answer = tuple[Any, ...]
STEPS = 250


class Pair:
    """One branch on our pages, and a native file that is to hold the same."""

    def __init__(self, url: str, branch: str, native: Path, knobs: dict[str, Any]) -> None:
        self.url, self.branch, self.native, self.knobs = url, branch, native, knobs
        self.open()

    def open(self) -> None:
        ours = engine.connect(self.url, branch=self.branch, **self.knobs)
        self.connections = ours, apsw.Connection(str(self.native))
        self.connections[1].execute("PRAGMA synchronous=OFF")

    def close(self) -> None:
        for connection in self.connections:
            connection.close(True)

    def do(self, statement: str) -> Answer:
        """Run a statement on both and return the answer that both gave."""
        ours, theirs = (answer(connection, statement) for connection in self.connections)
        assert ours == theirs, f"{self.branch}: {statement}"
        return ours

    def content(self) -> list[Any]:
        return dump(self.connections[0])

    def check(self) -> None:
        ours, theirs = map(dump, self.connections)
        assert ours == theirs, self.branch
        for pragma in ("integrity_check", "page_count", "freelist_count", "user_version"):
            self.do(f"PRAGMA {pragma}")
        assert self.connections[0].execute("PRAGMA integrity_check").get == "ok"


def answer(connection: apsw.Connection, statement: str) -> Answer:
    try:
        rows: Any = connection.execute(statement).fetchall()
    except apsw.Error as error:
        rows = type(error).__name__, str(error)
    return rows, connection.changes(), connection.last_insert_rowid(), connection.in_transaction


def dump(connection: apsw.Connection) -> list[Any]:
    """Everything a database holds."""
    schema = connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall()
    tables = [name for kind, name, _ in schema if kind == "table"]
    return [schema, *(connection.execute(f'SELECT rowid, * FROM "{name}" ORDER BY rowid').fetchall()
                      for name in tables)]


def statements(chance: random.Random) -> Iterator[str]:
    """Without end; many of them fail, and have to fail alike."""
    while True:
        table = f"t{chance.randrange(3)}"
        number, length = chance.randrange(60), chance.choice((3, 50, 900, 9000))
        text = f"printf('%.*c', {length}, '{chance.choice('xyz')}')"
        changes = (
            f"INSERT INTO {table}(a, b) VALUES ({number}, {text})",
            f"INSERT OR REPLACE INTO {table}(id, a, b) VALUES ({number}, {number}, {text})",
            f"INSERT INTO {table}(a, b) SELECT a + 1, b || {number} FROM t{chance.randrange(3)} LIMIT {number}",
            f"INSERT INTO {table}(a, b) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
            f"LIMIT {9 * number}) SELECT i, substr({text}, 1, 999) || i FROM n",
            f"UPDATE {table} SET b = {text} WHERE a > {number}",
            f"UPDATE OR IGNORE {table} SET id = id + {number} WHERE id % 7 = {number % 7}",
            f"DELETE FROM {table} WHERE a % 5 = {number % 5}",
            f"DELETE FROM {table} WHERE id > {10 * number} RETURNING id",
        )
        queries = (
            f"SELECT count(*), sum(a), sum(length(b)), min(b), max(id) FROM {table}",
            f"SELECT id, substr(b, 1, 9) FROM {table} WHERE b >= '{chance.choice('xyz')}' ORDER BY b, id LIMIT 20",
            f"SELECT x.id, y.a FROM {table} x JOIN t0 y ON x.a = y.id ORDER BY 1 DESC, 2 LIMIT 30",
            "PRAGMA user_version", "PRAGMA integrity_check",
        )
        schema = (
            f"CREATE TABLE {table}(id INTEGER PRIMARY KEY, a, b, c UNIQUE)",
            f"CREATE INDEX i{number % 4} ON {table}({chance.choice('abc')})", f"DROP INDEX i{number % 4}",
            f"DROP TABLE {table}", f"ALTER TABLE {table} ADD COLUMN d{number % 3} DEFAULT {number}",
            f"PRAGMA user_version={number}", "REINDEX", "ANALYZE", "VACUUM", "VACUUM",
            f"PRAGMA incremental_vacuum({number})", f"PRAGMA cache_size={chance.choice((3, 10, 2000))}",
        )
        transactions = (
            "BEGIN", "BEGIN IMMEDIATE", "COMMIT", "COMMIT", "COMMIT", "ROLLBACK", "SAVEPOINT one", "SAVEPOINT two",
            "RELEASE one", "ROLLBACK TO one", "ROLLBACK TO two", "RELEASE two",
        )
        (kind,) = chance.choices((changes, queries, schema, transactions), (5, 2, 1, 3))
        yield chance.choice(kind)


def program(seed: int, url: str, folder: Path, steps: int, **knobs: Any) -> None:
    chance = random.Random(seed)
    pairs = [Pair(url, "main", folder / "main.db", knobs)]
    past: list[tuple[str, int, list[Any]]] = []
    source = statements(chance)
    if seed % 3 == 0:
        pairs[0].do("PRAGMA auto_vacuum=INCREMENTAL")
    for table in ("t0", "t1", "t2"):
        pairs[0].do(f"CREATE TABLE {table}(id INTEGER PRIMARY KEY, a, b, c UNIQUE)")
    for _ in range(steps):
        pair = chance.choice(pairs)
        what = chance.random()
        if what < 0.03:
            pair.close()
            pair.open()
        elif what < 0.06 and len(pairs) < 4:
            pairs.append(branched(pair, f"b{len(pairs)}", folder))
        elif what < 0.12 and not pair.connections[0].in_transaction:
            with open_storage(url, create=False) as storage:
                past.append((pair.branch, int(storage.get_commit_lsn()), pair.content()))
        else:
            pair.do(next(source))
    for pair in pairs:
        if pair.connections[0].in_transaction:
            pair.do("ROLLBACK")
        pair.check()
        pair.close()
        pair.open()
        pair.check()
    check_past(url, past, knobs)
    for floor in sorted(chance.sample([lsn for _, lsn, _ in past], min(2, len(past)))):
        look_after(url, floor)
        for pair in pairs:
            pair.check()
        past = [(branch, lsn, content) for branch, lsn, content in past if lsn >= floor]
        check_past(url, past, knobs)
    for pair in pairs:
        pair.do(next(source))
        pair.close()


def check_past(url: str, past: list[tuple[str, int, list[Any]]], knobs: dict[str, Any]) -> None:
    """Every moment that was looked at is as it was then."""
    for branch, lsn, content in past:
        then = engine.connect(url, branch=branch, at=lsn, **knobs)
        assert dump(then) == content, f"{branch} at {lsn}"
        assert then.execute("PRAGMA integrity_check").get == "ok"
        then.close()


def look_after(url: str, floor: int) -> None:
    """Give up the past below an LSN, as far as no branch needs it, and rewrite what is kept."""
    with open_storage(url, create=False, gc_grace_ms=0) as storage:
        storage.set_retention_floor(Lsn(floor))
        for _ in range(2):  # what the first one has superseded can go at the second
            storage.compact()


def branched(pair: Pair, name: str, folder: Path) -> Pair:
    """A new branch of what is committed on another, and a copy of the native file."""
    if pair.connections[0].in_transaction:
        pair.do("ROLLBACK")
    with open_storage(pair.url, create=False) as storage:
        storage.create_branch(name, storage.get_commit_lsn(), parent=pair.branch)
    copy = apsw.Connection(str(folder / f"{name}.db"))
    with copy.backup("main", pair.connections[1], "main") as backup:
        backup.step()
    copy.close()
    return Pair(pair.url, name, folder / f"{name}.db", pair.knobs)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_a_random_program_on_a_local_file(seed: int, tmp_path: Path) -> None:
    program(seed, f"file://{tmp_path}/pages.db", tmp_path, STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60, 66))
def test_a_random_program_with_low_thresholds(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short program goes through indexes of many parts and runs, layers, compaction and small caches."""
    lower(monkeypatch, "engine", "storage")
    places = [f"file://{tmp_path}/pages.db", f"file://{tmp_path}/pages", f"memory://low-{seed}/{tmp_path.name}"]
    program(seed, places[seed % 3], tmp_path, STEPS // 4, **KNOBS)


@pytest.mark.parametrize("seed", slow_after(0, range(20, 26)))
def test_a_random_program_in_memory(seed: int, tmp_path: Path) -> None:
    program(seed, f"memory://random-{seed}/{tmp_path.name}", tmp_path, STEPS)


@pytest.mark.parametrize("seed", slow_after(1, range(30, 32)))
def test_a_random_program_on_a_directory(seed: int, tmp_path: Path) -> None:
    program(seed, f"file://{tmp_path}/pages", tmp_path, STEPS // 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40, 42))
def test_a_random_program_on_seaweed(seed: int, tmp_path: Path, seaweed_url: str) -> None:
    program(seed, seaweed_url, tmp_path, STEPS // 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50, 56))
def test_a_long_random_program(seed: int, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/pages.db" if seed % 2 else f"memory://random-{seed}/{tmp_path.name}"
    program(seed, url, tmp_path, 4 * STEPS)
