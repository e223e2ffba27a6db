"""The process is killed at every step of a workload of transactions: what was acknowledged is there, the rest whole."""

from __future__ import annotations

import random
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import apsw
import pytest

from ontolake import engine, faults
from ontolake.storage import open_storage
from ontolake.storage.conformance.crashes import choose_points
from ontolake.suites.peers import ProcessPeer

Connect = Callable[..., apsw.Connection]
Start = Callable[..., ProcessPeer]
KNOBS: dict[str, Any] = {"maintenance": "inline", "index_every": 3, "gc_grace_ms": 0, "fence_lease_ms": 600_000,
                         "fence_renew_ms": 600_000}
"""Index and compact within the append that made it due, and renew nothing: the points do not vary between runs."""


class Peers:
    """Tasks for other processes are functions of this module."""


class Op(NamedTuple):
    """One step of a workload: statements on a branch, `branch` to make another of it, or `reopen`."""

    branch: str
    statements: tuple[str, ...]
    new_branch: str | None = None
    reopen: bool = False


def workload(seed: int, length: int) -> list[Op]:
    chance = random.Random(seed)
    tables = ("CREATE TABLE t(id INTEGER PRIMARY KEY, x TEXT)", "CREATE INDEX by_x ON t(x)")
    ops = [Op("main", ("BEGIN", *tables, "COMMIT"))]
    branches = ["main"]
    while len(ops) < length:
        branch = chance.choice(branches)
        kind = chance.randrange(10)
        if kind == 0 and len(branches) < 3:
            ops.append(Op(branch, (), new_branch=f"b{len(ops)}"))
            branches.append(f"b{len(ops) - 1}")
        elif kind == 1:
            ops.append(Op(branch, (), reopen=True))
        elif kind == 2:
            ops.append(Op(branch, ("VACUUM",)))
        else:
            statements = [_statement(chance) for _ in range(chance.randint(1, 4))]
            if chance.random() < 0.3:
                statements += ["SAVEPOINT s", _statement(chance), _statement(chance), "ROLLBACK TO s", "RELEASE s"]
            ops.append(Op(branch, ("BEGIN IMMEDIATE", *statements, "COMMIT")))
    return ops


def _statement(chance: random.Random) -> str:
    text = f"printf('%.*c', {chance.randint(1, 3000)}, '{chance.choice('abcdef')}')"
    return chance.choice((
        f"INSERT INTO t(x) VALUES ({text}), ('{chance.random()}')",
        f"INSERT INTO t(x) SELECT {text} || id FROM t LIMIT 20",
        f"UPDATE t SET x = {text} WHERE id % {chance.randint(2, 9)} = 1",
        f"DELETE FROM t WHERE id % {chance.randint(3, 9)} = 2",
    ))


def do(link: Connection, peers: type, url: str, ops: list[Op], n: int) -> None:
    """Do the steps, telling the test before and after each, and be killed at the n-th fault point (-1: never)."""
    hook = faults.At(n, faults.kill)
    with faults.arm(hook):
        connections: dict[str, apsw.Connection] = {}
        for i, op in enumerate(ops):
            link.send(("doing", i))
            if op.reopen:
                for connection in connections.values():
                    connection.close()
                connections.clear()
            elif op.new_branch is not None:
                with open_storage(url, **KNOBS) as storage:
                    storage.create_branch(op.new_branch, storage.get_commit_lsn(), parent=op.branch)
            else:
                if op.branch not in connections:
                    connections[op.branch] = engine.connect(url, branch=op.branch, **KNOBS)
                    connections[op.branch].execute("PRAGMA cache_size=8")
                for statement in op.statements:
                    connections[op.branch].execute(statement)
            link.send(("done", i))
        for connection in connections.values():
            connection.close()
    link.send(("steps", hook.seen))


class Ended(NamedTuple):
    done: int
    in_flight: bool
    steps: list[str]


def run(start: Start, url: str, ops: list[Op], n: int) -> Ended:
    peer = start(do, url, ops, n)
    done, in_flight, steps = 0, False, []
    while (said := peer.hear()) is not None:
        if said[0] == "steps":
            steps = said[1]
        else:
            in_flight = said[0] == "doing"
            done += said[0] == "done"
    peer.end()
    return Ended(done, in_flight, steps)


# what must be there
Content = dict[str, list[Any]]


def content(connection: apsw.Connection) -> list[Any]:
    schema = connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
    return [schema, connection.execute("SELECT * FROM t ORDER BY id").fetchall() if schema else []]


def expected(ops: list[Op]) -> list[Content]:
    """What each branch holds before the first step and after each, by SQLite's own word."""
    native = {"main": apsw.Connection(":memory:")}
    states: list[Content] = [{"main": content(native["main"])}]
    for op in ops:
        for statement in op.statements:
            native[op.branch].execute(statement)
        if op.new_branch is not None:
            copy = native[op.new_branch] = apsw.Connection(":memory:")
            with copy.backup("main", native[op.branch], "main") as backup:
                backup.step()
        states.append({name: content(connection) for name, connection in native.items()})
    return states


def check_recovered(url: str, ended: Ended, states: list[Content]) -> None:
    """Open what a crash left, compare it with what must be there, and write on."""
    connections = {"main": engine.connect(url, takeover=True, **KNOBS)}
    with open_storage(url, **KNOBS) as storage:
        names = [branch.name for branch in storage.list_branches()]
    for name in names[1:]:
        connections[name] = engine.connect(url, branch=name, **KNOBS)
    for name, connection in connections.items():
        assert connection.execute("PRAGMA integrity_check").get == "ok", name
    found = {name: content(connection) for name, connection in connections.items()}
    possible = [states[ended.done]] + ([states[ended.done + 1]] if ended.in_flight else [])
    assert found in possible, f"after {ended.done} steps, {'one' if ended.in_flight else 'none'} in flight"
    for connection in connections.values():
        connection.execute("CREATE TABLE after(x); INSERT INTO after VALUES (1)")
        assert connection.execute("PRAGMA integrity_check").get == "ok"
        connection.close()


def sweep(start: Start, fresh: Callable[[int], str], seed: int, length: int, runs: int) -> None:
    ops = workload(seed, length)
    states = expected(ops)
    whole = run(start, fresh(0), ops, -1)
    assert whole.done == len(ops)
    check_recovered(fresh(0), whole, states)
    points = choose_points(whole.steps, runs, seed)
    assert len(points) >= runs, f"the workload has only {len(whole.steps)} fault points"
    killed = 0
    for number, n in enumerate(points, 1):
        ended = run(start, fresh(number), ops, n)
        killed += not ended.steps
        check_recovered(fresh(number), ended, states)
    assert killed >= runs * 0.9, "the points must be where they were"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_every_step_on_a_local_file(seed: int, tmp_path: Any, start: Start) -> None:
    sweep(start, lambda number: f"file://{tmp_path}/{number}.db", seed, 20, 55)


@pytest.mark.slow
def test_killed_at_every_step_on_a_directory(tmp_path: Any, start: Start) -> None:
    sweep(start, lambda number: f"file://{tmp_path}/{number}", 3, 14, 45)


@pytest.mark.slow
def test_killed_at_every_step_on_seaweed(seaweed_url: str, start: Start) -> None:
    sweep(start, lambda number: f"{seaweed_url}/{number}", 4, 14, 18)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 12))
def test_killed_at_many_more_steps_on_a_local_file(seed: int, tmp_path: Any, start: Start) -> None:
    sweep(start, lambda number: f"file://{tmp_path}/{number}.db", seed, 30, 60)


@pytest.mark.slow
def test_killed_from_outside_while_committing(shared_place: str, start: Start) -> None:
    """At whatever moment: no fault point is needed to be hit."""
    ops = workload(5, 25)
    states = expected(ops)
    for number in range(1, 12, 2):
        url = f"{shared_place.removesuffix('.db')}-{number}{'.db' if shared_place.endswith('.db') else ''}"
        peer = start(do, url, ops, -1)
        done, in_flight = 0, False
        while (said := peer.hear()) is not None and said[0] != "steps":
            in_flight = said[0] == "doing"
            done += said[0] == "done"
            if done == number * 2 and not in_flight:
                peer.kill()
        peer.end()
        check_recovered(url, Ended(done, in_flight, []), states)
