"""What a job finds at a URL, and what it says to a store for which its verb makes no sense."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal, cast

from ontolake import stores
from ontolake.errors import Invalid
from ontolake.spark.jobs.errors import JobError
from ontolake.spark.jobs.workers import PARTS, Here, OnSpark, Workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ontolake.ontology.repository import Repository
    from ontolake.ontology.repository.jobs import FileJobs
    from ontolake.stores import Store

Kind = Literal["objects", "sqlite", "documents", "sql", "graph"]
"""Typed stores on objects and in SQLite, spaces of documents, SQL tables, graphs."""

NAMES: Mapping[Kind, str] = {
    "objects": "a typed store on objects", "sqlite": "a typed store in SQLite", "documents": "a space of documents",
    "sql": "SQL tables", "graph": "a graph",
}  # fmt: skip


def kind(store: Store) -> Kind:
    """What a store is to jobs. Raises `Invalid` if there are no jobs for it."""
    if store.model is None:
        raise Invalid(f"{store.url!r} holds {store.described}, for which there are no jobs",
                      hint="for a space of documents name its own file or prefix; see onto info")
    if store.model.name == "typed":
        return "sqlite" if store.site.in_sqlite else "objects"
    return cast(Kind, store.model.name)


def need(verb: str, url: str, kinds: Mapping[Kind, str | None]) -> tuple[str, Kind]:
    """The URL by which every worker opens the store at `url`, and its kind: one of `kinds`, where it has no hint.

    Raises `JobError` with the hint for another kind, and what `stores.find_shared` raises.
    """
    store = stores.find_shared(url)
    known = kind(store)
    instead = kinds.get(known, "")
    if instead is None:
        return store.site.url, known
    fitting = " and for ".join(NAMES[one] for one, other in kinds.items() if other is None)
    raise JobError(f"{url!r} is {NAMES[known]}, which has nothing to {verb}",
                   hint=f"{verb} is for {fitting}" + (f"; {instead}" if instead else ""))


def workers_of(spark: SparkSession | Workers | None, parts: int | None = None) -> Workers:
    """The workers of a session; this process, if there is none. Whoever has workers of another kind passes them."""
    if isinstance(spark, Workers):
        return spark
    if spark is None:
        return Here(parts or 1)
    return OnSpark(spark, parts or PARTS)


@contextlib.contextmanager
def typed(url: str, *, write: bool = False) -> Iterator[Repository]:
    """The typed store at a URL, which must be there."""
    from ontolake.ontology.parallel.tables import opened

    with opened(url, "main", write=write) as repository:
        yield repository


def file_jobs(repository: Repository) -> FileJobs:
    """The jobs of a store that is known to have its rows in files."""
    assert repository.jobs is not None
    return repository.jobs


__all__ = ["NAMES", "Kind", "file_jobs", "kind", "need", "typed", "workers_of"]
