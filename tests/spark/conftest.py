"""One Spark session for all of these tests, and stores of every layout to read with it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    from ontolake.spark import session

    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is not None and request.config.getoption("loadgroup", False):
        # Fails in the second worker that comes here: tests of one group belong to one worker.
        Path(tempfile.gettempdir(), f"ontolake-spark-{run}").touch(exist_ok=False)
    found = session("tests", short_lived=True, settings={"spark.sql.shuffle.partitions": 2,
                                                         "spark.driver.memory": "2g"})
    yield found
    found.stop()
    if run is not None:
        Path(tempfile.gettempdir(), f"ontolake-spark-{run}").unlink(missing_ok=True)
