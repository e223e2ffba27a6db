"""A store as simple as it can be: a list of commits, and every question answered by looking at all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ontolake.model import type_info

Predicate = Callable[[Any], bool | None]


class NaiveStore:
    """What typed stores promise, in the fewest lines."""

    def __init__(self) -> None:
        self.commits: list[list[Any]] = []
        self.pending: list[Any] = []

    def ensure(self, obj: Any) -> None:
        self.pending.append(obj.model_copy(deep=True))

    def commit(self) -> int | None:
        wanted = {(type(obj), key_of(obj)): obj for obj in self.pending}
        self.pending = []
        latest = {(type(obj), key_of(obj)): obj for _, obj in self.history()}
        changed = [obj for where, obj in wanted.items() if where not in latest or latest[where] != obj]
        if not changed:
            return None
        self.commits.append(changed)
        return len(self.commits)

    def history(self, cls: Any = None, until: int | None = None, since: int = 0) -> list[tuple[int, Any]]:
        return [
            (number, obj)
            for number, changed in enumerate(self.commits, 1)
            if since < number <= (len(self.commits) if until is None else until)
            for obj in changed
            if cls is None or type(obj) is cls
        ]

    def latest(self, cls: Any, until: int | None = None) -> dict[Any, Any]:
        return {key_of(obj): obj for _, obj in self.history(cls, until)}


def key_of(obj: Any) -> Any:
    keys = tuple(getattr(obj, column.name) for column in type_info(type(obj)).keys)
    return keys[0] if len(keys) == 1 else keys
