"""Rows of a source as typed rows of a target: what each field is, what is wrong with a row, and where the row was.

All of it is one expression for Spark, made from the type; no row goes through Python.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ontolake.spark.errors import SourceError
from ontolake.spark.pipeline.declaration import Target
from ontolake.spark.pipeline.places import AT, BLOCK, FILE, LINE, MALFORMED, OURS, RAW
from ontolake.spark.pipeline.reasons import joined
from ontolake.spark.pipeline.sources import spark_says
from ontolake.spark.pipeline.validation import field_of
from ontolake.spark.types import named, quoted

PROBLEM = "_problem"
PLACE = (FILE, BLOCK, AT, LINE, RAW)
"""Where a row was, and what it looked like."""


def checked(target: Target, rows: DataFrame) -> DataFrame:
    """Typed values under the stored names, what is wrong with the row (null if nothing is), and where it was.

    Raises `SourceError` if the source lacks what the target asks of it.
    """
    info = target.info
    have = own_columns(rows)
    try:
        if target.where is not None:
            rows = rows.where(F.col(MALFORMED).isNotNull() | F.expr(target.where))
        given = _given(target, have)
        taken = rows.select(*[value.alias(name) for name, value in given.items()], *[F.col(name) for name in OURS])
        kinds = {field.name: field.dataType for field in taken.schema.fields}
        values, problems = [], [F.col(MALFORMED)]
        for column in info.all_columns:
            one = named(column.name) if column.name in given else None
            made = field_of(info, column, one, kinds.get(column.name) if one is not None else None)
            if made is None:
                raise SourceError(target.source.name, f"nothing gives {info.name}.{column.name}: the source has no "
                                  "such column, and there is no default", hint=f"it has {', '.join(have)}")
            values.append(made.value.alias(f"$value:{column.stored}"))
            problems.append(F.when(F.col(MALFORMED).isNull(), made.problem))
        typed = taken.select(*values, joined(problems).alias(PROBLEM), *PLACE)
        found = typed.select(*[named(f"$value:{column.stored}").alias(column.stored) for column in info.all_columns],
                             PROBLEM, *PLACE)
        failed = [F.when(~F.coalesce(F.expr(sql), F.lit(False)), F.lit(name)) for name, sql in target.checks.items()]
        return found.withColumn(PROBLEM, F.coalesce(F.col(PROBLEM), joined(failed))) if failed else found
    except AnalysisException as error:
        raise SourceError(target.source.name, f"what is loaded as {info.name} cannot be worked out: "
                          f"{spark_says(error)[1]}", hint=f"the source has {', '.join(have)}") from None


def own_columns(rows: DataFrame) -> list[str]:
    """The columns that the source itself has."""
    return [name for name in rows.columns if name not in OURS]


def _given(target: Target, have: Sequence[str]) -> dict[str, Expression]:
    """What the source gives for each field, as it was asked for or by the field's own name."""
    given = {}
    for column in target.info.all_columns:
        sql = target.columns.get(column.name, target.columns.get(column.stored))
        if sql is None:
            sql = next((quoted(name) for name in (column.stored, column.name) if name in have), None)
        if sql is not None:
            given[column.name] = F.expr(sql)
    return given
