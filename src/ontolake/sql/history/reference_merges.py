"""Foreign keys of merged tables: a merge that would leave a row that refers to nothing is a conflict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from ontolake.history import Conflict, ConflictKind, Counts, Decisions
from ontolake.history.operations import Sides
from ontolake.history.rows import RowChanges, overridden
from ontolake.sql.catalog.objects import ForeignKeyMeta
from ontolake.sql.catalog.records import SqlCatalog, Table
from ontolake.sql.history.comparable_rows import compared, restored
from ontolake.sql.history.lines import BranchLines, Node
from ontolake.sql.history.object_merges import ObjectChanges
from ontolake.sql.history.row_merges import SidesOfTable, TableChanges
from ontolake.sql.history.table_changes import TablePlan
from ontolake.sql.keyspace import vectors
from ontolake.sql.keyspace.vectors import Strings
from ontolake.sql.write import foreign_keys
from ontolake.sql.write.foreign_keys import Values
from ontolake.sql.write.rows import Rows, decoded

_ROUNDS = 100


class _Merged:
    """A table as a merge would leave it: the target's rows, but for those that the plan puts or deletes."""

    def __init__(self, table: Table, plan: TablePlan | None) -> None:
        self.table, self.plan = table, plan
        self.is_new = plan is not None and plan.added is not None
        self.puts: Rows | None = None
        self.touched: set[bytes] = set()
        if plan is None:
            return
        if plan.added is not None:
            self.puts = decoded(table, [value for _, value in plan.added])
        elif plan.changes.puts is not None and plan.changes.puts.num_rows:
            self.puts = Rows(table, columns=[plan.changes.puts.column(column.name).combine_chunks()
                                             for column in table.columns]).complete()
        self.touched = {*plan.changes.deletes, *(self.puts.keys() if self.puts is not None else ())}

    def present(self, keyspace: Any, ids: Sequence[int], wanted: Sequence[Values]) -> set[Values]:
        """Those of some values that a row has in these columns."""
        sought = set(wanted)
        found = sought & set(foreign_keys.values_of(self.puts, ids)) if self.puts is not None else set()
        others = [values for values in wanted if values not in found]
        return found | {values for values, _ in self.left(keyspace, ids, others)}

    def left(self, keyspace: Any, ids: Sequence[int], wanted: Sequence[Values]) -> Iterator[tuple[Values, Rows]]:
        """The target's rows with some values that the merge leaves alone."""
        if self.is_new or not wanted:
            return
        for values, rows in foreign_keys.found_rows(keyspace, self.table, ids, wanted):
            kept = [n for n, key in enumerate(rows.keys()) if key not in self.touched]
            if kept:
                yield values, rows.take(kept)


class ReferenceMerge:
    """Looks for rows of merged tables that would refer to nothing."""

    def __init__(
        self, lines: BranchLines, sides: Sides[Node], decisions: Decisions, ours: SqlCatalog, theirs: SqlCatalog,
        tables: dict[int, TablePlan], objects: ObjectChanges,
    ) -> None:  # fmt: skip
        self._lines, self._sides, self._decisions = lines, sides, decisions
        self._ours, self._theirs, self._tables = ours, theirs, tables
        gone = {record.key for record in objects.removed}
        kept = [record for record in ours.records.values() if record.key not in gone]
        self._new = {record.key for record in objects.puts if record.key not in ours.records}
        self._keys = [each for each in {record.key: record for record in (*kept, *objects.puts)}.values()
                      if isinstance(each, ForeignKeyMeta)]  # fmt: skip

    def conflicts(self) -> list[Conflict]:
        """The conflicts that nothing settles; the plans are changed where a side was chosen."""
        if not self._keys:
            return []
        session = self._lines.reader(self._sides.ours)
        found: list[Conflict] = []
        with session.reading():
            for _ in range(_ROUNDS):
                found, settled = [], False
                for foreign, values, child in self._orphans(session.keyspace):
                    conflict = self._conflict(foreign, values, child)
                    side = self._decisions.side(conflict)
                    if side is None:
                        found.append(conflict)
                        continue
                    self._settle(foreign, values, child, side)
                    settled = True
                    break
                if not settled:
                    break
        return found

    def _table(self, id: int) -> Table | None:
        plan = self._tables.get(id)
        if plan is not None:
            return None if plan.is_dropped else plan.table
        return self._ours.by_id.get(id)

    def _orphans(self, keyspace: Any) -> Iterator[tuple[ForeignKeyMeta, Values, Rows]]:
        """Values that refer to nothing once the merge is done, with a row that has them."""
        for foreign in self._keys:
            child, parent = self._table(foreign.table_id), self._table(foreign.parent_id)
            plans = [self._tables.get(id) for id in (foreign.table_id, foreign.parent_id)]
            if child is None or parent is None or (not any(plans) and foreign.key not in self._new):
                continue
            if any(id not in child.place for id in foreign.column_ids) or any(
                    id not in parent.place for id in foreign.parent_column_ids):
                continue
            children, parents = _Merged(child, plans[0]), _Merged(parent, plans[1])
            sought: dict[Values, Rows] = {}
            written = [children.puts] if children.puts is not None else []
            if foreign.key in self._new and not children.is_new:
                written += [decoded(child, batch.values) for batch in keyspace.scan(child.span)]
            for number, rows in enumerate(written):
                names = rows.keys()
                for n, values in enumerate(foreign_keys.values_of(rows, foreign.column_ids)):
                    untouched = (number == 0 and children.puts is not None) or names[n] not in children.touched
                    if None not in values and untouched:
                        sought.setdefault(values, rows.take([n]))
            if parents.touched and not parents.is_new:
                old = decoded(parent, list(keyspace.get_many(sorted(parents.touched)).values()))
                before = [each for each in foreign_keys.values_of(old, foreign.parent_column_ids) if None not in each]
                asked = foreign_keys.as_child(child, parent, foreign, before)
                for values, rows in children.left(keyspace, foreign.column_ids, list(dict.fromkeys(asked))):
                    sought.setdefault(values, rows.take([0]))
            wanted = dict(zip(foreign_keys.as_parent(child, parent, foreign, list(sought)), sought, strict=True))
            there = parents.present(keyspace, foreign.parent_column_ids, list(wanted))
            for asked_value, values in wanted.items():
                if asked_value not in there:
                    yield foreign, values, sought[values]

    def _conflict(self, foreign: ForeignKeyMeta, values: Values, child: Rows) -> Conflict:
        table, parent = child.table, self._table(foreign.parent_id)
        assert parent is not None
        read = self._read(table, child.keys())
        states = [read.rows(node).to_pylist() for node in (self._sides.ours, self._sides.theirs)]
        shown = ", ".join(str(table.by_id[id].type.show(value))
                          for id, value in zip(foreign.column_ids, values, strict=True))
        names = ", ".join(table.by_id[id].name for id in foreign.column_ids)
        ours, theirs = (read.plain(rows[0]) if rows else None for rows in states)
        row = child.arrow().select(list(read.names)).to_pylist()[0]
        return Conflict(table.full_name, read.key_of(row), ConflictKind.VALUE, None, None, ours, theirs,
                        f"by the foreign key {foreign.name}, ({names}) = ({shown}) would refer to no row of "
                        f"{parent.full_name}")

    def _read(self, table: Table, wanted: Sequence[bytes]) -> SidesOfTable:
        return SidesOfTable(self._lines, self._sides, table, list(wanted), force=False, strict=False)

    def _settle(self, foreign: ForeignKeyMeta, values: Values, child: Rows, side: str) -> None:
        """Give the row and the one that it refers to their states of a side, each of which is whole by itself."""
        parent = self._table(foreign.parent_id)
        assert parent is not None
        wanted = foreign_keys.as_parent(child.table, parent, foreign, [values])
        keys: set[bytes] = set()
        for node, catalog in ((self._sides.ours, self._ours), (self._sides.theirs, self._theirs)):
            table = catalog.by_id.get(parent.id)
            session = self._lines.reader(node)
            with session.reading():
                for _, rows in foreign_keys.found_rows(session.keyspace, table, foreign.parent_column_ids, wanted,
                                                       node[1]) if table is not None else ():
                    keys.update(rows.keys())
        self._take(child.table, child.keys(), side)
        self._take(parent, sorted(keys), side)

    def _take(self, table: Table, wanted: Sequence[bytes], side: str) -> None:
        if not wanted:
            return
        read = self._read(table, wanted)
        plan = self._tables.setdefault(table.id, TablePlan(table))
        names = list(read.names)
        empty = read.keys.slice(0, 0)
        puts = compared(table, plan.changes.puts) if plan.changes.puts is not None else read.schema.empty_table()
        columns, _ = vectors.decode_keys(table.key_types, Strings.of(list(plan.changes.deletes)), len(table.prefix)) \
            if plan.changes.deletes else ([], None)
        deletes = compared(table, pa.table(dict(zip(names, columns, strict=True)))) if columns else empty
        rows = None if side == "ours" else read.rows(self._sides.theirs)
        changes = overridden(RowChanges(puts, deletes), read.names, read.keys, rows, read.rows(self._sides.ours))
        gone = read.encoded(changes.deletes)
        plan.changes = TableChanges(restored(table, changes.puts), gone)
        if not any(plan.counts):
            plan.counts = Counts(0, changes.puts.num_rows, len(gone))
