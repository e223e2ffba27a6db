"""Rows of the store that a source no longer has: whether so many may be missing, and which of them are deleted.

A row whose new state was rejected has not vanished. If a rejected row has no key that can be read, nobody knows which
row it is, and nothing of its table is deleted.
"""

from __future__ import annotations

from ontolake.parallel import Removal, forget
from ontolake.spark.errors import TooManyVanishedError
from ontolake.spark.pipeline.declaration import Target
from ontolake.spark.pipeline.limits import Limit, exceeds, in_words
from ontolake.spark.pipeline.report import TableReport
from ontolake.spark.pipeline.stage import StagedTable
from ontolake.spark.pipeline.tables import RunTables


def removal_of(target: Target, staged: StagedTable, told: TableReport) -> Removal | None:
    """What is to be deleted of a table, which the report tells; None if nothing is."""
    if target.vanished is None:
        return None
    told.vanished = staged.counts["vanished"]
    if target.vanished != "delete":
        return None
    told.deleted, unknown = told.vanished, staged.counts["keyless"]
    if told.vanished and unknown:
        told.deleted = 0
        told.note = (f"{told.vanished:,} vanished rows were not deleted: of {unknown:,} rejected rows the key cannot "
                     "be read, and they may be among them")
        forget(staged.vanished)
    return Removal(staged.vanished, target.cascade) if told.deleted else None


def check_vanished(target: Target, told: TableReport, tables: RunTables, limit: Limit | None) -> None:
    """Raise `TooManyVanishedError` if more rows are missing than a limit."""
    latest = tables.latest(target.info)
    if not told.vanished or limit is None or latest is None:
        return
    rows = latest.count()
    if exceeds(told.vanished, limit, rows):
        raise TooManyVanishedError(told.table, target.source.name, told.vanished, rows, in_words(limit))
