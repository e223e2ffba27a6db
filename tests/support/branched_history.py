"""A typed store with branches, tags, merges and deletions, and what it must say at every commit, in plain Python."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from ontolake.model import Entity, Field, Relation
from ontolake.ontology import Session


class Part(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int]
    name: Field[str | None] = Field(default=None)


class Fits(Relation[Part, Part]):
    grip: Field[int]


TYPES = [Part, Fits]
PARTS, FITS = "entity/Part", "relation/Fits"
State = dict[str, dict[str, Any]]


class BranchedHistory:
    """A store that is written to by `commit`, and beside it what a reader must find: states by commit, lines by branch,
    and what each commit did to parts."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.states: dict[int, State] = {0: {PARTS: {}, FITS: {}}}
        self.lines: dict[str, list[int]] = {"main": []}
        self.changes: dict[int, dict[str, str]] = {}
        self.tags: dict[str, int] = {}
        self.times: dict[int, datetime] = {}

    def session(self, branch: str = "main") -> Session:
        return Session(self.url, entity_types=[Part], relation_types=[Fits], engine_version="v3",
                       config={"branch": branch})

    def head(self, branch: str = "main") -> int:
        return self.lines[branch][-1] if self.lines[branch] else 0

    def commit(self, branch: str, parts: dict[str, int | None], fits: dict[str, int | None] | None = None) -> int:
        """Write sizes of parts and grips of pairs such as `a-b`; None deletes. One commit."""
        with self.session(branch) as session:
            for name, grip in (fits or {}).items():
                left, right = name.split("-")
                if grip is None:
                    session.delete(Fits, (left, right))
                else:
                    session.ensure(Fits(left_key=left, right_key=right, grip=grip))
            for key, size in parts.items():
                session.delete(Part, key) if size is None else session.ensure(Part(id=key, size=size))
            done = session.commit()
        assert done is not None
        return self.record(branch, done, {PARTS: parts, FITS: fits or {}})

    def record(self, branch: str, commit: int, changes: dict[str, dict[str, Any]]) -> int:
        """Note what a commit must have done."""
        before = self.states[self.head(branch)]
        after = {table: {key: value for key, value in {**rows, **changes.get(table, {})}.items() if value is not None}
                 for table, rows in before.items()}
        self.changes[commit] = {
            key: "delete" if key not in after[PARTS] else "update" if key in before[PARTS] else "insert"
            for key in changes.get(PARTS, {}) if before[PARTS].get(key) != after[PARTS].get(key)}
        self.states[commit] = after
        self.lines[branch].append(commit)
        self.times[commit] = datetime.now(UTC)
        time.sleep(0.002)  # times of commits differ, and one lies between two of them
        return commit

    def branch(self, name: str, parent: str = "main") -> None:
        with self.session(parent) as session:
            session.branches.create(name)
        self.lines[name] = list(self.lines[parent])

    def tag(self, name: str, branch: str = "main") -> None:
        with self.session(branch) as session:
            session.tags.create(name)
        self.tags[name] = self.head(branch)


def written(url: str) -> BranchedHistory:
    """Two branches, one of the other, a merge, deletions on each, keys that come back, a tag on a deleted state."""
    made = BranchedHistory(url)
    made.commit("main", {key: number for number, key in enumerate("abcdef")}, {"a-b": 1, "c-d": 1})
    made.branch("try")
    made.commit("main", {"a": 10, "e": None})
    made.tag("early")
    made.commit("try", {"b": 20, "f": None, "g": 7}, {"a-b": 2})
    made.branch("deep", "try")
    made.commit("main", {"e": 5})
    made.commit("deep", {"c": None, "d": None, "h": 8}, {"c-d": None})
    made.commit("try", {"g": None})
    with made.session() as session:
        done = session.merge("deep", "main").commit
    assert done is not None
    made.record("main", done.id, {PARTS: {"b": 20, "f": None, "g": 7, "c": None, "d": None, "h": 8},
                                  FITS: {"a-b": 2, "c-d": None}})
    made.commit("main", {"f": 66, "h": None})
    with made.session() as session:
        session.branches.create("gone")
        session.branches.delete("gone")
    return made
