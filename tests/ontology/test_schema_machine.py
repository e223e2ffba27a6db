"""Random histories of a typed store whose branches are migrated, and of dictionaries.

Schemas are different ways to write the same two values down, so that migrations change nothing that the oracle has; of
the schemas themselves it keeps one record more, which merges as any other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from marking import slow_after

from ontolake.history import ConflictKind, MergeConflictError, RevertError
from ontolake.history.conformance.oracle import GitOfDictionaries, State, three_way
from ontolake.ontology import MissingUpgraderError, Session, open_repository
from ontolake.ontology.moving.conversion import convert

from .row_schemas import CLASSES, SCHEMA, read, upgrading, written

KEYS = ["a", "b", "c", "d"]
BRANCHES = ["main", "one", "two", "three"]


class Machine:
    """Does the same to a store and to dictionaries, and compares."""

    def __init__(self, url: str, seed: int) -> None:
        self.url, self.chance = url, random.Random(seed)
        self.git = GitOfDictionaries()
        self.ids: dict[int, int] = {0: 0}
        self.seen: set[str] = set()
        self.git.nodes[0].state[SCHEMA] = {"f": 0, "g": None}
        with self.opened("main", engine_version="v3") as session:
            session.ensure(CLASSES[0](id="a", **written(0, {"f": 1, "g": 1})))
            self.note(self.git.write("main", {"a": {"f": 1, "g": 1}}), session.commit())
        for name in BRANCHES[1:3]:
            self.branch("main", name)

    def note(self, commit: int, id: int | None) -> None:
        assert id is not None
        self.ids[commit] = id

    def schema(self, commit: int) -> int:
        return int(self.git.state(commit)[SCHEMA]["f"])

    def opened(self, branch: str, **options: Any) -> Session:
        cls = CLASSES[self.schema(self.git.branches[branch])]
        return Session(self.url, entity_types=[cls], branch=branch, **options)

    def step(self) -> None:
        kinds = ["write"] * 5 + ["edit"] * 4 + ["branch"] * 2 + ["migrate"] * 3 + ["merge"] * 6 + ["restore", "pick",
                 "revert"]  # fmt: skip
        branch, other = (self.chance.choice([*self.git.branches]) for _ in range(2))
        getattr(self, self.chance.choice(kinds))(branch, other)

    def write(self, branch: str, _: str) -> None:
        head = self.git.branches[branch]
        key, schema = self.chance.choice(KEYS), self.schema(head)
        row = None if self.chance.random() < 0.3 else {name: self.chance.choice([None, 1, 2]) for name in "fg"}
        self.put(branch, key, row, schema)

    def edit(self, branch: str, _: str) -> None:
        head = self.git.branches[branch]
        key = self.chance.choice(KEYS)
        row = self.git.state(head).get(key)
        if row is not None:
            changed = {**row, self.chance.choice("fg"): self.chance.choice([None, 1, 2])}
            self.put(branch, key, changed, self.schema(head))

    def put(self, branch: str, key: str, row: dict[str, Any] | None, schema: int) -> None:
        if self.git.state(self.git.branches[branch]).get(key) == row:
            return
        with self.opened(branch) as session:
            if row is None:
                session.delete(CLASSES[schema], key)
            else:
                session.ensure(CLASSES[schema](id=key, **written(schema, row)))
            self.note(self.git.write(branch, {key: row}), session.commit())

    def branch(self, branch: str, _: str) -> None:
        free = [name for name in BRANCHES if name not in self.git.branches]
        if free:
            with self.opened(branch) as session:
                session.branches.create(free[0])
            self.git.branches[free[0]] = self.git.branches[branch]

    def migrate(self, branch: str, _: str) -> None:
        old = self.schema(self.git.branches[branch])
        new = self.chance.choice([one for one in range(len(CLASSES)) if one != old])
        head = self.git.write(branch, {SCHEMA: {"f": new, "g": None}})
        with self.opened(branch) as session:
            here = "Row", session.repository.schemas()["entity", "Row"].schema_version_id
            done = session.migrate(dry_run=False, force=True, upgraders={here: upgrading(new)[here]})
        self.note(head, done.commit_id)  # type: ignore[union-attr]
        self.seen.add("migration")

    def merge(self, source: str, into: str) -> None:
        theirs, ours = self.git.branches[source], self.git.branches[into]
        side: Any = self.chance.choice([None, "ours", "theirs"])
        if source == into or theirs == ours:
            return
        _, without = self.git.plan(theirs, into)
        answer = self.git.merge(theirs, into, side)
        target = 0 if answer is None else int(answer.state[SCHEMA]["f"])
        given = upgrading(target)
        with Session(self.url, entity_types=[CLASSES[target]]) as session:
            def run(**options: Any) -> Any:
                return session.merge(source, into, strategy=side, **options)

            if answer is None:
                assert run().status == "up_to_date"
                return
            if answer.conflicts and side is None:
                self.refused(run, answer.conflicts, given)
                assert session.repository.on_branch(into).head() == self.ids[ours]  # type: ignore[attr-defined]
                return
            result = None
            if self.chance.random() < 0.3:
                missing = None
                try:
                    result = run(upgraders={})
                except MissingUpgraderError as error:
                    missing = {name for name, _ in error.missing}
                assert missing in (None, {"Row"})
                assert result is not None or session.repository.highest() == max(self.ids.values())
                self.seen.add("missing" if missing else "lift")
            result = run(upgraders=given) if result is None else result
            self.note(self.git.branches[into], result.commit.id)
        self.seen |= {"settled" for key, _ in without.conflicts if key == SCHEMA}
        self.seen |= {"brought"} if target != self.schema(ours) else set()
        self.seen |= {"kept"} if target != self.schema(theirs) else set()
        self.seen |= {"criss-cross"} if len(self.git.merge_bases(ours, theirs)) > 1 else set()

    def refused(self, run: Callable[..., Any], conflicts: frozenset[tuple[str, str | None]], given: Any) -> None:
        with pytest.raises(MergeConflictError) as error:
            run(upgraders=given)
        if (SCHEMA, "f") in conflicts:
            self.seen.add("conflict")
            assert [one.kind for one in error.value.conflicts] == [ConflictKind.SCHEMA]
            return
        names = {"h": "g"}
        found = {(one.key, None if one.field is None else names.get(one.field, one.field))
                 for one in error.value.conflicts}
        # Where a whole record was inserted twice the store tells it as one conflict.
        assert {key for key, _ in found} == {key for key, _ in conflicts}

    def back(self, branch: str, verb: str, base: State | None, theirs: State, id: int) -> None:
        """Bring what differs between two states to a branch, under its own schema."""
        head = self.git.branches[branch]
        ours, side = self.git.state(head), self.chance.choice(["ours", "theirs"])
        whole = {SCHEMA: ours[SCHEMA]}
        found = {**theirs, **whole} if base is None else three_way({**base, **whole}, ours, {**theirs, **whole},
                                                                   side).state
        options: Any = {} if base is None else {"strategy": side}
        if verb != "revert":
            options["upgraders"] = upgrading(self.schema(head))
        with self.opened(branch) as session:
            result = getattr(session, verb)(id, **options)
        if found != ours or result.commit is not None:
            self.note(self.git.add(branch, found), result.commit.id)

    def restore(self, branch: str, _: str) -> None:
        commit = self.chance.choice([one for one in self.ids if one])
        self.back(branch, "restore", None, self.git.state(commit), self.ids[commit])

    def pick(self, branch: str, other: str) -> None:
        self.change("cherry_pick", branch, self.git.branches[other])

    def revert(self, branch: str, _: str) -> None:
        head = self.git.branches[branch]
        self.change("revert", branch, self.git.nodes[head].parents[0] or head)

    def change(self, verb: str, branch: str, commit: int) -> None:
        node = self.git.nodes[commit]
        before = self.git.state(node.parents[0])
        if not node.parents[0]:
            return
        if self.schema(commit) != self.schema(node.parents[0]):
            with self.opened(branch) as session, pytest.raises(RevertError, match="is a migration of Row"):
                getattr(session, verb)(self.ids[commit])
            self.seen.add("not reverted")
        elif verb == "cherry_pick" or self.schema(commit) == self.schema(self.git.branches[branch]):
            states = (before, node.state) if verb == "cherry_pick" else (node.state, before)
            self.back(branch, verb, *states, self.ids[commit])

    # comparing
    def check(self, *, past: bool) -> None:
        for branch, head in self.git.branches.items():
            schema = self.schema(head)
            with self.opened(branch) as session:
                session.validate()
                rows = {one.id: read(one.model_dump()) for one in session.query().entities(CLASSES[schema]).collect()}
                assert rows == self.records(head), f"{branch} now"
                for commit in [one for one in self.ids if one] if past else ():  # of other branches, too
                    self.check_past(session, schema, commit)
                assert not list(session.repository.check())

    def check_past(self, session: Session, schema: int, commit: int) -> None:
        id = self.ids[commit]
        stored = dict(session.snapshot(id).rows("entity/Row"))
        fields = {"id", *written(self.schema(commit), {"f": 1, "g": 1})}
        assert all(set(row) == fields for row in stored.values()), f"the schema of commit {id}"
        assert {key: read(row) for key, row in stored.items()} == self.records(commit), f"commit {id}"
        query = session.query().entities(CLASSES[schema]).as_of(id, schema="current", upgraders=upgrading(schema))
        assert {one.id: read(one.model_dump()) for one in query.collect()} == self.records(commit), f"{id} lifted"

    def records(self, commit: int) -> State:
        return {key: row for key, row in self.git.state(commit).items() if key != SCHEMA}


def play(where: str, seed: int, number: int) -> Machine:
    machine = Machine(where, seed)
    for place in range(number):
        machine.step()
        if place % 15 == 14:
            machine.check(past=False)
    machine.check(past=True)
    return machine


@pytest.mark.parametrize("seed", slow_after(1, [1, *range(2, 6)]))
def test_migrated_branches_merge_as_dictionaries_do(tmp_path: Path, seed: int) -> None:
    play(str(tmp_path / "store.db"), seed, 30)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [10, 11])
def test_they_do_so_on_objects(tmp_path: Path, seed: int) -> None:
    play(f"file://{tmp_path}/lake", seed, 30)


@pytest.mark.slow
def test_copies_have_the_same_schemas_at_every_commit(tmp_path: Path) -> None:
    machine = play(str(tmp_path / "store.db"), 20, 40)
    for target in (f"file://{tmp_path}/lake", str(tmp_path / "copy.db")):
        with closing(open_repository(machine.url)) as source, \
                closing(open_repository(target, engine_version="v3")) as copy:
            convert(source, copy)
        machine.url = target
        for _ in range(10):
            machine.step()
        machine.check(past=True)


@pytest.mark.slow
def test_it_does_so_for_long_and_everything_comes_up(tmp_path: Path) -> None:
    seen = play(str(tmp_path / "a.db"), 100, 120).seen | play(str(tmp_path / "b.db"), 101, 120).seen
    assert seen == {"migration", "settled", "conflict", "brought", "kept", "criss-cross", "lift", "missing",
                    "not reverted"}  # fmt: skip
