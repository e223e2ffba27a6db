"""EXPLAIN as JSON, in the shape that tools of PostgreSQL read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ontolake.sql.plan.access import AccessPath


def as_json(
    paths: Sequence[tuple[str, AccessPath]], rest: Sequence[str], rows: int | None, milliseconds: float | None
) -> str:
    """A plan: how each table is read, under the node of what is done with the rows; with rows and time if it was run.

    `rest` is the plan of the executor, none if keys answer alone.
    """
    nodes = [_node(alias, path) for alias, path in paths]
    if not rest and len(nodes) == 1:
        plan = nodes[0]
    else:
        plan = {"Node Type": "Result", "Parallel Aware": False, "Async Capable": False}
        if rest:
            plan["Executor"] = list(rest)
        if nodes:
            plan["Plans"] = [{**node, "Parent Relationship": "Outer" if n == 0 else "Inner"}
                             for n, node in enumerate(nodes)]  # fmt: skip
    found: dict[str, Any] = {"Plan": plan}
    if milliseconds is not None:
        plan["Actual Rows"], plan["Actual Loops"] = rows, 1
        plan["Actual Total Time"] = found["Execution Time"] = round(milliseconds, 3)
    return json.dumps([found], indent=2)


def _node(alias: str, path: AccessPath) -> dict[str, Any]:
    table = path.table
    found: dict[str, Any] = {"Node Type": "Seq Scan" if path.kind == "full scan" else "Index Scan",
                             "Parallel Aware": False, "Async Capable": False}  # fmt: skip
    if path.kind != "full scan":
        found["Scan Direction"] = "Forward"
        found["Index Name"] = table.key_name if path.by is None else path.by.name
    found |= {"Relation Name": table.name, "Schema": table.full_name.split(".")[1], "Alias": alias, "Access": path.kind}
    found["Keys" if path.keys is not None else "Ranges"] = len(path.spans if path.keys is None else path.keys)
    return found
