"""What a merge does to whole tables: added, dropped, made anew, of another type; and targets that move meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar

import pytest
from graph_support import entity, held

from ontolake import faults
from ontolake.graph import BranchError, Graph, MergeConflictError, Unique
from ontolake.graph.errors import EndpointError
from ontolake.history import Conflict, MergeResult, MergeStatus, Resolution
from ontolake.history.operations import TRIES
from ontolake.model import Entity, Field, Relation

NUMBER = (int, {"default": 0})
TEXT = (str, {"default": ""})


class A(Entity):
    id: Field[str] = Field(primary_key=True)
    n: Field[int] = Field(default=0)


class B(Entity):
    id: Field[str] = Field(primary_key=True)


class E(Relation[A, B]):
    cardinality: ClassVar[str] = "1:n"


WIDE = entity("A", str, n=NUMBER, more=TEXT)


@pytest.fixture
def graph(url: str) -> Iterator[Graph]:
    """Two rows in A, one in B, and a branch from there."""
    with Graph.init(url, [A, B]) as made:
        with made.transaction() as tx:
            tx.load(A, [{"id": "x"}, {"id": "y"}])
            tx.load(B, [{"id": "b"}])
        made.branches.create("try")
        yield made


def evolve(graph: Graph, branch: str, *types: Any, **renames: dict[str, str]) -> None:
    graph.schema_apply(graph.schema_plan([*types], renames=renames or None, branch=branch))


def ns(graph: Graph, branch: str = "main", table: str = "node/A") -> dict[str, int]:
    return {key: row["n"] for key, row in held(graph, branch)[table].items()}


def merge(graph: Graph, **options: Any) -> MergeResult[str]:
    """Merge as a dry run says, and find the graph whole."""
    dry = graph.merge("try", dry_run=True, **options)
    assert dry.commit is None
    result = graph.merge("try", **options)
    assert result.commit is not None
    assert (result.status, result.tables, result.conflicts) == (dry.status, dry.tables, ())
    assert list(graph.verify()) == []
    pins = graph.parts.state("main").pins
    assert {key.replace(":", "/"): pin.rows for key, pin in pins.items()} == {
        table: len(rows) for table, rows in held(graph).items()}
    return result


def short(conflict: Conflict) -> tuple[str, str, Any, str]:
    return conflict.kind.value, conflict.table, conflict.key, conflict.detail


def conflicts(graph: Graph, **options: Any) -> list[tuple[str, str, Any, str]]:
    """The conflicts of a merge, which changes nothing."""
    before = held(graph)
    with pytest.raises(MergeConflictError) as caught:
        graph.merge("try", **options)
    dry = graph.merge("try", dry_run=True, **options)
    assert (dry.status, dry.conflicts) == ("conflicts", list(caught.value.conflicts))
    assert held(graph) == before
    return [short(conflict) for conflict in dry.conflicts]


# Tables that one side adds or drops


def test_an_added_table_comes_with_its_rows_or_without_any(graph: Graph) -> None:
    evolve(graph, "try", A, B, E, entity("Empty"))
    graph.load(E, [{"left_key": "x", "right_key": "b"}], branch="try")
    result = merge(graph)
    assert (result.status, result.tables) == ("fast_forward", {"edge/E": (1, 0, 0), "node/Empty": (0, 0, 0)})
    assert held(graph) == held(graph, "try")
    graph.load("Empty", [{"id": "1"}])
    assert list(held(graph)["node/Empty"]) == ["1"]


def test_an_added_table_needs_a_name_that_the_target_does_not_have(graph: Graph) -> None:
    evolve(graph, "try", A, B, entity("C"))
    evolve(graph, "main", A, B, type("c", (Relation[A, B],), {"__module__": __name__}))
    assert [found[:2] for found in conflicts(graph)] == [("schema", "node/C")]


def test_an_added_edge_needs_its_ends(graph: Graph) -> None:
    evolve(graph, "try", A, B, E)
    graph.load(E, [{"left_key": "x", "right_key": "b"}], branch="try")
    graph.delete(A, "x")
    assert [found[:3] for found in conflicts(graph)] == [("orphan_edge", "edge/E", ("x", "b"))]


@pytest.mark.slow
def test_a_table_that_the_source_dropped_goes_unless_the_target_changed_it(graph: Graph) -> None:
    evolve(graph, "try", A)
    graph.load(A, [{"id": "z"}])
    graph.load(B, [{"id": "c"}])
    graph.delete(B, "c")
    graph.branches.create("changed")
    assert merge(graph).tables == {}
    assert list(held(graph)) == ["node/A"]
    graph.load(B, [{"id": "c"}], branch="changed")
    words = "the source has dropped the table, the target has changed it"
    with pytest.raises(MergeConflictError) as caught:
        graph.merge("try", "changed")
    assert [short(found) for found in caught.value.conflicts] == [("schema", "node/B", None, words)]
    graph.branches.create("ours", parent="changed")
    graph.merge("try", "ours", strategy="ours")
    assert held(graph, "ours") == held(graph, "changed")
    graph.merge("try", "changed", strategy={"B": "theirs"})
    assert list(held(graph, "changed")) == ["node/A"]


def test_a_table_that_the_target_dropped_comes_back_only_by_strategy(graph: Graph) -> None:
    evolve(graph, "main", A)
    graph.load(B, [{"id": "c"}], branch="try")
    assert conflicts(graph) == [
        ("schema", "node/B", None, "the target has dropped the table, the source has changed it")]
    graph.branches.create("ours")
    graph.merge("try", "ours", strategy="ours")
    assert list(held(graph, "ours")) == ["node/A"]
    assert merge(graph, strategy={B: "theirs"}).tables == {"node/B": (2, 0, 0)}
    assert list(held(graph)["node/B"]) == ["b", "c"]


def test_rows_that_came_and_went_do_not_bring_a_dropped_table_back(graph: Graph) -> None:
    evolve(graph, "main", A)
    graph.load(B, [{"id": "c"}], branch="try")
    graph.delete(B, "c", branch="try")
    assert merge(graph).tables == {}
    assert list(held(graph)) == ["node/A"]


def test_a_table_of_another_type_is_a_changed_one(graph: Graph) -> None:
    evolve(graph, "try", B)
    evolve(graph, "main", WIDE, B)
    assert [found[:2] for found in conflicts(graph)] == [("schema", "node/A")]


def test_a_table_goes_while_edges_lead_elsewhere(graph: Graph) -> None:
    evolve(graph, "main", A, B, E, entity("C"))
    graph.merge("main", "try")
    evolve(graph, "try", A, B, E)
    merge(graph)
    assert list(held(graph)) == ["edge/E", "node/A", "node/B"]


def test_a_table_that_both_dropped_is_gone(graph: Graph) -> None:
    for branch in ("main", "try"):
        evolve(graph, branch, A)
    graph.load(A, [{"id": "z"}], branch="try")
    assert merge(graph).tables == {"node/A": (1, 0, 0)}
    assert list(held(graph)) == ["node/A"]


def test_a_table_that_both_added_alike_is_one(graph: Graph) -> None:
    for branch in ("main", "try"):
        evolve(graph, branch, A, B, entity("C", str, n=NUMBER))
        graph.load("C", [{"id": "same", "n": 1}, {"id": branch, "n": 2}], branch=branch)
    assert merge(graph).tables == {"node/C": (1, 0, 0)}
    assert ns(graph, table="node/C") == {"same": 1, "main": 2, "try": 2}


def test_a_row_that_both_inserted_into_a_table_that_both_added_conflicts(graph: Graph) -> None:
    for branch, number in (("main", 1), ("try", 2)):
        evolve(graph, branch, A, B, entity("C", str, n=NUMBER))
        graph.load("C", [{"id": "k", "n": number}], branch=branch)
    assert [found[:3] for found in conflicts(graph)] == [("divergent_insert", "node/C", "k")]


def test_a_table_that_both_added_differently_conflicts(graph: Graph) -> None:
    evolve(graph, "main", A, B, entity("C", str, n=NUMBER))
    evolve(graph, "try", A, B, entity("C", str, n=TEXT))
    assert conflicts(graph) == [("schema", "node/C", None, "both branches have added the type, differently")]


@pytest.mark.parametrize(("branch", "who"), [("try", "the source"), ("main", "the target")])
def test_a_table_made_anew_is_another(graph: Graph, branch: str, who: str) -> None:
    evolve(graph, branch, B)
    evolve(graph, branch, A, B)
    graph.load(A, [{"id": "z"}], branch="try")
    assert conflicts(graph) == [("schema", "node/A", None, f"the type was dropped and made anew by {who}")]


def test_a_table_made_anew_is_not_dropped_with_the_old_one(graph: Graph) -> None:
    evolve(graph, "main", B)
    evolve(graph, "main", A, B)
    evolve(graph, "try", B)
    assert [found[:2] for found in conflicts(graph)] == [("schema", "node/A")]


# Tables of another type


def other_key(name: str, stored: str) -> Any:
    key: Any = Field(primary_key=True, name=stored)
    return type(Entity)("A", (Entity,), {"__module__": __name__, "__annotations__": {name: Field[str], "n": Field[int]},
                                         name: key, "n": Field(default=0)})  # fmt: skip


def test_a_key_that_one_side_renamed_conflicts(graph: Graph) -> None:
    evolve(graph, "try", other_key("key", "key"), B, A={"id": "key"})
    assert conflicts(graph) == [
        ("schema", "node/A", None, "its key has another name on one side; rename it on both first")]


@pytest.mark.slow
def test_a_type_that_the_source_changed_comes_with_all_of_its_past(graph: Graph) -> None:
    evolve(graph, "try", entity("A", str, m=NUMBER), B, A={"n": "m"})
    between = graph.load("A", [{"id": "z", "m": 3}], branch="try")
    evolve(graph, "try", entity("A", str, m=NUMBER, more=TEXT), B)
    graph.load(A, [{"id": "own", "n": 5}])
    result = merge(graph)
    assert (result.status, result.tables) == ("merged", {"node/A": (1, 0, 0)})
    assert held(graph)["node/A"] == {
        key: {"id": key, "m": m, "more": ""} for key, m in (("own", 5), ("x", 0), ("y", 0), ("z", 3))}
    assert result.commit is not None
    assert result.commit.metadata["renames"] == {"node:A": {"n": "m"}}
    graph.branches.delete("try")
    assert between is not None
    assert {key: row["m"] for key, row in graph.snapshot(between.id).rows("A")} == {"x": 0, "y": 0, "z": 3}
    types = graph.parts.state("main").history.values()
    assert [sorted(field.name for field in kind.fields) for kind in types if kind.name == "A"] == [
        ["id", "n"], ["id", "m", "more"], ["id", "m"]]  # fmt: skip


def test_a_merge_without_renames_tells_of_none(graph: Graph) -> None:
    evolve(graph, "try", WIDE, B)
    result = merge(graph)
    assert result.commit is not None
    assert (result.tables, "renames" in result.commit.metadata) == ({"node/A": (0, 0, 0)}, False)
    assert graph.types()["node:A"].by_name.keys() == {"id", "n", "more"}


def test_values_in_a_column_that_is_new_to_the_target_come_with_rows_that_both_have(graph: Graph) -> None:
    evolve(graph, "try", entity("A", str, n=NUMBER, more=(str, {"default": "old"})), B)
    evolve(graph, "try", WIDE, B)
    graph.load(A, [{"id": "x", "n": 7}])
    assert merge(graph).tables == {"node/A": (0, 2, 0)}
    assert held(graph)["node/A"] == {"x": {"id": "x", "n": 7, "more": "old"}, "y": {"id": "y", "n": 0, "more": "old"}}


def test_types_that_both_changed_differently_conflict(graph: Graph) -> None:
    evolve(graph, "try", entity("A", str, n=NUMBER, x=NUMBER), B)
    evolve(graph, "main", entity("A", str, n=NUMBER, x=TEXT), B)
    assert conflicts(graph) == [
        ("schema", "node/A", None, "both branches have changed the type, differently: x")]


@pytest.mark.slow
def test_rows_must_keep_the_rules_that_the_other_side_gave(graph: Graph) -> None:
    strict = entity("A", str, n=(int, {"default": 0, "le": 5}))
    evolve(graph, "try", strict, B)
    graph.load(A, [{"id": "own", "n": 9}])
    assert conflicts(graph) == [("value", "node/A", "own", "the value must be at most 5, not 9")]
    graph.delete(A, "own")
    graph.load(A, [{"id": "own", "n": 5}])
    assert merge(graph).tables == {}
    graph.load(A, [{"id": "x", "n": 1}, {"id": "v", "n": 2}, {"id": "w", "n": 3}])
    graph.branches.create("loose", parent="main")
    stricter = entity("A", str, n=(int, {"default": 0, "le": 3}))
    graph.load("A", [{"id": "late", "n": 4}], branch="loose")
    graph.delete("A", "own")
    evolve(graph, "main", stricter, B)
    with pytest.raises(MergeConflictError) as caught:
        graph.merge("loose")
    assert [short(found) for found in caught.value.conflicts] == [
        ("value", "node/A", "late", "the value must be at most 3, not 4")]


def test_rows_that_come_into_an_empty_table_must_keep_the_rules_of_both_sides(graph: Graph) -> None:
    evolve(graph, "main", A, B, entity("C", str, n=NUMBER))
    graph.branches.create("other")
    evolve(graph, "other", A, B, entity("C", str, n=NUMBER, more=TEXT))
    graph.load("C", [{"id": "1", "n": 9}], branch="other")
    evolve(graph, "main", A, B, entity("C", str, n=(int, {"default": 0, "le": 5})))
    with pytest.raises(MergeConflictError) as caught:
        graph.merge("other")
    assert [short(found) for found in caught.value.conflicts] == [
        ("value", "node/C", "1", "the value must be at most 5, not 9")]


@pytest.mark.slow
def test_a_column_that_became_unique_is_checked_over_both_sides(graph: Graph) -> None:
    unique = entity("A", str, n=(Annotated[int, Unique], {}))
    graph.load(A, [{"id": "x", "n": 1}], branch="try")
    evolve(graph, "try", unique, B)
    assert merge(graph).tables == {"node/A": (0, 1, 0)}
    graph.branches.create("again")
    graph.load("A", [{"id": "v", "n": 2}], branch="again")
    graph.load("A", [{"id": "w", "n": 2}])
    with pytest.raises(MergeConflictError) as caught:
        graph.merge("again")
    assert [short(found) for found in caught.value.conflicts] == [
        ("unique", "node/A", "v", "the value of n is taken already: 2")]


# Which histories meet


@pytest.mark.slow
def test_the_status_tells_whether_the_target_had_moved(graph: Graph) -> None:
    assert graph.merge("try") == MergeResult(MergeStatus.UP_TO_DATE, "try", "main", base=graph.snapshot().commit)
    base = graph.snapshot().commit
    graph.load(A, [{"id": "z"}], branch="try")
    assert merge(graph).status == "fast_forward"
    graph.load(A, [{"id": "z", "n": 1}], branch="try")
    graph.load(A, [{"id": "x", "n": 1}])
    tip = graph.snapshot(branch="try").commit
    result = merge(graph)
    assert (result.status, result.tables) == ("merged", {"node/A": (0, 1, 0)})
    assert result.base not in (base, tip)
    assert ns(graph) == {"x": 1, "y": 0, "z": 1}


@pytest.fixture
def crossed(graph: Graph) -> Graph:
    """Each side has added a column and merged what the other was before: the same columns, in another order."""
    evolve(graph, "main", entity("A", str, n=NUMBER, p=NUMBER), B)
    evolve(graph, "try", entity("A", str, n=NUMBER, q=NUMBER), B)
    graph.load("A", [{"id": "y", "q": 4}], branch="try")
    graph.branches.create("before")
    graph.merge("try")
    graph.merge("before", "try")
    graph.load("A", [{"id": "x", "n": 5, "p": 3}], branch="try")
    graph.load("A", [{"id": "z", "n": 6}])
    return graph


@pytest.mark.slow
def test_columns_that_both_sides_have_may_be_in_another_order(crossed: Graph) -> None:
    assert merge(crossed).tables == {"node/A": (0, 1, 0)}
    assert held(crossed)["node/A"] == {
        "x": {"id": "x", "n": 5, "p": 3, "q": 0}, "y": {"id": "y", "n": 0, "p": 0, "q": 4},
        "z": {"id": "z", "n": 6, "p": 0, "q": 0}}  # fmt: skip


@pytest.mark.slow
def test_types_that_the_bases_dispute_conflict_unless_both_sides_have_the_same(crossed: Graph) -> None:
    evolve(crossed, "try", entity("A", str, n=NUMBER, q=NUMBER), B)
    assert conflicts(crossed) == [
        ("schema", "node/A", None, "both branches have merged its type from two others, and decided differently")]
    for branch in ("main", "try"):
        evolve(crossed, branch, A, B)
    merge(crossed)
    assert ns(crossed) == {"x": 5, "y": 0, "z": 6}


# Targets that move while a merge is at work


@contextmanager
def meddling(url: str, times: int, act: Callable[[Graph, int], None]) -> Iterator[list[int]]:
    """Let another process of the graph act before each of the first publishes."""
    done: list[int] = []
    with Graph.open(url) as other:

        def hook(step: str) -> None:
            if step == "graph: before publishing" and len(done) < times:
                done.append(len(done))
                count = len(done)
                with faults.arm(lambda _: None):
                    act(other, count)

        with faults.arm(hook):
            yield done


def move(other: Graph, count: int) -> None:
    other.load(A, [{"id": f"moved {count}"}])


@pytest.mark.slow
def test_a_merge_is_tried_again_as_often_as_the_target_moves_but_not_for_ever(graph: Graph, url: str) -> None:
    graph.load(A, [{"id": "z"}], branch="try")
    with meddling(url, TRIES, move) as done, pytest.raises(BranchError, match="again and again"):
        graph.merge("try")
    assert len(done) == TRIES
    with meddling(url, TRIES - 1, move) as done:
        assert graph.merge("try").status == "merged"
    assert len(done) == TRIES - 1
    assert {"z", "moved 1", "moved 4", f"moved {TRIES}"} <= ns(graph).keys()


@pytest.mark.slow
def test_a_dropped_table_that_got_an_edge_type_meanwhile_stays(graph: Graph, url: str) -> None:
    evolve(graph, "try", A)

    def act(other: Graph, _: int) -> None:
        evolve(other, "main", A, B, E)

    with meddling(url, 1, act), pytest.raises(MergeConflictError, match="leads to node/B"):
        graph.merge("try")
    assert "node/B" in held(graph)


@pytest.mark.slow
def test_an_edge_whose_node_went_meanwhile_is_not_merged(graph: Graph, url: str) -> None:
    evolve(graph, "main", A, B, E)
    graph.merge("main", "try")
    graph.load(E, [{"left_key": "x", "right_key": "b"}], branch="try")

    def act(other: Graph, _: int) -> None:
        with other.transaction() as tx:
            tx.delete(A, "x")
            tx.load(B, [{"id": "c"}])

    with meddling(url, 1, act), pytest.raises(EndpointError):
        graph.merge("try")
    assert held(graph)["edge/E"] == {}


def test_what_others_do_to_other_tables_is_no_matter(graph: Graph, url: str) -> None:
    graph.load(A, [{"id": "z"}], branch="try")
    with meddling(url, 1, lambda other, _: other.load(B, [{"id": "c"}]) and None):
        graph.merge("try")
    assert (list(held(graph)["node/A"]), list(held(graph)["node/B"])) == (["x", "y", "z"], ["b", "c"])


# Definitions that a side settles


@pytest.mark.parametrize("side", ["ours", "theirs"])
@pytest.mark.parametrize("by", ["strategy", "resolution"])
def test_a_side_settles_definitions_with_the_whole_table(graph: Graph, side: Any, by: str) -> None:
    evolve(graph, "try", entity("A", str, n=NUMBER, x=NUMBER), B)
    graph.load("A", [{"id": "t", "n": 1, "x": 2}], branch="try")
    evolve(graph, "main", entity("A", str, n=NUMBER, x=TEXT), B)
    graph.load("A", [{"id": "m", "x": "own"}])
    [conflict] = graph.merge("try", dry_run=True).conflicts
    assert [field["name"] for field in conflict.ours["fields"]] == ["id", "n", "x"]
    assert conflict.base["fields"] != conflict.ours["fields"] != conflict.theirs["fields"]
    wanted = held(graph, "main" if side == "ours" else "try")["node/A"]
    options: Any = {"strategy": side} if by == "strategy" else {"resolutions": [Resolution("A", None, None, side)]}
    merge(graph, **options)
    assert held(graph)["node/A"] == wanted
    graph.load("A", [{"id": "later", "n": 4}])


@pytest.mark.parametrize("side", ["ours", "theirs"])
def test_a_side_settles_a_type_without_its_ends(graph: Graph, side: Any) -> None:
    evolve(graph, "try", A, B, E)
    graph.load(E, [{"left_key": "x", "right_key": "b"}], branch="try")
    evolve(graph, "main", A)
    assert [found[:2] for found in conflicts(graph)] == [("schema", "edge/E")]
    merge(graph, strategy=side)
    assert list(held(graph)) == (["node/A"] if side == "ours" else ["edge/E", "node/A", "node/B"])


def test_a_key_that_one_side_renamed_is_settled_by_a_side(graph: Graph) -> None:
    evolve(graph, "try", other_key("key", "key"), B, A={"id": "key"})
    graph.load("A", [{"key": "k", "n": 5}], branch="try")
    merge(graph, strategy="theirs")
    assert held(graph)["node/A"] == held(graph, "try")["node/A"]
