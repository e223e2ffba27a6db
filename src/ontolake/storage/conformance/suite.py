"""The whole suite in one class."""

from __future__ import annotations

import pytest

_TOPICS = [
    "crashes", "durability", "concurrency", "order", "snapshots", "records", "fencing", "takeover", "branches",
    "retention", "requests", "histories", "inputs", "damage", "raw",
]  # fmt: skip
pytest.register_assert_rewrite(*(f"ontolake.storage.conformance.{topic}" for topic in _TOPICS))

from ontolake.storage.conformance.branches import Branches  # noqa: E402
from ontolake.storage.conformance.concurrency import Concurrency  # noqa: E402
from ontolake.storage.conformance.damage import Damage  # noqa: E402
from ontolake.storage.conformance.durability import Durability  # noqa: E402
from ontolake.storage.conformance.fencing import Fencing  # noqa: E402
from ontolake.storage.conformance.histories import Histories  # noqa: E402
from ontolake.storage.conformance.inputs import Inputs, Opening  # noqa: E402
from ontolake.storage.conformance.order import Order  # noqa: E402
from ontolake.storage.conformance.raw import RawFile, RawObjects  # noqa: E402
from ontolake.storage.conformance.records import Records  # noqa: E402
from ontolake.storage.conformance.requests import Requests  # noqa: E402
from ontolake.storage.conformance.retention import Retention  # noqa: E402
from ontolake.storage.conformance.snapshots import Snapshots  # noqa: E402
from ontolake.storage.conformance.takeover import Takeover  # noqa: E402

__all__ = ["RawFile", "RawObjects", "StorageConformance"]


class StorageConformance(
    Durability,
    Order,
    Snapshots,
    Records,
    Fencing,
    Takeover,
    Branches,
    Retention,
    Requests,
    Histories,
    Concurrency,
    Damage,
    Inputs,
    Opening,
):
    """Subclass it as `Test…` with a fixture `fresh`; every test must pass for a backend to be conformant."""
