"""Any sequence of sessions, commits, migrations, drops and reopenings leaves what a naive store would have.

Every form of query is compared, at random moments and with random filters, for both engines, on a native file and over
the seam.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from low import LOW
from marking import examples, slow_after

from ontolake.cli import main
from ontolake.model import Entity, Field, Relation
from ontolake.ontology import (
    Config,
    MigrationError,
    MigrationPreview,
    MigrationResult,
    SchemaOutdatedError,
    Session,
    TypeDroppedError,
    TypedStore,
    avg,
    count,
    count_where,
    left,
    max_,
    min_,
    open_repository,
    right,
    sum_,
    upgrader,
)
from ontolake.ontology.moving.conversion import convert
from ontolake.ontology.verification import verify
from ontolake.storage import open_storage

from .conftest import fresh_url
from .naive import NaiveHistory, key_of
from .upkeep import everything

Types = tuple[Any, Any, Any]
VERSIONS = 3
"""How many versions of each type there are."""


@cache
def types_of(item: int, box: int, holds: int) -> Types:
    """`Item`, `Box` and `Holds`, each in the version asked for. Every version can read what older ones wrote."""

    def name(cls: Any, called: str, fields: dict[str, tuple[Any, Any]]) -> Any:
        body: dict[str, Any] = {"__module__": __name__, "__qualname__": called, "__annotations__": {}}
        for field, (annotation, declared) in fields.items():
            body["__annotations__"][field] = Field[annotation]
            if declared is not None:
                body[field] = declared
        return type(cls)(called, (cls,), body)

    items: dict[str, tuple[Any, Any]] = {
        "id": (str, Field(primary_key=True)), "n": (int, None), "tag": (str | None, Field(default=None, index=True)),
        "price": (Decimal, Field(default=Decimal(0))), "made": (datetime, Field(default=datetime(2024, 1, 1))),
    }  # fmt: skip
    if item >= 2:
        items["score"] = (float, Field(default=1.5))
    if item >= 3:
        items["extra"] = (dict[str, Any], Field(default_factory=dict))
        items["n"] = (int | None, Field(default=None))
    boxes: dict[str, tuple[Any, Any]] = {"id": (int, Field(primary_key=True)), "full": (bool, Field(default=False))}
    if box >= 2:
        boxes["sizes"] = (list[int], Field(default_factory=list))
    if box >= 3:
        boxes["commit_id"] = (str, Field(default="none", name="commit_id"))
    links: dict[str, tuple[Any, Any]] = {"slot": (str, Field(instance_key=True)), "amount": (int, Field(default=1))}
    if holds >= 2:
        links["note"] = (str | None, Field(default=None))
    if holds >= 3:
        links["weight"] = (float, Field(default=0.25))
    made_item, made_box = name(Entity, "Item", items), name(Entity, "Box", boxes)
    return made_item, made_box, name(Relation[made_box, made_item], "Holds", links)


WORDS = st.sampled_from(["", "a", "A", "a%", "a_b", "ä", "b\0", "100%"])
KEYS = st.sampled_from([f"i{n}" for n in range(5)])
NUMBERS = st.integers(-2, 4)


@cache
def objects(types: Types) -> st.SearchStrategy[Any]:
    """Objects of the types as they are now."""
    item, box, holds = types
    values: dict[str, st.SearchStrategy[Any]] = {
        "n": NUMBERS, "tag": st.none() | WORDS, "price": st.sampled_from([Decimal("1.0"), Decimal(-2), Decimal(10)]),
        "made": st.sampled_from([datetime(2024, 1, 1), datetime(2024, 1, 2, tzinfo=UTC)]),
        "score": st.sampled_from([0.0, 1.5, float("inf")]), "extra": st.sampled_from([{}, {"a": 1}, {"a": {"b": "x"}}]),
        "full": st.booleans(), "sizes": st.lists(NUMBERS, max_size=2), "commit_id": WORDS, "amount": NUMBERS,
        "note": st.none() | WORDS, "weight": st.sampled_from([0.25, -1.0]), "slot": st.sampled_from(["1", "2"]),
    }  # fmt: skip

    def of(cls: Any, **keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        fields = {name: values[name] for name in cls.model_fields if name not in keys}
        return st.fixed_dictionaries({**keys, **fields}).map(lambda given: cls(**given))

    return st.one_of(of(item, id=KEYS), of(box, id=NUMBERS), of(holds, left_key=NUMBERS, right_key=KEYS))


class Machine(RuleBasedStateMachine):
    """A store and its naive likeness, side by side."""

    engine = "v2"
    place = "native"
    sizes = LOW
    happened: ClassVar[set[str]] = set()

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.url = self.fresh(Path(self.folder.name))
        self.at = [1, 1, 1]
        self.types = types_of(1, 1, 1)
        self.naive = NaiveHistory(self.engine != "v1")
        self.pending: list[Any] = []
        self.works: list[str] = []
        self.keeper = self.opened()  # what is in memory goes when the last one closes it
        self.session = self.opened()

    def fresh(self, folder: Path) -> str:
        """A place where nothing is yet."""
        return fresh_url(self.place, folder)

    def opened(self, types: Types | None = None) -> Session:
        item, box, holds = types or self.types
        return Session(self.url, entity_types=[item, box], relation_types=[holds], engine_version=self.engine,
                       config={"sizes": self.sizes})

    def teardown(self) -> None:
        self.session.close()
        self.keeper.close()
        self.folder.cleanup()

    # what happens
    @initialize(data=st.data())
    def first_rows(self, data: st.DataObject) -> None:
        for _ in range(2):
            self.declare(data)
        self.commit(data)

    @rule(data=st.data())
    def declare(self, data: st.DataObject) -> None:
        size = data.draw(st.sampled_from([1, 3, 12]))
        found = data.draw(st.lists(objects(self.types), min_size=size, max_size=size))
        self.session.ensure(found)
        self.pending += found

    @rule(data=st.data())
    def declare_by_arrow(self, data: st.DataObject) -> None:
        found = data.draw(st.lists(objects(self.types).filter(lambda obj: type(obj) is self.types[1]), max_size=6))
        rows = [{**obj.model_dump(), "id": obj.id} for obj in found]
        if rows:
            self.session.ensure_arrow(self.types[1], pa.Table.from_pylist(rows))
            self.pending += found

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        if any(self.naive.gone(type(obj)) for obj in self.pending):
            with pytest.raises(TypeDroppedError):
                self.session.commit()
            self.session.discard()
        else:
            assert self.session.commit() == self.naive.commit(self.pending)
        self.pending = []
        self.compare(data)

    @rule(data=st.data())
    def commit_by_another(self, data: st.DataObject) -> None:
        found = data.draw(st.lists(objects(self.types).filter(lambda obj: not self.naive.gone(type(obj))), max_size=3))
        other = self.opened()
        other.ensure(found)
        assert other.commit() == self.naive.commit(found)
        other.close()
        self.compare(data)

    @rule(data=st.data())
    def reopen(self, data: st.DataObject) -> None:
        self.session.close()
        self.session = self.opened()
        self.pending = []
        self.compare(data)

    @precondition(lambda self: max(self.at) < VERSIONS)
    @rule(data=st.data(), by_arrow=st.booleans())
    def migrate(self, data: st.DataObject, by_arrow: bool) -> None:
        later, new, changed = self._next(data)
        session = self.opened(new)
        upgraders = self._upgraders(changed, by_arrow)
        preview = session.migrate(upgraders=upgraders)
        assert isinstance(preview, MigrationPreview)
        before = self._others(changed, self.naive.head)
        result = session.migrate(dry_run=False, token=preview.token, upgraders=upgraders)
        assert isinstance(result, MigrationResult)
        assert self._others(changed, self.naive.head) == before, "types that are not migrated"
        assert result.commit_id == self.naive.migrate([(old, cls, _upgraded(cls)) for old, cls in changed])
        self.happened.add("migrate")
        self.session.close()
        self.session, self.types, self.at, self.pending = session, new, later, []
        session.validate()
        self.compare(data)

    def _others(self, changed: list[tuple[Any, Any]], head: int) -> dict[str, Any]:
        """All that is read of entity types which do not change."""
        types = [cls for cls in self.types[:2] if cls not in {old for old, _ in changed}]
        with Session(self.url, entity_types=types, config={"sizes": self.sizes}) as session:
            return everything(session, types, head)

    @precondition(lambda self: max(self.at) < VERSIONS)
    @rule(data=st.data())
    def migrate_badly(self, data: st.DataObject) -> None:
        """An upgrader that raises changes nothing."""
        _, new, changed = self._next(data)
        old, last = changed[-1]
        if self.naive.latest(old):
            session = self.opened(new)
            broken = upgrader(last.__name__, from_version=self.naive.versions[last.__name__])(lambda row: 1 / 0)
            with pytest.raises(MigrationError, match="ZeroDivisionError"):
                session.migrate(dry_run=False, force=True, upgraders=[*self._upgraders(changed[:-1], False), broken])
            with pytest.raises(SchemaOutdatedError):
                session.validate()
            session.close()
            self.compare(data)

    def _next(self, data: st.DataObject) -> tuple[list[int], Types, list[tuple[Any, Any]]]:
        """Some types in their next version: which they are then, all types, and those that change."""
        chosen = data.draw(st.sets(st.integers(0, 2), min_size=1))
        later = [version + (number in chosen) for number, version in enumerate(self.at)]
        new = types_of(*later)
        return later, new, [(self.types[number], new[number]) for number in sorted(chosen)]

    def _upgraders(self, changed: list[tuple[Any, Any]], by_arrow: bool) -> list[Any]:
        """Upgraders from the version that each type has in the store."""
        found = []
        for _, cls in changed:
            version = self.naive.versions.get(cls.__name__, 1)
            if by_arrow and cls.__name__ == "Box":
                found.append(upgrader("Box", from_version=version, arrow=True)(_box_table(cls)))
            else:
                found.append(upgrader(cls.__name__, from_version=version)(_upgraded(cls)))
        return found

    @precondition(lambda self: self.naive.head > 3 and not self.naive.dropped)
    @rule(number=st.integers(0, 2), data=st.data())
    def drop(self, number: int, data: st.DataObject) -> None:
        cls = self.types[number]
        if cls.__name__ in self.naive.versions:
            self.session.repository.drop_type("relation" if number == 2 else "entity", cls.__name__)
            self.naive.dropped.add(cls.__name__)
            self.happened.add("drop")
            self.compare(data)

    # upkeep, after which every read is asked again
    @precondition(lambda self: self.naive.head > 3)
    @rule(data=st.data())
    def look_after(self, data: st.DataObject) -> None:
        before = everything(self.session, self.types)
        if not self.works:
            self.works = data.draw(st.permutations(sorted(self.upkeep)))
        work, *self.works = self.works
        self.upkeep[work](self)
        self.happened.add(work)
        assert everything(self.session, self.types) == before
        assert not [*verify(self.session.repository)]
        self.look_at_every_commit()

    def look_at_every_commit(self) -> None:
        for at in range(self.naive.head + 1):
            for cls in self.types:
                query = self.asked(cls, at)
                assert by_key(query.collect()) == by_key(self.naive.latest(cls, at).values()), (cls, at)
                assert query.to_arrow().equals(query.limit(1000).to_arrow()), (cls, at)

    def convert(self) -> None:
        """Go on with a copy at another place."""
        url, self.url = self.url, self.fresh(Path(tempfile.mkdtemp(dir=self.folder.name)))
        config = Config(sizes=self.sizes)
        with (closing(open_repository(url, config=config)) as source,
              closing(open_repository(self.url, engine_version=self.engine, config=config)) as target):  # fmt: skip
            convert(source, target)
            for session in (self.session, self.keeper):
                session.close()
            self.keeper, self.session, self.pending = self.opened(), self.opened(), []

    def give_room_back(self) -> None:
        if self.url.startswith("sqlite+memory:"):  # commands cannot be given for what is in memory
            with closing(open_storage(self.url)) as storage:
                storage.compact()
        elif self.url.startswith("memory:"):
            with TypedStore(self.url, config={"create": False}) as store:
                store.gc(dry_run=False)
        else:
            assert main(["gc", self.url]) == 0

    upkeep: ClassVar[dict[str, Callable[[Any], None]]] = {"convert": convert, "gc": give_room_back}

    # what must be
    @invariant()
    def heads_agree(self) -> None:
        assert self.session.repository.head() == self.naive.head

    def compare(self, data: st.DataObject) -> None:
        at = data.draw(st.none() | st.integers(0, self.naive.head))
        since = data.draw(st.integers(0, self.naive.head))
        number, word = data.draw(NUMBERS), data.draw(WORDS)
        self._compare_items(at, since, number, word, data.draw(st.sets(st.integers(0, 7), min_size=2, max_size=2)))
        self._compare_boxes(at, since)
        self._compare_links(at, number, word)
        self._compare_changes(data.draw(st.integers(0, self.naive.head)))

    def asked(self, cls: Any, at: int | None) -> Any:
        start: Any = self.session.query()
        query = start.relations(cls) if issubclass(cls, Relation) else start.entities(cls)
        return query if at is None else query.as_of(at)

    def _compare_items(self, at: int | None, since: int, number: int, word: str, chosen: set[int]) -> None:
        item = self.types[0]
        filters: list[tuple[Any, Callable[[Any], bool | None]]] = [
            (item.n == number, lambda i: i.n == number),
            (item.n >= number, lambda i: i.n is not None and i.n >= number),
            (item.tag.startswith(word), lambda i: i.tag is not None and i.tag.startswith(word)),
            (item.tag.contains(word) & (item.n < 3), lambda i: i.tag is not None and word in i.tag and i.n is not None
             and i.n < 3),
            (~(item.tag == word), lambda i: i.tag is not None and i.tag != word),
            (item.tag.is_null() | item.price.in_([Decimal(1)]), lambda i: i.tag is None or i.price == 1),
            (item.id == f"i{abs(number)}", lambda i: i.id == f"i{abs(number)}"),
            (item.made >= datetime(2024, 1, 1, 12, tzinfo=UTC), lambda i: i.made.day == 2),
        ]  # fmt: skip
        for condition, predicate in (filters[place] for place in chosen):
            query = self.asked(item, at).where(condition)
            rows = [row for row in self.naive.latest(item, at).values() if predicate(row)]
            found = query.collect()
            assert by_key(found) == by_key(rows), condition
            assert found.diagnostics == self.naive.diagnostics(at, item)
            assert query.count() == len(rows)
            assert (query.first() is None) == (not rows)
            ordered = sorted((row.id for row in rows), reverse=True)
            assert [row.id for row in query.order_by(item.id.desc()).offset(1).limit(2).collect()] == ordered[1:3]
            assert [row.id for row in query.order_by(item.id.desc()).offset(1).collect()] == ordered[1:]
            assert sorted(query.to_arrow().column("id").to_pylist()) == sorted(ordered)
            states = [(c, row) for c, row in self.naive.history(item, at) if predicate(row)]
            assert seen(query.with_history().collect()) == unordered(states)
            recent = [(c, row) for c, row in self.naive.history(item, at, since) if predicate(row)]
            assert seen(query.history_since(since).collect()) == unordered(recent)
            assert query.history_since(since).count() == len(recent)
            prices = [row.price for row in rows]
            assert query.sum(item.price) == (sum(prices) if prices else None)
            assert query.max(item.price) == max(prices, default=None)
            assert query.min(item.made) == min((row.made for row in rows), key=_utc, default=None)
            assert query.count_where(item.price > 1) == sum(price > 1 for price in prices)
            groups = query.group_by(item.tag).having(count() > 1).agg(n=count(), low=min_(item.id), t=sum_(item.price))
            assert {group["tag"]: (group["n"], group["low"], group["t"]) for group in groups} == {
                tag: (len(alike), min(row.id for row in alike), sum(row.price for row in alike))
                for tag in {row.tag for row in rows} if len(alike := [row for row in rows if row.tag == tag]) > 1
            }  # fmt: skip

    def _compare_boxes(self, at: int | None, since: int) -> None:
        box = self.types[1]
        rows = list(self.naive.latest(box, at).values())
        query = self.asked(box, at)
        assert by_key(query.collect()) == by_key(rows)
        assert by_key(query.where(box.full.is_true()).collect()) == by_key(row for row in rows if row.full)
        assert by_key(query.where(box.id.in_([0, 1, 99])).collect()) == by_key(row for row in rows if row.id in (0, 1))
        recent = [row.id for _, row in self.naive.history(box, at, since)]
        assert query.history_since(since).sum(box.id) == (sum(recent) if recent else None)
        if self.at[1] >= 2:
            some = query.where(box.sizes.any_path() == 1)
            assert by_key(some.collect()) == by_key(row for row in rows if 1 in row.sizes)
            assert query.avg_len(box.sizes) == (sum(len(row.sizes) for row in rows) / len(rows) if rows else None)

    def _compare_links(self, at: int | None, number: int, word: str) -> None:
        item, box, holds = self.types
        items, boxes = self.naive.latest(item, at), self.naive.latest(box, at)
        links = list(self.naive.latest(holds, at).values())
        query = self.asked(holds, at)
        assert by_key(query.collect()) == by_key(links)

        def tagged(link: Any) -> bool:
            return link.right_key in items and items[link.right_key].tag == word

        assert query.where(right(holds).tag == word).count() == sum(map(tagged, links))
        either = query.where((right(holds).tag == word) | (holds.amount == number))
        assert by_key(either.collect()) == by_key(one for one in links if tagged(one) or one.amount == number)
        full = query.where(left(holds).full.is_true(), holds.left_key == number).collect()
        assert by_key(full) == by_key(one for one in links if one.left_key == number and one.left_key in boxes
                                      and boxes[one.left_key].full)  # fmt: skip
        amounts: dict[Any, list[int]] = {}
        for one in links:
            amounts.setdefault(items[one.right_key].n if one.right_key in items else None, []).append(one.amount)
        grouped = query.group_by(right(holds).n).agg(
            t=sum_(holds.amount), mean=avg(holds.amount), top=max_(holds.amount), two=count_where(holds.slot == "2"))
        assert {group["n"]: (group["t"], group["mean"], group["top"]) for group in grouped} == {
            n: (sum(found), sum(found) / len(found), max(found)) for n, found in amounts.items()}
        whole = [one for one in links if one.left_key in boxes and one.right_key in items]
        ways = self.asked(box, at).via(holds).collect()
        assert sorted((way.source.id, way.target.id, way.relations[0].slot) for way in ways) == sorted(
            (one.left_key, one.right_key, one.slot) for one in whole)
        assert all(way.source == boxes[way.source.id] and way.target == items[way.target.id] for way in ways)
        assert ways.diagnostics == self.naive.diagnostics(at, box, holds, item)
        assert self.asked(item, at).where(item.n == number).via(holds).count() == sum(
            items[one.right_key].n == number for one in whole)
        twice = self.asked(item, at).via(holds).via(holds).without_relations().collect()
        assert len(twice) == sum(one.left_key == two.left_key for one in whole for two in whole)

    def _compare_changes(self, commit: int) -> None:
        if commit:
            found = self.session.list_commit_changes(commit)
            wanted = [(f"{'relation' if cls is self.types[2] else 'entity'}/{cls.__name__}", key_of(obj))
                      for cls in self.types for c, obj in self.naive.history(cls) if c == commit]  # fmt: skip
            assert sorted(((change.table, change.key) for change in found), key=str) == sorted(wanted, key=str)
            for change in found:
                cls = next(cls for cls in self.types if change.table.endswith(f"/{cls.__name__}"))
                before = self.naive.latest(cls, commit - 1).get(change.key)
                assert (change.before is None) == (before is None)
        assert [one.id for one in self.session.list_commits()] == list(range(self.naive.head, 0, -1))


def _upgraded(cls: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """What an upgrader to a version does: fill in a field that is new, and change one that was there."""

    def upgrade(row: dict[str, Any]) -> dict[str, Any]:
        if cls.__name__ == "Item":
            more = {"score": 9.5} if "score" in cls.model_fields and "score" not in row else {}
            return {**row, **more, "made": row["made"] + timedelta(0), "price": row["price"] + 1}
        if cls.__name__ == "Box":
            return {**row, "full": not row["full"]}
        return {**row, "amount": row["amount"] + 1}

    return upgrade


def _box_table(cls: Any) -> Callable[[pa.Table], pa.Table]:
    def upgrade(table: pa.Table) -> pa.Table:
        import pyarrow.compute as pc

        return table.set_column(table.column_names.index("full"), "full", pc.invert(table.column("full")))

    return upgrade


def by_key(rows: Any) -> dict[Any, Any]:
    """Rows by their keys, each of which must be there once."""
    found = [(key_of(row), row) for row in rows]
    assert len(dict(found)) == len(found), found
    return dict(found)


def seen(rows: Any) -> list[str]:
    return unordered((row.meta().commit_id, row) for row in rows)


def unordered(states: Any) -> list[str]:
    return sorted(f"{commit} {row!r}" for commit, row in states)


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def play(
    engine: str, place: str | Callable[[Path], str], games: int, steps: int, *, program: int | None = None,
    base: type[Machine] = Machine,
) -> set[str]:  # fmt: skip
    """Play games at a place, which may be given by what makes one; those of one `program` are the same everywhere.

    Returns what happened beside commits: `migrate`, `drop`, and kinds of upkeep.
    """
    at: dict[str, Any] = {"place": place} if isinstance(place, str) else {"fresh": lambda self, folder: place(folder)}
    happened: set[str] = set()
    machine: Any = type("Played", (base,), {"engine": engine, "happened": happened, **at})
    if program is not None:
        machine = seed(program)(machine)
    run_state_machine_as_test(machine, settings=settings(  # type: ignore[no-untyped-call]
        # Making a failing example smaller takes minutes: what failed is printed step by step as it is.
        max_examples=max(games, examples(games)), stateful_step_count=steps, deadline=None,
        suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.reuse, Phase.generate)))
    return happened


@pytest.fixture(params=["v1", "v2", "v3"])
def engine(request: pytest.FixtureRequest) -> str:
    """All engines, in quick tests too: these are those that ask the most of them."""
    return str(request.param)


@pytest.mark.parametrize(("place", "games"),
                         slow_after(1, [("pages in memory", 2), ("native", 4), ("page file", 2)]))
def test_whatever_is_done_to_a_store_it_answers_as_a_naive_one(engine: str, place: str, games: int) -> None:
    play(engine, place, games, 16)


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "games"), [("v1", 6), ("v2", 6), ("v3", 12)])
def test_it_does_so_for_long(engine: str, games: int) -> None:
    play(engine, "native", games, 30)


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "place"), [
    ("v1", "native"), ("v2", "page file"), ("v3", "native"), ("v3", "page file")])  # fmt: skip
def test_upkeep_changes_no_answer_in_long_histories(engine: str, place: str) -> None:
    assert play(engine, place, 3, 60, program=5) >= {*Machine.upkeep, "migrate"}
