"""Rules of types in a merge, without a graph: the renames of a branch, and rows that must keep a type they get."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ontolake.graph.commit.records import CommitRecord, Pin
from ontolake.graph.errors import ConstraintError
from ontolake.graph.merge.types import alike, check_whole, misfits, renames_since
from ontolake.graph.tables.changes import TableChange
from ontolake.graph.tables.types import GraphField, GraphType

TABLE = "node:T"


class Branch:
    """Commits that rename columns, each on the one before."""

    def __init__(self) -> None:
        self.commits: dict[str, CommitRecord] = {}
        self.head: str | None = None

    def commit(self, *, merged: str | None = None, without: bool = False, **renames: str) -> str:
        name = f"c{len(self.commits)}"
        pins = {"node:Other": Pin(None, 1, 0, "other")} | ({} if without else {TABLE: Pin(None, 1, 0, "schema")})
        extra: dict[str, Any] = {"renames": {TABLE: renames}} if renames else {}
        self.commits[name] = CommitRecord(name, self.head, merged, "main", 1, None, "", "write", pins, extra)
        self.head = name
        return name

    def renames(self, *unseen: str) -> dict[str, str] | None:
        """The renames since the first commit; `unseen` commits are known to the base."""
        assert self.head is not None
        return renames_since(self.commits, self.commits[self.head], TABLE, {*self.commits} - {"c0", *unseen})


@pytest.fixture
def branch() -> Branch:
    made = Branch()
    made.commit(before="the base")
    return made


def test_renames_of_several_commits_are_one_from_the_first_name_to_the_last(branch: Branch) -> None:
    branch.commit(a="b", x="y")
    branch.commit()
    branch.commit(b="c", z="x")
    assert branch.renames() == {"a": "c", "x": "y", "z": "x"}


def test_a_rename_that_was_taken_back_is_none(branch: Branch) -> None:
    branch.commit(a="b", x="y")
    branch.commit(b="a")
    assert branch.renames() == {"x": "y"}


def test_renames_before_the_base_do_not_count(branch: Branch) -> None:
    assert branch.renames() == {}
    branch.commit(a="b")
    branch.commit(c="d")
    assert branch.renames("c1") == {"c": "d"}


def test_a_merge_from_the_base_brings_names_that_the_base_has_already(branch: Branch) -> None:
    """What a merge renamed counts if it came from a commit that the base does not have."""
    branch.commit(a="b")
    branch.commit(merged="c0", x="y")
    assert branch.renames() == {"a": "b"}
    branch.commit(merged="c1", p="q")
    assert branch.renames() == {"a": "b", "p": "q"}


def test_a_table_that_was_dropped_since_has_no_renames(branch: Branch) -> None:
    branch.commit(a="b")
    branch.commit(without=True)
    branch.commit(c="d")
    assert branch.renames() is None
    assert branch.renames("c2") == {"c": "d"}


# Types together


def edge(name: str, left: str, right: str, cardinality: str = "n:m") -> GraphType:
    return GraphType("edge", name, ("left_key", "right_key"), (
        GraphField("left_key", "str"), GraphField("right_key", "str")), left, right, cardinality)  # fmt: skip


def node(name: str) -> GraphType:
    return GraphType("node", name, ("id",), (GraphField("id", "str"),))


def wrong(types: list[GraphType], added: list[GraphType], dropped: list[str]) -> list[tuple[str, str, str]]:
    found = misfits({one.key: one for one in types}, {one.key: one for one in added}, dropped)
    assert all(conflict.key is None for conflict in found)
    return [(conflict.kind, conflict.table, conflict.detail) for conflict in found]


def test_types_are_alike_whatever_the_order_of_their_columns() -> None:
    p, q = GraphField("p", "int"), GraphField("q", "int")
    assert alike(NODE.with_fields([p, q]), NODE.with_fields([q, p]))
    assert not alike(NODE.with_fields([p, q]), NODE.with_fields([p]))
    assert not alike(NODE.with_fields([p]), NODE.with_fields([GraphField("p", "int", id="#p")]))
    assert not alike(NODE, node("Other"))
    assert not alike(NODE, None)
    assert alike(None, None)


def test_types_that_make_a_graph_together_are_no_conflict() -> None:
    types = [node("A"), node("B"), edge("E", "A", "B")]
    assert wrong(types, [node("C"), edge("F", "A", "C")], []) == []
    assert wrong(types, [], ["edge:E", "node:B"]) == []
    assert wrong([node("A")], [node("A")], []) == [], "one type, however often it is named"


def test_edges_need_the_types_of_their_ends() -> None:
    assert wrong([node("A"), node("B"), edge("E", "A", "B")], [], ["node:B"]) == [
        ("schema", "edge/E", "it leads to node/B, which the source has dropped")]
    assert wrong([node("B")], [edge("E", "A", "B")], []) == [
        ("schema", "edge/E", "it leads to node/A, which the target has dropped")]
    assert len(wrong([], [edge("E", "A", "B")], [])) == 2


def test_an_added_type_needs_a_name_of_its_own() -> None:
    words = "the source has added it, and the target has another type of that name"
    assert wrong([node("A"), node("Thing")], [edge("THING", "A", "A"), edge("E", "A", "A")], []) == [
        ("schema", "edge/THING", words)]
    assert wrong([node("A"), node("Thing")], [edge("THING", "A", "A")], ["node:Thing"]) == []


# Rows of a table that gets another type

NODE = GraphType("node", "T", ("id",), (
    GraphField("id", "str", unique=True), GraphField("mail", "str", nullable=True, unique=True),
    GraphField("n", "int", ge=0)))  # fmt: skip
STORED = pa.Table.from_pylist([
    {"id": "a", "mail": "same", "n": 1}, {"id": "b", "mail": "other", "n": 1}, {"id": "c", "mail": None, "n": 1},
    {"id": "d", "mail": None, "n": 1}], NODE.schema)  # fmt: skip


def problems(kind: GraphType, stored: pa.Table, change: TableChange | None = None) -> list[tuple[str, Any]]:
    found: list[ConstraintError] = []
    check_whole(kind, stored, change, found.append)
    assert all(error.table == kind.table and error.reason for error in found)
    return [(error.constraint, error.key) for error in found]


def row(key: str, mail: str | None, n: int = 1) -> pa.Table:
    return pa.Table.from_pylist([{"id": key, "mail": mail, "n": n}], NODE.schema)


def keys(*names: str) -> pa.Table:
    return pa.table({"id": list(names)})


def test_rows_that_keep_the_rules_are_no_problem() -> None:
    assert problems(NODE, STORED) == []
    assert problems(NODE, STORED, TableChange(row("e", "new"), keys("a"))) == []
    assert problems(NODE, NODE.schema.empty_table(), TableChange(row("e", "new"), keys("a"))) == []


def test_stored_rows_and_those_to_put_are_checked_together() -> None:
    assert problems(NODE, pa.concat_tables([STORED, row("e", "same")])) == [("unique", "e")]
    assert problems(NODE, STORED, TableChange(row("e", "same"))) == [("unique", "e")]
    assert problems(NODE, STORED, TableChange(row("e", "new", -1))) == [("range", "e")]
    assert problems(NODE, NODE.schema.empty_table(), TableChange(row("e", "new", -1))) == [("range", "e")]
    assert problems(NODE, pa.concat_tables([STORED, row("e", "same", -1)])) == [("range", "e"), ("unique", "e")]


def test_rows_that_go_or_are_put_anew_do_not_count_as_they_were() -> None:
    twice = pa.concat_tables([STORED, row("e", "same")])
    assert problems(NODE, twice, TableChange(deletes=keys("a"))) == []
    assert problems(NODE, twice, TableChange(row("a", "new"))) == []
    assert problems(NODE, twice, TableChange(row("b", "same"), keys("a"))) == [("unique", "b")]
    assert problems(NODE, twice, TableChange(row("f", "new"), keys("b"))) == [("unique", "e")]


@pytest.mark.parametrize(("cardinality", "again"), [
    ("n:m", []), ("1:n", [("x", "2")]), ("n:1", [("y", "1")]), ("1:1", [("x", "2"), ("y", "1")])])  # fmt: skip
def test_edges_keep_the_cardinality_of_the_type(cardinality: str, again: list[tuple[str, str]]) -> None:
    kind = edge("E", "L", "R", cardinality)
    ends = [("y", "2"), ("x", "2"), ("y", "1"), ("z", "3")]
    stored = pa.Table.from_pylist([{"left_key": left, "right_key": right} for left, right in ends], kind.schema)
    assert problems(kind, stored) == [("cardinality", key) for key in again]
