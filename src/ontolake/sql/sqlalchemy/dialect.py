"""The dialect: PostgreSQL's compiler, our DB-API module, and reflection by our catalog."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from sqlalchemy import pool, util
from sqlalchemy import types as generic
from sqlalchemy.dialects import postgresql as pg
from sqlalchemy.dialects.postgresql.base import PGDDLCompiler, PGDialect
from sqlalchemy.engine import URL, Connection
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.engine.interfaces import IsolationLevel
from sqlalchemy.exc import ArgumentError, CompileError
from sqlalchemy.schema import Computed

from ontolake.sql import dbapi
from ontolake.sql.sqlalchemy.reflection import CatalogReflection
from ontolake.sql.sqlalchemy.types import Json, Jsonb

_FLAGS: dict[str, Callable[[Any], Any]] = {
    "readonly": util.asbool, "takeover": util.asbool, "autocommit": util.asbool, "cache": int,
    "statement_timeout": float, "lock_timeout": float,
}  # fmt: skip
"""Options of `open_database` that are not text."""


_LEVELS: tuple[IsolationLevel, ...] = (
    "AUTOCOMMIT", "SERIALIZABLE", "REPEATABLE READ", "READ COMMITTED", "READ UNCOMMITTED")  # fmt: skip


class DefinitionCompiler(PGDDLCompiler):
    """PostgreSQL's definitions; a computed column is stored unless it asks not to be."""

    def visit_computed_column(self, generated: Computed, **kw: Any) -> str:
        if generated.persisted is False:
            raise CompileError("a computed column is stored: use Computed(…, persisted=True)")
        text = self.sql_compiler.process(generated.sqltext, include_table=False, literal_binds=True)
        return f"GENERATED ALWAYS AS ({text}) STORED"


class OntolakeDialect(CatalogReflection, PGDialect):  # type: ignore[misc]
    """`ontolake://`. Its name is that of PostgreSQL, whose SQL it speaks, so that what is meant for that applies."""

    driver = "ontolake"
    ddl_compiler = DefinitionCompiler
    supports_statement_cache = True
    supports_native_decimal = True
    supports_sane_rowcount = True
    supports_sane_multi_rowcount = True
    supports_constraint_comments = True
    supports_virtual_generated_columns = False
    _supports_create_index_concurrently = False
    _supports_drop_index_concurrently = False
    colspecs = util.update_copy(PGDialect.colspecs, {
        generic.JSON: Json, pg.JSON: Json, pg.JSONB: Jsonb,
    })  # fmt: skip

    def __init__(self, *, paramstyle: str = "numeric_dollar", **options: Any) -> None:
        """Parameters are `$1`, since `?` is an operator of JSON."""
        super().__init__(paramstyle=paramstyle, **options)  # type: ignore[no-untyped-call]

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        return dbapi

    @classmethod
    def get_pool_class(cls, url: URL) -> type[pool.Pool]:
        """Tables in memory are those of one connection."""
        return pool.StaticPool if _location(url) == ":memory:" else pool.QueuePool

    def create_connect_args(self, url: URL) -> tuple[list[str], dict[str, Any]]:
        """Raises `ArgumentError` for a URL that names a host."""
        options = {name: value for name, value in url.query.items() if name != "url"}
        return [_location(url)], {name: _FLAGS[name](value) if name in _FLAGS else value
                                  for name, value in options.items()}  # fmt: skip

    def initialize(self, connection: Connection) -> None:
        DefaultDialect.initialize(self, connection)

    def _get_server_version_info(self, connection: Connection) -> tuple[int, ...]:
        return 15, 0

    def _get_default_schema_name(self, connection: Connection) -> str:
        opened: Any = connection.connection.dbapi_connection
        return str(opened.database.schema)

    # transactions

    def get_isolation_level_values(self, dbapi_conn: Any) -> Sequence[IsolationLevel]:
        return _LEVELS

    def get_isolation_level(self, dbapi_connection: Any) -> IsolationLevel:
        level: IsolationLevel = "AUTOCOMMIT" if dbapi_connection.autocommit else dbapi_connection.isolation_level
        return level

    def set_isolation_level(self, dbapi_connection: Any, level: str) -> None:
        dbapi_connection.autocommit = level == "AUTOCOMMIT"
        dbapi_connection.isolation_level = "SERIALIZABLE" if level == "AUTOCOMMIT" else level

    def detect_autocommit_setting(self, dbapi_conn: Any) -> bool:
        return bool(dbapi_conn.autocommit)

    def do_ping(self, dbapi_connection: Any) -> bool:
        return not dbapi_connection.closed

    def is_disconnect(self, e: Exception, connection: Any, cursor: Any) -> bool:
        return isinstance(connection, dbapi.Connection) and connection.closed


def _location(url: URL) -> str:
    """What `open_database` is to open."""
    named = url.query.get("url")
    if url.host or url.port or url.username or url.password:
        raise ArgumentError(f"ontolake:// names no host: {url.host or url.username!r}; "
                            "use ontolake:///shop.db, ontolake:////data/shop.db or ontolake://?url=s3://bucket/shop")
    if named is not None and (url.database or not isinstance(named, str)):
        raise ArgumentError("ontolake:// takes a path or one url=, not both")
    return named if isinstance(named, str) else url.database or ":memory:"
