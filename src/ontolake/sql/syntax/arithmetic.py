"""Integer arithmetic that raises where DataFusion's would wrap around.

What the columns at hand hold says how large a result can get. Only where that is too large for a BIGINT the
arithmetic is done in decimals, whose conversion back raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ontolake.sql.syntax.statements import DIALECT, name_of

Limits = tuple[int, int]
"""The least and the greatest that an integer can be."""
Outputs = list[tuple[str, Callable[[], Limits | None]]]
"""The names of columns, and what gives their limits."""

_MOST: Limits = (-(2**63), 2**63 - 1)
_CANDIDATES = (exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Sum)
_INTEGERS = {"SMALLINT": 16, "INT": 32, "BIGINT": 64}
_EITHER = (exp.Case, exp.If, exp.Coalesce, exp.Greatest, exp.Least)
_SAME = (exp.Paren, exp.Min, exp.Max, exp.Window, exp.Filter, exp.Alias, exp.Subquery, exp.Nullif, exp.Lag, exp.Lead,
         exp.FirstValue, exp.LastValue, exp.NthValue, exp.AnyValue, exp.Median, exp.Explode)  # fmt: skip
"""What is no larger than what stands in it."""
_BITS = (exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseLeftShift, exp.BitwiseRightShift)
_NUMBERING = (exp.RowNumber, exp.Rank, exp.DenseRank, exp.Ntile)
_NARROW = (exp.Cast, exp.Length, exp.StrPosition, *_NUMBERING)
"""What may be an integer of another kind than a BIGINT."""


def guarded(tree: exp.Expr, tables: Mapping[str, pa.Table]) -> exp.Expr:
    """A statement over tables in which integers that become too large are an error. The tree itself stays."""
    if tree.find(*_CANDIDATES) is None:
        return tree
    copy = tree.copy()
    for narrow in list(copy.find_all(*_NARROW)):
        _widen(narrow)
    sizes = _Sizes(copy, tables)
    found = [node for node in copy.find_all(*_CANDIDATES) if _wraps(sizes, node)]
    for node in reversed(found):  # from the inside out
        _guard(node)
    return copy


def _wraps(sizes: _Sizes, node: exp.Expr) -> bool:
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal):
        return False
    limits = sizes.result(node)
    return limits is not None and (limits[0] < _MOST[0] or limits[1] > _MOST[1])


def _widen(node: exp.Expr) -> None:
    """Make an integer of any kind a BIGINT."""
    if isinstance(node, exp.Cast) and _INTEGERS.get(node.to.this.name, 64) == 64:
        return
    if isinstance(node, _NUMBERING):
        if not isinstance(node.parent, exp.Window):
            return
        node = node.parent
    node.replace(exp.cast(node.copy(), "BIGINT", dialect=DIALECT))


def _guard(node: exp.Expr) -> None:
    """Make an operation exact. An aggregate keeps what belongs to it: DISTINCT, FILTER, OVER."""
    for name in ("this", "expression"):
        operand = node.args.get(name)
        if isinstance(operand, exp.Distinct):
            operand = operand.expressions[0]
        if isinstance(operand, exp.Expr):
            operand.replace(exp.cast(exp.paren(operand.copy()), "DECIMAL(20, 0)", dialect=DIALECT))
    while isinstance(node.parent, exp.Filter | exp.Window) and node.arg_key == "this":
        node = node.parent
    node.replace(exp.cast(exp.paren(node.copy()), "BIGINT", dialect=DIALECT))


class _Sizes:
    """Tells how large integer expressions of a statement can get; None for what is not known to be an integer."""

    def __init__(self, tree: exp.Expr, tables: Mapping[str, pa.Table]) -> None:
        self._tables = tables
        self._columns: dict[tuple[str, str], Limits | None] = {}
        self._known: dict[int, Limits | None] = {}
        self._outputs: dict[int, Outputs] = {}
        self._with = {name_of(each.args["alias"].this): each for each in tree.find_all(exp.CTE)}
        referred = sum(name_of(each.this) in self._with for each in tree.find_all(exp.Table))
        endless = any(each.args.get("recursive") for each in tree.find_all(exp.With)) or any(
            not isinstance(each, exp.Values) for each in tree.find_all(exp.UDTF))  # fmt: skip
        written = sum(1 for _ in tree.find_all(exp.Select, exp.Tuple))
        rows = reduce(lambda product, table: product * (table.num_rows + 1), tables.values(), written)
        self._rows = 2**63 if endless else rows ** (1 + referred)

    def of(self, node: Any) -> Limits | None:
        """The limits of an expression that did not overflow."""
        if id(node) not in self._known:
            self._known[id(node)] = _MOST  # for an expression of a recursive query that comes back to itself
            found = self.result(node)
            self._known[id(node)] = None if found is None else (max(found[0], _MOST[0]), min(found[1], _MOST[1]))
        return self._known[id(node)]

    def result(self, node: Any) -> Limits | None:
        """The limits of an exact result."""
        if isinstance(node, exp.Literal):
            value = int(node.this) if not node.is_string and node.this.isdigit() else None
            return None if value is None or value > 2**63 else (value, value)
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.Null):
            return 0, 0
        if isinstance(node, exp.Array):
            return self.all_of(node.expressions)
        if isinstance(node, _SAME):
            return self.of(node.this)
        if isinstance(node, exp.Query):
            found = self.outputs(node)
            return found[0][1]() if len(found) == 1 else None
        if isinstance(node, (exp.Count, *_NUMBERING)):
            return 0, self._rows
        if isinstance(node, exp.Length | exp.StrPosition):
            return 0, 2**31
        if isinstance(node, _BITS):
            return _MOST if self.all_of([node.this, node.expression]) else None
        if isinstance(node, exp.Cast):
            bits = _INTEGERS.get(node.to.this.name)
            inner = self.of(node.this)
            return None if bits is None else inner or (-(1 << bits - 1), (1 << bits - 1) - 1)
        if isinstance(node, exp.Neg | exp.Abs):
            inner = self.of(node.this)
            if inner is None or isinstance(node, exp.Neg):
                return None if inner is None else (-inner[1], -inner[0])
            return 0, max(abs(inner[0]), abs(inner[1]))
        if isinstance(node, exp.Sum):
            operand = node.this.expressions[0] if isinstance(node.this, exp.Distinct) else node.this
            inner = self.of(operand)
            return None if inner is None else (min(0, inner[0] * self._rows), max(0, inner[1] * self._rows))
        if isinstance(node, _EITHER):
            return self._either(node)
        return self._binary(node)

    def _binary(self, node: Any) -> Limits | None:
        if not isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod):
            return None
        left, right = self.of(node.this), self.of(node.expression)
        if left is None or right is None:
            return None
        if isinstance(node, exp.Add):
            return left[0] + right[0], left[1] + right[1]
        if isinstance(node, exp.Sub):
            return left[0] - right[1], left[1] - right[0]
        if isinstance(node, exp.Mul):
            corners = [a * b for a in left for b in right]
            return min(corners), max(corners)
        most = max(abs(left[0]), abs(left[1]))
        return -most, most

    def _either(self, node: Any) -> Limits | None:
        if isinstance(node, exp.Case | exp.If):
            branches = [each.args.get("true") for each in (node.args.get("ifs") or [node])]
            branches.append(node.args.get("default") or node.args.get("false"))
        else:
            branches = [node.this, *node.expressions]
        return self.all_of([each for each in branches if each is not None and not isinstance(each, exp.Null)])

    def all_of(self, nodes: Sequence[Any]) -> Limits | None:
        """The limits of a value that is one of these expressions."""
        return _together([self.of(each) for each in nodes])

    def _column(self, node: exp.Column) -> Limits | None:
        """A column of a table, or of a query that stands for one: the nearest of its name."""
        qualifier, name = name_of(node.args.get("table")), name_of(node.this)
        select = node.find_ancestor(exp.Select)
        while select is not None:
            found = [limits() for alias, source in _sources(select) if qualifier in ("", alias)
                     for output, limits in self.outputs(source) if output == name]  # fmt: skip
            if found:
                return _together(found)
            select = select.find_ancestor(exp.Select)
        return None

    def outputs(self, node: exp.Expr) -> Outputs:
        """The columns of a table or query by name, in order; none where they are not known."""
        if id(node) not in self._outputs:
            alias = node.args.get("alias")
            names = [name_of(each) for each in alias.columns] if isinstance(alias, exp.TableAlias) else []
            found = self._unnamed(node)
            self._outputs[id(node)] = [(name, limits) for name, (_, limits) in zip(names, found, strict=False)] \
                + found[len(names) :]  # fmt: skip
        return self._outputs[id(node)]

    def _unnamed(self, node: exp.Expr) -> Outputs:
        if isinstance(node, exp.Table):
            called = name_of(node.this)
            if called in self._tables:
                return [(name, partial(self._held, called, name)) for name in self._tables[called].column_names]
            if isinstance(node.this, exp.ExplodingGenerateSeries):
                return [("", lambda: _MOST if self.of(node.this.args["start"]) else None)]
            return self.outputs(self._with[called]) if called in self._with else []
        if isinstance(node, exp.Subquery | exp.CTE | exp.Lateral):
            return self.outputs(node.this)
        if isinstance(node, exp.SetOperation):
            both = zip(self.outputs(node.this), self.outputs(node.expression), strict=False)
            return [(name, partial(_either_of, mine, other)) for (name, mine), (_, other) in both]
        if isinstance(node, exp.Values):
            rows = [each.expressions if isinstance(each, exp.Tuple) else [each] for each in node.expressions]
            return [(f"column{n}", partial(self.all_of, cells))
                    for n, cells in enumerate(zip(*rows, strict=False), 1)]  # fmt: skip
        if not isinstance(node, exp.Select):
            return []
        found: Outputs = []
        for each in node.expressions:
            if each.is_star:
                wanted = name_of(each.args.get("table")) if isinstance(each, exp.Column) else ""
                found += [output for alias, source in _sources(node) if wanted in ("", alias)
                          for output in self.outputs(source)]  # fmt: skip
            else:
                name = each.args["alias"] if isinstance(each, exp.Alias) else each.this
                found.append((name_of(name) if isinstance(name, exp.Identifier) else "", partial(self.of, each)))
        return found

    def _held(self, table: str, name: str) -> Limits | None:
        where = (table, name)
        if where not in self._columns:
            rows = self._tables[table]
            self._columns[where] = None
            if name in rows.column_names and pa.types.is_integer(rows.schema.field(name).type):
                found: Any = pc.min_max(rows.column(name)).as_py()
                self._columns[where] = (0, 0) if found["min"] is None else (found["min"], found["max"])
        return self._columns[where]


def _together(found: Sequence[Limits | None]) -> Limits | None:
    known = [each for each in found if each is not None]
    if not known or len(known) != len(found):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def _either_of(mine: Callable[[], Limits | None], other: Callable[[], Limits | None]) -> Limits | None:
    return _together([mine(), other()])


def _sources(select: exp.Select) -> list[tuple[str, exp.Expr]]:
    """What a query reads, with the names it has there."""
    nodes = [each.this for each in (select.args.get("from_"), *(select.args.get("joins") or ())) if each is not None]
    nodes += [each for node in nodes for join in node.args.get("joins") or () for each in (join.this,)]
    return [(name_of(node.args["alias"].this if node.args.get("alias") else node.this), node) for node in nodes]
