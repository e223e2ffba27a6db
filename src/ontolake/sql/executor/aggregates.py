"""Calls of functions in queries: plain ones, aggregates, window functions, and those that give rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from ontolake.sql.errors import SqlError, SqlSyntaxError, TypeMismatchError, UnknownNameError, UnsupportedError
from ontolake.sql.executor import calls, casts, operators, records, row_functions, system_functions, wide_calls
from ontolake.sql.executor.calls import Modifiers
from ontolake.sql.executor.pg_types import FLOAT8, INT4, INT8, INTEGERS, TEXT, PgType, is_wide
from ontolake.sql.executor.scopes import CompiledQuery, Scope
from ontolake.sql.executor.signatures import AGGREGATES, SCALARS, WINDOWS
from ontolake.sql.executor.typed import TypedSql, merged
from ontolake.sql.syntax.statements import name_of

_NO_AGGREGATES = {"WHERE", "JOIN/ON", "GROUP BY", "FILTER", "LIMIT", "OFFSET", "VALUES", "functions in FROM"}
_ORDERED_SETS = {"percentile_cont", "percentile_disc", "mode"}
_HYPOTHETICAL = {"rank", "dense_rank", "percent_rank", "cume_dist"}
_COLLECTING = {"array_agg", "string_agg"}
_DEVIATIONS = {"stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop"}
_CASTS = {"float4", "float8", "int2", "int4", "int8", "text", "varchar", "bpchar", "name", "bool", "date", "timestamp",
          "timestamptz", "time", "json", "jsonb", "uuid", "bytea", "oid", "regclass", "regtype", "char"}  # fmt: skip
"""Types whose names are also functions that convert to them."""
_NAMED_ARGUMENTS = {
    "make_interval": (("years", "months", "weeks", "days", "hours", "mins", "secs"), "0"),
    **{f"jsonb_path_{name}": (("target", "path", "vars", "silent"), None)
       for name in ("exists", "match", "query", "query_array", "query_first")},
    "make_date": (("year", "month", "day"), None),
    "jsonb_set": (("jsonb_in", "path", "replacement", "create_if_missing"), None),
}  # fmt: skip
_PLACE_DEFAULTS: dict[str, exp.Expr] = {"vars": exp.Literal.string("{}"), "silent": exp.false(),
                                        "create_if_missing": exp.true()}  # fmt: skip
VARIADIC = "variadic"
"""Marks an argument that is an array of arguments."""


def _is_wide_aggregate(name: str, type: PgType) -> bool:
    """Whether an aggregate gives a numeric, which then is one of any size."""
    if name in ("min", "max"):
        return type.name == "numeric"
    exact = ("int8", "numeric") if name == "sum" else (*INTEGERS, "numeric")
    return name in ("sum", "avg", *_DEVIATIONS) and type.name in exact


def is_variadic(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.this == VARIADIC


class Aggregates:
    """Compiles calls."""

    _count = 0

    def fresh(self, letter: str = "r") -> str:
        """A name that nothing else in the statement has."""
        self._count += 1
        return f"{letter}{self._count}"

    @abstractmethod
    def expression(self, node: exp.Expr, scope: Scope) -> TypedSql: ...

    @abstractmethod
    def query(self, node: exp.Expr, parent: Scope | None) -> CompiledQuery: ...

    def call(self, node: exp.Anonymous, scope: Scope) -> TypedSql:
        name = _called_name(node)
        if name == "array" and len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Query):
            return self._array_of(node.expressions[0], scope)
        if name == "row":
            return records.record(self.row_values(node.expressions, scope))
        if name == "grouping":
            return self._grouping(node, scope)
        if name in AGGREGATES or name in ("count", "avg", *_ORDERED_SETS):
            return self._aggregate(name, node, scope)
        if name in WINDOWS:
            raise SqlError(f"window function {name} requires an OVER clause", sqlstate="42809")
        if node.expressions and is_variadic(node.expressions[-1]):
            return self._variadic(name, node, scope)
        arguments = [self.expression(each, scope) for each in self._positional(name, node)]
        if name in _CASTS and len(arguments) == 1:
            return casts.converted(arguments[0], PgType(name), explicit=True)
        if name in row_functions.SPREADING:
            sql, type = row_functions.SPREADING[name](arguments)
            return merged(f"unnest({sql})", type, arguments)._replace(spreads=True)
        if system_functions.knows(name):
            return system_functions.called(name, arguments)
        return calls.called(name, arguments)

    def row_values(self, nodes: Sequence[exp.Expr], scope: Scope) -> list[TypedSql]:
        """The elements of a row; `t.*` are all columns of a table."""
        found: list[TypedSql] = []
        for each in nodes:
            if isinstance(each, exp.Column) and isinstance(each.this, exp.Star):
                found += [column.typed() for column in scope.star(each)]
            else:
                found.append(self.expression(each, scope))
        return found

    @abstractmethod
    def _array_of(self, node: exp.Expr, scope: Scope) -> TypedSql: ...

    def _positional(self, name: str, node: exp.Anonymous) -> list[exp.Expr]:
        """The arguments in their places. Only make_interval has names for them here."""
        given: list[exp.Expr] = []
        named: dict[str, exp.Expr] = {}
        for each in node.expressions:
            if isinstance(each, exp.Kwarg | exp.PropertyEQ):
                named[name_of(each.this)] = each.expression
            elif isinstance(each, exp.Distinct | exp.Order):
                raise SqlError(f"DISTINCT and ORDER BY are for aggregates, and {name} is not one", sqlstate="42809")
            else:
                given.append(each)
        if named:
            places, default = _NAMED_ARGUMENTS.get(name, ((), None))
            rest = places[len(given) :]
            if not set(named) <= set(rest):
                raise UnsupportedError("names of arguments are not supported", hint="give them in their order")
            for place in rest:
                if place in named:
                    given.append(named[place])
                elif default is not None:
                    given.append(exp.Literal.number(default))
                elif place in _PLACE_DEFAULTS:
                    given.append(_PLACE_DEFAULTS[place].copy())
                else:
                    raise SqlError(f"function {name} needs a value for {place}", sqlstate="42883")
        return given

    def _variadic(self, name: str, node: exp.Anonymous, scope: Scope) -> TypedSql:
        """A call whose last arguments are the elements of an array."""
        *first, last = node.expressions
        given = [self.expression(each, scope) for each in first]
        array = self.expression(last.expressions[0], scope)
        if not array.type.is_array:
            raise TypeMismatchError("VARIADIC argument must be an array")
        return calls.spread_over(name, given, array)

    def _grouping(self, node: exp.Anonymous, scope: Scope) -> TypedSql:
        values = [self.expression(each, scope) for each in node.expressions]
        sql = f"CAST(GROUPING({', '.join(each.sql for each in values)}) AS INTEGER)"
        return TypedSql(sql, INT4, aggregates=True)

    # aggregates

    def _aggregate(self, name: str, node: exp.Anonymous, scope: Scope, filter: str = "", over: str = "",
                   extra: tuple[TypedSql, ...] = ()) -> TypedSql:  # fmt: skip
        if not over:
            if scope.clause in _NO_AGGREGATES:
                raise SqlError(f"aggregate functions are not allowed in {scope.clause}", sqlstate="42803")
            if scope.clause == "aggregate":
                raise SqlError("aggregate function calls cannot be nested", sqlstate="42803")
        before = scope.clause
        scope.clause = before if over else "aggregate"
        given, distinct, order = self._parts(node, scope)
        scope.clause = before
        if distinct and not order[0] and name in _COLLECTING:  # PostgreSQL sorts to find what is distinct
            order = (" ORDER BY " + ", ".join(self.sortable(each).sql for each in given[:1]), [])
        modifiers = Modifiers("DISTINCT " if distinct else "", order[0], filter, over)
        if distinct and over:
            raise UnsupportedError("DISTINCT is not implemented for window functions")
        if any(each.windows for each in given) and not over:
            raise SqlError("aggregate function calls cannot contain window function calls", sqlstate="42803")
        if name == "count" and len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Star):
            found = TypedSql(f"count(*){filter}{over}", INT8)
        elif name == "count" and not given:
            raise SqlError("count(*) must be used to call a parameterless aggregate function", sqlstate="42809")
        elif is_wide() and len(given) == 1 and _is_wide_aggregate(name, given[0].type):
            found = wide_calls.aggregated(name, given[0], modifiers)
        elif name == "avg" and len(given) == 1 and given[0].type.name in (*INTEGERS, "numeric"):
            found = calls.mean(given[0], modifiers)
        elif name in _DEVIATIONS and len(given) == 1 and given[0].type.name in (*INTEGERS, "numeric") and not distinct:
            found = calls.deviation(name, given[0], modifiers)
        elif name == "string_agg" and len(given) == 2 and given[0].type.name != "bytea":
            found = self._string_agg(given, modifiers)
        else:
            found = calls.function(name, given, modifiers, "aggregate")
        parts = [*given, *order[1], *extra]
        return self._settled(found, parts, bool(over))

    def _settled(self, found: TypedSql, parts: list[TypedSql], is_window: bool) -> TypedSql:
        """A call with what a query has to know: columns within an aggregate are not those of a group."""
        whole = merged(found.sql, found.type, parts)
        if is_window:
            return whole._replace(windows=True)
        return whole._replace(loose=frozenset(), inner=whole.loose | whole.inner, aggregates=True, windows=False)

    def _parts(self, node: exp.Anonymous, scope: Scope) -> tuple[list[TypedSql], bool, tuple[str, list[TypedSql]]]:
        """The arguments of an aggregate, whether they are DISTINCT, and its ORDER BY."""
        given: list[TypedSql] = []
        distinct, order = False, None
        for each in node.expressions:
            if isinstance(each, exp.Star):
                continue
            if isinstance(each, exp.Order):
                order = each
                each = each.this
            if isinstance(each, exp.Distinct):
                distinct = True
                inner = list(each.expressions)
                if not inner:
                    raise SqlSyntaxError("DISTINCT needs an argument")
                if inner and isinstance(inner[-1], exp.Order):
                    order = inner[-1]
                    inner[-1] = order.this
                given += [self.expression(one, scope) for one in inner]
            elif each is not None:
                given.append(self.expression(each, scope))
        if order is None:
            return given, distinct, ("", [])
        sql, values = self.ordering(order, scope)
        if distinct and any(value.sql not in [each.sql for each in given] for value in values):
            raise SqlError(
                "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list", sqlstate="42P10"
            )
        return given, distinct, (f" ORDER BY {sql}", values)

    def ordering(self, order: exp.Expr, scope: Scope) -> tuple[str, list[TypedSql]]:
        """The expressions of an ORDER BY that does not see outputs."""
        values, parts = [], []
        for each in order.expressions:
            inner = each.this if isinstance(each, exp.Ordered) else each
            value = self.sortable(self.expression(inner, scope))
            values.append(value)
            parts.append(value.sql + direction(each))
        return ", ".join(parts), values

    def sortable(self, value: TypedSql) -> TypedSql:
        """A value to sort by."""
        if value.type.name == "json":
            raise UnknownNameError("could not identify an ordering operator for type json", sqlstate="42883")
        if value.type.name == "jsonb" or value.type.wide:
            return operators.keyed(value)
        return casts.plain(value) if value.type.name in ("unknown", "bpchar") else value

    def _string_agg(self, given: list[TypedSql], modifiers: Modifiers) -> TypedSql:
        value, separator = given
        if value.type.family not in "SX" or separator.type.family not in "SX":
            raise calls.unknown_function("string_agg", given)
        text, between = (casts.converted(casts.plain(each), TEXT) for each in (value, separator))
        if separator.text is not None or separator.is_null:
            mark = "''" if separator.is_null else between.sql
            sql = (
                f"string_agg({modifiers.distinct}{text.sql}, {mark}{modifiers.order}){modifiers.filter}{modifiers.over}"
            )
            return merged(sql, TEXT, given)
        pairs = f"coalesce({between.sql}, '') || {text.sql}"
        whole = f"string_agg({pairs}, ''{modifiers.order}){modifiers.filter}{modifiers.over}"
        first = f"first(length(coalesce({between.sql}, '')){modifiers.order}){modifiers.filter}{modifiers.over}"
        return merged(f"substring({whole}, {first} + 1)", TEXT, given)

    def filtered(self, node: exp.Filter, scope: Scope, over: str = "", extra: tuple[TypedSql, ...] = ()) -> TypedSql:
        inner = node.this
        before, scope.clause = scope.clause, "FILTER"
        test = operators.boolean(self.expression(node.expression.this, scope), "FILTER")
        scope.clause = before
        text = f" FILTER (WHERE {test.sql})"
        if isinstance(inner, exp.WithinGroup):
            return self.within_group(inner, scope, text, (test, *extra))
        name = _called_name(inner)
        if name not in AGGREGATES and name not in ("count", "avg"):
            raise SqlError(f"FILTER specified, but {name} is not an aggregate function", sqlstate="42809")
        return self._aggregate(name, inner, scope, text, over, (test, *extra))

    def within_group(
        self, node: exp.WithinGroup, scope: Scope, filter: str = "", extra: tuple[TypedSql, ...] = ()
    ) -> TypedSql:
        call, order = node.this, node.expression
        name = _called_name(call)
        if name in _HYPOTHETICAL and len(call.expressions) == len(order.expressions) == 1:
            return self._hypothetical(name, call.expressions[0], order.expressions[0], scope, filter, extra)
        if name not in _ORDERED_SETS:
            raise UnknownNameError(f"{name} is not an ordered-set aggregate", sqlstate="42883")
        if scope.clause in _NO_AGGREGATES:
            raise SqlError(f"aggregate functions are not allowed in {scope.clause}", sqlstate="42803")
        sorted_by = order.expressions[0]
        inner = sorted_by.this if isinstance(sorted_by, exp.Ordered) else sorted_by
        value = casts.plain(self.expression(inner, scope))
        if name == "mode":
            by = f" ORDER BY {value.sql}{direction(sorted_by)}"
            return self._settled(TypedSql(f"mode({value.sql}{by}){filter}", value.type), [value, *extra], False)
        place = self.expression(call.expressions[0], scope)
        function = "quantile_cont" if name == "percentile_cont" else "quantile_disc"
        if name == "percentile_cont" and value.type.name != "interval":
            value = casts.converted(value, FLOAT8)
        fraction = casts.converted(place, FLOAT8.array if place.type.is_array else FLOAT8, explicit=True)
        type = value.type.array if place.type.is_array else value.type
        if bool(isinstance(sorted_by, exp.Ordered) and sorted_by.args.get("desc")):
            fraction = fraction._replace(sql=f"(1 - {fraction.sql})")
        return self._settled(
            TypedSql(f"{function}({value.sql}, {fraction.sql}){filter}", type), [value, *extra], False
        )

    def _hypothetical(self, name: str, place: exp.Expr, by: exp.Expr, scope: Scope, filter: str,
                      extra: tuple[TypedSql, ...]) -> TypedSql:  # fmt: skip
        """The rank that a value would have among those of a group."""
        inner = by.this if isinstance(by, exp.Ordered) else by
        one, value = operators.matched("=", self.expression(inner, scope), self.expression(place, scope))
        less = ">" if isinstance(by, exp.Ordered) and by.args.get("desc") else "<"
        before = f"count(CASE WHEN {one.sql} {less} {value.sql} THEN 1 END){filter}"
        if name == "dense_rank":
            before = f"count(DISTINCT CASE WHEN {one.sql} {less} {value.sql} THEN {one.sql} END){filter}"
        if name in ("rank", "dense_rank"):
            return self._settled(TypedSql(f"({before} + 1)", INT8), [one, *extra], False)
        whole = f"CAST(count(*){filter} AS DOUBLE)"
        sql = f"(CASE WHEN {whole} = 0 THEN 0 ELSE {before} / {whole} END)"
        if name == "cume_dist":
            before = f"count(CASE WHEN {one.sql} {less}= {value.sql} THEN 1 END){filter}"
            sql = f"(({before} + 1) / ({whole} + 1))"
        return self._settled(TypedSql(sql, FLOAT8), [one, *extra], False)

    # windows

    def over(self, node: exp.Window, scope: Scope) -> TypedSql:
        if scope.clause in (*_NO_AGGREGATES, "HAVING"):
            raise SqlError(f"window functions are not allowed in {scope.clause}", sqlstate="42P20")
        before, scope.clause = scope.clause, "window"
        if before == "window":
            raise SqlError("window function calls cannot be nested", sqlstate="42P20")
        sql, parts = self.window(node, scope)
        over, inner = f" OVER ({sql})", node.this
        try:
            if isinstance(inner, exp.Filter):
                return self.filtered(inner, scope, over, tuple(parts))
            if not isinstance(inner, exp.Anonymous):
                raise SqlSyntaxError("OVER follows the call of a function")
            name = _called_name(inner)
            if name in WINDOWS:
                given = [self.expression(each, scope) for each in inner.expressions]
                found = calls.function(name, given, Modifiers(over=over), "window")
                return self._settled(found, [*given, *parts], True)
            if name not in AGGREGATES and name not in ("count", "avg"):
                given = [self.expression(each, scope) for each in inner.expressions]
                if name in SCALARS or name in calls.SPECIAL:
                    raise SqlError(
                        f"OVER specified, but {name} is not a window function nor an aggregate function",
                        sqlstate="42809",
                    )
                raise calls.unknown_function(name, given)
            return self._aggregate(name, inner, scope, "", over, tuple(parts))
        finally:
            scope.clause = before

    def window(self, node: exp.Expr, scope: Scope) -> tuple[str, list[TypedSql]]:
        """The definition of a window, with that of the one that it refers to."""
        base = node.args.get("alias")
        partition = list(node.args.get("partition_by") or ())
        order, spec = node.args.get("order"), node.args.get("spec")
        while base is not None:
            name = name_of(base)
            if name not in scope.windows:
                raise UnknownNameError(f"window {name} does not exist", sqlstate="42704")
            other: Any = scope.windows[name]
            if partition or (order is not None and other.args.get("order") is not None):
                raise SqlError(f"cannot override a clause of window {name}", sqlstate="42P20")
            partition = partition or list(other.args.get("partition_by") or ())
            order = order or other.args.get("order")
            spec = spec or other.args.get("spec")
            base = other.args.get("alias")
        pieces, parts = [], []
        if partition:
            values = [self.expression(each, scope) for each in partition]
            values = [operators.keyed(each) if each.type.wide else each for each in values]
            parts += values
            pieces.append("PARTITION BY " + ", ".join(casts.plain(each).sql for each in values))
        if order is not None:
            sql, values = self.ordering(order, scope)
            parts += values
            pieces.append(f"ORDER BY {sql}")
        if spec is not None:
            pieces.append(self._frame(spec, scope))
        return " ".join(pieces), parts

    def _frame(self, spec: exp.Expr, scope: Scope) -> str:
        def end(value: Any, side: Any) -> str:
            if isinstance(value, str):
                return f"{value} {side or ''}".strip().upper()
            found = self.expression(value, scope)
            if found.type.name == "unknown":
                found = casts.converted(found, PgType("interval"))
            return f"{found.sql} {str(side).upper()}"

        start = end(spec.args.get("start"), spec.args.get("start_side"))
        last = spec.args.get("end")
        kind = str(spec.args.get("kind")).upper()
        exclude = spec.args.get("exclude")
        tail = f" EXCLUDE {exclude}" if exclude else ""
        if last is None:
            return f"{kind} {start}{tail}"
        return f"{kind} BETWEEN {start} AND {end(last, spec.args.get('end_side'))}{tail}"


def direction(node: exp.Expr) -> str:
    """ASC or DESC, and where NULLs stand."""
    if not isinstance(node, exp.Ordered):
        return " ASC NULLS LAST"
    down, first = bool(node.args.get("desc")), node.args.get("nulls_first")
    first = down if first is None else first
    return f" {'DESC' if down else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"


def _called_name(node: exp.Expr) -> str:
    this = node.this
    return str(this if isinstance(this, str) else name_of(this)).lower()
