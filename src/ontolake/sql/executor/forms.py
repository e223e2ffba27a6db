"""Expressions with a syntax of their own: patterns, rows, elements of arrays and JSON, EXTRACT, TRIM and the like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from ontolake.sql.errors import SqlError, SqlSyntaxError, TypeMismatchError, UnsupportedError
from ontolake.sql.executor import (
    aggregates,
    calls,
    casts,
    literals,
    operators,
    python_functions,
    records,
    system_functions,
)
from ontolake.sql.executor.pg_types import (
    BOOL,
    DATE,
    INT4,
    INTEGERS,
    JSONB,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    VECTORS,
    PgType,
    common,
)
from ontolake.sql.executor.scopes import Scope
from ontolake.sql.executor.typed import TypedSql, merged
from ontolake.sql.syntax.statements import name_of

_NOW = "CAST(get_current_timestamp() AT TIME ZONE 'UTC' AS TIMESTAMP)"
_KEY_TESTS: dict[type[exp.Expr], str] = {
    exp.JSONBContainsTopKey: "jsonb_exists", exp.JSONBContainsAnyTopKeys: "jsonb_exists_any",
    exp.JSONBContainsAllTopKeys: "jsonb_exists_all",
}  # fmt: skip


class Forms(aggregates.Aggregates):
    """Compiles these forms."""

    # patterns

    def _like(self, node: exp.Binary, scope: Scope, escape: str = "'\\'") -> TypedSql:
        word = "ILIKE" if isinstance(node, exp.ILike) else "LIKE"
        right = node.expression
        no = "NOT " if node.args.get("negate") else ""
        if isinstance(right, exp.Any | exp.All):
            return self._like_any(node, right, word, no, scope)
        value, pattern = self.expression(node.this, scope), self.expression(right, scope)
        value = value._replace(type=TEXT) if value.type.name == "bpchar" else value  # whose blanks count here
        values = [self._texts(each, "~~") for each in (value, pattern)]
        return merged(f"({values[0].sql} {no}{word} {values[1].sql} ESCAPE {escape})", BOOL, values)

    def _like_any(self, node: exp.Binary, right: exp.Any | exp.All, word: str, no: str, scope: Scope) -> TypedSql:
        """LIKE with one or all of the patterns in an array."""
        inner = right.this
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, exp.Query):
            raise UnsupportedError(f"{word} with patterns of a query is not supported", hint="use ARRAY(SELECT …)")
        value, array = self._texts(self.expression(node.this, scope), "~~"), self.expression(inner, scope)
        array = casts.converted(array, TEXT.array)
        wanted, other = ("TRUE", "FALSE") if isinstance(right, exp.Any) else ("FALSE", "TRUE")
        found = f"list_transform({array.sql}, lambda e: {value.sql} {no}{word} e ESCAPE '\\')"
        sql = (f"(CASE WHEN {array.sql} IS NULL THEN NULL WHEN list_contains({found}, {wanted}) THEN {wanted} "
               f"WHEN len(list_filter({found}, lambda e: e IS NULL)) > 0 THEN NULL ELSE {other} END)")  # fmt: skip
        return merged(sql, BOOL, (value, array))

    def _texts(self, value: TypedSql, operator: str) -> TypedSql:
        if value.type.family not in "SX":
            raise operators.missing(operator, value.type, TEXT)
        return casts.converted(casts.plain(value), TEXT)

    def _escaped(self, node: exp.Escape, scope: Scope) -> TypedSql:
        inner, mark = node.this, self.expression(node.expression, scope)
        if isinstance(inner, exp.Not):
            found = self._escaped(exp.Escape(this=inner.this, expression=node.expression), scope)
            return merged(f"(NOT {found.sql})", BOOL, (found,))
        if mark.is_null:
            return merged("CAST(NULL AS BOOLEAN)", BOOL, [])
        if mark.text is None or len(mark.text) > 1:
            raise SqlError("invalid escape string", sqlstate="22025", hint="it is one character or empty")
        if isinstance(inner, exp.SimilarTo):
            return self._similar(inner, scope, mark.sql)
        return self._like(inner, scope, mark.sql)

    def _regular(self, node: exp.Binary, scope: Scope) -> TypedSql:
        values = [self._texts(self.expression(each, scope), "~") for each in (node.this, node.expression)]
        flags = "'i'" if isinstance(node, exp.RegexpILike) else "''"
        sql = python_functions.call("match_pattern", values[0].sql, values[1].sql, flags)
        return merged(f"(len({sql}) > 0)", BOOL, values)

    def _similar(self, node: exp.SimilarTo, scope: Scope, escape: str = "'\\'") -> TypedSql:
        values = [self._texts(self.expression(each, scope), "~~") for each in (node.this, node.expression)]
        found = merged(python_functions.call("similar", *(each.sql for each in values), escape), BOOL, values)
        return merged(f"(NOT {found.sql})", BOOL, [found]) if node.args.get("negate") else found

    def _element(self, node: exp.Bracket, scope: Scope) -> TypedSql:
        value = self.expression(node.this, scope)
        if value.type.name == "jsonb":
            keys = [self.expression(each, scope) for each in node.expressions]
            path = ", ".join(casts.converted(key, TEXT, explicit=True).sql for key in keys)
            return merged(python_functions.call("json_get", value.sql, f"[{path}]", "'jsonb'"), JSONB, (value, *keys))
        if not value.type.is_array or len(node.expressions) != 1:
            raise TypeMismatchError(
                f"cannot subscript type {value.type.shown} because it does not support subscripting"
            )
        place = node.expressions[0]
        if isinstance(place, exp.Slice):
            ends = [None if each is None else casts.converted(self.expression(each, scope), INT4)
                    for each in (place.this, place.expression)]  # fmt: skip
            low = "1" if ends[0] is None else f"greatest({ends[0].sql}, 1)"
            high = f"len({value.sql})" if ends[1] is None else f"greatest({ends[1].sql}, 0)"
            return merged(f"{value.sql}[{low}:{high}]", value.type, [value, *(each for each in ends if each)])
        index = casts.converted(self.expression(place, scope), INT4)
        if value.type.name in VECTORS:
            index = index._replace(sql=f"({index.sql} + 1)")
        sql = f"(CASE WHEN {index.sql} > 0 THEN {value.sql}[{index.sql}] END)"
        return merged(sql, value.type.element, (value, index))

    # JSON

    def _json_get(self, node: exp.Expr, scope: Scope) -> TypedSql:
        value = self.expression(node.this, scope)
        if value.type.name not in ("json", "jsonb"):
            raise operators.missing("->", value.type, TEXT)
        kind = value.type.name
        if isinstance(node, exp.JSONExtractScalar | exp.JSONBExtractScalar):
            kind = "text" if kind == "jsonb" else "raw"
        path = node.expression
        if isinstance(node, exp.JSONBExtract | exp.JSONBExtractScalar):
            path = casts.converted(self.expression(path, scope), TEXT.array)
            sql = python_functions.call("json_get", value.sql, path.sql, f"'{kind}'")
            return merged(sql, TEXT if kind in ("text", "raw") else value.type, (value, path))
        if isinstance(path, exp.JSONPath):
            steps = [
                each.this for each in path.expressions if isinstance(each, exp.JSONPathKey | exp.JSONPathSubscript)
            ]
            keys = [operators.integer(step) if isinstance(step, int) else TypedSql(literals.quoted(str(step)), UNKNOWN, text=str(step))  # noqa: E501
                    for step in steps]  # fmt: skip
        else:
            keys = [self.expression(path, scope)]
        return self._json_step(value, keys, kind)

    def _json_step(self, value: TypedSql, keys: list[TypedSql], kind: str) -> TypedSql:
        for number, key in enumerate(keys):
            step = "index" if key.type.name in INTEGERS else "key"
            key = casts.converted(key, TEXT, explicit=True)
            last = kind if number == len(keys) - 1 else value.type.name
            sql = python_functions.call("json_get", value.sql, f"[{key.sql}]", f"'{last}:{step}'")
            value = merged(sql, TEXT if last in ("text", "raw") else value.type, (value, key))
        return value

    def _contains(self, node: exp.Binary, scope: Scope) -> TypedSql:
        left, right = self.expression(node.this, scope), self.expression(node.expression, scope)
        if isinstance(node, exp.ArrayContainedBy | exp.ArrayContainsAll) and isinstance(node, exp.ArrayContainedBy):
            left, right = right, left
        if "jsonb" in (left.type.name, right.type.name):
            left, right = casts.converted(left, JSONB), casts.converted(right, JSONB)
            return merged(python_functions.call("json_contains", left.sql, right.sql), BOOL, (left, right))
        if not (left.type.is_array or right.type.is_array):
            raise operators.missing("@>", left.type, right.type)
        left, right = operators.unified([left, right], "@>")
        sql = f"(list_has_all({left.sql}, {right.sql}) AND len(list_filter({right.sql}, lambda e: e IS NULL)) = 0)"
        return merged(sql, BOOL, (left, right))

    def _has_key(self, node: exp.Binary, scope: Scope) -> TypedSql:
        arguments = [self.expression(each, scope) for each in (node.this, node.expression)]
        return calls.called(_KEY_TESTS[type(node)], arguments)

    def _overlaps(self, node: exp.Binary, scope: Scope) -> TypedSql:
        left, right = operators.unified(
            [self.expression(node.this, scope), self.expression(node.expression, scope)], "&&"
        )
        if not left.type.is_array:
            raise operators.missing("&&", left.type, right.type)
        return merged(f"list_has_any({left.sql}, {right.sql})", BOOL, (left, right))

    # functions with a syntax of their own

    def _periods(self, node: exp.Overlaps, scope: Scope) -> TypedSql:
        """`(start, end) OVERLAPS (start, end)`; an end may be given as an interval."""
        ends: list[TypedSql] = []
        for side in (node.this, node.expression):
            row = self.row_values(side.expressions, scope) if isinstance(side, exp.Tuple) else []
            if len(row) != 2:
                raise SqlSyntaxError("wrong number of parameters on a side of OVERLAPS expression")
            start, end = row
            ends += [start, operators.arithmetic("+", start, end) if end.type.name == "interval" else end]
        known = [each for each in ends if each.type.name != "unknown"]
        type = common([each.type for each in known]) or TEXT
        if type.family != "D":
            raise calls.unknown_function("pg_catalog.overlaps", ends)
        type = type._replace(fine=False)
        a, b, c, d = (casts.converted(casts.plain(each) if each.type.name != "unknown" else each, type)
                      for each in ends)  # fmt: skip
        return merged(calls.overlap(a.sql, b.sql, c.sql, d.sql), BOOL, ends)

    def _starts(self, node: exp.StartsWith, scope: Scope) -> TypedSql:
        return calls.called("starts_with", [self.expression(node.this, scope), self.expression(node.expression, scope)])

    def _json_operator(self, node: exp.Expr, scope: Scope) -> TypedSql:
        """`@?`, `@@` and `#-` of jsonb."""
        if isinstance(node, exp.MatchAgainst):
            nodes, name, sign = [node.expressions[0], node.this], "jsonb_path_match_opr", "@@"
        else:
            is_path = isinstance(node, exp.JSONBPathExists)
            name, sign = ("jsonb_path_exists_opr", "@?") if is_path else ("jsonb_delete_path", "#-")
            nodes = [node.this, node.expression]
        values = [self.expression(each, scope) for each in nodes]
        if values[0].type.name not in ("jsonb", "unknown"):
            raise operators.missing(sign, values[0].type, values[1].type)
        return calls.called(name, values)

    def _extract(self, node: exp.Extract, scope: Scope) -> TypedSql:
        return calls.extracted(node.this.name, self.expression(node.expression, scope), exact=True)

    def _substring(self, node: exp.Substring, scope: Scope) -> TypedSql:
        given = [node.this, node.args.get("start"), node.args.get("length")]
        if given[1] is None and given[2] is not None:
            given[1] = exp.Literal.number(1)
        return calls.substring([self.expression(each, scope) for each in given if each is not None])

    def _position(self, node: exp.StrPosition, scope: Scope) -> TypedSql:
        return calls.called("strpos", [self.expression(node.this, scope), self.expression(node.args["substr"], scope)])

    def _trim(self, node: exp.Trim, scope: Scope) -> TypedSql:
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "btrim")
        given = [node.this, *([node.expression] if node.args.get("expression") else [])]
        return calls.called(name, [self.expression(each, scope) for each in given])

    def _overlay(self, node: exp.Overlay, scope: Scope) -> TypedSql:
        given = [node.this, node.expression, node.args["from_"], node.args.get("for_")]
        return calls.called("overlay", [self.expression(each, scope) for each in given if each is not None])

    def _moment(self, node: exp.Expr, scope: Scope) -> TypedSql:
        types: dict[type[exp.Expr], PgType] = {
            exp.CurrentDate: DATE, exp.CurrentTimestamp: TIMESTAMPTZ, exp.Localtimestamp: TIMESTAMP,
            exp.CurrentTime: TIME, exp.Localtime: TIME, exp.CurrentDatetime: TIMESTAMP,
        }  # fmt: skip
        type_ = types[type(node)]
        return TypedSql(f"CAST({_NOW} AS {type_.duck})", type_)

    def _named(self, node: exp.Expr, scope: Scope) -> TypedSql:
        """CURRENT_USER and the like."""
        if system_functions.is_known():
            name = "current_schema" if isinstance(node, exp.CurrentSchema) else "current_database" if isinstance(
                node, exp.CurrentCatalog) else "current_user"
            return system_functions.called(name, [])
        return TypedSql(f"'{'public' if isinstance(node, exp.CurrentSchema) else 'ontolake'}'", PgType("name"))

    def _record(self, node: exp.Tuple, scope: Scope) -> TypedSql:
        return records.record(self.row_values(node.expressions, scope))

    def _field(self, node: exp.Dot, scope: Scope) -> TypedSql:
        """`(row).field`."""
        value = self.expression(node.this, scope)
        if value.type.name != "record":
            raise TypeMismatchError(
                f"column notation .{name_of(node.expression)} applied to type {value.type.shown}, which is not a "
                "composite type", sqlstate="42809")  # fmt: skip
        return records.field(value, name_of(node.expression))


FORMS: dict[type[exp.Expr], Callable[[Any, Any, Scope], TypedSql]] = {
    exp.Like: Forms._like, exp.ILike: Forms._like, exp.Escape: Forms._escaped, exp.RegexpLike: Forms._regular,
    exp.RegexpILike: Forms._regular, exp.SimilarTo: Forms._similar, exp.Bracket: Forms._element,
    exp.JSONExtract: Forms._json_get, exp.JSONExtractScalar: Forms._json_get, exp.JSONBExtract: Forms._json_get,
    exp.JSONBExtractScalar: Forms._json_get, exp.ArrayContainsAll: Forms._contains,
    exp.ArrayContainedBy: Forms._contains, exp.ArrayOverlaps: Forms._overlaps, exp.Extract: Forms._extract,
    exp.Substring: Forms._substring, exp.StrPosition: Forms._position, exp.Trim: Forms._trim,
    exp.Overlay: Forms._overlay, exp.CurrentDate: Forms._moment, exp.CurrentTimestamp: Forms._moment,
    exp.Localtimestamp: Forms._moment, exp.CurrentTime: Forms._moment, exp.Localtime: Forms._moment,
    exp.CurrentDatetime: Forms._moment, exp.CurrentUser: Forms._named, exp.SessionUser: Forms._named,
    exp.CurrentSchema: Forms._named, exp.CurrentCatalog: Forms._named, exp.CurrentRole: Forms._named,
    exp.Tuple: Forms._record, exp.Dot: Forms._field, exp.Overlaps: Forms._periods, exp.StartsWith: Forms._starts,
    **dict.fromkeys(_KEY_TESTS, Forms._has_key),
    **dict.fromkeys((exp.MatchAgainst, exp.JSONBPathExists, exp.JSONBDeleteAtPath), Forms._json_operator),
}  # fmt: skip
"""How each form is compiled."""
