"""Tables and queries in the manner of TPC-H, from a generator of ours: the same columns and shapes, other values."""

from __future__ import annotations

from datetime import date

import numpy as np
import pyarrow as pa

TABLES = {
    "nation": "n_nationkey BIGINT PRIMARY KEY, n_name TEXT, n_regionkey BIGINT",
    "region": "r_regionkey BIGINT PRIMARY KEY, r_name TEXT",
    "supplier": "s_suppkey BIGINT PRIMARY KEY, s_name TEXT, s_nationkey BIGINT, s_acctbal DECIMAL(12, 2)",
    "customer": "c_custkey BIGINT PRIMARY KEY, c_name TEXT, c_nationkey BIGINT, c_acctbal DECIMAL(12, 2), "
                "c_mktsegment TEXT",
    "part": "p_partkey BIGINT PRIMARY KEY, p_name TEXT, p_brand TEXT, p_type TEXT, p_size BIGINT, p_container TEXT, "
            "p_retailprice DECIMAL(12, 2)",
    "orders": "o_orderkey BIGINT PRIMARY KEY, o_custkey BIGINT, o_orderstatus TEXT, o_totalprice DECIMAL(12, 2), "
              "o_orderdate DATE, o_orderpriority TEXT, o_shippriority BIGINT",
    "lineitem": "l_orderkey BIGINT, l_linenumber BIGINT, l_partkey BIGINT, l_suppkey BIGINT, "
                "l_quantity DECIMAL(12, 2), l_extendedprice DECIMAL(12, 2), l_discount DECIMAL(12, 2), "
                "l_tax DECIMAL(12, 2), l_returnflag TEXT, l_linestatus TEXT, l_shipdate DATE, l_commitdate DATE, "
                "l_receiptdate DATE, l_shipinstruct TEXT, l_shipmode TEXT, l_comment TEXT, "
                "PRIMARY KEY (l_orderkey, l_linenumber)",
}

QUERIES = {
    "Q1": """SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice),
        sum(l_extendedprice * (1 - l_discount)), avg(l_quantity), avg(l_extendedprice), count(*) FROM lineitem
        WHERE l_shipdate <= DATE '1998-09-02' GROUP BY l_returnflag, l_linestatus ORDER BY 1, 2""",
    "Q3": """SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
        FROM customer, orders, lineitem WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey
        AND l_orderkey = o_orderkey AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate LIMIT 10""",
    "Q4": """SELECT o_orderpriority, count(*) FROM orders WHERE o_orderdate >= DATE '1993-07-01'
        AND o_orderdate < DATE '1993-10-01' AND EXISTS (SELECT 1 FROM lineitem WHERE l_orderkey = o_orderkey
        AND l_commitdate < l_receiptdate) GROUP BY o_orderpriority ORDER BY o_orderpriority""",
    "Q5": """SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM customer, orders, lineitem, supplier, nation, region WHERE c_custkey = o_custkey
        AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey
        AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'region 2'
        AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01' GROUP BY n_name ORDER BY 2 DESC""",
    "Q6": """SELECT sum(l_extendedprice * l_discount) FROM lineitem WHERE l_shipdate >= DATE '1994-01-01'
        AND l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
    "Q10": """SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, n_name
        FROM customer, orders, lineitem, nation WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey
        AND o_orderdate >= DATE '1993-10-01' AND o_orderdate < DATE '1994-01-01' AND l_returnflag = 'R'
        AND c_nationkey = n_nationkey GROUP BY c_custkey, c_name, n_name ORDER BY revenue DESC, c_custkey LIMIT 20""",
    "Q12": """SELECT l_shipmode, sum(CASE WHEN o_orderpriority IN ('1', '2') THEN 1 ELSE 0 END) AS high,
        sum(CASE WHEN o_orderpriority NOT IN ('1', '2') THEN 1 ELSE 0 END) AS low FROM orders, lineitem
        WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate
        AND l_shipdate < l_commitdate AND l_receiptdate >= DATE '1994-01-01' AND l_receiptdate < DATE '1995-01-01'
        GROUP BY l_shipmode ORDER BY l_shipmode""",
    "Q14": """SELECT sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END),
        sum(l_extendedprice * (1 - l_discount)) FROM lineitem, part WHERE l_partkey = p_partkey
        AND l_shipdate >= DATE '1995-09-01' AND l_shipdate < DATE '1995-10-01'""",
    "Q18": """SELECT c_name, o_orderkey, o_totalprice, sum(l_quantity) FROM customer, orders, lineitem
        WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 250)
        AND c_custkey = o_custkey AND o_orderkey = l_orderkey GROUP BY c_name, o_orderkey, o_totalprice
        ORDER BY o_totalprice DESC, o_orderkey LIMIT 100""",
}


def generated(scale: float) -> dict[str, pa.Table]:
    """All tables at a scale: 6,000,000 rows of lineitem at 1, about."""
    rng = np.random.default_rng(11)
    suppliers, customers, parts, orders = (max(10, int(scale * n)) for n in (10_000, 150_000, 200_000, 1_500_000))

    def words(count: int, *given: str) -> pa.Array:
        return pa.DictionaryArray.from_arrays(rng.integers(0, len(given), count), pa.array(given)).cast(pa.string())

    def money(low: int, high: int, count: int) -> pa.Array:
        raw = np.zeros((count, 2), np.int64)
        raw[:, 0] = rng.integers(low, high, count)
        raw[:, 1] = raw[:, 0] >> 63
        return pa.Array.from_buffers(pa.decimal128(12, 2), count, [None, pa.py_buffer(raw)])

    def days(values: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
        return pa.array((values + date(1992, 1, 1).toordinal() - date(1970, 1, 1).toordinal()).astype(np.int32)).view(
            pa.date32())

    def named(word: str, count: int) -> list[str]:
        return [f"{word} {n}" for n in range(count)]

    ordered = rng.integers(0, 2400, orders)
    of = np.repeat(np.arange(orders), rng.integers(1, 8, orders))
    first = np.concatenate([[0], np.flatnonzero(np.diff(of)) + 1])
    number = np.arange(len(of)) - np.repeat(first, np.diff([*first, len(of)]))
    lines, shipped = len(of), ordered[of] + rng.integers(1, 122, len(of))
    return {
        "region": pa.table({"r_regionkey": np.arange(5), "r_name": named("region", 5)}),
        "nation": pa.table({"n_nationkey": np.arange(25), "n_name": named("nation", 25),
                            "n_regionkey": np.arange(25) % 5}),
        "supplier": pa.table({"s_suppkey": np.arange(suppliers), "s_name": named("supplier", suppliers),
                              "s_nationkey": rng.integers(0, 25, suppliers),
                              "s_acctbal": money(-99999, 999999, suppliers)}),
        "customer": pa.table({"c_custkey": np.arange(customers), "c_name": named("customer", customers),
                              "c_nationkey": rng.integers(0, 25, customers),
                              "c_acctbal": money(-99999, 999999, customers),
                              "c_mktsegment": words(customers, "BUILDING", "AUTOMOBILE", "MACHINERY", "HOME", "F")}),
        "part": pa.table({"p_partkey": np.arange(parts), "p_name": named("part", parts),
                          "p_brand": words(parts, "Brand#11", "Brand#12", "Brand#23"),
                          "p_type": words(parts, "PROMO TIN", "SMALL BRASS", "LARGE STEEL", "PROMO STEEL", "ECO"),
                          "p_size": rng.integers(1, 51, parts),
                          "p_container": words(parts, "SM BOX", "LG CASE", "MED BAG"),
                          "p_retailprice": money(90000, 200000, parts)}),
        "orders": pa.table({"o_orderkey": np.arange(orders), "o_custkey": rng.integers(0, customers, orders),
                            "o_orderstatus": words(orders, "O", "F", "P"),
                            "o_totalprice": money(90000, 50000000, orders),
                            "o_orderdate": days(ordered), "o_orderpriority": words(orders, "1", "2", "3", "4", "5"),
                            "o_shippriority": np.zeros(orders, np.int64)}),
        "lineitem": pa.table({
            "l_orderkey": of, "l_linenumber": number, "l_partkey": rng.integers(0, parts, lines),
            "l_suppkey": rng.integers(0, suppliers, lines), "l_quantity": money(100, 5001, lines),
            "l_extendedprice": money(90000, 10000000, lines), "l_discount": money(0, 11, lines),
            "l_tax": money(0, 9, lines), "l_returnflag": words(lines, "R", "A", "N"),
            "l_linestatus": words(lines, "O", "F"),
            "l_shipdate": days(shipped), "l_commitdate": days(ordered[of] + rng.integers(30, 91, lines)),
            "l_receiptdate": days(shipped + rng.integers(1, 31, lines)),
            "l_shipinstruct": words(lines, "DELIVER IN PERSON", "NONE", "TAKE BACK RETURN"),
            "l_shipmode": words(lines, "MAIL", "SHIP", "AIR", "RAIL", "TRUCK", "FOB"),
            "l_comment": words(lines, "quick", "slow and even", "never mind the deposits")}),
    }  # fmt: skip
