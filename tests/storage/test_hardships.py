"""What processes do to a storage: forks, interrupts at any moment, and writers that come late and know little."""

from __future__ import annotations

import multiprocessing
import random
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType

import pytest

from ontolake.errors import Fenced, Invalid, NotFound
from ontolake.storage import FenceToken, LocalFileStorage, Lsn, ObjectStorage, PageId, WalRecord
from ontolake.storage.backend import PendingAppend

PAGE = 512
Opened = Callable[..., LocalFileStorage | ObjectStorage]
_numbers = iter(range(10**9))


@pytest.fixture(params=["file", "memory"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    place = f"memory://hardships-{next(_numbers)}"

    def open_it(**knobs: object) -> LocalFileStorage | ObjectStorage:
        options = {"page_size": PAGE, "fence_lease_ms": 600_000, **knobs}
        return LocalFileStorage(tmp_path / "a.db", **options) if request.param == "file" else (
            ObjectStorage(place, **options))

    return open_it


def write(n: int, page: int = 0) -> WalRecord:
    return WalRecord(n.to_bytes(8, "big") * (PAGE // 8), PageId(page))


def test_a_fenced_writer_is_refused_even_if_it_learns_of_it_only_while_its_request_is_checked(opened: Opened) -> None:
    stale, current = opened(), opened()
    old = stale.acquire_fence("stale")
    new = current.acquire_fence("current")
    current.create_branch("x", Lsn(0))
    current.append_wal(new, [write(1)])
    with pytest.raises(Fenced):
        stale.append_wal(old, [write(2)], branch="x")
    assert [record for _, record in current.scan_wal(Lsn(0))] == [write(1)]


def test_of_one_group_only_those_with_the_current_token_are_written(opened: Opened) -> None:
    storage, other = opened(), opened()
    old = storage.acquire_fence("old")
    new = other.acquire_fence("new")
    group = [PendingAppend(token, 0, storage.prepared([write(n)], None)) for n, token in enumerate((old, new))]
    storage._write_group(group)
    assert isinstance(group[0].error, Fenced)
    assert group[1].lsn == 1
    assert [record for _, record in storage.scan_wal(Lsn(0))] == [write(1)]


def test_a_branch_that_was_deleted_meanwhile_is_not_written_to(opened: Opened) -> None:
    storage, other = opened(), opened()
    token = storage.acquire_fence("w")
    branch = storage.create_branch("x", Lsn(0))
    other.delete_branch("x")
    other.create_branch("y", Lsn(0))
    group = [PendingAppend(token, name, storage.prepared([write(n)], None)) for n, name in enumerate((branch, "y"))]
    storage._write_group(group)
    assert isinstance(group[0].error, NotFound)
    assert group[1].lsn == 1


@pytest.mark.parametrize("token", [None, "token", FenceToken("1", "w", 0.0), FenceToken(1, None, 0.0)])  # type: ignore[arg-type]
def test_what_is_wrong_with_one_is_not_the_error_of_the_others(opened: Opened, token: FenceToken) -> None:
    with opened() as storage:
        good = storage.acquire_fence("w")
        group = [PendingAppend(given, 0, storage.prepared([write(n)], None)) for n, given in enumerate((token, good))]
        storage._write_group(group)
        assert isinstance(group[0].error, Invalid)
        assert group[1].lsn == 1


def test_a_writer_whose_grace_is_longer_than_anothers_is_not_fooled() -> None:
    place = f"memory://hardships-{next(_numbers)}"
    sleeper = ObjectStorage(place, page_size=PAGE)
    old = sleeper.acquire_fence("sleeper")
    sleeper.append_wal(old, [write(1)])
    with ObjectStorage(place, page_size=PAGE, gc_grace_ms=0) as other:
        token = other.acquire_fence("other")
        for n in range(2, 6):
            other.append_wal(token, [write(n)])
        other.set_retention_floor(other.durable_lsn())
        other.compact()
    with pytest.raises(Fenced):
        sleeper.append_wal(old, [write(9)])
    assert sleeper.durable_lsn() == 5


def _use(opened_before: LocalFileStorage, token: FenceToken, link: Connection) -> None:
    for action in (lambda: opened_before.append_wal(token, [write(2)]), opened_before.durable_lsn,
                   lambda: opened_before.get_pages([PageId(0)], Lsn(1)), opened_before.compact):
        try:
            link.send(repr(action()))
        except Invalid as refused:
            link.send(str(refused))
    opened_before.close()
    link.close()


def test_a_forked_process_must_open_for_itself(tmp_path: Path) -> None:
    storage = LocalFileStorage(tmp_path / "a.db", page_size=PAGE, fence_lease_ms=600_000)
    token = storage.acquire_fence("w")
    storage.append_wal(token, [write(1)])
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_use, args=(storage, token, there))
    child.start()
    answers = [here.recv() for _ in range(4)]
    child.join(200)
    assert all("before a fork" in answer for answer in answers), answers
    assert storage.append_wal(token, [write(2)]) == 2
    storage.close()


class Interrupt(BaseException):
    pass


def _append_while_interrupted(path: Path, seed: int) -> None:
    """A process of its own, which a timer interrupts again and again wherever it is, as Ctrl-C would."""
    armed = False

    def interrupt(_: int, __: FrameType | None) -> None:
        nonlocal armed
        if armed:
            armed = False
            raise Interrupt

    signal.signal(signal.SIGALRM, interrupt)
    chance, acked, interrupts = random.Random(seed), list[int](), 0
    batch = [write(seed, page) for page in range(100)]
    storage = LocalFileStorage(path, page_size=PAGE, fence_lease_ms=600_000, maintenance="off")
    token = storage.acquire_fence("w")
    for _ in range(150):
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00005, 0.003))
            acked.append(storage.append_wal(token, batch))
        except Interrupt:
            interrupts += 1
        armed = False
    assert interrupts, "nothing was interrupted"
    assert acked == sorted(set(acked)), "an LSN was given twice"
    last = storage.append_wal(token, batch)
    storage.close()
    with LocalFileStorage(path, page_size=PAGE) as again:
        assert again.durable_lsn() == last
        records = list(again.scan_wal(Lsn(0)))
        assert [lsn for lsn, _ in records] == list(range(1, last + 1))
        assert all(record == batch[(lsn - 1) % 100] for lsn, record in records)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_interrupts_at_any_moment_lose_nothing_that_was_acknowledged(tmp_path: Path, seed: int) -> None:
    child = multiprocessing.get_context("forkserver").Process(
        target=_append_while_interrupted, args=(tmp_path / "a.db", seed))
    child.start()
    child.join(200)
    child.kill()
    assert child.exitcode == 0
