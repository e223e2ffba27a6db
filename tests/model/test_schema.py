"""Type specs, column mappings and schemas: one meaning, one text, one hash."""

from __future__ import annotations

import enum
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal, Optional, TypedDict, Union
from uuid import UUID, uuid4

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ontolake.model import (
    Entity,
    Field,
    Relation,
    SchemaValidationError,
    arrow_type,
    build_type_spec,
    canonical_json,
    column_kind,
    diff,
    parquet_type,
    schema_hash,
    schema_of,
    sqlite_type,
    type_info,
)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    A = "a"
    B = 1


class Address(TypedDict):
    city: str
    zip: int


class Tree(TypedDict):
    value: int
    children: list[Tree]


STORED = [
    (str, "typed", "TEXT", "UTF8", pa.string()),
    (int, "typed", "INTEGER", "INT64", pa.int64()),
    (float, "typed", "REAL", "DOUBLE", pa.float64()),
    (bool, "typed", "INTEGER", "BOOLEAN", pa.bool_()),
    (datetime, "typed", "TEXT", "TIMESTAMP(us, tz=UTC)", pa.timestamp("us", tz="UTC")),
    (date, "typed", "TEXT", "DATE", pa.date32()),
    (bytes, "typed", "BLOB", "BYTE_ARRAY", pa.binary()),
    (Decimal, "typed", "TEXT", "UTF8", pa.string()),
    (UUID, "typed", "TEXT", "UTF8", pa.string()),
    (Colour, "typed", "TEXT", "UTF8", pa.string()),
    (Level, "typed", "INTEGER", "INT64", pa.int64()),
    (Literal["a", "b"], "typed", "TEXT", "UTF8", pa.string()),
    (Literal[1, 2], "typed", "INTEGER", "INT64", pa.int64()),
    (time, "typed", "TEXT", "TIME(us)", pa.time64("us")),
    (timedelta | None, "typed", "INTEGER", "INT64", pa.duration("us")),
    (Optional[str], "typed", "TEXT", "UTF8", pa.string()),  # noqa: UP045
    (int | None, "typed", "INTEGER", "INT64", pa.int64()),
    (Colour | None, "typed", "TEXT", "UTF8", pa.string()),
    (None, "json", "TEXT", "UTF8", pa.string()),
    (Any, "json", "TEXT", "UTF8", pa.string()),
    (Union[str, int], "json", "TEXT", "UTF8", pa.string()),  # noqa: UP007
    (str | int | None, "json", "TEXT", "UTF8", pa.string()),
    (list[str], "json", "TEXT", "UTF8", pa.string()),
    (list[str] | None, "json", "TEXT", "UTF8", pa.string()),
    (set[int], "json", "TEXT", "UTF8", pa.string()),
    (tuple[int, str], "json", "TEXT", "UTF8", pa.string()),
    (dict[str, int], "json", "TEXT", "UTF8", pa.string()),
    (Address, "json", "TEXT", "UTF8", pa.string()),
    (Tree, "json", "TEXT", "UTF8", pa.string()),
    (Mixed, "json", "TEXT", "UTF8", pa.string()),
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "kind", "sqlite", "parquet", "arrow"), STORED, ids=str)
def test_every_type_has_its_column(annotation: Any, kind: str, sqlite: str, parquet: str, arrow: pa.DataType) -> None:
    spec = build_type_spec(annotation)
    assert (column_kind(spec), sqlite_type(spec), parquet_type(spec)) == (kind, sqlite, parquet)
    assert arrow_type(spec) == arrow


def test_an_optional_text_is_a_union_and_not_a_primitive_of_a_strange_name() -> None:
    spec = build_type_spec(str | None)
    assert spec["kind"] == "union"
    assert [member["name"] for member in spec["members"]] == ["NoneType", "str"]
    assert build_type_spec(None | str) == build_type_spec(Optional[str]) == spec  # noqa: UP045


def test_a_type_within_itself_is_a_ref() -> None:
    assert build_type_spec(Tree)["fields"]["children"]["item"] == {"kind": "ref", "name": "Tree"}


@pytest.mark.parametrize("annotation", [object(), range, complex])
def test_a_type_that_cannot_be_stored_is_refused(annotation: Any) -> None:
    with pytest.raises(SchemaValidationError, match="cannot be stored"):
        build_type_spec(annotation)


class First(Entity):
    id: Field[str] = Field(primary_key=True)
    a: Field[int]
    b: Field[str | None] = Field(default=None)


def test_the_hash_depends_on_what_is_stored_and_on_nothing_else() -> None:
    def same() -> type[Entity]:
        class First(Entity):
            b: Field[str | None] = Field(index=True)
            a: Field[int] = Field(default=5, ge=0)
            id: Field[str] = Field(primary_key=True)

        return First

    def other() -> type[Entity]:
        class First(Entity):
            id: Field[str] = Field(primary_key=True)
            a: Field[float]
            c: Field[str]

        return First

    assert canonical_json(schema_of(same())) == canonical_json(schema_of(First))
    assert schema_hash(schema_of(same())) == schema_hash(schema_of(First))
    assert len(schema_hash(schema_of(First))) == 64
    found = diff(schema_of(First), schema_of(other()))
    assert [(change.field, change.what) for change in found.fields] == [
        ("a", "changed"), ("b", "removed"), ("c", "added"),
    ]  # fmt: skip
    assert not diff(schema_of(First), schema_of(same()))
    assert schema_hash(schema_of(other())) != schema_hash(schema_of(First))


def test_other_ends_are_another_schema() -> None:
    class Second(Entity):
        id: Field[str] = Field(primary_key=True)

    def link(left: Any, right: Any) -> Any:
        class Link(Relation[left, right]):
            pass

        return Link

    found = diff(schema_of(link(First, Second)), schema_of(link(Second, First)))
    assert found.ends == (("First", "Second"), ("Second", "First"))


class Everything(Entity):
    id: Field[UUID] = Field(primary_key=True)
    text: Field[str]
    number: Field[int]
    real: Field[float]
    truth: Field[bool]
    moment: Field[datetime]
    day: Field[date]
    raw: Field[bytes]
    money: Field[Decimal]
    colour: Field[Colour]
    level: Field[Level | None]
    word: Field[Literal["a", "b"]]
    mixed: Field[Mixed]
    either: Field[str | int | None]
    items: Field[list[bytes]]
    table: Field[dict[str, float]]
    address: Field[Address | None]
    anything: Field[Any]
    unordered: Field[set[int]]


zones = st.sampled_from([None, UTC, timezone(timedelta(hours=5, minutes=30))])
plain = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False)
rows = st.fixed_dictionaries({
    "id": st.uuids(), "text": st.text(), "number": st.integers(-(2**63), 2**63 - 1), "real": st.floats(allow_nan=False),
    "truth": st.booleans(), "moment": st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=zones),
    "day": st.dates(), "raw": st.binary(), "money": st.decimals(allow_nan=False, allow_infinity=False),
    "colour": st.sampled_from(Colour), "level": st.none() | st.sampled_from(Level), "word": st.sampled_from("ab"),
    "mixed": st.sampled_from(Mixed), "either": st.none() | st.text() | st.integers(-(2**60), 2**60),
    "items": st.lists(st.binary()), "table": st.dictionaries(st.text(), st.floats(allow_nan=False)),
    "address": st.none() | st.fixed_dictionaries({"city": st.text(), "zip": st.integers(0, 99999)}),
    "anything": plain | st.lists(plain) | st.dictionaries(st.text(), plain), "unordered": st.sets(st.integers(0, 99)),
})  # fmt: skip


@given(rows)
def test_every_value_comes_back_from_its_column(values: dict[str, Any]) -> None:
    info = type_info(Everything)
    row = info.encode(Everything(**values))
    assert {type(value) for value in row} <= {str, int, float, bytes, bool, type(None)}
    columns = info.keys + info.columns
    back = {column.name: column.decode(value) for column, value in zip(columns, row, strict=True)}
    assert Everything(**back) == Everything(**values)
    assert info.encode(Everything(**back)) == row, "what is equal is encoded equally"


def test_a_number_that_is_none_comes_back_too() -> None:
    class Real(Entity):
        id: Field[UUID] = Field(primary_key=True)
        real: Field[float]

    column = type_info(Real).by_name["real"]
    encoded = type_info(Real).encode(Real(id=uuid4(), real=float("nan")))[1]
    assert encoded is not None
    assert column.decode(encoded) != column.decode(encoded)


@given(st.datetimes(timezones=zones), st.datetimes(timezones=st.just(UTC)))
def test_moments_sort_as_their_texts(first: datetime, second: datetime) -> None:
    encode = type_info(Everything).by_name["moment"].encode
    try:
        one, two = encode(first, ""), encode(second, "")
    except SchemaValidationError:
        return
    as_utc = first.replace(tzinfo=UTC) if first.tzinfo is None else first
    if as_utc != second:
        assert (one < two) == (as_utc < second)
