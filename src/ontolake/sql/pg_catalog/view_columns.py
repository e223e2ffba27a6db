"""The types of a view's columns: those of the table's columns that it shows, or what the catalog has kept."""

from __future__ import annotations

import re

import pyarrow as pa
from sqlglot import exp

from ontolake.sql.catalog.objects import ViewMeta
from ontolake.sql.catalog.records import SqlCatalog
from ontolake.sql.plan.views import query_of
from ontolake.sql.syntax.statements import name_of
from ontolake.sql.types import TEXT, Type, array_of, from_arrow
from ontolake.sql.types.kinds import VENDOR

_ARROW = {str(type): type for type in (
    pa.bool_(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32(),
    pa.time64("us"), pa.month_day_nano_interval(), pa.uuid(), pa.json_(pa.string()), pa.timestamp("us"),
    pa.timestamp("ns"), pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC"))}  # fmt: skip


def column_types(view: ViewMeta, catalog: SqlCatalog) -> list[Type]:
    """The types of the columns of a view."""
    shown = _shown(view, catalog)
    return [shown[n] or _kept(view.types[n]) for n in range(len(view.columns))]


def _kept(text: str) -> Type:
    """The type that the catalog has kept as the text of an Arrow type."""
    if text in _ARROW:
        return from_arrow(_ARROW[text]) or TEXT
    if found := re.fullmatch(r"decimal128\((\d+), (\d+)\)", text):
        return from_arrow(pa.decimal128(int(found[1]), int(found[2]))) or TEXT
    if found := re.fullmatch(r"list<\w+: (.*?)(?: not null)?>", text):
        return array_of(_kept(found[1]))
    if found := re.search(r"type_name=(.*), vendor_name=", text):
        return from_arrow(pa.opaque(pa.string(), found[1], VENDOR)) or TEXT
    return TEXT


def _shown(view: ViewMeta, catalog: SqlCatalog) -> list[Type | None]:
    """The types of columns of tables that a view shows as they are; None for what it works out."""
    query = query_of(view)
    nothing: list[Type | None] = [None] * len(view.columns)
    if not isinstance(query, exp.Select) or len(query.expressions) != len(view.columns):
        return nothing
    first = query.args.get("from_")
    nodes = [each.this for each in ([first] if first is not None else []) + (query.args.get("joins") or [])]
    tables = {}
    for node in nodes:
        if not isinstance(node, exp.Table):
            return nothing
        full = ".".join(name_of(node.args.get(part) or node.this) for part in ("catalog", "db", "this"))
        table = catalog.by_full_name.get(full)
        if table is None:
            return nothing
        tables[node.alias or table.name] = table
    found: list[Type | None] = []
    for each in query.expressions:
        inner = each.unalias()
        if not isinstance(inner, exp.Column) or isinstance(inner.this, exp.Star):
            found.append(None)
            continue
        owner = name_of(inner.args.get("table"))
        holders = [tables[owner]] if owner in tables else [each for each in tables.values() if not owner]
        types = [table.by_name[name_of(inner.this)].type for table in holders if name_of(inner.this) in table.by_name]
        found.append(types[0] if len(types) == 1 else None)
    return found
