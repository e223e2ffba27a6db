"""Spark for every store: a connector, DataFrames, pipelines, and jobs (`ontolake.spark.jobs`).

    spark = ontolake.spark.session()
    ontolake.spark.table(spark, "shop.db", "entity/Customer").groupBy("tier").count().show()

Importing this needs PySpark: `pip install 'ontolake[spark]'`.

`sessions` makes a session, with `quick_start`, `daemon` and `console` behind it. `source` is the connector, with
`options`, `requests` and `filters` of a read, and `streams`; `frames` and `parquet` are the fast way, `types` makes
batches fit. `pipeline/` loads stores from files, `jobs/` is batch work. `errors` and `stream_errors` are what can go
wrong.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ontolake.extras import needs

if TYPE_CHECKING:
    from ontolake.spark.errors import (
        ExpectationError,
        PipelineError,
        SourceError,
        SparkError,
        TooManyRejectedError,
        TooManyVanishedError,
    )
    from ontolake.spark.frames import Catalog, catalog, save, table
    from ontolake.spark.jobs.errors import JobError
    from ontolake.spark.pipeline.declaration import Pipeline
    from ontolake.spark.sessions import register, session
    from ontolake.spark.stream_errors import StreamError

_WHERE = {
    "Catalog": "frames", "catalog": "frames", "save": "frames", "table": "frames", "register": "sessions",
    "session": "sessions", "Pipeline": "pipeline.declaration", "ExpectationError": "errors", "PipelineError": "errors",
    "SourceError": "errors", "SparkError": "errors", "TooManyRejectedError": "errors",
    "TooManyVanishedError": "errors",
    "JobError": "jobs.errors", "StreamError": "stream_errors",
}  # fmt: skip

__all__ = [
    "Catalog",
    "ExpectationError",
    "JobError",
    "Pipeline",
    "PipelineError",
    "SourceError",
    "SparkError",
    "StreamError",
    "TooManyRejectedError",
    "TooManyVanishedError",
    "catalog",
    "register",
    "save",
    "session",
    "table",
]


def __getattr__(name: str) -> Any:
    """Parts are imported when they are asked for: PySpark takes its time."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs("spark", f"{__name__}.{name}"):
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
