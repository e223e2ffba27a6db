"""Big tables of a native store as columns: full scans that need not read rows one by one.

Rows are never changed and get growing places, so what was read of a table stays true, and only newer rows are read.
Which rows a branch sees at a commit is worked out over whole columns. What does remove rows, erasure and the collection
of branches, gives the store another nonce in the same transaction; and a store that was put back to an earlier state is
told by the last commit and the last row that were read.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from ontolake.model.columns import Column
from ontolake.model.stored import StoredType
from ontolake.model.types import TypeInfo
from ontolake.ontology.query.compiler.latest import BRANCH, DELETED, MAIN, BranchLineage, quoted
from ontolake.ontology.query.compiler.statements import columns_of
from ontolake.ontology.repository.arrow import arrow_schema, deleted_name, numbered_table
from ontolake.ontology.repository.sqlite.column_files import ColumnFile
from ontolake.ontology.repository.sqlite.deletions import tables_without
from ontolake.ontology.repository.sqlite.tables import elsewhere, superseded

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

NONCE = "columns"
"""The key in `storage_meta` of what differs once rows were removed. A store without it is not read so."""
NEVER = (1 << 63) - 1
"""Stands for a commit that never comes."""
_ROW, _BRANCH, _DELETED, _SUCCESSOR = "~row", "~branch", "~deleted", "~successor"
"""Columns of files beside those of the type. No field is called so."""
_ELSEWHERE = ("row_id", "superseded_by", "branch_id")


def renew(db: apsw.Connection) -> None:
    """Give a store another nonce, inside the transaction that makes it or removes rows of it."""
    db.execute("INSERT OR REPLACE INTO storage_meta VALUES (?, ?)", (NONCE, secrets.token_hex(16)))


def nonce_of(db: apsw.Connection) -> str | None:
    found = db.execute("SELECT value FROM storage_meta WHERE key = ?", (NONCE,)).get
    return None if found is None else str(found)


class Extent(NamedTuple):
    """How far a table goes."""

    nonce: str
    place: int
    """The last row."""
    commit: int
    """The last commit of the store."""


class Moment(NamedTuple):
    """What a scan asks for: a lineage, bounds, and whether every state of a row is wanted, or ends of rows too."""

    lineage: BranchLineage
    until: int = NEVER - 1
    history: bool = False
    deletions: bool = False


@dataclass
class TableColumns:
    """The rows of a table up to one of them, column by column."""

    nonce: str
    commit: int
    """The last commit whose rows and successors are there."""
    written: str
    """What the store says of that commit."""
    rows: pa.Table
    places: np.ndarray[Any, Any]
    commits: np.ndarray[Any, Any]
    branches: np.ndarray[Any, Any]
    deleted: np.ndarray[Any, Any]
    successors: np.ndarray[Any, Any]
    """The commit of the successor of each row on the first branch, or `NEVER`."""
    elsewhere: np.ndarray[Any, Any]
    """Rows, commits and branches of the other successors."""
    saved: int = 0
    """How many of the rows a file has."""
    mark: object = None
    """Which file that is."""

    @property
    def place(self) -> int:
        return int(self.places[-1]) if len(self.places) else 0

    def scanned(self, columns: Sequence[Column], moment: Moment) -> pa.Table:
        """What a scan finds, in the order in which it was written. The columns are those of the rows, in any order."""
        import pyarrow as pa

        schema = arrow_schema(columns)
        found = pa.Table.from_arrays([self.rows.column(field.name) for field in schema], schema=schema)
        if moment.deletions:
            field = pa.field(deleted_name(columns), pa.bool_(), False)
            found = found.append_column(field, pa.array(self.deleted))
        chosen = self.chosen(moment)
        return found if chosen.all() else found.filter(pa.array(chosen))

    def chosen(self, moment: Moment) -> np.ndarray[Any, Any]:
        """Which of the rows a scan finds."""
        import numpy as np

        chosen, gone = np.zeros(len(self.places), dtype=bool), np.zeros(len(self.places), dtype=bool)
        for branch, until in moment.lineage.segments or MAIN.segments:
            bound = moment.until if until is None else min(until, moment.until)
            chosen |= (self.branches == branch) & (self.commits <= bound)
            if not branch:
                gone |= self.successors <= bound
            else:
                places, by, where = self.elsewhere
                gone[_positions(self.places, places[(where == branch) & (by <= bound)])[0]] = True
        if not moment.history:
            chosen &= ~gone
        return chosen if moment.deletions else chosen & ~self.deleted

    def file(self, table: str) -> ColumnFile:
        """The same as a file has it."""
        import pyarrow as pa

        rows = self.rows
        for name, values in ((_ROW, self.places), (_BRANCH, self.branches), (_DELETED, self.deleted),
                             (_SUCCESSOR, self.successors)):
            rows = rows.append_column(name, pa.array(values))
        about = {"table": table, "nonce": self.nonce, "commit": self.commit, "written": self.written}
        other = pa.table([pa.array(part) for part in self.elsewhere], names=list(_ELSEWHERE))
        return ColumnFile(rows, other, about)


def from_file(found: ColumnFile, table: str, mark: object) -> TableColumns | None:
    """The columns of a table from its file; None if the file is of another table."""
    import numpy as np

    rows, about = found.rows, found.about
    try:
        if about["table"] != table:
            return None
        own = [_numpy(rows.column(name)) for name in (_ROW, _BRANCH, _DELETED, _SUCCESSOR)]
        other = np.array([_numpy(found.elsewhere.column(name)) for name in _ELSEWHERE], dtype=np.int64)
        plain = rows.drop_columns([_ROW, _BRANCH, _DELETED, _SUCCESSOR])
        places, branches, deleted, successors = own
        return TableColumns(about["nonce"], about["commit"], about["written"], plain, places,
                            _numpy(plain.column(plain.num_columns - 1)), branches, deleted, successors,
                            other.reshape(3, -1), rows.num_rows, mark)
    except KeyError:
        return None


def _positions(places: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """Where these places are, as far as they are there, and which of them are."""
    import numpy as np

    found = np.searchsorted(places, wanted)
    held = found < len(places)
    held[held] = places[found[held]] == wanted[held]
    return found[held], held


def _numpy(column: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    import numpy as np

    parts = [chunk.to_numpy(zero_copy_only=False) for chunk in column.chunks]
    return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else column.to_numpy()


class ColumnReader:
    """Reads rows of one table, within one read transaction."""

    def __init__(self, db: apsw.Connection, table: str, source: str, info: TypeInfo | StoredType, batch: int) -> None:
        self._db, self._table, self._source, self._info, self._batch = db, table, source, info, batch

    def extent(self) -> Extent | None:
        """How far the table goes; None if the store has no nonce."""
        row: Any = self._db.execute(
            f"SELECT (SELECT value FROM storage_meta WHERE key = ?), (SELECT max(row_id) FROM main."
            f"{quoted(self._table)}), (SELECT max(id) FROM commits)", (NONCE,)).fetchone()  # fmt: skip
        return None if row[0] is None else Extent(row[0], row[1] or 0, row[2] or 0)

    def past_rows(self) -> int:
        """How many rows have a successor on the first branch."""
        return int(self._db.execute(f"SELECT count(*) FROM {superseded(self._table)}").get or 0)

    def is_prefix(self, held: TableColumns, extent: Extent) -> bool:
        """Whether columns are the first rows of the table as it is."""
        import pyarrow as pa

        if held.nonce != extent.nonce or held.place > extent.place or held.commit > extent.commit:
            return False
        if held.written != self._written(held.commit):
            return False
        if not len(held.places):
            return True
        last = self._rows(f"t.rowid = {held.place}", {})
        names = last.column_names
        if last.num_rows != 1 or set(names) != set(held.rows.column_names):
            return False
        there = held.rows.slice(held.rows.num_rows - 1).select(names)
        try:
            return all(one.equals(two) or _both_nan(one, two)
                       for one, two in zip(last.columns, there.columns, strict=True))
        except pa.ArrowException:
            return False

    def read(self, extent: Extent, held: TableColumns | None) -> TableColumns:
        """All rows, or those that are newer than these columns, and what they are successors of.

        Raises `ArrowException` and `ValueError` for values that cannot be columns.
        """
        import numpy as np
        import pyarrow as pa

        after, since = (held.place, held.commit) if held is not None else (0, 0)
        if held is not None and after == extent.place:  # then no row has got a successor
            return replace(held, commit=extent.commit, written=self._written(extent.commit))
        number, wanted = self._wanted(after, extent)
        found = self._rows(f"t.rowid > {after}", wanted)
        own = {name: _numpy(found.column(name)) for name in wanted}
        rows = found.drop_columns(list(wanted))
        successors = self._over(superseded(self._table), _ELSEWHERE[:2], since)
        other = self._over(elsewhere(self._table), _ELSEWHERE, since)
        commits = _numpy(rows.column(rows.num_columns - 1))
        zeros = np.zeros(number, dtype=np.int64)
        parts = [own.get(_ROW, np.arange(after + 1, extent.place + 1)), commits, own.get(_BRANCH, zeros),
                 own.get(_DELETED, zeros).astype(bool), np.full(number, NEVER)]
        saved, mark = 0, None
        if held is not None:
            rows = pa.concat_tables([held.rows, rows.select(held.rows.column_names).cast(held.rows.schema)])
            before = (held.places, held.commits, held.branches, held.deleted, held.successors)
            parts = [np.concatenate(pair) for pair in zip(before, parts, strict=True)]
            other = np.concatenate([held.elsewhere, other], axis=1)
            saved, mark = held.saved, held.mark
        at, held_ones = _positions(parts[0], successors[0])
        parts[4][at] = successors[1][held_ones]
        places, commits, branches, deleted, over_by = parts
        return TableColumns(extent.nonce, extent.commit, self._written(extent.commit), rows, places, commits, branches,
                            deleted, over_by, other, saved, mark)

    def _over(self, table: str, names: Sequence[str], since: int) -> np.ndarray[Any, Any]:
        """The rows of a table of successors that came after a commit, column by column."""
        import numpy as np

        rows: Any = self._db.execute(f"SELECT {', '.join(names)} FROM {table} WHERE superseded_by > {since}")
        return np.fromiter(itertools.chain.from_iterable(rows), np.int64).reshape(-1, len(names)).T

    def _wanted(self, after: int, extent: Extent) -> tuple[int, dict[str, str]]:
        """How many rows are newer than one, and what has to be read of them beside columns and commit."""
        table = f"main.{quoted(self._table)}"
        number = int(self._db.execute(f"SELECT count(*) FROM {table} WHERE row_id > {after}").get or 0)
        wanted = {_ROW: "t.rowid"} if number != extent.place - after else {}  # else there is a row at every place
        wanted |= {_BRANCH: f"t.{BRANCH}"} if self._db.execute("SELECT max(id) FROM branches").get else {}
        wanted |= {_DELETED: f"t.{DELETED}"} if self._table not in tables_without(self._db) else {}
        return number, wanted

    def _rows(self, which: str, more: Mapping[str, str]) -> pa.Table:
        """Rows with their commit, and more columns of whole numbers."""
        names = ", ".join([columns_of(self._info, "t"), *more.values()])
        rows: Any = self._db.execute(f"SELECT {names} FROM {self._source} AS t WHERE {which} ORDER BY t.rowid")
        return numbered_table(self._info.all_columns, rows, self._batch, list(more))

    def _written(self, commit: int) -> str:
        """What tells a commit from another of the same number."""
        return repr(self._db.execute("SELECT created_at, metadata_json, branch_id, parent_id, second_parent_id "
                                     "FROM commits WHERE id = ?", (commit,)).fetchone())


def _both_nan(one: pa.ChunkedArray, two: pa.ChunkedArray) -> bool:
    first, second = one[0].as_py(), two[0].as_py()
    return bool(first != first and second != second)
