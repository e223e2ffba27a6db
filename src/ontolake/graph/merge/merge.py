"""One three-way step of graphs: what becomes of each table and its type when a change is brought to a branch.

`MergeStep` works out a merge, a revert, a cherry-pick or a restore over what changed between the base and the other
state. Rows merge by `history.rows`, types by `types` and `columns`; what breaks a rule together is left to `rules`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ontolake.arrow_keys import contains
from ontolake.graph.commit.lineage import Lineage
from ontolake.graph.commit.records import CommitRecord, GraphState, Pin
from ontolake.graph.errors import reading
from ontolake.graph.merge.bases import BaseRows, base_pins, base_rows
from ontolake.graph.merge.columns import JoinedType, Sources, join_types, sources_since, translated
from ontolake.graph.merge.differences import ROW_ID, distinct, rows_at, rows_beside, touched, touched_keys
from ontolake.graph.merge.types import alike, misfits, renames_since, schema_conflict, table_of
from ontolake.graph.parts import GraphParts
from ontolake.graph.read.views import plain_row, row_key
from ontolake.graph.tables.changes import TableChange
from ontolake.graph.tables.rows import keys_table
from ontolake.graph.tables.types import GraphType
from ontolake.history import Conflict, Counts, Decisions
from ontolake.history.conflicts import Side
from ontolake.history.operations import Sides
from ontolake.history.rows import RowChanges, RowSides, count, merge_rows, overridden, positions, same

_ONLY_OURS = "; the table of the source cannot take its place, so only 'ours' settles it"


class TableState(NamedTuple):
    """Where the rows of a side are, of which type, and where the columns of the merged type are in it."""

    pin: Pin
    kind: GraphType
    columns: Sources


class TableSides(NamedTuple):
    """A table in the type that the step gives it, and where it is on both sides; None where it is not."""

    kind: GraphType
    ours: TableState | None
    theirs: TableState | None


class MergeStep:
    """The tables of a step. `ours` is the head of the target, `theirs` the other state; `commits` knows both sides."""

    def __init__(
        self, parts: GraphParts, ours: GraphState, theirs: GraphState, commits: Mapping[str, CommitRecord],
        sides: Sides[str], decisions: Decisions,
    ) -> None:  # fmt: skip
        self.parts, self.ours, self.theirs, self.decisions = parts, ours, theirs, decisions
        self.commits, self.bases, self.is_merge = commits, list(sides.bases), sides.is_merge
        self.lineage = Lineage(commits, parts.orders)
        self.history = {**theirs.history, **ours.history}
        self.crossed = len(self.bases) > 1
        self.conflicts: list[Conflict] = []
        self.rows: dict[str, RowChanges] = {}
        self.counts: dict[str, Counts] = {}
        self.added: dict[str, GraphType] = {}
        self.reshaped: dict[str, GraphType] = {}
        """Tables of the target that get another type, with where its columns are in the one that they have."""
        self.sources: dict[str, Sources] = {}
        self.dropped: list[str] = []
        self._ids: dict[str, pa.Table] = {}
        """The keys of rows that may change, of those that the target has, and their ids there."""
        self.reads: set[str] = set()
        """Tables beside the changed ones on which the rules of the result depend."""
        self._sides: dict[str, TableSides] = {}
        self._tables(sides.tables)

    def __bool__(self) -> bool:
        """Whether the step changes anything."""
        return bool(self.added or self.reshaped or self.dropped
                    or any(not change.is_empty for change in self.rows.values()))

    def changes(self) -> dict[str, TableChange]:
        """What is to become of the rows of tables that change."""
        found: dict[str, TableChange] = {}
        for key, (puts, deletes) in self.rows.items():
            if puts.num_rows or deletes.num_rows:
                fresh = self.counts[self.kind(key).table] == (puts.num_rows, 0, 0)
                found[key] = TableChange(puts if puts.num_rows else None, deletes if deletes.num_rows else None,
                                         fresh=fresh, known=self._ids.get(key))  # fmt: skip
        return found

    def kind(self, key: str) -> GraphType:
        """The type that a table has after the step."""
        return self.reshaped.get(key) or self.added.get(key) or self.ours.types[key]

    def _tables(self, some: frozenset[str] | None) -> None:
        base, self.origins, self.disputed = base_pins(self.lineage, self.bases, self.commits)
        self._base = base
        shown = [self.commits[one].pins for one in self.bases]
        for key in sorted({key for pins in (*shown, self.theirs.pins) for key in pins}):
            if (some is None or table_of(key) in some) and any(
                    pins.get(key) != self.theirs.pins.get(key) for pins in shown):  # fmt: skip
                self._table(key, base.get(key), self.theirs.pins.get(key), self.ours.pins.get(key))
        self._fit()

    # What becomes of a table and its type

    def _table(self, key: str, base: Pin | None, theirs: Pin | None, ours: Pin | None) -> None:
        """A table that the source has changed, in its rows or its type."""
        if key in self.disputed and not alike(self.theirs.types.get(key), self.ours.types.get(key)):
            self._clash(key, "both branches have merged its type from two others, and decided differently")
        elif theirs is None:
            assert base is not None
            if ours is not None:
                if not self._differs(key, base, ours, self.ours):
                    self.dropped.append(key)
                else:
                    self._clash(key, "the source has dropped the table, the target has changed it")
        elif ours is None:
            if base is None:
                self._add(key, theirs)
            elif self._differs(key, base, theirs, self.theirs):
                self._clash(key, "the target has dropped the table, the source has changed it")
        else:
            self._both(key, base, theirs, ours)

    def _clash(self, key: str, detail: str) -> None:
        """Definitions that do not fit: the table stays as one side has it as a whole, if that is decided."""
        base = self._base.get(key)
        conflict = schema_conflict(key, detail, base=base and self.history[base.schema],
                                   ours=self.ours.types.get(key), theirs=self.theirs.types.get(key))
        side = self.decisions.side(conflict)
        if side == "theirs" and not self._take_table(key):
            conflict, side = conflict._replace(detail=detail + _ONLY_OURS), None
        if side is None:
            self.conflicts.append(conflict)

    def _take_table(self, key: str) -> bool:
        """Make a table what it is on their side, its type and all rows. False if that cannot be."""
        theirs, ours = self.theirs.pins.get(key), self.ours.pins.get(key)
        if theirs is None:
            self.dropped.append(key)
        elif ours is None:
            self._add(key, theirs)
        else:
            return self._replace(key, theirs, ours)
        return True

    def _replace(self, key: str, theirs: Pin, ours: Pin) -> bool:
        kind, old = self.theirs.types[key], self.ours.types[key]
        plain = {name: name for name in kind.by_name}
        sources: Sources = plain
        if kind != old:
            found = sources_since(self.parts.tables, (ours, old), (theirs, kind), {})
            sources = {name: before if before is not None and _becomes(old, before, kind, name) else None
                       for name, before in found.items()}  # fmt: skip
            if any(sources[name] is None for name in kind.keys) or not _can_add(kind, sources, ours.rows):
                return False
            self.reshaped[key], self.sources[key] = kind, sources
        self._sides[key] = TableSides(kind, TableState(ours, old, sources), TableState(theirs, kind, plain))
        new, own = self._all(kind, theirs).cast(kind.schema), translated(self._all(old, ours), kind, sources)
        keys, at_own = list(kind.keys), positions(kind.keys, new.select(list(kind.keys)), own)
        names = [field.name for field in kind.fields]
        places = positions(kind.keys, new.select(keys), new)
        puts = new.filter(pa.array(~same(names, new, places, own, at_own)))
        deletes = own.select(keys).filter(pc.invert(contains(new.select(keys), own, kind.keys)))
        self.rows[key] = RowChanges(puts, deletes)
        self.counts[kind.table] = count(kind.keys, own, puts, deletes)
        return True

    def _add(self, key: str, theirs: Pin) -> None:
        kind = self.theirs.types[key]
        rows = self._all(kind, theirs).cast(kind.schema)
        self.added[key] = kind
        self.rows[key] = RowChanges(rows, rows.select(list(kind.keys)).slice(0, 0))
        self.counts[kind.table] = Counts(rows.num_rows, 0, 0)
        self._sides[key] = TableSides(kind, None, TableState(theirs, kind, {name: name for name in kind.by_name}))

    def _all(self, kind: GraphType, pin: Pin) -> pa.Table:
        with reading(kind.table):
            return self.parts.tables.at(kind, pin).to_table(columns=[field.name for field in kind.fields])

    def _differs(self, key: str, base: Pin, pin: Pin, state: GraphState) -> bool:
        """Whether a side has changed a table since: its type, or any row."""
        kind = state.types[key]
        if base.schema != pin.schema or self._names(state, key) is None:
            return True
        found = touched(self.parts.tables, kind, base, pin)
        at_base, at_pin = (positions(kind.keys, found.keys, rows) for rows in (found.before, found.after))
        names = [field.name for field in kind.fields]
        return not bool(same(names, found.before, at_base, found.after, at_pin).all())

    def _names(self, state: GraphState, key: str) -> dict[str, str] | None:
        return self._names_since(state, key, self.origins[key])

    def _names_since(self, state: GraphState, key: str, base: str) -> dict[str, str] | None:
        """The columns that a side has renamed since the base, or before it where the base is the newer one."""
        newer = self.lineage.since(base, state.head.id)
        if not newer:
            return renames_since(self.commits, state.head, key, self.lineage.since(state.head.id, base))
        found = renames_since(self.commits, self.commits[base], key, newer)
        return None if found is None else {new: old for old, new in found.items()}

    def _both(self, key: str, base: Pin | None, theirs: Pin, ours: Pin) -> None:
        """A table that all have: its rows, in the type that the merge gives it."""
        their_type, our_type = self.theirs.types[key], self.ours.types[key]
        plain = {name: name for name in our_type.by_name}
        if base is None:
            if their_type != our_type:
                self._clash(key, "both branches have added the type, differently")
            else:
                self._rows(key, our_type, None, TableState(theirs, their_type, plain),
                           TableState(ours, our_type, plain))  # fmt: skip
            return
        base_type = self.history[base.schema]
        their_names, our_names = self._names(self.theirs, key), self._names(self.ours, key)
        if their_names is None or our_names is None:
            if self.is_merge or ours != base or not self._take_table(key):
                self._clash(key, "the type was dropped and made anew by "
                            + ("the source" if their_names is None else "the target"))
            return
        if len({kind.keys for kind in (base_type, their_type, our_type)}) > 1:
            self._clash(key, "its key has another name on one side; rename it on both first")
            return
        if sum(kind.key == key for kind in self.history.values()) == 1:
            joined: JoinedType | list[str] = JoinedType(our_type, plain, plain, plain)
        else:
            tables, start = self.parts.tables, (base, base_type)
            joined = join_types(base_type, their_type, our_type,
                                sources_since(tables, start, (theirs, their_type), their_names),
                                sources_since(tables, start, (ours, our_type), our_names))  # fmt: skip
        if isinstance(joined, list):
            self._clash(key, f"both branches have changed the type, differently: {', '.join(joined)}")
            return
        if joined.kind != our_type or any(name != own for name, own in joined.ours.items()):
            if not _can_add(joined.kind, joined.ours, ours.rows) or not all(
                    own is None or _becomes(our_type, own, joined.kind, name) for name, own in joined.ours.items()):
                self._clash(key, "rows of the target cannot get the columns that the table had")
                return
            self.reshaped[key], self.sources[key] = joined.kind, joined.ours
        self._rows(key, joined.kind, TableState(base, base_type, joined.base),
                   TableState(theirs, their_type, joined.theirs), TableState(ours, our_type, joined.ours))

    def _fit(self) -> None:
        """Settle, as far as that is decided, types that make no graph together."""
        while True:
            before = ({*self.added}, {*self.dropped}, {*self.reshaped})
            found = misfits({**self.ours.types, **self.reshaped}, self.added, self.dropped)
            sides = [(conflict, self.decisions.side(conflict)) for conflict in found]
            for conflict, side in sides:
                if side is not None:
                    for table in (conflict.table, *(table for table, _ in conflict.rows)):
                        self._decide(table.replace("/", ":", 1), side)
            if before == ({*self.added}, {*self.dropped}, {*self.reshaped}):
                self.conflicts += found
                return

    def _decide(self, key: str, side: Side) -> None:
        """Let a table be there or not as one side has it."""
        theirs = self.theirs.pins.get(key)
        if side == "ours":
            for parts in (self.added, self.reshaped, self.sources, self.rows):
                parts.pop(key, None)
            self.counts.pop(table_of(key), None)
            self.dropped = [one for one in self.dropped if one != key]
        elif theirs is None and key in self.ours.pins and key not in self.dropped:
            self.dropped.append(key)
            self.rows.pop(key, None)
        elif theirs is not None and key not in self.ours.pins and key not in self.added:
            self._add(key, theirs)

    # Rows

    def side(self, side: TableState, kind: GraphType, keys: pa.Table) -> pa.Table:
        """The rows of one side with these keys, in the type that the step gives the table."""
        return translated(rows_at(self.parts.tables, side.kind, side.pin, keys), kind, side.columns)

    def _rows(
        self, key: str, kind: GraphType, base: TableState | None, theirs: TableState, ours: TableState
    ) -> None:  # fmt: skip
        self._sides[key] = TableSides(kind, ours, theirs)
        if base is not None and not self.crossed and _are_plain(kind, base, theirs, ours):
            found = touched(self.parts.tables, kind, base.pin, theirs.pin, ids=True)
            own = rows_beside(self.parts.tables, kind, (base.pin, ours.pin), found.keys, found.before)
            if ROW_ID in own.column_names:
                self._ids[key] = own.select([*kind.keys, ROW_ID])
            before, new, own = (rows.select(kind.schema.names) for rows in (found.before, found.after, own))
            self._merge(key, kind, found.keys, BaseRows(before, None, {}), new, own)
            return
        keys = self._keys(key, theirs, ours)
        if base is not None and self.crossed:
            old = base_rows(self.lineage, self.bases, self.commits, kind, keys,
                            lambda record, some: self._rows_of_base(record, key, kind, some, theirs, ours))
        else:
            old = BaseRows(kind.schema.empty_table() if base is None else self.side(base, kind, keys), None, {})
        is_base = base is not None and not self.crossed and ours.pin == base.pin
        self._merge(key, kind, keys, old, self.side(theirs, kind, keys),
                    old.rows if is_base else self.side(ours, kind, keys))

    def _merge(
        self, key: str, kind: GraphType, keys: pa.Table, before: BaseRows, theirs: pa.Table, ours: pa.Table
    ) -> None:  # fmt: skip
        if not keys.num_rows:
            return
        sides = self._sides[key]
        assert sides.ours is not None
        assert sides.theirs is not None
        merged = merge_rows(RowSides(
            kind.table, kind.schema, kind.keys, keys, before.rows, ours, theirs,
            key_of=lambda row: row_key(kind, dict(row)), plain=lambda row: plain_row(kind, dict(row)),
            disputed=before.disputed, disputed_fields=before.fields,
            our_missing=[name for name, own in sides.ours.columns.items() if own is None],
            their_missing=[name for name, own in sides.theirs.columns.items() if own is None]),
            self.decisions)  # fmt: skip
        self.counts[kind.table] = merged.counts
        self.conflicts += sorted(merged.conflicts, key=lambda conflict: conflict.key)
        self.rows[key] = merged.changes

    def _keys(self, key: str, theirs: TableState, ours: TableState) -> pa.Table:
        """The keys of rows in which the source may differ from any base, or has a column that is new to the target."""
        names, pins = list(theirs.kind.keys), [self.commits[base].pins.get(key) for base in self.bases]
        found = [touched_keys(self.parts.tables, theirs.kind, pin, theirs.pin) for pin in pins
                 if pin is not None and self.history[pin.schema].keys == theirs.kind.keys]
        news = [name for name, own in theirs.columns.items() if own is not None and ours.columns[name] is None]
        if news or None in pins:
            found.append(self._all(theirs.kind, theirs.pin).select(names))
        schema = theirs.kind.schema
        some = [keys.cast(pa.schema([schema.field(name) for name in names])) for keys in found]
        return distinct(theirs.kind, pa.concat_tables(some))

    def _rows_of_base(
        self, record: CommitRecord, key: str, kind: GraphType, keys: pa.Table, theirs: TableState, ours: TableState
    ) -> pa.Table:  # fmt: skip
        """The rows of a base with these keys, in the type that the step gives the table."""
        pin = record.pins.get(key)
        if pin is None or self.history[pin.schema].keys != kind.keys:
            return kind.schema.empty_table()
        own, sources = self.history[pin.schema], dict.fromkeys(kind.by_name)
        for state, side in ((self.theirs, theirs), (self.ours, ours)):
            names = self._names_since(state, key, record.id)
            if names is None:  # dropped since, and made anew
                return kind.schema.empty_table()
            found = sources_since(self.parts.tables, (pin, own), (side.pin, side.kind), names)
            sources |= {name: found[at] for name, at in side.columns.items() if at and found[at]}
        return self.side(TableState(pin, own, sources), kind, keys)

    # Rows that take one side's state

    def sides_of(self, key: str) -> TableSides:
        """Both sides of a table, also of one that the step leaves alone so far."""
        if key not in self._sides:
            ours, theirs = self.ours.pins.get(key), self.theirs.pins.get(key)
            kind = self.kind(key)
            own = ours and TableState(ours, kind, {name: name for name in kind.by_name})
            other = None
            if theirs is not None:
                old = self.theirs.types[key]
                names = {name: name for name in kind.by_name}
                sources = names if ours is None or old == kind else sources_since(
                    self.parts.tables, (theirs, old), (ours, kind), {})
                other = TableState(theirs, old, sources)
            self._sides[key] = TableSides(kind, own, other)
        return self._sides[key]

    def row_of(self, key: str, row: Any, side: Side) -> dict[str, Any] | None:
        """A row by its key as one side has it; None if it does not."""
        sides = self.sides_of(key)
        state = sides.ours if side == "ours" else sides.theirs
        if state is None:
            return None
        found = self.side(state, sides.kind, keys_table(sides.kind, [row]))
        return plain_row(sides.kind, found.to_pylist()[0]) if found.num_rows else None

    def give(self, key: str, rows: list[Any], side: Side) -> None:
        """Let some rows, by their keys, be what they are on one side."""
        self._ids.pop(key, None)  # it does not have these
        kind, ours, theirs = self.sides_of(key)
        keys = keys_table(kind, rows)
        of = partial(self.side, kind=kind, keys=keys)
        empty = kind.schema.empty_table()
        own = of(ours) if ours is not None else empty
        other = None if side == "ours" else of(theirs) if theirs is not None else empty
        so_far = self.rows.get(key) or RowChanges(empty, keys.slice(0, 0))
        self.rows[key] = changed = overridden(so_far, kind.keys, keys, other, own)
        before = of(ours, keys=changed.puts.select(list(kind.keys))) if ours is not None else empty
        self.counts[kind.table] = count(kind.keys, before, *changed)


def _are_plain(kind: GraphType, *sides: TableState) -> bool:
    """Whether all sides have a table with the same columns, under the same names."""
    return all(side.kind == kind and all(name == own for name, own in side.columns.items()) for side in sides)


def _becomes(old: GraphType, before: str, new: GraphType, name: str) -> bool:
    """Whether a column with rows in it can become another one."""
    was, now = old.by_name[before], new.by_name[name]
    return was.arrow_type == now.arrow_type or (was.scalar is not None and now.type in was.scalar.widens)


def _can_add(kind: GraphType, sources: Sources, rows: int) -> bool:
    """Whether a table with so many rows can get the columns of a type that it does not have."""
    return not rows or all(field.nullable or field.has_default for field in kind.fields if sources[field.name] is None)
