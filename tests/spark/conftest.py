"""One Spark session for all of these tests, and stores of every layout to read with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from ontolake.spark import session

    found = session("tests", short_lived=True, settings={"spark.sql.shuffle.partitions": 2,
                                                         "spark.driver.memory": "2g"})
    yield found
    found.stop()
