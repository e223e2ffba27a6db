"""A database as a source of a pipeline, over JDBC: Derby, which comes with Spark."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from ontolake.model import Entity, Field
from ontolake.ontology import Session
from ontolake.spark import Pipeline, SourceError

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.slow]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER = "org.apache.derby.iapi.jdbc.AutoloadedDriver"


class Invoice(Entity):
    id: Field[int] = Field(primary_key=True)
    customer: Field[str] = Field(min_length=2)
    total: Field[Decimal] = Field(max_digits=8, decimal_places=2, ge=0)
    day: Field[date | None] = Field(default=None)


@pytest.fixture
def database(spark: SparkSession, tmp_path: Path) -> str:
    """The URL of a database in which nothing is yet."""
    spark._jvm.System.setProperty("derby.stream.error.file", f"{tmp_path}/derby.log")  # type: ignore[union-attr]
    return f"jdbc:derby:{tmp_path}/old"


def deliver(spark: SparkSession, database: str, *rows: str) -> None:
    """Fill the table of invoices, by Spark, which quotes names: Derby would make them upper case otherwise."""
    spark.sql("SELECT * FROM VALUES " + ", ".join(rows) + " AS invoices(id, customer, total, day)").selectExpr(
        "CAST(id AS bigint) AS id", "customer", "CAST(total AS decimal(12, 2)) AS total", "CAST(day AS date) AS day",
    ).write.format("jdbc").mode("overwrite").option("url", f"{database};create=true").option(
        "driver", DRIVER).option("dbtable", "invoices").save()  # fmt: skip


def invoices(database: str, table: str = "invoices") -> Pipeline:
    made = Pipeline("invoices", types=[Invoice], max_rejected=0.9)
    source = made.format("old", "jdbc", url=database, dbtable=table, driver=DRIVER)
    made.load(Invoice, source, columns={"customer": "trim(customer)"}, vanished=True)
    return made


def test_a_table_of_a_database_is_loaded_checked_and_reconciled(
    spark: SparkSession, tmp_path: Path, database: str
) -> None:
    url = f"file://{tmp_path}/lake"
    deliver(spark, database, "(1, ' Ada', 12.50, '2024-01-31')", "(2, 'Bob', 0.10, null)", "(3, 'Cy', -1, null)",
            "(4, 'D', 1, null)", "(5, 'Eve', 12345678.90, null)")
    report = invoices(database).run(url, spark=spark)
    assert report.tables[0].counts == {"rows": 5, "rejected": 3, "inserts": 2, "updates": 0, "unchanged": 0,
                                       "vanished": 0}
    rejected = pq.read_table(str(report.quarantine)).to_pylist()
    assert sorted(row["reason"].partition(":")[0] for row in rejected) == ["customer", "total", "total"]
    assert all(row["source"] == "old" and '"id":' in row["raw"] for row in rejected)
    assert invoices(database).run(url, spark=spark).state == "unchanged"

    deliver(spark, database, "(1, 'Ada', 13, '2024-01-31')", "(6, 'Fay', 1, null)")
    query = invoices(database, "(SELECT * FROM invoices) AS chosen")
    assert query.run(url, spark=spark).tables[0].counts == {"rows": 2, "rejected": 0, "inserts": 1, "updates": 1,
                                                            "unchanged": 0, "vanished": 1}  # fmt: skip
    with Session(url, entity_types=[Invoice]) as session:
        found = session.query().entities(Invoice).order_by(Invoice.id).collect()
        assert [(one.id, one.customer, str(one.total), one.day) for one in found] == [
            (1, "Ada", "13.00", date(2024, 1, 31)), (2, "Bob", "0.10", None), (6, "Fay", "1.00", None)]
        assert session.get_commit(2).metadata["sources"]["old"]["format"] == "jdbc"


def test_a_database_or_table_that_is_not_there_is_told(spark: SparkSession, tmp_path: Path, database: str) -> None:
    url = f"{tmp_path}/shop.db"
    with pytest.raises(SourceError, match=r"source old: cannot be read: .*Couldn't connect to the database"):
        invoices(database).run(url, spark=spark)
    deliver(spark, database, "(1, 'Ada', 1, null)")
    with pytest.raises(SourceError, match=r"source old: cannot be read: .*'ORDERS' does not exist"):
        invoices(database, "orders").run(url, spark=spark)
    other = Pipeline("invoices", types=[Invoice])
    other.load(Invoice, other.format("old", "jdbc", url=database, dbtable="invoices", driver="NoSuchDriver"))
    with pytest.raises(SourceError, match=r"source old: cannot be read: .*ClassNotFoundException: NoSuchDriver"):
        other.run(url, spark=spark)
