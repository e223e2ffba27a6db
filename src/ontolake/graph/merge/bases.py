"""The base of a merge of graphs where histories are criss-crossed: the merge of several bases, asked for by key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ontolake.graph.merge.differences import positions, same
from ontolake.history.bases import base_values
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


def base_rows(
    lineage: Lineage, bases: Sequence[str], commits: Mapping[str, CommitRecord], kind: GraphType, keys: pa.Table,
    read: ReadRows,
) -> tuple[pa.Table, Any]:  # fmt: skip
    """The rows with these keys in the merge of the bases, and for each key whether the bases dispute it.

    A disputed row is not among the rows. It is disputed as a whole, also if the bases disagree on one field alone.
    """
    rows = read(commits[bases[0]], keys)
    places = positions(kind, keys, rows)
    differing = np.zeros(keys.num_rows, dtype=bool)
    for base in bases[1:]:
        others = read(commits[base], keys)
        differing |= ~same(kind, rows, places, others, positions(kind, keys, others))
    disputed = np.zeros(keys.num_rows, dtype=bool)
    if not differing.any():
        return rows, disputed

    def read_some(commit: str, wanted: Sequence[int]) -> dict[int, Row | Disputed | None]:
        some = keys.take(pa.array(wanted, pa.int64()))
        table = read(commits[commit], some)
        listed = table.to_pylist()
        found = positions(kind, some, table)
        return {index: listed[place] if place >= 0 else None for index, place in zip(wanted, found, strict=True)}

    merged = base_values(lineage, bases, [int(index) for index in np.flatnonzero(differing)], read=read_some,
                         same=_same_rows, merge=_merged_row, absent=None)
    kept = rows.take(pa.array(places[~differing & (places >= 0)], pa.int64()))
    made = [row for row in merged.values() if isinstance(row, dict)]
    disputed[[index for index, row in merged.items() if isinstance(row, Disputed)]] = True
    return pa.concat_tables([kept, pa.Table.from_pylist(made, kept.schema)]), disputed


def _same_rows(one: Row | Disputed | None, other: Row | Disputed | None) -> bool:
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one is None and other is None
    return all(_same_values(value, other[name]) for name, value in one.items())


def _same_values(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and isnan(one) and isnan(other):
        return True
    return bool(one == other)


def _merged_row(
    base: Row | Disputed | None, ours: Row | Disputed | None, theirs: Row | Disputed | None
) -> Row | Disputed | None:
    outcome = decide(base, theirs, ours, _same_rows)
    if outcome is not Outcome.CLASH:
        return ours if outcome is Outcome.KEEP else theirs
    if not isinstance(base, dict) or not isinstance(ours, dict) or not isinstance(theirs, dict):
        return Disputed()
    merged = dict(ours)
    for name, value in theirs.items():
        field = decide(base[name], value, ours[name], _same_values)
        if field is Outcome.CLASH:
            return Disputed()
        if field is Outcome.TAKE:
            merged[name] = value
    return merged
