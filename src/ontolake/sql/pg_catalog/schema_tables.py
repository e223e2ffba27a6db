"""The rows of `information_schema`: what the standard of SQL says of tables, columns and constraints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ontolake.sql.pg_catalog import builtin
from ontolake.sql.pg_catalog.described import Constraint, DescribedColumn, DescribedDatabase, SqlRelation
from ontolake.sql.pg_catalog.tables import constraint_columns
from ontolake.sql.types import Kind, Type

Row = dict[str, Any]
Rows = Iterator[Row]
_RULES = {"p": "PRIMARY KEY", "u": "UNIQUE", "f": "FOREIGN KEY", "c": "CHECK"}
_PRECISIONS = {16: 16, 32: 32, 64: 64}


def _yes(value: bool) -> str:
    return "YES" if value else "NO"


def schemata(db: DescribedDatabase) -> Rows:
    for name in db.schemas:
        yield {"catalog_name": db.shown, "schema_name": name, "schema_owner": db.owner}


def tables(db: DescribedDatabase) -> Rows:
    for each in db.relations.values():
        if each.kind in "rv":
            yield {"table_catalog": db.shown, "table_schema": each.schema, "table_name": each.name,
                   "table_type": "BASE TABLE" if each.kind == "r" else "VIEW",
                   "is_insertable_into": _yes(each.kind == "r" or _is_plain(each)), "is_typed": "NO"}  # fmt: skip
    for table in builtin.tables().values():
        yield {"table_catalog": db.shown, "table_schema": table.schema, "table_name": table.name,
               "table_type": "BASE TABLE" if table.kind == "r" else "VIEW", "is_insertable_into": "NO",
               "is_typed": "NO"}  # fmt: skip


def _is_plain(relation: SqlRelation) -> bool:
    """Whether rows can be written through a view: it shows rows of one table."""
    text = relation.view.sql.upper() if relation.view is not None else ""
    return not any(f" {word} " in text for word in ("GROUP BY", "JOIN", "UNION", "DISTINCT", "LIMIT", "HAVING"))


def columns(db: DescribedDatabase) -> Rows:
    for relation in db.relations.values():
        if relation.kind in "rv":
            for column in relation.columns:
                yield {**_names(relation, db), **_column(relation, column, db)}
    for table in builtin.tables().values():
        for n, each in enumerate(table.columns, 1):
            name = builtin.type_names().get(each.type_oid, "text")
            yield {"table_catalog": db.shown, "table_schema": table.schema, "table_name": table.name,
                   "column_name": each.name, "ordinal_position": n, "is_nullable": _yes(not each.not_null),
                   "data_type": "ARRAY" if name.startswith("_") else builtin.shown_type(name),
                   "udt_catalog": db.shown, "udt_schema": "pg_catalog", "udt_name": name, "is_identity": "NO",
                   "is_generated": "NEVER", "is_updatable": "NO", "is_self_referencing": "NO", "identity_cycle": "NO",
                   "dtd_identifier": str(n)}  # fmt: skip


def _names(relation: SqlRelation, db: DescribedDatabase) -> Row:
    return {"table_catalog": db.shown, "table_schema": relation.schema, "table_name": relation.name}


def _column(relation: SqlRelation, column: DescribedColumn, db: DescribedDatabase) -> Row:
    type, meta = column.type, column.meta
    number = db.type_number(type)
    is_enum = type.kind == Kind.ENUM
    shown = "ARRAY" if type.item is not None else "USER-DEFINED" if is_enum else db.type_text(type)
    generated = meta.generated if meta is not None else ""
    default = None
    if column.expression is not None and not generated:
        default = db.definitions.default(relation, column, path=("public",))
    return {
        "column_name": column.name, "ordinal_position": column.number, "column_default": default,
        "is_nullable": _yes(not column.not_null), "data_type": shown, **_sizes(type),
        "udt_catalog": db.shown, "udt_schema": db.type_schema(type), "udt_name": db.type_name(number.oid),
        "dtd_identifier": str(column.number), "is_self_referencing": "NO", "is_identity": _yes(bool(column.identity)),
        **_identity(column, db), "is_generated": "ALWAYS" if generated else "NEVER",
        "generation_expression": db.definitions.default(relation, column) if generated else None,
        "is_updatable": _yes(relation.kind == "r" or _is_plain(relation)),
    }  # fmt: skip


def _sizes(type: Type) -> Row:
    if type.item is not None:
        return {}
    if type.kind == Kind.UTF8:
        length = type.length or None
        return {"character_maximum_length": length,
                "character_octet_length": 1073741824 if length is None else length * 4}  # fmt: skip
    if type.kind == Kind.INT64:
        return {"numeric_precision": _PRECISIONS[type.bits], "numeric_precision_radix": 2, "numeric_scale": 0}
    if type.kind in (Kind.REAL, Kind.DOUBLE):
        return {"numeric_precision": 24 if type.kind == Kind.REAL else 53, "numeric_precision_radix": 2}
    if type.kind == Kind.DECIMAL:
        return {"numeric_precision": type.precision, "numeric_precision_radix": 10, "numeric_scale": type.scale}
    if type.kind == Kind.NUMERIC:
        return {"numeric_precision_radix": 10}
    if type.kind == Kind.DATE:
        return {"datetime_precision": 0}
    if type.kind in (Kind.TIME, Kind.TIMESTAMP_US, Kind.TIMESTAMP_NS, Kind.INTERVAL):
        return {"datetime_precision": 6 - type.scale}
    return {}


def _identity(column: DescribedColumn, db: DescribedDatabase) -> Row:
    meta = column.meta
    if meta is None or not meta.counting:
        return {"identity_cycle": "NO"}
    place = (meta.table_id, meta.column_id)
    found = next((each.sequence for each in db.relations.values() if each.sequence is not None
                  and (each.sequence.table_id, each.sequence.column_id) == place), None)  # fmt: skip
    if found is None:
        return {"identity_cycle": "NO"}
    return {"identity_generation": "ALWAYS" if meta.counting == "always" else "BY DEFAULT",
            "identity_start": str(found.start), "identity_increment": str(found.increment),
            "identity_maximum": str(found.greatest), "identity_minimum": str(found.least),
            "identity_cycle": _yes(found.cycle)}  # fmt: skip


# constraints


def _rule(each: Constraint, db: DescribedDatabase) -> Row:
    return {"constraint_catalog": db.shown, "constraint_schema": each.relation.schema, "constraint_name": each.name}


def table_constraints(db: DescribedDatabase) -> Rows:
    for each in db.constraints.values():
        foreign = each.foreign
        yield {**_rule(each, db), **_names(each.relation, db), "constraint_type": _RULES[each.kind],
               "is_deferrable": _yes(foreign is not None and foreign.deferrable),
               "initially_deferred": _yes(foreign is not None and foreign.deferred), "enforced": "YES",
               "nulls_distinct": "YES" if each.kind == "u" else None}  # fmt: skip
    for relation in db.of_tables.values():
        for column in relation.columns:
            if column.not_null:
                yield {"constraint_catalog": db.shown, "constraint_schema": relation.schema,
                       "constraint_name": _not_null_name(relation, column, db), **_names(relation, db),
                       "constraint_type": "CHECK", "is_deferrable": "NO", "initially_deferred": "NO",
                       "enforced": "YES"}  # fmt: skip


def _not_null_name(relation: SqlRelation, column: DescribedColumn, db: DescribedDatabase) -> str:
    return f"{db.schemas[relation.schema]}_{relation.oid}_{column.number}_not_null"


def check_constraints(db: DescribedDatabase) -> Rows:
    for each in db.constraints.values():
        if each.check is not None:
            yield {**_rule(each, db), "check_clause": f"({db.definitions.check(each)})"}
    for relation in db.of_tables.values():
        for column in relation.columns:
            if column.not_null:
                yield {"constraint_catalog": db.shown, "constraint_schema": relation.schema,
                       "constraint_name": _not_null_name(relation, column, db),
                       "check_clause": f"{column.name} IS NOT NULL"}  # fmt: skip


def key_column_usage(db: DescribedDatabase) -> Rows:
    for each in db.constraints.values():
        if each.kind not in "puf":
            continue
        names = {column.number: column.name for column in each.relation.columns}
        for n, number in enumerate(constraint_columns(each, db) or (), 1):
            yield {**_rule(each, db), **_names(each.relation, db), "column_name": names[number], "ordinal_position": n,
                   "position_in_unique_constraint": _unique_place(each, n, db)}  # fmt: skip


def _unique_place(each: Constraint, n: int, db: DescribedDatabase) -> int | None:
    """Where the column that a column of a foreign key names stands in the key of its table."""
    if each.foreign is None or each.index is None or each.index.table is None:
        return None
    index = each.index.index
    ids = each.index.table.meta.primary_key_column_ids if index is None else index.column_ids
    return ids.index(each.foreign.parent_column_ids[n - 1]) + 1


def _used(each: Constraint, db: DescribedDatabase) -> tuple[SqlRelation, list[int]]:
    """The table and columns that a constraint is about: of a foreign key, those that it names."""
    if each.foreign is None:
        return each.relation, constraint_columns(each, db) or []
    parent = db.of_tables[each.foreign.parent_id]
    numbers = {column.meta.column_id: column.number for column in parent.columns if column.meta is not None}
    return parent, [numbers[id] for id in each.foreign.parent_column_ids]


def constraint_column_usage(db: DescribedDatabase) -> Rows:
    for each in db.constraints.values():
        relation, numbers = _used(each, db)
        names = {column.number: column.name for column in relation.columns}
        for number in numbers:
            yield {**_rule(each, db), **_names(relation, db), "column_name": names[number]}


def constraint_table_usage(db: DescribedDatabase) -> Rows:
    for each in db.constraints.values():
        if each.kind != "c":
            yield {**_rule(each, db), **_names(_used(each, db)[0], db)}


def referential_constraints(db: DescribedDatabase) -> Rows:
    for each in db.constraints.values():
        if each.foreign is not None:
            unique = next((rule for rule in db.constraints.values() if rule.kind in "pu" and rule.index is not None
                           and each.index is not None and rule.index.oid == each.index.oid), None)  # fmt: skip
            parent = db.of_tables[each.foreign.parent_id]
            yield {**_rule(each, db), "unique_constraint_catalog": db.shown,
                   "unique_constraint_schema": parent.schema,
                   "unique_constraint_name": None if unique is None else unique.name,
                   "match_option": "FULL" if each.foreign.full else "NONE", "update_rule": each.foreign.on_update,
                   "delete_rule": each.foreign.on_delete}  # fmt: skip


# other objects


def views(db: DescribedDatabase) -> Rows:
    for each in db.relations.values():
        if each.kind == "v":
            yield {**_names(each, db), "view_definition": db.definitions.view(each), "check_option": "NONE",
                   "is_updatable": _yes(_is_plain(each)), "is_insertable_into": _yes(_is_plain(each)),
                   "is_trigger_updatable": "NO", "is_trigger_deletable": "NO",
                   "is_trigger_insertable_into": "NO"}  # fmt: skip


def view_table_usage(db: DescribedDatabase) -> Rows:
    for each in db.relations.values():
        for used in db.tables_in(each.view) if each.view is not None else ():
            yield {"view_catalog": db.shown, "view_schema": each.schema, "view_name": each.name,
                   **_names(used, db)}  # fmt: skip


def sequences(db: DescribedDatabase) -> Rows:
    for each in db.relations.values():
        meta = each.sequence
        if meta is not None and not meta.internal:
            yield {"sequence_catalog": db.shown, "sequence_schema": each.schema, "sequence_name": each.name,
                   "data_type": {16: "smallint", 32: "integer", 64: "bigint"}[meta.bits],
                   "numeric_precision": meta.bits, "numeric_precision_radix": 2, "numeric_scale": 0,
                   "start_value": str(meta.start), "minimum_value": str(meta.least),
                   "maximum_value": str(meta.greatest), "increment": str(meta.increment),
                   "cycle_option": _yes(meta.cycle)}  # fmt: skip


def routines(db: DescribedDatabase) -> Rows:
    for row in builtin.rows("pg_proc"):
        result = builtin.type_names().get(row["prorettype"], "")
        yield {"specific_catalog": db.shown, "specific_schema": "pg_catalog",
               "specific_name": f"{row['proname']}_{row['oid']}", "routine_catalog": db.shown,
               "routine_schema": "pg_catalog", "routine_name": row["proname"],
               "routine_type": "FUNCTION" if row["prokind"] in "fw" else None,
               "data_type": "ARRAY" if result.startswith("_") else builtin.shown_type(result),
               "type_udt_catalog": db.shown, "type_udt_schema": "pg_catalog", "type_udt_name": result,
               "routine_body": "EXTERNAL", "external_language": "INTERNAL", "parameter_style": "GENERAL",
               "is_deterministic": _yes(row["provolatile"] == "i"), "sql_data_access": "MODIFIES",
               "is_null_call": _yes(bool(row["proisstrict"])), "schema_level_routine": "YES",
               "max_dynamic_result_sets": 0, "security_type": "INVOKER",
               "as_locator": "NO", "is_udt_dependent": "NO"}  # fmt: skip


def catalog_name(db: DescribedDatabase) -> Rows:
    yield {"catalog_name": db.shown}


def _table_rights(db: DescribedDatabase) -> Rows:
    for each in db.relations.values():
        for right in ("INSERT", "SELECT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"):
            if each.kind in "rv":
                yield {"grantor": db.owner, "grantee": db.owner, **_names(each, db), "privilege_type": right,
                       "is_grantable": "YES", "with_hierarchy": _yes(right == "SELECT")}  # fmt: skip


def enabled_roles(db: DescribedDatabase) -> Rows:
    yield {"role_name": db.owner}


def applicable_roles(db: DescribedDatabase) -> Rows:
    yield from ()


def character_sets(db: DescribedDatabase) -> Rows:
    yield {"character_set_name": "UTF8", "character_repertoire": "UCS", "form_of_use": "UTF8",
           "default_collate_catalog": db.shown, "default_collate_schema": "pg_catalog",
           "default_collate_name": "C"}  # fmt: skip


FILLED: Mapping[str, Callable[[DescribedDatabase], Rows]] = {
    "schemata": schemata, "tables": tables, "columns": columns, "table_constraints": table_constraints,
    "check_constraints": check_constraints, "key_column_usage": key_column_usage,
    "constraint_column_usage": constraint_column_usage, "constraint_table_usage": constraint_table_usage,
    "referential_constraints": referential_constraints, "views": views, "view_table_usage": view_table_usage,
    "sequences": sequences, "routines": routines, "information_schema_catalog_name": catalog_name,
    "table_privileges": _table_rights, "role_table_grants": _table_rights, "enabled_roles": enabled_roles,
    "character_sets": character_sets,
}  # fmt: skip
"""The tables of `information_schema` that have rows."""
