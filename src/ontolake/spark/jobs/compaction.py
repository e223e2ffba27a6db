"""`compact`: fewer, bigger files. The rows that reads give stay the same, and others go on reading and writing.

Of a typed store on objects, workers merge ranges of keys of all files of a type; of a graph, each rewrites some
fragments of Lance. The driver then puts the new files in the place of the old ones by one step of the store itself.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ontolake.errors import Invalid
from ontolake.ontology.repository.jobs import ROWS as ROWS
from ontolake.ontology.repository.jobs import Compaction
from ontolake.spark.jobs.places import file_jobs, need, typed, workers_of
from ontolake.spark.jobs.workers import Workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_IN_SQLITE = "a store in SQLite has no files to merge, and onto gc gives room back"


def compact(
    url: str, *, spark: SparkSession | Workers | None = None, types: Collection[str] | None = None,
    dry_run: bool = False, parts: int | None = None, rows_per_file: int = ROWS, branch: str = "main",
) -> list[Compaction]:  # fmt: skip
    """Merge the files of types, or of the tables of a graph, and return what was done, or would be, for each.

    Files have about `rows_per_file` rows, or fewer if there are more workers than files. Raises `JobError` for a store
    that has no files to merge, `QueryError` for a type that is not there, `Conflict` if somebody else merged the same
    files meanwhile.
    """
    where, kind = need("compact", url, {"objects": None, "graph": None, "sqlite": _IN_SQLITE, "documents": _IN_SQLITE,
                                        "sql": _IN_SQLITE})
    workers = workers_of(spark, parts)
    if rows_per_file < 1:
        raise Invalid(f"a file has 1 row or more, not {rows_per_file!r}")
    if kind == "graph":
        from ontolake.spark.jobs.graphs import compact_graph

        return compact_graph(where, workers, types=types, dry_run=dry_run, branch=branch)
    with typed(where, write=not dry_run) as repository:
        return file_jobs(repository).compact(workers, types=types, dry_run=dry_run, rows_per_file=rows_per_file)
