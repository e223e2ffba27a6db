"""Rejected rows: where they were in their files, and the Parquet file beside the store that keeps them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ontolake.parallel import beside
from ontolake.spark.pipeline.checks import PROBLEM
from ontolake.spark.pipeline.places import AT, BLOCK, FILE, LINE, RAW, file_and_block
from ontolake.spark.pipeline.reasons import counted, shown
from ontolake.spark.pipeline.report import work_store
from ontolake.spark.pipeline.sources import Source

if TYPE_CHECKING:
    import pyarrow as pa

KEPT = 1_000_000
"""So many rejected rows of a table are kept at most; all of them are counted."""
_IN_PARTITION = (1 << 33) - 1
"""The bits of `AT` that count the rows of a partition; those above number the partition."""


def rejected(
    found: pa.Table, table: str, source: Source, path: str | None, files: Sequence[str], spark: SparkSession
) -> pa.Table:  # fmt: skip
    """Rows with a problem and their places as they are kept, in the order of their files and lines."""
    import pyarrow as pa

    if source.is_lines and path is not None and len(found):
        found = _with_lines(found, spark, path, files, source.options)
    count = len(found)
    kept = pa.table({
        "source": pa.array([source.name] * count, pa.string()), "table": pa.array([table] * count, pa.string()),
        "file": found[FILE].cast(pa.string()), "line": found[LINE].cast(pa.int64()),
        "reason": shown(found[PROBLEM].cast(pa.string())), "raw": found[RAW].cast(pa.string()), "at": found[AT]})
    return kept.sort_by([("file", "ascending"), ("line", "ascending"), ("at", "ascending")]).drop_columns(["at"])


def reasons(found: pa.Table, count: int) -> dict[str, int]:
    """How many of the rejected rows of a table have each reason. `count` is how many there are, kept or not."""
    import pyarrow as pa

    told = counted(found[PROBLEM].cast(pa.string()))
    return told | ({f"not looked into: {KEPT:,} rows of a table are": count - len(found)} if count > len(found) else {})


def _with_lines(
    rows: pa.Table, spark: SparkSession, path: str, files: Sequence[str], options: Mapping[str, str]
) -> pa.Table:  # fmt: skip
    """Fill in on which line of its file each row is.

    Rows in the first block of the only file know it by themselves; others cost one count of the lines.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    at = rows[AT]
    if len(files) == 1 and pc.max(rows[BLOCK]).as_py() == 0:
        line = pc.add(pc.bit_wise_and(at, pa.scalar(_IN_PARTITION, pa.int64())), 1)
    else:
        place = {"file": rows[FILE].cast(pa.string()), "block": rows[BLOCK], "at": at,
                 "row": pa.array(range(len(rows)), pa.int64())}
        blocks = _blocks(spark, path, options)
        found = pa.table(place).join(blocks, ["file", "block"], join_type="left outer").sort_by("row")
        line = pc.add(pc.add(found["at"], found["shift"]), 1)
    return rows.set_column(rows.column_names.index(LINE), LINE, pc.coalesce(rows[LINE], line))


def _blocks(spark: SparkSession, path: str, options: Mapping[str, str]) -> pa.Table:
    """For each block of each file, what has to be added to `AT` to know how many lines are in front."""
    import pyarrow as pa

    lines = spark.read.options(**options).text(path)
    lines = lines.select(*file_and_block(), F.monotonically_increasing_id().alias(AT))
    blocks = lines.groupBy(FILE, BLOCK).agg(F.min(AT).alias("first"), F.count("*").alias("lines")).collect()
    done: dict[str, int] = {}
    found: list[dict[str, Any]] = []
    for block in sorted(blocks, key=lambda one: (one[FILE], one[BLOCK])):
        before = done.get(block[FILE], 0)
        found.append({"file": block[FILE], "block": block[BLOCK], "shift": before - block["first"]})
        done[block[FILE]] = before + block["lines"]
    return pa.Table.from_pylist(found, pa.schema([("file", pa.string()), ("block", pa.int64()),
                                                  ("shift", pa.int64())]))


def keep(url: str, run: str, rows: Sequence[pa.Table]) -> str:
    """Store rejected rows beside a store. Returns where."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(pa.concat_tables(rows), sink)
    with work_store(url) as store:
        store.put(f"{run}/quarantine.parquet", sink.getvalue())
    return f"{beside(url).removeprefix('file://')}/{run}/quarantine.parquet"
