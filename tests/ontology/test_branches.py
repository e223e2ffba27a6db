"""Branches, tags and merges of typed stores, engine v3: what the suite of history does not ask, as it has no types."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from marking import slow_after

from ontolake.errors import Invalid, NotFound
from ontolake.history import (
    BranchError,
    ConflictKind,
    MergeConflictError,
    ProtectedBranchError,
    Resolution,
    UnknownBranchError,
    Value,
)
from ontolake.history.errors import UnknownTableError
from ontolake.model import Entity, Field
from ontolake.ontology import (
    LayoutLacksError,
    LiveRelationsError,
    QueryError,
    Session,
    StorageBackendError,
    UnknownCommitError,
    UnknownKeyError,
)

from .conftest import fresh_url
from .shop import ENTITIES, RELATIONS, Customer, Order, Placed

AT = datetime(2026, 11, 17, tzinfo=UTC)


def opened(url: str, **options: Any) -> Session:
    return Session(url, entity_types=ENTITIES, relation_types=RELATIONS, engine_version="v3", **options)


@pytest.fixture(params=slow_after(2, ["native", "objects in memory", "page file", "pages in memory"]))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(str(request.param), tmp_path)


@pytest.fixture
def shop(url: str) -> Iterator[Session]:
    """Commit 1 on main: customers a and b, order 1, which a placed."""
    session = opened(url)
    session.ensure([Customer(id="a", name="A"), Customer(id="b", name="B"), Order(id=1, total=Decimal("1.10"), at=AT),
                    Placed(left_key="a", right_key=1)])  # fmt: skip
    assert session.commit() == 1
    yield session
    session.close()


def names(session: Session, at: Any = None) -> dict[str, str]:
    query = session.query().entities(Customer)
    return {one.id: one.name for one in (query if at is None else query.as_of(at)).collect()}


def change(url: str, branch: str, *objects: Any, gone: Any = ()) -> int:
    """One commit on a branch, by a session of its own."""
    session = opened(url, branch=branch)
    try:
        session.ensure(objects)
        session.delete(list(gone))
        commit = session.commit()
        assert commit is not None
        return commit
    finally:
        session.close()


def test_a_session_works_on_its_branch_alone(shop: Session, url: str) -> None:
    shop.branches.create("try")
    with opened(url, branch="try") as work:
        assert work.branch == "try"
        work.ensure([Customer(id="a", name="Ada"), Customer(id="c", name="C")])
        assert work.commit() == 2
        work.delete(Customer, "b")
        assert work.commit() == 3
        assert names(work) == {"a": "Ada", "c": "C"}
        assert work.query().entities(Customer).where(Customer.id == "b").first() is None
        assert work.get(Customer, "a") == Customer(id="a", name="Ada")
        assert work.query().entities(Customer).via(Placed).collect()[0].entities[0].name == "Ada"
        assert [one.id for one in work.list_commits()] == [3, 2, 1]
        assert work.query().entities(Customer).with_history().count() == 5
    assert names(shop) == {"a": "A", "b": "B"}
    assert shop.query().entities(Customer).with_history().count() == 2
    shop.ensure(Customer(id="a", name="Anna"))
    assert shop.commit() == 4, "ids are of the store, not of the branch"
    assert [one.id for one in shop.list_commits()] == [4, 1]
    assert [one.parents for one in shop.list_commits()] == [(1,), ()]
    assert [one.before and one.before["name"] for one in shop.list_commit_changes(4)] == ["A"]
    assert [(one.key, one.kind.value) for one in shop.list_commit_changes(3)] == [("b", "delete")]
    assert [one.commit for one in shop.changes(1)] == [4]
    assert [one.commit for one in shop.changes(1, branch="try")] == [2, 2, 3]
    assert sum(batch.num_rows for batch in shop.changes(1, branch="try").to_batches()) == 3


def test_a_commit_is_read_where_it_was_made(shop: Session, url: str) -> None:
    shop.branches.create("try")
    there = change(url, "try", Customer(id="a", name="Ada"))
    here = change(url, "main", Customer(id="a", name="Anna"))
    assert names(shop, there)["a"] == "Ada"
    found = shop.query().entities(Customer).where(Customer.id == "a").as_of(there).first()
    assert found == Customer(id="a", name="Ada")
    assert shop.query().entities(Customer).as_of(there).count() == 2
    with opened(url, branch="try") as work:
        assert names(work, here)["a"] == "Anna"
        assert names(work, 1) == {"a": "A", "b": "B"}
    with pytest.raises(UnknownCommitError):
        names(shop, here + 1)
    with pytest.raises(NotFound):
        shop.snapshot(there, branch="main")


def test_tags_times_and_other_references_say_when(shop: Session, url: str) -> None:
    shop.branches.create("try")
    shop.tags.create("2026-q3")
    change(url, "try", Customer(id="a", name="Ada"))
    change(url, "main", Customer(id="a", name="Anna"))
    assert names(shop, "2026-q3")["a"] == "A"
    assert names(shop, "try")["a"] == "Ada"
    assert names(shop, "main~1")["a"] == "A"
    assert names(shop, datetime.now(UTC) + timedelta(seconds=1))["a"] == "Anna"
    assert names(shop, shop.get_commit(1).time)["a"] == "A"
    with pytest.raises(UnknownBranchError):
        names(shop, "nothing")
    with pytest.raises(NotFound, match="so old"):
        names(shop, datetime(2000, 1, 1, tzinfo=UTC))


def test_merged_rows_keep_every_kind_of_value(shop: Session, url: str) -> None:
    shop.branches.create("try")
    odd = Customer(id="a", name="Ä\0'", score=float("nan"), born=AT.date(), tags=["x"], extra={"deep": [1, None]})
    order = Order(id=1, total=Decimal("2.50"), at=AT.replace(tzinfo=None), key=b"\x00\xff", commit_id=7)
    change(url, "try", odd, order, Customer(id="z", name="Z", score=-0.0), Placed(left_key="z", right_key=1))
    change(url, "main", Customer(id="b", name="Bo"))
    result = shop.merge("try", message="in", author="ada")
    assert result.commit is not None
    assert result.commit.parents == (3, 2)
    assert (result.commit.message, result.commit.author) == ("in", "ada")
    found = shop.get(Customer, "a")
    assert found is not None
    assert found.score != found.score
    assert (found.name, found.born, found.tags, found.extra) == (odd.name, odd.born, odd.tags, odd.extra)
    assert shop.get(Order, 1) == order
    zero = shop.get(Customer, "z")
    assert zero is not None
    assert str(zero.score) == "-0.0"
    assert shop.get(Placed, ("z", 1)) is not None
    assert result.tables["entity/Customer"] == (1, 1, 0)
    assert names(shop)["b"] == "Bo"
    assert not list(shop.repository.check())


def test_fields_of_one_row_merge_and_the_same_field_conflicts(shop: Session, url: str) -> None:
    shop.branches.create("try")
    change(url, "try", Customer(id="a", name="A", active=False), Customer(id="b", name="Theirs"))
    change(url, "main", Customer(id="a", name="Anna"), Customer(id="b", name="Ours"))
    with pytest.raises(MergeConflictError) as refused:
        shop.merge("try")
    (conflict,) = refused.value.conflicts
    assert (conflict.table, conflict.key, conflict.field, conflict.kind) == (
        "entity/Customer", "b", "name", ConflictKind.DIVERGENT_UPDATE)  # fmt: skip
    assert (conflict.base, conflict.ours, conflict.theirs) == ("B", "Ours", "Theirs")
    assert shop.merge("try", dry_run=True).conflicts == (conflict,) or list(
        shop.merge("try", dry_run=True).conflicts) == [conflict]  # fmt: skip
    assert names(shop)["a"] == "Anna"
    shop.merge("try", resolutions=[Resolution("entity/Customer", "b", "name", Value("Both"))])
    found = shop.get(Customer, "a")
    assert found is not None
    assert (found.name, found.active, names(shop)["b"]) == ("Anna", False, "Both")


@pytest.mark.parametrize(("side", "customers", "relations"), [("ours", {"a", "b"}, 2), ("theirs", {"a"}, 1)])
def test_a_relation_of_the_target_to_what_the_source_deleted(
    shop: Session, url: str, side: Any, customers: set[str], relations: int
) -> None:  # fmt: skip
    shop.branches.create("try")
    change(url, "try", gone=[Customer(id="b", name="B")])
    change(url, "main", Placed(left_key="b", right_key=1))
    with pytest.raises(MergeConflictError) as refused:
        shop.merge("try")
    (conflict,) = refused.value.conflicts
    assert (conflict.kind, conflict.key) == (ConflictKind.ORPHAN, "b")
    assert conflict.rows == (("relation/Placed", ("b", 1)),)
    shop.merge("try", strategy=side)
    assert {*names(shop)} == customers
    assert shop.query().relations(Placed).count() == relations
    assert not list(shop.repository.check())


@pytest.mark.parametrize(("side", "customers", "relations"), [("ours", {"a"}, 1), ("theirs", {"a", "b"}, 2)])
def test_a_relation_of_the_source_to_what_the_target_deleted(
    shop: Session, url: str, side: Any, customers: set[str], relations: int
) -> None:  # fmt: skip
    shop.branches.create("try")
    change(url, "try", Placed(left_key="b", right_key=1))
    change(url, "main", gone=[Customer(id="b", name="B")])
    with pytest.raises(MergeConflictError) as refused:
        shop.merge("try")
    assert [one.kind for one in refused.value.conflicts] == [ConflictKind.ORPHAN]
    shop.merge("try", strategy=side)
    assert {*names(shop)} == customers
    assert shop.query().relations(Placed).count() == relations


def test_a_type_may_be_new_on_a_branch(native: str) -> None:
    class Note(Entity):
        id: Field[str] = Field(primary_key=True)
        text: Field[str]

    with opened(native) as shop:
        shop.ensure(Customer(id="a", name="A"))
        shop.commit()
        shop.branches.create("try")
    with Session(native, entity_types=[Note], branch="try") as work:
        work.ensure(Note(id="n", text="new"))
    with Session(native, entity_types=[Note]) as session:
        assert session.query().entities(Note).count() == 0
        assert session.merge("try").status == "fast_forward"
        assert session.get(Note, "n") == Note(id="n", text="new")
        assert not list(session.repository.check())
        session.ensure(Note(id="m", text="main"))


def test_restore_some_types(shop: Session) -> None:
    shop.ensure([Customer(id="a", name="Anna"), Order(id=1, total=Decimal(9), at=AT)])
    shop.commit()
    result = shop.restore(1, tables=["entity/Customer"])
    assert dict(result.tables) == {"entity/Customer": (0, 1, 0)}
    assert names(shop)["a"] == "A"
    found = shop.get(Order, 1)
    assert found is not None
    assert found.total == 9
    with pytest.raises(NotFound, match="no table 'entity/Nothing'"):
        shop.restore(1, tables=["entity/Nothing"])


def test_differences_between_branches(shop: Session, url: str) -> None:
    shop.branches.create("try")
    change(url, "try", Customer(id="a", name="Ada"), Customer(id="c", name="C"))
    change(url, "main", Customer(id="b", name="Bo"))
    found = {one.key: (one.kind.value, one.before and one.before["name"], one.after and one.after["name"])
             for one in shop.diff("main", "try")}  # fmt: skip
    assert found == {"a": ("update", "A", "Ada"), "b": ("update", "Bo", "B"), "c": ("insert", None, "C")}
    assert not list(shop.diff("main", "main@3"))


def test_erasing_an_entity_takes_its_relations_along(shop: Session, url: str) -> None:
    shop.branches.create("try")
    change(url, "try", Customer(id="a", name="needle-name"))
    with pytest.raises(LiveRelationsError, match=r"Placed \(.*erase\(…, cascade"):
        shop.erase(Customer, "a", reason="asked", dry_run=False)
    with pytest.raises(Invalid, match="names the row"):
        shop.erase(Customer, "needle", reason="the needle asked")
    assert shop.erase(Customer, "a", reason="asked", cascade=True).items == 3
    assert names(shop)["a"] == "A"
    shop.erase("entity/Customer", "a", reason="asked", author="ada", cascade=True, dry_run=False)
    assert names(shop) == names(shop, 1) == names(shop, "try") == {"b": "B"}
    assert shop.query().relations(Placed).as_of(1).count() == 0
    assert [one.id for one in shop.list_commits()] == [1]
    with pytest.raises(UnknownKeyError):
        shop.erase(Customer, "a", reason="again", dry_run=False)
    if shop.repository.backend == "sqlite":
        (audit,) = shop.repository.db.execute(  # type: ignore[attr-defined]
            "SELECT author, reason, type_name, rows FROM erasures")
        assert audit == ("ada", "asked", "Customer", 3)
    assert not list(shop.repository.check())


def test_a_deleted_branch_is_collected_when_nothing_leads_to_it(shop: Session, url: str) -> None:
    if shop.repository.backend != "sqlite":
        pytest.skip("objects stay for a while, and have a test of their own")
    for name in ("merged", "tagged", "parent", "alone"):
        shop.branches.create(name)
        change(url, name, Customer(id="a", name=name))
    commit = shop.branches.list()[-1].head
    shop.branches.create("child", parent="parent")
    shop.tags.create("kept", "tagged")
    shop.merge("merged", strategy="theirs")
    for name in ("merged", "tagged", "parent", "alone"):
        shop.branches.delete(name)
    assert names(shop, commit)["a"] == "alone"
    assert shop.repository.gc().items == 1
    assert shop.repository.gc(dry_run=False).items == 1
    assert shop.repository.gc(dry_run=False).items == 0
    with pytest.raises(UnknownCommitError):
        names(shop, commit)
    assert names(shop, "kept")["a"] == "tagged"
    assert names(shop, "child")["a"] == "parent"
    assert names(shop)["a"] == "merged"
    assert not list(shop.repository.check())


def test_bad_input_changes_nothing(shop: Session, url: str) -> None:
    shop.branches.create("try")
    with pytest.raises(UnknownBranchError):
        opened(url, branch="nothing")
    with pytest.raises(BranchError, match="into itself"):
        shop.merge("try", into="try")
    with pytest.raises(BranchError, match="session is on"), opened(url, branch="try") as work:
        work.branches.delete("try")
    shop.branches.protect("try")
    with opened(url, branch="try") as work:
        work.ensure(Customer(id="a", name="Ada"))
        with pytest.raises(ProtectedBranchError):
            work.commit()
        work.discard()
    with opened(url, config={"readonly": True}) as reader:
        assert reader.merge("main", into="try", dry_run=True).status == "up_to_date"
        for refused in (lambda: reader.branches.create("other"), lambda: reader.tags.create("other"),
                        lambda: reader.branches.delete("try"),
                        lambda: reader.erase(Customer, "a", reason="asked", dry_run=False)):  # fmt: skip
            with pytest.raises(StorageBackendError):
                refused()
    assert [one.name for one in shop.branches.list()] == ["main", "try"]


def test_a_store_without_commits_has_nothing_to_branch(url: str) -> None:
    with opened(url) as session:
        with pytest.raises(BranchError, match="first commit"):
            session.branches.create("try")
        with pytest.raises(Invalid):
            session.tags.create("v1")
        assert names(session, "main") == {}


@pytest.mark.parametrize("older", ["v1", "v2"])
def test_older_engines_name_the_way_to_branches(native: str, older: str) -> None:
    session = Session(native, entity_types=ENTITIES, relation_types=RELATIONS, engine_version=older)
    session.ensure(Customer(id="a", name="A"))
    session.commit()
    assert not hasattr(session, "branches")
    for refused in (lambda: session.branches, lambda: session.tags, lambda: session.merge("a"),
                    lambda: session.revert(1), lambda: session.restore(1), lambda: session.cherry_pick(1),
                    lambda: session.erase(Customer, "a", reason="asked"),
                    lambda: list(session.history("entity/Customer", "a")),
                    lambda: session.diff("main", "try")):  # fmt: skip
        with pytest.raises(LayoutLacksError, match="onto convert"):
            refused()
    for at in ("2026-q3", AT):
        with pytest.raises(QueryError, match="onto convert"):
            session.query().entities(Customer).as_of(at)
    session.close()
    with pytest.raises(LayoutLacksError, match="onto convert"):
        Session(native, entity_types=ENTITIES, relation_types=RELATIONS, branch="try")


def test_making_a_branch_writes_no_rows(native: str) -> None:
    shop = opened(native)
    shop.ensure([Customer(id=f"n{number}", name="N") for number in range(5000)])
    shop.commit()
    db = shop.repository.db  # type: ignore[attr-defined]
    before = db.total_changes()
    shop.branches.create("try")
    assert db.total_changes() - before == 1
    shop.close()


def test_a_merge_costs_what_changed_and_not_what_is_stored(tmp_path: Path) -> None:
    steps: dict[int, int] = {}
    for size in (500, 5000):
        url = str(tmp_path / f"{size}.db")
        session = opened(url)
        session.ensure([Customer(id=f"n{number:06d}", name="N") for number in range(size)])
        session.commit()
        session.branches.create("try")
        change(url, "try", *(Customer(id=f"n{number:06d}", name="T") for number in range(50)))
        change(url, "main", Customer(id="n000100", name="M"))
        db = session.repository.db  # type: ignore[attr-defined]
        counted = [0]

        def step(counted: list[int] = counted) -> bool:
            counted[0] += 1
            return False

        db.set_progress_handler(step, 10)
        assert session.merge("try").tables["entity/Customer"] == (0, 50, 0)
        db.set_progress_handler(None)
        steps[size] = counted[0]
        session.close()
    assert steps[5000] < 1.3 * steps[500], steps


def test_statements_from_before_the_first_branch_do_not_show_its_rows(shop: Session, url: str) -> None:
    def forms() -> tuple[Any, ...]:
        query = shop.query().entities(Customer)
        return (names(shop), query.where(Customer.id == "a").first(), query.where(Customer.id == "new").first(),
                query.with_history().count(), query.as_of(1).count(), query.via(Placed).count(),
                query.group_by(Customer.name).agg())  # fmt: skip

    change(url, "main", Customer(id="b", name="Bo"))
    assert names(shop)["b"] == "Bo", "what others commit has been looked at"
    before = forms()
    other = opened(url)
    other.branches.create("try")
    other.close()
    change(url, "try", Customer(id="a", name="Ada"), Customer(id="new", name="N"))
    assert forms() == before
    shop.ensure(Customer(id="a", name="A"))
    assert shop.commit() is None, "the latest row is that of main"


def test_branches_that_lie_between_each_other_see_only_their_own_commits(url: str, shop: Session) -> None:
    """Commits: 1 main, 2 on `old` (from 1), 3 main, 4 on `late` (from 3), 5 on `old`, 6 on `deep` (from 4)."""
    shop.branches.create("old")

    def write(branch: str, name: str) -> None:
        with opened(url, branch=branch) as session:
            session.ensure([Customer(id="b", name=name), Customer(id=name, name=name)])

    write("old", "two")
    write("main", "three")
    shop.branches.create("late")
    write("late", "four")
    write("old", "five")
    shop.branches.create("deep", parent="late")
    write("deep", "six")
    seen = {"main": ["three"], "old": ["two", "five"], "late": ["three", "four"], "deep": ["three", "four", "six"]}
    commits = {1: [], 2: ["two"], 3: ["three"], 4: ["three", "four"], 5: ["two", "five"], 6: ["three", "four", "six"]}
    for branch, written in seen.items():
        with opened(url, branch=branch) as session:
            assert names(session) == {"a": "A", "b": written[-1], **{name: name for name in written}}
            for commit, known in commits.items():
                assert names(session, commit) == {"a": "A", "b": ["B", *known][-1], **{name: name for name in known}}


@pytest.mark.parametrize("name", [Customer, "Customer", "entity/Customer"])
def test_a_strategy_by_type_takes_the_class_its_name_and_its_table(shop: Session, url: str, name: Any) -> None:
    shop.branches.create("try")
    with opened(url, branch="try") as work:
        work.ensure(Customer(id="a", name="theirs"))
    shop.ensure(Customer(id="a", name="ours"))
    shop.commit()
    shop.merge("try", strategy={name: "theirs"})
    assert names(shop) == {"a": "theirs", "b": "B"}


def test_a_strategy_for_a_type_that_is_not_there_is_refused_and_nothing_is_merged(shop: Session, url: str) -> None:
    shop.branches.create("try")
    with opened(url, branch="try") as work:
        work.ensure(Customer(id="a", name="theirs"))
    for name in ("Custommer", "entity/Custommer", "relation/Customer"):
        for verb in (shop.merge, shop.cherry_pick):
            with pytest.raises(UnknownTableError, match="entity/Customer"):
                verb("try", strategy={name: "theirs"})
    assert names(shop) == {"a": "A", "b": "B"}
    assert [commit.id for commit in shop.list_commits()] == [1]
