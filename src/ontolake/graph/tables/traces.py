"""Traces of small changes: which rows a commit wrote, and which of their fields became others.

A commit carries them in its record, so that the past of a row is found without a look at every version. They hold no
values: what rows were before is known of those that this process wrote last, as fingerprints in memory.
"""

from __future__ import annotations

import base64
import hashlib
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ontolake.graph.commit.records import Pin
from ontolake.graph.tables.changes import TableChange
from ontolake.graph.tables.types import GraphType

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

MOST_ROWS = 16
"""Changes of more rows leave no trace."""
KEPT_ROWS = 1024
"""Rows of one line whose fingerprints are kept."""
_KEPT_LINES = 32

Trace = dict[str, int | None]
"""For each row that a commit wrote, by the sign of its key, the fields that became others, a bit for each of the type;
None if that is not known."""
Prints = tuple[bytes, ...]


def sign(kind: GraphType, keys: pa.Table) -> list[str]:
    """What stands for each key in a trace."""
    columns = [keys.column(name).cast(kind.schema.field(name).type).to_pylist() for name in kind.keys]
    return [base64.urlsafe_b64encode(_digest(repr(key).encode(), 9)).decode() for key in zip(*columns, strict=True)]


def changed_fields(kind: GraphType, mask: int) -> Collection[str]:
    """The names of fields that a trace says have changed."""
    return {field.name for number, field in enumerate(kind.fields) if mask >> number & 1}


class _Line:
    """Rows of one version of a line that were written last: fingerprints by sign, None for one that is not there."""

    def __init__(self, version: int, schema: str, rows: Mapping[str, Prints | None] | None = None) -> None:
        self.version, self.schema = version, schema
        self.rows: OrderedDict[str, Prints | None] = OrderedDict(rows or {})


class Traces:
    """The rows that this process wrote last, by line."""

    def __init__(self) -> None:
        self._lines: OrderedDict[tuple[str, str | None], _Line] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, kind: GraphType, pin: Pin, change: TableChange) -> Trace | None:
        """The trace of a change to what is pinned; None if it leaves none."""
        if not _is_small(change):
            return None
        with self._lock:
            line = self._lines.get((kind.location, pin.branch))
            known: Mapping[str, Prints | None] = {}
            if line is not None and (line.version, line.schema) == (pin.version, kind.hash):
                known = line.rows
            found: Trace = {}
            for key, prints in _written(kind, change).items():
                before = known.get(key)
                if prints is None or (key not in known and pin.rows):
                    found[key] = None
                else:
                    found[key] = sum(1 << number for number, one in enumerate(prints)
                                     if before is None or before[number] != one)  # fmt: skip
            return found

    def moved(self, kind: GraphType, before: Pin, change: TableChange, version: int, line: str | None) -> None:
        """A change has made a version of a line from what a pin shows, which may be on the line that it forked from."""
        with self._lock:
            known = self._lines.get((kind.location, before.branch))
            if line == before.branch:
                self._lines.pop((kind.location, line), None)
            if not _is_small(change) and change != TableChange():
                return
            same = known is not None and (known.version, known.schema) == (before.version, kind.hash)
            new = _Line(version, kind.hash, known.rows if same and known is not None else None)
            for key, prints in _written(kind, change).items():
                new.rows[key] = prints
                new.rows.move_to_end(key)
            while len(new.rows) > KEPT_ROWS:
                new.rows.popitem(last=False)
            self._lines[kind.location, line] = new
            while len(self._lines) > _KEPT_LINES:
                self._lines.popitem(last=False)

    def forget(self, branch: str) -> None:
        with self._lock:
            for where in [where for where in self._lines if where[1] == branch]:
                del self._lines[where]


def _is_small(change: TableChange) -> bool:
    rows = sum(table.num_rows for table in (change.puts, change.deletes) if table is not None)
    return 0 < rows <= MOST_ROWS and not change.replace


def _written(kind: GraphType, change: TableChange) -> dict[str, Prints | None]:
    """Fingerprints of the fields of rows that a small change puts, by sign; None for those that it takes away."""
    found: dict[str, Prints | None] = {}
    if change.puts is not None:
        columns = [_prints(change.puts.column(field.name).cast(field.arrow_type)) for field in kind.fields]
        found |= zip(sign(kind, change.puts), zip(*columns, strict=True), strict=True)
    if change.deletes is not None:
        found |= dict.fromkeys(sign(kind, change.deletes))
    return found


def _prints(column: Any) -> list[bytes]:
    if pa.types.is_fixed_size_list(column.type):
        return [_digest(row.values.to_numpy(zero_copy_only=False).tobytes() if row.is_valid else b"") for row in column]
    return [_digest(repr(value).encode(errors="surrogatepass")) for value in column.to_pylist()]


def _digest(data: bytes, size: int = 12) -> bytes:
    return hashlib.blake2b(data, digest_size=size).digest()
