"""The whole suite in one class."""

from __future__ import annotations

import pytest

_TOPICS = [
    "crashes", "durability", "concurrency", "order", "snapshots", "records", "fencing", "takeover", "branches",
    "retention", "requests", "histories", "inputs", "damage", "raw",
]  # fmt: skip
pytest.register_assert_rewrite(*(f"ontolake.storage.conformance.{topic}" for topic in _TOPICS))

from ontolake.storage.conformance.branches import BranchCases  # noqa: E402
from ontolake.storage.conformance.concurrency import ConcurrencyCases  # noqa: E402
from ontolake.storage.conformance.damage import DamageCases  # noqa: E402
from ontolake.storage.conformance.durability import DurabilityCases  # noqa: E402
from ontolake.storage.conformance.fencing import FencingCases  # noqa: E402
from ontolake.storage.conformance.histories import HistoryCases  # noqa: E402
from ontolake.storage.conformance.inputs import InputCases, OpeningCases  # noqa: E402
from ontolake.storage.conformance.order import OrderCases  # noqa: E402
from ontolake.storage.conformance.raw import RawFile, RawObjects  # noqa: E402
from ontolake.storage.conformance.records import RecordCases  # noqa: E402
from ontolake.storage.conformance.requests import RequestCases  # noqa: E402
from ontolake.storage.conformance.retention import RetentionCases  # noqa: E402
from ontolake.storage.conformance.snapshots import SnapshotCases  # noqa: E402
from ontolake.storage.conformance.takeover import TakeoverCases  # noqa: E402

__all__ = ["RawFile", "RawObjects", "StorageConformance"]


class StorageConformance(
    DurabilityCases,
    OrderCases,
    SnapshotCases,
    RecordCases,
    FencingCases,
    TakeoverCases,
    BranchCases,
    RetentionCases,
    RequestCases,
    HistoryCases,
    ConcurrencyCases,
    DamageCases,
    InputCases,
    OpeningCases,
):
    """Subclass it as `Test…` with a fixture `fresh`; every test must pass for a backend to be conformant."""
