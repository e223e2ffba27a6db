"""What is wrong at a place is said by name; what can be read is read, and nothing is overwritten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ontolake.errors import Invalid, OntolakeError
from ontolake.objects import ObjectStore, open_store
from ontolake.ontology import Config, Session, StorageBackendError, UninitializedStorageError, open_repository
from ontolake.ontology.repository.s3_v1 import S3RepositoryV1
from ontolake.ontology.repository.s3_v2 import S3RepositoryV2

from .works import Human, Knows, fill, opened


def contents(store: ObjectStore) -> dict[str, bytes]:
    return {info.key: store.get(info.key).data for info in store.list()}


def read(store: ObjectStore) -> None:
    with opened(store) as session:
        session.query().entities(Human).collect()


def refused(store: ObjectStore, *words: str) -> None:
    """Reading or writing says what is wrong, and changes nothing."""
    before = contents(store)
    with pytest.raises(OntolakeError) as caught:
        read(store)
    for word in words:
        assert word in str(caught.value)
    assert contents(store) == before


def test_a_store_says_what_it_is_and_is_opened_as_that(url: str, engine: str) -> None:
    repository = open_repository(url, engine_version=engine)
    assert type(repository) is {"v1": S3RepositoryV1, "v2": S3RepositoryV2}[engine]
    stamp = json.loads(open_store(url).get("meta/engine.json").data)
    assert (stamp["backend"], stamp["engine_version"]) == ("s3", engine)
    assert type(open_repository(url)) is type(repository)
    other = "v1" if engine == "v2" else "v2"
    with pytest.raises(StorageBackendError, match=f"has the engine {engine}, not {other}"):
        open_repository(url, engine_version=other)
    with pytest.raises(StorageBackendError, match="known are v1, v2"):
        open_repository(url, engine_version="v9")
    repository.close()


def test_a_store_without_a_stamp_is_v1(memory: str) -> None:
    store = open_store(memory)
    session = Session(memory, entity_types=[Human], relation_types=[Knows], engine_version="v1")
    session.ensure(Human(id="a", name="x"))
    session.commit()
    session.close()
    store.delete(["meta/engine.json"])
    again = opened(store)
    assert isinstance(again.repository, S3RepositoryV1)
    assert again.query().entities(Human).count() == 1
    again.close()


def test_nothing_is_made_where_nothing_was_to_be_made(memory: str) -> None:
    for config in (Config(create=False), Config(readonly=True)):
        with pytest.raises(UninitializedStorageError):
            open_repository(memory, config=config)
    assert not contents(open_store(memory))


def test_an_engine_from_the_future_is_refused(memory: str) -> None:
    store = open_store(memory)
    fill(store)
    store.put("meta/engine.json", b'{"backend": "s3", "engine_version": "v7"}')
    refused(store, "s3/v7", "newer version")


def test_foreign_objects_are_left_alone(memory: str) -> None:
    store = open_store(memory)
    store.put("photos/cat.jpg", b"meow")
    refused(store, "photos/cat.jpg")


def test_a_stamp_that_does_not_parse_is_named(memory: str) -> None:
    store = open_store(memory)
    store.put("meta/engine.json", b"\xff{")
    refused(store, "meta/engine.json")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"commit_id": "x"}'])
def test_a_head_that_does_not_parse_is_named(memory: str, data: bytes) -> None:
    store = open_store(memory)
    fill(store)
    store.put("meta/head.json", data)
    refused(store, "meta/head.json")


def test_a_head_that_is_gone_is_named(memory: str) -> None:
    store = open_store(memory)
    fill(store)
    store.delete(["meta/head.json"])
    refused(store, "meta/head.json", "commits/")


def test_a_head_that_points_nowhere_is_named(memory: str) -> None:
    store = open_store(memory)
    fill(store)
    head = json.loads(store.get("meta/head.json").data)
    store.put("meta/head.json", json.dumps({**head, "manifest_path": "commits/99-x/manifest.json"}).encode())
    refused(store, "commits/99-x/manifest.json")


@pytest.mark.parametrize("data", [b"", b'{"commit_id": 11', b'{"commit_id": 11}'])
def test_a_manifest_that_does_not_parse_is_named(memory: str, data: bytes) -> None:
    store = open_store(memory)
    fill(store)
    path = json.loads(store.get("meta/head.json").data)["manifest_path"]
    store.put(path, data)
    refused(store, path)


def state_files(store: ObjectStore, kind: str = "entity", name: str = "Human") -> Any:
    session = opened(store)
    files = session.repository.moment().state(kind, name).runs  # type: ignore[attr-defined]
    session.close()
    return files


@pytest.mark.parametrize("damage", ["cut short", "gone", "flipped", "not Parquet"])
def test_damaged_files_are_named_and_others_are_read(memory: str, damage: str) -> None:
    store = open_store(memory)
    fill(store)
    path = state_files(store)[0].path
    data = store.get(path).data
    if damage == "gone":
        store.delete([path])
    else:
        middle = len(data) // 4
        store.put(path, {"cut short": data[:-20], "not Parquet": b"x" * len(data),
                         "flipped": data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :]}[damage])
    refused(store, path)
    session = opened(store)
    assert session.query().relations(Knows).count() == 1, "what can be read is read"
    assert [found.where for found in session.repository.check()] == [path]
    session.close()


def test_a_missing_bucket_and_wrong_credentials_are_said(seaweed_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = seaweed_url.replace("s3://test/", "s3://no-such-bucket/")
    with pytest.raises(Invalid, match="no-such-bucket"):
        Session(bucket, entity_types=[Human])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(Invalid):
        Session(seaweed_url, entity_types=[Human])


def test_a_directory_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    store = open_store((tmp_path / "lake").as_uri())
    fill(store)
    with Session(store.url, entity_types=[Human], relation_types=[Knows], config={"readonly": True}) as session:
        assert session.query().entities(Human).count() == 5
        session.ensure(Human(id="new", name="x"))
        with pytest.raises(StorageBackendError, match="reading only"):
            session.commit()
        session.discard()
