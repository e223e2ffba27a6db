"""The base of a merge of graphs where histories are criss-crossed: the merge of several bases, asked for by key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isnan
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ontolake.history.bases import base_values
from ontolake.history.rows import positions, same, virtual_row
from ontolake.history.threeway import Disputed, Outcome, decide

if TYPE_CHECKING:
    from ontolake.graph.commit.lineage import Lineage
    from ontolake.graph.commit.records import CommitRecord, Pin
    from ontolake.graph.tables.types import GraphType

Row = dict[str, Any]
ReadRows = Callable[["CommitRecord", pa.Table], pa.Table]
"""The rows of a commit with some keys, in the type that the merge gives the table."""


def base_pins(lineage: Lineage, bases: Sequence[str], commits: Mapping[str, CommitRecord]) -> tuple[
    dict[str, Pin], dict[str, str], set[str]
]:  # fmt: skip
    """What a merge takes for the base of each table: a pin, the commit that shows it, and the tables in dispute.

    The bases are merged by the type that each gives a table. Of those with the resulting type the newest one counts; if
    they cannot agree on one, the newest of all.
    """
    keys = sorted({key for base in bases for key in commits[base].pins})

    def read(commit: str, wanted: Sequence[str]) -> dict[str, str | Disputed | None]:
        pins = commits[commit].pins
        return {key: pins[key].schema if key in pins else None for key in wanted}

    types = base_values(lineage, bases, keys, read=read, same=lambda one, other: one == other, merge=_merged_type,
                        absent=None)  # fmt: skip
    shown: dict[str, Pin] = {}
    origins: dict[str, str] = {}
    disputed: set[str] = set()
    for key in keys:
        if types[key] is None:
            continue
        having = [base for base in bases if key in commits[base].pins]
        chosen = [base for base in having if commits[base].pins[key].schema == types[key]]
        if not chosen:
            disputed.add(key)
        origins[key] = (chosen or having)[-1]
        shown[key] = commits[origins[key]].pins[key]
    return shown, origins, disputed


def _merged_type(base: Any, ours: Any, theirs: Any) -> Any:
    outcome = decide(base, theirs, ours, lambda one, other: one == other)
    return ours if outcome is Outcome.KEEP else theirs if outcome is Outcome.TAKE else Disputed()


class BaseRows(NamedTuple):
    """The rows of a base, and for each key whether several bases dispute its row, or one field of it."""

    rows: pa.Table
    disputed: Any
    fields: dict[str, Any]


def base_rows(
    lineage: Lineage, bases: Sequence[str], commits: Mapping[str, CommitRecord], kind: GraphType, keys: pa.Table,
    read: ReadRows,
) -> BaseRows:  # fmt: skip
    """The rows with these keys in the merge of the bases.

    A row that is disputed as a whole is not among the rows; a field that is disputed has no value.
    """
    names = [field.name for field in kind.fields]
    rows = read(commits[bases[0]], keys)
    places = positions(kind.keys, keys, rows)
    differing = np.zeros(keys.num_rows, dtype=bool)
    for base in bases[1:]:
        others = read(commits[base], keys)
        differing |= ~same(names, rows, places, others, positions(kind.keys, keys, others))
    disputed = np.zeros(keys.num_rows, dtype=bool)
    if not differing.any():
        return BaseRows(rows, disputed, {})

    def read_some(commit: str, wanted: Sequence[int]) -> dict[int, Row | Disputed | None]:
        some = keys.take(pa.array(wanted, pa.int64()))
        table = read(commits[commit], some)
        listed = table.to_pylist()
        found = positions(kind.keys, some, table)
        return {index: listed[place] if place >= 0 else None for index, place in zip(wanted, found, strict=True)}

    merged = base_values(
        lineage, bases, [int(index) for index in np.flatnonzero(differing)], read=read_some, same=_same_rows,
        merge=lambda base, ours, theirs: virtual_row(base, ours, theirs, _same_values), absent=None)  # fmt: skip
    kept = rows.take(pa.array(places[~differing & (places >= 0)], pa.int64()))
    disputed[[index for index, row in merged.items() if isinstance(row, Disputed)]] = True
    fields: dict[str, Any] = {}
    joined: list[Row] = []
    for index, row in merged.items():
        if isinstance(row, dict):
            for name in (name for name, value in row.items() if isinstance(value, Disputed)):
                fields.setdefault(name, np.zeros(keys.num_rows, dtype=bool))[index] = True
            joined.append({name: None if isinstance(value, Disputed) else value for name, value in row.items()})
    return BaseRows(pa.concat_tables([kept, pa.Table.from_pylist(joined, kept.schema)]), disputed, fields)


def _same_rows(one: Row | Disputed | None, other: Row | Disputed | None) -> bool:
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one is None and other is None
    return all(_same_values(value, other[name]) for name, value in one.items())


def _same_values(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and isnan(one) and isnan(other):
        return True
    return bool(one == other)
