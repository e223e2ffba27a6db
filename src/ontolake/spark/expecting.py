"""What a run finds in a store, what the store will have after it, and whether that is as expected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ontolake import urls
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.versioned import table_of
from ontolake.parallel import Fragment, Parallel, View
from ontolake.spark.auditing import holds_graph
from ontolake.spark.errors import ExpectationError, PipelineError
from ontolake.spark.frames import frame, staged_frame
from ontolake.spark.pipeline import Expectation, Pipeline
from ontolake.spark.report import Report
from ontolake.spark.sources import first_line


class Tables:
    """The tables of a store at the commit that a run has read, and as they will be with what it has staged.

    What Python has to read is read once and kept if it is asked about again; `release` lets go of it.
    """

    def __init__(
        self, spark: SparkSession, store: Parallel | None, view: View, branch: str | None, *, again: bool
    ) -> None:  # fmt: skip
        self.spark = spark
        self._store = store
        self._view = view
        self._branch = branch
        self._graph = holds_graph(store)
        self._again = again and store is not None and (
            self._graph or urls.parse(store.url).place is not urls.Place.DIRECTORY)
        self._latest: dict[str, DataFrame | None] = {}
        self._kept: list[DataFrame] = []

    def name(self, info: TypeInfo) -> str:
        """What the store calls the table of a type."""
        if not self._graph:
            return table_of(info)
        return f"{'node' if info.kind == 'entity' else 'edge'}/{info.name}"

    def latest(self, info: TypeInfo) -> DataFrame | None:
        """The rows of a type as they are now; None if there are none yet."""
        table = self.name(info)
        if table not in self._latest:
            store, view = self._store, self._view
            some = store is not None and view.commit and store.splits(table, view, parts=1)
            found = frame(self.spark, store, table, view, branch=self._branch) if store is not None and some else None
            self._latest[table] = None if found is None else self._once(found)
        return self._latest[table]

    def after(self, info: TypeInfo, fragments: Sequence[Fragment]) -> DataFrame | None:
        """The rows of a type as they will be; None if there are none."""
        latest = self.latest(info)
        names = [f"`{column.stored}`" for column in info.all_columns]
        if not fragments:
            return None if latest is None else latest.select(*names)
        new = self.staged(fragments).select(*names)
        if latest is None:
            return new
        keys = [column.stored for column in info.keys]
        return latest.select(*names).join(new.select(*[f"`{key}`" for key in keys]), keys, "left_anti").select(
            *names).unionByName(new)

    def staged(self, fragments: Sequence[Fragment]) -> DataFrame:
        table = f"staged {fragments[0].table}"
        found = self._latest.get(table)
        if found is None:
            found = self._latest[table] = self._once(staged_frame(self.spark, fragments))
        return found

    def _once(self, found: DataFrame) -> DataFrame:
        if self._again:
            found = found.persist(StorageLevel.MEMORY_AND_DISK)
            self._kept.append(found)
        return found

    def release(self) -> None:
        for one in self._kept:
            one.unpersist()
        self._kept.clear()
        self._latest.clear()


def expect(pipeline: Pipeline, tables: Tables, fragments: Mapping[str, Sequence[Fragment]], report: Report) -> None:
    """See whether all that is expected of the state after a run holds. Raises `ExpectationError` with all that fails.

    Relations that are new need both their ends, whether or not that is asked for.
    """
    relations = [target.info for target in pipeline.targets if target.info.kind == "relation"
                 and fragments.get(tables.name(target.info))]
    if not relations and not pipeline.expectations:
        return
    views: dict[str, DataFrame] = {}
    for info in map(type_info, pipeline.types):
        found = tables.after(info, fragments.get(tables.name(info), ()))
        if found is not None:
            views[table_of(info)] = found
            found.createOrReplaceTempView(f"`{info.name}`")
    failed: list[str] = []
    for info in relations:
        failed += _endpoints(info, tables.staged(fragments[tables.name(info)]), views, report)
    for one in pipeline.expectations:
        failed += _held(one, tables.spark, views, report)
    if failed:
        raise ExpectationError(failed)


def _endpoints(info: TypeInfo, new: DataFrame, views: Mapping[str, DataFrame], report: Report) -> Iterator[str]:
    for side, end in (("left", info.left), ("right", info.right)):
        of, key = type_info(end), info.keys[0 if side == "left" else 1].stored
        known = views.get(table_of(of))
        wanted = new.select(F.col(f"`{key}`").alias("key"))
        if known is not None:
            wanted = wanted.join(known.select(F.col(f"`{of.keys[0].stored}`").alias("key")), "key", "left_anti")
        missing = [row.key for row in wanted.distinct().limit(4).collect()]
        name = f"the {side} ends of {info.name} exist"
        found = "" if not missing else f"there is no {of.name} {', '.join(map(repr, missing[:3]))}"
        report.expectations.append({"name": name, "ok": not missing, "found": found})
        if missing:
            yield f"{name}: {found}{' and more' if len(missing) > 3 else ''}"


def _held(one: Expectation, spark: SparkSession, views: Mapping[str, DataFrame], report: Report) -> Iterator[str]:
    if one.table is not None:
        count = views[one.table].count() if one.table in views else 0
        ok = (one.at_least is None or count >= one.at_least) and (one.at_most is None or count <= one.at_most)
        found = f"{count:,} rows"
    else:
        try:
            rows = spark.sql(str(one.sql)).limit(4).collect()
        except AnalysisException as error:
            raise PipelineError(f"the expectation {one.name!r} is not a query over the types: "
                                f"{first_line(error)}") from None
        ok, found = not rows, "; ".join(str(row.asDict()) for row in rows[:3])
    report.expectations.append({"name": one.name, "ok": ok, "found": found})
    if not ok:
        yield f"{one.name}: {found}"
