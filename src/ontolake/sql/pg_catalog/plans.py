"""Plans of queries that read system tables: those are Arrow tables, and functions are answered by the catalog."""

from __future__ import annotations

from ontolake.sql.executor import system_functions
from ontolake.sql.naming import StatementNames
from ontolake.sql.pg_catalog.statements import rewritten
from ontolake.sql.pg_catalog.system import SystemCatalog
from ontolake.sql.plan.queries import QueryPlan
from ontolake.sql.syntax.statements import ParsedStatement


def system_plan(statement: ParsedStatement, names: StatementNames, system: SystemCatalog) -> QueryPlan:
    """The plan of a statement. Raises `SqlError`."""
    assert statement.tree is not None
    tree, given = rewritten(statement.tree, system.path, system.table)
    changed = statement.changed(tree, {**statement.given, **given})
    changed.system = system
    with system_functions.using(system):
        return QueryPlan(changed, names.expanded(tree), names)
