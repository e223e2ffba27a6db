"""Where the rows of sources were, in columns beside their own."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ontolake.spark.types import named

FILE, BLOCK, AT, LINE, RAW, MALFORMED = "_file", "_block", "_at", "_line", "_raw", "_malformed"
OURS = (FILE, BLOCK, AT, LINE, RAW, MALFORMED)


def file_and_block() -> tuple[Column, Column]:
    """The file of a row, and which part of it was read, as Spark's readers know them."""
    return F.col("_metadata.file_path").alias(FILE), F.col("_metadata.file_block_start").alias(BLOCK)


def placed(found: DataFrame) -> DataFrame:
    """Rows of Parquet, which knows where each row is."""
    return _with(found, *file_and_block(), (F.col("_metadata.row_index") + 1).alias(LINE))


def unplaced(found: DataFrame, file: Column | None = None, malformed: str | None = None) -> DataFrame:
    """Rows of which nobody knows where they were, or no more than the file. `malformed` is a column with what they look
    like if they are not what they should be."""
    return _with(found, (F.lit(None).cast("string") if file is None else file).alias(FILE),
                 F.lit(0).cast("bigint").alias(BLOCK), F.lit(None).cast("bigint").alias(LINE), malformed)


def _with(found: DataFrame, file: Column, block: Column, line: Column, malformed: str | None = None) -> DataFrame:
    own = [named(name) for name in found.columns if name != malformed]
    raw, wrong = _whole(own), F.lit(None).cast("string")
    if malformed is not None:
        raw = F.coalesce(F.col(malformed), raw)
        wrong = F.when(F.col(malformed).isNotNull(), F.lit(f"the row does not have the {len(own)} columns"))
    return found.select(*own, file, block, F.monotonically_increasing_id().alias(AT), line, raw.alias(RAW),
                        wrong.alias(MALFORMED))


def _whole(columns: Sequence[Column]) -> Column:
    return F.to_json(F.struct(*columns))
