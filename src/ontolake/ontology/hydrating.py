"""Objects from encoded rows. What is stored was validated when it was written, so it is not validated again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from pydantic import BaseModel

from ontolake.model.codecs import failure
from ontolake.model.entity import COMMIT
from ontolake.model.field import UNSET
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.errors import SchemaValidationError

Hydrate = Callable[[Iterable[tuple[Any, ...]]], list[Any]]

_set_dict = BaseModel.__dict__["__dict__"].__set__
_set_fields = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_set_extra = BaseModel.__dict__["__pydantic_extra__"].__set__
_set_private = BaseModel.__dict__["__pydantic_private__"].__set__


@cache
def hydrator(cls: Any) -> Hydrate:
    """A function that makes objects of a type from rows of its columns, in the order of the fields, and the commit."""
    info = type_info(cls)
    names = (*(column.name for column in info.all_columns), COMMIT)
    decoders = tuple((c.name, c.codec.decode) for c in info.all_columns if c.codec.decode is not None)
    required = tuple(column.name for column in info.all_columns if not column.nullable)
    fields_set = {column.name for column in info.all_columns}
    new = cls.__new__

    def hydrate(rows: Iterable[tuple[Any, ...]]) -> list[Any]:
        found: list[Any] = []
        keep = found.append
        for row in rows:
            values = dict(zip(names, row, strict=False))
            for name, decode in decoders:
                value = values[name]
                if value is not None:
                    try:
                        values[name] = decode(value)
                    except (ValueError, KeyError, TypeError) as error:
                        raise _damaged(info, values, name, error) from error
            if None in row:
                _complete(info, values, required)
            obj = new(cls)
            _set_dict(obj, values)
            _set_fields(obj, fields_set)
            _set_extra(obj, None)
            _set_private(obj, None)
            keep(obj)
        return found

    return hydrate


def _complete(info: TypeInfo, values: dict[str, Any], required: tuple[str, ...]) -> None:
    """Fill in what rows of an older schema lack, as far as there are defaults."""
    for name in required:
        if values[name] is None:
            default = info.by_name[name].default_value()
            if default is UNSET:
                raise SchemaValidationError(
                    f"commit {values[COMMIT]} has no value for it", type_name=info.name,
                    key=tuple(values[column.name] for column in info.keys), field=name,
                    hint="it was written under another schema; migrate the type")  # fmt: skip
            values[name] = default


def _damaged(info: TypeInfo, values: dict[str, Any], name: str, error: Exception) -> SchemaValidationError:
    return SchemaValidationError(
        f"the stored value {values[name]!r} of commit {values[COMMIT]} cannot be read: {failure(error)}",
        type_name=info.name, key=tuple(values[column.name] for column in info.keys), field=name)  # fmt: skip
