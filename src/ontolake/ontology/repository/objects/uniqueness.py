"""Unique fields on objects, from v3 on: what a commit writes is compared with the same column of all living rows.

There is no index by value in Parquet files, so a commit to such a type reads the keys and its unique columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_

from ontolake.model.columns import Column
from ontolake.model.types import TypeInfo
from ontolake.ontology.arrow.physical import encoded, place
from ontolake.ontology.errors import UniqueFieldError
from ontolake.ontology.keys import decoded_key
from ontolake.ontology.repository.objects.deletions import keys_of
from ontolake.ontology.repository.objects.layout import TypeState
from ontolake.ontology.repository.objects.read.scan import Scanner
from ontolake.ontology.repository.protocol import Row


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
    there = scanner.scan(info, state, columns=(column,))
    held = there.column(place(column))
    if not is_.is_floating(held.type):  # of floats 0.0 and -0.0 are one value, which Arrow does not know
        some = column.type.to_arrow(list(wanted))
        some = some if some.type == held.type else some.cast(held.type)
        there = there.filter(pc.is_in(held, value_set=some))
    return [(key, value) for key, value in _values(info, column, there) if value in wanted]


def _values(info: TypeInfo, column: Column, rows: pa.Table) -> Iterator[tuple[Row, Any]]:
    """The keys and values of rows that have one."""
    values = encoded(column, rows)
    return ((key, value) for key, value in zip(keys_of(info, rows), values, strict=True) if value is not None)


def _clash(info: TypeInfo, column: Column, value: Any, key: Row, other: Row) -> UniqueFieldError:
    return UniqueFieldError(info.name, column.name, column.decode(value), decoded_key(info, key),
                            decoded_key(info, other))  # fmt: skip
