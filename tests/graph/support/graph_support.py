"""What the tests of graphs share: types, a way to say what a graph holds, and children that die on purpose."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, ClassVar

from ontolake.graph import Graph, Unique
from ontolake.model import Entity, Field, Relation


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    tier: Field[str | None] = Field(default=None)
    email: Field[Annotated[str | None, Unique]] = Field(default=None)


class Order(Entity):
    id: Field[int] = Field(primary_key=True)
    total: Field[float] = Field(ge=0, default=0.0)


class Placed(Relation[Customer, Order]):
    cardinality: ClassVar[str] = "1:n"
    note: Field[str | None] = Field(default=None)


TYPES = [Customer, Order, Placed]


def entity(name: str, key: type = str, /, **fields: Any) -> Any:
    """A class with an `id` and these fields: name to (type, options)."""
    namespace: dict[str, Any] = {"__annotations__": {"id": Field[key]}, "__module__": __name__,  # type: ignore[valid-type]
                                 "id": Field(primary_key=True)}  # fmt: skip
    for field, (kind, options) in fields.items():
        namespace["__annotations__"][field] = Field[kind]
        namespace[field] = Field(**options)
    return type(Entity)(name, (Entity,), namespace)


def customers(*names: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"id": name, "name": name.upper(), **fields} for name in names]


def held(graph: Graph, branch: str = "main") -> dict[str, dict[Any, Any]]:
    """Everything that a branch shows."""
    snapshot = graph.snapshot(branch=branch)
    return {table: dict(snapshot.rows(table)) for table in snapshot.tables()}


def described(graph: Graph) -> dict[str, Any]:
    """Everything that a graph shows, on every branch."""
    return {branch.name: held(graph, branch.name) for branch in graph.branches.list()}


def start(program: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """A program of this folder in a process of its own."""
    here = Path(__file__).parent
    return subprocess.Popen([sys.executable, str(here / program), *arguments], text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, env={**os.environ, "LANCE_CPU_THREADS": "2"}, **options)
