"""`reindex`: what can be made anew from the rest, made anew.

Of a typed store on objects: the indices, catalogs and schema files that people and tools read. Of a graph: the indexes
of its tables, each built by a worker; readers see them once the driver has published them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ontolake.spark.jobs.places import file_jobs, need, typed, workers_of
from ontolake.spark.jobs.workers import Workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BY_ITSELF = "SQLite keeps its indexes with every commit"


class Reindexed(NamedTuple):
    """Something that was made anew, and how it stood before."""

    what: str
    state: str


class IndexPart(NamedTuple):
    """Some of the objects that can be made anew."""

    url: str
    keys: frozenset[str]


def reindex(
    url: str, *, spark: SparkSession | Workers | None = None, parts: int | None = None, branch: str = "main"
) -> list[Reindexed]:  # fmt: skip
    """Make anew what differs from what it is made of, and return what that was. No row is touched.

    Raises `JobError` for a store that has no such thing.
    """
    where, kind = need("reindex", url, {"objects": None, "graph": None, "sqlite": _BY_ITSELF, "documents": _BY_ITSELF,
                                        "sql": f"{_BY_ITSELF}; DROP INDEX and CREATE INDEX make one anew"})
    workers = workers_of(spark, parts)
    if kind == "graph":
        from ontolake.spark.jobs.graphs import reindex_graph

        return reindex_graph(where, workers, branch=branch)
    with typed(where) as repository:
        keys = file_jobs(repository).index_keys()
    size = max(1, -(-len(keys) // workers.parts))
    items = [IndexPart(where, frozenset(keys[at : at + size])) for at in range(0, len(keys), size)]
    return [one for found in workers.run(reindex_part, items) for one in found]


def reindex_part(part: IndexPart) -> list[Reindexed]:
    """Make some objects anew where they differ."""
    with typed(part.url, write=True) as repository:
        return [Reindexed(key, state) for key, state in file_jobs(repository).repair_index(part.keys)]
