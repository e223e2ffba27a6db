"""Branches of typed stores on objects: what they cost, and what happens when several writers are at work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ontolake.errors import Invalid
from ontolake.history import ProtectedBranchError, UnknownBranchError
from ontolake.model import Entity, Field
from ontolake.objects import ObjectStore, open_store
from ontolake.objects.testing import CountingStore
from ontolake.ontology import (
    Config,
    HeadMismatchError,
    LiveRelationsError,
    Session,
    TypeDroppedError,
    UnknownKeyError,
)
from ontolake.ontology.repository.objects.upkeep import maintenance
from ontolake.ontology.sizes import Sizes
from ontolake.ontology.verification import verify

from .works import Human, Knows, opened

FEW = Sizes(small_rows=4, group_rows=2, part_rows=8)


def started(store: ObjectStore, rows: int = 3, **config: Any) -> Session:
    session = opened(store, engine="v3", **config)
    session.ensure(Human(id=f"p{number:06}", name="x", age=number) for number in range(rows))
    assert session.commit() == 1
    return session


def requests(store: CountingStore, work: Callable[[], object]) -> int:
    store.reset()
    work()
    return int(store.total)


def measured(rows: int, memory: str) -> dict[str, int]:
    """How many requests the verbs of branches make in a store of so many rows, in sessions that have read nothing."""
    store = CountingStore(open_store(f"{memory}-{rows}"))
    started(store, rows).close()
    found = {}
    with opened(store) as session:
        found["create"] = requests(store, lambda: session.branches.create("try"))
    with opened(store, branch="try") as session:
        session.ensure(Human(id="p000001", name="tried"))
        found["commit"] = requests(store, session.commit)
    with opened(store) as session:
        found["tag"] = requests(store, lambda: session.tags.create("v1", "try"))
        found["merge"] = requests(store, lambda: session.merge("try"))
        found["as_of"] = requests(store, lambda: session.query().entities(Human).as_of(2).where(
            Human.id == "p000001").collect())  # fmt: skip
    return found


def test_branches_cost_the_same_whatever_is_stored(memory: str) -> None:
    few, many = measured(10, memory), measured(3000, memory)
    assert few == many
    assert many["create"] <= 3
    assert many["tag"] <= 4
    assert many["commit"] <= 11
    assert many["merge"] <= 20


def test_a_commit_is_found_in_few_requests_however_many_there_are(memory: str) -> None:
    store = CountingStore(open_store(memory))
    session = started(store)
    session.branches.create("try")
    branches = {name: opened(store, branch=name) for name in ("main", "try")}
    for number in range(60):
        one = branches["try" if number % 3 else "main"]
        one.ensure(Human(id="p000000", name=f"at {number}"))
        assert one.commit() == number + 2
    with opened(store) as fresh:
        assert requests(store, lambda: fresh.repository.commit(5)) <= 12
    for one in (session, *branches.values()):
        one.close()


def test_commits_to_other_branches_do_not_conflict(memory: str) -> None:
    """Whoever is beaten takes the next id, and works nothing out again."""
    store = open_store(memory)
    main = started(store)
    main.branches.create("try")
    other = opened(store, branch="try")
    repository: Any = main.repository
    looked: list[object] = []
    real, find = repository.move_head, repository.scanner.find

    def beaten(*given: Any) -> None:
        repository.move_head = real
        other.ensure(Human(id="p000001", name="on try"))
        assert other.commit() == 2
        real(*given)

    repository.scanner.find = lambda *given: looked.append(given) or find(*given)
    repository.move_head = beaten
    main.ensure(Human(id="p000001", name="on main"))
    assert main.commit() == 3
    assert len(looked) == 1
    for name, commit in (("main", 3), ("try", 2)):
        found = main.query().entities(Human).as_of(name).where(Human.id == "p000001").collect()
        assert [(one.name, one.meta().commit_id) for one in found] == [(f"on {name}", commit)]
    assert [one.id for one in main.list_commits()] == [3, 1]
    assert not list(main.repository.check())
    other.close()
    main.close()


def test_writers_on_branches_of_their_own_all_get_through(memory: str) -> None:
    store = open_store(memory)
    main = started(store)
    names = ["one", "two", "three"]
    for name in names:
        main.branches.create(name)
    failed: list[Exception] = []

    def write(name: str) -> None:
        try:
            with opened(open_store(memory), branch=name) as session:
                for number in range(6):
                    session.ensure(Human(id="p000000", name=f"{name} {number}"))
                    session.commit()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in names]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failed
    assert main.repository.highest() == 1 + 6 * len(names)
    for name in names:
        there = main.repository.on_branch(name)
        commits = [one.id for one in there.commits()]
        assert len(commits) == 7
        assert commits == sorted(commits, reverse=True)
        last = main.query().entities(Human).as_of(name).where(Human.id == "p000000").collect()
        assert [one.name for one in last] == [f"{name} 5"]
    assert not list(main.repository.check())
    main.close()


def test_of_two_merges_of_one_branch_one_wins(memory: str) -> None:
    store = open_store(memory)
    main = started(store)
    main.branches.create("try")
    with opened(store, branch="try") as other:
        other.ensure(Human(id="p000001", name="tried"))
    second = opened(store)
    repository: Any = main.repository
    real = repository.move_head

    def beaten(*given: Any) -> None:
        repository.move_head = real
        assert second.merge("try").commit is not None
        real(*given)

    repository.move_head = beaten
    result = main.merge("try")
    assert result.commit is None or result.commit.id == 3
    assert [(one.id, one.parents) for one in main.list_commits()] == [(3, (1, 2)), (1, ())]
    second.close()
    main.close()


def test_a_commit_to_a_branch_that_moved_ended_or_was_protected_is_refused(memory: str) -> None:
    store = open_store(memory)
    main = started(store)
    main.branches.create("try")

    def beaten_by(change: Callable[[], object]) -> Any:
        with opened(store, branch="try") as other, other.repository.transaction("one") as transaction:
            transaction.reconcile(other.types[0], [("p000001", "late", 0)])
            change()
            return transaction.finish({})

    def same_branch() -> None:
        with opened(store, branch="try") as third:
            third.ensure(Human(id="p000002", name="third"))

    with pytest.raises(HeadMismatchError):
        beaten_by(same_branch)
    with pytest.raises(ProtectedBranchError):
        beaten_by(lambda: main.branches.protect("try"))
    main.branches.protect("try", False)
    with pytest.raises(UnknownBranchError):
        beaten_by(lambda: main.branches.delete("try"))
    assert main.repository.highest() == 2
    main.close()


def test_rows_of_a_deleted_branch_go_and_others_stay(memory: str) -> None:
    store = open_store(memory)
    main = started(store)
    for name in ("gone", "kept"):
        main.branches.create(name)
        with opened(store, branch=name) as other:
            other.ensure(Human(id=name, name=name))
    main.tags.create("v1", "kept")
    for name in ("gone", "kept"):
        main.branches.delete(name)
    main.repository.gc(dry_run=False)
    repository: Any = main.repository
    maintenance.collect(repository, maintenance.garbage(repository, grace=0).token, grace=0)
    held = {name for info in store.list() if info.key.endswith(".parquet") for name in ids(store, info.key)}
    assert "kept" in held
    assert "gone" not in held
    assert len(main.query().entities(Human).as_of("v1").collect()) == 4
    assert main.branches.create("old", at=1).head == 1
    assert not list(verify(main.repository))
    main.close()


def ids(store: ObjectStore, key: str) -> list[str]:
    found: list[str] = pq.read_table(pa.BufferReader(store.get(key).data)).column(0).to_pylist()
    return found


def test_an_erasure_reads_and_writes_only_files_that_can_hold_the_row(memory: str) -> None:
    store = CountingStore(open_store(memory))
    session = started(store, 80, sizes=FEW)
    files = [info.key for info in store.list() if info.key.endswith(".parquet")]
    assert len(files) == 10
    holding = [key for key in files if "p000033" in ids(store, key)]
    session.close()
    with opened(store, sizes=FEW) as session:
        read: list[str] = []
        inner = session.repository.access  # type: ignore[attr-defined]
        real_some, real_whole = inner.some, inner.whole
        inner.some = lambda key, *rest: read.append(key) or real_some(key, *rest)
        inner.whole = lambda wanted: read.extend(key for key, _ in wanted) or real_whole(wanted)
        assert session.erase(Human, "p000033", "asked for", dry_run=False).items == 1
        assert set(read) == set(holding)
        assert len(holding) == 1
    after = {info.key for info in store.list() if info.key.endswith(".parquet")}
    assert len(after - set(files)) == 1
    assert set(files) - after == set(holding)


def test_an_erased_row_leaves_no_byte_but_a_note(memory: str) -> None:
    store = open_store(memory)
    main = started(store, 20, sizes=FEW)
    main.ensure([Human(id="needle", name="secret-name"), Knows(left_key="needle", right_key="p000001"),
                 Knows(left_key="p000002", right_key="needle")])  # fmt: skip
    main.commit()
    main.branches.create("try")
    with opened(store, branch="try", sizes=FEW) as other:
        for number in range(12):
            other.ensure(Human(id="needle", name=f"secret-name {number}"))
            other.commit()
    main.branches.create("gone")
    with opened(store, branch="gone", sizes=FEW) as other:
        other.ensure(Human(id="needle", name="secret-name elsewhere"))
    main.branches.delete("gone")
    main.delete(Human, "needle", cascade=True)
    main.commit()
    with pytest.raises(LiveRelationsError, match="Knows"):
        main.erase(Human, "needle", "asked for", dry_run=False)
    counted = main.erase(Human, "needle", "asked for", cascade=True)
    erased = main.erase(Human, "needle", "asked for", dry_run=False, cascade=True, author="me")
    assert counted == erased
    for info in store.list():
        data = store.get(info.key).data
        assert b"needle" not in data
        assert b"secret" not in data
        if info.key.endswith(".parquet"):
            table = repr(pq.read_table(pa.BufferReader(data)).to_pylist())
            assert "needle" not in table
            assert "secret" not in table
    with pytest.raises(UnknownKeyError):
        main.erase(Human, "needle", "again", dry_run=False)
    with pytest.raises(Invalid):
        main.erase(Human, "p000001", " ", dry_run=False)
    assert [one.id for one in main.list_commits()] == [16, 2, 1]
    assert len(main.query().entities(Human).collect()) == 20
    assert not list(verify(main.repository))
    notes = [info.key for info in store.list("meta/erasures/")]
    assert len(notes) == 1
    assert b'"author": "me"' in store.get(notes[0]).data
    main.close()
    with Session(store.url, entity_types=[Human], config=Config(connect={"store": store}, readonly=True)) as reader:
        assert reader.repository.commit(5).id == 5


GOLDEN = Path(__file__).parent / "golden" / "branched_v3.zip"


class Numbered(Entity):
    id: Field[int] = Field(primary_key=True)


def test_a_store_that_was_made_with_the_first_release_of_the_engine_reads_and_goes_on(tmp_path: Path) -> None:
    with ZipFile(GOLDEN) as packed:
        packed.extractall(tmp_path)
    with Session(f"file://{tmp_path}/", entity_types=[Numbered]) as session:
        def numbers(at: Any = None) -> list[int]:
            query = session.query().entities(Numbered)
            return sorted(one.id for one in (query if at is None else query.as_of(at)).collect())

        assert session.storage_info()["engine_version"] == "v3"
        assert [(one.name, one.head, one.protected) for one in session.branches.list()] == [
            ("main", 5, False), ("side", 2, True)]  # fmt: skip
        assert (numbers(), numbers("first"), numbers("side"), numbers(3), numbers(4)) == (
            [2, 3, 4, 6], [1, 2, 3], [2, 3, 4], [1, 2, 3, 5], [1, 2, 3, 6])  # fmt: skip
        merged = session.list_commits(limit=1)[0]
        assert (merged.id, merged.parents, merged.message) == (5, (4, 2), "side comes in")
        assert session.tags.list()[0].message == "the first commit"
        assert not list(verify(session.repository))
        session.ensure(Numbered(id=1))
        assert session.commit() == 6
        assert session.repository.beyond_lines() == ["branches", "tags", "deleted rows of Numbered"]


def test_a_dropped_type_does_not_come_back_on_a_branch_that_begins_before(memory: str) -> None:
    store = open_store(memory)
    with started(store) as session:
        session.ensure(Human(id="p000000", name="later"))
        assert session.commit() == 2
        session.repository.drop_type("entity", "Human")
        session.branches.create("before", at=1)
    with opened(store, branch="before") as session:
        assert session.query().entities(Human).count() == 0
        assert session.query().entities(Human).as_of(1).count() == 0
        session.ensure(Human(id="p000000", name="again"))
        with pytest.raises(TypeDroppedError):
            session.commit()
        session.discard()
