"""What the operands of casts are: DataFusion converts by rules of its own, and some depend on what is converted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify_columns import qualify_columns
from sqlglot.schema import MappingSchema

from ontolake.sql.parsing import DIALECT
from ontolake.sql.types import from_arrow

_PLACE = "place among casts"


def operand_kinds(tree: exp.Expr, casts: Sequence[exp.Cast], tables: Mapping[str, pa.Table]) -> list[str]:
    """The names of the types of what casts of a statement convert, such as `DECIMAL`; "" where that cannot be told."""
    for place, cast in enumerate(casts):
        cast.meta[_PLACE] = place
    schema = MappingSchema({name: _columns(table.schema) for name, table in tables.items()}, dialect=DIALECT,
                           normalize=False)  # fmt: skip
    found = [""] * len(casts)
    try:
        named = qualify_columns(_exact(tree.copy()), schema, expand_alias_refs=False, expand_stars=False)
        for cast in annotate_types(named, schema, dialect=DIALECT).find_all(exp.Cast):
            if _PLACE in cast.meta and cast.this.type is not None:
                found[cast.meta[_PLACE]] = cast.this.type.this.name
    except SqlglotError:  # the statement is wrong, or stranger than it knows: DataFusion will tell
        return found
    # What stands in GROUP BY and ORDER BY as well means the same there, where names are looked up otherwise.
    alike: dict[tuple[int, exp.Expr], str] = {}
    return [alike.setdefault((id(cast.parent_select), cast.this), kind) or kind
            for cast, kind in zip(casts, found, strict=True)]  # fmt: skip


def _exact(tree: exp.Expr) -> exp.Expr:
    """The tree with fractions and means as the decimals that they are."""
    for node in list(tree.find_all(exp.Literal, exp.Avg)):
        if isinstance(node, exp.Avg) or not (node.is_string or node.this.isdigit()):
            node.replace(exp.cast(node.copy(), "DECIMAL"))
    return tree


def _columns(schema: pa.Schema) -> dict[str, str]:
    kinds = ((field.name, from_arrow(field.type)) for field in schema)
    return {name: str(kind) for name, kind in kinds if kind is not None}
