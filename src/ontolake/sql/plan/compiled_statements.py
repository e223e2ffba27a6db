"""Statements in DuckDB's SQL that are kept between runs, by the values of parameters and the types of columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any
from uuid import UUID

from sqlglot import exp

from ontolake.sql.executor.arrow_tables import ReadableTable
from ontolake.sql.executor.scopes import CompiledQuery
from ontolake.sql.syntax.statements import Parameters

_MOST = 8
"""Compiled forms that a statement keeps."""
_LONGEST = 200
"""Characters of a parameter up to which a form is kept for it."""
_PLAIN = frozenset({int, str, bool, type(None), float, Decimal, date, datetime, time, timedelta, UUID, bytes})
_MOMENTS = ("now", "today", "tomorrow", "yesterday")
"""Text that means another moment each time that it is read."""


class CompiledStatements:
    """What one statement was compiled to. Threads may share it."""

    def __init__(self, tree: exp.Expr) -> None:
        self._tree = tree
        self._kept: dict[object, CompiledQuery] = {}

    @cached_property
    def _is_fixed(self) -> bool:
        return not any(each.is_string and _is_momentary(each.name) for each in self._tree.find_all(exp.Literal))

    def key(self, parameters: Parameters, tables: Mapping[str, ReadableTable], about: object) -> object | None:
        """What a compiled form is kept under; None if it is for one run alone. `about` is what else it depends on."""
        if not self._is_fixed:
            return None
        given: Iterable[Any] = parameters.items() if isinstance(parameters, Mapping) else enumerate(parameters)
        values = []
        for name, value in given:
            kind = type(value)
            if kind not in _PLAIN:
                return None
            text = value if kind is str else repr(value)
            if len(text) > _LONGEST or (kind is str and _is_momentary(text)):
                return None
            values.append((name, kind, text))
        return (about, tuple(values), tuple((name, tuple(table.columns)) for name, table in tables.items()))

    def get(self, key: object) -> CompiledQuery | None:
        return self._kept.get(key)

    def put(self, key: object, query: CompiledQuery) -> None:
        """Keep a form."""
        if len(self._kept) >= _MOST:
            self._kept = {}
        self._kept[key] = query


def _is_momentary(text: str) -> bool:
    lowered = text.lower()
    return any(word in lowered for word in _MOMENTS)
