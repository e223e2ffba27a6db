"""A request id makes a retry safe: whatever became of the first try, the batch is applied once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from ontolake import faults
from ontolake.errors import DurabilityUnconfirmed, Invalid, StorageError, Transient
from ontolake.storage.conformance.base import Base, Fresh, Opener
from ontolake.storage.conformance.workload import compact
from ontolake.storage.protocol import Storage
from ontolake.storage.types import Lsn, WalRecord

BATCH = [WalRecord(b"one"), WalRecord(b"two")]


class RequestCases(Base):
    """Lost responses and retries."""

    title = "Retries"

    def test_the_same_request_is_applied_once(self, opener: Opener) -> None:
        """The first answer is given again: at once, after other appends, after a reopen, under a new token."""
        storage = opener()
        token = storage.acquire_fence("writer")
        lsn = storage.append_wal(token, BATCH, request_id="r1")
        assert storage.append_wal(token, BATCH, request_id="r1") == lsn == 2
        storage.append_wal(token, [self.write(1)])
        assert storage.append_wal(token, BATCH, request_id="r1") == 2
        compact(storage)
        storage.close()
        storage = opener()
        assert storage.append_wal(token, BATCH, request_id="r1") == 2
        token = storage.acquire_fence("next")
        assert storage.append_wal(token, BATCH, request_id="r1") == 2
        assert opener().append_wal(token, BATCH, request_id="r1") == 2
        assert storage.durable_lsn() == 3

    def test_other_ids_and_no_id_are_other_appends(self, storage: Storage) -> None:
        token = storage.acquire_fence("writer")
        ids = ["r1", "r2", None, None, "R1", "r1 "]
        assert [storage.append_wal(token, BATCH, request_id=i) for i in ids] == [2, 4, 6, 8, 10, 12]

    def test_the_same_id_with_something_else_is_invalid(self, opener: Opener) -> None:
        """Other bytes, another page, more or fewer records, another order, another branch; nothing is written."""
        storage = opener()
        token = storage.acquire_fence("writer")
        storage.create_branch("side", Lsn(0))
        batch = [self.write(1), WalRecord(b"note")]
        assert storage.append_wal(token, batch, request_id="r1") == 2
        others = [[self.write(2), batch[1]], [self.write(1, 9), batch[1]], batch[:1], batch + batch, batch[::-1]]
        for handle in (storage, opener()):
            for other in others:
                with pytest.raises(Invalid) as refused:
                    handle.append_wal(token, other, request_id="r1")
                assert "r1" in str(refused.value)
            with pytest.raises(Invalid):
                handle.append_wal(token, batch, branch="side", request_id="r1")
            assert handle.durable_lsn() == 2

    def test_on_a_branch(self, opener: Opener) -> None:
        storage = opener()
        token = storage.acquire_fence("writer")
        side = storage.create_branch("side", Lsn(0))
        assert storage.append_wal(token, BATCH, branch=side, request_id="r1") == 2
        assert opener().append_wal(token, BATCH, branch="side", request_id="r1") == 2
        assert [lsn for lsn, _ in storage.scan_wal(Lsn(0), branch=side)] == [1, 2]

    @pytest.mark.parametrize("retry", ["same handle", "reopened", "new token"])
    def test_a_lost_response_at_every_step(self, fresh: Fresh, retry: str) -> None:
        """The backend fails in passing at each fault point of an append in turn; the retry settles it."""
        n = 0
        while self._fail_and_retry(fresh(), n, retry):
            n += 1
        assert n > 0, "an append has at least one fault point"

    def _fail_and_retry(self, where: str, n: int, retry: str) -> bool:
        """Fail at the n-th fault point; False if the append has no such point."""

        def fail() -> None:
            raise Transient("the response was lost")

        storage = self.connect(where, **self.sweep_knobs)
        token = storage.acquire_fence("writer")
        storage.append_wal(token, [WalRecord(b"before")])
        hook = faults.At(n, fail)
        told: Lsn | None = None
        with faults.arm(hook), suppress(Transient, DurabilityUnconfirmed):
            told = storage.append_wal(token, BATCH, request_id="r1")
        if retry == "reopened":
            storage.close()
            storage = self.connect(where, **self.sweep_knobs)
        elif retry == "new token":
            token = storage.acquire_fence("next")
        step = hook.seen[min(n, len(hook.seen) - 1)]
        lsn = storage.append_wal(token, BATCH, request_id="r1")
        assert lsn == 3, f"failed at {step!r}"
        assert told in (None, lsn), f"failed at {step!r}"
        assert storage.append_wal(token, [WalRecord(b"after")]) == 4
        for handle in (storage, self.connect(where)):
            assert handle.append_wal(token, BATCH, request_id="r1") == 3
            log = [record.bytes for _, record in handle.scan_wal(Lsn(0))]
            assert log == [b"before", b"one", b"two", b"after"], f"failed at {step!r}"
            handle.close()
        return len(hook.seen) > n

    def test_the_same_request_from_many_threads(self, storage: Storage) -> None:
        """Retries that overtake each other, mixed with other appends, in one concurrent group: still once each."""
        token = storage.acquire_fence("writer")
        together = threading.Barrier(12)

        def send(i: int) -> tuple[str | None, int]:
            together.wait()
            request_id = f"r{i % 3}" if i < 9 else None
            payload = f"payload {i % 3}" if i < 9 else f"other {i}"
            return request_id, storage.append_wal(token, [WalRecord(payload.encode())], request_id=request_id)

        with ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(send, range(12)))
        by_id = {request_id: {lsn for i, lsn in answers if i == request_id} for request_id, _ in answers}
        assert [len(by_id[f"r{i}"]) for i in range(3)] == [1, 1, 1]
        assert len(by_id[None]) == 3
        assert storage.durable_lsn() == 6
        assert sorted(record.bytes for _, record in storage.scan_wal(Lsn(0))) == sorted(
            [f"payload {i}".encode() for i in range(3)] + [f"other {i}".encode() for i in range(9, 12)]
        )

    def test_a_refused_request_may_be_sent_again(self, storage: Storage) -> None:
        """An id is used up by an append that happened, not by one that was refused."""
        token = storage.acquire_fence("writer")
        with pytest.raises(StorageError):
            storage.append_wal(token, BATCH, branch="nowhere", request_id="r1")
        with pytest.raises(Invalid):
            storage.append_wal(token, [], request_id="r1")
        assert storage.append_wal(token, [WalRecord(b"x")], request_id="r1") == 1
