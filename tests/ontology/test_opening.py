"""A store says what it is, and is opened as that or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest

from ontolake.errors import Invalid
from ontolake.ontology import (
    Config,
    Session,
    SqliteRepositoryV1,
    SqliteRepositoryV2,
    SqliteRepositoryV3,
    StorageBackendError,
    UninitializedStorageError,
    open_repository,
)

from .shop import ENTITIES, RELATIONS, Customer

CLASSES = {"v1": SqliteRepositoryV1, "v2": SqliteRepositoryV2, "v3": SqliteRepositoryV3}


def stamp(url: str) -> dict[str, str]:
    with apsw.Connection(url) as db:
        return dict(db.execute("SELECT key, value FROM storage_meta").fetchall())


def test_a_new_store_has_the_latest_engine_and_says_so(native: str) -> None:
    repository = open_repository(native)
    assert isinstance(repository, SqliteRepositoryV3)
    assert repository.storage_info() == {
        "backend": "sqlite", "engine_version": "v3", "db_path": native, "type_layouts": {},
    }  # fmt: skip
    repository.close()
    found = stamp(native)
    assert len(found.pop("columns")) == 32, "by which columns beside the store are known to be its own"
    assert found == {"backend": "sqlite", "engine_version": "v3"}


def test_a_store_is_opened_with_the_engine_it_was_made_with(url: str, engine: str) -> None:
    first = open_repository(url, engine_version=engine)
    assert type(first) is CLASSES[engine]
    again = open_repository(url)
    assert type(again) is CLASSES[engine]
    assert again.storage_info()["engine_version"] == engine
    again.close()
    first.close()


def test_asking_for_another_engine_than_the_stored_one_is_an_error(native: str, engine: str) -> None:
    open_repository(native, engine_version=engine).close()
    other = "v1" if engine == "v2" else "v2"
    with pytest.raises(StorageBackendError, match=f"has the engine {engine}, not {other}"):
        open_repository(native, engine_version=other)


def test_a_store_from_before_stamps_is_v1(native: str) -> None:
    with Session(native, entity_types=ENTITIES, relation_types=RELATIONS, engine_version="v1") as session:
        session.ensure(Customer(id="c", name="Ada"))
    with apsw.Connection(native) as db:
        db.execute("DROP TABLE storage_meta")
    with Session(native, entity_types=ENTITIES, relation_types=RELATIONS) as session:
        assert isinstance(session.repository, SqliteRepositoryV1)
        assert session.query().entities(Customer).count() == 1


def test_an_empty_file_is_a_new_store(native: str) -> None:
    Path(native).touch()
    assert isinstance(open_repository(native), SqliteRepositoryV2)


@pytest.mark.parametrize("value", ["v4", "", "2", "V2"])
def test_an_engine_of_the_future_is_refused_and_left_alone(native: str, value: str) -> None:
    open_repository(native).close()
    with apsw.Connection(native) as db:
        db.execute("UPDATE storage_meta SET value = ? WHERE key = 'engine_version'", (value,))
    with pytest.raises(StorageBackendError, match=f"sqlite/{value}"):
        open_repository(native)
    assert stamp(native)["engine_version"] == value
    with pytest.raises(StorageBackendError, match="is not known"):
        open_repository(native, engine_version="v9")


def test_a_database_that_holds_something_else_is_refused(native: str) -> None:
    with apsw.Connection(native) as db:
        db.execute("CREATE TABLE recipes (name)")
    with pytest.raises(StorageBackendError, match="recipes"):
        open_repository(native)


def test_a_file_that_is_no_database_is_refused(native: str) -> None:
    Path(native).write_bytes(b"this is not a database, however long one looks at it" * 100)
    with pytest.raises(StorageBackendError, match="not a SQLite database"):
        open_repository(native)


def test_a_damaged_database_is_refused_with_a_typed_error(native: str) -> None:
    open_repository(native).close()
    data = bytearray(Path(native).read_bytes())
    data[100:2000] = b"\xff" * 1900
    Path(native).write_bytes(bytes(data))
    with pytest.raises(StorageBackendError):
        open_repository(native)


@pytest.mark.parametrize("config", [Config(create=False), {"readonly": True}])
def test_nothing_is_made_where_nothing_was_to_be_made(native: str, config: Any) -> None:
    with pytest.raises(UninitializedStorageError) as caught:
        open_repository(native, config=config)
    assert caught.value.uri == native
    assert not Path(native).exists()


def test_unknown_settings_are_named(native: str) -> None:
    with pytest.raises(Invalid, match="colour"):
        open_repository(native, config={"colour": "red"})


def test_a_read_only_session_reads_and_does_not_write(native: str, engine: str) -> None:
    with Session(native, entity_types=ENTITIES, engine_version=engine) as session:
        session.ensure(Customer(id="c", name="Ada"))
    reader = Session(native, entity_types=ENTITIES, config=Config(readonly=True))
    assert reader.query().entities(Customer).count() == 1
    reader.ensure(Customer(id="d", name="Bob"))
    with pytest.raises(StorageBackendError, match="reading only"):
        reader.commit()
    reader.close()
