"""Names and types of columns in Spark: batches made to fit to the letter what it expects."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa

_PIECE = 64 << 20
"""A batch has about so many bytes at most, unless one row has more."""


def spark_schema(schema: pa.Schema) -> StructType:
    """The columns as Spark calls them. All may be null."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=False)


def named(name: str) -> Column:
    """The column of exactly this name, whatever is in it: a dot alone would mean a part of a column."""
    return F.col(quoted(name))


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return "`" + name.replace("`", "``") + "`"


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark wants batches to have."""
    return _arrow(schema.json())


@lru_cache(maxsize=256)
def _arrow(text: str) -> pa.Schema:
    import json

    return to_arrow_schema(StructType.fromJson(json.loads(text)), timezone="UTC")


def fitted(batch: pa.RecordBatch, schema: StructType) -> pa.RecordBatch:
    """A batch with exactly the columns of a schema, cast where a user asked for other types."""
    import pyarrow as pa

    wanted = arrow_schema(schema)
    if batch.schema.equals(wanted):
        return batch
    columns = [batch.column(field.name) for field in wanted]
    arrays = [column if column.type == field.type else column.cast(field.type)
              for column, field in zip(columns, wanted, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def in_pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of a batch, no more at a time than Java may take at once: it ends where its memory does."""
    rows = max(1, batch.num_rows * _PIECE // max(_PIECE, batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
