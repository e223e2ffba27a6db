"""Entities and relations hold what they declare: values on objects, filters on classes, typed errors for the rest."""

from __future__ import annotations

import copy
import pickle
from datetime import datetime
from typing import Any

import pytest

from ontolake.model import (
    Condition,
    Entity,
    Field,
    FieldRef,
    MetadataUnavailableError,
    Relation,
    SchemaValidationError,
    type_info,
)


class Audited:
    created: Field[int] = Field(default=0)
    note: Field[str | None] = Field(default=None, name="remark")


class Customer(Audited, Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    tier: Field[str | None] = Field(default=None, index=True)
    tags: Field[list[str]] = Field(default_factory=list)


class Order(Entity):
    id: Field[int] = Field(primary_key=True)
    commit_id: Field[int] = Field(default=1)
    key: Field[str] = Field(default="")


class Placed(Relation[Customer, Order]):
    at: Field[datetime]


class Rated(Relation[Customer, Order]):
    year: Field[str] = Field(instance_key=True)
    stars: Field[int]


def test_a_field_is_a_value_on_objects_and_a_filter_on_the_class() -> None:
    customer = Customer(id="c1", name="Ada")
    assert customer.name == "Ada"
    assert isinstance(Customer.name, FieldRef)
    assert isinstance(Customer.name == "Ada", Condition)
    assert isinstance(Placed.left_key == "c1", Condition)


def test_defaults_are_filled_in_and_factories_called_for_each_object() -> None:
    first, second = Customer(id="a", name="A"), Customer(id="b", name="B")
    first.tags.append("x")
    assert second.tags == []
    assert first.tier is None


def test_fields_of_mixins_belong_to_the_type() -> None:
    assert list(Customer.model_fields) == ["created", "note", "id", "name", "tier", "tags"]
    assert type_info(Customer).by_name["note"].stored == "remark"


def test_a_subclass_can_declare_a_field_anew() -> None:
    class Gold(Customer):
        tier: Field[str | None] = Field(default="gold")

    assert Gold(id="a", name="A").tier == "gold"
    assert type_info(Gold).keys[0].name == "id"


@pytest.mark.parametrize(
    ("values", "field", "key"),
    [
        ({"id": 1, "name": "x"}, "id", 1),
        ({"id": "c"}, "name", "c"),
        ({"id": "c", "name": "x", "nope": 1}, "nope", "c"),
        ({"id": "c", "name": "x", "tags": [1]}, "tags.0", "c"),
    ],
)
def test_a_wrong_value_is_refused_with_type_key_and_field(values: dict[str, Any], field: str, key: Any) -> None:
    for make in (lambda: Customer(**values), lambda: Customer.model_validate(values)):
        with pytest.raises(SchemaValidationError) as caught:
            make()
        assert (caught.value.type_name, caught.value.field, caught.value.key) == ("Customer", field, key)
        assert pickle.loads(pickle.dumps(caught.value)).field == field


def test_a_wrong_assignment_is_refused_and_changes_nothing() -> None:
    customer = Customer(id="c", name="x")
    with pytest.raises(SchemaValidationError, match="tier"):
        customer.tier = 5  # type: ignore[assignment]
    with pytest.raises(SchemaValidationError, match="nope"):
        customer.nope = 5  # type: ignore[attr-defined]
    assert customer == Customer(id="c", name="x")


def test_values_that_bypassed_validation_are_found_when_they_are_stored() -> None:
    with pytest.raises(SchemaValidationError, match=r"Customer 'c'\.name: 5 is not of the type str"):
        type_info(Customer).encode(Customer.model_construct(id="c", name=5, created=0, note=None, tier=None, tags=[]))
    with pytest.raises(SchemaValidationError, match=r"Customer 'c'\.tags"):
        type_info(Customer).encode(Customer.model_construct(id="c", name="", created=0, note=None, tier=None, tags=[1]))


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_numbers_that_no_column_holds_are_refused(number: int) -> None:
    with pytest.raises(SchemaValidationError, match=r"Customer 'c'\.created: .* 64 bits"):
        type_info(Customer).encode(Customer(id="c", name="x", created=number))


def test_empty_keys_are_refused() -> None:
    with pytest.raises(SchemaValidationError, match=r"Customer\.id: a key must not be empty"):
        type_info(Customer).encode(Customer(id="", name="x"))
    with pytest.raises(SchemaValidationError, match=r"Rated\.year"):
        type_info(Rated).encode(Rated(left_key="c", right_key=1, year="", stars=1))


def test_an_entity_has_a_primary_key() -> None:
    class Nothing(Entity):
        a: Field[str]

    with pytest.raises(SchemaValidationError, match="no primary key"):
        type_info(Nothing)


def test_keys_are_scalars_that_are_never_missing() -> None:
    class Loose(Entity):
        id: Field[str | None] = Field(primary_key=True)

    class Listed(Entity):
        id: Field[list[str]] = Field(primary_key=True)

    for cls in (Loose, Listed):
        with pytest.raises(SchemaValidationError, match="a key must be one of"):
            type_info(cls)


def test_a_relation_takes_the_key_types_of_its_ends() -> None:
    relation = Placed(left_key="c1", right_key=5, at=datetime(2024, 1, 1))
    assert (relation.left_key, relation.right_key) == ("c1", 5)
    with pytest.raises(SchemaValidationError, match="right_key"):
        Placed(left_key="c1", right_key="five", at=datetime(2024, 1, 1))
    assert type_info(Placed).left is Customer
    assert type_info(Placed).right is Order


def test_names_that_mean_something_else_are_refused() -> None:
    with pytest.raises(SchemaValidationError, match="left_key"):

        class Wrong(Relation[Customer, Order]):
            left_key: Field[str]

    with pytest.raises(SchemaValidationError, match="meta"):

        class AlsoWrong(Entity):
            id: Field[str] = Field(primary_key=True)
            meta: Field[str]  # type: ignore[assignment]


def test_fields_may_be_called_like_columns_of_the_store() -> None:
    columns = {column.name: column.column for column in type_info(Order).all_columns}
    assert columns == {"id": "entity_key", "commit_id": "field_commit_id", "key": "key"}


def test_two_fields_are_never_stored_under_one_name() -> None:
    class Doubled(Entity):
        id: Field[str] = Field(primary_key=True)
        a: Field[str] = Field(name="b")
        b: Field[str]

    with pytest.raises(SchemaValidationError, match="two fields are stored as 'b'"):
        type_info(Doubled)


def test_columns_differ_by_more_than_case() -> None:
    class Cased(Entity):
        id: Field[str] = Field(primary_key=True)
        name: Field[str]
        Name: Field[str]

    assert len({column.column.lower() for column in type_info(Cased).all_columns}) == 3


def test_only_results_have_meta() -> None:
    with pytest.raises(MetadataUnavailableError):
        Customer(id="a", name="A").meta()


def test_objects_can_be_copied_and_pickled() -> None:
    customer = Customer(id="a", name="A", tags=["x"])
    assert pickle.loads(pickle.dumps(customer)) == copy.deepcopy(customer) == customer


@pytest.mark.parametrize("value", [None, True, False])
def test_comparing_with_none_and_truth_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="is_"):
        _ = Customer.tier == value
    with pytest.raises(TypeError):
        _ = Customer.tier != value


def test_filters_cannot_be_taken_for_truth() -> None:
    with pytest.raises(TypeError, match="&"):
        _ = (Customer.tier == "a") and (Customer.tier == "b")


def test_an_unknown_field_is_named() -> None:
    with pytest.raises(AttributeError, match="nope"):
        _ = Customer.nope  # type: ignore[attr-defined]
