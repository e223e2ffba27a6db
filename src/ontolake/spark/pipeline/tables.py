"""The tables of a store as a run finds them, and as they will be with what it has staged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from ontolake import urls
from ontolake.model.columns import Column
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.versioned import table_of
from ontolake.parallel import Fragment, Parallel, Removal, View
from ontolake.spark.frames import frame, local_path, staged_frame
from ontolake.spark.parquet import one_machine
from ontolake.spark.pipeline.validation import spark_type
from ontolake.spark.types import arrow_schema, fitted, named, quoted, spark_schema
from ontolake.stores import GRAPH

FEW = 250_000
"""Up to so many rows go through the driver where Spark cannot read or write by itself: starting workers takes long."""


class RunTables:
    """The tables of a store at the commit that a run has read.

    What Python has to read is read once and kept if it is asked about `again`; `release` lets go of it.
    """

    def __init__(
        self, spark: SparkSession, store: Parallel | None, view: View, branch: str | None, *, again: bool,
        graph: bool = False,
    ) -> None:  # fmt: skip
        self.spark = spark
        self._store = store
        self._view = view
        self._branch = branch
        self.is_graph = graph or (store is not None and store.model == GRAPH.name)
        self._by_spark = store is not None and not self.is_graph and (
            urls.parse(store.url).place is urls.Place.DIRECTORY and one_machine(spark))
        self._again = again and not self._by_spark
        self._found: dict[str, DataFrame | None] = {}
        self._kept: list[DataFrame] = []
        self._removed: dict[str, Removal] = {}

    def name(self, info: TypeInfo) -> str:
        """What the store calls the table of a type."""
        if not self.is_graph:
            return table_of(info)
        return f"{'node' if info.kind == 'entity' else 'edge'}/{info.name}"

    def latest(self, info: TypeInfo) -> DataFrame | None:
        """The rows of a type as they are now; None if there are none yet."""
        table = self.name(info)
        if table not in self._found:
            self._found[table] = self._read(table)
        return self._found[table]

    def _read(self, table: str) -> DataFrame | None:
        store, view = self._store, self._view
        if store is None or not view.commit:
            return None
        splits = store.splits(table, view, parts=1)
        if not splits:
            return None
        if self._by_spark or sum(split.rows for split in splits) > FEW:
            return self._once(frame(self.spark, store, table, view, branch=self._branch))
        return few(self.spark, (batch for split in splits for batch in split.read()), store.schema(table))

    def remove(self, info: TypeInfo, removal: Removal) -> None:
        """Rows of a type will be deleted, and maybe the relations that lead to them."""
        self._removed[self.name(info)] = removal
        self._found.pop(f"removed {self.name(info)}", None)

    def gone(self, info: TypeInfo) -> DataFrame | None:
        """The keys of a type that will be deleted for themselves; None if there are none."""
        table = self.name(info)
        fragments = self._removed[table].fragments if table in self._removed else ()
        if not fragments:
            return None
        if f"removed {table}" not in self._found:
            self._found[f"removed {table}"] = self._read_staged(fragments, _columns(info.keys))
        return self._found[f"removed {table}"]

    def _standing(self, info: TypeInfo) -> DataFrame | None:
        """The latest rows of a type without those that will be deleted; None if there are none."""
        latest = self.latest(info)
        if latest is None:
            return None
        if (gone := self.gone(info)) is not None:
            latest = latest.join(gone, [column.stored for column in info.keys], "left_anti")
        for end, column in zip((info.left, info.right), info.keys, strict=False) if info.kind == "relation" else ():
            of = type_info(end)
            if (removal := self._removed.get(self.name(of))) is None or not removal.cascade:
                continue
            if (gone := self.gone(of)) is not None:
                latest = latest.join(gone.select(named(of.keys[0].stored).alias(column.stored)), column.stored,
                                     "left_anti")
        return latest

    def after(self, info: TypeInfo, fragments: Sequence[Fragment]) -> DataFrame:
        """The rows of a type as they will be."""
        latest = self._standing(info)
        names = [quoted(column.stored) for column in info.all_columns]
        if not fragments:
            return latest.select(*names) if latest is not None else self.spark.createDataFrame(
                [], _columns(info.all_columns))
        new = self.staged(info, fragments).select(*names)
        if latest is None:
            return new
        keys = [column.stored for column in info.keys]
        return latest.select(*names).join(new.select(*[quoted(key) for key in keys]), keys, "left_anti").select(
            *names).unionByName(new)

    def staged(self, info: TypeInfo, fragments: Sequence[Fragment]) -> DataFrame:
        """What was staged for the table of a type."""
        table = f"staged {fragments[0].table}"
        found = self._found.get(table)
        if found is None:
            found = self._found[table] = self._read_staged(fragments, _columns(info.all_columns))
        return found

    def _read_staged(self, fragments: Sequence[Fragment], columns: str) -> DataFrame:
        if local_path(fragments[0].place) is not None and one_machine(self.spark):
            return staged_frame(self.spark, fragments, columns)
        if sum(fragment.rows for fragment in fragments) > FEW:
            return self._once(staged_frame(self.spark, fragments, columns))
        read = [fragment.read() for fragment in fragments]
        return few(self.spark, (batch for one in read for batch in one.to_batches()), read[0].schema)

    def restaged(self, info: TypeInfo) -> None:
        """Something else was staged for the table of a type."""
        self._found.pop(f"staged {self.name(info)}", None)

    def _once(self, found: DataFrame) -> DataFrame:
        return self.keep(found) if self._again else found

    def keep(self, found: DataFrame) -> DataFrame:
        """What is looked at several times is worked out once."""
        found = found.persist(StorageLevel.MEMORY_AND_DISK)
        self._kept.append(found)
        return found

    def release(self) -> None:
        for one in self._kept:
            one.unpersist()
        self._kept.clear()
        self._found.clear()


def _columns(columns: Iterable[Column]) -> str:
    """Columns of a type, as Spark writes them down."""
    return ", ".join(f"{quoted(column.stored)} {spark_type(column)}" for column in columns)


def few(spark: SparkSession, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> DataFrame:
    """Some rows that the driver has read as a DataFrame. Spark knows how many they are, and joins them accordingly."""
    wanted = spark_schema(schema)
    rows = pa.Table.from_batches([fitted(batch, wanted) for batch in batches], arrow_schema(wanted))
    return spark.createDataFrame(rows, wanted)
