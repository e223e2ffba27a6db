"""Of which types the expressions of a statement are, where its meaning depends on that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify_columns import qualify_columns
from sqlglot.schema import MappingSchema

from ontolake.sql.syntax.statements import DIALECT
from ontolake.sql.types import from_arrow

_PLACE = "place among those that are asked for"
FLOATS = frozenset({"DOUBLE", "FLOAT"})
MOMENTS = frozenset({"DATE", "TIMESTAMP", "TIMESTAMPNTZ", "TIMESTAMPTZ"})


def typed(tree: exp.Expr, nodes: Sequence[exp.Expr], tables: Mapping[str, pa.Table]) -> list[exp.Expr | None]:
    """For each node the same one in a copy of the tree where types are known; None where that cannot be told.

    What a query gives is spelled out there: it has no `*`.
    """
    for place, node in enumerate(nodes):
        node.meta.setdefault(_PLACE, []).append(place)
    schema = MappingSchema({name: _columns(table.schema) for name, table in tables.items()}, dialect=DIALECT,
                           normalize=False)  # fmt: skip
    found: list[exp.Expr | None] = [None] * len(nodes)
    try:
        named = qualify_columns(tree.copy(), schema, expand_alias_refs=False)
        for node in annotate_types(named, schema, expression_metadata=_RULES, dialect=DIALECT).walk():
            for place in node.meta.get(_PLACE, ()):
                found[place] = node
    except SqlglotError:  # the statement is wrong, or stranger than it knows: DataFusion will tell
        pass
    for node in nodes:
        node.meta.pop(_PLACE, None)
    return found


def kind_of(node: exp.Expr | None) -> str:
    """The name of a type such as `DECIMAL`; "" where that is not known."""
    kind = "UNKNOWN" if node is None or node.type is None else node.type.this.name
    return "" if kind == "UNKNOWN" else kind


def _columns(schema: pa.Schema) -> dict[str, exp.DataType]:
    kinds = ((field.name, from_arrow(field.type)) for field in schema)
    return {name: _data_type(str(kind)) for name, kind in kinds if kind is not None}


@cache
def _data_type(name: str) -> exp.DataType:
    return exp.DataType.build(name, dialect=DIALECT)


# Rules call `_set_type` and `_annotate_binary` of the annotator, as those of sqlglot's own dialects do: there is no
# public way to give an expression its type.


def _literal(annotator: Any, node: exp.Literal) -> exp.Literal:
    """A fraction is exact."""
    kind = exp.DType.VARCHAR if node.is_string else exp.DType.INT if node.is_int else exp.DType.DECIMAL
    annotator._set_type(node, kind)
    return node


def _mean(annotator: Any, node: exp.Avg) -> exp.Avg:
    """A mean is exact unless that of floating point numbers."""
    given = node.this.expressions[0] if isinstance(node.this, exp.Distinct) else node.this
    annotator._set_type(node, exp.DType.DOUBLE if kind_of(given) in FLOATS else exp.DType.DECIMAL)
    return node


def _rounded(annotator: Any, node: exp.Round) -> exp.Round:
    annotator._set_type(node, node.this.type)
    return node


def _elsewhere(annotator: Any, node: exp.AtTimeZone) -> exp.AtTimeZone:
    """A moment becomes what clocks show there, and what clocks show there a moment."""
    is_moment = kind_of(node.this) == "TIMESTAMPTZ"
    annotator._set_type(node, exp.DType.TIMESTAMP if is_moment else exp.DType.TIMESTAMPTZ)
    return node


def _difference(annotator: Any, node: exp.Sub) -> exp.Sub:
    """Between two dates lie days, and between other moments lies an interval."""
    kinds = {kind_of(node.this), kind_of(node.expression)}
    if kinds <= MOMENTS:
        annotator._set_type(node, exp.DType.INT if kinds == {"DATE"} else exp.DType.INTERVAL)
        return node
    found: exp.Sub = annotator._annotate_binary(node)
    return found


_RULES = {
    **Postgres.EXPRESSION_METADATA, exp.Literal: {"annotator": _literal}, exp.Avg: {"annotator": _mean},
    exp.Round: {"annotator": _rounded}, exp.Sub: {"annotator": _difference}, exp.AtTimeZone: {"annotator": _elsewhere},
    exp.CurrentTimestamp: {"returns": exp.DType.TIMESTAMPTZ},
}  # fmt: skip
