"""The fields of a row as v1 keeps them, one JSON text, and what stands for those that an older row lacks."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from ontolake.model import scalars
from ontolake.model.columns import Column, Factory
from ontolake.model.field import UNSET
from ontolake.ontology.errors import SchemaValidationError


def encoded_default(column: Column) -> Any:
    """What rows of an older schema, which lack a field, are shown with; `UNSET` if there is nothing to show."""
    default = column.default
    if isinstance(default, Factory) and default.make in (list, dict, set, frozenset):
        default = default.make()
    if column.nullable or default is UNSET or isinstance(default, Factory):
        return UNSET
    try:
        return column.encode(default, "")
    except SchemaValidationError:  # a default that the field would not take
        return UNSET


@cache
def _writer(scalar: str) -> Callable[[Any], str]:
    return scalars.get(scalar).fields_writer()


def fields_text(*parts: Any) -> str:
    """The JSON of a row from (name, type, encoded value) triples."""
    members = []
    for name, scalar, value in sorted(zip(parts[::3], parts[1::3], parts[2::3], strict=True)):
        text = "null" if value is None else _writer(scalar)(value)
        members.append(f"{json.dumps(name, ensure_ascii=False)}:{text}")
    return "{" + ",".join(members) + "}"
