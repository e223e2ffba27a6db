"""`session`: a SparkSession with settings that suit a laptop, and `register` for one that is there already."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ontolake.extras import needs
from ontolake.objects.providers import PROVIDERS
from ontolake.spark.errors import SparkError
from ontolake.spark.quick_start import class_archive, light_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = 17
SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.adaptive.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Python gets so many rows at a time, whatever their size: Spark would look at it after every row, which takes as
    # long as handing the row over.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1024",
    "spark.sql.execution.arrow.maxBytesPerBatch": f"{(1 << 31) - 1}",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.sql.sources.useV1SourceList": "avro,csv,json,kafka,orc,parquet,text",
}


_ONE_MACHINE = ("spark.driver.host", "spark.driver.bindAddress")
"""Settings with which workers on other machines would not find the driver."""
_DIRECT = "MaxDirectMemorySize"
"""How much memory Java takes at most for rows on their way to Python: unless told, no more than its heap may have. Long
rows exceed that, and then Java ends."""
_DAEMON = "ontolake.spark.daemon"
REDACTED = "(?i)secret|password|token|(access|account|sas|storage)[._]?key|credential"
"""Names of settings whose values Spark keeps out of its pages and logs: its own default, and the keys of Azure."""


def session(
    name: str = "ontolake", *, master: str | None = None, settings: Mapping[str, Any] | None = None,
    quick_start: bool = True, short_lived: bool = False, log_level: str = "ERROR",
) -> SparkSession:  # fmt: skip
    """A SparkSession that knows `format("ontolake")`: the one that runs, or a new one.

    `master` is two tasks at a time on this machine unless given, each tried three times; to the workers of another one
    the variables `AWS_*` and `AZURE_*` of this process are handed on. `settings` go over ours.
    `quick_start` keeps an archive of Java classes and links to Spark's folders in the user's cache folder, which halves
    the time to the first rows;
    `short_lived` compiles less, for sessions of seconds. Raises `SparkError` if Java is missing,
    `MissingExtra` if PySpark is.
    """
    found = running()
    if found is None:
        from pyspark.sql import SparkSession

        java = check_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        own = _for_this_machine() if master is None or master.startswith("local") else _for_a_cluster()
        chosen = {**own, **{key: str(value) for key, value in (settings or {}).items()}}
        options = chosen.get("spark.driver.extraJavaOptions", "")
        if own.keys() >= {*_ONE_MACHINE} and _DIRECT not in options:
            options = f"{options} -XX:{_DIRECT}=8g"
        if short_lived:
            options = f"{options} -XX:TieredStopAtLevel=1"
        if quick_start:
            options = f"{options} {class_archive(java)}"
        if options.strip():
            chosen["spark.driver.extraJavaOptions"] = options.strip()
        builder = SparkSession.builder.appName(name).master(master or "local[2,3]")
        for key, value in chosen.items():
            builder = builder.config(key, value)
        try:
            with light_home() if quick_start else nullcontext():
                found = builder.getOrCreate()
        except Exception as error:
            raise SparkError(f"Spark does not start: {error}",
                             hint="JAVA_HOME must name a Java of version 17 or newer") from error
        found.sparkContext.setLogLevel(log_level)
    register(found)
    return found


@contextmanager
def lent(name: str, **options: Any) -> Iterator[SparkSession]:
    """The session that runs, which goes on, or a new one, which ends with the block."""
    before = running()
    spark = session(name, **options)
    try:
        yield spark
    finally:
        if before is None:
            spark.stop()


def _for_this_machine() -> dict[str, str]:
    """Our settings where Python processes are on this machine: if they find this package, it starts them."""
    find = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({_DAEMON!r}) is None)"
    try:
        asked = subprocess.run([os.environ["PYSPARK_PYTHON"], "-c", find], capture_output=True, check=False)
    except OSError:
        return dict(SETTINGS)  # Spark will say what it makes of that Python
    return dict(SETTINGS) | ({"spark.python.daemon.module": _DAEMON} if asked.returncode == 0 else {})


def _for_a_cluster() -> dict[str, str]:
    """Our settings where workers are on other machines: they need the way to buckets, and to find the driver."""
    own = {key: value for key, value in SETTINGS.items() if key not in _ONE_MACHINE}
    for provider in PROVIDERS.values():
        own |= provider.executor_settings()
    return own | {"spark.redaction.regex": REDACTED}


def running() -> SparkSession | None:
    """The session that runs already, if there is one. Raises `MissingExtra` if PySpark or what it needs is missing."""
    with needs("spark", "Spark"):
        from pyspark.sql import SparkSession

        if find_spec("pandas") is None:  # PySpark asks for it only when it hands over the first rows
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")
    return SparkSession.getActiveSession()


def register(spark: SparkSession) -> None:
    """Let a session know `format("ontolake")`. Workers need this package too."""
    from ontolake.spark.source import OntolakeSource

    spark.dataSource.register(OntolakeSource)


def check_java() -> str:
    """What Java says of its version. Raises `SparkError` if there is none, or one that is too old."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    hint = "install openjdk-17-jre-headless or newer, or let JAVA_HOME name its folder"
    try:
        told = subprocess.run([java or "java", "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkError(f"Spark needs Java {JAVA} or newer, and there is none", hint=hint) from error
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    if found is None or int(found[1]) < JAVA:
        raise SparkError(f"Spark needs Java {JAVA} or newer; found {found[1] if found else told.strip()!r}", hint=hint)
    return told
