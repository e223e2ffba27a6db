"""An expression that was compiled: its SQL for DuckDB, its type, and what a query has to know about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ontolake.sql.executor.pg_types import UNKNOWN, PgType

_NONE: frozenset[str] = frozenset()


class TypedSql(NamedTuple):
    """An expression.

    `loose` are its columns outside aggregates, as they are written for DuckDB. `text` is that of a literal that has no
    type yet, `value` an integer that stands there.
    """

    sql: str
    type: PgType
    loose: frozenset[str] = _NONE
    aggregates: bool = False
    windows: bool = False
    volatile: bool = False
    text: str | None = None
    value: int | None = None
    spreads: bool = False
    """Whether it may give several rows for one."""
    inner: frozenset[str] = _NONE
    """Its columns inside aggregates."""

    @property
    def is_null(self) -> bool:
        """Whether it is a NULL without a type."""
        return self.sql == "NULL" and self.type is UNKNOWN


def merged(sql: str, type: PgType, parts: Iterable[TypedSql]) -> TypedSql:
    """An expression that is made of others."""
    loose, inner, aggregates, windows, volatile, spreads = _NONE, _NONE, False, False, False, False
    for each in parts:
        loose = loose | each.loose if each.loose else loose
        inner = inner | each.inner if each.inner else inner
        aggregates |= each.aggregates
        windows |= each.windows
        volatile |= each.volatile
        spreads |= each.spreads
    return TypedSql(sql, type, loose, aggregates, windows, volatile, None, None, spreads, inner)
