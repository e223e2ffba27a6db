"""Random histories of a typed store with branches, and of dictionaries: every form of query answers alike at every
commit of every branch."""

from __future__ import annotations

import random
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from low import LOW
from marking import slow_after

from ontolake.history.conformance.oracle import State
from ontolake.history.conformance.workload import HistoryPlayer, HistoryStep
from ontolake.ontology import conformance
from ontolake.ontology.conformance import Recorded, TypedVersioning
from ontolake.ontology.query.aggregates import count
from ontolake.ontology.query.builder import Query, QueryStart

KEYS = ["a", "b", "c", "d", "e"]
BRANCHES = ["main", "one", "two", "three"]
SIDES = [None, "ours", "theirs"]


def steps(chance: random.Random, number: int) -> list[HistoryStep]:
    found = [HistoryStep("write", ("main", "a", {"f": 0, "g": 0}))]
    kinds = ["write"] * 6 + ["edit"] * 4 + ["branch"] * 3 + ["merge"] * 4 + ["revert", "pick", "restore", "delete",
             "rename", "tag", "untag", "upkeep", "reopen", "erase"]  # fmt: skip
    for _ in range(number):
        kind = chance.choice(kinds)
        one, two = chance.choice(BRANCHES), chance.choice(BRANCHES)
        key, value = chance.choice(KEYS), chance.choice([None, 1, 2])
        row = None if chance.random() < 0.3 else {"f": chance.choice([None, 1, 2]), "g": value}
        arguments: dict[str, tuple[Any, ...]] = {
            "write": (one, key, row), "edit": (one, key, chance.choice("fg"), value), "branch": (two, one),
            "merge": (one, two, chance.choice(SIDES)), "revert": (one, chance.randrange(3), chance.choice(SIDES[1:])),
            "pick": (one, two, chance.choice(SIDES[1:])), "restore": (one, chance.randrange(4)),
            "delete": (chance.choice(BRANCHES[1:]),),
            "rename": (chance.choice(BRANCHES[1:]), chance.choice(BRANCHES[1:])),
            "erase": (key,),
            "tag": (chance.choice(["v1", "v2"]), one), "untag": (chance.choice(["v1", "v2"]),)}  # fmt: skip
        found.append(HistoryStep(kind, arguments.get(kind, ())))
    return found


def check_forms(query: Query[Recorded], state: State) -> None:
    """Scans, lookups, filters and aggregates, as objects and as Arrow."""
    def told(rows: Any) -> State:
        return {row.id: {"f": row.f, "g": row.g} for row in rows}

    assert told(query.collect()) == state
    for scan in (query, query.with_history()):  # by columns, and a limit makes it SQL
        assert scan.to_arrow().equals(scan.limit(1000).to_arrow())
    assert query.count() == len(state)
    for key in KEYS:
        alone = {key: state[key]} if key in state else {}
        assert told(query.where(Recorded.id == key).collect()) == alone
        assert told(query.where(Recorded.id == key, Recorded.id != "none").collect()) == alone
    assert told(query.where(Recorded.id.in_(["a", "c"])).collect()) == {
        key: state[key] for key in ("a", "c") if key in state}  # fmt: skip
    ones = {key: row for key, row in state.items() if row["f"] == 1}
    assert told(query.where(Recorded.f == 1).collect()) == ones
    assert query.where(Recorded.f == 1).count() == len(ones)
    assert [row["id"] for row in query.order_by(Recorded.id).to_arrow().to_pylist()] == sorted(state)
    groups = {group["g"]: group["n"] for group in query.group_by(Recorded.g).agg(n=count())}
    assert groups == {g: sum(row["g"] == g for row in state.values()) for g in {row["g"] for row in state.values()}}


def check(player: HistoryPlayer) -> None:
    store = player.store
    living = {branch.name for branch in store.branches.list()}
    for branch, head in player.git.branches.items():
        there = QueryStart(store.repository.on_branch(branch), lambda cls: None).entities(Recorded)
        check_forms(there, player.git.state(head))
        check_forms(store.query().entities(Recorded).as_of(branch), player.git.state(head))
    for tag, commit in player.git.tags.items():
        check_forms(store.query().entities(Recorded).as_of(tag), player.git.state(commit))
    for commit, (branch, id) in player.ids.items():
        if branch in living:
            there = QueryStart(store.repository.on_branch(branch), lambda cls: None).entities(Recorded)
            check_forms((store.query().entities(Recorded), there)[id % 2].as_of(id), player.git.state(commit))
            parents = store.repository.commit(id).parents
            changed = {one.key: one.after and {"f": one.after["f"], "g": one.after["g"]}
                       for one in store.commit_changes(id)}  # fmt: skip
            before = TypedVersioning.records(store.snapshot(parents[0])) if parents else {}
            after = {key: row for key, row in {**before, **changed}.items() if row is not None}
            assert after == player.git.state(commit), f"what commit {id} did"
    assert not list(store.verify())


def damage(where: str, chance: random.Random) -> None:
    """Something happens to the columns beside the store, if there are some."""
    for file in Path(f"{where}-columns").glob("*.columns"):
        content = bytearray(file.read_bytes())
        kind = chance.choice(["byte", "end", "none", "none", "gone"])
        if kind == "gone":
            file.unlink()
        elif kind == "byte" and content:
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            file.write_bytes(content)
        elif kind == "end":
            file.write_bytes(content[: chance.randrange(len(content) + 1)])


def play(where: str, seed: int, number: int) -> None:
    TypedVersioning.create(where)
    player = HistoryPlayer(TypedVersioning, where)
    chance = random.Random(seed)
    try:
        for place, step in enumerate(steps(random.Random(seed), number)):
            player.do(step)
            damage(where, chance)
            if place % 10 == 9:
                check(player)
        check(player)
    finally:
        player.close()


@pytest.mark.parametrize("seed", slow_after(2, [2, 0, 1, *range(3, 12)]))
def test_every_query_answers_as_dictionaries_do(tmp_path: Path, seed: int) -> None:
    play(str(tmp_path / "store.db"), seed, 60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 103))
def test_it_does_so_on_pages(tmp_path: Path, seed: int) -> None:
    play(f"file://{tmp_path}/{secrets.token_hex(4)}.db", seed, 40)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300, 306))
def test_it_does_so_on_objects(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """With thresholds so low that files are merged all the time, and read in parts."""
    monkeypatch.setattr(conformance, "_CONFIG", replace(conformance._CONFIG, sizes=LOW))
    play(f"memory://machine-{secrets.token_hex(4)}", seed, 50)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 203))
def test_it_does_so_for_long(tmp_path: Path, seed: int) -> None:
    play(str(tmp_path / "store.db"), seed, 300)
