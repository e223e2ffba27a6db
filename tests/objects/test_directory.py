"""A local directory: durable before it returns, whole after a kill at any step, clean to look at."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from marking import slow_after
from pausing import waits_for_a_lock
from waiting import wait_for

from ontolake import faults
from ontolake.errors import AlreadyExists, Invalid, NotFound, PreconditionFailed, Transient
from ontolake.objects.directory import LEFTOVER_AGE, DirectoryStore

OLD, NEW = b"old " * 5000, b"new " * 7000

Write = Callable[[DirectoryStore], object]
WRITES: dict[str, Write] = {
    "put": lambda store: store.put("d/old", NEW),
    "put_if_match": lambda store: store.put_if_match("d/old", NEW, store.get("d/old").tag),
    "put_if_absent": lambda store: store.put_if_absent("d/new", NEW),
    "put_if_absent in a new directory": lambda store: store.put_if_absent("x/y/new", NEW),
    "delete": lambda store: store.delete(["d/old"]),
}


def prepared(path: Path) -> DirectoryStore:
    store = DirectoryStore(path)
    store.put("d/old", OLD)
    store.put("d/bystander", OLD)
    return store


def steps_of(path: Path, write: Write) -> list[str]:
    prepared(path)
    seen: list[str] = []
    with faults.arm(seen.append):
        write(DirectoryStore(path))
    return seen


@pytest.mark.parametrize("name", slow_after(1, WRITES))
def test_a_kill_at_any_step_leaves_the_old_or_the_new(tmp_path: Path, name: str) -> None:
    write = WRITES[name]
    steps = steps_of(tmp_path / "dry", write)
    assert len(steps) >= 2
    outcomes: list[tuple[str, ...]] = []
    for n in range(len(steps)):
        path = tmp_path / str(n)
        prepared(path)
        killed_at(n, lambda path=path: write(DirectoryStore(path)))  # type: ignore[misc]
        store = DirectoryStore(path)
        found = {info.key: store.get(info.key).data for info in store.list()}
        assert set(found) <= {"d/old", "d/bystander", "d/new", "x/y/new"}, steps[n]
        assert found.pop("d/bystander") == OLD
        assert all(data in (OLD, NEW) for data in found.values()), steps[n]
        if "absent" in name:
            assert found.pop("d/old") == OLD
            assert all(data == NEW for data in found.values())
        outcomes.append(tuple(sorted(data[:3].decode() for data in found.values())))
        # Nothing is left locked, and the write can be done now by somebody else.
        for key in found:
            store.put(key, OLD)
        store.put("d/old", OLD)
        store.delete(["d/new", "x/y/new"])
        write(store)
    changes = [n for n in range(1, len(outcomes)) if outcomes[n] != outcomes[n - 1]]
    assert len(changes) == 1, "there is one step at which the write happens"


def killed_at(step: int, action: Callable[[], object]) -> None:
    """Do `action` in a process that is killed at the fault point `step`."""
    child = os.fork()
    if child == 0:  # pragma: no cover - ends in a kill
        try:
            with faults.arm(faults.At(step, faults.kill)):
                action()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was synced, as it happens; fault points can be added to it."""
    seen: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        seen.append(f"synced {os.readlink(f'/proc/self/fd/{descriptor}')}")

    monkeypatch.setattr(os, "fsync", fsync)
    return seen


@pytest.mark.parametrize(
    ("name", "moment"), [("put", "renamed"), ("put_if_match", "renamed"), ("put_if_absent", "linked")]
)
def test_file_and_directory_are_synced_before_it_returns(
    tmp_path: Path, events: list[str], name: str, moment: str
) -> None:
    prepared(tmp_path)
    events.clear()
    store = DirectoryStore(tmp_path)
    with faults.arm(events.append):
        WRITES[name](store)
    at = events.index(f"directory: {moment}")
    assert any(event.startswith(f"synced {tmp_path}/.ontolake/temp/") for event in events[:at])
    assert f"synced {tmp_path}/d" in events[at:]


def test_delete_syncs_the_directory(tmp_path: Path, events: list[str]) -> None:
    store = prepared(tmp_path)
    events.clear()
    with faults.arm(events.append):
        store.delete(["d/old", "d/bystander"])
    assert f"synced {tmp_path}/d" in events[events.index("directory: unlinked") :]
    assert sum(event == f"synced {tmp_path}/d" for event in events) == 1, "once for all"


MANY = {"d/x/one": NEW, "d/x/two": OLD, "e/three": b"3"}


def test_many_objects_are_synced_with_their_directories_before_it_returns(tmp_path: Path, events: list[str]) -> None:
    store = prepared(tmp_path)
    events.clear()
    store.put_all(MANY)
    assert {key: store.get(key).data for key in MANY} == MANY
    wanted = [*MANY, "d/x", "d", "e"]
    assert {f"synced {tmp_path}/{one}" for one in wanted} | {f"synced {tmp_path}"} == set(events)
    assert len(events) == len(set(events)), "each once"


def test_directories_that_went_meanwhile_are_made_again(tmp_path: Path) -> None:
    store = prepared(tmp_path)
    for _ in range(3):
        store.put_all(MANY)
        assert {key: store.get(key).data for key in MANY} == MANY
        shutil.rmtree(tmp_path / "d")


def test_what_is_made_ready_ahead_only_needs_its_swap(tmp_path: Path, events: list[str]) -> None:
    store = prepared(tmp_path)
    tag = store.get("d/old").tag
    events.clear()
    store.put_all({"d/one": b"1"}, {"d/old": NEW})
    assert sum(f"{tmp_path}/.ontolake/temp/" in event for event in events) == 1
    assert store.get("d/old").data == OLD, "nothing of it is visible"
    events.clear()
    store.put_if_match("d/old", NEW, tag)
    assert events == [f"synced {tmp_path}/d"]
    assert store.get("d/old").data == NEW
    store.put_all({"d/two": b"2"}, {"d/old": OLD})
    with pytest.raises(PreconditionFailed):
        store.put_if_match("d/old", OLD, tag)
    store.put_all({"d/three": b"3"}, {"d/old": OLD})
    store.forget({"d/old": OLD})
    assert store.get("d/old").data == NEW
    assert list((tmp_path / ".ontolake" / "temp").iterdir()) == []


@pytest.mark.slow
def test_a_kill_while_many_are_written_changes_nothing_else_and_they_can_be_written_again(tmp_path: Path) -> None:
    def write(store: DirectoryStore) -> None:
        store.put_all(MANY, {"d/old": NEW})

    steps = steps_of(tmp_path / "dry", write)
    assert len(steps) > 8
    for n in range(len(steps)):
        path = tmp_path / str(n)
        prepared(path)
        killed_at(n, lambda path=path: write(DirectoryStore(path)))  # type: ignore[misc]
        store = DirectoryStore(path)
        assert {store.get(key).data for key in ("d/old", "d/bystander")} == {OLD}
        store.put_all(MANY)
        assert {key: store.get(key).data for key in MANY} == MANY


def test_one_of_many_that_cannot_be_written_or_synced_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = prepared(tmp_path)
    with pytest.raises(Invalid, match="d/old/below"):
        store.put_all({"e/one": b"1", "d/old/below": b"2"})
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("e/two"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(Transient, match="'e/two'"):
        store.put_all({"e/one": b"1", "e/two": b"2", "e/three": b"3"})


def test_what_can_be_made_anew_is_written_whole_without_syncing(tmp_path: Path, events: list[str]) -> None:
    store = prepared(tmp_path)
    events.clear()
    store.put_unsynced("d/old", NEW)
    assert store.get("d/old").data == NEW
    assert events == []
    assert list((tmp_path / ".ontolake" / "temp").iterdir()) == []


def test_new_directories_are_synced_into_their_parents(tmp_path: Path, events: list[str]) -> None:
    DirectoryStore(tmp_path / "a" / "lake").put("x/y/z", b"1")
    for parent in (tmp_path, tmp_path / "a", tmp_path / "a/lake", tmp_path / "a/lake/x", tmp_path / "a/lake/x/y"):
        assert f"synced {parent}" in events


def test_directories_made_by_another_process_are_synced_too(tmp_path: Path, events: list[str]) -> None:
    """Their maker may have been killed before it came to that."""
    (tmp_path / "x/y").mkdir(parents=True)
    DirectoryStore(tmp_path).put("x/y/z", b"1")
    for parent in (tmp_path, tmp_path / "x", tmp_path / "x/y"):
        assert f"synced {parent}" in events


def test_the_loser_of_a_race_may_build_on_what_it_lost_to(tmp_path: Path, events: list[str]) -> None:
    store = prepared(tmp_path)
    events.clear()
    with pytest.raises(AlreadyExists):
        store.put_if_absent("d/old", NEW)
    assert events == [f"synced {tmp_path}/d"]


def test_old_leftovers_are_removed_and_new_ones_left_alone(tmp_path: Path) -> None:
    prepared(tmp_path)
    temp = tmp_path / ".ontolake" / "temp"
    old, new = temp / "old", temp / "new"
    old.write_bytes(b"x")
    new.write_bytes(b"x")
    past = time.time() - LEFTOVER_AGE - 60
    os.utime(old, (past, past))
    store = DirectoryStore(tmp_path)
    assert [path.name for path in temp.iterdir()] == ["new"]
    assert [info.key for info in store.list()] == ["d/bystander", "d/old"]


def test_a_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    store = prepared(tmp_path)
    for write in WRITES.values():
        write(store)
        store.put("d/old", OLD)
    with pytest.raises(AlreadyExists):
        store.put_if_absent("d/old", NEW)
    with pytest.raises(PreconditionFailed):
        store.put_if_match("d/old", NEW, "other")
    assert list((tmp_path / ".ontolake" / "temp").iterdir()) == []


def test_reading_creates_nothing(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "lake")
    assert list(store.list()) == []
    with pytest.raises(NotFound):
        store.get("a")
    with pytest.raises(PreconditionFailed):
        store.put_if_match("a", b"1", "tag")
    store.delete(["a", "b/c"])
    assert list(tmp_path.iterdir()) == []


def test_it_does_not_follow_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = DirectoryStore("lake")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.put("a", b"1")
    assert (tmp_path / "lake" / "a").read_bytes() == b"1"


def test_a_key_cannot_be_the_directory_of_another(tmp_path: Path) -> None:
    store = prepared(tmp_path)
    for key in ("d", "d/old/below"):
        for write in (store.put, store.put_if_absent):
            with pytest.raises(Invalid, match=key):
                write(key, b"1")
    assert [info.key for info in store.list()] == ["d/bystander", "d/old"]


def test_a_tree_that_was_removed_is_made_again(tmp_path: Path) -> None:
    store = prepared(tmp_path / "lake")
    os.rename(tmp_path / "lake", tmp_path / "away")
    store.put("d/old", NEW)
    assert store.get("d/old").data == NEW


def test_stores_of_a_part_and_of_the_whole_exclude_each_other(tmp_path: Path) -> None:
    """A writer of the whole, stopped between its check and its write, holds up one of the part."""
    whole, part = DirectoryStore(tmp_path), DirectoryStore(tmp_path / "d")
    tag = whole.put("d/a", OLD)
    child = os.fork()
    if child == 0:  # pragma: no cover - ends in a kill
        try:
            with faults.arm(lambda step: os.kill(os.getpid(), signal.SIGSTOP) if "before rename" in step else None):
                whole.put_if_match("d/a", NEW, tag)
        finally:
            os._exit(1)
    assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1])
    waiter = os.fork()
    if waiter == 0:  # pragma: no cover - in a child
        try:
            part.put_if_match("a", NEW, tag)
        except PreconditionFailed:
            os._exit(7)
        finally:
            os._exit(1)
    wait_for(lambda: waits_for_a_lock(waiter))
    os.kill(child, signal.SIGCONT)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert os.waitstatus_to_exitcode(os.waitpid(waiter, 0)[1]) == 7
    assert whole.get("d/a").data == NEW


def test_without_hard_links_objects_are_still_created_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", no_links)
    store = prepared(tmp_path)
    store.put_if_absent("d/new", NEW)
    with pytest.raises(AlreadyExists):
        store.put_if_absent("d/new", OLD)
    assert store.get("d/new").data == NEW


def test_a_full_disk_is_reported_and_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = prepared(tmp_path)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Transient, match="No space left"):
        store.put("d/old", NEW)
    with pytest.raises(Transient, match="No space left"):
        store.put_if_absent("d/new", NEW)
    assert {info.key: store.get(info.key).data for info in store.list()} == {"d/old": OLD, "d/bystander": OLD}


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lake").write_bytes(b"x")
    with pytest.raises(Invalid, match="is a file"):
        DirectoryStore(tmp_path / "lake")
