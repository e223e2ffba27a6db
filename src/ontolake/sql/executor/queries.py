"""Queries: PostgreSQL's into DuckDB's, with the names and types of what they give."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from ontolake.sql.errors import SqlError, SqlSyntaxError, TypeMismatchError, UnsupportedError
from ontolake.sql.executor import casts, operators, records
from ontolake.sql.executor.aggregates import direction
from ontolake.sql.executor.names import output_name
from ontolake.sql.executor.parameter_types import learning
from ontolake.sql.executor.pg_types import DIGITS, INT8, RECORD, REGS, TEXT, VECTORS, PgType, common, numeric
from ontolake.sql.executor.scopes import CompiledQuery, Cte, Output, Scope, VisibleColumn
from ontolake.sql.executor.sources import FromCompiler
from ontolake.sql.executor.typed import TypedSql
from ontolake.sql.syntax.dialect import DIALECT
from ontolake.sql.syntax.statements import name_of

_CLAUSES = {"with_", "expressions", "from_", "joins", "laterals", "where", "group", "having", "windows", "distinct",
            "order", "limit", "offset", "locks", "kind", "operation_modifiers", "hint"}  # fmt: skip
_VERBS: dict[type[exp.Expr], str] = {exp.Union: "UNION", exp.Intersect: "INTERSECT", exp.Except: "EXCEPT"}


class Queries(FromCompiler):
    """Compiles queries."""

    def statement(self, node: exp.Expr) -> CompiledQuery:
        """A whole statement, whose rows are handed out: rows within them are text. Raises `SqlError`."""
        found = self.query(node, None)
        if not any(map(_is_shown, found.outputs)):
            return found
        name = self.fresh()
        parts, outputs = [], []
        for n, output in enumerate(found.outputs):
            is_shown = _is_shown(output)
            sql = casts.as_text(f"{name}.c{n}", output.type) if is_shown else f"{name}.c{n}"
            parts.append(f"{sql} AS c{n}")
            is_record = output.type.name.rstrip("[]") == "record"
            outputs.append(Output(output.name, RECORD) if is_record else output)
        return found._replace(sql=f"SELECT {', '.join(parts)} FROM ({found.sql}) AS {name}", outputs=outputs)

    def query(self, node: exp.Expr, parent: Scope | None) -> CompiledQuery:
        """A query of any kind. Raises `SqlError`."""
        if isinstance(node, exp.Select):
            return self._select(node, parent)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, parent)
        if isinstance(node, exp.Values):
            return self._values(node, parent)
        if isinstance(node, exp.Subquery | exp.Paren):
            return self._nested(node, parent)
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            return self._select(exp.select("*").from_(node.copy()), parent)
        raise UnsupportedError(f"{node.sql(DIALECT)[:60]} is not supported as a query")

    def _nested(self, node: exp.Expr, parent: Scope | None) -> CompiledQuery:
        """A query in parentheses, which may have clauses of its own."""
        outside = [each for each in ("with_", "order", "limit", "offset") if node.args.get(each)]
        if not outside:
            return self.query(node.this, parent)
        scope = Scope(parent)
        prefix = self._with(node, scope)
        inner = self.query(node.this, scope)
        tail = self._tail(node, inner, scope)
        return inner._replace(sql=f"{prefix}SELECT * FROM ({inner.sql}) AS {self.fresh()}{tail}")

    # WITH

    def _with(self, node: exp.Expr, scope: Scope) -> str:
        clause = node.args.get("with_")
        if clause is None:
            return ""
        parts: list[str] = []
        recursive = False
        for each in clause.expressions:
            name = name_of(each.args["alias"].this)
            if name in scope.ctes:
                raise SqlError(f'WITH query name "{name}" specified more than once', sqlstate="42712")
            if not isinstance(each.this, exp.Query | exp.Values):
                raise UnsupportedError(
                    f"{each.this.key.upper()} within WITH is not supported", hint="run it by itself, in one transaction"
                )
            alias = self.fresh("w")
            is_recursive = bool(clause.args.get("recursive")) and any(
                name_of(table.this) == name and not table.args.get("db") for table in each.this.find_all(exp.Table)
            )
            recursive = recursive or is_recursive
            query = self._recursive(each, name, alias, scope) if is_recursive else self.query(each.this, scope)
            names = [name_of(column) for column in each.args["alias"].columns]
            if len(names) > len(query.outputs):
                raise SqlError(f"WITH query {name} has {len(query.outputs)} columns available but {len(names)} columns "
                               "specified", sqlstate="42P10")  # fmt: skip
            scope.ctes[name] = Cte(alias, _outputs(query.outputs, names))
            kept = each.args.get("materialized")
            how = "MATERIALIZED " if query.volatile or kept else "NOT MATERIALIZED " if kept is False else ""
            columns = ", ".join(f"c{n}" for n in range(len(query.outputs)))
            parts.append(f"{alias}({columns}) AS {'' if is_recursive else how}({query.sql})")
        return f"WITH {'RECURSIVE ' * recursive}{', '.join(parts)} "

    def _recursive(self, node: exp.CTE, name: str, alias: str, scope: Scope) -> CompiledQuery:
        body = node.this
        while isinstance(body, exp.Subquery) and not body.args.get("order"):
            body = body.this
        if not isinstance(body, exp.Union) or body.args.get("order") or body.args.get("limit"):
            raise SqlError(f'recursive query "{name}" does not have the form non-recursive-term UNION [ALL] '
                           "recursive-term", sqlstate="42P19")  # fmt: skip
        inner = Scope(scope)
        prefix = self._with(body, inner)
        first = self.query(body.this, inner)
        names = [name_of(column) for column in node.args["alias"].columns]
        types = [numeric(each.type.scale) if each.type.name == "numeric" else TEXT if each.type.name == "unknown" else
                 each.type for each in first.outputs]  # fmt: skip
        outputs = [Output(each.name, type) for each, type in zip(first.outputs, types, strict=True)]
        inner.ctes[name] = Cte(alias, _outputs(outputs, names))
        second = self.query(body.expression, inner)
        if len(second.outputs) != len(outputs):
            raise SqlSyntaxError("each UNION query must have the same number of columns")
        for number, (one, other) in enumerate(zip(outputs, second.outputs, strict=True), 1):
            if other.type.name not in (one.type.name, "unknown") and common([one.type, other.type]) != one.type and not (  # noqa: E501
                    one.type.family == other.type.family == "S"):  # fmt: skip
                raise TypeMismatchError(f'recursive query "{name}" column {number} has type {one.type.shown} in '
                                        f"non-recursive term but type {other.type.shown} overall")  # fmt: skip
        arms = [self._cast_arm(each, types) for each in (first, second)]
        word = "UNION" if body.args.get("distinct") else "UNION ALL"
        return CompiledQuery(f"{prefix}{arms[0]} {word} {arms[1]}", outputs, first.loose | second.loose)

    def _cast_arm(self, query: CompiledQuery, types: Sequence[PgType]) -> str:
        """A query as one that gives columns of these types."""
        if all(each.type == type for each, type in zip(query.outputs, types, strict=True)):
            return f"({query.sql})"
        name = self.fresh()
        parts = []
        for n, (output, type) in enumerate(zip(query.outputs, types, strict=True)):
            literal = query.literals[n] if n < len(query.literals) else None
            value = literal if literal is not None else TypedSql(f"{name}.c{n}", output.type)
            if value.type == type:
                found = value
            elif type.name == "numeric" and value.type.family == "N" and not type.wide:
                found = TypedSql(f"CAST({value.sql} AS {type.duck})", type)
            else:
                found = casts.converted(value, type, explicit=value.type.name != "unknown")
            parts.append(f"{found.sql} AS c{n}")
        return f"(SELECT {', '.join(parts)} FROM ({query.sql}) AS {name})"

    # set operations and VALUES

    def _set_operation(self, node: exp.SetOperation, parent: Scope | None) -> CompiledQuery:
        scope = Scope(parent)
        prefix = self._with(node, scope)
        verb = _VERBS[type(node)]
        if node.args.get("by_name") or node.args.get("side"):
            raise SqlSyntaxError(f"{verb} BY NAME cannot be read")
        left, right = self.query(node.this, scope), self.query(node.expression, scope)
        if len(left.outputs) != len(right.outputs):
            raise SqlSyntaxError(f"each {verb} query must have the same number of columns")
        outputs = []
        for one, other in zip(left.outputs, right.outputs, strict=True):
            found = common([one.type, other.type])
            if found is None:
                raise TypeMismatchError(
                    f"{verb} types {one.type.shown} and {other.type.shown} cannot be matched",
                    hint="convert one with CAST",
                )
            if {one.type.name, other.type.name} == {"unknown"}:
                found = TEXT
            if found.name == "json" and (verb != "UNION" or node.args.get("distinct")):
                raise SqlError("could not identify an equality operator for type json", sqlstate="42883")
            if verb != "UNION" or node.args.get("distinct"):
                _check_distinct(found, verb)
            outputs.append(Output(one.name, found))
        arms = [self._matching_arm(each, outputs) for each in (left, right)]
        word = verb if node.args.get("distinct") else f"{verb} ALL"
        whole = CompiledQuery(f"{arms[0]} {word} {arms[1]}", outputs, left.loose | right.loose, left.volatile or right.volatile)  # noqa: E501
        tail = self._tail(node, whole, scope)
        if not tail:
            return whole._replace(sql=prefix + whole.sql)
        return whole._replace(sql=f"{prefix}SELECT * FROM ({whole.sql}) AS {self.fresh()}{tail}")

    def _matching_arm(self, query: CompiledQuery, outputs: Sequence[Output]) -> str:
        """An arm of a set operation. DuckDB brings numbers together itself."""
        types = [query.outputs[n].type if each.type.family == query.outputs[n].type.family == "N" and not each.type.wide
                 else each.type for n, each in enumerate(outputs)]  # fmt: skip
        return self._cast_arm(query, types)

    def _values(self, node: exp.Values, parent: Scope | None) -> CompiledQuery:
        scope = Scope(parent, clause="VALUES")
        rows = [[self.expression(each, scope) for each in (row.expressions if isinstance(row, exp.Tuple) else [
            row.this if isinstance(row, exp.Paren) else row])] for row in node.expressions]  # fmt: skip
        if len({len(row) for row in rows}) != 1:
            raise SqlSyntaxError("VALUES lists must all be the same length")
        columns = [operators.unified(list(column), "VALUES") for column in zip(*rows, strict=True)]
        outputs = [Output(f"column{n}", common([each.type for each in column]) or TEXT)
                   for n, column in enumerate(columns, 1)]  # fmt: skip
        text = ", ".join(f"({', '.join(each.sql for each in row)})" for row in zip(*columns, strict=True))
        names = ", ".join(f"c{n}" for n in range(len(columns)))
        loose = frozenset().union(*(each.loose for column in columns for each in column))
        volatile = any(each.volatile for column in columns for each in column)
        found = CompiledQuery(f"SELECT * FROM (VALUES {text}) AS {self.fresh()}({names})", outputs, loose, volatile)
        tail = self._tail(node, found, Scope(parent))
        return found._replace(sql=found.sql + tail) if tail else found

    def _tail(self, node: exp.Expr, query: CompiledQuery, scope: Scope) -> str:
        """ORDER BY, LIMIT and OFFSET over the outputs of a query."""
        order = node.args.get("order")
        parts = []
        for each in order.expressions if order is not None else ():
            inner = each.this if isinstance(each, exp.Ordered) else each
            place = self._place(inner, query.outputs)
            if place is None:
                if isinstance(inner, exp.Column):
                    raise SqlError(f"column {name_of(inner.this)} does not exist", sqlstate="42703")
                raise UnsupportedError(
                    "invalid UNION/INTERSECT/EXCEPT ORDER BY clause",
                    hint="only result column names can be used, not expressions or functions",
                )
            _check_distinct(query.outputs[place].type, "ORDER BY of a set operation")
            parts.append(f"{place + 1}{direction(each)}")
        by = f" ORDER BY {', '.join(parts)}" if parts else ""
        return by + self._limits(node, scope)

    def _place(self, node: exp.Expr, outputs: Sequence[Output]) -> int | None:
        """The output that ORDER BY means by a number or a name; None if it means an expression."""
        if isinstance(node, exp.Literal):
            if node.is_string or not node.this.isdigit():
                raise SqlSyntaxError("non-integer constant in ORDER BY")
            place = int(node.this) - 1
            if not 0 <= place < len(outputs):
                raise SqlError(f"ORDER BY position {place + 1} is not in select list", sqlstate="42P10")
            return place
        if isinstance(node, exp.Column) and not node.args.get("table"):
            found = [n for n, each in enumerate(outputs) if each.name == name_of(node.this)]
            return found[0] if found else None
        return None

    def _limits(self, node: exp.Expr, scope: Scope) -> str:
        limit, offset = node.args.get("limit"), node.args.get("offset")
        if isinstance(limit, exp.Fetch):
            options = limit.args.get("limit_options")
            if options is not None and options.args.get("percent"):
                raise SqlSyntaxError("FETCH has no PERCENT")
            if options is not None and options.args.get("with_ties"):
                if not isinstance(node, exp.Select) or node.args.get("distinct"):
                    raise UnsupportedError("FETCH … WITH TIES is not supported with DISTINCT and set operations",
                                           hint="put the query in FROM of another")
                limit = None  # the rows are counted before
            elif limit is not None:
                limit = exp.Limit(expression=limit.args.get("count") or exp.Literal.number(1))
        text = ""
        for part, word, state in ((limit, "LIMIT", "2201W"), (offset, "OFFSET", "2201X")):
            if part is None or part.expression is None:
                continue
            outer = Scope(scope.parent, ctes=scope.ctes, clause=word)
            value = self.expression(part.expression, outer)
            if value.is_null:
                continue
            if value.value is not None and value.value < 0:
                raise SqlError(f"{word} must not be negative", sqlstate=state)
            if value.type.family not in "NX":
                raise TypeMismatchError(f"argument of {word} must be type bigint, not type {value.type.shown}")
            number = casts.converted(value, INT8, explicit=True)
            text += f" {word} {value.value if value.value is not None else f'({number.sql})'}"
        return text

    # SELECT

    def _select(self, node: exp.Select, parent: Scope | None) -> CompiledQuery:
        for name, given in node.args.items():
            if given and name not in _CLAUSES:
                raise SqlSyntaxError(f"{name.strip('_').upper()} cannot be read here")
        scope = Scope(parent)
        prefix = self._with(node, scope)
        source = self.from_clause(node, scope)
        scope.windows = {name_of(each.this): each for each in node.args.get("windows") or ()}
        where = node.args.get("where")
        test = None if where is None else self.condition(where.this, scope, "WHERE")
        items = self._items(node, scope)
        group, groups, is_sets = self._group(node, items, scope)
        scope.groups = frozenset(groups)
        values = [each if isinstance(each, TypedSql) else self.expression(each, scope) for _, each in items]
        if not values and not node.expressions:
            values, items = [TypedSql("NULL", TEXT)], [("", exp.Null())]
        outputs = [Output(name, value.type) for (name, _), value in zip(items, values, strict=True)]
        having = None
        if node.args.get("having") is not None:
            having = self.condition(node.args["having"].this, scope, "HAVING")
        order = self._order(node, outputs, values, scope)
        grouped = bool(group) or having is not None or any(
            each.aggregates for each in (*values, *(value for _, value in order)))  # fmt: skip
        extra: list[str] = []
        if grouped:
            checked = [*values, *([having] if having is not None else []), *(value for _, value in order)]
            extra = self._check_groups(checked, scope, {} if is_sets else groups)
        distinct = self._distinct(node, scope, outputs, values, order)
        everything = [*values, *(value for _, value in order), *(each for each in (test, having) if each is not None)]
        sql = "SELECT " + distinct + ", ".join(
            f"{self._output(value).sql} AS c{n}" for n, value in enumerate(values)) + source  # fmt: skip
        sql += f" WHERE {test.sql}" if test is not None else ""
        if group or extra:
            sql += f" GROUP BY {', '.join([*group, *extra])}"
        sql += f" HAVING {having.sql}" if having is not None else ""
        sql += self._ties(node, order, scope)
        if order:
            sql += " ORDER BY " + ", ".join(text for text, _ in order)
        sql += self._limits(node, scope)
        own = {column.sql for relation in scope.relations for column in relation.columns}
        loose = frozenset().union(*(each.loose | each.inner for each in everything)) - own
        literals = tuple(each if each.type.name == "unknown" else None for each in values)
        volatile = any(each.volatile for each in everything)
        return CompiledQuery(prefix + sql, outputs, loose, volatile, literals)

    def _ties(self, node: exp.Select, order: Sequence[tuple[str, TypedSql]], scope: Scope) -> str:
        """`FETCH FIRST n ROWS WITH TIES`: rows that are among the first, or equal to the last of these."""
        limit = node.args.get("limit")
        options = limit.args.get("limit_options") if isinstance(limit, exp.Fetch) else None
        if limit is None or options is None or not options.args.get("with_ties"):
            return ""
        if not order:
            raise SqlSyntaxError("WITH TIES cannot be specified without ORDER BY clause")
        outer = Scope(scope.parent, ctes=scope.ctes, clause="LIMIT")
        counts = [limit.args.get("count") or exp.Literal.number(1)]
        counts += [node.args["offset"].expression] if node.args.get("offset") is not None else []
        last = " + ".join(casts.converted(self.expression(each, outer), INT8, explicit=True).sql for each in counts)
        by = ", ".join(value.sql + direction(each)
                       for (_, value), each in zip(order, node.args["order"].expressions, strict=True))  # fmt: skip
        return f" QUALIFY rank() OVER (ORDER BY {by}) <= {last}"

    def _output(self, value: TypedSql) -> TypedSql:
        """A value that a query gives: text of no type is text."""
        if value.text is None and learning() is not None:  # a parameter may get another type further out
            return value
        return casts.converted(value, TEXT) if value.type.name == "unknown" else value

    def _items(self, node: exp.Select, scope: Scope) -> list[tuple[str, exp.Expr | TypedSql]]:
        """The outputs and their names; stars are spelled out."""
        items: list[tuple[str, exp.Expr | TypedSql]] = []
        for each in node.expressions:
            if isinstance(each, exp.Star) or (isinstance(each, exp.Column) and isinstance(each.this, exp.Star)):
                items += [(column.name, column.typed()) for column in self._star(each, scope)]
            elif isinstance(each, exp.Dot) and isinstance(each.expression, exp.Star):
                items += records.fields(self.expression(each.this, scope))
            else:
                inner = each.this if isinstance(each, exp.Alias) else each
                if isinstance(each, exp.Aliases) or isinstance(inner, exp.PropertyEQ):
                    raise SqlSyntaxError(f"{each.sql(DIALECT)} cannot be read")
                items.append((output_name(each), inner))
        return items

    def _star(self, node: exp.Expr, scope: Scope) -> list[VisibleColumn]:
        star = node.this if isinstance(node, exp.Column) else node
        if any(star.args.get(name) for name in ("except_", "replace", "rename")):
            raise SqlSyntaxError("* takes no further words")
        if not isinstance(node, exp.Column):
            if not scope.relations:
                raise SqlSyntaxError("SELECT * with no tables specified is not valid")
            return scope.columns
        return scope.star(node)

    # GROUP BY, DISTINCT and ORDER BY

    def _group(self, node: exp.Select, items: list[tuple[str, exp.Expr | TypedSql]], scope: Scope
               ) -> tuple[list[str], dict[str, TypedSql], bool]:  # fmt: skip
        """The texts of GROUP BY, the expressions in it, and whether it has grouping sets."""
        clause = node.args.get("group")
        if clause is None:
            return [], {}, False
        if clause.args.get("all") or clause.args.get("totals"):
            raise SqlSyntaxError("GROUP BY ALL cannot be read")
        groups: dict[str, TypedSql] = {}
        scope.clause = "GROUP BY"

        def text(part: exp.Expr) -> str:
            if isinstance(part, exp.GroupingSets):
                return f"GROUPING SETS ({', '.join(text(each) for each in part.expressions)})"
            if isinstance(part, exp.Rollup | exp.Cube):
                word = "ROLLUP" if isinstance(part, exp.Rollup) else "CUBE"
                return f"{word} ({', '.join(text(each) for each in part.expressions)})"
            if isinstance(part, exp.Tuple):
                return f"({', '.join(text(each) for each in part.expressions)})"
            value = self._grouped_by(part, items, scope)
            groups[value.sql] = value
            return value.sql

        parts = [text(each) for each in clause.expressions]
        for name, word in (("grouping_sets", "GROUPING SETS"), ("rollup", "ROLLUP"), ("cube", "CUBE")):
            parts += [text(each) if isinstance(each, exp.GroupingSets | exp.Rollup | exp.Cube) else f"{word} ({text(each)})"  # noqa: E501
                      for each in clause.args.get(name) or () if not isinstance(each, bool)]  # fmt: skip
        scope.clause = ""
        is_sets = any(isinstance(each, exp.GroupingSets | exp.Rollup | exp.Cube) for each in clause.expressions) or any(
            clause.args.get(name) for name in ("grouping_sets", "rollup", "cube"))  # fmt: skip
        return parts or (["()"] if is_sets else []), groups, is_sets

    def _grouped_by(self, part: exp.Expr, items: list[tuple[str, exp.Expr | TypedSql]], scope: Scope) -> TypedSql:
        while isinstance(part, exp.Paren):
            part = part.this
        chosen: exp.Expr | TypedSql = part
        if isinstance(part, exp.Literal):
            if part.is_string or not part.this.isdigit():
                raise SqlSyntaxError("non-integer constant in GROUP BY")
            place = int(part.this) - 1
            if not 0 <= place < len(items):
                raise SqlError(f"GROUP BY position {place + 1} is not in select list", sqlstate="42P10")
            chosen = items[place][1]
        elif isinstance(part, exp.Column) and not part.args.get("table"):
            name = name_of(part.this)
            if not any(column.name == name for column in scope.columns):
                found = [each for each_name, each in items if each_name == name]
                if len(found) > 1:
                    raise SqlError(f"GROUP BY {name} is ambiguous", sqlstate="42702")
                chosen = found[0] if found else part
        value = chosen if isinstance(chosen, TypedSql) else self.expression(chosen, scope)
        if value.type.name == "json":
            raise SqlError("could not identify an equality operator for type json", sqlstate="42883")
        _check_distinct(value.type, "GROUP BY")
        return self._output(value) if value.type.name == "unknown" else value

    def _check_groups(self, values: Sequence[TypedSql], scope: Scope, groups: dict[str, TypedSql]) -> list[str]:
        """Raise 42803 for a column that is neither grouped nor aggregated.

        Columns that hang on a key that is grouped by are allowed; these are returned, to be grouped by as well.
        """
        free = {column.sql: relation for relation in scope.relations for column in relation.columns}
        found: list[str] = []
        for value in values:
            for column in sorted(value.loose):
                if column not in free or column in scope.groups or column in found:
                    continue
                relation = free[column]
                if not relation.key or not relation.key <= groups.keys():
                    name = next(each.name for each in relation.columns if each.sql == column)
                    raise SqlError(f'column "{relation.name}.{name}" must appear in the GROUP BY clause or be used in an '  # noqa: E501
                                   "aggregate function", sqlstate="42803")  # fmt: skip
                found.append(column)
        return found

    def _order(self, node: exp.Select, outputs: Sequence[Output], values: Sequence[TypedSql], scope: Scope
               ) -> list[tuple[str, TypedSql]]:  # fmt: skip
        clause = node.args.get("order")
        found: list[tuple[str, TypedSql]] = []
        for each in clause.expressions if clause is not None else ():
            inner = each.this if isinstance(each, exp.Ordered) else each
            place = self._place(inner, outputs)
            if place is not None:
                same = {values[n].sql for n, output in enumerate(outputs) if output.name == outputs[place].name}
                if len(same) > 1 and isinstance(inner, exp.Column):
                    raise SqlError(f"ORDER BY {outputs[place].name} is ambiguous", sqlstate="42702")
                value = values[place] if node.args.get("distinct") else self.sortable(values[place])
                found.append((f"{place + 1}{direction(each)}" if value is values[place] or values[place].type.name == "unknown"  # noqa: E501
                              else value.sql + direction(each), values[place]))  # fmt: skip
                continue
            value = self.sortable(self.expression(inner, scope))
            match = next((n for n, output in enumerate(values) if output.sql == value.sql), None)
            found.append((f"{value.sql if match is None else match + 1}{direction(each)}", value))
        return found

    def _distinct(self, node: exp.Select, scope: Scope, outputs: Sequence[Output], values: Sequence[TypedSql],
                  order: Sequence[tuple[str, TypedSql]]) -> str:  # fmt: skip
        clause = node.args.get("distinct")
        if clause is None:
            return ""
        for output in outputs:
            if output.type.name == "json" and clause.args.get("on") is None:
                raise SqlError("could not identify an equality operator for type json", sqlstate="42883")
            _check_distinct(output.type, "DISTINCT")
        texts = {value.sql for value in values}
        on = clause.args.get("on")
        if on is None:
            if any(value.sql not in texts for _, value in order):
                raise SqlError("for SELECT DISTINCT, ORDER BY expressions must appear in select list", sqlstate="42P10")
            return "DISTINCT "
        parts = []
        for each in on.expressions if isinstance(on, exp.Tuple) else [on.this if isinstance(on, exp.Paren) else on]:
            place = self._place(each, outputs)
            parts.append(values[place] if place is not None else self.expression(each, scope))
        wanted = {part.sql for part in parts}
        for number, (_, value) in enumerate(order):
            if number < len(wanted) and value.sql not in wanted:
                raise SqlError(
                    "SELECT DISTINCT ON expressions must match initial ORDER BY expressions", sqlstate="42P10"
                )
        return f"DISTINCT ON ({', '.join(part.sql for part in parts)}) "


def _is_shown(output: Output) -> bool:
    """Whether values are handed out as text: rows, and numbers that stand for names."""
    return output.type.name.rstrip("[]") == "record" or output.type.name in REGS or output.type.name in VECTORS


def _check_distinct(type: PgType, clause: str) -> None:
    """Raise `UnsupportedError` for a numeric that is a text: equal ones may have different scales."""
    if type.wide:
        raise UnsupportedError(f"{clause} is not supported for numbers of more than 38 digits, NaN and infinities",
                               hint="convert them to double precision, or to text")


def _outputs(outputs: Sequence[Output], names: Sequence[str]) -> list[Output]:
    """Outputs under other names; text of no type has become text."""
    return [Output(names[n] if n < len(names) else each.name, TEXT if each.type.name == "unknown" else each.type)
            for n, each in enumerate(outputs)]  # fmt: skip


__all__ = ["DIGITS", "Queries"]
