"""`onto storage conformance` runs the published suite on a place of the user's own, and leaves nothing there."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).parent / "onto"


@pytest.mark.slow
def test_a_place_that_keeps_its_promises(program, tmp_path: Path) -> None:
    done = program("storage", "conformance", f"file://{tmp_path}/try.db", "--only", "branch or an_empty_file")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "topic\tresult\tpassed\tfailed\tskipped\tseconds"
    topics = [line.split("\t") for line in lines[1:-1]]
    assert "C7 branches" in [topic[0] for topic in topics]
    assert {(topic[1], topic[3]) for topic in topics} == {("ok", "0")}
    assert "none failed" in lines[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_quick_leaves_out_the_long_sweeps(program) -> None:
    done = program("storage", "conformance", "memory://try", "--quick", "--only", "killed or flipped or hold", "--json")
    assert (done.code, done.err) == (0, "")
    found = done.document
    assert found.keys() == {"url", "ok", "seconds", "topics", "failures"}
    assert (found["ok"], found["failures"]) == (True, [])
    counts = {topic["topic"]: topic for topic in found["topics"]}
    assert "Damage" not in counts
    assert next(iter(counts)) == "C1, C5 durability"
    assert counts["C8 retention"].keys() == {"topic", "passed", "failed", "skipped", "seconds"}


def small_files() -> None:
    """No file may grow beyond two blocks: a disk that is full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))


@pytest.mark.slow
def test_a_place_that_does_not_keep_them_fails(tmp_path: Path) -> None:
    command = [PROGRAM, "storage", "conformance", f"file://{tmp_path}/try.db", "--only", "is_one_file"]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=small_files, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    failed, why, sum_up = done.stdout.splitlines()[2:]
    assert failed == "FAILED Torn tails, foreign files: the store is one file"
    assert "File too large" in why
    assert sum_up.endswith("do not keep data there")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("where", "code"), [("ftp://x", 2), ("shop.db", 2), ("file:///proc/nowhere/x.db", 1)])
def test_a_place_that_cannot_be_used_is_refused(onto, where: str, code: int) -> None:
    done = onto("storage", "conformance", where)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("error: ")
