"""One random history, told to a store in SQLite, to one on objects and to a git of dictionaries.

Each step is done to both stores through the public API and to the dictionaries. Both must answer it alike: the same
commit id, the same conflicts, the same error. Records of the oracle are called `row:a`, `box:b`, `link:b>c`; one more
record keeps the schema of `Row`, which each branch may migrate (`row_schemas`). Boxes are the ends of links, so that
merges have orphans.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from low import LOW

from ontolake.errors import OntolakeError
from ontolake.history import ConflictKind, MergeConflictError
from ontolake.history.conformance.oracle import GitOfDictionaries, State, three_way
from ontolake.model import Entity, Field, Relation
from ontolake.ontology import Config, Session, TypedStore, open_repository
from ontolake.ontology.moving.conversion import convert

from .conftest import fresh_url
from .row_schemas import CLASSES, SCHEMA, upgrading, written

KEYS = ["a", "b", "c", "d", "e"]
BOXES = ["k", "l", "m"]
BRANCHES = ["main", "one", "two", "three"]
TAGS = ["v1", "v2"]
VALUES = [None, 1, 2]


class Box(Entity):
    id: Field[str] = Field(primary_key=True)
    f: Field[int | None] = Field(default=None, index=True)
    g: Field[int | None] = Field(default=None)


class Link(Relation[Box, Box]):
    f: Field[int | None] = Field(default=None)
    g: Field[int | None] = Field(default=None)


def ends(record: str) -> list[str]:
    """The records of the boxes that a link connects."""
    return [f"box:{key}" for key in record.removeprefix("link:").split(">")]


def links_to(state: State, box: str) -> list[str]:
    return sorted(one for one in state if one.startswith("link:") and box in ends(one))


def without_orphans(merged: State, ours: State, theirs: State, side: str | None) -> tuple[State, set[str]]:
    """What a step makes of links whose box the other side deleted, and the boxes of those that nobody settled."""
    state, orphans = dict(merged), set()
    for box in sorted(one for one in ours if one.startswith("box:") and one not in merged):
        for link in links_to(state, box):
            if side is None:
                orphans.add(box)
            elif side == "ours":
                state[box] = ours[box]
            else:
                del state[link]
    for link in sorted(one for one in state if one.startswith("link:") and state[one] != ours.get(one)):
        for box in ends(link):
            if link in state and box in theirs and box not in ours and box not in state:
                if side is None:
                    orphans.add(box)
                elif side == "ours":
                    state = {**state, link: ours.get(link)}  # type: ignore[dict-item]
                    state = {key: row for key, row in state.items() if row is not None}
                else:
                    state[box] = theirs[box]
    return state, orphans


class Twins:
    """Two stores and the oracle, step by step."""

    def __init__(self, seed: int, folder: Path, places: tuple[str, str]) -> None:
        self.chance = random.Random(seed)
        self.folder, self.places = folder, places
        self.git = GitOfDictionaries()
        self.git.nodes[0].state[SCHEMA] = {"f": 0, "g": None}
        self.ids: dict[int, int] = {0: 0}
        self.urls = [self.fresh(place) for place in places]
        self.sessions: dict[tuple[int, str], Session] = {}
        self.seen: set[str] = set()
        self.steps = self.erased = 0
        # What is in memory goes when the last handle closes.
        self.keepers: list[Any] = [open_repository(url, engine_version="v3", config=self.config()) for url in self.urls]
        self.write_all("main", {"row:a": {"f": 1, "g": 1}, "box:k": {"f": 1, "g": None}, "box:l": {"f": 2, "g": 1},
                                "link:k>l": {"f": 1, "g": 1}})

    # stores

    def fresh(self, place: str) -> str:
        return fresh_url(place, Path(tempfile.mkdtemp(dir=self.folder)))

    @staticmethod
    def config(branch: str = "main") -> Config:
        return Config(sizes=LOW, branch=branch, lock_timeout=30.0)

    def session(self, number: int, branch: str = "main") -> Session:
        """The open session of a store on a branch."""
        found = self.sessions.get((number, branch))
        if found is None:
            cls = CLASSES[self.schema(self.git.branches[branch])]
            found = Session(self.urls[number], entity_types=[cls, Box], relation_types=[Link], engine_version="v3",
                            config=self.config(branch))
            self.sessions[number, branch] = found
        return found

    def forget(self, *branches: str) -> None:
        """Close sessions: all, or those of some branches."""
        for place in [one for one in self.sessions if not branches or one[1] in branches]:
            self.sessions.pop(place).close()

    def close(self) -> None:
        self.forget()
        for keeper in self.keepers:
            keeper.close()

    def both(self, call: Callable[[int], Any]) -> Any:
        """Do something to both stores. What they answer must be equal: a value, or an error and what it names."""
        answers: list[Any] = []
        for number in range(2):
            try:
                answers.append(("done", call(number)))
            except MergeConflictError as error:
                answers.append(("conflicts", sorted(
                    (one.kind, one.table, one.key, one.field or "") for one in error.conflicts)))
            except OntolakeError as error:
                answers.append(("error", type(error).__name__))
        assert answers[0] == answers[1], f"{self.places[0]} {answers[0]}, {self.places[1]} {answers[1]}"
        self.seen.add(answers[0][1] if answers[0][0] == "error" else answers[0][0])
        return answers[0]

    # the oracle

    def schema(self, commit: int) -> int:
        return int(self.git.state(commit)[SCHEMA]["f"])

    def head(self, branch: str) -> State:
        return self.git.state(self.git.branches[branch])

    def note(self, branch: str, id: Any) -> None:
        """The commit that a branch now ends in has this id, which is one more than any before."""
        assert id == max(self.ids.values()) + 1
        self.ids[self.git.branches[branch]] = id

    def kept(self) -> list[int]:
        """The commits that branches and tags hold, oldest first."""
        return sorted(one for one in self.git.ancestors([*self.git.branches.values(), *self.git.tags.values()])
                      if one)  # fmt: skip

    # steps

    def step(self) -> None:
        kinds = ["write"] * 8 + ["delete"] * 2 + ["branch"] * 3 + ["merge"] * 7 + ["migrate"] * 2 + [
            "complete", "update", "delete_found", "revert", "pick", "restore", "erase", "tag", "untag", "rename",
            "drop_branch", "reopen", "upkeep"] + (["convert"] if self.chance.random() < 0.3 else [])
        branch, other = (self.chance.choice(sorted(self.git.branches)) for _ in range(2))
        getattr(self, self.chance.choice(kinds))(branch, other)
        self.steps += 1

    def record(self) -> dict[str, Any]:
        return {name: self.chance.choice(VALUES) for name in "fg"}

    def write(self, branch: str, _: str) -> None:
        """Rows, boxes and links that come, change and go, in one commit."""
        state, changes = self.head(branch), {}
        for _ in range(self.chance.choice([1, 1, 2, 5])):
            key = self.chance.choice([f"row:{self.chance.choice(KEYS)}"] * 3 + [f"box:{self.chance.choice(BOXES)}"])
            gone = self.chance.random() < 0.25 and not key.startswith("box:")
            changes[key] = None if gone else self.record()
        boxes = sorted(one.removeprefix("box:") for one in {**state, **changes} if one.startswith("box:"))
        if boxes and self.chance.random() < 0.5:
            link = f"link:{self.chance.choice(boxes)}>{self.chance.choice(boxes)}"
            changes[link] = None if self.chance.random() < 0.25 else self.record()
        self.write_all(branch, changes)

    def write_all(self, branch: str, changes: dict[str, Any]) -> None:
        state, schema = self.head(branch), self.schema(self.git.branches[branch])

        def commit(number: int) -> Any:
            session = self.session(number, branch)
            for key, row in changes.items():
                kind, _, name = key.partition(":")
                if kind == "link":
                    left, right = name.split(">")
                    given: Any = None if row is None else Link(left_key=left, right_key=right, **row)
                    session.delete(Link, (left, right)) if row is None else session.ensure(given)
                else:
                    cls = Box if kind == "box" else CLASSES[schema]
                    fields = row and (row if kind == "box" else written(schema, row))
                    session.delete(cls, name) if row is None else session.ensure(cls(id=name, **fields))
            return session.commit()

        self.committed(branch, self.both(commit), {key: row for key, row in {**state, **changes}.items()
                                                   if row is not None})  # fmt: skip

    def committed(self, branch: str, answer: Any, state: State) -> None:
        """A commit that gives a branch this state; none if it has it."""
        if state == self.head(branch):
            assert answer == ("done", None)
        else:
            self.git.add(branch, state)
            self.note(branch, answer[1])

    def delete(self, branch: str, _: str) -> None:
        """A box, to which links may lead."""
        key, cascade = f"box:{self.chance.choice(BOXES)}", self.chance.random() < 0.6
        state = self.head(branch)
        links = links_to(state, key) if key in state else []

        def commit(number: int) -> Any:
            session = self.session(number, branch)
            session.delete(Box, key[4:], cascade=cascade)
            try:
                return session.commit()
            finally:
                session.discard()

        answer = self.both(commit)
        if links and not cascade:
            assert answer == ("error", "LiveRelationsError")
        else:
            self.committed(branch, answer, {one: row for one, row in state.items() if one not in (key, *links)})

    def complete(self, branch: str, _: str) -> None:
        """`ensure_all` of rows."""
        schema, state = self.schema(self.git.branches[branch]), self.head(branch)
        rows = {f"row:{key}": self.record() for key in KEYS if self.chance.random() < 0.5}
        kept = {key: row for key, row in state.items() if not key.startswith("row:")}

        def commit(number: int) -> Any:
            session = self.session(number, branch)
            session.ensure_all(CLASSES[schema], [CLASSES[schema](id=key[4:], **written(schema, row))
                                                 for key, row in rows.items()])
            return session.commit()

        self.committed(branch, self.both(commit), {**kept, **rows})

    def update(self, branch: str, _: str) -> None:
        key, value, state = f"row:{self.chance.choice(KEYS)}", self.chance.choice(VALUES), self.head(branch)
        schema = self.schema(self.git.branches[branch])

        def commit(number: int) -> Any:
            session = self.session(number, branch)
            session.update(CLASSES[schema], key[4:], f=written(schema, {"f": value, "g": None})["f"])
            return session.commit()

        answer = self.both(commit)
        if key in state:
            self.committed(branch, answer, {**state, key: {**state[key], "f": value}})
        else:
            assert answer == ("error", "UnknownKeyError")

    def delete_found(self, branch: str, _: str) -> None:
        """`query().….delete()`."""
        schema, state, value = self.schema(self.git.branches[branch]), self.head(branch), self.chance.choice([1, 2])
        cls = CLASSES[schema]

        def commit(number: int) -> Any:
            session = self.session(number, branch)
            session.query().entities(cls).where(cls.f == written(schema, {"f": value, "g": None})["f"]).delete()
            return session.commit()

        self.committed(branch, self.both(commit), {key: row for key, row in state.items()
                                                   if not (key.startswith("row:") and row["f"] == value)})  # fmt: skip

    def branch(self, branch: str, _: str) -> None:
        """A branch at the head of another, or at a commit of its line."""
        free = [name for name in BRANCHES if name not in self.git.branches]
        if not free:
            return
        name, at = free[0], self.git.branches[branch]
        for _ in range(self.chance.choice([0, 0, 0, 1, 3])):
            at = self.git.nodes[at].parents[0] or at
        answer = self.both(lambda number: self.session(number, branch).branches.create(
            name, parent=branch, at=self.ids[at]).name)
        assert answer == ("done", name)
        self.git.branches[name] = at

    def drop_branch(self, branch: str, _: str) -> None:
        if branch != "main":
            self.forget(branch)
            answer = self.both(lambda number: self.session(number).branches.delete(branch))
            assert answer in (("done", None), ("error", "BranchError"))
            if answer[0] == "done":
                del self.git.branches[branch]

    def rename(self, branch: str, _: str) -> None:
        free = [name for name in BRANCHES if name not in self.git.branches]
        if branch != "main" and free:
            self.forget(branch)
            answer = self.both(lambda number: self.session(number).branches.rename(branch, free[-1]) and None)
            assert answer == ("done", None)
            self.git.branches[free[-1]] = self.git.branches.pop(branch)

    def tag(self, branch: str, _: str) -> None:
        name = self.chance.choice(TAGS)
        if name not in self.git.tags:
            assert self.both(lambda number: self.session(number).tags.create(name, branch) and None)[0] == "done"
            self.git.tags[name] = self.git.branches[branch]

    def untag(self, _: str, __: str) -> None:
        name = self.chance.choice(TAGS)
        answer = self.both(lambda number: self.session(number).tags.delete(name))
        assert (answer[0] == "done") == (self.git.tags.pop(name, None) is not None)

    def merge(self, source: str, into: str) -> None:
        ours, theirs = self.git.branches[into], self.git.branches[source]
        side: Any = self.chance.choice([None, "ours", "theirs"])
        dry = self.chance.random() < 0.2
        if source == into:
            assert self.both(lambda number: self.session(number).merge(source, into)) == ("error", "BranchError")
            return
        if theirs == ours:
            return
        news = not self.git.has(theirs, into)
        state, told, target = self.head(into), set(), self.schema(ours)
        if news:
            answer = three_way(self.git.base_state(ours, theirs), self.head(into), self.head(source), side)
            target = int(answer.state[SCHEMA]["f"])
            state, orphans = without_orphans(answer.state, self.head(into), self.head(source), side)
            told = orphans | ({key for key, _ in answer.conflicts} if side is None else set())

        def merged(number: int, dry_run: bool = False) -> Any:
            session = self.session(number, into)
            result = session.merge(source, into, strategy=side, upgraders=upgrading(target), dry_run=dry_run)
            return (result.status.value, result.commit and result.commit.id,
                    sorted((table, tuple(counts)) for table, counts in result.tables.items()),
                    sorted((one.kind, one.table, one.key, one.field or "") for one in result.conflicts))

        if dry:
            answered = self.both(lambda number: merged(number, True))
            assert bool(answered[1][3]) == bool(told) if answered[0] == "done" else told
        answered = self.both(merged)
        if told:
            self.refused(answered, told)
            return
        assert answered[0] == "done", answered
        status, id = answered[1][:2]
        if not news:
            assert (status, id) == ("up_to_date", None)
        elif id is None:  # a merge of merges alone, or of what an erasure left nothing of
            assert status == "up_to_date"
            assert state == self.head(into)
            self.seen.add("nothing to merge")
        else:
            self.forget(into)
            self.git.add(into, state, theirs)
            self.note(into, id)
            self.seen |= {"criss-cross"} if len(self.git.merge_bases(ours, theirs)) > 1 else set()

    def refused(self, answer: Any, told: set[str]) -> None:
        assert answer[0] == "conflicts", (answer, told)
        kinds = {one[0] for one in answer[1]}
        if SCHEMA in told:  # rows are compared once it is settled
            told = {key for key in told if not key.startswith("row:")}
        names = {"entity/Row": "row:{}", "entity/Box": "box:{}", "relation/Link": "link:{0[0]}>{0[1]}"}
        assert told == {SCHEMA if kind is ConflictKind.SCHEMA else names[table].format(key)
                        for kind, table, key, _ in answer[1]}  # fmt: skip
        self.seen |= {one.value for one in kinds}

    def back(self, branch: str, verb: str, base: State | None, theirs: State, id: int) -> None:
        """Bring what differs between two states to a branch, under its own schema."""
        head = self.git.branches[branch]
        ours, side = self.git.state(head), self.chance.choice(["ours", "theirs"])
        own = {SCHEMA: ours[SCHEMA]}
        state = {**theirs, **own}
        if base is not None:
            state = three_way({**base, **own}, ours, {**theirs, **own}, side).state
            state, _ = without_orphans(state, ours, theirs, side)
        options: Any = {} if base is None else {"strategy": side}
        if verb != "revert":
            options["upgraders"] = upgrading(self.schema(head))

        def done(number: int) -> Any:
            result = getattr(self.session(number, branch), verb)(id, **options)
            assert (result.commit is None) == (result.status.value == "up_to_date")
            return result.commit and result.commit.id

        self.committed(branch, self.both(done), state)

    def restore(self, branch: str, _: str) -> None:
        commit = self.chance.choice(self.kept())
        self.back(branch, "restore", None, self.git.state(commit), self.ids[commit])

    def pick(self, branch: str, other: str) -> None:
        self.change("cherry_pick", branch, self.git.branches[other])

    def revert(self, branch: str, _: str) -> None:
        commit = self.git.branches[branch]
        for _ in range(self.chance.randrange(3)):
            commit = self.git.nodes[commit].parents[0] or commit
        self.change("revert", branch, commit)

    def change(self, verb: str, branch: str, commit: int) -> None:
        node = self.git.nodes[commit]
        before = self.git.state(node.parents[0])
        if not node.parents[0]:
            answer = self.both(lambda number: getattr(self.session(number, branch), verb)(self.ids[commit]))
            assert answer == ("error", "RevertError")
        elif self.schema(commit) != self.schema(node.parents[0]):
            answer = self.both(lambda number: getattr(self.session(number, branch), verb)(self.ids[commit]))
            assert answer == ("error", "RevertError")
            self.seen.add("migration not reverted")
        elif verb == "cherry_pick" or self.schema(commit) == self.schema(self.git.branches[branch]):
            states = (before, node.state) if verb == "cherry_pick" else (node.state, before)
            self.back(branch, verb, *states, self.ids[commit])

    def erase(self, _: str, __: str) -> None:
        kind = self.chance.choice(["row", "row", "box", "link"])
        states = [node.state for node in self.git.nodes]
        known = sorted({key for state in states for key in state if key.startswith(kind)})
        key = self.chance.choice(known) if known else f"{kind}:k>k"
        name: Any = key.removeprefix(f"{kind}:")
        name = tuple(name.split(">")) if kind == "link" else name
        links = sorted({one for state in states for one in links_to(state, key)}) if kind == "box" else []
        cascade = kind == "box" and self.chance.random() < 0.8

        def done(number: int) -> Any:
            session = self.session(number)
            cls = {"row": CLASSES[self.schema(self.git.branches["main"])], "box": Box, "link": Link}[kind]
            return session.erase(cls, name, "asked for", dry_run=False, cascade=cascade) and None

        answer = self.both(done)
        held = {one for commit in self.kept() for one in self.git.state(commit)}
        if answer == ("error", "LiveRelationsError"):
            assert links
            assert not cascade
        elif answer == ("error", "UnknownKeyError"):
            assert key not in held
        else:
            assert answer == ("done", None)
            assert known
            assert cascade or not held & set(links)
            for one in (key, *(links if cascade else ())):
                self.git.erase(one)
            self.erased += 1
            self.seen.add("erased")

    def migrate(self, branch: str, _: str) -> None:
        old = self.schema(self.git.branches[branch])
        new = self.chance.choice([one for one in range(len(CLASSES)) if one != old])
        self.forget(branch)
        self.git.write(branch, {SCHEMA: {"f": new, "g": None}})

        def done(number: int) -> Any:
            session = self.session(number, branch)
            here = "Row", session.repository.schemas()["entity", "Row"].schema_version_id
            result: Any = session.migrate(dry_run=False, force=True, upgraders={here: upgrading(new)[here]})
            return result.commit_id

        self.note(branch, self.both(done)[1])
        self.seen.add("migrated")

    def convert(self, _: str, __: str) -> None:
        """Each store goes on as a copy of the other one, or of itself."""
        crossed = self.chance.random() < 0.7
        self.forget()
        old, before, self.urls = self.urls, self.keepers, [self.fresh(place) for place in self.places]
        self.keepers = []
        for number, url in enumerate(self.urls):
            with closing(open_repository(old[1 - number if crossed else number], config=self.config())) as source:
                self.keepers.append(open_repository(url, engine_version="v3", config=self.config()))
                convert(source, self.keepers[-1])
        for keeper in before:
            keeper.close()
        self.seen.add("crossed" if crossed else "copied")

    def reopen(self, _: str, __: str) -> None:
        self.forget()

    def upkeep(self, _: str, __: str) -> None:
        """Collect garbage, look at everything, damage the columns beside the store."""
        for url in self.urls:
            with TypedStore(url, config=self.config()) as store:
                store.gc(dry_run=False)
                damages = list(store.verify())
                assert not damages, (url, damages)
        for file in self.folder.glob("**/*.columns"):
            content = bytearray(file.read_bytes())
            if content and self.chance.random() < 0.5:
                content[self.chance.randrange(len(content))] ^= 1 << self.chance.randrange(8)
                file.write_bytes(content[: self.chance.choice([len(content), self.chance.randrange(len(content) + 1)])])
        self.seen.add("upkeep")
