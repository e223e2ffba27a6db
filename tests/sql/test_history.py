"""Every version can be read, followed and branched; what is given up is removed and nothing else."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from marking import slow_after
from sql_work import work

from ontolake.errors import Invalid, NotFound
from ontolake.history import Branched, ChangeKind, Maintained, Ref, Versioned, net
from ontolake.sql import Database, SqlError, open_database
from ontolake.sql.keyspace import nodes, versions


@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 400))
def test_a_span_stands_under_an_ancestor_of_just_the_moments_in_it(first: int, length: int, moment: int) -> None:
    until = first + length
    node = nodes.node(first, until)
    assert first <= node < until
    if first <= moment < until:
        assert node in nodes.ancestors(moment, 400)
    assert len(nodes.ancestors(moment, 400)) <= 10


def fill(db: Database) -> list[dict[int, str]]:
    """Many versions of a few rows. Returns what each version had."""
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT); CREATE INDEX by_v ON t (v)")
    rng = random.Random(3)
    states: list[dict[int, str]] = [{}] * (db.version() + 1)
    now: dict[int, str] = {}
    for number in range(60):
        id, value = rng.randrange(8), f"{rng.randrange(5)}"
        if id in now and rng.random() < 0.4:
            db.execute("DELETE FROM t WHERE id = ?", (id,))
            now = {key: other for key, other in now.items() if key != id}
        else:
            sql = "INSERT INTO t VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET v = excluded.v || ?"
            db.execute(sql, (id, value, number))
            now = {**now, id: f"{value}{number}" if id in now else value}
        states.append(now)
    return states


def test_every_version_can_be_read_in_every_way(everywhere: Database) -> None:
    states = fill(everywhere)
    assert everywhere.version() == len(states) - 1
    for version in range(2, len(states), 3):
        state = states[version]
        found = everywhere.query("SELECT id, v FROM t", as_of=version)
        assert dict(zip(*found.to_pydict().values(), strict=True)) == state
        sql = f"SELECT id FROM t FOR SYSTEM_TIME AS OF {version} WHERE "
        assert {row[0] for row in everywhere.execute(f"{sql} id IN (1, 2, 3)")} == state.keys() & {1, 2, 3}
        assert {row[0] for row in everywhere.execute(f"{sql} id >= 4")} == {id for id in state if id >= 4}
        for value in set(state.values()):
            assert {row[0] for row in everywhere.execute(f"{sql} v = ?", (value,))} == {
                id for id in state if state[id] == value}  # fmt: skip


@pytest.mark.parametrize("size", slow_after(2, [7, 256, 1, 64, 1000]))
def test_batches_of_any_size_are_all_there_is(db: Database, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(versions, "BATCH", size)
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT); CREATE TABLE u (id BIGINT PRIMARY KEY)")
    db.execute("CREATE INDEX i ON t (v)")
    db.bulk_load("t", pa.table({"id": range(256), "v": [str(n % 9) for n in range(256)]}))
    db.bulk_load("u", pa.table({"id": range(64)}))
    version = db.version()
    db.execute("UPDATE t SET v = 'z' WHERE id % 3 = 0")
    db.execute("DELETE FROM t WHERE id % 5 = 0")
    left = [id for id in range(256) if id % 5]
    assert db.query("SELECT id FROM t").to_pydict()["id"] == left
    for at in (version, version + 1):
        assert sorted(db.query("SELECT id FROM t", as_of=at).to_pydict()["id"]) == list(range(256))
    assert sorted(db.query("SELECT id FROM t WHERE v = 'z'").to_pydict()["id"]) == [id for id in left if id % 3 == 0]
    assert db.query("SELECT id FROM u").num_rows == 64
    assert list(db.verify()) == []


def test_what_all_rows_have_changed_since_is_known_for_good_only_once_it_is_committed(everywhere: Database) -> None:
    everywhere.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    everywhere.bulk_load("t", pa.table({"id": range(100), "v": ["old"] * 100}))
    version = everywhere.version()

    def values(at: int) -> list[str]:
        return sorted(everywhere.query("SELECT v FROM t", as_of=at).to_pydict()["v"])

    for end in ("ROLLBACK", "COMMIT"):
        everywhere.execute("BEGIN; UPDATE t SET v = 'new'")
        assert values(version) == ["old"] * 100
        everywhere.execute(end)
        assert values(version) == values(version) == ["old"] * 100
    assert values(version + 1) == ["new"] * 100
    everywhere.execute("DELETE FROM t; INSERT INTO t VALUES (5, 'again')")
    assert [len(values(at)) for at in range(version - 1, version + 4)] == [0, 100, 100, 0, 1]
    assert values(version) == ["old"] * 100


def test_history_protocol(anywhere: Database) -> None:
    states = fill(anywhere)
    assert isinstance(anywhere, Versioned)
    assert isinstance(anywhere, Branched)
    assert isinstance(anywhere, Maintained)
    log = list(anywhere.commits())
    assert [commit.id for commit in log] == list(range(len(states) - 1, 0, -1))
    assert log[0].parents == (len(states) - 2,)
    assert "INSERT" in log[-3].metadata["statement"]
    assert [commit.id for commit in anywhere.commits(since=5, until=8)] == [8, 7, 6]
    now: dict[int, str] = {}
    for change in anywhere.changes(0):
        assert change.table == "main.public.t"
        if change.kind is ChangeKind.SCHEMA:
            assert (change.commit, change.key) in ((1, None), (2, None))
            continue
        assert (change.before or {}).get("v") == now.get(change.key)
        if change.kind is ChangeKind.DELETE:
            del now[change.key]
        else:
            assert change.after is not None
            now[change.key] = change.after["v"]
        assert now == states[change.commit]
    early, late = anywhere.snapshot(20), anywhere.at(Ref.parse("@50"))
    assert late.tables() == ["main.public.t"]
    assert {key: row["v"] for key, row in late.rows("main.public.t")} == states[50]
    assert late.arrow("main.public.t").num_rows == len(states[50])
    touched = {change.key for change in anywhere.diff(early, late)}
    assert touched == {id for id in range(8) if states[20].get(id) != states[50].get(id)}
    with pytest.raises(NotFound):
        list(late.rows("main.public.u"))
    with pytest.raises(Invalid):
        anywhere.at(Ref.parse("@x"))
    with pytest.raises(NotFound):
        anywhere.snapshot(999)
    with pytest.raises(NotFound):
        list(anywhere.changes(999))


DEFINING = {
    "CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT)": (None, {"columns": ["id BIGINT", "a TEXT"]}),
    "ALTER TABLE t ADD COLUMN n BIGINT DEFAULT 5": ({}, {"columns": ["id BIGINT", "a TEXT", "n BIGINT"]}),
    "CREATE UNIQUE INDEX by_n ON t (n, id)": ({"indexes": []}, {"indexes": ["by_n"]}),
    "ALTER TABLE t ADD CONSTRAINT rule CHECK (n > 0)": ({"checks": []}, {"checks": ["rule"]}),
    "ALTER TABLE t RENAME COLUMN a TO b": ({}, {"columns": ["id BIGINT", "b TEXT", "n BIGINT"]}),
    "ALTER TABLE t DROP CONSTRAINT rule": ({"checks": ["rule"]}, {"checks": []}),
    "ALTER TABLE t ALTER COLUMN n TYPE TEXT": ({}, {"columns": ["id BIGINT", "b TEXT", "n TEXT"]}),
    "DROP INDEX by_n": ({"indexes": ["by_n"]}, {"indexes": []}),
    "ALTER TABLE t DROP COLUMN n": ({}, {"columns": ["id BIGINT", "b TEXT"]}),
    "ALTER TABLE t RENAME TO u": ({"name": "main.public.t"}, {"name": "main.public.u"}),
    "DROP TABLE u": ({"name": "main.public.u"}, None),
}
"""Statements that define, in turn, and what they change of the definition."""


def outline(definition: dict[str, Any]) -> dict[str, Any]:
    columns = [f"{one['name']} {one['type']}" for one in definition["columns"]]
    return {"name": definition["name"], "columns": columns, "indexes": [*definition["indexes"]],
            "checks": [*definition["checks"]]}


def test_what_defines_tables_is_in_changes_and_diffs(everywhere: Database) -> None:
    states: list[dict[str, Any] | None] = [None]
    for sql, (before, after) in DEFINING.items():
        start = everywhere.version()
        everywhere.execute(sql)
        found = [one for one in everywhere.changes(start) if one.kind is ChangeKind.SCHEMA]
        assert [one.key for one in found] == [None], f"{sql} changes one table, once, when it is done"
        old, new = (side and outline(side) for side in (found[0].before, found[0].after))
        assert found[0].table == (new or old or {})["name"]
        assert old == states[-1], sql
        assert (old is None, new is None) == (before is None, after is None), sql
        for side, expected in ((old, before), (new, after)):
            assert {name: (side or {})[name] for name in expected or {}} == (expected or {}), sql
        if old is not None and new is not None and old["name"] == new["name"]:
            assert [one._replace(commit=0) for one in everywhere.diff(start, everywhere.version())
                    if one.kind is ChangeKind.SCHEMA] == [found[0]._replace(commit=0)]
        states.append(new)
        if len(states) == 2:
            everywhere.execute("INSERT INTO t VALUES (1, 'one')")
    dropping = list(everywhere.changes(everywhere.version() - 1))
    assert [(one.kind.value, one.key) for one in dropping] == [("delete", 1), ("schema", None)]
    assert list(everywhere.diff(0, everywhere.version())) == []
    folded = [one for one in net(everywhere.changes(1, 4)) if one.key is None]
    assert [(one.kind.value, [*(one.after or {})["indexes"]]) for one in folded] == [("schema", ["by_n"])]


def now_after(moment: datetime) -> datetime:
    """The time, once the clock shows more than a moment."""
    deadline = time.monotonic() + 30
    while (now := datetime.now(UTC)) <= moment:
        assert time.monotonic() < deadline, "the clock stands still"
    return now


def test_as_of_a_time(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (1)")
    first = next(db.commits()).time
    assert first is not None
    between = now_after(first)
    now_after(between)
    db.execute("INSERT INTO t VALUES (2)")
    assert db.query("SELECT id FROM t", as_of=between).to_pydict() == {"id": [1]}
    text = between.replace(tzinfo=None).isoformat(" ")
    assert db.execute(f"SELECT id FROM t FOR SYSTEM_TIME AS OF '{text}'").fetchall() == [(1,)]
    joined = (f"SELECT a.id, b.id FROM t a LEFT JOIN t FOR SYSTEM_TIME AS OF TIMESTAMP '{text}' AS b ON a.id = b.id "
              "ORDER BY 1")
    assert db.execute(joined).fetchall() == [(1, 1), (2, None)]
    with pytest.raises(SqlError, match="no table"):
        db.query("SELECT id FROM t", as_of=between - timedelta(days=1))
    with pytest.raises(SqlError):
        db.query("SELECT id FROM t", as_of="yesterday")


def differences(db: Database, before: Any, after: Any) -> dict[tuple[str, Any], Any]:
    """The changes of rows; those of definitions must name every table that is on one side only."""
    found = list(db.diff(before, after))
    assert len({(change.table, change.key) for change in found}) == len(found)
    defined = {change.table for change in found if change.key is None}
    assert defined >= {*before.tables()} ^ {*after.tables()}
    return {(change.table, change.key): (change.before, change.after) for change in found if change.key is not None}


def expected_differences(before: Any, after: Any) -> dict[tuple[str, Any], Any]:
    old = {(table, key): row for table in before.tables() for key, row in before.rows(table)}
    new = {(table, key): row for table in after.tables() for key, row in after.rows(table)}
    return {key: (old.get(key), new.get(key)) for key in {*old, *new} if old.get(key) != new.get(key)}


def test_a_diff_is_what_differs_whatever_happened_in_between(everywhere: Database) -> None:
    fill(everywhere)
    for sql in ("CREATE TABLE u (id BIGINT PRIMARY KEY, x TEXT); INSERT INTO u VALUES (1, 'a'), (2, 'b')",
                "ALTER TABLE t ADD COLUMN w BIGINT DEFAULT 3", "UPDATE u SET x = 'c' WHERE id = 1",
                "ALTER TABLE u RENAME TO z", "CREATE TABLE u (id BIGINT PRIMARY KEY, x TEXT)",
                "INSERT INTO u VALUES (2, 'b')",
                "ALTER TABLE t ALTER COLUMN id TYPE TEXT", "DROP TABLE z", "DELETE FROM t WHERE id > '5'"):  # fmt: skip
        everywhere.execute(sql)
    newest = everywhere.version()
    rng = random.Random(9)
    for _ in range(12):
        first, second = (everywhere.snapshot(rng.randrange(2, newest + 1)) for _ in range(2))
        assert differences(everywhere, first, second) == expected_differences(first, second)
    everywhere.retain(newest - 2)
    everywhere.gc(dry_run=False)
    first, second = everywhere.snapshot(newest - 2), everywhere.snapshot()
    assert differences(everywhere, first, second) == expected_differences(first, second)


@pytest.mark.slow
def test_a_diff_between_branches_follows_both(branched_place: str, open_here: Any) -> None:
    db = open_here(branched_place)
    fill(db)
    db.branches.create("one", at=30)
    one = open_here(branched_place, branch="one")
    one.execute("UPDATE t SET v = 'one' WHERE id = (SELECT min(id) FROM t); INSERT INTO t VALUES (50, 'x')")
    one.branches.create("two", parent="one")
    two = open_here(branched_place, branch="two")
    two.execute("DELETE FROM t WHERE id = 50; INSERT INTO t VALUES (51, 'y')")
    moments = [db.snapshot(), db.snapshot(20), db.snapshot(40), one.snapshot(), two.snapshot(), one.snapshot(25)]
    for first in moments:
        for second in moments:
            assert differences(db, first, second) == expected_differences(first, second)


def test_a_diff_with_another_database_looks_at_all_rows(open_here: Any, native_place: str) -> None:
    one, two = open_here(":memory:"), open_here(native_place)
    for db, value in ((one, "a"), (two, "b")):
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        db.execute("INSERT INTO t VALUES (1, 'same'), (2, ?)", (value,))
    found = list(one.diff(one.snapshot(), two.snapshot()))
    assert [(change.key, change.before, change.after) for change in found] == [
        (2, {"id": 2, "v": "a"}, {"id": 2, "v": "b"})]  # fmt: skip


def test_a_diff_reads_what_changed_and_not_the_rest(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    db.bulk_load("t", pa.table({"id": range(20_000), "v": ["x"] * 20_000}))
    before = db.snapshot()
    db.execute("UPDATE t SET v = 'y' WHERE id IN (7, 15000); DELETE FROM t WHERE id = 9")
    after = db.snapshot()
    found: list[Any] = []
    steps = work(db, lambda: found.extend(db.diff(before, after)))
    assert sorted(change.key for change in found) == [7, 9, 15000]
    assert steps * 20 < work(db, lambda: list(after.rows("main.public.t")))


def test_dropped_tables_and_old_columns_can_be_read_as_they_were(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT); INSERT INTO t VALUES (1, 'x')")
    version = db.version()
    db.execute("ALTER TABLE t RENAME COLUMN a TO b; DROP TABLE t; CREATE TABLE t (z BIGINT PRIMARY KEY)")
    assert db.query("SELECT * FROM t", as_of=version).to_pydict() == {"id": [1], "a": ["x"]}
    assert db.query("SELECT * FROM t").to_pydict() == {"z": []}


def size(db: Database) -> int:
    found: Any = db._session.connection.execute("SELECT count(*) FROM kv").get
    return int(found)


def test_gc_removes_only_what_nobody_can_read(everywhere: Database) -> None:
    states = fill(everywhere)
    assert everywhere.gc().items == 0
    everywhere.retain(30)
    before = size(everywhere)
    counted = everywhere.gc(dry_run=True)
    assert counted.items > 0
    assert size(everywhere) == before
    assert everywhere.gc(dry_run=False) == counted
    assert size(everywhere) == before - counted.items
    for version in range(30, len(states)):
        found = everywhere.query("SELECT id, v FROM t", as_of=version)
        assert dict(zip(*found.to_pydict().values(), strict=True)) == states[version], version
    with pytest.raises(SqlError, match="no version 29"):
        everywhere.query("SELECT id FROM t", as_of=29)
    with pytest.raises(NotFound):
        list(everywhere.changes(20))
    assert list(everywhere.verify()) == []
    everywhere.retain(10)
    assert everywhere.gc().items == 0


def test_gc_removes_dropped_tables_and_indexes(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT); CREATE INDEX i ON t (v)")
    db.execute("CREATE TABLE u (id BIGINT PRIMARY KEY)")
    db.bulk_load("t", pa.table({"id": range(100), "v": ["x"] * 100}))
    db.execute("DROP INDEX i")
    dropped = db.version()
    db.execute("DROP TABLE t; INSERT INTO u VALUES (1)")
    db.retain(dropped)
    assert db.gc(dry_run=False).items >= 100
    assert db.query("SELECT count(*) AS n FROM t", as_of=dropped).to_pydict() == {"n": [100]}
    db.retain(db.version())
    assert db.gc(dry_run=False).items >= 100
    assert db.execute("SELECT * FROM u").fetchall() == [(1,)]
    assert not db._session.connection.execute("SELECT 1 FROM latest WHERE key >= x'3000' AND key < x'31'").fetchall()


def test_verify_finds_damage(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT); CREATE INDEX i ON t (v)")
    db.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    assert list(db.verify()) == []
    connection = db._session.connection
    connection.execute("DELETE FROM latest WHERE key = (SELECT max(key) FROM latest)")
    assert ["index i" in damage.where for damage in db.verify()] == [True]
    connection.execute("UPDATE latest SET value = x'0100000100' WHERE key >= x'20' AND key < x'21'")
    assert any(damage.where == "main.public.t" for damage in db.verify())


def test_branches_go_their_own_ways(branched_place: str, open_here: Any) -> None:
    db = open_here(branched_place)
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT); INSERT INTO t VALUES (1, 'a')")
    base = db.version()
    db.execute("UPDATE t SET v = 'b'")
    made = db.branches.create("early", at=base)
    assert (made.head, made.base, made.parent) == (base, base, "main")
    db.branches.create("late")
    early, late = open_here(branched_place, branch="early"), open_here(branched_place, branch="late")
    assert early.execute("SELECT v FROM t").fetchall() == [("a",)]
    assert late.execute("SELECT v FROM t").fetchall() == [("b",)]
    early.execute("INSERT INTO t VALUES (2, 'early')")
    assert db.execute("SELECT count(*) FROM t").fetchall() == [(1,)]
    listed = db.branches.list()
    assert listed[0].name == "main"
    assert {branch.name: branch.head for branch in listed} == dict.fromkeys(("main", "early", "late"), base + 1)
    changes = list(db.diff(db.snapshot(), db.snapshot(branch="early")))
    assert {change.key: change.kind for change in changes} == {1: ChangeKind.UPDATE, 2: ChangeKind.INSERT}
    assert next(db.commits(branch="early")).id == base + 1
    late.close()
    db.branches.delete("late")
    with pytest.raises(NotFound):
        open_database(branched_place, branch="late")
    with pytest.raises(NotFound):
        db.branches.create("never", at=99)


def test_two_writers_never_both_win(native_place: str, open_here: Any) -> None:
    first, second = open_here(native_place), open_here(native_place)
    first.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT); INSERT INTO t VALUES (1, 0)")
    first.execute("BEGIN")
    second.execute("BEGIN")
    assert first.execute("SELECT n FROM t").fetchall() == second.execute("SELECT n FROM t").fetchall() == [(0,)]
    first.execute("UPDATE t SET n = n + 1; COMMIT")
    second.execute("UPDATE t SET n = n + 1")
    with pytest.raises(SqlError) as raised:
        second.execute("COMMIT")
    assert raised.value.sqlstate == "40001"
    second.execute("UPDATE t SET n = n + 1")
    assert first.execute("SELECT n FROM t").fetchall() == [(2,)]


def test_what_another_connection_defines_is_seen(native_place: str, open_here: Any) -> None:
    first, second = open_here(native_place), open_here(native_place)
    first.execute("CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (1)")
    for sql in ("SELECT * FROM t WHERE id = 1", "SELECT * FROM t"):
        assert second.execute(sql).fetchall() == [(1,)]
    first.execute("ALTER TABLE t ADD COLUMN x TEXT DEFAULT 'new'")
    for sql in ("SELECT * FROM t WHERE id = 1", "SELECT * FROM t"):
        assert second.execute(sql).fetchall() == [(1, "new")]
