"""Names into numbers of objects and back: what `regclass`, `regtype`, `regnamespace` and others mean."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ontolake.sql.errors import SqlError, SqlSyntaxError, UnknownNameError
from ontolake.sql.executor.formats import quote_ident
from ontolake.sql.executor.pg_types import SHOWN
from ontolake.sql.pg_catalog import builtin, oids

if TYPE_CHECKING:
    from ontolake.sql.pg_catalog.system import SystemCatalog

KINDS = ("regclass", "regtype", "regproc", "regprocedure", "regnamespace", "regrole", "regcollation")
_PART = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^\s".]+))\s*(\.|\Z)')
_ALIASES = {
    "int": "int4", "float": "float8", "decimal": "numeric", "string": "text", "dec": "numeric",
    "character varying": "varchar", "character": "bpchar", "char": "bpchar", '"char"': "char",
    "timestamp without time zone": "timestamp", "timestamp with time zone": "timestamptz",
    "time without time zone": "time", "double precision": "float8", **{shown: name for name, shown in SHOWN.items()},
}  # fmt: skip


def strip_quoted(text: str) -> str:
    """A name without what stands in quotes."""
    return re.sub(r'"(?:[^"]|"")*"', "", text)


def parts(text: str) -> list[str]:
    """The parts of a name as SQL writes it. Raises `SqlSyntaxError`."""
    found, place = [], 0
    while place < len(text):
        part = _PART.match(text, place)
        if part is None:
            raise SqlSyntaxError(f"invalid name syntax: {text!r}", sqlstate="42602")
        found.append(part[1].replace('""', '"') if part[1] is not None else part[2].lower())
        place = part.end()
    if not found:
        raise SqlSyntaxError("invalid name syntax", sqlstate="42602")
    return found


def number(system: SystemCatalog, kind: str, text: str | None, *, must: bool = False) -> int | None:
    """The number of what a text names; None, or an error if there `must` be one, if there is no such thing.

    Raises `UnknownNameError` and `SqlSyntaxError`.
    """
    if text is None:
        return None
    if re.fullmatch(r"\s*\d+\s*", text):
        return int(text)
    if text == "-":
        return 0
    find = {"regclass": _class, "regtype": _type, "regnamespace": _namespace, "regrole": _role, "regproc": _proc,
            "regprocedure": _proc, "regcollation": _collation}.get(kind)  # fmt: skip
    found = None if find is None else find(system, text)
    if found is None and must:
        what, state = _MISSING.get(kind, ("object", "42704"))
        raise UnknownNameError(f'{what} "{text}" does not exist', sqlstate=state)
    return found


_MISSING = {"regclass": ("relation", "42P01"), "regtype": ("type", "42704"), "regnamespace": ("schema", "3F000"),
            "regrole": ("role", "42704"), "regproc": ("function", "42883"), "regprocedure": ("function", "42883"),
            "regcollation": ("collation", "42704")}  # fmt: skip


def _class(system: SystemCatalog, text: str) -> int | None:
    names = parts(text)[-2:]
    for schema in [names[0]] if len(names) == 2 else ["pg_catalog", *system.path]:
        relation = system.db.by_name.get((schema, names[-1]))
        if relation is not None:
            return relation.oid
        if (schema, names[-1]) in builtin.tables():
            return builtin.tables()[schema, names[-1]].oid
    return None


def _type(system: SystemCatalog, text: str) -> int | None:
    text = re.sub(r"\s*\(\s*\d+(\s*,\s*\d+)?\s*\)", "", text.strip())
    if text.endswith("[]"):
        inner = _type(system, text[:-2])
        return None if inner is None else system.array_of(inner)
    plain = " ".join(text.lower().split())
    name = _ALIASES.get(plain, plain)
    if name in builtin.types() and '"' not in name:
        return int(builtin.types()[name]["oid"])
    try:
        names = parts(text)[-2:]
    except SqlError:
        return None
    if len(names) == 2 and names[0] in ("pg_catalog", "information_schema"):
        row = builtin.types().get(names[1])
        return None if row is None else int(row["oid"])
    if len(names) == 1 and names[0] in builtin.types():
        return int(builtin.types()[names[0]]["oid"])
    return system.find_type(names[0] if len(names) == 2 else None, names[-1])


def _namespace(system: SystemCatalog, text: str) -> int | None:
    return system.db.schemas.get(parts(text)[-1])


def _role(system: SystemCatalog, text: str) -> int | None:
    return oids.OWNER if parts(text)[-1] in (system.db.owner, system.user) else None


def _proc(system: SystemCatalog, text: str) -> int | None:
    name = parts(text.partition("(")[0])[-1]
    found = [row["oid"] for row in builtin.rows("pg_proc") if row["proname"] == name]
    return found[0] if found else None


def _collation(system: SystemCatalog, text: str) -> int | None:
    name = parts(text)[-1]
    return next((row["oid"] for row in builtin.rows("pg_collation") if row["collname"] == name), None)


def name(system: SystemCatalog, kind: str, oid: int) -> str:
    """The name of what has a number, with its schema where that is not on the path."""
    if oid == 0:
        return "-"
    if kind == "regclass":
        relation = system.db.relations.get(oid)
        if relation is not None:
            return system.db.definitions.named(relation, system.path)
        table = next((each for each in builtin.tables().values() if each.oid == oid), None)
        if table is not None:
            return table.name if table.schema == "pg_catalog" or table.schema in system.path else (
                f"{table.schema}.{table.name}")  # fmt: skip
    elif kind == "regtype":
        from ontolake.sql.pg_catalog.functions import type_text

        text = type_text(system, oid, None)
        return text if text != "???" else str(oid)
    elif kind == "regnamespace":
        return next((quote_ident(each) for each, number in system.db.schemas.items() if number == oid), str(oid))
    elif kind == "regrole":
        return quote_ident(system.db.owner) if oid == oids.OWNER else str(oid)
    elif kind in ("regproc", "regprocedure"):
        return next((row["proname"] for row in builtin.rows("pg_proc") if row["oid"] == oid), str(oid))
    elif kind == "regcollation":
        return next((quote_ident(row["collname"]) for row in builtin.rows("pg_collation") if row["oid"] == oid),
                    str(oid))  # fmt: skip
    return str(oid)
