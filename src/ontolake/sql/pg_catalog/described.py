"""The objects of one database in PostgreSQL's terms: relations with numbers, columns, indexes and constraints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from sqlglot import exp

from ontolake.sql.catalog.objects import CommentMeta, EnumMeta, ForeignKeyMeta, SequenceMeta, ViewMeta
from ontolake.sql.catalog.records import PUBLIC as READY
from ontolake.sql.catalog.records import Check, ColumnMeta, IndexMeta, SqlCatalog, Table
from ontolake.sql.executor.pg_types import SHOWN
from ontolake.sql.pg_catalog import builtin, oids
from ontolake.sql.pg_catalog.definitions import Definitions
from ontolake.sql.pg_catalog.view_columns import column_types
from ontolake.sql.plan.foreign import ForeignTable
from ontolake.sql.plan.views import query_of
from ontolake.sql.syntax.statements import name_of, parse_expression
from ontolake.sql.types import Kind, Type, array_of
from ontolake.sql.types.oids import builtin_name, type_modifier, type_oid


class TypeNumber(NamedTuple):
    """A type as columns of system tables name it: its number, and what stands in its parentheses, or -1."""

    oid: int
    typmod: int = -1


class DescribedColumn(NamedTuple):
    """A column of a relation."""

    number: int
    name: str
    type: Type
    meta: ColumnMeta | None = None

    @property
    def not_null(self) -> bool:
        return self.meta is not None and not self.meta.nullable

    @property
    def identity(self) -> str:
        return {"always": "a", "default": "d"}.get(self.meta.counting, "") if self.meta is not None else ""

    @property
    def expression(self) -> str | None:
        """The SQL of the default, or of what the values are worked out by."""
        if self.meta is None or self.meta.counting:
            return None
        return self.meta.generated or self.meta.default_expr


@dataclass(frozen=True, eq=False)
class SqlRelation:
    """What has a row in `pg_class`."""

    oid: int
    name: str
    schema: str
    kind: str
    """r for a table, i for an index, v for a view, S for a sequence."""
    columns: tuple[DescribedColumn, ...] = ()
    table: Table | None = None
    view: ViewMeta | None = None
    sequence: SequenceMeta | None = None
    index: IndexMeta | None = None
    """The index; None for that of a primary key."""
    row_type: int = 0
    row_array: int = 0


@dataclass(frozen=True, eq=False)
class Constraint:
    """What has a row in `pg_constraint`."""

    oid: int
    name: str
    kind: str
    """p, u, f or c."""
    relation: SqlRelation
    index: SqlRelation | None = None
    foreign: ForeignKeyMeta | None = None
    check: Check | None = None


class Description(NamedTuple):
    """A comment: of what, and what it says."""

    oid: int
    class_name: str
    part: int
    text: str


class DescribedDatabase:
    """All objects of a database."""

    def __init__(
        self, catalog: SqlCatalog, database: str, mounted: Sequence[ForeignTable] = (), shown: str | None = None
    ) -> None:
        """`mounted` are tables that other stores keep, `shown` is what clients call the database."""
        self.catalog, self.database, self.shown = catalog, database, shown or database
        self._mounted = mounted
        self.owner = "ontolake"
        """The role that everything belongs to."""
        self.user_types: dict[int, dict[str, Any]] | None = None
        """The rows of types that are not built in, once they were asked for."""
        self._derived = oids.DerivedOids()
        self.definitions = Definitions(self)
        meta = catalog.databases.get(database)
        self._db_id = 0 if meta is None else meta.db_id
        self.schemas = {"pg_catalog": oids.PG_CATALOG, "information_schema": oids.INFORMATION_SCHEMA,
                        "public": oids.PUBLIC}  # fmt: skip
        """The numbers of schemas, by name."""
        self._schema_names: dict[int, str] = {}
        for (db_id, name), schema in sorted(catalog.schemas.items(), key=lambda each: each[1].schema_id):
            if db_id == self._db_id:
                self.schemas.setdefault(name, self._derived.of("schema", schema.schema_id))
                self._schema_names[schema.schema_id] = name
        for table in mounted:
            self.schemas.setdefault(table.schema, self._derived.of("mounted", table.schema))

    def database_oid(self, name: str) -> int:
        meta = self.catalog.databases.get(name)
        return self._derived.of("database", 0 if meta is None else meta.db_id)

    # relations

    @cached_property
    def relations(self) -> dict[int, SqlRelation]:
        """All relations of users, by number."""
        return {each.oid: each for each in self._relations()}

    def _relations(self) -> Iterator[SqlRelation]:
        for (schema_id, name), table in self.catalog.tables.items():
            schema = self._schema_names.get(schema_id)
            if schema is None:
                continue
            columns = self._columns(table)
            yield SqlRelation(oids.counted(table.id), name, schema, "r", columns, table=table,
                           row_type=self._derived.of("row", table.id),
                           row_array=self._derived.of("rows", table.id))  # fmt: skip
            yield from self._indexes(table, schema, {column.name: column for column in columns})
        for table in self._mounted:
            columns = tuple(DescribedColumn(n, each.name, each.type, each) for n, each in enumerate(table.visible, 1))
            oid = self._derived.of("mounted", table.schema, table.name)
            yield SqlRelation(oid, table.name, table.schema, "r", columns, table=table)
            yield from self._indexes(table, table.schema, {column.name: column for column in columns})
        for object in self.catalog.objects.values():
            schema = self._schema_names.get(object.schema_id)
            if schema is None:
                continue
            oid = oids.counted(object.object_id)
            if isinstance(object, ViewMeta):
                found = zip(object.columns, column_types(object, self.catalog), strict=True)
                yield SqlRelation(oid, object.name, schema, "v", tuple(
                    DescribedColumn(n, name, type) for n, (name, type) in enumerate(found, 1)), view=object,
                    row_type=self._derived.of("row", object.object_id),
                    row_array=self._derived.of("rows", object.object_id))  # fmt: skip
            elif isinstance(object, SequenceMeta):
                yield SqlRelation(oid, object.name, schema, "S", _SEQUENCE_COLUMNS, sequence=object)

    def _columns(self, table: Table) -> tuple[DescribedColumn, ...]:
        places = sorted((column for column in table.all_columns if not column.hidden), key=lambda each: each.ordinal)
        return tuple(DescribedColumn(n, column.name, column.type, column)
                     for n, column in enumerate(places, 1) if not column.dropped)

    def _indexes(self, table: Table, schema: str, columns: dict[str, DescribedColumn]) -> Iterator[SqlRelation]:
        if table.primary_key and all(column in table.visible for column in table.primary_key):
            inner = tuple(DescribedColumn(n, column.name, column.type)
                          for n, column in enumerate(table.primary_key, 1))  # fmt: skip
            yield SqlRelation(self._derived.of("key", table.id), table.key_name, schema, "i", inner, table=table)
        for index in table.indexes:
            if index.state != READY:
                continue
            found = []
            for n, id in enumerate((*index.column_ids, *index.include_ids), 1):
                if id > 0:
                    column = table.by_id[id]
                    found.append(DescribedColumn(n, column.name, column.type))
                else:
                    expression = index.expressions[-id % 100 - 1]
                    found.append(DescribedColumn(n, _expression_name(expression.sql), expression.type))
            oid = self._derived.of("index", table.id, index.index_id)
            yield SqlRelation(oid, index.name, schema, "i", tuple(found), table=table, index=index)

    @cached_property
    def by_name(self) -> dict[tuple[str, str], SqlRelation]:
        """Relations by schema and name."""
        return {(each.schema, each.name): each for each in self.relations.values()}

    @cached_property
    def of_tables(self) -> dict[int, SqlRelation]:
        """The relations of tables, by the ids of the tables."""
        return {each.table.id: each for each in self.relations.values() if each.kind == "r" and each.table is not None}

    def indexes_of(self, table: Table) -> list[SqlRelation]:
        """The indexes of a table, that of its primary key first."""
        return self._table_indexes.get(table.id, [])

    @cached_property
    def _table_indexes(self) -> dict[int, list[SqlRelation]]:
        found: dict[int, list[SqlRelation]] = {}
        for each in self.relations.values():
            if each.kind == "i" and each.table is not None:
                found.setdefault(each.table.id, []).append(each)
        return found

    # types

    @cached_property
    def enums(self) -> dict[int, tuple[EnumMeta, str]]:
        """Enums and their schemas, by number."""
        return {type_oid(each.type): (each, self._schema_names[each.schema_id])
                for each in self.catalog.objects.values()
                if isinstance(each, EnumMeta) and each.schema_id in self._schema_names}  # fmt: skip

    def enum_array(self, enum: EnumMeta) -> int:
        """The number of the type of arrays of an enum."""
        return type_oid(array_of(enum.type))

    def label_oid(self, enum: EnumMeta, label: str) -> int:
        return self._derived.of("label", enum.object_id, label)

    def type_number(self, type: Type) -> TypeNumber:
        """A type of a column in numbers."""
        return TypeNumber(type_oid(type), type_modifier(type))

    def type_text(self, type: Type) -> str:
        """A type as expressions name it, without what stands in parentheses."""
        if type.item is not None:
            return f"{self.type_text(type.item)}[]"
        return type.name if type.kind == Kind.ENUM else SHOWN.get(builtin_name(type), builtin_name(type))

    def type_schema(self, type: Type) -> str:
        """The schema of a type."""
        inner = type.item or type
        found = self.enums.get(type_oid(inner)) if inner.kind == Kind.ENUM else None
        return "pg_catalog" if found is None else found[1]

    def type_name(self, oid: int) -> str:
        """The name of a type, as `pg_type` has it."""
        if oid in self.enums:
            return self.enums[oid][0].name
        array = next((f"_{enum.name}" for enum, _ in self.enums.values() if self.enum_array(enum) == oid), "")
        return builtin.type_names().get(oid, array)

    def names_in(self, sql: str) -> set[str]:
        """The names of the columns in an expression."""
        return {name_of(each.this) for each in parse_expression(sql).find_all(exp.Column)}

    def tables_in(self, view: ViewMeta) -> list[SqlRelation]:
        """The relations that a view reads."""
        names = {(name_of(each.args.get("db")), name_of(each.this)) for each in query_of(view).find_all(exp.Table)}
        return [self.by_name[each] for each in sorted(names) if each in self.by_name]

    # constraints

    @cached_property
    def constraints(self) -> dict[int, Constraint]:
        """All constraints, by number."""
        return {each.oid: each for each in self._constraints()}

    def _constraints(self) -> Iterator[Constraint]:
        for id, relation in self.of_tables.items():
            table = relation.table
            assert table is not None
            for check in table.meta.checks:
                yield Constraint(self._derived.of("check", id, check.name), check.name, "c", relation, check=check)
            for index in self.indexes_of(table):
                if index.index is None:
                    yield Constraint(self._derived.of("primary", id), index.name, "p", relation, index)
                elif index.index.constraint:
                    yield Constraint(self._derived.of("unique", id, index.index.index_id), index.name, "u", relation,
                                     index)  # fmt: skip
            for foreign in table.foreign_keys:
                yield Constraint(oids.counted(foreign.object_id), foreign.name, "f", relation,
                                 self._referenced_index(foreign), foreign)  # fmt: skip

    def _referenced_index(self, foreign: ForeignKeyMeta) -> SqlRelation | None:
        """The index of the table that a foreign key names which makes its columns unique."""
        parent = self.catalog.by_id.get(foreign.parent_id)
        if parent is None:
            return None
        wanted = set(foreign.parent_column_ids)
        for each in self.indexes_of(parent):
            ids = parent.meta.primary_key_column_ids if each.index is None else each.index.column_ids
            if set(ids) == wanted and (each.index is None or each.index.unique):
                return each
        return None

    def rule_oid(self, view: ViewMeta) -> int:
        """The number of the rule by which a view is its query."""
        return self._derived.of("rule", view.object_id)

    def default_oid(self, table: Table, column: ColumnMeta) -> int:
        return self._derived.of("default", table.id, column.column_id)

    # comments

    @cached_property
    def comments(self) -> list[Description]:
        """What people say of objects."""
        found = [self._described(each) for each in self.catalog.records.values() if isinstance(each, CommentMeta)]
        return [each for each in found if each is not None]

    def _described(self, comment: CommentMeta) -> Description | None:
        oid = oids.counted(comment.object_id)
        if comment.kind == "schema":
            name = self._schema_names.get(comment.object_id)
            return None if name is None else Description(self.schemas[name], "pg_namespace", 0, comment.text)
        if comment.kind == "database":
            names = [name for name, each in self.catalog.databases.items() if each.db_id == comment.object_id]
            return Description(self.database_oid(names[0]), "pg_database", 0, comment.text) if names else None
        if comment.kind == "type":
            oid = type_oid(Type(Kind.ENUM, type_id=comment.object_id))
            return Description(oid, "pg_type", 0, comment.text) if oid in self.enums else None
        relation = self.relations.get(oid)
        if relation is None:
            return None
        if comment.kind == "column":
            number = next((each.number for each in relation.columns
                           if each.meta is not None and each.meta.column_id == comment.part_id), None)  # fmt: skip
            return None if number is None else Description(oid, "pg_class", number, comment.text)
        if comment.kind == "constraint":
            found = next((each.oid for each in self.constraints.values()
                          if each.relation.oid == oid and each.name == comment.part), None)  # fmt: skip
            return None if found is None else Description(found, "pg_constraint", 0, comment.text)
        if comment.kind == "index" and relation.table is not None:
            number = next((each.oid for each in self.indexes_of(relation.table)
                           if each.index is not None and each.index.index_id == comment.part_id), None)  # fmt: skip
            return None if number is None else Description(number, "pg_class", 0, comment.text)
        return Description(oid, "pg_class", 0, comment.text)


_SEQUENCE_COLUMNS = tuple(DescribedColumn(n, name, Type(kind)) for n, (name, kind) in enumerate(
    (("last_value", Kind.INT64), ("log_cnt", Kind.INT64), ("is_called", Kind.BOOLEAN)), 1))  # fmt: skip


def _expression_name(sql: str) -> str:
    """What a column of an index is called that is an expression: as the function, or `expr`."""
    name = sql.partition("(")[0].strip().lower()
    return name if name.isidentifier() and sql.endswith(")") else "expr"
