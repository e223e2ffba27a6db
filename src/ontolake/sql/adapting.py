"""Where DataFusion takes a statement otherwise than PostgreSQL does: the same in its words, or an error.

What it would get wrong without a word is worse than what it cannot do.
"""

from __future__ import annotations

import re

from sqlglot import exp

from ontolake.sql.errors import UnsupportedError
from ontolake.sql.parsing import constant, literal, name_of

_TEXTS = {"VARCHAR", "NVARCHAR", "CHAR", "NCHAR", "BPCHAR"}
_FORMATTED: dict[type[exp.Expr], str] = {
    exp.TimeToStr: "to_char", exp.StrToDate: "to_date", exp.StrToTime: "to_timestamp",
}  # fmt: skip
_CLAUSES: tuple[type[exp.Expr], ...] = (exp.Fetch, exp.TableSample, exp.ExplodingGenerateSeries, exp.CTE, exp.Join)
_EXPRESSIONS: tuple[type[exp.Expr], ...] = (exp.SimilarTo, exp.Between, exp.Cast, *_FORMATTED)
_TIMES = {"DATE", "TIMESTAMP", "TIMESTAMPNTZ"}


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


def adapted(tree: exp.Expr) -> exp.Expr:
    """A statement whose expressions mean to DataFusion what they mean to PostgreSQL. The tree itself stays."""
    if tree.find(*_EXPRESSIONS) is None:
        return tree
    copy = tree.copy()
    for node in list(copy.find_all(*_EXPRESSIONS)):
        if isinstance(node, exp.SimilarTo):
            raise UnsupportedError("SIMILAR TO is not supported", hint="use LIKE, or ~ with a regular expression")
        if isinstance(node, exp.Between):
            _either_way(node)
        elif isinstance(node, exp.Cast):
            _cut(node)
        else:
            _format(node)
    return copy


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
