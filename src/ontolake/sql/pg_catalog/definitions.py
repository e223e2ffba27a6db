"""SQL that makes an object again: of indexes, constraints, views, defaults, as `pg_get_indexdef` and others give it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from ontolake.sql.catalog.records import Table
from ontolake.sql.executor.formats import quote_ident
from ontolake.sql.pg_catalog.expressions import ExpressionWriter
from ontolake.sql.plan.views import query_of
from ontolake.sql.syntax.dialect import DIALECT
from ontolake.sql.syntax.statements import name_of, parse_expression

if TYPE_CHECKING:
    from ontolake.sql.pg_catalog.described import Constraint, DescribedColumn, DescribedDatabase, SqlRelation

Path = Sequence[str]
"""The schemas whose objects are named without them."""


class Definitions:
    """Writes the definitions of the objects of a database."""

    def __init__(self, db: DescribedDatabase) -> None:
        self._db = db

    def named(self, relation: SqlRelation, path: Path) -> str:
        """The name of a relation, with its schema where that is not on the path."""
        name = quote_ident(relation.name)
        return name if self._is_first(relation, path) else f"{quote_ident(relation.schema)}.{name}"

    def _is_first(self, relation: SqlRelation, path: Path) -> bool:
        for schema in ("pg_catalog", *path):
            found = self._db.by_name.get((schema, relation.name))
            if found is not None:
                return found.oid == relation.oid
        return False

    def _writer(self, table: Table, *, pretty: bool, path: Path = ()) -> ExpressionWriter:
        types = {column.name: self._db.type_text(column.type) for column in table.columns}
        return ExpressionWriter(types, pretty=pretty, sequence=lambda id: self._sequence(id, path))

    def _sequence(self, id: int, path: Path) -> str:
        from ontolake.sql.pg_catalog import oids

        found = self._db.relations.get(oids.counted(id))
        return str(id) if found is None else self.named(found, path).replace("'", "''")

    # parts of tables

    def default(self, relation: SqlRelation, column: DescribedColumn, *, pretty: bool = False, path: Path = ()) -> str:
        """The default of a column, or what it is worked out by."""
        assert relation.table is not None
        assert column.expression is not None
        tree = parse_expression(column.expression)
        writer = self._writer(relation.table, pretty=pretty, path=path)
        if column.meta is not None and column.meta.generated:
            return writer.write(tree)
        return writer.default(tree, self._db.type_text(column.type))

    def check(self, constraint: Constraint, *, pretty: bool = False) -> str:
        """The condition of a CHECK."""
        assert constraint.check is not None
        assert constraint.relation.table is not None
        return self._writer(constraint.relation.table, pretty=pretty).write(parse_expression(constraint.check.sql))

    def constraint(self, constraint: Constraint, *, pretty: bool = False, path: Path = ()) -> str:
        """A constraint as CREATE TABLE has it."""
        table = constraint.relation.table
        assert table is not None
        if constraint.kind == "c":
            return f"CHECK ({self.check(constraint, pretty=pretty)})"
        if constraint.foreign is not None:
            return self._foreign(constraint, table, path)
        index = constraint.index
        ids = table.meta.primary_key_column_ids if index is None or index.index is None else index.index.column_ids
        word = "PRIMARY KEY" if constraint.kind == "p" else "UNIQUE"
        include = () if index is None or index.index is None else index.index.include_ids
        text = f"{word} ({_names(table, ids)})"
        return f"{text} INCLUDE ({_names(table, include)})" if include else text

    def _foreign(self, constraint: Constraint, table: Table, path: Path) -> str:
        foreign = constraint.foreign
        assert foreign is not None
        parent = self._db.of_tables[foreign.parent_id]
        assert parent.table is not None
        text = f"FOREIGN KEY ({_names(table, foreign.column_ids)}) REFERENCES {self.named(parent, path)}" \
               f"({_names(parent.table, foreign.parent_column_ids)})"  # fmt: skip
        text += " MATCH FULL" if foreign.full else ""
        text += f" ON UPDATE {foreign.on_update}" if foreign.on_update != "NO ACTION" else ""
        text += f" ON DELETE {foreign.on_delete}" if foreign.on_delete != "NO ACTION" else ""
        text += f" ({_names(table, foreign.set_ids)})" if foreign.set_ids else ""
        text += " DEFERRABLE" if foreign.deferrable else ""
        return text + (" INITIALLY DEFERRED" if foreign.deferred else "")

    # indexes

    def index_column(self, relation: SqlRelation, number: int, *, pretty: bool = False) -> str:
        """One column of an index, counted from 1."""
        index, table = relation.index, relation.table
        assert table is not None
        ids = table.meta.primary_key_column_ids if index is None else (*index.column_ids, *index.include_ids)
        if not 1 <= number <= len(ids):
            return ""
        id = ids[number - 1]
        if id > 0 or index is None:
            return quote_ident(table.by_id[id].name)
        expression = index.expressions[-id % 100 - 1]
        tree = parse_expression(expression.sql)
        text = self._writer(table, pretty=pretty).write(tree)
        is_call = isinstance(tree, exp.Func)
        return text if is_call or text.startswith("(") else f"({text})"

    def predicate(self, relation: SqlRelation, *, pretty: bool = False) -> str | None:
        """The condition of the rows that an index has."""
        index, table = relation.index, relation.table
        if index is None or not index.predicate or table is None:
            return None
        return self._writer(table, pretty=pretty).write(parse_expression(index.predicate))

    def index(self, relation: SqlRelation, *, pretty: bool = False, path: Path = ()) -> str:
        """CREATE INDEX."""
        index, table = relation.index, relation.table
        assert table is not None
        owner = self._db.of_tables[table.id]
        count = len(relation.columns) if index is None else len(index.column_ids)
        parts = []
        for n in range(1, count + 1):
            down = index is not None and index.desc[n - 1]
            parts.append(self.index_column(relation, n, pretty=pretty) + (" DESC" if down else ""))
        unique = "UNIQUE " if index is None or index.unique else ""
        shown = self.named(owner, path if pretty else ())
        text = f"CREATE {unique}INDEX {quote_ident(relation.name)} ON {shown} USING btree ({', '.join(parts)})"
        if index is not None and index.include_ids:
            text += f" INCLUDE ({_names(table, index.include_ids)})"
        condition = self.predicate(relation, pretty=pretty)
        return text if condition is None else f"{text} WHERE {condition}"

    # views

    def view(self, relation: SqlRelation, *, pretty: bool = False, path: Path = ("public",)) -> str:
        """The query of a view."""
        assert relation.view is not None
        query = query_of(relation.view)
        if isinstance(query, exp.Select) and (text := self._select(query, relation, pretty, path)) is not None:
            return f"{text};"
        return f" {query.sql(DIALECT)};"

    def _select(self, query: exp.Select, relation: SqlRelation, pretty: bool, path: Path) -> str | None:
        known = {"expressions", "from_", "where", "group", "having", "order", "joins", "limit"}
        if any(value for name, value in query.args.items() if name not in known and value):
            return None
        sources = self._sources(query, path)
        if sources is None or any(isinstance(each, exp.Query) for each in query.walk() if each is not query):
            return None
        writer, names, shown = sources
        outputs = [self._output(each, name, writer(pretty)) for each, name in
                   zip(query.expressions, relation.view.columns if relation.view else (), strict=False)]  # fmt: skip
        if any(each.is_star for each in query.expressions) or len(outputs) != len(query.expressions):
            return None
        text = f" SELECT {(',' + chr(10) + '    ').join(outputs)}"
        text += f"\n   FROM {shown}" if names else ""
        for part, word in (("where", "WHERE"), ("group", "GROUP BY"), ("having", "HAVING"), ("order", "ORDER BY")):
            clause = query.args.get(part)
            if clause is not None:
                nodes = clause.expressions if part in ("group", "order") else [clause.this]
                text += f"\n  {word} {', '.join(self._ordered(each, writer(pretty)) for each in nodes)}"
        if (limit := query.args.get("limit")) is not None:
            text += f"\n LIMIT {limit.expression.sql(DIALECT)}"
        return text

    def _ordered(self, node: exp.Expr, writer: ExpressionWriter) -> str:
        if isinstance(node, exp.Ordered):
            return writer.write(node.this) + (" DESC" if node.args.get("desc") else "")
        return writer.write(node)

    def _output(self, node: exp.Expr, name: str, writer: ExpressionWriter) -> str:
        inner = node.unalias()
        text = writer.write(inner)
        is_same = isinstance(inner, exp.Column) and name_of(inner.this) == name
        return text if is_same else f"{text} AS {quote_ident(name)}"

    def _sources(
        self, query: exp.Select, path: Path
    ) -> tuple[Callable[[bool], ExpressionWriter], list[str], str] | None:
        """How to write columns of the tables in FROM, their names, and FROM; None if there is more than tables."""
        first = query.args.get("from_")
        joins = query.args.get("joins") or []
        nodes = [first.this] if first is not None else []
        types: dict[str, str] = {}
        owners: dict[str, str] = {}
        names: list[str] = []
        texts: list[str] = []
        for node in (*nodes, *(join.this for join in joins)):
            relation = self._named(node) if isinstance(node, exp.Table) else None
            if relation is None:
                return None
            alias = node.alias or relation.name
            names.append(alias)
            texts.append(self.named(relation, path) + ("" if alias == relation.name else f" {quote_ident(alias)}"))
            for column in relation.columns:
                types[column.name] = self._db.type_text(column.type)
                owners.setdefault(column.name, alias)

        def writer(pretty: bool) -> ExpressionWriter:
            return ExpressionWriter(types, pretty=pretty, prefix=lambda table, name: quote_ident(
                table or owners.get(name, names[0] if names else "")) + "." if table or name in owners else "")

        shown = texts[0] if texts else ""
        for join, text in zip(joins, texts[1:], strict=True):
            word = " ".join(each for each in ((join.side or "").upper(), "JOIN") if each)
            on = join.args.get("on")
            if on is None or join.args.get("using") or join.method:
                return None
            condition = writer(True).write(on)
            shown += f"\n     {word} {text} ON {condition}"
        return writer, names, shown

    def _named(self, node: exp.Table) -> SqlRelation | None:
        return self._db.by_name.get((name_of(node.args.get("db")), name_of(node.this)))


def _names(table: Table, ids: Sequence[int]) -> str:
    return ", ".join(quote_ident(table.by_id[id].name) for id in ids)
