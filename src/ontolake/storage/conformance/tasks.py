"""What peers do. A task gets the link to the test, the suite's class and the place of the store."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, Protocol

from ontolake import faults
from ontolake.errors import Contended, Fenced, StorageError
from ontolake.storage.conformance.workload import Op, Player, compact, image
from ontolake.storage.protocol import Storage
from ontolake.storage.types import Lsn, PageId, WalRecord
from ontolake.suites.peers import crash


class Suite(Protocol):
    """The part of the suite's class that tasks use."""

    processes: bool
    page_size: int
    sweep_knobs: Mapping[str, Any]
    busy_knobs: Mapping[str, Any]

    @classmethod
    def connect(cls, where: str, **knobs: Any) -> Storage: ...


def play(link: Connection, suite: Suite, where: str, ops: Sequence[Op], n: int, sweep: bool = True) -> None:
    """Do the steps, telling the test before and after each, and crash at the n-th fault point (-1: never).

    Sends ("doing", i), then ("done", i, outcome, epoch held), and in the end the names of all fault points reached.
    """
    hook = faults.At(n, faults.kill if suite.processes else crash)
    knobs = suite.sweep_knobs if sweep else suite.busy_knobs
    with faults.arm(hook):
        player = Player(lambda: suite.connect(where, **knobs))
        for i, op in enumerate(ops):
            link.send(("doing", i))
            link.send(("done", i, player.do(op), player.token.epoch))
        player.storage.close()
    link.send(("steps", hook.seen))


def take_turns(link: Connection, suite: Suite, where: str, name: str) -> None:
    """Write against a rival who takes the fence as well, until told to stop.

    Sends ("acked", first LSN, payloads) for every batch and ("fenced", held, current) for every lost place.
    """
    serial, chance = 0, random.Random(name)
    with suite.connect(where, **suite.busy_knobs) as storage:
        link.send(("ready",))
        link.recv()
        while not link.poll(0):
            try:
                token = storage.acquire_fence(name)
                for _ in range(5):
                    serial += 1
                    batch = [WalRecord(f"{name} {serial} {i}".encode()) for i in range(1 + serial % 3)]
                    last = storage.append_wal(token, batch)
                    link.send(("acked", last - len(batch) + 1, [record.bytes for record in batch]))
                    link.poll(chance.random() / 300)  # a breath, so that the rival gets a word in
            except Fenced as error:
                link.send(("fenced", error.held, error.current))
            except Contended:
                link.send(("contended",))


def append_paused(link: Connection, suite: Suite, where: str, k: int, count: int) -> None:
    """Append one batch and be acknowledged, then append another and pause at the k-th fault point of it.

    Sends ("paused", step) there and goes on when told to; sends ("lsn", n) or an error's name in the end.
    A batch that has no such point ends without a pause.
    """

    def pause() -> None:
        link.send(("paused", hook.seen[-1]))
        link.recv()

    hook = faults.At(k, pause)
    with suite.connect(where) as storage:
        token = storage.acquire_fence("stale")
        link.send(("ready", token.epoch, storage.append_wal(token, [WalRecord(b"before")])))
        records = [WalRecord(image(i, suite.page_size), PageId(i)) for i in range(count)]
        with faults.arm(hook):
            try:
                outcome = "lsn", int(storage.append_wal(token, records))
            except StorageError as error:
                outcome = type(error).__name__, 0
        link.send(outcome)


def append_when_told(link: Connection, suite: Suite, where: str, name: str) -> None:
    """A writer in small steps: told "acquire", "append" or "stop", it answers with the outcome."""
    with suite.connect(where) as storage:
        player = Player(lambda: storage)
        while (told := link.recv()) is not None:
            link.send(player.do(told))


def write_busily(link: Connection, suite: Suite, where: str, batches: int, pages: int) -> None:
    """Write pages in turn, one batch each time it is told to; raise the floor and compact now and then.

    Sends ("acked", LSN, page, seed) for each batch.
    """
    with suite.connect(where, **suite.busy_knobs) as storage:
        token = storage.acquire_fence("busy")
        for seed in range(1, batches + 1):
            link.recv()
            page = PageId(seed % pages)
            lsn = storage.append_wal(token, [WalRecord(image(seed, suite.page_size), page)])
            link.send(("acked", lsn, page, seed))
            if seed % 10 == 0:
                storage.set_retention_floor(Lsn(lsn - 8))
            if seed % 15 == 0:
                compact(storage)
