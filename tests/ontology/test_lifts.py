"""Migrations without upgraders: renames, widenings, fields that come and go, with every value the same to the bit."""

from __future__ import annotations

import enum
import math
import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, NotRequired

import pytest
from pydantic import TypeAdapter, field_validator
from typing_extensions import TypedDict

from ontolake.model import Entity, Field, Relation, SchemaValidationError, build_type_spec
from ontolake.model.schema import schema_of
from ontolake.model.stored import StoredType
from ontolake.model.types import type_info
from ontolake.model.widening import widening
from ontolake.ontology import MigrationError, MigrationTokenError, MissingUpgraderError, Session
from ontolake.ontology.arrow.physical import COMMIT, rows_of, table_of
from ontolake.ontology.migration.lifts import Lift, Unliftable, lift_between
from ontolake.ontology.migration.rewrite import Migration
from ontolake.ontology.migration.tables import upgraded_rows_of


def first() -> tuple[Any, Any]:
    class Part(Entity):
        id: Field[str] = Field(primary_key=True)
        size: Field[int]
        sizes: Field[list[int]]
        label: Field[str]
        price: Field[Decimal]
        weight: Field[float]
        at: Field[datetime]
        scrap: Field[str]
        kind: Field[Literal["a", "b"]]
        code: Field[int]

    class Fits(Relation[Part, Part]):
        slot: Field[str] = Field(instance_key=True)
        n: Field[int]

    return Part, Fits


def second() -> tuple[Any, Any]:
    class Part(Entity):
        number: Field[str] = Field(primary_key=True, was="id")
        size: Field[float | None]
        sizes: Field[list[float]]
        title: Field[str] = Field(was="label")
        price: Field[Decimal | None] = Field(default=None)
        weight: Field[float]
        at: Field[datetime]
        kind: Field[str]
        code: Field[int | str]
        stock: Field[int] = Field(default=7, was=())
        tags: Field[list[str]] = Field(default_factory=list, was=())

        @field_validator("title")
        @classmethod
        def small(cls, value: str) -> str:
            return value.lower()

    class Fits(Relation[Part, Part]):
        place: Field[str] = Field(instance_key=True, was="slot")
        n: Field[float]

    return Part, Fits


ROWS: list[dict[str, Any]] = [
    {"id": "p1", "size": 2**53, "sizes": [1, -(2**53)], "label": "Büchse", "price": Decimal("1.50"), "weight": -0.0,
     "at": datetime(2024, 1, 1), "scrap": "x", "kind": "a", "code": 2**60 + 1},
    {"id": "p2", "size": -(2**62), "sizes": [], "label": "B'\"x", "price": Decimal("1E+3"), "weight": math.nan,
     "at": datetime(2024, 1, 1, tzinfo=UTC), "scrap": "", "kind": "b", "code": -1},
    {"id": "p3", "size": 0, "sizes": [0], "label": "", "price": Decimal("-0.000"), "weight": 5e-324,
     "at": datetime(1, 1, 1), "scrap": "y", "kind": "b", "code": 0},
]  # fmt: skip


def opened(url: str, types: tuple[Any, Any], engine: str | None = None) -> Session:
    return Session(url, entity_types=[types[0]], relation_types=[types[1]], engine_version=engine)


def filled(url: str, engine: str, rows: list[dict[str, Any]] | None = None) -> None:
    part, fits = first()
    with opened(url, (part, fits), engine) as session:
        session.ensure(part(**row) for row in rows or ROWS)
        session.ensure(fits(left_key="p1", right_key="p2", slot="s", n=3))


def bits(value: Any) -> Any:
    """A value in a form in which only the same value is equal."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    return [bits(one) for one in value] if isinstance(value, list) else (type(value), repr(value))


def test_rows_are_the_same_to_the_bit_and_the_preview_says_what_becomes_of_each_field(url: str, engine: str) -> None:
    filled(url, engine)
    types = second()
    part, fits = types
    with opened(url, types) as session:
        preview: Any = session.migrate(upgraders={})
        assert preview.missing == ()
        assert sorted(map(str, preview.types[0].fields)) == [
            "at kept", "code int → int | str", "id renamed number", "kind Literal['a', 'b'] → str",
            "label renamed title", "price Decimal → Decimal | None", "scrap dropped", "size int → float | None",
            "sizes list[int] → list[float]", "stock added as 7", "tags added as made", "weight kept"]  # fmt: skip
        result: Any = session.migrate(dry_run=False, token=preview.token, upgraders={})
        assert [one.rows for one in result.types] == [3, 1]
        found = {one.number: one for one in session.query().entities(part).collect()}
        for row in ROWS:
            wanted = {"number": row["id"], "size": float(row["size"]), "sizes": [float(n) for n in row["sizes"]],
                      "title": row["label"], "stock": 7, "tags": [],
                      **{name: row[name] for name in ("price", "weight", "at", "kind", "code")}}  # fmt: skip
            shown = found[row["id"]].model_dump()
            assert {name: bits(value) for name, value in shown.items()} == {
                name: bits(value) for name, value in wanted.items()}  # fmt: skip
        assert found["p1"].tags is not found["p2"].tags
        (link,) = session.query().relations(fits).collect()
        assert (link.left_key, link.right_key, link.place, bits(link.n)) == ("p1", "p2", "s", bits(3.0))
        assert session.query().entities(part).where(part.size > 1.0).via(fits).count() == 1
        before = session.query().entities(part).as_of(1, schema="current", upgraders={}).collect()
        assert {one.number: bits(one.size) for one in before} == {key: bits(one.size) for key, one in found.items()}
        session.ensure(found["p1"].model_copy(update={"title": "Büchse"}))
        assert session.commit() is None, "rows are what objects of the same values would be"


@pytest.mark.parametrize(("field", "value"), [("size", 2**53 + 1), ("sizes", [1, 2**53 + 1])])
def test_a_number_that_no_float_is_equal_to_is_refused_and_nothing_changes(
    url: str, engine: str, field: str, value: Any
) -> None:  # fmt: skip
    filled(url, engine, [*ROWS, {**ROWS[0], "id": "odd", field: value}])
    with opened(url, second()) as session:
        with pytest.raises(MigrationError, match=rf"Part 'odd'\.{field} does not fit: no float is equal to 9007"):
            session.migrate(dry_run=False, force=True, upgraders={})
        assert session.repository.head() == 1
    with opened(url, first()) as session:
        part = session.types[0].cls
        found: Any = session.get(part, "odd")
        assert (session.query().entities(part).count(), getattr(found, field)) == (4, value)


def test_an_upgrader_wins_over_what_would_go_without(url: str, engine: str) -> None:
    filled(url, engine)
    types = second()

    def doubled(row: dict[str, Any]) -> dict[str, Any]:
        return {"left_key": row["left_key"], "right_key": row["right_key"], "place": row["slot"], "n": row["n"] * 2.0}

    with opened(url, types) as session:
        preview: Any = session.migrate(upgraders={("Fits", 1): doubled})
        assert [(one.type_name, len(one.upgraders), bool(one.fields)) for one in preview.types] == [
            ("Part", 0, True), ("Fits", 1, False)]  # fmt: skip
        session.migrate(dry_run=False, token=preview.token, upgraders={("Fits", 1): doubled})
        assert session.query().relations(types[1]).collect()[0].n == 6.0


def thing(**fields: Any) -> Any:
    """An entity type with a key `id` and these fields: an annotation, or one with its declaration."""
    pairs = {name: value if isinstance(value, tuple) else (value, None) for name, value in fields.items()}
    body: dict[str, Any] = {"__module__": __name__, "__annotations__": {"id": Field[str]},
                            "id": Field(primary_key=True)}  # fmt: skip
    for name, (annotation, declared) in pairs.items():
        body["__annotations__"][name] = Field[annotation]
        if declared is not None:
            body[name] = declared
    return type(Entity)("Thing", (Entity,), body)


def lift(old: Any, new: Any, now: Any = None) -> Lift | Unliftable:
    return lift_between(schema_of(old), schema_of(new), type_info(now or new).all_columns)


REASONS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"a": int}, {"b": (int | None, Field(default=None))}, "b is new and a is gone: declare b with was='a'"),
    ({"a": int}, {"a": int, "b": int}, "b is new and has no default"),
    ({"a": int}, {"a": str}, "a changes from int → str"),
    ({"a": float}, {"a": int}, "a changes from float → int"),
    ({"a": int | None}, {"a": int}, "a changes from int | None → int"),
    ({"a": int}, {"b": (str, Field(was="a"))}, "b changes from int → str"),
    ({"a": int}, {"b": (int, Field(was="a")), "c": (int, Field(was="a"))}, "a was the name of more than one field"),
    ({"a": int}, {"b": (int, Field(was="a")), "a": int}, "a is new and has no default"),
]


@pytest.mark.parametrize(("before", "after", "reason"), REASONS, ids=range(len(REASONS)))
def test_what_needs_an_upgrader_is_said_with_the_reason(
    url: str, engine: str, before: dict[str, Any], after: dict[str, Any], reason: str
) -> None:  # fmt: skip
    old, new = thing(**before), thing(**after)
    with Session(url, entity_types=[old], engine_version=engine) as session:
        session.ensure(old(id="x", a=1))
    with Session(url, entity_types=[new]) as session:
        with pytest.raises(MissingUpgraderError) as caught:
            session.migrate(dry_run=False, force=True, upgraders={})
        assert reason in str(caught.value)
        assert session.repository.head() == 1


def test_a_key_that_becomes_another_needs_an_upgrader() -> None:
    class Thing(Entity):
        a: Field[str] = Field(primary_key=True)
        id: Field[str]

    assert lift(thing(a=str), Thing) == Unliftable(("the keys were id and are a",))


def test_names_are_followed_through_all_versions(url: str, engine: str) -> None:
    """Renamed twice; once more under another name's old one; dropped and back again, which is another field."""
    versions = [
        thing(a=int, z=(int, Field(default=0))),
        thing(b=(int, Field(was="a"))),
        thing(c=(float, Field(was=("b", "a"))), z=(int, Field(default=5))),
        thing(c=(float, Field(was=("b", "a"))), z=(int, Field(default=5)), a=(int | None, Field(was=()))),
    ]
    for number, cls in enumerate(versions):
        with Session(url, entity_types=[cls], engine_version=engine) as session:
            if number:
                session.migrate(dry_run=False, force=True, upgraders={})
            else:
                session.ensure(cls(id="x", a=3, z=9))
    now = versions[-1]
    with Session(url, entity_types=[now]) as session:
        query: Any = session.query().entities(now)
        wanted = {"id": "x", "c": 3.0, "z": 5, "a": None}
        assert query.first().model_dump() == wanted
        assert [query.as_of(n, schema="current", upgraders={}).first().model_dump() for n in (1, 2, 3)] == [wanted] * 3
        own = {("Thing", 2): lambda row: {"id": row["id"], "c": row["b"] + 0.5, "z": 1}}
        lifted = query.as_of(1, schema="current", upgraders=own).first()
        assert lifted.model_dump() == {**wanted, "c": 3.5, "z": 1}, "lifts and upgraders take turns"


def test_another_declaration_needs_another_preview(url: str, engine: str) -> None:
    old = thing(a=int, b=int)
    with Session(url, entity_types=[old], engine_version=engine) as session:
        session.ensure(old(id="x", a=1, b=2))
    token = ""
    for was in ("a", "b"):
        with Session(url, entity_types=[thing(c=(int, Field(was=was)))]) as session:
            if token:
                with pytest.raises(MigrationTokenError):
                    session.migrate(dry_run=False, token=token, upgraders={})
            preview: Any = session.migrate(upgraders={})
            token = preview.token
    session = Session(url, entity_types=[thing(c=(int, Field(was="b")))])
    session.migrate(dry_run=False, token=token, upgraders={})
    assert session.query().entities(session.types[0].cls).first().c == 2  # type: ignore[attr-defined]
    session.close()


class Color(enum.Enum):
    RED = "r"
    BLUE = "b"


class Shade(enum.Enum):
    RED = "r"
    BLUE = "b"
    GREEN = "g"


Size = TypedDict("Size", {"w": int, "h": NotRequired[int]})  # noqa: UP013 - a class would have its annotations as text
Box = TypedDict("Box", {"w": float, "h": NotRequired[int], "d": NotRequired[str]})  # noqa: UP013

WIDER: list[tuple[Any, Any, list[Any]]] = [
    (int, float, [0, -5, 2**53]),
    (int, int | None, [3]),
    (int | None, float | None, [3, None]),
    (int | str, float | str, [3, "x", "3"]),
    (int | str, float | str | None, [3]),
    (list[int], list[float], [[1, 2], []]),
    (list[int] | None, list[float | None] | None, [[1], None]),
    (dict[str, int], dict[str, float], [{"a": 1}]),
    (tuple[int, str], tuple[float, str], [(1, "a")]),
    (set[int], set[float], [{1, 2}]),
    (list[dict[str, list[int]]], list[dict[str, list[float]]], [[{"a": [1]}]]),
    (Literal["a", "b"], Literal["b", "c", "a"], ["a"]),
    (Literal["a", "b"], str, ["a"]),
    (Color, Shade, [Color.RED]),
    (Color, str, [Color.BLUE]),
    (Size, Box, [{"w": 1, "h": 2}, {"w": 3}]),
    (datetime, datetime | str, [datetime(2024, 1, 2, 3), datetime(2024, 1, 2, tzinfo=UTC)]),
    (Decimal, Decimal | int, [Decimal("1.50")]),
    (bytes, bytes | int, [b"\x00\xff"]),
    (float, float | str, [math.inf, 0.1]),
    (int | float, float, [1, 0.5]),
]
NOT_WIDER: list[tuple[Any, Any]] = [
    (float, int), (str, int), (bool, int), (int, bool), (int, Decimal), (int | None, int), (str | None, str),
    (list[int], set[int]), (list[int], list[str]), (tuple[int, int], tuple[int]), (tuple[int, ...], tuple[int, int]),
    (dict[str, int], dict[int, int]), (Box, Size), (Size, TypedDict("Other", {"w": int, "h": int})),
    (Shade, Color), (Literal[1], Literal["1"]), (Literal[1, "a"], str), (Literal["a", None], str), (list[int], Any),
    (list[int] | list[str], list[float] | list[str]), (list[int] | dict[str, int], list[float] | dict[str, int]),
    (datetime, str),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "values"), WIDER, ids=range(len(WIDER)))
def test_a_wider_type_stores_a_lifted_value_as_an_object_of_it_would(
    before: Any, after: Any, values: list[Any]
) -> None:  # fmt: skip
    assert widening(build_type_spec(before), build_type_spec(after)) is not None
    old, new = thing(a=before), thing(a=after)
    found = lift(old, new)
    assert isinstance(found, Lift)
    for value in values:
        row = type_info(old).encode(old(id="x", a=value))
        stored = dict(zip([column.stored for column in (*type_info(old).keys, *type_info(old).columns)], row,
                          strict=True))  # fmt: skip
        (after_row,) = found.rows([tuple(stored[column.stored] for column in found.old.all_columns)], ["id", "a"])
        plain = value.value if isinstance(value, enum.Enum) else value
        assert after_row == type_info(new).encode(new(id="x", a=TypeAdapter(after).validate_python(plain)))


@pytest.mark.parametrize(("before", "after"), NOT_WIDER, ids=range(len(NOT_WIDER)))
def test_a_type_that_does_not_take_all_values_is_not_wider(before: Any, after: Any) -> None:
    assert widening(build_type_spec(before), build_type_spec(after)) is None


def test_workers_lift_tables_as_rows() -> None:
    """With and without a column that has to be looked at value by value, and with numbers that Arrow would refuse."""
    import pyarrow as pa

    class Thing(Entity):
        key: Field[str] = Field(primary_key=True, was="id")
        c: Field[float] = Field(was="a")
        d: Field[int] = Field(default=4, was=())
        e: Field[str | None] = Field(was=())

    old = thing(a=int, b=str)
    stored, info = StoredType(schema_of(old)), type_info(Thing)
    for number in (7, 2**53 + 2):
        table = table_of(stored, [("x", 1, "b"), ("y", number, "c")]).append_column(COMMIT, pa.array([1, 1]))
        found = upgraded_rows_of(info, stored, (), table).append_column(COMMIT, pa.array([2, 2]))
        assert sorted(rows_of((*info.keys, *info.columns), found)) == [
            ("x", 1.0, 4, None, 2), ("y", float(number), 4, None, 2)]  # fmt: skip
    table = table_of(stored, [("x", 2**53 + 1, "b")]).append_column(COMMIT, pa.array([1]))
    with pytest.raises(MigrationError, match=r"Thing 'x'\.c does not fit"):
        upgraded_rows_of(info, stored, (), table)


def test_what_is_no_name_is_refused() -> None:
    for wrong in (5, "", ("a", ""), [None]):
        with pytest.raises((SchemaValidationError, TypeError)):
            Field(was=wrong)  # type: ignore[arg-type]


def test_types_without_rows_go_along_whatever_changes(url: str, engine: str) -> None:
    old, new = thing(a=int), thing(b=str)
    with Session(url, entity_types=[old], engine_version=engine) as session:
        session.ensure(old(id="x", a=1))
        session.commit()
    with Session(url, entity_types=[new]) as session:
        found = Migration(session.repository, [type_info(new)], {}).preview()
        assert (found.missing, bool(found.types[0].reasons)) == ((("Thing", 1),), True)
        assert found.reasons[0].startswith("Thing: b is new and a is gone")
