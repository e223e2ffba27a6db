"""Rows of three sides merge as plain dictionaries do, without a graph around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ontolake.errors import Invalid
from ontolake.graph.errors import UnknownTableError
from ontolake.graph.merge.results import MergeConflict
from ontolake.graph.merge.rows import MergedRows, Strategy, merge_rows, strategies_by_table
from ontolake.graph.tables.types import GraphField, GraphType

KIND = GraphType("node", "T", ("id",), (GraphField("id", "str"), GraphField("a", "int"), GraphField("b", "int")))
HERE: dict[str, str | None] = {"id": "id", "a": "a", "b": "b"}
Row = tuple[int | None, int | None] | None
"""The values of both columns; None for a row that is not there."""
Rows = Mapping[str, Row]


def table(rows: Rows) -> pa.Table:
    """Rows in an order of their own: the last key first."""
    listed = [{"id": key, "a": row[0], "b": row[1]} for key, row in rows.items() if row is not None]
    return pa.Table.from_pylist(listed[::-1], KIND.schema)


def merge(
    base: Rows, theirs: Rows, ours: Rows, *, disputed: Sequence[str] = (), strategy: Strategy | None = None,
    their_columns: Mapping[str, str | None] = HERE, our_columns: Mapping[str, str | None] = HERE,
) -> MergedRows:  # fmt: skip
    keys = sorted({*base, *theirs, *ours})
    return merge_rows(KIND, pa.table({"id": keys}), table(base), table(theirs), table(ours), strategy=strategy,
                      disputed=np.array([key in disputed for key in keys]), their_columns=their_columns,
                      our_columns=our_columns)  # fmt: skip


def after(ours: Rows, merged: MergedRows) -> dict[str, Row]:
    """What the target holds after the change, and that the counts tell it."""
    left: dict[str, Row] = {key: row for key, row in ours.items() if row is not None}
    inserted, updated, deleted = 0, 0, 0
    if merged.change is not None:
        assert not merged.change.replace
        puts = [] if merged.change.puts is None else merged.change.puts.to_pylist()
        deletes = [] if merged.change.deletes is None else merged.change.deletes.column("id").to_pylist()
        assert merged.change.steps == bool(puts) + bool(deletes) > 0, "None in place of nothing"
        for row in puts:
            inserted, updated = inserted + (row["id"] not in left), updated + (row["id"] in left)
            left[row["id"]] = (row["a"], row["b"])
        for key in deletes:
            deleted += left.pop(key) is not None
        assert merged.change.fresh == (inserted > 0 and updated == deleted == 0)
    assert merged.counts == (inserted, updated, deleted)
    return left


def three(base: Any, theirs: Any, ours: Any) -> tuple[Any, bool]:
    """What two make of one value, and whether they can."""
    if theirs in (base, ours):
        return ours, True
    return theirs, ours == base


def expected(base: Row, theirs: Row, ours: Row) -> tuple[Row, str | None]:
    """What becomes of a row, or the kind of conflict."""
    row, decided = three(base, theirs, ours)
    if decided:
        return row, None
    if base is None:
        return None, "divergent_insert"
    if theirs is None or ours is None:
        return None, "delete_update"
    fields = [three(*values) for values in zip(base, theirs, ours, strict=True)]
    if all(fits for _, fits in fields):
        return (fields[0][0], fields[1][0]), None
    return None, "divergent_update"


STATES: list[Row] = [None, *product((1, 2, None), (1, 2))]
CASES = {f"{number:03d}": states for number, states in enumerate(product(STATES, STATES, STATES))}
BASE, THEIRS, OURS = ({key: states[side] for key, states in CASES.items()} for side in range(3))
WANTED = {key: expected(*states) for key, states in CASES.items()}


def test_every_row_is_what_the_truth_table_says() -> None:
    merged = merge(BASE, THEIRS, OURS)
    assert {conflict.key: conflict.kind for conflict in merged.conflicts} == {
        key: kind for key, (_, kind) in WANTED.items() if kind is not None}
    assert after(OURS, merged) == {
        key: row for key, row in ((key, OURS[key] if kind else row) for key, (row, kind) in WANTED.items())
        if row is not None}  # fmt: skip


@pytest.mark.parametrize(("strategy", "winner"), [("ours", OURS), ("theirs", THEIRS)])
def test_a_strategy_decides_conflicts_and_nothing_else(strategy: Strategy, winner: Rows) -> None:
    merged = merge(BASE, THEIRS, OURS, strategy=strategy)
    assert merged.conflicts == []
    assert after(OURS, merged) == {
        key: row for key, row in ((key, winner[key] if kind else row) for key, (row, kind) in WANTED.items())
        if row is not None}  # fmt: skip


def test_conflicts_tell_who_did_what() -> None:
    found = merge({"both": (1, 1), "mine": (1, 1), "yours": (1, 1)},
                  {"both": (2, 1), "new": (1, 1), "mine": (2, 1), "yours": None},
                  {"both": (3, 1), "new": (2, 1), "mine": None, "yours": (2, 1)})  # fmt: skip
    assert found == (None, (0, 0, 0), [
        MergeConflict("divergent_update", "node/T", "both", "both branches changed it, differently"),
        MergeConflict("delete_update", "node/T", "mine", "the source changed it, the target deleted it"),
        MergeConflict("divergent_insert", "node/T", "new", "both branches inserted it, differently"),
        MergeConflict("delete_update", "node/T", "yours", "the source deleted it, the target changed it")])  # fmt: skip


def test_one_change_of_each_kind() -> None:
    for theirs, fresh in (({"x": (1, 1), "new": (2, 2)}, True), ({"x": (2, 1)}, False), ({"x": None}, False),
                          ({"x": None, "new": (2, 2)}, False), ({"x": (2, 1), "new": (2, 2)}, False)):  # fmt: skip
        merged = merge({"x": (1, 1)}, theirs, {"x": (1, 1)})
        assert merged.change is not None
        assert merged.change.fresh == fresh
        assert after({"x": (1, 1)}, merged) == {key: row for key, row in theirs.items() if row is not None}
    assert merge({"x": (1, 1)}, {"x": (1, 1)}, {"x": (2, 1)}) == (None, (0, 0, 0), [])


def test_a_single_row_joins_over_its_columns() -> None:
    merged = merge({"x": (1, 1)}, {"x": (2, 1)}, {"x": (1, 2)})
    assert (merged.conflicts, after({"x": (1, 2)}, merged)) == ([], {"x": (2, 2)})


def test_what_the_bases_dispute_conflicts_unless_both_sides_agree() -> None:
    """A disputed row is not among those of the base, but it was there: it is no insert."""
    theirs: Rows = {"agreed": (1, 1), "gone": None, "other": (1, 1), "went": (1, 1)}
    ours: Rows = {"agreed": (1, 1), "gone": (1, 1), "other": (2, 1), "went": None}
    merged = merge({}, theirs, ours, disputed=list(theirs))
    assert [(conflict.key, conflict.kind) for conflict in merged.conflicts] == [
        ("gone", "delete_update"), ("other", "divergent_update"), ("went", "delete_update")]
    assert after(ours, merge({}, theirs, ours, disputed=list(theirs), strategy="theirs")) == {
        key: row for key, row in theirs.items() if row is not None}


def test_rows_that_both_inserted_join_over_columns_that_one_side_does_not_have() -> None:
    """A column that a side does not have has its default there, which says nothing."""
    theirs: Rows = {"same": (1, 5), "other": (1, 5)}
    ours: Rows = {"same": (1, 7), "other": (2, 7)}
    lacking: dict[str, str | None] = {**HERE, "b": None}
    merged = merge({}, theirs, ours, our_columns=lacking)
    assert [(conflict.key, conflict.kind) for conflict in merged.conflicts] == [("other", "divergent_insert")]
    assert after(ours, merged) == {"same": (1, 5), "other": (2, 7)}
    assert after(ours, merge({}, theirs, ours, their_columns=lacking)) == {"same": (1, 7), "other": (2, 7)}
    assert merge({}, theirs, ours).change is None
    merged = merge({}, {"k": (5, 1)}, {"k": (7, 1)}, our_columns={**HERE, "a": None})
    assert after({"k": (7, 1)}, merged) == {"k": (5, 1)}
    assert merge({}, {"k": (5, 1)}, {"k": (7, 2)}, our_columns={**HERE, "a": None}).change is None


def test_strategies_are_given_for_all_tables_or_by_name() -> None:
    tables = {"node:A": 1, "edge:B": 2}
    assert strategies_by_table(None, tables) == {}
    assert strategies_by_table("ours", tables) == {"node:A": "ours", "edge:B": "ours"}
    assert strategies_by_table({"A": "theirs", "edge/B": "ours"}, tables) == {"node:A": "theirs", "edge:B": "ours"}
    with pytest.raises(Invalid, match="'mine' is not known"):
        strategies_by_table({"A": "ours", "B": "mine"}, tables)  # type: ignore[dict-item]
    with pytest.raises(UnknownTableError):
        strategies_by_table({"C": "ours"}, tables)
