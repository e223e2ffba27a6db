"""CREATE TABLE … (LIKE other): the columns of another table, and what INCLUDING names of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from sqlglot import exp

from ontolake.sql.catalog.objects import SequenceMeta
from ontolake.sql.catalog.records import ColumnMeta, Table
from ontolake.sql.errors import SqlError
from ontolake.sql.syntax.statements import parse_expression

if TYPE_CHECKING:
    from ontolake.sql.write.ddl import Definer, Definition

_ALL = {"DEFAULTS", "CONSTRAINTS", "INDEXES", "IDENTITY", "GENERATED", "COMMENTS", "STATISTICS", "STORAGE",
        "COMPRESSION"}  # fmt: skip


def include(definer: Definer, node: exp.LikeProperty, table: str, found: Definition) -> None:
    """Add the columns of a table to a definition; NOT NULL always comes along. Raises `SqlError`."""
    wanted: set[str] = set()
    for each in node.expressions:
        word = each.args["value"].name.upper()
        if word != "ALL" and word not in _ALL:
            raise SqlError(f"LIKE has no option {word}", sqlstate="42601")
        words = _ALL if word == "ALL" else {word}
        wanted = wanted | words if str(each.this).upper() == "INCLUDING" else wanted - words
    source = definer.table(node.this)
    for column in source.visible:
        number = len(found.columns) + 1
        serial = column.counting and "IDENTITY" in wanted
        default = column.default_expr if "DEFAULTS" in wanted and not column.counting else None
        found.columns.append(msgspec.structs.replace(
            column, column_id=number, ordinal=number, table_id=0, absent=None, origin="", default_expr=default,
            counting=column.counting if serial else "",
            generated=column.generated if "GENERATED" in wanted else ""))
        if serial:
            found.counting[column.name] = _options(source, column)
    if "CONSTRAINTS" in wanted:
        found.checks += [(check.name, parse_expression(check.sql)) for check in source.meta.checks]
    if "INDEXES" in wanted:
        if not source.primary_key[0].hidden and not found.primary_key:
            found.primary_key = [column.name for column in source.primary_key]
        found.unique += [(None, [source.by_id[id].name for id in index.column_ids]) for index in source.indexes
                         if index.constraint]  # fmt: skip


def _options(source: Table, column: ColumnMeta) -> dict[str, Any]:
    """The options of the sequence of an identity column."""
    for part in source.parts:
        if isinstance(part, SequenceMeta) and part.internal and part.column_id == column.column_id:
            return {"increment": part.increment, "minvalue": part.least, "maxvalue": part.greatest,
                    "start": part.start, "cache": part.cache, "cycle": part.cycle}  # fmt: skip
    return {}
