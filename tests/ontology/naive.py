"""A store as simple as it can be: a list of commits, and every question answered by looking at all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

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


class Written(NamedTuple):
    """One row as it was written: in which commit, under which version of its type, and its fields."""

    commit: int
    type_name: str
    version: int
    key: Any
    fields: dict[str, Any]


class NaiveHistory:
    """The same with schemas: types have versions, are migrated and dropped.

    With `partitioned`, reads see what was written under the current version; else all versions, and what is missing in
    a row is its field's default, or None where that is allowed.
    """

    def __init__(self, partitioned: bool) -> None:
        self.partitioned = partitioned
        self.head = 0
        self.rows: list[Written] = []
        self.versions: dict[str, int] = {}
        self.activations: dict[str, int] = {}
        self.dropped: set[str] = set()

    def commit(self, objects: list[Any]) -> int | None:
        wanted = {(type(obj).__name__, key_of(obj)): obj for obj in objects}
        changed = [(name, key, obj) for (name, key), obj in wanted.items()
                   if self.latest(type(obj)).get(key) != obj]  # fmt: skip
        if not changed:
            return None
        self.head += 1
        for name, key, obj in changed:
            self.versions.setdefault(name, 1)
            self.activations.setdefault(name, self.head)
            self._write(name, key, obj)
        return self.head

    def _write(self, name: str, key: Any, obj: Any) -> None:
        self.rows.append(Written(self.head, name, self.versions[name], key, obj.model_dump()))

    def migrate(self, changes: list[tuple[Any, Any, Callable[[dict[str, Any]], dict[str, Any]]]]) -> int | None:
        """Old class, new class and upgrader of each type. Types that nobody has written to have nothing to migrate."""
        known = [change for change in changes if change[0].__name__ in self.versions and not self.gone(change[0])]
        if not known:
            return None
        states = [(new, [new(**upgrade(obj.model_dump())) for obj in self.latest(old).values()])
                  for old, new, upgrade in known]  # fmt: skip
        self.head += 1
        for new, objects in states:
            self.versions[new.__name__] += 1
            self.activations[new.__name__] = self.head
            for obj in objects:
                self._write(new.__name__, key_of(obj), obj)
        return self.head

    def gone(self, cls: Any) -> bool:
        return cls.__name__ in self.dropped

    def history(self, cls: Any, until: int | None = None, since: int = 0) -> list[tuple[int, Any]]:
        if self.gone(cls):
            return []
        return [
            (row.commit, _read(cls, row.fields))
            for row in self.rows
            if row.type_name == cls.__name__ and since < row.commit <= (self.head if until is None else until)
            and (not self.partitioned or row.version == self.versions[row.type_name])
        ]  # fmt: skip

    def latest(self, cls: Any, until: int | None = None) -> dict[Any, Any]:
        return {key_of(obj): obj for _, obj in self.history(cls, until)}

    def diagnostics(self, at: int | None, *classes: Any) -> dict[str, Any]:
        activation = max(0 if self.gone(cls) else self.activations.get(cls.__name__, 0) for cls in classes)
        if not self.partitioned or at is None or at >= activation:
            return {}
        return {"reason": "commit_before_activation", "activation_commit_id": activation}


def _read(cls: Any, fields: dict[str, Any]) -> Any:
    missing = {column.name: None for column in type_info(cls).columns
               if column.name not in fields and column.nullable}  # fmt: skip
    return cls(**{**missing, **{name: value for name, value in fields.items() if name in cls.model_fields}})


class Step(NamedTuple):
    """One step of a traversal: over a relation type, from left to right or the other way."""

    relation: Any
    forward: bool


def ways(store: NaiveStore, starts: list[Any], steps: list[Step], until: int | None = None) -> list[tuple[Any, ...]]:
    """Every way from these entities: entity, relation, entity and so on, by looking at all relations for each step."""
    found = [(start,) for start in starts]
    for relation, forward in steps:
        left, right = relation.__ontolake_ends__
        there = store.latest(right if forward else left, until)
        links = [(link.left_key, link.right_key, link) for link in store.latest(relation, until).values()]
        if not forward:
            links = [(right_key, left_key, link) for left_key, right_key, link in links]
        found = [(*way, link, there[end]) for way in found for near, end, link in links
                 if near == key_of(way[-1]) and end in there]  # fmt: skip
    return found
