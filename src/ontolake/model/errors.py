"""What can be wrong with a type or with a value of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ontolake.errors import ExecutionFailure, SchemaFailure

if TYPE_CHECKING:
    from pydantic import ValidationError


class ModelError(ExecutionFailure):
    """The root of what is wrong with types, values and the use of them."""


class SchemaValidationError(SchemaFailure, ModelError, ValueError):
    """A type is not well-formed, or a value does not fit its type. Names the type, the key and the field."""

    def __init__(
        self, reason: str, *, type_name: str | None = None, key: Any = None, field: str | None = None,
        hint: str | None = None,
    ) -> None:  # fmt: skip
        where = type_name or ""
        if key is not None:
            where += f" {key!r}"
        if field is not None:
            where += f".{field}" if where else field
        super().__init__(f"{where}: {reason}" if where else reason, hint=hint)
        self.reason = reason
        self.type_name = type_name
        self.key = key
        self.field = field

    @classmethod
    def of(cls, error: ValidationError, type_name: str, key: Any = None) -> SchemaValidationError:
        """What pydantic found, told with the type, the key and the first field."""
        problems = error.errors(include_url=False, include_context=False)
        field = ".".join(str(part) for part in problems[0]["loc"]) or None
        told = "; ".join(_told(problem) for problem in problems[1:])
        reason = str(problems[0]["msg"]) + (f"; {told}" if told else "")
        return cls(reason, type_name=type_name, key=key, field=field)


def _told(problem: Any) -> str:
    place = ".".join(str(part) for part in problem["loc"])
    return f"{place}: {problem['msg']}" if place else str(problem["msg"])


class MetadataUnavailableError(ModelError, LookupError):
    """`meta()` was asked of an object that did not come out of a store."""

    def __init__(self, type_name: str) -> None:
        super().__init__(f"this {type_name} did not come out of a store, so nothing is known of its commit",
                         hint="meta() is for results of queries")
        self.type_name = type_name


class EndUnavailableError(ModelError, LookupError):
    """`left` or `right` was asked of a relation that did not come out of a store."""

    def __init__(self, type_name: str, side: str) -> None:
        super().__init__(f"this {type_name} did not come out of a store, so it has no {side}",
                         hint=f"{side}_key names the entity; {side} is for results of queries")
        self.type_name = type_name
        self.side = side


def names(items: Sequence[str]) -> str:
    """A list of names as text for a message."""
    return ", ".join(repr(item) for item in items)
