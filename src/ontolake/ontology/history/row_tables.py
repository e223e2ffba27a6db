"""Encoded rows of a type as Arrow tables and back, for merging: under stored names, without any loss."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from ontolake.history.bases import base_values
from ontolake.history.dag import Dag
from ontolake.history.rows import positions, virtual_row
from ontolake.history.threeway import Disputed
from ontolake.model.codecs import NAN
from ontolake.model.columns import Column
from ontolake.model.types import TypeInfo
from ontolake.ontology.history.lifted_states import LiftedStates
from ontolake.ontology.history.states import Name
from ontolake.ontology.keys import decoded_key
from ontolake.ontology.repository.protocol import Row

_TYPES = {"TEXT": pa.string(), "INTEGER": pa.int64(), "REAL": pa.float64(), "BLOB": pa.binary()}


class RowTables:
    """The rows of one version of a type as Arrow tables."""

    def __init__(self, info: TypeInfo) -> None:
        self.info = info
        self.columns = (*info.keys, *info.columns)
        self.names = tuple(column.stored for column in info.keys)
        self.schema = pa.schema([pa.field(column.stored, _TYPES[column.sqlite_type]) for column in self.columns])
        self._by_name = {column.stored: column for column in self.columns}

    def table(self, rows: Collection[Row]) -> pa.Table:
        """Encoded rows, keys first."""
        parts = _columns(rows, len(self.columns))
        return pa.table([pa.array(_held(column, part), field.type)
                         for column, part, field in zip(self.columns, parts, self.schema, strict=True)],
                        schema=self.schema)

    def keys(self, keys: Collection[Row]) -> pa.Table:
        """Encoded keys."""
        parts = _columns(keys, len(self.names))
        fields = [self.schema.field(name) for name in self.names]
        return pa.table([pa.array(part, field.type) for part, field in zip(parts, fields, strict=True)],
                        schema=pa.schema(fields))

    def rows(self, table: pa.Table) -> list[Row]:
        """The rows of a table, or only their keys if it has no more."""
        columns = [self._by_name[name] for name in table.column_names]
        parts = [_encoded(column, table.column(number).to_pylist()) for number, column in enumerate(columns)]
        return list(zip(*parts, strict=True))

    def key_of(self, row: Mapping[str, Any]) -> Any:
        """The key of a row as users see it."""
        return decoded_key(self.info, tuple(row[name] for name in self.names))

    def plain(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row, or some of its values, as users see them."""
        return {name: self._by_name[name].decode(_encoded(self._by_name[name], [value])[0])
                for name, value in row.items()}


def base_table(
    tables: RowTables, states: LiftedStates, name: Name, dag: Dag[int], bases: Sequence[int], keys: Sequence[Row]
) -> tuple[pa.Table, Any, dict[str, Any]]:  # fmt: skip
    """The rows of the base, or of what merging several bases gives, and what these do not agree on."""
    if len(bases) == 1:
        return tables.table(states.rows(name, keys, bases[0])), None, {}

    def read(commit: int, some: Sequence[Row]) -> dict[Row, Any]:
        found = tables.table(states.rows(name, some, commit))
        at = positions(tables.names, tables.keys(some), found)
        rows = found.to_pylist()
        return {key: rows[place] if place >= 0 else None for key, place in zip(some, at.tolist(), strict=True)}

    def same(one: Any, other: Any) -> bool:
        return bool(one == other or (one != one and other != other))

    values = base_values(dag, bases, keys, read=read, same=same, absent=None,
                         merge=lambda base, ours, theirs: virtual_row(base, ours, theirs, same))
    disputed = np.array([isinstance(values[key], Disputed) for key in keys], dtype=bool)
    fields = {name: np.array([isinstance(values[key], dict) and isinstance(values[key][name], Disputed)
                              for key in keys], dtype=bool) for name in tables.schema.names}  # fmt: skip
    rows = [{name: None if isinstance(value, Disputed) else value for name, value in row.items()}
            for row in values.values() if isinstance(row, dict)]
    return (pa.Table.from_pylist(rows, tables.schema), disputed,
            {name: mask for name, mask in fields.items() if mask.any()})


def _columns(rows: Collection[Row], width: int) -> list[list[Any]]:
    """The values of rows, column by column. To unpack rows into `zip` would make an object for each, all at once."""
    return [list(map(itemgetter(place), rows)) for place in range(width)]


def _held(column: Column, values: Sequence[Any]) -> Sequence[Any]:
    """Encoded values as Arrow holds them."""
    if column.sqlite_type != "REAL":
        return values
    return [math.nan if value == NAN else value for value in values] if NAN in values else values


def _encoded(column: Column, values: Sequence[Any]) -> Sequence[Any]:
    """The same the other way."""
    if column.sqlite_type != "REAL":
        return values
    return [NAN if value is not None and value != value else value for value in values]
