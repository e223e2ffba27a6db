"""Rows of the store that a source no longer has: whether so many may be missing, and which of them are deleted.

A row whose new state was rejected has not vanished. If a rejected row has no key that can be read, nobody knows which
row it is, and nothing of its table is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ontolake.model.types import type_info
from ontolake.ontology.errors import LiveRelationsError
from ontolake.parallel import Fragment, Removal, forget
from ontolake.spark.errors import TooManyVanishedError
from ontolake.spark.pipeline.declaration import Pipeline, Target
from ontolake.spark.pipeline.limits import Limit, exceeds, in_words
from ontolake.spark.pipeline.report import TableReport
from ontolake.spark.pipeline.stage import StagedTable
from ontolake.spark.pipeline.tables import RunTables
from ontolake.spark.types import named

_SHOWN = 10
"""So many relations are named at most."""


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


def check_relations(pipeline: Pipeline, tables: RunTables, fragments: Mapping[str, Sequence[Fragment]]) -> None:
    """Raise `LiveRelationsError` if relations of the pipeline's types will lead to rows that are to be deleted.

    A publish finds these, and those of other types: this is for runs that do not publish.
    """
    for target in pipeline.targets:
        gone = tables.gone(target.info)
        if target.info.kind != "entity" or target.cascade or gone is None:
            continue
        for info in map(type_info, pipeline.types):
            for end, column in zip((info.left, info.right), info.keys, strict=False) if info.kind == "relation" else ():
                if type_info(end) is not target.info:
                    continue
                keys = gone.select(named(target.info.keys[0].stored).alias(column.stored))
                left = tables.after(info, fragments.get(tables.name(info), ())).join(keys, column.stored, "left_semi")
                rows = left.select(*[named(key.stored) for key in info.keys]).limit(_SHOWN).collect()
                if rows:
                    raise LiveRelationsError(target.info.name, rows[0][column.stored],
                                             [(info.name, tuple(row)) for row in rows])


def check_vanished(target: Target, told: TableReport, tables: RunTables, limit: Limit | None) -> None:
    """Raise `TooManyVanishedError` if more rows are missing than a limit."""
    latest = tables.latest(target.info)
    if not told.vanished or limit is None or latest is None:
        return
    rows = latest.count()
    if exceeds(told.vanished, limit, rows):
        raise TooManyVanishedError(told.table, target.source.name, told.vanished, rows, in_words(limit))
