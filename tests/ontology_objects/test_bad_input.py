"""What is wrong at a place is said by name; what can be read is read, and nothing is overwritten."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ontolake.errors import Invalid, OntolakeError
from ontolake.objects import ObjectStore, open_store
from ontolake.objects.testing import SeaweedServer
from ontolake.ontology import Config, Session, StorageBackendError, UninitializedStorageError, open_repository
from ontolake.ontology.repository.objects.v1 import S3RepositoryV1
from ontolake.ontology.repository.objects.v2 import S3RepositoryV2
from ontolake.ontology.repository.objects.v3 import S3RepositoryV3

from .works import Human, Knows, commit, fill, opened


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
    assert type(repository) is {"v1": S3RepositoryV1, "v2": S3RepositoryV2, "v3": S3RepositoryV3}[engine]
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
    nowhere = {"manifest_path": "commits/99-x/manifest.json"}
    branches = [{**one, **nowhere} for one in head["branches"]]
    store.put("meta/head.json", json.dumps({**head, **nowhere, "branches": branches}).encode())
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


@pytest.mark.parametrize("data", [b"", b'{"commit_id": 5', None])
def test_a_manifest_far_back_that_does_not_parse_stops_only_what_needs_it(memory: str, data: bytes | None) -> None:
    store = open_store(memory)
    fill(store)
    with opened(store) as session:
        moment: Any = session.repository.moment()  # type: ignore[attr-defined]
        path = next(key for key in (info.key for info in store.list("commits/5-")) if key.endswith("manifest.json"))
        assert moment.at(5) is not None
    if data is None:
        store.delete([path])
    else:
        store.put(path, data)
    with opened(store) as session:
        assert session.query().entities(Human).count() == 5
        assert session.query().entities(Human).with_history().count() == 11
        with pytest.raises(StorageBackendError, match=path):
            session.list_commits()
        assert [path in found.what or path == found.where for found in session.repository.check()] == [True]
        session.ensure(Human(id="new", name="x"))
        assert session.commit() == 12, "the next commit needs it as little"


def test_foreign_objects_beside_a_store_stay_as_they_are(memory: str) -> None:
    store = open_store(memory)
    fill(store)
    foreign = {"photos/cat.jpg": b"meow", "commits/readme.txt": b"not ours", "meta/notes.json": b"{"}
    for key, data in foreign.items():
        store.put(key, data)
    with opened(store) as session:
        assert session.query().entities(Human).count() == 5
        session.ensure(Human(id="new", name="x"))
        assert session.commit() == 12
        assert not list(session.repository.check())
    assert {key: store.get(key).data for key in foreign} == foreign


@pytest.mark.slow
def test_a_missing_bucket_and_wrong_credentials_are_said(seaweed_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = seaweed_url.replace("s3://test/", "s3://no-such-bucket/")
    with pytest.raises(Invalid, match="no-such-bucket"):
        Session(bucket, entity_types=[Human])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(Invalid, match=seaweed_url):
        Session(seaweed_url, entity_types=[Human])


def test_a_store_that_is_open_for_reading_only_is_read(tmp_path: Path) -> None:
    store = open_store((tmp_path / "lake").as_uri())
    fill(store)
    with Session(store.url, entity_types=[Human], relation_types=[Knows], config={"readonly": True}) as session:
        assert session.query().entities(Human).count() == 5
        session.ensure(Human(id="new", name="x"))
        with pytest.raises(StorageBackendError, match="reading only"):
            session.commit()
        session.discard()


def reads_and_does_not_write(store: ObjectStore, before: dict[str, bytes]) -> None:
    """What is written is refused by name, what is read is read, and nothing changes."""
    session = opened(store)
    for _ in range(2):
        assert session.query().entities(Human).count() == 5
        assert session.query().entities(Human).as_of(3).count() == 3
        session.ensure(Human(id="new", name="x"))
        with pytest.raises(Invalid, match=f"(?s)(?=.*{store.url}).*commits/12-"):
            session.commit()
        assert session.pending == 1, "it can be tried again elsewhere"
        session.discard()
    with pytest.raises(Invalid, match=store.url):
        session.repository.drop_type("relation", "Knows")
    with pytest.raises(Invalid, match=store.url):
        session.repository.acquire_lease("me")
    session.close()
    assert contents(store) == before


@pytest.mark.slow
def test_a_bucket_that_may_only_be_read_is_read(
    seaweed: SeaweedServer, seaweed_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(seaweed_url)
    fill(store)
    before = contents(store)
    for name, value in seaweed.reader_env().items():
        monkeypatch.setenv(name, value)
    reads_and_does_not_write(open_store(seaweed_url), before)
    with pytest.raises(Invalid, match=r"engine\.json"):
        Session(f"{seaweed_url}-new", entity_types=[Human])


@contextlib.contextmanager
def without_rights(folder: Path) -> Iterator[None]:
    """Inside the block nobody may write below a folder; root may do anything, and becomes somebody else for it."""
    root = os.geteuid() == 0
    places = [folder, *folder.rglob("*")]
    for place in places:
        place.chmod(0o555 if place.is_dir() else 0o444)
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        for place in places:
            place.chmod(0o755 if place.is_dir() else 0o644)


def test_a_directory_that_cannot_be_written_is_read() -> None:
    with tempfile.TemporaryDirectory() as found:  # others cannot look into tmp_path
        folder = Path(found)
        for name in ("lake", "loaded"):
            fill(open_store((folder / name).as_uri()))
        store = open_store((folder / "lake").as_uri())
        before = contents(store)
        commit(open_store((folder / "loaded").as_uri()))  # loads what somebody else may have no right to load
        with without_rights(folder):
            reads_and_does_not_write(open_store(store.url), before)
            with pytest.raises(Invalid, match=f"folder {re.escape(found)} may not be written to"):
                Session((folder / "new").as_uri(), entity_types=[Human])
        assert contents(store) == before
