"""Many transactions at once: what commits is as if it had run alone, in the order of versions, also after a kill."""

from __future__ import annotations

import multiprocessing
import random
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from marking import slow_after

from ontolake import faults
from ontolake.sql import Database, SerializationError, open_database

_fork = multiprocessing.get_context("fork")
IDS, VALUES = 8, 4


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Let threads meet in the middle of a statement, not every five milliseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work` in threads. Raises what one of them has raised."""
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# an oracle in plain Python

Op = tuple[str, tuple[int, ...]]
SQL = {
    "get": "SELECT v FROM t WHERE id = ?", "range": "SELECT id, v FROM t WHERE id >= ? AND id < ? ORDER BY id",
    "by value": "SELECT id FROM t WHERE v = ? ORDER BY id", "count": "SELECT count(*) FROM t",
    "first": "SELECT id FROM t ORDER BY id LIMIT 1", "insert": "INSERT INTO t (id, v, w) VALUES (?, ?, 0)",
    "update": "UPDATE t SET v = ? WHERE id = ?", "add": "UPDATE t SET w = w + 1 WHERE v = ?",
    "delete": "DELETE FROM t WHERE id = ?", "total": "SELECT sum(w) FROM t",
}  # fmt: skip


def random_op(chance: random.Random) -> Op:
    name = chance.choice([*SQL, "get", "update", "insert"])
    id, value = chance.randrange(IDS), chance.randrange(VALUES)
    given = {"get": (id,), "range": (id, id + 3), "by value": (value,), "insert": (id, value), "update": (value, id),
             "add": (value,), "delete": (id,)}.get(name, ())  # fmt: skip
    return name, given


def run_op(db: Database, op: Op) -> Any:
    """The answer of the database. A key that is there already is an answer too."""
    name, given = op
    if name == "insert" and db.execute(SQL["get"], given[:1]).fetchall():
        return "there"
    found = db.execute(SQL[name], given)
    return found.fetchall() if SQL[name].startswith("SELECT") else found.count


def replay(state: dict[int, tuple[int, int]], op: Op) -> Any:
    """The answer that the oracle gives, which changes its state."""
    name, given = op
    if name == "get":
        return [(state[given[0]][0],)] if given[0] in state else []
    if name == "range":
        return [(id, state[id][0]) for id in sorted(state) if given[0] <= id < given[1]]
    if name == "by value":
        return [(id,) for id in sorted(state) if state[id][0] == given[0]]
    if name == "count":
        return [(len(state),)]
    if name == "first":
        return [(min(state),)] if state else []
    if name == "total":
        return [(sum(w for _, w in state.values()) if state else None,)]
    if name == "insert":
        if given[0] in state:
            return "there"
        state[given[0]] = (given[1], 0)
        return 1
    if name == "update":
        there = given[1] in state
        if there:
            state[given[1]] = (given[0], state[given[1]][1])
        return int(there)
    if name == "delete":
        return int(state.pop(given[0], None) is not None)
    found = [id for id, (v, _) in state.items() if v == given[0]]
    for id in found:
        state[id] = (given[0], state[id][1] + 1)
    return len(found)


def check_serial(db: Database, done: dict[str, list[tuple[Op, Any]]]) -> None:
    """Replay what has committed in the order of versions: every answer and the last state are the same."""
    order = [commit.message for commit in db.commits() if commit.message in done][::-1]
    assert len(set(order)) == len(order), "nothing is committed twice"
    state: dict[int, tuple[int, int]] = {}
    for name in order:
        assert name is not None
        for op, answer in done[name]:
            assert replay(state, op) == answer, f"{name}: {op}"
    assert db.execute("SELECT id, v, w FROM t ORDER BY id").fetchall() == [
        (id, *state[id]) for id in sorted(state)]  # fmt: skip
    assert list(db.verify()) == []


def open_table(place: str, folder: Path) -> Database:
    url = {"pages": f"file://{folder}/t.db", "objects": f"file://{folder}/t"}.get(place, f"{folder}/t.db")
    db = open_database(url)
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT, w BIGINT); CREATE INDEX by_v ON t (v)")
    if place == "branch":
        db.branches.create("work")
        db.checkout("work")
    if place == "moved":
        prefix = db.catalog().by_full_name["main.public.t"].prefix
        db.ranges.split(prefix + b"\x01")
        db.ranges.move(prefix + b"\x01", f"{folder}/range.db")
    return db


class Worker:
    """A thread that runs one step at a time, when it is told to."""

    def __init__(self, db: Database, number: int, chance: random.Random) -> None:
        self._db, self._number, self._chance = db, number, chance
        self._count, self._left = 0, 0
        self._ops: list[tuple[Op, Any]] = []
        self.done: dict[str, list[tuple[Op, Any]]] = {}
        self.failed = 0

    def step(self) -> None:
        db = self._db
        if not db.in_transaction:
            db.execute("BEGIN")
            self._ops, self._left = [], self._chance.randrange(1, 5)
        elif self._left:
            self._left -= 1
            op = random_op(self._chance)
            self._ops.append((op, run_op(db, op)))
        else:
            self._count += 1
            name = f"{self._number}.{self._count}"
            try:
                db.execute("COMMIT", message=name)
            except SerializationError:
                self.failed += 1
                return
            self.done[name] = self._ops


class Stepper:
    """Runs the steps of workers in threads of their own, one step at a time: so an order can be had again."""

    def __init__(self, workers: list[Worker]) -> None:
        self._turns = [threading.Semaphore(0) for _ in workers]
        self._ended = threading.Semaphore(0)
        self._error: BaseException | None = None
        self._stops = False
        self._threads = [threading.Thread(target=self._run, args=each)
                         for each in zip(workers, self._turns, strict=True)]  # fmt: skip
        for thread in self._threads:
            thread.start()

    def _run(self, worker: Worker, turn: threading.Semaphore) -> None:
        while True:
            turn.acquire()
            if self._stops:
                return
            try:
                worker.step()
            except BaseException as error:
                self._error = error
            self._ended.release()

    def step(self, number: int) -> None:
        self._turns[number].release()
        self._ended.acquire()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        self._stops = True
        for turn in self._turns:
            turn.release()
        for thread in self._threads:
            thread.join()


CASES = [(place, seed) for seed in range(4) for place in ("native", "pages", "objects", "branch", "moved")]


@pytest.mark.parametrize(("place", "seed"), slow_after(1, CASES))
def test_what_commits_is_serial(place: str, seed: int, tmp_path: Path) -> None:
    chance = random.Random(f"{place} {seed}")
    with open_table(place, tmp_path) as db:
        workers = [Worker(db, number, chance) for number in range(4)]
        stepper = Stepper(workers)
        try:
            for _ in range(400):
                stepper.step(chance.randrange(len(workers)))
        finally:
            stepper.stop()
        check_serial(db, {name: ops for worker in workers for name, ops in worker.done.items()})
        assert sum(len(worker.done) for worker in workers) > 20
        assert sum(worker.failed for worker in workers) > 5, "some have met"


@pytest.mark.slow
@pytest.mark.parametrize("place", ["native", "pages", "moved"])
def test_what_commits_is_serial_when_threads_run_free(place: str, tmp_path: Path, quick_switches: None) -> None:
    done: dict[str, list[tuple[Op, Any]]] = {}

    def work(number: int) -> None:
        chance = random.Random(f"{place} {number}")
        for count in range(12):
            while True:
                name, ops = f"{number}.{count}.{chance.random()}", []
                try:
                    with db.transaction(message=name):
                        for _ in range(chance.randrange(1, 4)):
                            op = random_op(chance)
                            ops.append((op, run_op(db, op)))
                except SerializationError:
                    continue
                done[name] = ops
                break
            if chance.random() < 0.5:  # a statement of its own, which waits for its turn and is committed with others
                op = ("update", (chance.randrange(VALUES), chance.randrange(IDS)))
                name = f"{number}.{count}.alone"
                done[name] = [(op, db.execute(SQL["update"], op[1], message=name).count)]

    with open_table(place, tmp_path) as db:
        in_threads(6, work)
        check_serial(db, done)


# many threads


@pytest.mark.slow
def test_threads_on_different_rows_all_commit_at_once(tmp_path: Path, quick_switches: None) -> None:
    with open_table("native", tmp_path) as db:
        db.execute("INSERT INTO t SELECT n, 0, 0 FROM generate_series(0, 15) AS s(n)")
        version = db.version()

        def work(number: int) -> None:
            for _ in range(4):
                with db.transaction():
                    (value,) = db.execute("SELECT w FROM t WHERE id = ?", (number,)).fetchall()[0]
                    db.execute("UPDATE t SET w = ? WHERE id = ?", (value + 1, number))
                db.execute("UPDATE t SET v = v + 1 WHERE id = ?", (number,))

        in_threads(16, work)
        assert db.version() == version + 16 * 8, "nobody had to try again, each has a version of its own"
        assert db.execute("SELECT DISTINCT v, w FROM t").fetchall() == [(4, 4)]
        assert list(db.verify()) == []


def test_of_those_who_change_one_row_one_wins_in_each_round(tmp_path: Path) -> None:
    with open_table("native", tmp_path) as db:
        db.execute("INSERT INTO t VALUES (1, 0, 0)")
        for number in range(3):
            begun, won = threading.Barrier(6), []

            def work(_: int, begun: threading.Barrier = begun, won: list[int] = won) -> None:
                db.execute("BEGIN")
                (value,) = db.execute("SELECT w FROM t WHERE id = 1").fetchall()[0]
                begun.wait()
                db.execute("UPDATE t SET w = ? WHERE id = 1", (value + 1,))
                try:
                    db.execute("COMMIT")
                    won.append(value)
                except SerializationError:
                    assert not db.in_transaction

            in_threads(6, work)
            assert won == [number]
        assert db.execute("SELECT w FROM t").fetchall() == [(3,)]


@pytest.mark.parametrize("place", ["native", "pages"])
def test_readers_wait_for_nobody_and_see_whole_commits(place: str, tmp_path: Path, quick_switches: None) -> None:
    with open_table(place, tmp_path) as db:
        db.execute("INSERT INTO t VALUES (1, 0, 100), (2, 0, 100)")
        reading, written = threading.Event(), threading.Event()

        def long_reader() -> None:
            with db.transaction():
                first = db.execute("SELECT id, w FROM t ORDER BY id").fetchall()
                reading.set()
                assert written.wait(60)
                assert db.execute("SELECT id, w FROM t ORDER BY id").fetchall() == first
                assert db.execute("SELECT sum(w) FROM t").fetchall() == [(200,)]

        def writer() -> None:
            assert reading.wait(60)
            for number in range(10):
                db.execute("BEGIN; UPDATE t SET w = w - 5 WHERE id = 1; UPDATE t SET w = w + 5 WHERE id = 2; COMMIT")
                if number % 3 == 0:
                    db.retain(db.version())
                    db.gc(dry_run=False)
            written.set()

        def reader() -> None:
            while not written.is_set():
                assert db.execute("SELECT sum(w) FROM t").fetchall() == [(200,)]

        in_threads(4, lambda number: (long_reader, writer, reader, reader)[number]())
        assert db.execute("SELECT id, w FROM t ORDER BY id").fetchall() == [(1, 50), (2, 150)]
        assert list(db.verify()) == []


def test_a_thread_that_ends_gives_its_transaction_up(tmp_path: Path) -> None:
    with open_table("native", tmp_path) as db:
        def begin(number: int) -> None:
            db.execute(f"BEGIN; INSERT INTO t VALUES ({number}, 0, 0)")

        def insert(number: int) -> None:
            db.execute("INSERT INTO t VALUES (?, 0, 0)", (number,))

        in_threads(3, begin)
        assert db.execute("SELECT * FROM t").fetchall() == []
        in_threads(3, insert)
        assert db.execute("SELECT count(*) FROM t").fetchall() == [(3,)]


# processes


def _transfers(url: str, report: str, kill_at: int) -> None:
    """In a process of its own: threads that write, and say what has committed; killed at a fault point."""
    hook = faults.At(kill_at, faults.kill)
    lines = open(report, "a", buffering=1)  # noqa: SIM115
    sys.setswitchinterval(1e-5)
    with faults.arm(hook), open_database(url) as db:
        def work(number: int) -> None:
            for count in range(3):
                name = f"{number}.{count}"
                with db.transaction(message=name):
                    db.execute("INSERT INTO t VALUES (?, ?, 1)", (number * 10 + count, number))
                    db.execute("INSERT INTO u VALUES (?)", (number * 10 + count,))
                lines.write(f"{name}\n")
                db.execute("UPDATE t SET w = w + 1 WHERE id = ?", (number * 10 + count,), message=f"{name} again")
                lines.write(f"{name} again\n")

        in_threads(4, work)
    lines.write(f"ended {len(hook.seen)}\n")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["native", "pages"])
def test_a_kill_at_any_step_of_commits_together_loses_nothing(place: str, tmp_path: Path) -> None:
    def run(number: int) -> tuple[str, list[str], int]:
        folder = tmp_path / str(number)
        folder.mkdir()
        url = f"{folder}/t.db" if place == "native" else f"file://{folder}/t.db"
        with open_database(url) as db:
            db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT, w BIGINT); CREATE INDEX by_v ON t (v)")
            db.execute("CREATE TABLE u (id BIGINT PRIMARY KEY)")
        (folder / "report").touch()
        child = _fork.Process(target=_transfers, args=(url, f"{folder}/report", number))
        child.start()
        child.join(60)
        assert child.exitcode in (0, -9)
        return url, (folder / "report").read_text().splitlines(), child.exitcode

    points = int(run(1_000_000)[1][-1].split()[1])
    assert points > 100
    for number in range(3, points - 5, points // (20 if place == "native" else 6)):
        url, said, code = run(number)
        with open_database(url, **({} if place == "native" else {"takeover": True})) as db:
            found = [commit.message for commit in db.commits() if commit.message]
            assert len(set(found)) == len(found), "nothing is committed twice"
            assert {line for line in said if not line.startswith("ended")} <= set(found), f"at {number}, {code}"
            ids = {int(name.split(".")[0]) * 10 + int(name.split(".")[1]) for name in found if " " not in name}
            again = {int(name[:-6].split(".")[0]) * 10 + int(name[:-6].split(".")[1]) for name in found if " " in name}
            assert db.execute("SELECT id, w FROM t ORDER BY id").fetchall() == [
                (id, 2 if id in again else 1) for id in sorted(ids)]  # fmt: skip
            assert db.execute("SELECT id FROM u ORDER BY id").fetchall() == [(id,) for id in sorted(ids)]
            assert list(db.verify()) == []
            db.execute("INSERT INTO u VALUES (999)")


def _in_process(url: str, orders: Any) -> None:
    with open_database(url) as db:
        while (sql := orders.recv()) is not None:
            try:
                orders.send(db.execute(sql).fetchall())
            except SerializationError as error:
                orders.send(error.sqlstate)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second", "both"), [
    ("UPDATE t SET w = w + 1 WHERE id = 1", "UPDATE t SET w = w + 1 WHERE id = 1", False),  # lost update
    ("UPDATE t SET w = (SELECT sum(w) FROM t) WHERE id = 1", "UPDATE t SET w = (SELECT sum(w) FROM t) WHERE id = 2",
     False),  # write skew
    ("INSERT INTO t SELECT max(id) + 10, 0, count(*) FROM t", "INSERT INTO t SELECT max(id) + 20, 0, count(*) FROM t",
     False),  # phantom
    ("UPDATE t SET w = 5 WHERE id = 1", "UPDATE t SET w = 6 WHERE id = 2", True),
    ("INSERT INTO t VALUES (11, 0, 0)", "INSERT INTO u VALUES (1)", True),
])  # fmt: skip
def test_processes_follow_the_same_rule(tmp_path: Path, first: str, second: str, both: bool) -> None:
    url = f"{tmp_path}/t.db"
    with open_database(url) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT, w BIGINT); CREATE TABLE u (id BIGINT PRIMARY KEY)")
        db.execute("INSERT INTO t VALUES (1, 0, 1), (2, 0, 1)")
    pipes, children = [], []
    for _ in range(2):
        mine, its = _fork.Pipe()
        pipes.append(mine)
        children.append(_fork.Process(target=_in_process, args=(url, its)))
        children[-1].start()

    def tell(number: int, sql: str) -> Any:
        pipes[number].send(sql)
        return pipes[number].recv()

    tell(0, "BEGIN")
    tell(1, "BEGIN")
    assert tell(0, "SELECT sum(w) FROM t WHERE id < 0") == tell(1, "SELECT sum(w) FROM t WHERE id < 0")
    tell(0, first)
    tell(1, second)
    assert tell(0, "COMMIT") == []
    assert tell(1, "COMMIT") == ([] if both else "40001")
    assert tell(1, "BEGIN READ ONLY") == []  # read skew: what a transaction sees is one state
    before = tell(1, "SELECT w FROM t WHERE id = 1")
    tell(0, "UPDATE t SET w = w + 7")
    assert tell(1, "SELECT w FROM t WHERE id = 1") == before
    tell(1, "COMMIT")
    for number in range(2):
        pipes[number].send(None)
        children[number].join(60)


@pytest.mark.slow
def test_threads_that_share_a_database_in_memory_take_turns() -> None:
    """Transactions and statements of one thread wait for those of others, and none is lost."""
    with open_database(":memory:") as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT); INSERT INTO t VALUES (0, 0), (1, 0)")

        def work(thread: int) -> None:
            for _ in range(10):
                with db.transaction():
                    ((amount,),) = db.execute("SELECT a FROM t WHERE id = 0").fetchall()
                    db.execute("UPDATE t SET a = ? WHERE id = 0", (amount + 1,))
                db.execute("UPDATE t SET a = a + 1 WHERE id = 0")
                assert db.execute("SELECT count(*), min(a) FROM t").fetchall() == [(2, 0)]

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        assert db.execute("SELECT a FROM t WHERE id = 0").fetchone() == (160,)
