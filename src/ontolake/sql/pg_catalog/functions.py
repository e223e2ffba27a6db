"""Functions of system tables: what `format_type`, `pg_get_expr`, `has_table_privilege` and others answer.

Arguments and answers are text. A function that is not here gives NULL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ontolake.sql.errors import SqlError, UnknownNameError
from ontolake.sql.executor.formats import quote_ident
from ontolake.sql.executor.pg_types import SHOWN
from ontolake.sql.pg_catalog import builtin, oids, reg_names, tables
from ontolake.sql.pg_catalog.builtin import SystemTable

if TYPE_CHECKING:
    from ontolake.sql.pg_catalog.system import SystemCatalog

Arguments = Sequence[str | None]
Answer = Callable[["SystemCatalog", Arguments], str | None]
_started = datetime.now(UTC)
_LENGTHS = {1043: "character varying", 1042: "character"}


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _is_true(text: str | None) -> bool:
    return text is not None and text.lower() in ("true", "t", "on", "1")


# types


def format_type(system: SystemCatalog, given: Arguments) -> str | None:
    """A type as SQL writes it."""
    if given[0] is None:
        return None
    return type_text(system, int(given[0]), None if len(given) < 2 or given[1] is None else int(given[1]))


def type_text(system: SystemCatalog, oid: int, typmod: int | None) -> str:
    """The name of a type with what stands in its parentheses."""
    if oid == 0:
        return "-"
    name = builtin.type_names().get(oid)
    if name is None:
        return system.user_type(oid) or "???"
    row = builtin.types()[name]
    if row["typcategory"] == "A" and row["typelem"] and name.startswith("_"):
        return f"{type_text(system, row['typelem'], typmod)}[]"
    if row["typnamespace"] != oids.PG_CATALOG:
        return f"information_schema.{name}"
    if oid == 1042 and typmod is not None and typmod < 0:
        return "bpchar"
    shown = SHOWN.get(name, name)
    if typmod is None or typmod < 0:
        return shown
    if oid in _LENGTHS:
        return f"{shown}({typmod - 4})"
    if oid == 1700:
        return f"numeric({typmod - 4 >> 16},{typmod - 4 & 0x7FF})"
    if oid in (1083, 1114, 1184):
        word, _, rest = shown.partition(" ")
        return f"{word}({typmod}) {rest}"
    return f"interval({typmod & 0xFFFF})" if oid == 1186 and typmod & 0xFFFF < 7 else shown


# definitions


def _expression(system: SystemCatalog, given: Arguments) -> str | None:
    """`pg_get_expr`: what stands in a column of system tables says where the expression is."""
    words = (given[0] or "").split()
    pretty = len(given) > 2 and _is_true(given[2])
    db = system.db
    if len(words) == 3 and words[0] == "default":
        relation = db.relations.get(int(words[1]))
        for column in relation.columns if relation is not None else ():
            if relation is not None and column.number == int(words[2]) and column.expression is not None:
                return db.definitions.default(relation, column, pretty=pretty, path=system.path)
    if len(words) == 2 and words[0] == "check" and (check := db.constraints.get(int(words[1]))) is not None:
        return db.definitions.check(check, pretty=pretty)
    if len(words) == 2 and words[0] in ("index", "predicate"):
        index = db.relations.get(int(words[1]))
        if index is None or index.index is None:
            return None
        if words[0] == "predicate":
            return db.definitions.predicate(index, pretty=pretty)
        parts = [db.definitions.index_column(index, n, pretty=pretty)
                 for n, id in enumerate(index.index.column_ids, 1) if id < 0]  # fmt: skip
        return ", ".join(parts)
    return None


def _index(system: SystemCatalog, given: Arguments) -> str | None:
    relation = system.db.relations.get(_number(given[0]))
    if relation is None or relation.kind != "i":
        return None
    column = 0 if len(given) < 2 or given[1] is None else int(given[1])
    pretty = len(given) > 2 and _is_true(given[2])
    if column:
        return system.db.definitions.index_column(relation, column, pretty=pretty)
    return system.db.definitions.index(relation, pretty=pretty, path=system.path)


def _constraint(system: SystemCatalog, given: Arguments) -> str | None:
    found = system.db.constraints.get(_number(given[0]))
    pretty = len(given) > 1 and _is_true(given[1])
    return None if found is None else system.db.definitions.constraint(found, pretty=pretty, path=system.path)


def _view(system: SystemCatalog, given: Arguments) -> str | None:
    relation = system.db.relations.get(reg_names.number(system, "regclass", given[0]) or 0)
    if relation is None or relation.kind != "v":
        return None
    pretty = len(given) > 1 and (_is_true(given[1]) or (given[1] or "").isdigit())
    return system.db.definitions.view(relation, pretty=pretty, path=system.path)


def _serial(system: SystemCatalog, given: Arguments) -> str | None:
    table = system.db.relations.get(reg_names.number(system, "regclass", given[0]) or 0)
    for each in system.db.relations.values():
        meta = each.sequence
        if meta is not None and table is not None and table.table is not None and meta.table_id == table.table.id and (
                table.table.by_id[meta.column_id].name == given[1]):
            return f"{quote_ident(each.schema)}.{quote_ident(each.name)}"
    return None


def _numbered(kind: str) -> Answer:
    """`to_regclass` and others: the number of what a text names, or NULL."""

    def apply(system: SystemCatalog, given: Arguments) -> str | None:
        found = reg_names.number(system, kind, given[0])
        return str(found) if found else None

    return apply


def _number(text: str | None) -> int:
    return int(text) if text is not None and re.fullmatch(r"\d+", text) else 0


# visibility, comments and rights


def _is_table_visible(system: SystemCatalog, given: Arguments) -> str | None:
    oid = _number(given[0])
    relation = system.db.relations.get(oid)
    if relation is not None:
        return _boolean("." not in reg_names.strip_quoted(system.db.definitions.named(relation, system.path)))
    found = _system_table(oid)
    return None if found is None else _boolean(found.schema == "pg_catalog" or found.schema in system.path)


def _system_table(oid: int) -> SystemTable | None:
    return next((each for each in builtin.tables().values() if each.oid == oid), None)


def _is_type_visible(system: SystemCatalog, given: Arguments) -> str | None:
    schema = system.type_schema(_number(given[0]))
    return None if schema is None else _boolean(schema == "pg_catalog" or schema in system.path)


def _always(text: str | None) -> Answer:
    return lambda system, given: text


def _comment(system: SystemCatalog, given: Arguments) -> str | None:
    """`obj_description(oid, 'pg_class')`."""
    name = given[1] if len(given) > 1 else None
    for row in tables.pg_description(system.db):
        if row["objoid"] == _number(given[0]) and not row["objsubid"] and (
                name is None or row["classoid"] == tables.class_oid(name)):
            return str(row["description"])
    return None


def _column_comment(system: SystemCatalog, given: Arguments) -> str | None:
    for each in system.db.comments:
        if (each.oid, each.class_name, each.part) == (_number(given[0]), "pg_class", _number(given[1])):
            return each.text
    return None


def _shared_comment(system: SystemCatalog, given: Arguments) -> str | None:
    for each in system.db.comments:
        if (each.oid, each.class_name) == (_number(given[0]), given[1]) and each.class_name == "pg_database":
            return each.text
    return None


def _right(kind: str) -> Answer:
    """Whether the user may do something: rights are those of the token, so that here everything is allowed."""

    def apply(system: SystemCatalog, given: Arguments) -> str | None:
        named = given[-2] if len(given) > 1 else None
        if None in given:
            return None
        if kind and named is not None and not named.isdigit():
            reg_names.number(system, kind, named, must=True)
        return "true"

    return apply


def _user(system: SystemCatalog, given: Arguments) -> str | None:
    return system.db.owner if _number(given[0]) == oids.OWNER else f"unknown (OID={given[0]})"


# the session


def _setting(system: SystemCatalog, given: Arguments) -> str | None:
    if given[0] is None:
        return None
    try:
        return system.setting(given[0])
    except UnknownNameError:
        if len(given) > 1 and _is_true(given[1]):
            return None
        raise


def _set(system: SystemCatalog, given: Arguments) -> str | None:
    name, value, local = given[0], given[1], _is_true(given[2])
    if name is None:
        raise SqlError("SET requires parameter name", sqlstate="22004")
    return system.set(name, value, local=local)


def _schemas(system: SystemCatalog, given: Arguments) -> str | None:
    """A line for each schema on the path."""
    return "\n".join((["pg_catalog"] if _is_true(given[0]) else []) + [
        each for each in system.path if each in system.db.schemas])  # fmt: skip


def _schema(system: SystemCatalog, given: Arguments) -> str | None:
    return next((each for each in system.path if each in system.db.schemas), None)


def _pretty_size(system: SystemCatalog, given: Arguments) -> str | None:
    if given[0] is None:
        return None
    size = int(float(given[0]))
    limit = 10 * 1024
    for unit in ("bytes", "kB", "MB", "GB", "TB", "PB"):
        if abs(size) < limit or unit == "PB":
            return f"{size} {unit}"
        if unit == "bytes":
            size >>= 9
            limit = 20 * 1024 - 1
        else:
            size >>= 10
        if abs(size) < limit:
            return f"{(size + (1 if size > 0 else -1)) // 2} {_NEXT[unit]}"
    return None


_NEXT = {"bytes": "kB", "kB": "MB", "MB": "GB", "GB": "TB", "TB": "PB"}


def _proc(system: SystemCatalog, given: Arguments) -> dict[str, object] | None:
    return next((dict(row) for row in builtin.rows("pg_proc") if row["oid"] == _number(given[0])), None)


def _function_result(system: SystemCatalog, given: Arguments) -> str | None:
    row = _proc(system, given)
    if row is None:
        return None
    text = type_text(system, int(str(row["prorettype"])), None)
    return f"SETOF {text}" if row["proretset"] else text


def _function_arguments(system: SystemCatalog, given: Arguments) -> str | None:
    row = _proc(system, given)
    if row is None:
        return None
    types = row["proargtypes"]
    names = row["proargnames"] if isinstance(row["proargnames"], list) else []
    assert isinstance(types, list)
    parts = []
    for n, oid in enumerate(types):
        name = names[n] + " " if n < len(names) and names[n] else ""
        word = "VARIADIC " if row["provariadic"] and n == len(types) - 1 else ""
        parts.append(word + name + type_text(system, oid, None))
    return ", ".join(parts)


def _can(system: SystemCatalog, given: Arguments) -> str | None:
    return _boolean(given[-1] in ("orderable", "asc", "nulls_last", "returnable", "search_array", "search_nulls",
                                  "can_order", "can_unique", "can_multi_col", "can_include"))  # fmt: skip


def _encoding(system: SystemCatalog, given: Arguments) -> str | None:
    return {"6": "UTF8", "0": "SQL_ASCII", "8": "LATIN1"}.get(given[0] or "", "")


def _version(system: SystemCatalog, given: Arguments) -> str | None:
    return f"PostgreSQL {system.setting('server_version')} (Ontolake)"


FUNCTIONS: dict[str, Answer] = {
    "number": lambda system, given: None if given[1] is None else str(
        reg_names.number(system, given[0] or "", given[1], must=True)),
    "name": lambda system, given: None if given[1] is None else reg_names.name(system, given[0] or "", int(given[1])),
    **{f"to_{kind}": _numbered(kind) for kind in reg_names.KINDS},
    "format_type": format_type, "pg_get_expr": _expression, "pg_get_indexdef": _index,
    "pg_get_constraintdef": _constraint, "pg_get_viewdef": _view, "pg_get_serial_sequence": _serial,
    "pg_table_is_visible": _is_table_visible, "pg_type_is_visible": _is_type_visible,
    **{f"pg_{kind}_is_visible": _always("true") for kind in (
        "function", "opclass", "opfamily", "operator", "collation", "conversion", "ts_config", "ts_dict", "ts_parser",
        "ts_template", "statistics_obj")},
    "has_table_privilege": _right("regclass"), "has_any_column_privilege": _right("regclass"),
    "has_sequence_privilege": _right("regclass"), "has_schema_privilege": _right("regnamespace"),
    **{f"has_{kind}_privilege": _right("") for kind in (
        "column", "database", "function", "type", "language", "server", "foreign_data_wrapper", "tablespace",
        "parameter")},
    "pg_has_role": _always("true"), "pg_relation_is_publishable": _always("true"),
    "row_security_active": _always("false"), "pg_get_userbyid": _user,
    "obj_description": _comment, "col_description": _column_comment, "shobj_description": _shared_comment,
    "version": _version, "current_setting": _setting, "set_config": _set, "current_schema": _schema,
    "current_schemas": _schemas, "current_database": lambda system, given: system.db.shown,
    "current_catalog": lambda system, given: system.db.shown,
    **{name: (lambda system, given: system.user) for name in ("current_user", "session_user", "current_role", "user")},
    "pg_encoding_to_char": _encoding, "pg_char_to_encoding": _always("6"), "pg_client_encoding": _always("UTF8"),
    "getdatabaseencoding": _always("UTF8"), "pg_size_pretty": _pretty_size,
    **dict.fromkeys(("pg_relation_size", "pg_total_relation_size", "pg_table_size", "pg_indexes_size",
                     "pg_database_size", "pg_tablespace_size"), _always("0")),
    "pg_my_temp_schema": _always("0"), "pg_is_other_temp_schema": _always("false"),
    "pg_is_in_recovery": _always("false"), "pg_is_wal_replay_paused": _always("false"),
    "pg_backend_pid": lambda system, given: str(system.process), "pg_tablespace_location": _always(""),
    "pg_relation_filenode": lambda system, given: given[0], "pg_get_function_result": _function_result,
    "pg_get_function_arguments": _function_arguments, "pg_get_function_identity_arguments": _function_arguments,
    "pg_index_column_has_property": _can, "pg_index_has_property": _can, "pg_indexam_has_property": _can,
    "pg_relation_is_updatable": _always("28"), "pg_column_is_updatable": _always("true"),
    "pg_postmaster_start_time": lambda system, given: _started.strftime("%Y-%m-%d %H:%M:%S.%f"),
    "pg_conf_load_time": lambda system, given: _started.strftime("%Y-%m-%d %H:%M:%S.%f"),
    "txid_current": lambda system, given: str(system.version), "pg_current_xact_id": lambda system, given: str(
        system.version),
    **dict.fromkeys(("pg_advisory_lock", "pg_advisory_xact_lock", "pg_advisory_unlock_all"), _always("")),
    **dict.fromkeys(("pg_try_advisory_lock", "pg_try_advisory_xact_lock", "pg_advisory_unlock"), _always("true")),
}  # fmt: skip
"""The functions by name."""
