"""Objects that another program wrote in the public layouts of v1 and v2 are refused in words, and left as they are."""

from __future__ import annotations

import hashlib
import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ontolake.model import Entity, Field
from ontolake.objects import ObjectStore, open_store
from ontolake.ontology import Session, StorageBackendError
from ontolake.ontology.typed_store import TypedStore
from ontolake.ontology.verification import verify


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]


WHEN = "2026-02-12T10:00:00+00:00"
MANIFEST = "commits/1-0a1b2c3d/manifest.json"


def packed(columns: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def put(store: ObjectStore, key: str, record: Any) -> None:
    store.put(key, json.dumps(record).encode())


def theirs(store: ObjectStore, engine: str) -> None:
    """A store of one commit with one row, as the layout has it and nothing more."""
    columns: dict[str, Any] = {"entity_key": ["c1"], "commit_id": [1], "schema_version_id": [1], "id": ["c1"],
                               "name": ["Ada"]}  # fmt: skip
    if engine == "v1":
        columns |= {"entity_type": ["Customer"], "fields_json": ['{"id": "c1", "name": "Ada"}']}
    path = f"commits/1-0a1b2c3d/entities/Customer{'.parquet' if engine == 'v1' else '/v1.parquet'}"
    data = packed(columns)
    store.put(path, data)
    file = {"kind": "entity", "type_name": "Customer", "path": path, "row_count": 1, "schema_version_id": 1,
            "content_sha256": hashlib.sha256(data).hexdigest()}  # fmt: skip
    put(store, MANIFEST, {"commit_id": 1, "parent_commit_id": None, "parent_manifest_path": None, "created_at": WHEN,
                          "runtime_id": "theirs", "metadata": {}, "files": [file]})  # fmt: skip
    put(store, "meta/schema/versions/entity/Customer.json", {"versions": [{"schema_version_id": 1, "schema": {}}]})
    put(store, "meta/head.json", {"commit_id": 1, "manifest_path": MANIFEST, "updated_at": WHEN,
                                  "runtime_id": "theirs"})  # fmt: skip
    if engine == "v2":
        put(store, "meta/engine.json", {"backend": "s3", "engine_version": "v2", "created_at": WHEN})
        put(store, "meta/type_layout_catalog.json", {"layouts": [
            {"type_kind": "entity", "type_name": "Customer", "schema_version_id": 1, "activation_commit_id": 1,
             "is_current": True}]})  # fmt: skip


def objects(store: ObjectStore) -> dict[str, bytes]:
    return {info.key: store.get(info.key).data for info in store.list()}


@pytest.mark.parametrize("engine", ["v1", "v2"])
def test_a_store_of_another_program_is_refused_in_words(memory: str, engine: str) -> None:
    store = open_store(memory)
    theirs(store, engine)
    before = objects(store)
    for opened in (lambda: Session(memory, entity_types=[Customer]), lambda: TypedStore(memory)):
        with pytest.raises(StorageBackendError, match=r"meta/head\.json.*nonce.*another program wrote it") as caught:
            opened()
        assert "onto import" in str(caught.value.hint)
    assert objects(store) == before


@pytest.mark.parametrize("engine", ["v1", "v2"])
def test_a_manifest_of_another_program_is_refused_in_words(memory: str, engine: str) -> None:
    """Even where the head has all that ours has."""
    store = open_store(memory)
    theirs(store, engine)
    put(store, "meta/head.json", {**json.loads(store.get("meta/head.json").data), "nonce": "n"})
    before = objects(store)
    with Session(memory, entity_types=[Customer]) as session:
        for read in (session.validate, lambda: session.query().entities(Customer).collect(), session.list_commits,
                     session.migrate, lambda: list(session.changes(0))):  # fmt: skip
            with pytest.raises(StorageBackendError, match=r"manifest\.json.*another program wrote it"):
                read()
        session.ensure(Customer(id="c2", name="Bob"))
        with pytest.raises(StorageBackendError, match=r"manifest\.json.*another program wrote it"):
            session.commit()
        assert any("another program wrote it" in one.what for one in verify(session.repository))
        session.discard()
    assert objects(store) == before


def test_files_without_our_columns_are_refused_in_words(memory: str) -> None:
    """A manifest of ours that names a file of theirs."""
    store = open_store(memory)
    with Session(memory, entity_types=[Customer]) as session:
        session.ensure(Customer(id="c1", name="Ada"))
        session.commit()
    path = next(info.key for info in store.list("commits/") if info.key.endswith("manifest.json"))
    manifest = json.loads(store.get(path).data)
    (file,) = manifest["states"]["entity/Customer"]["runs"]
    data = packed({"entity_key": ["c1"], "commit_id": [1], "schema_version_id": [1], "name": ["Ada"]})
    store.put(file["path"], data)
    file |= {"size": len(data), "content_sha256": hashlib.sha256(data).hexdigest()}
    put(store, path, manifest)
    with Session(memory, entity_types=[Customer]) as session:
        for read in (lambda: session.query().entities(Customer).collect(), lambda: list(session.changes(0)),
                     lambda: session.query().entities(Customer).as_of(1).count()):  # fmt: skip
            with pytest.raises(StorageBackendError, match=r"has no column row_id.*another program wrote it"):
                read()
