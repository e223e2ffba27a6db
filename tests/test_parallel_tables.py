"""Graphs and SQL tables for parallel readers and writers: what splits give is what the store says."""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ontolake import parallel
from ontolake.errors import Conflict, Invalid, NotFound, OntolakeError
from ontolake.graph import Graph
from ontolake.model import Entity, Field, Relation
from ontolake.parallel import Filter, Parallel, View, open_parallel
from ontolake.sql import open_database


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    size: Field[int | None] = Field(default=None)
    price: Field[Decimal] = Field(default=Decimal("1.00"), max_digits=10, decimal_places=2)
    day: Field[date | None] = Field(default=None)
    at: Field[datetime] = Field(default=datetime(2024, 1, 1, tzinfo=UTC))
    weight: Field[float] = Field(default=0.5)
    good: Field[bool] = Field(default=True)
    raw: Field[bytes] = Field(default=b"\0")
    tags: Field[list[str] | None] = Field(default=None)


class Near(Relation[Thing, Thing]):
    metres: Field[int]


SQL = """CREATE TABLE app.public.things (id TEXT PRIMARY KEY, name TEXT NOT NULL, size BIGINT, price DECIMAL(10, 2),
    day DATE, at TIMESTAMP, weight DOUBLE PRECISION, good BOOLEAN DEFAULT true, raw BYTEA);
    CREATE INDEX by_size ON app.public.things (size)"""
TABLES = {"graph": "node/Thing", "sql": "app.public.things", "pages": "app.public.things"}


def thing(number: int, **more: Any) -> dict[str, Any]:
    return {"id": f"t{number:06}", "name": f"name {number % 7}", "size": number % 50 if number % 3 else None,
            "price": Decimal(number % 900) / 4, "day": date(1950 + number % 90, 1, 2) if number % 5 else None,
            "at": datetime(1969, 12, 31, 12, tzinfo=UTC) + timedelta(seconds=number, microseconds=number),
            "weight": float("nan") if number % 11 == 0 else -0.0 if number % 13 == 0 else number / 3,
            "good": number % 2 == 0, "raw": bytes([number % 256])} | more  # fmt: skip


def arrow(rows: list[dict[str, Any]]) -> pa.Table:
    kinds = {"id": pa.string(), "name": pa.string(), "size": pa.int64(), "price": pa.decimal128(10, 2),
             "day": pa.date32(), "at": pa.timestamp("us", tz="UTC"), "weight": pa.float64(), "good": pa.bool_(),
             "raw": pa.binary()}  # fmt: skip
    return pa.Table.from_pylist(rows, pa.schema(kinds.items()))


class Place:
    """A store with a table of things, and the state it should be in after every commit."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.table = TABLES[kind]
        self.kind = kind
        self.url = {"graph": f"{folder}/graph/", "sql": f"{folder}/shop.db", "pages": f"file://{folder}/pages.db"}[kind]
        self.states: dict[int, dict[str, Any]] = {}
        if kind == "graph":
            with Graph.init(self.url, [Thing, Near]):
                pass
        else:
            with open_database(self.url) as database:
                database.execute("CREATE DATABASE app; CREATE SCHEMA app.public")
                database.execute(SQL)
        with open_parallel(self.url) as store:
            self.states[store.head()] = {}

    def put(self, *rows: dict[str, Any], gone: tuple[str, ...] = ()) -> None:
        """One commit by the store's own means."""
        state = dict(self.states[max(self.states)])
        if self.kind == "graph":
            with Graph.open(self.url) as graph, graph.transaction() as transaction:
                if rows:
                    transaction.load("node/Thing", arrow(list(rows)))
                if gone:
                    transaction.delete("node/Thing", list(gone))
        else:
            with open_database(self.url) as database, database.transaction():
                if keys := [*gone, *(row["id"] for row in rows)]:
                    marks = ", ".join("?" * len(keys))
                    database.execute(f"DELETE FROM {self.table} WHERE id IN ({marks})", tuple(keys))
                database.bulk_load(self.table, arrow(list(rows)))
        state |= {row["id"]: row for row in rows}
        for key in gone:
            state.pop(key, None)
        with open_parallel(self.url) as store:
            self.states[store.head()] = state


@pytest.fixture(params=["graph", "sql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


def read(store: Parallel, table: str, columns: Any = None, filters: Any = (), parts: int = 4, **view: Any) -> pa.Table:
    pinned = store.view(**view)
    splits = store.splits(table, pinned, columns, filters, parts=parts)
    batches = [batch for split in splits for batch in pickle.loads(pickle.dumps(split)).read()]
    schema = store.schema(table, pinned.mode, pinned)
    return pa.Table.from_batches(batches) if batches else schema.empty_table()


def plain(rows: Any) -> list[str]:
    """Rows in one form, whoever they come from."""
    table = rows if isinstance(rows, pa.Table) else arrow([*rows])
    schema = arrow([]).schema
    shown = table.select(schema.names).cast(schema).to_pylist()
    return sorted(repr(row).replace("'weight': -0.0", "'weight': 0.0") for row in shown)  # SQL has one zero


def filled(place: Place) -> Place:
    place.put(*(thing(n) for n in range(300)))
    place.put(*(thing(n, name="changed") for n in range(0, 300, 10)))
    place.put(*(thing(n, size=-1) for n in range(295, 320)), gone=("t000001", "t000002"))
    return place


def test_every_moment_is_what_the_store_was(place: Place) -> None:
    filled(place)
    with open_parallel(place.url) as store:
        assert place.table in store.tables()
        assert list(store.keys(place.table)) == ["id"]
        for commit, state in place.states.items():
            found = read(store, place.table, as_of=commit)
            assert plain(found) == plain(state.values())
            assert found.schema == store.schema(place.table)
        assert read(store, place.table, ["size", "id"]).column_names == ["size", "id"]
        assert sum(batch.num_rows for split in store.splits(place.table, store.view(), []) for batch in split.read()
                   ) == len(place.states[store.head()])  # fmt: skip


def test_changes_and_history_tell_every_step(place: Place) -> None:
    filled(place)
    with open_parallel(place.url) as store:
        commits = sorted(place.states)
        for since in commits:
            wanted: list[Any] = []
            states: list[Any] = []
            for before, commit in itertools.pairwise(commits):
                old, new = place.states[before], place.states[commit]
                changed = {key for key in {*old, *new} if repr(old.get(key)) != repr(new.get(key))}
                told = [(commit, key, "delete" if key not in new else "update" if key in old else "insert")
                        for key in changed]
                wanted += told if commit > since else []
                states += [new[key] for key in changed if key in new]
            found = read(store, place.table, mode="changes", since=since)
            assert sorted((row["commit_id"], row["id"], row["change"]) for row in found.to_pylist()) == sorted(wanted)
        assert plain(read(store, place.table, mode="history")) == plain(states)
        gone = [row for row in read(store, place.table, mode="changes").to_pylist() if row["change"] == "delete"]
        assert {row["name"] for row in gone} == {None}
        empty = read(store, place.table, mode="changes", since=store.head())
        assert len(empty) == 0
        told = [(commit.id, commit.id in place.states) for commit in store.commits(since=commits[0])]
        assert told == [(commit, True) for commit in reversed(commits[1:])]


def test_a_pinned_view_does_not_see_what_comes_later(place: Place) -> None:
    filled(place)
    with open_parallel(place.url) as store:
        head = store.head()
        splits = store.splits(place.table, store.view())
    place.put(*(thing(n, name="later") for n in range(350)))
    found = [row for split in splits for batch in split.read() for row in batch.to_pylist()]
    assert plain(found) == plain(place.states[head].values())


_FILTERS = [
    Filter("id", "==", "t000020"), Filter("id", ">=", "t000290"), Filter("id", "in", ("t000001", "t000300", "x")),
    Filter("id", "startswith", "t00003"), Filter("name", "startswith", "name 1"), Filter("size", ">", 40),
    Filter("size", "is_null"), Filter("size", "==", 7), Filter("size", "in", (1, 2, 3)), Filter("size", "<", 0),
    Filter("price", "<=", Decimal("3.25")), Filter("day", "==", date(1960, 1, 2)), Filter("weight", "<", 3.0),
    Filter("weight", ">", 90.0), Filter("weight", "==", 0.0), Filter("weight", ">=", 0.0),
    Filter("at", "<=", datetime(1969, 12, 31, 12, 1, tzinfo=UTC)), Filter("good", "==", True),
    Filter("at", ">", datetime(1969, 12, 31, 12, 1, tzinfo=UTC)), Filter("id", "is_not_null"),
    Filter("size", "==", "text"), Filter("raw", "==", b"\x05"), Filter("id", "<", "t000004"),
]  # fmt: skip


def fulfils(row: dict[str, Any], one: Filter) -> bool:
    value = row[one.column]
    if value is None or one.op in ("is_null", "is_not_null"):
        return (one.op == "is_null") == (value is None) and one.op in ("is_null", "is_not_null")
    if value != value:
        return one.op in (">", ">=")
    try:
        return {"==": lambda: value == one.value, "<": lambda: value < one.value, "<=": lambda: value <= one.value,
                ">": lambda: value > one.value, ">=": lambda: value >= one.value, "in": lambda: value in one.value,
                "startswith": lambda: value.startswith(one.value)}[one.op]()  # fmt: skip
    except TypeError:
        return False


def test_filters_never_lose_a_row(place: Place) -> None:
    filled(place)
    head, older = max(place.states), sorted(place.states)[-2]
    with open_parallel(place.url) as store:
        for commit in (head, older):
            for one in _FILTERS:
                wanted = {key for key, row in place.states[commit].items() if fulfils(row, one)}
                found = read(store, place.table, filters=[one], as_of=commit).to_pylist()
                assert {row["id"] for row in found if fulfils(row, one)} == wanted, one


def test_big_tables_are_cut_and_filters_leave_splits_out(place: Place, bytes_read: Callable[[Any], int]) -> None:
    count = 150_000 if place.kind == "graph" else 20_000
    rows = pa.concat_tables([arrow([thing(n) for n in range(1000)])] * (count // 1000))
    rows = rows.set_column(0, "id", pa.array([f"t{n:06}" for n in range(count)]))
    fragment = parallel.stage(place.url, place.table, rows.to_batches(), job="j")
    assert fragment is not None
    with open_parallel(place.url, write=True) as store:
        assert store.publish([fragment]).written == {place.table: count}
    with open_parallel(place.url) as store:
        whole = store.splits(place.table, store.view(), ["id"], parts=4)
        sizes = [sum(batch.num_rows for batch in split.read()) for split in whole]
        assert sum(sizes) == count
        assert len(sizes) >= (2 if place.kind == "graph" else 4)
        assert max(sizes) < count * 0.6
        assert 2 <= len(store.splits(place.table, store.view())) <= parallel.PARTS
        few = store.splits(place.table, store.view(), ["id"], [Filter("id", "==", "t000077")], parts=4)
        assert sum(batch.num_rows for split in few for batch in split.read()) == 1
        everything = bytes_read(store.splits(place.table, store.view(), parts=4))
        if place.kind == "graph":
            assert bytes_read(whole) < everything / 2  # one column of nine
        else:
            assert bytes_read(few) < everything / 2  # one row, whatever else is in its page


def staged(place: Place, rows: list[dict[str, Any]], job: str = "j") -> parallel.Fragment:
    found = parallel.stage(place.url, place.table, arrow(rows).to_batches(), job=job)
    assert found is not None
    return found


def test_publishing_is_one_commit_of_what_differs(place: Place) -> None:
    place.put(*(thing(n) for n in range(100)))
    rows = [thing(n, name="new" if n % 10 == 0 else thing(n)["name"]) for n in range(50, 150)]
    fragment, head = staged(place, rows), max(place.states)
    with open_parallel(place.url, write=True) as store:
        assert plain(read(store, place.table)) == plain(place.states[head].values())
        done = store.publish([fragment], metadata={"run": "r1", "batch": 3}, expected=head)
        assert (done.commit, done.written) == (head + 1, {place.table: 5 + 50})
        assert next(store.commits()).metadata["run"] == "r1"
        assert store.publish([fragment]).commit is None
        with pytest.raises(Conflict, match="came after"):
            store.publish([fragment], expected=head)
        wanted = place.states[head] | {row["id"]: row for row in rows}
        assert plain(read(store, place.table)) == plain(wanted.values())
        assert store.head() == head + 1
    assert parallel.clean(place.url, older=0, dry_run=False).items == 1


def test_what_does_not_fit_publishes_nothing(place: Place) -> None:
    place.put(thing(1))
    good, again = staged(place, [thing(2), thing(3)]), staged(place, [thing(3)])
    bad = parallel.stage(place.url, place.table, arrow([thing(4) | {"name": None}]).to_batches(), job="j")
    extra = parallel.stage(place.url, place.table,
                           arrow([thing(5)]).append_column("colour", pa.array(["red"])).to_batches(), job="j")
    assert bad is not None
    assert extra is not None
    with open_parallel(place.url, write=True) as store:
        for fragments, told in (([good, again], "t000003"), ([good, bad], "name"), ([good, extra], "colour")):
            with pytest.raises(OntolakeError, match=told):
                store.publish(fragments)
        assert len(read(store, place.table)) == 1
        assert store.publish([good]).written == {place.table: 2}


def test_what_is_not_there_is_named(place: Place) -> None:
    place.put(thing(1))
    with open_parallel(place.url) as store:
        with pytest.raises(NotFound, match="no table 'other'"):
            store.schema("other")
        with pytest.raises(NotFound, match="no column 'colour'"):
            store.splits(place.table, store.view(), ["colour"])
        for view in ({"as_of": 99}, {"mode": "changes", "since": 99}):
            with pytest.raises(NotFound, match="99"):
                store.view(**view)  # type: ignore[arg-type]
        with pytest.raises(Invalid, match="mode"):
            store.view(mode="newest")  # type: ignore[arg-type]
        with pytest.raises(OntolakeError, match="nosuch"):
            store.view(as_of="nosuch")


def test_edges_branches_and_names_of_commits_of_a_graph(tmp_path: Path) -> None:
    place = Place("graph", tmp_path)
    place.put(thing(1), thing(2))
    with Graph.open(place.url) as graph:
        graph.branches.create("try")
        first = graph.snapshot().commit
    edge = parallel.stage(place.url, "edge/Near", [pa.record_batch({
        "left_key": ["t000001"], "right_key": ["t000002"], "metres": [5]})], job="j")  # fmt: skip
    lost = parallel.stage(place.url, "edge/Near", [pa.record_batch({
        "left_key": ["t000001"], "right_key": ["t000009"], "metres": [5]})], job="j")  # fmt: skip
    assert edge is not None
    assert lost is not None
    with open_parallel(place.url, branch="try", write=True) as store:
        with pytest.raises(OntolakeError, match="t000009"):
            store.publish([lost])
        assert store.publish([edge, staged(place, [thing(3)])]).commit == 2
        assert len(read(store, "edge/Near")) == 1
        assert [row["id"] for row in read(store, place.table, mode="changes", since=1).to_pylist()] == ["t000003"]
        assert len(read(store, "edge/Near", as_of=first)) == 0
    with open_parallel(place.url) as store:
        assert store.view(as_of=first) == View(1)
        assert len(read(store, "edge/Near")) == 0


def test_ranges_in_databases_of_their_own_come_first(tmp_path: Path) -> None:
    place = Place("sql", tmp_path)
    place.put(*(thing(n) for n in range(200)))
    with open_database(place.url) as database:
        table = database.catalog().by_full_name[place.table]
        from ontolake.sql.keyspace import keys

        middle = table.prefix + keys.element(table.key_types[0].kind, "t000150")
        database.ranges.split(middle)
        database.ranges.move(middle, f"{tmp_path}/other.db")
    place.put(*(thing(n, name="later") for n in range(140, 160)))
    with open_parallel(place.url) as store:
        sizes = sorted(sum(batch.num_rows for batch in split.read())
                       for split in store.splits(place.table, store.view(), parts=2))  # fmt: skip
        assert sizes == [50, 150]
        for commit, state in place.states.items():
            assert plain(read(store, place.table, as_of=commit)) == plain(state.values())


@pytest.mark.parametrize("kind", [*TABLES])
def test_random_histories_are_what_the_store_was(kind: str, tmp_path: Path) -> None:
    place, draw = Place(kind, tmp_path), random.Random(11)
    for _ in range(6):
        some = draw.sample(range(200), draw.randrange(1, 60))
        there = sorted(place.states[max(place.states)])
        gone = tuple(draw.sample(there, min(len(there), 5)))
        place.put(*(row for n in some if (row := thing(n, name=str(draw.random())))["id"] not in gone), gone=gone)
    with open_parallel(place.url) as store:
        for commit, state in place.states.items():
            found = read(store, place.table, as_of=commit, parts=draw.randrange(1, 9))
            assert plain(found) == plain(state.values())
