"""What was acknowledged is there after a kill, what was not is not there at all, and two processes never mix.

A helper process that has opened nothing forks every child, so that a sweep costs no start of an interpreter per step.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from marking import slow_after

from ontolake import faults
from ontolake.ontology import MigrationResult, SchemaOutdatedError, Session
from ontolake.suites.peers import Forker, ProcessPeer

from .shop import ENTITIES, RELATIONS, Customer
from .test_migration import SPLIT, filled, first, opened, second

Start = Callable[..., ProcessPeer]


class Peers:
    """Tasks for other processes are functions of this module."""


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[1])  # where the helper finds this module
        forker = Forker(Peers)
    yield forker
    forker.close()


@pytest.fixture
def start(forker: Forker) -> Iterator[Start]:
    with forker.starting() as start:
        yield start


@pytest.fixture(params=slow_after(1, ["native", "page file"]))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def url_of(file: Path, kind: str) -> str:
    return str(file) if kind == "native" else f"file://{file}"


def after_crash(kind: str) -> dict[str, Any]:
    """How to open what a process left that was killed: over the seam it still seems to be writing."""
    return {"connect": {} if kind == "native" else {"takeover": True}}


def shop(url: str, engine: str | None = None, config: Any = None) -> Session:
    return Session(url, entity_types=ENTITIES, relation_types=RELATIONS, engine_version=engine, config=config)


def sweep(start: Start, folder: Path, kind: str, task: Any, check: Callable[[str, bool], None]) -> int:
    """Kill `task` at every step that it has, each time on a fresh copy, and check what is left. How many there were."""
    step = 0
    while True:
        file = folder / f"s{step}.db"
        shutil.copy(folder / "template.db", file)
        url = url_of(file, kind)
        peer = start(task, url, step)
        finished = peer.hear() == "done"
        peer.end()
        check(url, finished)
        if finished:
            return step
        file.unlink()
        step += 1


def commit(link: Connection, peers: type, url: str, step: int) -> None:
    session = shop(url)
    session.ensure(Customer(id=f"c{n}", name="new") for n in range(50))
    session.ensure(Customer(id="few", name="few"))
    with faults.arm(faults.At(step, faults.kill)):
        session.commit()
        link.send("done")


@pytest.mark.slow
def test_a_commit_killed_at_any_step_is_whole_or_not_there(
    tmp_path: Path, start: Start, engine: str, kind: str
) -> None:  # fmt: skip
    with shop(url_of(tmp_path / "template.db", kind), engine) as session:
        session.ensure(Customer(id="c0", name="old"))

    def check(url: str, finished: bool) -> None:
        with shop(url, config=after_crash(kind)) as session:
            new = session.query().entities(Customer).where(Customer.name == "new").count()
            head = session.repository.head()
            assert (new, head) in ((0, 1), (50, 2))
            assert new == 50 or not finished
            assert len(session.query().entities(Customer).as_of(1).collect()) == 1
            session.ensure(Customer(id="c0", name="next"))
            assert session.commit() == head + 1

    assert sweep(start, tmp_path, kind, commit, check) >= (3 if kind == "native" else 6)


def migrate(link: Connection, peers: type, url: str, step: int) -> None:
    session = opened(url, second())
    with faults.arm(faults.At(step, faults.kill)):
        session.migrate(dry_run=False, force=True, upgraders=SPLIT)
        link.send("done")


@pytest.mark.slow
def test_a_migration_killed_at_any_step_is_whole_or_not_there(
    tmp_path: Path, start: Start, engine: str, kind: str
) -> None:  # fmt: skip
    filled(url_of(tmp_path / "template.db", kind), engine).close()
    old, new = first(), second()

    def check(url: str, finished: bool) -> None:
        session = Session(url, entity_types=list(new[:2]), relation_types=[new[2]], config=after_crash(kind))
        if session.repository.head() == 3:
            session.validate()
            assert session.query().entities(new[0]).count() == 2
        else:
            assert not finished
            assert session.repository.head() == 2
            before = opened(url, old)
            before.validate()
            assert before.query().entities(old[0]).count() == 2
            before.close()
            result = session.migrate(dry_run=False, force=True, upgraders=SPLIT)
            assert isinstance(result, MigrationResult)
            assert result.commit_id == 3
        session.close()

    assert sweep(start, tmp_path, kind, migrate, check) >= (8 if kind == "native" else 11)


def merge(link: Connection, peers: type, url: str, step: int) -> None:
    session = opened(url, first())
    with faults.arm(faults.At(step, faults.kill)):
        session.merge("try", upgraders=SPLIT)
        link.send("done")


@pytest.mark.slow
def test_a_merge_that_brings_a_schema_killed_at_any_step_is_whole_or_not_there(
    tmp_path: Path, start: Start, kind: str
) -> None:  # fmt: skip
    old, new = first(), second()
    template = url_of(tmp_path / "template.db", kind)
    with filled(template, "v3") as session:
        session.branches.create("try")
    with Session(template, entity_types=list(new[:2]), relation_types=[new[2]], branch="try") as work:
        work.migrate(dry_run=False, force=True, upgraders=SPLIT)
    with opened(template, old) as session:
        session.ensure(old[0](id="late", name="Late Comer"))

    def check(url: str, finished: bool) -> None:
        with Session(url, entity_types=list(old[:2]), relation_types=[old[2]], config=after_crash(kind)) as session:
            if session.repository.head() == 4:
                assert not finished
                session.validate()
                assert session.query().entities(old[0]).count() == 3
                assert session.merge("try", upgraders=SPLIT).commit is not None
        with Session(url, entity_types=list(new[:2]), relation_types=[new[2]]) as session:
            assert session.repository.head() == 5
            session.validate()
            assert session.query().entities(new[0]).count() == 3
            assert not list(session.repository.check())

    assert sweep(start, tmp_path, kind, merge, check) >= (6 if kind == "native" else 9)


def look(link: Connection, peers: type, url: str) -> None:
    """Whenever told to, read with the old types and with the new ones, and say what was seen."""
    sessions = [opened(url, first()), opened(url, second())]
    while link.recv():
        link.send([_seen(session) for session in sessions])


def _seen(session: Session) -> Any:
    person, place, visited = (info.cls for info in session.types)
    query: Any = session.query()
    try:
        people = [one.model_dump() for one in query.entities(person).order_by(person.id).collect()]
        ways = len(query.entities(person).via(visited).collect())
        return [people, query.entities(place).count(), query.relations(visited).count(), ways]
    except SchemaOutdatedError as error:
        return [diff.type_name for diff in error.diffs]


@pytest.mark.slow
def test_readers_during_a_migration_see_before_or_after_and_nothing_between(
    tmp_path: Path, start: Start, engine: str, kind: str
) -> None:  # fmt: skip
    url = url_of(tmp_path / "store.db", kind)
    filled(url, engine).close()
    reader = start(look, url)

    def seen() -> Any:
        reader.tell(True)
        return reader.hear()

    steps: list[str] = []
    before = seen()
    assert [len(before[0][0]), *before[0][1:]] == [2, 1, 1, 1]
    assert before[1] == ["Person"]

    def compare(step: str) -> None:
        if not step.endswith("commit durable"):
            assert seen() == before, step
            steps.append(step)

    session = opened(url, second())
    with faults.arm(lambda step: compare(step) if step.startswith("ontology") else None):
        session.migrate(dry_run=False, force=True, upgraders=SPLIT)
    assert len(steps) >= 7
    after = seen()
    assert after[0] == ["Person"]
    assert [person["family"] for person in after[1][0]] == ["Lovelace", "Mathison Turing"]
    assert after[1][1:] == [1, 1, 1]
    reader.tell(False)
    reader.end()
    session.close()


def race(link: Connection, peers: type, url: str, name: str) -> None:
    session = shop(url, config={"lock_timeout": 60})
    for number in range(25):
        session.ensure(Customer(id=f"{name}{part}", name=f"{name} {number}") for part in range(3))
        session.ensure(Customer(id="shared", name=f"{name} {number}"))
        assert session.commit() is not None
    session.close()


@pytest.mark.slow
def test_two_processes_never_interleave(native: str, start: Start, engine: str) -> None:
    with shop(native, engine) as session:
        session.ensure(Customer(id="shared", name="start"))
    running = [start(race, native, name) for name in ("a", "b")]
    for peer in running:
        peer.end()
    with shop(native) as session:
        assert [commit.id for commit in session.list_commits()] == list(range(51, 0, -1))
        for number in range(2, 52):
            changes = session.list_commit_changes(number)
            assert len({change.after["name"] for change in changes if change.after}) == 1, "one writer's rows only"
            assert len(changes) == 4
