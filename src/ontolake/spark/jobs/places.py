"""What a job finds at a URL, and what it says to a store for which its verb makes no sense."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal, cast

from ontolake import urls
from ontolake.errors import Invalid
from ontolake.parallel import absolute, holds_graph
from ontolake.spark.jobs.errors import JobError
from ontolake.spark.jobs.workers import PARTS, Here, OnSpark, Workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ontolake.ontology.repository import Repository
    from ontolake.ontology.repository.s3.base import S3Repository

Kind = Literal["objects", "sqlite", "documents", "sql", "graph"]
"""Typed stores on objects and in SQLite, spaces of documents, SQL tables, graphs."""

NAMES: Mapping[Kind, str] = {
    "objects": "a typed store on objects", "sqlite": "a typed store in SQLite", "documents": "a space of documents",
    "sql": "SQL tables", "graph": "a graph",
}  # fmt: skip


def kind_of(url: str) -> tuple[str, Kind]:
    """The URL by which every worker opens what is at `url`, and what it is. Raises `NotFound`, `Invalid`."""
    from ontolake.cli.kinds import exact_url, find_store

    location = urls.parse(url)
    if location.place is urls.Place.MEMORY or url == ":memory:":
        raise Invalid(f"{url!r} is in the memory of one process, where no worker can read it",
                      hint="use a file, a directory or a bucket")
    where = absolute(url)
    if holds_graph(where):
        return where, "graph"
    store = find_store(where)
    name = store.model.name if store.model is not None else None
    if name == "typed":
        return exact_url(store.found), "objects" if store.found.stamp.kind == "typed" else "sqlite"
    if name in ("documents", "sql"):
        return exact_url(store.found), cast(Kind, name)
    raise Invalid(f"{url!r} holds {store.described}, for which there are no jobs",
                  hint="for a space of documents name its own file or prefix; see onto info")


def need(verb: str, url: str, kinds: Mapping[Kind, str | None]) -> tuple[str, Kind]:
    """`kind_of` where a verb is only for some kinds: `kinds` has those, and for others what to do instead.

    Raises `JobError` for one that is not among them.
    """
    where, kind = kind_of(url)
    instead = kinds.get(kind, "")
    if instead is None:
        return where, kind
    fitting = " and for ".join(NAMES[one] for one, other in kinds.items() if other is None)
    raise JobError(f"{url!r} is {NAMES[kind]}, which has nothing to {verb}",
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
    from ontolake.ontology.parallel import opened

    with opened(url, "main", write=write) as repository:
        yield repository


@contextlib.contextmanager
def on_objects(url: str, *, write: bool = False) -> Iterator[S3Repository]:
    """The same where it is known to be on objects."""
    with typed(url, write=write) as repository:
        yield cast("S3Repository", repository)


__all__ = ["NAMES", "Kind", "kind_of", "need", "on_objects", "typed", "workers_of"]
