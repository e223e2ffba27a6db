"""The client of the tests of Spark Connect: works on a store through a server, and says what came of it as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from ontolake.errors import NotFound
from ontolake.model import Entity, Field
from ontolake.spark import Pipeline, catalog, jobs, register, save, session, table


class Part(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int | None] = Field(default=None)


def main(server: str, folder: str) -> None:
    url, name = f"file://{folder}/lake", "entity/Part"
    spark = SparkSession.builder.remote(server).getOrCreate()
    register(spark)
    said: dict[str, object] = {"remote": type(spark).__module__, "session": session() is spark}
    parts = spark.range(0, 100, 1, 2).selectExpr("concat('p', lpad(id, 3, '0')) AS id", "id AS size")
    said["saved"] = save(parts, url, name, types=[Part])
    said["again"] = save(parts, url, name).commit
    new = parts.where("size < 2").selectExpr("concat('new', size) AS id", "size")
    new.write.format("ontolake").mode("append").option("url", url).option("table", name).save()
    said["read"] = sorted(map(tuple, table(spark, url, name, columns=["id", "size"]).where("size = 1").collect()))
    said["past"] = table(spark, url, name, as_of=1).count()
    said["changes"] = sorted(map(tuple, table(spark, url, name, mode="changes", since=1).collect()))
    catalog(url).views(spark)
    said["sql"] = spark.sql("SELECT sum(size) AS total FROM Part").collect()[0].total
    try:
        table(spark, url, "entity/Other")
    except NotFound as error:
        said["missing"] = error.message
    verified = jobs.verify(url, spark=spark)
    said["verified"] = verified.ok, verified.rows
    Path(folder, "parts.csv").write_text("id,size\np000,7\nq1,x\nq2,2\n")
    delivery = Pipeline("parts", types=[Part], folder=folder, max_rejected=0.9)
    delivery.load(Part, delivery.csv("parts", "parts.csv"))
    delivery.expect_rows(Part, at_least=100)
    done = delivery.run(url, spark=spark)
    said["pipeline"] = done.state, done.commit, done.tables[0].counts
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
