"""Pieces of the queries that statements which change rows are turned into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp


def qualified(alias: str, name: str, shown: str | None = None) -> exp.Expr:
    """A column of a table in a statement, under another name."""
    found = exp.Column(this=exp.Identifier(this=name, quoted=True), table=exp.Identifier(this=alias, quoted=True))
    return found if shown is None else exp.Alias(this=found, alias=exp.Identifier(this=shown, quoted=False))


def aliased(name: str, alias: str) -> exp.Expr:
    return exp.alias_(exp.to_table(name, quoted=True), alias, table=True, quoted=True)


def joined(others: Any) -> list[exp.Expr]:
    """The tables and queries of FROM or USING."""
    return [others.this] if isinstance(others, exp.From) else list(others or ())


def joined_with(query: exp.Select, others: Sequence[exp.Expr]) -> exp.Select:
    """A query over more tables and queries, with what they are joined with."""
    for other in others:
        item = other.copy()
        joins = item.args.get("joins") or []
        item.set("joins", None)
        query = query.join(item, join_type="cross")
        for join in joins:
            if not any(map(join.args.get, ("on", "using", "method", "kind", "side"))):
                join.set("kind", "CROSS")  # a comma
            query.append("joins", join)
    return query


def ctes_of(tree: exp.Expr) -> list[exp.CTE]:
    held = tree.args.get("with_")
    return [] if held is None else list(held.expressions)


def with_ctes(query: exp.Expr, tree: exp.Expr) -> exp.Expr:
    """A query that sees what the WITH of a statement defines, before what it defines itself."""
    held = tree.args.get("with_")
    if held is None:
        return query
    found, own = query.copy(), query.args.get("with_")
    both = held.copy()
    if own is not None:
        both.set("expressions", [*both.expressions, *(each.copy() for each in own.expressions)])
        both.set("recursive", held.args.get("recursive") or own.args.get("recursive"))
    found.set("with_", both)
    return found
