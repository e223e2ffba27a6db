"""What queries answer with: lists with diagnostics, and paths."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Results(list[T]):
    """A list of results. `diagnostics` says why it may be emptier than expected; it is empty if there is nothing."""

    def __init__(self, items: Iterable[T] = (), diagnostics: dict[str, Any] | None = None) -> None:
        super().__init__(items)
        self.diagnostics: dict[str, Any] = diagnostics or {}


class Path(NamedTuple):
    """One way through a traversal: the entities along it, and the relations between them (none if not asked for)."""

    entities: tuple[Any, ...]
    relations: tuple[Any, ...] = ()

    @property
    def source(self) -> Any:
        """Where it starts."""
        return self.entities[0]

    @property
    def target(self) -> Any:
        """Where it ends."""
        return self.entities[-1]
