"""Tables that something else keeps, in schemas of their own: queries read them as Arrow, beside tables of the database.

A query asks such a table for the columns that it needs, with the conditions that its WHERE has on single columns;
whoever keeps the table may leave rows in that do not fulfil them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from ontolake.parallel import Filter, FilterOp
from ontolake.sql.catalog.coercion import coerced
from ontolake.sql.catalog.records import ColumnMeta, Table, TableMeta, now
from ontolake.sql.plan.conditions import ABOVE, BELOW, EQUAL, HIGH, LOW, ColumnCondition, exact
from ontolake.sql.syntax.statements import Parameters
from ontolake.sql.types import JSONB, Kind, Type, from_arrow

_OPERATORS: dict[str, FilterOp] = {EQUAL: "==", LOW: ">=", ABOVE: ">", HIGH: "<=", BELOW: "<"}
_PUSHED = frozenset({Kind.BOOLEAN, Kind.INT64, Kind.UTF8, Kind.DATE, Kind.TIMESTAMP_US, Kind.DECIMAL})
"""Types of columns whose conditions every keeper understands."""
_FIRST_ID = 1 << 40
"""The ids of such tables begin here; no table of a database gets so far."""


class ForeignRows(Protocol):
    """A table as whoever keeps it gives it to a statement."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def keys(self) -> Sequence[str]:
        """The columns that make a row unique; none if that is not known."""
        ...

    @property
    def hidden(self) -> Sequence[str]:
        """Columns that `*` does not stand for and that nobody can set."""
        ...

    def read(self, columns: Sequence[str], filters: Sequence[Filter]) -> pa.Table:
        """The rows in these columns; filters may leave more rows in than fulfil them, never fewer."""
        ...


class ForeignChange(NamedTuple):
    """Rows of a table that a transaction takes away by their keys, and those that it puts there."""

    table: str
    keys: Sequence[tuple[Any, ...]]
    new: pa.Table | None


class ForeignSchema(Protocol):
    """A schema whose tables something else keeps."""

    def names(self) -> Sequence[str]:
        """The names of its tables."""
        ...

    def open(self, name: str, moment: Any = None) -> ForeignRows:
        """A table of `names()`, now or at a moment that the user has written: a version, a time or a reference.

        Raises `SqlError` and what the store raises.
        """
        ...

    def check_writable(self, name: str) -> None:
        """Raise `SqlError` if a table cannot be changed here."""
        ...

    def commit(self, changes: Sequence[ForeignChange]) -> None:
        """Make changes one commit. Raises `SqlError`; nothing is changed then."""
        ...

    def forget(self) -> None:
        """A transaction has ended: what is opened next may be newer."""
        ...


class ForeignTable(Table):
    """A table that something else keeps, as statements see it."""

    def __init__(self, schema: str, name: str, rows: ForeignRows, number: int, changes: list[ForeignChange]) -> None:
        """`changes` are those of the schema that no commit has yet."""
        id = _FIRST_ID + number
        columns = [ColumnMeta(place, id, field.name, _type_of(field.type), field.name not in rows.keys, None, place)
                   for place, field in enumerate(rows.schema, 1)]
        by_name = {column.name: column.column_id for column in columns}
        meta = TableMeta(id, 0, 0, name, tuple(by_name[key] for key in rows.keys), now(), len(columns) + 1)
        super().__init__(meta, "", schema, columns, ())
        self.schema = schema
        self.visible = [column for column in self.columns if column.name not in rows.hidden]
        self.full_name = f"{schema}.{name}"
        self.rows, self._changes = rows, changes

    def read(
        self, columns: Sequence[ColumnMeta], conditions: Sequence[ColumnCondition], parameters: Parameters
    ) -> pa.Table:
        """The rows that conditions leave, perhaps with others, in the types of the columns."""
        return self._overlaid(columns, self._filters(conditions, parameters))

    def there(self, rows: pa.Table) -> list[int]:
        """The places of rows whose keys the table has."""
        keys = keys_of(rows, self.rows.keys)
        name, values = self.rows.keys[0], {key[0] for key in keys}
        filters = [Filter(name, "in", tuple(values))] if self.by_name[name].type.kind in _PUSHED else []
        known = set(keys_of(self._overlaid(self.primary_key, filters), self.rows.keys))
        return [place for place, key in enumerate(keys) if key in known]

    def change(self, keys: Sequence[tuple[Any, ...]], new: pa.Table | None) -> None:
        """Note that the rows of these keys go, and that others come."""
        self._changes.append(ForeignChange(self.name, keys, new))

    def _overlaid(self, columns: Sequence[ColumnMeta], filters: Sequence[Filter]) -> pa.Table:
        """The rows as they are with the changes of this transaction."""
        mine = [change for change in self._changes if change.table == self.name]
        names = [column.name for column in columns]
        wanted = list(dict.fromkeys([*names, *self.rows.keys])) if mine else names
        found = self._typed(self.rows.read(wanted, filters), wanted)
        for change in mine:
            gone = frozenset(change.keys)
            kept = [place for place, key in enumerate(keys_of(found, self.rows.keys)) if key not in gone]
            found = found.take(pa.array(kept, pa.int64()))
            if change.new is not None:
                found = pa.concat_tables([found, change.new.select(wanted)])
        return found.select(names) if mine else found

    def _typed(self, found: pa.Table, names: Sequence[str]) -> pa.Table:
        arrays = [_converted(self.by_name[name], found.column(name)) for name in names]
        return pa.Table.from_arrays(arrays, names=list(names))

    def _filters(self, conditions: Sequence[ColumnCondition], parameters: Parameters) -> list[Filter]:
        """Conditions as filters, without those that the type of the column has no exact value for."""
        found = []
        for one in conditions:
            if one.column.type.kind not in _PUSHED:
                continue
            arrow = self.rows.schema.field(one.column.name).type
            try:
                stored = [exact(one.column, value) for value in one.values(parameters)]
                values = [pa.scalar(one.column.type.load(value), arrow).as_py() for value in stored]
            except (ValueError, TypeError, OverflowError, pa.ArrowException):
                continue
            if any(value is None for value in stored):
                continue
            if one.operator == EQUAL and not one.single:
                found.append(Filter(one.column.name, "in", tuple(values)))
            elif len(values) == 1:
                found.append(Filter(one.column.name, _OPERATORS[one.operator], values[0]))
        return found


def keys_of(rows: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """The values that make rows unique."""
    return list(zip(*(rows.column(name).to_pylist() for name in names), strict=True))


def _type_of(arrow: pa.DataType) -> Type:
    if pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    return from_arrow(arrow) or JSONB


def _converted(column: ColumnMeta, found: pa.ChunkedArray) -> pa.Array:
    type = found.type.value_type if pa.types.is_dictionary(found.type) else found.type
    if from_arrow(type) is None:  # records and maps
        texts = [None if value is None else json.dumps(value, default=str) for value in found.to_pylist()]
        return coerced(column, pa.array(texts, pa.string()), lenient=True)
    return coerced(column, found, lenient=True)
