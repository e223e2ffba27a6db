"""`x IN (SELECT …)` below OR or NOT, with three truth values.

DataFusion joins such a subquery and takes "unknown" for false, so that its negation holds: `x NOT IN (SELECT …) OR …`
would find rows that PostgreSQL does not. Where the subquery stands for itself, whether the answer is unknown is asked
beside it.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from sqlglot import exp

from ontolake.sql.syntax.statements import DIALECT, name_of

_LOGIC = (exp.And, exp.Or, exp.Not, exp.Paren)


def is_doubtful(node: exp.In) -> bool:
    """Whether a subquery of IN stands below OR or NOT in a condition. `NOT IN` among ANDs alone is taken right."""
    if node.args.get("query") is None:
        return False
    at: exp.Expr | None = node.parent
    if isinstance(at, exp.Not):
        at = at.parent
    is_alone = True
    while isinstance(at, _LOGIC):
        is_alone = is_alone and isinstance(at, exp.And | exp.Paren)
        at = at.parent
    return isinstance(at, exp.Where | exp.Having) and not is_alone


def with_unknown(node: exp.In, tables: Mapping[str, pa.Table]) -> None:
    """Make IN unknown, in place, where it is neither true nor false, if its subquery refers to nothing around it."""
    query = node.args["query"]
    inner = query.this if isinstance(query, exp.Subquery) else query
    if not isinstance(inner, exp.Query) or not _is_closed(inner, tables):
        return
    text, value = inner.sql(DIALECT), node.this.sql(DIALECT)
    some = f"(SELECT count(*) FROM ({text}) AS in_rows) > 0"
    nulls = f"(SELECT count(*) FROM ({text}) AS in_rows(in_value) WHERE in_rows.in_value IS NULL) > 0"
    unknown = f"CASE WHEN ({value} IS NULL AND {some}) OR {nulls} THEN CAST(NULL AS BOOLEAN) ELSE FALSE END"
    member = f"{value} IN (SELECT in_rows.in_value FROM ({text}) AS in_rows(in_value))"  # which a UNION is right in too
    node.replace(exp.paren(exp.maybe_parse(f"{member} OR {unknown}", dialect=DIALECT)))


def _is_closed(query: exp.Query, tables: Mapping[str, pa.Table]) -> bool:
    """Whether all columns of a query are those of its own tables."""
    own = list(query.find_all(exp.Table))
    aliases = {each.alias_or_name for each in own}
    names = {name for each in own if each.name in tables for name in tables[each.name].column_names}
    return bool(own) and all(
        name_of(column.args.get("table")) in aliases if column.args.get("table") else name_of(column.this) in names
        for column in query.find_all(exp.Column))  # fmt: skip
