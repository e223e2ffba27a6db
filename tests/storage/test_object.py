"""What object storage costs in requests, and what happens to processes that slept while the log was trimmed."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import msgspec
import pytest
from marking import slow_after
from xxhash import xxh3_64_intdigest

from ontolake.errors import Corruption, DurabilityUnconfirmed, Fenced, Invalid, StorageError
from ontolake.objects import ObjectStore, open_store
from ontolake.objects.testing import CountingStore, Fault, FaultyStore
from ontolake.storage import Lsn, ObjectStorage, Page, PageId, WalRecord
from ontolake.storage import object as object_storage

PAGE = 512
_numbers = iter(range(10**9))


@pytest.fixture
def place() -> str:
    return f"memory://storage-objects-{next(_numbers)}"


def image(n: int) -> bytes:
    return n.to_bytes(8, "big") * (PAGE // 8)


def write(n: int, page: int = 0) -> WalRecord:
    return WalRecord(image(n), PageId(page))


def opened(store: ObjectStore | str, **knobs: object) -> ObjectStorage:
    options: dict[str, object] = {
        "maintenance": "inline", "index_every": 8, "fence_lease_ms": 600_000, "gc_grace_ms": 0}
    return ObjectStorage(store, page_size=PAGE, **{**options, **knobs})


def test_an_append_is_one_request_and_so_is_a_branch(place: str) -> None:
    store = CountingStore(open_store(place))
    with opened(store, maintenance="off", gc_grace_ms=600_000) as storage:
        token = storage.acquire_fence("w")
        for n in range(1, 6):
            store.reset()
            storage.append_wal(token, [write(n, 1), write(n, 2)])
            assert dict(store.operations) == {"put_if_absent": 1}
        store.reset()
        storage.create_branch("b", Lsn(4))
        assert store.writes == 1


def test_opening_and_reading_cost_the_same_after_a_long_history(place: str) -> None:
    costs = []
    with opened(place) as storage:
        token = storage.acquire_fence("w")
        for n in range(1, 1201):
            storage.append_wal(token, [write(n, n % 40)])
            if n in (100, 1200):
                store = CountingStore(open_store(place))
                with opened(store, maintenance="off") as reader:
                    opening = store.total
                    store.reset()
                    assert reader.get_page(PageId(7), Lsn(n)).bytes == image(n - (n - 7) % 40)
                    first = store.total
                    store.reset()
                    assert reader.get_page(PageId(9), Lsn(n)).bytes == image(n - (n - 9) % 40)
                    costs.append((opening, first, store.total))
    for opening, first, second in costs:
        assert opening <= 2 + 2 * 8 + 4
        assert first <= 6
        assert second <= 2


def test_cached_pages_cost_no_request(place: str) -> None:
    store = CountingStore(open_store(place))
    with opened(store) as storage:
        token = storage.acquire_fence("w")
        lsn = storage.append_wal(token, [write(n, n) for n in range(20)])
        store.reset()
        assert all(isinstance(page, Page) for page in storage.get_pages([PageId(n) for n in range(20)], lsn))
        assert store.total == 0


def test_a_batch_of_neighbours_is_one_request(place: str) -> None:
    with opened(place) as storage:
        lsn = storage.append_wal(storage.acquire_fence("w"), [write(n, n) for n in range(200)])
    store = CountingStore(open_store(place))
    with opened(store, cache_bytes=0) as reader:
        store.reset()
        assert [page.bytes for page in reader.get_pages([PageId(n) for n in range(200)], lsn)
                if isinstance(page, Page)] == [image(n) for n in range(200)]
        assert store.total <= 2


def trimmed(place: str, sleeper: ObjectStorage) -> Lsn:
    """Another process takes over, writes on, lets go of the past and removes its objects."""
    with opened(place, gc_grace_ms=0, pitr_window=0) as other:
        token = other.acquire_fence("other")
        for n in range(100, 140):
            other.append_wal(token, [write(n, n % 4)])
        other.set_retention_floor(other.durable_lsn())
        other.compact()
        assert "wal/00000000000000000002" not in {info.key for info in open_store(place).list("wal/")}
        return other.durable_lsn()


def test_a_writer_that_slept_while_the_log_was_trimmed_is_never_acknowledged(place: str) -> None:
    sleeper = opened(place, gc_grace_ms=0)
    token = sleeper.acquire_fence("sleeper")
    sleeper.append_wal(token, [write(1)])
    end = trimmed(place, sleeper)
    with pytest.raises((Fenced, DurabilityUnconfirmed)):
        sleeper.append_wal(token, [write(2)])
    with pytest.raises(Fenced):
        sleeper.append_wal(token, [write(3)])
    with opened(place) as fresh:
        assert fresh.durable_lsn() == sleeper.durable_lsn() == end
        assert fresh.get_page(PageId(0), end) == sleeper.get_page(PageId(0), end)
        assert fresh.append_wal(fresh.acquire_fence("next"), [write(5)]) == end + 1


def test_a_reader_that_slept_while_the_log_was_trimmed_catches_up(place: str) -> None:
    sleeper = opened(place, gc_grace_ms=0)
    sleeper.append_wal(sleeper.acquire_fence("sleeper"), [write(1)])
    end = trimmed(place, sleeper)
    assert sleeper.durable_lsn() == end
    assert sleeper.get_page(PageId(3), end).bytes == image(139)
    sleeper.close()


def test_what_a_crash_left_behind_is_removed_in_time(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(place) as storage:
        token = storage.acquire_fence("w")
        for n in range(1, 30):
            storage.append_wal(token, [write(n, n % 3)])
        store = open_store(place)
        store.put("blobs/4000000000000001", b"left by a crash")
        storage.compact()
        assert store.get("blobs/4000000000000001")
        monkeypatch.setattr(object_storage, "_ORPHAN_AGE", 0.5)
        with opened(place, gc_grace_ms=0) as cleaner:
            while "blobs/4000000000000001" in {info.key for info in store.list("blobs/")}:
                cleaner.compact()
        assert storage.get_page(PageId(1), storage.durable_lsn()).bytes == image(28)


def test_handles_that_compact_at_the_same_time_lose_nothing(place: str) -> None:
    with opened(place) as storage:
        token = storage.acquire_fence("w")
        for n in range(1, 200):
            storage.append_wal(token, [write(n, n % 7)])
        storage.set_retention_floor(Lsn(100))
        handles = [opened(place, gc_grace_ms=0) for _ in range(4)]
        threads = [threading.Thread(target=handle.compact) for handle in handles]
        for thread in threads:
            thread.start()
        for n in range(200, 260):
            storage.append_wal(token, [write(n, n % 7)])
        for thread in threads:
            thread.join(120)
        for handle in [*handles, storage]:
            for lsn in range(100, 260, 9):
                for page in range(7):
                    assert handle.get_page(PageId(page), Lsn(lsn)).bytes == image(lsn - (lsn - page) % 7)
        for handle in handles:
            handle.close()


def faults() -> Iterator[tuple[str, int]]:
    for kind in ("fail", "lose"):
        for n in range(0, 60, 3):
            yield kind, n


@pytest.mark.parametrize(("kind", "n"), slow_after(12, faults()))
def test_a_failed_or_lost_request_anywhere_is_settled(place: str, kind: str, n: int) -> None:
    store = FaultyStore(open_store(place), Fault(n, kind))
    done = 0
    with opened(open_store(place)):
        pass
    with opened(store) as storage:
        for step in range(1, 30):
            try:
                token = storage.acquire_fence("w")
                while storage.append_wal(token, [write(step, step % 3)], request_id=f"r{step}") != step:
                    raise AssertionError("applied twice")
                done = step
                if step % 10 == 0:
                    storage.compact()
            except StorageError:
                token = storage.acquire_fence("w")
                assert storage.append_wal(token, [write(step, step % 3)], request_id=f"r{step}") == step
                done = step
    with opened(place) as fresh:
        assert fresh.durable_lsn() == done == 29
        assert [record for _, record in fresh.scan_wal(Lsn(0))] == [write(s, s % 3) for s in range(1, 30)]


def test_a_prefix_with_foreign_objects_is_refused_and_left_alone(place: str) -> None:
    store = open_store(place)
    store.put("theirs.txt", b"hello")
    with pytest.raises(Invalid, match=r"theirs\.txt"):
        opened(place)
    assert [info.key for info in store.list()] == ["theirs.txt"]


def test_a_database_of_a_newer_version_is_refused(place: str) -> None:
    opened(place).close()
    store = open_store(place)
    root = msgspec.json.decode(store.get("root.json").data)
    root |= {"version": 99, "checksum": ""}
    root["checksum"] = f"{xxh3_64_intdigest(msgspec.json.encode(root)):016x}"
    store.put("root.json", msgspec.json.encode(root))
    with pytest.raises(Invalid, match="version 99"):
        opened(place)


@pytest.mark.parametrize("damage", [b"{}", b"not json", b'{"version":1,"kind":"pages"}', b"\xff\xfe"])
def test_a_damaged_root_is_reported(place: str, damage: bytes) -> None:
    opened(place).close()
    open_store(place).put("root.json", damage)
    with pytest.raises((Corruption, Invalid), match="memory://"):
        opened(place)


def test_a_frame_that_is_gone_from_the_middle_of_the_tail_is_noticed(place: str) -> None:
    with opened(place, maintenance="off") as storage:
        token = storage.acquire_fence("w")
        for n in range(1, 8):
            storage.append_wal(token, [write(n)])
    open_store(place).delete(["wal/00000000000000000002"])
    with pytest.raises(Corruption, match="wal/00000000000000000002"):
        opened(place)
