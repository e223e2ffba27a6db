"""Shared by all tests: the servers as fixtures, no deadline for property tests on busy machines, short names, one
certificate instead of all that a machine trusts, files in memory, and interrupts that reach the processes that tests
start."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

pytest_plugins = ["ontolake.objects.testing.fixtures", "spark_session"]

# The same examples in every run, so that a failure belongs to the change that brings it. New ones are looked for with
# `make test ARGS="--hypothesis-profile=deep -k machine"`.
settings.register_profile("ontolake", deadline=None, derandomize=True)
settings.register_profile("quick", settings.get_profile("ontolake"), max_examples=25)
# Whether a mutant is noticed, not by which smallest example.
settings.register_profile("mutants", settings.get_profile("quick"), phases=[Phase.explicit, Phase.generate])
settings.register_profile("deep", deadline=None, max_examples=1000)
settings.load_profile("ontolake")

# The servers of tests speak plain HTTP. Still every client reads whom it may trust, and for longer than it asks them.
# npm, which installs one of them, trusts whom Python was told to.
if "SSL_CERT_FILE" in os.environ:
    os.environ.setdefault("NODE_EXTRA_CA_CERTS", os.environ["SSL_CERT_FILE"])
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "support" / "nobody.pem")
os.environ.pop("SSL_CERT_DIR", None)

# Tests sync small files many thousand times, and none can see whether a disk has kept them: they kill processes, no
# machines. With TMPDIR=/tmp, or where memory has no room, they are on disk. pytest keeps the files of the last run;
# what killed processes left elsewhere is in a folder that goes when the run ends.
MEMORY = "/dev/shm"
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 * 2**30:
    os.environ["PYTEST_DEBUG_TEMPROOT"] = MEMORY
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="onto-", dir=MEMORY)
    os.chmod(tempfile.tempdir, 0o755)  # for servers that run as somebody else

    def remove(folder: str, starter: int) -> None:
        """Remove the folder of the run when the process ends that made it, not one that was forked off."""
        if os.getpid() == starter:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove, tempfile.tempdir, os.getpid())

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in a job that runs in the background; processes started from here would never notice an interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Long values are named by their length: names go from process to process, and some would have megabytes."""
    return f"{len(val)} long" if isinstance(val, str | bytes) and len(val) > 80 else None


SLOW_CASES = ("test_killed_at_any_step_a_history_is_whole", "test_two_processes_merge_at_once",
              "test_two_processes_lose_nothing", "test_two_processes_write_and_merge_at_once",
              "test_two_processes_take_the_place_from_each_other", "test_a_writer_overtaken_while_idle_is_refused")


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cases of the published suites have no marks of ours: those that start or kill processes are slow."""
    for item in items:
        if item.name.startswith(SLOW_CASES):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def bytes_read() -> Callable[[Any], int]:
    """Tells how many bytes this process asks the system for to read splits."""
    def so_far() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    def read(splits: Any) -> int:
        before = so_far()
        assert sum(batch.num_rows for split in splits for batch in split.read())
        return so_far() - before

    return read


@pytest.fixture(autouse=True)
def _own_upgraders() -> Iterator[None]:
    """Upgraders that a test declares, or has a command load, are gone when it ends: they count in the whole process."""
    module = sys.modules.get("ontolake.ontology.migration.upgraders")
    before = None if module is None else dict(module._registered)
    yield
    if module is not None and before is not None and module._registered != before:
        module._registered.clear()
        module._registered.update(before)
