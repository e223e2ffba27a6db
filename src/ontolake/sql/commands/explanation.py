"""EXPLAIN, as lines or as JSON in the shape that tools of PostgreSQL read."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ontolake.sql.errors import UnsupportedError
from ontolake.sql.plan.access import AccessPath
from ontolake.sql.plan.queries import BY_KEYS
from ontolake.sql.syntax.statements import Parameters, ParsedStatement

if TYPE_CHECKING:
    from ontolake.sql.database import Database, Version


def explained(
    self: Database, statement: ParsedStatement, params: Parameters, options: Mapping[str, Any], as_of: Version | None
) -> list[str]:
    """How a query would be answered, in lines. Raises `SqlError`."""
    if statement.kind == "explain":
        assert statement.inner is not None
        options, statement = {**options, **statement.options}, statement.inner
    if statement.kind == "execute":
        statement, params = self.commands.bound(statement, params)
    statement.check_parameters(params)
    if statement.kind != "select":
        raise UnsupportedError(f"EXPLAIN of {statement.kind.upper()} is not supported", hint="explain a SELECT")
    with self.session.reading():
        plan = self.plan_of(statement, None if as_of is None else self.version_of(as_of))
        lines = plan.explain(self.session, params)
        count = took = None
        if options.get("analyze"):
            begun = time.perf_counter()
            count = plan.run(self.session, params, keep=True).count
            took = (time.perf_counter() - begun) * 1000
        if options.get("format") == "json":
            paths = plan.paths(self.session, params)
            rest = [] if lines[-1] == BY_KEYS else lines[len(paths) :]
            return [as_json(paths, rest, count, took)]
        if took is not None:
            lines.append(f"{count} row{'' if count == 1 else 's'} in {took:.2f} ms")
    return lines


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
