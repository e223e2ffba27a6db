"""From checked rows to staged ones: what becomes of each is counted, and those that are rejected are set apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation

from ontolake.parallel import Fragment, forget, stage
from ontolake.spark.frames import stage_frame, writes_beside
from ontolake.spark.pipeline import quarantine
from ontolake.spark.pipeline.checks import PLACE, PROBLEM
from ontolake.spark.pipeline.declaration import Target
from ontolake.spark.pipeline.places import AT, FILE
from ontolake.spark.pipeline.reconciliation import (
    REPEATED,
    STATE,
    STATES,
    changed,
    counting,
    reconciled,
    rejected,
    slim,
    vanished,
)
from ontolake.spark.pipeline.tables import FEW, RunTables

VANISHED = "vanished"
"""The folder of staged files in which keys of rows are that are to be deleted."""
SMALL = 4 << 20
"""Files of so many bytes in all are read by one task, and their rows go through the driver."""


class StagedTable(NamedTuple):
    """What became of the rows for a table: how many there are of each state, and where those are that count."""

    counts: Mapping[str, int]
    fragments: Sequence[Fragment]
    rejected: pa.Table | None
    """What is wrong with rows, and their places; None if nothing is."""
    checked: DataFrame
    """The checked rows, to be asked again."""
    vanished: Sequence[Fragment] = ()
    """The keys of rows that are to be deleted."""


class Stage:
    """Where the rows of a run are staged, beside a store."""

    def __init__(self, url: str, job: str, tables: RunTables) -> None:
        self._url = url
        self._job = job
        self._tables = tables

    def __call__(self, target: Target, found: DataFrame, files: Sequence[str], size: int | None) -> StagedTable:
        """Stage what is new or changed of the checked rows of a source, whose files have so many bytes, if known."""
        if size is not None and size <= SMALL:
            made = self._at_once(target, found, files)
            if made is not None:
                return made
        if not target.source.is_file:  # reading it again might find something else
            found = self._tables.keep(slim(found))
        order: tuple[str, ...] = (AT,)
        counts, fragments, gone = self._counted(target, found, order)
        if counts["repeated"] and len(files) > 1:  # their names say which of them is the last
            forget([*fragments, *gone])
            order = (FILE, AT)
            counts, fragments, gone = self._counted(target, found, order)
        bad = None
        if counts["bad"] or counts["keyless"] or counts["repeated"]:
            bad = rejected(target, found, order, repeats=bool(counts["repeated"])).limit(quarantine.KEPT).toArrow()
        return StagedTable(counts, fragments, bad, found, gone)

    def _at_once(self, target: Target, found: DataFrame, files: Sequence[str]) -> StagedTable | None:
        """All that is to be known by one job, which takes less time than asking Spark several times; None if there are
        more rows than their bytes would make one think."""
        info, order = target.info, (FILE, AT) if len(files) > 1 else (AT,)
        compared = reconciled(target, found.coalesce(1), self._tables.latest(info), order, along=(PROBLEM, *PLACE))
        rows = compared.limit(FEW + 1).toArrow()
        if len(rows) > FEW:
            return None
        state = rows[STATE]
        counts = {one: pc.sum(pc.equal(state, one)).as_py() or 0 for one in STATES}
        new = rows.filter(pc.is_in(state, pa.array(["insert", "update"])))
        bad = rows.filter(pc.is_in(state, pa.array(["bad", "keyless", "repeated"]))).select([PROBLEM, *PLACE])
        told = pc.fill_null(bad[PROBLEM], REPEATED)
        gone = rows.filter(pc.equal(state, "vanished")).select([column.stored for column in info.keys])
        table = self._tables.name(info)
        return StagedTable(counts, self._put(table, new.select([column.stored for column in info.all_columns])),
                           bad.set_column(0, PROBLEM, told) if len(bad) else None, found,
                           self._put(f"{VANISHED}/{table}", gone) if target.vanished == "delete" else [])

    def _counted(
        self, target: Target, found: DataFrame, order: Sequence[str]
    ) -> tuple[Mapping[str, int], Sequence[Fragment], Sequence[Fragment]]:  # fmt: skip
        """How many rows there are of each state, those that are to be published, and keys that are to be deleted."""
        info, table = target.info, self._tables.name(target.info)
        compared = reconciled(target, found, self._tables.latest(info), order)
        if writes_beside(self._tables.spark, self._url):
            seen = Observation()  # of the tasks that write, each of which counts once, however often it was tried
            fragments = stage_frame(changed(info, compared.observe(seen, *counting())), self._url, table,
                                    job=self._job)
            gone: Sequence[Fragment] = ()
            if target.vanished == "delete" and seen.get["vanished"]:
                gone = stage_frame(vanished(info, compared), self._url, f"{VANISHED}/{table}", job=self._job)
            return seen.get, fragments, gone
        compared = self._tables.keep(compared)
        counts = compared.agg(*counting()).collect()[0].asDict()
        missing = counts["vanished"] if target.vanished == "delete" else 0
        return (counts, self._write(table, changed(info, compared), counts["insert"] + counts["update"]),
                self._write(f"{VANISHED}/{table}", vanished(info, compared), missing))

    def _write(self, table: str, rows: DataFrame, count: int) -> Sequence[Fragment]:
        """Stage so many rows, by way of the driver if they are few."""
        if count > FEW:
            return stage_frame(rows, self._url, table, job=self._job)
        return self._put(table, rows.toArrow()) if count else []

    def _put(self, table: str, rows: pa.Table) -> list[Fragment]:
        """Stage rows that the driver has."""
        fragment = stage(self._url, table, rows.to_batches(), job=self._job)
        return [] if fragment is None else [fragment]
