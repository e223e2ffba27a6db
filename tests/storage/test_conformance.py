"""Every backend against the one suite: a local file, a directory, memory, two S3 servers and one of Azure."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest
from lowered import KNOBS, lower

from ontolake.errors import StorageError
from ontolake.storage import open_storage
from ontolake.storage.conformance import RawFile, RawObjects, StorageConformance
from ontolake.storage.conformance.base import Base
from ontolake.storage.conformance.branches import BranchCases
from ontolake.storage.conformance.concurrency import ConcurrencyCases
from ontolake.storage.conformance.fencing import FencingCases
from ontolake.storage.conformance.histories import HistoryCases
from ontolake.storage.conformance.inputs import OpeningCases
from ontolake.storage.conformance.requests import RequestCases
from ontolake.storage.conformance.retention import RetentionCases
from ontolake.storage.conformance.snapshots import SnapshotCases
from ontolake.storage.conformance.takeover import TakeoverCases

SWEEP = {"maintenance": "inline", "index_every": 3, "gc_grace_ms": 0}
"""Index and compact within the append that made it due, often, and throw away at once what is not needed."""

BUSY = {"index_every": 2}
"""Index in the background after every other append."""


class TestLocalFile(RawFile, StorageConformance):
    """`file:///….db`: everything in one file."""

    sweep_knobs = SWEEP
    busy_knobs = BUSY
    crash_runs = 400
    flips = 600

    @pytest.fixture
    def fresh(self, tmp_path: Path) -> Callable[[], str]:
        numbers = itertools.count()
        return lambda: f"file://{tmp_path}/{next(numbers)}.db"


@pytest.mark.slow
class TestDirectory(RawObjects, StorageConformance):
    """`file:///…`: objects in a directory."""

    sweep_knobs = SWEEP
    busy_knobs = BUSY

    @pytest.fixture
    def fresh(self, tmp_path: Path) -> Callable[[], str]:
        numbers = itertools.count()
        return lambda: f"file://{tmp_path}/{next(numbers)}"


class TestMemory(RawObjects, StorageConformance):
    """`memory://…`: objects that live as long as the process."""

    processes = False
    sweep_knobs = SWEEP
    busy_knobs = BUSY
    flips = 2100

    @pytest.fixture
    def fresh(self) -> Callable[[], str]:
        numbers, name = itertools.count(), secrets.token_hex(6)
        return lambda: f"memory://{name}/{next(numbers)}"


class WithLowThresholds(SnapshotCases, BranchCases, RetentionCases, RequestCases, HistoryCases):
    """What reads and keeps the past, where a few records make several parts, runs and layers."""

    sweep_knobs = KNOBS
    busy_knobs = KNOBS

    @pytest.fixture(autouse=True)
    def low(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lower(monkeypatch, "storage")


@pytest.mark.slow
class TestLocalFileWithLowThresholds(WithLowThresholds):
    """`file:///….db`."""

    @pytest.fixture
    def fresh(self, tmp_path: Path) -> Callable[[], str]:
        numbers = itertools.count()
        return lambda: f"file://{tmp_path}/{next(numbers)}.db"


@pytest.mark.slow
class TestMemoryWithLowThresholds(WithLowThresholds):
    """`memory://…`."""

    processes = False

    @pytest.fixture
    def fresh(self) -> Callable[[], str]:
        numbers, name = itertools.count(), secrets.token_hex(6)
        return lambda: f"memory://{name}/{next(numbers)}"


class Refusals(Base):
    """What servers refuse is said."""

    scheme = "s3"
    credentials: tuple[str, ...] = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")

    def test_a_bucket_that_does_not_exist_is_named(self, where: str) -> None:
        with pytest.raises(StorageError) as refused:
            open_storage(f"{self.scheme}://no-such-bucket-here/prefix")
        assert "no-such-bucket-here" in str(refused.value)

    def test_missing_credentials_are_named(self, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in self.credentials:
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(StorageError) as refused:
            open_storage(where)
        assert self.credentials[0] in str(refused.value)


@pytest.mark.slow
class TestSeaweed(Refusals, RawObjects, StorageConformance):
    """`s3://…` on SeaweedFS: every request counts, so checks read less."""

    sweep_knobs = SWEEP
    busy_knobs = BUSY
    reads = 3
    crash_steps = 10
    recovery_runs = 8
    history_examples = 10
    flips = 60
    batches_per_thread = 6
    batches_per_process = 10
    busy_batches = 45
    racers = 3

    @pytest.fixture
    def fresh(self, seaweed_url: str) -> Callable[[], str]:
        numbers = itertools.count()
        return lambda: f"{seaweed_url}/{next(numbers)}"


@pytest.mark.slow
class TestMinistack(Refusals, FencingCases, TakeoverCases, ConcurrencyCases, SnapshotCases, BranchCases, RetentionCases,
                    RequestCases):  # fmt: skip
    """`s3://…` on ministack, another server: what rests on conditional writes, on listing and on removing."""

    sweep_knobs = SWEEP
    busy_knobs = BUSY
    reads = 3
    batches_per_thread = 6
    batches_per_process = 10
    busy_batches = 45

    @pytest.fixture
    def fresh(self, ministack_url: str) -> Callable[[], str]:
        numbers = itertools.count()
        return lambda: f"{ministack_url}/{next(numbers)}"


@pytest.mark.slow
class TestAzurite(Refusals, RawObjects, FencingCases, TakeoverCases, SnapshotCases, RequestCases, OpeningCases):
    """`az://…` on Azurite: what rests on conditional writes and on reading. `onto storage conformance` has the rest."""

    sweep_knobs = SWEEP
    busy_knobs = BUSY
    reads = 3
    racers = 3
    flips = 20
    scheme = "az"
    credentials = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN")

    @pytest.fixture
    def fresh(self, azurite_url: str) -> Callable[[], str]:
        numbers = itertools.count()
        return lambda: f"{azurite_url}/{next(numbers)}"
