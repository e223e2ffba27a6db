"""Sources of a pipeline: files of any format that Spark reads, tables of other stores, or a DataFrame of your own.

Lines of CSV and JSON are read as text first, so that a bad one can be shown as it is, with its file and line.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ontolake.spark.errors import SourceError

FILE, BLOCK, AT, LINE, RAW, MALFORMED = "_file", "_block", "_at", "_line", "_raw", "_malformed"
OURS = (FILE, BLOCK, AT, LINE, RAW, MALFORMED)
SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""What actions raise: some errors of Java have a form in Python, others have not."""
_LOOKED_AT = 1000
_HASHED = 64 << 20


@dataclass(frozen=True)
class Source:
    """Where rows come from. `path` may have `{parameters}` in it, and is relative to the pipeline's folder."""

    name: str
    format: str
    path: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    columns: Sequence[str] | None = None
    make: Callable[[SparkSession], DataFrame] | None = None

    @property
    def is_lines(self) -> bool:
        """Whether each row is a line of text."""
        return self.format in ("csv", "json") and self.options.get("multiLine", "false").lower() != "true"

    @property
    def is_file(self) -> bool:
        """Whether it is known where each row is, and reading again finds it there."""
        return self.is_lines or self.format == "parquet"

    def located(self, folder: Path, parameters: Mapping[str, str]) -> str | None:
        """The path as it is read. Raises `SourceError` for a parameter that was not given."""
        if self.path is None:
            return None
        try:
            path = self.path.format_map(parameters)
        except (KeyError, IndexError, ValueError) as error:
            raise SourceError(self.name, f"the path {self.path!r} asks for the parameter {error}",
                              hint="give it with --set NAME=VALUE") from None
        return path if "://" in path or path.startswith("/") else str(folder / path)

    def read(self, spark: SparkSession, folder: Path, parameters: Mapping[str, str]) -> DataFrame:
        """The rows, with where they come from. Raises `SourceError` for what is missing or cannot be read."""
        path = self.located(folder, parameters)
        try:
            if self.make is not None:
                return _unplaced(self.make(spark))
            if self.is_lines:
                return self._csv(spark, str(path)) if self.format == "csv" else self._json(spark, str(path))
            reader = spark.read.format(self.format).options(**self.options)
            found = reader.load(path) if path is not None else reader.load()
            return _placed(found) if self.format == "parquet" else _unplaced(found)
        except SPARK_ERRORS as error:
            condition, said = spark_says(error)
            if condition.startswith("PATH_NOT_FOUND"):
                raise SourceError(self.name, f"there is nothing at {path!r}", hint="check the path") from None
            if self.make is not None and not isinstance(error, AnalysisException):
                raise
            raise SourceError(self.name, f"cannot be read: {said}") from error

    def _csv(self, spark: SparkSession, path: str) -> DataFrame:
        given = {"escape": '"', **self.options}  # a quote inside quotes is written twice, as almost everybody does
        header = given.get("header", "true").lower() == "true"
        names = list(self.columns or spark.read.options(**{**given, "header": str(header)}).csv(path).columns)
        fields = ", ".join(f"`{name}` string" for name in names)
        options = {key: value for key, value in given.items() if key != "header"}
        parsed = F.from_csv("value", f"{fields}, `{MALFORMED}` string",
                            {**options, "columnNameOfCorruptRecord": MALFORMED})
        told = f"the line does not have the {len(names)} columns of the header"
        row = F.col("row")
        found = _lines(spark, path, parsed, {name: row.getField(name) for name in names},
                       F.when(row.getField(MALFORMED).isNotNull(), F.lit(told)))
        if header:
            title: Column = F.col(BLOCK) == 0
            for name in names:
                title = title & F.col(f"`{name}`").eqNullSafe(F.lit(name))
            found = found.where(~title)
        return found

    def _json(self, spark: SparkSession, path: str) -> DataFrame:
        parsed, row = F.from_json("value", "map<string,string>"), F.col("row")
        names = self.columns
        if names is None:
            some = spark.read.text(path).limit(_LOOKED_AT).select(F.explode(F.map_keys(parsed)).alias("name"))
            names = sorted(found.name for found in some.distinct().collect())
        return _lines(spark, path, parsed, {name: row.getItem(name) for name in names},
                      F.when(row.isNull(), F.lit("the line is not a JSON object")))

    def fingerprint(self, folder: Path, parameters: Mapping[str, str], files: Sequence[str]) -> dict[str, Any]:
        """What tells this delivery from another: files with their sizes and a hash."""
        path = self.located(folder, parameters)
        found: dict[str, Any] = {"format": self.format, "path": path}
        digest, size, count = hashlib.sha256(), 0, 0
        for name in sorted(files):
            local = Path(unquote(urlparse(name).path)) if name.startswith("file:") else None
            if local is None or not local.is_file():
                digest.update(name.encode())
                continue
            stat = local.stat()
            with local.open("rb") as opened:
                digest.update(hashlib.sha256(opened.read(_HASHED)).digest())
            digest.update(f"{local.name}:{stat.st_size}".encode())
            size, count = size + stat.st_size, count + 1
        return {**found, "files": count, "bytes": size, "sha256": digest.hexdigest()}


def _lines(
    spark: SparkSession, path: str, row: Column, columns: Mapping[str, Column], malformed: Column
) -> DataFrame:  # fmt: skip
    """Lines of text as rows; `row` is what a line is parsed to, of which the columns are made.

    The number that each line gets keeps filters above it, so that no line is parsed again for a filter.
    """
    lines = spark.read.text(path).select(
        "value", F.col("_metadata.file_path").alias(FILE), F.col("_metadata.file_block_start").alias(BLOCK),
        row.alias("row"))  # fmt: skip
    found = lines.select(
        *[column.alias(name) for name, column in columns.items()], FILE, BLOCK,
        F.monotonically_increasing_id().alias(AT), F.lit(None).cast("bigint").alias(LINE), F.col("value").alias(RAW),
        malformed.alias(MALFORMED))  # fmt: skip
    return found.where(F.trim(RAW) != "")


def _placed(found: DataFrame) -> DataFrame:
    """Rows of Parquet, which knows where each row is."""
    names = found.columns
    return found.select(
        *[F.col(f"`{name}`") for name in names], F.col("_metadata.file_path").alias(FILE),
        F.col("_metadata.file_block_start").alias(BLOCK), F.monotonically_increasing_id().alias(AT),
        (F.col("_metadata.row_index") + 1).alias(LINE), _whole(names), F.lit(None).cast("string").alias(MALFORMED))


def _unplaced(found: DataFrame) -> DataFrame:
    """Rows of which nobody knows where they were."""
    names = found.columns
    return found.select(
        *[F.col(f"`{name}`") for name in names], F.lit(None).cast("string").alias(FILE),
        F.lit(0).cast("bigint").alias(BLOCK), F.monotonically_increasing_id().alias(AT),
        F.lit(None).cast("bigint").alias(LINE), _whole(names), F.lit(None).cast("string").alias(MALFORMED))


def _whole(names: Sequence[str]) -> Column:
    return F.to_json(F.struct(*[F.col(f"`{name}`") for name in names])).alias(RAW)


def spark_says(error: Exception) -> tuple[str, str]:
    """What Spark calls an error, such as `PATH_NOT_FOUND`, and the sentence that goes with it.

    What a library below Spark raises, such as the driver of a database, has no such name: then it is what Java says.
    """
    text = str(error).strip()
    found = re.search(r"\[([A-Z][A-Z_]+(?:\.[A-Z_]+)*)\][^\n]*", text)
    if found is not None:
        return found[1], found[0]
    java = re.search(r"^: (.+)$", text, re.MULTILINE)
    return "", java[1] if java is not None else text.partition("\n")[0]
