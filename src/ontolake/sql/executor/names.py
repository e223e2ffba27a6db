"""The names that PostgreSQL gives to outputs that have none."""

from __future__ import annotations

from sqlglot import exp

from ontolake.sql.syntax.statements import name_of

_TYPE_NAMES = {"SMALLINT": "int2", "INT": "int4", "BIGINT": "int8", "FLOAT": "float4", "DOUBLE": "float8",
               "DECIMAL": "numeric", "BOOLEAN": "bool", "VARBINARY": "bytea", "TIMESTAMPNTZ": "timestamp",
               "CHAR": "bpchar", "ARRAY": "array"}  # fmt: skip
_NAMED: dict[type[exp.Expr], str] = {
    exp.Exists: "exists", exp.Array: "array", exp.Extract: "extract", exp.Substring: "substring",
    exp.StrPosition: "position", exp.Overlay: "overlay", exp.Overlaps: "overlaps", exp.CurrentDate: "current_date",
    exp.CurrentTimestamp: "current_timestamp", exp.Localtimestamp: "localtimestamp", exp.CurrentTime: "current_time",
    exp.Localtime: "localtime", exp.CurrentUser: "current_user", exp.SessionUser: "session_user",
    exp.CurrentSchema: "current_schema", exp.CurrentCatalog: "current_catalog", exp.CurrentRole: "current_role",
    exp.Tuple: "row", exp.Interval: "interval", exp.AtTimeZone: "timezone",
}  # fmt: skip
NAMELESS = "?column?"


def output_name(node: exp.Expr) -> str:
    """The name that PostgreSQL gives a column of an answer."""
    if isinstance(node, exp.Alias):
        return name_of(node.args["alias"])
    if isinstance(node, exp.Column):
        return name_of(node.args["table"] if isinstance(node.this, exp.Star) else node.this)
    if isinstance(node, exp.Case):
        name = NAMELESS if node.args.get("default") is None else output_name(node.args["default"])
        return name if name != NAMELESS and not isinstance(node.args["default"], exp.Literal) else "case"
    if isinstance(node, exp.Dot):
        return name_of(node.expression)
    if isinstance(node, exp.Cast):
        to = node.to
        while str(getattr(to.this, "name", to.this)) == "ARRAY" and to.expressions:
            to = to.expressions[0]
        value = node.this
        kind = "interval" if isinstance(to.this, exp.Interval) else str(getattr(to.this, "name", to.this))
        while isinstance(value, exp.Cast | exp.Paren):
            value = value.this
        name = NAMELESS if isinstance(value, exp.Interval) else output_name(value)
        if kind == "USERDEFINED":
            named = to.args["kind"]
            kind = name_of(named.expression if isinstance(named, exp.Dot) else named)
        return name if name not in (NAMELESS, "case") else _TYPE_NAMES.get(kind, kind.lower())
    if isinstance(node, exp.Paren | exp.Window | exp.Filter | exp.WithinGroup | exp.Bracket | exp.Collate):
        return output_name(node.this)
    if isinstance(node, exp.Subquery):
        return _query_name(node)
    if isinstance(node, exp.Trim):
        position = str(node.args.get("position") or "").upper()
        return {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(position, "btrim")
    if isinstance(node, exp.Anonymous):
        return str(node.this if isinstance(node.this, str) else name_of(node.this)).lower()
    return _NAMED.get(type(node), NAMELESS)


def _query_name(node: exp.Expr) -> str:
    query = node
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    return output_name(query.expressions[0]) if isinstance(query, exp.Select) and query.expressions else NAMELESS
