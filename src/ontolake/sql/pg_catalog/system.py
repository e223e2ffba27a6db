"""One catalog as system tables and functions show it, to one session."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import pyarrow as pa

from ontolake.sql.catalog.records import SqlCatalog
from ontolake.sql.errors import UnknownNameError
from ontolake.sql.executor import system_functions
from ontolake.sql.executor.formats import quote_ident
from ontolake.sql.pg_catalog import builtin, schema_tables, settings_table, tables
from ontolake.sql.pg_catalog.described import DescribedDatabase
from ontolake.sql.pg_catalog.functions import FUNCTIONS
from ontolake.sql.plan.foreign import ForeignTable

if TYPE_CHECKING:
    from ontolake.sql.commands.settings import Settings


class _Built:
    """The objects of a database, and the tables that were asked for. It lives as long as the catalog."""

    def __init__(self, catalog: SqlCatalog, database: str, session: SystemSession) -> None:
        self.db = DescribedDatabase(catalog, database, session.mounted, session.shown)
        self.tables: dict[tuple[str, str], pa.Table] = {}


_built: WeakKeyDictionary[SqlCatalog, dict[tuple[str, str | None], _Built]] = WeakKeyDictionary()


class SystemSession(NamedTuple):
    """What functions ask of a session: its settings, and how a search path that was set is followed."""

    settings: Settings
    follow: Callable[[], None]
    version: int
    mounted: Sequence[ForeignTable] = ()
    shown: str | None = None
    """What clients call the database, if not by its own name."""


class SystemCatalog:
    """The system tables of a catalog, and the answers of functions about it."""

    db: DescribedDatabase
    path: tuple[str, ...]
    user: str
    process: int
    version: int

    def __init__(self, catalog: SqlCatalog, database: str, path: Sequence[str], session: SystemSession) -> None:
        kept = _built.setdefault(catalog, {})
        if session.mounted:  # which change without the catalog
            self._built = _Built(catalog, database, session)
        else:
            called = database, session.shown
            if called not in kept:
                kept[called] = _Built(catalog, database, session)
            self._built = kept[called]
        self.db = self._built.db
        self.path = tuple(path)
        self._session = session
        self.user = self.db.owner
        self.process = os.getpid()
        self.version = session.version
        self.number = system_functions.number(self)

    def answer(self, name: str, arguments: Sequence[str | None]) -> str | None:
        """What a function gives. Raises `SqlError`."""
        function = FUNCTIONS.get(name)
        return None if function is None else function(self, arguments)

    def table(self, schema: str, name: str) -> pa.Table:
        """The rows of a system table. Raises `UnknownNameError`."""
        known = builtin.tables().get((schema, name))
        if known is None:
            raise UnknownNameError(f"there is no table {schema}.{name}", sqlstate="42P01")
        if name == "pg_settings" and schema == "pg_catalog":
            return builtin.arrow_table(known, settings_table.rows(self._session.settings))
        found = self._built.tables.get((schema, name))
        if found is None:
            fill = (tables.FILLED if schema == "pg_catalog" else schema_tables.FILLED).get(name)
            found = builtin.arrow_table(known, () if fill is None else fill(self.db))
            self._built.tables[schema, name] = found
        return found

    # types

    def user_type(self, oid: int) -> str | None:
        """The name of a type of the user's, as SQL writes it."""
        row = self._types().get(oid)
        if row is None:
            return None
        if row["typcategory"] == "A":
            return f"{self.user_type(row['typelem'])}[]"
        name, schema = quote_ident(row["typname"]), self.type_schema(oid) or ""
        return name if schema in self.path else f"{quote_ident(schema)}.{name}"

    def _types(self) -> dict[int, dict[str, Any]]:
        if self.db.user_types is None:
            self.db.user_types = {row["oid"]: row for row in tables.pg_type(self.db)
                                  if row["oid"] not in builtin.type_names()}
        return self.db.user_types

    def type_schema(self, oid: int) -> str | None:
        """The schema of a type."""
        row = self._types().get(oid) or builtin.types().get(builtin.type_names().get(oid, ""))
        if row is None:
            return None
        return next((name for name, number in self.db.schemas.items() if number == row["typnamespace"]), None)

    def find_type(self, schema: str | None, name: str) -> int | None:
        """The number of a type of the user's."""
        for each in [schema] if schema is not None else self.path:
            for oid, row in self._types().items():
                if row["typname"] == name and self.type_schema(oid) == each:
                    return oid
        return None

    def array_of(self, oid: int) -> int | None:
        """The number of the type of arrays of a type."""
        row = self._types().get(oid) or builtin.types().get(builtin.type_names().get(oid, ""))
        return int(str(row["typarray"])) or None if row is not None else None

    # settings

    def setting(self, name: str) -> str:
        """The value of a setting. Raises `UnknownNameError`."""
        return self._session.settings.get(name)

    def set(self, name: str, value: str | None, *, local: bool) -> str:
        """Set a setting. Raises `SqlError`."""
        settings = self._session.settings
        settings.set(name, None if value is None else [value], local=local)
        self._session.follow()
        return settings.get(name)
