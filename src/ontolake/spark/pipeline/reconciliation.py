"""What becomes of the rows of a source: compared with the latest state in one go over them, and counted on the way."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ontolake.model.types import TypeInfo
from ontolake.spark.pipeline import quarantine
from ontolake.spark.pipeline.checks import PLACE, PROBLEM
from ontolake.spark.pipeline.declaration import Target
from ontolake.spark.pipeline.places import AT, RAW
from ontolake.spark.pipeline.validation import same
from ontolake.spark.types import named

STATE = "_state"
STATES = ("bad", "keyless", "repeated", "insert", "update", "unchanged", "vanished")
"""What becomes of a row. One that is `keyless` is bad and has no key, or none that was looked at."""
_KEY, _OLD, _TURN, _GOOD = "$key:", "$old:", "$turn", "$good"
REPEATED = "the key is there more than once; the last row counts"


def slim(checked: DataFrame) -> DataFrame:
    """Without what good rows looked like, which only bad ones need."""
    return checked.withColumn(RAW, F.when(F.col(PROBLEM).isNotNull(), F.col(RAW)))


def reconciled(
    target: Target, checked: DataFrame, latest: DataFrame | None, order: Sequence[str], along: Sequence[str] = ()
) -> DataFrame:  # fmt: skip
    """The fields of checked rows, and what becomes of each: one of `STATES`. Of rows with one key the last counts.

    Rows meet their likes and the latest ones after one shuffle, by key. Bad rows come along without a key, unless
    vanished rows are looked for: a row whose new state was rejected has not vanished. `along` are columns of checked
    rows that stay.
    """
    info = target.info
    keys = [named(_KEY + column.stored) for column in info.keys]
    rest = [named(column.stored) for column in info.columns]
    good = F.col(PROBLEM).isNull()
    known = good if target.vanished is None else F.lit(True)
    for column in info.keys:  # part of a key names nothing
        known = known & named(column.stored).isNotNull()
    typed = checked.select(*[F.when(known, named(column.stored)).alias(_KEY + column.stored) for column in info.keys],
                           *rest, good.alias(_GOOD), *dict.fromkeys((*order, *along)))
    turn = F.row_number().over(Window.partitionBy(*keys, _GOOD).orderBy(*[F.desc(name) for name in order]))
    found = typed.select(*keys, *rest, *along, named(_GOOD), turn.alias(_TURN))
    state = F.when(keys[0].isNull(), "keyless").when(~named(_GOOD), "bad").when(named(_TURN) > 1, "repeated")
    if latest is None:
        state = state.otherwise("insert")
    else:
        old = latest.select(*[named(column.stored).alias(_OLD + column.stored) for column in info.all_columns])
        on = [key == named(_OLD + column.stored) for key, column in zip(keys, info.keys, strict=True)]
        alike = F.lit(True)
        for column in info.columns:
            alike = alike & same(column, named(column.stored), named(_OLD + column.stored))
        found = found.join(old, on, "left" if target.vanished is None else "full")
        state = F.when(named(_TURN).isNull(), "vanished").otherwise(
            state.when(named(_OLD + info.keys[0].stored).isNull(), "insert").when(alike, "unchanged").otherwise(
                "update"))
        if target.vanished is not None:
            keys = [F.coalesce(key, named(_OLD + column.stored)) for key, column in zip(keys, info.keys, strict=True)]
    return found.select(*[key.alias(column.stored) for key, column in zip(keys, info.keys, strict=True)], *rest,
                        *along, state.alias(STATE))


def counting() -> list[Expression]:
    """How many rows there are of each state."""
    return [F.count(F.when(F.col(STATE) == state, 1)).alias(state) for state in STATES]


def changed(info: TypeInfo, found: DataFrame) -> DataFrame:
    """The reconciled rows that are to be published."""
    return found.where(F.col(STATE).isin("insert", "update")).select(
        *[named(column.stored) for column in info.all_columns])


def vanished(info: TypeInfo, found: DataFrame) -> DataFrame:
    """The keys of the rows that the source no longer has."""
    return found.where(F.col(STATE) == "vanished").select(*[named(column.stored) for column in info.keys])


def rejected(target: Target, checked: DataFrame, order: Sequence[str], *, repeats: bool) -> DataFrame:
    """The bad rows with their places, and if there are any those that a later one of the same key replaces."""
    bad = checked.where(F.col(PROBLEM).isNotNull()).select(PROBLEM, *PLACE)
    if not repeats:
        return bad
    keys = [named(column.stored) for column in target.info.keys]
    turn = F.row_number().over(Window.partitionBy(*keys).orderBy(*[F.desc(name) for name in order]))
    good = checked.where(F.col(PROBLEM).isNull())
    if target.source.is_file:  # what such rows look like is asked of the source, not taken along by all of them
        places = good.select(*keys, *order).withColumn(_TURN, turn).where(named(_TURN) > 1).select(AT)
        again = checked.join(F.broadcast(places.limit(quarantine.KEPT)), AT)
    else:
        values = F.to_json(F.struct(*[named(column.stored) for column in target.info.all_columns]))
        again = good.withColumn(_TURN, turn).where(named(_TURN) > 1).withColumn(RAW, values)
    return bad.unionByName(again.select(F.lit(REPEATED).alias(PROBLEM), *PLACE))
