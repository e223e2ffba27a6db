"""The history is there in SQL itself: as tables of queries, and as procedures."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any

import pytest

from ontolake.errors import Invalid
from ontolake.history import MergeConflictError, UnknownBranchError
from ontolake.sql import Database, SqlError, TransactionError, open_database
from ontolake.sql.conformance import SqlVersioning


@pytest.fixture(params=["pages", "native"])
def db(request: pytest.FixtureRequest, open_here: Any, native_place: str) -> Database:
    """A table with two rows, one of them changed."""
    db: Database = open_here(f"memory://{secrets.token_hex(6)}" if request.param == "pages" else native_place)
    fill(db)
    return db


@pytest.fixture(params=["pages", "native"])
def place(request: pytest.FixtureRequest, native_place: str) -> str:
    """A file that has not been made yet."""
    return f"file://{native_place}" if request.param == "pages" else native_place


def fill(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, note TEXT)")
    db.execute("INSERT INTO t VALUES (1, 1, 'one'), (2, 2, 'two')", message="two rows", author="ada")
    db.execute("UPDATE t SET a = 20 WHERE id = 2", message="a change", author="bob")


def test_the_log_is_a_table_that_joins_others(db: Database) -> None:
    assert db.execute("SELECT commit_id, author, message FROM onto_log() WHERE author IS NOT NULL ORDER BY 1"
                      ).fetchall() == [(2, "ada", "two rows"), (3, "bob", "a change")]
    joined = "SELECT t.note, l.message FROM t JOIN onto_log() AS l ON l.commit_id = t.id + 1 ORDER BY 1"
    assert db.execute(joined).fetchall() == [("one", "two rows"), ("two", "a change")]
    with_name = "WITH l AS (SELECT max(commit_id) AS newest FROM onto_log()) SELECT newest FROM l"
    assert db.execute(with_name).fetchall() == [(3,)]


def test_branches_tags_and_differences_are_tables(db: Database) -> None:
    db.execute("CALL onto_tag('v1', 'main~1')")
    db.execute("CALL onto_branch(?)", ("try",))
    db.execute("CALL onto_checkout('try')")
    db.execute("DELETE FROM t WHERE id = 1")
    db.execute("INSERT INTO t VALUES (3, 3, 'three')")
    assert db.execute("SELECT name, head, parent FROM onto_branches() ORDER BY 1").fetchall() == [
        ("main", 3, None), ("try", 5, "main")]
    assert db.execute("SELECT name, commit_id FROM onto_tags()").fetchall() == [("v1", 2)]
    diff = "SELECT kind, before_a, after_a FROM onto_diff(?, 'try', 't') ORDER BY coalesce(before_id, after_id)"
    assert db.execute(diff, ("main",)).fetchall() == [("delete", 1, None), ("insert", None, 3)]
    assert db.execute(diff, ("v1",)).fetchall() == [("delete", 1, None), ("update", 2, 20), ("insert", None, 3)]
    db.execute("CALL onto_checkout('main')")
    assert db.execute("SELECT count(*) FROM t").fetchall() == [(2,)]
    assert db.execute("CALL onto_merge('try')").fetchall() == [("fast_forward", 4, 1, 0, 1)]
    assert db.execute("CALL onto_revert(4)").fetchall() == [("merged", 5, 1, 0, 1)]
    assert db.execute("SELECT id FROM t ORDER BY 1").fetchall() == [(1,), (2,)]


def test_all_versions_of_a_table_and_those_of_a_span(db: Database) -> None:
    db.execute("DELETE FROM t WHERE id = 1")
    every = "SELECT id, a, commit_id, until_commit FROM t FOR SYSTEM_TIME ALL ORDER BY id, commit_id"
    assert db.execute(every).fetchall() == [(1, 1, 2, 4), (2, 2, 2, 3), (2, 20, 3, None)]
    span = "SELECT v.id, v.a FROM t FOR SYSTEM_TIME BETWEEN ? AND ? AS v ORDER BY 1, 2"
    assert db.execute(span, (3, 4)).fetchall() == [(1, 1), (2, 20)]
    assert db.execute(span, (2, 2)).fetchall() == [(1, 1), (2, 2)]
    found = db.execute("SELECT id, a, author FROM onto_history('t') ORDER BY id, commit_id").fetchall()
    assert found == [(1, 1, "ada"), (2, 2, "ada"), (2, 20, "bob")]
    assert db.execute("SELECT column_name, author FROM onto_blame('t', 2) ORDER BY 1").fetchall() == [
        ("a", "bob"), ("id", "ada"), ("note", "ada")]


def test_as_of_takes_parameters_expressions_and_tags(db: Database) -> None:
    then = "SELECT a FROM t FOR SYSTEM_TIME AS OF ? WHERE id = ?"
    assert db.execute(then, (2, 2)).fetchall() == [(2,)]
    assert db.execute(then, (3, 2)).fetchall() == [(20,)]
    assert db.execute(then, (datetime.now(UTC), 2)).fetchall() == [(20,)]
    assert db.execute("SELECT a FROM t FOR SYSTEM_TIME AS OF (1 + 1) WHERE id = 2").fetchall() == [(2,)]
    assert db.execute("SELECT a FROM t FOR SYSTEM_TIME AS OF CURRENT_TIMESTAMP WHERE id = 2").fetchall() == [(20,)]
    db.tags.create("v1", 2)
    assert db.execute("SELECT a FROM t FOR SYSTEM_TIME AS OF 'v1' WHERE id = 2").fetchall() == [(2,)]
    assert db.query("SELECT a FROM t WHERE id = 2", as_of="v1").to_pydict() == {"a": [2]}


def conflicting(db: Database) -> None:
    """Three conflicts: of a column in two rows, and of a row that one side deleted."""
    db.execute("INSERT INTO t VALUES (3, 3, 'three')")
    db.execute("CALL onto_branch('try')")
    db.execute("UPDATE t SET a = a + 100, note = 'ours' WHERE id < 3")
    db.execute("UPDATE t SET a = 33 WHERE id = 3")
    db.execute("CALL onto_checkout('try')")
    db.execute("UPDATE t SET a = a + 200 WHERE id < 3")
    db.execute("DELETE FROM t WHERE id = 3")
    db.execute("CALL onto_checkout('main')")


def test_conflicts_are_a_table_to_update(db: Database) -> None:
    assert db.execute("SELECT * FROM onto_conflicts").fetchall() == []
    conflicting(db)
    with pytest.raises(MergeConflictError):
        db.execute("CALL onto_merge('try')")
    found = db.execute("SELECT key, column_name, kind, base, ours, theirs, take FROM onto_conflicts c ORDER BY c.key")
    rows = found.fetchall()
    assert rows[:2] == [("1", "a", "divergent_update", "1", "101", "201", None),
                        ("2", "a", "divergent_update", "20", "120", "220", None)]  # fmt: skip
    assert (rows[2][0], rows[2][1], rows[2][5]) == ("3", None, None)
    assert db.execute("UPDATE onto_conflicts SET take = 'theirs' WHERE key = '1' AND table_name LIKE '%.t'").count == 1
    given = "UPDATE onto_conflicts SET value = ? + 1 WHERE column_name = 'a' AND key = ?"
    assert db.execute(given, (6, "2")).count == 1
    with pytest.raises(MergeConflictError) as left:
        db.execute("CALL onto_merge('try')")
    assert [conflict.key for conflict in left.value.conflicts] == [3]
    assert db.execute("SELECT key, take, value FROM onto_conflicts ORDER BY key").fetchall() == [
        ("1", "theirs", None), ("2", "value", "7"), ("3", None, None)]
    db.execute("UPDATE onto_conflicts SET take = 'ours' WHERE take IS NULL")
    assert db.execute("CALL onto_merge('try')").fetchall()[0][0] == "merged"
    assert db.execute("SELECT id, a FROM t ORDER BY id").fetchall() == [(1, 201), (2, 7), (3, 33)]
    assert db.execute("SELECT count(*) FROM onto_conflicts").fetchall() == [(0,)]


def test_a_row_can_be_given_and_a_decision_taken_back(db: Database) -> None:
    conflicting(db)
    with pytest.raises(MergeConflictError):
        db.execute("CALL onto_merge('try')")
    db.execute("UPDATE onto_conflicts SET take = 'base'")
    db.execute("""UPDATE onto_conflicts SET value = '{"id": 3, "a": 9, "note": "given"}' WHERE column_name IS NULL""")
    db.execute("UPDATE onto_conflicts SET take = NULL WHERE key = '2'")
    with pytest.raises(MergeConflictError) as left:
        db.execute("CALL onto_merge('try')")
    assert [conflict.key for conflict in left.value.conflicts] == [2]
    db.execute("UPDATE onto_conflicts SET take = 'ours' WHERE key = '2'")
    db.execute("CALL onto_merge('try')")
    assert db.execute("SELECT a, note FROM t ORDER BY id").fetchall() == [(1, "ours"), (120, "ours"), (9, "given")]


def test_a_decision_holds_only_for_the_conflict_that_it_was_made_for(db: Database) -> None:
    conflicting(db)
    with pytest.raises(MergeConflictError):
        db.execute("CALL onto_merge('try')")
    db.execute("UPDATE onto_conflicts SET take = 'theirs'")
    db.execute("UPDATE t SET a = 5 WHERE id = 1")
    with pytest.raises(MergeConflictError) as left:
        db.execute("CALL onto_merge('try')")
    assert [conflict.key for conflict in left.value.conflicts] == [1]
    db.execute("DELETE FROM t WHERE id = 3")
    db.execute("UPDATE onto_conflicts SET take = 'theirs' WHERE take IS NULL")
    db.execute("CALL onto_merge('try')")
    assert db.execute("SELECT id, a FROM t ORDER BY id").fetchall() == [(1, 201), (2, 220)]


def test_a_merge_under_way_is_there_for_every_handle_on_its_branch(place: str) -> None:
    with open_database(place) as db:
        fill(db)
        conflicting(db)
        with pytest.raises(MergeConflictError):
            db.execute("CALL onto_merge('try')")
        version = db.version()
    with open_database(place, readonly=True) as reader:
        assert reader.execute("SELECT key, source FROM onto_conflicts ORDER BY key").fetchall() == [
            ("1", "try"), ("2", "try"), ("3", "try")]  # fmt: skip
        with pytest.raises(TransactionError):
            reader.execute("UPDATE onto_conflicts SET take = 'ours'")
    with open_database(place, branch="try") as other:
        assert other.execute("SELECT * FROM onto_conflicts").fetchall() == [], "that is another branch"
    with open_database(place) as second:
        with pytest.raises(TransactionError), second.transaction():
            second.execute("UPDATE onto_conflicts SET take = 'ours'")
        second.execute("UPDATE onto_conflicts SET take = 'theirs' WHERE key = '1'")
        second.execute("UPDATE onto_conflicts SET value = 7 WHERE key = '2'")
    with open_database(place) as third:
        assert third.version() == version, "deciding makes no commit"
        third.execute("UPDATE onto_conflicts SET take = 'ours' WHERE take IS NULL")
        assert third.execute("CALL onto_merge('try')").fetchall()[0][0] == "merged"
        assert third.execute("SELECT id, a FROM t ORDER BY id").fetchall() == [(1, 201), (2, 7), (3, 33)]
        assert not list(third.verify())
    with open_database(place) as after:
        assert after.execute("SELECT * FROM onto_conflicts").fetchall() == []


def test_a_merge_under_way_ends_with_what_it_merges_and_with_erasure(place: str) -> None:
    with open_database(place) as db:
        fill(db)
        conflicting(db)
        with pytest.raises(MergeConflictError):
            db.execute("CALL onto_merge('try')")
        db.execute("""UPDATE onto_conflicts SET value = '{"id": 3, "a": 9, "note": "needle"}' WHERE key = '3'""")
        assert any(b"needle" in each for each in SqlVersioning.stored(place) or ())
        db.erase("t", 3, "asked for", dry_run=False)
        assert not any(b"needle" in each for each in SqlVersioning.stored(place) or ())
        assert db.execute("SELECT * FROM onto_conflicts").fetchall() == []
        with pytest.raises(MergeConflictError):
            db.execute("CALL onto_merge('try')")
        assert db.execute("SELECT count(*) FROM onto_conflicts").fetchall() == [(2,)]
        db.branches.delete("try")
        assert db.execute("SELECT * FROM onto_conflicts").fetchall() == []
        assert db.execute("UPDATE onto_conflicts SET take = 'ours'").count == 0


def test_what_settles_nothing_is_a_typed_error_and_decides_nothing(db: Database) -> None:
    conflicting(db)
    with pytest.raises(MergeConflictError):
        db.execute("CALL onto_merge('try')")
    for wrong in ("SET take = 'mine'", "SET take = 'value'", "SET key = '1'", "SET none = 1", "SET value = 'no row'",
                  "SET take = 'ours' WHERE none = 1", "SET take = 'ours' RETURNING key"):  # fmt: skip
        with pytest.raises((SqlError, Invalid)):
            db.execute(f"UPDATE onto_conflicts {wrong}")
    assert db.execute("SELECT count(take) FROM onto_conflicts").fetchall() == [(0,)]


def test_a_revert_with_conflicts_is_decided_in_the_same_way(db: Database) -> None:
    db.execute("UPDATE t SET a = 21 WHERE id = 2")
    with pytest.raises(MergeConflictError):
        db.execute("CALL onto_revert(3)")
    assert db.execute("SELECT source, ours FROM onto_conflicts").fetchall() == [("revert of 3", "21")]
    db.execute("UPDATE onto_conflicts SET take = 'theirs'")
    db.execute("CALL onto_revert(3)")
    assert db.execute("SELECT a FROM t WHERE id = 2").fetchall() == [(2,)]


def test_what_cannot_be_called_is_a_typed_error(db: Database) -> None:
    for statement in ("SELECT * FROM onto_lag()", "SELECT * FROM onto_diff('main')", "CALL onto_merg('x')",
                      "CALL onto_tag()", "SELECT * FROM onto_history('nothing')"):  # fmt: skip
        with pytest.raises(SqlError):
            db.execute(statement)
    with pytest.raises(UnknownBranchError):
        db.execute("CALL onto_checkout('nothing')")
    with pytest.raises(TransactionError), db.transaction():
        db.execute("CALL onto_branch('x')")
    assert [one.name for one in db.branches.list()] == ["main"]
