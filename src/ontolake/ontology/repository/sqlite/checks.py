"""What can be wrong with a typed store in SQLite beneath its rows, and all rows of any schema version to look at."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import apsw

from ontolake.history import Damage
from ontolake.model.columns import Column
from ontolake.model.stored import StoredType
from ontolake.ontology.query.compiler.latest import BRANCH, DELETED, literal, quoted
from ontolake.ontology.query.compiler.statements import columns_of, key_columns
from ontolake.ontology.repository.protocol import Row, SchemaVersion
from ontolake.ontology.repository.sqlite import zeros
from ontolake.ontology.repository.sqlite.v1_columns import field_value, key_column

if TYPE_CHECKING:
    from ontolake.ontology.repository.sqlite.base import SqliteRepository

_SHOWN = 5
"""So many rows are named where many have the same thing wrong with them."""


def check(repository: SqliteRepository) -> Iterator[Damage]:
    """Damage in SQLite's own structures, in commits and schemas, and in how rows and layout refer to them."""
    db = repository.db
    try:
        told = [str(text) for (text,) in db.execute("PRAGMA integrity_check")]
    except apsw.Error as error:
        yield Damage("database", str(error))
        return
    yield from (Damage("database", text) for text in told if text != "ok")
    yield from _commits(db)
    yield from _registry(db)
    yield from _events(db)
    yield from _histories(db) if repository.engine_version == "v1" else _versioned_tables(
        db, branched=repository.keeps_deletions)


def _commits(db: apsw.Connection) -> Iterator[Damage]:
    rows: Any = db.execute("SELECT id, metadata_json FROM commits WHERE metadata_json IS NOT NULL "
                           "AND NOT json_valid(metadata_json) ORDER BY id")
    for commit, text in rows:
        yield Damage(f"commit {commit}", f"its metadata is not JSON: {text!r}")
    rows = db.execute("SELECT id, created_at FROM commits WHERE datetime(created_at) IS NULL ORDER BY id")
    for commit, text in rows:
        yield Damage(f"commit {commit}", f"its time cannot be read: {text!r}")


def _registry(db: apsw.Connection) -> Iterator[Damage]:
    """The registry must say what the newest version of each type says."""
    rows: Any = db.execute(
        """SELECT r.type_kind, r.type_name, r.schema_json, (SELECT v.schema_json FROM schema_versions AS v
        WHERE v.type_kind = r.type_kind AND v.type_name = r.type_name ORDER BY v.schema_version_id DESC LIMIT 1)
        FROM schema_registry AS r""")
    for kind, name, registered, newest in rows:
        where = f"schema of {kind} {name}"
        if newest is None:
            yield Damage(where, "it is registered, but has no version")
        elif registered != newest:
            yield Damage(where, "the registry says something else than the newest version")
    for kind, name, version, text in list[Any](db.execute(
            "SELECT type_kind, type_name, schema_version_id, schema_json FROM schema_versions")):
        try:
            named = json.loads(text)
            right = (named["kind"], named["name"]) == (kind, name)
        except (ValueError, KeyError, TypeError):
            right = False
        if not right:
            yield Damage(f"schema of {kind} {name}", f"version {version} is not a schema of this type")


def _events(db: apsw.Connection) -> Iterator[Damage]:
    """The queue, if there is one of our layout."""
    if not db.execute("SELECT 1 FROM pragma_table_info('events') WHERE name = 'state'").get:
        return
    yield from _rows(db, "events", "id", "json_type(iif(json_valid(payload_json), payload_json, '0')) <> 'object'",
                     "has a payload that is not a JSON object")
    yield from _rows(db, "events", "id", "NOT json_valid(handled_json) OR state NOT IN ('open', 'done', 'dead')",
                     "does not say how it stands")
    yield from _rows(db, "events", "id", "(state = 'dead') <> (id IN (SELECT event_id FROM dead_letters))",
                     "is dead without a letter, or has one and is not")


# v1: two tables for all


def _histories(db: apsw.Connection) -> Iterator[Damage]:
    for kind, key in (("entity", "entity_key"), ("relation", "left_key || ' → ' || right_key")):
        table = f"{kind}_history"
        label = f"{kind}_type || ' ' || {key}"
        yield from _rows(db, table, label, "commit_id NOT IN (SELECT id FROM commits)",
                         "belongs to a commit that is not there")
        unknown = (f"NOT EXISTS (SELECT 1 FROM schema_versions AS v WHERE v.type_kind = '{kind}' "
                   f"AND v.type_name = {kind}_type")
        yield from _rows(db, table, label, f"{unknown})", "is of a type that has no schema")
        wrong = (f"schema_version_id IS NOT NULL AND NOT {unknown}) AND {unknown} "
                 f"AND v.schema_version_id = {table}.schema_version_id)")
        yield from _rows(db, table, label, wrong, "has a schema version that is not known")
        yield from _rows(db, table, label, "NOT json_valid(fields_json, 2)", "has fields that are not JSON")


def _rows(db: apsw.Connection, table: str, label: str, wrong: str, what: str) -> Iterator[Damage]:
    """One damage for each of the first rows that are wrong, and one for how many more there are."""
    found: Any = db.execute(f"SELECT {label} FROM {table} WHERE {wrong} LIMIT {_SHOWN + 1}").fetchall()
    yield from (Damage(f"row {name} in {table}", f"it {what}") for (name,) in found[:_SHOWN])
    if len(found) > _SHOWN:
        total = db.execute(f"SELECT count(*) FROM {table} WHERE {wrong}").get
        yield Damage(table, f"{total} rows in all: each {what}")


# v2: a table for each version, and the catalog


def _versioned_tables(db: apsw.Connection, *, branched: bool) -> Iterator[Damage]:
    tables = {str(name) for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    catalog: Any = db.execute(
        """SELECT c.type_kind, c.type_name, c.schema_version_id, c.table_name, c.activation_commit_id, c.is_current,
        v.schema_json, (SELECT max(w.schema_version_id) FROM schema_versions AS w WHERE w.type_kind = c.type_kind AND
        w.type_name = c.type_name), EXISTS (SELECT 1 FROM schema_registry AS r WHERE r.type_kind = c.type_kind AND
        r.type_name = c.type_name), EXISTS (SELECT 1 FROM commits WHERE id = c.activation_commit_id)
        FROM type_layout_catalog AS c LEFT JOIN schema_versions AS v
        ON v.type_kind = c.type_kind AND v.type_name = c.type_name AND v.schema_version_id = c.schema_version_id
        ORDER BY 1, 2, 3""").fetchall()
    for kind, name, version, table, activation, current, schema, newest, registered, active in catalog:
        where = f"catalog, {kind} {name} version {version}"
        if schema is None:
            yield Damage(where, "it has a table but no schema")
        if current and not registered:
            yield Damage(where, "it is current, but the type was dropped")
        if not branched and bool(current) != bool(registered and version == newest):
            yield Damage(where, "is current although there is a newer version" if current
                         else "is the newest version but not the current one")
        if not active:
            yield Damage(where, f"it was activated by commit {activation}, which is not there")
        missing = [one for one in _beside(table, branched) if one not in tables]
        yield from (Damage(where, f"its table {one} is missing") for one in missing)
        if not missing and schema is not None:
            try:
                stored = StoredType(json.loads(schema))
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # told with the schemas
            yield from _versioned_rows(db, table, version, stored)
            yield from () if branched else _successors(db, table, stored)
    known = {one for _, _, _, table, *_ in catalog for one in _beside(table, branched)}
    for name in sorted(tables - known):
        if name.startswith(("entity_", "relation_")):
            yield Damage("catalog", f"the table {name} is not in it")


def _beside(table: str, branched: bool) -> list[str]:
    """A table and those that belong to it."""
    return [table, f"{table}_superseded", *([f"{table}_superseded_elsewhere"] if branched else [])]


def _versioned_rows(db: apsw.Connection, table: str, version: int, stored: StoredType) -> Iterator[Damage]:
    name, keys = quoted(table), key_columns(stored)
    here = {str(row[1]) for row in db.execute(f"PRAGMA table_xinfo({name})")}
    lacking = [column.column for column in stored.all_columns if column.column not in here]
    if lacking:
        yield Damage(f"table {table}", f"it has no column {', '.join(lacking)}")
        return
    label = " || ' ' || ".join(keys)
    yield from _rows(db, name, label, "commit_id NOT IN (SELECT id FROM commits)",
                     "belongs to a commit that is not there")
    yield from _rows(db, name, label, f"schema_version_id IS NOT {version}",
                     f"says that it is not of version {version}")


def _successors(db: apsw.Connection, table: str, stored: StoredType) -> Iterator[Damage]:
    """Every row must have the successor that is told of it."""
    name, keys = quoted(table), key_columns(stored)
    label = " || ' ' || ".join(keys)
    over = quoted(f"{table}_superseded")
    successor = (f"SELECT row_id, lead(commit_id) OVER (PARTITION BY {', '.join(keys)} ORDER BY commit_id) AS next, "
                 f"{label} AS label FROM {name}")
    wrong = f"FROM ({successor}) AS s LEFT JOIN {over} AS o USING (row_id) WHERE s.next IS NOT o.superseded_by"
    found: Any = db.execute(f"SELECT s.label, s.next, o.superseded_by {wrong} LIMIT {_SHOWN}").fetchall()
    for row, after, said in found:
        yield Damage(f"row {row} in {table}", f"its successor is of commit {after}, but {table}_superseded says {said}")
    stray = db.execute(f"SELECT count(*) FROM {over} WHERE row_id NOT IN (SELECT row_id FROM {name})").get
    if stray:
        yield Damage(f"table {table}_superseded", f"{stray} of its rows point to rows that are not there")


# rows of any version


def stored_history(
    repository: SqliteRepository, version: SchemaVersion, since: int = 0, until: int | None = None
) -> Iterator[Row]:  # fmt: skip
    """Rows that commits in `(since, until]` wrote under a version: the columns of its `StoredType`, and the commit
    behind them."""
    source = _source(repository, version)
    if source is None:
        return iter(())
    stored = StoredType(version.schema)
    where = "" if not since and until is None else f" WHERE t.commit_id > {since} AND t.commit_id <= {until or 1 << 62}"
    return repository.db.execute(f"SELECT {columns_of(stored, 't')} FROM {source} AS t{where} ORDER BY t.rowid")


def commit_counts(repository: SqliteRepository, version: SchemaVersion) -> dict[int, int]:
    """How many rows each commit wrote under a version."""
    source = _source(repository, version)
    if source is None:
        return {}
    found: Any = repository.db.execute(f"SELECT t.commit_id, count(*) FROM {source} AS t GROUP BY 1 ORDER BY 1")
    return dict(found)


def _source(repository: SqliteRepository, version: SchemaVersion) -> str | None:
    """What to select the rows of a version from."""
    if repository.engine_version == "v1":
        return _v1_source(StoredType(version.schema), version)
    table = repository.db.execute(
        "SELECT table_name FROM type_layout_catalog WHERE type_kind = ? AND type_name = ? AND schema_version_id = ? "
        "LIMIT 1", (version.type_kind, version.type_name, version.schema_version_id)).get
    if table is None:
        return None
    if zeros.is_marked(repository.db, str(table)):
        more = (BRANCH, DELETED) if repository.keeps_deletions else ()
        return zeros.marked_source(StoredType(version.schema), str(table), more)
    return f"main.{quoted(str(table))}"


def _v1_source(stored: StoredType, version: SchemaVersion) -> str:
    def field(column: Column) -> str:
        return f"{field_value(column)} AS {quoted(column.column)}"

    keys = ", ".join(key_column(stored, key) for key in key_columns(stored))
    fields = "".join(f", {field(column)}" for column in stored.columns)
    since = "schema_version_id" if version.schema_version_id > 1 else "coalesce(schema_version_id, 1)"
    return (f"(SELECT {keys}, commit_id, id AS rowid{fields} FROM {stored.kind}_history "
            f"WHERE {stored.kind}_type = {literal(stored.name)} AND {since} = {version.schema_version_id})")
