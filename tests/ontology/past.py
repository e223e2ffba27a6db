"""Random programs of commits, migrations and upkeep, beside a plain record of what every commit wrote.

The record keeps the rows of each commit as dicts; every way to ask a store for the past must tell the same.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from ontolake.model import Entity, Field, Relation
from ontolake.ontology import (
    QueryError,
    Session,
    TypedStore,
    Upgrader,
    count,
    left,
    sum_,
)
from ontolake.ontology.moving.exports import lines
from ontolake.ontology.sizes import DEFAULT, Sizes

Types = tuple[Any, Any, Any]
Fields = dict[str, Any]
Rows = dict[Any, Fields]


def types_of(person: int = 1, place: int = 1, visited: int = 1) -> Types:
    """`Person`, `Place` and `Visited`, each in the version asked for."""

    class Person(Entity):
        id: Field[str] = Field(primary_key=True)
        if person == 1:
            name: Field[str]
        else:
            given: Field[str]
            family: Field[str | None] = Field(default=None)
        if person in (3, 4):
            nick: Field[str | None] = Field(default="nobody")
        if person >= 4:
            age: Field[str]
        else:
            age: Field[int] = Field(default=0)  # type: ignore[no-redef]

    class Place(Entity):
        if place >= 3:
            code: Field[int] = Field(primary_key=True)
        else:
            id: Field[int] = Field(primary_key=True)
        if place >= 2:
            country: Field[str | None] = Field(default=None)
        if place >= 4:
            tags: Field[list[str]] = Field(default_factory=list)

    class Visited(Relation[Person, Place]):
        year: Field[str] = Field(instance_key=True)
        days: Field[int] = Field(default=1)
        if visited >= 2:
            note: Field[str] = Field(default="-", name="remark")
        if visited >= 3:
            days: Field[int | None] = Field(default=None)  # type: ignore[no-redef]

    return Person, Place, Visited


def split_names(row: Fields) -> Fields:
    given, _, family = row.pop("name").partition(" ")
    return {**row, "given": given, "family": family or None}


def rename_id(row: Fields) -> Fields:
    row["code"] = row.pop("id")
    return row


def without_nick(row: Fields) -> Fields:
    del row["nick"]
    return row


STEPS: dict[str, list[Callable[[Fields], Fields]]] = {
    "Person": [split_names, lambda row: {**row, "nick": "nobody"}, lambda row: {**row, "age": str(row["age"])},
               without_nick],
    "Place": [lambda row: {**row, "country": None}, rename_id, lambda row: {**row, "tags": []}],
    "Visited": [lambda row: {**row, "remark": "-"}, lambda row: row],
}  # fmt: skip
"""What becomes of a row with each migration, as plain functions."""

UPGRADERS = {("Person", 1): split_names, ("Person", 3): STEPS["Person"][2], ("Place", 2): rename_id}
"""Those of them that only an upgrader can tell."""

NAMES = ("Person", "Place", "Visited")
LAST = {name: len(steps) + 1 for name, steps in STEPS.items()}


class State(NamedTuple):
    """A commit: the versions and the rows of all types as they were after it, and the rows that it wrote."""

    versions: dict[str, int]
    rows: dict[str, Rows]
    wrote: dict[str, Rows]


class Record:
    """What was committed, as plain data. The first state is that of an empty store."""

    def __init__(self) -> None:
        self.states = [State(dict.fromkeys(NAMES, 1), {name: {} for name in NAMES}, {})]

    @property
    def head(self) -> int:
        return len(self.states) - 1

    @property
    def now(self) -> State:
        return self.states[-1]

    def write(self, rows: dict[str, Rows]) -> bool:
        wrote = {name: {key: row for key, row in given.items() if self.now.rows[name].get(key) != row}
                 for name, given in rows.items()}  # fmt: skip
        if not any(wrote.values()):
            return False
        after = {name: {**self.now.rows[name], **wrote.get(name, {})} for name in NAMES}
        self.states.append(copy.deepcopy(State(self.now.versions, after, wrote)))
        return True

    def migrate(self, names: list[str], twice: list[str]) -> None:
        """Lead the rows of types to the next version, or to the one behind it."""
        now = copy.deepcopy(self.now)
        versions = {name: version + (name in names) + (name in twice) for name, version in now.versions.items()}
        wrote = {name: {key: lifted(name, now.versions[name], versions[name], row)
                        for key, row in now.rows[name].items()} for name in names}  # fmt: skip
        self.states.append(State(versions, {**now.rows, **wrote}, wrote))

    def lifted(self, name: str, version: int, row: Fields) -> Fields:
        return lifted(name, version, self.now.versions[name], row)

    def diff(self, first: int, last: int) -> dict[tuple[str, Any], tuple[Fields | None, Fields | None]]:
        found = {}
        for name in NAMES:
            before, after = self.states[first].rows[name], self.states[last].rows[name]
            for key in {*before, *after}:
                if before.get(key) != after.get(key):
                    found[table(name), key] = (before.get(key), after.get(key))
        return found


def lifted(name: str, version: int, to: int, row: Fields) -> Fields:
    row = copy.deepcopy(row)
    for step in STEPS[name][version - 1 : to - 1]:
        row = step(row)
    return row


def table(name: str) -> str:
    return f"{'relation' if name == 'Visited' else 'entity'}/{name}"


def key_of(name: str, row: Fields) -> Any:
    if name == "Visited":
        return (row["left_key"], row["right_key"], row["year"])
    return row.get("id", row.get("code"))


def random_rows(rng: random.Random, versions: dict[str, int]) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for _ in range(rng.choice([1, 3, 12])):
        name = rng.choice(NAMES)
        version = versions[name]
        if name == "Person":
            row: Fields = {"id": f"p{rng.randrange(4)}", "age": rng.randrange(3)}
            row |= {"name": rng.choice(["Ada L", "Bob", "Cy X Z"])} if version == 1 else {
                "given": rng.choice(["Ada", "Eva"]), "family": rng.choice([None, "L"])}
            row |= {"nick": rng.choice([None, "nobody", "al"])} if version in (3, 4) else {}
            row |= {"age": str(row["age"])} if version >= 4 else {}
        elif name == "Place":
            row = {"code" if version >= 3 else "id": rng.randrange(3)}
            row |= {"country": rng.choice([None, "fr"])} if version >= 2 else {}
            row |= {"tags": rng.choice([[], ["x"]])} if version >= 4 else {}
        else:
            row = {"left_key": f"p{rng.randrange(5)}", "right_key": rng.randrange(4), "year": rng.choice(["1", "2"]),
                   "days": rng.randrange(3)}  # fmt: skip
            row |= {"remark": rng.choice(["-", "ä"])} if version >= 2 else {}
        found.setdefault(name, {})[key_of(name, row)] = row
    return found


def object_of(cls: Any, row: Fields) -> Any:
    return cls(**{"note" if name == "remark" else name: value for name, value in row.items()})


def told(obj: Any) -> Fields:
    """An object as its stored fields."""
    return {"remark" if name == "note" else name: value for name, value in obj.model_dump().items()}


class Program:
    """A store and its record, side by side."""

    def __init__(self, url: str, engine: str, seed: int, sizes: Sizes = DEFAULT) -> None:
        self.url = url
        self.engine = engine
        self.sizes = sizes
        self.rng = random.Random(seed)
        self.record = Record()
        self.types = types_of()
        self.sessions: list[Session] = []
        self.happened: set[str] = set()
        self.upgraders: dict[tuple[str, int], Any] = dict(UPGRADERS)
        self.reopen()

    def reopen(self) -> None:
        self.types = types_of(*(self.record.now.versions[name] for name in NAMES))
        person, place, visited = self.types
        self.sessions.append(Session(self.url, entity_types=[person, place], relation_types=[visited],
                                     engine_version=self.engine, config={"sizes": self.sizes}))  # fmt: skip
        self.session = self.sessions[-1]

    def close(self) -> None:
        for session in self.sessions:
            session.close()

    def cls(self, name: str) -> Any:
        return self.types[NAMES.index(name)]

    def commit(self) -> None:
        rows = random_rows(self.rng, self.record.now.versions)
        self.session.ensure([object_of(self.cls(name), row) for name, given in rows.items() for row in given.values()])
        expected = self.record.head if self.record.write(rows) else None
        assert self.session.commit() == expected

    def migrate(self) -> None:
        known = {name for state in self.record.states for name, rows in state.rows.items() if rows}
        names = [name for name in NAMES if name in known and self.record.now.versions[name] < LAST[name]
                 and self.rng.random() < 0.6]  # fmt: skip
        if not names:
            return
        versions = self.record.now.versions
        every: dict[tuple[str, int], Any] = {**UPGRADERS, ("Person", 4): without_nick}
        if self.rng.random() < 0.5:
            every["Place", 2] = Upgrader(
                lambda rows: rows.rename_columns(["code" if one == "id" else one for one in rows.column_names]),
                "Place", 2, arrow=True)  # fmt: skip
        due = [(name, versions[name]) for name in names]
        given = {one: every[one] for one in due if one in every}
        twice = [name for name, version in due if (name, version) == ("Person", 3) and self.rng.random() < 0.5]
        if twice:  # a chain, which leaves a number out
            self.upgraders["Person", 4] = given["Person", 4] = without_nick
        self.upgraders |= {one: given[one] for one in due if one == ("Place", 2)}
        self.record.migrate(names, twice)
        self.reopen()
        self.session.migrate(dry_run=False, force=True, upgraders=given)
        self.happened.add("migrate")

    def upkeep(self) -> None:
        if self.session.repository.backend == "s3":
            from ontolake.ontology.repository.objects.upkeep.maintenance import compact

            repository: Any = self.session.repository
            compact(repository, dry_run=False)

    # what must be
    def query(self, name: str) -> Any:
        start: Any = self.session.query()
        return start.relations(self.cls(name)) if name == "Visited" else start.entities(self.cls(name))

    def check(self) -> None:
        at = self.rng.randrange(self.record.head + 1)
        state = self.record.states[at]
        for name in NAMES:
            rows, version = state.rows[name], state.versions[name]
            stored = self.query(name).as_of(at, schema="stored")
            assert {key_of(name, told(obj)): told(obj) for obj in stored.collect()} == rows
            assert stored.count() == len(rows)
            assert (stored.first() is None) == (not rows)
            found = [{field: value for field, value in row.items() if field != "commit_id"}
                     for row in stored.to_arrow().to_pylist()]
            assert {key_of(name, row): row for row in map(plain, found)} == rows
            lifted = {key: self.record.lifted(name, version, row) for key, row in rows.items()}
            current = self.query(name).as_of(at, schema="current", upgraders=self.upgraders)
            assert {key_of(name, told(obj)): told(obj) for obj in current.collect()} == lifted
            assert all(type(obj) is self.cls(name) for obj in current.collect())
            assert current.count() == current.to_arrow().num_rows == len(rows)
            self.check_history(name, at)
        self.check_filters(at)
        self.check_paths(at)
        self.check_snapshots(at)
        self.check_export(at)

    def check_history(self, name: str, at: int) -> None:
        states = [(number, state.versions[name], row) for number, state in enumerate(self.record.states[: at + 1])
                  for row in state.wrote.get(name, {}).values()]
        version = self.record.states[at].versions[name]
        stored = self.query(name).as_of(at, schema="stored").with_history().collect()
        assert flat((obj.meta().commit_id, told(obj)) for obj in stored) == flat(
            (number, row) for number, then, row in states if then == version)
        since = self.rng.randrange(at + 1)
        current = self.query(name).as_of(at, schema="current", upgraders=self.upgraders)
        for query, first in ((current.with_history(), 0), (current.history_since(since), since)):
            expected = [(number, self.record.lifted(name, then, row)) for number, then, row in states if number > first]
            assert flat((obj.meta().commit_id, told(obj)) for obj in query.collect()) == flat(expected)
            assert query.count() == len(expected)

    def check_filters(self, at: int) -> None:
        person, place, visited = self.types
        state = self.record.states[at]
        people, version = state.rows["Person"], state.versions["Person"]
        stored = self.query("Person").as_of(at, schema="stored")
        current = self.query("Person").as_of(at, schema="current", upgraders=self.upgraders)
        assert [obj.id for obj in stored.where(person.id == "p1").collect()] == [key for key in people if key == "p1"]
        number: Any = self.rng.randrange(3)
        if version == 1 and self.record.now.versions["Person"] > 1:
            for wrong in (lambda: stored.where(person.given == "Ada").count(),
                          lambda: stored.order_by(person.given).collect(),
                          lambda: stored.group_by(person.given).agg(),
                          lambda: self.query("Visited").as_of(at, schema="stored").where(
                              left(visited).given == "Ada").count()):  # fmt: skip
                with pytest.raises(QueryError, match=f"had no field 'given' at commit {at}"):
                    wrong()
        if (version >= 4) == (self.record.now.versions["Person"] >= 4):
            number = str(number) if version >= 4 else number
            assert stored.where(person.age >= number).count() == sum(row["age"] >= number for row in people.values())
        lifted = [self.record.lifted("Person", version, row) for row in people.values()]
        if self.record.now.versions["Person"] > 1:
            assert current.where(person.given == "Ada").count() == sum(row["given"] == "Ada" for row in lifted)
            groups = current.group_by(person.given).agg(n=count())
            assert {group["given"]: group["n"] for group in groups} == {
                given: sum(row["given"] == given for row in lifted) for given in {row["given"] for row in lifted}}
            ordered = [obj.given for obj in current.order_by(person.given.desc()).limit(2).collect()]
            assert ordered == sorted((row["given"] for row in lifted), reverse=True)[:2]
        key = place.code if self.record.now.versions["Place"] >= 3 else place.id
        for schema, more in (("stored", {}), ("current", {"upgraders": self.upgraders})):
            query = self.query("Place").as_of(at, schema=schema, **more)
            if schema == "current" or (self.record.now.versions["Place"] >= 3) == (state.versions["Place"] >= 3):
                assert query.where(key > 0).count() == sum(one > 0 for one in state.rows["Place"])

    def check_paths(self, at: int) -> None:
        person, _place, visited = self.types
        state = self.record.states[at]
        whole = [row for row in state.rows["Visited"].values() if row["left_key"] in state.rows["Person"]
                 and row["right_key"] in state.rows["Place"]]
        days = [row["days"] for row in whole]
        for schema, more in (("stored", {}), ("current", {"upgraders": self.upgraders})):
            ways = self.query("Person").as_of(at, schema=schema, **more).via(visited)
            found = ways.collect()
            assert sorted((path.source.id, path.target.meta().keys.popitem()[1]) for path in found) == sorted(
                (row["left_key"], row["right_key"]) for row in whole)
            assert ways.sum(visited.days) == (sum(days) if days else None)
            back = self.query("Place").as_of(at, schema=schema, **more).via(visited).where(person.id == "p1")
            assert back.count() == sum(row["left_key"] == "p1" for row in whole)
            ends = self.query("Visited").as_of(at, schema=schema, **more).where(left(visited).id == "p1")
            assert ends.count() == sum(row["left_key"] == "p1" and "p1" in state.rows["Person"]
                                       for row in state.rows["Visited"].values())
            groups = self.query("Visited").as_of(at, schema=schema, **more).group_by(left(visited).id).agg(
                n=sum_(visited.days))
            assert sum(group["n"] for group in groups) == sum(row["days"] for row in state.rows["Visited"].values())

    def check_snapshots(self, at: int) -> None:
        head = self.record.head
        other = self.rng.randrange(head + 1)
        with TypedStore(self.url, config={"create": False, "readonly": True}) as store:
            for versioned in (self.session, store):
                moment, known = versioned.snapshot(at), set(versioned.snapshot().tables())
                for name in NAMES:
                    if table(name) in known:
                        assert dict(moment.rows(table(name))) == self.record.states[at].rows[name]
                found = versioned.diff(moment, versioned.snapshot(other))
                assert {(one.table, one.key): (one.before, one.after) for one in found} == self.record.diff(at, other)
                if at:
                    done = versioned.commit_changes(at)
                    assert {(one.table, one.key): (one.before, one.after) for one in done if one.before != one.after
                            } == self.record.diff(at - 1, at)  # fmt: skip

    def check_export(self, at: int) -> None:
        state = self.record.states[at]
        found: dict[str, Rows] = {name: {} for name in NAMES}
        for line in map(json.loads, lines(self.session.repository, self.session.types, as_of=at)):
            if line["kind"] == "schema":
                name = line["schema"]["name"]
                expected = next(iter(state.rows[name].values()), None)
                assert expected is None or set(line["schema"]["fields"]) == set(expected)
            else:
                key = line["key"]
                found[line["type"]][tuple(key) if isinstance(key, list) else key] = line["fields"]
        assert found == state.rows


def plain(row: Fields) -> Fields:
    """A row out of Arrow, in which lists are JSON."""
    return {name: json.loads(value) if name == "tags" else value for name, value in row.items()}


def flat(states: Any) -> list[str]:
    return sorted(f"{number} {sorted(row.items(), key=lambda item: item[0])}" for number, row in states)


def run_past(url: str, engine: str, seed: int, steps: int, sizes: Sizes = DEFAULT) -> set[str]:
    """A random program; what happened in it."""
    program = Program(url, engine, seed, sizes)
    try:
        for _ in range(steps):
            step = program.rng.choices([program.commit, program.migrate, program.upkeep], [5, 2, 1])[0]
            step()
            if program.rng.random() < 0.4:
                program.check()
        for _ in range(3):
            program.check()
        with TypedStore(url, config={"create": False, "readonly": True}) as store:
            assert list(store.verify()) == []
    finally:
        program.close()
    return program.happened
