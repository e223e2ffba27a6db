"""The rules of migrations by themselves: which changes need an upgrader, and what rows and tables become."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ontolake.model import Entity, Field, Relation
from ontolake.model.schema import schema_of
from ontolake.model.stored import StoredType
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology import MigrationError, MigrationTokenError, MissingUpgraderError, Session
from ontolake.ontology.arrow.columns import ArrowRows
from ontolake.ontology.migration.rewrite import Migration, upgraded_rows, upgraded_table
from ontolake.ontology.migration.upgraders import Upgrader


def entity(name: str, key: Any = str, **fields: Any) -> Any:
    """An entity type with a key `id` and these fields; a pair is an annotation and a default."""
    return _declared(name, Entity, {"id": key}, {"id": Field(primary_key=True)}, fields)


def relation(name: str, left: Any, right: Any, *, slot: Any = None, **fields: Any) -> Any:
    """A relation type, with an instance key `slot` if its type is given."""
    keys, declared = ({}, {}) if slot is None else ({"slot": slot}, {"slot": Field(instance_key=True)})
    return _declared(name, Relation[left, right], keys, declared, fields)


def _declared(name: str, base: Any, keys: dict[str, Any], declared: dict[str, Any], fields: dict[str, Any]) -> Any:
    kinds = {field: value[0] if isinstance(value, tuple) else value for field, value in fields.items()}
    defaults = {field: Field(default=value[1]) for field, value in fields.items() if isinstance(value, tuple)}
    annotations = {field: Field[kind] for field, kind in {**keys, **kinds}.items()}  # type: ignore[valid-type]
    return type(base)(name, (base,), {"__module__": __name__, "__qualname__": name, "__annotations__": annotations,
                                      **declared, **defaults})  # fmt: skip


def stored(cls: Any) -> StoredType:
    return StoredType(schema_of(cls))


def by_rows(change: Callable[[dict[str, Any]], Any], name: str = "Thing") -> Upgrader:
    return Upgrader(change, name, 1, False)


def by_tables(change: Callable[[pa.Table], Any], name: str = "Thing") -> Upgrader:
    return Upgrader(change, name, 1, True)


# which changes need an upgrader


class Shelf:
    """A store in a folder, and what migrating it to other types would do."""

    def __init__(self, folder: Path) -> None:
        self.url = str(folder / "store.db")

    def fill(self, types: Sequence[Any], rows: Iterable[Any] = ()) -> None:
        with self.opened(types) as session:
            session.ensure(rows)
            session.commit()

    def opened(self, types: Sequence[Any]) -> Session:
        links = [cls for cls in types if issubclass(cls, Relation)]
        return Session(self.url, entity_types=[cls for cls in types if cls not in links], relation_types=links)

    def preview(self, types: Sequence[Any], upgraders: Any = ()) -> Any:
        with self.opened(types) as session:
            return Migration(session.repository, [type_info(cls) for cls in types], upgraders).preview()


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def same(row: Any) -> Any:
    return row


def test_only_stored_types_that_changed_are_planned_wherever_they_stand(shelf: Shelf) -> None:
    kept, old = entity("Kept"), entity("Thing", n=int)
    shelf.fill([kept, old], [kept(id="k"), old(id="a", n=1), old(id="b", n=2)])
    new = entity("Thing", n=int, m=(int, 0))
    found = shelf.preview([entity("Unknown"), kept, new])
    assert [one[:4] for one in found.types] == [("entity", "Thing", 1, 2)]
    assert (found.types[0].rows, found.types[0].upgraders, found.missing, found.needed) == (2, (), (), True)
    assert not shelf.preview([kept, old]).needed


@pytest.mark.parametrize(
    ("before", "after", "needed"),
    [
        ({"n": int}, {"n": int, "m": (int, 5)}, False),
        ({"n": int}, {"n": int, "m": (int | None, None)}, False),
        ({"n": int}, {"n": int | None}, False),
        ({"n": int | str}, {"n": int | str | None}, False),
        ({"n": int}, {"n": int, "m": int}, True),
        ({"n": int, "m": int}, {"n": int}, False),
        ({"n": int}, {"n": float}, False),
        ({"n": int}, {"m": (int | None, None)}, True),
        ({"n": int}, {"n": int, "m": int | None}, False),
        ({"n": int | None}, {"n": int}, True),
        ({"n": int}, {"n": str}, True),
        ({"n": int}, {"n": int | None, "m": str}, True),
    ],
)  # fmt: skip
def test_an_upgrader_is_needed_unless_every_row_fits_as_it_is(
    shelf: Shelf, before: dict[str, Any], after: dict[str, Any], needed: bool
) -> None:  # fmt: skip
    old, new = entity("Thing", **before), entity("Thing", **after)
    shelf.fill([old], [old(id="a", **dict.fromkeys(before, 1))])
    assert shelf.preview([new]).missing == ((("Thing", 1),) if needed else ())
    found = shelf.preview([new], {("Thing", 1): same, ("Thing", 2): same, ("Thing", 4): same, ("Other", 3): same})
    assert (found.missing, found.types[0][2:4], len(found.types[0].upgraders)) == ((), (1, 3), 2)


def test_keys_and_ends_that_change_need_an_upgrader_and_ends_of_other_types_follow(shelf: Shelf) -> None:
    one, two, third = entity("One"), entity("Two"), entity("Third")
    link = relation("Link", one, two, slot=str, n=int)
    shelf.fill([one, two, third, link], [one(id="1"), two(id="2"), third(id="3"),
                                         link(left_key="1", right_key="2", slot="x", n=1)])  # fmt: skip

    def missing(one: Any, two: Any, link: Any) -> set[str]:
        given = {("One", 1): same, ("Two", 1): same}
        return {name for name, _ in shelf.preview([one, two, third, link], given).missing}

    assert missing(one, two, relation("Link", one, two, slot=str, n=int, m=(int, 0))) == set()
    assert missing(one, two, relation("Link", one, two, n=int, slot=None)) == {"Link"}, "a key less"
    assert missing(one, two, relation("Link", one, two, n=int | None)) == {"Link"}
    assert missing(one, two, relation("Link", one, third, slot=str, n=int)) == {"Link"}, "another end"
    for left, right in ((int, str), (str, int), (int, int)):
        ones, twos = entity("One", left), entity("Two", right)
        assert missing(ones, twos, relation("Link", ones, twos, slot=str, n=int)) == set()
        assert missing(ones, twos, relation("Link", ones, twos, slot=str, n=str)) == {"Link"}


def test_relations_to_an_entity_whose_key_gets_another_type_must_be_named(shelf: Shelf) -> None:
    one, two, other = entity("One", n=(int, 0)), entity("Two"), entity("Other")
    link, apart = relation("Link", one, two), relation("Apart", two, other)
    shelf.fill([one, two, other, link, apart],
               [one(id="1"), two(id="2"), other(id="3"), link(left_key="1", right_key="2"),
                apart(left_key="2", right_key="3")])  # fmt: skip
    changed = entity("One", int, n=(int, 0))
    with pytest.raises(MigrationError, match="key of One gets another type, and so must the ends of Link"):
        shelf.preview([changed])
    numbered = entity("Two", int)
    with pytest.raises(MigrationError, match="the ends of Link"):
        shelf.preview([numbered, relation("Apart", numbered, other), other])
    found = shelf.preview([changed, two, relation("Link", changed, two)], {("One", 1): same})
    assert [one.type_name for one in found.types] == ["One", "Link"], "relations of other entities stay"
    found = shelf.preview([entity("One", n=(int, 0), m=(int, 0))])
    assert [one.type_name for one in found.types] == ["One"], "the key is the same"
    wider = relation("Link", one, two, m=(int, 0))
    assert [one.type_name for one in shelf.preview([wider, one, two]).types] == ["Link"]


def test_a_migration_is_applied_by_the_token_of_its_preview_or_by_force(shelf: Shelf) -> None:
    old, new = entity("Thing", n=int), entity("Thing", n=int, m=(int, 5))
    shelf.fill([old], [old(id="a", n=1)])
    with shelf.opened([new]) as session:
        migration = Migration(session.repository, [type_info(new)], {})
        token = migration.preview().token
        assert len(token) == 32
        with pytest.raises(MigrationTokenError, match="no token was given"):
            migration.apply("me", None)
        with pytest.raises(MigrationTokenError, match="the token is not that of this migration"):
            migration.apply("me", token[:-1])
        with pytest.raises(MissingUpgraderError):
            Migration(session.repository, [type_info(entity("Thing", n=str))], {}).apply("me", None, force=True)
        assert session.repository.head() == 1
        found = migration.apply("me", token)
        assert (found.commit_id, [one.rows for one in found.types]) == (2, [1])
        assert migration.apply("me", None).commit_id is None, "there is nothing to do any more"
        last = type_info(entity("Thing", n=int | None, m=(int, 5)))
        assert Migration(session.repository, [last], {}).apply("me", "another", force=True).commit_id == 3
        assert Migration(session.repository, [last], {}).apply("me", "another", force=False).commit_id is None


# rows


def upgraded(old: Any, new: Any, rows: Iterable[tuple[Any, ...]], *chain: Upgrader) -> list[tuple[Any, ...]]:
    """Rows of the old type in the order of their fields' names, as rows of the new one, keys first."""
    return list(upgraded_rows(type_info(new), stored(old), chain, rows))


def test_rows_go_through_every_upgrader_and_then_through_the_new_type() -> None:
    old, new = entity("Thing", n=int), entity("Thing", n=str, m=(int, 5))
    rows = [("a", 1, 77), ("b", 2, 78)]  # a commit behind them is nothing of the row
    twice = by_rows(lambda row: {**row, "n": row["n"] * 2})
    text = by_rows(lambda row: {**row, "n": f"n{row['n']}"})
    assert upgraded(old, new, rows, twice, text) == [("a", "n2", 5), ("b", "n4", 5)]
    assert upgraded(old, entity("Thing", n=int | None), rows) == [("a", 1), ("b", 2)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda row: [row], "an upgrader of Thing returned list for 'a', not a dict"),
        (lambda row: {**row, "id": "b"}, "an upgrader of Thing changed the key 'a'"),
        (lambda row: {"id": row["id"]}, "the upgraded row does not fit"),
        (lambda row: {**row, "n": "\ud800"}, "the upgraded row does not fit"),
        (lambda row: 1 // 0, "failed at Thing 'a': ZeroDivisionError"),
    ],
)  # fmt: skip
def test_a_row_that_does_not_fit_is_named_by_its_key(change: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(MigrationError, match=words):
        upgraded(entity("Thing", n=str), entity("Thing", n=str, m=(int, 0)), [("a", "x")], by_rows(change))


def test_a_relation_is_named_by_all_of_its_keys() -> None:
    one, two = entity("One"), entity("Two")
    old, new = relation("Link", one, two, slot=str), relation("Link", one, two, slot=str, n=(int, 0))
    with pytest.raises(MigrationError, match=r"returned NoneType for \('l', 'r', 's'\), not a dict"):
        upgraded(old, new, [("l", "r", "s")], by_rows(lambda row: None, "Link"))
    assert upgraded(old, new, [("l", "r", "s")]) == [("l", "r", "s", 0)]


def test_a_key_of_another_type_has_the_same_text() -> None:
    day, number = date(2024, 1, 2), uuid.UUID(int=5)
    for old, new, before, after in ((int, str, 5, "5"), (str, int, "5", 5), (date, str, "2024-01-02", "2024-01-02"),
                                    (str, date, "2024-01-02", day), (str, uuid.UUID, str(number), number)):  # fmt: skip
        chain = by_rows(lambda row, after=after: {"id": after})
        [row] = upgraded(entity("Thing", old), entity("Thing", new), [(before,)], chain)
        assert str(row[0]) == str(before)


ENDS: list[tuple[Any, Any, Any, Any]] = [
    (int, str, 5, "5"), (str, int, "5", 5), (date, str, "2024-01-02", "2024-01-02"), (str, date, "2024-01-02", None),
    (uuid.UUID, str, str(uuid.UUID(int=7)), str(uuid.UUID(int=7))),
]  # fmt: skip


def linked(left: Any, right: Any) -> Any:
    return relation("Link", entity("One", left), entity("Two", right), slot=str, n=(int, 0))


@pytest.mark.parametrize(("old", "new", "before", "after"), ENDS)
def test_the_ends_of_a_relation_follow_the_keys_of_their_entities(old: Any, new: Any, before: Any, after: Any) -> None:
    after = before if after is None else after
    for change in ([], [by_rows(same, "Link")]):
        assert upgraded(linked(old, str), linked(new, str), [(before, 3, "r", "s")], *change) == [(after, "r", "s", 3)]
        assert upgraded(linked(str, old), linked(str, new), [("l", 3, before, "s")], *change) == [("l", after, "s", 3)]
    assert upgraded(linked(old, str), linked(old, str), [(before, 3, "r", "s")]) == [(before, "r", "s", 3)]


def test_an_end_that_cannot_follow_is_named() -> None:
    with pytest.raises(MigrationError, match="right_key 'x' of Link is no int, as the key of its end is now"):
        upgraded(linked(str, str), linked(str, int), [("l", 3, "x", "s")])
    seen_to = by_rows(lambda row: {**row, "right_key": 7}, "Link")
    with pytest.raises(MigrationError, match="changed the key"):
        upgraded(linked(str, str), linked(str, int), [("l", 3, "x", "s")], seen_to)
    assert upgraded(linked(str, str), linked(str, int), [("l", 3, "7", "s")], seen_to) == [("l", 7, "s", 3)]


# tables


def upgraded_all(old: Any, new: Any, table: pa.Table, *chain: Upgrader) -> Any:
    return upgraded_table(type_info(new), stored(old), chain, table)


THINGS = pa.table({"id": ["b", "a", "c"], "n": [1, 2, 3]})


def test_a_table_stays_columns_where_arrow_can_tell_that_it_fits() -> None:
    old, new = entity("Thing", n=int), entity("Thing", n=int, m=(int, 5))
    found = upgraded_all(old, new, THINGS, by_tables(lambda table: table.take([2, 0, 1])))
    assert isinstance(found, ArrowRows)
    assert list(found) == [("c", 3, 5), ("b", 1, 5), ("a", 2, 5)]


def test_upgraders_of_rows_and_of_tables_take_turns() -> None:
    old, new = entity("Thing", n=int), entity("Thing", n=int)
    more = by_rows(lambda row: {**row, "n": row["n"] + 1})
    twice = by_tables(lambda table: pa.table({"id": table["id"], "n": [n * 2 for n in table["n"].to_pylist()]}))
    assert list(upgraded_all(old, new, THINGS, more, twice)) == [("b", 4), ("a", 6), ("c", 8)]
    assert list(upgraded_all(old, new, THINGS, twice, more)) == [("b", 3), ("a", 5), ("c", 7)]
    with pytest.raises(MigrationError, match="failed at Thing: ZeroDivisionError"):
        upgraded_all(old, new, THINGS, by_tables(lambda table: 1 // 0))


def test_fields_that_a_table_lacks_get_their_defaults() -> None:
    naive, zoned = datetime(2024, 1, 1, 12), datetime(2024, 1, 1, 12, tzinfo=UTC)
    new = entity("Thing", n=(int, 9), text=(str, "x"), none=(str | None, None), then=(datetime, naive),
                 now=(datetime, zoned))  # fmt: skip
    found = upgraded_all(entity("Thing", n=int), new, THINGS, by_tables(same))
    assert isinstance(found, ArrowRows)
    [first, *_] = found
    assert first == ("b", 1, "x", None, "2024-01-01T12:00:00.000000", "2024-01-01T12:00:00.000000+00:00")
    with pytest.raises(MigrationError, match="an upgrader of Thing returned what does not fit"):
        upgraded_all(entity("Thing", n=int), entity("Thing", n=int, m=int), THINGS, by_tables(same))


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["b", "x"], "3 rows went in, 2 came out, 3 keys differ"),
        (["b", "a", "d"], "3 rows went in, 3 came out, 2 keys differ"),
    ],
)  # fmt: skip
def test_tables_must_keep_every_key_once(ids: list[str], words: str) -> None:
    for new in (entity("Thing", n=int), entity("Thing", n=int | str)):
        with pytest.raises(MigrationError, match=f"upgraders of Thing must keep every key once: {words}"):
            upgraded_all(entity("Thing", n=int), new, THINGS,
                         by_tables(lambda table: pa.table({"id": ids, "n": range(len(ids))})))  # fmt: skip


def test_what_an_upgrader_returns_instead_of_a_table_is_refused() -> None:
    new = entity("Thing", n=int, m=(int, 0))
    for wrong in (None, 5, [1]):
        with pytest.raises(MigrationError, match="returned what does not fit"):
            upgraded_all(entity("Thing", n=int), new, THINGS, by_tables(lambda table, wrong=wrong: wrong))
        with pytest.raises(MigrationError, match="returned what does not fit"):
            upgraded_all(linked(int, str), linked(str, str), LINKS, by_tables(lambda table, wrong=wrong: wrong))


LINKS = pa.table({"left_key": [1, 2], "right_key": ["r", "s"], "slot": ["x", "y"], "n": [3, 4]})


def texts(info: TypeInfo, found: Iterable[tuple[Any, ...]]) -> list[tuple[str, ...]]:
    return [tuple(map(str, row[: len(info.keys)])) for row in found]


ARROW: dict[Any, Any] = {int: pa.int64(), date: pa.date32()}


@pytest.mark.parametrize(("old", "new", "before", "after"), ENDS)
def test_the_ends_of_a_table_follow_too_unless_an_upgrader_saw_to_them(
    old: Any, new: Any, before: Any, after: Any
) -> None:  # fmt: skip
    def column(kind: Any, text: Any) -> pa.Array:
        return pa.array([str(text) if kind not in ARROW else int(text) if kind is int else date.fromisoformat(text)],
                        ARROW.get(kind, pa.string()))  # fmt: skip

    given = pa.table({"left_key": column(old, before), "right_key": ["r"], "slot": ["s"], "n": [3]})
    moved = pa.table({"n": [3], "slot": ["s"], "right_key": column(old, before), "left_key": ["l"]})
    for one, end, ends, info, keys in (
        (given, "left_key", linked(old, str), type_info(linked(new, str)), (str(before), "r", "s")),
        (moved, "right_key", linked(str, old), type_info(linked(str, new)), ("l", str(before), "s")),
    ):
        at = one.column_names.index(end)
        seen_to = by_tables(lambda table, at=at, end=end: table.set_column(at, end, column(new, str(before))), "Link")
        for chain in (by_tables(same, "Link"), seen_to):
            assert texts(info, upgraded_table(info, stored(ends), [chain], one)) == [keys]


def test_an_end_that_a_table_lacks_is_refused() -> None:
    info = type_info(linked(str, str))
    for order in (["right_key", "slot", "n"], ["n", "slot", "right_key"]):
        chain = [by_tables(lambda table, order=order: table.select(order), "Link")]
        with pytest.raises(MigrationError, match="an upgrader of Link returned what does not fit"):
            upgraded_table(info, stored(linked(int, str)), chain, LINKS)
