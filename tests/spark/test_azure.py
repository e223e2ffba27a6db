"""Spark on Azure: tables of every layout, read and written by Python workers, with no jar of Azure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ontolake.documents import Set, open_space
from ontolake.graph import Graph
from ontolake.model import Entity, Field
from ontolake.objects.testing import AzuriteServer
from ontolake.ontology import Session
from ontolake.spark import save, table
from ontolake.sql import open_database

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]  # all in one worker, so that Spark starts once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Item(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int]


@pytest.fixture
def bucket(azurite: AzuriteServer, azurite_url: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place whose variables Spark's workers have too: the session may have been started without them."""
    for name, value in azurite.env().items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    return azurite_url


@pytest.mark.parametrize("engine", ["v1", "v2"])
def test_a_typed_store(spark: SparkSession, bucket: str, engine: str) -> None:
    with Session(bucket, entity_types=[Item], engine_version=engine) as session:
        session.ensure([Item(id="a", size=1), Item(id="b", size=2)])
        session.commit()
    rows = spark.createDataFrame([("b", 20), ("c", 30)], "id string, size bigint")
    save(rows, bucket, "entity/Item")
    with Session(bucket, entity_types=[Item]) as session:
        assert {one.id: one.size for one in session.query().entities(Item).collect()} == {"a": 1, "b": 20, "c": 30}
    read = table(spark, bucket, "entity/Item")
    assert sorted((row.id, row.size) for row in read.where("size > 1").collect()) == [("b", 20), ("c", 30)]
    assert table(spark, bucket, "entity/Item", as_of=1).count() == 2


def test_a_graph(spark: SparkSession, bucket: str) -> None:
    Graph.init(bucket, [Item]).close()
    save(spark.createDataFrame([("a", 1), ("b", 2)], "id string, size bigint"), bucket, "node/Item")
    assert sorted((row.id, row.size) for row in table(spark, bucket, "node/Item").collect()) == [("a", 1), ("b", 2)]
    with Graph.open(bucket) as graph:
        assert graph.snapshot().get(Item, "b")["size"] == 2


def test_sql_tables_and_documents(spark: SparkSession, bucket: str) -> None:
    with open_database(f"{bucket}/sql") as database:
        database.execute("CREATE DATABASE app; CREATE SCHEMA app.public")
        database.execute("CREATE TABLE app.public.item (id TEXT PRIMARY KEY, size BIGINT)")
    rows = spark.createDataFrame([("a", 1), ("b", 2)], "id string, size bigint")
    save(rows, f"{bucket}/sql", "app.public.item")
    read = table(spark, f"{bucket}/sql", "app.public.item")
    assert sorted((row.id, row.size) for row in read.collect()) == [("a", 1), ("b", 2)]
    with open_space(f"{bucket}/docs", "shop") as space:
        space.transact("worker", 1, [Set("pen", {"value": 1})])
    (found,) = table(spark, f"{bucket}/docs/shop", "documents").collect()
    assert (found.id, json.loads(found.document)) == ("pen", {"value": 1})
