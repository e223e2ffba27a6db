"""Makes the files that source systems deliver, with the mistakes that such files have."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

FIRST = ("Ada", "Bob", "Cleo", "Dora", "Emil", "Fay", "Gus", "Hana", "Ivo", "Jo")
LAST = ("Ash", "Birch", "Cedar", "Elm", "Fir", "Hazel", "Linde", "Oak", "Pine", "Rowan")
TIERS = ("gold", "silver", "plain", "plain", "plain")


def deliver(folder: Path, rows: int, *, second: bool = False) -> None:
    """Write a delivery of so many orders. The second one has some changes in it, and what is new."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)
    customers, products = max(10, rows // 5), max(5, rows // 50)
    _customers(folder / "customers.csv", customers, draw, second)
    prices = [round(draw.uniform(1, 200), 2) for _ in range(products)]
    if second:
        prices[0] = round(prices[0] * 1.1, 2)
    pq.write_table(pa.table({
        "sku": [f"sku-{n:05}" for n in range(products)], "title": [f"thing number {n}" for n in range(products)],
        "price": [f"{price:.2f}" for price in prices]}), folder / "products.parquet")
    _orders(folder, rows + (rows // 100 if second else 0), customers, prices, draw)


def _customers(path: Path, count: int, draw: random.Random, second: bool) -> None:
    lines = ["customer_id,full_name,email,tier,since"]
    for n in range(count):
        name, tier = f"{draw.choice(FIRST)} {draw.choice(LAST)}", draw.choice(TIERS)
        email, since = f"{name.split()[0].lower()}{n}@example.org", date(2016, 1, 1) + timedelta(n % 3000)
        if second and n % 100 == 7:
            tier = "gold"
        lines.append(f"c{n:06},{name},{email},{tier},{since}")
    lines[3] = "c000002,Bob Oak,bob.at.example.org,gold,2019-04-01"  # no @
    lines[4] = "c000003,,cleo@example.org,plain,2019-04-01"  # no name
    lines[5] = "c000004,Dora Elm,dora@example.org,platinum,2019-04-01"  # no such tier
    lines[6] = "c000005,Emil Fir,emil@example.org,gold,2019-02-30"  # no such day
    lines[7] = "c000006,Fay Ash,fay@example.org,gold,1815-12-10"  # long before the shop
    lines[8] = "c000007,Gus"  # cut off
    if second:
        lines[3] = "c000002,Bob Oak,bob@example.org,gold,2019-04-01"  # corrected
    path.write_text("\n".join(lines) + "\n")


def _orders(folder: Path, count: int, customers: int, prices: list[float], draw: random.Random) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    orders, payments = [], ["id;order_id;amount;paid"]
    for n in range(1, count + 1):
        customer, product, pieces = 8 + draw.randrange(customers - 8), draw.randrange(len(prices)), draw.randrange(1, 5)
        total, at = f"{prices[product] * pieces:.2f}", (start + timedelta(seconds=37 * n)).isoformat()
        orders.append(f'{{"id": {n}, "customer": "c{customer:06}", "sku": "sku-{product:05}", "count": {pieces}, '
                      f'"total": "{total}", "at": "{at}"}}')
        payments.append(f"pay-{n};{n};{total};{'true' if draw.random() < 0.9 else 'false'}")
    orders[10] = orders[10].replace('"count": ', '"count": -')  # less than nothing
    orders[11] = orders[11][: len(orders[11]) // 2]  # cut off
    del payments[11:13]  # nobody pays for the two that are not there
    payments[20] = payments[20].replace(".", ",")  # a comma where a point should be
    (folder / "orders.jsonl").write_text("\n".join(orders) + "\n")
    (folder / "payments.csv").write_text("\n".join(payments) + "\n")
