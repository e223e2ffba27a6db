"""Sessions on a branch of a typed store: events, schedules, histories, changes, imports and exports are of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from marking import slow_after

from ontolake.errors import Contended, Invalid, NotFound, OntolakeError
from ontolake.history import (
    BranchError,
    BranchExistsError,
    RevertError,
    UnknownBranchError,
)
from ontolake.model import Entity, Field
from ontolake.model.types import type_info
from ontolake.ontology import (
    Event,
    HandlerContext,
    Schedule,
    Session,
    StorageBackendError,
    TypeDroppedError,
    TypedStore,
    on_event,
)
from ontolake.ontology.moving.conversion import convert
from ontolake.ontology.moving.exports import lines, write_parquet
from ontolake.ontology.moving.import_lines import Lines
from ontolake.ontology.moving.imports import ImportConflictError, apply_import
from ontolake.storage import open_storage


class Stock(Entity):
    id: Field[str] = Field(primary_key=True)
    count: Field[int]


class Counted(Event):
    item: str = "x"


def opened(url: str, branch: str = "main", **options: Any) -> Session:
    return Session(url, entity_types=[Stock], branch=branch, engine_version="v3", **options)


def stock(url: str, branch: str) -> dict[str, int]:
    with opened(url, branch) as session:
        return {one.id: one.count for one in session.query().entities(Stock).collect()}


@pytest.fixture(params=slow_after(1, ["store.db", "lake"]))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Commit 1 on main has x, commit 2 on `try` another x, commit 3 on main y, in a native file or on objects."""
    return filled(str(tmp_path / "store.db") if request.param == "store.db" else f"file://{tmp_path}/lake")


def filled(native: str) -> str:
    for branch, item in (("main", Stock(id="x", count=1)), ("try", Stock(id="x", count=2)),
                         ("main", Stock(id="y", count=3))):  # fmt: skip
        with opened(native, branch) as session:
            session.ensure(item)
            session.commit()
            if branch == "main" and item.id == "x":
                session.branches.create("try")
    return native


def test_handlers_read_and_write_the_branch_of_their_session(url: str) -> None:
    seen: list[Any] = []

    @on_event(Counted)
    def handle(context: HandlerContext[Counted]) -> None:
        seen.append({one.id: one.count for one in context.query().entities(Stock).collect()})
        if context.attempt == 1 and len(seen) == 1:  # a commit of another branch is none of ours
            with opened(url) as other:
                other.ensure(Stock(id="z", count=9))
        context.ensure(Stock(id=context.event.item, count=10 * len(seen)))
        if context.event.item == "x":
            context.emit(Counted(item="new"))

    with opened(url, "try") as session:
        assert session.commit(event=Counted()) is None
        report = session.run([handle], until_idle=True)
        assert (report.handled, report.failed) == (2, 0)
        assert seen == [{"x": 2}, {"x": 10}]
        assert [one.id for one in session.list_commits()] == [6, 5, 2, 1]
        assert [session.get_commit(id).parents for id in (5, 6)] == [(2,), (5,)]
    assert stock(url, "try") == {"x": 10, "new": 20}
    assert stock(url, "main") == {"x": 1, "y": 3, "z": 9}


def test_schedules_fire_on_the_branch_of_their_session(url: str) -> None:
    with opened(url, "try") as session:
        @on_event(Counted)
        def handle(context: HandlerContext[Counted]) -> None:
            context.ensure(Stock(id="tick", count=1))
            session.stop()

        report = session.run([handle], schedules=[Schedule(Counted, "* * * * * *")])
        assert report.fired >= 1
    assert stock(url, "try") == {"x": 2, "tick": 1}
    assert stock(url, "main") == {"x": 1, "y": 3}


def test_histories_and_changes_are_those_of_the_branch(url: str) -> None:
    with opened(url, "try") as session:
        assert [(one.commit, one.key, one.after and one.after["count"]) for one in session.changes(0)] == [
            (1, "x", 1), (2, "x", 2)]
        assert [row["commit_id"] for batch in session.changes(0).to_batches() for row in batch.to_pylist()] == [1, 2]
        assert [(one.commit, one.key) for one in session.changes(1, branch="main")] == [(3, "y")]
        assert [one.id for one in session.commits()] == [2, 1]
        states = session.query().entities(Stock).where(Stock.id == "x").with_history().collect()
        assert [(one.count, one.meta().commit_id) for one in states] == [(1, 1), (2, 2)]
        assert [(one.commit.id, one.row and one.row["count"]) for one in session.history("entity/Stock", "x")] == [
            (2, 2), (1, 1)]
        assert {name: commit.id for name, commit in session.blame("entity/Stock", "x").items()}["count"] == 2
        assert [one.key for one in session.list_commit_changes(2)] == ["x"]


def test_exports_and_imports_are_of_the_branch(url: str, tmp_path: Path) -> None:
    with TypedStore(url, config={"branch": "try"}) as store:
        exported = [json.loads(line) for line in lines(store.repository, store.types)]
        assert [(one["key"], one["fields"]["count"], one["commit_id"]) for one in exported if one["kind"] == "entity"] \
            == [("x", 2, 2)]
        assert write_parquet(store.repository, store.types, tmp_path / "out") == 1
        assert [json.loads(line)["key"] for line in lines(store.repository, store.types, as_of=3)
                if '"entity","type"' in line] == ["x", "y"]
        given = Lines(store, repeated="bad")
        given.read("lines", [json.dumps({"kind": "entity", "type": "Stock", "key": "x", "fields": {
            "id": "x", "count": 1}}).encode()])
        with pytest.raises(ImportConflictError):
            apply_import(store.repository, "test", given.rows, "fail", {})
        commit, plan = apply_import(store.repository, "test", given.rows, "replace", {})
        assert (commit, plan.head) == (4, 2)
    assert stock(url, "try") == {"x": 1}
    assert stock(url, "main") == {"x": 1, "y": 3}


def test_nothing_is_erased_while_somebody_reads_the_past(native: str) -> None:
    url = filled(native)
    with opened(url) as session, opened(url, "try", config={"lock_timeout": 0.05}) as reader:
        def erase() -> Any:
            return reader.erase(Stock, "x", "asked for", dry_run=False)

        with session.repository.reading():
            assert session.query().entities(Stock).as_of(1).count() == 1
            with pytest.raises(Contended, match="nothing was erased"):
                erase()
            assert session.query().entities(Stock).as_of(1).count() == 1
        rows = reader.snapshot(1).rows("entity/Stock")
        next(rows)
        with pytest.raises(Contended, match="of this session"):
            erase()
        assert next(rows, None) is None
        assert {one.id for one in reader.query().entities(Stock).collect()} == {"x"}
        assert erase().items == 2
        assert session.query().entities(Stock).as_of(1).count() == 0


@pytest.mark.parametrize("place", slow_after(1, ["pages", "directory", "memory"]))
def test_elsewhere_a_reader_of_the_past_never_holds_up_an_erasure_and_never_sees_a_torn_state(
    tmp_path: Path, place: str
) -> None:  # fmt: skip
    """What it reads then is whole, with the row or without, or it is told to read again."""
    url = {"pages": f"sqlite+file://{tmp_path}/pages.db", "directory": f"file://{tmp_path}/lake",
           "memory": "memory://erased-beside-a-reader"}[place]
    told: list[str] = []
    with opened(url) as writer:
        for number in range(3):
            writer.ensure([Stock(id=f"k{key}", count=number) for key in range(300)])
            writer.commit()
        with opened(url) as reader:
            with reader.repository.reading():
                assert reader.query().entities(Stock).as_of(1).count() == 300
                assert writer.erase(Stock, "k7", "asked for", dry_run=False).items == 3
                for commit in (1, 2, 3):
                    try:
                        rows = reader.query().entities(Stock).as_of(commit).collect()
                    except (NotFound, Contended) as error:
                        told.append(str(error))
                        continue
                    assert {one.count for one in rows} == {commit - 1}
                    assert {"k7"} | {one.id for one in rows} == {f"k{key}" for key in range(300)}
            assert told
            assert all("is no longer kept" in one or "erased" in one for one in told)
            assert reader.query().entities(Stock).as_of(1).count() == 299
            assert reader.query().entities(Stock).where(Stock.id == "k7").as_of(2).first() is None


def test_nothing_is_erased_while_a_branch_of_the_pages_keeps_their_past(tmp_path: Path) -> None:
    path = tmp_path / "pages.db"
    with opened(url := f"sqlite+file://{path}") as session:
        session.ensure([Stock(id="the needle", count=1), Stock(id="x", count=2)])
        session.commit()
    with open_storage(f"file://{path}") as storage:
        aside = storage.create_branch("aside", storage.get_commit_lsn())
    with opened(url) as session:
        with pytest.raises(Contended, match="'aside' of its pages keeps their past; nothing was erased"):
            session.erase(Stock, "the needle", "asked for", dry_run=False)
        assert session.query().entities(Stock).count() == 2
    with open_storage(f"file://{path}") as storage:
        storage.delete_branch(aside)
    assert b"the needle" in path.read_bytes()
    with opened(url) as session:
        assert session.erase(Stock, "the needle", "asked for", dry_run=False).items == 1
    assert b"the needle" not in b"".join(one.read_bytes() for one in tmp_path.iterdir())


def test_what_cannot_be_changes_nothing(url: str, tmp_path: Path) -> None:
    """The cases of bad input that the suite of history does not have."""
    with opened(url) as session, opened(f"{url}.other.db") as other:
        other.ensure([Stock(id="x", count=5)])
        other.commit()
        other.branches.create("elsewhere")
        before = session.repository.highest(), [*session.branches.list()], stock(url, "main")
        with pytest.raises(UnknownBranchError, match="elsewhere"):
            session.merge("elsewhere")  # a branch of another store
        with pytest.raises(UnknownBranchError):
            opened(url, "elsewhere")
        with pytest.raises(BranchExistsError):
            session.branches.create("try")
        for name in ("", "a b", "@", "a..b", "~1", "x.lock", "-x", "ä", 7, None):
            with pytest.raises(BranchError):
                session.branches.create(name)  # type: ignore[arg-type]
        with pytest.raises(BranchError, match="into itself"):
            session.merge("main")
        with pytest.raises(NotFound):
            session.restore(99)
        with pytest.raises(RevertError, match="not in the history"):
            session.revert(2)
        session.delete(Stock, "nothing")
        assert session.commit() is None
        with opened(url, config={"readonly": True}) as handle:
            with pytest.raises(StorageBackendError, match="reading only"):
                handle.erase(Stock, "x", "asked for", dry_run=False)
            with pytest.raises(StorageBackendError, match="reading only"):
                handle.merge("try", strategy="theirs")
        assert (session.repository.highest(), [*session.branches.list()], stock(url, "main")) == before


def test_a_type_is_dropped_on_every_branch(url: str) -> None:
    with opened(url, "try") as session:
        session.repository.drop_type("entity", "Stock")
    for branch in ("main", "try"):
        with opened(url, branch) as session:
            assert session.query().entities(Stock).count() == 0
            assert session.query().entities(Stock).as_of(1).count() == 0
            session.ensure(Stock(id="x", count=9))
            with pytest.raises(TypeDroppedError):
                session.commit()
            session.discard()
            with pytest.raises(StorageBackendError, match="there is no entity type Stock"):
                session.repository.drop_type("entity", "Stock")
            assert not list(session.repository.check())


class Aside(Entity):
    id: Field[str] = Field(primary_key=True)


@pytest.mark.parametrize("dropping", ["main", "try"])
def test_a_type_that_only_one_branch_had_is_dropped_on_every_branch(url: str, tmp_path: Path, dropping: str) -> None:
    def there(branch: str, place: str = url) -> Session:
        return Session(place, entity_types=[Stock, Aside], branch=branch)

    with there("try") as session:
        session.ensure(Aside(id="a"))
        session.commit()
    with there(dropping) as session:
        session.repository.drop_type("entity", "Aside")
    with there("main") as session, there("main", copied := str(tmp_path / "copy.db")) as copy:
        convert(session.repository, copy.repository)
    for place in (url, copied):
        for branch in ("main", "try"):
            with there(branch, place) as session:
                assert session.query().entities(Aside).count() == 0
                session.ensure(Aside(id="b"))
                with pytest.raises(TypeDroppedError):
                    session.commit()
                session.discard()
                with pytest.raises(StorageBackendError, match="there is no entity type Aside"):
                    session.repository.drop_type("entity", "Aside")
                assert not list(session.repository.check())
    with there("main") as session:
        session.merge("try", strategy="theirs")
        assert session.query().entities(Aside).count() == 0


def test_types_are_restored_by_their_classes(url: str) -> None:
    with opened(url) as session:
        assert session.restore(to=1, types=[Stock]).commit is not None
        assert stock(url, "main") == {"x": 1}
        for bad in (Stock, 7, [int]):
            with pytest.raises(OntolakeError):
                session.restore(to=3, types=bad)  # type: ignore[arg-type]
        with pytest.raises(Invalid, match="instead of tables"):
            session.restore(to=3, tables=["entity/Stock"], types=[Stock])


def test_the_first_commit_on_a_branch_hides_from_main_what_it_writes(tmp_path: Path) -> None:
    url = str(tmp_path / "store.db")
    with opened(url) as session:
        session.ensure(Stock(id="x", count=1))
        session.commit()
        session.branches.create("try")
        items = session.query().entities(Stock)

        def on_main() -> list[Any]:
            return [items.count(), items.where(Stock.count > 1).count(), items.to_arrow().num_rows,
                    [one.count for one in items.collect()]]

        assert on_main() == [1, 0, 1, [1]]
        with opened(url, "try") as other:
            other.ensure([Stock(id="x", count=2), Stock(id="y", count=3)])
        assert on_main() == [1, 0, 1, [1]]


def test_main_may_be_read_while_its_own_connection_writes_to_a_branch_for_the_first_time(tmp_path: Path) -> None:
    with opened(str(tmp_path / "store.db")) as session:
        session.ensure(Stock(id="x", count=1))
        session.commit()
        session.branches.create("try")
        items = session.query().entities(Stock)
        assert items.count() == 1
        session.ensure(Stock(id="y", count=2))
        session.commit()
        main: Any = session.repository
        target = main.on(main.branch_named("try").id)
        with target.transaction("writer") as transaction:
            transaction.reconcile(type_info(Stock), [("z", 3)])
            assert [one.id for one in items.collect()] == ["x", "y"]
            transaction.finish({})
        assert [one.id for one in items.collect()] == ["x", "y"]
