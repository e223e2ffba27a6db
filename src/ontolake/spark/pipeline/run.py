"""One run of a pipeline: read, validate, quarantine, reconcile, stage, expect, publish once.

Nothing is visible before the publish. A run that is killed leaves staged files beside the store, which `clean` removes,
and can be repeated: what it had published, it finds unchanged.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession

from ontolake import urls
from ontolake.errors import Conflict
from ontolake.faults import reach
from ontolake.history import MergeConflictError
from ontolake.history.contention import Pace, commit_optimistically
from ontolake.history.metadata import COUNTS, PIPELINE, RUN, SOURCES
from ontolake.parallel import (
    Fragment,
    Parallel,
    Published,
    Removal,
    View,
    beside,
    discard,
    forget,
    new_job,
    open_parallel,
)
from ontolake.spark.console import told_once
from ontolake.spark.errors import ExpectationError, PipelineError, SourceError, TooManyRejectedError
from ontolake.spark.pipeline import ends, quarantine
from ontolake.spark.pipeline import report as reports
from ontolake.spark.pipeline.audit import (
    PREFIX,
    audited,
    check_auditable,
    check_graph,
    start_graph,
    start_typed,
    starts_graph,
)
from ontolake.spark.pipeline.checks import checked, own_columns
from ontolake.spark.pipeline.declaration import Pipeline, Target, optional, unused
from ontolake.spark.pipeline.expectations import expect
from ontolake.spark.pipeline.heartbeat import alive
from ontolake.spark.pipeline.limits import Limit, checked_limit, exceeds, in_words
from ontolake.spark.pipeline.report import Report, TableReport
from ontolake.spark.pipeline.sources import SPARK_ERRORS, spark_says
from ontolake.spark.pipeline.stage import Stage
from ontolake.spark.pipeline.tables import RunTables
from ontolake.spark.pipeline.vanishing import check_relations, check_vanished, removal_of
from ontolake.spark.sessions import session

if TYPE_CHECKING:
    import pyarrow as pa

Progress = Callable[[str, int, "int | None"], None]
_AT_ONCE = 2
"""So many tables are worked on at a time: while Spark plans for one, it computes for another."""
_T = TypeVar("_T")
_U = TypeVar("_U")


class SourceRows(NamedTuple):
    """The rows of a source, its files, and how many bytes they have, if that is known."""

    rows: DataFrame
    files: Sequence[str]
    size: int | None


class LoadedTable(NamedTuple):
    """The rows for a table: those that are new or changed, those that were rejected, and what is to be told of them.
    """

    fragments: Sequence[Fragment]
    rejected: pa.Table | None
    told: TableReport
    checked: DataFrame
    removal: Removal | None = None
    """What is to be deleted."""


class PipelineRun:
    """A run of a pipeline on a store."""

    def __init__(
        self, pipeline: Pipeline, url: str, *, branch: str | None, dry_run: bool, audit: bool, graph: bool,
        parameters: Mapping[str, str] | None, progress: Progress | None, max_vanished: Limit | None = None,
    ) -> None:  # fmt: skip
        pipeline.check(parameters)
        beside(url)  # refuses places where nothing can be staged
        self.pipeline = pipeline
        self.url = url
        self.branch = branch
        self.dry_run = dry_run
        self.audit = audit
        self.max_vanished = None if max_vanished is None else checked_limit("max_vanished", max_vanished)
        self._asks_graph = graph
        self.graph = starts_graph(url, graph=graph, audit=audit)
        """Whether a graph is to be made where there is nothing yet."""
        self._deletes = any(target.vanished == "delete" for target in pipeline.targets)
        self.parameters = pipeline.resolved(parameters)
        self._progress = progress or (lambda step, done, total: None)
        self._tables: list[RunTables] = []
        self.report = Report(new_job(), pipeline.name, url, branch, reports.now())

    def go(self, spark: SparkSession | None = None) -> Report:
        with alive(self.url, self.report.run), told_once():
            return self._go(spark)

    def _go(self, spark: SparkSession | None) -> Report:
        began = time.perf_counter()
        reports.begin(self.url, self.report)
        try:
            self.spark = spark or session(self.pipeline.name)
            attempts = itertools.count()

            def once() -> None:
                if next(attempts):
                    self._forget()
                self._once()

            commit_optimistically(once, Conflict, Pace(attempts=3))
        except BaseException as error:
            self.report.state, self.report.error = "failed", str(error) or type(error).__name__
            if isinstance(error, MergeConflictError):
                self.report.conflicts = [str(one) for one in error.conflicts[: reports.SAMPLE]]
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
        self.report.quarantine, self.report.conflicts = None, []

    def _release(self) -> None:
        with contextlib.suppress(Exception):
            for tables in self._tables:
                tables.release()
        self._tables.clear()

    @contextlib.contextmanager
    def _step(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        self._progress(name, 0, None)
        yield
        self.report.steps.append({"step": name, "seconds": time.perf_counter() - began})
        self._progress(name, 1, 1)

    def _each(self, work: Callable[[_T], _U], items: Sequence[_T]) -> list[_U]:
        """What work makes of each item, in their order, some at a time. Raises what the first of them raised."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            futures = [pool.submit(inheritable_thread_target(self.spark)(work), item) for item in items]
            try:
                return [future.result() for future in futures]
            except BaseException:
                for future in futures:
                    future.cancel()
                raise

    def _once(self) -> None:
        with contextlib.ExitStack() as stack:
            store = self._open(stack)
            if store is not None:
                self._check_store(store)
            view = View(0) if store is None else store.view()
            self.report.base = view.commit
            again = bool(self.pipeline.expectations) or any(
                target.info.kind == "relation" for target in self.pipeline.targets)
            self._tables.append(tables := RunTables(self.spark, store, view, self.branch, again=again,
                                                    graph=self.graph))
            self._check_dangling(tables.is_graph)
            with self._step("look at the store"):
                for target in self.pipeline.targets:  # one after the other: a store is not for several threads
                    tables.latest(target.info)
            read = self._read()
            loaded: Sequence[LoadedTable] = self._each(
                lambda target: self._load(tables, target, read[target.source.name]), self.pipeline.targets)
            self.report.tables = [one.told for one in loaded]
            self._check_vanished(tables, loaded)
            loaded, failed = self._ends(tables, loaded, read)
            self.report.tables = [one.told for one in loaded]
            self._quarantine(loaded)
            fragments = {one.told.table: one.fragments for one in loaded}
            reach("pipeline: everything staged")
            if self.dry_run:
                check_relations(self.pipeline, tables, fragments)
            # What has no commit yet has no branches either, and nothing that an audit could protect.
            audits = self.audit and not self.dry_run and (tables.is_graph or view.commit > 0)
            if not audits:
                self._expect(tables, fragments, failed)
            elif failed:
                raise ExpectationError(failed)
            self._publish(store, view, loaded, audits=audits)

    def _check_store(self, store: Parallel) -> None:
        """Raise `PipelineError` or `LayoutLacksError` if the store cannot do what the run is to do."""
        if self._asks_graph:
            check_graph(store, self.url)
        if self.audit:
            check_auditable(store.url)
        if self._deletes:
            store.check_removable()

    def _check_vanished(self, tables: RunTables, loaded: Sequence[LoadedTable]) -> None:
        """Raise `TooManyVanishedError`, else let tables know what will be deleted of them."""
        for target, one in zip(self.pipeline.targets, loaded, strict=True):
            limit = target.max_vanished if self.max_vanished is None else self.max_vanished
            check_vanished(target, one.told, tables, limit)
            if one.removal is not None:
                tables.remove(target.info, one.removal)

    def _check_dangling(self, graph: bool) -> None:
        """Raise `PipelineError` if edges of a graph are to have no ends."""
        for target in self.pipeline.targets:
            if graph and target.info.kind == "relation" and (target.dangling or self.pipeline.dangling) == "allow":
                raise PipelineError(f"{target.info.name} is loaded with dangling='allow', but an edge of a graph has "
                                    "both its ends", hint="write dangling='quarantine' or 'fail'")

    def _open(self, stack: contextlib.ExitStack) -> Parallel | None:
        self._check_dangling(self.graph)
        if self.dry_run and urls.detect(self.url) is None:
            return None  # a dry run does not start a store
        if not self.dry_run and self.graph:
            start_graph(self.url, self.pipeline.types)
        elif not self.dry_run and (self.audit or self._deletes):
            start_typed(self.url)
        return stack.enter_context(open_parallel(self.url, branch=self.branch, write=not self.dry_run,
                                                 types=self.pipeline.types))

    # 1: read
    def _read(self) -> dict[str, SourceRows]:
        """What there is to read of each source that is loaded."""
        sources = list({target.source.name: target.source for target in self.pipeline.targets}.values())
        found: dict[str, SourceRows] = {}
        for source in sources:
            with self._step(f"read {source.name}"):
                rows = source.read(self.spark, self.pipeline.folder, self.parameters, optional(self.pipeline, source))
                files = list(rows.inputFiles()) if source.path else []
                told = source.fingerprint(self.pipeline.folder, self.parameters, files)
                spare = unused(self.pipeline, source, own_columns(rows))
                self.report.sources[source.name] = {**told, **({"unused": spare} if spare else {})}
                known = source.is_file and files and told["files"] == len(files)
                found[source.name] = SourceRows(rows, files, told["bytes"] if known else None)
        return found

    # 2, 3, 4: validate, reconcile and stage, in one go over the rows
    def _load(self, tables: RunTables, target: Target, read: SourceRows) -> LoadedTable:
        with self._step(f"validate {target.info.name}"), self._explained(target):
            return self._stage(tables, target, checked(target, read.rows), read)

    def _stage(self, tables: RunTables, target: Target, rows: DataFrame, read: SourceRows) -> LoadedTable:
        source, info = target.source, target.info
        staged = Stage(self.url, self.report.run, tables)(target, rows, read.files, read.size)
        counts = staged.counts
        told = TableReport(tables.name(info), source.name, sum(counts.values()) - counts["vanished"],
                           counts["bad"] + counts["keyless"] + counts["repeated"], counts["insert"], counts["update"],
                           counts["unchanged"])
        removal = removal_of(target, staged, told)
        kept = None
        if staged.rejected is not None:
            told.reasons = quarantine.reasons(staged.rejected, told.rejected)
            kept = quarantine.rejected(staged.rejected, told.table, source,
                                       source.located(self.pipeline.folder, self.parameters), read.files, self.spark)
        return LoadedTable(staged.fragments, kept, told, staged.checked, removal)

    def _ends(
        self, tables: RunTables, loaded: Sequence[LoadedTable], read: Mapping[str, SourceRows]
    ) -> tuple[Sequence[LoadedTable], Sequence[str]]:  # fmt: skip
        """Stage relations again without those whose ends are missing, if they are to be rejected. Returns what is
        loaded then, and what fails the run."""
        if not any(target.info.kind == "relation" for target in self.pipeline.targets):
            return loaded, ()
        with self._step("ends of relations"):
            found = ends.find(self.pipeline, tables, {one.told.table: one.fragments for one in loaded},
                              {one.told.table: one.checked for one in loaded if one.told.rejected})
            self.report.expectations += found.expectations
            kept = list(loaded)
            for at, target in enumerate(self.pipeline.targets):
                bad = found.rejected.get(kept[at].told.table)
                if bad:
                    rows = ends.without(kept[at].checked, target.info, bad)
                    removal = kept[at].removal
                    forget([*kept[at].fragments, *(removal.fragments if removal is not None else ())])
                    with self._explained(target):
                        kept[at] = self._stage(tables, target, rows, read[target.source.name])
                    tables.restaged(target.info)
                    if (removal := kept[at].removal) is not None:
                        tables.remove(target.info, removal)
        return kept, found.failed

    @contextlib.contextmanager
    def _explained(self, target: Target) -> Iterator[None]:
        """What Spark says of a source that cannot be read to its end, in the words of the pipeline."""
        try:
            yield
        except SPARK_ERRORS as error:
            condition, said = spark_says(error)
            if condition.startswith("FAILED_READ_FILE"):
                raise SourceError(target.source.name, f"cannot be read to its end: {said}",
                                  hint="all files of a source must be whole and have columns of the same types"
                                  ) from error
            if condition.startswith(_OF_EXPRESSIONS):
                raise SourceError(target.source.name, f"what is loaded as {target.info.name} cannot be worked out: "
                                  f"{said}", hint="let try_cast, try_divide and the like make a null of "
                                  "it, which is checked row by row") from error
            raise

    def _quarantine(self, loaded: Sequence[LoadedTable]) -> None:
        """Keep the rejected rows beside the store. Raises `TooManyRejectedError`."""
        rejected, rows = self.report.rejected, self.report.rows
        bad = [one.rejected for one in loaded if one.rejected is not None]
        if bad:
            self.report.quarantine = quarantine.keep(self.url, self.report.run, bad)
            for table in bad:  # some of each
                self.report.samples += table.slice(0, -(-reports.SAMPLE // len(bad))).to_pylist()
        limit = self.pipeline.max_rejected
        if exceeds(rejected, limit, rows):
            raise TooManyRejectedError(f"{rejected:,} of {rows:,} rows are bad, and {in_words(limit)} may be",
                                       hint="\n  ".join(["such as", *self.report.examples(),
                                                         f"all of them are in {self.report.quarantine}"]))

    # 5: expectations
    def _expect(
        self, tables: RunTables, fragments: Mapping[str, Sequence[Fragment]], failed: Sequence[str] = ()
    ) -> None:  # fmt: skip
        with self._step("expectations"):
            expect(self.pipeline, tables, fragments, self.report, failed)

    # 6: publish
    def _publish(self, store: Parallel | None, view: View, loaded: Sequence[LoadedTable], *, audits: bool) -> None:
        everything = [fragment for one in loaded for fragment in one.fragments]
        removals = {one.told.table: one.removal for one in loaded if one.removal is not None}
        if self.dry_run or store is None:
            self.report.state = "dry run"
            return
        done = Published(None, {})
        if everything or removals:
            def publish(where: Parallel) -> Published:
                reach("pipeline: before the publish")
                return where.publish(everything, metadata=self._metadata(), expected=view.commit, removals=removals)

            with self._step("publish"):
                done = publish(store) if not audits else audited(
                    store.url, self.branch, self.report.run, f"pipeline {self.pipeline.name}, run {self.report.run}",
                    publish=publish, look=self._look)
                reach("pipeline: published")
        self.report.commit = done.commit
        self.report.state = "unchanged" if done.commit is None else "published"
        for one in self.report.tables:
            one.written = done.written.get(one.table, 0)
        self.report.add_deleted(done.deleted)

    def _look(self, published: Parallel) -> None:
        """Expectations over what is on the branch of the run, where ends of relations have been seen to."""
        self._tables.append(tables := RunTables(self.spark, published, published.view(), f"{PREFIX}{self.report.run}",
                                                again=len(self.pipeline.expectations) > 1))
        self._expect(tables, {})

    def _metadata(self) -> dict[str, object]:
        """What the commit says of the run."""
        return {PIPELINE: self.pipeline.name, RUN: self.report.run, SOURCES: self.report.sources,
                COUNTS: {one.table: one.counts for one in self.report.tables}}


_OF_EXPRESSIONS = ("CAST_", "DIVIDE_BY_ZERO", "REMAINDER_BY_ZERO", "ARITHMETIC_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE",
                   "CANNOT_PARSE_", "INVALID_ARRAY_INDEX", "MAP_KEY_DOES_NOT_EXIST", "CONVERSION_INVALID_INPUT")
"""What expressions of a user raise that meet a value which they cannot take."""
