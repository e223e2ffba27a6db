"""Reflection: what SQLAlchemy's inspector asks, answered from the catalog that the connection sees."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import sqlalchemy
from sqlalchemy.engine import Connection, reflection
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.engine.reflection import ObjectKind, ObjectScope, ReflectionDefaults
from sqlalchemy.exc import NoSuchTableError

from ontolake.sql.catalog.objects import EnumMeta, ForeignKeyMeta, SchemaObject, SequenceMeta, ViewMeta
from ontolake.sql.catalog.records import PUBLIC, ColumnMeta, IndexMeta, SqlCatalog, Table
from ontolake.sql.sqlalchemy.types import reflected
from ontolake.sql.types import Type, from_arrow

_COUNTED = re.compile(r"NEXTVAL\((\d+)\)", re.IGNORECASE)
Reflected = Iterator[tuple[tuple[str | None, str], Any]]


class TableOrView(NamedTuple):
    """A table or view by its name."""

    name: str
    kind: ObjectKind
    scope: ObjectScope
    object: Table | ViewMeta


class SchemaView(NamedTuple):
    """A schema of a catalog, and what the connection calls it."""

    catalog: SqlCatalog
    schema: str
    default: str
    written: str | None
    """What the caller named the schema; None for the default one."""
    temporary: SqlCatalog | None = None

    @property
    def schema_ids(self) -> set[int]:
        """The ids of the schemas of this name, in the database at hand."""
        database = self.catalog.databases.get(self.catalog.default_database())
        return {each.schema_id for each in self.catalog.schemas.values()
                if each.schema_name == self.schema and (database is None or each.db_id == database.db_id)}  # fmt: skip

    def of_temporary(self) -> SchemaView:
        """The place of temporary tables, whose sequences are in a catalog of their own."""
        assert self.temporary is not None
        return self._replace(catalog=self.temporary)

    def name_of(self, schema_id: int) -> str:
        return next(each.schema_name for each in self.catalog.schemas.values() if each.schema_id == schema_id)

    def objects(self, kind: type[SchemaObject]) -> Iterator[Any]:
        """The views, sequences or enums of the schema."""
        ids = self.schema_ids
        return (each for (schema, _), each in self.catalog.objects.items() if schema in ids and isinstance(each, kind))

    def relations(self) -> Iterator[TableOrView]:
        """The tables and views of the schema, and temporary tables with the default one."""
        ids = self.schema_ids
        for (schema, name), table in self.catalog.tables.items():
            if schema in ids:
                yield TableOrView(name, ObjectKind.TABLE, ObjectScope.DEFAULT, table)
        for view in self.objects(ViewMeta):
            yield TableOrView(view.name, ObjectKind.VIEW, ObjectScope.DEFAULT, view)
        if self.temporary is not None and self.written is None:
            for table in self.temporary.by_id.values():
                yield TableOrView(table.name, ObjectKind.TABLE, ObjectScope.TEMPORARY, table)

    def referred(self, schema_id: int) -> str | None:
        """How another table is named: without a schema where that is the default one and the caller named none."""
        name = self.name_of(schema_id)
        return None if name == self.default and self.written is None else name

    def enum_schema(self, type: Type) -> str | None:
        """The schema of an enum, if a statement has to name it."""
        id = (type.item or type).type_id
        found = next((each for each in self.catalog.objects.values()
                      if isinstance(each, EnumMeta) and each.object_id == id), None)  # fmt: skip
        name = None if found is None else self.name_of(found.schema_id)
        return None if name == self.default else name


class CatalogReflection(DefaultDialect):
    """What a dialect reflects. Names of schemas are those of the database at hand."""

    def _place(self, connection: Connection, schema: str | None) -> SchemaView:
        opened: Any = connection.connection.dbapi_connection
        catalog, temporary = opened.catalogs()
        default = str(self.default_schema_name or opened.database.schema)
        return SchemaView(catalog, schema or default, default, schema, temporary)

    # names

    @reflection.cache
    def get_schema_names(self, connection: Connection, **kw: Any) -> list[str]:
        place = self._place(connection, None)
        return sorted({each.schema_name for each in place.catalog.schemas.values()} | {place.default})

    @reflection.cache
    def has_schema(self, connection: Connection, schema_name: str, **kw: Any) -> bool:
        return schema_name in self.get_schema_names(connection)

    def _relation_names(
        self, connection: Connection, schema: str | None, kind: ObjectKind, scope: ObjectScope
    ) -> list[str]:
        return sorted(each.name for each in self._place(connection, schema).relations()
                      if each.kind in kind and each.scope in scope)  # fmt: skip

    @reflection.cache
    def get_table_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        return self._relation_names(connection, schema, ObjectKind.TABLE, ObjectScope.DEFAULT)

    @reflection.cache
    def get_temp_table_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        return self._relation_names(connection, schema, ObjectKind.TABLE, ObjectScope.TEMPORARY)

    @reflection.cache
    def get_view_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        return self._relation_names(connection, schema, ObjectKind.VIEW, ObjectScope.DEFAULT)

    def get_materialized_view_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        return []

    def get_temp_view_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        return []

    def _get_foreign_table_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        return []

    @reflection.cache
    def get_sequence_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        return sorted(each.name for each in self._place(connection, schema).objects(SequenceMeta))

    @reflection.cache
    def has_sequence(self, connection: Connection, sequence_name: str, schema: str | None = None, **kw: Any) -> bool:
        return sequence_name in self.get_sequence_names(connection, schema)

    @reflection.cache
    def has_table(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> bool:
        self._ensure_has_table_connection(connection)
        return any(each.name == table_name for each in self._place(connection, schema).relations())

    def has_multi_table(
        self, connection: Connection, table_names: Collection[str], schema: str | None = None, **kw: Any
    ) -> Reflected:
        there = {each.name for each in self._place(connection, schema).relations()}
        return (((schema, name), name in there) for name in table_names)

    @reflection.cache
    def has_type(self, connection: Connection, type_name: str, schema: str | None = None, **kw: Any) -> bool:
        return any(each["name"] == type_name for each in self._load_enums(connection, schema))

    @reflection.cache
    def _load_enums(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[dict[str, Any]]:
        place = self._place(connection, None if schema == "*" else schema)
        enums = [each for each in place.catalog.objects.values() if isinstance(each, EnumMeta)] if schema == "*" else \
            list(place.objects(EnumMeta))  # fmt: skip
        return [{"name": each.name, "schema": place.name_of(each.schema_id),
                 "visible": place.name_of(each.schema_id) == place.default,
                 "labels": [label for label, _ in sorted(each.labels, key=lambda label: label[1])]}
                for each in sorted(enums, key=lambda each: each.name)]  # fmt: skip

    def _load_domains(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[dict[str, Any]]:
        return []

    @reflection.cache
    def get_view_definition(self, connection: Connection, view_name: str, schema: str | None = None, **kw: Any) -> str:
        for view in self._place(connection, schema).objects(ViewMeta):
            if view.name == view_name:
                return str(view.sql)
        raise NoSuchTableError(f"{schema}.{view_name}" if schema else view_name)

    # tables

    def _multi(
        self, connection: Connection, how: dict[str, Any], get: Callable[[SchemaView, TableOrView], Any],
        default: Callable[[], Any],
    ) -> Reflected:  # fmt: skip
        """What `get` says of each table that is asked for; of views the default, if `get` gives None."""
        place = self._place(connection, how.get("schema"))
        wanted = how.get("filter_names")
        for relation in place.relations():
            if relation.kind in how["kind"] and relation.scope in how["scope"] and (
                    not wanted or relation.name in wanted):
                found = get(place if relation.scope is ObjectScope.DEFAULT else place.of_temporary(), relation)
                yield (place.written, relation.name), default() if found is None else found

    def get_multi_columns(self, connection: Connection, **kw: Any) -> Reflected:
        def columns(place: SchemaView, relation: TableOrView) -> list[dict[str, Any]]:
            if isinstance(relation.object, ViewMeta):
                return _view_columns(connection, relation, place)
            return [_column(place, relation.object, each) for each in relation.object.visible]

        return self._multi(connection, kw, columns, ReflectionDefaults.columns)

    def get_multi_pk_constraint(self, connection: Connection, **kw: Any) -> Reflected:
        def key(place: SchemaView, relation: TableOrView) -> dict[str, Any] | None:
            table = relation.object
            if isinstance(table, ViewMeta) or any(each.hidden for each in table.primary_key):
                return None
            return {"name": table.key_name, "constrained_columns": [each.name for each in table.primary_key],
                    "comment": _comment(table, "constraint", table.key_name)}  # fmt: skip

        return self._multi(connection, kw, key, ReflectionDefaults.pk_constraint)

    def get_multi_foreign_keys(self, connection: Connection, **kw: Any) -> Reflected:
        def foreign_keys(place: SchemaView, relation: TableOrView) -> list[dict[str, Any]] | None:
            if isinstance(relation.object, ViewMeta):
                return None
            return [_foreign_key(place, relation.object, each)
                    for each in sorted(relation.object.foreign_keys, key=lambda each: each.name)]  # fmt: skip

        return self._multi(connection, kw, foreign_keys, ReflectionDefaults.foreign_keys)

    def get_multi_indexes(self, connection: Connection, **kw: Any) -> Reflected:
        def indexes(place: SchemaView, relation: TableOrView) -> list[dict[str, Any]]:
            return [_index(table, each) for table, each in _indexes(relation)]

        return self._multi(connection, kw, indexes, ReflectionDefaults.indexes)

    def get_multi_unique_constraints(self, connection: Connection, **kw: Any) -> Reflected:
        def rules(place: SchemaView, relation: TableOrView) -> list[dict[str, Any]]:
            return [_unique(table, each) for table, each in _indexes(relation) if each.constraint]

        return self._multi(connection, kw, rules, ReflectionDefaults.unique_constraints)

    def get_multi_check_constraints(self, connection: Connection, **kw: Any) -> Reflected:
        def checks(place: SchemaView, relation: TableOrView) -> list[dict[str, Any]] | None:
            table = relation.object
            if isinstance(table, ViewMeta):
                return None
            return [{"name": each.name, "sqltext": each.sql, "comment": _comment(table, "constraint", each.name)}
                    for each in sorted(table.meta.checks, key=lambda each: each.name)]  # fmt: skip

        return self._multi(connection, kw, checks, ReflectionDefaults.check_constraints)

    def get_multi_table_comment(self, connection: Connection, **kw: Any) -> Reflected:
        def comment(place: SchemaView, relation: TableOrView) -> dict[str, Any] | None:
            if isinstance(relation.object, ViewMeta):
                return None
            return {"text": _comment(relation.object, "table")}

        return self._multi(connection, kw, comment, ReflectionDefaults.table_comment)

    def get_multi_table_options(self, connection: Connection, **kw: Any) -> Reflected:
        return self._multi(connection, kw, lambda place, relation: None, ReflectionDefaults.table_options)


def _comment(table: Table, kind: str, part: str = "", part_id: int = 0) -> str | None:
    return next((each.text for each in table.comments
                 if (each.kind, each.part, each.part_id) == (kind, part, part_id)), None)  # fmt: skip


def _column(place: SchemaView, table: Table, column: ColumnMeta) -> dict[str, Any]:
    counted = next((each for each in table.parts if isinstance(each, SequenceMeta) and each.internal
                    and each.column_id == column.column_id), None)  # fmt: skip
    default = None if column.counting else _default(place, column)
    found: dict[str, Any] = {
        "name": column.name, "type": reflected(column.type, place.enum_schema(column.type)),
        "nullable": column.nullable, "default": None if column.generated else default,
        "autoincrement": bool(column.counting) or (default is not None and default.startswith("nextval(")),
        "comment": _comment(table, "column", part_id=column.column_id),
    }  # fmt: skip
    if column.generated:
        found["computed"] = {"sqltext": column.generated, "persisted": True}
    if counted is not None:
        found["identity"] = {
            "always": column.counting == "always", "start": counted.start, "increment": counted.increment,
            "minvalue": counted.least, "maxvalue": counted.greatest, "cycle": counted.cycle, "cache": counted.cache,
        }  # fmt: skip
    return found


def _default(place: SchemaView, column: ColumnMeta) -> str | None:
    """The default of a column as text; sequences, which the catalog has by id, by name."""
    def named(matched: re.Match[str]) -> str:
        sequence = next(each for each in place.catalog.objects.values()
                        if isinstance(each, SequenceMeta) and each.object_id == int(matched[1]))  # fmt: skip
        schema = place.name_of(sequence.schema_id)
        names = [sequence.name] if schema == place.default else [schema, sequence.name]
        return f"nextval('{'.'.join(map(_written, names))}'::regclass)"

    return None if column.default_expr is None else _COUNTED.sub(named, column.default_expr)


def _written(name: str) -> str:
    return name if re.fullmatch(r"[a-z_][a-z0-9_$]*", name) else '"' + name.replace('"', '""') + '"'


def _view_columns(connection: Connection, relation: TableOrView, place: SchemaView) -> list[dict[str, Any]]:
    """The columns of a view: their types are those of its rows."""
    empty = sqlalchemy.select(sqlalchemy.text("*")).select_from(sqlalchemy.table(relation.name, schema=place.written))
    cursor: Any = connection.execute(empty.limit(0)).cursor
    return [{"name": name, "type": reflected(from_arrow(type)), "nullable": True, "default": None,
             "autoincrement": False, "comment": None} for name, type, *_ in cursor.description]  # fmt: skip


def _foreign_key(place: SchemaView, table: Table, rule: ForeignKeyMeta) -> dict[str, Any]:
    parent = place.catalog.by_id[rule.parent_id]
    actions = {"onupdate": rule.on_update, "ondelete": rule.on_delete}
    options: dict[str, Any] = {name: action for name, action in actions.items() if action != "NO ACTION"}
    if rule.deferrable:
        options["deferrable"] = True
    if rule.deferred:
        options["initially"] = "DEFERRED"
    if rule.full:
        options["match"] = "FULL"
    return {
        "name": rule.name, "constrained_columns": [table.by_id[id].name for id in rule.column_ids],
        "referred_schema": place.referred(parent.meta.schema_id), "referred_table": parent.name,
        "referred_columns": [parent.by_id[id].name for id in rule.parent_column_ids], "options": options,
        "comment": _comment(table, "constraint", rule.name),
    }  # fmt: skip


def _indexes(relation: TableOrView) -> Iterator[tuple[Table, IndexMeta]]:
    """The indexes of a table that are built, by name."""
    table = relation.object
    if isinstance(table, Table):
        yield from ((table, each) for each in sorted(table.indexes, key=lambda each: each.name) if each.state == PUBLIC)


def _index(table: Table, index: IndexMeta) -> dict[str, Any]:
    parts = [(table.by_id[id].name, id < 0) for id in index.column_ids]
    found: dict[str, Any] = {"name": index.name, "unique": index.unique,
                             "column_names": [None if computed else name for name, computed in parts]}  # fmt: skip
    if index.expressions:
        found["expressions"] = [name for name, _ in parts]
    sorting = {name: ("desc",) for (name, _), desc in zip(parts, index.desc, strict=True) if desc}
    if sorting:
        found["column_sorting"] = sorting
    if index.constraint:
        found["duplicates_constraint"] = index.name
    options: dict[str, Any] = {"postgresql_include": [table.by_id[id].name for id in index.include_ids]}
    if index.predicate:
        options["postgresql_where"] = index.predicate
    found["dialect_options"] = options
    return found


def _unique(table: Table, index: IndexMeta) -> dict[str, Any]:
    found: dict[str, Any] = {"name": index.name, "column_names": [table.by_id[id].name for id in index.column_ids],
                             "comment": _comment(table, "constraint", index.name)}  # fmt: skip
    if index.include_ids:
        found["dialect_options"] = {"postgresql_include": [table.by_id[id].name for id in index.include_ids]}
    return found
