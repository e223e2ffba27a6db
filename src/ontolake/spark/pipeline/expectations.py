"""What is expected of the state that a run would publish, and whether it holds. All of it is one query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ontolake.model.types import type_info
from ontolake.ontology.versioned import table_of
from ontolake.parallel import Fragment
from ontolake.spark.errors import ExpectationError, PipelineError
from ontolake.spark.pipeline.declaration import Expectation, Pipeline
from ontolake.spark.pipeline.questions import TextQuery, answers, listed
from ontolake.spark.pipeline.report import Report
from ontolake.spark.pipeline.sources import spark_says
from ontolake.spark.pipeline.tables import RunTables
from ontolake.spark.types import named, quoted


def expect(
    pipeline: Pipeline, tables: RunTables, fragments: Mapping[str, Sequence[Fragment]], report: Report,
    failed: Sequence[str] = (),
) -> None:  # fmt: skip
    """See whether all that is expected of the state after a run holds. Raises `ExpectationError` with all that fails,
    beside what has `failed` before."""
    failed = [*failed, *(_asked(pipeline, tables, fragments, report) if pipeline.expectations else ())]
    if failed:
        raise ExpectationError(failed)


def _asked(
    pipeline: Pipeline, tables: RunTables, fragments: Mapping[str, Sequence[Fragment]], report: Report
) -> list[str]:  # fmt: skip
    views: dict[str, DataFrame] = {}
    try:
        for info in map(type_info, pipeline.types):
            views[table_of(info)] = found = tables.after(info, fragments.get(tables.name(info), ()))
            found.createOrReplaceTempView(quoted(info.name))
        questions = [_question(one, tables.spark, views) for one in pipeline.expectations]
    finally:  # the queries know by now what the names mean
        for info in map(type_info, pipeline.types):
            tables.spark.catalog.dropTempView(info.name)
    failed = []
    for question, found_by in zip(questions, answers(questions), strict=True):
        ok, told = _judged(question, found_by)
        report.expectations.append({"name": question.name, "ok": ok, "found": told})
        if not ok:
            failed.append(f"{question.name}: {told}")
    return failed


def _question(one: Expectation, spark: SparkSession, views: Mapping[str, DataFrame]) -> TextQuery:
    if one.table is not None:
        return TextQuery(one.name, views[one.table].agg(F.count("*").cast("string").alias("found")), one)
    try:
        found = spark.sql(str(one.sql))
    except AnalysisException as error:
        raise PipelineError(f"the expectation {one.name!r} is not a query over the types: "
                            f"{spark_says(error)[1]}") from None
    names = [f"column {number}" for number in range(len(found.columns))]  # a query may call two alike
    values = [F.coalesce(named(name).cast("string"), F.lit("null")) for name in names]
    shown = F.concat_ws(", ", *[F.concat(F.lit(f"{name} "), value)
                                for name, value in zip(found.columns, values, strict=True)])
    return TextQuery(one.name, found.toDF(*names).select(shown.alias("found")))


def _judged(question: TextQuery, found: Sequence[str]) -> tuple[bool, str]:
    one = question.expectation
    if one is not None:
        count = int(found[0])
        return (one.at_least is None or count >= one.at_least) and (
            one.at_most is None or count <= one.at_most), f"{count:,} rows"
    return not found, listed(found, "; ")
