"""Merging the rows of one table, and the rules that the merged rows have to keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ontolake.arrow_values import numbers
from ontolake.errors import Invalid
from ontolake.history import Conflict, ConflictKind, Counts, Decisions
from ontolake.history.bases import base_values
from ontolake.history.operations import Sides
from ontolake.history.rows import RowChanges, RowSides, count, merge_rows, overridden, positions, same, virtual_row
from ontolake.history.threeway import Disputed
from ontolake.sql.catalog import coercion
from ontolake.sql.catalog.records import ColumnMeta, IndexMeta, Table
from ontolake.sql.history.comparable_rows import comparable, compared, loaded, restored, schema_of
from ontolake.sql.history.lines import BranchLines, Node
from ontolake.sql.keyspace import keys, vectors
from ontolake.sql.keyspace.vectors import Strings, stored_array
from ontolake.sql.keyspace.versions import KeySpan
from ontolake.sql.plan import execution
from ontolake.sql.syntax.statements import parse_expression
from ontolake.sql.write import defaults
from ontolake.sql.write.rows import Rows, decoded

_ROUNDS = 100


@dataclass
class TableChanges:
    """The rows to put, in the columns of the merged table, and the keys to delete."""

    puts: pa.Table | None = None
    deletes: Sequence[bytes] = ()

    @property
    def is_empty(self) -> bool:
        return not self.deletes and (self.puts is None or not self.puts.num_rows)


class MergedTable(NamedTuple):
    changes: TableChanges
    counts: Counts
    conflicts: list[Conflict]
    differing: list[bytes]
    """The keys of rows that were not the same on both sides."""


class SidesOfTable:
    """The states of some rows of a table on all sides, in the columns that the merge gives it.

    `force` is set where rows that only we changed have to be written again, since a column got another type; `strict`
    where they have to be checked, since the source brings rules that they need not keep yet.
    """

    def __init__(
        self, lines: BranchLines, sides: Sides[Node], table: Table, wanted: Sequence[bytes], *, force: bool,
        strict: bool,
    ) -> None:  # fmt: skip
        self.lines, self.sides, self.table, self.force, self.strict = lines, sides, table, force, strict
        self.wanted = wanted
        self.names = tuple(column.name for column in table.primary_key)
        self.schema = schema_of(table)
        columns, _ = vectors.decode_keys(table.key_types, Strings.of(list(wanted)), len(table.prefix)) if wanted else (
            [pa.nulls(0, type.arrow) for type in table.key_types], None)
        self.keys = compared(table, pa.table(dict(zip(self.names, columns, strict=True))))

    def rows(self, node: Node, wanted: Sequence[bytes] | None = None) -> pa.Table:
        """The rows at a commit."""
        session = self.lines.reader(node)
        with session.reading():
            there = session.keyspace.get_many(self.wanted if wanted is None else wanted, node[1])
            table = session.catalog(node[1]).by_id.get(self.table.id)
        if table is None:
            return self.schema.empty_table()
        found = decoded(table, list(there.values()))
        columns = []
        for column in self.table.columns:
            if column.generated and column.name not in self.names:  # it follows from the others, which are merged
                columns.append(pa.nulls(len(found), self.schema.field(column.name).type))
                continue
            held = self.held(table, column)
            if held is None:
                absent = stored_array(column.type, [column.absent_value] * len(found))
                columns.append(comparable(column.type, absent))
                continue
            values = found.columns[table.place[held.column_id]] if len(found) else pa.nulls(0, held.type.arrow)
            values = values if held.type == column.type else coercion.coerced(column, values)
            columns.append(comparable(column.type, values, is_key=column.name in self.names))
        return pa.table(columns, schema=self.schema)

    def held(self, table: Table, column: ColumnMeta) -> ColumnMeta | None:
        """The column of a state of the table that became a column of the merged one."""
        same = next((each for each in table.columns if each.identity == column.identity), None)
        if same is None:
            same = table.by_name.get(column.name)
        return same if same is not None and becomes(same, column) else None

    def missing(self, node: Node) -> list[str]:
        """The columns that a side does not have."""
        session = self.lines.reader(node)
        with session.reading():
            table = session.catalog(node[1]).by_id.get(self.table.id)
        return [] if table is None else [column.name for column in self.table.columns
                                         if self.held(table, column) is None]  # fmt: skip

    def key_of(self, row: Mapping[str, Any]) -> Any:
        found = tuple(loaded(self.table.by_name[name], row[name]) for name in self.names)
        return found[0] if len(found) == 1 else found

    def plain(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return {name: loaded(self.table.by_name[name], value) for name, value in row.items()}

    def encoded(self, places: pa.Table) -> list[bytes]:
        """The keys of rows."""
        columns = restored(self.table, places.select(list(self.names)))
        return vectors.encode_keys(self.table.prefix, self.table.key_types, [
            column.combine_chunks() for column in columns.columns]).to_list()

    def base(self) -> tuple[pa.Table, Any, dict[str, Any]]:
        """The rows of the base, or of what merging several bases gives, and what these do not agree on."""
        if len(self.sides.bases) == 1:
            return self.rows(self.sides.bases[0]), None, {}
        positions_of = {key: n for n, key in enumerate(self.wanted)}

        def read(node: Node, some: Sequence[bytes]) -> dict[bytes, Any]:
            found = self.rows(node, some)
            at = positions(self.names, self.keys.take(pa.array([positions_of[key] for key in some], pa.int64())), found)
            rows = found.to_pylist()
            return {key: rows[place] if place >= 0 else None for key, place in zip(some, at.tolist(), strict=True)}

        def same(one: Any, other: Any) -> bool:
            return bool(one == other or (one != one and other != other))

        values = base_values(self.lines, self.sides.bases, self.wanted, read=read, same=same, absent=None,
                             merge=lambda base, ours, theirs: virtual_row(base, ours, theirs, same))
        disputed = np.array([isinstance(values[key], Disputed) for key in self.wanted], dtype=bool)
        fields = {name: np.array([isinstance(values[key], dict) and isinstance(values[key][name], Disputed)
                                  for key in self.wanted], dtype=bool) for name in self.schema.names}  # fmt: skip
        rows = [{name: None if isinstance(value, Disputed) else value for name, value in row.items()}
                for row in values.values() if isinstance(row, dict)]  # fmt: skip
        return (pa.Table.from_pylist(rows, self.schema), disputed,
                {name: mask for name, mask in fields.items() if mask.any()})


def becomes(old: ColumnMeta, new: ColumnMeta) -> bool:
    """Whether values of a column become values of another by themselves."""
    return old.type == new.type or coercion.is_assignable(new.type, old.type)


def merged_table(read: SidesOfTable, decisions: Decisions, fill: Sequence[IndexMeta]) -> MergedTable:
    """Merge rows by column, and settle or report what breaks rules. `fill` has indexes that the table gets.

    Raises `RulesRefused` if our rows are to stay although they break rules that the source brings.
    """
    base, disputed, fields = read.base()
    ours, theirs = read.rows(read.sides.ours), read.rows(read.sides.theirs)
    try:
        found = merge_rows(RowSides(
            read.table.full_name, read.schema, read.names, read.keys, base, ours, theirs, read.key_of, read.plain,
            disputed, fields, read.missing(read.sides.ours), read.missing(read.sides.theirs)), decisions)  # fmt: skip
    except pa.ArrowException as error:
        raise Invalid(f"a resolution gives {read.table.full_name} a value that does not fit: {error}",
                      hint="give values of the columns' types") from error
    changes = RowChanges(_generated(read.table, found.changes.puts), found.changes.deletes)
    if read.force or read.strict:
        changes = _forced(read, changes, ours)
    changes, conflicts = _Rules(read, decisions, ours, theirs, fill).kept(changes)
    if not read.force and read.strict:
        changes = _without_same(read, changes, ours)
    counts = count(read.names, ours, changes.puts, changes.deletes)
    puts, deletes = restored(read.table, changes.puts), read.encoded(changes.deletes)
    at = [positions(read.names, read.keys, side) for side in (ours, theirs)]
    differing = np.flatnonzero(~same(read.schema.names, ours, at[0], theirs, at[1]))
    return MergedTable(TableChanges(puts, deletes), counts, [*found.conflicts, *conflicts],
                       [read.wanted[place] for place in differing.tolist()])


def _generated(table: Table, puts: pa.Table) -> pa.Table:
    """Rows with their generated columns."""
    if not table.generated or not puts.num_rows:
        return puts
    for column, values in defaults.generated(table, restored(table, puts)):
        place = puts.column_names.index(column.name)
        puts = puts.set_column(place, puts.schema.field(column.name), comparable(column.type, values))
    return puts


def _forced(read: SidesOfTable, changes: RowChanges, ours: pa.Table) -> RowChanges:
    """Also put our rows that the merge leaves alone."""
    changed = pa.concat_tables([changes.puts.select(list(read.names)), changes.deletes])
    left = positions(read.names, ours.select(list(read.names)), changed) < 0
    kept = _generated(read.table, ours.filter(pa.array(left)))
    return RowChanges(pa.concat_tables([changes.puts, kept]), changes.deletes)


def _without_same(read: SidesOfTable, changes: RowChanges, ours: pa.Table) -> RowChanges:
    """Changes without rows that the target has already."""
    puts = changes.puts
    at = positions(read.names, puts.select(list(read.names)), ours)
    known = np.flatnonzero(at >= 0)
    left = np.ones(puts.num_rows, dtype=bool)
    if len(known):
        left[known] = ~same(read.schema.names, puts, known, ours, at[known])
    return RowChanges(puts.filter(pa.array(left)), changes.deletes)


class RulesRefused(Exception):
    """Rows of the target stay, so that rules of the source which they break cannot come over."""


class _Rules:
    """NOT NULL, CHECK and unique indexes, asked of merged rows."""

    def __init__(
        self, read: SidesOfTable, decisions: Decisions, ours: pa.Table, theirs: pa.Table, fill: Sequence[IndexMeta]
    ) -> None:  # fmt: skip
        self._read, self._decisions = read, decisions
        self._ours, self._theirs = ours, theirs
        self._unique = [index for index in (*read.table.indexes, *fill) if index.unique]
        self._new = {index.index_id for index in fill}

    def kept(self, changes: RowChanges) -> tuple[RowChanges, list[Conflict]]:
        """The changes with broken rules settled by a side, and the conflicts that nothing settles."""
        open_conflicts: list[Conflict] = []
        for _ in range(_ROUNDS):
            open_conflicts = []
            settled = False
            for conflict, places in [*self._values(changes), *self._clashes(changes)]:
                side = self._decisions.side(conflict)
                if side is None:
                    open_conflicts.append(conflict)
                    continue
                ours, theirs = (self._at(node, places) for node in (self._read.sides.ours, self._read.sides.theirs))
                if side == "ours" and self._read.strict and self._is_broken(conflict, ours):
                    raise RulesRefused
                changes = overridden(changes, self._read.names, places, None if side == "ours" else theirs, ours)
                changes = RowChanges(_generated(self._read.table, changes.puts), changes.deletes)
                settled = True
                break
            if not settled:
                break
        return changes, open_conflicts

    def _is_broken(self, conflict: Conflict, rows: pa.Table) -> bool:
        """Whether rows break by themselves the rule that a conflict is about."""
        if conflict.kind is ConflictKind.UNIQUE:
            return bool(rows.num_rows > 1)
        return bool(self._values(RowChanges(rows, rows.select(list(self._read.names)).slice(0, 0))))

    def _at(self, node: Node, places: pa.Table) -> pa.Table:
        """The rows of some keys at a commit, whether the merge looks at them or not."""
        return self._read.rows(node, self._read.encoded(places))

    def _rows_of(self, side: pa.Table, places: pa.Table) -> pa.Table:
        at = positions(self._read.names, places, side)
        return side.take(pa.array(at[at >= 0]))

    def _state(self, side: pa.Table, place: pa.Table) -> Any:
        found = self._rows_of(side, place)
        return self._read.plain(found.to_pylist()[0]) if found.num_rows else None

    def _conflict(
        self, kind: ConflictKind, place: pa.Table, detail: str, rows: tuple[tuple[str, Any], ...] = ()
    ) -> Conflict:  # fmt: skip
        read = self._read
        return Conflict(read.table.full_name, read.key_of(place.to_pylist()[0]), kind, None, None,
                        self._state(self._ours, place), self._state(self._theirs, place), detail, rows)

    def _values(self, changes: RowChanges) -> list[tuple[Conflict, pa.Table]]:
        """Rows that break NOT NULL or a CHECK."""
        table, puts = self._read.table, changes.puts
        found: dict[int, str] = {}
        for _, column in table.required:
            for row in np.flatnonzero(numbers(pc.is_null(puts.column(column.name)))):
                found.setdefault(int(row), f"{column.name} must not be NULL")
        if table.meta.checks and puts.num_rows:
            wanted = [exp.alias_(exp.paren(parse_expression(check.sql)), f"k{n}")
                      for n, check in enumerate(table.meta.checks)]  # fmt: skip
            answers = execution.run(exp.select(*wanted).from_("t0"), {"t0": restored(table, puts)})
            for number, check in enumerate(table.meta.checks):
                broken = pc.fill_null(pc.equal(answers.column(number), False), False)
                for row in np.flatnonzero(numbers(broken)):
                    found.setdefault(int(row), f"the merged row breaks the CHECK {check.name}, {check.sql}")
        keys_of = puts.select(list(self._read.names))
        return [(self._conflict(ConflictKind.VALUE, keys_of.slice(row, 1), detail), keys_of.slice(row, 1))
                for row, detail in sorted(found.items())]  # fmt: skip

    def _clashes(self, changes: RowChanges) -> list[tuple[Conflict, pa.Table]]:
        """Rows that have one value in a unique index."""
        found: list[tuple[Conflict, pa.Table]] = []
        for index in self._unique:
            found += self._clashes_of(index, changes)
        return found

    def _clashes_of(self, index: IndexMeta, changes: RowChanges) -> list[tuple[Conflict, pa.Table]]:
        read, table = self._read, self._read.table
        puts = changes.puts
        if index.expressions or index.predicate:
            whole_rows = restored(table, puts)
            rows = Rows(table, columns=[whole_rows.column(column.name) for column in table.columns])
            which, indexed = rows.matches(index), rows.indexed(index)
            puts = puts if which is None else puts.filter(which)
            for id in index.column_ids:
                if id < 0:
                    puts = puts.append_column(table.by_id[id].name, indexed.columns[table.place[id]])
        names = [table.by_id[id].name for id in index.column_ids]
        types = [table.by_id[id].type for id in index.column_ids]
        whole = np.ones(puts.num_rows, dtype=bool)
        for name in names:
            whole &= numbers(pc.is_valid(puts.column(name)))
        puts = puts.filter(pa.array(whole))
        if not puts.num_rows:
            return []
        prefix = keys.entry_prefix(table.id, index.index_id)
        values = restored(table, puts.select(names))
        begins = vectors.encode_keys(prefix, types, [column.combine_chunks() for column in values.columns],
                                     index.desc).to_list()
        own = puts.select(list(read.names))
        changed = {read.key_of(row) for row in pa.concat_tables(
            [changes.puts.select(list(read.names)), changes.deletes]).to_pylist()}
        by_value: dict[bytes, list[dict[str, Any]]] = {}
        for begin, key in zip(begins, own.to_pylist(), strict=True):
            by_value.setdefault(begin, []).append(key)
        if index.index_id not in self._new:
            self._add_stored(by_value, index, types, changed)
        found = []
        for holders in by_value.values():
            if len(holders) > 1:
                places = pa.Table.from_pylist(holders, own.schema)
                others = tuple((table.full_name, read.key_of(key)) for key in holders[1:])
                found.append((self._conflict(ConflictKind.UNIQUE, places.slice(0, 1),
                                             f"{len(holders)} rows have one value of {index.name}", others), places))
        return found

    def _add_stored(
        self, by_value: dict[bytes, list[dict[str, Any]]], index: IndexMeta, types: Sequence[Any], changed: set[Any]
    ) -> None:  # fmt: skip
        """Add the rows of the target that have the same values and that the merge leaves alone."""
        read, table, node = self._read, self._read.table, self._read.sides.ours
        session = read.lines.reader(node)
        with session.reading():
            for begin, holders in by_value.items():
                for batch in session.keyspace.scan(KeySpan(begin, keys.after(begin)), node[1], keys=True):
                    for entry in batch.keys.to_list() if batch.keys is not None else ():
                        stored, _ = keys.decode_tuple(table.key_types, entry, len(begin))
                        row = {name: comparable(type, stored_array(type, [value]))[0].as_py()
                               for name, type, value in zip(read.names, table.key_types, stored, strict=True)}
                        if read.key_of(row) not in changed:
                            holders.append(row)
