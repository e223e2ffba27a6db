"""One run of a pipeline: read, validate, quarantine, reconcile, stage, expect, publish once.

Nothing is visible before the publish. A run that is killed leaves staged files beside the store, which `clean` removes,
and can be repeated: what it had published, it finds unchanged.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ontolake.errors import Conflict, NotFound
from ontolake.faults import reach
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.versioned import table_of
from ontolake.parallel import Fragment, Parallel, Published, View, beside, discard, new_job, open_parallel
from ontolake.spark import report as reports
from ontolake.spark.errors import ExpectationError, PipelineError, SourceError, TooManyRejectedError
from ontolake.spark.frames import frame, stage_frame, staged_frame
from ontolake.spark.pipeline import Expectation, Pipeline, Target
from ontolake.spark.report import Report, TableReport
from ontolake.spark.sources import AT, BLOCK, FILE, LINE, MALFORMED, OURS, RAW, with_lines
from ontolake.spark.starting import session
from ontolake.spark.validation import field_of, same

if TYPE_CHECKING:
    import pyarrow as pa

Progress = Callable[[str, int, "int | None"], None]
PROBLEM, STATE = "_problem", "_state"
KEPT = 100_000
"""So many rejected rows are kept at most; all of them are counted."""
_TRIES = 3


class Loaded(NamedTuple):
    """The rows for a table: typed and good, and what is to be told of them."""

    target: Target
    good: DataFrame
    told: TableReport


class Run:
    """A run of a pipeline on a store."""

    def __init__(
        self, pipeline: Pipeline, url: str, *, branch: str | None, dry_run: bool,
        parameters: Mapping[str, str] | None, progress: Progress | None,
    ) -> None:  # fmt: skip
        if not pipeline.targets:
            raise PipelineError(f"the pipeline {pipeline.name!r} loads nothing", hint="call pipeline.load(…)")
        beside(url)  # refuses places where nothing can be staged
        self.pipeline = pipeline
        self.url = url
        self.branch = branch
        self.dry_run = dry_run
        self.parameters = {**pipeline.parameters, **(parameters or {})}
        self._progress = progress or (lambda step, done, total: None)
        self._kept: list[DataFrame] = []
        self.report = Report(new_job(), pipeline.name, url, branch, reports.now())

    def go(self, spark: SparkSession | None = None) -> Report:
        began = time.perf_counter()
        try:
            self.spark = spark or session(self.pipeline.name)
            for attempt in range(_TRIES):
                try:
                    self._once()
                    break
                except Conflict:
                    if attempt + 1 == _TRIES:
                        raise
                    self._forget()
        except BaseException as error:
            self.report.state, self.report.error = "failed", str(error) or type(error).__name__
            raise
        finally:
            self._release()
            self.report.seconds = time.perf_counter() - began
            with contextlib.suppress(Exception):
                discard(self.url, self.report.run)
            reports.keep(self.url, self.report)
        return self.report

    def _forget(self) -> None:
        """Begin again: somebody else has committed."""
        self._release()
        discard(self.url, self.report.run)
        self.report.tables, self.report.expectations, self.report.samples = [], [], []

    def _release(self) -> None:
        for one in self._kept:
            with contextlib.suppress(Exception):
                one.unpersist()
        self._kept.clear()

    @contextlib.contextmanager
    def _step(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        self._progress(name, 0, None)
        yield
        self.report.steps.append({"step": name, "seconds": time.perf_counter() - began})
        self._progress(name, 1, 1)

    def _once(self) -> None:
        with contextlib.ExitStack() as stack:
            store = self._open(stack)
            view = View(0) if store is None else store.view()
            self.report.base = view.commit
            loaded = [self._load(target) for target in self.pipeline.targets]
            self._quarantine(loaded)
            fragments: dict[str, list[Fragment]] = {}
            for one in loaded:
                with self._step(f"reconcile {one.target.info.name}"):
                    changed = self._reconcile(store, view, one)
                with self._step(f"stage {one.target.info.name}"):
                    fragments[one.target.table] = [] if one.told.inserts + one.told.updates == 0 else stage_frame(
                        changed, self.url, one.target.table, job=self.report.run)
            reach("pipeline: everything staged")
            with self._step("expectations"):
                self._expect(store, view, fragments)
            self._publish(store, view, fragments)

    def _open(self, stack: contextlib.ExitStack) -> Parallel | None:
        try:
            return stack.enter_context(open_parallel(self.url, branch=self.branch, write=not self.dry_run,
                                                     types=self.pipeline.types))
        except NotFound:
            if not self.dry_run:
                raise
            return None  # a dry run does not start a store

    # 1, 2: read and validate
    def _load(self, target: Target) -> Loaded:
        with self._step(f"read {target.source.name}"):
            rows = target.source.read(self.spark, self.pipeline.folder, self.parameters)
            if target.source.name not in self.report.sources:
                self.report.sources[target.source.name] = target.source.fingerprint(
                    self.pipeline.folder, self.parameters, rows.inputFiles() if target.source.path else [])
        with self._step(f"validate {target.info.name}"):
            checked = self._checked(target, rows).persist(StorageLevel.MEMORY_AND_DISK)
            self._kept.append(checked)
            keys = [f"`{column.stored}`" for column in target.info.keys]
            counts = checked.agg(
                F.count("*").alias("rows"), F.count(PROBLEM).alias("bad"),
                F.count_distinct(F.when(F.col(PROBLEM).isNull(), F.struct(*keys))).alias("keys")).collect()[0]
            if counts.rows - counts.bad != counts["keys"]:
                checked = self._without_repeats(checked, keys)
            told = TableReport(target.table, target.source.name, counts.rows, counts.rows - counts["keys"])
            self.report.tables.append(told)
            self._reject(target, checked, told)
        names = [f"`{column.stored}`" for column in target.info.all_columns]
        return Loaded(target, checked.where(F.col(PROBLEM).isNull()).select(*names), told)

    def _checked(self, target: Target, rows: DataFrame) -> DataFrame:
        """Typed values under the stored names, what is wrong with the row, and where it was."""
        info, source = target.info, target.source
        try:
            if target.where is not None:
                rows = rows.where(F.col(MALFORMED).isNotNull() | F.expr(target.where))
            given = {}
            for column in info.all_columns:
                sql = target.columns.get(column.name, target.columns.get(column.stored))
                if sql is None:
                    sql = next((f"`{name}`" for name in (column.stored, column.name) if name in rows.columns), None)
                if sql is not None:
                    given[column.name] = F.expr(sql)
            named = rows.select(*[value.alias(name) for name, value in given.items()],
                                *[F.col(name) for name in OURS])
            kinds = {field.name: field.dataType for field in named.schema.fields}
            values, problems = [], [F.col(MALFORMED)]
            for column in info.all_columns:
                one = F.col(f"`{column.name}`") if column.name in given else None
                made = field_of(info, column, one, kinds.get(column.name) if one is not None else None)
                if made is None:
                    have = ", ".join(name for name in rows.columns if name not in OURS)
                    raise SourceError(source.name, f"nothing gives {info.name}.{column.name}: the source has no such "
                                      "column, and there is no default", hint=f"it has {have}")
                values.append(made.value.alias(f"$value:{column.stored}"))
                problems.append(F.when(F.col(MALFORMED).isNull(), made.problem))
            typed = named.select(*values, F.concat_ws("; ", *problems).alias(PROBLEM),
                                 *[F.col(name) for name in OURS if name != MALFORMED])
            found = typed.select(*[F.col(f"`$value:{column.stored}`").alias(column.stored)
                                   for column in info.all_columns], PROBLEM, FILE, BLOCK, AT, LINE, RAW)
            failed = [F.when((F.col(PROBLEM) == "") & ~F.coalesce(F.expr(sql), F.lit(False)), F.lit(name))
                      for name, sql in target.checks.items()]
            told = F.concat_ws("; ", F.when(F.col(PROBLEM) != "", F.col(PROBLEM)), *failed)
            return found.withColumn(PROBLEM, F.when(told != "", told))
        except AnalysisException as error:
            first = str(error).strip().partition("\n")[0]
            have = ", ".join(name for name in rows.columns if name not in OURS)
            raise SourceError(source.name, f"what is loaded as {info.name} cannot be worked out: {first}",
                              hint=f"the source has {have}") from None

    def _without_repeats(self, checked: DataFrame, keys: Sequence[str]) -> DataFrame:
        """Of good rows with one key the last one counts; the others are rejected."""
        order = Window.partitionBy(*keys, F.col(PROBLEM).isNull()).orderBy(F.desc(FILE), F.desc(AT))
        later = F.when(F.col(PROBLEM).isNull() & (F.row_number().over(order) > 1),
                       F.lit("the key is there more than once; the last row counts"))
        return checked.withColumn(PROBLEM, F.coalesce(F.col(PROBLEM), later))

    def _reject(self, target: Target, checked: DataFrame, told: TableReport) -> None:
        if not told.rejected:
            return
        bad = checked.where(F.col(PROBLEM).isNotNull()).select(PROBLEM, FILE, BLOCK, AT, LINE, RAW).limit(KEPT)
        rows = [row.asDict() for row in bad.collect()]
        path = target.source.located(self.pipeline.folder, self.parameters)
        if target.source.format in ("csv", "json"):
            with_lines(rows, target.source, self.spark, path)
        self.report.samples += [
            {"source": target.source.name, "table": target.table, "file": row[FILE], "line": row[LINE],
             "reason": row[PROBLEM], "raw": row[RAW]}
            for row in sorted(rows, key=lambda one: (one[FILE] or "", one[LINE] or 0))]  # fmt: skip

    def _quarantine(self, loaded: Sequence[Loaded]) -> None:
        """Keep the rejected rows beside the store. Raises `TooManyRejectedError`."""
        rejected, rows = self.report.rejected, self.report.rows
        if rejected:
            self.report.quarantine = f"{beside(self.url).removeprefix('file://')}/{self.report.run}/quarantine.parquet"
            with reports.work_store(self.url) as store:
                store.put(f"{self.report.run}/quarantine.parquet", _parquet(self.report.samples))
            self.report.samples = self.report.samples[: reports.SAMPLE]
        limit = self.pipeline.max_rejected
        if rejected > (limit * rows if isinstance(limit, float) and limit < 1 else limit):
            allowed = f"{limit:.0%}" if isinstance(limit, float) and limit < 1 else f"{limit:,}"
            raise TooManyRejectedError(f"{rejected:,} of {rows:,} rows are bad, and {allowed} may be",
                                       hint=f"they are in {self.report.quarantine}")

    # 3: reconcile
    def _reconcile(self, store: Parallel | None, view: View, one: Loaded) -> DataFrame:
        """The rows that are new or differ from the latest state."""
        info, told = one.target.info, one.told
        latest = self._latest(store, view, info)
        if latest is None:
            told.inserts = told.rows - told.rejected
            told.vanished = 0 if one.target.vanished else None
            return one.good
        names = [column.stored for column in info.all_columns]
        old = latest.select(*[F.col(f"`{name}`").alias(f"$old:{name}") for name in names])
        on = [F.col(f"`{column.stored}`") == F.col(f"`$old:{column.stored}`") for column in info.keys]
        joined = one.good.join(old, on, "left")
        alike = F.lit(True)
        for column in info.columns:
            alike = alike & same(column, F.col(f"`{column.stored}`"), F.col(f"`$old:{column.stored}`"))
        state = F.when(F.col(f"`$old:{info.keys[0].stored}`").isNull(), "insert").when(alike, "unchanged").otherwise(
            "update")
        compared = joined.withColumn(STATE, state).select(*[f"`{name}`" for name in names], STATE)
        compared = compared.persist(StorageLevel.MEMORY_AND_DISK)
        self._kept.append(compared)
        counts = {row[STATE]: row["count"] for row in compared.groupBy(STATE).count().collect()}
        told.inserts, told.updates = counts.get("insert", 0), counts.get("update", 0)
        told.unchanged = counts.get("unchanged", 0)
        if one.target.vanished:
            told.vanished = old.join(one.good, on, "left_anti").count()
        return compared.where(F.col(STATE) != "unchanged").drop(STATE)

    def _latest(self, store: Parallel | None, view: View, info: TypeInfo) -> DataFrame | None:
        """The rows of a type as they are now; None if there are none yet."""
        if store is None or not view.commit or not store.splits(table_of(info), view, parts=1):
            return None
        return frame(self.spark, store, table_of(info), view, branch=self.branch)

    # 5: expectations
    def _expect(self, store: Parallel | None, view: View, fragments: Mapping[str, Sequence[Fragment]]) -> None:
        relations = [target.info for target in self.pipeline.targets if target.info.kind == "relation"
                     and fragments.get(target.table)]
        if not relations and not self.pipeline.expectations:
            return
        failed: list[str] = []
        views: dict[str, DataFrame] = {}
        for cls in self.pipeline.types:
            info = type_info(cls)
            found = self._after(store, view, info, fragments.get(table_of(info), ()))
            if found is not None:
                views[table_of(info)] = found
                found.createOrReplaceTempView(f"`{info.name}`")
        for info in relations:
            failed += self._endpoints(info, fragments[table_of(info)], views)
        for one in self.pipeline.expectations:
            failed += self._held(one, views)
        if failed:
            raise ExpectationError(failed)

    def _after(
        self, store: Parallel | None, view: View, info: TypeInfo, fragments: Sequence[Fragment]
    ) -> DataFrame | None:  # fmt: skip
        """The rows of a type as they will be."""
        latest = self._latest(store, view, info)
        names = [f"`{column.stored}`" for column in info.all_columns]
        if not fragments:
            return None if latest is None else latest.select(*names)
        new = staged_frame(self.spark, fragments).select(*names)
        if latest is None:
            return new
        keys = [column.stored for column in info.keys]
        return latest.select(*names).join(new.select(*[f"`{key}`" for key in keys]), keys, "left_anti").select(
            *names).unionByName(new)

    def _endpoints(
        self, info: TypeInfo, fragments: Sequence[Fragment], views: Mapping[str, DataFrame]
    ) -> Iterator[str]:  # fmt: skip
        new = staged_frame(self.spark, fragments)
        for side, end in (("left", info.left), ("right", info.right)):
            of, key = type_info(end), info.keys[0 if side == "left" else 1].stored
            known = views.get(table_of(of))
            wanted = new.select(F.col(f"`{key}`").alias("key")).distinct()
            if known is not None:
                wanted = wanted.join(known.select(F.col(f"`{of.keys[0].stored}`").alias("key")), "key", "left_anti")
            missing = [row.key for row in wanted.limit(4).collect()]
            name = f"the {side} ends of {info.name} exist"
            found = "" if not missing else f"there is no {of.name} {', '.join(map(repr, missing[:3]))}"
            self.report.expectations.append({"name": name, "ok": not missing, "found": found})
            if missing:
                yield f"{name}: {found}{' and more' if len(missing) > 3 else ''}"

    def _held(self, one: Expectation, views: Mapping[str, DataFrame]) -> Iterator[str]:
        if one.table is not None:
            count = views[one.table].count() if one.table in views else 0
            ok = (one.at_least is None or count >= one.at_least) and (one.at_most is None or count <= one.at_most)
            found = f"{count:,} rows"
        else:
            try:
                rows = self.spark.sql(str(one.sql)).limit(4).collect()
            except AnalysisException as error:
                raise PipelineError(f"the expectation {one.name!r} is not a query over the types: "
                                    f"{str(error).strip().partition(chr(10))[0]}") from None
            ok, found = not rows, "; ".join(str(row.asDict()) for row in rows[:3])
        self.report.expectations.append({"name": one.name, "ok": ok, "found": found})
        if not ok:
            yield f"{one.name}: {found}"

    # 6: publish
    def _publish(self, store: Parallel | None, view: View, fragments: Mapping[str, Sequence[Fragment]]) -> None:
        everything = [fragment for found in fragments.values() for fragment in found]
        if self.dry_run or store is None:
            self.report.state = "dry run"
            return
        done = Published(None, {})
        if everything:
            metadata = {
                "pipeline": self.pipeline.name, "run": self.report.run, "sources": self.report.sources,
                "counts": {one.table: {"rows": one.rows, "rejected": one.rejected, "inserts": one.inserts,
                                       "updates": one.updates} for one in self.report.tables}}  # fmt: skip
            with self._step("publish"):
                reach("pipeline: before the publish")
                done = store.publish(everything, metadata=metadata, expected=view.commit)
                reach("pipeline: published")
        self.report.commit = done.commit
        self.report.state = "unchanged" if done.commit is None else "published"
        for one in self.report.tables:
            one.written = done.written.get(one.table, 0)


def _parquet(samples: list[dict[str, Any]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema: pa.Schema = pa.schema([("source", pa.string()), ("table", pa.string()), ("file", pa.string()),
                                   ("line", pa.int64()), ("reason", pa.string()), ("raw", pa.string())])
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(samples, schema), sink)
    return sink.getvalue()
