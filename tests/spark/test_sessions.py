"""`session` starts quickly, and lets rows go between Spark and Python in few, big steps."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark
import pytest
from waiting import wait_for

from ontolake.objects.providers.azure import KEY
from ontolake.spark.quick_start import class_archive, home, light_home
from ontolake.spark.sessions import REDACTED

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("name", [*KEY, "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY", "AZURE_CLIENT_SECRET",
                                  "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"])  # fmt: skip
def test_spark_shows_no_secrets_that_are_handed_on(name: str) -> None:
    assert re.search(REDACTED, f"spark.executorEnv.{name}")


def test_python_gets_so_many_rows_at_a_time_whatever_their_size(spark: SparkSession) -> None:
    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"rows": [batch.num_rows for batch in batches]})

    wide = spark.range(0, 1500, 1, 1).selectExpr("repeat('x', 80000) AS text")  # more than Spark's own 64 MB
    assert [row.rows for row in wide.mapInArrow(counted, "rows bigint").collect()] == [1024, 476]


def test_java_has_memory_for_long_rows_on_their_way_to_python_however_small_its_heap(spark: SparkSession) -> None:
    java = spark._jvm  # type: ignore[attr-defined]
    assert java.io.netty.util.internal.PlatformDependent.maxDirectMemory() == 8 << 30
    assert java.java.lang.Runtime.getRuntime().maxMemory() <= 2 << 30


def test_python_processes_import_the_installed_spark_and_not_its_archive(spark: SparkSession) -> None:
    def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyspark as found

        yield pa.record_batch({"place": [found.__file__]})

    told = spark.range(0, 1, 1, 1).mapInArrow(seen, "place string").collect()
    assert [row.place for row in told] == [pyspark.__file__]
    assert "SPARK_HOME" not in os.environ


def test_a_worker_whose_rows_nobody_wants_any_more_ends_in_silence(spark: SparkSession, tmp_path: Path) -> None:
    def endless(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        Path(tmp_path, str(os.getpid())).touch()
        while True:
            yield pa.record_batch({"n": pa.array(range(100_000))})

    java = spark._jvm  # type: ignore[attr-defined]
    said, before = java.java.io.ByteArrayOutputStream(), java.java.lang.System.err
    variables = spark.sparkContext.environment
    variables["ONTOLAKE_TEST"] = "silence"  # so that Spark starts other workers, whose errors go where it is told now
    java.java.lang.System.setErr(java.java.io.PrintStream(said))
    try:
        assert spark.range(0, 1, 1, 1).mapInArrow(endless, "n bigint").head().n == 0
        (worker,) = (int(file.name) for file in tmp_path.iterdir())
        wait_for(lambda: not Path(f"/proc/{worker}").exists(), 60)
    finally:
        java.java.lang.System.setErr(before)
        del variables["ONTOLAKE_TEST"]
    assert "Error" not in said.toString()


def test_workers_begin_with_what_they_need_and_nothing_that_a_fork_breaks(spark: SparkSession) -> None:
    fresh = subprocess.run(
        [sys.executable, "-c", "import sys; from ontolake.spark.daemon import prepare; prepare(); print(*sys.modules)"],
        capture_output=True, text=True, check=True).stdout.split()
    assert {"pyarrow.compute", "ontolake.ontology.parallel.tables"} <= set(fresh)
    assert not {"lance", "obstore", "datafusion"} & set(fresh)
    assert spark.conf.get("spark.python.daemon.module") == "ontolake.spark.daemon"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "ontolake"


def test_a_home_is_made_once_whoever_comes_first(cache: Path) -> None:
    found: list[Path | None] = []
    begin = threading.Barrier(4)

    def make() -> None:
        begin.wait()
        found.append(home())

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    place = found[0]
    assert place is not None
    assert set(found) == {place}
    assert list(cache.iterdir()) == [place], "nothing else is left there"
    assert (place / "jars").resolve() == (Path(pyspark.__file__).parent / "jars").resolve()
    assert (place / "bin" / "spark-submit").is_file()
    assert not (place / "python").exists()


def test_what_users_say_about_spark_comes_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = class_archive("java")
    with light_home():
        assert os.environ["SPARK_HOME"] == str(home())
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with light_home():
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert class_archive("java") != own, "classes come from elsewhere"
    monkeypatch.delenv("SPARK_HOME")
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/another")  # it may have no Spark but the archive
    with light_home():
        assert "SPARK_HOME" not in os.environ


def test_without_a_cache_folder_spark_starts_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", f"{tmp_path}/file")
    assert (home(), class_archive("java")) == (None, "")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 987_654_321)  # a number that is nobody's, as containers have it
    assert (home(), class_archive("java")) == (None, "")
