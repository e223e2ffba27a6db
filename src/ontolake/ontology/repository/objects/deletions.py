"""Deletions on objects, from v3 on: a row that ends its key is a copy of the last state, with a mark."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.model.stored import StoredType
from ontolake.ontology.arrow.physical import COMMIT, DELETED, REPLACES, ROW, Type, encoded, key_text, places
from ontolake.ontology.repository.objects.layout import TypeState
from ontolake.ontology.repository.objects.moment import HeadSnapshot
from ontolake.ontology.repository.objects.read.scan import Scanner
from ontolake.ontology.repository.objects.read.search import leading_type
from ontolake.ontology.repository.protocol import Row

SIDES = ("left", "right")


def keys_of(info: Type, table: pa.Table) -> list[Row]:
    """The keys of rows, encoded."""
    return list(zip(*(encoded(column, table) for column in info.keys), strict=True))


def find_rows(scanner: Scanner, info: Type, state: TypeState | None, keys: Collection[Row]) -> pa.Table:
    """The latest rows of these keys, as far as they are there."""
    unique = list(dict.fromkeys(keys))
    leading = [key[0] for key in unique]
    if len(info.keys) == 1:
        return scanner.find(info, state, pa.array(leading, leading_type(info)), leading)
    return scanner.find(info, state, pa.array([key_text(info, key) for key in unique], pa.string()), leading)


def ended_rows(scanner: Scanner, info: Type, state: TypeState | None, keys: Collection[Row]) -> pa.Table:
    """The last states of keys that are to end, and the numbers of the rows that have them, without what else only
    these rows had: commit, mark and the like."""
    found = find_rows(scanner, info, state, keys)
    ours = set(places((*info.keys, *info.columns)))
    kept = found.select([name for name in found.column_names if name in ours])
    return kept.append_column(REPLACES, found.column(ROW))


def marks(info: Type, ended: pa.Table) -> pa.Table:
    """The rows that end these keys."""
    return ended.append_column(DELETED, pa.array(np.ones(len(ended), dtype=bool)))


def leading_to(moment: HeadSnapshot, entity: str) -> Iterator[tuple[StoredType, Sequence[int]]]:
    """The types of relations that can lead to entities of a type, and at which of their ends."""
    for (kind, _), version in sorted(moment.current.items()):
        ends = [number for number, side in enumerate(SIDES) if version.schema.get(side) == entity]
        if kind == "relation" and ends:
            yield StoredType(version.schema), ends


def with_ends(info: Type, rows: pa.Table, sides: Sequence[int], wanted: Sequence[object]) -> pa.Table:
    """Those of the relations that have one of these entities at one of these ends."""
    found = np.zeros(len(rows), dtype=bool)
    for side in sides:
        column = info.keys[side]
        kind = pa.int64() if column.sqlite_type == "INTEGER" else pa.string()
        keys = pa.array(encoded(column, rows), kind)
        found |= pc.is_in(keys, value_set=pa.array(wanted, kind)).to_numpy(zero_copy_only=False)
    return rows.filter(pa.array(found))


def relations(
    scanner: Scanner, info: Type, state: TypeState | None, sides: Sequence[int], wanted: Sequence[object]
) -> dict[Row, int]:  # fmt: skip
    """The living relations that have one of these entities at one of these ends, with the commits that wrote them."""
    only = list(dict.fromkeys(wanted)) if tuple(sides) == (0,) else None
    there = scanner.scan(info, state, columns=info.keys, keys=only)
    found = with_ends(info, there, sides, wanted)
    return dict(zip(keys_of(info, found), found.column(COMMIT).to_pylist(), strict=True))


__all__ = ["ended_rows", "find_rows", "keys_of", "leading_to", "marks", "relations", "with_ends"]
