"""Two writers never both win, whether they are threads or processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from documents_support import OpenSpace, increment, start_child, write
from marking import slow_after

from ontolake.documents import ConflictError, HeadIs, Patch, PreconditionFailedError, Reads, Set, Space
from ontolake.errors import Contended


def run_threads(count: int, work: Any) -> None:
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []


def test_threads_share_a_space(space: Space) -> None:
    write(space, Set("counter", {"n": 0}))

    def work(number: int) -> None:
        for local_seq in range(20):
            space.transact(f"thread-{number}", local_seq, [Patch("counter", [increment()])])
            assert space.read("counter").exists

    run_threads(4, work)
    assert space.read("counter").document == {"n": 80}
    assert space.last_seq() == 81
    assert list(space.verify()) == []


def test_threads_that_read_and_write_lose_no_update(space: Space) -> None:
    write(space, Set("counter", {"n": 0}))
    refused: list[int] = []

    def work(number: int) -> None:
        done = 0
        while done < 15:
            seen = space.read("counter")
            try:
                write(space, Set("counter", {"n": seen.document["n"] + 1}), reads=Reads([seen.as_read()]))
            except ConflictError:
                refused.append(number)
            else:
                done += 1

    run_threads(3, work)
    assert space.read("counter").document == {"n": 45}
    assert space.last_seq() == 46


def test_of_two_requests_that_saw_the_same_head_one_wins(space: Space) -> None:
    write(space, Set("a", {}))
    write(space, Set("a", {"by": "one"}), preconditions=[HeadIs(1)])
    with pytest.raises(PreconditionFailedError):
        write(space, Set("a", {"by": "two"}), preconditions=[HeadIs(1)])


@pytest.mark.slow
@pytest.mark.parametrize(("task", "processes", "times"), [("count_up", 2, 25), ("patch_up", 3, 40)])
def test_processes_lose_no_update(
    native_place: str, open_here: OpenSpace, task: str, processes: int, times: int
) -> None:
    space = open_here(native_place)
    write(space, Set("counter", {"n": 0}))
    children = [start_child(task, native_place, f"child-{number}", times) for number in range(processes)]
    for child in children:
        child.join(120)
        assert child.exitcode == 0
    assert space.read("counter").document == {"n": processes * times}
    assert space.last_seq() == 1 + processes * times
    assert list(space.verify()) == []


def test_processes_that_start_a_space_together_share_it(native_place: str, open_here: OpenSpace) -> None:
    children = [start_child("write_many", native_place, f"child-{number}", 10) for number in range(4)]
    for child in children:
        child.join(120)
        assert child.exitcode == 0
    space = open_here(native_place)
    assert space.last_seq() == 40
    assert space._database.connection.pragma("page_size") == 32768
    assert list(space.verify()) == []


def test_processes_that_repeat_each_others_requests_do_them_once(native_place: str, open_here: OpenSpace) -> None:
    space = open_here(native_place)
    write(space, Set("counter", {"n": 0}))
    children = [start_child("same_request", native_place, "", 30) for _ in range(3)]
    for child in children:
        child.join(120)
        assert child.exitcode == 0
    assert space.read("counter").document == {"n": 30}
    assert space.last_seq() == 31


@pytest.mark.slow
def test_what_other_processes_wrote_is_not_patched_over_from_memory(native_place: str, open_here: OpenSpace) -> None:
    one, two = open_here(native_place), open_here(native_place)
    write(one, Set("a", {"n": 0}), Set("b", {"n": 0}))
    for _ in range(15):
        write(one, Patch("a", [increment()]), Patch("b", [increment()]))
        write(two, Patch("a", [increment()]))
    assert one.read("a").document == two.read("a").document == {"n": 30}
    for number in range(1100):
        write(two, Set("c", {"n": number}))
    write(two, Set("a", {"n": 100}))
    write(one, Patch("a", [increment()]))
    assert two.read("a").document == {"n": 101}


def test_a_database_that_stays_busy_is_contended(native_place: str, open_here: OpenSpace) -> None:
    one, two = open_here(native_place), open_here(native_place)
    two._database.connection.pragma("busy_timeout", 10)
    one._database.connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(Contended, match="try again"):
        write(two, Set("a", {}))
    one._database.connection.execute("ROLLBACK")
    assert write(two, Set("a", {})).seq == 1


@pytest.mark.parametrize("place", slow_after(1, ["{}/", "sqlite+file://{}"]))
def test_a_forked_process_has_to_open_the_space_again(place: str, tmp_path: Path) -> None:
    """SQLite's connections must not be used on the other side of a fork; nor must a lock that was held then stay so."""
    program = """
import os, sys, threading
from ontolake.documents import Set, open_space
from ontolake.errors import Invalid

space = open_space(sys.argv[1], "test")
space.transact("s", 1, [Set("a", {})])
held, done = threading.Event(), threading.Event()

def hold():
    with space._database.read:
        held.set()
        done.wait()

threading.Thread(target=hold).start()
held.wait()
pid = os.fork()
if pid == 0:
    for use in (lambda: space.read("a"), lambda: space.transact("s", 2, [Set("a", {})])):
        try:
            use()
        except Invalid as error:
            assert "before a fork" in str(error), error
        else:
            os._exit(1)
    space.close()
    again = open_space(sys.argv[1], "test", readonly=True)
    os._exit(0 if again.read("a").exists else 2)
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
done.set()
assert space.transact("s", 3, [Set("a", {"n": 1})]).seq == 2
space.close()
sys.exit(code)
"""
    ended = subprocess.run([sys.executable, "-c", program, place.format(tmp_path)], capture_output=True, text=True,
                           timeout=200, check=False)  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
