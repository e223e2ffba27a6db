"""C2: LSNs are strictly increasing and without gaps, whoever appends, and no log position ever goes back."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection, wait
from typing import Any, cast

from ontolake.storage.conformance.base import Base, Opener, Start
from ontolake.storage.conformance.tasks import take_turns
from ontolake.storage.protocol import Storage
from ontolake.storage.types import MAIN, FenceToken, Lsn, WalRecord
from ontolake.suites.peers import PATIENCE, Peer

THREADS = 16


class OrderCases(Base):
    """C2."""

    title = "C2 order"

    batches_per_thread = 12
    batches_per_process = 20

    def test_an_empty_store_stands_at_zero(self, storage: Storage) -> None:
        assert storage.durable_lsn() == storage.get_commit_lsn() == storage.pitr_floor() == 0
        assert list(storage.scan_wal(Lsn(0))) == []
        assert [ref.name for ref in storage.list_branches()] == ["main"]
        assert storage.resolve_branch(MAIN) == storage.resolve_branch("main")

    def test_a_batch_of_n_takes_n_consecutive_lsns(self, storage: Storage) -> None:
        token = storage.acquire_fence("writer")
        expected = 0
        for size in (1, 2, 5, 1, 300):
            expected += size
            assert storage.append_wal(token, [WalRecord(b"r") for _ in range(size)]) == expected
            assert storage.durable_lsn() == storage.get_commit_lsn() == expected
        assert [lsn for lsn, _ in storage.scan_wal(Lsn(0))] == list(range(1, expected + 1))

    def test_lsns_are_shared_by_all_branches(self, storage: Storage) -> None:
        """One counter for the database: a branch's records take the next LSNs, whichever branch was written last."""
        token = storage.acquire_fence("writer")
        storage.append_wal(token, [self.write(1)])
        side = storage.create_branch("side", Lsn(1))
        assert storage.append_wal(token, [self.write(2)], branch=side) == 2
        assert storage.append_wal(token, [self.write(3), self.write(4)]) == 4
        assert storage.append_wal(token, [self.write(5)], branch="side") == 5
        assert storage.durable_lsn() == 5
        assert [lsn for lsn, _ in storage.scan_wal(Lsn(0))] == [1, 3, 4]
        assert [lsn for lsn, _ in storage.scan_wal(Lsn(0), branch=side)] == [1, 2, 5]

    def test_lsns_of_a_deleted_branch_are_not_used_again(self, opener: Opener) -> None:
        with opener() as storage:
            token = storage.acquire_fence("writer")
            side = storage.create_branch("side", Lsn(0))
            assert storage.append_wal(token, [WalRecord(b"a"), WalRecord(b"b")], branch=side) == 2
            storage.delete_branch(side)
            assert storage.durable_lsn() == 2
        with opener() as storage:
            assert storage.durable_lsn() == 2
            assert storage.append_wal(storage.acquire_fence("writer"), [WalRecord(b"c")]) == 3

    def test_sixteen_threads_append_without_gap_or_repeat(self, opener: Opener) -> None:
        """Each thread's LSNs increase, all of them together are 1 … n, each batch lies whole in the log, and
        positions watched from aside never decrease."""
        storage = opener(**self.busy_knobs)
        token = storage.acquire_fence("writer")
        with _Watcher(storage) as watcher, ThreadPoolExecutor(THREADS) as pool:
            batches = [
                batch
                for thread in pool.map(lambda name: self._append_many(storage, token, name), range(THREADS))
                for batch in thread
            ]
        assert len(batches) == THREADS * self.batches_per_thread
        lsns = [lsn for first, records in batches for lsn in range(first, first + len(records))]
        assert sorted(lsns) == list(range(1, len(lsns) + 1))
        assert storage.durable_lsn() == storage.get_commit_lsn() == len(lsns)
        log = list(storage.scan_wal(Lsn(0)))
        assert [lsn for lsn, _ in log] == sorted(lsns)
        for first, records in batches:
            assert [record for _, record in log[first - 1 : first - 1 + len(records)]] == records
        assert watcher.went_back is None

    def _append_many(self, storage: Storage, token: FenceToken, name: int) -> list[tuple[int, list[WalRecord]]]:
        made, last = [], 0
        for turn in range(self.batches_per_thread):
            records = [WalRecord(f"{name}/{turn}/{i}".encode()) for i in range(1 + (name + turn) % 3)]
            lsn = storage.append_wal(token, records)
            assert lsn >= last + len(records), f"LSN {lsn} does not follow {last}"
            assert storage.durable_lsn() >= lsn, "acknowledged before it was durable"
            made.append((lsn - len(records) + 1, records))
            last = lsn
        return made

    def test_two_processes_that_take_turns_share_one_order(self, where: str, start: Start) -> None:
        """Two writers keep taking the place from each other; what each was told is in the log, once, just there."""
        self.connect(where).close()
        rivals = [start(take_turns, where, name) for name in ("left", "right")]
        assert [rival.hear() for rival in rivals] == [("ready",), ("ready",)]
        for rival in rivals:
            rival.tell("go")
        heard = self._listen(rivals)
        acked: dict[int, bytes] = {}
        for kind, first, *rest in (said for messages in heard for said in messages if len(said) > 1):
            if kind == "fenced":
                assert rest[0] > first, "whoever is fenced is told of a newer epoch"
            else:
                told = dict(enumerate(rest[0], first))
                assert not told.keys() & acked.keys(), f"LSNs {list(told)} were acknowledged to both"
                acked |= told
        with self.connect(where) as storage:
            log = {lsn: record.bytes for lsn, record in storage.scan_wal(Lsn(0))}
            assert list(log) == list(range(1, storage.durable_lsn() + 1))
        assert log == acked, "the log has what was acknowledged and nothing that was refused"

    def _listen(self, rivals: list[Peer]) -> list[list[tuple[Any, ...]]]:
        """What rivals say until each has written enough and lost its place a few times."""
        heard: list[list[tuple[Any, ...]]] = [[] for _ in rivals]
        links = {rival.link: (rival, messages) for rival, messages in zip(rivals, heard, strict=True)}

        def enough(messages: list[tuple[Any, ...]]) -> bool:
            kinds = [said[0] for said in messages]
            return kinds.count("acked") >= self.batches_per_process and kinds.count("fenced") >= 3

        while not all(enough(messages) for messages in heard):
            assert sum(map(len, heard)) < 100 * self.batches_per_process, "neither is ever fenced by the other"
            for link in wait(list(links), timeout=PATIENCE):
                rival, messages = links[cast(Connection, link)]
                messages.append(rival.hear())
        for rival, messages in links.values():
            rival.tell("stop")
            while (said := rival.hear()) is not None:
                messages.append(said)
            rival.end()
        return heard


class _Watcher:
    """Reads a store's positions in a thread of its own and remembers if one ever went back."""

    def __init__(self, storage: Storage) -> None:
        self.went_back: str | None = None
        self._storage = storage
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        durable = commit = 0
        while not self._done.is_set():
            now, committed = self._storage.durable_lsn(), self._storage.get_commit_lsn()
            if now < durable or committed < commit:
                self.went_back = f"durable {durable} → {now}, commit {commit} → {committed}"
            durable, commit = now, committed

    def __enter__(self) -> _Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
