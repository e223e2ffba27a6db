"""Finds what a statement asks of system tables, and makes it one that reads Arrow tables and asks our functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from sqlglot import exp

from ontolake.sql.errors import UnsupportedError
from ontolake.sql.executor.pg_types import OIDS, VECTORS
from ontolake.sql.executor.system_functions import FUNCTIONS
from ontolake.sql.pg_catalog import builtin
from ontolake.sql.syntax.dialect import DIALECT
from ontolake.sql.syntax.statements import ParsedStatement, name_of

SCHEMAS = ("pg_catalog", "information_schema")
_HINTS = re.compile(
    r"pg_|information_schema|reg(class|type|proc|namespace|role|oper|config|dictionary|collation)|\boid|int2vector|"
    r"xid|cid|current_|session_user|\buser\b|version|_description|format_type|_privilege|has_|set_config|txid|inet_|"
    r'"char"|row_security|lo_creat|acl|getdatabaseencoding', re.IGNORECASE)  # fmt: skip
_NAMED = (exp.CurrentUser, exp.SessionUser, exp.CurrentSchema, exp.CurrentCatalog, exp.CurrentRole)
_OPERATORS: dict[str, type[exp.Binary]] = {
    "~": exp.RegexpLike, "~*": exp.RegexpILike, "=": exp.EQ, "<>": exp.NEQ, "!=": exp.NEQ, "<": exp.LT, ">": exp.GT,
    "<=": exp.LTE, ">=": exp.GTE, "+": exp.Add, "-": exp.Sub, "*": exp.Mul, "/": exp.Div, "||": exp.DPipe,
    "~~": exp.Like, "~~*": exp.ILike, "%": exp.Mod,
}  # fmt: skip
ROW_FUNCTIONS: dict[str, tuple[tuple[str, pa.DataType], ...]] = {
    "pg_options_to_table": (("option_name", pa.string()), ("option_value", pa.string())),
    "aclexplode": (("grantor", pa.int64()), ("grantee", pa.int64()), ("privilege_type", pa.string()),
                   ("is_grantable", pa.bool_())),
    "pg_get_publication_tables": (("pubid", pa.int64()), ("relid", pa.int64()), ("attrs", pa.list_(pa.int16())),
                                  ("qual", pa.string())),
    "pg_partition_tree": (("relid", pa.int64()), ("parentrelid", pa.int64()), ("isleaf", pa.bool_()),
                          ("level", pa.int32())),
    "pg_stat_get_wal_receiver": (("pid", pa.int32()),), "pg_stat_get_wal_senders": (("pid", pa.int32()),),
    "pg_lock_status": (("locktype", pa.string()),),
    "pg_tablespace_databases": (("pg_tablespace_databases", pa.int64()),),
    "pg_available_extension_versions": (("name", pa.string()), ("version", pa.string())),
    "pg_get_keywords": (("word", pa.string()), ("catcode", pa.string()), ("barelabel", pa.bool_()),
                        ("catdesc", pa.string()), ("baredesc", pa.string())),
}  # fmt: skip
"""Functions in FROM whose rows are those of a table, mostly of none."""


def is_system(statement: ParsedStatement) -> bool:
    """Whether a statement names a system table, type or function."""
    tree = statement.tree
    return tree is not None and _HINTS.search(statement.sql) is not None and any(map(_is_system, tree.walk()))


def _is_system(node: exp.Expr) -> bool:
    if isinstance(node, exp.Table):
        schema, name = name_of(node.args.get("db")), _table_name(node)
        return schema in SCHEMAS or (not schema and (("pg_catalog", name) in builtin.tables() or name in ROW_FUNCTIONS))
    if isinstance(node, exp.Anonymous):
        return _function_name(node) in FUNCTIONS
    if isinstance(node, exp.DataType):
        return _type_name(node) in (*OIDS, *VECTORS, "char")
    if isinstance(node, exp.Dot):
        return isinstance(node.this, exp.Identifier) and name_of(node.this) in SCHEMAS
    return isinstance(node, _NAMED)


def _table_name(node: exp.Table) -> str:
    return _function_name(node.this) if isinstance(node.this, exp.Anonymous) else name_of(node.this) if isinstance(
        node.this, exp.Identifier) else ""  # fmt: skip


def _function_name(node: exp.Anonymous) -> str:
    return str(node.this if isinstance(node.this, str) else name_of(node.this)).lower()


def _type_name(node: exp.DataType) -> str:
    named = node.args.get("kind") if node.this == exp.DType.USERDEFINED else node.this
    named = named.expression if isinstance(named, exp.Dot) else named
    return name_of(named).lower() if isinstance(named, exp.Expr) else named.lower() if isinstance(named, str) else ""


_OID = exp.DataType(this=exp.DType.USERDEFINED, kind=exp.to_identifier("oid"))
Find = Callable[[str, str], pa.Table]
"""The rows of a system table, by its schema and name."""


def rewritten(tree: exp.Expr, path: Sequence[str], find: Find) -> tuple[exp.Expr, dict[str, pa.Table]]:
    """A statement without the names of system schemas, and the Arrow tables that names in it mean now."""
    copy = tree.copy()
    for node in list(copy.find_all(exp.Dot)):
        if isinstance(node.this, exp.Identifier) and name_of(node.this) in SCHEMAS and not isinstance(
                node.expression, exp.Identifier):
            node.replace(node.expression)
    for operator in list(copy.find_all(exp.Operator)):
        operator.replace(_plain_operator(operator))
    for collate in list(copy.find_all(exp.Collate)):
        if isinstance(collate.expression, exp.Column | exp.Dot):
            collate.replace(collate.this)
    for type in list(copy.find_all(exp.DataType)):
        kind = type.args.get("kind")
        if isinstance(kind, exp.Dot) and isinstance(kind.expression, exp.Identifier) and not (
                kind.expression.quoted) and name_of(kind.this) in SCHEMAS:
            type.replace(exp.DataType.build(kind.expression.name, dialect=DIALECT, udt=True))
    given: dict[str, pa.Table] = {}
    ctes = {name_of(each.args["alias"].this) for each in copy.find_all(exp.CTE)}
    for column in list(copy.find_all(exp.Column)):
        if isinstance(column.this, exp.Identifier) and not column.this.quoted and not column.args.get("table") and (
                name_of(column.this) == "user"):
            column.replace(exp.CurrentUser())
    numbers: dict[str, int] = {}
    for place, schema, name in list(_tables(copy, path, ctes)):
        shown = f"{schema}.{name}"
        if schema != "function" and (schema, name) in builtin.tables():
            numbers[place.alias or name] = builtin.tables()[schema, name].oid
        if shown not in given:
            given[shown] = _function_rows(name) if schema == "function" else find(schema, name)
        _name_anew(place, shown, name)
    for column in list(copy.find_all(exp.Column)):
        if name_of(column.this) == "tableoid" and name_of(column.args.get("table")) in numbers:
            number = exp.Literal.string(str(numbers[name_of(column.args.get("table"))]))
            column.replace(exp.Cast(this=number, to=_OID.copy()))
    return copy, given


def _plain_operator(node: exp.Operator) -> exp.Expr:
    """`a OPERATOR(pg_catalog.=) b` without its schema."""
    written = str(node.args["operator"].name if isinstance(node.args["operator"], exp.Expr) else node.args["operator"])
    sign = written.rpartition(".")[2].strip()
    negated = sign.startswith("!") and sign != "!="
    kind = _OPERATORS.get(sign.lstrip("!") if negated else sign)
    if kind is None:
        raise UnsupportedError(f"OPERATOR({written}) is not supported")
    found = kind(this=node.this, expression=node.expression)
    return exp.Not(this=found) if negated else found


def _tables(tree: exp.Expr, path: Sequence[str], ctes: set[str]) -> Iterator[tuple[exp.Expr, str, str]]:
    for node in tree.find_all(exp.Table, exp.Lateral):
        if isinstance(node, exp.Lateral):
            if isinstance(node.this, exp.Anonymous) and _function_name(node.this) in ROW_FUNCTIONS:
                yield node, "function", _function_name(node.this)
            continue
        assert isinstance(node, exp.Table)
        schema, name = name_of(node.args.get("db")), _table_name(node)
        if isinstance(node.this, exp.Anonymous):
            if name in ROW_FUNCTIONS:
                yield node, "function", name
            continue
        if schema in SCHEMAS:
            yield node, schema, name
        elif not schema and name not in ctes:
            for each in dict.fromkeys(["pg_catalog", *path]):
                if each in SCHEMAS and (each, name) in builtin.tables():
                    yield node, each, name
                    break


def _name_anew(node: exp.Expr, shown: str, name: str) -> None:
    alias = node.args.get("alias")
    alias = alias.copy() if alias is not None else exp.TableAlias()
    if alias.this is None:
        alias.set("this", exp.to_identifier(name, quoted=True))
    node.replace(exp.Table(this=exp.to_identifier(shown, quoted=True), alias=alias, joins=node.args.get("joins")))


def _function_rows(name: str) -> pa.Table:
    if name == "pg_get_keywords":
        from ontolake.sql.pg_catalog.keywords import keyword_table

        return keyword_table()
    return pa.schema(ROW_FUNCTIONS[name]).empty_table()
