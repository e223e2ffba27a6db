"""Cursors: the rows of a query as they were at DECLARE, read in steps and in any direction."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from ontolake.sql.errors import DuplicateNameError, SqlError, UnknownNameError, nearest
from ontolake.sql.results import Result


@dataclass
class OpenCursor:
    """The rows of a cursor and the row that it stands on: 0 is before the first, one more than there are the end."""

    rows: pa.Table
    scroll: bool
    hold: bool
    at: int = 0

    def move(self, way: str, count: int) -> pa.Table:
        """Move, and give the rows that were passed. Raises `SqlError` for a way back that is not allowed."""
        total = self.rows.num_rows
        if way in ("NEXT", "PRIOR"):
            way, count = ("FORWARD" if way == "NEXT" else "BACKWARD"), 1
        if way in ("FORWARD ALL", "BACKWARD ALL"):
            way, count = way.split()[0], total + 1
        if way in ("FIRST", "LAST"):
            way, count = "ABSOLUTE", 1 if way == "FIRST" else -1
        if way in ("ABSOLUTE", "RELATIVE"):
            target = self.at + count if way == "RELATIVE" else count if count >= 0 else total + 1 + count
            return self._stop_at(min(max(target, 0), total + 1), backward=way == "ABSOLUTE" and count < 0)
        if way == "BACKWARD":
            count = -count
        if count == 0:
            return self._stop_at(self.at, backward=False)
        if count > 0:
            begin, end = self.at, min(self.at + count, total)
            self.at = self.at + count if self.at + count <= total else total + 1
            return self.rows.slice(begin, max(end - begin, 0))
        self._check_scroll()
        last = self.at - 1
        first = max(last + count, 0)
        self.at = self.at + count if self.at + count >= 0 else 0
        return self.rows.take(pa.array(range(last - 1, first - 1, -1), pa.int64()))

    def _stop_at(self, target: int, *, backward: bool) -> pa.Table:
        """Go to a row and give it, if it is one."""
        is_row = 0 < target <= self.rows.num_rows
        if backward or target < self.at or (target == self.at and is_row):
            self._check_scroll()
        self.at = target
        return self.rows.slice(target - 1, 1) if is_row else self.rows.slice(0, 0)

    def _check_scroll(self) -> None:
        if not self.scroll:
            raise SqlError("the cursor can only go forward", sqlstate="55000", hint="declare it with SCROLL")


class Cursors:
    """The open cursors of a session, by name."""

    def __init__(self) -> None:
        self._open: dict[str, OpenCursor] = {}

    def check_free(self, name: str) -> None:
        """Raise `DuplicateNameError` if a cursor has this name."""
        if name in self._open:
            raise DuplicateNameError(f"the cursor {name} exists already", sqlstate="42P03", hint="CLOSE it first")

    def declare(self, name: str, rows: pa.Table, *, scroll: bool, hold: bool) -> None:
        """Open a cursor over rows."""
        self.check_free(name)
        self._open[name] = OpenCursor(rows, scroll, hold)

    def find(self, name: str) -> OpenCursor:
        """The cursor of this name. Raises `UnknownNameError`."""
        if name not in self._open:
            raise UnknownNameError(f"there is no cursor {name}", sqlstate="34000", hint=nearest(name, self._open))
        return self._open[name]

    def fetch(self, name: str, way: str, count: int) -> Result:
        """The next rows, as a way and a count say."""
        found = self.find(name).move(way, count)
        return Result(f"FETCH {found.num_rows}", found.num_rows, table=found)

    def move(self, name: str, way: str, count: int) -> Result:
        """Pass over rows."""
        found = self.find(name).move(way, count)
        return Result(f"MOVE {found.num_rows}", found.num_rows)

    def close(self, name: str | None) -> None:
        """Close a cursor, or all. Raises `UnknownNameError`."""
        if name is None:
            self._open.clear()
        else:
            self.find(name)
            del self._open[name]

    def end_transaction(self, *, committed: bool, before: frozenset[str]) -> None:
        """Close all cursors but held ones, if the transaction was committed or they are older than it."""
        self._open = {name: cursor for name, cursor in self._open.items()
                      if cursor.hold and (committed or name in before)}  # fmt: skip

    def names(self) -> frozenset[str]:
        return frozenset(self._open)
