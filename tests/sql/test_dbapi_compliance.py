"""The DB-API module passes the suite that PEP 249's drivers are checked with, whole."""

from __future__ import annotations

import tempfile

import dbapi20

from ontolake.sql import dbapi


class TestCompliance(dbapi20.DatabaseAPI20Test):  # type: ignore[misc]
    driver = dbapi
    ddl1 = "CREATE TABLE dbapi20test_booze (name VARCHAR(20))"
    ddl2 = "CREATE TABLE dbapi20test_barflys (name VARCHAR(20), drink VARCHAR(30))"

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.connect_args = (f"{folder.name}/bar.db",)

    def test_nextset(self) -> None:
        connection = dbapi.connect(*self.connect_args)
        cursor = connection.cursor().execute("CREATE TABLE t (name TEXT); INSERT INTO t VALUES ('Stout'); "
                                             "SELECT count(*) FROM t; SELECT name FROM t")
        assert (cursor.description, cursor.nextset(), cursor.rowcount) == (None, True, 1)
        assert (cursor.nextset(), cursor.fetchall()) == (True, [(1,)])
        assert (cursor.nextset(), cursor.fetchall()) == (True, [("Stout",)])
        assert cursor.nextset() is None
        connection.close()

    def test_setoutputsize(self) -> None:
        connection = dbapi.connect(*self.connect_args)
        cursor = connection.cursor()
        cursor.setoutputsize(1)
        assert cursor.execute("SELECT 'whole'").fetchall() == [("whole",)]
        connection.close()
