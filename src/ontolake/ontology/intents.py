"""Intents: the rows that a session has declared and not yet committed, by type and key. The last one counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

from ontolake.model.types import TypeInfo

Row = tuple[Any, ...]


class Ends(NamedTuple):
    """The keys of a type that are to go: of entities, those whose relations go with them apart from the others."""

    keys: Collection[Row]
    cascading: Collection[Row]


class Intents:
    """What is to be, in the order in which it was first declared."""

    def __init__(self) -> None:
        self._rows: dict[TypeInfo, dict[Any, Row]] = {}
        self._bulk: dict[TypeInfo, Collection[Row]] = {}
        self._ended: dict[TypeInfo, dict[Row, bool]] = {}
        self._complete: dict[TypeInfo, bool] = {}

    def __len__(self) -> int:
        return sum(len(some) for held in (self._rows, self._bulk, self._ended) for some in held.values())

    @property
    def has_any(self) -> bool:
        """Whether anything was declared: that a type has no rows is something too."""
        return bool(len(self) or self._complete)

    def add(self, rows: Iterable[tuple[TypeInfo, Row]]) -> None:
        """Add rows that may repeat each other and what was declared before."""
        for info, row in rows:
            known = self._rows.get(info)
            if known is None:
                known = self._rows[info] = self._unfolded(info)
            known[row[0] if info.kind == "entity" else row[: len(info.keys)]] = row
            if self._ended:
                self._ended.get(info, {}).pop(row[: len(info.keys)], None)

    def add_unique(self, info: TypeInfo, rows: Collection[Row], unique: bool) -> None:
        """Add many rows of one type. If no key repeats and it is the first of its type, they are kept as they are."""
        if unique and info not in self._rows and info not in self._bulk and info not in self._ended:
            self._bulk[info] = rows
        else:
            self.add((info, row) for row in rows)

    def end(self, info: TypeInfo, keys: Iterable[Row], cascade: bool) -> None:
        """Let keys, each a tuple of encoded values, go."""
        if info in self._bulk:
            self._rows[info] = self._unfolded(info)
        rows, ended = self._rows.get(info, {}), self._ended.setdefault(info, {})
        for key in keys:
            rows.pop(key[0] if info.kind == "entity" else key, None)
            ended[key] = cascade

    def complete(self, info: TypeInfo, rows: Iterable[Row], cascade: bool) -> None:
        """Make these rows, and those declared before and after, all that a type has."""
        self.add((info, row) for row in rows)
        self._complete[info] = cascade

    def pending(self, info: TypeInfo, key: Row) -> Row | bool | None:
        """What was declared for a key: a row, False that it goes, None for nothing."""
        if info in self._bulk:
            self._rows[info] = self._unfolded(info)
        if key in self._ended.get(info, {}):
            return False
        return self._rows.get(info, {}).get(key[0] if info.kind == "entity" else key)

    def _unfolded(self, info: TypeInfo) -> dict[Any, Row]:
        return {info.key_of(row): row for row in self._bulk.pop(info, ())}

    def by_type(self) -> Iterator[tuple[TypeInfo, Collection[Row]]]:
        """Rows with unique keys, entities before relations."""
        found: list[tuple[TypeInfo, Collection[Row]]] = [
            *((info, rows.values()) for info, rows in self._rows.items()), *self._bulk.items()]
        yield from sorted(found, key=lambda item: item[0].kind)

    def ends(self) -> Iterator[tuple[TypeInfo, Ends]]:
        """The keys that are to go, relations before entities."""
        for info, ended in sorted(self._ended.items(), key=lambda item: item[0].kind, reverse=True):
            if ended:
                yield info, Ends([key for key, cascade in ended.items() if not cascade],
                                 [key for key, cascade in ended.items() if cascade])

    def completed(self) -> Iterator[tuple[TypeInfo, Collection[Row], bool]]:
        """The types that have no other rows than those declared, relations first: their keys, whether relations go."""
        for info, cascade in sorted(self._complete.items(), key=lambda item: item[0].kind, reverse=True):
            rows = [*self._rows.get(info, {}).values(), *self._bulk.get(info, ())]
            yield info, [row[: len(info.keys)] for row in rows], cascade

    def clear(self) -> None:
        for held in (self._rows, self._bulk, self._ended, self._complete):
            held.clear()
