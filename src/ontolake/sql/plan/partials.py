"""Aggregates over tables that are too large to be taken at once: of each part, and then of what the parts gave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from sqlglot import exp

from ontolake.sql.catalog.records import Table
from ontolake.sql.plan.conditions import is_hiding, table_and_name
from ontolake.sql.syntax.statements import DIALECT, name_of
from ontolake.sql.types import Kind

NAME = "_parts"
ROWS = 2_000_000
"""So many rows of the columns that are needed are held at once."""

_PLAIN = {"expressions", "from_", "where", "group", "having", "order", "limit", "offset", "kind", "operation_modifiers"}
_WITHIN = (exp.Count, exp.Sum, exp.Min, exp.Max, exp.Avg)


def groups(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Batches, a number of rows at a time; at least one table, which may be empty."""
    held: list[pa.RecordBatch] = []
    count, given = 0, False
    for batch in batches:
        if count and count + batch.num_rows > ROWS:
            yield pa.Table.from_batches(held, schema)
            held, count, given = [], 0, True
        held.append(batch)
        count += batch.num_rows
    if held or not given:
        yield pa.Table.from_batches(held, schema)


class Partial(NamedTuple):
    """What is asked of each part, and the query over all answers."""

    inner: exp.Select
    whole: exp.Select
    aggregates: list[exp.Expr]
    """Those of the query, in the order of the columns `a0`, `a1`, … of an answer."""

    def outer(self, answers: pa.Schema) -> exp.Expr:
        """The query over answers that have this schema."""
        tree = self.whole.copy()
        for node in list(tree.find_all(exp.Column)):
            if name_of(node.args.get("table")) == NAME and (name := name_of(node.this))[:1] == "a":
                node.replace(_final(self.aggregates[int(name[1:])], name, answers))
        return tree


def partial_of(tree: exp.Expr, table: Table) -> Partial | None:
    """An aggregate query of one table in two steps, if it can be taken apart that way."""
    if not isinstance(tree, exp.Select) or any(given for name, given in tree.args.items() if name not in _PLAIN):
        return None
    if name_of(tree.args["from_"].this.args["alias"].this) == NAME or is_hiding(tree, table.by_name):
        return None
    if any(node is not tree for node in tree.find_all(exp.Query, exp.Window, exp.Anonymous, exp.UDTF, exp.Distinct)):
        return None
    functions = list(tree.find_all(exp.AggFunc))
    if not functions or not all(isinstance(each, _WITHIN) and _is_simple(each, table) for each in functions):
        return None
    by = _grouped(tree, table)
    if by is None:
        return None
    aggregates = list(dict.fromkeys(each.parent if isinstance(each.parent, exp.Filter) else each for each in functions))
    return _split(tree, table, by, aggregates)


def _is_simple(node: exp.Expr, table: Table) -> bool:
    """Whether answers for parts make one for the whole. An average is one of numbers that add up as floats."""
    if not isinstance(node, exp.Avg):
        return len(node.expressions) == 0
    column = table.by_name.get(table_and_name(node.this)[1]) if isinstance(node.this, exp.Column) else None
    return column is not None and column.type.kind in (Kind.INT64, Kind.DOUBLE)


def _grouped(tree: exp.Select, table: Table) -> list[exp.Expr] | None:
    """What a query groups by; None if that is more than expressions."""
    group = tree.args.get("group")
    if group is None:
        return []
    if any(given for name, given in group.args.items() if name != "expressions"):
        return None
    aliases = {each.alias: each.this for each in tree.expressions if isinstance(each, exp.Alias)}
    found: list[exp.Expr] = []
    for node in group.expressions:
        if isinstance(node, exp.Literal):
            if node.is_string or not 1 <= int(node.this) <= len(tree.expressions):
                return None
            node = tree.expressions[int(node.this) - 1].unalias()
        elif isinstance(node, exp.Column) and table_and_name(node)[1] not in table.by_name:
            if table_and_name(node)[1] not in aliases:
                return None
            node = aliases[table_and_name(node)[1]]
        if node.find(exp.AggFunc):
            return None
        found.append(node)
    return found


def _split(tree: exp.Select, table: Table, by: Sequence[exp.Expr], aggregates: Sequence[exp.Expr]) -> Partial | None:
    outputs: list[exp.Expr] = [exp.alias_(node.copy(), f"g{n}") for n, node in enumerate(by)]
    for n, node in enumerate(aggregates):
        outputs += [exp.alias_(each, name) for each, name in zip(_first(node), (f"a{n}", f"c{n}"), strict=False)]
    inner = exp.Select(expressions=outputs, from_=tree.args["from_"].copy())
    if tree.args.get("where") is not None:
        inner.set("where", tree.args["where"].copy())
    if by:
        inner.set("group", exp.Group(expressions=[node.copy() for node in by]))

    def placed(node: exp.Expr) -> exp.Expr:
        for n, each in enumerate(aggregates):
            if node == each:
                return exp.column(f"a{n}", NAME)
        for n, each in enumerate(by):
            if node == each:
                return exp.column(f"g{n}", NAME)
        return node

    bare = tree.copy()
    bare.set("where", None)
    bare.set("group", None)
    whole = bare.transform(placed)
    assert isinstance(whole, exp.Select)
    whole.set("from_", exp.From(this=exp.to_table(NAME)))
    if by:
        whole.set("group", exp.Group(expressions=[exp.column(f"g{n}", NAME) for n in range(len(by))]))
    aliases = {each.alias for each in whole.expressions if isinstance(each, exp.Alias)}
    for column in whole.find_all(exp.Column):
        if name_of(column.args.get("table")) != NAME and name_of(column.this) not in aliases:
            return None  # a column that is neither grouped by nor aggregated
    return Partial(inner, whole, [node.copy() for node in aggregates])


def _bare(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Filter) else node


def _first(node: exp.Expr) -> list[exp.Expr]:
    """What a part is asked for, so that an aggregate can be made of it."""
    bare = _bare(node)
    if not isinstance(bare, exp.Avg):
        return [node.copy()]
    added = exp.Sum(this=exp.cast(bare.this.copy(), "DOUBLE PRECISION", dialect=DIALECT))
    wanted: list[Any] = [added, exp.Count(this=bare.this.copy())]
    return [exp.Filter(this=each, expression=node.expression.copy()) if isinstance(node, exp.Filter) else each
            for each in wanted]  # fmt: skip


def _final(node: exp.Expr, name: str, answers: pa.Schema) -> exp.Expr:
    """The aggregate over the answers of parts."""
    bare, column = _bare(node), exp.column(name, NAME)
    if isinstance(bare, exp.Min | exp.Max):
        return type(bare)(this=column)
    added = exp.Sum(this=column)
    if isinstance(bare, exp.Count):
        return exp.Coalesce(this=added, expressions=[exp.Literal.number(0)])
    if isinstance(bare, exp.Avg):
        count = exp.Nullif(this=exp.Sum(this=exp.column(f"c{name[1:]}", NAME)), expression=exp.Literal.number(0))
        return exp.paren(exp.Div(this=added, expression=count))
    type_ = answers.field(name).type
    if pa.types.is_decimal(type_):
        return exp.cast(added, f"DECIMAL({type_.precision}, {type_.scale})", dialect=DIALECT)
    return added
