"""What is expected of the state that a run would publish, and whether it holds. All of it is one query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.versioned import table_of
from ontolake.parallel import Fragment
from ontolake.spark.errors import ExpectationError, PipelineError
from ontolake.spark.pipeline.declaring import Expectation, Pipeline
from ontolake.spark.pipeline.report import Report
from ontolake.spark.pipeline.sources import spark_says
from ontolake.spark.pipeline.tables import Tables
from ontolake.spark.types import named, quoted

_SHOWN = 3
"""So many violations of an expectation are shown."""


class Question(NamedTuple):
    """A query that finds what violates an expectation, as text; or, where a number is expected, that number."""

    name: str
    found: DataFrame
    expectation: Expectation | None = None
    says: str = ""


def expect(pipeline: Pipeline, tables: Tables, fragments: Mapping[str, Sequence[Fragment]], report: Report) -> None:
    """See whether all that is expected of the state after a run holds. Raises `ExpectationError` with all that fails.

    Relations that are new need both their ends, whether or not that is asked for.
    """
    relations = [target.info for target in pipeline.targets if target.info.kind == "relation"
                 and fragments.get(tables.name(target.info))]
    if not relations and not pipeline.expectations:
        return
    views: dict[str, DataFrame] = {}
    try:
        for info in map(type_info, pipeline.types):
            views[table_of(info)] = found = tables.after(info, fragments.get(tables.name(info), ()))
            found.createOrReplaceTempView(quoted(info.name))
        questions = [question for info in relations
                     for question in _endpoints(info, tables.staged(info, fragments[tables.name(info)]), views)]
        questions += [_question(one, tables.spark, views) for one in pipeline.expectations]
    finally:  # the queries know by now what the names mean
        for info in map(type_info, pipeline.types):
            tables.spark.catalog.dropTempView(info.name)
    failed = []
    for question, answers in zip(questions, _answers(questions), strict=True):
        ok, told = _judged(question, answers)
        report.expectations.append({"name": question.name, "ok": ok, "found": told})
        if not ok:
            failed.append(f"{question.name}: {told}")
    if failed:
        raise ExpectationError(failed)


def _endpoints(info: TypeInfo, new: DataFrame, views: Mapping[str, DataFrame]) -> Iterator[Question]:
    for side, end in (("left", info.left), ("right", info.right)):
        of, key = type_info(end), info.keys[0 if side == "left" else 1].stored
        known = views[table_of(of)].select(named(of.keys[0].stored).alias("key"))
        wanted = new.select(named(key).alias("key")).join(known, "key", "left_anti")
        missing = wanted.distinct().select(F.format_string("'%s'", "key").alias("found"))
        yield Question(f"the {side} ends of {info.name} exist", missing, says=f"there is no {of.name} ")


def _question(one: Expectation, spark: SparkSession, views: Mapping[str, DataFrame]) -> Question:
    if one.table is not None:
        return Question(one.name, views[one.table].agg(F.count("*").cast("string").alias("found")), one)
    try:
        found = spark.sql(str(one.sql))
    except AnalysisException as error:
        raise PipelineError(f"the expectation {one.name!r} is not a query over the types: "
                            f"{spark_says(error)[1]}") from None
    names = [f"column {number}" for number in range(len(found.columns))]  # a query may call two alike
    values = [F.coalesce(named(name).cast("string"), F.lit("null")) for name in names]
    shown = F.concat_ws(", ", *[F.concat(F.lit(f"{name} "), value)
                                for name, value in zip(found.columns, values, strict=True)])
    return Question(one.name, found.toDF(*names).select(shown.alias("found")))


def _answers(questions: Sequence[Question]) -> list[list[str]]:
    """What each question finds, some of it, by one job for all."""
    asked: DataFrame | None = None
    for number, question in enumerate(questions):
        one = question.found.limit(_SHOWN + 1).select(F.lit(number).alias("question"), "found")
        asked = one if asked is None else asked.unionAll(one)
    found: list[list[str]] = [[] for _ in questions]
    for row in asked.collect() if asked is not None else ():
        found[row.question].append(row.found)
    return found


def _judged(question: Question, answers: Sequence[str]) -> tuple[bool, str]:
    one = question.expectation
    if one is not None:
        count = int(answers[0])
        return (one.at_least is None or count >= one.at_least) and (
            one.at_most is None or count <= one.at_most), f"{count:,} rows"
    shown = (", " if question.says else "; ").join(sorted(answers)[:_SHOWN])
    return not answers, question.says + shown + (" and more" if len(answers) > _SHOWN else "") if answers else ""
