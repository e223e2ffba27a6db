"""Writers and readers at once: no commit is lost, none is made twice, and nobody sees half of one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clock import Clock

from ontolake.model.stored import StoredType
from ontolake.objects import open_store
from ontolake.ontology import HeadMismatchError, LeaseExpiredError, LockContentionError, Session
from ontolake.ontology.repository.objects import lease
from ontolake.ontology.repository.objects.access import StoreObjects
from ontolake.ontology.repository.objects.upkeep import maintenance
from ontolake.ontology.repository.protocol import Lease

from .works import Human, Knows, fill, migrate, opened

RACE = """
import sys
sys.path.insert(0, {root!r})
from ontolake.ontology import Session
from tests.ontology_objects.works import Human, Knows
url, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
session = Session(url, entity_types=[Human], relation_types=[Knows], config={{"lock_timeout": 60}})
for number in range(count):
    session.ensure(Human(id=f"{{name}}{{part}}", name=f"{{name}} {{number}}") for part in range(3))
    session.ensure(Human(id="shared", name=f"{{name}} {{number}}"))
    assert session.commit(metadata={{"by": name, "number": number}}) is not None
session.close()
"""


def race(url: str, names: str, count: int) -> None:
    with Session(url, entity_types=[Human], relation_types=[Knows]) as session:
        session.ensure(Human(id="shared", name="start"))
    program = RACE.format(root=str(Path(__file__).parents[2]))
    running = [subprocess.Popen([sys.executable, "-c", program, url, name, str(count)], stderr=subprocess.PIPE,
                                text=True, env=dict(os.environ)) for name in names]
    for process in running:
        _, error = process.communicate(timeout=250)
        assert process.returncode == 0, error
    with Session(url, entity_types=[Human], relation_types=[Knows]) as session:
        commits = session.list_commits()
        assert [commit.id for commit in commits] == list(range(len(names) * count + 1, 0, -1))
        made = [(commit.metadata["by"], commit.metadata["number"]) for commit in commits[-2::-1]]
        for name in names:
            assert [number for by, number in made if by == name] == list(range(count)), "each once, in its order"
        for commit in commits[:-1]:
            changes = session.list_commit_changes(commit.id)
            assert len(changes) == 4
            assert len({change.after["name"] for change in changes if change.after}) == 1, "one writer's rows only"
        assert not list(session.repository.check())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_writers_on_a_server_never_both_win(server_url: str) -> None:
    race(server_url, "ab", 6)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_four_writers_on_a_server_never_both_win(seaweed_url: str) -> None:
    race(seaweed_url, "abcd", 3)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_writers_in_a_directory_never_both_win(tmp_path: Path) -> None:
    race(tmp_path.as_uri(), "ab", 10)


def test_a_commit_that_was_beaten_is_worked_out_again(memory: str) -> None:
    store = open_store(memory)
    one, two = opened(store), opened(store)
    one.ensure(Human(id="a", name="one"))
    two.ensure(Human(id="a", name="one"))

    real = one.repository.move_head  # type: ignore[attr-defined]

    def beaten(*given: Any) -> None:
        one.repository.move_head = real  # type: ignore[attr-defined]
        assert two.commit() == 1
        real(*given)

    one.repository.move_head = beaten  # type: ignore[attr-defined]
    assert one.commit() is None, "the other one has written just the same"
    assert [commit.id for commit in one.list_commits()] == [1]
    one.close()
    two.close()


def test_whoever_holds_the_lock_keeps_others_out(memory: str) -> None:
    store = open_store(memory)
    one, two = opened(store), opened(store, lock_timeout=0.1)
    with one.exclusive():
        one.ensure(Human(id="a", name="x"))
        assert one.commit() == 1
        two.ensure(Human(id="b", name="x"))
        with pytest.raises(LockContentionError, match=one.session_id):
            two.commit()
        assert two.pending == 1
    assert two.commit() == 2
    one.close()
    two.close()


def commit_stopped(session: Session, while_it_runs: Callable[[], object] = lambda: None) -> None:
    """A commit of a session is refused, because another took the lock."""
    with session.repository.transaction("two") as transaction:
        transaction.reconcile(session.types[0], [("b", "x", 0)])
        while_it_runs()
        with pytest.raises(HeadMismatchError):
            transaction.finish({})
    assert session.repository.head() == 0


def test_taking_the_lock_stops_a_commit_under_way(memory: str) -> None:
    store = open_store(memory)
    one, two = opened(store), opened(store)
    commit_stopped(two, while_it_runs=lambda: one.repository.acquire_lease("one"))
    one.repository.release_lease("one")
    one.close()
    two.close()


def test_a_lock_taken_between_two_looks_stops_a_commit_too(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(memory)
    one, two = opened(store), opened(store)
    look = lease.holder

    def look_and_miss(access: StoreObjects) -> Lease | None:
        found = look(access)
        monkeypatch.setattr(lease, "holder", look)
        one.repository.acquire_lease("one")
        return found

    monkeypatch.setattr(lease, "holder", look_and_miss)
    commit_stopped(two)
    one.repository.release_lease("one")
    one.close()
    two.close()


@pytest.mark.parametrize("held_before", [False, True])
def test_of_two_who_see_that_the_lock_is_free_one_takes_it(
    memory: str, held_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(memory)
    one, two = opened(store), opened(store, lock_timeout=0.1)
    if held_before:
        one.repository.acquire_lease("one")
        one.repository.release_lease("one")
    read = lease._read

    def read_and_be_late(access: StoreObjects) -> Any:
        found = read(access)
        monkeypatch.setattr(lease, "_read", read)
        one.repository.acquire_lease("one")
        return found

    monkeypatch.setattr(lease, "_read", read_and_be_late)
    with pytest.raises(LockContentionError):
        two.repository.acquire_lease("two")
    assert one.repository.renew_lease("one").owner_id == "one"
    one.repository.release_lease("one")
    one.close()
    two.close()


def test_a_writer_whose_lease_ran_out_never_commits(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store, clock = open_store(memory), Clock(monkeypatch)
    one, two = opened(store, lease_ttl=600), opened(store, lock_timeout=0.1)
    one.repository.acquire_lease(one.session_id)
    with one.repository.transaction(one.session_id) as transaction:
        transaction.reconcile(one.types[0], [("a", "late", 0)])
        two.ensure(Human(id="a", name="in time"))
        with pytest.raises(LockContentionError):
            two.commit()
        clock.turn_forward(601)
        assert two.commit() == 1
        with pytest.raises(LeaseExpiredError):
            transaction.finish({})
    assert [row.name for row in two.query().entities(Human).collect()] == ["in time"]
    one.close()
    two.close()


def test_readers_see_a_migration_whole_or_not_at_all(memory: str) -> None:
    store = open_store(memory)
    fill(store)
    pause = threading.Event()
    wrong: list[Any] = []
    looked = {"before": 0, "after": 0}
    changed = threading.Condition()

    def look() -> None:
        session = opened(store)
        while not pause.is_set():
            with session.repository.reading():
                versions = {one.schema_version_id for one in session.repository.schemas().values()}
                if len(versions) != 1:
                    wrong.append(versions)
                counts = [session.repository.count_stored(StoredType(one.schema))
                          for one in session.repository.schemas().values()]
                if counts != [5, 1]:
                    wrong.append(counts)
            with changed:
                looked["after" if versions == {2} else "before"] += 1
                changed.notify_all()
        session.close()

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        with changed:
            assert changed.wait_for(lambda: looked["before"] or wrong, 120)
        migrate(store)
        with changed:
            assert changed.wait_for(lambda: looked["after"] or wrong, 120)
    finally:
        pause.set()
        for thread in threads:
            thread.join(120)
    assert not wrong
    assert looked["before"] > 0
    assert looked["after"] > 0


def test_reads_go_on_while_files_are_merged_and_removed(memory: str) -> None:
    store = open_store(memory)
    fill(store)
    session = opened(store)
    with session.repository.reading():
        before = session.query().entities(Human).count()
        other = opened(store)
        done = maintenance.compact(other.repository, dry_run=False)  # type: ignore[arg-type]
        assert [one.type_name for one in done] == ["Human", "Knows"]
        assert session.query().entities(Human).count() == before
        other.close()
    assert session.query().entities(Human).count() == before
    assert session.query().entities(Human).with_history().count() == 11
    session.close()
