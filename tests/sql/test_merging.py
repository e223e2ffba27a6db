"""Merges of SQL tables: rules that merged rows break, and definitions that both sides changed."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ontolake.errors import Invalid, NotFound
from ontolake.history import ConflictKind, MergeConflictError, Resolution
from ontolake.sql import Database, SqlError, TransactionError
from ontolake.sql.keyspace import keys

Forked = Callable[..., tuple[Database, Database]]


@pytest.fixture(params=["pages", "native"])
def forked(request: pytest.FixtureRequest, open_here: Any, tmp_path: Path) -> Forked:
    """Runs statements, then gives the database on `main` and on a branch `try` of it."""

    def fork(*statements: str) -> tuple[Database, Database]:
        name = secrets.token_hex(6)
        url = f"memory://{name}" if request.param == "pages" else f"{tmp_path}/{name}.db"
        db = open_here(url)
        for statement in statements:
            db.execute(statement)
        db.branches.create("try")
        return db, open_here(url, branch="try")

    return fork


def rows(db: Database, table: str = "t") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = db.query(f"SELECT * FROM {table} ORDER BY 1").to_pylist()
    return found


T = "CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT UNIQUE, b BIGINT, CHECK (a <= b))"


def test_a_unique_value_that_both_sides_gave_is_a_conflict_with_both_rows(forked: Forked) -> None:
    db, branch = forked(T)
    db.execute("INSERT INTO t VALUES (1, 5, 9)")
    branch.execute("INSERT INTO t VALUES (2, 5, 9), (3, 6, 9)")
    (conflict,) = db.merge("try", dry_run=True).conflicts
    assert (conflict.kind, conflict.key, conflict.rows) == (ConflictKind.UNIQUE, 2, (("main.public.t", 1),))
    with pytest.raises(MergeConflictError):
        db.merge("try")
    assert [row["id"] for row in rows(db)] == [1]
    db.branches.create("other")
    db.merge("try", strategy="ours")
    assert [row["id"] for row in rows(db)] == [1, 3]
    db.merge("try", "other", resolutions=[Resolution("main.public.t", 2, take="theirs")])
    assert [key for key, _ in db.at("other").rows("main.public.t")] == [2, 3]
    db.branches.create("named", at="main~1")
    db.merge("try", "named", resolutions=[Resolution("main.public.t", 1, take="ours")])
    assert [key for key, _ in db.at("named").rows("main.public.t")] == [1, 3], "the row that stays may be named"
    assert not list(db.verify())


def test_a_merged_row_that_breaks_a_check_is_a_conflict_that_a_side_settles(forked: Forked) -> None:
    db, branch = forked(T, "INSERT INTO t VALUES (1, 2, 9)")
    db.execute("UPDATE t SET b = 3")
    branch.execute("UPDATE t SET a = 8")
    (conflict,) = db.merge("try", dry_run=True).conflicts
    assert (conflict.kind, conflict.key) == (ConflictKind.VALUE, 1)
    assert (conflict.ours, conflict.theirs) == ({"id": 1, "a": 2, "b": 3}, {"id": 1, "a": 8, "b": 9})
    db.merge("try", resolutions=[Resolution("main.public.t", 1, take="theirs")])
    assert rows(db) == [{"id": 1, "a": 8, "b": 9}]
    assert db.execute("SELECT id FROM t WHERE a = 8").fetchall() == [(1,)]
    assert not list(db.verify())


@pytest.mark.parametrize(("rule", "kind"), [
    ("ALTER TABLE t ALTER COLUMN b SET NOT NULL", ConflictKind.VALUE),
    ("ALTER TABLE t ADD CONSTRAINT small CHECK (a < 10)", ConflictKind.VALUE),
    ("CREATE UNIQUE INDEX one_a ON t (a)", ConflictKind.UNIQUE),
])  # fmt: skip
@pytest.mark.parametrize("swapped", [False, True])
def test_a_rule_of_one_side_holds_for_rows_of_the_other(
    forked: Forked, rule: str, kind: ConflictKind, swapped: bool
) -> None:
    sides = forked("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, b BIGINT)", "INSERT INTO t VALUES (1, 1, 1)")
    strict, loose = reversed(sides) if swapped else sides
    strict.execute(rule)
    loose.execute("INSERT INTO t VALUES (2, 50, NULL), (3, 50, NULL), (4, 4, 4)")
    db = sides[0]
    conflicts = db.merge("try", dry_run=True).conflicts
    assert conflicts
    assert {conflict.kind for conflict in conflicts} == {kind}
    assert {conflict.key for conflict in conflicts} <= {2, 3}
    before = rows(db)
    with pytest.raises(MergeConflictError):
        db.merge("try")
    assert rows(db) == before
    if not swapped and kind is ConflictKind.VALUE:
        db.merge("try", strategy="ours")
        assert [row["id"] for row in rows(db)] == [1, 4]
    if swapped:
        db.branches.create("other")
        db.merge("try", strategy="ours")
        assert rows(db) == before
        db.execute("INSERT INTO t VALUES (5, 50, NULL)")
        db.merge("try", "other", strategy="theirs")
        assert [key for key, _ in db.at("other").rows("main.public.t")] == [1, 4]
    assert not list(db.verify())


def test_a_unique_index_of_the_source_counts_rows_that_nobody_changed(forked: Forked) -> None:
    db, branch = forked("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)", "INSERT INTO t VALUES (1, 5), (2, 6)")
    branch.execute("CREATE UNIQUE INDEX one_a ON t (a)")
    db.execute("INSERT INTO t VALUES (3, 5), (4, 7)")
    (conflict,) = db.merge("try", dry_run=True).conflicts
    assert (conflict.kind, {conflict.key, *(key for _, key in conflict.rows)}) == (ConflictKind.UNIQUE, {1, 3})
    db.execute("DELETE FROM t WHERE id = 3")
    result = db.merge("try")
    assert not any(any(each) for each in result.tables.values())
    assert [(one.key, [*(one.after or {})["indexes"]]) for one in db.changes(db.version() - 1)] == [(None, ["one_a"])]
    with pytest.raises(SqlError):
        db.execute("INSERT INTO t VALUES (9, 7)")
    assert not list(db.verify())


@pytest.mark.parametrize("layout", ["native", "pages"])
def test_rows_in_moved_ranges_take_part(layout: str, open_here: Any, tmp_path: Path) -> None:
    url, home = (f"{prefix}{tmp_path}/{name}.db" for prefix in ["" if layout == "native" else "file://"]
                 for name in ("main", "home"))  # fmt: skip
    db = open_here(url)
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, b BIGINT); CREATE INDEX by_a ON t (a)")
    db.execute("INSERT INTO t VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3)")
    table = db.catalog().by_full_name["main.public.t"]
    middle = table.prefix + keys.encode_tuple(table.key_types, [2])
    db.ranges.split(middle)
    db.ranges.move(middle, home)
    db.branches.create("try")
    branch = open_here(url, branch="try")
    branch.execute("UPDATE t SET a = a + 10")
    branch.execute("INSERT INTO t VALUES (4, 4, 4)")
    db.execute("UPDATE t SET b = b + 10 WHERE id > 1")
    db.execute("DELETE FROM t WHERE id = 1")
    (conflict,) = db.merge("try", dry_run=True).conflicts
    assert conflict.key == 1
    db.merge("try", strategy="ours")
    assert [(row["id"], row["a"], row["b"]) for row in rows(db)] == [(2, 12, 12), (3, 13, 13), (4, 4, 4)]
    assert db.execute("SELECT id FROM t WHERE a = 13").fetchall() == [(3,)]
    assert not list(db.verify())


def test_tables_of_one_side_come_over_with_rows_and_indexes(forked: Forked) -> None:
    db, branch = forked(T)
    branch.execute("CREATE TABLE u (id BIGINT PRIMARY KEY, x TEXT UNIQUE)")
    branch.execute("INSERT INTO u VALUES (1, 'a'), (2, 'b')")
    branch.execute("DROP TABLE t")
    db.execute("CREATE TABLE v (id BIGINT PRIMARY KEY)")
    result = db.merge("try")
    assert result.tables == {"main.public.u": (2, 0, 0)}
    assert sorted(db.catalog().by_full_name) == ["main.public.u", "main.public.v"]
    assert db.execute("SELECT id FROM u WHERE x = 'b'").fetchall() == [(2,)]
    branch.execute("UPDATE u SET x = 'c' WHERE id = 2")
    db.merge("try")
    assert rows(db, "u") == [{"id": 1, "x": "a"}, {"id": 2, "x": "c"}]
    assert not list(db.verify())
    assert result.commit is not None
    with pytest.raises(MergeConflictError, match="dropped the table"):
        db.revert(result.commit.id)
    db.revert(result.commit.id, strategy="theirs")
    assert sorted(db.catalog().by_full_name) == ["main.public.t", "main.public.v"]


def test_columns_added_on_both_sides_and_an_index_on_one_merge(forked: Forked) -> None:
    db, branch = forked("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    db.execute("ALTER TABLE t ADD COLUMN mine TEXT DEFAULT 'm'")
    db.execute("INSERT INTO t VALUES (3, 3, 'x')")
    branch.execute("ALTER TABLE t ADD COLUMN theirs BIGINT DEFAULT 7")
    branch.execute("CREATE INDEX by_a ON t (a)")
    branch.execute("UPDATE t SET theirs = 8 WHERE id = 2")
    db.merge("try")
    assert rows(db) == [{"id": 1, "a": 1, "mine": "m", "theirs": 7}, {"id": 2, "a": 2, "mine": "m", "theirs": 8},
                        {"id": 3, "a": 3, "mine": "x", "theirs": 7}]  # fmt: skip
    assert "by_a" in db.explain("SELECT id FROM t WHERE a = 3")
    assert db.execute("SELECT id FROM t WHERE a = 3").fetchall() == [(3,)]
    branch.execute("UPDATE t SET theirs = 9, a = 4 WHERE id = 1")
    db.execute("UPDATE t SET mine = 'n' WHERE id = 1")
    db.merge("try")
    assert rows(db)[0] == {"id": 1, "a": 4, "mine": "n", "theirs": 9}
    db.merge("main", "try")
    assert rows(branch) == rows(db)
    assert not list(db.verify())


def test_a_type_that_one_side_changed_holds_for_rows_of_both(forked: Forked) -> None:
    db, branch = forked("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    branch.execute("ALTER TABLE t ALTER COLUMN a TYPE DOUBLE PRECISION")
    db.execute("INSERT INTO t VALUES (3, 3)")
    db.execute("UPDATE t SET a = 20 WHERE id = 2")
    db.merge("try")
    assert rows(db) == [{"id": 1, "a": 1.0}, {"id": 2, "a": 20.0}, {"id": 3, "a": 3.0}]
    assert not list(db.verify())


def test_a_change_of_type_can_be_reverted(forked: Forked) -> None:
    db, _ = forked("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    db.execute("ALTER TABLE t ALTER COLUMN a TYPE TEXT")
    changed = db.version()
    db.revert(changed)
    assert rows(db) == [{"id": 1, "a": 1}, {"id": 2, "a": 2}]
    db.restore(changed)
    db.execute("INSERT INTO t VALUES (3, 'three')")
    with pytest.raises(MergeConflictError, match="types"):
        db.revert(changed)
    assert rows(db)[2] == {"id": 3, "a": "three"}
    assert not list(db.verify())


def test_definitions_that_collide_are_a_conflict_with_both(forked: Forked) -> None:
    db, branch = forked("CREATE TABLE t (id BIGINT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    db.execute("ALTER TABLE t ADD COLUMN x TEXT")
    branch.execute("ALTER TABLE t ADD COLUMN x BIGINT")
    branch.execute("INSERT INTO t (id) VALUES (2)")
    (conflict,) = db.merge("try", dry_run=True).conflicts
    assert (conflict.kind, conflict.key) == (ConflictKind.SCHEMA, None)
    assert [conflict.ours["columns"][1]["type"], conflict.theirs["columns"][1]["type"]] == ["TEXT", "BIGINT"]
    with pytest.raises(MergeConflictError):
        db.merge("try")
    db.merge("try", strategy="ours")
    assert rows(db) == [{"id": 1, "x": None}, {"id": 2, "x": None}]


def test_a_dropped_table_appears_in_the_changes(forked: Forked) -> None:
    db, _ = forked("CREATE TABLE t (id BIGINT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    before = db.version()
    db.execute("DROP TABLE t")
    assert [(one.table, one.key, one.kind.value) for one in db.changes(before)] == [
        ("main.public.t", 1, "delete"), ("main.public.t", 2, "delete"), ("main.public.t", None, "schema")]
    db.restore(before)
    assert [(one.key, one.kind.value) for one in db.changes(before + 1)] == [
        (None, "schema"), (1, "insert"), (2, "insert")]  # fmt: skip
    assert rows(db) == [{"id": 1}, {"id": 2}]


def test_tables_of_one_name_on_both_sides_are_a_conflict(forked: Forked) -> None:
    db, branch = forked("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    db.execute("CREATE TABLE u (id BIGINT PRIMARY KEY)")
    branch.execute("CREATE TABLE u (id BIGINT PRIMARY KEY, x TEXT)")
    branch.execute("INSERT INTO u VALUES (1, 'a')")
    (conflict,) = db.merge("try", dry_run=True).conflicts
    assert (conflict.kind, conflict.table) == (ConflictKind.SCHEMA, "main.public.u")
    db.branches.create("other")
    db.merge("try", strategy="theirs")
    assert rows(db, "u") == [{"id": 1, "x": "a"}]
    db.merge("try", "other", strategy="ours")
    assert list(db.at("other").rows("main.public.u")) == []
    assert not list(db.verify())


def test_many_rows_merge_by_column_with_their_index_entries(forked: Forked) -> None:
    db, branch = forked("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, b TEXT)", "CREATE INDEX by_a ON t (a)",
                        "INSERT INTO t SELECT value, value, 'x' FROM generate_series(1, 300) AS s(value)")  # fmt: skip
    branch.execute("UPDATE t SET a = a + 1000 WHERE id % 2 = 0")
    branch.execute("DELETE FROM t WHERE id > 250")
    db.execute("UPDATE t SET b = 'y' WHERE id <= 250")
    result = db.merge("try")
    assert result.tables["main.public.t"] == (0, 125, 50)
    assert db.execute("SELECT count(*), sum(a) FROM t WHERE b = 'y'").fetchall() == [(250, 125 * 1000 + 31375)]
    assert not list(db.verify())


def test_a_handle_that_only_reads_changes_nothing(forked: Forked, open_here: Any) -> None:
    db, branch = forked("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    branch.execute("INSERT INTO t VALUES (1)")
    reader = open_here(db.url, readonly=True)
    calls: list[Callable[[], Any]] = [
        lambda: reader.merge("try"), lambda: reader.tags.create("v"), lambda: reader.branches.create("x"),
        lambda: reader.branches.rename("try", "x"), lambda: reader.branches.protect("try"),
        lambda: reader.branches.delete("try")]  # fmt: skip
    for call in calls:
        with pytest.raises(TransactionError):
            call()
    assert [one.name for one in db.branches.list()] == ["main", "try"]
    assert not db.tags.list()
    reader.close()
    with pytest.raises(Invalid):
        reader.merge("try")


def test_tables_may_be_named_as_in_sql(forked: Forked) -> None:
    db, branch = forked(T, "CREATE TABLE u (id BIGINT PRIMARY KEY, a BIGINT)", "INSERT INTO t VALUES (1, 2, 9)",
                        "INSERT INTO u VALUES (1, 1)")  # fmt: skip
    branch.execute("UPDATE t SET b = 8; UPDATE u SET a = 8")
    db.execute("UPDATE t SET b = 7; UPDATE u SET a = 7")
    assert db.blame("t", 1)["b"].id == db.blame("main.public.t", 1)["b"].id
    assert [one.row and one.row["a"] for one in db.history("public.u", 1)] == [7, 1]
    assert list(db.snapshot().rows("u")) == [(1, {"id": 1, "a": 7})]
    before = db.version()
    for wrong in ({"tt": "ours"}, {"": "ours"}, {5: "ours"}):
        with pytest.raises((NotFound, Invalid)):
            db.merge("try", strategy=wrong)  # type: ignore[arg-type]
    for tables in (["nothing"], "t", 5, [None]):
        with pytest.raises((NotFound, Invalid)):
            db.restore("main~1", tables)  # type: ignore[arg-type]
    assert db.version() == before
    db.merge("try", strategy={"t": "theirs"}, resolutions=[Resolution("u", 1, "a", "ours")])
    assert (rows(db)[0]["b"], rows(db, "u")[0]["a"]) == (8, 7)
    db.restore("main~1", ["t"])
    assert (rows(db)[0]["b"], rows(db, "u")[0]["a"]) == (7, 7)


def test_a_name_of_two_tables_is_refused(forked: Forked) -> None:
    db, _ = forked(T, "CREATE SCHEMA s", "CREATE TABLE s.t (id BIGINT PRIMARY KEY)", "INSERT INTO t VALUES (1, 2, 9)")
    with pytest.raises(Invalid, match=r"main.public.t or main.s.t"):
        db.blame("t", 1)
    assert db.blame("public.t", 1)
