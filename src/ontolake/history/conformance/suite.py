"""The whole suite in one class."""

from __future__ import annotations

import pytest

_TOPICS = ["linear", "branches", "merges", "undo", "bad_input", "machine", "processes", "workload"]
pytest.register_assert_rewrite(*(f"ontolake.history.conformance.{topic}" for topic in _TOPICS))

from ontolake.history.conformance.bad_input import BadInputCases  # noqa: E402
from ontolake.history.conformance.branches import BranchAndTagCases  # noqa: E402
from ontolake.history.conformance.linear import LinearCases  # noqa: E402
from ontolake.history.conformance.machine import MachineCases  # noqa: E402
from ontolake.history.conformance.merges import MergeCases  # noqa: E402
from ontolake.history.conformance.processes import ProcessCases  # noqa: E402
from ontolake.history.conformance.undo import UndoCases  # noqa: E402


class VersioningConformance(
    LinearCases, BranchAndTagCases, MergeCases, UndoCases, BadInputCases, MachineCases, ProcessCases
):  # fmt: skip
    """Subclass it as `Test…` with an `adapter` and a fixture `fresh`; a model is conformant if every test passes."""
