"""Sources of a pipeline: files of any format that Spark reads, tables of other stores, or a DataFrame of your own.

What becomes of lines of CSV and JSON is in `lines`.
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
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ontolake.spark.errors import SourceError
from ontolake.spark.pipeline.lines import csv_lines, json_lines
from ontolake.spark.pipeline.places import MALFORMED, placed, unplaced
from ontolake.spark.types import quoted

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""What actions raise: some errors of Java have a form in Python, others have not."""
_HINTS = {"PARQUET_TYPE_ILLEGAL": "Spark has microseconds: pandas and pyarrow write them with coerce_timestamps='us'"}
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
        whole = any(key.lower() == "multiline" and value == "true" for key, value in self.options.items())
        return self.format in ("csv", "json") and not whole

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
        except KeyError as error:
            raise SourceError(self.name, f"the path {self.path!r} asks for the parameter {error}",
                              hint="give it with --set NAME=VALUE") from None
        except (AttributeError, IndexError, ValueError, TypeError) as error:
            raise SourceError(self.name, f"the path {self.path!r} is not a text with {{parameters}}: {error}",
                              hint="a brace that is part of the path is written twice: {{") from None
        return path if "://" in path or path.startswith("/") else str(folder / path)

    def read(
        self, spark: SparkSession, folder: Path, parameters: Mapping[str, str],
        optional: Sequence[tuple[str, ...]] = (),
    ) -> DataFrame:  # fmt: skip
        """The rows, with where they come from; `optional` columns, under one of some names, may be in some rows of
        JSON alone.

        Raises `SourceError` for what is missing or cannot be read.
        """
        path = self.located(folder, parameters)
        try:
            if self.make is not None:
                return unplaced(self.make(spark))
            if self.is_lines:
                if self.format == "csv":
                    return csv_lines(spark, self.name, str(path), self.options, self.columns)
                return json_lines(spark, self.name, str(path), self.options, self.columns, optional)
            if self.format == "csv":
                return self._records(spark, str(path))
            if self.format == "parquet":
                return placed(self._parquet(spark, str(path)))
            own = {"primitivesAsString": "true"} if self.format == "json" else {}  # checks are those of lines
            reader = spark.read.format(self.format).options(**own, **self.options)
            return unplaced(reader.load(path) if path is not None else reader.load())
        except SPARK_ERRORS as error:
            condition, said = spark_says(error)
            if condition.startswith("PATH_NOT_FOUND"):
                raise SourceError(self.name, f"there is nothing at {path!r}", hint="check the path") from None
            if self.make is not None and not isinstance(error, AnalysisException):
                raise
            raise SourceError(self.name, f"cannot be read: {said}", hint=_HINTS.get(condition)) from error

    def _records(self, spark: SparkSession, path: str) -> DataFrame:
        """Rows of CSV with line breaks inside quotes, all text."""
        given = {"header": "true", "escape": '"', "enforceSchema": "false", **self.options}
        names = list(self.columns or spark.read.options(**given).csv(path).columns)
        found = spark.read.options(**given).schema(
            ", ".join(f"{quoted(name)} string" for name in (*names, MALFORMED))).option(
            "columnNameOfCorruptRecord", MALFORMED).csv(path)
        return unplaced(found, F.col("_metadata.file_path"), MALFORMED)

    def _parquet(self, spark: SparkSession, path: str) -> DataFrame:
        """Rows of all columns that the files have, also of those that only some of them have."""
        try:
            return spark.read.options(**{"mergeSchema": "true", **self.options}).parquet(path)
        except SPARK_ERRORS as error:
            if not spark_says(error)[0].startswith("CANNOT_MERGE_SCHEMAS"):
                raise
            return spark.read.options(**self.options).parquet(path)  # reading tells which file has another type

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


def spark_says(error: Exception) -> tuple[str, str]:
    """What Spark calls an error, such as `PATH_NOT_FOUND`, and the sentence that goes with it.

    Of what a source in Python raises, such as ours, it is the sentence alone. What a library below Spark raises, such
    as the driver of a database, has no such name: then it is what Java says.
    """
    text = str(error).strip()
    python = re.search(r"Traceback \(most recent call last\):(?:\n .*)+\n(?:[\w.]+: )?([^\n]+)", text)
    if python is not None:
        return "PYTHON_DATA_SOURCE_ERROR", python[1]
    found = re.search(r"\[([A-Z][A-Z_]+(?:\.[A-Z_]+)*)\][^\n]*", text)
    if found is not None:
        return found[1], found[0]
    java = re.search(r"^: (.+)$", text, re.MULTILINE)
    return "", java[1] if java is not None else text.partition("\n")[0]
