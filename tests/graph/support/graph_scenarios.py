"""Operations that are stopped at every step: what to prepare, what to do, and what it leads to."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from graph_support import TYPES, Customer, Order, Placed, customers, described

from ontolake import faults
from ontolake.errors import NotFound
from ontolake.graph import Graph, Unique
from ontolake.graph.errors import UnknownBranchError
from ontolake.model import Entity, Field, Relation

SECRET = "nobody-may-read-this"


class Stop(BaseException):
    """What a fault point raises: nothing that any code expects."""


class Scenario(NamedTuple):
    prepare: Callable[[Graph], None]
    act: Callable[[Graph], None]
    """May be repeated after it was interrupted, as a caller would."""
    seen: Callable[[Graph], Any] = described
    """What is before or after, and nothing in between."""
    branch: str = "main"
    """Where the commit goes."""


def _fill(graph: Graph) -> None:
    with graph.transaction() as tx:
        tx.load(Customer, customers("a", "b", "c"))
        tx.load(Order, [{"id": 1}, {"id": 2}])
        tx.load(Placed, [{"left_key": "a", "right_key": 1}])


def _load(graph: Graph, branch: str = "main") -> None:
    with graph.transaction(branch=branch, actor="tester") as tx:
        tx.load(Customer, customers("a", "d", tier="gold"))
        tx.delete(Customer, "c")
        tx.load(Placed, [{"left_key": "d", "right_key": 2}])


def _branch(graph: Graph) -> None:
    _fill(graph)
    graph.branches.create("try")


def _diverge(graph: Graph) -> None:
    _branch(graph)
    _load(graph, "try")
    graph.load(Order, [{"id": 3, "total": 3.0}])


def _create(graph: Graph) -> None:
    if "try" not in {branch.name for branch in graph.branches.list()}:
        graph.branches.create("try")


def _delete(graph: Graph) -> None:
    with suppress(UnknownBranchError):
        graph.branches.delete("try")


def _merge(graph: Graph) -> None:
    graph.merge("try", actor="tester")


def _scatter(graph: Graph) -> None:
    _fill(graph)
    _load(graph)


def _scatter_more(graph: Graph) -> None:
    _scatter(graph)
    for number in range(6):
        graph.load(Order, [{"id": 10 + number}])


def _tend(graph: Graph) -> None:
    assert graph._background is not None
    graph._background._tend("main")


def _layout(graph: Graph) -> Any:
    """All rows, and in how many pieces each table is."""
    snapshot = graph.snapshot()
    return described(graph), {name: len(snapshot.table(name).dataset.get_fragments()) for name in snapshot.tables()}


class Tag(Entity):
    id: Field[str] = Field(primary_key=True)


def _changed_types() -> list[Any]:
    """Customers with other columns, tags that are new, and no orders any more."""
    class Customer(Entity):
        id: Field[str] = Field(primary_key=True)
        full_name: Field[str]
        email: Field[Annotated[str | None, Unique]] = Field(default=None)
        points: Field[int] = Field(default=7)

    class Tagged(Relation[Customer, Tag]):
        pass

    return [Customer, Tag, Tagged]


def _evolve(graph: Graph) -> None:
    renames = {"Customer": {"name": "full_name"}} if "name" in graph.types()["node:Customer"].by_name else None
    graph.schema_apply(graph.schema_plan(_changed_types(), renames=renames), actor="tester")


def abandon(graph: Graph, act: Callable[[], object], *, moves: int | None = None) -> None:
    """Interrupt an operation before it is published, or after so many moves of tables, as if its process died."""
    moved: list[str] = []

    def stop(step: str) -> None:
        moved.append(step)
        if step == "graph: before publishing" or moved.count("graph: table moved") == moves:
            raise Stop(step)

    with faults.arm(stop), suppress(Stop):
        act()
    for info in list(graph.parts.place.store.list("__recovery/")):
        sidecar = json.loads(graph.parts.place.store.get(info.key).data)
        graph.parts.place.store.put(info.key, json.dumps({**sidecar, "process": ""}).encode())


def _abandoned(moves: int | None) -> Callable[[Graph], None]:
    def prepare(graph: Graph) -> None:
        _fill(graph)
        abandon(graph, lambda: _load(graph), moves=moves)

    return prepare


def _diverge_in_types(graph: Graph) -> None:
    """A branch on which customers have other columns, tags are new and orders are gone; main has other rows."""
    _fill(graph)
    graph.delete(Placed, ("a", 1))
    graph.branches.create("try")
    graph.schema_apply(graph.schema_plan(_changed_types(), renames={"Customer": {"name": "full_name"}}, branch="try"))
    with graph.transaction(branch="try") as tx:
        tx.load("Customer", [{"id": "a", "full_name": "changed"}])
        tx.load("Tag", [{"id": "t"}])
        tx.load("Tagged", [{"left_key": "a", "right_key": "t"}])
    graph.load(Customer, customers("d"))


def _fill_with_secrets(graph: Graph) -> None:
    with graph.transaction() as tx:
        tx.load(Customer, customers("a", "b", tier=SECRET))
        tx.load(Order, [{"id": 1}, {"id": 2}])
        tx.load(Placed, [{"left_key": "a", "right_key": 1, "note": SECRET}])


def narrowed() -> Any:
    """Customers without a tier."""
    class Customer(Entity):
        id: Field[str] = Field(primary_key=True)
        name: Field[str]
        email: Field[Annotated[str | None, Unique]] = Field(default=None)

    return Customer


def drop_for_good(graph: Graph) -> None:
    """Neither a column of customers nor the edges are left, and no file of what they held."""
    graph.schema_apply(graph.schema_plan([narrowed(), Order]), hard=True, actor="tester")


def with_secrets(graph: Graph) -> Any:
    """All rows, and whether any file has what some of them hold or held."""
    files = (path for path in Path(graph.parts.place.root).rglob("*") if path.is_file())
    return described(graph), any(SECRET.encode() in path.read_bytes() for path in files)


SCENARIOS: dict[str, Scenario] = {
    "publish": Scenario(_fill, _load),
    "fork": Scenario(_branch, lambda graph: _load(graph, "try"), branch="try"),
    "optimize": Scenario(_scatter, lambda graph: graph.optimize(actor="tester"), _layout),  # type: ignore[arg-type,return-value]
    "upkeep": Scenario(_scatter_more, _tend, _layout),
    "schema": Scenario(_fill, _evolve),
    "hard drop": Scenario(_fill_with_secrets, drop_for_good, with_secrets),
    "merge": Scenario(_diverge, _merge),
    "merge types": Scenario(_diverge_in_types, _merge),
    "create branch": Scenario(_fill, _create),
    "delete branch": Scenario(_diverge, _delete),
}
RECOVERIES: dict[str, Scenario] = {
    "roll forward": Scenario(_abandoned(None), lambda graph: None),
    "roll back": Scenario(_abandoned(2), lambda graph: None),
}
"""What is done by opening alone."""



def _live_shortly(graph: Graph) -> None:
    """A row in two states on main, in another one on a branch, behind a tag, and in an index on text."""
    graph.load(Customer, [*customers("a", "b"), {"id": SECRET, "name": SECRET}])
    graph.index(Customer, "name", kind="text")
    graph.tags.create("first")
    graph.branches.create("try")
    graph.load(Customer, [{"id": SECRET, "name": "changed"}], branch="try")
    graph.load(Customer, [*customers("c"), {"id": SECRET, "name": "again"}])
    graph.delete(Customer, [SECRET])


def _erase(graph: Graph) -> None:
    with suppress(NotFound):
        graph.erase(Customer, SECRET, reason="on request", dry_run=False, author="tester")


ERASURES: dict[str, Scenario] = {"erase": Scenario(_live_shortly, _erase, with_secrets)}
"""What takes several commits, and is called again if it was stopped between them."""


def fresh(url: str) -> Graph:
    return Graph.init(url, TYPES)
