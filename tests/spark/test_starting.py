"""What `session` sets lets rows go between Spark and Python in few, big steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_python_gets_as_many_rows_at_a_time_as_spark_reads_whatever_their_size(spark: SparkSession) -> None:
    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"rows": [batch.num_rows for batch in batches]})

    wide = spark.range(0, 5000, 1, 1).selectExpr("repeat('x', 20000) AS text")  # more than Spark's own 64 MB
    assert [row.rows for row in wide.mapInArrow(counted, "rows bigint").collect()] == [4096, 904]
    assert spark.conf.get("spark.sql.parquet.columnarReaderBatchSize") == "4096"
