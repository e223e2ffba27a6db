"""Merging the files of a type: what keeps the number of files small, and with it the cost of every read and commit.

A commit adds a small run. Once there are enough of one size they become one of the next size, so that a row is
rewritten a few times in all, however many commits follow. Rows that have a successor go to files of their own, which
only reads of the past look at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.arrow_values import numbers
from ontolake.ontology.arrow.physical import COMMIT, FIRST, REPLACES, SUPERSEDED, Type, by_key, concat, flags, living
from ontolake.ontology.repository.objects.files import Files, write_file
from ontolake.ontology.repository.objects.layout import DataFile, TypeState
from ontolake.ontology.repository.objects.read.scan import same_keys
from ontolake.ontology.sizes import DEFAULT, Sizes

Place = Callable[[str], str]
"""Where a merged file goes: given `run` or `past`."""


class Part(NamedTuple):
    """A file, or one that is not written yet."""

    file: DataFile
    table: pa.Table | None = None


class Merged(NamedTuple):
    """The files of a type after merging, and what must be written for it: tables and bytes by path."""

    state: TypeState
    objects: dict[str, bytes]
    tables: dict[str, tuple[DataFile, pa.Table]]


def level_of(rows: int, sizes: Sizes = DEFAULT) -> int:
    """The size class of a new run of so many rows."""
    level, size = 0, sizes.level_rows
    while rows >= size:
        level, size = level + 1, size * sizes.fan
    return level


def tidy(info: Type, state: TypeState, files: Files, place: Place, *, fresh: dict[str, pa.Table] | None = None
         ) -> Merged:  # fmt: skip
    """Merge what is due. `fresh` has tables of files that are not written yet, which is no reason to read them."""
    return _Merge(info, state, files, place, fresh or {}).tidy()


def merge_all(info: Type, state: TypeState, files: Files, place: Place) -> Merged:
    """Merge everything into one run and one file of the past, whatever it takes."""
    return _Merge(info, state, files, place, {}).everything()


def parted(info: Type, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Split rows of neighbouring runs into the last row of every key, and the others with their successors' commits.

    A merged run has only the last state of a key; `FIRST` says when its first one was, which is the successor. What
    that one replaced in older runs, the last one does now.
    """
    rows = by_key(info, rows)
    replaced = same_keys(info, rows)
    if not replaced.any():
        return rows, rows.slice(0, 0)
    first = _first(rows)
    if FIRST in rows.column_names:
        rows = rows.drop_columns([FIRST])
    begins = np.append(True, ~replaced[:-1])
    below = None
    if REPLACES in rows.column_names:
        below = rows.column(REPLACES).filter(pa.array(begins))
        rows = rows.drop_columns([REPLACES])
    old = rows.filter(pa.array(replaced)).append_column(SUPERSEDED, pa.array(first[1:][replaced[:-1]], pa.int64()))
    kept = rows.filter(pa.array(~replaced))
    if below is not None:
        kept = kept.append_column(REPLACES, below)
    return kept.append_column(FIRST, pa.array(first[begins], pa.int64())), old


def settled(kept: pa.Table, old: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Of what lies at the bottom, keys that have ended go to the other rows: nothing below has to be hidden.

    Only histories look at such a row, whose own commit takes the place of a successor's.
    """
    marks = flags(kept)
    if not marks.any():
        return kept, old
    ended = kept.filter(pa.array(marks))
    ended = ended.drop_columns([FIRST]) if FIRST in ended.column_names else ended
    ended = ended.append_column(SUPERSEDED, ended.column(COMMIT))
    return living(kept), concat([old, ended]) if len(old) else ended


def _first(rows: pa.Table) -> np.ndarray[Any, Any]:
    """For each row the commit of the first state of its key within its run."""
    commits = rows.column(COMMIT)
    if FIRST in rows.column_names:
        commits = pc.coalesce(rows.column(FIRST), commits)
    return numbers(commits)


def mergeable(state: TypeState) -> bool:
    """Whether merging everything would change anything."""
    version = state.schema_version_id
    return any(sum(file.schema_version_id == version for file in files) > 1 for files in (state.runs, state.past))


class _Merge:
    def __init__(self, info: Type, state: TypeState, files: Files, place: Place, fresh: dict[str, pa.Table]) -> None:
        self._info = info
        self._state = state
        self._files = files
        self._sizes = files.sizes
        self._place = place
        self._fresh = fresh
        self._runs = [Part(file, fresh.get(file.path)) for file in state.runs]
        self._past = [Part(file) for file in state.past]
        self._made: dict[str, tuple[DataFile, pa.Table, bytes]] = {}

    def tidy(self) -> Merged:
        while (due := due_runs([part.file for part in self._runs[self._fixed :]], self._sizes)) is not None:
            self._merge_runs(due[0] + self._fixed, due[1] + self._fixed)
        while (chosen := due_past(self._own_past(), self._sizes)) is not None:
            self._merge_past(chosen)
        return self._result()

    def everything(self) -> Merged:
        if len(self._runs) > self._fixed + 1:
            self._merge_runs(self._fixed, len(self._runs))
        if len(self._own_past()) > 1:
            self._merge_past({*self._own_past()})
        return self._result()

    @property
    def _fixed(self) -> int:
        """How many of the oldest runs stay as they are: those of another version have other columns."""
        version = self._state.schema_version_id
        return max((n for n, part in enumerate(self._runs, 1) if part.file.schema_version_id != version), default=0)

    def _own_past(self) -> dict[int, DataFile]:
        """Files of replaced rows of the current version, by their numbers."""
        version = self._state.schema_version_id
        return {n: part.file for n, part in enumerate(self._past) if part.file.schema_version_id == version}

    def _table(self, part: Part) -> pa.Table:
        return part.table if part.table is not None else self._files.table(part.file)

    def _merge_runs(self, start: int, end: int) -> None:
        parts = self._runs[start:end]
        self._files.load([part.file for part in parts if part.table is None])
        kept, old = parted(self._info, concat([self._table(part) for part in parts]))
        if start == 0:
            kept, old = settled(kept, old)
        linked = start > 0 and all(part.file.is_linked for part in parts)
        updates = 0 if start == 0 else sum(part.file.updates for part in parts)
        if linked:
            updates = len(kept) - kept.column(REPLACES).null_count if REPLACES in kept.column_names else 0
        level = max(max(part.file.level for part in parts) + 1, level_of(len(kept) + len(old), self._sizes))
        links = linked and updates > 0
        self._runs[start:end] = [self._new("run", kept, level, updates, replaces=links)] if len(kept) else []
        if len(old):
            self._past.append(self._new("past", old, level_of(len(old), self._sizes), 0))

    def _merge_past(self, chosen: set[int]) -> None:
        parts = [part for number, part in enumerate(self._past) if number in chosen]
        self._files.load([part.file for part in parts if part.table is None])
        level = max(part.file.level for part in parts) + 1
        merged = self._new("past", concat([self._table(part) for part in parts]), level, 0)
        self._past = [part for number, part in enumerate(self._past) if number not in chosen] + [merged]

    def _new(self, what: str, table: pa.Table, level: int, updates: int, *, replaces: bool = False) -> Part:
        if not replaces and REPLACES in table.column_names:
            table = table.drop_columns([REPLACES])
        table = by_key(self._info, table)
        file, data = write_file(self._info, table, self._place(what), self._state.schema_version_id, level=level,
                                updates=updates, replaces=replaces, ordered=True, sizes=self._sizes)
        self._made[file.path] = (file, table, data)
        return Part(file, table)

    def _result(self) -> Merged:
        runs, past = tuple(part.file for part in self._runs), tuple(part.file for part in self._past)
        kept = {file.path: self._made[file.path] for file in (*runs, *past) if file.path in self._made}
        return Merged(
            TypeState(self._state.schema_version_id, self._state.activation_commit_id, self._state.next_row, runs,
                      past),
            {path: data for path, (_, _, data) in kept.items()},
            {path: (file, table) for path, (file, table, _) in kept.items()},
        )  # fmt: skip


def due_runs(runs: Sequence[DataFile], sizes: Sizes) -> tuple[int, int] | None:
    """Which neighbouring runs to merge now: the newest ones once there are enough of a size, or else the smallest."""
    for level in sorted({file.level for file in runs}):
        start = len(runs)
        while start and runs[start - 1].level <= level:
            start -= 1
        newest = runs[start:]
        if (sum(file.level == level for file in newest) >= sizes.fan
                and sum(file.row_count for file in newest) <= sizes.merged_rows):  # fmt: skip
            return start, len(runs)
    if len(runs) > max(sizes.most_runs, sizes.fan):
        rows = [sum(file.row_count for file in runs[at : at + sizes.fan]) for at in range(len(runs) - sizes.fan + 1)]
        at = rows.index(min(rows))
        if rows[at] <= sizes.merged_rows:
            return at, at + sizes.fan
    return None


def due_past(past: Mapping[int, DataFile], sizes: Sizes) -> set[int] | None:
    """The same for files of replaced rows, by their numbers: their order means nothing."""
    for level in sorted({file.level for file in past.values()}):
        chosen = {number: file for number, file in past.items() if file.level <= level}
        if (sum(file.level == level for file in chosen.values()) >= sizes.fan
                and sum(file.row_count for file in chosen.values()) <= sizes.merged_rows):  # fmt: skip
            return {*chosen}
    return None
