"""Every form of query, asked of both stores of a random history, and answered from the dictionaries beside them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from ontolake.history.conformance.oracle import State
from ontolake.model import type_info
from ontolake.ontology import Session, count, left, sum_
from ontolake.ontology.moving.exports import lines

from .row_schemas import CLASSES, SCHEMA, read, upgrading, written
from .twins import KEYS, Box, Link, Twins

TABLES = {"entity/Row": "row", "entity/Box": "box", "relation/Link": "link"}


def named(kind: str, key: Any) -> str:
    """The record of a key."""
    return f"{kind}:{'>'.join(key)}" if kind == "link" else f"{kind}:{key}"


def record(obj: Any) -> tuple[str, dict[str, Any]]:
    kind = type(obj).__name__.lower()
    key = (obj.left_key, obj.right_key) if kind == "link" else obj.id
    return named(kind, key), read(obj.model_dump()) if kind == "row" else {"f": obj.f, "g": obj.g}


def records(rows: Any) -> State:
    found = [record(row) for row in rows]
    assert len(dict(found)) == len(found), "a key is there twice"
    return dict(found)


class Answers:
    """Asks both stores, and says what the oracle says."""

    def __init__(self, twins: Twins) -> None:
        self.twins, self.git, self.chance = twins, twins.git, twins.chance
        self.asked = 0
        self.forms: list[Callable[[Session, str, int], None]] = [
            self.scans, self.lookups, self.filters, self.aggregates, self.columns, self.paths, self.stored,
            self.histories, self.export, self.difference]  # fmt: skip

    def everywhere(self, *, thorough: bool) -> None:
        """Ask both stores about the head of every branch, and about every commit that a branch or tag holds: by some
        form, or by each, asked from some branch."""
        heads = self.git.branches
        for number in range(2):
            sessions = {branch: self.twins.session(number, branch) for branch in heads}
            for branch, head in heads.items():
                sessions[branch].validate()
                assert sessions[branch].repository.head() == self.twins.ids[head]
                self.now(sessions[branch], branch)
                self.log(sessions[branch], branch)
            for commit in self.twins.kept():
                for form in self.forms if thorough else [self.chance.choice(self.forms)]:
                    branch = self.chance.choice(sorted(heads))
                    form(sessions[branch], branch, commit)
                    self.asked += 1
            listed = sessions["main"].branches.list()
            assert {one.name: one.head for one in listed} == {
                name: self.twins.ids[head] for name, head in heads.items()}  # fmt: skip
            audits = [len(self.twins.session(one).repository.erasures()) for one in range(2)]  # type: ignore[attr-defined]
            assert audits == [self.twins.erased] * 2
            for tag, commit in self.git.tags.items():
                query = sessions["main"].query().entities(Box).as_of(tag)
                assert records(query.collect()) == self.part(commit, "box")
            assert not list(sessions["main"].repository.check())

    def part(self, commit: int, *kinds: str) -> State:
        """The records of some kinds at a commit."""
        return {key: row for key, row in self.git.state(commit).items()
                if key != SCHEMA and (not kinds or key.split(":")[0] in kinds)}  # fmt: skip

    def rows(self, session: Session, branch: str, commit: int) -> tuple[Any, Any, int]:
        """The query for rows at a commit, by the schema of a branch; its class and schema."""
        schema = self.twins.schema(self.git.branches[branch])
        query = session.query().entities(CLASSES[schema]).as_of(
            self.twins.ids[commit], schema="current", upgraders=upgrading(schema))
        return query, CLASSES[schema], schema

    def queries(self, session: Session, branch: str, commit: int) -> Iterator[tuple[str, Any, Any]]:
        """A query for each type."""
        query, cls, _ = self.rows(session, branch, commit)
        at = self.twins.ids[commit]
        yield "row", query, cls
        yield "box", session.query().entities(Box).as_of(at), Box
        yield "link", session.query().relations(Link).as_of(at), Link

    # forms

    def now(self, session: Session, branch: str) -> None:
        head = self.git.branches[branch]
        cls = CLASSES[self.twins.schema(head)]
        found = {**records(session.query().entities(cls).collect()), **records(session.query().entities(Box).collect()),
                 **records(session.query().relations(Link).collect())}
        assert found == self.part(head), f"{branch} now"
        for key in KEYS:
            one = session.get(cls, key)
            assert (one and record(one)[1]) == self.part(head).get(f"row:{key}")
        linked = session.query().relations(Link).collect()
        assert {(one.left.id, one.right.id) for one in linked} == {(one.left_key, one.right_key) for one in linked}

    def scans(self, session: Session, branch: str, commit: int) -> None:
        for kind, query, _ in self.queries(session, branch, commit):
            expected = self.part(commit, kind)
            assert records(query.collect()) == expected, f"{kind} at {self.twins.ids[commit]} on {branch}"
            assert query.count() == len(expected)
            assert (query.first() is None) == (not expected)

    def lookups(self, session: Session, branch: str, commit: int) -> None:
        query, cls, _ = self.rows(session, branch, commit)
        state = self.part(commit, "row")
        for key in self.chance.sample(KEYS, 2):
            alone = {f"row:{key}": state[f"row:{key}"]} if f"row:{key}" in state else {}
            assert records(query.where(cls.id == key).collect()) == alone
        chosen = self.chance.sample(KEYS, 2)
        assert records(query.where(cls.id.in_(chosen)).collect()) == {
            key: row for key, row in state.items() if key[4:] in chosen}  # fmt: skip
        box = session.query().entities(Box).as_of(self.twins.ids[commit]).where(Box.id == "k").first()
        assert (box and record(box)[1]) == self.part(commit).get("box:k")

    def filters(self, session: Session, branch: str, commit: int) -> None:
        query, cls, schema = self.rows(session, branch, commit)
        value, state = self.chance.choice([1, 2]), self.part(commit, "row")
        same = query.where(cls.f == written(schema, {"f": value, "g": None})["f"])
        expected = {key: row for key, row in state.items() if row["f"] == value}
        assert records(same.collect()) == expected
        assert same.count() == len(expected)
        ordered = [row.id for row in query.order_by(cls.id.desc()).limit(2).collect()]
        assert ordered == sorted((key[4:] for key in state), reverse=True)[:2]
        assert [row.id for row in query.order_by(cls.id).offset(1).collect()] == sorted(key[4:] for key in state)[1:]
        boxes = session.query().entities(Box).as_of(self.twins.ids[commit])
        assert records(boxes.where((Box.f == value) | (Box.g == value)).collect()) == {
            key: row for key, row in self.part(commit, "box").items() if value in row.values()}  # fmt: skip
        links = session.query().relations(Link).as_of(self.twins.ids[commit])
        assert records(links.where(left(Link).f == value).collect()) == {
            key: row for key, row in self.part(commit, "link").items()
            if self.part(commit).get(f"box:{key[5]}", {}).get("f") == value}  # fmt: skip

    def aggregates(self, session: Session, branch: str, commit: int) -> None:
        query, cls, schema = self.rows(session, branch, commit)
        state = self.part(commit, "row")
        field = cls.h if schema == 2 else cls.g
        groups = {group["h" if schema == 2 else "g"]: group["n"] for group in query.group_by(field).agg(n=count())}
        names = ("h", "h") if schema == 2 else ("g", "g")
        assert groups == dict(Counter(written(schema, row)[names[0]] for row in state.values()))
        boxes = session.query().entities(Box).as_of(self.twins.ids[commit])
        values = [row["f"] for row in self.part(commit, "box").values() if row["f"] is not None]
        assert boxes.sum(Box.f) == (sum(values) if values else None)
        assert boxes.max(Box.f) == max(values, default=None)
        sums = {group["g"]: group["s"] for group in boxes.group_by(Box.g).agg(s=sum_(Box.f))}
        assert sums.keys() == {row["g"] for row in self.part(commit, "box").values()}

    def columns(self, session: Session, branch: str, commit: int) -> None:
        """Arrow, from columns and by SQL, which a limit makes it."""
        for kind, query, _ in self.queries(session, branch, commit):
            table = query.to_arrow()
            assert table.equals(query.limit(1000).to_arrow())
            found = {named(kind, (row["left_key"], row["right_key"]) if kind == "link" else row["id"]):
                     read(row) if kind == "row" else {"f": row["f"], "g": row["g"]} for row in table.to_pylist()}
            assert found == self.part(commit, kind)
            assert len(found) == table.num_rows

    def paths(self, session: Session, branch: str, commit: int) -> None:
        ways = session.query().entities(Box).as_of(self.twins.ids[commit]).via(Link)
        state = self.part(commit)
        links = sorted(key[5:].split(">") for key in self.part(commit, "link"))
        whole = [[one, two] for one, two in links if f"box:{one}" in state and f"box:{two}" in state]
        assert sorted([path.source.id, path.target.id] for path in ways.collect()) == whole
        twice = ways.via(Link).collect()
        assert sorted([path.source.id, path.target.id] for path in twice) == sorted(
            [one, four] for one, two in whole for three, four in whole if two == three)

    def stored(self, session: Session, branch: str, commit: int) -> None:
        """Rows by the schema of their time."""
        moment = session.snapshot(self.twins.ids[commit])
        fields = {"id", *written(self.twins.schema(commit), {"f": 1, "g": 1})}
        rows = dict(moment.rows("entity/Row"))
        assert all(set(row) == fields for row in rows.values())
        assert {f"row:{key}": read(row) for key, row in rows.items()} == self.part(commit, "row")
        assert {named("link", key) for key, _ in moment.rows("relation/Link")} == set(self.part(commit, "link"))

    def line(self, commit: int) -> list[int]:
        """The first parents of a commit, oldest first, itself included."""
        found = []
        while commit:
            found.append(commit)
            commit = self.git.nodes[commit].parents[0]
        return found[::-1]

    def done(self, commit: int) -> dict[str, Any]:
        """What a commit did: the records that it wrote, None for those that it deleted."""
        after, before = self.part(commit), self.part(self.git.nodes[commit].parents[0])
        return {key: after.get(key) for key in {*before, *after} if before.get(key) != after.get(key)}

    def histories(self, session: Session, branch: str, commit: int) -> None:
        at, line = self.twins.ids[commit], self.line(commit)
        since = self.chance.choice([0, *line])
        for kind, cls in (("box", Box), ("link", Link)):
            start: Any = session.query()
            query = (start.relations(cls) if kind == "link" else start.entities(cls)).as_of(at)
            for asked, first in ((query.with_history(), 0), (query.history_since(self.twins.ids[since]), since)):
                told = [(one.meta(), *record(one)) for one in asked.collect()]
                found = sorted((meta.commit_id, key, meta.deleted, None if meta.deleted else sorted(row.items()))
                               for meta, key, row in told)  # fmt: skip
                expected = sorted((self.twins.ids[one], key, row is None, row and sorted(row.items()))
                                  for one in line if one > first for key, row in self.done(one).items()
                                  if key.startswith(kind))  # fmt: skip
                assert found == expected, f"history of {kind} at {at} on {branch}"
                table = asked.to_arrow()
                assert table.num_rows == len(expected)
                assert sorted(table["commit_id"].to_pylist()) == [one[0] for one in expected]

    def export(self, session: Session, branch: str, commit: int) -> None:
        infos = [type_info(cls) for cls in (Box, Link)]
        found = {}
        for line in map(json.loads, lines(session.repository, infos, as_of=self.twins.ids[commit])):
            if line["kind"] != "schema":
                kind = TABLES[f"{line['kind']}/{line['type']}"]
                key = line["key"]
                found[named(kind, key[:2] if kind == "link" else key)] = {name: line["fields"][name] for name in "fg"}
        assert found == self.part(commit, "box", "link")

    def difference(self, session: Session, branch: str, commit: int) -> None:
        """The difference to another commit of any branch, and what the commit did."""
        other = self.chance.choice(self.twins.kept())
        one, two = (session.snapshot(self.twins.ids[each]) for each in (commit, other))
        before, after = self.part(commit), self.part(other)
        found = self.told(session.diff(one, two))
        # Rows of two schemas may differ though they say the same.
        told = {key: pair for key, pair in found.items() if pair[0] != pair[1]}
        expected = {key: (before.get(key), after.get(key)) for key in {*before, *after}
                    if before.get(key) != after.get(key)}  # fmt: skip
        ids = self.twins.ids
        assert told == expected, f"from {ids[commit]} to {ids[other]} on {branch}: {told}, not {expected}"
        done = {key: pair[1] for key, pair in self.told(session.commit_changes(self.twins.ids[commit])).items()
                if pair[0] != pair[1]}  # fmt: skip
        assert done == self.done(commit)

    def told(self, changes: Any) -> dict[str, Any]:
        found = {}
        for one in changes:
            kind = TABLES[one.table]
            pair = tuple(row and (read(row) if kind == "row" else {"f": row["f"], "g": row["g"]})
                         for row in (one.before, one.after))
            assert named(kind, one.key) not in found
            found[named(kind, one.key)] = pair
        return found

    def log(self, session: Session, branch: str) -> None:
        """Commits of a branch and their parents."""
        line = self.line(self.git.branches[branch])
        commits = list(session.commits())
        assert [one.id for one in commits] == [self.twins.ids[one] for one in reversed(line)]
        for one, commit in zip(commits, reversed(line), strict=True):
            assert [*one.parents] == [self.twins.ids[parent] for parent in self.git.nodes[commit].parents if parent]
