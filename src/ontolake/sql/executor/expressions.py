"""Expressions: PostgreSQL's into DuckDB's, with their types."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from sqlglot import exp

from ontolake.sql.errors import SqlError, SqlSyntaxError, UnsupportedError
from ontolake.sql.executor import calls, casts, literals, operators, parameter_types, records, text_functions
from ontolake.sql.executor.forms import FORMS, Forms
from ontolake.sql.executor.pg_types import (
    BOOL,
    BYTEA,
    INT4,
    INTEGERS,
    INTERVAL,
    RECORD,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    PgType,
    common,
    from_node,
)
from ontolake.sql.executor.scopes import CompiledQuery, Scope
from ontolake.sql.executor.typed import TypedSql, merged
from ontolake.sql.syntax.dialect import DIALECT
from ontolake.sql.syntax.statements import mark_place, name_of
from ontolake.sql.types import spans

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_BITS: dict[type[exp.Expr], str] = {
    exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "#", exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
}  # fmt: skip


class Expressions(Forms):
    """Compiles expressions in the scope of a query."""

    @abstractmethod
    def query(self, node: exp.Expr, parent: Scope | None) -> CompiledQuery:
        """A query within another."""

    def expression(self, node: exp.Expr, scope: Scope) -> TypedSql:
        """An expression. Raises `SqlError`."""
        method = _METHODS.get(type(node))
        if method is None:
            raise UnsupportedError(f"{node.sql(DIALECT)} is not supported")
        found: TypedSql = method(self, node, scope)
        return found._replace(loose=frozenset()) if found.sql in scope.groups else found

    def condition(self, node: exp.Expr, scope: Scope, clause: str) -> TypedSql:
        """The condition of a clause."""
        before, scope.clause = scope.clause, clause
        found = operators.boolean(self.expression(node, scope), clause)
        scope.clause = before
        return found

    # values

    def _literal(self, node: exp.Literal, scope: Scope) -> TypedSql:
        if node.is_string:
            return TypedSql(literals.quoted(node.this), UNKNOWN, text=node.this)
        if node.this.isdigit():
            return operators.integer(int(node.this))
        sql, type = literals.number(Decimal(node.this))
        return TypedSql(sql, type)

    def _text(self, node: exp.Expr, scope: Scope) -> TypedSql:
        return TypedSql(literals.quoted(node.this), UNKNOWN, text=node.this)

    def _unicode(self, node: exp.UnicodeString, scope: Scope) -> TypedSql:
        """`U&'…'`: characters by their numbers."""
        escape = node.args.get("escape")
        mark = str(escape.name) if isinstance(escape, exp.Expr) else "\\"
        text = node.this if mark == "\\" else node.this.replace("\\", "\\\\").replace(mark * 2, "\0").replace(
            mark, "\\").replace("\0", mark)  # fmt: skip
        found = text_functions.unicode_text(text)
        return TypedSql(literals.quoted(found), UNKNOWN, text=found)

    def _national(self, node: exp.Expr, scope: Scope) -> TypedSql:
        text = "".join(each.this for each in node.expressions)
        return TypedSql(literals.quoted(text), UNKNOWN, text=text)

    def _bytes(self, node: exp.HexString, scope: Scope) -> TypedSql:
        return TypedSql(f"unhex('{node.this}')", BYTEA)

    def _null(self, node: exp.Null, scope: Scope) -> TypedSql:
        return TypedSql("NULL", UNKNOWN)

    def _boolean(self, node: exp.Boolean, scope: Scope) -> TypedSql:
        return TypedSql("TRUE" if node.this else "FALSE", BOOL)

    def _interval(self, node: exp.Interval, scope: Scope) -> TypedSql:
        unit = node.args.get("unit")
        fields, digits = spans.type_fields("" if unit is None else unit.name)
        return TypedSql(literals.interval_sql(*literals.interval(node.this.name, fields, digits)), INTERVAL)

    def _array(self, node: exp.Array, scope: Scope) -> TypedSql:
        if len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Query):
            return self._array_of(node.expressions[0], scope)
        if not node.expressions:
            raise SqlError("cannot determine type of empty array", sqlstate="42P18", hint="write ARRAY[]::integer[]")
        values = operators.unified([self.expression(each, scope) for each in node.expressions], "ARRAY")
        type = common([each.type for each in values]) or TEXT
        if type.is_array:
            raise UnsupportedError("arrays of several dimensions are not supported")
        return merged(f"[{', '.join(each.sql for each in values)}]", type.array, values)

    def _array_of(self, node: exp.Expr, scope: Scope) -> TypedSql:
        query = self.query(node, scope)
        if len(query.outputs) != 1:
            raise SqlSyntaxError("subquery must return only one column")
        type = query.outputs[0].type
        sql = f"ARRAY({query.sql})"
        return TypedSql(sql, (TEXT if type.name == "unknown" else type).array, query.loose, volatile=query.volatile)

    def _column(self, node: exp.Column, scope: Scope) -> TypedSql:
        if isinstance(node.this, exp.Star):
            columns = scope.star(node)
            return records.record([each.typed() for each in columns], [each.name for each in columns])
        try:
            return scope.column(node).typed()
        except SqlError as error:
            relation = None if node.args.get("table") else scope.relation(name_of(node.this))
            if error.sqlstate != "42703" or relation is None:
                raise
        if relation.scalar:  # the row of a function that gives one value is that value
            return relation.columns[0].typed()
        return records.record([each.typed() for each in relation.columns], [each.name for each in relation.columns])

    def _parameter(self, node: exp.Placeholder, scope: Scope) -> TypedSql:
        types, place = parameter_types.learning(), mark_place(node)
        if types is None or not isinstance(place, int):
            raise UnsupportedError(f"{node.sql(DIALECT)} has no value")
        return types.parameter(place)

    def _paren(self, node: exp.Paren, scope: Scope) -> TypedSql:
        return self.expression(node.this, scope)

    def _alias(self, node: exp.Alias, scope: Scope) -> TypedSql:
        return self.expression(node.this, scope)

    # casts

    enums: dict[str, PgType]
    """Enums that casts may name."""

    def _cast(self, node: exp.Cast, scope: Scope) -> TypedSql:
        to = from_node(node.to, self.enums)
        given = node.this
        if to.is_array and isinstance(given, exp.Array) and not given.expressions:
            return TypedSql(f"CAST([] AS {to.duck})", to)
        value = self.expression(given, scope)
        found = casts.converted(value, to, explicit=True)
        if to.name in ("time", "timestamp", "timestamptz") and node.to.expressions:
            found = casts.to_precision(found, node.to.expressions[0].name)
        if to.name == "interval":
            found = casts.limited_interval(value, found, *_interval_fields(node.to))
        return found._replace(value=value.value) if to.name in INTEGERS and value.value is not None else found

    def _zone(self, node: exp.AtTimeZone, scope: Scope) -> TypedSql:
        value, zone = self.expression(node.this, scope), self.expression(node.args["zone"], scope)
        zone = casts.converted(zone, TEXT)
        value = casts.converted(value, TIMESTAMPTZ) if value.type.name == "unknown" else casts.plain(value)
        if value.type.name == "date":
            value = casts.converted(value, TIMESTAMPTZ)
        if value.type.name == "timestamptz":
            return merged(f"timezone({zone.sql}, {value.sql} AT TIME ZONE 'UTC')", TIMESTAMP, (value, zone))
        if value.type.name != "timestamp":
            raise operators.missing("AT TIME ZONE", value.type, zone.type)
        return merged(f"CAST(timezone({zone.sql}, {value.sql}) AT TIME ZONE 'UTC' AS TIMESTAMP)", TIMESTAMPTZ,
                      (value, zone))  # fmt: skip

    def _collated(self, node: exp.Collate, scope: Scope) -> TypedSql:
        name = name_of(node.expression) if isinstance(node.expression, exp.Identifier) else str(node.expression.name)
        if name not in ("C", "POSIX", "default", "ucs_basic", "und-x-icu"):
            raise UnsupportedError(f"the collation {name} is not supported", hint='use "C": text is ordered by bytes')
        return casts.converted(self.expression(node.this, scope), TEXT)

    # logic

    def _connected(self, node: exp.Connector, scope: Scope) -> TypedSql:
        word = "AND" if isinstance(node, exp.And) else "OR"
        parts: list[exp.Expr] = []
        pending: list[exp.Expr] = [node]
        while pending:  # chains are long, and not to be walked down one by one
            each = pending.pop()
            if type(each) is type(node):
                pending += [each.args["expression"], each.this]
            else:
                parts.append(each)
        values = [operators.boolean(self.expression(each, scope), word) for each in parts]
        return merged("(" + f" {word} ".join(each.sql for each in values) + ")", BOOL, values)

    def _not(self, node: exp.Not, scope: Scope) -> TypedSql:
        value = operators.boolean(self.expression(node.this, scope), "NOT")
        return merged(f"(NOT {value.sql})", BOOL, (value,))

    def _is(self, node: exp.Is, scope: Scope) -> TypedSql:
        no = "NOT " if node.args.get("negate") else ""
        wanted = node.expression
        if isinstance(wanted, exp.Not):
            wanted, no = wanted.this, "NOT "
        row = self._row(node.this, scope)
        if row is not None and isinstance(wanted, exp.Null):
            parts = " AND ".join(f"({each.sql} IS {no}NULL)" for each in row)
            return merged(f"({parts})", BOOL, row)
        value = self.expression(node.this, scope)
        if isinstance(wanted, exp.Null):
            return merged(f"({value.sql} IS {no}NULL)", BOOL, (value,))
        if not isinstance(wanted, exp.Boolean):
            raise UnsupportedError(f"{node.sql(DIALECT)} is not supported")
        word = "TRUE" if wanted.this else "FALSE"
        value = operators.boolean(value, f"IS {no}{word}")
        return merged(f"({value.sql} IS {(no and 'DISTINCT') or 'NOT DISTINCT'} FROM {word})", BOOL, (value,))

    def _distinct_from(self, node: exp.Binary, scope: Scope) -> TypedSql:
        word = "IS DISTINCT FROM" if isinstance(node, exp.NullSafeNEQ) else "IS NOT DISTINCT FROM"
        left, right = self._row(node.this, scope), self._row(node.expression, scope)
        if left is not None and right is not None:
            pairs = [operators.matched("=", one, other) for one, other in zip(left, right, strict=True)]
            joined = (" OR " if word == "IS DISTINCT FROM" else " AND ").join(
                f"({a.sql} {word} {b.sql})" for a, b in pairs
            )
            return merged(f"({joined})", BOOL, [each for pair in pairs for each in pair])
        a, b = operators.matched("=", self.expression(node.this, scope), self.expression(node.expression, scope))
        return merged(f"({a.sql} {word} {b.sql})", BOOL, (a, b))

    # comparisons

    def _row(self, node: exp.Expr, scope: Scope) -> list[TypedSql] | None:
        """The elements of a row; None for anything else."""
        while isinstance(node, exp.Paren):
            node = node.this
        is_row = isinstance(node, exp.Tuple) or (isinstance(node, exp.Anonymous) and str(node.this).lower() == "row")
        return self.row_values(node.expressions, scope) if is_row else None

    def _compared(self, node: exp.Binary, scope: Scope) -> TypedSql:
        operator, right = _COMPARISONS[type(node)], node.expression
        if isinstance(right, exp.Anonymous) and str(right.this).lower() in ("all", "some", "any"):
            kind = exp.All if str(right.this).lower() == "all" else exp.Any
            right = kind(this=right.expressions[0]) if len(right.expressions) == 1 else right
        if isinstance(right, exp.Any | exp.All):
            return self._quantified(operator, node.this, right, scope)
        left_row = self._row(node.this, scope)
        if left_row is not None:
            right_row = self._row(right, scope)
            if right_row is None and isinstance(right, exp.Subquery):
                return self._row_and_query(operator, left_row, right, scope)
            if right_row is None:
                raise operators.missing(operator, RECORD, self.expression(right, scope).type)
            return operators.rows_compared(operator, left_row, right_row)
        return operators.compared(operator, self.expression(node.this, scope), self.expression(right, scope))

    def _row_and_query(self, operator: str, row: list[TypedSql], node: exp.Expr, scope: Scope) -> TypedSql:
        """A row against the one that a query gives."""
        query = self.query(node, scope)
        name = self.fresh()
        other = [TypedSql(f"{name}.c{n}", each.type) for n, each in enumerate(query.outputs)]
        test = operators.rows_compared(operator, row, other)
        return merged(f"(SELECT {test.sql} FROM ({query.sql}) AS {name})", BOOL, row)._replace(
            loose=test.loose | query.loose
        )

    def _quantified(self, operator: str, left: exp.Expr, right: exp.Any | exp.All, scope: Scope) -> TypedSql:
        word = "ANY" if isinstance(right, exp.Any) else "ALL"
        inner = right.this
        while isinstance(inner, exp.Paren | exp.Subquery) and not isinstance(inner, exp.Query):
            inner = inner.this
        row = self._row(left, scope)
        if isinstance(inner, exp.Query | exp.Values):
            return self._in_query(operator, word, row or [self.expression(left, scope)], inner, scope)
        value, array = self.expression(left, scope), self.expression(inner, scope)
        if array.type.name == "unknown":
            array = casts.converted(array, (TEXT if value.type.name == "unknown" else value.type).array)
        if not array.type.is_array:
            raise SqlError("op ANY/ALL (array) requires array on right side", sqlstate="42809")
        one, _ = operators.alike(operator, value, TypedSql("NULL", array.type.element))
        if array.type.wide or value.type.wide:
            raise UnsupportedError("ANY and ALL of an array are not supported for numbers of more than 38 digits",
                                   hint="use IN, or unnest() in a query")
        name = self.fresh()
        sql = f"({one.sql} {operator} {word}(SELECT unnest({array.sql}) AS {name}))"
        if array.text is None and not isinstance(inner, exp.Array):  # of an array that is NULL nothing is known
            sql = f"(CASE WHEN {array.sql} IS NOT NULL THEN {sql} END)"
        return merged(sql, BOOL, (value, array))

    def _in(self, node: exp.In, scope: Scope) -> TypedSql:
        row = self._row(node.this, scope)
        if node.args.get("query") is not None:
            return self._in_query("=", "ANY", row or [self.expression(node.this, scope)], node.args["query"], scope)
        if node.args.get("unnest") or node.args.get("field") or not node.expressions:
            raise SqlSyntaxError(f"{node.sql(DIALECT)} cannot be read")
        if row is not None:
            tests = [operators.rows_compared("=", row, self._row(each, scope) or []) for each in node.expressions]
            return merged("(" + " OR ".join(each.sql for each in tests) + ")", BOOL, tests)
        if len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Query):
            return self._in_query("=", "ANY", [self.expression(node.this, scope)], node.expressions[0], scope)
        value, items = self.expression(node.this, scope), [self.expression(each, scope) for each in node.expressions]
        for each in items if len(items) > 1 else ():
            parameter_types.expect(each, value.type)
        pairs = [operators.matched("=", value, each) for each in items]
        parts = [each for pair in pairs for each in pair]
        if len({pair[0].sql for pair in pairs}) == 1:
            return merged(f"({pairs[0][0].sql} IN ({', '.join(pair[1].sql for pair in pairs)}))", BOOL, parts)
        return merged("(" + " OR ".join(f"({a.sql} = {b.sql})" for a, b in pairs) + ")", BOOL, parts)

    def _in_query(self, operator: str, word: str, row: list[TypedSql], node: exp.Expr, scope: Scope) -> TypedSql:
        query = self.query(node, scope)
        if len(query.outputs) != len(row):
            few = "few" if len(query.outputs) < len(row) else "many"
            raise SqlSyntaxError(f"subquery has too {few} columns")
        name = self.fresh()
        other = [TypedSql(f"{name}.c{n}", TEXT if each.type.name == "unknown" else each.type)
                 for n, each in enumerate(query.outputs)]  # fmt: skip
        loose = query.loose.union(*(each.loose for each in row))
        if len(row) == 1:
            left, right = operators.matched(operator, row[0], other[0])
            columns = f"SELECT {right.sql} FROM ({query.sql}) AS {name}"
            return merged(f"({left.sql} {operator} {word}({columns}))", BOOL, row)._replace(
                loose=loose, volatile=query.volatile
            )
        if (operator, word) not in (("=", "ANY"), ("<>", "ALL")):
            raise UnsupportedError(f"rows with {operator} {word} are not supported")
        pairs = [operators.matched("=", one, each) for one, each in zip(row, other, strict=True)]
        same = " AND ".join(f"{a.sql} = {b.sql}" for a, b in pairs)
        maybe = " AND ".join(f"({a.sql} = {b.sql}) IS NOT FALSE" for a, b in pairs)
        sql = (f"(CASE WHEN EXISTS (SELECT 1 FROM ({query.sql}) AS {name} WHERE {same}) THEN TRUE "
               f"WHEN EXISTS (SELECT 1 FROM ({query.sql}) AS {name} WHERE {maybe}) THEN NULL ELSE FALSE END)")
        return merged(sql if word == "ANY" else f"(NOT {sql})", BOOL, row)._replace(
            loose=loose, volatile=query.volatile
        )

    def _between(self, node: exp.Between, scope: Scope) -> TypedSql:
        value = self.expression(node.this, scope)
        low, high = self.expression(node.args["low"], scope), self.expression(node.args["high"], scope)
        found = self._within(value, low, high)
        if node.args.get("symmetric"):
            other = self._within(value, high, low)
            return merged(f"({found.sql} OR {other.sql})", BOOL, (found, other))
        return found

    def _within(self, value: TypedSql, low: TypedSql, high: TypedSql) -> TypedSql:
        above, below = operators.compared(">=", value, low), operators.compared("<=", value, high)
        return merged(f"({above.sql} AND {below.sql})", BOOL, (above, below))

    # arithmetic

    def _arithmetic(self, node: exp.Binary, scope: Scope) -> TypedSql:
        return operators.arithmetic(_ARITHMETIC[type(node)], self.expression(node.this, scope),
                                    self.expression(node.expression, scope))  # fmt: skip

    def _power(self, node: exp.Pow, scope: Scope) -> TypedSql:
        return operators.power(self.expression(node.this, scope), self.expression(node.expression, scope))

    def _negated(self, node: exp.Neg, scope: Scope) -> TypedSql:
        if isinstance(node.this, exp.Literal) and not node.this.is_string and node.this.this.isdigit():
            return operators.integer(-int(node.this.this))
        return operators.negated(self.expression(node.this, scope))

    def _bits(self, node: exp.Binary, scope: Scope) -> TypedSql:
        operator = _BITS[type(node)]
        left, right = self.expression(node.this, scope), self.expression(node.expression, scope)
        if not {left.type.name, right.type.name} <= {*INTEGERS, "unknown"}:
            raise operators.missing(operator, left.type, right.type)
        if operator in ("<<", ">>"):
            left = casts.converted(left, INT4) if left.type.name == "unknown" else left
            right = casts.converted(right, INT4)
            wide = f"(CAST({left.sql} AS HUGEINT) * CAST(power(2, {right.sql}) AS HUGEINT))" if operator == "<<" else ""
            sql = f"CAST({wide} AS {left.type.duck})" if wide else f"({left.sql} >> {right.sql})"
            return merged(sql, left.type, (left, right))
        left, right = operators.unified([left, right], operator)
        if operator == "#":
            return merged(f"xor({left.sql}, {right.sql})", left.type, (left, right))
        return merged(f"({left.sql} {operator} {right.sql})", left.type, (left, right))

    def _bit_not(self, node: exp.BitwiseNot, scope: Scope) -> TypedSql:
        value = self.expression(node.this, scope)
        if value.type.name not in INTEGERS:
            raise operators.missing("~", value.type)
        return merged(f"(~ {value.sql})", value.type, (value,))

    def _root(self, node: exp.Expr, scope: Scope) -> TypedSql:
        return calls.called("sqrt" if isinstance(node, exp.Sqrt) else "cbrt", [self.expression(node.this, scope)])

    def _joined(self, node: exp.Binary, scope: Scope) -> TypedSql:
        return operators.concatenated(self.expression(node.this, scope), self.expression(node.expression, scope))

    # choices and queries

    def _case(self, node: exp.Case, scope: Scope) -> TypedSql:
        subject = None if node.this is None else self.expression(node.this, scope)
        tests, arms = [], []
        for each in node.args["ifs"]:
            if subject is None:
                tests.append(operators.boolean(self.expression(each.this, scope), "CASE/WHEN"))
            else:
                tests.append(operators.compared("=", subject, self.expression(each.this, scope)))
            arms.append(self.expression(each.args["true"], scope))
        other = node.args.get("default")
        arms.append(TypedSql("NULL", UNKNOWN) if other is None else self.expression(other, scope))
        arms = operators.unified(arms, "CASE")
        parts = " ".join(f"WHEN {test.sql} THEN {arm.sql}" for test, arm in zip(tests, arms[:-1], strict=True))
        type = common([each.type for each in arms]) or TEXT
        return merged(f"(CASE {parts} ELSE {arms[-1].sql} END)", type, [*tests, *arms])

    def _subquery(self, node: exp.Expr, scope: Scope) -> TypedSql:
        query = self.query(node, scope)
        if len(query.outputs) != 1:
            raise SqlSyntaxError("subquery must return only one column")
        type = query.outputs[0].type
        return TypedSql(f"({query.sql})", TEXT if type.name == "unknown" else type, query.loose, volatile=query.volatile)  # noqa: E501

    def _exists(self, node: exp.Exists, scope: Scope) -> TypedSql:
        query = self.query(node.this, scope)
        return TypedSql(f"EXISTS ({query.sql})", BOOL, query.loose, volatile=query.volatile)


    def _wrong_place(self, node: exp.Expr, scope: Scope) -> TypedSql:
        if isinstance(node, exp.Star):
            raise SqlSyntaxError("* is not allowed here")
        raise SqlSyntaxError(f"syntax error at or near {node.sql(DIALECT)!r}")


def _interval_fields(node: exp.Expr) -> tuple[str, int]:
    """The fields and digits of a type such as `interval day to second(2)`."""
    if isinstance(node.this, exp.Interval):
        unit = node.this.args.get("unit")
        return spans.type_fields("" if unit is None else unit.sql(DIALECT).upper())
    digits = [each.name for each in node.expressions if each.name.isdigit()]
    return "", min(int(digits[0]), 6) if digits else 6


Method = Callable[[Any, Any, Scope], TypedSql]
_METHODS: dict[type[exp.Expr], Method] = {
    **FORMS,
    exp.Placeholder: Expressions._parameter,
    exp.Literal: Expressions._literal, exp.RawString: Expressions._text, exp.ByteString: Expressions._text,
    exp.National: Expressions._text, exp.Concat: Expressions._national, exp.HexString: Expressions._bytes,
    exp.Null: Expressions._null, exp.Boolean: Expressions._boolean, exp.Interval: Expressions._interval,
    exp.Array: Expressions._array, exp.Column: Expressions._column, exp.Paren: Expressions._paren,
    exp.Alias: Expressions._alias, exp.Cast: Expressions._cast, exp.AtTimeZone: Expressions._zone,
    exp.Collate: Expressions._collated, exp.And: Expressions._connected, exp.Or: Expressions._connected,
    exp.Not: Expressions._not, exp.Is: Expressions._is, exp.NullSafeNEQ: Expressions._distinct_from,
    exp.NullSafeEQ: Expressions._distinct_from, exp.In: Expressions._in, exp.Between: Expressions._between,
    exp.Pow: Expressions._power, exp.Neg: Expressions._negated, exp.BitwiseNot: Expressions._bit_not,
    exp.Sqrt: Expressions._root, exp.Cbrt: Expressions._root, exp.DPipe: Expressions._joined,
    exp.Case: Expressions._case, exp.Subquery: Expressions._subquery, exp.Select: Expressions._subquery,
    exp.Union: Expressions._subquery, exp.Intersect: Expressions._subquery, exp.Except: Expressions._subquery,
    exp.Exists: Expressions._exists, exp.UnicodeString: Expressions._unicode, exp.Star: Expressions._wrong_place,
    exp.Anonymous: Expressions.call, exp.Window: Expressions.over, exp.Filter: Expressions.filtered,
    exp.WithinGroup: Expressions.within_group, **dict.fromkeys(_COMPARISONS, Expressions._compared),
    **dict.fromkeys(_ARITHMETIC, Expressions._arithmetic), **dict.fromkeys(_BITS, Expressions._bits),
}  # fmt: skip
