"""Changing the catalog: databases, schemas, tables and columns. Each statement is one metadata transaction.

Ids come from counters that only grow; what is dropped leaves its id behind.
"""

from __future__ import annotations

import getpass
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from sqlglot import exp

from ontolake.sql import types
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
    now,
)  # fmt: skip
from ontolake.sql.errors import (
    DefinitionError,
    DuplicateNameError,
    NotNullError,
    SqlError,
    UnknownNameError,
    UnsupportedError,
)  # fmt: skip
from ontolake.sql.keyspace.rows import encode_row
from ontolake.sql.syntax.statements import CONSTRAINT, DIALECT, ParsedStatement, name_of, position_of
from ontolake.sql.write import defaults
from ontolake.sql.write.rows import RowWriter

if TYPE_CHECKING:
    from ontolake.sql.transactions import SqlSession, SqlTransaction

MAX_NAME = 63
DEFAULT_DATABASE, DEFAULT_SCHEMA = "main", "public"


@dataclass
class Definition:
    """A table as a statement describes it."""

    columns: list[ColumnMeta] = field(default_factory=list)
    primary_key: list[str] = field(default_factory=list)
    key_name: str = ""
    unique: list[tuple[str | None, list[str]]] = field(default_factory=list)
    checks: list[tuple[str | None, exp.Expr]] = field(default_factory=list)


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
            raise UnsupportedError(f"this form of CREATE {kind} is not supported",
                                   hint="create it, then INSERT … SELECT")
        if (properties := tree.args.get("properties")) is not None:
            what = properties.expressions[0].sql(DIALECT)
            raise UnsupportedError(f"{what} is not supported with CREATE {kind}", hint="leave it out")
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
        database, schema_name, name = self.names(node.this)
        self.new_name(name, node)
        if not node.this.args.get("catalog"):
            self._allocate(database, None if node.this.args.get("db") else schema_name)
        schema = self.catalog.schema(database, schema_name, position_of(node, self.statement))
        if exists and self.catalog.relation(schema.schema_id, name) is not None:
            return False
        self.check_relation(schema.schema_id, name, node)
        definition = self._definition(node)
        if not definition.primary_key:
            raise DefinitionError(f"the table {name} has no primary key", hint="declare a PRIMARY KEY",
                                  position=position_of(node, self.statement))  # fmt: skip
        id = self.session.next_id("table")
        by_name = {column.name: column for column in definition.columns}
        key = [self._defined(by_name, each, node) for each in definition.primary_key]
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
            ids = tuple(self._defined(by_name, each, node).column_id for each in parts)
            chosen = given or self.free_name(schema.schema_id, f"{name}_{'_'.join(parts)}_key", names)
            names.append(chosen)
            self.put(IndexMeta(number, id, chosen, ids, True, now(), (False,) * len(ids), constraint=True))
        for column in columns:
            self.put(column)
        self.put(TableMeta(id, schema.db_id, schema.schema_id, name, tuple(column.column_id for column in key), now(),
                            len(columns) + 1, len(definition.unique) + 1, checks,
                            "" if key_name == f"{name}_pkey" else key_name))  # fmt: skip
        return True

    def _defined(self, by_name: dict[str, ColumnMeta], name: str, node: exp.Expr) -> ColumnMeta:
        if name not in by_name:
            raise UnknownNameError(f"the table has no column {name}", sqlstate="42703",
                                   position=position_of(node, self.statement))
        return by_name[name]

    def _definition(self, node: exp.Schema) -> Definition:
        found = Definition()
        for each in node.expressions:
            if isinstance(each, exp.ColumnDef):
                self._column(each, found)
            else:
                self.constraint(each, None, found)
        names = [column.name for column in found.columns]
        if doubled := next((name for name in names if names.count(name) > 1), None):
            raise DuplicateNameError(f"the column {doubled} is given twice", sqlstate="42701")
        return found

    def _column(self, node: exp.ColumnDef, found: Definition, *, id: int | None = None) -> ColumnMeta:
        name = self.new_name(name_of(node.this), node)
        kind = node.args.get("kind")
        if kind is None:
            raise DefinitionError(f"the column {name} has no type", sqlstate="42601",
                                  position=position_of(node, self.statement))
        nullable, default = True, None
        for constraint in node.args.get("constraints") or ():
            rule = constraint.args["kind"]
            if isinstance(rule, exp.NotNullColumnConstraint):
                nullable = bool(rule.args.get("allow_null"))
            elif isinstance(rule, exp.DefaultColumnConstraint):
                default = rule.this.sql(DIALECT)
            elif isinstance(rule, exp.PrimaryKeyColumnConstraint):
                if found.primary_key:
                    raise DefinitionError("there is more than one primary key",
                                          position=position_of(node, self.statement),
                                          hint="write PRIMARY KEY (a, b) behind the columns")  # fmt: skip
                found.primary_key, found.key_name = [name], name_of(constraint.this)
            elif isinstance(rule, exp.UniqueColumnConstraint):
                found.unique.append((name_of(constraint.this) or None, [name]))
            elif isinstance(rule, exp.CheckColumnConstraint):
                found.checks.append((name_of(constraint.this) or None, rule.this))
            else:
                counts = isinstance(rule, exp.GeneratedAsIdentityColumnConstraint) and not rule.expression
                raise UnsupportedError(f"{constraint.sql(DIALECT)} is not supported",
                                       position=position_of(node, self.statement), hint=types.IDS if counts else None)
        ordinal = id or len(found.columns) + 1
        column = ColumnMeta(id or len(found.columns) + 1, 0, name, types.from_sql(kind), nullable, default, ordinal)
        if default is not None:
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
            found.unique.append((name, [name_of(each) for each in node.this.expressions]))
        elif isinstance(node, exp.CheckColumnConstraint | exp.Check):
            found.checks.append((name, node.this))
        else:
            raise UnsupportedError(f"{node.sql(DIALECT)} is not supported", position=position_of(node, self.statement))

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
                  "DATABASE": self._drop_database}.get(kind)  # fmt: skip
        if action is None:
            raise UnsupportedError(f"DROP {kind} is not supported")
        done = False
        for node in tree.args.get("tables") or [tree.this]:
            try:
                action(node, cascade)
                done = True
            except UnknownNameError:
                if not exists:
                    raise
        return done

    def _drop_table(self, node: exp.Table, cascade: bool) -> None:
        self._remove_table(self.table(node))

    def _remove_table(self, table: Table) -> None:
        """Take a table out of the catalog. Its rows cannot be reached any more, and go with the next `gc`."""
        self.remove(table.meta)

    def _drop_schema(self, node: exp.Table, cascade: bool) -> None:
        name = name_of(node.args.get("db")) or name_of(node.this)
        database = name_of(node.args.get("catalog")) or self._database or self.catalog.default_database()
        schema = self.catalog.schema(database, name, position_of(node, self.statement))
        tables = [table for table in self.catalog.by_id.values() if table.meta.schema_id == schema.schema_id]
        self._check_empty(f"the schema {database}.{name}", tables, cascade)
        for table in tables:
            self._remove_table(table)
        self.remove(schema)

    def _drop_database(self, node: exp.Table, cascade: bool) -> None:
        db = self.catalog.database(name_of(node.this), position_of(node, self.statement))
        tables = [table for table in self.catalog.by_id.values() if table.meta.db_id == db.db_id]
        self._check_empty(f"the database {db.db_name}", tables, cascade)
        for table in tables:
            self._remove_table(table)
        for schema in [each for each in self.catalog.schemas.values() if each.db_id == db.db_id]:
            self.remove(schema)
        self.remove(db)

    def _check_empty(self, what: str, tables: Sequence[Table], cascade: bool) -> None:
        if tables and not cascade:
            raise SqlError(f"{what} has tables, such as {tables[0].full_name}", sqlstate="2BP01",
                           hint="add CASCADE to drop them too")

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
        self.drop_index(index)

    def drop_index(self, index: IndexMeta) -> None:
        """Take an index out of use. Its entries go with the next `gc`."""
        self.put(msgspec.structs.replace(index, state=DROPPED))

    # ALTER

    def alter(self, tree: exp.Alter) -> bool:
        """Run ALTER. Returns whether anything was there to alter."""
        kind = tree.args["kind"].upper()
        if kind not in ("TABLE", "INDEX"):
            raise UnsupportedError(f"ALTER {kind} is not supported")
        try:
            if tree.args.get("options"):
                self._rename_shortly(tree)
                return True
            for action in tree.args["actions"]:
                if kind == "INDEX":
                    self._alter_index(tree.this, action)
                else:
                    self._alter_table(self.table(tree.this), action)
                    if isinstance(action, exp.AlterRename):
                        return True
        except UnknownNameError as error:
            if tree.args.get("exists") and error.sqlstate in ("42P01", "42704"):
                return False
            raise
        return True

    def _rename_shortly(self, tree: exp.Alter) -> None:
        """Run ALTER TABLE … RENAME a TO b, which is about a column, also without that word."""
        actions, options = tree.args["actions"], tree.args["options"]
        if len(actions) != 1 or not isinstance(actions[0], exp.AlterRename) or len(options) != 1 \
                or not isinstance(options[0], exp.ToTableProperty) or tree.args["kind"].upper() != "TABLE":  # fmt: skip
            raise UnsupportedError(f"{tree.sql(DIALECT)} is not supported")
        old, new = name_of(actions[0].this.this), name_of(options[0].this.this)
        self._rename_column(self.table(tree.this), old, new, actions[0])

    def _alter_index(self, node: exp.Table, action: exp.Expr) -> None:
        table, index = self.find_index(node)
        if not isinstance(action, exp.AlterRename):
            raise UnsupportedError("an index can only be renamed")
        name = self.new_name(name_of(action.this.this), action)
        self.check_index_name(table, name, action)
        self.put(msgspec.structs.replace(index, name=name))

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

    def _alter_table(self, table: Table, action: exp.Expr) -> None:
        if isinstance(action, exp.ColumnDef):
            self._add_column(table, action)
        elif isinstance(action, exp.Drop) and action.args["kind"] == "COLUMN":
            node = (action.args.get("tables") or [action.this])[0]
            self._drop_column(table, name_of(node), bool(action.args.get("exists")), node)
        elif isinstance(action, exp.Drop) and action.args["kind"] == "CONSTRAINT":
            from ontolake.sql.write import constraints

            node = action.args["tables"][0]
            constraints.drop(self, table, name_of(node), bool(action.args.get("exists")), node)
        elif isinstance(action, exp.AddConstraint):
            from ontolake.sql.write import constraints

            constraints.add(self, table, action)
        elif isinstance(action, exp.RenameColumn) and action.meta.get(CONSTRAINT):
            from ontolake.sql.write import constraints

            constraints.rename(self, table, name_of(action.this), name_of(action.args["to"]), action)
        elif isinstance(action, exp.RenameColumn):
            self._rename_column(table, name_of(action.this), name_of(action.args["to"]), action)
        elif isinstance(action, exp.AlterRename):
            self._rename_table(table, name_of(action.this.this), action)
        elif isinstance(action, exp.AlterColumn):
            self._alter_column(table, action)
        else:
            raise UnsupportedError(f"{action.sql(DIALECT)} is not supported")

    def _add_column(self, table: Table, node: exp.ColumnDef) -> None:
        name = name_of(node.this)
        if name in table.by_name:
            if node.args.get("exists"):
                return
            raise self.exists(f"the column {table.full_name}.{name}", "42701", node)
        found = Definition()
        column = self._column(node, found, id=table.meta.next_column_id)
        if found.primary_key:
            raise DefinitionError(f"{table.full_name} has a primary key", position=position_of(node, self.statement))
        value = defaults.value(column)
        if value is None and not column.nullable and self.session.keyspace.count(table.span, 1):
            raise NotNullError(f"{table.full_name} has rows, which have no value for {name}", table=table.full_name,
                               constraint=name, hint="give it a DEFAULT")  # fmt: skip
        absent = None if value is None else encode_row([column.type.kind], [value])
        self.put(msgspec.structs.replace(column, table_id=table.id, absent=absent, origin=self.origin(column)))
        self.put(msgspec.structs.replace(table.meta, next_column_id=table.meta.next_column_id + 1))
        if found.unique or found.checks:
            from ontolake.sql.write import constraints

            constraints.add_all(self, self.catalog.by_id[table.id], found, node)

    def _drop_column(self, table: Table, name: str, exists: bool, node: exp.Expr) -> None:
        if exists and name not in table.by_name:
            return
        column = table.column(name, position_of(node, self.statement))
        if column in table.primary_key:
            raise DefinitionError(f"{name} belongs to the primary key of {table.full_name}", sqlstate="2BP01",
                                  hint="make another table with another key, and copy the rows")
        for index in table.indexes:
            if column.column_id in (*index.column_ids, *index.include_ids):
                self.drop_index(index)
        kept = tuple(check for check in table.meta.checks if name not in defaults.columns_of(check.sql))
        self.put(msgspec.structs.replace(table.meta, checks=kept))
        self.put(msgspec.structs.replace(column, dropped=True))

    def _rename_column(self, table: Table, old: str, new: str, node: exp.Expr) -> None:
        column = table.column(old, position_of(node, self.statement))
        if self.new_name(new, node) in table.by_name:
            raise self.exists(f"the column {table.full_name}.{new}", "42701", node)
        checks = tuple(msgspec.structs.replace(check, sql=defaults.renamed(check.sql, old, new))
                       for check in table.meta.checks)  # fmt: skip
        self.put(msgspec.structs.replace(table.meta, checks=checks))
        self.put(msgspec.structs.replace(column, name=new))

    def _rename_table(self, table: Table, name: str, node: exp.Expr) -> None:
        self.check_relation(table.meta.schema_id, self.new_name(name, node), node)
        old = entries_of(table.meta)[1][0]
        self.writer.define([msgspec.structs.replace(table.meta, table_name=name, key_name=table.key_name)], [old])

    def _alter_column(self, table: Table, node: exp.AlterColumn) -> None:
        column = table.column(name_of(node.this), position_of(node, self.statement))
        if node.args.get("dtype") is not None:
            from ontolake.sql.write import type_changes

            if node.args.get("collate"):
                raise UnsupportedError("COLLATE is not supported", position=position_of(node, self.statement))
            type_changes.change_type(self, table, column, types.from_sql(node.args["dtype"]),
                                  node.args.get("using") or None)
            return
        changed = column
        if node.args.get("default") is not None:
            changed = msgspec.structs.replace(column, default_expr=node.args["default"].sql(DIALECT))
            defaults.value(changed)
        elif node.args.get("allow_null") is False:
            if self._has_nulls(table, column):
                raise NotNullError(f"{table.full_name}.{column.name} has NULLs", table=table.full_name,
                                   constraint=column.name, hint="UPDATE them first")  # fmt: skip
            changed = msgspec.structs.replace(column, nullable=False)
        elif node.args.get("allow_null") is True or (node.args.get("drop") and node.args.get("allow_null") is not None):
            if column in table.primary_key:
                raise DefinitionError(f"{column.name} belongs to the primary key, which has no NULLs")
            changed = msgspec.structs.replace(column, nullable=True)
        elif node.args.get("drop"):
            changed = msgspec.structs.replace(column, default_expr=None)
        else:
            raise UnsupportedError(f"{node.sql(DIALECT)} is not supported")
        self.put(changed)

    def _has_nulls(self, table: Table, column: ColumnMeta) -> bool:
        from ontolake.sql.keyspace.vectors import decode_rows

        batches = self.session.keyspace.scan(table.span)
        return any(decode_rows(batch.values, [column.wanted])[0].null_count for batch in batches)

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
