"""Merges of sequences, hidden keys, generated columns, comments and foreign keys."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ontolake.history import ChangeKind, ConflictKind, MergeConflictError
from ontolake.sql import Database, open_database

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


def rows(db: Database, sql: str) -> list[tuple[Any, ...]]:
    return db.execute(sql).fetchall()


def test_a_merged_sequence_goes_on_behind_the_higher_number(forked: Forked) -> None:
    db, branch = forked("CREATE TABLE t (id SERIAL PRIMARY KEY, a TEXT)", "INSERT INTO t (a) VALUES ('x')")
    branch.execute("INSERT INTO t (a) VALUES ('b'), ('c'), ('d')")
    db.execute("SELECT nextval('t_id_seq')")
    db.merge("try")
    db.execute("INSERT INTO t (a) VALUES ('after')")
    assert rows(db, "SELECT id, a FROM t ORDER BY id") == [(1, "x"), (2, "b"), (3, "c"), (4, "d"), (5, "after")]


def test_two_branches_may_give_one_number_and_a_merge_shows_it(forked: Forked) -> None:
    db, branch = forked("CREATE TABLE t (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a TEXT)")
    db.execute("INSERT INTO t (a) VALUES ('ours')")
    branch.execute("INSERT INTO t (a) VALUES ('theirs')")
    with pytest.raises(MergeConflictError) as raised:
        db.merge("try")
    assert [conflict.key for conflict in raised.value.conflicts] == [1]


def test_rows_without_a_key_of_both_branches_stay_apart(forked: Forked) -> None:
    db, branch = forked("CREATE TABLE t (a INT, b TEXT)", "INSERT INTO t VALUES (1, 'x'), (1, 'x')")
    db.execute("INSERT INTO t VALUES (2, 'same')")
    branch.execute("INSERT INTO t VALUES (2, 'same')")
    branch.execute("UPDATE t SET b = 'y' WHERE a = 1")
    db.merge("try")
    assert sorted(rows(db, "SELECT * FROM t")) == [(1, "y"), (1, "y"), (2, "same"), (2, "same")]
    change = next(each for each in db.changes(db.version() - 1) if each.kind is ChangeKind.UPDATE)
    assert (change.before, change.after) == ({"a": 1, "b": "x"}, {"a": 1, "b": "y"})
    assert list(db.verify()) == []


def test_generated_columns_follow_what_both_sides_changed(forked: Forked) -> None:
    db, branch = forked("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, "
                        "s INT GENERATED ALWAYS AS (a + b) STORED UNIQUE)",
                        "INSERT INTO t VALUES (1, 1, 1), (2, 5, 5)")
    db.execute("UPDATE t SET a = 10 WHERE id = 1")
    branch.execute("UPDATE t SET b = 20 WHERE id = 1")
    db.merge("try")
    assert rows(db, "SELECT * FROM t ORDER BY id") == [(1, 10, 20, 30), (2, 5, 5, 10)]
    assert list(db.verify()) == []


PARENT = "CREATE TABLE p (id INT PRIMARY KEY, v TEXT UNIQUE)"
CHILD = "CREATE TABLE c (id INT PRIMARY KEY, p INT CONSTRAINT points REFERENCES p{})"


@pytest.mark.parametrize("action", ["", " ON DELETE CASCADE", " ON DELETE SET NULL"])
@pytest.mark.parametrize("deletes", ["ours", "theirs"])
def test_a_merge_that_would_leave_an_orphan_is_a_conflict(forked: Forked, action: str, deletes: str) -> None:
    db, branch = forked(PARENT, CHILD.format(action), "INSERT INTO p VALUES (1, 'a'), (2, 'b')")
    deleting, adding = (db, branch) if deletes == "ours" else (branch, db)
    deleting.execute("DELETE FROM p WHERE id = 1")
    adding.execute("INSERT INTO c VALUES (7, 1), (8, 2)")
    with pytest.raises(MergeConflictError) as raised:
        db.merge("try")
    (conflict,) = raised.value.conflicts
    assert (conflict.table, conflict.key, conflict.kind) == ("main.public.c", 7, ConflictKind.VALUE)
    assert "points" in conflict.detail
    for side in ("ours", "theirs"):
        db.branches.create(side)
        db.merge("try", side, strategy=side)
        with open_database(db.url, branch=side) as merged:
            has_child = (side == "ours") != (deletes == "ours")
            assert rows(merged, "SELECT id FROM c ORDER BY id") == ([(7,), (8,)] if has_child else [(8,)])
            assert rows(merged, "SELECT id FROM p ORDER BY id") == ([(1,), (2,)] if has_child else [(2,)])
            assert list(merged.verify()) == []


def test_a_foreign_key_that_the_source_brings_is_asked_of_our_rows(forked: Forked) -> None:
    db, branch = forked(PARENT, "CREATE TABLE c (id INT PRIMARY KEY, p INT)", "INSERT INTO p VALUES (1, 'a')")
    branch.execute("ALTER TABLE c ADD CONSTRAINT points FOREIGN KEY (p) REFERENCES p")
    db.execute("INSERT INTO c VALUES (1, 9)")
    with pytest.raises(MergeConflictError):
        db.merge("try")
    db.execute("UPDATE c SET p = 1")
    db.merge("try")
    with pytest.raises(Exception, match="points"):
        db.execute("INSERT INTO c VALUES (2, 9)")


def test_sequences_and_comments_come_over_and_are_changes(forked: Forked) -> None:
    db, branch = forked("CREATE TABLE t (id INT PRIMARY KEY)")
    branch.execute("CREATE SEQUENCE s START WITH 5")
    branch.execute("COMMENT ON TABLE t IS 'things'")
    branch.execute("SELECT nextval('s')")
    db.merge("try")
    assert rows(db, "SELECT nextval('s')") == [(6,)]
    names = [(change.table, change.kind) for change in branch.changes(branch.version() - 3, branch.version() - 2)]
    assert names == [("main.public.s", ChangeKind.SCHEMA)]
    found = db.catalog().by_full_name["main.public.t"]
    assert [comment.text for comment in found.comments] == ["things"]
    db.revert(db.version() - 1)
    assert [comment.text for comment in db.catalog().by_full_name["main.public.t"].comments] == []
    assert not db.catalog().objects


def test_a_sequence_that_both_sides_changed_is_a_conflict(forked: Forked) -> None:
    db, branch = forked("CREATE SEQUENCE s")
    db.execute("ALTER SEQUENCE s INCREMENT BY 5")
    branch.execute("ALTER SEQUENCE s INCREMENT BY 7")
    with pytest.raises(MergeConflictError) as raised:
        db.merge("try")
    (conflict,) = raised.value.conflicts
    assert (conflict.table, conflict.kind) == ("main.public.s", ConflictKind.SCHEMA)
    db.merge("try", strategy="theirs")
    assert rows(db, "SELECT nextval('s') FROM generate_series(1, 2)") == [(1,), (8,)]


def test_things_of_one_name_on_both_sides_are_a_conflict(forked: Forked) -> None:
    db, branch = forked("CREATE TABLE t (id INT PRIMARY KEY)")
    db.execute("CREATE TABLE s (id INT PRIMARY KEY)")
    branch.execute("CREATE SEQUENCE s")
    with pytest.raises(MergeConflictError):
        db.merge("try")


UNIQUE = ("CREATE TABLE t (id INT PRIMARY KEY, u INT UNIQUE)", "INSERT INTO t VALUES (1, 1)")


def test_a_row_that_a_rule_kept_out_of_a_merge_is_gone_for_its_branch_too(forked: Forked) -> None:
    db, branch = forked(*UNIQUE)
    branch.execute("INSERT INTO t VALUES (2, 5)")
    db.execute("INSERT INTO t VALUES (3, 5)")
    db.merge("try", strategy="ours")
    assert rows(db, "SELECT * FROM t ORDER BY id") == [(1, 1), (3, 5)]
    db.merge("main", "try")
    assert rows(branch, "SELECT * FROM t ORDER BY id") == [(1, 1), (3, 5)]
    assert list(db.diff(db.at("main"), db.at("try"))) == []


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_what_merges_left_out_counts_whether_the_past_is_kept_or_not(forked: Forked, is_forgotten: bool) -> None:
    """Both branches keep their own row; then one takes in the other and keeps it once more, and is merged."""
    db, branch = forked(*UNIQUE)
    branch.execute("UPDATE t SET u = 2")
    db.execute("UPDATE t SET u = 3")
    db.branches.create("ours")
    db.branches.create("theirs", parent="try")
    db.merge("theirs", strategy="ours")
    db.merge("ours", "try", strategy="ours")
    db.merge("main", "try", strategy="ours")
    if is_forgotten:
        db.branches.delete("ours")
        db.retain(db.version())
        db.gc(dry_run=False)
    assert (rows(db, "SELECT * FROM t"), rows(branch, "SELECT * FROM t")) == ([(1, 3)], [(1, 2)])
    db.merge("try")
    assert rows(db, "SELECT * FROM t") == [(1, 2)]
