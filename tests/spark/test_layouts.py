"""Spark sees of graphs, SQL tables and documents what they say themselves, and of every layout every type of value."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ontolake import parallel
from ontolake.documents import Delete, Set, open_space
from ontolake.errors import Conflict, NotFound
from ontolake.graph import Graph
from ontolake.model import Entity, Field
from ontolake.ontology import Session
from ontolake.parallel import open_parallel
from ontolake.spark import catalog, save, table
from ontolake.sql import open_database

from .unions import together

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]  # all in one worker, so that Spark starts once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Item(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int | None]
    price: Field[Decimal | None] = Field(max_digits=12, decimal_places=2)
    day: Field[date | None]
    at: Field[datetime | None]
    weight: Field[float | None]
    good: Field[bool | None]
    raw: Field[bytes | None]
    more: Field[Any]


SCHEMA = pa.schema({
    "id": pa.string(), "size": pa.int64(), "price": pa.decimal128(12, 2), "day": pa.date32(),
    "at": pa.timestamp("us", tz="UTC"), "weight": pa.float64(), "good": pa.bool_(), "raw": pa.binary(),
    "more": pa.string()}.items())  # fmt: skip
SQL = """CREATE DATABASE app; CREATE SCHEMA app.public; CREATE TABLE app.public.item (id TEXT PRIMARY KEY, size BIGINT,
    price DECIMAL(12, 2), day DATE, at TIMESTAMP, weight DOUBLE PRECISION, good BOOLEAN, raw BYTEA, more TEXT)"""
KINDS = ["sqlite", "objects", "graph", "sql"]
TABLES = {"sqlite": "entity/Item", "objects": "entity/Item", "graph": "node/Item", "sql": "app.public.item"}


class Place:
    """A store with one table, which is written to by its own means."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.table = kind, TABLES[kind]
        self.url = {"sqlite": f"{folder}/item.db", "objects": f"file://{folder}/lake", "graph": f"{folder}/graph/",
                    "sql": f"{folder}/sql.db"}[kind]  # fmt: skip
        if kind == "graph":
            Graph.init(self.url, [Item]).close()
        elif kind == "sql":
            with open_database(self.url) as database:
                database.execute(SQL)
        else:
            Session(self.url, entity_types=[Item]).close()
        self.types = [Item] if kind in ("sqlite", "objects") else []

    def put(self, rows: pa.Table) -> int:
        """One commit; its number."""
        fragment = parallel.stage(self.url, self.table, rows.to_batches(), job="test")
        assert fragment is not None
        with open_parallel(self.url, write=True, types=self.types) as store:
            return store.publish([fragment]).commit or store.head()

    def own(self) -> pa.Table:
        """The rows as the store itself gives them."""
        if self.kind == "graph":
            with Graph.open(self.url, read_only=True) as graph:
                return graph.snapshot().table("Item").to_arrow()
        if self.kind == "sql":
            with open_database(self.url, readonly=True) as database:
                return database.query("SELECT * FROM app.public.item")
        with Session(self.url, entity_types=[Item]) as session:
            return session.query().entities(Item).to_arrow()


@pytest.fixture(params=["graph", "sql"])  # test_connector asks the same of typed stores
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


def items(count: int = 120, start: int = 0, **more: Any) -> pa.Table:
    return pa.Table.from_pylist([{
        "id": f"i{n:04}", "size": n % 50 if n % 3 else None, "price": Decimal(n) / 4,
        "day": date(1950 + n % 90, 1, 1) if n % 5 else None, "weight": float("nan") if n % 11 == 0 else n / 3,
        "at": datetime(1969, 12, 31, 23, 59, tzinfo=UTC) + timedelta(seconds=n, microseconds=n),
        "good": n % 2 == 0, "raw": bytes([n % 256]), "more": json.dumps({"n": [n, None]}, separators=(",", ":")),
    } | more for n in range(start, start + count)], SCHEMA)  # fmt: skip


def shown(found: Any) -> list[str]:
    """Rows in one form, whoever they come from."""
    rows = found if isinstance(found, pa.Table) else found.toArrow()
    rows = rows.select(SCHEMA.names)
    moments = rows.column("at")
    if moments.type != SCHEMA.field("at").type:
        rows = rows.set_column(4, "at", moments.cast(pa.timestamp("us"), safe=False))
    plain = rows.cast(SCHEMA).to_pylist()
    return sorted(repr(row | {"more": json.dumps(json.loads(row["more"]), sort_keys=True)}).replace("-0.0", "0.0")
                  for row in plain)  # fmt: skip


def by_format(spark: SparkSession, place: Place, df: DataFrame) -> DataFrame:
    return spark.read.format("ontolake").schema(df.schema).option("url", place.url).option("table", place.table).load()


def test_every_moment_and_mode_is_what_the_store_says(spark: SparkSession, place: Place) -> None:
    first, later = items(), items(20, 110, size=-1)
    one, two = place.put(first), place.put(later)
    found = table(spark, place.url, place.table, types=place.types)
    assert shown(found) == shown(place.own())
    assert shown(by_format(spark, place, found)) == shown(place.own())
    assert shown(table(spark, place.url, place.table, as_of=one, types=place.types)) == shown(first)
    history = table(spark, place.url, place.table, mode="history", types=place.types)
    assert shown(history) == shown(pa.concat_tables([first, later]))
    changes = table(spark, place.url, place.table, mode="changes", since=one, types=place.types)
    assert sorted(map(tuple, changes.groupBy("change", "commit_id").count().collect())) == [
        ("insert", two, 10), ("update", two, 10)]
    assert shown(changes) == shown(later)
    place.put(items(1, 500))
    assert found.count() == 130  # a frame stays at its commit


AT = datetime(1970, 1, 1, 0, 0, 1, 61, tzinfo=UTC)
FILTERS: list[tuple[list[Any], Callable[[Any], Any]]] = [
    ([("id", "==", "i0020")], lambda f: f.col("id") == "i0020"),
    ([("id", "in", ["i0001", "i0119", "no"])], lambda f: f.col("id").isin("i0001", "i0119", "no")),
    ([("id", "startswith", "i001")], lambda f: f.col("id").startswith("i001")),
    ([("size", ">", 40), ("good", "==", True)], lambda f: (f.col("size") > 40) & f.col("good")),
    ([("size", "is_null")], lambda f: f.col("size").isNull()),
    ([("price", "<=", Decimal("10.25")), ("weight", ">", 3.0)],
     lambda f: (f.col("price") <= Decimal("10.25")) & (f.col("weight") > 3.0)),
    ([("day", "==", date(1961, 1, 1))], lambda f: f.col("day") == date(1961, 1, 1)),
    ([("at", ">=", AT)], lambda f: f.col("at") >= AT), ([("at", "<=", AT)], lambda f: f.col("at") <= AT),
    ([("weight", ">=", 0.0)], lambda f: f.col("weight") >= 0.0),
]  # fmt: skip


def test_filters_give_the_rows_that_spark_gives_without_them(spark: SparkSession, place: Place) -> None:
    from pyspark.sql import functions as F

    place.put(items())
    place.put(items(20, 110, size=45))
    found = table(spark, place.url, place.table, types=place.types)
    local = spark.createDataFrame(found.toArrow())

    wanted = together(local.where(condition(F)) for _, condition in FILTERS)
    assert len({number for number, _ in wanted}) == len(FILTERS)
    assert together(table(spark, place.url, place.table, filters=filters, types=place.types)
                    for filters, _ in FILTERS) == wanted
    plain = by_format(spark, place, found)
    assert together(plain.where(condition(F)) for _, condition in FILTERS) == wanted


_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
_json = st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | _text,
                     lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3))  # fmt: skip
_row = st.fixed_dictionaries({
    "size": st.none() | st.integers(-(2**63), 2**63 - 1),
    "price": st.none() | st.decimals(-(10**9), 10**9, places=2),
    "day": st.none() | st.dates(date(1600, 1, 1), date(9000, 1, 1)),
    "at": st.none() | st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    "weight": st.none() | st.floats(), "good": st.none() | st.booleans(), "raw": st.none() | st.binary(max_size=8),
    "more": _json.filter(lambda value: value is not None).map(json.dumps),
})  # fmt: skip


@settings(max_examples=2, phases=[Phase.explicit, Phase.generate],  # making examples small takes too long here
          suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])  # fmt: skip
@given(rows=st.lists(_row, min_size=5, max_size=40))
def test_values_of_every_type_come_and_go_unchanged(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:  # fmt: skip
    given_rows = pa.Table.from_pylist([{"id": f"k{n}"} | row for n, row in enumerate(rows)], SCHEMA)
    for kind in KINDS:
        place = Place(kind, tmp_path_factory.mktemp("place"))
        place.put(given_rows)
        assert shown(place.own()) == shown(given_rows), kind
        read = table(spark, place.url, place.table, types=place.types)
        assert shown(read) == shown(given_rows), kind
        other = Place(kind, tmp_path_factory.mktemp("other"))
        assert save(read, other.url, other.table, types=other.types).written == {other.table: len(rows)}
        assert shown(other.own()) == shown(given_rows), kind


def test_writing_is_one_commit_of_what_differs(spark: SparkSession, place: Place) -> None:
    from pyspark.sql import functions as F

    head = place.put(items())
    found = table(spark, place.url, place.table, types=place.types)
    changed = found.where("id < 'i0003'").withColumn("size", F.lit(7).cast("long"))
    done = save(changed, place.url, place.table, types=place.types, metadata={"author": "me"}, expected=head)
    assert (done.commit, done.written) == (head + 1, {place.table: 3})
    assert save(changed, place.url, place.table, types=place.types).commit is None
    with pytest.raises(Conflict, match="came after"):
        save(changed.withColumn("size", F.lit(8).cast("long")), place.url, place.table, types=place.types,
             expected=head)  # fmt: skip
    new = changed.withColumn("id", F.concat(F.lit("new"), "id"))
    new.write.format("ontolake").mode("append").option("url", place.url).option("table", place.table).save()
    with open_parallel(place.url) as store:
        assert store.head() == head + 2
        assert [commit.metadata.get("author") for commit in store.commits(since=head)] == [None, "me"]
    assert len(place.own()) == 123
    assert parallel.clean(place.url, older=0).items == 1  # what this test staged by hand


def test_a_catalog_shows_graphs_and_sql_tables(spark: SparkSession, tmp_path: Path) -> None:
    for kind, view in (("graph", "Item"), ("sql", "app_public_item")):
        place = Place(kind, tmp_path)
        commit = place.put(items(10))
        place.put(items(10, 10))
        assert catalog(place.url, as_of=commit).views(spark) == {view: place.table}
        assert spark.sql(f"SELECT count(*) AS n FROM {view}").collect()[0].n == 10
        with pytest.raises(NotFound, match="other"):
            table(spark, place.url, "other")


def test_names_of_columns_and_tables_may_have_anything_in_them(spark: SparkSession, tmp_path: Path) -> None:
    url = f"{tmp_path}/odd.db"
    with open_database(url) as database:
        database.execute('CREATE TABLE "a `b`" ("i d" BIGINT PRIMARY KEY, "a.b" TEXT, "q`t" TEXT, change TEXT)')
    name = "main.public.a `b`"
    rows = spark.sql("SELECT 1L AS `i d`, 'x' AS `a.b`, 'y' AS `q``t`, 'z' AS change")
    assert save(rows, url, name).written == {name: 1}
    assert table(spark, url, name, columns=["a.b", "q`t"], filters=[("q`t", "==", "y")]).collect() == [("x", "y")]
    assert catalog(url).views(spark) == {"main_public_a `b`": name}
    assert spark.sql("SELECT `a.b`, change FROM `main_public_a ``b```").collect() == [("x", "z")]


def test_documents_at_every_moment(spark: SparkSession, tmp_path: Path) -> None:
    with open_space(f"{tmp_path}/", "orders") as space:
        space.transact("s", 1, [Set(f"o{n:03}", {"value": {"n": n, "none": None}}) for n in range(50)])
        space.transact("s", 2, [Delete("o001"), Set("o002", {"value": "x"})])
        wanted = dict(space.snapshot().rows())
        before = dict(space.snapshot(1).rows())
    url = f"{tmp_path}/orders.sqlite"

    def read(**more: Any) -> dict[str, Any]:
        return {row.id: json.loads(row.document) for row in table(spark, url, "documents", **more).collect()}

    assert read() == wanted
    assert read(as_of=1) == before
    changes = table(spark, url, "documents", mode="changes", since=1).collect()
    assert sorted((row.change, row.id) for row in changes) == [("delete", "o001"), ("update", "o002")]
    assert table(spark, url, "documents", mode="history").count() == 52
    few = spark.read.format("ontolake").option("url", url).option("table", "documents").load().where("id >= 'o048'")
    assert sorted(row.id for row in few.collect()) == ["o048", "o049"]
