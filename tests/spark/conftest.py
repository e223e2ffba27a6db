"""These tests need Spark."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")
