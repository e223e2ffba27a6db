"""What differs: declared rows compared with the latest ones, all columns at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.arrow_values import numbers
from ontolake.model.columns import Column
from ontolake.ontology.arrow.physical import ROW, Type, encoded, key_texts, naive_place, place
from ontolake.ontology.repository.objects.layout import TypeState
from ontolake.ontology.repository.objects.read.scan import Scanner

Mask = np.ndarray[Any, Any]


class Difference(NamedTuple):
    """The rows that are to be written, in the order in which they were declared, and how many replace another.

    `replaced` has the number of the row that each replaces, null for new keys. It is None if that is not known.
    """

    rows: pa.Table
    updates: int
    replaced: pa.Array | None = None


def difference(info: Type, scanner: Scanner, state: TypeState | None, rows: pa.Table) -> Difference:
    """Those of the rows, whose keys are unique, that are new or differ from the latest state."""
    if state is None or not state.runs or not len(rows):
        return Difference(rows, 0)
    texts = key_texts(info, rows)
    before = scanner.find(info, state, texts, encoded(info.keys[0], rows))
    if not len(before):
        return Difference(rows, 0)
    at = pc.index_in(texts, value_set=key_texts(info, before))
    known = at.is_valid()
    changed = ~_same(info, rows.filter(known), before.take(at.drop_null()))
    written = ~numbers(known)
    written[~written] = changed
    updates = int(changed.sum())
    replaced = before.column(ROW).combine_chunks().take(at)
    if written.all():
        return Difference(rows, updates, replaced)
    mask = pa.array(written)
    return Difference(rows.filter(mask), updates, replaced.filter(mask))


def _same(info: Type, new: pa.Table, old: pa.Table) -> Mask:
    found = np.ones(len(new), dtype=bool)
    for column in info.columns:
        found &= _alike(column, new, old)
    return found


def _alike(column: Column, new: pa.Table, old: pa.Table) -> Mask:
    name = place(column)
    one, two = new.column(name), old.column(name)
    same = column.type.arrow_equal(one, two)
    if one.null_count or two.null_count:
        same = pc.or_kleene(pc.fill_null(same, False), pc.and_(one.is_null(), two.is_null()))
    found: Mask = numbers(same)
    if column.type.compare is not None and not found.all():
        for row in np.flatnonzero(~found):
            found[row] = column.type.same(one[row].as_py(), two[row].as_py())
    if column.type.zoned:
        zones = [_flags(table, naive_place(column)) for table in (new, old)]
        found = found & (zones[0] == zones[1])
    return found.astype(bool)


def _flags(table: pa.Table, name: str) -> Mask:
    if name not in table.column_names:
        return np.zeros(len(table), dtype=bool)
    values: Mask = numbers(pc.fill_null(table.column(name), False))
    return values.astype(bool)
