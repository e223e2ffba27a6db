"""What is declared comes back as it was; what cannot be stored is refused by name, and nothing changes."""

from __future__ import annotations

import copy
import pickle
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any, TypedDict

import pyarrow as pa
import pytest
from pydantic import BaseModel, field_validator

from ontolake.errors import Invalid
from ontolake.model import Entity, Field, Relation, SchemaValidationError
from ontolake.ontology import QueryError, Session, StorageBackendError, UnknownCommitError


class Stamped:
    """A mixin that is no type of its own."""

    made: Field[datetime | None] = Field(default=None)
    note: Field[str] = Field(default="", name="remark", index=True)


class Noted(Stamped):
    extra: Field[int] = Field(default=1, ge=0)


class Base(Noted, Entity):
    id: Field[str] = Field(primary_key=True)


class Derived(Base):
    more: Field[str] = Field(default="m")


class Renamed(Base):
    note: Field[str] = Field(default="own", name="annotation")


class Shouted(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str] = Field(name="the name")

    @field_validator("name")
    @classmethod
    def loud(cls, value: str) -> str:
        return value.upper()


class Part(BaseModel):
    a: int
    b: str = "x"


class Address(TypedDict, total=False):
    city: str


class Nested(Entity):
    id: Field[uuid.UUID] = Field(primary_key=True, default_factory=uuid.uuid4)
    part: Field[Part | None] = Field(default=None)
    parts: Field[list[Part]] = Field(default_factory=list)
    pair: Field[tuple[int, str] | None] = Field(default=None)
    unordered: Field[frozenset[str]] = Field(default_factory=frozenset)
    by_number: Field[dict[int, str]] = Field(default_factory=dict)
    moments: Field[dict[str, list[datetime]]] = Field(default_factory=dict)
    address: Field[Address | None] = Field(default=None)
    empty: Field[dict[str, Any]] = Field(default_factory=dict)


class Moment(Entity):
    id: Field[datetime] = Field(primary_key=True)


class Day(Entity):
    id: Field[date] = Field(primary_key=True)


class Linked(Stamped, Relation[Base, Derived]):
    pass


class On(Relation[Moment, Day]):
    pass


ENTITIES: list[Any] = [Base, Derived, Renamed, Shouted, Nested, Moment, Day]
RELATIONS: list[Any] = [Linked, On]


def opened(url: str, engine: str | None = None) -> Session:
    return Session(url, entity_types=ENTITIES, relation_types=RELATIONS, engine_version=engine)


OBJECTS = [
    Base(id="a", note="n", made=datetime(2024, 1, 1, tzinfo=UTC)),
    Derived(id="a", more="z"),
    Renamed(id="c"),
    Shouted(id="e", name="low"),
    Nested(part=Part(a=1), parts=[Part(a=2)], pair=(1, "x"), unordered=frozenset("ba"), by_number={1: "x", 22: "y"},
           moments={"k": [datetime(2024, 1, 1)]}, address={}, empty={}),
    Moment(id=datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=2)))),
    Day(id=date(2024, 1, 1)),
    Linked(left_key="a", right_key="a", note="q"),
    On(left_key=datetime(2024, 1, 1), right_key=date(2024, 1, 1)),
]  # fmt: skip


def test_objects_of_every_shape_come_back_as_they_were(native: str, engine: str) -> None:
    session = opened(native, engine)
    session.ensure(OBJECTS)
    assert session.commit() == 1
    session.ensure(OBJECTS)
    assert session.commit() is None
    session.close()
    session = opened(native)
    for obj in OBJECTS:
        start: Any = session.query()
        query = start.entities(type(obj)) if isinstance(obj, Entity) else start.relations(type(obj))
        found = query.first()
        assert found == obj
        assert found.model_dump() == obj.model_dump()
        assert type(found)(**found.model_dump()) == obj
        assert (found.meta().commit_id, found.meta().type_name) == (1, type(obj).__name__)
    session.close()


def test_fields_of_mixins_are_filters_of_every_type_that_has_them(native: str, engine: str) -> None:
    session = opened(native, engine)
    session.ensure(OBJECTS)
    session.commit()
    assert session.query().entities(Base).where(Base.note == "n", Base.extra == 1).count() == 1
    assert session.query().entities(Derived).where(Derived.note == "", Derived.more == "z").count() == 1
    assert session.query().entities(Renamed).where(Renamed.note == "own").count() == 1
    assert session.query().relations(Linked).where(Linked.note == "q").count() == 1
    assert session.query().entities(Base).order_by(Base.made.desc()).first() == OBJECTS[0]
    assert isinstance(Stamped.note, Field), "a mixin is no type"
    with pytest.raises(QueryError):
        session.query().entities(Base).where(Derived.note == "n").count()
    session.close()


def test_results_keep_where_they_came_from_when_copied_or_changed(native: str) -> None:
    with opened(native) as session:
        session.ensure(OBJECTS[0])
        session.commit()
        found = session.query().entities(Base).first()
        assert found is not None
        for other in (copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found)), found.model_copy()):
            assert other.meta() == found.meta()
        found.extra = 7
        session.ensure(found)
        assert session.commit() == 2
        assert session.query().entities(Base).where(Base.extra == 7).count() == 1


def test_keys_of_every_kind_are_found(native: str, engine: str) -> None:
    session = opened(native, engine)
    session.ensure([Base(id="a\0b"), Base(id="a"), Base(id=" a"), Base(id="A"), Base(id="ä"), Base(id="'")])
    session.ensure([*OBJECTS[4:7]])
    session.commit()
    for key in ("a\0b", "a", " a", "A", "ä", "'"):
        assert [one.id for one in session.query().entities(Base).where(Base.id == key).collect()] == [key]
    nested: Any = OBJECTS[4]
    assert session.query().entities(Nested).where(Nested.id == nested.id).count() == 1
    assert session.query().entities(Moment).where(Moment.id == datetime(2023, 12, 31, 22, tzinfo=UTC)).count() == 1
    assert session.query().entities(Day).where(Day.id == date(2024, 1, 1)).count() == 1
    session.close()


@pytest.mark.parametrize("wrong", [None, 5, "text", b"bytes", Base, [5], [None], [Base(id="x"), "y"]])
def test_what_is_no_object_is_refused(native: str, wrong: Any) -> None:
    session = opened(native)
    with pytest.raises(SchemaValidationError):
        session.ensure(wrong)
    assert session.pending == 0
    session.close()


@pytest.mark.parametrize("many", [1, 20])
def test_text_that_is_not_unicode_is_refused_by_key_and_field(native: str, engine: str, many: int) -> None:
    session = opened(native, engine)
    session.ensure(Base(id=f"b{n}") for n in range(many - 1))
    session.ensure(Base(id="bad", note="\ud800"))
    with pytest.raises(SchemaValidationError, match=r"Base 'bad'\.note: the text is not Unicode"):
        session.commit()
    assert session.list_commits() == []
    session.discard()
    session.ensure(Base(id="good"))
    assert session.commit() == 1
    session.close()


def test_metadata_that_is_no_json_is_refused(native: str, engine: str) -> None:
    session = opened(native, engine)
    session.ensure(Base(id="a"))
    with pytest.raises(Invalid, match="metadata"):
        session.commit(metadata={"x": object()})
    assert session.pending == 1
    assert session.commit(metadata={"x": [1, None]}) == 1
    session.close()


def test_a_closed_session_says_so(native: str, engine: str) -> None:
    session = opened(native, engine)
    session.close()
    session.close()
    session.ensure(Base(id="a"))
    for act in (session.commit, session.list_commits, session.query().entities(Base).count, session.storage_info):
        if act == session.storage_info and engine == "v1":
            continue  # it knows without asking
        with pytest.raises(StorageBackendError, match="was closed"):
            act()


def test_numbers_of_commits_that_cannot_be_are_refused(native: str) -> None:
    with opened(native) as session:
        with pytest.raises(UnknownCommitError):
            session.get_commit(10**30)
        wrong: list[dict[str, Any]] = [{"since": "x"}, {"limit": -1}, {"until": 2**63}, {"limit": True}]
        for options in wrong:
            with pytest.raises(QueryError):
                session.list_commits(**options)


ARROW: list[tuple[Any, dict[str, Any], str | None]] = [
    (Base, {"id": ["x"], "remark": ["stored"]}, None),
    (Base, {"id": ["x"], "note": ["attribute"]}, None),
    (Base, {"id": pa.array(["x"]).dictionary_encode()}, None),
    (Base, {"id": pa.array(["x"], pa.large_string())}, None),
    (Base, {"id": ["x"], "extra": ["15"]}, None),
    (Base, {"id": ["x"], "made": [datetime(2024, 1, 1)]}, None),
    (Base, {"id": ["x"], "made": [None]}, None),
    (Shouted, {"id": ["x"], "name": ["lo"]}, None),
    (Nested, {"parts": [[{"a": 1, "b": "q"}]], "unordered": [["z", "y"]], "pair": [None]}, None),
    (Base, {"id": ["x"], "extra": [-1]}, "extra"),
    (Base, {"id": ["x"], "extra": [1.5]}, "extra"),
    (Base, {"id": ["x"], "extra": pa.array([2**64 - 1], pa.uint64())}, "extra"),
    (Base, {"id": [5]}, "id"),
    (Base, {"id": [None]}, "id"),
    (Base, {"id": ["x"], "note": ["a"], "remark": ["b"]}, "remark"),
    (Base, {"id": pa.array([b"\xff"], pa.binary()).cast(pa.string(), safe=False)}, "id"),
    (Nested, {"parts": [[{"a": "no"}]]}, "parts"),
    (Nested, {"parts": ['[{"a": "no"}]']}, "parts"),
]  # fmt: skip


@pytest.mark.parametrize(("cls", "columns", "field"), ARROW)
def test_arrow_values_are_validated_as_objects_are(
    native: str, engine: str, cls: Any, columns: dict[str, Any], field: str | None
) -> None:  # fmt: skip
    session = opened(native, engine)
    table = pa.table(columns)
    if field is None:
        session.ensure_arrow(cls, table)
        assert session.commit() == 1
        assert session.query().entities(cls).count() == 1
        assert session.query().entities(cls).first() is not None
    else:
        with pytest.raises(SchemaValidationError) as caught:
            session.ensure_arrow(cls, table)
        assert (caught.value.type_name, caught.value.field) == (cls.__name__, field)
        assert "pydantic.dev" not in str(caught.value)
        assert session.pending == 0
    session.close()
