"""A session writes the difference and nothing else, all of it or nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import apsw
import pyarrow as pa
import pytest

from ontolake import faults
from ontolake.errors import Invalid
from ontolake.history import ChangeKind
from ontolake.model import Entity, Field, SchemaValidationError
from ontolake.ontology import (
    BatchSizeExceededError,
    Config,
    DanglingRelationError,
    LockContentionError,
    QueryError,
    SchemaOutdatedError,
    Session,
    StorageBackendError,
    TypeDroppedError,
    UnknownCommitError,
    count,
)

from .shop import ENTITIES, RELATIONS, Customer, Order, Placed, Rated


def opened(url: str, engine: str | None = None, **config: Any) -> Session:
    return Session(url, entity_types=ENTITIES, relation_types=RELATIONS, engine_version=engine, config=config)


def test_leaving_the_block_commits(url: str, engine: str) -> None:
    keeper = opened(url, engine)
    with opened(url) as session:
        session.ensure(Customer(id="c", name="Ada"))
    assert [customer.name for customer in keeper.query().entities(Customer).collect()] == ["Ada"]
    keeper.close()


ASKED: dict[str, Callable[[Session], Any]] = {
    "a key": lambda session: session.query().entities(Customer).where(Customer.id == "c").collect(),
    "all": lambda session: session.query().entities(Customer).collect(),
    "the first": lambda session: session.query().entities(Customer).first(),
    "how many": lambda session: session.query().entities(Customer).count(),
    "a group": lambda session: session.query().entities(Customer).group_by(Customer.name).agg(n=count()),
    "the past": lambda session: session.query().entities(Customer).with_history().collect(),
    "arrow": lambda session: session.query().entities(Customer).to_arrow().num_rows,
    "a relation": lambda session: session.query().relations(Placed).where(Placed.left_key == "c").collect(),
    "a way": lambda session: session.query().entities(Customer).via(Placed).collect(),
}


@pytest.mark.parametrize("asked", ASKED)
def test_a_type_that_another_session_stored_first_is_seen_by_those_who_asked_before(
    native: str, engine: str, asked: str
) -> None:
    session, other = opened(native, engine), opened(native)
    ask = ASKED[asked]
    for _ in range(2):
        assert not ask(session)
    order = Order(id=1, total=Decimal(1), at=datetime(2024, 1, 1))
    other.ensure([Customer(id="c", name="Ada"), order, Placed(left_key="c", right_key=1)])
    other.commit()
    assert ask(session)
    session.close()
    other.close()


def test_an_exception_in_the_block_commits_nothing(native: str, engine: str) -> None:
    def work() -> None:
        with opened(native, engine) as session:
            session.ensure(Customer(id="c", name="Ada"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    with opened(native) as session:
        assert session.query().entities(Customer).count() == 0
        assert session.list_commits() == []


def test_only_differences_are_written(native: str, engine: str) -> None:
    session = opened(native, engine)
    people = [Customer(id=f"c{n}", name="Ada", tags=["x"], extra={"b": 1, "a": 2}) for n in range(10)]
    session.ensure(people)
    assert session.commit() == 1
    session.ensure(people)
    assert session.commit() is None
    people[3].extra = {"a": 2, "b": 1}
    people[4].name = "Eve"
    session.ensure(people)
    assert session.commit() == 2
    changes = session.list_commit_changes(2)
    assert [(change.key, change.kind) for change in changes] == [("c4", ChangeKind.UPDATE)]
    assert changes[0].before is not None
    assert changes[0].after is not None
    assert (changes[0].before["name"], changes[0].after["name"]) == ("Ada", "Eve")
    session.close()


def test_the_last_of_several_with_one_key_wins(native: str, engine: str) -> None:
    session = opened(native, engine)
    session.ensure([Customer(id="c", name="one"), Customer(id="c", name="two")])
    session.ensure(Customer(id="c", name="three"))
    assert session.pending == 1
    session.commit()
    assert [row.name for row in session.query().entities(Customer).with_history().collect()] == ["three"]
    session.close()


def test_what_is_ensured_is_how_it_was_then(native: str) -> None:
    session = opened(native)
    customer = Customer(id="c", name="Ada")
    session.ensure(customer)
    customer.name = "Eve"
    session.commit()
    found = session.query().entities(Customer).first()
    assert found is not None
    assert found.name == "Ada"
    session.close()


def test_equal_decimals_are_no_difference(native: str, engine: str) -> None:
    session = opened(native, engine)
    session.ensure(Order(id=1, total=Decimal("1.0"), at=datetime(2024, 1, 1)))
    session.commit()
    session.ensure(Order(id=1, total=Decimal("1.00"), at=datetime(2024, 1, 1)))
    assert session.commit() is None
    session.close()


def test_the_difference_of_many_rows_is_a_handful_of_statements(native: str, engine: str) -> None:
    session = opened(native, engine)
    session.ensure(Customer(id=f"c{n}", name="Ada") for n in range(2000))
    session.commit()
    statements: list[str] = []
    session.repository.db.trace_v2(  # type: ignore[attr-defined]
        1, lambda event: statements.append(event["sql"]) if not event["sql"].startswith("INSERT INTO temp") else None)
    session.ensure(Customer(id=f"c{n}", name="Ada" if n % 2 else "Eve") for n in range(2000))
    assert session.commit() == 2
    assert len(statements) < 20
    assert len(session.list_commit_changes(2)) == 1000
    session.close()


def test_an_error_while_working_out_the_difference_frees_the_lock_and_keeps_the_intents(
    native: str, engine: str
) -> None:  # fmt: skip
    def fail(step: str) -> None:
        if step == "ontology: rows written":
            raise RuntimeError("no")

    session = opened(native, engine)
    session.ensure(Customer(id="c", name="Ada"))
    with faults.arm(fail), pytest.raises(RuntimeError):
        session.commit()
    assert session.pending == 1
    other = opened(native, lock_timeout=0.0)
    other.ensure(Customer(id="d", name="Bob"))
    assert other.commit() == 1
    assert session.commit() == 2
    other.close()
    session.close()


def test_a_full_disk_is_told_and_leaves_all_as_it_was(native: str, engine: str) -> None:
    session = opened(native, engine)
    session.ensure(Customer(id="0", name="Ada"))
    assert session.commit() == 1
    (pages,) = session.repository.db.execute("PRAGMA page_count").fetchone()
    session.repository.db.execute(f"PRAGMA max_page_count = {pages + 1}")
    session.ensure(Customer(id=str(n), name="Eve") for n in range(5000))
    with pytest.raises(StorageBackendError, match="the disk is full") as raised:
        session.commit()
    assert native in raised.value.message
    assert raised.value.hint == "make room and try again: nothing was written"
    assert session.query().entities(Customer).first().name == "Ada"
    session.repository.db.execute(f"PRAGMA max_page_count = {pages + 5000}")
    assert session.commit() == 2  # what was declared was kept
    assert session.query().entities(Customer).count() == 5000
    session.close()


def test_a_bad_object_among_good_ones_declares_none(native: str) -> None:
    session = opened(native)
    bad = Customer.model_construct(id="x", name=5)
    with pytest.raises((SchemaValidationError, KeyError)):
        session.ensure([Customer(id="a", name="A"), bad])
    assert session.pending == 0
    session.close()


def test_types_in_the_place_of_a_namespace_and_rows_in_that_of_objects_are_refused(native: str) -> None:
    with pytest.raises(Invalid, match="types go into entity_types"):
        Session(native, [Customer])  # type: ignore[arg-type]
    with opened(native) as session, pytest.raises(SchemaValidationError, match=r"Type\(\*\*row\)"):
        session.ensure({"id": "c", "name": "Ada"})  # type: ignore[arg-type]


def test_types_that_were_not_named_are_refused(native: str) -> None:
    class Stranger(Entity):
        id: Field[str] = Field(primary_key=True)

    session = opened(native)
    with pytest.raises(SchemaValidationError, match="Stranger"):
        session.ensure(Stranger(id="s"))
    with pytest.raises(SchemaValidationError, match="Stranger"):
        session.query().entities(Stranger)
    session.close()
    with pytest.raises(SchemaValidationError, match="Placed: its end"):
        Session(native, relation_types=[Placed])


def test_dangling_ends_are_refused_when_asked(native: str, engine: str) -> None:
    session = opened(native, engine, check_endpoints=True)
    session.ensure(Customer(id="c", name="Ada"))
    session.ensure(Placed(left_key="c", right_key=7))
    with pytest.raises(DanglingRelationError, match=r"Placed \('c', 7\)\.right_key: there is no Order 7"):
        session.commit()
    assert session.list_commits() == []
    session.ensure(Order(id=7, total=Decimal(1), at=datetime(2024, 1, 1)))
    assert session.commit() == 1
    session.close()
    with opened(native) as free:
        free.ensure(Placed(left_key="nobody", right_key=9))
        assert free.commit() == 2


def test_a_batch_that_is_too_big_is_refused(native: str) -> None:
    session = opened(native, max_batch_size=2)
    session.ensure(Customer(id=f"c{n}", name="Ada") for n in range(3))
    with pytest.raises(BatchSizeExceededError) as caught:
        session.commit()
    assert (caught.value.size, caught.value.limit) == (3, 2)
    session.discard()
    assert session.commit() is None
    session.close()


def test_another_schema_is_found_before_anything_is_read_or_written(native: str, engine: str) -> None:
    with opened(native, engine) as session:
        session.ensure(Customer(id="c", name="Ada"))

    def changed() -> type[Entity]:
        class Customer(Entity):
            id: Field[str] = Field(primary_key=True)
            title: Field[str]

        return Customer

    cls: Any = changed()
    session = Session(native, entity_types=[cls])
    for act in (session.validate, session.query().entities(cls).collect, session.query().entities(cls).count):
        with pytest.raises(SchemaOutdatedError) as caught:
            act()
        assert {change.field: change.what for change in caught.value.diffs[0].fields}["title"] == "added"
    session.ensure(cls(id="d", title="Dr"))
    with pytest.raises(SchemaOutdatedError):
        session.commit()
    session.close()
    with opened(native) as again:
        assert again.query().entities(Customer).count() == 1


def test_a_dropped_type_reads_as_empty_and_takes_no_writes(native: str, engine: str) -> None:
    session = opened(native, engine)
    session.ensure(Customer(id="c", name="Ada"))
    session.commit()
    session.repository.drop_type("entity", "Customer")
    other = opened(native)
    for one in (session, other):
        assert one.query().entities(Customer).collect() == []
        assert one.query().entities(Customer).with_history().count() == 0
        one.ensure(Customer(id="d", name="Bob"))
        with pytest.raises(TypeDroppedError):
            one.commit()
    with apsw.Connection(native) as db:
        table = "entity_history" if engine == "v1" else "entity_Customer_v1"
        assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (1,)
    session.close()
    other.close()


def test_a_lock_that_somebody_holds_is_respected_until_it_runs_out(native: str, engine: str) -> None:
    session = opened(native, engine, lock_timeout=0.05)
    with apsw.Connection(native) as db:
        db.execute("INSERT INTO locks VALUES ('ontology_write', 'somebody', '2024-01-01T00:00:00', '2999-01-01T00:00')")
    session.ensure(Customer(id="c", name="Ada"))
    with pytest.raises(LockContentionError, match="somebody"):
        session.commit()
    with apsw.Connection(native) as db:
        db.execute("UPDATE locks SET expires_at = '2024-01-01T00:00:00'")
    assert session.commit() == 1
    session.close()


def test_a_held_lock_keeps_others_out_over_several_commits(native: str) -> None:
    session, other = opened(native), opened(native, lock_timeout=0.02)
    other.ensure(Customer(id="x", name="X"))
    with session.exclusive():
        for n in range(3):
            session.ensure(Customer(id="c", name=f"{n}"))
            session.commit()
            with pytest.raises(LockContentionError):
                other.commit()
    assert other.commit() == 4
    session.close()
    other.close()


def test_commits_can_be_looked_at(native: str, engine: str) -> None:
    session = Session(native, entity_types=ENTITIES, relation_types=RELATIONS, engine_version=engine,
                      instance_metadata={"host": "here"})
    session.ensure(Customer(id="c", name="Ada"))
    session.ensure(Rated(left_key="c", right_key=1, year="2024"))
    session.commit(metadata={"why": "test"})
    commit = session.get_commit(1)
    assert (commit.id, commit.parents, dict(commit.metadata)) == (1, (), {"host": "here", "why": "test"})
    assert commit.time is not None
    assert [(c.table, c.key) for c in session.list_commit_changes(1)] == [
        ("entity/Customer", "c"), ("relation/Rated", ("c", 1, "2024")),
    ]  # fmt: skip
    for wrong in (0, 2, -1, True, "1"):
        with pytest.raises(UnknownCommitError):
            session.get_commit(wrong)  # type: ignore[arg-type]
    session.close()


def test_arrow_tables_are_declared_like_objects(native: str, engine: str) -> None:
    session = opened(native, engine)
    table = pa.table({"id": ["a", "b", "a"], "name": ["A", "B", "C"], "score": [1.5, float("nan"), 2.5],
                      "tags": [["x"], [], None]}) # fmt: skip
    with pytest.raises(SchemaValidationError, match="tags"):
        session.ensure_arrow(Customer, table)
    session.ensure_arrow(Customer, table.set_column(3, "tags", pa.array([["x"], [], ["y"]])))
    assert session.commit() == 1
    found = {row.id: row for row in session.query().entities(Customer).collect()}
    assert found["a"] == Customer(id="a", name="C", score=2.5, tags=["y"])
    assert found["b"].score != found["b"].score
    session.ensure([Customer(id="a", name="C", score=2.5, tags=["y"])])
    assert session.commit() is None
    session.close()


@pytest.mark.parametrize(
    ("table", "field"),
    [
        ({"id": ["a"]}, "name"),
        ({"id": ["a"], "name": ["A"], "nope": [1]}, "nope"),
        ({"id": ["a"], "name": [None]}, "name"),
        ({"id": [""], "name": ["A"]}, "id"),
        ({"id": ["a"], "name": ["A"], "score": ["much"]}, "score"),
        ({"id": ["a"], "name": ["A"], "tier": ["bronze"]}, "tier"),
    ],
)
def test_a_wrong_arrow_table_is_refused_with_the_field(native: str, table: dict[str, Any], field: str) -> None:
    session = opened(native)
    with pytest.raises(SchemaValidationError) as caught:
        session.ensure_arrow(Customer, pa.table(table))
    assert (caught.value.type_name, caught.value.field) == ("Customer", field)
    assert session.pending == 0
    session.close()


def test_what_comes_out_as_arrow_goes_in_again(native: str, engine: str) -> None:
    session = opened(native, engine)
    session.ensure(Order(id=n, total=Decimal("1.5"), at=datetime(2024, 1, 1, n), key=bytes([n])) for n in range(5))
    session.ensure(Customer(id=f"c{n}", name="A", extra={"n": n}, active=n % 2 == 0) for n in range(5))
    session.commit()
    for cls in (Order, Customer):
        table = session.query().entities(cls).to_arrow()
        assert table.num_rows == 5
        own = table.drop_columns([table.column_names[-1]])
        session.ensure_arrow(cls, own)
    assert len(session.list_commits()) == 1
    session.close()


@pytest.mark.parametrize(
    "ask",
    [
        lambda q: q.where(Order.total == 5).collect(),
        lambda q: q.where(Customer.name == 5).collect(),
        lambda q: q.where(Customer.score > "x").collect(),
        lambda q: q.where(Customer.name.path("a") == 1).collect(),
        lambda q: q.where(Customer.name.is_true()).collect(),
        lambda q: q.where(Customer.score.startswith("x")).collect(),
        lambda q: q.where("name = 1"),
        lambda q: q.order_by("name"),
        lambda q: q.sum(Customer.name),
        lambda q: q.limit(-1),
        lambda q: q.as_of(1.5),
        lambda q: q.limit(5).count(),
        lambda q: q.via(Customer),
        lambda q: q.group_by(),
    ],
)
def test_questions_that_mean_nothing_are_refused(native: str, ask: Any) -> None:
    session = opened(native)
    session.ensure(Customer(id="c", name="Ada"))
    session.commit()
    with pytest.raises(QueryError):
        ask(session.query().entities(Customer))
    session.close()


def test_config_reaches_the_session(native: str) -> None:
    session = Session(native, entity_types=ENTITIES, config=Config(max_batch_size=1))
    assert session.config.max_batch_size == 1
    session.close()
