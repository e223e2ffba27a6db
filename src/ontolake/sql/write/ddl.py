"""Changing the catalog: databases, schemas, tables and columns. Each statement is one metadata transaction.

Ids come from counters that only grow; what is dropped leaves its id behind.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
from sqlglot import exp

from ontolake.sql import types
from ontolake.sql.catalog.coercion import coerced
from ontolake.sql.catalog.objects import CatalogObject, SchemaObject, SequenceMeta
from ontolake.sql.catalog.records import (
    DROPPED,
    Check,
    ColumnMeta,
    DatabaseMeta,
    IndexMeta,
    Record,
    SchemaMeta,
    SqlCatalog,
    Table,
    TableMeta,
    entries_of,
    in_order,
    now,
)  # fmt: skip
from ontolake.sql.errors import (
    DefinitionError,
    DuplicateNameError,
    SqlError,
    UnknownNameError,
    UnsupportedError,
)  # fmt: skip
from ontolake.sql.plan import execution
from ontolake.sql.syntax.definitions import OPTIONS, Defining
from ontolake.sql.syntax.statements import (
    DIALECT,
    ParsedStatement,
    name_of,
    parse_expression,
    position_of,
)  # fmt: skip
from ontolake.sql.types import Type
from ontolake.sql.write import defaults, enums, sequence_definitions, view_definitions
from ontolake.sql.write.properties import refuse_properties
from ontolake.sql.write.row_writer import RowWriter
from ontolake.sql.write.sequences import Numbers

if TYPE_CHECKING:
    from ontolake.sql.transactions import SqlSession, SqlTransaction

MAX_NAME = 63
HIDDEN = "onto_row"
"""The key of a table that has no primary key."""
PAGE = 10_000
DEFAULT_DATABASE, DEFAULT_SCHEMA = "main", "public"


class ReferenceClause(NamedTuple):
    """A foreign key as a statement describes it."""

    name: str | None
    columns: list[str]
    reference: exp.Expr
    holder: exp.Expr
    """The node that has the actions."""


@dataclass
class Definition:
    """A table as a statement describes it."""

    columns: list[ColumnMeta] = field(default_factory=list)
    primary_key: list[str] = field(default_factory=list)
    key_name: str = ""
    unique: list[tuple[str | None, list[str]]] = field(default_factory=list)
    checks: list[tuple[str | None, exp.Expr]] = field(default_factory=list)
    counting: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The options of the sequences of columns that count, by column."""
    references: list[ReferenceClause] = field(default_factory=list)


def _check_nulls(rule: exp.UniqueColumnConstraint) -> None:
    if rule.args.get("nulls"):
        raise UnsupportedError("UNIQUE NULLS NOT DISTINCT is not supported", hint="declare the columns NOT NULL")


class Definer:
    """Runs the statements that define things, inside one transaction."""

    def __init__(
        self, session: SqlSession, transaction: SqlTransaction, statement: ParsedStatement, database: str | None,
        schema: str,
    ) -> None:
        self.session = session
        self.transaction = transaction
        self.statement = statement
        self._database = database
        self._schema = schema
        self.writer = RowWriter(session.keyspace, transaction)
        self._going: set[int] = set()
        """The tables that a statement drops."""

    @property
    def catalog(self) -> SqlCatalog:
        return self.session.fresh_catalog(self.transaction)

    # names

    def names(self, node: exp.Table) -> tuple[str, str, str]:
        """The database, schema and name that a node means."""
        database = name_of(node.args.get("catalog")) or self._database or self.catalog.default_database()
        return database, name_of(node.args.get("db")) or self._schema, name_of(node.this)

    def table(self, node: exp.Table) -> Table:
        """The table that a node names. Raises `UnknownNameError`."""
        return self.catalog.table(*self.names(node), position_of(node, self.statement))

    def place(self, parts: Sequence[str]) -> tuple[str, str, str]:
        """The database, schema and name that parts of a name mean."""
        database = parts[-3] if len(parts) > 2 else self._database or self.catalog.default_database()
        return database, parts[-2] if len(parts) > 1 else self._schema, parts[-1]

    def new_place(self, parts: Sequence[str]) -> tuple[SchemaMeta, str]:
        """The schema of something that is to be made, and its name."""
        database, schema, name = self.place(parts)
        self.new_name(name, exp.Null())
        if len(parts) < 3:
            self._allocate(database, None if len(parts) > 1 else schema)
        return self.catalog.schema(database, schema), name

    def type(self, node: exp.DataType) -> Type:
        """The type that a definition names. Raises `UnsupportedError`, `DefinitionError`, `UnknownNameError`."""
        return types.from_sql(node, partial(enums.found, self))

    def new_name(self, name: str, node: exp.Expr) -> str:
        """A name that something may be given. Raises `DefinitionError`."""
        if not name or len(name.encode()) > MAX_NAME:
            raise DefinitionError(f"{name!r} cannot be a name", sqlstate="42602" if not name else "42622",
                                  position=position_of(node, self.statement), hint=f"up to {MAX_NAME} bytes")
        return name

    def exists(self, what: str, sqlstate: str, node: exp.Expr) -> DuplicateNameError:
        return DuplicateNameError(f"{what} exists already", sqlstate=sqlstate, hint="use another name",
                                  position=position_of(node, self.statement))  # fmt: skip

    # CREATE

    def create(self, tree: exp.Create) -> bool:
        """Run CREATE. Returns whether anything was made."""
        kind, exists = str(tree.kind).upper(), bool(tree.args.get("exists"))
        if kind not in ("DATABASE", "SCHEMA", "TABLE"):
            raise UnsupportedError(f"CREATE {kind} is not supported")
        if tree.args.get("replace") or tree.args.get("expression") is not None:
            raise UnsupportedError(f"this form of CREATE {kind} is not supported", hint="DROP it first")
        if (properties := tree.args.get("properties")) is not None:
            refuse_properties(kind, properties.expressions)
        if kind == "DATABASE":
            return self._create_database(tree.this, exists)
        if kind == "SCHEMA":
            return self._create_schema(tree.this, exists)
        if kind == "TABLE" and isinstance(tree.this, exp.Schema):
            return self._create_table(tree.this, exists)
        raise UnsupportedError(f"CREATE {kind} is not supported")

    def _create_database(self, node: exp.Table, exists: bool) -> bool:
        name = self.new_name(name_of(node.this), node)
        if name in self.catalog.databases:
            if exists:
                return False
            raise self.exists(f"the database {name}", "42P04", node)
        self.put(DatabaseMeta(self.session.next_id("database"), name, _owner(), now()))
        return True

    def _create_schema(self, node: exp.Table, exists: bool) -> bool:
        name = self.new_name(name_of(node.args.get("db")), node)
        database = name_of(node.args.get("catalog")) or self._database or self.catalog.default_database()
        if not name_of(node.args.get("catalog")):
            self._allocate(database, None)
        db = self.catalog.database(database, position_of(node, self.statement))
        if (db.db_id, name) in self.catalog.schemas:
            if exists:
                return False
            raise self.exists(f"the schema {database}.{name}", "42P06", node)
        self.put(SchemaMeta(self.session.next_id("schema"), db.db_id, name, now()))
        return True

    def _allocate(self, database: str, schema: str | None) -> None:
        """Make the database and schema that are meant where none are named, if they are not there yet."""
        if database not in self.catalog.databases:
            self.put(DatabaseMeta(self.session.next_id("database"), database, _owner(), now()))
        db = self.catalog.databases[database]
        if schema is not None and (db.db_id, schema) not in self.catalog.schemas:
            self.put(SchemaMeta(self.session.next_id("schema"), db.db_id, schema, now()))

    def _create_table(self, node: exp.Schema, exists: bool) -> bool:
        place = self.table_place(node.this, exists)
        if place is None:
            return False
        self.make_table(*place, self._definition(node, place[1]), node)
        return True

    def table_place(self, node: exp.Table, exists: bool) -> tuple[SchemaMeta, str] | None:
        """The schema and name of a table that is to be made; None if it `exists`, and may. Raises `SqlError`."""
        database, schema_name, name = self.names(node)
        self.new_name(name, node)
        if not node.args.get("catalog"):
            self._allocate(database, None if node.args.get("db") else schema_name)
        schema = self.catalog.schema(database, schema_name, position_of(node, self.statement))
        if exists and self.catalog.relation(schema.schema_id, name) is not None:
            return None
        self.check_relation(schema.schema_id, name, node)
        return schema, name

    def make_table(self, schema: SchemaMeta, name: str, definition: Definition, node: exp.Expr) -> Table:
        """Write a new table into the catalog. Raises `SqlError`."""
        if not definition.primary_key:
            if any(column.name == HIDDEN for column in definition.columns):
                raise DuplicateNameError(f"{HIDDEN} is the name of a hidden column", sqlstate="42701",
                                         hint="use another name, or declare a primary key")
            hidden = ColumnMeta(len(definition.columns) + 1, 0, HIDDEN, types.TEXT, False, None, 0, hidden=True)
            definition.columns.append(hidden)
            definition.primary_key = [HIDDEN]
        id = self.session.next_id("table")
        by_name = {column.name: column for column in definition.columns}
        key = [in_order(self._defined(by_name, each, node)) for each in definition.primary_key]
        columns = [msgspec.structs.replace(column, table_id=id, nullable=column.nullable and column not in key)
                   for column in definition.columns]  # fmt: skip
        checks = self.named_checks(name, definition.checks, by_name, [])
        names = [name]
        for given in [definition.key_name, *(given for given, _ in definition.unique)]:
            if given:
                self.check_relation(schema.schema_id, given, node, names)
                names.append(given)
        key_name = definition.key_name or self.free_name(schema.schema_id, f"{name}_pkey", names)
        names.append(key_name)
        for number, (given, parts) in enumerate(definition.unique, 1):
            ids = tuple(in_order(self._defined(by_name, each, node)).column_id for each in parts)
            chosen = given or self.free_name(schema.schema_id, f"{name}_{'_'.join(parts)}_key", names)
            names.append(chosen)
            self.put(IndexMeta(number, id, chosen, ids, True, now(), (False,) * len(ids), constraint=True))
        for column in columns:
            if column.name in definition.counting:
                column = sequence_definitions.counting_column(
                    self, schema, id, name, column, definition.counting[column.name], names,
                    internal=bool(column.counting))
            self.put(column)
        self.put(TableMeta(id, schema.db_id, schema.schema_id, name, tuple(column.column_id for column in key), now(),
                            len(columns) + 1, len(definition.unique) + 1, checks,
                            "" if key_name == f"{name}_pkey" else key_name))  # fmt: skip
        self.check_generated(columns, node)
        if definition.references:
            from ontolake.sql.write import reference_definitions

            reference_definitions.add(self, self.catalog.by_id[id], definition.references, node)
        return self.catalog.by_id[id]

    def _defined(self, by_name: dict[str, ColumnMeta], name: str, node: exp.Expr) -> ColumnMeta:
        if name not in by_name:
            raise UnknownNameError(f"the table has no column {name}", sqlstate="42703",
                                   position=position_of(node, self.statement))
        return by_name[name]

    def _definition(self, node: exp.Schema, table: str) -> Definition:
        found = Definition()
        for each in node.expressions:
            if isinstance(each, exp.ColumnDef):
                self.column_of(each, found)
            elif isinstance(each, exp.LikeProperty):
                from ontolake.sql.write import table_likes

                table_likes.include(self, each, table, found)
            else:
                self.constraint(each, None, found)
        names = [column.name for column in found.columns]
        if doubled := next((name for name in names if names.count(name) > 1), None):
            raise DuplicateNameError(f"the column {doubled} is given twice", sqlstate="42701")
        return found

    def column_of(self, node: exp.ColumnDef, found: Definition, *, id: int | None = None) -> ColumnMeta:
        name = self.new_name(name_of(node.this), node)
        kind = node.args.get("kind")
        if kind is None:
            raise DefinitionError(f"the column {name} has no type", sqlstate="42601",
                                  position=position_of(node, self.statement))
        nullable, default, counting, generated = True, None, "", ""
        bits = sequence_definitions.serial_bits(kind)
        if bits is not None:
            found.counting[name], nullable = {}, False
        for constraint in node.args.get("constraints") or ():
            rule = constraint.args["kind"]
            if isinstance(rule, exp.NotNullColumnConstraint):
                nullable = bool(rule.args.get("allow_null"))
            elif isinstance(rule, exp.DefaultColumnConstraint):
                default = self.default_of(rule.this)
            elif isinstance(rule, exp.PrimaryKeyColumnConstraint):
                if found.primary_key:
                    raise DefinitionError("there is more than one primary key",
                                          position=position_of(node, self.statement),
                                          hint="write PRIMARY KEY (a, b) behind the columns")  # fmt: skip
                found.primary_key, found.key_name = [name], name_of(constraint.this)
            elif isinstance(rule, exp.UniqueColumnConstraint):
                _check_nulls(rule)
                found.unique.append((name_of(constraint.this) or None, [name]))
            elif isinstance(rule, exp.CheckColumnConstraint):
                found.checks.append((name_of(constraint.this) or None, rule.this))
            elif isinstance(rule, exp.Reference):
                found.references.append(ReferenceClause(name_of(constraint.this) or None, [name], rule, rule))
            elif isinstance(rule, exp.ComputedColumnConstraint):
                generated = rule.this.sql(DIALECT)
            elif isinstance(rule, exp.GeneratedAsIdentityColumnConstraint) and not rule.expression:
                counting, nullable = "always" if rule.this else "default", False
                found.counting[name] = dict(rule.meta.get(OPTIONS) or {})
            else:
                raise UnsupportedError(f"{constraint.sql(DIALECT)} is not supported",
                                       position=position_of(node, self.statement))
        if sum((default is not None, bool(generated), name in found.counting)) > 1:
            raise DefinitionError(f"the column {name} has more than one of a default, an identity and an expression",
                                  sqlstate="42601", position=position_of(node, self.statement))
        ordinal = id or len(found.columns) + 1
        column = ColumnMeta(id or len(found.columns) + 1, 0, name,
                            self.type(kind) if bits is None else sequence_definitions.serial_type(bits), nullable,
                            default, ordinal, counting=counting, generated=generated)  # fmt: skip
        if default is not None and not defaults.counts(default):
            defaults.value(column)  # raises if the default does not fit
        found.columns.append(column)
        return column

    def constraint(self, node: exp.Expr, name: str | None, found: Definition) -> None:
        if isinstance(node, exp.Constraint):
            for each in node.expressions:
                self.constraint(each, name_of(node.this), found)
        elif isinstance(node, exp.PrimaryKey):
            if found.primary_key:
                raise DefinitionError("there is more than one primary key", position=position_of(node, self.statement))
            found.primary_key, found.key_name = [name_of(each) for each in node.expressions], name or ""
        elif isinstance(node, exp.UniqueColumnConstraint) and isinstance(node.this, exp.Schema):
            _check_nulls(node)
            found.unique.append((name, [name_of(each) for each in node.this.expressions]))
        elif isinstance(node, exp.CheckColumnConstraint | exp.Check):
            found.checks.append((name, node.this))
        elif isinstance(node, exp.ForeignKey):
            found.references.append(ReferenceClause(name or None, [name_of(each) for each in node.expressions],
                                                    node.args["reference"], node))  # fmt: skip
        else:
            raise UnsupportedError(f"{node.sql(DIALECT)} is not supported", position=position_of(node, self.statement))

    def default_of(self, node: exp.Expr) -> str:
        """A default as the catalog keeps it."""
        return defaults.bound_to_ids(node, self._sequence_id).sql(DIALECT)

    def _sequence_id(self, name: str) -> int:
        return Numbers(self.session, self.transaction, self._database, self._schema).find(name).object_id

    def check_generated(self, columns: Sequence[ColumnMeta], node: exp.Expr) -> None:
        """Raise `DefinitionError` for an expression that cannot generate a column."""
        by_name = {column.name: column for column in columns if not column.dropped}
        for column in columns:
            if not column.generated:
                continue
            tree = parse_expression(column.generated)
            if tree.find(exp.Query):
                raise UnsupportedError(f"the expression of {column.name} cannot contain a query")
            if defaults.is_volatile(tree):
                raise DefinitionError(f"the expression of {column.name} does not always give the same",
                                      sqlstate="42P17", position=position_of(node, self.statement))
            for name in defaults.columns_of(column.generated):
                if self._defined(by_name, name, node).generated:
                    raise DefinitionError(f"{column.name} is generated from {name}, which is generated itself",
                                          sqlstate="42P17", position=position_of(node, self.statement))
            empty = pa.table([pa.nulls(0, each.type.arrow) for each in by_name.values()], names=list(by_name))
            coerced(column, execution.run(exp.select(tree.as_("v")).from_("t0"), {"t0": empty}).column(0))

    def named_checks(
        self, table: str, checks: Sequence[tuple[str | None, exp.Expr]], columns: dict[str, ColumnMeta],
        taken: Sequence[str],
    ) -> tuple[Check, ...]:  # fmt: skip
        found: list[Check] = []
        for name, condition in checks:
            for column in condition.find_all(exp.Column):
                self._defined(columns, name_of(column.this), column)
            if condition.find(exp.Query):
                raise UnsupportedError("a CHECK cannot contain a query")
            names = {*taken, *(each.name for each in found)}
            chosen, number = name or f"{table}_check", 1
            while chosen in names:
                chosen, number = f"{name or f'{table}_check'}{number}", number + 1
            found.append(Check(chosen, condition.sql(DIALECT)))
        return tuple(found)

    # DROP

    def drop(self, tree: exp.Drop) -> bool:
        """Run DROP. Returns whether anything was there."""
        kind, exists = tree.args["kind"].upper(), bool(tree.args.get("exists"))
        cascade = bool(tree.args.get("cascade"))
        action = {"TABLE": self._drop_table, "INDEX": self._drop_index, "SCHEMA": self._drop_schema,
                  "DATABASE": self._drop_database, "SEQUENCE": self._drop_sequence,
                  "VIEW": self._drop_view}.get(kind)  # fmt: skip
        if action is None:
            raise UnsupportedError(f"DROP {kind} is not supported")
        done = False
        nodes = tree.args.get("tables") or [tree.this]
        if kind == "TABLE":
            self._going = {table.id for node in nodes if (table := self.catalog.tables.get(
                (self._schema_id(node), self.names(node)[2]))) is not None}
        for node in nodes:
            try:
                action(node, cascade)
                done = True
            except UnknownNameError:
                if not exists:
                    raise
        return done

    def _schema_id(self, node: exp.Table) -> int:
        database, schema, _ = self.names(node)
        db = self.catalog.databases.get(database)
        found = None if db is None else self.catalog.schemas.get((db.db_id, schema))
        return 0 if found is None else found.schema_id

    def _drop_table(self, node: exp.Table, cascade: bool) -> None:
        if self.catalog.view(*self.names(node)) is not None:
            raise DefinitionError(f"{name_of(node.this)} is not a table", sqlstate="42809", hint="use DROP VIEW")
        self._remove_table(self.table(node), cascade)

    def _remove_table(self, table: Table, cascade: bool = True) -> None:
        """Take a table out of the catalog. Its rows cannot be reached any more, and go with the next `gc`.

        Raises `SqlError` if other tables have foreign keys to it and there is no CASCADE.
        """
        for foreign in table.referenced_by:
            if foreign.table_id != table.id and foreign.key in self.catalog.records:
                if not cascade and foreign.table_id not in self._going:
                    other = self.catalog.by_id[foreign.table_id].full_name
                    raise SqlError(f"the foreign key {foreign.name} of {other} needs {table.full_name}",
                                   sqlstate="2BP01", hint="add CASCADE to drop the foreign key too")
                self.remove(foreign)
        view_definitions.going(self, table.full_name, None, cascade)
        self.remove(table.meta)
        for part in table.parts:
            if isinstance(part, SequenceMeta):
                sequence_definitions.remove(self, part, cascade, table.id)
        self.remove_parts(table.id)

    def remove_parts(self, owner: int, wanted: Callable[[CatalogObject], bool] = lambda part: True) -> None:
        """Remove the records that go with a table or object."""
        for part in [each for each in self.catalog.records.values() if each.owner_id == owner and wanted(each)]:
            self.remove(part)

    def _drop_sequence(self, node: exp.Table, cascade: bool) -> None:
        sequence_definitions.drop(self, node, cascade)

    def _drop_view(self, node: exp.Table, cascade: bool) -> None:
        view_definitions.drop(self, node, cascade)

    def _drop_schema(self, node: exp.Table, cascade: bool) -> None:
        name = name_of(node.args.get("db")) or name_of(node.this)
        database = name_of(node.args.get("catalog")) or self._database or self.catalog.default_database()
        schema = self.catalog.schema(database, name, position_of(node, self.statement))
        self._empty(f"the schema {database}.{name}", cascade, lambda each: each.schema_id == schema.schema_id)
        self.remove(schema)

    def _drop_database(self, node: exp.Table, cascade: bool) -> None:
        db = self.catalog.database(name_of(node.this), position_of(node, self.statement))
        self._empty(f"the database {db.db_name}", cascade, lambda each: each.db_id == db.db_id)
        for schema in [each for each in self.catalog.schemas.values() if each.db_id == db.db_id]:
            self.remove(schema)
        self.remove(db)

    def _empty(self, what: str, cascade: bool, holds: Callable[[TableMeta | SchemaObject], bool]) -> None:
        """Drop all that a schema or database holds. Raises `SqlError` if there is anything, without CASCADE."""
        tables = [table for table in self.catalog.by_id.values() if holds(table.meta)]
        objects = [each for each in self.catalog.objects.values() if holds(each)]
        if (tables or objects) and not cascade:
            first = tables[0].full_name if tables else self.catalog.object_name(objects[0])
            raise SqlError(f"{what} has {'tables' if tables else objects[0].what + 's'}, such as {first}",
                           sqlstate="2BP01", hint="add CASCADE to drop them too")
        for table in tables:
            self._remove_table(table)
        for each in [each for each in self.catalog.objects.values() if holds(each)]:
            if isinstance(each, SequenceMeta):
                sequence_definitions.remove(self, each, cascade=True)
            elif each.key in self.catalog.records:
                view_definitions.going(self, self.catalog.object_name(each), None, cascade=True)
                self.remove(each)
                self.remove_parts(each.object_id)

    def find_index(self, node: exp.Table) -> tuple[Table, IndexMeta]:
        """The index that a node names. Raises `UnknownNameError`."""
        database, schema, name = self.names(node)
        found = self.catalog.find_index(name, lambda table: table.full_name.startswith(f"{database}.{schema}."))
        if found is None:
            raise UnknownNameError(f"there is no index {database}.{schema}.{name}", sqlstate="42704",
                                   position=position_of(node, self.statement))
        return found

    def _drop_index(self, node: exp.Table, cascade: bool) -> None:
        _, index = self.find_index(node)
        if index.constraint:
            raise SqlError(f"the index {index.name} belongs to a constraint of its table", sqlstate="2BP01",
                           hint="use ALTER TABLE … DROP CONSTRAINT")
        self.drop_index(index, cascade)

    def drop_index(self, index: IndexMeta, cascade: bool = False) -> None:
        """Take an index out of use. Its entries go with the next `gc`.

        Raises `SqlError` if a foreign key needs it to be unique and there is no CASCADE.
        """
        table = self.catalog.by_id[index.table_id]
        ids = set(index.column_ids)
        for foreign in table.referenced_by if index.unique and ids != set(table.meta.primary_key_column_ids) else ():
            others = [each for each in table.indexes if each.unique and each is not index]
            if set(foreign.parent_column_ids) == ids and all(set(each.column_ids) != ids for each in others):
                if not cascade:
                    raise SqlError(f"the foreign key {foreign.name} needs {index.name}", sqlstate="2BP01",
                                   hint="add CASCADE to drop the foreign key too")
                self.remove(foreign)
        self.put(msgspec.structs.replace(index, state=DROPPED))

    # ALTER

    def alter(self, tree: exp.Alter) -> bool:
        """Run ALTER. Returns whether anything was there to alter."""
        from ontolake.sql.write import alterations

        return alterations.alter(self, tree)

    def define(self, defining: Defining) -> bool:
        """Run a statement that the parser does not read. Returns whether it changed anything."""
        from ontolake.sql.write import alterations

        return alterations.define(self, defining)

    def check_index_name(self, table: Table, name: str, node: exp.Expr) -> None:
        """Raises `DuplicateNameError` if the schema of a table has a table, view, sequence or index of this name."""
        self.check_relation(table.meta.schema_id, name, node)

    def check_relation(self, schema_id: int, name: str, node: exp.Expr, taken: Collection[str] = ()) -> None:
        """Raises `DuplicateNameError` if a schema has a table, view, sequence or index of this name, or it is taken."""
        what = "relation" if name in taken else self.catalog.relation(schema_id, name)
        if what is not None:
            raise self.exists(f"the {what} {name}", "42P07", node)

    def free_name(self, schema_id: int, name: str, taken: Collection[str] = ()) -> str:
        """A name that a schema does not have yet: this one, or this one with a number behind."""
        chosen, number = name, 0
        while chosen in taken or self.catalog.relation(schema_id, chosen) is not None:
            number += 1
            chosen = f"{name}{number}"
        return chosen

    def has_index(self, table: Table, name: str) -> bool:
        """Whether the schema of a table has a table, view, sequence or index of this name."""
        return self.catalog.relation(table.meta.schema_id, name) is not None

    def origin(self, column: ColumnMeta) -> str:
        """What names a column that this transaction adds, on whichever branch it comes to."""
        return f"{self.session.line}.{self.transaction.version}.{column.column_id}"

    # records

    def put(self, record: Record) -> None:
        """Write a record of the catalog."""
        self.writer.define([record])

    def remove(self, record: Record) -> None:
        """Remove a record of the catalog, with its name."""
        found = [key for key, _ in entries_of(record)]
        there = self.session.keyspace.get_many(found)
        self.writer.records([], [key for key in found if key in there])


def _owner() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
