"""Where the work of a job runs: in this process, or on Spark's workers.

A job cuts its work into parts that can be pickled, has each done somewhere by a plain function, and gets back what the
function returned, in order. Whatever a part writes has a name of its own, so that a part that is done twice leaves at
most a file that nobody refers to.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from ontolake.errors import OntolakeError, Transient
from ontolake.faults import reach
from ontolake.parallel import Here as Here
from ontolake.parallel import Workers as Workers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

PARTS = 8
"""Parts of a job on Spark, unless somebody says how many."""


class OnSpark:
    """The workers of a Spark session: a task for each part, tried again if its worker is lost.

    Classes and functions of the user's own modules travel with the parts; this package must be installed there.
    """

    def __init__(self, spark: SparkSession, parts: int = PARTS) -> None:
        self._spark = spark
        self.parts = parts

    def run(self, work: Callable[[T], R], items: Sequence[T], *, code: Iterable[Any] = ()) -> list[R]:
        if not items:
            return []
        packed = _packed(work, items, code)

        def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pyarrow as pa

            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield pa.record_batch([pa.array([number], pa.int64()),
                                           pa.array([attempted(packed[number])], pa.binary())],
                                          names=["number", "result"])

        count = len(packed)
        tasks = self._spark.range(0, count, 1, count).mapInArrow(each, "number bigint, result binary")
        found: dict[int, Any] = {row.number: pickle.loads(row.result) for row in tasks.collect()}
        for one in found.values():
            if isinstance(one, _Failed):
                raise one.error
        return [found[number] for number in range(count)]


class _Failed:
    """An error that trying again would not help, on its way to the driver."""

    def __init__(self, error: OntolakeError) -> None:
        self.error = error


def attempted(packed: bytes) -> bytes:
    """Do one part, wherever this is called. What fails in passing is raised, so that Spark tries again."""
    work, item = pickle.loads(packed)
    reach("spark: part begun")
    try:
        found = work(item)
    except Transient:
        raise
    except OntolakeError as error:
        found = _Failed(error)
    reach("spark: part done")
    return pickle.dumps(found)


def _packed(work: Callable[[T], R], items: Sequence[T], code: Iterable[Any]) -> list[bytes]:
    import pyspark.cloudpickle

    cloudpickle: Any = pyspark.cloudpickle  # which has no types
    modules = {name: module for one in code if (module := _own_module(one)) is not None for name in [module.__name__]}
    own = set(cloudpickle.list_registry_pickle_by_value())
    added = [module for name, module in modules.items() if name not in own]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        return [cloudpickle.dumps((work, item)) for item in items]
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)


def _own_module(one: Any) -> ModuleType | None:
    """The module of a class or function if it is the user's: workers may not have it."""
    name = getattr(one, "__module__", None) or ""
    if not name or name == "__main__" or name.partition(".")[0] in ("ontolake", *sys.stdlib_module_names):
        return None
    return sys.modules.get(name)
