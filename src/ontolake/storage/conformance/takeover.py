"""C4 between processes: a writer that was overtaken while it wrote, at every step of its write."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait

from ontolake.errors import Contended
from ontolake.storage.conformance.base import Base, Fresh, Opener, Start
from ontolake.storage.conformance.tasks import append_paused, append_when_told
from ontolake.storage.conformance.workload import Op, image
from ontolake.storage.protocol import Storage
from ontolake.storage.types import Lsn, WalRecord
from ontolake.suites.peers import PATIENCE

BATCH = 3


class TakeoverCases(Base):
    """C4, between processes."""

    title = "C4 takeover"

    pause = 0.3
    """How long a takeover may take before it is held to be waiting for the paused writer, in seconds."""

    def test_two_processes_take_the_place_from_each_other(self, where: str, start: Start) -> None:
        """Strictly in turn: whoever acquired last writes, the other is told that it is fenced."""
        self.connect(where).close()
        left, right = (start(append_when_told, where, name) for name in ("left", "right"))
        lsn = 0
        for turn in range(4):
            writer, other = (left, right) if turn % 2 else (right, left)
            writer.tell(Op("acquire"))
            assert writer.hear()[0] == "epoch"
            for expected in (("lsn", lsn + 1), ("lsn", lsn + 2)):
                writer.tell(Op("append", records=(WalRecord(f"{turn}".encode()),)))
                assert writer.hear() == expected
            lsn += 2
            other.tell(Op("append", records=(WalRecord(b"stale"),)))
            assert other.hear() == ("Fenced", 0)
        for peer in (left, right):
            peer.tell(None)
            peer.end()
        with self.connect(where) as storage:
            log = [record.bytes for _, record in storage.scan_wal(Lsn(0))]
            assert log == [b"0", b"0", b"1", b"1", b"2", b"2", b"3", b"3"]

    def test_a_writer_paused_in_the_middle_of_its_write_is_overtaken(self, fresh: Fresh, start: Start) -> None:
        """At every step of an append the writer stops, another takes over, and the first goes on.

        Either its batch was durable before the takeover and lies before everything of the new writer, or it is
        told that it is fenced and nothing of the batch is there. Never both, and never a part.
        """
        k = 0
        while self._overtake(fresh(), start, k):
            k += 1
        assert k > 0, "an append has at least one fault point"

    def _overtake(self, where: str, start: Start, k: int) -> bool:
        """Pause at the k-th fault point; False if the append has no such point."""
        # Opened first: a backend may hold a lock across its write, and then opening waits for it as well.
        with self.connect(where) as rival, ThreadPoolExecutor(1) as pool:
            stale = start(append_paused, where, k, BATCH)
            ready, old, _ = stale.hear()
            assert ready == "ready"
            said = stale.hear()
            if said[0] != "paused":
                stale.end()
                return False
            step = said[1]
            taking = pool.submit(_take_over, rival)
            took_over_first = not wait([taking], self.pause).not_done
            stale.tell("go on")
            outcome = stale.hear()
            stale.end()
            assert taking.result(PATIENCE) > old
            log = [(record.page_id, record.bytes) for _, record in rival.scan_wal(Lsn(0))]
        batch = [(page_id, image(page_id, self.page_size)) for page_id in range(BATCH)]
        with_it = [(None, b"before"), *batch, (None, b"new")]
        without = [(None, b"before"), (None, b"new")]
        context = f"paused at {step!r}, {'overtaken there' if took_over_first else 'overtaken afterwards'}: {outcome}"
        if outcome[0] == "lsn":
            assert outcome == ("lsn", 1 + BATCH), context
            assert log == with_it, f"{context}: an acknowledged batch is not there, or not before the takeover"
        elif outcome[0] == "Fenced":
            assert log == without, f"{context}: a refused batch has left a trace"
        else:
            assert outcome[0] in ("Transient", "DurabilityUnconfirmed"), context
            assert log in (with_it, without), f"{context}: neither whole nor absent"
        return True

    def test_a_writer_overtaken_while_idle_is_refused(self, opener: Opener, where: str, start: Start) -> None:
        """Everything that changes the store under an old token, from the other process."""
        peer = start(append_when_told, where, "idle")
        peer.tell(Op("acquire"))
        assert peer.hear()[0] == "epoch"
        storage = opener()
        token = storage.acquire_fence("rival")
        storage.append_wal(token, [self.write(1)])
        for op in (Op("append", records=(self.write(2),)), Op("renew")):
            peer.tell(op)
            assert peer.hear() == ("Fenced", 0)
        peer.tell(Op("release"))
        assert peer.hear() == ("done", 0)
        assert storage.append_wal(token, [self.write(3)]) == 2
        peer.tell(None)
        peer.end()


def _take_over(storage: Storage) -> int:
    """Acquire, trying again for as long as the place is contended, and append; returns the new epoch."""
    deadline, never = time.monotonic() + PATIENCE, threading.Event()
    while True:
        try:
            token = storage.acquire_fence("new")
            storage.append_wal(token, [WalRecord(b"new")])
            return token.epoch
        except Contended:
            if time.monotonic() > deadline:
                raise
            never.wait(0.01)
