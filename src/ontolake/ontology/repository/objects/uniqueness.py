"""Unique fields on objects, from v3 on: the values that a commit writes are looked for among those of living rows.

Big files have Bloom filters of unique columns, so that few of their row groups are read for new values. A row that has
one of the values counts if it is the latest one of its key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_

from ontolake.model.columns import Column
from ontolake.model.types import TypeInfo
from ontolake.ontology.arrow.physical import COMMIT, ROW, encoded, place, places
from ontolake.ontology.errors import UniqueFieldError
from ontolake.ontology.keys import decoded_key
from ontolake.ontology.repository.objects.deletions import find_rows, keys_of
from ontolake.ontology.repository.objects.layout import DataFile, TypeState
from ontolake.ontology.repository.objects.read import bloom
from ontolake.ontology.repository.objects.read.scan import LATEST, Scanner, relevant
from ontolake.ontology.repository.protocol import Row

_LOOKED_FOR = 5_000
"""For more values than these all rows are read."""


def check_unique(
    scanner: Scanner, info: TypeInfo, state: TypeState | None, written: pa.Table, gone: Collection[Row]
) -> None:  # fmt: skip
    """Raise `UniqueFieldError` if a row that is written has a value of another living row. `gone` are keys that end."""
    if not len(written):
        return
    moved = {*keys_of(info, written), *gone}
    for column in info.unique:
        known: dict[Any, Row] = {}
        for key, value in _values(info, column, written):
            if known.setdefault(value, key) != key:
                raise _clash(info, column, value, key, known[value])
        for key, value in holders(scanner, info, state, column, known):
            if key not in moved:
                raise _clash(info, column, value, known[value], key)


def holders(
    scanner: Scanner, info: TypeInfo, state: TypeState | None, column: Column, values: Iterable[Any]
) -> list[tuple[Row, Any]]:  # fmt: skip
    """The keys of living rows that have one of these encoded values in a column, each with the value."""
    wanted = set(values)
    runs, _ = relevant(state, LATEST)
    some = None if len(wanted) > _LOOKED_FOR else _arrow_values(column, wanted)
    if some is None or not any(file.row_count > scanner.files.sizes.small_rows for file in runs):
        there = scanner.scan(info, state, columns=(column,))
        return [one for one in _values(info, column, _with(there, column, wanted)) if one[1] in wanted]
    keys: dict[Row, None] = {}
    names = [*places((*info.keys, column)), COMMIT, ROW]
    sought = bloom.sought(some.to_pylist())
    scanner.files.load(runs)
    for file in runs:
        rows = _candidates(scanner, file, names, place(column), sought)
        keys |= dict.fromkeys(keys_of(info, _with(rows, column, wanted)))
    found = find_rows(scanner, info, state, list(keys))
    return [one for one in _values(info, column, found) if one[1] in wanted]


def _candidates(
    scanner: Scanner, file: DataFile, names: Sequence[str], name: str, sought: bloom.ValueHashes
) -> pa.Table:  # fmt: skip
    """The rows of a file that can have one of these values in a column."""
    if file.row_count <= scanner.files.sizes.small_rows:
        return scanner.files.table(file, names)
    groups = scanner.files.groups_with(file, name, sought)
    if groups is None:
        return scanner.files.table(file, names)
    return scanner.files.groups(file, groups, names)


def _arrow_values(column: Column, values: Collection[Any]) -> pa.Array | None:
    """Encoded values as files hold them, if filters can be asked for them."""
    kind = column.type.physical_type()
    return column.type.to_arrow(list(values)).cast(kind) if bloom.is_filtered(kind) else None


def _with(rows: pa.Table, column: Column, wanted: Collection[Any]) -> pa.Table:
    """Those of the rows that can have one of these encoded values."""
    held = rows.column(place(column))
    if is_.is_floating(held.type):  # of floats 0.0 and -0.0 are one value, which Arrow does not know
        return rows
    some = column.type.to_arrow(list(wanted))
    return rows.filter(pc.is_in(held, value_set=some if some.type == held.type else some.cast(held.type)))


def _values(info: TypeInfo, column: Column, rows: pa.Table) -> Iterator[tuple[Row, Any]]:
    """The keys and values of rows that have one."""
    values = encoded(column, rows)
    return ((key, value) for key, value in zip(keys_of(info, rows), values, strict=True) if value is not None)


def _clash(info: TypeInfo, column: Column, value: Any, key: Row, other: Row) -> UniqueFieldError:
    return UniqueFieldError(info.name, column.name, column.decode(value), decoded_key(info, key),
                            decoded_key(info, other))  # fmt: skip
