"""Spark reads what the store says, whichever way, and writes one commit or none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ontolake import parallel
from ontolake.documents import Set, open_space
from ontolake.errors import Conflict, Invalid, NotFound
from ontolake.model import Entity, Field, Relation
from ontolake.model.errors import SchemaValidationError
from ontolake.ontology import Session
from ontolake.spark import catalog, save, table
from ontolake.spark.types import in_pieces

from .unions import together

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]  # all in one worker, so that Spark starts once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    size: Field[int | None] = Field(default=None)
    price: Field[Decimal] = Field(default=Decimal("1.00"), max_digits=12, decimal_places=2)
    day: Field[date | None] = Field(default=None)
    at: Field[datetime] = Field(default=datetime(2024, 1, 1, tzinfo=UTC))
    weight: Field[float] = Field(default=0.5)
    good: Field[bool] = Field(default=True)
    raw: Field[bytes] = Field(default=b"\0")
    tags: Field[list[str]] = Field(default_factory=list)


class Near(Relation[Thing, Thing]):
    metres: Field[int]


TYPES: dict[str, Any] = {"entity_types": [Thing], "relation_types": [Near]}
CLASSES = [Thing, Near]


def thing(number: int, **more: Any) -> Thing:
    return Thing(**{
        "id": f"t{number:05}", "name": f"näme {number % 7}", "size": number % 50 if number % 3 else None,
        "price": Decimal(number) / 4, "day": date(1950 + number % 90, 1, 1) if number % 5 else None,
        "at": datetime(2024, 1, 1, number % 24, 59, 59, number, tzinfo=UTC), "raw": bytes([number % 256]),
        "weight": number / 3, "good": number % 2 == 0, "tags": ["a", str(number)]} | more)  # fmt: skip


def fill(url: str) -> str:
    with Session(url, **TYPES) as session:
        session.ensure(thing(n) for n in range(200))
        session.commit()
        session.ensure(thing(n, name="changed") for n in range(0, 200, 10))
        session.ensure(Near(left_key=f"t{n:05}", right_key=f"t{n + 1:05}", metres=n) for n in range(100))
        session.commit()
        session.ensure(thing(n, size=-1) for n in range(195, 220))
    return url


@pytest.fixture(params=["sqlite", "objects"])
def read_only(request: pytest.FixtureRequest, filled: Path) -> str:
    return f"{filled}/shop.db" if request.param == "sqlite" else f"file://{filled}/lake"


@pytest.fixture(params=["sqlite", "objects"])
def url(request: pytest.FixtureRequest, filled: Path, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(shutil.copy(filled / "shop.db", tmp_path))
    return f"file://{shutil.copytree(filled / 'lake', tmp_path / 'lake')}"


@pytest.fixture
def native(filled: Path, tmp_path: Path) -> str:
    return str(shutil.copy(filled / "shop.db", tmp_path))


def rows(found: pa.Table) -> list[str]:
    return sorted(repr(row) for row in found.to_pylist())


def same(df: DataFrame, wanted: pa.Table) -> None:
    found = df.toArrow()
    assert found.column_names == wanted.column_names
    assert rows(found.cast(pa.schema([field.with_nullable(True) for field in wanted.schema]))) == rows(wanted)


def test_every_way_and_moment_is_what_the_store_says(spark: SparkSession, read_only: str) -> None:
    url = read_only
    with Session(url, **TYPES) as session:
        query = session.query()
        same(table(spark, url, "entity/Thing", types=CLASSES), query.entities(Thing).to_arrow())
        same(table(spark, url, "relation/Near", types=CLASSES), query.relations(Near).to_arrow())
        for commit in (1, 2):
            same(table(spark, url, "entity/Thing", as_of=commit, types=CLASSES),
                 query.entities(Thing).as_of(commit).to_arrow())
        same(table(spark, url, "entity/Thing", mode="history", types=CLASSES),
             query.entities(Thing).with_history().to_arrow())
        wanted = query.entities(Thing).to_arrow()
    plain = spark.read.format("ontolake").option("url", url).option("table", "entity/Thing").load()
    names = [name for name in wanted.column_names if name != "price"]
    same(plain.select(*names), wanted.select(names))
    changes = table(spark, url, "entity/Thing", mode="changes", since=1, columns=["change", "id"])
    assert sorted(map(tuple, changes.groupBy("change").count().collect())) == [("insert", 20), ("update", 25)]


DAY, AT = date(1961, 1, 1), datetime(2024, 1, 1, 20, tzinfo=UTC)
FILTERS: list[tuple[list[Any], Callable[[Any], Any]]] = [
    ([("id", "==", "t00020")], lambda f: f.col("id") == "t00020"),
    ([("id", "in", {"t00001", "t00219", "no"})], lambda f: f.col("id").isin("t00001", "t00219", "no")),
    ([("name", "startswith", "näme 1")], lambda f: f.col("name").startswith("näme 1")),
    ([("size", ">", 40), ("good", "==", True)], lambda f: (f.col("size") > 40) & f.col("good")),
    ([("size", "is_null")], lambda f: f.col("size").isNull()),
    ([("size", "is_not_null"), ("size", "<", 9)], lambda f: f.col("size") < 9),
    ([("price", "<=", Decimal("30.25")), ("weight", ">", 3.0)],
     lambda f: (f.col("price") <= Decimal("30.25")) & (f.col("weight") > 3.0)),
    ([("day", "==", DAY)], lambda f: f.col("day") == DAY),
    ([("at", ">=", AT)], lambda f: f.col("at") >= AT),
]  # fmt: skip


def test_filters_give_the_rows_that_spark_gives_without_them(spark: SparkSession, read_only: str) -> None:
    from pyspark.sql import functions as F

    from ontolake.spark.filters import encoded

    url, name = read_only, "entity/Thing"
    everything = table(spark, url, name, types=CLASSES)
    local = spark.createDataFrame(everything.toArrow())
    wanted = together(local.where(condition(F)) for _, condition in FILTERS)
    assert len({number for number, _ in wanted}) == len(FILTERS), "each finds something"
    found = [table(spark, url, name, types=CLASSES, columns=["id"], filters=filters) for filters, _ in FILTERS]
    assert [one.columns for one in found] == [["id"]] * len(FILTERS)
    assert together(found) == wanted
    if everything.inputFiles():  # read by Spark itself until here; else this is what was read already
        plain = spark.read.format("ontolake").schema(everything.schema).option("url", url).option("table", name)
        assert together(plain.option("filters", encoded(filters)).load().where(condition(F))
                        for filters, condition in FILTERS) == wanted


def test_a_question_leaves_the_next_one_about_the_same_frame_alone(spark: SparkSession, read_only: str) -> None:
    for found in (table(spark, read_only, "entity/Thing"),
                  spark.read.format("ontolake").option("url", read_only).option("table", "entity/Thing").load()):
        assert found.where("id = 't00005'").count() == 1
        assert found.count() == 220
        assert found.where("id = 't00005'").unionAll(found.where("id = 't00007'")).count() == 2
        assert found.where("id < 't00050'").alias("a").join(found.where("id < 't00002'").alias("b"), "id").count() == 2


@pytest.mark.parametrize(("filters", "said"), [
    ([("nose", "==", 1)], "no column 'nose'"), ([("size", "~", 1)], "no operator '~'"),
    ([("size", "==")], "takes a value"),
    ([("size", "is_null", 1)], "takes no value"), ([("size", "==", "many")], "compared with 'many'"),
    ([("day", "<", "soon")], "compared with 'soon'"), ([("size", "in", 3)], "takes a list"),
    ([("size",)], "no list of"),
    ([("size", "==", None)], "compared with None"), ([("size", "==", object())], "cannot compare with"),
])  # fmt: skip
def test_filters_that_make_no_sense_are_refused(
    spark: SparkSession, read_only: str, filters: list[Any], said: str
) -> None:
    with pytest.raises((Invalid, NotFound), match=said):
        table(spark, read_only, "entity/Thing", filters=filters)


def test_a_frame_stays_at_its_commit(spark: SparkSession, url: str) -> None:
    found = table(spark, url, "entity/Thing", columns=["id"])
    with Session(url, **TYPES) as session:
        session.ensure(thing(n) for n in range(300, 400))
    assert found.count() == 220
    assert table(spark, url, "entity/Thing", columns=["id"]).count() == 320


def test_save_commits_what_differs_and_nothing_else(spark: SparkSession, url: str) -> None:
    from pyspark.sql import functions as F

    found = table(spark, url, "entity/Thing", types=CLASSES)
    assert save(found, url, "entity/Thing", types=CLASSES).commit is None
    changed = found.where("id < 't00003'").withColumn("name", F.lit("new"))
    done = save(changed, url, "entity/Thing", types=CLASSES, metadata={"author": "me"}, expected=3)
    assert (done.commit, done.written) == (4, {"entity/Thing": 3})
    with pytest.raises(Conflict, match="came after"):
        save(changed.withColumn("name", F.lit("late")), url, "entity/Thing", types=CLASSES, expected=3)
    with Session(url, **TYPES) as session:
        assert session.get_commit(4).metadata["author"] == "me"
        assert [one.name for one in session.query().entities(Thing).where(Thing.id < "t00004").collect()].count(
            "new") == 3
    assert parallel.clean(url, older=0).items == 0


def test_save_refuses_what_does_not_fit(spark: SparkSession, native: str) -> None:
    with pytest.raises(SchemaValidationError, match="colour"):
        save(spark.sql("SELECT 'a' AS id, 'b' AS name, 1 AS colour"), native, "entity/Thing", types=CLASSES)
    with pytest.raises(SchemaValidationError, match="name"):
        save(spark.sql("SELECT 'a' AS id"), native, "entity/Thing", types=CLASSES)
    with pytest.raises(SchemaValidationError, match="twice"):
        save(spark.sql("SELECT 'a' AS id, 'b' AS name FROM range(2)"), native, "entity/Thing", types=CLASSES)
    with pytest.raises(NotFound, match="entity/Thing"):
        save(spark.sql("SELECT 'a' AS id"), native, "entity/Other", types=CLASSES)
    with parallel.open_parallel(native) as store:
        assert store.head() == 3


def test_the_format_writes_one_commit(spark: SparkSession, url: str) -> None:
    new = spark.sql("SELECT concat('n', id) AS id, 'new' AS name, id AS size, 2.5D AS weight, '1.5' AS price, "
                    "timestamp'2024-01-01' AS at, true AS good, unhex('00') AS raw, '[]' AS tags, "
                    "cast(null AS date) AS day FROM range(0, 1000, 1, 3)")
    to = new.write.format("ontolake").mode("append").option("url", url).option("table", "entity/Thing")
    to.save()
    assert table(spark, url, "entity/Thing", columns=["id"]).count() == 1220
    to.save()  # the same once more changes nothing
    with parallel.open_parallel(url) as store:
        assert store.head() == 4


def test_a_task_that_fails_publishes_nothing_and_one_that_is_retried_publishes_once(
    spark: SparkSession, native: str, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType

    marker = tmp_path / "failed-once"

    def once(text: str) -> str:
        if text == "n7" and not marker.exists():
            marker.touch()
            raise RuntimeError("the first attempt fails")
        return text

    def always(text: str) -> str:
        raise RuntimeError("every attempt fails")

    base = spark.sql("SELECT concat('n', id) AS id, 'new' AS name FROM range(0, 20, 1, 4)")
    flaky = base.withColumn("name", F.udf(once, StringType())("id"))
    assert save(flaky, native, "entity/Thing", types=CLASSES).written == {"entity/Thing": 20}
    with pytest.raises(PySparkException):
        save(base.withColumn("name", F.udf(always, StringType())("id")), native, "entity/Thing", types=CLASSES)
    with parallel.open_parallel(native) as store:
        assert store.head() == 4


def test_a_catalog_lets_sql_see_a_whole_store_at_one_commit(spark: SparkSession, native: str) -> None:
    found = catalog(native, as_of=2, types=CLASSES)
    assert found.tables == ("entity/Thing", "relation/Near")
    assert found.views(spark) == {"Thing": "entity/Thing", "Near": "relation/Near"}
    joined = spark.sql("SELECT count(*) AS n FROM Near JOIN Thing ON left_key = id").collect()
    assert joined[0].n == 100
    assert spark.sql("SELECT count(*) AS n FROM Thing").collect()[0].n == 200


def test_a_new_store_is_started_by_its_types(spark: SparkSession, tmp_path: Path) -> None:
    new = spark.sql("SELECT 'a' AS id, 'b' AS name")
    assert save(new, f"{tmp_path}/new.db", "entity/Thing", types=CLASSES).commit == 1
    with pytest.raises(NotFound):
        save(new, f"{tmp_path}/other.db", "entity/Thing")


def test_documents(spark: SparkSession, tmp_path: Path) -> None:
    with open_space(f"{tmp_path}/", "orders") as space:
        space.transact("s", 1, [Set(f"o{n:03}", {"value": n}) for n in range(50)])
    url = f"{tmp_path}/orders.sqlite"
    found = table(spark, url, "documents")
    assert {row.id: json.loads(row.document)["value"] for row in found.collect()} == {
        f"o{n:03}": n for n in range(50)}
    total = found.selectExpr("sum(cast(get_json_object(document, '$.value') AS int)) AS total").collect()[0].total
    assert total == sum(range(50))
    changed = found.where("id < 'o002'").selectExpr("id", "'{\"value\": \"x\"}' AS document")
    assert save(changed, url, "documents").written == {"documents": 2}
    with open_space(f"{tmp_path}/", "orders") as space:
        assert space.read("o001").document == {"value": "x"}


@pytest.mark.parametrize("url", ["{}/shop.db", "file://{}/lake"])
def test_a_frame_of_before_a_migration_has_the_schema_of_its_time(
    spark: SparkSession, tmp_path: Path, url: str
) -> None:  # fmt: skip
    url = url.format(tmp_path)
    with Session(url, **TYPES) as session:
        session.ensure(thing(number) for number in range(20))

    class Newer(Entity):
        id: Field[str] = Field(primary_key=True)
        label: Field[str]

    Newer.__name__ = "Thing"
    with Session(url, entity_types=[Newer]) as session:
        session.migrate(dry_run=False, force=True,
                        upgraders={("Thing", 1): lambda row: {"id": row["id"], "label": row["name"]}})
    before, after = table(spark, url, "entity/Thing", as_of=1), table(spark, url, "entity/Thing")
    assert after.columns == ["id", "label", "commit_id"]
    assert set(before.columns) == {*Thing.model_fields, "commit_id"}
    assert sorted(row.name for row in before.where("size > 10").collect()) == sorted(
        thing(n).name for n in range(20) if (thing(n).size or 0) > 10)  # fmt: skip
    options = {"url": url, "table": "entity/Thing", "as_of": "1"}
    assert spark.read.format("ontolake").options(**options).load().agg({"size": "sum"}).collect()[0][0] == sum(
        thing(n).size or 0 for n in range(20))  # fmt: skip
    catalog(url, as_of=1).views(spark)
    assert spark.sql("SELECT count(name) FROM Thing").collect()[0][0] == 20


def test_bad_options_are_named(spark: SparkSession, native: str) -> None:
    def read(**options: str) -> Any:
        return spark.read.format("ontolake").options(**options).load()

    for options, told in (
        ({"table": "entity/Thing"}, "needs the options"), ({"url": native, "table": "entity/Other"}, "no table"),
        ({"url": native, "table": "entity/Thing", "colour": "x"}, "no option"),
        ({"url": native, "table": "entity/Thing", "mode": "x"}, "no mode"),
        ({"url": native + "x.db", "table": "entity/Thing"}, "there is nothing at"),
        ({"url": native, "table": "entity/Thing", "option.url": native}, "TEMPORARY VIEW"),
    ):  # fmt: skip
        with pytest.raises(Exception, match=told):
            read(**options)  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        table(spark, native, "entity/Thing", as_of=99)
    with pytest.raises(NotFound, match="colour"):
        table(spark, native, "entity/Thing", columns=["colour"])
    with pytest.raises(Invalid, match="memory"):
        table(spark, "memory://x", "entity/Thing")
    with pytest.raises(Invalid, match="parts"):
        table(spark, native, "entity/Thing", parts=-1)


def test_what_would_be_of_no_effect_is_refused(spark: SparkSession, native: str) -> None:
    where = {"url": native, "table": "entity/Thing"}
    with pytest.raises(Invalid, match="mode is 'latest'"):
        table(spark, native, "entity/Thing", since=1)
    with pytest.raises(Exception, match="mode is 'history'") as told:
        spark.read.format("ontolake").options(**where, mode="history", since="1").load().count()
    assert str(told.value).count("File ") <= 1, "the way that an error took is no part of what is wrong"
    with pytest.raises(Exception, match="a read has no option 'stream'"):
        spark.read.format("ontolake").options(**where, stream="s").load().count()
    with pytest.raises(Exception, match="a write has no option 'as_of'"):
        spark.range(1).write.format("ontolake").mode("append").options(**where, as_of="1").save()


def test_columns_that_do_not_fit_are_refused_before_a_task_runs(spark: SparkSession, native: str) -> None:
    for columns, said in (("'a' AS id, 'b' AS name, 1 AS colour", "colour: there is no such field"),
                          ("'a' AS id", "the DataFrame has no such column"),
                          ("'a' AS id, 'b' AS name, 'c' AS name", "name: the DataFrame has this column twice")):
        wrong = spark.sql(f"SELECT {columns}")
        with pytest.raises(SchemaValidationError, match=said):
            save(wrong, native, "entity/Thing")
        with pytest.raises(Exception, match=said):
            wrong.write.format("ontolake").mode("append").option("url", native).option("table", "entity/Thing").save()
    assert parallel.clean(native, older=0).items == 0, "nothing was staged"


def test_long_rows_come_in_pieces_that_java_can_take(spark: SparkSession, tmp_path: Path) -> None:
    batch = pa.record_batch({"n": pa.array(range(5), pa.int64()), "raw": [bytes(20 << 20)] * 5})
    pieces = list(in_pieces(batch))
    assert [piece.num_rows for piece in pieces] == [3, 2]
    assert pa.Table.from_batches(pieces).column("n").to_pylist() == [0, 1, 2, 3, 4]
    url = f"file://{tmp_path}/lake"
    with Session(url, **TYPES) as session:
        session.ensure(thing(n, raw=bytes(20_000)) for n in range(3))
    assert table(spark, url, "entity/Thing", columns=["id", "name"]).inputFiles(), "these are short"
    found = table(spark, url, "entity/Thing", columns=["id", "raw"])
    assert not found.inputFiles(), "Spark's own reader would hold 4,096 of them at a time"
    assert {row.id: len(row.raw) for row in found.collect()} == {f"t{n:05}": 20_000 for n in range(3)}


class Novel(Entity):
    id: Field[int] = Field(primary_key=True)
    Name: Field[str | None] = Field(default=None)
    name: Field[str | None] = Field(default=None)


def test_a_table_is_empty_until_something_is_written_and_names_differ_by_case(spark: SparkSession, url: str) -> None:
    new = table(spark, url, "entity/Novel", columns=["Name"], filters=[("id", ">", 1)], types=[Novel])
    assert (new.columns, new.collect()) == (["Name"], [])
    with Session(url, entity_types=[Novel]) as session:
        session.ensure([Novel(id=1, Name="A", name="a"), Novel(id=2, Name="B")])
    for found in (table(spark, url, "entity/Novel"), table(spark, url, "entity/Novel", mode="history")):
        assert sorted(tuple(row)[:4] for row in found.collect()) == [(1, "A", "a", 4), (2, "B", None, 4)]
