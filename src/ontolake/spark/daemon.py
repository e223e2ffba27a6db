"""The process that starts Spark's Python workers: PySpark's own, but what most of them need is imported before it forks
them, and they are silent where somebody wants no more rows.

Spark takes it by the setting `spark.python.daemon.module`, and runs it as a program. Nothing may be imported here that
does not survive a fork: Lance, obstore and DataFusion have threads that their callers wait for.
"""

from __future__ import annotations

import gc
import importlib
import socket
import sys
from contextlib import suppress

from pyspark import daemon

_NEEDED = ("pyspark.worker", "pyspark.sql.worker.plan_data_source_read", "pyarrow.compute", "pyarrow.parquet",
           "pandas",  # which pyarrow imports when it meets a list, if it is there
           "ontolake.spark.source", "ontolake.ontology.parallel.tables")  # fmt: skip
_work = daemon.worker


def work(sock: socket.socket, authenticated: bool) -> int:
    """What a worker does until it is no longer needed. Spark hangs up on it where `show()` has enough rows."""
    try:
        return _work(sock, authenticated)
    except BrokenPipeError:
        return 1


def prepare() -> None:
    """Do once what every worker would do."""
    sys.path[:] = [place for place in sys.path if not place.endswith(".jar")]  # which take long to look through
    sys.path_importer_cache.clear()
    for name in _NEEDED:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()  # workers collect garbage after each task, and need not look at modules for it


if __name__ == "__main__":
    prepare()
    daemon.worker = work
    daemon.manager()
