"""Where DataFusion takes a statement otherwise than PostgreSQL does: the same in its words, or an error.

What it would get wrong without a word is worse than what it cannot do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

import pyarrow as pa
from sqlglot import exp

from ontolake.sql.errors import UnsupportedError
from ontolake.sql.kinds import operand_kinds
from ontolake.sql.parsing import constant, literal, name_of

_TEXTS = {"TEXT", "VARCHAR", "NVARCHAR", "CHAR", "NCHAR", "BPCHAR"}
_FORMATTED: dict[type[exp.Expr], str] = {
    exp.TimeToStr: "to_char", exp.StrToDate: "to_date", exp.StrToTime: "to_timestamp",
}  # fmt: skip
_CLAUSES: tuple[type[exp.Expr], ...] = (exp.Fetch, exp.TableSample, exp.ExplodingGenerateSeries, exp.CTE, exp.Join)
_EXPRESSIONS: tuple[type[exp.Expr], ...] = (exp.SimilarTo, exp.Between, exp.Cast, exp.Exists, *_FORMATTED)
_TIMES = {"DATE", "TIMESTAMP", "TIMESTAMPNTZ"}
_SHAPING = ("group", "having", "distinct", "limit", "offset")
_INTEGERS = {"SMALLINT", "INT", "BIGINT"}
_MOMENTS = {"TIMESTAMP": "%Y-%m-%d %H:%M:%S%.9f", "TIMESTAMPNTZ": "%Y-%m-%d %H:%M:%S%.9f",
            "TIMESTAMPTZ": "%Y-%m-%d %H:%M:%S%.9f+00"}
_ZEROS = r"\.?0+(\+00)?$"


def adapt_clauses(tree: exp.Expr) -> None:
    """Rewrite the clauses of a query in place. Raises `UnsupportedError`."""
    for node in list(tree.find_all(*_CLAUSES)):
        if isinstance(node, exp.TableSample):
            raise UnsupportedError("TABLESAMPLE is not supported", hint="ORDER BY random() LIMIT takes any rows")
        if isinstance(node, exp.CTE):
            if not isinstance(node.this, exp.Query | exp.Values):
                raise UnsupportedError(f"{node.this.key.upper()} within WITH is not supported",
                                       hint="run it by itself, in one transaction")
        elif isinstance(node, exp.Fetch):
            _limit(node)
        elif isinstance(node, exp.Join):
            _qualify_shared(node)
        elif isinstance(node.parent, exp.Table):
            _name_series(node.parent)


def adapted(tree: exp.Expr, tables: Mapping[str, pa.Table]) -> exp.Expr:
    """A statement over tables whose expressions mean to DataFusion what they mean to PostgreSQL. The tree stays."""
    if tree.find(*_EXPRESSIONS) is None and not any(map(_is_powered, tree.find_all(exp.Literal))):
        return tree
    copy = tree.copy()
    for number in list(filter(_is_powered, copy.find_all(exp.Literal))):
        number.set("this", f"{Decimal(number.this):f}")
    _convert(copy, tables)
    for node in list(copy.find_all(*_EXPRESSIONS)):
        if isinstance(node, exp.SimilarTo):
            raise UnsupportedError("SIMILAR TO is not supported", hint="use LIKE, or ~ with a regular expression")
        if isinstance(node, exp.Between):
            _either_way(node)
        elif isinstance(node, exp.Cast):
            _cut(node)
        elif isinstance(node, exp.Exists):
            _count(node)
        else:
            _format(node)
    return copy


def _is_powered(number: exp.Literal) -> bool:
    """Whether a number is written with an exponent. DataFusion makes a decimal of it that it cannot calculate with."""
    return not number.is_string and "e" in number.this.lower() and abs(Decimal(number.this).adjusted()) < 100


def _limit(node: exp.Fetch) -> None:
    options = node.args.get("limit_options")
    if options is not None and (options.args.get("with_ties") or options.args.get("percent")):
        raise UnsupportedError("FETCH … WITH TIES and PERCENT are not supported", hint="use FETCH FIRST n ROWS ONLY")
    node.replace(exp.Limit(expression=node.args.get("count") or exp.Literal.number(1)))


def _qualify_shared(join: exp.Join) -> None:
    """In a WHERE, a column that two tables share by USING is that of the one whose rows are all kept."""
    select = join.parent
    if not isinstance(select, exp.Select) or len(select.args["joins"]) > 1 or join.side == "FULL":
        return
    where, shared = select.args.get("where"), {name_of(each) for each in join.args.get("using") or ()}
    kept = join.this if join.side == "RIGHT" else select.args["from_"].this
    for column in where.find_all(exp.Column) if where is not None else ():
        if not column.table and name_of(column.this) in shared and column.parent_select is select:
            alias = kept.args["alias"].this if kept.args.get("alias") else kept.this
            column.set("table", alias.copy())


def _name_series(table: exp.Table) -> None:
    """The column of generate_series has the name of its alias, or that of the function."""
    alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier("generate_series"))
    if not alias.columns:
        alias.set("columns", [alias.this.copy()])
    table.set("alias", alias)


def _either_way(node: exp.Between) -> None:
    """BETWEEN SYMMETRIC takes its limits in either order."""
    if not node.args.get("symmetric"):
        return
    value, low, high = node.this, node.args["low"], node.args["high"]
    node.replace(exp.paren(exp.or_(exp.Between(this=value.copy(), low=low.copy(), high=high.copy()),
                                   exp.Between(this=value.copy(), low=high.copy(), high=low.copy()))))  # fmt: skip


def _count(node: exp.Exists) -> None:
    """An EXISTS that is shown or sorted by: DataFusion takes one only in conditions, but counts anywhere."""
    clause: exp.Expr | None = node
    while clause is not None and not isinstance(clause.parent, exp.Select):
        clause = clause.parent
    query, some = node.this, exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(0))
    if clause is None or clause.arg_key not in ("expressions", "order") or not isinstance(query, exp.Query):
        return
    if isinstance(query, exp.Select) and not any(map(query.args.get, _SHAPING)) and (
            all(each.find(exp.AggFunc) is None for each in query.expressions)):  # fmt: skip
        query = query.copy()
        query.set("expressions", [some])
        query.set("order", None)
    else:
        query = exp.select(some).from_(query.subquery("found"))
    node.replace(exp.Subquery(this=query))


def _convert(tree: exp.Expr, tables: Mapping[str, pa.Table]) -> None:
    """Numbers that become integers are rounded instead of cut. Moments become text as PostgreSQL writes them."""
    casts = [cast for cast in tree.find_all(exp.Cast) if cast.to.this.name in _INTEGERS | _TEXTS
             and not (isinstance(cast.this, exp.Literal) and cast.this.is_string)]  # fmt: skip
    if not casts:
        return
    kinds = operand_kinds(tree, casts, tables)
    for cast, kind in reversed(list(zip(casts, kinds, strict=True))):  # from the inside out
        value, to_integer = cast.this, cast.to.this.name in _INTEGERS
        if to_integer and kind == "DECIMAL":
            value.replace(_call("round", value))
        elif to_integer and kind in ("DOUBLE", "FLOAT"):
            value.replace(_to_even(value))
        elif not to_integer and kind in _MOMENTS:
            value.replace(_call("regexp_replace", _call("to_char", value, _MOMENTS[kind]), _ZEROS, r"\1"))


def _call(name: str, *given: exp.Expr | str) -> exp.Expr:
    values = [exp.Literal.string(each) if isinstance(each, str) else each.copy() for each in given]
    return exp.Anonymous(this=name, expressions=values)


def _to_even(value: exp.Expr) -> exp.Expr:
    """The nearest integer; of two that are equally near, the even one, as is the rule for floating point."""
    value = exp.paren(value.copy())
    half = exp.EQ(this=_call("abs", exp.Sub(this=value, expression=_call("trunc", value))),
                  expression=exp.cast(exp.Literal.number("0.5"), "DOUBLE"))  # fmt: skip
    two = exp.Literal.number(2)
    even = exp.Mul(this=_call("round", exp.Div(this=value.copy(), expression=two)), expression=two.copy())
    return exp.Case(ifs=[exp.If(this=half, true=even)], default=_call("round", value))


def _cut(node: exp.Cast) -> None:
    """A cast to VARCHAR(n) cuts what is longer. Times that stand there are read as those of columns are."""
    kind = node.to
    if kind.this.name in _TIMES and isinstance(node.this, exp.Literal) and node.this.is_string:
        node.replace(literal(constant(node)))
    if kind.this.name not in _TEXTS or not kind.expressions:
        return
    whole = exp.cast(node.this.copy(), "TEXT")
    node.replace(exp.Anonymous(this="left", expressions=[whole, exp.Literal.number(kind.expressions[0].name)]))


def _format(node: exp.Expr) -> None:
    """Formats of times are those of strftime."""
    name, pattern = _FORMATTED[type(node)], node.args.get("format")
    if not isinstance(pattern, exp.Literal) or re.search("[A-Za-z]|^[^%]*$", re.sub("%-?[A-Za-z]", "%", pattern.name)):
        raise UnsupportedError(f"{name} with this format is not supported", hint="write one such as 'YYYY-MM-DD'")
    node.replace(exp.Anonymous(this=name, expressions=[node.this.copy(), pattern.copy()]))
