"""The same on a file: an oracle that saves its model passes under real kills, one that saves it wrongly does not."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pickle
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ontolake import faults
from ontolake.errors import Corruption, Invalid
from ontolake.storage.conformance import StorageConformance
from ontolake.storage.conformance.oracle import Oracle, OracleState
from ontolake.storage.conformance.run import run_class
from ontolake.storage.options import StorageOptions
from ontolake.storage.protocol import Storage
from ontolake.storage.types import MAIN


class FileLock:
    """Held by one process at a time; whoever gets it sees the model as it was last saved."""

    def __init__(self, oracle: FileOracle) -> None:
        self._oracle = oracle
        self._thread = threading.RLock()
        self._depth = 0
        self._fd = -1

    def __enter__(self) -> None:
        self._thread.acquire()
        self._depth += 1
        if self._depth == 1:
            self._fd = os.open(self._oracle.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                self._oracle.load()
            except BaseException:
                self.__exit__()
                raise

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            os.close(self._fd)
        self._thread.release()


class FileOracle(Oracle):
    """The oracle with its model in a file, replaced as a whole at every change."""

    def __init__(self, path: Path, page_size: int, lease_ms: float) -> None:
        self.path = path
        super().__init__(OracleState(page_size), FileLock(self), lease_ms=lease_ms)
        with self.lock:
            if self.model.page_size != page_size:
                raise Invalid(f"{path} has pages of {self.model.page_size} bytes, not {page_size}")
            if not path.exists():
                self.save("create")

    def load(self) -> None:
        if self.path.exists():
            data = self.path.read_bytes()
            if hashlib.sha256(data[32:]).digest() != data[:32]:
                raise Corruption(f"{self.path} does not match its checksum")
            self.model = pickle.loads(data[32:])

    def save(self, step: str) -> None:
        data = pickle.dumps(self.model)
        draft = self.path.with_suffix(".draft")
        with draft.open("wb") as file:
            faults.reach(f"{step}: not yet written")
            file.write(hashlib.sha256(data).digest() + data)
            file.flush()
            os.fsync(file.fileno())
        faults.reach(f"{step}: written, not in place")
        draft.rename(self.path)

    def saved(self, step: str) -> None:
        self.save(step)
        super().saved(step)


class OnFileOracle(StorageConformance):
    """The suite on an oracle in a file, with real processes."""

    oracle: ClassVar[type[FileOracle]] = FileOracle

    @pytest.fixture
    def fresh(self, tmp_path: Path) -> Callable[[], str]:
        return lambda: f"oracle://{tmp_path}/{secrets.token_hex(8)}"

    @classmethod
    def open(cls, where: str, *, page_size: int = 4096, **knobs: Any) -> Storage:
        path = where.removeprefix("oracle://")
        if path == where or not path:
            raise Invalid(f"{where!r} is no place for an oracle")
        if not isinstance(page_size, int) or page_size < 512 or page_size & (page_size - 1):
            raise Invalid(f"{page_size!r} is no page size")
        return cls.oracle(Path(path), page_size, StorageOptions.of(knobs).fence_lease_ms)

    @classmethod
    def raw_blobs(cls, where: str) -> Mapping[str, bytes] | None:
        return {"": Path(where.removeprefix("oracle://")).read_bytes()}

    @classmethod
    def raw_write(cls, where: str, blobs: Mapping[str, bytes]) -> None:
        Path(where.removeprefix("oracle://")).write_bytes(blobs[""])


@pytest.mark.slow
class TestFileOracle(OnFileOracle):
    """So does one on a file, under real kills; fewer than of a backend, which are the same tests."""

    crash_runs = 64
    history_examples = 10


# Ways to be wrong


class Lazy(FileOracle):
    """Acknowledges before it is durable: an append is saved with the next change."""

    def save(self, step: str) -> None:
        if step != "append":
            super().save(step)

    def load(self) -> None:
        if self.model.lsn == 0:
            super().load()


class Torn(FileOracle):
    """Saves the records of a batch one by one."""

    def saved(self, step: str) -> None:
        own = self.model.branches[MAIN].own
        if step == "append" and own and own[-1][0] == self.model.lsn:
            last = own.pop()
            self.model.lsn -= 1
            super().saved(step)
            own.append(last)
            self.model.lsn += 1
        super().saved(step)


class Unchecked(FileOracle):
    """Has no checksum."""

    def load(self) -> None:
        if self.path.exists():
            self.model = pickle.loads(self.path.read_bytes()[32:])


class BrokenLazy(OnFileOracle):
    oracle = Lazy


class BrokenTorn(OnFileOracle):
    oracle = Torn


class BrokenUnchecked(OnFileOracle):
    oracle = Unchecked


CAUGHT_BY: dict[type[OnFileOracle], Sequence[str]] = {
    BrokenLazy: ["test_killed_at_every_write_step[1]", "test_killed_at_any_moment", "test_acknowledged_records_are"],
    BrokenTorn: ["test_killed_at_every_write_step[1]", "test_killed_at_every_write_step[4]"],
    BrokenUnchecked: ["test_one_flipped_byte_anywhere", "test_a_flipped_byte_in_a_live_record_is_corruption"],
}


@pytest.mark.slow
@pytest.mark.parametrize("suite", CAUGHT_BY, ids=lambda suite: suite.oracle.__name__)
def test_a_broken_oracle_is_caught(suite: type[OnFileOracle]) -> None:
    expected = CAUGHT_BY[suite]
    results = run_class(suite, only=" or ".join(expected))
    for test in expected:
        outcomes = [result.outcome for result in results if result.test.startswith(test)]
        assert "failed" in outcomes, f"{test} does not notice: {results}"
