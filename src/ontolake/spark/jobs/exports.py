"""`export`: the tables of any store at one commit as Parquet files, written by workers, a split each.

    entity/Customer/part-00000-1f2e3d4c-5b6a7988.parquet …, export.json

`export.json` is written last and names every file: an export without it was not finished.
"""

from __future__ import annotations

import contextlib
import io
import json
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ontolake import urls
from ontolake.errors import AlreadyExists, Invalid, NotFound
from ontolake.faults import reach
from ontolake.parallel import Split, absolute, open_parallel
from ontolake.spark.jobs.places import workers_of
from ontolake.spark.jobs.workers import Workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUMMARY = "export.json"


class ExportedTable(NamedTuple):
    """A table that was exported: its rows, and its files with the rows of each."""

    rows: int
    files: dict[str, int]


class Exported(NamedTuple):
    """What was exported, as of which commit."""

    commit: Any
    tables: dict[str, ExportedTable]


def export(
    url: str, target: str, *, spark: SparkSession | Workers | None = None, tables: Collection[str] | None = None,
    as_of: Any = None, branch: str | None = None, parts: int | None = None,
) -> Exported:  # fmt: skip
    """Write tables, all unless some are named, into a new directory or prefix, all of one moment.

    A table of a typed store or a graph may be named by its type alone. Raises `NotFound` for a table or commit that is
    not there, `AlreadyExists` if the place has anything in it.
    """
    place, job = _place(target), secrets.token_hex(4)
    workers = workers_of(spark, parts)
    with open_parallel(url, branch=branch) as store:
        chosen = store.tables() if tables is None else _chosen(tables, store.tables(), url)
        view = store.view(as_of=as_of)
        items = [ExportPart(place, job, name, number, split) for name in chosen for number, split in enumerate(
            store.splits(name, view, parts=max(workers.parts, 1)))]
    _claim(place, url)
    written = [one for one in workers.run(write_part, items) if one is not None]
    reach("spark: export written")
    found = {name: ExportedTable(sum(one.rows for one in written if one.table == name),
                                 {one.key: one.rows for one in written if one.table == name}) for name in chosen}
    _finish(place, job, url, view.commit, found)
    return Exported(view.commit, found)


def _chosen(asked: Collection[str], known: Sequence[str], url: str) -> list[str]:
    """Tables by their names, or by those of their types: `Book` is `entity/Book`, if there is but one."""
    chosen = []
    for name in asked:
        alike = [one for one in known if name == one] or [one for one in known if one.rpartition("/")[2] == name]
        if len(alike) != 1:
            what = f"{name!r} could be {' or '.join(alike)}" if alike else f"there is no table {name!r}"
            raise NotFound(f"{what} in {url!r}", hint=f"there are {', '.join(known) or 'none'}")
        chosen += alike
    return [name for name in known if name in chosen]


def _place(target: str) -> str:
    """Where files go, the same for every worker."""
    location = urls.parse(target if "://" in target or target.endswith("/") else f"{target}/")
    if location.seam or location.place not in (urls.Place.DIRECTORY, urls.Place.BUCKET):
        raise Invalid(f"an export goes into a directory or a bucket, and {target!r} is neither",
                      hint="name a new directory, or s3://bucket/prefix")
    return absolute(location.url)


def _claim(place: str, url: str) -> None:
    from ontolake.objects import open_store

    with contextlib.closing(open_store(place)) as store:
        there = next(iter(store.list()), None)
        if there is not None:
            raise AlreadyExists(f"there is something at {place!r} already, such as {there.key!r}",
                                hint="name a new or empty place")


def _finish(place: str, job: str, url: str, commit: Any, tables: dict[str, ExportedTable]) -> None:
    """Remove what tasks of this job left that were done twice, and say what is there."""
    from ontolake.objects import open_store

    wanted = {key for one in tables.values() for key in one.files}
    with contextlib.closing(open_store(place)) as store:
        extra = [info.key for info in store.list() if info.key not in wanted and f"-{job}-" in info.key]
        if extra:
            store.delete(extra)
        told = {"source": url, "commit": commit, "tables": {name: one._asdict() for name, one in tables.items()}}
        store.put(SUMMARY, (json.dumps(told, indent=1, ensure_ascii=False) + "\n").encode())


@dataclass(frozen=True)
class ExportPart:
    """A split on its way to a file."""

    place: str
    job: str
    table: str
    number: int
    split: Split


class Written(NamedTuple):
    """A file that was written."""

    table: str
    key: str
    rows: int


def write_part(part: ExportPart) -> Written | None:
    """Write the rows of a split as one file; None if there are none."""
    import pyarrow.parquet as pq

    from ontolake.objects import open_store

    sink, rows = io.BytesIO(), 0
    writer: Any = None
    for batch in part.split.read():
        if batch.num_rows:
            writer = writer or pq.ParquetWriter(sink, batch.schema, compression="zstd")
            writer.write_batch(batch)
            rows += batch.num_rows
    if writer is None:
        return None
    writer.close()
    key = f"{part.table}/part-{part.number:05}-{part.job}-{secrets.token_hex(4)}.parquet"
    with contextlib.closing(open_store(part.place)) as store:
        store.put(key, sink.getvalue())
    return Written(part.table, key, rows)


__all__ = ["SUMMARY", "Exported", "ExportedTable", "export"]
