"""Makes the golden stores: `python -m ontology.golden.make`, in the folder of the tests.

They stand for stores that people have. They are made once for every layout that was ever released, and from then on
must open and read as they do now; so this never overwrites one that is there.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from ontolake.ontology import Session

from .types import Everything, Gone, Links, Numbered, Rates, join, people, split, things

HERE = Path(__file__).parent

UNSTAMPED = """
CREATE TABLE commits (id INTEGER PRIMARY KEY AUTOINCREMENT, created_at TEXT, metadata_json TEXT);
CREATE TABLE entity_history (id INTEGER PRIMARY KEY AUTOINCREMENT, entity_type TEXT NOT NULL, entity_key TEXT NOT NULL,
    fields_json TEXT NOT NULL, commit_id INTEGER NOT NULL REFERENCES commits (id), schema_version_id INTEGER);
CREATE INDEX by_entity ON entity_history (entity_type, entity_key, commit_id DESC);
CREATE TABLE relation_history (id INTEGER PRIMARY KEY AUTOINCREMENT, relation_type TEXT NOT NULL,
    left_key TEXT NOT NULL, right_key TEXT NOT NULL, instance_key TEXT NOT NULL DEFAULT '', fields_json TEXT NOT NULL,
    commit_id INTEGER NOT NULL REFERENCES commits (id), schema_version_id INTEGER);
CREATE INDEX by_relation ON relation_history (relation_type, left_key, right_key, instance_key, commit_id DESC);
CREATE TABLE schema_registry (type_kind TEXT, type_name TEXT, schema_json TEXT, PRIMARY KEY (type_kind, type_name));
CREATE TABLE schema_versions (id INTEGER PRIMARY KEY AUTOINCREMENT, type_kind TEXT, type_name TEXT,
    schema_version_id INTEGER, schema_json TEXT, schema_hash TEXT, created_at TEXT, runtime_id TEXT, reason TEXT,
    UNIQUE (type_kind, type_name, schema_version_id));
CREATE TABLE locks (lock_name TEXT PRIMARY KEY, owner_id TEXT, acquired_at TEXT, expires_at TEXT);
"""
"""v1 as it was before stores had a stamp, a queue of events, or more indexes than the two."""


FIELDS: dict[int, dict[str, Any]] = {
    1: {"name": "Ada Lovelace"},
    2: {"given": "Alan"},
    3: {"names": ["Grace", "Hopper"]},
}


def everything(url: str, engine: str) -> None:
    """Three commits with every type of field."""
    with Session(url, entity_types=[Everything, Numbered], relation_types=[Links, Rates], engine_version=engine,
                 instance_metadata={"author": "golden"}) as session:  # fmt: skip
        for objects in things():
            session.ensure(objects)
            session.commit()


def twice_migrated(url: str, engine: str) -> None:
    """A store that was migrated twice, with commits between, and of which a type was dropped."""
    for version, upgraders in ((1, {}), (2, {("Person", 1): split}), (3, {("Person", 2): join})):
        person, knows = people(version)
        session = Session(url, entity_types=[person, Gone], relation_types=[knows], engine_version=engine)
        if version > 1:
            session.migrate(dry_run=False, force=True, upgraders=upgraders)
        session.ensure(person(id=f"p{version}", **FIELDS[version]))
        session.ensure(knows(left_key="p1", right_key=f"p{version}", since=version))
        if version == 1:
            session.ensure(Gone(id="g"))
        session.commit()
        session.close()
    session = Session(url, entity_types=[Gone])
    session.repository.drop_type("entity", "Gone")
    session.close()


def unstamped(url: str) -> None:
    """The v1 store without a stamp, by the hand of SQLite alone."""
    source = sqlite3.connect(HERE / "v1.db")
    with sqlite3.connect(url) as db:
        db.executescript(UNSTAMPED)
        for table in ("commits", "entity_history", "relation_history", "schema_registry", "schema_versions"):
            for row in source.execute(f"SELECT * FROM {table} ORDER BY 1"):
                db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        db.execute("UPDATE entity_history SET schema_version_id = NULL WHERE commit_id = 1")
    db.close()
    source.close()


def branched(url: str) -> None:
    """A store with branches, a tag, a merge, a deletion, a deleted branch and an erasure."""
    def numbered(branch: str, *ids: int, gone: int | None = None) -> None:
        with Session(url, entity_types=[Numbered], engine_version="v3", branch=branch) as session:
            session.ensure(Numbered(id=id) for id in ids)
            if gone is not None:
                session.delete(Numbered, gone)

    numbered("main", 1, 2, 3)
    with Session(url, entity_types=[Numbered]) as session:
        session.branches.create("side")
        session.branches.create("lost")
        session.tags.create("first", message="the first commit")
    numbered("side", 4, gone=1)
    numbered("lost", 5)
    numbered("main", 6, 7)
    with Session(url, entity_types=[Numbered]) as session:
        session.merge("side", message="side comes in")
        session.branches.delete("lost")
        session.branches.protect("side")
        session.erase(Numbered, 7, "asked for", dry_run=False)


def compacted(path: Path) -> None:
    """One small file, without a log beside it."""
    with sqlite3.connect(path, isolation_level=None) as db:
        for statement in ("PRAGMA journal_mode = DELETE", "PRAGMA page_size = 512", "VACUUM"):
            db.execute(statement).fetchall()
    db.close()


def main() -> None:
    for engine in ("v1", "v2", "v3"):
        for make, name in ((everything, engine), (twice_migrated, f"{engine}_migrated")):
            path = HERE / f"{name}.db"
            if not path.exists():
                make(str(path), engine)
                compacted(path)
    for name, make_one in (("v1_unstamped", unstamped), ("v3_branched", branched)):
        path = HERE / f"{name}.db"
        if not path.exists():
            make_one(str(path))
            compacted(path)


if __name__ == "__main__":
    main()
