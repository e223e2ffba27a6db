"""The keys of small tables, kept in memory while this process is the one that writes them.

Checks of small commits then need no scan. What is kept holds for exactly one version of a table: it is read once, and
moved on with every change that this process itself makes to that version.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ontolake.graph.manifest import Pin
from ontolake.graph.types import GraphType

if TYPE_CHECKING:
    from ontolake.graph.tables import Change

READ_ROWS = 20_000
"""Tables of up to so many rows have their keys read; reading more would cost more than it saves."""
KEPT_ROWS = 200_000
_KEPT_TABLES = 16

Place = tuple[str, str | None]


class KnownKeys:
    """Keys by table and line of versions."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Place, tuple[int, set[Any]]] = OrderedDict()
        self._lock = threading.Lock()

    def among(self, kind: GraphType, pin: Pin, keys: pa.Table, read: Callable[[], pa.Table]) -> list[bool] | None:
        """For each key whether a version has it; None if that is not known here. `read` gives all keys of it."""
        where = (kind.location, pin.branch)
        with self._lock:
            found = self._kept.get(where)
            if found is not None and found[0] == pin.version:
                self._kept.move_to_end(where)
                return [key in found[1] for key in _values(kind, keys)]
        if pin.rows > READ_ROWS or not all(_plain(kind.schema.field(name).type) for name in kind.keys):
            return None
        there = set(_values(kind, read()))
        answer = [key in there for key in _values(kind, keys)]
        with self._lock:
            self._kept[where] = (pin.version, there)
            while len(self._kept) > _KEPT_TABLES:
                self._kept.popitem(last=False)
        return answer

    def moved(self, kind: GraphType, before: Pin, change: Change, version: int) -> None:
        """A change has made a version of the same line from another one."""
        where = (kind.location, before.branch)
        with self._lock:
            found = self._kept.pop(where, None)
            if found is None or found[0] != before.version or change.replace:
                return
            new = change.puts.num_rows if change.puts is not None else 0
            gone = change.deletes.num_rows if change.deletes is not None else 0
            if len(found[1]) + new > KEPT_ROWS or new + gone > READ_ROWS:
                return
            if change.puts is not None:
                found[1].update(_values(kind, change.puts))
            if change.deletes is not None:
                found[1].difference_update(_values(kind, change.deletes))
            self._kept[where] = (version, found[1])

    def forget(self, branch: str) -> None:
        with self._lock:
            for where in [where for where in self._kept if where[1] == branch]:
                del self._kept[where]


def _plain(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind))


def _values(kind: GraphType, keys: pa.Table) -> list[Any]:
    columns = [keys.column(name).to_pylist() for name in kind.keys]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
