"""Intents: the rows that a session has declared and not yet committed, by type and key. The last one counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from ontolake.model.types import TypeInfo

Row = tuple[Any, ...]


class Intents:
    """What is to be, in the order in which it was first declared."""

    def __init__(self) -> None:
        self._rows: dict[TypeInfo, dict[Any, Row]] = {}
        self._bulk: dict[TypeInfo, Collection[Row]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._rows.values())) + sum(map(len, self._bulk.values()))

    def add(self, rows: Iterable[tuple[TypeInfo, Row]]) -> None:
        """Add rows that may repeat each other and what was declared before."""
        for info, row in rows:
            known = self._rows.get(info)
            if known is None:
                known = self._rows[info] = self._unfolded(info)
            known[row[0] if info.kind == "entity" else row[: len(info.keys)]] = row

    def add_unique(self, info: TypeInfo, rows: Collection[Row], unique: bool) -> None:
        """Add many rows of one type. If no key repeats and it is the first of its type, they are kept as they are."""
        if unique and info not in self._rows and info not in self._bulk:
            self._bulk[info] = rows
        else:
            self.add((info, row) for row in rows)

    def _unfolded(self, info: TypeInfo) -> dict[Any, Row]:
        return {info.key_of(row): row for row in self._bulk.pop(info, ())}

    def by_type(self) -> Iterator[tuple[TypeInfo, Collection[Row]]]:
        """Rows with unique keys, entities before relations."""
        found: list[tuple[TypeInfo, Collection[Row]]] = [
            *((info, rows.values()) for info, rows in self._rows.items()), *self._bulk.items()]
        yield from sorted(found, key=lambda item: item[0].kind)

    def clear(self) -> None:
        self._rows.clear()
        self._bulk.clear()
