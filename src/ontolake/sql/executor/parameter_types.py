"""Parameters whose values are not known yet: their types are those that the places where they stand ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from ontolake.sql.executor.pg_types import UNKNOWN, PgType
from ontolake.sql.executor.typed import TypedSql

_PREFIX = "$parameter"


class ParameterTypes:
    """The types of the parameters of a statement, by their places from 0, as far as they are known."""

    def __init__(self, known: Mapping[int, PgType]) -> None:
        self.known = dict(known)

    def parameter(self, place: int) -> TypedSql:
        """A parameter in a statement that is compiled."""
        return TypedSql(f"{_PREFIX}{place}", self.known.get(place, UNKNOWN))

    def learn(self, sql: str, type: PgType) -> None:
        """Note that an expression without a type becomes one of this type. The first place that says so counts."""
        if sql.startswith(_PREFIX) and (place := sql.removeprefix(_PREFIX)).isdigit():
            self.known.setdefault(int(place), type)


_learning: ContextVar[ParameterTypes | None] = ContextVar("parameter_types", default=None)


def learning() -> ParameterTypes | None:
    """The types that the statement which is compiled now is asked for; None if it is to be run."""
    return _learning.get()


def expect(given: TypedSql, type: PgType) -> None:
    """Note that a parameter is to be of a type, if types are learned."""
    if (types := _learning.get()) is not None and given.type is UNKNOWN:
        types.learn(given.sql, type)


@contextmanager
def learned(types: ParameterTypes) -> Iterator[ParameterTypes]:
    """Compile statements with parameters without values, and learn their types."""
    token = _learning.set(types)
    try:
        yield types
    finally:
        _learning.reset(token)
