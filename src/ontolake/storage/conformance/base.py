"""What every part of the suite stands on: the settings a subclass may change, and the fixtures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import pytest

from ontolake.storage.conformance.observe import Observation, glance, observe
from ontolake.storage.conformance.workload import EVERYTHING, image
from ontolake.storage.protocol import Storage
from ontolake.storage.types import PageId, WalRecord
from ontolake.suites.peers import PATIENCE, Forker, Peer, Task, ThreadPeer

Fresh = Callable[[], str]
Opener = Callable[..., Storage]
Start = Callable[..., Peer]


class Base:
    """Settings and fixtures. A subclass gives `fresh`, and changes the settings where its backend differs."""

    title: ClassVar[str]
    """What this part of the suite is about, for reports."""
    processes: ClassVar[bool] = True
    """False for a store that lives and dies with its process: peers are then threads, and crashes exceptions."""
    page_size: ClassVar[int] = 4096
    knobs: ClassVar[Mapping[str, Any]] = {}
    """Passed to every open."""
    sweep_knobs: ClassVar[Mapping[str, Any]] = {}
    """Passed as well where crashes are swept: such that background work is done at once, at points that do not vary."""
    busy_knobs: ClassVar[Mapping[str, Any]] = {}
    """Passed as well where many are at work: such that background work goes on beside it all the time."""
    crash_runs: ClassVar[int] = 208
    """How many runs end in a crash, over all workloads."""
    crash_steps: ClassVar[int] = 14
    """How many steps such a workload has."""
    recovery_runs: ClassVar[int] = 18
    """How many runs end in a second crash, while the first one is recovered from."""
    history_examples: ClassVar[int] = 30
    """How many random histories are played."""
    flips: ClassVar[int] = 150
    """How many single bytes are flipped."""
    reads: ClassVar[int | None] = None
    """How many LSNs of a branch a check of everything reads; None for all. For backends where each read is dear."""

    @classmethod
    def open(cls, where: str, **knobs: Any) -> Storage:
        """Open the store at `where`, creating it if there is none."""
        from ontolake.storage import open_storage

        opened: Storage = open_storage(where, **knobs)
        return opened

    @classmethod
    def connect(cls, where: str, **knobs: Any) -> Storage:
        """Open with the settings of this class, and a lease that outlasts any test."""
        settings = {"page_size": cls.page_size, "fence_lease_ms": 600_000, **cls.knobs, **knobs}
        return cls.open(where, **settings)

    @classmethod
    def raw_blobs(cls, where: str) -> Mapping[str, bytes] | None:
        """The bytes of the store at `where`, by name, for tests that damage them; None skips those tests."""
        return None

    @classmethod
    def raw_write(cls, where: str, blobs: Mapping[str, bytes]) -> None:
        """Write these bytes, by name, to `where`, over what is there: a store copied like that is the same store."""
        raise NotImplementedError("a suite with raw_blobs has raw_write as well")

    @pytest.fixture
    def fresh(self) -> Fresh:
        """A function that returns a new place at every call, where no store has ever been."""
        raise NotImplementedError("a subclass of StorageConformance gives a fixture `fresh`")

    @pytest.fixture
    def where(self, fresh: Fresh) -> str:
        """One new place."""
        return fresh()

    @pytest.fixture
    def opener(self, where: str) -> Iterator[Opener]:
        """Opens `where`, as often as wanted; everything is closed when the test ends."""
        opened: list[Storage] = []

        def opener(**knobs: Any) -> Storage:
            opened.append(self.connect(where, **knobs))
            return opened[-1]

        yield opener
        for storage in opened:
            storage.close()

    @pytest.fixture
    def storage(self, opener: Opener) -> Storage:
        """A new, empty store."""
        return opener()

    @pytest.fixture(scope="class")
    @classmethod
    def forker(cls) -> Iterator[Forker | None]:
        """The helper that forks processes, None if the peers are threads."""
        forker = Forker(cls) if cls.processes else None
        yield forker
        if forker:
            forker.close()

    @pytest.fixture
    def start(self, forker: Forker | None) -> Iterator[Start]:
        """Starts a peer at a task: `start(task, where, …)`. Peers that are left over when the test ends are ended."""
        peers: list[Peer] = []

        def start(task: Task, *arguments: Any) -> Peer:
            peers.append(forker.start(task, arguments) if forker else ThreadPeer(task, type(self), arguments))
            return peers[-1]

        yield start
        for peer in peers:
            peer.abandon()

    # for the tests
    def image(self, seed: int) -> bytes:
        """A page image of its own for every seed."""
        return image(seed, self.page_size)

    def write(self, seed: int, page_id: int = 1) -> WalRecord:
        """A record that gives a page the image of `seed`."""
        return WalRecord(self.image(seed), PageId(page_id))

    def observe(self, storage: Storage) -> Observation:
        """Everything the store answers about the pages that tests write."""
        return observe(storage, EVERYTHING, reads=self.reads)

    def observe_again(self, storage: Storage) -> Observation:
        """The same, but less of it where each read is dear."""
        return self.observe(storage) if self.reads is None else glance(storage)


def wait_until(condition: Callable[[], bool], what: str, timeout: float = PATIENCE) -> None:
    """Return as soon as `condition` holds. Fails the test, saying `what` did not come, after `timeout` seconds."""
    deadline, never = time.monotonic() + timeout, threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {timeout:.0f} s in vain for {what}")
        never.wait(0.002)


def until_clock(moment: float) -> None:
    """Return once the clock has passed `moment`, in seconds since 1970."""
    wait_until(lambda: time.time() > moment, f"the clock to pass {moment}")
