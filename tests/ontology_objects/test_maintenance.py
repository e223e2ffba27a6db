"""Looking after a store: files are merged, what nobody needs goes, indices are made anew, and no row is lost."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.ontology.shop import Customer, Order, Placed

from ontolake.model import Entity, Field
from ontolake.objects import ObjectStore, open_store
from ontolake.ontology import MigrationTokenError, QueryError, SchemaValidationError, Session, TypeDroppedError
from ontolake.ontology.repository import S3RepositoryV2
from ontolake.ontology.repository.objects.upkeep import maintenance
from ontolake.ontology.sizes import DEFAULT

from .works import After, Human, Knows, fill, migrate, opened, seen


def repository_of(session: Session) -> Any:
    return session.repository


def test_merging_changes_nothing_that_is_read(memory: str) -> None:
    store = open_store(memory)
    fill(store)
    before = seen(store)
    session = opened(store)
    planned = maintenance.compact(repository_of(session))
    assert seen(store) == before, "a preview"
    done = maintenance.compact(repository_of(session), dry_run=False)
    assert [(one.type_name, one.files_before) for one in done] == [(one.type_name, one.files_before) for one in planned]
    assert seen(store) == before
    state = repository_of(session).moment().state("entity", "Human")
    assert (len(state.runs), len(state.past), state.runs[0].row_count, state.past[0].row_count) == (1, 1, 5, 6)
    assert not maintenance.compact(repository_of(session), dry_run=False), "there is nothing left to merge"
    with pytest.raises(QueryError, match="Nobody"):
        maintenance.compact(repository_of(session), types=["Nobody"])
    session.close()


def test_what_nobody_needs_goes_and_nothing_else(memory: str) -> None:
    store = open_store(memory)
    fill(store, "v2")
    migrate(store)
    session = opened(store, After)
    for number in range(30):
        session.ensure(After[0](id=f"p{number % 6}", name=f"later {number}"))
        session.commit()
    maintenance.compact(repository_of(session), dry_run=False)
    store.put("commits/99-dead0000/manifest.json", b"an attempt that came to nothing")
    store.put("notes/mine.txt", b"not ours")
    before = seen(store)
    assert not maintenance.garbage(repository_of(session)).keys, "it is too young to go"
    found = maintenance.garbage(repository_of(session), grace=0)
    assert "commits/99-dead0000/manifest.json" in found.keys
    assert any(key.startswith("snapshots/") for key in found.keys)
    assert "notes/mine.txt" not in found.keys
    with pytest.raises(MigrationTokenError):
        maintenance.collect(repository_of(session), "wrong", grace=0)
    maintenance.collect(repository_of(session), found.token, grace=0)
    session.close()
    assert seen(store) == before
    session = opened(store, After)
    assert not maintenance.garbage(repository_of(session), grace=0).keys
    for commit in session.list_commits():
        session.list_commit_changes(commit.id)
    session.close()


def test_indices_follow_and_are_made_anew(memory: str) -> None:
    store = open_store(memory)
    fill(store)
    migrate(store)
    session = opened(store, After)
    states = {one.key: one.state for one in maintenance.verify_index(repository_of(session))}
    assert set(states.values()) == {"ok"}
    index = json.loads(store.get("meta/indices/entities/Human.json").data)
    assert (index["current_schema_version_id"], index["activation_commit_id"]) == (2, 12)
    assert index["historical_versions"] == [
        {"schema_version_id": 1, "activation_commit_id": 1, "superseded_at_commit_id": 12}]
    assert all(entry["schema_version_id"] == 2 for entry in index["entries"])
    catalog = json.loads(store.get("meta/type_layout_catalog.json").data)["layouts"]
    assert [(one["type_name"], one["schema_version_id"], one["is_current"]) for one in catalog] == [
        ("Human", 1, False), ("Human", 2, True), ("Knows", 1, False), ("Knows", 2, True)]
    store.put("meta/indices/entities/Human.json", b"{")
    store.delete(["meta/type_layout_catalog.json"])
    assert seen(store)["Human"][0] == 2, "no read depends on them"
    found = {one.key: one.state for one in maintenance.repair_index(repository_of(session))}
    assert found == {"meta/indices/entities/Human.json": "damaged", "meta/type_layout_catalog.json": "missing"}
    assert {one.state for one in maintenance.verify_index(repository_of(session))} == {"ok"}
    session.close()


def test_indices_of_types_that_a_migration_leaves_alone_stay_up_to_date(memory: str) -> None:
    store = open_store(memory)
    with opened(store) as session:
        session.ensure([Human(id="p1", name="a"), Knows(left_key="p1", right_key="p1")])
        session.commit()
    with Session(memory, entity_types=[After[0]]) as session:
        session.migrate(dry_run=False, force=True)
        assert {one.state for one in maintenance.verify_index(repository_of(session))} == {"ok"}


def test_rows_are_where_the_layout_says_with_typed_columns(memory: str) -> None:
    store = open_store(memory)
    with Session(memory, entity_types=[Customer, Order], relation_types=[Placed]) as session:
        session.ensure(Customer(id="c", name="Ada", tags=["x"]))
        session.ensure(Order(id=1, total=1, at=datetime(2024, 1, 1, tzinfo=UTC)))
        session.ensure(Placed(left_key="c", right_key=1))
        assert isinstance(session.repository, S3RepositoryV2)
    paths = {info.key.split("/", 2)[2] for info in store.list("commits/") if info.key.endswith(".parquet")}
    assert paths == {"entities/Customer/v1.parquet", "entities/Order/v1.parquet", "relations/Placed/v1.parquet"}
    key = next(info.key for info in store.list("commits/") if info.key.endswith("Customer/v1.parquet"))
    schema = pq.read_schema(io.BytesIO(store.get(key).data))
    types = {field.name: field.type for field in schema}
    assert types["active"] == pa.bool_()
    assert types["born"] == pa.date32()
    assert types["score"] == pa.float64()
    assert types["tags"] == pa.string()
    assert {"entity_key", "commit_id", "schema_version_id"} <= set(types)
    assert "fields_json" not in types


def test_a_dropped_type_reads_as_empty_and_takes_no_writes(memory: str) -> None:
    store = open_store(memory)
    fill(store)
    session = opened(store)
    files = {info.key for info in store.list() if "Knows" in info.key and info.key.endswith(".parquet")}
    session.repository.drop_type("relation", "Knows")
    assert session.query().relations(Knows).collect() == []
    session.ensure(Knows(left_key="p1", right_key="p1"))
    with pytest.raises(TypeDroppedError, match="Knows"):
        session.commit()
    session.discard()
    assert session.query().entities(Human).count() == 5
    assert files <= {info.key for info in store.list()}, "what is stored stays"
    layouts = json.loads(store.get("meta/type_layout_catalog.json").data)["layouts"]
    assert not any(one["is_current"] for one in layouts if one["type_name"] == "Knows")
    assert json.loads(store.get("meta/schema/dropped.json").data)["dropped"] == [
        {"type_kind": "relation", "type_name": "Knows"}]
    assert session.repository.head() == 11
    session.close()


class Item(Entity):
    id: Field[str] = Field(primary_key=True)
    price: Field[float]
    note: Field[str | None] = Field(default=None)


def test_arrow_tables_go_in_as_columns_and_are_checked(memory: str) -> None:
    session = Session(memory, entity_types=[Item])
    ids = [f"i{n:05d}" for n in range(500)]
    session.ensure_arrow(Item, pa.table({"id": ids, "price": pa.array(range(500)), "note": [None] * 500}))
    assert session.pending == 500
    assert session.commit() == 1
    session.ensure_arrow(Item, pa.table({"id": ids, "price": pa.array(map(float, range(500))), "note": [None] * 500}))
    assert session.commit() is None, "the same rows again"
    session.ensure_arrow(Item, pa.table({"id": ["b", "a", "b"], "price": [1.0, 2.0, 3.0], "note": ["x", "y", "z"]}))
    assert session.commit() == 2
    found = session.query().entities(Item).where(Item.id == "b").first()
    assert found is not None
    assert (found.price, found.note) == (3.0, "z"), "of one key the last one counts"
    for bad in ({"id": [""], "price": [1.0], "note": [None]}, {"id": ["a"], "price": [None], "note": ["x"]},
                {"id": ["a"], "price": ["much"], "note": ["x"]}, {"id": ["a"], "cost": [1.0]}):  # fmt: skip
        with pytest.raises(SchemaValidationError):
            session.ensure_arrow(Item, pa.table(bad))
    assert session.pending == 0
    session.close()


@pytest.mark.slow
def test_the_number_of_files_stays_small_however_many_commits_follow(memory: str) -> None:
    session = opened(open_store(memory))
    most = 0
    for number in range(400):
        session.ensure(Human(id=f"p{number * 7 % 90}", name="x", age=number))
        session.commit()
        state = repository_of(session).moment().state("entity", "Human")
        most = max(most, len(state.runs) + len(state.past))
    assert most <= DEFAULT.most_runs
    assert session.query().entities(Human).with_history().count() == 400
    session.close()


class Shelf(Entity):
    id: Field[str] = Field(primary_key=True)
    room: Field[str] = Field(index=True)
    note: Field[str]
    width: Field[int]


def test_files_know_the_ends_of_what_filters_look_at(memory: str) -> None:
    store = open_store(memory)
    with Session(memory, entity_types=[Shelf]) as session:
        for number in range(2):
            session.ensure(Shelf(id=f"s{number}", room=f"r{number}", note="x", width=number))
            session.commit()
        before = told(store, "commits/")
        maintenance.compact(repository_of(session), dry_run=False)
    assert before == {"entity_key": ("s1", "s1"), "room": ("r1", "r1"), "width": (1, 1)}, "not of other text"
    after = told(store, "snapshots/")
    assert {name: after[name] for name in before} == {"entity_key": ("s0", "s1"), "room": ("r0", "r1"), "width": (0, 1)}


def told(store: ObjectStore, prefix: str) -> dict[str, tuple[Any, Any]]:
    """The least and the greatest values that the last file below a prefix knows of its columns."""
    keys = [info.key for info in store.list(prefix) if info.key.endswith(".parquet")]
    group = pq.ParquetFile(io.BytesIO(store.get(max(keys)).data)).metadata.row_group(0)
    columns = [group.column(n) for n in range(group.num_columns)]
    return {column.path_in_schema: (column.statistics.min, column.statistics.max) for column in columns
            if column.statistics is not None and column.statistics.has_min_max}


def test_files_that_are_packed_otherwise_are_read_looked_up_and_merged(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """As earlier versions wrote them: with dictionaries, and statistics of every column."""
    written: list[Any] = []

    def as_before(table: pa.Table, sink: Any, **options: Any) -> None:
        for name in ("column_encoding", "write_statistics", "write_batch_size", "use_dictionary", "compression"):
            del options[name]
        written.append(table.num_rows)
        write_table(table, sink, compression="snappy", **options)

    write_table = pq.write_table
    monkeypatch.setattr(pq, "write_table", as_before)
    store = open_store(memory)
    fill(store)
    assert sum(written) >= 11
    before = seen(store)
    monkeypatch.setattr(pq, "write_table", write_table)
    session = opened(store)
    found = session.query().entities(Human).where(Human.id == "p0").first()
    assert found is not None
    assert found.name == "name 10"
    maintenance.compact(repository_of(session), dry_run=False)
    assert seen(store) == before
    session.ensure(Human(id="p0", name="name 10", age=10))
    assert session.commit() is None, "nothing differs"
    session.close()
