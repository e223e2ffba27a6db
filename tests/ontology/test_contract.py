"""The contract of the engines, promise by promise: what is stored where, and what typed reads may see of it.

Every test runs on SQLite and on objects in memory; those about the layout in a directory of objects too.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, TypedDict

import pytest
from marking import slow_after

from ontolake import faults
from ontolake.model import Entity, Field, type_info
from ontolake.ontology import (
    MigrationResult,
    SchemaOutdatedError,
    SchemaValidationError,
    Session,
    SqliteRepositoryV1,
    SqliteRepositoryV2,
    SqliteRepositoryV3,
    StorageBackendError,
    TypeDroppedError,
    open_repository,
)
from ontolake.ontology.repository import S3RepositoryV1, S3RepositoryV2, S3RepositoryV3

from .stored import Layout, Stored, stored_at
from .test_migration import SPLIT, filled, first, migrated, opened, second, third


@pytest.fixture(params=["sqlite", "memory"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Stored:
    """A place where nothing is yet, and a look at what comes to lie there."""
    return stored_at(str(request.param), tmp_path)


@pytest.fixture
def native(stored: Stored) -> str:
    return stored.url


in_a_directory_too = pytest.mark.parametrize("stored", slow_after(2, ["sqlite", "memory", "directory"]), indirect=True)


@pytest.fixture
def migrated_once(native: str) -> Iterator[tuple[Session, tuple[Any, Any, Any]]]:
    """A v2 store with commits 1 and 2 under the first schemas, and the migration as commit 3."""
    filled(native, "v2").close()
    types = second()
    session = opened(native, types)
    migrated(session, SPLIT)
    yield session, types
    session.close()


CLASSES: dict[tuple[str, str], type] = {
    ("sqlite", "v1"): SqliteRepositoryV1, ("sqlite", "v2"): SqliteRepositoryV2, ("sqlite", "v3"): SqliteRepositoryV3,
    ("s3", "v1"): S3RepositoryV1, ("s3", "v2"): S3RepositoryV2, ("s3", "v3"): S3RepositoryV3,
}  # fmt: skip


class TestEngineMetadataAndDispatch:
    @pytest.mark.parametrize("place", ["sqlite", "memory", "directory"])
    def test_a_store_is_made_with_the_engine_asked_for_or_the_latest(self, tmp_path: Path, place: str) -> None:
        for number, (asked, made) in enumerate(((None, "v3"), ("v1", "v1"), ("v2", "v2"))):
            stored = stored_at(place, tmp_path, number)
            open_repository(stored.url, engine_version=asked).close()
            stamp = stored.stamp()
            assert {name: stamp[name] for name in ("backend", "engine_version")} == {
                "backend": stored.backend, "engine_version": made}

    @in_a_directory_too
    def test_what_is_there_decides_the_class(self, stored: Stored, engine: str) -> None:
        open_repository(stored.url, engine_version=engine).close()
        repository = open_repository(stored.url)
        assert type(repository) is CLASSES[stored.backend, engine]
        repository.close()

    @in_a_directory_too
    def test_an_unknown_engine_is_an_error_that_says_what_to_do(self, stored: Stored) -> None:
        open_repository(stored.url).close()
        stored.set_engine("v7")
        with pytest.raises(StorageBackendError, match=rf"{stored.backend}/v7.*newer version"):
            open_repository(stored.url)

    @in_a_directory_too
    def test_a_store_without_a_stamp_is_v1(self, stored: Stored) -> None:
        filled(stored.url, "v1").close()
        stored.set_engine(None)
        session = opened(stored.url, first())
        assert type(session.repository) is CLASSES[stored.backend, "v1"]
        assert session.query().entities(session.types[0].cls).count() == 2
        session.close()


class TestTypedReads:
    def test_before_activation_there_is_nothing_and_a_diagnostic(self, migrated_once: Any) -> None:
        session, (person, *_) = migrated_once
        query = session.query().entities(person)
        for at in (0, 1, 2):
            found = query.as_of(at).collect()
            assert found == []
            assert found.diagnostics == {"reason": "commit_before_activation", "activation_commit_id": 3}
        assert len(query.as_of(3).collect()) == 2
        assert query.as_of(3).collect().diagnostics == {}

    def test_history_has_rows_of_the_current_version_only(self, stored: Stored, migrated_once: Any) -> None:
        session, (person, *_) = migrated_once
        session.ensure(person(id="a", given="Augusta", family="King"))
        session.commit()
        history = session.query().entities(person).with_history().collect()
        assert [(one.meta().commit_id, one.given) for one in history] == [(3, "Ada"), (3, "Alan"), (4, "Augusta")]
        assert len(stored.partition("entity", "Person", 1) or ()) == 3

    def test_history_since_an_old_commit_starts_at_activation(self, migrated_once: Any) -> None:
        session, (person, *_) = migrated_once
        for since in (0, 1, 2):
            found = session.query().entities(person).history_since(since).collect()
            assert {one.meta().commit_id for one in found} == {3}
            assert len(found) == 2
        assert session.query().entities(person).history_since(3).collect() == []

    @in_a_directory_too
    def test_reads_see_the_partition_of_the_current_version_only(self, stored: Stored, migrated_once: Any) -> None:
        session, (person, *_) = migrated_once
        stored.add_stale_person()  # whoever writes to an old partition is not seen
        query = session.query().entities(person)
        assert sorted(one.id for one in query.collect()) == ["a", "b"]
        assert query.count() == 2
        assert query.where(person.id == "stale").first() is None
        assert query.max(person.id) == "b"
        assert query.to_arrow().num_rows == 2

    def test_no_key_is_lost_in_a_migration(self, native: str) -> None:
        person, place, visited = first()
        session = opened(native, (person, place, visited), "v2")
        for start in range(0, 300, 100):
            session.ensure(person(id=f"p{n}", name=f"A B{start}", age=n) for n in range(start, start + 150))
            session.commit()
        session.close()
        types = second()
        session = opened(native, types)
        migrated(session, SPLIT)
        found = {one.id: (one.family, one.age) for one in session.query().entities(types[0]).collect()}
        assert found == {f"p{n}": (f"B{min(n // 100, 2) * 100}", n) for n in range(350)}
        session.close()

    def test_changes_of_commits_are_shown_as_far_as_the_current_version_goes(self, migrated_once: Any) -> None:
        session, _ = migrated_once
        assert session.list_commit_changes(1) == []
        assert session.list_commit_changes(2) == []
        assert len(session.list_commit_changes(3)) == 4


class TestWritePath:
    @in_a_directory_too
    def test_rows_go_to_the_partition_of_the_current_version(self, stored: Stored, migrated_once: Any) -> None:
        session, _ = migrated_once
        repository = session.repository
        repository.begin_transaction()
        commit = repository.create_commit({})
        repository.insert_entity("Person", "x", {"given": "X", "family": "Y", "age": 1}, commit, schema_version_id=2)
        repository.commit_transaction()
        assert [row for row in stored.partition("entity", "Person", 2) or () if row[0] == "x"] == [("x", 4, 2)]
        assert "x" not in {row[0] for row in stored.partition("entity", "Person", 1) or ()}

    def test_commits_of_single_rows_and_of_sessions_follow_each_other(self, native: str, engine: str) -> None:
        person, *_ = types = first()
        session = opened(native, types, engine)
        repository: Any = session.repository
        for number in range(1, 7, 2):
            session.ensure(person(id="a", name=f"{number}"))
            assert session.commit() == number
            repository.begin_transaction()
            assert repository.create_commit({}) == number + 1
            repository.insert_entity("Person", "b", {"id": "b", "name": f"{number}", "age": 1}, number + 1, 1)
            repository.commit_transaction()
        assert [one.meta().commit_id for one in session.query().entities(person).with_history().collect()] == [
            1, 2, 3, 4, 5, 6]  # fmt: skip
        session.close()

    @pytest.mark.parametrize("version", [1, 3, None])
    def test_another_version_or_none_is_an_error(self, migrated_once: Any, version: int | None) -> None:
        session, _ = migrated_once
        repository = session.repository
        repository.begin_transaction()
        commit = repository.create_commit({})
        with pytest.raises(SchemaValidationError, match="schema_version_id"):
            repository.insert_entity("Person", "x", {"given": "X", "family": "Y", "age": 1}, commit,
                                     schema_version_id=version)
        with pytest.raises(SchemaValidationError, match="schema_version_id"):
            repository.insert_relation("Visited", "a", "p", {"at": datetime(2024, 1, 1), "days": 1}, commit,
                                       schema_version_id=version)
        repository.rollback_transaction()
        assert session.repository.head() == 3

    @in_a_directory_too
    def test_the_first_write_of_a_type_makes_its_partition_in_the_same_commit(self, stored: Stored) -> None:
        native = stored.url
        person, place, visited = first()
        session = opened(native, (person, place, visited), "v2")
        session.ensure(place(id="p"))
        session.commit()
        assert stored.catalog() == [Layout("entity", "Place", 1, 1, True)]
        session.ensure(person(id="a", name="A"))

        def fail(step: str) -> None:
            if step == "ontology: commit written, not yet durable":
                raise RuntimeError

        with faults.arm(fail), pytest.raises(RuntimeError):
            session.commit()
        assert stored.partition("entity", "Person", 1) is None
        session.commit()
        assert stored.catalog()[0] == Layout("entity", "Person", 1, 2, True)
        assert stored.partition("entity", "Person", 1) == [("a", 2, 1)]
        session.close()


@pytest.mark.parametrize(
    ("key", "fields", "field"),
    [
        ("", {"name": "X", "age": 1}, "id"),
        (5, {"name": "X", "age": 1}, "id"),
        ("x", {"name": "X", "age": "one"}, "age"),
        ("x", {"name": None, "age": 1}, "name"),
        ("x", {"name": "X"}, "age"),
        ("x", {"name": "X", "age": 1, "nope": 1}, "nope"),
        ("x", {"name": "X", "age": True}, "age"),
    ],
)
def test_v2_rows_that_do_not_fit_their_columns_are_refused(
    native: str, key: Any, fields: dict[str, Any], field: str
) -> None:  # fmt: skip
    session = filled(native, "v2")
    repository: Any = session.repository
    repository.begin_transaction()
    commit = repository.create_commit({})
    with pytest.raises(SchemaValidationError) as caught:
        repository.insert_entity("Person", key, fields, commit, schema_version_id=1)
    assert (caught.value.type_name, caught.value.field) == ("Person", field)
    repository.rollback_transaction()
    assert session.repository.head() == 2
    session.close()


def test_a_key_is_written_once_in_a_commit(native: str, engine: str) -> None:
    session = filled(native, engine)
    repository: Any = session.repository
    repository.begin_transaction()
    commit = repository.create_commit({})
    repository.insert_entity("Person", "x", {"id": "x", "name": "X", "age": 1}, commit, schema_version_id=1)
    repository.insert_relation("Visited", "x", "p", {"at": "2024-01-01T00:00:00"}, commit, schema_version_id=1)
    with pytest.raises(SchemaValidationError, match="already"):
        repository.insert_entity("Person", "x", {"name": "Y", "age": 1}, commit, schema_version_id=1)
    with pytest.raises(SchemaValidationError, match="already"):
        repository.insert_relation("Visited", "x", "p", {"at": "2024-01-01T00:00:00"}, commit, schema_version_id=1)
    repository.rollback_transaction()
    session.close()


def test_v1_finds_rows_of_an_older_schema_by_the_defaults_that_they_are_shown_with(native: str) -> None:
    def person(more: dict[str, Any]) -> Any:
        fields: dict[str, Any] = {"id": Field(primary_key=True), **{name: field for name, (_, field) in more.items()}}
        types = {"id": Field[str], **{name: Field[kind] for name, (kind, _) in more.items()}}  # type: ignore[valid-type]
        return type(Entity)("Person", (Entity,), {"__module__": __name__, "__annotations__": types, **fields})

    old = person({})
    with Session(native, entity_types=[old], engine_version="v1") as session:
        session.ensure(old(id="a"))
    new = person({
        "text": (str, Field(default="it's")), "number": (int, Field(default=5)), "truth": (bool, Field(default=True)),
        "real": (float, Field(default=float("-inf"))), "raw": (bytes, Field(default=b"\xff")),
        "items": (list[int], Field(default_factory=list)), "maybe": (str | None, Field(default="x")),
    })  # fmt: skip
    session = Session(native, entity_types=[new])
    session.migrate(dry_run=False, force=True, upgraders={})
    query = session.query().entities(new).as_of(1)
    found = query.collect()[0]
    assert (found.text, found.number, found.real, found.maybe) == ("it's", 5, float("-inf"), None)
    for name in ("text", "number", "real", "raw", "items"):
        assert query.where(getattr(new, name) == getattr(found, name)).count() == 1, name
    assert query.where(new.truth.is_true(), new.maybe.is_null()).count() == 1
    assert query.avg_len(new.items) == 0
    assert query.to_arrow().column("number").to_pylist() == [5]
    session.close()


class TestMigration:
    @in_a_directory_too
    @pytest.mark.usefixtures("migrated_once")
    def test_every_migrated_type_has_a_new_partition(self, stored: Stored) -> None:
        for kind, name, old, new in (("entity", "Person", 3, 2), ("entity", "Place", 1, 1),
                                     ("relation", "Visited", 1, 1)):  # fmt: skip
            assert [len(stored.partition(kind, name, version) or ()) for version in (1, 2)] == [old, new]

    def test_the_rewritten_state_is_complete_and_valid(self, migrated_once: Any) -> None:
        session, types = migrated_once
        for cls in types[:2]:
            for one in session.query().entities(cls).collect():
                assert cls.model_validate(one.model_dump()) == one
        assert session.query().entities(types[0]).count() == 2
        assert session.query().entities(types[1]).count() == 1
        assert [one.days for one in session.query().relations(types[2]).collect()] == [1]

    @pytest.mark.parametrize("name", ["Person", "Place", "Visited"])
    def test_activation_comes_with_the_commit_or_not_at_all(self, stored: Stored, name: str) -> None:
        filled(stored.url, "v2").close()
        before, session = stored.catalog(), opened(stored.url, second())

        def fail(step: str) -> None:
            if step == f"ontology: {name} rewritten":
                raise RuntimeError

        with faults.arm(fail), pytest.raises(RuntimeError):
            session.migrate(dry_run=False, force=True, upgraders=SPLIT)
        assert stored.catalog() == before
        kind: Any = "relation" if name == "Visited" else "entity"
        with opened(stored.url, first()) as other:
            assert other.repository.head() == 2
            assert [one.schema_version_id for one in other.repository.schema_versions(kind, name)] == [1]
        session.migrate(dry_run=False, force=True, upgraders=SPLIT)
        assert [one for one in stored.catalog() if one.name == name] == [
            Layout(kind, name, 1, 1, False), Layout(kind, name, 2, 3, True)]
        session.close()

    def test_a_type_without_rows_gets_an_empty_partition_and_an_activation(self, stored: Stored, engine: str) -> None:
        native = stored.url
        types = first()
        session = opened(native, types, engine)
        with session.repository.transaction("test") as transaction:
            for cls in types:
                transaction.register(type_info(cls))
            transaction.finish({})
        session.close()
        session = opened(native, second())
        result = migrated(session, SPLIT)
        assert [(one.type_name, one.to_schema_version_id, one.rows) for one in result.types] == [
            ("Person", 2, 0), ("Place", 2, 0), ("Visited", 2, 0)]  # fmt: skip
        assert {one["rows_rewritten"] for one in session.get_commit(2).metadata["migrated_types"]} == {0}
        if engine != "v1":
            assert stored.partition("entity", "Person", 2) == []
            assert Layout("entity", "Person", 2, 2, True) in stored.catalog()
        new = second()[0]
        again = Session(native, entity_types=[new])
        again.ensure(new(id="a", given="A", family="B"))
        assert again.commit() == 3
        again.close()
        session.close()

    def test_several_types_are_activated_by_one_commit(self, stored: Stored, migrated_once: Any) -> None:
        session, _ = migrated_once
        current = [one for one in stored.catalog() if one.current]
        assert [one[1:4] for one in current] == [("Person", 2, 3), ("Place", 2, 3), ("Visited", 2, 3)]
        metadata = session.get_commit(3).metadata
        assert metadata["kind"] == "migration"
        assert [one["type_name"] for one in metadata["migrated_types"]] == ["Person", "Place", "Visited"]

    def test_versions_follow_each_other_through_chains(self, native: str, engine: str) -> None:
        filled(native, engine).close()
        types = third()
        session = opened(native, types)
        upgraders = {**SPLIT, ("Person", 2): lambda row: {**row, "age": str(row["age"])}}
        result = migrated(session, upgraders)
        assert isinstance(result, MigrationResult)
        assert [(one.type_name, one.from_schema_version_id, one.to_schema_version_id, len(one.upgraders))
                for one in result.types] == [("Person", 1, 3, 2), ("Place", 1, 2, 0), ("Visited", 1, 2, 0)]
        assert {(one.given, one.age) for one in session.query().entities(types[0]).collect()} == {
            ("Ada", "36"), ("Alan", "41")}  # fmt: skip
        session.close()


class Address(TypedDict):
    city: str


class Encoded(Entity):
    id: Field[str] = Field(primary_key=True)
    text: Field[str]
    number: Field[int]
    real: Field[float]
    truth: Field[bool]
    moment: Field[datetime]
    day: Field[date]
    raw: Field[bytes]
    maybe_text: Field[str | None] = Field(default=None)
    maybe_number: Field[int | None] = Field(default=None)
    items: Field[list[int]] = Field(default_factory=list)
    table: Field[dict[str, int]] = Field(default_factory=dict)
    address: Field[Address] = Field(default_factory=lambda: Address(city=""))
    mixed: Field[str | int] = Field(default=0)
    anything: Field[Any] = Field(default=None)


MOMENT = datetime(2024, 1, 2, tzinfo=UTC)
TYPES = {  # of columns, by backend
    "sqlite": {"text": "TEXT", "number": "INTEGER", "real": "REAL", "truth": "INTEGER", "moment": "TEXT", "day": "TEXT",
               "raw": "BLOB", "maybe_text": "TEXT", "maybe_number": "INTEGER"},
    "s3": {"text": "string", "number": "int64", "real": "double", "truth": "bool", "moment": "timestamp[us, tz=UTC]",
           "day": "date32[day]", "raw": "binary", "maybe_text": "string", "maybe_number": "int64"},
}  # fmt: skip
JSON = {"sqlite": "TEXT", "s3": "string"}


@in_a_directory_too
class TestFieldEncoding:
    @pytest.fixture
    def encoded(self, stored: Stored) -> Stored:
        with Session(stored.url, entity_types=[Encoded]) as session:
            session.ensure(Encoded(
                id="a", text="t", number=5, real=2.5, truth=True, moment=MOMENT,
                day=date(2024, 1, 2), raw=b"\xff", items=[1, 2], table={"a": 1}, address={"city": "Ulm"}, mixed="m",
                anything={"b": None}))  # fmt: skip
        return stored

    def test_scalars_have_typed_columns(self, encoded: Stored) -> None:
        columns = encoded.columns("entity", "Encoded", 1)
        assert {name: columns[name] for name in TYPES[encoded.backend]} == TYPES[encoded.backend]
        (row,) = encoded.values("entity", "Encoded", 1)
        assert (row["text"], row["number"], row["real"], bool(row["truth"]), row["raw"]) == ("t", 5, 2.5, True, b"\xff")
        texts = ("2024-01-02T00:00:00.000000+00:00", "2024-01-02")
        assert (row["moment"], row["day"]) == (texts if encoded.backend == "sqlite" else (MOMENT, date(2024, 1, 2)))
        assert "fields_json" not in columns

    def test_optional_scalars_have_columns_that_may_be_empty(self, encoded: Stored) -> None:
        (row,) = encoded.values("entity", "Encoded", 1)
        assert (row["maybe_text"], row["maybe_number"]) == (None, None)

    def test_all_else_is_json(self, encoded: Stored) -> None:
        names = ("items", "table", "address", "mixed", "anything")
        columns = encoded.columns("entity", "Encoded", 1)
        assert {columns[name] for name in names} == {JSON[encoded.backend]}
        (row,) = encoded.values("entity", "Encoded", 1)
        assert [json.loads(row[name]) for name in names] == [[1, 2], {"a": 1}, {"city": "Ulm"}, "m", {"b": None}]


class TestDroppedTypes:
    @in_a_directory_too
    def test_no_layout_of_a_dropped_type_is_current(self, stored: Stored, migrated_once: Any) -> None:
        session, _ = migrated_once
        session.repository.drop_type("entity", "Person")
        assert [(one.version, one.current) for one in stored.catalog() if one.name == "Person"] == [
            (1, False), (2, False)]
        assert "Person" not in session.storage_info()["type_layouts"]
        assert ("entity", "Person") in session.repository.dropped()

    def test_reads_of_a_dropped_type_are_empty_and_writes_refused(self, migrated_once: Any) -> None:
        session, (person, place, visited) = migrated_once
        session.repository.drop_type("entity", "Person")
        query = session.query().entities(person)
        assert (query.collect(), query.count(), query.first(), query.max(person.age)) == ([], 0, None, None)
        assert (query.as_of(3).collect(), query.with_history().collect(), query.to_arrow().num_rows) == ([], [], 0)
        assert query.via(visited).collect() == []
        assert session.query().entities(place).via(visited).collect() == []
        assert session.query().relations(visited).count() == 1
        session.ensure(person(id="z", given="Z", family="Z"))
        with pytest.raises(TypeDroppedError, match="Person was dropped"):
            session.commit()
        session.discard()

    @in_a_directory_too
    def test_partitions_stay(self, stored: Stored, migrated_once: Any) -> None:
        session, _ = migrated_once
        session.repository.drop_type("entity", "Person")
        assert [len(stored.partition("entity", "Person", version) or ()) for version in (1, 2)] == [3, 2]


class TestConcurrentAccess:
    def test_a_reader_sees_the_state_before_a_migration_until_it_is_committed(self, native: str, engine: str) -> None:
        reader = filled(native, engine)
        person = reader.types[0].cls
        session = opened(native, second())
        seen: list[int | None] = []
        one_at_a_time = threading.Lock()  # objects are written by several threads

        def read(step: str) -> None:
            with one_at_a_time:
                try:
                    seen.append(reader.query().entities(person).count())
                except SchemaOutdatedError:
                    seen.append(None)

        with faults.arm(read):
            session.migrate(dry_run=False, force=True, upgraders=SPLIT)
        before = seen.index(None) if None in seen else len(seen)
        assert before >= 7
        assert set(seen[:before]) == {2}
        assert set(seen[before:]) <= {None}, "never the old state again"
        with pytest.raises(SchemaOutdatedError):
            reader.query().entities(person).count()
        assert session.query().entities(session.types[0].cls).count() == 2
        reader.close()
        session.close()


@pytest.mark.parametrize("many", [1, 40])
@pytest.mark.parametrize("raised", [RuntimeError, KeyboardInterrupt, MemoryError])
def test_whatever_breaks_off_a_commit_frees_the_lock_and_keeps_what_was_declared(
    stored: Stored, engine: str, many: int, raised: type[BaseException]
) -> None:  # fmt: skip
    native = stored.url
    person, place, visited = first()
    session = opened(native, (person, place, visited), engine)
    session.ensure(person(id="old", name="O"))
    session.commit()
    steps: list[str] = []
    for number in range(10):
        session.ensure(person(id=f"p{n}", name=f"{number}") for n in range(many))
        session.ensure(visited(left_key="old", right_key=f"{n}", at=datetime(2024, 1, 1)) for n in range(many))

        def stop(step: str, number: int = number) -> None:
            if step.startswith("ontology: ") and step not in steps and not step.endswith("commit durable"):
                steps.append(step)
                raise raised

        with faults.arm(stop):
            try:
                session.commit()
                break
            except raised:
                assert session.pending == 2 * many
        other = Session(native, entity_types=[person, place], relation_types=[visited], config={"lock_timeout": 0})
        other.ensure(place(id=f"{number}"))
        assert other.commit() == number + 2, "the lock is free, and nothing was left behind"
        other.close()
    assert len(steps) == (2 if many == 1 and stored.backend == "sqlite" else 3), steps
    assert session.pending == 0
    assert session.query().entities(person).count() == many + 1
    assert session.query().relations(visited).count() == many
    session.close()
