"""The page file: what it looks like at rest, how it gives space back, and what it does when the disk fails."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import resource
import signal
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ontolake import faults
from ontolake.errors import Corruption, DurabilityUnconfirmed, Invalid, NotFound, Transient
from ontolake.storage import LocalFileStorage, Lsn, PageId, WalRecord
from ontolake.urls import PAGES_MAGIC, Stamp, detect

PAGE = 4096


def write(n: int, page: int = 0) -> WalRecord:
    return WalRecord(n.to_bytes(8, "big") * (PAGE // 8), PageId(page))


def filled(path: Path, batches: int, **knobs: object) -> LocalFileStorage:
    storage = LocalFileStorage(path, fence_lease_ms=600_000, maintenance="off", **knobs)
    token = storage.acquire_fence("w")
    for n in range(1, batches + 1):
        storage.append_wal(token, [write(n, n % 5)])
    return storage


def test_one_file_and_nothing_else_while_open_and_at_rest(tmp_path: Path) -> None:
    storage = filled(tmp_path / "a.db", 30)
    storage.compact()
    assert os.listdir(tmp_path) == ["a.db"]
    storage.close()
    assert os.listdir(tmp_path) == ["a.db"]


def test_the_room_kept_ready_behind_the_log_is_given_back_on_closing(tmp_path: Path) -> None:
    storage = filled(tmp_path / "a.db", 3)
    while_open = (tmp_path / "a.db").stat().st_size
    storage.close()
    at_rest = (tmp_path / "a.db").stat().st_size
    assert at_rest < while_open
    assert at_rest < 3 * PAGE + 3 * 4096
    with LocalFileStorage(tmp_path / "a.db") as again:
        assert again.get_page(PageId(3), Lsn(3)).bytes == write(3).bytes


def test_closing_one_handle_leaves_what_another_wrote_meanwhile(tmp_path: Path) -> None:
    first = filled(tmp_path / "a.db", 3)
    second = LocalFileStorage(tmp_path / "a.db")
    token = second.acquire_fence("second")
    second.append_wal(token, [write(4)])
    first.close()
    assert second.append_wal(token, [write(5)]) == 5
    second.close()
    with LocalFileStorage(tmp_path / "a.db") as again:
        assert len(list(again.scan_wal(Lsn(0)))) == 5


@pytest.mark.slow
def test_compaction_gives_space_back_to_the_file_system(tmp_path: Path) -> None:
    storage = filled(tmp_path / "a.db", 2000)
    storage.set_retention_floor(Lsn(1990))
    before = (tmp_path / "a.db").stat().st_blocks
    freed = storage.compact()
    after = (tmp_path / "a.db").stat().st_blocks
    assert freed > 7_000_000
    assert after < before / 4
    for lsn in range(1990, 2001):
        for page in range(5):
            assert storage.get_page(PageId(page), Lsn(lsn)).bytes == write(lsn - (lsn - page) % 5).bytes
    storage.close()
    with LocalFileStorage(tmp_path / "a.db") as again:
        assert len(list(again.scan_wal(Lsn(1990)))) == 10


@pytest.mark.slow
def test_compacting_again_and_again_does_not_let_the_file_grow_on_disk(tmp_path: Path) -> None:
    storage = LocalFileStorage(tmp_path / "a.db", fence_lease_ms=600_000, maintenance="off", pitr_window=0)
    token = storage.acquire_fence("w")
    sizes = []
    for _ in range(12):
        for n in range(100):
            lsn = storage.append_wal(token, [write(n, n % 5)])
        storage.set_retention_floor(lsn)
        storage.compact()
        sizes.append((tmp_path / "a.db").stat().st_blocks)
    assert max(sizes[6:]) <= 1.5 * max(sizes[:6])
    storage.close()


def test_the_header_says_what_the_file_is(tmp_path: Path) -> None:
    LocalFileStorage(tmp_path / "a.db", page_size=1024).close()
    assert (tmp_path / "a.db").read_bytes().startswith(PAGES_MAGIC)
    assert detect(f"file://{tmp_path}/a.db") == Stamp("pages", "file", 1, 1024)


@pytest.mark.parametrize("content", [b"hello", b"x" * 10_000, b"ontolake of another kind" * 300])
def test_a_file_that_is_not_ours_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.db").write_bytes(content)
    with pytest.raises(Invalid, match=r"a\.db"):
        LocalFileStorage(tmp_path / "a.db")
    assert (tmp_path / "a.db").read_bytes() == content


def test_a_native_sqlite_file_is_named_as_such(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.db") as native:
        native.execute("create table t(a)")
    with pytest.raises(Invalid, match="native SQLite"):
        LocalFileStorage(tmp_path / "a.db")


@pytest.mark.parametrize("length", [0, 1, 100, 4095, 4096])
def test_a_file_of_which_nothing_was_written_yet_is_started(tmp_path: Path, length: int) -> None:
    (tmp_path / "a.db").write_bytes(bytes(length))
    with filled(tmp_path / "a.db", 2) as storage:
        assert storage.durable_lsn() == 2


@pytest.mark.parametrize("length", [14, 15, 16, 30, 41, 511, 600, 1060, 4095])
def test_a_file_cut_within_its_header_is_damaged_and_left_alone(tmp_path: Path, length: int) -> None:
    filled(tmp_path / "whole.db", 2).close()
    head = (tmp_path / "whole.db").read_bytes()[:length]
    (tmp_path / "a.db").write_bytes(head)
    with pytest.raises(Corruption, match="cut short"):
        LocalFileStorage(tmp_path / "a.db")
    assert (tmp_path / "a.db").read_bytes() == head


def test_a_failed_opening_leaves_no_file_open(tmp_path: Path) -> None:
    filled(tmp_path / "a.db", 40).close()
    data = bytearray((tmp_path / "a.db").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "a.db").write_bytes(data)
    gc.collect()  # what others have left must not be closed meanwhile
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(Corruption):
            LocalFileStorage(tmp_path / "a.db")
    assert len(os.listdir("/proc/self/fd")) == before


def test_missing_folders_and_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="no-such-folder"):
        LocalFileStorage(tmp_path / "no-such-folder" / "a.db")
    with pytest.raises(NotFound, match=r"a\.db"):
        LocalFileStorage(tmp_path / "a.db", create=False)
    with pytest.raises(Invalid, match="cannot be opened"):
        LocalFileStorage(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_full_disk_refuses_the_append_and_changes_nothing(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    storage = filled(tmp_path / "a.db", 5)
    token = storage.renew_fence(storage.current_fence() or pytest.fail("no fence"))
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "a.db").stat().st_size, before[1]))
        with pytest.raises(Transient, match="nothing was appended"):
            storage.append_wal(token, [write(n, n) for n in range(100)])
        assert storage.durable_lsn() == 5
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert storage.append_wal(token, [write(6)]) == 6
    storage.close()
    with LocalFileStorage(tmp_path / "a.db") as again:
        assert [lsn for lsn, _ in again.scan_wal(Lsn(0))] == [1, 2, 3, 4, 5, 6]


def test_a_sync_that_fails_leaves_the_outcome_open_and_a_retry_applies_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = filled(tmp_path / "a.db", 5)
    token = storage.current_fence() or pytest.fail("no fence")
    real, broken = os.fdatasync, iter([True])

    def fdatasync(fd: int) -> None:
        if next(broken, False):
            raise OSError(errno.EIO, "the disk is broken")
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    with pytest.raises(DurabilityUnconfirmed, match="could not be synced"):
        storage.append_wal(token, [write(6)], request_id="six")
    assert storage.append_wal(token, [write(6)], request_id="six") == 6
    assert storage.append_wal(token, [write(7)]) == 7
    storage.close()
    with LocalFileStorage(tmp_path / "a.db") as again:
        assert [record for _, record in again.scan_wal(Lsn(5))] == [write(6), write(7)]


def test_zeroed_blocks_in_the_log_are_damage_and_not_its_end(tmp_path: Path) -> None:
    filled(tmp_path / "a.db", 40).close()
    data = bytearray((tmp_path / "a.db").read_bytes())
    # From where a frame begins: its envelope is gone, but what follows shows that there was one.
    start = data.index(b"OLE1", len(data) // 2)
    data[start : start + 4096] = bytes(4096)
    (tmp_path / "a.db").write_bytes(data)
    with pytest.raises(Corruption, match="damaged"):
        LocalFileStorage(tmp_path / "a.db")


@contextlib.contextmanager
def nobody() -> Iterator[None]:
    """Be a user to whom file permissions apply."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_that_may_only_be_read_is_read() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = Path(folder) / "pages.db"
        with LocalFileStorage(path) as storage:
            token = storage.acquire_fence("me")
            lsn = storage.append_wal(token, [WalRecord(bytes(4096), PageId(1))])
        path.chmod(0o444)
        before = path.read_bytes()
        with nobody():
            with LocalFileStorage(path) as storage:
                assert storage.get_page(PageId(1), lsn).bytes == bytes(4096)
                assert storage.durable_lsn() == lsn
                attempts = [
                    lambda: storage.acquire_fence("other"),
                    lambda: storage.append_wal(token, [WalRecord(b"x")]),
                    lambda: storage.create_branch("try", lsn),
                    storage.compact,
                ]
                for attempt in attempts:
                    with pytest.raises(Invalid, match=r"pages\.db can only be read"):
                        attempt()
                assert storage.get_page(PageId(1), lsn).bytes == bytes(4096)
            with pytest.raises(Invalid, match="cannot be opened for writing"):
                LocalFileStorage(Path(folder) / "new.db")
        assert path.read_bytes() == before


def test_what_was_not_acknowledged_is_not_seen_by_who_may_only_read() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = Path(folder) / "pages.db"
        storage = LocalFileStorage(path)
        token = storage.acquire_fence("me")
        lsn = storage.append_wal(token, [WalRecord(b"one")])

        def stop(step: str) -> None:
            if step == "file: frame written, not synced":
                raise KeyboardInterrupt

        with faults.arm(stop), pytest.raises(KeyboardInterrupt):
            storage.append_wal(token, [WalRecord(b"two")])
        storage.log.medium.let_go()
        path.chmod(0o444)
        with nobody(), LocalFileStorage(path) as reader:
            assert reader.durable_lsn() == lsn
        with LocalFileStorage(path) as storage:
            assert storage.durable_lsn() == lsn + 1
