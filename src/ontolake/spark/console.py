"""`quiet` and `told_once`: keep what Spark prints away from a terminal that belongs to somebody else."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Let a session that is started inside the block write what Java prints to a file, which nobody sees.

    Java keeps that for as long as it lives. What goes wrong is still raised in Python; if that happens inside the
    block, what Java printed is shown after all.
    """
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        except BaseException:
            os.dup2(before, 2)
            said.seek(0)
            os.write(2, said.read())
            raise
        finally:
            os.dup2(before, 2)
            os.close(before)


@contextmanager
def told_once() -> Iterator[None]:
    """Errors that are raised inside the block are not printed by PySpark as well, with all that Java was doing."""
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger")]
    before = [one.disabled for one in loggers]
    try:
        for one in loggers:
            one.disabled = True
        yield
    finally:
        for one, disabled in zip(loggers, before, strict=True):
            one.disabled = disabled
