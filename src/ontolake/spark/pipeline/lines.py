"""CSV and JSON line by line: read as text first, so that a bad line can be shown as it is, with its file and line."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ontolake.spark.errors import SourceError
from ontolake.spark.pipeline.places import AT, BLOCK, FILE, LINE, MALFORMED, RAW, file_and_block
from ontolake.spark.types import named, quoted

_LOOKED_AT = 1000
_FITS = "$fits"
_ENCODING = ("encoding", "charset")


def csv_lines(
    spark: SparkSession, name: str, path: str, options: Mapping[str, str], columns: Sequence[str] | None
) -> DataFrame:  # fmt: skip
    """Rows of CSV, all text. Raises `SourceError` if there is no header, or if files have different ones."""
    own = {"escape": '"', **options}  # a quote inside quotes is written twice, as almost everybody does
    given = {key: value for key, value in own.items() if key.lower() not in _ENCODING}  # lines are decoded before
    header = given.pop("header", "true").lower() == "true"
    text, comment = _text(spark, name, path, options), given.get("comment")
    heads = _heads(text, header, comment)
    if heads:
        first = _parts(spark, heads[min(heads)], given)
    elif columns is None:
        raise SourceError(name, f"there is no line in {path!r}, not even a header", hint="check the path")
    names = list(columns) if columns is not None else _names(first if header else [None] * len(first))
    if header and len(set(heads.values())) > 1:
        for file in sorted(heads):
            if _parts(spark, heads[file], given) != first:
                raise SourceError(name, f"the header of {file} is {heads[file]!r}, and that of {min(heads)} "
                                  f"{heads[min(heads)]!r}", hint="files with other columns, or in another order, are "
                                  "another source")
    fields = ", ".join(f"{quoted(one)} string" for one in names)
    parsed = F.from_csv("value", f"{fields}, `{MALFORMED}` string", {**given, "columnNameOfCorruptRecord": MALFORMED})
    told = f"the line does not have the {len(names)} columns of the header"
    row = F.col("row")
    found = _rows(text, parsed, {one: row.getField(one) for one in names},
                  F.when(row.getField(MALFORMED).isNotNull(), F.lit(told)), _encoding(options))
    found = found.where(_counts(F.col(RAW), comment))
    return found.where(~((F.col(BLOCK) == 0) & F.col(RAW).isin(*set(heads.values())))) if header and heads else found


def json_lines(
    spark: SparkSession, name: str, path: str, options: Mapping[str, str], columns: Sequence[str] | None,
    optional: Sequence[tuple[str, ...]],
) -> DataFrame:  # fmt: skip
    """Rows of JSON objects, their values as text. What is `optional`, under one of some names, is looked for in all
    lines, whether or not the first of them have it. Raises `SourceError` if none of those is an object."""
    parsed, row = F.from_json("value", "map<string,string>"), F.col("row")
    text = _text(spark, name, path, options)
    names = columns
    if names is None:
        some = text.select(F.map_keys(parsed).alias("names")).head(_LOOKED_AT)
        names = sorted({one for line in some for one in line.names or ()})
        if not names:
            raise SourceError(name, f"none of the first lines of {path!r} is a JSON object",
                              hint="a list over all of a file is read with multiLine=True; for a file without lines "
                              "name the columns=[…]")
    values = {one: row.getItem(one) for one in names}
    for alike in optional if columns is None else ():
        if values.keys().isdisjoint(alike):
            values[alike[0]] = F.coalesce(*[row.getItem(one) for one in alike])
    found = _rows(text, parsed, values,
                  F.when(row.isNull(), F.lit("the line is not a JSON object")), _encoding(options))
    return found.where(_counts(F.col(RAW)))


def _text(spark: SparkSession, name: str, path: str, options: Mapping[str, str]) -> DataFrame:
    """Lines as `value`, where they are, whether they are in their encoding, and what the names of
    folders say, as in `year=2024`."""
    lines = spark.read.options(**options).text(path)
    value, fits = _decoded(name, F.col("value"), _encoding(options))
    return lines.select(value.alias("value"), fits.alias(_FITS), *file_and_block(),
                        *[named(one).cast("string").alias(one) for one in lines.columns if one != "value"])


def _counts(line: Column, comment: str | None = None) -> Column:
    """Whether a line is neither blank nor a comment."""
    filled = F.trim(line) != ""
    return filled if not comment else filled & ~line.startswith(comment)


def _encoding(options: Mapping[str, str]) -> str:
    return next((value for key, value in options.items() if key.lower() in _ENCODING), "UTF-8")


def _decoded(name: str, value: Column, encoding: str) -> tuple[Column, Column]:
    """The text of a line, and whether all of it is in an encoding. Raises `SourceError` for one that lines cannot have.

    Where a byte is a character, Spark reads the characters of one such encoding, which become those of the other.
    """
    bytes_above = bytes(range(128, 256))
    try:
        if codecs.lookup(encoding).name == "utf-8":
            return F.make_valid_utf8(value), F.is_valid_utf8(value)
        above = bytes_above.decode(encoding, "replace")
        plain = bytes(range(128)).decode(encoding, "replace") == bytes(range(128)).decode("ascii")
    except LookupError:
        raise SourceError(name, f"there is no encoding {encoding!r}", hint="such as UTF-8 or windows-1252") from None
    if len(above) != len(bytes_above) or not plain:
        raise SourceError(name, f"lines cannot be told apart in {encoding}",
                          hint="multiLine=True reads UTF-16 and UTF-32 as a whole; else make it UTF-8 before")
    text = F.translate(F.decode(value.cast("binary"), "ISO-8859-1"), bytes_above.decode("latin-1"), above)
    return text, ~text.contains("\ufffd")


def _heads(text: DataFrame, header: bool, comment: str | None) -> dict[str, str]:
    """The first line of each file; of the first one alone, if there are no headers to be compared."""
    counts = _counts(F.col("value"), comment)
    if not header or len(text.inputFiles()) < 2:
        found = text.where(counts).select(FILE, "value").head(1)
    else:
        lines = text.select(FILE, BLOCK, "value", F.monotonically_increasing_id().alias(AT))
        first = F.min_by("value", AT).alias("value")
        found = lines.where((F.col(BLOCK) == 0) & counts).groupBy(FILE).agg(first).collect()
    return {row[FILE]: row["value"] for row in found}


def _parts(spark: SparkSession, line: str, options: Mapping[str, str]) -> list[str | None]:
    """What is between the separators of a line. Spark finds out without a job, as there is nothing to be read."""
    one, text = spark.sql("VALUES (1)"), F.lit(line)
    shape = str(one.select(F.schema_of_csv(text, dict(options))).collect()[0][0])
    columns = ", ".join(f"{name} string" for name in re.findall(r"\b_c\d+(?=: )", shape))
    return list(one.select(F.from_csv(text, columns, options)).collect()[0][0])


def _names(header: Sequence[str | None]) -> list[str]:
    """Columns are called as their header says, and where it does not by their number, as Spark does it."""
    lower = [(name or "").lower() for name in header]
    return [f"_c{at}" if not name else f"{name}{at}" if lower.count(name.lower()) > 1 else name
            for at, name in enumerate(header)]


def _rows(
    text: DataFrame, row: Column, columns: Mapping[str, Column], malformed: Column, encoding: str
) -> DataFrame:  # fmt: skip
    """Lines of text as rows; `row` is what a line is parsed to, of which the columns are made.

    The number that each line gets keeps filters above it, so that no line is parsed again for a filter.
    """
    folders = [name for name in text.columns if name not in ("value", _FITS, FILE, BLOCK, *columns)]
    lines = text.select("value", FILE, BLOCK, _FITS, *folders, row.alias("row"))
    wrong = F.when(~F.col(_FITS), F.lit(f"the line is not {encoding}; the option encoding=… of a source says what it is"
                                        )).otherwise(malformed)
    return lines.select(
        *[column.alias(name) for name, column in columns.items()], *folders, FILE, BLOCK,
        F.monotonically_increasing_id().alias(AT), F.lit(None).cast("bigint").alias(LINE), F.col("value").alias(RAW),
        wrong.alias(MALFORMED))  # fmt: skip
