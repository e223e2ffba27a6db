"""Where DataFusion takes a statement otherwise than PostgreSQL does: the same in its words, or an error.

What it would get wrong without a word is worse than what it cannot do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from itertools import islice

import pyarrow as pa
from sqlglot import exp

from ontolake.sql.errors import UnsupportedError
from ontolake.sql.syntax import common_types, functions, membership
from ontolake.sql.syntax.expression_types import FLOATS, MOMENTS, kind_of, typed
from ontolake.sql.syntax.statements import DIALECT, constant, literal, name_of

_TEXTS = {"TEXT", "VARCHAR", "NVARCHAR", "CHAR", "NCHAR", "BPCHAR"}
_FORMATTED: dict[type[exp.Expr], str] = {
    exp.TimeToStr: "to_char", exp.StrToDate: "to_date", exp.StrToTime: "to_timestamp",
}  # fmt: skip
_CLAUSES: tuple[type[exp.Expr], ...] = (exp.Fetch, exp.TableSample, exp.ExplodingGenerateSeries, exp.CTE, exp.Join)
_TYPED: tuple[type[exp.Expr], ...] = (
    exp.Cast, exp.Round, exp.Div, exp.Mod, exp.Add, exp.Sub, exp.AtTimeZone, *common_types.CHOICES,
)  # fmt: skip
_REWRITTEN: tuple[type[exp.Expr], ...] = (
    exp.SimilarTo, exp.Between, exp.Cast, exp.Exists, exp.ExplodingGenerateSeries, exp.Uuid,
    *functions.CHECKED, *_FORMATTED,
)  # fmt: skip
_TIMES = {"DATE", "TIMESTAMP", "TIMESTAMPNTZ"}
_BYTES = {"BINARY", "VARBINARY"}
_SHAPING = ("group", "having", "distinct", "limit", "offset")
_INTEGERS = {"SMALLINT", "INT", "BIGINT"}
_MOMENT = "%Y-%m-%d %H:%M:%S%.9f"
_ZEROS = r"\.?0+$"


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
    doubtful = any(map(membership.is_doubtful, tree.find_all(exp.In)))
    if not doubtful and tree.find(*_TYPED, *_REWRITTEN) is None and not any(
            map(_is_strange, tree.find_all(exp.Literal))):
        return tree
    copy = tree.copy()
    for member in [each for each in copy.find_all(exp.In) if membership.is_doubtful(each)]:
        membership.with_unknown(member, tables)
    for number in list(filter(_is_strange, copy.find_all(exp.Literal))):
        plain = exp.Literal.number(f"{Decimal(number.this):f}")
        number.replace(plain if _is_powered(number) else exp.cast(plain, "DECIMAL(20, 0)", dialect=DIALECT))
    _by_type(copy, tables)
    for node in list(copy.find_all(*_REWRITTEN)):
        if isinstance(node, exp.SimilarTo):
            raise UnsupportedError("SIMILAR TO is not supported", hint="use LIKE, or ~ with a regular expression")
        if isinstance(node, exp.Between):
            _either_way(node)
        elif isinstance(node, exp.Cast):
            _cut(node)
        elif isinstance(node, exp.Exists):
            _count(node)
        elif isinstance(node, exp.ExplodingGenerateSeries):
            _spread(node)
        elif isinstance(node, exp.Uuid):
            node.replace(_call("uuid"))
        elif isinstance(node, functions.CHECKED):
            functions.check(node)
        else:
            _format(node)
    return copy


def _is_strange(number: exp.Literal) -> bool:
    """Whether DataFusion takes a number otherwise: one with an exponent, or an integer that no BIGINT can be."""
    if number.is_string:
        return False
    return _is_powered(number) or (number.this.isdigit() and 2**63 <= int(number.this) < 2**64
                                   and not isinstance(number.parent, exp.Neg))  # fmt: skip


def _is_powered(number: exp.Literal) -> bool:
    """Whether a number is written with an exponent. DataFusion makes a decimal of it that it cannot calculate with."""
    return "e" in number.this.lower() and abs(Decimal(number.this).adjusted()) < 100


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


def _spread(node: exp.Expr) -> None:
    """A series among what is shown makes a row of each of its values."""
    if isinstance(node.parent, exp.Select | exp.Alias):
        node.replace(_call("unnest", node))


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


def _by_type(tree: exp.Expr, tables: Mapping[str, pa.Table]) -> None:
    """Rewrite what means one thing or another by the types of its operands."""
    nodes = [(node, operands) for node in tree.find_all(*_TYPED) if (operands := _operands(node))]
    if not nodes:
        return
    flat = [each for _, operands in nodes for each in operands]
    known = iter(typed(tree, flat, tables))
    alike: dict[tuple[int, exp.Expr], str] = {}
    found = []
    for node, operands in nodes:
        types = list(islice(known, len(operands)))
        # What stands in GROUP BY and ORDER BY as well means the same there, where names are looked up otherwise.
        kinds = [alike.setdefault((id(each.parent_select), each), kind_of(type)) or kind_of(type)
                 for each, type in zip(operands, types, strict=True)]  # fmt: skip
        found.append((node, operands, types, kinds))
    for node, operands, types, kinds in reversed(found):  # from the inside out
        if isinstance(node, common_types.CHOICES):
            common_types.match(node, operands, types)
        elif isinstance(node, exp.Cast):
            _convert(node, kinds[0])
        elif isinstance(node, exp.Round):
            if kinds[0] in FLOATS:
                node.replace(_to_even(node.this))
        elif isinstance(node, exp.Div | exp.Mod):
            if not FLOATS.isdisjoint(kinds):
                node.expression.replace(functions.nonzero(node.expression))
        elif isinstance(node, exp.AtTimeZone):
            if kinds[0] == "TIMESTAMPTZ":
                node.replace(_call("to_local_time", node))
        elif kinds[0] == "DATE":
            operands[0].replace(exp.cast(operands[0].copy(), "TIMESTAMP", dialect=DIALECT))


def _operands(node: exp.Expr) -> list[exp.Expr]:
    """The parts of a node whose types matter; none if they do not."""
    if isinstance(node, common_types.CHOICES):
        return common_types.parts_of(node)
    if isinstance(node, exp.Cast):
        is_text = isinstance(node.this, exp.Literal) and node.this.is_string
        return [node.this] if node.to.this.name in _INTEGERS | _TEXTS and not is_text else []
    if isinstance(node, exp.AtTimeZone):
        return [node.this]
    if isinstance(node, exp.Round):
        return [] if node.args.get("decimals") else [node.this]
    if isinstance(node, exp.Div | exp.Mod):
        divisor = node.expression
        is_fixed = isinstance(divisor, exp.Literal) and not divisor.is_string and float(divisor.this) != 0
        return [] if is_fixed else [node.this, divisor]
    sides = (node.this, node.expression)
    other = [each for each in sides if not isinstance(each.unnest(), exp.Interval)]
    return other if len(other) == 1 else []


def _convert(cast: exp.Cast, kind: str) -> None:
    """Numbers that become integers are rounded instead of cut. Moments become text as PostgreSQL writes them."""
    value, to_integer = cast.this, cast.to.this.name in _INTEGERS
    if to_integer and kind == "DECIMAL":
        value.replace(_call("round", value))
    elif to_integer and kind in FLOATS:
        value.replace(_to_even(value))
    elif not to_integer and kind in MOMENTS - {"DATE"}:
        text = _call("regexp_replace", _call("to_char", value, _MOMENT), _ZEROS, "")
        zoned = exp.DPipe(this=text, expression=exp.Literal.string("+00"))
        value.replace(zoned if kind == "TIMESTAMPTZ" else text)


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
    """A cast to VARCHAR(n) cuts what is longer. Times and bytes that stand there are read as those of columns are."""
    kind, given = node.to, node.this
    if isinstance(given, exp.Literal) and given.is_string:
        if kind.this.name in _TIMES:
            node.replace(literal(constant(node)))
        elif kind.this.name == "TIMESTAMPTZ":
            moment = str(constant(node)).replace("T", " ")
            given.replace(exp.Literal.string(f"{moment}+00:00"))
        elif kind.this.name in _BYTES and given.this.startswith("\\x"):
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
