"""Databases with a layout of ours: opened at any URL, made where there is none, refused where they hold something else.

A layout is known by the application id and the user version of SQLite's header. A database of an older version is
opened as it is; whoever writes to it in the form of a newer one stamps it in the same transaction.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from ontolake import urls
from ontolake.engine.connection import connect, enlarge_cache, write_ahead
from ontolake.errors import Invalid, OntolakeError
from ontolake.folders import obstacle

SYNCHRONOUS = ("NORMAL", "FULL")

_STAMP = """SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version),
  EXISTS (SELECT 1 FROM sqlite_schema)"""


class DatabaseLayout(NamedTuple):
    """What a database of a kind looks like. `error(place, reason, hint=…)` is raised for one that looks otherwise."""

    application_id: int
    version: int
    page_size: int
    tables: str
    what: str
    """What the database is, as in "is a database, but not …"."""
    error: Callable[..., OntolakeError]
    new_version: int | None = None
    """The version of a database that is made, if it is not the newest one, `version`."""

    def open(
        self, url: str, *, branch: str = "main", readonly: bool, takeover: bool, synchronous: str, create: bool = True
    ) -> apsw.Connection:  # fmt: skip
        """A connection to the database at `url`, ready for use. Raises what `connect` does, and the layout's error.

        Without `create`, the database has to be there.
        """
        if synchronous not in SYNCHRONOUS:
            raise Invalid(f"synchronous cannot be {synchronous!r}", hint=f"use {' or '.join(SYNCHRONOUS)}")
        location = urls.parse(url)
        native = location.place is urls.Place.SQLITE
        is_file = location.place in (urls.Place.SQLITE, urls.Place.PAGE_FILE) and location.path != ":memory:"
        if create and not readonly and is_file:
            self._make_folder(Path(location.path).parent)
        connection = connect(url, branch=branch, readonly=readonly, takeover=takeover and not native, create=create)
        try:
            self._set_up(connection, url, native=native, synchronous=synchronous, readonly=readonly, create=create)
        except BaseException:
            connection.close(True)
            raise
        return connection

    def _make_folder(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            found = None if os.path.lexists(folder) else obstacle(folder)
            why = error.strerror if found is None else found.message.partition(" cannot be made: ")[2]
            raise Invalid(f"{folder} is no folder for {self.what}, and cannot be made one: {why}",
                          hint="choose another place, or check the rights") from error

    def _set_up(self, connection: apsw.Connection, name: str, *,
                native: bool, synchronous: str, readonly: bool, create: bool) -> None:
        """Prepare a connection for use, and a database that is empty with it. What is not ours is left as it is."""
        connection.pragma("busy_timeout", 5000)
        # Else SQLite plans a statement anew for every value that stands in a range, which costs more than running it.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        is_new = not self._is_ours(connection, name)
        if is_new and (readonly or not create):
            raise self.error(name, "is empty", hint="open it for writing first")
        if native:
            if is_new:
                connection.pragma("page_size", self.page_size)  # has no effect any more once the journal is a WAL
            if not readonly:
                write_ahead(connection)
            connection.pragma("synchronous", synchronous)
            enlarge_cache(connection)
        else:
            connection.pragma("cache_size", -64000)
        connection.pragma("temp_store", "MEMORY")
        connection.pragma("foreign_keys", True)
        if is_new:
            self._create(connection, name)

    def _create(self, connection: apsw.Connection, name: str) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            if not self._is_ours(connection, name):  # somebody else may have been quicker
                connection.execute(self.tables)
                connection.pragma("application_id", self.application_id)
                connection.pragma("user_version", self.new_version or self.version)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _is_ours(self, connection: apsw.Connection, name: str) -> bool:
        """Whether this is a database that this version can read; False for an empty one. Raises the layout's error."""
        # In one statement: another process may be making the database between two.
        stamp: tuple[Any, ...] = connection.execute(_STAMP).fetchall()[0]
        application, version, filled = stamp
        if application == self.application_id:
            if version > self.version:
                raise self.error(name, f"has layout version {version}; this version of Ontolake knows {self.version}",
                                 hint="open it with a newer version of Ontolake")
            return True
        if application or version or filled:
            raise self.error(name, f"is a database, but not {self.what}",
                             hint="onto info tells what it is; choose another place")
        return False
