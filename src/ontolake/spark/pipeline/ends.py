"""Ends of relations that are not there: why they are missing, and what becomes of the rows that name them.

An end is missing if no row with its key is in the state that a run would publish. If a row of this run with that key
was rejected, so is the relation. What happens to the others is what `dangling` of the load says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ontolake.model.types import TypeInfo, type_info
from ontolake.parallel import Fragment
from ontolake.spark.pipeline.checks import PROBLEM
from ontolake.spark.pipeline.declaration import Pipeline, Target
from ontolake.spark.pipeline.places import RAW
from ontolake.spark.pipeline.questions import TextQuery, answers, listed
from ontolake.spark.pipeline.reasons import about, joined
from ontolake.spark.pipeline.tables import RunTables
from ontolake.spark.types import named

_END, _REJECTED, _WHY = "$end", "$rejected", "$why:"


class MissingEnds(NamedTuple):
    """One side of a relation: the column with its key, and the keys that no row of its type has."""

    target: Target
    side: str
    of: TypeInfo
    column: str
    missing: DataFrame

    @property
    def name(self) -> str:
        return f"the {self.side} ends of {self.target.info.name} exist"


class DanglingEnds(NamedTuple):
    """What is to be done about missing ends."""

    expectations: Sequence[dict[str, Any]]
    """For each side of each relation whether its ends exist, for the report."""
    failed: Sequence[str]
    """What fails the run."""
    rejected: Mapping[str, Sequence[MissingEnds]]
    """By the table of a relation: the ends whose relations are rejected, with `$end` and `$rejected`."""


def find(
    pipeline: Pipeline, tables: RunTables, fragments: Mapping[str, Sequence[Fragment]],
    checked: Mapping[str, DataFrame],
) -> DanglingEnds:  # fmt: skip
    """Look for the ends of all relations that are new or changed, by one job if none is missing.

    `checked` has the checked rows of the tables of which some were rejected.
    """
    ends = [end for target in pipeline.targets if target.info.kind == "relation"
            and fragments.get(tables.name(target.info)) for end in _ends(target, tables, fragments)]
    asked = [TextQuery(end.name, end.missing.select(F.format_string("'%s'", _END).alias("found"))) for end in ends]
    told, failed, rejected = [], [], dict[str, list[MissingEnds]]()
    for end, found in zip(ends, answers(asked), strict=True):
        policy, unknown = end.target.dangling or pipeline.dangling, list(found)
        if found:
            # Not persist(): Spark works out again what it has read from a place as soon as it writes there.
            kept = _explained(end, checked.get(tables.name(end.of))).localCheckpoint()
            if policy != "quarantine":
                only = kept.where(~F.col(_REJECTED)).select(F.format_string("'%s'", _END).alias("found"))
                unknown = answers([TextQuery(end.name, only)])[0]
                kept = kept.where(F.col(_REJECTED))
            if policy == "quarantine" or checked.get(tables.name(end.of)) is not None:
                rejected.setdefault(tables.name(end.target.info), []).append(end._replace(missing=kept))
        ok = policy != "fail" or not unknown
        missing = f"there is no {end.of.name} {listed(unknown, ', ')}" if unknown else ""
        told.append({"name": end.name, "ok": ok, "found": missing})
        if not ok:
            failed.append(f"{end.name}: {missing}")
    return DanglingEnds(told, failed, rejected)


def _ends(target: Target, tables: RunTables, fragments: Mapping[str, Sequence[Fragment]]) -> Iterator[MissingEnds]:
    new = tables.staged(target.info, fragments[tables.name(target.info)])
    for side, cls, column in zip(("left", "right"), (target.info.left, target.info.right), target.info.keys,
                                 strict=False):
        of = type_info(cls)
        known = tables.after(of, fragments.get(tables.name(of), ())).select(named(of.keys[0].stored).alias(_END))
        missing = new.select(named(column.stored).alias(_END)).join(known, _END, "left_anti").distinct()
        yield MissingEnds(target, side, of, column.stored, missing)


def _explained(end: MissingEnds, checked: DataFrame | None) -> DataFrame:
    """The missing keys, and whether a row with each was rejected."""
    if checked is None:
        return end.missing.withColumn(_REJECTED, F.lit(False))
    bad = checked.where(F.col(PROBLEM).isNotNull()).select(named(end.of.keys[0].stored).alias(_END))
    bad = bad.where(named(_END).isNotNull()).distinct().withColumn(_REJECTED, F.lit(True))
    return end.missing.join(bad, _END, "left").select(_END, F.coalesce(_REJECTED, F.lit(False)).alias(_REJECTED))


def without(checked: DataFrame, info: TypeInfo, ends: Sequence[MissingEnds]) -> DataFrame:
    """Checked rows of a relation, of which those with these ends have a problem, too."""
    values = F.to_json(F.struct(*[named(column.stored) for column in info.all_columns]))
    for end in ends:
        shown = named(_END).cast("string")
        why = F.when(F.col(_REJECTED), about(shown, f"is the key of a {end.of.name} that was rejected")).otherwise(
            about(shown, f"is not the key of any {end.of.name}"))
        keys = end.missing.select(named(_END).alias(f"{_END}:{end.side}"),
                                  F.concat(F.lit(f"{end.column}: "), why).alias(f"{_WHY}{end.side}"))
        checked = checked.join(keys, named(end.column) == named(f"{_END}:{end.side}"), "left").drop(
            f"{_END}:{end.side}")
    problem = F.coalesce(F.col(PROBLEM), joined([named(f"{_WHY}{end.side}") for end in ends]))
    found = checked.withColumn(PROBLEM, problem).drop(*[f"{_WHY}{end.side}" for end in ends])
    return found.withColumn(RAW, F.when(F.col(PROBLEM).isNotNull(), F.coalesce(F.col(RAW), values)).otherwise(
        F.col(RAW)))
