"""Compare-and-swap: one winner in every race, and an outcome for every lost response."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Literal

import pytest

from ontolake.errors import AlreadyExists, DurabilityUnconfirmed, Invalid, PreconditionFailed, Transient
from ontolake.objects import ObjectStore, create, new_nonce, open_store, replace
from ontolake.objects.testing import Fault, FaultyStore

RACER = Path(__file__).parent / "racer.py"


def test_a_nonce_is_new_and_long_enough() -> None:
    assert len({new_nonce() for _ in range(1000)}) == 1000
    assert all(len(new_nonce()) >= 16 for _ in range(10))


@pytest.mark.parametrize(("data", "nonce"), [(b"no nonce", b"x" * 16), (b"short", b"short"), (b"", b"")])
def test_data_without_its_nonce_is_refused(store: ObjectStore, data: bytes, nonce: bytes) -> None:
    with pytest.raises(Invalid):
        create(store, "a", data, nonce)
    with pytest.raises(Invalid):
        replace(store, "a", data, "tag", nonce)
    assert list(store.list()) == []


def test_create_and_replace(store: ObjectStore) -> None:
    one, two, three = new_nonce(), new_nonce(), new_nonce()
    first = create(store, "a", b"1" + one, one)
    assert store.get("a") == (b"1" + one, first)
    with pytest.raises(AlreadyExists):
        create(store, "a", b"2" + two, two)
    second = replace(store, "a", b"2" + two, first, two)
    assert store.get("a") == (b"2" + two, second)
    with pytest.raises(PreconditionFailed):
        replace(store, "a", b"3" + three, first, three)
    with pytest.raises(PreconditionFailed):
        replace(store, "missing", b"3" + three, first, three)
    assert store.get("a") == (b"2" + two, second)


def test_going_from_a_to_b_and_back_is_noticed(store: ObjectStore) -> None:
    """The same state written again carries another nonce, so the old tag does not fit it."""
    a, b, again, late = (new_nonce() for _ in range(4))
    first = create(store, "state", b"A" + a, a)
    second = replace(store, "state", b"B" + b, first, b)
    third = replace(store, "state", b"A" + again, second, again)
    assert third != first
    with pytest.raises(PreconditionFailed):
        replace(store, "state", b"C" + late, first, late)
    assert store.get("state") == (b"A" + again, third)


@pytest.mark.parametrize("kind", ["fail", "lose"])
@pytest.mark.parametrize("n", range(4))
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.usefixtures("short_waits")
def test_a_fault_at_any_operation_is_settled(
    store: ObjectStore, kind: Literal["fail", "lose"], n: int, times: int
) -> None:
    one, two = new_nonce(), new_nonce()
    faulty = FaultyStore(store, Fault(n, kind, count="all", times=times))
    tag = create(faulty, "a", b"1" + one, one)
    assert store.get("a") == (b"1" + one, tag)
    faulty = FaultyStore(store, Fault(n, kind, count="all", times=times))
    tag = replace(faulty, "a", b"2" + two, tag, two)
    assert store.get("a") == (b"2" + two, tag)


@pytest.mark.usefixtures("short_waits")
def test_our_own_write_reported_as_a_conflict_is_ours(store: ObjectStore) -> None:
    """As when a proxy repeats a request whose response it lost."""
    one, two = new_nonce(), new_nonce()
    tag = create(FaultyStore(store, Fault(0, "lose", error=AlreadyExists)), "a", b"1" + one, one)
    tag = replace(FaultyStore(store, Fault(0, "lose", error=PreconditionFailed)), "a", b"2" + two, tag, two)
    assert store.get("a") == (b"2" + two, tag)


@pytest.mark.usefixtures("short_waits")
def test_a_lost_race_after_a_failed_try_is_lost(store: ObjectStore) -> None:
    ours, theirs = new_nonce(), new_nonce()

    def overtake() -> None:
        create(store, "a", theirs, theirs)

    meanwhile = Fault(0, "before", action=overtake)
    with pytest.raises(AlreadyExists):
        create(FaultyStore(store, [meanwhile, Fault(0, "fail")]), "a", ours, ours)
    assert store.get("a").data == theirs


@pytest.mark.usefixtures("short_waits")
def test_a_lost_response_and_a_later_writer_leave_the_outcome_unknown(store: ObjectStore) -> None:
    """Ours happened and was replaced: to say that it failed would be a lie, and so would a tag."""
    zero, ours, theirs = new_nonce(), new_nonce(), new_nonce()
    tag = create(store, "a", zero, zero)

    def overwrite() -> None:
        replace(store, "a", theirs, store.get("a").tag, theirs)

    faulty = FaultyStore(store, [Fault(0, "after", action=overwrite), Fault(0, "lose")])
    with pytest.raises(DurabilityUnconfirmed):
        replace(faulty, "a", ours, tag, ours)
    assert store.get("a").data == theirs


@pytest.mark.parametrize("kind", ["fail", "lose"])
@pytest.mark.usefixtures("short_waits")
def test_a_store_that_never_answers_leaves_the_outcome_unknown(
    store: ObjectStore, kind: Literal["fail", "lose"]
) -> None:
    one, two = new_nonce(), new_nonce()
    silent = FaultyStore(store, Fault(0, kind, count="all", times=1000))
    with pytest.raises(DurabilityUnconfirmed, match="'a'"):
        create(silent, "a", one, one)
    tag = store.put("b", one)
    with pytest.raises(DurabilityUnconfirmed, match="'b'"):
        replace(silent, "b", two, tag, two)
    assert len(silent.seen) < 50, "it gives up"


@pytest.mark.usefixtures("short_waits")
def test_writes_that_always_fail_give_up(store: ObjectStore) -> None:
    nonce = new_nonce()
    tag = store.put("b", b"old")
    faulty = FaultyStore(store, Fault(0, "fail", times=1000))
    with pytest.raises(DurabilityUnconfirmed):
        create(faulty, "a", nonce, nonce)
    with pytest.raises(DurabilityUnconfirmed):
        replace(faulty, "b", nonce, tag, nonce)
    assert [info.key for info in store.list()] == ["b"]
    assert store.get("b").data == b"old"


def test_wrong_requests_are_not_repeated(store: ObjectStore) -> None:
    nonce = new_nonce()
    faulty = FaultyStore(store)
    with pytest.raises(Invalid):
        create(faulty, "../a", nonce, nonce)
    assert len(faulty.seen) == 1




def test_threads_race_to_create_and_one_wins(store: ObjectStore, request: pytest.FixtureRequest) -> None:
    count = 3 if "seaweed" in request.node.name else 25
    wins: list[list[int]] = [[] for _ in range(count)]
    barrier = threading.Barrier(4)

    def race(racer: int) -> None:
        for n in range(count):
            nonce = new_nonce()
            barrier.wait(60)
            try:
                create(store, f"round/{n}", f"{racer} ".encode() + nonce, nonce)
                wins[n].append(racer)
            except AlreadyExists:
                pass

    threads = [threading.Thread(target=race, args=(racer,)) for racer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(winners) for winners in wins] == [1] * count
    for n, (winner,) in enumerate(wins):
        assert store.get(f"round/{n}").data.startswith(f"{winner} ".encode())


def test_threads_race_to_replace_and_none_is_lost(store: ObjectStore, request: pytest.FixtureRequest) -> None:
    count = 2 if "seaweed" in request.node.name else 15
    nonce = new_nonce()
    create(store, "counter", b"0 " + nonce, nonce)
    errors: list[BaseException] = []

    def race() -> None:
        try:
            for _ in range(count):
                add_one(store, "counter")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert int(store.get("counter").data.split()[0]) == 4 * count


def add_one(store: ObjectStore, key: str) -> None:
    while True:
        found = store.get(key)
        nonce = new_nonce()
        try:
            replace(store, key, b"%d " % (int(found.data.split()[0]) + 1) + nonce, found.tag, nonce)
            return
        except (PreconditionFailed, Transient):
            continue


@pytest.mark.slow
def test_processes_race_and_one_wins(shared_place: str, request: pytest.FixtureRequest) -> None:
    slow = "seaweed" in request.node.name
    processes, creates, increments = (2, 3, 2) if slow else (4, 25, 10)
    store = open_store(shared_place)
    nonce = new_nonce()
    create(store, "counter", b"0 " + nonce, nonce)
    command = [sys.executable, str(RACER), shared_place, str(processes), str(creates), str(increments)]
    racers = [subprocess.Popen([*command, str(racer)], stdout=subprocess.PIPE) for racer in range(processes)]
    outputs = [racer.communicate(timeout=120)[0] for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * processes
    won = [n for output in outputs for n in json.loads(output)]
    assert sorted(won) == list(range(creates))
    assert int(store.get("counter").data.split()[0]) == processes * increments
