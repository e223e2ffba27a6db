"""Random histories agree with plain dictionaries in every answer, before upkeep and after it.

Thresholds are so low that histories of some dozen steps pass them all: files and parts of indexes have few rows, upkeep
in the background comes after every other commit, lookups go every way there is.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest
from dictionary_git import by_field, is_disputed, merge_states
from graph_support import entity
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from lowered import lower
from marking import examples

from ontolake.graph import ConstraintError, Graph, Hop, MergeConflictError, RemovedCommitError, Vector
from ontolake.model import Entity, Field, Relation

WORDS = ("ash", "oak", "elm")
IDS = range(14)
TAGS = ("t", "u", "v")
EXTRA = ("a", "b")
PLACES = ((-9, -9), (0, 0), (3, 4))


class Note(Entity):
    id: Field[int] = Field(primary_key=True)
    text: Field[str] = Field(default="")
    spot: Field[Vector(2)]  # type: ignore[valid-type]
    shelf: Field[str] = Field(default="", index=True)


class Tag(Entity):
    name: Field[str] = Field(primary_key=True)


class Cites(Relation[Note, Note]):
    pass


class Marked(Relation[Note, Tag]):
    pass


class Names(Relation[Tag, Note]):
    """With `Marked` it leads from notes to notes."""


ENDS = {"Cites": ("Note", "Note"), "Marked": ("Note", "Tag"), "Names": ("Tag", "Note")}
WALKS: list[list[Hop]] = [
    [Hop("Cites")], [Hop("Cites", max_depth=3)], [Hop("Cites", "in"), Hop("Cites")], [Hop("Marked"), Hop("Names")],
    [Hop("Names", "in"), Hop("Names"), Hop("Cites")],
]  # fmt: skip

Pair = tuple[Any, Any]


@dataclass
class World:
    """What a branch shows: rows, and the columns that `Note` has beside its own, each with a number and a default."""

    Note: dict[int, dict[str, Any]] = field(default_factory=dict)
    Tag: dict[str, dict[str, Any]] = field(default_factory=dict)
    Cites: dict[Pair, dict[str, Any]] = field(default_factory=dict)
    Marked: dict[Pair, dict[str, Any]] = field(default_factory=dict)
    Names: dict[Pair, dict[str, Any]] = field(default_factory=dict)
    columns: dict[str, tuple[int, int]] = field(default_factory=dict)

    def rows(self) -> dict[str, dict[Any, dict[str, Any]]]:
        return {name: value for name, value in vars(self).items() if name != "columns"}

    def loose_ends(self) -> list[Pair]:
        tables = self.rows()
        return [pair for name, (left, right) in ENDS.items() for pair in tables[name]
                if pair[0] not in tables[left] or pair[1] not in tables[right]]  # fmt: skip

    def remove(self, ids: list[int]) -> None:
        """Notes, and the edges at them."""
        self.Note = {id: row for id, row in self.Note.items() if id not in ids}
        for name, ends in ENDS.items():
            edges = self.rows()[name]
            setattr(self, name, {pair: row for pair, row in edges.items() if not any(
                end == "Note" and key in ids for end, key in zip(ends, pair, strict=True))})

    def kind(self) -> Any:
        """`Note` with the columns that it has here."""
        return entity("Note", int, text=(str, {"default": ""}), spot=(Vector(2), {}), shelf=(str, {"default": "",
                      "index": True}), **{name: (int, {"default": value}) for name, (_, value) in self.columns.items()})

    def walk(self, hops: list[Hop]) -> dict[int, int]:
        """Where a walk from every note leads, and how many edges it takes at least."""
        reached = dict.fromkeys(self.Note, 0)
        for hop in hops:
            pairs = self.rows()[hop.edge]
            lead = list(pairs) if hop.direction == "out" else [(b, a) for a, b in pairs]
            found: dict[Any, int] = {}
            for start, depth in reached.items():
                away, edge = {start: 0}, [start]
                while edge:
                    edge = sorted({b for a, b in lead if a in edge and b not in away})
                    away |= dict.fromkeys(edge, max(away.values()) + 1)
                del away[start]
                if (start, start) in lead and hop.edge == "Cites":
                    away[start] = 1
                for end, steps in away.items():
                    if steps <= hop.max_depth:
                        found[end] = min(found.get(end, depth + steps), depth + steps)
            reached = found
        return reached


def squared(one: Any, other: Any) -> float:
    """The square of the distance of two points, which is exact for whole numbers."""
    return float(sum((a - b) ** 2 for a, b in zip(one, other, strict=True)))


def check(graph: Graph, worlds: dict[str, World]) -> None:
    """Ask everything that can be asked of every branch."""
    for branch, world in worlds.items():
        snapshot, notes = graph.snapshot(branch=branch), world.Note
        for name, rows in world.rows().items():
            assert dict(snapshot.rows(name)) == rows, (branch, name)
            assert snapshot.table(name).count() == len(rows), (branch, name)
        for id in IDS:
            assert snapshot.get("Note", id) == notes.get(id), (branch, id)
        several = [*IDS[::3], 99]
        found = snapshot.table("Note").get_many(several).to_pylist()
        assert {row["id"]: row for row in found} == {id: notes[id] for id in several if id in notes}, branch
        on_x = sorted(id for id, row in notes.items() if row["shelf"] == "x")
        assert sorted(snapshot.table("Note").to_arrow("shelf = 'x'")["id"].to_pylist()) == on_x, branch
        assert snapshot.table("Note").count("id > 4") == sum(id > 4 for id in notes), branch
        for word in WORDS:
            found = snapshot.search("Note", text=word, limit=99)["id"].to_pylist()
            assert sorted(found) == sorted(id for id, row in notes.items() if word in row["text"].split()), branch
        for place in PLACES:
            best = snapshot.search("Note", vector=place, limit=3)
            near = sorted(squared(place, row["spot"]) for row in notes.values())
            assert best["_distance"].to_pylist() == near[:3], branch
            assert [squared(place, notes[id]["spot"]) for id in best["id"].to_pylist()] == near[:3], branch
        for hops in WALKS:
            walked = snapshot.traverse("Note", None, hops)
            assert dict(zip(*walked.to_pydict().values(), strict=True)) == world.walk(hops), (branch, hops)


def compared(graph: Graph, worlds: dict[str, World]) -> list[Any]:
    """What is said about two commits, which upkeep does not change either."""
    found: list[Any] = []
    for branch, world in worlds.items():
        if world.columns == worlds["main"].columns:
            found.append(sorted(map(repr, graph.diff("main", branch))))
        since = [commit.id for _, commit in zip(range(3), graph.commits(branch=branch), strict=False)][-1]
        found.append([since, sorted(map(repr, graph.changes(since, branch=branch)))])
    return found


branches = st.sampled_from(["main", "one", "two"])
notes = st.fixed_dictionaries(
    {"id": st.sampled_from(IDS), "spot": st.tuples(*[st.integers(-9, 9).map(float)] * 2).map(list)},
    optional={"text": st.lists(st.sampled_from(WORDS), max_size=2).map(" ".join), "shelf": st.sampled_from("xy"),
              "a": st.integers(0, 9), "b": st.integers(0, 9)})  # fmt: skip
many = st.lists(notes, min_size=1, max_size=9, unique_by=lambda row: row["id"])
numbers = st.integers(0, 999)
edges = st.sampled_from(sorted(ENDS))
others = st.sampled_from(["one", "two"])


def step(name: str, /, **arguments: Any) -> Any:
    """A method of `Histories`, and what to call it with; `main` takes the place of a branch that is not there."""
    return st.tuples(st.just(name), st.fixed_dictionaries(arguments))


LOAD = step("load", branch=branches, rows=many, mode=st.sampled_from(["merge", "merge", "append", "overwrite"]))
LINK = step("link", branch=branches, name=edges, pairs=st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6),
            mode=st.sampled_from(["merge", "merge", "overwrite"]))  # fmt: skip
DELETE = step("delete", branch=branches, cascade=st.booleans(),
              ids=st.lists(st.sampled_from(IDS), min_size=1, max_size=6, unique=True))  # fmt: skip
UNLINK = step("unlink", branch=branches, name=edges, number=numbers)
CHANGE = step("change_columns", branch=branches, act=st.sampled_from(["add", "add", "rename", "drop"]),
              name=st.sampled_from(EXTRA), value=st.integers(0, 9))  # fmt: skip
BRANCH = step("create_or_drop_branch", name=others, drop=st.booleans())
MERGE = step("merge", name=others)
KEEP_UP = step("keep_up", branch=branches, column=st.sampled_from(["text", "spot", "shelf", "id", *EXTRA]),
               act=st.sampled_from(["optimize", "optimize", "optimize", "index", "gc", "cleanup", "repair", "reopen"]))
steps = st.sampled_from([LOAD, LOAD, LOAD, DELETE, DELETE, DELETE, LINK, LINK, KEEP_UP, KEEP_UP, BRANCH, BRANCH, UNLINK,
                         CHANGE, MERGE, step("look_back", number=numbers)]).flatmap(lambda one: one)  # fmt: skip


class Histories(RuleBasedStateMachine):
    """One graph, and what its branches should show."""

    @initialize(rows=many)
    def begin(self, rows: list[dict[str, Any]]) -> None:
        self.patch = pytest.MonkeyPatch()
        lower(self.patch, "graph")
        self.folder = tempfile.TemporaryDirectory()
        self.url = f"{self.folder.name}/g/"
        self.graph = Graph.init(self.url, [Note, Tag, Cites, Marked, Names])
        self.worlds = {"main": World()}
        self.bases: dict[str, World] = {}
        self.past: list[tuple[str, str, World]] = []
        self.added = 0
        self.deleted: list[int] = []
        self.load("main", rows, "merge")
        self.graph.load(Tag, [{"name": name} for name in TAGS])
        self.worlds["main"].Tag = {name: {"name": name} for name in TAGS}
        self.graph.index(Note, "text", kind="text")
        self.graph.index(Note, "spot", kind="vector")

    def teardown(self) -> None:
        if hasattr(self, "graph"):
            self.graph.close()
            self.folder.cleanup()
            self.patch.undo()

    def written(self, branch: str) -> None:
        """A commit was made: upkeep has its turn, then the branch shows what it should."""
        assert self.graph._background is not None
        assert self.graph._background.drain(60)
        world, snapshot = self.worlds[branch], self.graph.snapshot(branch=branch)
        assert {name: dict(snapshot.rows(name)) for name in world.rows()} == world.rows()
        self.past.append((branch, snapshot.commit, deepcopy(world)))

    @rule(step=steps)
    def act(self, step: tuple[str, dict[str, Any]]) -> None:
        """All steps are one rule: of several, Hypothesis leaves out most in each of few examples."""
        name, arguments = step
        if arguments.get("branch", "main") not in self.worlds:
            arguments = {**arguments, "branch": "main"}
        getattr(self, name)(**arguments)

    def load(self, branch: str, rows: list[dict[str, Any]], mode: Any) -> None:
        world = self.worlds[branch]
        new = [{name: value for name, value in row.items() if name not in EXTRA or name in world.columns}
               for row in rows if mode != "append" or row["id"] not in world.Note]  # fmt: skip
        defaults = {"text": "", "shelf": ""} | {name: value for name, (_, value) in world.columns.items()}
        after = deepcopy(world)
        after.Note = ({} if mode == "overwrite" else after.Note) | {row["id"]: {**defaults, **row} for row in new}
        if after.loose_ends():
            with pytest.raises(ConstraintError):
                self.graph.load("Note", new, mode=mode, branch=branch)
            return
        self.graph.load("Note", new, mode=mode, branch=branch)
        self.worlds[branch] = after
        self.written(branch)

    def link(self, branch: str, name: str, pairs: list[tuple[int, int]], mode: Any) -> None:
        world, (left, right) = self.worlds[branch], ENDS[name]
        starts, ends = ([*sorted(world.rows()[end]), *self.missing(branch)] if end == "Note" else list(TAGS)
                        for end in (left, right))  # fmt: skip
        new: dict[Pair, Any] = {}
        for a, b in pairs:
            pair = (starts[a % len(starts)], ends[b % len(ends)])
            new[pair] = {"left_key": pair[0], "right_key": pair[1]}
        after = deepcopy(world)
        setattr(after, name, new if mode == "overwrite" else {**world.rows()[name], **new})
        if after.loose_ends():
            with pytest.raises(ConstraintError):
                self.graph.load(name, list(new.values()), mode=mode, branch=branch)
            return
        self.graph.load(name, list(new.values()), mode=mode, branch=branch)
        self.worlds[branch] = after
        self.written(branch)

    def missing(self, branch: str) -> list[int]:
        """The note that was deleted last, if it is not there: no edge may end at it."""
        return [id for id in self.deleted[-1:] if id not in self.worlds[branch].Note] or [99]

    def delete(self, branch: str, ids: list[int], cascade: bool) -> None:
        world, after = self.worlds[branch], deepcopy(self.worlds[branch])
        after.remove(ids)
        edges = [{name: rows for name, rows in one.rows().items() if name in ENDS} for one in (world, after)]
        if not cascade and edges[0] != edges[1]:
            with pytest.raises(ConstraintError):
                self.graph.delete("Note", ids, branch=branch)
            return
        assert self.graph.delete("Note", ids, cascade=cascade, branch=branch) == len(world.Note) - len(after.Note)
        self.worlds[branch] = after
        self.deleted += [id for id in ids if id in world.Note]
        self.written(branch)
        for id in ids[:2]:  # no edge may end at it
            with pytest.raises(ConstraintError):
                self.graph.load("Cites", [{"left_key": id, "right_key": id}], branch=branch)

    def unlink(self, branch: str, name: str, number: int) -> None:
        edges = self.worlds[branch].rows()[name]
        if edges:
            pair = sorted(edges)[number % len(edges)]
            assert self.graph.delete(name, [pair], branch=branch) == 1
            del edges[pair]
            self.written(branch)

    def change_columns(self, branch: str, act: str, name: str, value: int) -> None:
        if (act == "add") == (name in self.worlds[branch].columns):
            return
        world = self.worlds[branch]
        other = next(one for one in EXTRA if one != name)
        renames = {}
        if act == "add":
            self.added += 1
            world.columns[name] = (self.added, value)
        elif act == "drop":
            del world.columns[name]
        elif other not in world.columns:
            world.columns[other] = world.columns.pop(name)
            renames = {"Note": {name: other}}
        for row in world.Note.values():
            if act == "add":
                row[name] = value
            elif name not in world.columns:
                before = row.pop(name)
                if other in world.columns and other not in row:
                    row[other] = before
        plan = self.graph.schema_plan([world.kind(), Tag, Cites, Marked, Names], renames=renames, branch=branch)
        self.graph.schema_apply(plan)
        self.written(branch)

    def create_or_drop_branch(self, name: str, drop: bool) -> None:
        if name not in self.worlds:
            self.graph.branches.create(name)
            self.worlds[name], self.bases[name] = deepcopy(self.worlds["main"]), deepcopy(self.worlds["main"])
        elif drop:
            self.graph.branches.delete(name)
            del self.worlds[name]
            self.past = [moment for moment in self.past if moment[0] != name]

    def merge(self, name: str) -> None:
        """Into main. Merges of types have tests of their own: here both have the same, or main has not changed."""
        if name not in self.worlds:
            return
        base, source, target = self.bases[name], self.worlds[name], self.worlds["main"]
        merged, disputed = World(columns=dict(source.columns)), False
        if base == target:
            merged = deepcopy(source)
        elif base.columns == source.columns == target.columns:
            for table, rows in base.rows().items():
                found = merge_states(by_field, rows, target.rows()[table], source.rows()[table])
                disputed = disputed or any(is_disputed(row) for row in found.values())
                setattr(merged, table, found)
        else:
            return
        if disputed or merged.loose_ends():
            with pytest.raises(MergeConflictError):
                self.graph.merge(name)
            return
        self.graph.merge(name)
        self.worlds["main"], self.bases[name] = merged, deepcopy(source)
        self.past += [("main", commit, world) for branch, commit, world in self.past if branch == name]
        self.written("main")

    def keep_up(self, act: str, branch: str, column: str) -> None:
        """Everything is asked before it and after it, of this graph and of one that is opened anew."""
        check(self.graph, self.worlds)
        before = compared(self.graph, self.worlds)
        if act == "optimize":
            self.graph.optimize(branch=branch)
        elif act == "index":
            if column not in EXTRA or column in self.worlds[branch].columns:
                kind = {"text": "text", "spot": "vector"}.get(column, "btree")
                self.graph.index("Note", column, kind=kind, branch=branch)
        elif act == "gc":
            self.graph.gc(dry_run=False)
            assert list(self.graph.verify()) == []
        elif act == "cleanup":
            self.graph.cleanup(keep_commits=6, dry_run=False)
        elif act == "repair":
            assert self.graph.repair(dry_run=False) == []
        elif act == "reopen":
            self.graph.close()
            self.graph = Graph.open(self.url)
            assert self.graph.recovered == []
        with Graph.open(self.url, read_only=True) as again:
            for graph in (self.graph, again):
                check(graph, self.worlds)
                after = compared(graph, self.worlds)
                if act not in ("optimize", "index"):  # these are commits, too
                    assert after == before

    def look_back(self, number: int) -> None:
        if self.past:
            branch, commit, world = self.past[number % len(self.past)]
            with suppress(RemovedCommitError):
                snapshot = self.graph.snapshot(commit, branch=branch)
                assert {name: dict(snapshot.rows(name)) for name in world.rows()} == world.rows()


@pytest.mark.slow
class TestHistories(Histories.TestCase):
    settings = settings(max_examples=max(4, examples(4)), stateful_step_count=40, deadline=None,
                        suppress_health_check=list(HealthCheck))
