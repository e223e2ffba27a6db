"""ALTER: changing the definition of a table that may have rows, and statements that the parser does not read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from sqlglot import exp

from ontolake.sql.catalog.objects import CommentMeta, SequenceMeta
from ontolake.sql.catalog.records import ColumnMeta, Table, entries_of
from ontolake.sql.errors import DefinitionError, NotNullError, SqlError, UnknownNameError, UnsupportedError
from ontolake.sql.keyspace.rows import encode_row
from ontolake.sql.keyspace.vectors import decode_rows
from ontolake.sql.keyspace.versions import KeySpan
from ontolake.sql.syntax.definitions import Defining
from ontolake.sql.syntax.statements import CONSTRAINT, DIALECT, name_of, parse_one, position_of
from ontolake.sql.write import (
    comments,
    constraints,
    defaults,
    enums,
    index_expressions,
    reference_definitions,
    sequence_definitions,
    type_changes,
    view_definitions,
)  # fmt: skip
from ontolake.sql.write.ddl import PAGE, Definition
from ontolake.sql.write.rows import Rows, decoded
from ontolake.sql.write.sequences import Numbers

if TYPE_CHECKING:
    from ontolake.sql.write.ddl import Definer


def define(definer: Definer, defining: Defining) -> bool:
    """Run a statement that the parser does not read. Returns whether it changed anything."""
    if defining.kind == "create sequence":
        return sequence_definitions.create(definer, defining)
    if defining.kind == "alter sequence":
        return sequence_definitions.alter(definer, defining)
    if defining.kind in ("create type", "alter type", "drop type"):
        run = {"create type": enums.create, "alter type": enums.alter, "drop type": enums.drop}[defining.kind]
        return run(definer, defining)
    if defining.kind == "comment":
        return comments.comment(definer, defining)
    if defining.kind == "set constraints":
        reference_definitions.set_constraints(definer, defining)
        return True
    try:
        table = definer.catalog.table(*definer.place(defining.name))
    except UnknownNameError:
        if defining.exists:
            return False
        raise
    for action in defining.details["actions"]:
        _act(definer, definer.catalog.by_id[table.id], action)
    return True


def _act(definer: Definer, table: Table, action: Mapping[str, Any]) -> None:
    if action["do"] == "parse":
        name = ".".join(f'"{part}"' for part in table.full_name.split("."))
        tree = parse_one(f"ALTER TABLE {name} {action['sql']}").tree
        assert isinstance(tree, exp.Alter)
        alter(definer, tree)
    elif action["do"] == "set schema":
        _set_schema(definer, table, action["schema"])
    elif action["do"] in ("validate", "alter constraint"):
        reference_definitions.alter(definer, table, action)
    elif action["do"] == "drop expression":
        column = table.column(action["column"])
        if column.generated:
            definer.put(msgspec.structs.replace(column, generated=""))
        elif not action["exists"]:
            raise SqlError(f"{table.full_name}.{column.name} is not a generated column", sqlstate="55000")
    else:
        sequence_definitions.alter_identity(definer, table, action)


def _set_schema(definer: Definer, table: Table, name: str) -> None:
    """Move a table, with its indexes and sequences, to another schema of its database."""
    database = table.full_name.split(".", 1)[0]
    schema = definer.catalog.schema(database, name)
    if schema.schema_id == table.meta.schema_id:
        return
    for each in (table.name, table.key_name, *(index.name for index in table.indexes)):
        definer.check_relation(schema.schema_id, each, exp.Null())
    moved = msgspec.structs.replace(table.meta, schema_id=schema.schema_id, key_name=table.meta.key_name)
    definer.writer.define([moved], [key for key, _ in entries_of(table.meta)])
    for part in table.parts:
        if isinstance(part, SequenceMeta):
            definer.check_relation(schema.schema_id, part.name, exp.Null())
            sequence_definitions.replace(definer, part, msgspec.structs.replace(part, schema_id=schema.schema_id))


def alter(definer: Definer, tree: exp.Alter) -> bool:
    """Run ALTER. Returns whether anything was there to alter."""
    kind = tree.args["kind"].upper()
    if kind == "VIEW" or (kind == "TABLE" and definer.catalog.view(*definer.names(tree.this)) is not None):
        return view_definitions.alter(definer, tree)
    if kind not in ("TABLE", "INDEX"):
        raise UnsupportedError(f"ALTER {kind} is not supported")
    try:
        if tree.args.get("options"):
            _rename_shortly(definer, tree)
            return True
        for action in tree.args["actions"]:
            if kind == "INDEX":
                _alter_index(definer, tree.this, action)
            else:
                _alter_table(definer, definer.table(tree.this), action)
                if isinstance(action, exp.AlterRename):
                    return True
    except UnknownNameError as error:
        if tree.args.get("exists") and error.sqlstate in ("42P01", "42704"):
            return False
        raise
    return True


def _rename_shortly(definer: Definer, tree: exp.Alter) -> None:
    """Run ALTER TABLE … RENAME a TO b, which is about a column, also without that word."""
    actions, options = tree.args["actions"], tree.args["options"]
    if len(actions) != 1 or not isinstance(actions[0], exp.AlterRename) or len(options) != 1 \
            or not isinstance(options[0], exp.ToTableProperty) or tree.args["kind"].upper() != "TABLE":  # fmt: skip
        raise UnsupportedError(f"{tree.sql(DIALECT)} is not supported")
    old, new = name_of(actions[0].this.this), name_of(options[0].this.this)
    _rename_column(definer, definer.table(tree.this), old, new, actions[0])


def _alter_index(definer: Definer, node: exp.Table, action: exp.Expr) -> None:
    table, index = definer.find_index(node)
    if not isinstance(action, exp.AlterRename):
        raise UnsupportedError("an index can only be renamed")
    name = definer.new_name(name_of(action.this.this), action)
    definer.check_index_name(table, name, action)
    definer.put(msgspec.structs.replace(index, name=name))


def _alter_table(definer: Definer, table: Table, action: exp.Expr) -> None:
    if isinstance(action, exp.ColumnDef):
        _add_column(definer, table, action)
    elif isinstance(action, exp.Drop) and action.args["kind"] == "COLUMN":
        node = (action.args.get("tables") or [action.this])[0]
        if name_of(node) in table.by_name:
            view_definitions.going(definer, table.full_name, name_of(node), bool(action.args.get("cascade")))
        drop_column(definer, table, name_of(node), bool(action.args.get("exists")), node,
                    bool(action.args.get("cascade")))
    elif isinstance(action, exp.Drop) and action.args["kind"] == "CONSTRAINT":
        node = action.args["tables"][0]
        constraints.drop(definer, table, name_of(node), bool(action.args.get("exists")), node,
                         bool(action.args.get("cascade")))
    elif isinstance(action, exp.AddConstraint):
        constraints.add(definer, table, action)
    elif isinstance(action, exp.RenameColumn) and action.meta.get(CONSTRAINT):
        constraints.rename(definer, table, name_of(action.this), name_of(action.args["to"]), action)
    elif isinstance(action, exp.RenameColumn):
        _rename_column(definer, table, name_of(action.this), name_of(action.args["to"]), action)
    elif isinstance(action, exp.AlterRename):
        _rename_table(definer, table, name_of(action.this.this), action)
    elif isinstance(action, exp.AlterColumn):
        _alter_column(definer, table, action)
    else:
        raise UnsupportedError(f"{action.sql(DIALECT)} is not supported")


def _add_column(definer: Definer, table: Table, node: exp.ColumnDef) -> None:
    name = name_of(node.this)
    if name in table.by_name:
        if node.args.get("exists"):
            return
        raise definer.exists(f"the column {table.full_name}.{name}", "42701", node)
    found = Definition()
    column = definer.column_of(node, found, id=table.meta.next_column_id)
    if found.primary_key:
        raise DefinitionError(f"{table.full_name} has a primary key", position=position_of(node, definer.statement))
    computed = bool(column.generated or name in found.counting or defaults.counts(column.default_expr))
    value = None if computed else defaults.value(column)
    if value is None and not column.nullable and not computed and definer.session.keyspace.count(table.span, 1):
        raise NotNullError(f"{table.full_name} has rows, which have no value for {name}", table=table.full_name,
                           constraint=name, hint="give it a DEFAULT")  # fmt: skip
    absent = None if value is None else encode_row([column.type.kind], [value])
    column = msgspec.structs.replace(column, table_id=table.id, absent=absent, origin=definer.origin(column))
    definer.check_generated([*table.columns, column], node)
    if name in found.counting:
        schema = next(each for each in definer.catalog.schemas.values() if each.schema_id == table.meta.schema_id)
        column = sequence_definitions.counting_column(definer, schema, table.id, table.name, column,
                                                      found.counting[name], internal=bool(column.counting))
    definer.put(column)
    definer.put(msgspec.structs.replace(table.meta, next_column_id=table.meta.next_column_id + 1))
    if computed:
        _fill(definer, definer.catalog.by_id[table.id], column)
    if found.unique or found.checks or found.references:
        constraints.add_all(definer, definer.catalog.by_id[table.id], found, node)


def _fill(definer: Definer, table: Table, column: ColumnMeta) -> None:
    """Give the rows that are there their values of a column that counts or is generated."""
    numbers, start = Numbers(definer.session, definer.transaction), table.span.start
    while True:
        batch = next(definer.session.keyspace.scan(KeySpan(start, table.span.end), keys=True, limit=PAGE), None)
        if batch is None:
            return
        assert batch.keys is not None
        old = decoded(table, batch.values)
        columns = list(old.columns)
        if not column.generated:
            columns[table.place[column.column_id]] = defaults.values(column, len(old), numbers)
        definer.writer.update(old, Rows(table, columns=columns))
        start = batch.keys.last() + b"\x00"


def drop_column(definer: Definer, table: Table, name: str, exists: bool, node: exp.Expr, cascade: bool) -> None:
    """Run DROP COLUMN. Raises `UnknownNameError`, and `DefinitionError` for a column of the primary key."""
    if exists and name not in table.by_name:
        return
    column = table.column(name, position_of(node, definer.statement))
    if column in table.primary_key:
        raise DefinitionError(f"{name} belongs to the primary key of {table.full_name}", sqlstate="2BP01",
                              hint="make another table with another key, and copy the rows")
    needing = [each for each in table.generated if name in defaults.columns_of(each.generated)]
    if needing and not cascade:
        raise SqlError(f"{needing[0].name} of {table.full_name} is generated from {name}", sqlstate="2BP01",
                       hint="add CASCADE to drop it too")
    for each in needing:
        drop_column(definer, definer.catalog.by_id[table.id], each.name, False, node, cascade)
    id = column.column_id
    for foreign in table.referenced_by:
        if id in foreign.parent_column_ids and not cascade:
            raise SqlError(f"the foreign key {foreign.name} needs {table.full_name}.{name}", sqlstate="2BP01",
                           hint="add CASCADE to drop the foreign key too")
    table = definer.catalog.by_id[table.id]
    for foreign in {each.key: each for each in (*table.referenced_by, *table.foreign_keys)}.values():
        if (foreign.table_id == table.id and id in foreign.column_ids) or (
                foreign.parent_id == table.id and id in foreign.parent_column_ids):
            definer.remove(foreign)
    for part in table.parts:
        if isinstance(part, SequenceMeta) and part.column_id == id:
            sequence_definitions.remove(definer, part, cascade, table.id)
        elif isinstance(part, CommentMeta) and part.kind == "column" and part.part_id == id:
            definer.remove(part)
    for index in table.indexes:
        if id in (*index.column_ids, *index.include_ids) or name in index_expressions.columns_of(index):
            definer.drop_index(index, cascade)
    kept = tuple(check for check in table.meta.checks if name not in defaults.columns_of(check.sql))
    definer.put(msgspec.structs.replace(table.meta, checks=kept))
    definer.put(msgspec.structs.replace(column, dropped=True))


def _rename_column(definer: Definer, table: Table, old: str, new: str, node: exp.Expr) -> None:
    column = table.column(old, position_of(node, definer.statement))
    if definer.new_name(new, node) in table.by_name:
        raise definer.exists(f"the column {table.full_name}.{new}", "42701", node)
    view_definitions.check_column(definer, table, old, "be renamed")
    checks = tuple(msgspec.structs.replace(check, sql=defaults.renamed(check.sql, old, new))
                   for check in table.meta.checks)  # fmt: skip
    definer.put(msgspec.structs.replace(table.meta, checks=checks))
    for each in table.generated:
        if old in defaults.columns_of(each.generated):
            definer.put(msgspec.structs.replace(each, generated=defaults.renamed(each.generated, old, new)))
    for index in table.indexes:
        if old in index_expressions.columns_of(index):
            parts = tuple(msgspec.structs.replace(each, sql=defaults.renamed(each.sql, old, new))
                          for each in index.expressions)
            predicate = defaults.renamed(index.predicate, old, new) if index.predicate else ""
            definer.put(msgspec.structs.replace(index, expressions=parts, predicate=predicate))
    column = definer.catalog.by_id[table.id].by_id[column.column_id]
    definer.put(msgspec.structs.replace(column, name=new))


def _rename_table(definer: Definer, table: Table, name: str, node: exp.Expr) -> None:
    definer.check_relation(table.meta.schema_id, definer.new_name(name, node), node)
    old = entries_of(table.meta)[1][0]
    definer.writer.define([msgspec.structs.replace(table.meta, table_name=name, key_name=table.key_name)], [old])
    view_definitions.renamed(definer, table.full_name, name)


def _alter_column(definer: Definer, table: Table, node: exp.AlterColumn) -> None:
    column = table.column(name_of(node.this), position_of(node, definer.statement))
    if node.args.get("dtype") is not None:
        if node.args.get("collate"):
            raise UnsupportedError("COLLATE is not supported", position=position_of(node, definer.statement))
        view_definitions.check_column(definer, table, column.name, "become another type")
        type_changes.change_type(definer, table, column, definer.type(node.args["dtype"]),
                              node.args.get("using") or None)
        return
    changed = column
    if node.args.get("default") is not None and (column.generated or column.counting):
        raise SqlError(f"{table.full_name}.{column.name} has its own values", sqlstate="42601",
                       hint="use DROP EXPRESSION or DROP IDENTITY first")
    if node.args.get("default") is not None:
        changed = msgspec.structs.replace(column, default_expr=definer.default_of(node.args["default"]))
        if not defaults.counts(changed.default_expr):
            defaults.value(changed)
    elif node.args.get("allow_null") is False:
        if _has_nulls(definer, table, column):
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
    definer.put(changed)


def _has_nulls(definer: Definer, table: Table, column: ColumnMeta) -> bool:
    batches = definer.session.keyspace.scan(table.span)
    return any(decode_rows(batch.values, [column.wanted])[0].null_count for batch in batches)
