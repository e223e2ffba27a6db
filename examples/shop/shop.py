"""The pipeline of the shop: four deliveries, five types, one commit.

    onto pipeline run examples/shop/shop.py --store shop.db --set data=PATH
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from shop_types import TYPES, Customer, Order, Payment, Placed, Product

from ontolake.spark import Pipeline

shop = Pipeline("shop", types=TYPES, parameters={"data": "data/first"}, max_rejected=0.05)

customers = shop.csv("customers", "{data}/customers.csv")
products = shop.parquet("products", "{data}/products.parquet")
orders = shop.json("orders", "{data}/orders.jsonl", columns=["id", "customer", "sku", "count", "total", "at"])
payments = shop.csv("payments", "{data}/payments.csv", sep=";")

shop.load(Customer, customers, columns={"id": "customer_id", "name": "trim(full_name)", "tier": "lower(tier)"},
          checks={"nobody joined before the shop was there": "since >= DATE'2015-01-01'"})
shop.load(Product, products)
shop.load(Order, orders)
shop.load(Payment, payments, columns={"order": "order_id"})
shop.load(Placed, orders, columns={"left_key": "customer", "right_key": "id"},
          where="total IS NOT NULL AND try_cast(count AS int) >= 1 AND try_cast(total AS decimal(12, 2)) >= 0")

shop.expect_rows(Customer, at_least=1)
shop.expect("every order is for a product",
            "SELECT o.id, o.sku FROM `Order` o LEFT ANTI JOIN Product p ON o.sku = p.sku")
shop.expect("nobody pays for an order that is not there",
            "SELECT p.id FROM Payment p LEFT ANTI JOIN `Order` o ON p.order = o.id")
