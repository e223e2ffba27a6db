"""What PostgreSQL has built in, read from a real server: the files of `ontolake/sql/pg_catalog/data` are made of it.

`python tests/sql/support/builtin_rows.py "host=… dbname=…"` writes the files anew.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ontolake.sql.executor.calls import SPECIAL
from ontolake.sql.executor.row_functions import PAIRS, SPREADING
from ontolake.sql.executor.signatures import AGGREGATES, SCALARS, WINDOWS
from ontolake.sql.executor.system_functions import FUNCTIONS
from ontolake.sql.pg_catalog.data import FOLDER

_RELATIONS = """
SELECT json_build_array(n.nspname, c.relname, c.oid::int8, c.relkind, (
    SELECT json_agg(json_build_array(a.attname, a.atttypid::int8, a.atttypmod, a.attnotnull) ORDER BY a.attnum)
    FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped))::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname IN ('pg_catalog', 'information_schema') AND c.relkind IN ('r', 'v') ORDER BY n.nspname DESC, c.relname
"""
_LEFT_OUT = ("box", "circle", "line", "lseg", "path", "point", "polygon", "tsquery", "tsvector", "gtsvector", "xml",
             "money", "bit", "varbit", "cidr", "macaddr", "macaddr8", "txid_snapshot", "pg_snapshot", "timetz",
             "pg_brin_bloom_summary", "pg_brin_minmax_multi_summary")  # fmt: skip
"""Types that there are no values of here."""
_TYPES = f"t.typtype IN ('b', 'p', 'd') AND t.typrelid = 0 AND t.typname <> ALL(ARRAY{list(_LEFT_OUT)!r}) " \
         f"AND t.typname <> ALL(ARRAY{['_' + each for each in _LEFT_OUT]!r}) AND t.oid < 16384 AND (t.typelem = 0 " \
         "OR NOT EXISTS (SELECT 1 FROM pg_type e WHERE e.oid = t.typelem AND e.typtype NOT IN ('b', 'p', 'd')))"
_CONDITIONS = {
    "pg_type": _TYPES, "pg_am": "true", "pg_collation": "t.collname IN ('default', 'C', 'POSIX', 'ucs_basic')",
    "pg_language": "t.lanname IN ('internal', 'sql')", "pg_tablespace": "true",
    "pg_opclass": f"t.opcmethod = 403 AND t.opcintype IN (SELECT oid FROM pg_type t WHERE {_TYPES})",
    "pg_opfamily": "t.opfmethod = 403 AND t.oid IN (SELECT opcfamily FROM pg_opclass c WHERE c.opcintype IN "
                   f"(SELECT oid FROM pg_type t WHERE {_TYPES}))",
}  # fmt: skip
"""The tables whose rows are kept, and which of them."""


def relations(connection: Any) -> list[str]:
    """A line for each system table and view: its schema, name, oid, kind and columns."""
    return [row[0] for row in connection.execute(_RELATIONS).fetchall()]


def functions() -> list[str]:
    """The names of the functions that statements may call here."""
    return sorted({*SCALARS, *AGGREGATES, *WINDOWS, *SPECIAL, *SPREADING, *PAIRS, *FUNCTIONS})


def rows(connection: Any, table: str) -> list[str]:
    """A line for each row that is kept of a system table."""
    condition = _CONDITIONS.get(table)
    if table == "pg_proc":
        names = [each.replace("'", "''") for each in functions()]
        used = " UNION ".join(
            f"SELECT {name}::oid FROM pg_type t WHERE {_TYPES}"
            for name in ("typinput", "typoutput", "typreceive", "typsend", "typmodin", "typmodout", "typanalyze"))
        used += " UNION SELECT amhandler::oid FROM pg_am"
        condition = f"(t.proname = ANY(ARRAY{names!r}) OR t.oid IN ({used})) AND t.pronamespace = 11 AND NOT EXISTS (" \
                    "SELECT 1 FROM unnest(t.prorettype || t.proargtypes::oid[]) AS u(o) WHERE u.o NOT IN " \
                    f"(SELECT t.oid FROM pg_type t WHERE {_TYPES}))"  # fmt: skip
    columns = connection.execute(
        "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 "
        "ORDER BY attnum", (f"pg_catalog.{table}",)).fetchall()  # fmt: skip
    shown = {"regproc": "{}::oid::int8", "oid": "{}::int8", "pg_node_tree": "NULL", "oidvector":
             "string_to_array({}::text, ' ')::int8[]", "aclitem[]": "NULL", "oid[]": "{}::int8[]"}  # fmt: skip
    parts = ", ".join(shown.get(type, "{}").format(f't."{name}"') for name, type in columns)
    found = connection.execute(f"SELECT json_build_array({parts})::text FROM pg_catalog.{table} t WHERE {condition} "
                               "ORDER BY t.oid").fetchall()  # fmt: skip
    return [json.dumps(json.loads(row[0]), ensure_ascii=False, separators=(",", ":")) for row in found]


TABLES = (*_CONDITIONS, "pg_proc")


def files(connection: Any) -> dict[str, str]:
    """The text of each file."""
    lines = [json.dumps(json.loads(each), separators=(",", ":")) for each in relations(connection)]
    words = [row[0] for row in connection.execute(
        "SELECT json_build_array(word, catcode, barelabel)::text FROM pg_get_keywords() ORDER BY word").fetchall()]
    words = [json.dumps(json.loads(each), separators=(",", ":")) for each in words]
    found = {"keywords": words, "relations": lines, **{table: rows(connection, table) for table in TABLES}}
    return {f"{name}.jsonl": "\n".join(each) + "\n" for name, each in found.items()}


if __name__ == "__main__":
    import psycopg

    with psycopg.connect(sys.argv[1]) as opened:
        for name, text in files(opened).items():
            Path(FOLDER, name).write_text(text)
