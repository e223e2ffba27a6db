"""Columns that branches add, drop and rename, and rows that they change meanwhile, merge as plain dictionaries do."""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from graph_support import entity, held
from marking import slow_after

from ontolake.graph import Graph, MergeConflictError

TYPES: dict[str, Any] = {"int": int | None, "str": str | None}
NAMES = "abcd"


class Conflict(Exception):
    pass


@dataclass
class Table:
    """Columns by a number that nothing else ever has: name, type, default. Rows by key, values by that number."""

    columns: dict[int, tuple[str, str, Any]] = field(default_factory=dict)
    rows: dict[str, dict[int, Any]] = field(default_factory=dict)

    def value(self, key: str, column: int, of: Table) -> Any:
        """What a row has in a column of another table, which fills it with its default."""
        return self.rows[key].get(column, of.columns[column][2])

    def shown(self) -> dict[str, dict[str, Any]]:
        return {key: {"id": key, **{name: row[number] for number, (name, _, _) in self.columns.items()}}
                for key, row in self.rows.items()}  # fmt: skip


def joined_columns(base: Table, theirs: Table, ours: Table) -> tuple[dict[int, tuple[str, str, Any]], dict[int, int]]:
    """The columns of a merge, and which of theirs are one of ours."""
    found: dict[int, tuple[str, str, Any]] = {}
    same: dict[int, int] = {}
    for number in {**ours.columns, **theirs.columns}:
        told = [table.columns.get(number) for table in (base, theirs, ours)]
        was, their, our = told
        if was is None:
            found[number] = our or their or ("", "", None)
        elif their is None or our is None:
            if (their or our) not in (None, was):
                raise Conflict
        elif their in (our, was):
            found[number] = our
        elif our == was:
            found[number] = their
        else:
            raise Conflict
    for number, column in theirs.columns.items():
        if number not in base.columns:
            for other, its in ours.columns.items():
                if other not in base.columns and other != number and its[0] == column[0]:
                    if its != column:
                        raise Conflict
                    same[number] = other
                    found.pop(number, None)
    if len({name for name, _, _ in found.values()}) < len(found):
        raise Conflict
    return found, same


def merge(base: Table, theirs: Table, ours: Table) -> Table:
    columns, same = joined_columns(base, theirs, ours)
    theirs = Table({same.get(number, number): column for number, column in theirs.columns.items()},
                   {key: {same.get(number, number): value for number, value in row.items()}
                    for key, row in theirs.rows.items()})  # fmt: skip
    result = Table(columns)

    def row(table: Table, key: str) -> dict[int, Any] | None:
        return {number: table.value(key, number, result) for number in columns} if key in table.rows else None

    for key in {**ours.rows, **theirs.rows, **base.rows}:
        was, their, our = row(base, key), row(theirs, key), row(ours, key)
        if their in (was, our):
            end = our
        elif our == was:
            end = their
        elif their is None or our is None:
            raise Conflict
        else:
            end = {}
            for number in columns:
                a, b = their[number], our[number]
                if number not in theirs.columns:
                    end[number] = b
                elif number not in ours.columns:
                    end[number] = a
                elif a == b or (was is not None and a == was[number]):
                    end[number] = b
                elif was is not None and b == was[number]:
                    end[number] = a
                else:
                    raise Conflict
        if end is not None:
            result.rows[key] = end
    return result


class Worker:
    """Changes a branch of a graph and a table of plain Python alike."""

    def __init__(self, graph: Graph, chance: random.Random) -> None:
        self.graph, self.chance, self.numbers = graph, chance, count()

    def evolve(self, branch: str, table: Table, renames: dict[str, str] | None = None) -> None:
        fields = {name: (TYPES[kind], {"default": default}) for name, kind, default in table.columns.values()}
        plan = self.graph.schema_plan([entity("T", str, **fields)], renames={"T": renames} if renames else None,
                                      branch=branch)
        self.graph.schema_apply(plan)

    def add(self, branch: str, table: Table) -> None:
        free = [name for name in NAMES if name not in {column[0] for column in table.columns.values()}]
        if free:
            kind = self.chance.choice(list(TYPES))
            default = self.chance.choice([None, 0 if kind == "int" else "d"])
            number = next(self.numbers)
            table.columns[number] = (self.chance.choice(free), kind, default)
            for row in table.rows.values():
                row[number] = default
            self.evolve(branch, table)

    def drop(self, branch: str, table: Table) -> None:
        if table.columns:
            number = self.chance.choice(list(table.columns))
            del table.columns[number]
            for row in table.rows.values():
                del row[number]
            self.evolve(branch, table)

    def rename(self, branch: str, table: Table) -> None:
        """To a free name, or to that of another column, which takes its name."""
        if table.columns:
            number, new = self.chance.choice(list(table.columns)), self.chance.choice(NAMES)
            name, kind, default = table.columns[number]
            other = next((n for n, column in table.columns.items() if column[0] == new), None)
            if new != name:
                table.columns[number] = (new, kind, default)
                if other is not None:
                    table.columns[other] = (name, *table.columns[other][1:])
                self.evolve(branch, table, {name: new} | ({new: name} if other is not None else {}))

    def load(self, branch: str, table: Table) -> None:
        key = self.chance.choice("xyz")
        row = {number: self.chance.choice([None, *range(1, 4)] if kind == "int" else [None, "p", "q"])
               for number, (_, kind, _) in table.columns.items()}  # fmt: skip
        table.rows[key] = {**row, **{number: value for number, value in table.rows.get(key, {}).items()
                                     if self.chance.random() < 0.7}}  # fmt: skip
        self.graph.load("T", [table.shown()[key]], branch=branch)

    def delete(self, branch: str, table: Table) -> None:
        key = self.chance.choice("xyz")
        table.rows.pop(key, None)
        self.graph.delete("T", key, branch=branch)

    def work(self, branch: str, table: Table) -> None:
        acts = [self.add, self.drop, self.rename, self.load, self.load, self.load, self.delete]
        for _ in range(self.chance.randint(0, 3)):
            self.chance.choice(acts)(branch, table)
            if self.chance.random() < 0.2:
                self.graph.optimize(branch=branch)
            assert held(self.graph, branch)["node/T"] == table.shown()


@pytest.mark.parametrize("seed", slow_after(0, range(14)))
def test_columns_merge_as_dictionaries_do(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with Graph.init(f"{tmp_path}/graph/", [entity("T", str)]) as graph:
        worker, base = Worker(graph, chance), Table()
        worker.work("main", base)
        graph.branches.create("try")
        for _ in range(3):
            sides = {"main": deepcopy(base), "try": deepcopy(base)}
            for branch in ("main", "try", "main", "try"):
                worker.work(branch, sides[branch])
            told = (base, sides)
            found = {change.key: (change.before, change.after) for change in graph.diff("main", "try")}
            old, new = sides["main"].shown(), sides["try"].shown()
            assert found == {key: (old.get(key), new.get(key)) for key in {**old, **new}
                             if old.get(key) != new.get(key)}, told  # fmt: skip
            try:
                wanted = merge(base, sides["try"], sides["main"])
            except Conflict:
                with pytest.raises(MergeConflictError):
                    graph.merge("try")
                assert held(graph)["node/T"] == sides["main"].shown()
                return
            graph.merge("try")
            assert held(graph)["node/T"] == wanted.shown(), told
            assert held(graph, "try")["node/T"] == sides["try"].shown(), told
            graph.merge("main", "try")
            assert held(graph, "try")["node/T"] == wanted.shown(), told
            assert list(graph.diff("main", "try")) == []
            assert list(graph.verify()) == []
            base = wanted
