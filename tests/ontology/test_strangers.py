"""Databases that another program wrote in the public layouts of v1 and v2 are refused in words and left alone."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import apsw
import pytest

from ontolake.cli import main
from ontolake.model import Entity, Field
from ontolake.ontology import Session, StorageBackendError
from ontolake.ontology.repository.strangers import refuse_strangers
from ontolake.ontology.typed_store import TypedStore


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]


THEIR_SCHEMA = json.dumps({"type": "Customer", "fields": [{"name": "id", "type_spec": {"kind": "primitive"}}]})
OUR_SCHEMA = json.dumps({"kind": "entity", "name": "Customer", "keys": ["id"],
                         "fields": {"id": {"kind": "primitive", "name": "str"},
                                    "name": {"kind": "primitive", "name": "str"}}})  # fmt: skip
COMMITS = ("CREATE TABLE commits (id INTEGER PRIMARY KEY AUTOINCREMENT, created_at TEXT NOT NULL, metadata_json TEXT)",
           "INSERT INTO commits VALUES (1, '2026-02-12T10:00:00+00:00', '{}')")
HISTORY = (
    """CREATE TABLE entity_history (id INTEGER PRIMARY KEY AUTOINCREMENT, entity_type TEXT NOT NULL,
    entity_key TEXT NOT NULL, fields_json TEXT NOT NULL, commit_id INTEGER NOT NULL, schema_version_id INTEGER)""",
    """CREATE TABLE relation_history (id INTEGER PRIMARY KEY AUTOINCREMENT, relation_type TEXT NOT NULL,
    left_key TEXT NOT NULL, right_key TEXT NOT NULL, instance_key TEXT NOT NULL DEFAULT '', fields_json TEXT NOT NULL,
    commit_id INTEGER NOT NULL, schema_version_id INTEGER)""",
    """INSERT INTO entity_history VALUES (1, 'Customer', 'c1', '{"id": "c1", "name": "Ada"}', 1, NULL)""",
)
LOCKS = "CREATE TABLE locks (lock_name TEXT PRIMARY KEY, owner_id TEXT, acquired_at TEXT, expires_at TEXT)"
VERSIONS = """CREATE TABLE schema_versions (id INTEGER PRIMARY KEY AUTOINCREMENT, type_kind TEXT, type_name TEXT,
    schema_version_id INTEGER, schema_json TEXT, schema_hash TEXT, created_at TEXT, runtime_id TEXT, reason TEXT)"""
STAMP = ("CREATE TABLE storage_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
         "INSERT INTO storage_meta VALUES ('backend', 'sqlite'), ('engine_version', 'v2')")


def schemas(text: str) -> Iterable[str]:
    return (
        "CREATE TABLE schema_registry (type_kind TEXT, type_name TEXT, schema_json TEXT)", VERSIONS, LOCKS,
        f"INSERT INTO schema_registry VALUES ('entity', 'Customer', '{text}')",
        f"""INSERT INTO schema_versions VALUES
        (1, 'entity', 'Customer', 1, '{text}', 'hash', '2026-02-12', NULL, 'initial')""",
    )  # fmt: skip


def tables() -> Iterable[str]:
    """v2 as the layout has it: a catalog, and rows with their keys, commits, versions and fields."""
    return (
        """CREATE TABLE type_layout_catalog (type_kind TEXT NOT NULL, type_name TEXT NOT NULL,
        schema_version_id INTEGER NOT NULL, table_name TEXT NOT NULL, activation_commit_id INTEGER NOT NULL,
        is_current INTEGER NOT NULL DEFAULT 0, created_at TEXT NOT NULL DEFAULT (datetime('now')))""",
        "INSERT INTO type_layout_catalog VALUES ('entity', 'Customer', 1, 'entity_Customer_v1', 1, 1, '2026-02-12')",
        "CREATE TABLE entity_Customer_v1 (entity_key TEXT, commit_id INTEGER, schema_version_id INTEGER, name TEXT)",
        "INSERT INTO entity_Customer_v1 VALUES ('c1', 1, 1, 'Ada')",
    )


STRANGERS: dict[str, tuple[Iterable[str], str]] = {
    "v1 with commits and rows only": ((*COMMITS, *HISTORY), "no table schema_registry"),
    "v1 without relations": ((*COMMITS, HISTORY[0], *schemas(OUR_SCHEMA)), "no table relation_history"),
    "v1 with other schemas": ((*COMMITS, *HISTORY, *schemas(THEIR_SCHEMA)), "none of its schemas"),
    "v1 with other columns": ((*COMMITS, *HISTORY[1:2], HISTORY[0].replace("fields_json", "payload"),
                               *schemas(OUR_SCHEMA)), "entity_history has no column fields_json"),
    "v2 with commits only": ((*STAMP, *COMMITS), "no table schema_registry"),
    "v2 without a catalog": ((*STAMP, *COMMITS, *schemas(OUR_SCHEMA)), "no table type_layout_catalog"),
    "v2 with other schemas": ((*STAMP, *COMMITS, *schemas(THEIR_SCHEMA), *tables()), "none of its schemas"),
    "v2 without successors": ((*STAMP, *COMMITS, *schemas(OUR_SCHEMA), *tables()), "entity_Customer_v1_superseded"),
}  # fmt: skip


@pytest.fixture(params=STRANGERS)
def stranger(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    statements, words = STRANGERS[request.param]
    url = str(tmp_path / "theirs.db")
    with sqlite3.connect(url) as db:
        for statement in statements:
            db.execute(statement)
    db.close()
    return url, words


def test_a_database_of_another_program_is_refused_in_words(
    stranger: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    url, words = stranger
    before = Path(url).read_bytes()
    for opened in (lambda: Session(url, entity_types=[Customer]), lambda: TypedStore(url),
                   lambda: Session(url, entity_types=[Customer], config={"readonly": True})):  # fmt: skip
        with pytest.raises(StorageBackendError, match=words) as caught:
            opened()
        assert "another program wrote it" in str(caught.value)
        assert "onto import" in str(caught.value.hint)
    for command in (["verify", url], ["export", url], ["log", url]):
        assert main(command) != 0
        told = "".join(capsys.readouterr())
        assert words in told or "holds a native SQLite database" in told
    assert Path(url).read_bytes() == before


@pytest.mark.parametrize("engine", ["v2", "v3"])
def test_a_store_is_not_a_stranger_while_another_writes_its_first_rows(tmp_path: Path, engine: str) -> None:
    path = f"{tmp_path}/shop.db"
    Session(path, engine_version=engine).close()
    db = apsw.Connection(path)

    def write_meanwhile(_: object, sql: str, __: object) -> bool:
        if "pragma_table_info" in sql:
            with Session(path, entity_types=[Customer]) as session:
                session.ensure(Customer(id="c1", name="Ada"))
        return True

    db.exec_trace = write_meanwhile
    refuse_strangers(db, path, engine)
    db.close()
