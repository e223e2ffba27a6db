"""These tests need Spark, and many of them a typed store."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")


@pytest.fixture(scope="module")
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both kinds of typed stores, filled once by the `fill` of the module, to be read or copied."""
    folder = tmp_path_factory.mktemp("filled")
    for url in (f"{folder}/shop.db", f"file://{folder}/lake"):
        request.module.fill(url)
    return folder
