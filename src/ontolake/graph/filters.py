"""Filters in Lance's words: SQL text as users write it, or conditions on the fields of a class."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from ontolake.errors import Invalid, OntolakeError
from ontolake.graph.errors import in_short, reading
from ontolake.graph.types import GraphType
from ontolake.model import type_info
from ontolake.model.filters import Compare, Condition, Junction, Match, Member, Negation, Ref, Shape, Test

_TESTS = {"is_null": "IS NULL", "is_not_null": "IS NOT NULL", "is_true": "IS TRUE", "is_false": "IS FALSE"}
_SIGNS = {"==": "=", "!=": "<>"}


def to_sql(filter: Any) -> str | None:
    """A filter as SQL text. Raises `Invalid` for what cannot be one."""
    if filter is None or isinstance(filter, str):
        return filter or None
    if isinstance(filter, Condition):
        return _shape(filter.shape, iter(filter.values))
    raise Invalid(f"a filter is SQL text or a condition such as Customer.tier == 'gold', not {filter!r}")


_DAMAGE = ("LanceError(IO)", "Not found", "a Lance file", "corrupt", "Generic ")


@contextmanager
def filtering(kind: GraphType, filter: Any) -> Iterator[None]:
    """Tell whether a filter or what is stored is to blame: `Invalid`, or what `reading` raises."""
    with reading(kind.table):
        try:
            yield
        except (ValueError, OSError) as error:
            text = in_short(error)
            if filter is None or isinstance(error, OntolakeError) or any(sign in text for sign in _DAMAGE):
                raise
            raise Invalid(f"{kind.table}: the filter {to_sql(filter)!r} cannot be used: {text}",
                          hint=f"write SQL over the columns {', '.join(kind.by_name)}") from error


def literal(value: Any) -> str:
    """A value as SQL text."""
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, datetime):
        moment = value if value.tzinfo is None else value.astimezone(UTC)
        return f"timestamp '{moment.strftime('%Y-%m-%d %H:%M:%S.%f')}'"
    if isinstance(value, date):
        return f"date '{value.isoformat()}'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, str | UUID | Decimal):
        text = str(value).replace("'", "''")
        return f"'{text}'"
    raise Invalid(f"{value!r} cannot stand in a filter")


def _column(ref: Any) -> str:
    if not isinstance(ref, Ref) or ref.side or ref.path or ref.any_path is not None:
        raise Invalid(f"a filter of a table cannot look at {ref!r}", hint="compare fields of the type itself")
    return f"`{type_info(ref.owner).by_name[ref.name].stored}`"


def _shape(shape: Shape, values: Any) -> str:
    if isinstance(shape, Junction):
        left = _shape(shape.left, values)
        return f"({left} {shape.op.upper()} {_shape(shape.right, values)})"
    if isinstance(shape, Negation):
        return f"(NOT {_shape(shape.part, values)})"
    if isinstance(shape, Compare):
        sign = _SIGNS.get(shape.op, shape.op)
        other = _column(shape.other) if shape.other is not None else literal(next(values))
        return f"{_column(shape.ref)} {sign} {other}"
    if isinstance(shape, Member):
        found = [literal(next(values)) for _ in range(shape.size)]
        return f"{_column(shape.ref)} IN ({', '.join(found)})" if found else "false"
    if isinstance(shape, Test):
        return f"{_column(shape.ref)} {_TESTS[shape.op]}"
    assert isinstance(shape, Match)
    text = next(values)
    if shape.op == "startswith":
        return f"starts_with({_column(shape.ref)}, {literal(text)})"
    if shape.op == "endswith":
        return f"ends_with({_column(shape.ref)}, {literal(text)})"
    return f"contains({_column(shape.ref)}, {literal(text)})"
