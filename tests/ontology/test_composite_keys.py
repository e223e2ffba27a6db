"""Keys of several fields: tuples everywhere, on every engine, compared with an oracle in plain Python."""

from __future__ import annotations

import json
import pickle
import random
import uuid
from collections.abc import Iterator
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from ontolake.model import Entity, Field, Relation, SchemaValidationError, schema_hash, schema_of
from ontolake.model.restoration import restore
from ontolake.model.source import python_source
from ontolake.model.types import type_info
from ontolake.ontology import MissingUpgraderError, Session, TypedStore, UnknownKeyError, left
from ontolake.ontology.moving.exports import lines
from ontolake.ontology.moving.import_lines import Lines
from ontolake.ontology.moving.imports import plan_import
from ontolake.ontology.parallel.tables import TypedParallel
from ontolake.ontology.verification import verify


class Stock(Entity):
    region: Field[str] = Field(primary_key=True)
    number: Field[int] = Field(primary_key=True)
    amount: Field[float] = Field(default=0.0)


class Depot(Entity):
    id: Field[str] = Field(primary_key=True)


class Held(Relation[Stock, Depot]):
    slot: Field[str] = Field(instance_key=True)
    since: Field[int] = Field(default=0)


class Next(Relation[Stock, Stock]):
    pass


TYPES: dict[str, Any] = {"entity_types": [Stock, Depot], "relation_types": [Held, Next]}
TEXTS = ["eu", "", " ", "ü", "日本", 'q"uo"te', "it's", "a,b", '["x",1]', "\\", "\n", "\u2028", "😀", "null", "1"]
NUMBERS = [0, 1, -1, 10, 2, -(2**63), 2**63 - 1, 2**53 + 1]


@pytest.fixture
def stocks(url: str, engine: str) -> Iterator[Session]:
    found = Session(url, engine_version=engine, **TYPES)
    yield found
    found.discard()
    found.close()


def test_keys_are_tuples_for_an_oracle_of_random_rows(stocks: Session) -> None:
    chance, state = random.Random(1), dict[tuple[str, int], float]()
    for _ in range(4):
        for _ in range(40):
            key = (chance.choice(TEXTS), chance.choice(NUMBERS))
            state[key] = float(chance.randrange(9))
            stocks.ensure(Stock(region=key[0], number=key[1], amount=state[key]))
        if stocks.repository.keeps_deletions:
            gone = chance.sample(sorted(state), 5)
            stocks.delete(Stock, gone)
            for key in gone:
                del state[key]
        stocks.commit()
    query = stocks.query().entities(Stock)
    assert {(one.region, one.number): one.amount for one in query.collect()} == state
    for key in [(text, number) for text in TEXTS for number in NUMBERS]:
        found = stocks.get(Stock, key)
        assert (found.amount if found else None) == state.get(key)
        if found is not None:
            assert found.meta().keys == {"region": key[0], "number": key[1]}
    for text in TEXTS:
        wanted = {key for key in state if key[0] == text}
        assert {(one.region, one.number) for one in query.where(Stock.region == text).collect()} == wanted
    wanted = {key for key in state if key[1] < 2}
    assert {(one.region, one.number) for one in query.where(Stock.number < 2).collect()} == wanted
    ordered = query.order_by(Stock.number, Stock.region).collect()
    assert [(one.number, one.region) for one in ordered] == sorted((number, text) for text, number in state)
    assert {change.key for change in stocks.changes(0)} >= set(state)
    assert dict.fromkeys(key for key, _ in stocks.snapshot().rows("entity/Stock")).keys() == state.keys()
    assert list(verify(stocks.repository)) == []


def test_rows_are_updated_and_declared_again_by_their_key(stocks: Session) -> None:
    stocks.ensure([Stock(region="eu", number=1, amount=1.0), Stock(region="us", number=1)])
    assert stocks.commit() == 1
    stocks.ensure(Stock(region="eu", number=1, amount=1.0))
    assert stocks.commit() is None
    assert stocks.update(Stock, ("eu", 1), amount=2.0).amount == 2.0
    stocks.commit()
    assert stocks.get(Stock, ("eu", 1)).amount == 2.0  # type: ignore[union-attr]
    assert stocks.get(Stock, ("us", 1)).amount == 0.0  # type: ignore[union-attr]
    with pytest.raises(UnknownKeyError):
        stocks.update(Stock, ("eu", 2), amount=1.0)
    with pytest.raises(SchemaValidationError, match="a key stays"):
        stocks.update(Stock, ("eu", 1), number=5)
    (change,) = stocks.list_commit_changes(2)
    assert (change.key, change.kind) == (("eu", 1), "update")


@pytest.mark.parametrize("key", [None, "eu", ("eu",), ("eu", 1, 2), ("eu", "1"), ("eu", None), (None, 1), ("eu", 1.5),
                                 ("eu", 2**63), 5, "[1]"])  # fmt: skip
def test_what_is_no_key_is_refused(stocks: Session, key: Any) -> None:
    with pytest.raises(SchemaValidationError, match=r"is not a key"):
        stocks.get(Stock, key)


def test_parts_are_checked_where_objects_are_made(stocks: Session) -> None:
    for wrong in ({"region": "eu"}, {"region": None, "number": 1}, {"region": "eu", "number": None}):
        with pytest.raises(SchemaValidationError):
            Stock(**wrong)
    with pytest.raises(SchemaValidationError, match="never None"):
        type_info(type(Entity)("Wrong", (Entity,), {
            "__module__": __name__, "__annotations__": {"a": Field[str], "b": Field[int | None]},
            "a": Field(primary_key=True), "b": Field(primary_key=True)}))  # fmt: skip
    with pytest.raises(SchemaValidationError, match=r"entity_key.*reserved"):
        type(Entity)("Wrong", (Entity,), {
            "__module__": __name__, "__annotations__": {"a": str, "b": int, "entity_key": str},
            "a": Field(primary_key=True), "b": Field(primary_key=True)})  # fmt: skip


def test_objects_show_their_parts_and_follow_them(stocks: Session) -> None:
    one = Stock(region="eu", number=1)
    assert one.model_dump() == {"region": "eu", "number": 1, "amount": 0.0}
    assert "entity_key" not in repr(one)
    one.number = 7
    moved = one.model_copy(update={"region": "us"})
    stocks.ensure([one, moved, pickle.loads(pickle.dumps(Stock(region="x", number=1)))])
    stocks.commit()
    found = {(each.region, each.number) for each in stocks.query().entities(Stock).collect()}
    assert found == {("eu", 7), ("us", 7), ("x", 1)}
    assert stocks.get(Stock, ("eu", 7)) == one


def test_relations_lead_to_keys_of_several_parts(stocks: Session) -> None:
    stocks.ensure([Stock(region="eu", number=n, amount=float(n)) for n in range(3)])
    stocks.ensure([Depot(id="d"), Held(left_key=("eu", 1), right_key="d", slot="a"),
                   Next(left_key=("eu", 1), right_key=("eu", 2))])  # fmt: skip
    stocks.commit()
    (held,) = stocks.query().relations(Held).collect()
    assert (held.left_key, held.right_key, held.left.amount) == (("eu", 1), "d", 1.0)
    assert held.meta().keys == {"left_key": ("eu", 1), "right_key": "d", "slot": "a"}
    assert stocks.get(Held, (("eu", 1), "d", "a")) == held
    assert stocks.get(Held, (("eu", 2), "d", "a")) is None
    query = stocks.query().relations(Held)
    assert query.where(Held.left_key == ("eu", 1)).count() == 1
    assert query.where(Held.left_key.in_([("eu", 2), ("us", 1)])).count() == 0
    assert query.where(left(Held).number == 1, left(Held).region == "eu").count() == 1
    (path,) = stocks.query().entities(Stock).where(Stock.number == 1).via(Next).collect()
    assert (path.source.number, path.target.number, path.relations[0].right is path.target) == (1, 2, True)
    for wrong in (("eu",), ("eu", "1"), 5, None):
        with pytest.raises(SchemaValidationError):
            Held(left_key=wrong, right_key="d", slot="a")
    (change,) = [one for one in stocks.changes(0) if one.table == "relation/Held"]
    assert change.key == (("eu", 1), "d", "a")


def test_arrow_goes_in_and_out(stocks: Session) -> None:
    table = pa.table({"region": ["eu", "ü", "q\"'"], "number": [1, -5, 2**53 + 1], "amount": [1.0, 2.0, 3.0]})
    stocks.ensure_arrow(Stock, table)
    stocks.commit()
    found = stocks.query().entities(Stock).order_by(Stock.number).to_arrow()
    assert found.column("number").to_pylist() == [-5, 1, 2**53 + 1]
    assert [json.loads(text) for text in found.column("entity_key").to_pylist()] == [
        ["ü", -5], ["eu", 1], ["q\"'", 2**53 + 1]]  # fmt: skip
    stocks.ensure_arrow(Stock, found.drop_columns(["commit_id"]))
    assert stocks.commit() is None, "what came out goes in again as the same rows"
    with pytest.raises(SchemaValidationError):
        stocks.ensure_arrow(Stock, pa.table({"region": ["eu"], "number": pa.array([None], pa.int64())}))


def test_schemas_say_the_parts_and_classes_come_back_from_them() -> None:
    schema = schema_of(Stock)
    assert (schema["keys"], schema["key_parts"]) == (["entity_key"], ["region", "number"])
    restored = restore([schema, schema_of(Next)])
    assert schema_hash(schema_of(restored["entity", "Stock"])) == schema_hash(schema)
    assert [column.name for column in type_info(restored["entity", "Stock"]).parts] == ["region", "number"]
    scope: dict[str, Any] = {}
    exec(python_source([schema, schema_of(Next)], "x"), scope)
    assert [schema_of(scope[name]) for name in ("Stock", "Next")] == [schema, schema_of(Next)]


def test_parts_of_other_types_are_kept_apart(url: str, engine: str) -> None:
    class Visit(Entity):
        day: Field[date] = Field(primary_key=True)
        who: Field[uuid.UUID] = Field(primary_key=True)
        n: Field[int] = Field(primary_key=True)

    who = uuid.UUID(int=7)
    with Session(url, entity_types=[Visit], engine_version=engine) as session:
        session.ensure([Visit(day=date(2024, 1, 2), who=who, n=n) for n in (1, 11)])
        session.commit()
        found: Any = session.get(Visit, (date(2024, 1, 2), who, 11))
        assert (found.day, found.who, found.n) == (date(2024, 1, 2), who, 11)
        assert session.get(Visit, (date(2024, 1, 3), who, 11)) is None


def test_fields_are_migrated_and_keys_stay(url: str, engine: str) -> None:
    def declared(region: str, number: Any, **more: Any) -> Any:
        fields = {region: Field[str], "number": Field[number], "amount": Field[float]}
        body = {"__module__": __name__, "__annotations__": fields,
                region: Field(primary_key=True, was="region"), "number": Field(primary_key=True), **more}  # fmt: skip
        return type(Entity)("Stock", (Entity,), body)

    with Session(url, engine_version=engine, **TYPES) as session:
        session.ensure(Stock(region="eu", number=1, amount=2.5))
    new = declared("area", int)
    with Session(url, entity_types=[new]) as session:
        session.migrate(dry_run=False, force=True, upgraders={})
        assert session.get(new, ("eu", 1)).amount == 2.5  # type: ignore[attr-defined]
        (then,) = session.query().entities(new).as_of(1, schema="current", upgraders={}).collect()
        assert (then.area, then.meta().keys) == ("eu", {"area": "eu", "number": 1})
    with Session(url, entity_types=[declared("area", str)]) as session, pytest.raises(MissingUpgraderError):
        session.migrate(dry_run=False, force=True, upgraders={})


def test_histories_merges_and_erasures_take_tuples(native: str) -> None:
    with Session(native, engine_version="v3", **TYPES) as session:
        session.ensure([Stock(region="eu", number=1), Stock(region="eu", number=2), Stock(region="us", number=1)])
        session.ensure(Next(left_key=("eu", 1), right_key=("eu", 2)))
        session.commit()
        session.branches.create("try")
        with Session(native, branch="try", **TYPES) as other:
            other.update(Stock, ("eu", 1), amount=5.0)
            other.delete(Stock, ("us", 1))
            other.commit()
        assert {change.key for change in session.diff("main", "try")} == {("eu", 1), ("us", 1)}
        session.update(Stock, ("eu", 1), amount=6.0)
        session.commit()
        (conflict,) = session.merge("try", dry_run=True).conflicts
        assert (conflict.key, conflict.field) == (("eu", 1), "amount")
        session.merge("try", strategy="theirs")
        assert session.get(Stock, ("eu", 1)).amount == 5.0  # type: ignore[union-attr]
        assert session.get(Stock, ("us", 1)) is None
        assert len(list(session.history("entity/Stock", ("eu", 1)))) >= 2
        blamed = session.blame("entity/Stock", ("eu", 1))
        assert (blamed["amount"].id, blamed["number"].id) == (2, 1)
        session.erase(Stock, ("eu", 1), "asked for", cascade=True, dry_run=False)
        assert session.query().entities(Stock).as_of(1).count() == 2
        assert session.query().relations(Next).count() == 0
        assert list(verify(session.repository)) == []


def test_lines_are_exported_and_imported(native: str, engine: str) -> None:
    with Session(native, engine_version=engine, **TYPES) as session:
        session.ensure([Stock(region=text, number=number) for text in TEXTS for number in NUMBERS[:3]])
        session.ensure([Depot(id="d"), Held(left_key=("q\"'", 1), right_key="d", slot="s")])
        session.commit()
        exported = list(lines(session.repository, session.types))
        (first,) = [line for line in exported if '"type":"Held"' in line]
        assert json.loads(first)["fields"]["left_key"] == '["q\\"\'",1]'
    with TypedStore(native, config={"create": False}) as store:
        found = Lines(store)
        found.read("all", [line.encode() for line in exported])
        found.read("more", [b'{"kind":"entity","type":"Stock","key":["new",5],'
                            b'"fields":{"region":"new","number":5,"amount":1.0}}'])  # fmt: skip
        assert found.bad == []
        counts = {one.type_name: one[2:] for one in plan_import(store.repository, found.rows).types}
        assert counts == {"Stock": (1, 0, 45), "Depot": (0, 0, 1), "Held": (0, 0, 1), **(
            {"Next": (0, 0, 0)} if "Next" in counts else {})}  # fmt: skip


def test_readers_in_parallel_get_every_row_once(native: str, engine: str) -> None:
    with Session(native, engine_version=engine, **TYPES) as session:
        session.ensure([Stock(region=text, number=number) for text in TEXTS for number in NUMBERS])
        session.commit()
        if not native.startswith("memory:"):
            with TypedParallel(native) as store:
                splits = store.splits("entity/Stock", store.view(), None, parts=4)
                rows = [row for split in splits for batch in split.read() for row in batch.to_pylist()]
            assert len(splits) > 1
            assert sorted((row["region"], row["number"]) for row in rows) == sorted(
                (text, number) for text in TEXTS for number in NUMBERS)  # fmt: skip


@pytest.mark.parametrize("key", [1, "x", "[1]", ("eu",), ("eu", 1, 2), None, '["eu", "x"]'])
def test_what_is_no_key_of_several_parts_is_refused_with_their_names(stocks: Session, key: Any) -> None:
    with pytest.raises(SchemaValidationError, match=r"is not a key: it has 2 parts, region, number"):
        stocks.get(Stock, key)
