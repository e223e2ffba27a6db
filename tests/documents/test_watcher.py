"""Whoever watches sees every change once, in order, soon after its commit, from any process."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import pytest
from documents_support import OpenSpace, increment, start_child, write

from ontolake.documents import Delete, InvalidOperationError, Patch, Set, Space
from ontolake.documents.read import watcher
from ontolake.errors import Invalid


def keys(changes: Any) -> list[Any]:
    return [change.key for change in changes]


def test_watching_starts_with_what_is_there_and_goes_on_with_what_comes(space: Space) -> None:
    write(space, Set("a", {"n": 1}))
    watched = space.watch(since=0, idle_timeout=120)
    assert next(watched).after == {"n": 1}
    write(space, Patch("a", [increment()]), Set("b", {}))
    assert [(change.commit, change.key) for change in itertools.islice(watched, 2)] == [(2, "a"), (2, "b")]


def test_without_a_start_only_what_is_new_is_told(space: Space) -> None:
    write(space, Set("old", {}))
    watched = space.watch(idle_timeout=120)
    write(space, Set("new", {}))
    assert next(watched).key == "new"


def test_some_ids_or_a_prefix(space: Space) -> None:
    write(space, Set("user/1", {}), Set("user/2", {}), Set("order/1", {}), Set("user%", {}))
    write(space, Delete("user/1"))
    assert keys(space.watch(["user/1", "order/1"], since=0, idle_timeout=0)) == ["user/1", "order/1", "user/1"]
    assert keys(space.watch(prefix="user/", since=0, idle_timeout=0)) == ["user/1", "user/2", "user/1"]
    assert keys(space.watch(prefix="", since=1, idle_timeout=0)) == ["user/1"]
    assert keys(space.watch([], since=0, idle_timeout=0)) == []


def test_a_branch_is_watched_by_itself(space: Space) -> None:
    space.branches.create("side")
    write(space, Set("a", {}))
    write(space, Set("b", {}), branch="side")
    assert keys(space.watch(since=1, branch="side", idle_timeout=0)) == ["b"]


def test_a_commit_in_the_same_process_wakes_the_watcher(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "_SHORTEST_PAUSE", 3600.0)  # so that asking again would come too late
    monkeypatch.setattr(watcher, "_LONGEST_PAUSE", 3600.0)
    monkeypatch.setattr(watcher, "_LONGEST_REMOTE_PAUSE", 3600.0)
    seen: list[int] = []

    def watch() -> None:
        seen.extend(change.commit for change in itertools.islice(space.watch(since=0), 50))

    thread = threading.Thread(target=watch)
    thread.start()
    for _ in range(50):
        write(space, Set("a", {}))
    thread.join(120)
    assert seen == list(range(1, 51))


def test_a_commit_between_looking_and_waiting_is_not_missed(native: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "_SHORTEST_PAUSE", 3600.0)
    look = watcher._last_seq

    def look_and_write(database: Any) -> int | None:
        last = look(database)
        if last == 0:
            write(native, Set("a", {}))
        return last

    monkeypatch.setattr(watcher, "_last_seq", look_and_write)
    assert keys(itertools.islice(native.watch(since=0, idle_timeout=120), 1)) == ["a"]


def test_changes_of_other_processes_are_seen(shared_place: str, open_here: OpenSpace) -> None:
    open_here(shared_place).close()
    space = open_here(shared_place, readonly=True)
    watched = space.watch(prefix="odd/", idle_timeout=120)
    child = start_child("write_many", shared_place, "child", 40)
    told = [change.after["n"] for change in itertools.islice(watched, 20)]
    assert told == list(range(1, 40, 2))
    child.join(120)
    assert child.exitcode == 0


def test_closing_the_space_ends_the_watch(native_place: str, open_here: OpenSpace) -> None:
    space = open_here(native_place)
    write(space, Set("a", {}))
    started, told = threading.Event(), []

    def watch() -> None:
        for change in space.watch(since=0):
            told.append(change.key)
            started.set()

    thread = threading.Thread(target=watch)
    thread.start()
    assert started.wait(120)
    space.close()
    thread.join(120)
    assert not thread.is_alive()
    assert told == ["a"]


@pytest.mark.slow
def test_waiting_costs_next_to_nothing(native: Space) -> None:
    start = time.process_time()
    assert keys(native.watch(idle_timeout=1.0)) == []
    assert time.process_time() - start < 0.3


def test_what_cannot_be_watched_is_refused(native: Space) -> None:
    with pytest.raises(Invalid, match="not both"):
        native.watch(["a"], prefix="b")
    for ids in ("a", 5):
        with pytest.raises(Invalid, match="a collection, not"):
            native.watch(ids)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="a prefix is text"):
        native.watch(prefix=5)  # type: ignore[arg-type]
    with pytest.raises(InvalidOperationError):
        native.watch([""])
