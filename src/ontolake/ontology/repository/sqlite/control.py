"""The tables that both SQLite engines share: commits, schemas, the write lock, events, and the engine's stamp."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import apsw

from ontolake.history import Commit
from ontolake.history.metadata import AUTHOR
from ontolake.model.codecs import encode_datetime
from ontolake.model.schema import Schema, canonical_json, schema_hash
from ontolake.model.types import Kind
from ontolake.ontology.repository.metadata import metadata_text
from ontolake.ontology.repository.protocol import SchemaVersion
from ontolake.ontology.repository.times import now_text, parse_time

COMMITS = """CREATE TABLE IF NOT EXISTS commits (
    id INTEGER PRIMARY KEY AUTOINCREMENT, created_at TEXT NOT NULL, metadata_json TEXT)"""
SCHEMAS = (
    """CREATE TABLE IF NOT EXISTS schema_registry (
    type_kind TEXT NOT NULL, type_name TEXT NOT NULL, schema_json TEXT NOT NULL, PRIMARY KEY (type_kind, type_name))""",
    """CREATE TABLE IF NOT EXISTS schema_versions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, type_kind TEXT NOT NULL, type_name TEXT NOT NULL,
    schema_version_id INTEGER NOT NULL, schema_json TEXT NOT NULL, schema_hash TEXT NOT NULL, created_at TEXT NOT NULL,
    runtime_id TEXT, reason TEXT NOT NULL, UNIQUE (type_kind, type_name, schema_version_id))""",
)
LOCKS = """CREATE TABLE IF NOT EXISTS locks (
    lock_name TEXT PRIMARY KEY, owner_id TEXT NOT NULL, acquired_at TEXT NOT NULL, expires_at TEXT NOT NULL)"""
EVENTS = (
    """CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, namespace TEXT NOT NULL, event_type TEXT NOT NULL,
    payload_json TEXT NOT NULL, created_at TEXT NOT NULL, created_commit_id INTEGER, root_event_id TEXT NOT NULL,
    chain_depth INTEGER NOT NULL DEFAULT 0, state TEXT NOT NULL DEFAULT 'open', attempts INTEGER NOT NULL DEFAULT 0,
    available_at TEXT NOT NULL, handled_json TEXT NOT NULL DEFAULT '[]', last_error TEXT, done_at TEXT)""",
    "CREATE INDEX IF NOT EXISTS events_open ON events (namespace, event_type, seq) WHERE state = 'open'",
    "CREATE INDEX IF NOT EXISTS events_chain ON events (root_event_id)",
    """CREATE TABLE IF NOT EXISTS event_claims (
    event_id TEXT PRIMARY KEY, claim_id TEXT NOT NULL, session_id TEXT NOT NULL, claimed_at TEXT NOT NULL,
    expires_at TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS dead_letters (
    id INTEGER PRIMARY KEY AUTOINCREMENT, event_id TEXT NOT NULL UNIQUE, namespace TEXT NOT NULL,
    event_type TEXT NOT NULL, payload_json TEXT NOT NULL, handler_id TEXT, attempts INTEGER NOT NULL,
    last_error TEXT NOT NULL, failed_at TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS event_schedules (
    namespace TEXT NOT NULL, schedule_id TEXT NOT NULL, last_tick TEXT NOT NULL,
    PRIMARY KEY (namespace, schedule_id))""",
    """CREATE TABLE IF NOT EXISTS sessions (
    session_id TEXT PRIMARY KEY, namespace TEXT, started_at TEXT NOT NULL, last_heartbeat TEXT NOT NULL,
    metadata_json TEXT)""",
)
STAMP = "CREATE TABLE IF NOT EXISTS storage_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)"


def create_control_tables(db: apsw.Connection, engine_version: str) -> None:
    """Make the shared tables and stamp the store. Inside the caller's transaction."""
    for statement in (COMMITS, *SCHEMAS, LOCKS, *EVENTS, STAMP):
        db.execute(statement)
    db.execute("INSERT INTO storage_meta VALUES ('backend', 'sqlite'), ('engine_version', ?)", (engine_version,))


# commits


def head(db: apsw.Connection) -> int:
    found = db.execute("SELECT max(id) FROM commits").get
    return int(found) if found is not None else 0


def next_commit(db: apsw.Connection) -> int:
    """The id that the next commit will have: never one that was given away before."""
    found = db.execute("SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'commits'), 0), "
                       "coalesce((SELECT max(id) FROM commits), 0))").get
    return int(found or 0) + 1


def insert_commit(
    db: apsw.Connection, commit_id: int, metadata: Mapping[str, Any], created_at: datetime | None = None
) -> None:  # fmt: skip
    """Write a commit, as made now, or at the moment of the one that it is a copy of."""
    text = metadata_text(metadata) if metadata else None
    moment = now_text() if created_at is None else encode_datetime(created_at)
    db.execute("INSERT INTO commits (id, created_at, metadata_json) VALUES (?, ?, ?)", (commit_id, moment, text))


def commits(db: apsw.Connection, since: int, until: int | None, limit: int | None) -> Iterator[Commit[int]]:
    rows: list[Any] = db.execute(
        """SELECT id, created_at, metadata_json, (SELECT max(id) FROM commits AS p WHERE p.id < c.id) FROM commits AS c
        WHERE id > ? AND (?2 IS NULL OR id <= ?2) ORDER BY id DESC LIMIT ?3""",
        (since, until, -1 if limit is None else limit),
    ).fetchall()
    for commit_id, created_at, metadata, parent in rows:
        found = metadata_of(metadata)
        yield Commit(commit_id, () if parent is None else (parent,), parse_time(created_at),
                     found.get(AUTHOR), found)


def metadata_of(text: str | None) -> dict[str, Any]:
    """The metadata of a commit as it is stored."""
    return json.loads(text) if text else {}


# schemas


def shape(db: apsw.Connection) -> object:
    """Something that differs once a schema, a layout or the set of types has changed."""
    return db.execute("""SELECT (SELECT max(id) FROM schema_versions), (SELECT count(*) FROM schema_registry),
        (SELECT schema_version FROM pragma_schema_version)""").fetchone()


def current_schemas(db: apsw.Connection) -> dict[tuple[Kind, str], SchemaVersion]:
    rows = db.execute(
        """SELECT v.type_kind, v.type_name, v.schema_version_id, v.schema_json, v.schema_hash, v.created_at,
        v.runtime_id, v.reason FROM schema_registry AS r JOIN schema_versions AS v USING (type_kind, type_name)
        ORDER BY v.schema_version_id"""
    )
    return {(row[0], row[1]): _version(row) for row in rows}


def schema_versions(db: apsw.Connection, kind: Kind, name: str) -> list[SchemaVersion]:
    rows = db.execute(
        """SELECT type_kind, type_name, schema_version_id, schema_json, schema_hash, created_at, runtime_id, reason
        FROM schema_versions WHERE type_kind = ? AND type_name = ? ORDER BY schema_version_id""", (kind, name))
    return [_version(row) for row in rows]


def _version(row: Any) -> SchemaVersion:
    return SchemaVersion(row[0], row[1], row[2], json.loads(row[3]), row[4], row[5], row[6], row[7])


def is_registered(db: apsw.Connection, kind: Kind, name: str) -> bool:
    """Whether a type is known and was not dropped."""
    found = db.execute("SELECT 1 FROM schema_registry WHERE type_kind = ? AND type_name = ?", (kind, name)).get
    return found is not None


def dropped_types(db: apsw.Connection) -> set[tuple[Kind, str]]:
    """Types that have versions but are no longer registered."""
    rows = db.execute(
        """SELECT DISTINCT type_kind, type_name FROM schema_versions AS v WHERE NOT EXISTS
        (SELECT 1 FROM schema_registry AS r WHERE r.type_kind = v.type_kind AND r.type_name = v.type_name)""")
    return {(kind, name) for kind, name in rows}


def put_schema(db: apsw.Connection, schema: Schema, version: int, reason: str, runtime_id: str) -> None:
    """Make a schema the current version of its type."""
    text = canonical_json(schema)
    db.execute("INSERT OR REPLACE INTO schema_registry VALUES (?, ?, ?)", (schema["kind"], schema["name"], text))
    db.execute(
        """INSERT INTO schema_versions (type_kind, type_name, schema_version_id, schema_json, schema_hash, created_at,
        runtime_id, reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
        (schema["kind"], schema["name"], version, text, schema_hash(schema), now_text(), runtime_id, reason))


def unregister(db: apsw.Connection, kind: Kind, name: str) -> None:
    db.execute("DELETE FROM schema_registry WHERE type_kind = ? AND type_name = ?", (kind, name))
