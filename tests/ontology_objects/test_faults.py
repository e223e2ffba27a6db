"""Whatever fails, and wherever: a store is exactly as before or exactly as after, and takes the next commit."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from marking import slow_after

from ontolake.errors import DurabilityUnconfirmed, Invalid, OntolakeError
from ontolake.objects import ObjectStore, cas, open_store
from ontolake.objects.testing import Fault, FaultyStore
from ontolake.ontology.repository.objects import access as s3_access

from .conftest import fresh_memory
from .works import WORKS, fill, goes_on, seen

FOR_EVER = 10_000


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cas, "FIRST_WAIT", 0.0)
    monkeypatch.setattr(s3_access, "FIRST_WAIT", 0.0)


@pytest.fixture(scope="module")
def template() -> dict[str, bytes]:
    """A store before the work, as objects."""
    store = open_store(fresh_memory())
    fill(store)
    return {info.key: store.get(info.key).data for info in store.list()}


def copy(template: dict[str, bytes]) -> ObjectStore:
    store = open_store(fresh_memory())
    for key, data in template.items():
        store.put(key, data)
    return store


KINDS: dict[str, dict[str, Any]] = {
    "fails once": {"kind": "fail"},
    "fails for ever": {"kind": "fail", "times": FOR_EVER},
    "is refused": {"kind": "fail", "error": Invalid, "times": FOR_EVER},
    "loses the response": {"kind": "lose"},
    "loses every response": {"kind": "lose", "times": FOR_EVER},
    "takes long": {"kind": "delay", "seconds": 0.002},
}


@pytest.mark.parametrize("kind", slow_after(1, KINDS))
@pytest.mark.parametrize("work", slow_after(1, WORKS))
def test_an_operation_that_goes_wrong_leaves_all_or_nothing(
    template: dict[str, bytes], work: str, kind: str
) -> None:  # fmt: skip
    first = copy(template)
    WORKS[work].prepare(first)
    template = {info.key: first.get(info.key).data for info in first.list()}
    before = seen(copy(template))
    done = copy(template)
    WORKS[work].do(done)
    after = seen(done)
    assert (before != after) == WORKS[work].visible
    succeeded = 0
    for n in itertools.count():
        inner = copy(template)
        store = FaultyStore(inner, Fault(n, count="all", **KINDS[kind]))
        error: OntolakeError | None = None
        try:
            WORKS[work].do(store)
        except OntolakeError as failed:
            error = failed
        found = seen(inner)
        if error is None:
            succeeded += 1
            assert found == after, n
        elif isinstance(error, DurabilityUnconfirmed):
            assert found in (before, after), n
        else:
            assert found == before, (n, error)
        WORKS[work].then(inner)
        goes_on(inner)
        if len(store.seen) <= n:
            break
    assert n > 5, "there were operations to go wrong"
    if kind in ("fails once", "loses the response", "takes long"):
        assert succeeded == n + 1, "what fails in passing stops nothing"


CHILD = """
import os, shutil, sys
sys.path.insert(0, {root!r})
from ontolake.objects import open_store
from ontolake.objects.testing import Fault, FaultyStore
from ontolake import faults
import ontolake.objects.directory  # once, not in every child
import ontolake.ontology.repository.objects.upkeep.checks
import ontolake.ontology.repository.objects.queue.events
import ontolake.ontology.repository.objects.engines
import pyarrow
pyarrow.array([1])
from tests.ontology_objects.works import WORKS, fill, goes_on, seen

def apart(do):
    "In a process of its own; its exit code."
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            do()
            code = 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    return os.waitstatus_to_exitcode(status)

folder, name, way = sys.argv[1:]
work = WORKS[name]
at = lambda path: open_store("file://" + path)
assert apart(lambda: (fill(at(folder + "/template")), work.prepare(at(folder + "/template")))) == 0
shutil.copytree(folder + "/template", folder + "/done")

def look(path, file):
    with open(file, "w") as out:
        out.write(repr(seen(at(path))))

def text(file):
    with open(file) as found:
        return found.read()

def by_operation(path, n, kind):
    "Before or after the n-th write: between two of them nothing changes, whatever is read there."
    work.do(FaultyStore(at(path), Fault(n, kind, count="writes", action=faults.kill)))

def by_step(path, n, kind):
    "After the n-th step of the directory itself; between one and what is named as before the next nothing changes."
    step_at = faults.At(n, faults.kill)
    with faults.arm(lambda step: None if ": before " in step else step_at(step)):
        work.do(at(path))

do, kinds = (by_operation, ("before", "after")) if way == "operation" else (by_step, ("at",))
assert apart(lambda: look(folder + "/template", folder + "/before")) == 0
assert apart(lambda: work.do(at(folder + "/done"))) == 0
assert apart(lambda: look(folder + "/done", folder + "/after")) == 0
n = killed = 0
ended = False
while not ended:
    ended = True
    for kind in kinds:
        path = folder + f"/{{n}}-{{kind}}"
        shutil.copytree(folder + "/template", path)
        code = apart(lambda: do(path, n, kind))
        assert code in (0, -9), code
        killed += code == -9
        ended = ended and code == 0
        assert apart(lambda: (look(path, path + "-seen"), work.then(at(path)), goes_on(at(path)))) == 0, (n, kind)
        found = text(path + "-seen")
        assert found in (text(folder + "/before"), text(folder + "/after")), (n, kind, found)
        assert code != 0 or found == text(folder + "/after"), (n, kind)
        shutil.rmtree(path)
    n += 1
print(killed)
"""


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: what a kill leaves is the same there, and syncing takes no time."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as found:
        yield Path(found)


def killed_everywhere(folder: Path, work: str, way: str) -> int:
    """How often a process was killed at its work, each time at another place."""
    root = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", CHILD.format(root=root), str(folder), work, way], capture_output=True,
                          text=True, timeout=280, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("work", WORKS)
def test_a_process_killed_at_any_operation_leaves_all_or_nothing(quick_folder: Path, work: str) -> None:
    least = 2 if work == "branch" else 4  # a branch is one swap of the head
    assert killed_everywhere(quick_folder, work, "operation") >= least, "there were operations to be killed at"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_process_killed_at_any_step_in_a_directory_leaves_all_or_nothing(quick_folder: Path) -> None:
    assert killed_everywhere(quick_folder, "commit", "step") >= 20, "there were steps to be killed at"
