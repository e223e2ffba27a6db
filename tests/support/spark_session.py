"""The one Spark session of all tests that need one, with settings for few rows."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": 2,
    "spark.sql.adaptive.enabled": "false",  # with few rows, to plan once is enough,
    "spark.sql.codegen.wholeStage": "false",  # and to compile each plan takes longer than to run it
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.authenticate.socketTimeout": "120s",  # on busy machines 15 s go by before one side has answered
    "spark.connect.grpc.binding.address": "127.0.0.1",  # for tests that let others in
    "spark.connect.grpc.binding.port": 0,
}


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    from ontolake.spark import session

    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is not None and request.config.getoption("loadgroup", False):
        # Fails in the second worker that comes here: tests of one group belong to one worker.
        Path(tempfile.gettempdir(), f"ontolake-spark-{run}").touch(exist_ok=False)
    found = session("tests", short_lived=True, settings=SETTINGS)
    yield found
    found.stop()
    if run is not None:
        Path(tempfile.gettempdir(), f"ontolake-spark-{run}").unlink(missing_ok=True)
