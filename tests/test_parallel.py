"""The seam for parallel readers and writers: splits read anywhere are what the store says, staging shows nothing."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from marking import slow_after

from ontolake import parallel
from ontolake.documents import Delete, Set, open_space
from ontolake.errors import Conflict, Invalid, NotFound
from ontolake.model import Entity, Field, Relation
from ontolake.model.errors import SchemaValidationError
from ontolake.ontology import Session
from ontolake.ontology.sizes import DEFAULT
from ontolake.parallel import Filter, Parallel


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    size: Field[int | None] = Field(default=None)
    price: Field[Decimal] = Field(default=Decimal("1.00"), max_digits=10, decimal_places=2)
    day: Field[date] = Field(default=date(2024, 1, 1))
    at: Field[datetime] = Field(default=datetime(2024, 1, 1, tzinfo=UTC))
    weight: Field[float] = Field(default=0.5)
    good: Field[bool] = Field(default=True)
    raw: Field[bytes] = Field(default=b"\0")
    tags: Field[list[str]] = Field(default_factory=list)


class Near(Relation[Thing, Thing]):
    metres: Field[int]


TYPES: dict[str, Any] = {"entity_types": [Thing], "relation_types": [Near]}


@pytest.fixture(params=slow_after(2, ["sqlite-v2", "objects-v2", "sqlite-v1", "objects-v1", "pages"]))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str | None]:
    kind, _, version = request.param.partition("-")
    url = {"sqlite": f"{tmp_path}/a b.db", "pages": f"file://{tmp_path}/pages.db", "objects": f"file://{tmp_path}/lake"}
    return url[kind], version or None


def open_parallel(url: str, **more: Any) -> Parallel:
    """With the classes where there are such, so that decimals are what they are declared as."""
    types = [] if "orders" in url else [Thing, Near]
    return parallel.open_parallel(url, **{"types": types} | more)


def thing(number: int, **more: Any) -> Thing:
    return Thing(**{"id": f"t{number:05}", "name": f"name {number % 7}", "size": number % 50 if number % 3 else None,
                    "price": Decimal(number) / 4, "day": date(2024, 1 + number % 12, 1), "tags": [str(number)],
                    "weight": float("nan") if number % 11 == 0 else number / 3} | more)


def fill(place: tuple[str, str | None], rows: int = 300) -> str:
    url, version = place
    with Session(url, engine_version=version, **TYPES) as session:
        session.ensure(thing(n) for n in range(rows))
        session.commit()
        session.ensure(thing(n, name="changed") for n in range(0, rows, 10))
        session.ensure(Near(left_key=f"t{n:05}", right_key=f"t{n + 1:05}", metres=n) for n in range(rows - 1))
        session.commit()
        session.ensure(thing(n, size=-1) for n in range(rows - 5, rows + 20))
    return url


def read(
    store: Any, table: str, columns: Any = None, filters: Any = (), parts: int | None = 4, **view: Any
) -> pa.Table:  # fmt: skip
    splits = store.splits(table, store.view(**view), columns, filters, parts=parts)
    batches = [batch for split in splits for batch in pickle.loads(pickle.dumps(split)).read()]
    return pa.Table.from_batches(batches) if batches else store.schema(table, view.get("mode", "latest")).empty_table()


def rows(table: pa.Table) -> list[str]:
    return sorted(repr(row) for row in table.to_pylist())


def same(one: pa.Table, two: pa.Table) -> None:
    assert one.column_names == two.column_names
    assert [field.type for field in one.schema] == [field.type for field in two.schema]
    assert rows(one) == rows(two)


def test_splits_are_what_the_store_says(place: tuple[str, str | None]) -> None:
    url = fill(place)
    with Session(url, **TYPES) as session, open_parallel(url) as store:
        assert store.tables() == ["entity/Thing", "relation/Near"]
        for commit in (None, 1, 2, 3):
            query = session.query().entities(Thing)
            asked = query if commit is None else query.as_of(commit)
            same(read(store, "entity/Thing", as_of=commit), asked.to_arrow())
        same(read(store, "entity/Thing", mode="history"), session.query().entities(Thing).with_history().to_arrow())
        same(read(store, "relation/Near"), session.query().relations(Near).to_arrow())
        assert len(store.splits("entity/Thing", store.view())) == 1, "more are not worth it"
        assert read(store, "entity/Thing", ["size", "id"]).column_names == ["size", "id"]


def test_changes_say_what_became_of_rows(place: tuple[str, str | None]) -> None:
    url = fill(place)
    with open_parallel(url) as store:
        found = read(store, "entity/Thing", mode="changes", since=1).to_pylist()
        kinds = {(row["commit_id"], row["id"]): row["change"] for row in found}
        assert len(kinds) == len(found) == 30 + 25
        assert kinds[2, "t00010"] == "update"
        assert kinds[3, "t00299"] == "update"
        assert kinds[3, "t00300"] == "insert"
        everything = read(store, "entity/Thing", mode="changes").to_pylist()
        assert sum(row["change"] == "insert" for row in everything) == 320


def test_a_pinned_view_does_not_see_what_comes_later(place: tuple[str, str | None]) -> None:
    url = fill(place, 50)
    with open_parallel(url) as store:
        before = read(store, "entity/Thing")
        splits = store.splits("entity/Thing", store.view())
        with Session(url, **TYPES) as session:
            session.ensure(thing(n, name="later") for n in range(100))
        found = pa.Table.from_batches([batch for split in splits for batch in split.read()])
        same(found, before)


def test_a_type_that_is_migrated_meanwhile_is_refused(tmp_path: Path) -> None:
    url = fill((f"{tmp_path}/shop.db", None), 20)
    with open_parallel(url) as store:
        splits = store.splits("entity/Thing", store.view())

    class Newer(Entity):
        id: Field[str] = Field(primary_key=True)
        name: Field[str]

    Newer.__name__ = "Thing"
    with Session(url, entity_types=[Newer]) as session:
        upgraders = {("Thing", 1): lambda fields: {"id": fields["id"], "name": fields["name"]}}
        preview = session.migrate(upgraders=upgraders)
        session.migrate(dry_run=False, token=preview.token, upgraders=upgraders)  # type: ignore[union-attr]
    with pytest.raises(NotFound, match="migrated"):
        list(splits[0].read())


@pytest.mark.slow
def test_a_view_of_before_a_migration_has_the_schema_of_its_time(place: tuple[str, str | None], tmp_path: Path) -> None:
    url = fill(place)
    with open_parallel(url) as store:
        before = [read(store, "entity/Thing", as_of=commit) for commit in (1, 2)]
        one = [Filter("size", ">", 40)]
        few = read(store, "entity/Thing", ["id", "size"], one, as_of=2)

    class Newer(Entity):
        id: Field[str] = Field(primary_key=True)
        name: Field[str]

    Newer.__name__ = "Thing"
    with Session(url, entity_types=[Newer]) as session:
        upgraders = {("Thing", 1): lambda fields: {"id": fields["id"], "name": fields["name"]}}
        session.migrate(dry_run=False, force=True, upgraders=upgraders)
    with parallel.open_parallel(url) as store:
        assert store.schema("entity/Thing").names == ["id", "name", "commit_id"]
        for commit, expected in zip((1, 2), before, strict=True):
            view = store.view(as_of=commit)
            found = read(store, "entity/Thing", as_of=commit)
            assert found.schema.names == store.schema("entity/Thing", "latest", view).names
            assert sorted(found.column_names) == sorted(expected.column_names)
            prices = [pc.cast(table.column("price"), pa.string()).to_pylist() for table in (found, expected)]
            rest = [table.drop_columns(["price"]).select(sorted({*table.column_names} - {"price"}))
                    for table in (found, expected)]
            assert (rows(rest[0]), sorted(map(Decimal, prices[0]))) == (rows(rest[1]), sorted(map(Decimal, prices[1])))
        assert rows(read(store, "entity/Thing", ["id", "size"], one, as_of=2)) == rows(few)
        with pytest.raises(NotFound, match="no column 'size'"):
            store.splits("entity/Thing", store.view(), ["size"])
        assert read(store, "entity/Thing").num_rows == 320
    from ontolake.spark import jobs

    done = jobs.export(url, f"{tmp_path}/out", as_of=1, tables=["Thing"], parts=2)
    assert done.tables["entity/Thing"].rows == 300


_FILTERS = [
    Filter("id", "==", "t00020"), Filter("id", ">=", "t00290"), Filter("id", "in", ("t00001", "t00300", "x")),
    Filter("name", "startswith", "name 1"), Filter("size", ">", 40), Filter("size", "is_null"),
    Filter("price", "<=", Decimal("3.25")), Filter("day", "==", date(2024, 5, 1)), Filter("weight", "<", 3.0),
    Filter("weight", ">", 90.0), Filter("at", "==", datetime(2024, 1, 1, tzinfo=UTC)), Filter("good", "==", True),
]  # fmt: skip


def _fulfils(row: dict[str, Any], one: Filter) -> bool:
    value = row[one.column]
    if value is None:
        return one.op == "is_null"
    if value != value:
        return one.op in (">", ">=")
    return {"==": lambda: value == one.value, "<": lambda: value < one.value, "<=": lambda: value <= one.value,
            ">": lambda: value > one.value, ">=": lambda: value >= one.value, "in": lambda: value in one.value,
            "startswith": lambda: value.startswith(one.value), "is_null": lambda: False}[one.op]()  # fmt: skip


def test_filters_never_lose_a_row(place: tuple[str, str | None]) -> None:
    url = fill(place)
    with open_parallel(url) as store:
        everything = read(store, "entity/Thing").to_pylist()
        for one in _FILTERS:
            wanted = {row["id"] for row in everything if _fulfils(row, one)}
            found = read(store, "entity/Thing", filters=[one]).to_pylist()
            assert wanted <= {row["id"] for row in found}, one
            assert {row["id"] for row in found if _fulfils(row, one)} == wanted, one


@pytest.mark.slow
def test_statistics_leave_out_what_filters_rule_out(tmp_path: Path, bytes_read: Callable[[Any], int]) -> None:
    url = f"file://{tmp_path}/lake"
    with Session(url, **TYPES) as session:
        session.ensure_arrow(Thing, pa.table({"id": [f"t{n:06}" for n in range(80_000)], "name": ["x"] * 80_000,
                                              "size": list(range(80_000))}))
    with open_parallel(url) as store:
        view = store.view()
        whole = store.splits("entity/Thing", view, parts=4)
        assert len(whole) == 4
        assert sum(split.rows for split in whole) >= 80_000
        few = store.splits("entity/Thing", view, filters=[Filter("size", ">=", 79_990)], parts=4)
        assert sum(split.rows for split in few) <= DEFAULT.group_rows
        assert bytes_read(few) < bytes_read(whole) / 3
        found = pa.Table.from_batches([batch for split in few for batch in split.read()])
        assert set(range(79_990, 80_000)) <= set(found.column("size").to_pylist())


def test_rows_are_cut_as_far_as_it_is_worth_it(tmp_path: Path) -> None:
    with Session(f"{tmp_path}/shop.db", **TYPES) as session:
        session.ensure_arrow(Thing, pa.table({"id": [f"t{n:06}" for n in range(9000)], "name": ["x"] * 9000}))
    with open_parallel(f"{tmp_path}/shop.db") as store:
        assert len(store.splits("entity/Thing", store.view())) == 2
        assert len(read(store, "entity/Thing", parts=None)) == 9000


def test_documents_by_ranges_of_ids(tmp_path: Path) -> None:
    with open_space(f"{tmp_path}/", "orders") as space:
        space.transact("s", 1, [Set(f"o{n:03}", {"value": n}) for n in range(200)])
        space.branches.create("try", at=1)
        space.transact("s", 2, [Delete("o007"), Set("o008", {"value": "x"})])
        space.transact("s", 3, [Set("o009", {"value": "branch"})], branch="try")
        wanted = dict(space.snapshot().rows())
        tried = dict(space.snapshot(branch="try").rows())
    url = f"{tmp_path}/orders.sqlite"
    import json

    with open_parallel(url) as store:
        found = read(store, "documents").to_pylist()
        assert {row["id"]: json.loads(row["document"]) for row in found} == wanted
        assert len(store.splits("documents", store.view(), parts=4)) == 4
        assert len(store.splits("documents", store.view())) == 1, "more are not worth it"
        assert len(read(store, "documents", as_of=1)) == 200
        assert [row["id"] for row in read(store, "documents", filters=[Filter("id", "==", "o010")]).to_pylist()
                ] == ["o010"]
        changes = read(store, "documents", mode="changes", since=1).to_pylist()
        assert [(row["change"], row["id"], row["document"] is None) for row in changes] == [
            ("delete", "o007", True), ("update", "o008", False)]
    with open_parallel(url, branch="try") as store:
        found = read(store, "documents").to_pylist()
        assert {row["id"]: json.loads(row["document"]) for row in found} == tried


def test_documents_are_published_as_one_commit_of_what_differs(tmp_path: Path) -> None:
    with open_space(f"{tmp_path}/", "orders") as space:
        space.transact("s", 1, [Set("a", {"value": 1}), Set("b", {"value": 2})])
    url = f"{tmp_path}/orders.sqlite"
    batch = pa.record_batch({"id": ["a", "b", "c"], "document": ['{"value":1}', None, '{"value":3}']})
    fragment = parallel.stage(url, "documents", [batch], job="j1")
    assert fragment is not None
    with open_parallel(url, write=True) as store:
        with pytest.raises(Conflict, match="came after"):
            store.publish([fragment], expected=0)
        assert store.publish([fragment], expected=1).written == {"documents": 2}
        assert store.publish([fragment]).commit is None
    with open_space(f"{tmp_path}/", "orders") as space:
        assert dict(space.snapshot().rows()) == {"a": {"value": 1}, "c": {"value": 3}}


def test_nothing_staged_is_seen_before_it_is_published(place: tuple[str, str | None]) -> None:
    url = fill(place, 20)
    table = pa.table({"id": ["t00001", "new"], "name": ["other", "new"], "size": [1, 2]})
    first = parallel.stage(url, "entity/Thing", table.to_batches(), job="j1")
    again = parallel.stage(url, "entity/Thing", table.to_batches(), job="j1")  # a task that was tried twice
    assert first is not None
    assert again is not None
    assert parallel.stage(url, "entity/Thing", [], job="j1") is None
    with open_parallel(url, write=True) as store:
        head = store.head()
        assert len(read(store, "entity/Thing", ["id"])) == 40
        done = store.publish([first], metadata={"run": "r1"}, expected=head)
        assert done.commit == head + 1
        assert done.written == {"entity/Thing": 2}
        assert store.publish([first]).commit is None  # it is all there already
        with pytest.raises(Conflict):
            store.publish([first], expected=head)
        with pytest.raises(SchemaValidationError, match="twice"):
            store.publish([first, again])
        assert len(read(store, "entity/Thing", ["id"])) == 41
    assert parallel.clean(url).items == 0
    assert parallel.clean(url, older=0).items == 2
    assert parallel.clean(url, older=0, dry_run=False).items == 2
    assert parallel.clean(url, older=0).items == 0
    with Session(url, **TYPES) as session:
        assert session.get_commit(head + 1).metadata["run"] == "r1"


def test_a_bad_row_publishes_nothing(place: tuple[str, str | None]) -> None:
    url = fill(place, 20)
    bad = parallel.stage(url, "entity/Thing", pa.table({"id": ["n1", None], "name": ["a", "b"]}).to_batches(), job="j")
    good = parallel.stage(url, "relation/Near", pa.table({"left_key": ["t00001"], "right_key": ["t00009"],
                                                          "metres": [1]}).to_batches(), job="j")
    assert bad is not None
    assert good is not None
    with open_parallel(url, write=True) as store:
        head = store.head()
        with pytest.raises(SchemaValidationError, match="missing"):
            store.publish([good, bad])
        assert store.head() == head


def test_a_store_is_started_where_types_are_given(tmp_path: Path) -> None:
    url = f"{tmp_path}/new.db"
    with pytest.raises(NotFound):
        open_parallel(url)
    fragment = parallel.stage(url, "entity/Thing", pa.table({"id": ["a"], "name": ["b"]}).to_batches(), job="j")
    assert fragment is not None
    with open_parallel(url, write=True, types=[Thing]) as store:
        assert store.publish([fragment]).commit == 1
    with open_parallel(url) as store:
        assert read(store, "entity/Thing", ["id", "name"]).to_pylist() == [{"id": "a", "name": "b"}]


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    url = fill((f"{tmp_path}/shop.db", None), 5)
    with open_parallel(url) as store:
        with pytest.raises(NotFound, match="entity/Thing"):
            store.schema("entity/Other")
        with pytest.raises(NotFound, match="no column 'colour'"):
            store.splits("entity/Thing", store.view(), ["colour"])
        with pytest.raises(NotFound):
            store.view(as_of=99)
        with pytest.raises(Invalid, match="mode"):
            store.view(mode="newest")  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="memory"):
        open_parallel("memory://x")


def test_splits_of_random_histories_are_what_the_store_says(place: tuple[str, str | None]) -> None:
    url, version = place
    draw = random.Random(7)
    with Session(url, engine_version=version, **TYPES) as session:
        for _ in range(15):
            session.ensure(thing(draw.randrange(400), name=str(draw.random())) for _ in range(draw.randrange(1, 60)))
            session.commit()
        with open_parallel(url) as store:
            for commit in draw.sample(range(1, 16), 5):
                wanted = session.query().entities(Thing).as_of(commit).to_arrow()
                same(read(store, "entity/Thing", as_of=commit, parts=draw.randrange(1, 9)), wanted)
                since = draw.randrange(0, commit)
                changed = read(store, "entity/Thing", mode="changes", as_of=commit, since=since)
                told = [(c.commit, c.key, c.kind.value) for c in session.changes(since, commit)]
                assert sorted((row["commit_id"], row["id"], row["change"]) for row in changed.to_pylist()
                              ) == sorted(told)  # fmt: skip


class Plain(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str | None] = Field(default=None)
    size: Field[int]
    at: Field[datetime]


def _plain(start: int, stop: int, size: int = 0) -> pa.Table:
    count = range(start, stop)
    return pa.table({"id": [f"p{n:07}" for n in count], "name": [None if n % 3 else f"n{n}" for n in count],
                     "size": pa.array([n + size for n in count], pa.int64()),
                     "at": pa.array([n * 1_000_003 for n in count], pa.timestamp("us", tz="UTC"))})  # fmt: skip


def _same_plain(one: pa.Table, two: pa.Table) -> None:
    """As `same`, for many rows: none of them has a NaN, so columns can be compared as they are."""
    assert one.column_names == two.column_names
    assert one.sort_by("id").columns == two.columns


def _shaped(store: Parallel, url: str, *tables: pa.Table) -> list[parallel.Fragment]:
    shape = store.shape("entity/Plain")
    return [one for number, table in enumerate(tables) for one in parallel.stage_shaped(
        url, "entity/Plain", table.to_batches(), job="j", shape=shape, part=number)]  # fmt: skip


def _files(url: str) -> list[str]:
    folder = Path(url.removeprefix("file://"))
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.parquet"))


def test_files_of_new_keys_become_part_of_the_commit_as_they_are(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/lake"
    with parallel.open_parallel(url, write=True, types=[Plain]) as store:
        shuffled = _plain(0, 20_000).take(pa.array(random.Random(3).sample(range(20_000), 20_000)))
        fragments = _shaped(store, url, shuffled, _plain(20_000, 40_000))
        assert all(one.shaped for one in fragments)
        assert _files(url) == []
        done = store.publish(fragments, metadata={"run": "r"}, expected=0)
        assert (done.commit, done.written) == (1, {"entity/Plain": 40_000})
        assert len(_files(url)) == 2  # those that were staged, under names of the commit
        _same_plain(read(store, "entity/Plain", ["id", "name", "size", "at"]), _plain(0, 40_000))
        again = _shaped(store, url, _plain(39_000, 49_000, size=1))  # keys that are there: what differs is written
        assert store.publish(again).written == {"entity/Plain": 10_000}
        assert store.publish(again).commit is None
        more = _shaped(store, url, _plain(50_000, 60_000))
        assert store.publish(more, expected=2).commit == 3
        assert any(name.endswith("-part1.parquet") and "commits/3-" in name for name in _files(url))
        assert parallel.clean(url, older=0, dry_run=False).items == 4
    with Session(url, entity_types=[Plain]) as session:
        assert session.query().entities(Plain).count() == 59_000
        assert session.query().entities(Plain).where(Plain.id == "p0000007").first().size == 7  # type: ignore[union-attr]
        session.ensure(Plain(id="p0000007", size=1, at=datetime(2024, 1, 1, tzinfo=UTC)))
        assert session.commit() == 4
        assert session.query().entities(Plain).where(Plain.id == "p0000007").first().size == 1  # type: ignore[union-attr]
        assert session.query().entities(Plain).as_of(1).count() == 40_000
        found = read(open_parallel(url, types=[Plain]), "entity/Plain", mode="changes", since=3)
        assert found.column("change").to_pylist() == ["update"]


@pytest.mark.slow
def test_long_pieces_that_are_in_order_become_files_of_their_own(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/lake"
    with parallel.open_parallel(url, write=True, types=[Plain]) as store:
        later, earlier = _plain(270_000, 540_000), _plain(0, 270_000)
        fragments = _shaped(store, url, pa.concat_tables([later, earlier]))
        assert [one.rows for one in fragments] == [270_000, 270_000]
        assert store.publish(fragments).written == {"entity/Plain": 540_000}
        assert len(_files(url)) == 2
        _same_plain(read(store, "entity/Plain", ["id", "name", "size", "at"]), _plain(0, 540_000))
        twice = _shaped(store, url, _plain(600_000, 610_000))
        with pytest.raises(SchemaValidationError, match="twice"):
            store.publish([*twice, *twice])  # a file that is named twice is not taken for one


def test_what_an_attempt_that_lost_writes_is_not_taken(tmp_path: Path) -> None:
    """Spark's own writer moves the files of a task when it is done; another attempt at it may go on in `_temporary`."""
    url = f"file://{tmp_path}/lake"
    parallel.stage(url, "entity/Plain", _plain(0, 10).to_batches(), job="j")
    (kept,) = parallel.staged(url, "entity/Plain", job="j")
    done = Path(kept.place.removeprefix("file://"), kept.key)
    other = done.parent / "_temporary" / "0" / "_temporary" / "attempt_1" / "part-00000.parquet"
    other.parent.mkdir(parents=True)
    other.write_bytes(done.read_bytes())
    assert parallel.staged(url, "entity/Plain", job="j") == [kept]
    parallel.discard(url, "j")
    assert not other.exists()


def test_staged_files_that_are_not_what_they_should_be_go_the_long_way(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/lake"
    with parallel.open_parallel(url, write=True, types=[Plain]) as store:
        early = _shaped(store, url, _plain(0, 5_000))
        twice = _shaped(store, url, _plain(5_000, 10_000), _plain(9_999, 15_000))
        with pytest.raises(SchemaValidationError, match="twice"):
            store.publish(twice)
        double = _plain(0, 5_000).set_column(0, "id", pa.array(["same"] * 5_000))
        with pytest.raises(SchemaValidationError, match="same"):
            store.publish(_shaped(store, url, double))
        empty = _plain(0, 5_000).set_column(2, "size", pa.array([None] * 5_000, pa.int64()))
        with pytest.raises(SchemaValidationError, match="missing"):
            store.publish(_shaped(store, url, empty))
        assert store.head() == 0
        overlapping = [_plain(0, 20_000).filter(pa.array([n % 2 == part for n in range(20_000)])) for part in (0, 1)]
        assert store.publish(_shaped(store, url, *overlapping)).written == {"entity/Plain": 20_000}
        assert store.publish(early).commit is None  # staged for another commit: compared instead
        _same_plain(read(store, "entity/Plain", ["id", "name", "size", "at"]), _plain(0, 20_000))
        late = _shaped(store, url, _plain(20_000, 30_000))
        with Session(url, entity_types=[Plain]) as session:
            session.ensure(Plain(id="x", size=1, at=datetime(2024, 1, 1, tzinfo=UTC)))
        with pytest.raises(Conflict):
            store.publish(late, expected=1)
        assert store.publish(late).written == {"entity/Plain": 10_000}
        ids = read(store, "entity/Plain", ["id"])
        _same_plain(ids.filter(pc.not_equal(ids.column("id"), "x")), _plain(0, 30_000).select(["id"]))


def test_many_loads_of_new_keys_leave_few_files(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/lake"
    with parallel.open_parallel(url, write=True, types=[Plain]) as store:
        for number in range(14):
            store.publish(_shaped(store, url, _plain(number * 4_096, (number + 1) * 4_096)))
        with store.repository.reading():  # type: ignore[attr-defined]
            state = store.repository.moment().state("entity", "Plain")  # type: ignore[attr-defined]
        assert len(state.runs) < 4
        _same_plain(read(store, "entity/Plain", ["id", "name", "size", "at"]), _plain(0, 14 * 4_096))
        assert len(read(store, "entity/Plain", ["id"], as_of=3)) == 3 * 4_096
