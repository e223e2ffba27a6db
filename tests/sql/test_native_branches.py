"""Branches in a native file: levels of one keyspace, which read as branches of pages do.

Oracles: the same statements on pages, and plain dictionaries.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa
import pytest
from marking import examples

from ontolake.errors import NotFound
from ontolake.history import UnknownBranchError
from ontolake.parallel import Filter, open_parallel
from ontolake.sql import Database, SqlError, open_database
from ontolake.sql.keyspace.levels import version_tables

T = "CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, b TEXT); CREATE INDEX by_a ON t (a) INCLUDE (b)"
QUERIES = (
    "SELECT * FROM t ORDER BY id", "SELECT * FROM t ORDER BY id DESC LIMIT 7",
    "SELECT * FROM t ORDER BY id LIMIT 5 OFFSET 3",
    "SELECT * FROM t WHERE a BETWEEN 20 AND 60 ORDER BY a, id", "SELECT a, b FROM t WHERE a = 33 ORDER BY id",
    "SELECT * FROM t WHERE id = 17", "SELECT * FROM t WHERE id IN (3, 4, 5, 250) ORDER BY id",
    "SELECT count(*), sum(a), min(b), max(id) FROM t", "SELECT id FROM t WHERE id > 40 AND id <= 90 ORDER BY id",
)  # fmt: skip


class Pair:
    """The same branches in a native file and on pages."""

    def __init__(self, folder: Path) -> None:
        self.urls = [f"{folder}/native.db", f"memory://{secrets.token_hex(6)}"]

    def both(self, do: Callable[[Database], Any], branch: str = "main") -> Any:
        """Do something on both; what comes back, or the kind of error, has to be the same."""
        found = []
        for url in self.urls:
            with open_database(url, branch=branch) as db:
                try:
                    found.append(do(db))
                except SqlError as error:
                    found.append(error.sqlstate)
        assert found[0] == found[1]
        return found[0]

    def run(self, sql: str, branch: str = "main") -> Any:
        return self.both(lambda db: db.execute(sql).fetchall(), branch)


def statement(chance: random.Random) -> str:
    first = chance.randrange(200)
    return chance.choice([
        f"INSERT INTO t VALUES ({first}, {chance.randrange(80)}, 'i{chance.randrange(99)}')",
        f"INSERT INTO t SELECT id + 300, a, b FROM t WHERE id BETWEEN {first} AND {first + 5}",
        f"UPDATE t SET a = {chance.randrange(80)} WHERE id BETWEEN {first} AND {first + chance.randrange(30)}",
        f"UPDATE t SET b = b || 'x' WHERE a = {chance.randrange(80)}",
        f"UPDATE t SET id = id + 1000 WHERE id = {first}",
        f"DELETE FROM t WHERE id BETWEEN {first} AND {first + chance.randrange(12)}",
        f"INSERT INTO t VALUES ({first}, 1, 'up') ON CONFLICT (id) DO UPDATE SET b = 'up'"])  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(max(1, examples(2))))
def test_branches_of_branches_read_as_on_pages_at_every_version(tmp_path: Path, seed: int) -> None:
    chance, pair = random.Random(seed), Pair(tmp_path)
    pair.run(T)
    pair.both(lambda db: db.bulk_load("t", pa.table({"id": list(range(0, 200, 2)), "a": [n % 80 for n in range(100)],
                                                     "b": [f"b{n}" for n in range(100)]})))
    branches = ["main"]
    for step in range(60):
        branch = chance.choice(branches)
        if step % 10 == 3:
            name = f"b{step}"
            newest = pair.both(lambda db: db.version(), branch)
            at = chance.choice([None, chance.randint(3, newest)])
            pair.both(lambda db, name=name, at=at, branch=branch: db.branches.create(name, at=at, parent=branch))
            branches.append(name)
        elif step == 40:
            pair.run("ALTER TABLE t ADD COLUMN c BIGINT DEFAULT 5", branch)
            pair.run("CREATE INDEX by_c ON t (c, a)", branch)
        else:
            pair.run(statement(chance), branch)
    for branch in branches:
        newest = pair.both(lambda db: db.version(), branch)
        for query in QUERIES:
            pair.run(query, branch)
        for at in sorted({chance.randint(2, newest) for _ in range(8)}):
            for query in QUERIES:
                pair.both(lambda db, query=query, at=at: db.query(query, as_of=at).to_pylist(), branch)
        pair.run("SELECT * FROM t FOR SYSTEM_TIME ALL ORDER BY id, commit_id", branch)
        pair.both(lambda db: [commit._replace(time=None) for commit in db.commits()], branch)
        pair.both(lambda db: list(db.changes(2)), branch)
        for id in (2, 4, 17):
            pair.both(lambda db, id=id: [version.row for version in db.history("main.public.t", id)], branch)
        for other in branches:
            pair.both(lambda db, branch=branch, other=other: list(db.diff(branch, other)))
        pair.both(lambda db: list(db.verify()), branch)


def rows(db: Database, table: str = "t") -> list[Any]:
    return db.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()


@pytest.fixture
def filled(native_place: str, open_here: Any) -> Database:
    db: Database = open_here(native_place)
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT); CREATE INDEX by_a ON t (a)")
    db.bulk_load("t", pa.table({"id": list(range(1000)), "a": list(range(1000))}))
    return db


def counted(place: str, *tables: str) -> list[Any]:
    connection = apsw.Connection(place, apsw.SQLITE_OPEN_READONLY)
    try:
        return [connection.execute(f"SELECT count(*) FROM {name}").get for name in tables]
    finally:
        connection.close()


def test_a_branch_is_one_record_and_writes_only_what_it_changes(filled: Database, native_place: str) -> None:
    filled.branches.create("try")
    assert counted(native_place, "line", "line_latest", "line_mask", "line_commit") == [1, 0, 0, 0]
    with open_database(native_place, branch="try") as branch:
        branch.execute("UPDATE t SET a = 7 WHERE id IN (3, 4)")
        branch.execute("DELETE FROM t WHERE id = 5")
        branch.execute("INSERT INTO t VALUES (-1, 1)")
        assert branch.execute("SELECT count(*) FROM t").fetchall() == [(1000,)]
        assert branch.execute("SELECT id FROM t WHERE a = 7 ORDER BY id").fetchall() == [(3,), (4,), (7,)]
    assert counted(native_place, "line_latest WHERE hex(key) LIKE '20%'") == [3]
    assert counted(native_place, "line_mask WHERE hex(key) LIKE '20%'", "line_commit") == [3, 3]
    assert filled.execute("SELECT count(*), sum(a) FROM t").fetchall() == [(1000, 499500)]


def test_a_file_has_the_older_layout_until_it_has_a_branch_or_tag(filled: Database, native_place: str) -> None:
    def stamp() -> tuple[Any, ...]:
        connection = apsw.Connection(native_place, apsw.SQLITE_OPEN_READONLY)
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
        found = connection.pragma("user_version"), any(name.startswith("line") for name in tables)
        connection.close()
        return found

    assert stamp() == (3, False)
    assert len(filled.branches.list()) == 1
    filled.gc(dry_run=False)
    assert stamp() == (3, False)
    filled.tags.create("v1")
    assert stamp() == (4, True)


def test_a_branch_can_be_read_without_the_right_to_write(filled: Database, native_place: str) -> None:
    with pytest.raises(UnknownBranchError):
        open_database(native_place, branch="try", readonly=True)
    filled.branches.create("try")
    with open_database(native_place, branch="try", readonly=True) as branch:
        assert len(rows(branch)) == 1000
        with pytest.raises(SqlError, match="read only"):
            branch.execute("DELETE FROM t")


def test_a_key_of_the_parent_is_taken_on_a_branch_too(filled: Database, native_place: str) -> None:
    filled.execute("CREATE UNIQUE INDEX one_a ON t (a)")
    filled.branches.create("try")
    with open_database(native_place, branch="try") as branch:
        for sql in ("INSERT INTO t VALUES (5, 5000)", "INSERT INTO t VALUES (5000, 5)",
                    "INSERT INTO t VALUES (6, 6000), (6001, 6001)", "UPDATE t SET id = 8 WHERE id = 7"):  # fmt: skip
            with pytest.raises(SqlError) as raised:
                branch.execute(sql)
            assert raised.value.sqlstate == "23505"
        with pytest.raises(SqlError) as raised:
            branch.bulk_load("t", pa.table({"id": [2000, 9], "a": [2000, 2001]}))
        assert raised.value.sqlstate == "23505"
        branch.execute("DELETE FROM t WHERE id = 5")
        branch.execute("INSERT INTO t VALUES (5, 5)")
        assert branch.execute("SELECT a FROM t WHERE id = 5").fetchall() == [(5,)]
        assert not list(branch.verify())


def test_a_key_is_looked_up_at_the_level_that_has_it(filled: Database, native_place: str) -> None:
    filled.branches.create("try")
    filled.execute("UPDATE t SET a = -1 WHERE id = 4")
    with open_database(native_place, branch="try") as branch:
        branch.execute("UPDATE t SET a = 33 WHERE id = 3; DELETE FROM t WHERE id = 5; INSERT INTO t VALUES (1001, 7)")
        for _ in range(3):  # the first time plans, the others look the key up
            found = [branch.execute("SELECT a FROM t WHERE id = ?", (id,)).fetchall()
                     for id in (2, 3, 4, 5, 1001, 1002)]  # fmt: skip
            assert found == [[(2,)], [(33,)], [(4,)], [], [(7,)], []]
        with branch.transaction():
            branch.execute("UPDATE t SET a = 22 WHERE id = 2")
            assert branch.execute("SELECT a FROM t WHERE id = ?", (2,)).fetchall() == [(22,)]
        sql = "SELECT id FROM t ORDER BY id LIMIT 3 OFFSET 3"
        assert "answered by keys alone" in branch.explain(sql)
        assert branch.execute(sql).fetchall() == [(3,), (4,), (6,)]
        assert branch.execute("SELECT id FROM t ORDER BY id LIMIT 0").fetchall() == []


@pytest.mark.slow
def test_what_needs_the_order_of_keys_has_it_on_a_branch(native_place: str, open_here: Any) -> None:
    db = open_here(native_place)
    size = 25_000
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)")
    db.bulk_load("t", pa.table({"id": list(range(0, 2 * size, 2)), "a": [n % 100 for n in range(size)]}))
    db.branches.create("try")
    branch = open_here(native_place, branch="try")
    branch.execute("UPDATE t SET a = 100 WHERE id % 1000 = 0")
    branch.execute("DELETE FROM t WHERE id % 1000 = 2")
    branch.bulk_load("t", pa.table({"id": list(range(1, size, 50)), "a": [7] * len(range(1, size, 50))}))
    branch.execute("CREATE INDEX by_a ON t (a)")  # in pages
    assert "index" in branch.explain("SELECT id FROM t WHERE a = 100")
    assert branch.execute("SELECT id FROM t WHERE a = 100 ORDER BY id").fetchall() == [
        (n,) for n in range(0, 2 * size, 1000)]  # fmt: skip
    branch.execute("ALTER TABLE t ALTER COLUMN a TYPE TEXT USING 'a' || a")
    assert not list(branch.verify())
    expected = {n: f"a{n // 2 % 100}" for n in range(0, 2 * size, 2) if n % 1000 != 2}
    expected |= dict.fromkeys(range(0, 2 * size, 1000), "a100") | dict.fromkeys(range(1, size, 50), "a7")
    assert dict(rows(branch)) == expected
    assert db.execute("SELECT sum(a) FROM t").fetchall() == [(sum(n % 100 for n in range(size)),)]


def test_cleanup_keeps_what_branches_and_tags_read_and_nothing_else(filled: Database, native_place: str) -> None:
    db = filled
    first = db.version()
    db.execute("UPDATE t SET a = a + 1 WHERE id < 500")
    db.branches.create("old", at=first)
    db.branches.create("young")
    db.execute("DELETE FROM t WHERE id < 100; CREATE TABLE u (id BIGINT PRIMARY KEY); INSERT INTO u VALUES (1)")
    db.tags.create("v1")
    db.execute("DROP TABLE u; UPDATE t SET a = 0")
    db.retain(db.version())
    before = {name: list(db.at(name).rows("main.public.t")) for name in ("old", "young", "v1")}
    db.gc(dry_run=False)
    assert {name: list(db.at(name).rows("main.public.t")) for name in before} == before
    assert list(db.at("v1").rows("main.public.u")) == [(1, {"id": 1})]
    with open_database(native_place, branch="young") as young:
        assert young.query("SELECT sum(a) AS s FROM t", as_of=first).to_pydict() == {"s": [499500]}
        young.retain(young.version())
        young.gc(dry_run=False)
        with pytest.raises(SqlError):
            young.query("SELECT * FROM t", as_of=first)
    assert db.gc().items == 0, "the other branch still reads it"
    assert counted(native_place, "past")[0] > 1000
    for name in ("old", "young"):
        db.branches.delete(name)
    db.tags.delete("v1")
    db.gc(dry_run=False)
    assert db.gc().items == 0
    assert counted(native_place, "past", "gone", "line") == [0, 0, 0]
    assert counted(native_place, "latest WHERE hex(key) LIKE '20%'") == [900]
    assert not list(db.verify())


def test_a_deleted_branch_is_gone_from_the_file_once_nothing_needs_it(filled: Database, native_place: str) -> None:
    db = filled
    db.branches.create("try")
    with open_database(native_place, branch="try") as branch:
        branch.execute("UPDATE t SET a = 7 WHERE id < 10")
        branch.branches.create("more", parent="try")
        db.branches.delete("try")
        with open_database(native_place, branch="more") as more:
            assert more.execute("SELECT sum(a) FROM t WHERE id < 10").fetchall() == [(70,)]
        db.gc(dry_run=False)
        assert counted(native_place, "line") == [2], "another one has history from it"
        db.branches.delete("more")
        db.gc(dry_run=False)
        tables = ("line", "line_latest", "line_past", "line_gone", "line_mask", "line_past_node", "line_commit")
        assert counted(native_place, *tables) == [0] * 7
        for use in (lambda: rows(branch), lambda: branch.execute("DELETE FROM t"), branch.version):
            with pytest.raises(NotFound):
                use()
    db.branches.create("try")
    assert counted(native_place, "line WHERE id = 3") == [1], "ids are not used again"


def test_a_deleted_branch_takes_no_more_commits(filled: Database, native_place: str) -> None:
    filled.branches.create("try")
    with open_database(native_place, branch="try") as branch:
        branch.execute("UPDATE t SET a = 7 WHERE id < 10")
        filled.branches.delete("try")
        with pytest.raises(UnknownBranchError):
            branch.execute("UPDATE t SET a = 8 WHERE id < 10")


@pytest.mark.slow
def test_parallel_readers_and_writers_work_on_a_branch(native_place: str, open_here: Any) -> None:
    db = open_here(native_place)
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)")
    size = 60_000
    db.bulk_load("t", pa.table({"id": list(range(size)), "a": list(range(size))}))
    db.branches.create("try")
    db.execute("DELETE FROM t WHERE id > 5")
    branch = open_here(native_place, branch="try")
    branch.execute("DELETE FROM t WHERE id >= 50000 AND id < 50010; UPDATE t SET a = 0 WHERE id < 5")
    expected = {n: 0 if n < 5 else n for n in range(size) if not 50000 <= n < 50010}
    with open_parallel(native_place, branch="try") as store:
        splits = store.splits("main.public.t", store.view(), parts=4)
        assert len(splits) == 4
        sizes = []
        found: dict[int, int] = {}
        for split in splits:
            part = {row["id"]: row["a"] for batch in split.read() for row in batch.to_pylist()}
            assert not part.keys() & found.keys()
            sizes.append(len(part))
            found |= part
        assert found == expected
        assert max(sizes) < 2 * min(sizes)
        some = store.splits("main.public.t", store.view(), filters=[Filter("id", "in", (4, 7, 50001))])
        assert [row["a"] for split in some for batch in split.read() for row in batch.to_pylist()] == [0, 7]
        changed = store.splits("main.public.t", store.view(mode="changes", since=1))
        assert sum(batch.num_rows for split in changed for batch in split.read()) == size + 14


def test_memory_has_no_branches_and_keeps_its_tags() -> None:
    with open_database(":memory:") as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        db.tags.create("v1")
        db.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(SqlError, match="no branches") as raised:
            db.branches.create("try")
        assert raised.value.sqlstate == "0A000"
        with pytest.raises(NotFound, match="v1"):
            db.retain(db.version())
        assert list(db.at("v1").rows("main.public.t")) == []


def steps_of(do: Callable[[], Any]) -> int:
    """How many steps SQLite takes for something, on all connections that are opened on the way."""
    total = 0

    def note(event: dict[str, Any]) -> None:
        nonlocal total
        total += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    def hook(connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, note)

    apsw.connection_hooks.append(hook)
    try:
        do()
    finally:
        apsw.connection_hooks.remove(hook)
    return total


def test_what_branches_tags_differences_and_merges_cost_does_not_grow_with_the_table(tmp_path: Path) -> None:
    costs = []
    for size in (2_000, 40_000):
        place = f"{tmp_path}/{size}.db"
        with open_database(place) as db:
            db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)")
            db.bulk_load("t", pa.table({"id": list(range(size)), "a": list(range(size))}))
        ids = ", ".join(str(n * size // 500) for n in range(500))

        def opened(do: Callable[[Database], Any], branch: str = "main", place: str = place) -> Callable[[], Any]:
            def run() -> None:
                with open_database(place, branch=branch) as db:
                    do(db)

            return run

        costs.append([
            steps_of(opened(lambda db: db.branches.create("try"))),
            steps_of(opened(lambda db: db.tags.create("v1"))),
            steps_of(opened(lambda db, ids=ids: db.execute(f"UPDATE t SET a = -1 WHERE id IN ({ids})"), "try")),
            steps_of(opened(lambda db: db.execute("SELECT * FROM t WHERE id BETWEEN 100 AND 150"), "try")),
            steps_of(opened(lambda db: db.execute("UPDATE t SET a = -2 WHERE id = 1"))),
            steps_of(opened(lambda db: list(db.diff("main", "try")))),
            steps_of(opened(lambda db: db.merge("try")))])  # fmt: skip
    for small, large in zip(*costs, strict=True):
        assert large <= 1.5 * small + 500, costs


def test_the_tables_that_hold_versions_are_named(filled: Database) -> None:
    connection = filled.session.connection
    assert [each.name for each in version_tables(connection)] == ["latest", "past", "gone"]
    filled.branches.create("try")
    found = version_tables(connection)
    stored = {name for (name,) in connection.execute(
        "SELECT m.name FROM sqlite_schema m JOIN pragma_table_info(m.name) c WHERE m.type = 'table' "
        "AND c.name = 'key'")}  # fmt: skip
    assert {each.name for each in found} == stored
    assert [each.name for each in found if each.has_values] == ["latest", "past", "line_latest", "line_past"]
