"""Places where one of several values is taken, so that all must be of types that match: UNION, CASE and COALESCE.

DataFusion would make text of them all. Text that stands there is read as the type of the others, as PostgreSQL does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from ontolake.sql.errors import TypeMismatchError
from ontolake.sql.syntax.expression_types import MOMENTS, kind_of
from ontolake.sql.syntax.statements import DIALECT

_GROUPS = (
    {"TEXT", "VARCHAR", "NVARCHAR", "CHAR", "NCHAR", "BPCHAR"},
    {"SMALLINT", "INT", "BIGINT", "DECIMAL", "DOUBLE", "FLOAT"},
    MOMENTS, {"BOOLEAN"}, {"BINARY", "VARBINARY"},
)  # fmt: skip
_GROUP = {kind: number for number, group in enumerate(_GROUPS) for kind in group}
CHOICES = (exp.Case, exp.Coalesce, exp.SetOperation)


def parts_of(node: exp.Expr) -> list[exp.Expr]:
    """What one of is taken: queries of a set operation that belongs to no other one, or expressions."""
    if isinstance(node, exp.SetOperation):
        return [] if isinstance(_owner(node), exp.SetOperation) else list(_queries(node))
    if isinstance(node, exp.Case):
        arms = [each.args["true"] for each in node.args["ifs"]]
        return [*arms, node.args["default"]] if node.args.get("default") is not None else arms
    return [node.this, *node.expressions]


def match(node: exp.Expr, parts: Sequence[exp.Expr], known: Sequence[exp.Expr | None]) -> None:
    """Raise `TypeMismatchError` if parts do not match; `known` are the same ones with their types."""
    if not isinstance(node, exp.SetOperation):
        name = "CASE" if isinstance(node, exp.Case) else "COALESCE"
        _match(name, list(zip(parts, known, strict=True)))
        return
    widths = {len(each.expressions) for each in known if each is not None}
    if len(widths) != 1 or None in known:
        return
    for number in range(widths.pop()):
        column = [(_output(part, number), each.expressions[number].unalias())
                  for part, each in zip(parts, known, strict=True) if each is not None]  # fmt: skip
        _match(node.key.upper(), column)


def _match(name: str, values: Sequence[tuple[exp.Expr | None, exp.Expr | None]]) -> None:
    given = [each for _, each in values if each is not None and not _is_text(each) and kind_of(each) in _GROUP]
    first = given[0] if given else None
    other = next((each for each in given if _GROUP[kind_of(each)] != _GROUP[kind_of(given[0])]), None)
    if first is None:
        return
    assert first.type is not None
    if other is not None:
        assert other.type is not None
        raise TypeMismatchError(f"the types {first.type.sql(DIALECT)} and {other.type.sql(DIALECT)} of a {name} do not "
                                "match", hint="convert one with CAST")  # fmt: skip
    for node, each in values:
        if node is not None and each is not None and _is_text(each) and _GROUP[kind_of(first)] != 0:
            node.replace(exp.cast(node.copy(), exp.DataType(this=first.type.this)))


def _is_text(node: exp.Expr) -> bool:
    """Whether a node is text in quotes, which is of no type by itself."""
    return isinstance(node, exp.Literal) and node.is_string


def _output(query: exp.Expr, number: int) -> exp.Expr | None:
    """An expression of a query as it is written, if there is one for each column."""
    if any(each.is_star for each in query.expressions):
        return None
    found: exp.Expr = query.expressions[number].unalias()
    return found


def _owner(node: exp.Expr) -> exp.Expr | None:
    parent = node.parent
    while isinstance(parent, exp.Subquery) and not parent.alias:
        parent = parent.parent
    return parent


def _queries(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, exp.SetOperation):
        yield from _queries(node.this)
        yield from _queries(node.expression)
    elif isinstance(node, exp.Subquery):
        yield from _queries(node.this)
    else:
        yield node
