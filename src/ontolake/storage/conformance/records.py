"""Records come back byte for byte: the store never looks inside, and never shares memory with its caller."""

from __future__ import annotations

import pytest

from ontolake.storage.conformance.base import Base, Opener
from ontolake.storage.conformance.workload import compact
from ontolake.storage.protocol import Storage
from ontolake.storage.types import Lsn, PageId, WalRecord

OPAQUE = [
    b"",
    b"\x00",
    b"\xff" * 100,
    b"OLF1\x00\x01 looks like a header of something",
    b'{"op": "acquire", "epoch": 99}',
    b"\x00" * 5000,
    bytes(range(256)) * 300,
    b"text\nwith lines\r\n and \x1b codes",
]


class RecordCases(Base):
    """What goes in comes out."""

    title = "Records"

    def test_opaque_records_come_back_byte_for_byte(self, opener: Opener) -> None:
        """Empty ones, long ones, and ones that look like the store's own bookkeeping; also after a reopen."""
        batch = [WalRecord(data) for data in OPAQUE]
        with opener() as storage:
            token = storage.acquire_fence("writer")
            lsn = storage.append_wal(token, batch)
            assert lsn == len(OPAQUE)
            assert [record for _, record in storage.scan_wal(Lsn(0))] == batch
        with opener() as storage:
            assert list(storage.scan_wal(Lsn(0))) == list(enumerate(batch, 1))
            compact(storage)
            assert list(storage.scan_wal(Lsn(0))) == list(enumerate(batch, 1))
            assert storage.current_fence() == token

    def test_a_scan_starts_after_the_given_lsn(self, storage: Storage) -> None:
        token = storage.acquire_fence("writer")
        for turn in range(4):
            storage.append_wal(token, [self.write(turn), WalRecord(b"note")])
        everything = list(storage.scan_wal(Lsn(0)))
        for after in range(9):
            assert list(storage.scan_wal(Lsn(after))) == everything[after:]
        assert list(storage.scan_wal(Lsn(100))) == []

    def test_a_scan_ends_where_the_log_ended_when_it_began(self, storage: Storage) -> None:
        """What is appended while somebody reads the log does not make the reading endless."""
        token = storage.acquire_fence("writer")
        storage.append_wal(token, [WalRecord(b"a"), WalRecord(b"b")])
        scan = storage.scan_wal(Lsn(0))
        seen = []
        for lsn, record in scan:
            seen.append((lsn, record.bytes))
            storage.append_wal(token, [WalRecord(b"later")])
        assert seen == [(1, b"a"), (2, b"b")]

    def test_an_opaque_record_changes_no_page(self, storage: Storage) -> None:
        token = storage.acquire_fence("writer")
        storage.append_wal(token, [self.write(1)])
        lsn = storage.append_wal(token, [WalRecord(self.image(2))])
        assert storage.get_page(PageId(1), lsn).lsn == 1

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_any_kind_of_bytes_is_taken_and_copied(self, opener: Opener, kind: type) -> None:
        """The caller may use its buffer again once the append has returned."""
        storage = opener()
        token = storage.acquire_fence("writer")
        buffers = [bytearray(self.image(1)), bytearray(b"note")]
        batch = [WalRecord(kind(buffers[0]), PageId(1)), WalRecord(kind(buffers[1]))]
        lsn = storage.append_wal(token, batch, request_id="r1")
        for buffer in buffers:
            buffer[:] = b"\xee" * len(buffer)
        for reader in (storage, opener()):
            page = reader.get_page(PageId(1), lsn)
            assert page.bytes == self.image(1)
            assert type(page.bytes) is bytes
            assert list(reader.scan_wal(Lsn(0))) == [(1, self.write(1)), (2, WalRecord(b"note"))]
        assert storage.append_wal(token, [self.write(1), WalRecord(b"note")], request_id="r1") == lsn

    def test_page_ids_use_the_whole_range(self, storage: Storage) -> None:
        token = storage.acquire_fence("writer")
        ids = [0, 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
        lsn = storage.append_wal(token, [self.write(seed, page_id) for seed, page_id in enumerate(ids)])
        for seed, page_id in enumerate(ids):
            page = storage.get_page(PageId(page_id), lsn)
            assert (page.id, page.bytes) == (page_id, self.image(seed))
