"""Changing rows: their keys and values, and the entries of all indexes, in one transaction.

Rows come as stored forms, a tuple a row, or as Arrow columns; both end as the same bytes. Few are encoded one by one,
many by the column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ontolake.errors import Invalid
from ontolake.sql.catalog.coercion import coerced
from ontolake.sql.catalog.records import ColumnMeta, IndexMeta, Table
from ontolake.sql.errors import DataError, NotNullError, SqlError, UniqueError
from ontolake.sql.keyspace import keys, rows, vectors
from ontolake.sql.keyspace.vectors import Strings
from ontolake.sql.types import Stored
from ontolake.sql.write import defaults
from ontolake.sql.write.sorted_runs import Entries

FEW = 48
"""Up to so many rows are encoded one by one."""
MAX_KEY = 32768
MAX_VALUE = 256 * 1024 * 1024


class Rows:
    """Rows of a table: a tuple of stored forms each, or Arrow columns, in the order of the table's columns."""

    def __init__(self, table: Table, *, tuples: Sequence[Sequence[Stored]] | None = None,
                 columns: Sequence[pa.Array] | None = None, wide: bool = False) -> None:  # fmt: skip
        self.table = table
        self._tuples = tuples
        self._columns = None if columns is None else [_fitting(table, n, values)
                                                            for n, values in enumerate(columns)]
        self.count = len(tuples) if tuples is not None else len(columns[0]) if columns else 0
        self.few = self.count <= FEW
        self._checked = self._completed = False
        self._index: IndexMeta | None = None
        """The index that these rows are those of, with its expressions behind the columns."""
        self._computed: dict[str, pa.Array] | None = None
        if wide:
            return
        widths = set(map(len, tuples)) if tuples is not None else {len(columns or ())}
        if widths - {len(table.columns)}:
            raise Invalid(f"a row of {table.full_name} does not have {len(table.columns)} values")

    def __len__(self) -> int:
        return self.count

    @property
    def tuples(self) -> Sequence[Sequence[Stored]]:
        if self._tuples is None:
            assert self._columns is not None
            shown = self.table.columns if self._index is None else _wide(self.table, self._index)
            lists = [vectors.stored_list(column.type, values)
                     for column, values in zip(shown, self._columns, strict=True)]  # fmt: skip
            self._tuples = list(zip(*lists, strict=True))
        return self._tuples

    @property
    def columns(self) -> list[pa.Array]:
        if self._columns is None:
            assert self._tuples is not None
            self._columns = [vectors.stored_array(column.type, [row[n] for row in self._tuples])
                             for n, column in enumerate(self.table.columns)]  # fmt: skip
        return self._columns

    def take(self, which: Sequence[int]) -> Rows:
        """The rows at these places."""
        if self._index is not None:
            some = pa.array(which, pa.int64())
            found = Rows(self.table, columns=[column.take(some) for column in self.columns], wide=True)
            found._index = self._index
            return found
        if self._tuples is not None:
            return Rows(self.table, tuples=[self._tuples[n] for n in which])
        wanted = pa.array(which, pa.int64())
        return Rows(self.table, columns=[column.take(wanted) for column in self.columns])

    def slice(self, begin: int, end: int) -> Rows:
        """The rows at places from `begin` to before `end`, of Arrow columns. Nothing is copied."""
        found = Rows(self.table, columns=[column.slice(begin, end - begin) for column in self.columns])
        found._checked, found._completed = self._checked, self._completed
        return found

    def arrow(self) -> pa.Table:
        """The rows as an Arrow table with the names of the columns."""
        return pa.table(self.columns, names=[column.name for column in self.table.columns])

    def complete(self) -> Rows:
        """Work out the generated columns, unless that is done. Returns these same rows."""
        if not self._completed and self.table.generated and self.count:
            found = defaults.generated(self.table, self.arrow())
            columns = list(self.columns)
            for column, values in found:
                columns[self.table.place[column.column_id]] = values
            self._columns, self._tuples, self._checked = columns, None, False
        self._completed = True
        return self

    def matches(self, index: IndexMeta) -> pa.Array | None:
        """Which rows an index has; None if it has all."""
        if not index.predicate or self._index is not None:
            return None
        return self._evaluated(index)[index.predicate]

    def _evaluated(self, index: IndexMeta) -> dict[str, pa.Array]:
        """The expressions and conditions of all indexes of the table and of this one, worked out together, once."""
        wanted = [index.predicate, *(part.sql for part in index.expressions)]
        if self._computed is None or any(sql and sql not in self._computed for sql in wanted):
            indexes = [*(each for each in self.table.indexes if each.expressions or each.predicate), index]
            for each in indexes:
                self.table.know(each)
            parts = {part.sql: self.table.expressions[part.sql][0] for each in indexes for part in each.expressions}
            conditions = {each.predicate for each in indexes if each.predicate}
            self._computed = defaults.evaluated(parts, conditions, self.arrow())
        return self._computed

    def indexed(self, index: IndexMeta) -> Rows:
        """The rows that an index has, with its expressions as further columns; these same rows if it has neither."""
        if self._index is not None or not (index.expressions or index.predicate):
            return self
        self.table.know(index)
        computed, which = self._evaluated(index), self.matches(index)
        columns = [*self.columns, *(computed[self.table.by_id[id].name] if id < 0 else
                                    self.columns[self.table.place[id]] for id in index.column_ids)]  # fmt: skip
        if which is not None:
            columns = [column.filter(which) for column in columns]
        found = Rows(self.table, columns=columns, wide=True)
        found._index = index
        return found

    # encoding

    def keys(self) -> list[bytes]:
        """The primary row keys."""
        table = self.table
        if self.few:
            types, prefix, places = table.key_types, table.prefix, table.key_places
            found = [prefix + keys.encode_tuple(types, [row[n] for n in places]) for row in self.tuples]
        else:
            found = self.key_strings().to_list()
        return checked_keys(table, found)

    def key_strings(self) -> Strings:
        table = self.table
        return vectors.encode_keys(table.prefix, table.key_types, [self.columns[n] for n in table.key_places])

    def values(self) -> list[bytes]:
        """The row values, to be written. Raises `NotNullError`, `CheckError`: no row that breaks a rule is encoded."""
        self.check()
        return self.encoded()

    def encoded(self) -> list[bytes]:
        """The row values, whatever the rules say: to be compared."""
        table = self.table
        places = table.places
        if self.few:
            if table.is_plain:
                return [rows.encode_row(table.kinds, row) for row in self.tuples]
            return [rows.encode_row(table.kinds, [None if n is None else row[n] for n in places])
                    for row in self.tuples]  # fmt: skip
        return self._encoded_strings().to_list()

    def value_strings(self) -> Strings:
        """The same as `values`, in one buffer."""
        self.check()
        return checked_sizes(self.table, self._encoded_strings())

    def _encoded_strings(self) -> Strings:
        types = [column.type for column in self.table.all_columns]
        given = [None if n is None else self.columns[n] for n in self.table.places]
        return vectors.encode_rows(types, given, self.count)

    def entries(self, index: IndexMeta) -> list[tuple[bytes, bytes]]:
        """The entries of an index, one for each row that it has."""
        if self._index is None and (index.expressions or index.predicate):
            return self.indexed(index).entries(index)
        if self.few:
            prefix, types, desc, places = self.table.entry_parts(index)
            found = [prefix + keys.encode_tuple(types, [row[n] for n in places], desc) for row in self.tuples]
        else:
            found = self.entry_strings(index).to_list()
        return list(zip(checked_keys(self.table, found), self.included(index), strict=True))

    def entry_strings(self, index: IndexMeta) -> Strings:
        """The keys of the entries of an index."""
        prefix, types, desc, places = self.table.entry_parts(index)
        return vectors.encode_keys(prefix, types, [self.columns[n] for n in places], desc)

    def entry_set(self, index: IndexMeta) -> Entries:
        """The entries of an index, one for each row that it has, in one buffer."""
        if self._index is None and (index.expressions or index.predicate):
            return self.indexed(index).entry_set(index)
        if self._index is None:
            return plain_entries(self.table, index, [self.columns[n] for n in entry_places(self.table, index)])
        found = checked_strings(self.table, self.entry_strings(index))
        return Entries(found, self._included_strings(index) if index.include_ids else None)

    def included(self, index: IndexMeta) -> list[bytes]:
        """The values of the entries of an index: the columns that it includes."""
        if not index.include_ids:
            return [rows.LIVE] * self.count
        table = self.table
        if self.few:
            kinds = [table.by_id[id].type.kind for id in index.include_ids]
            places = [table.place[id] for id in index.include_ids]
            return [rows.encode_row(kinds, [row[n] for n in places]) for row in self.tuples]
        return self._included_strings(index).to_list()

    def _included_strings(self, index: IndexMeta) -> Strings:
        table = self.table
        types = [table.by_id[id].type for id in index.include_ids]
        return vectors.encode_rows(types, [self.columns[table.place[id]] for id in index.include_ids], self.count)

    # checking

    def check(self) -> None:
        """Check NOT NULL, then CHECK, unless that is done. Raises `NotNullError`, `CheckError`."""
        if not self._checked:
            self._check_not_null()
            if self.table.meta.checks and self.count:
                defaults.check(self.table.full_name, self.table.meta.checks, self.arrow())
            self._checked = True

    def _check_not_null(self) -> None:
        if self._tuples is not None and not any(None in row for row in self._tuples):
            return
        for n, column in self.table.required:
            if self._columns is not None and not self.few:
                broken = bool(self._columns[n].null_count)
            else:
                broken = any(row[n] is None for row in self.tuples)
            if broken:
                raise NotNullError(f"{self.table.full_name}.{column.name} must not be NULL", table=self.table.full_name,
                                   constraint=column.name, hint="give a value, or declare a DEFAULT")  # fmt: skip

    def describe_key(self, number: int) -> str:
        """The primary key of a row, for people."""
        names, values = [], []
        for column in self.table.primary_key:
            names.append(column.name)
            value = self.tuples[number][self.table.place[column.column_id]]
            values.append(str(column.type.show(value)))
        return f"({', '.join(names)}) = ({', '.join(values)})"


def entry_places(table: Table, index: IndexMeta) -> list[int]:
    """The places of the columns that the entries of an index without expressions consist of."""
    return [*table.entry_parts(index)[3], *(table.place[id] for id in index.include_ids)]


def plain_entries(table: Table, index: IndexMeta, columns: Sequence[pa.Array]) -> Entries:
    """The entries of an index without expressions, of the columns at `entry_places`."""
    prefix, types, desc, places = table.entry_parts(index)
    found = checked_strings(table, vectors.encode_keys(prefix, types, columns[: len(places)], desc))
    if not index.include_ids:
        return Entries(found, None)
    included = [table.by_id[id].type for id in index.include_ids]
    return Entries(found, vectors.encode_rows(included, columns[len(places) :], len(found)))


def _fitting(table: Table, place: int, values: Any) -> pa.Array:
    """A column of a table in one piece. Executors give integers of any width."""
    flat = _flat(values)
    if place < len(table.columns) and pa.types.is_integer(flat.type):
        wanted = table.columns[place].type.arrow
        return flat if flat.type == wanted or not pa.types.is_integer(wanted) else flat.cast(wanted)
    return flat


def _wide(table: Table, index: IndexMeta) -> list[ColumnMeta]:
    """The columns of rows of an index with expressions."""
    return [*table.columns, *(table.by_id[id] for id in index.column_ids)]


def _flat(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def decoded(table: Table, values: Sequence[bytes] | Strings, *, whole: bool = False) -> Rows:
    """Rows from their stored values. Raises `Corruption`, with `whole` for short rows too."""
    strings = values if isinstance(values, Strings) else None
    if strings is None and len(values) <= FEW:
        order = [column.column_id - 1 for column in table.columns]
        found = [rows.decode_row(table.kinds, value, table.absent) for value in values]  # type: ignore[arg-type]
        return Rows(table, tuples=[[row[n] for n in order] for row in found])
    strings = strings or Strings.of(values)  # type: ignore[arg-type]
    return Rows(table, columns=vectors.decode_rows(strings, [column.wanted for column in table.columns], whole=whole))


def together(table: Table, first: Rows, second: Rows) -> Rows:
    """The rows of both."""
    if not len(first) or not len(second):
        return first if len(first) else second
    return Rows(table, columns=[pa.concat_arrays([a, b]) for a, b in zip(first.columns, second.columns, strict=True)])


def unique_prefix(new: Rows, number: int, index: IndexMeta) -> bytes | None:
    """How the entries of a row's values in a unique index begin; None if there is a NULL, which equals nothing."""
    table = new.table
    if index.expressions or index.predicate:
        new, number = new.take([number]).indexed(index), 0
        if not len(new):
            return None
    values = [new.tuples[number][table.place[id]] for id in index.column_ids]
    if None in values:
        return None
    types = [table.by_id[id].type for id in index.column_ids]
    return keys.entry_prefix(table.id, index.index_id) + keys.encode_tuple(types, values, index.desc)


def fitted(table: Table, columns: Sequence[pa.ChunkedArray]) -> Rows:
    """Rows of the columns that a query gave, in the Arrow types of the table's."""
    return Rows(table, columns=[given if given.type == column.type.arrow else coerced(column, given)
                                for column, given in zip(table.columns, columns, strict=True)])  # fmt: skip


def first_of_each(table: Table, found: pa.Table) -> pa.Table:
    """One row for each primary key."""
    width = len(table.columns)
    seen: set[bytes] = set()
    kept = []
    for n, key in enumerate(fitted(table, found.columns[:width]).keys()):
        if key not in seen:
            seen.add(key)
            kept.append(n)
    return found.take(pa.array(kept, pa.int64()))


def checked_keys(table: Table, found: list[bytes]) -> list[bytes]:
    """The same keys. Raises `DataError` for one that is too long."""
    _check_key_size(table, max(map(len, found), default=0))
    return found


def checked_strings(table: Table, found: Strings) -> Strings:
    """The same keys. Raises `DataError` for one that is too long."""
    _check_key_size(table, int(np.diff(found.offsets).max(initial=0)))
    return found


def _check_key_size(table: Table, longest: int) -> None:
    if longest > MAX_KEY:
        raise DataError(f"a key of {table.full_name} would have {longest} bytes, and {MAX_KEY} is the limit",
                        sqlstate="54000", hint="index shorter values")


def checked_sizes(table: Table, values: Strings) -> Strings:
    """The same row values. Raises `SqlError` for one that is too long."""
    check_value_size(table, int(np.diff(values.offsets).max(initial=0)))
    return values


def check_value_size(table: Table, longest: int) -> None:
    """Raise `SqlError` if a row value is too long."""
    if longest > MAX_VALUE:
        raise SqlError(f"a row of {table.full_name} would have {longest} bytes, and {MAX_VALUE} is the limit",
                       sqlstate="54000")


def unique_violation(table: Table, index: IndexMeta, begin: bytes) -> UniqueError:
    """What is raised for entries of a unique index that begin alike."""
    types = [table.by_id[id].type for id in index.column_ids]
    values, _ = keys.decode_tuple(types, begin, len(keys.entry_prefix(0, 0)), index.desc)
    shown = ", ".join(str(type.show(value)) for type, value in zip(types, values, strict=True))
    names = ", ".join(table.by_id[id].name for id in index.column_ids)
    found = UniqueError(f"{table.full_name} has a row with ({names}) = ({shown}) already", table=table.full_name,
                        constraint=index.name)  # fmt: skip
    found.key = begin
    return found


def duplicate(new: Rows, number: int) -> UniqueError:
    """What is raised for a row whose key is there already."""
    table = new.table
    found = UniqueError(f"{table.full_name} has a row with {new.describe_key(number)} already", table=table.full_name,
                        constraint=table.key_name, hint="use ON CONFLICT to change it instead")  # fmt: skip
    found.key = new.take([number]).keys()[0]
    return found
