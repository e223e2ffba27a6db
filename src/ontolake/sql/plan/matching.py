"""Whether a query has the expression or the condition of an index: by one form of their text, without parentheses."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sqlglot import exp

from ontolake.sql.plan.conditions import conjuncts
from ontolake.sql.syntax.statements import DIALECT, name_of, parse_expression

Owns = Callable[[exp.Column], bool]
"""Whether a column of a query is one of the table that is asked about."""


def normal(node: exp.Expr, owns: Owns = lambda column: True) -> str | None:
    """The text of an expression without qualifiers; None if it has columns of other tables or parameters."""
    if any(node.find_all(exp.Placeholder)):
        return None
    tree = exp.Paren(this=node.copy())
    for column in list(tree.find_all(exp.Column)):
        if not owns(column):
            return None
        column.replace(exp.column(exp.to_identifier(name_of(column.this), quoted=True)))
    inner: exp.Expr = tree
    while isinstance(inner, exp.Paren):
        inner = inner.this
    return inner.sql(DIALECT)


def facts(parts: Iterable[exp.Expr], owns: Owns) -> frozenset[str]:
    """What the conditions of a query say of the rows of a table, each in its one form."""
    found: set[str] = set()
    for part in parts:
        text = normal(part, owns)
        if text is not None:
            found.add(text)
        compared = part.this if isinstance(part, exp.EQ | exp.LT | exp.LTE | exp.GT | exp.GTE | exp.In | exp.Between) \
            else None
        if isinstance(compared, exp.Column) and owns(compared):  # a comparison is not true of NULL
            column = exp.column(exp.to_identifier(name_of(compared.this), quoted=True))
            found |= {exp.not_(exp.Is(this=column, expression=exp.Null())).sql(DIALECT),
                      exp.Is(this=column, expression=exp.Null(), negate=True).sql(DIALECT)}
    return frozenset(found)


def implies(known: frozenset[str], predicate: str) -> bool:
    """Whether what is known of rows makes the condition of an index true."""
    return all(normal(part) in known for part in conjuncts(parse_expression(predicate)))
