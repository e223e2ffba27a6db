"""Migrations on branches of typed stores, and merges of branches that were migrated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from marking import slow_after

from ontolake.history import ConflictKind, MergeConflictError, Resolution, RevertError
from ontolake.model import Entity, Field, Relation
from ontolake.ontology import MissingUpgraderError, Session
from ontolake.ontology.migration.rewrite import MigrationResult


def first() -> Any:
    class Thing(Entity):
        id: Field[str] = Field(primary_key=True)
        name: Field[str]
        n: Field[int] = Field(default=0)

    return Thing


def split() -> Any:
    """Another schema, to which only an upgrader leads."""
    class Thing(Entity):
        id: Field[str] = Field(primary_key=True)
        given: Field[str]
        family: Field[str]
        n: Field[int]

    return Thing


def counted() -> Any:
    """Another schema, to which rows can be lifted."""
    class Thing(Entity):
        id: Field[str] = Field(primary_key=True)
        name: Field[str]
        n: Field[int]
        count: Field[int] = Field(default=7)

    return Thing


First, Split, Counted = first(), split(), counted()


def names(row: dict[str, Any]) -> dict[str, Any]:
    given, _, family = row.pop("name").partition(" ")
    return {**row, "given": given, "family": family}


SPLIT = {("Thing", 1): names}


def opened(url: str, cls: Any = First, branch: str = "main") -> Session:
    return Session(url, entity_types=[cls], branch=branch, engine_version="v3")


def write(url: str, branch: str, *objects: Any, gone: Any = ()) -> int:
    with opened(url, type(objects[0]) if objects else gone[0], branch) as session:
        session.ensure(objects)
        for key in gone[1:]:
            session.delete(gone[0], key)
        commit = session.commit()
        assert commit is not None
        return commit


def migrate(url: str, branch: str, cls: Any, upgraders: Any = None) -> MigrationResult:
    with opened(url, cls, branch) as session:
        token = session.migrate(upgraders=upgraders).token  # type: ignore[union-attr]
        result = session.migrate(dry_run=False, token=token, upgraders=upgraders)
        assert isinstance(result, MigrationResult)
        return result


def merge(url: str, source: str, into: str, cls: Any = First, **options: Any) -> Any:
    with opened(url, cls, into) as session:
        return session.merge(source, **options)


def rows(url: str, cls: Any, branch: str = "main") -> dict[str, Any]:
    with opened(url, cls, branch) as session:
        session.validate()
        assert not list(session.repository.check())
        found = {one.id: tuple(value for name, value in one.model_dump().items() if name != "id")
                 for one in session.query().entities(cls).collect()}  # fmt: skip
        snapshot = dict(session.snapshot().rows("entity/Thing"))
        assert {key: tuple(row[name] for name in row if name != "id") for key, row in snapshot.items()} == found
        return found


@pytest.fixture(params=slow_after(1, ["store.db", "lake"]))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A native file, or a directory of objects."""
    return str(tmp_path / "store.db") if request.param == "store.db" else f"file://{tmp_path}/lake"


@pytest.fixture
def url(place: str) -> str:
    """Commit 1 on main: a and b. The branch `try` begins there."""
    write(place, "main", First(id="a", name="Ada Lovelace", n=1), First(id="b", name="Bo Diddley", n=1))
    with opened(place) as session:
        session.branches.create("try")
    return place


def test_a_migration_belongs_to_its_branch(url: str) -> None:
    done = migrate(url, "try", Split, SPLIT)
    assert (done.commit_id, [one.to_schema_version_id for one in done.types]) == (2, [2])
    write(url, "try", Split(id="a", given="Augusta", family="King", n=2))
    write(url, "main", First(id="c", name="C", n=3))
    assert rows(url, Split, "try") == {"a": ("Augusta", "King", 2), "b": ("Bo", "Diddley", 1)}
    assert rows(url, First) == {"a": ("Ada Lovelace", 1), "b": ("Bo Diddley", 1), "c": ("C", 3)}
    with opened(url, Split, "try") as session:
        then = session.query().entities(Split).as_of(1, schema="stored").collect()
        assert [one.name for one in then] == ["Ada Lovelace", "Bo Diddley"]
        lifted = session.query().entities(Split).as_of(1, schema="current", upgraders=SPLIT)
        assert [one.given for one in lifted.collect()] == ["Ada", "Bo"]
        assert [(one.commit.id, sorted(one.row or ())) for one in session.history("entity/Thing", "a")] == [
            (3, ["family", "given", "id", "n"]), (2, ["family", "given", "id", "n"]), (1, ["id", "n", "name"])]


def test_versions_of_two_branches_have_two_numbers(url: str) -> None:
    """Both come from version 1, and upgraders from it lead each branch to its own."""
    assert migrate(url, "try", Split, SPLIT).types[0].to_schema_version_id == 2
    done = migrate(url, "main", Counted)
    assert done.types[0].to_schema_version_id == 3
    with opened(url, Counted) as session:
        current = session.query().entities(Counted).as_of(1, schema="current", upgraders={}).collect()
        assert [(one.name, one.count) for one in current] == [("Ada Lovelace", 7), ("Bo Diddley", 7)]
    migrate(url, "try", First, {("Thing", 2): lambda row: {"id": row["id"], "n": row["n"],
                                                           "name": f"{row['given']} {row['family']}"}})
    assert rows(url, First, "try") == {"a": ("Ada Lovelace", 1), "b": ("Bo Diddley", 1)}
    with opened(url, First, "try") as session:
        assert [era.schema_version_id for era in session.repository.schema_versions("entity", "Thing")] == [1, 2, 4]


def test_a_merge_brings_the_schema_without_upgraders_if_nothing_was_written_meanwhile(url: str) -> None:
    migrate(url, "try", Split, SPLIT)
    write(url, "try", Split(id="c", given="C", family="D", n=3), gone=())
    write(url, "try", gone=(Split, "b"))
    result = merge(url, "try", "main")
    assert (result.status, dict(result.tables)) == ("fast_forward", {"entity/Thing": (1, 1, 1)})
    assert rows(url, Split) == rows(url, Split, "try") == {"a": ("Ada", "Lovelace", 1), "c": ("C", "D", 3)}
    with opened(url, Split) as session:
        commit = session.get_commit(result.commit.id)
        assert [one["to_schema_version_id"] for one in commit.metadata["migrated_types"]] == [2]
        assert dict(session.snapshot(1).rows("entity/Thing"))["b"]["name"] == "Bo Diddley"
        past = session.query().entities(Split).as_of(1, schema="current", upgraders=SPLIT)
        assert [(one.given, one.family) for one in past.collect()] == [("Ada", "Lovelace"), ("Bo", "Diddley")]
        assert session.merge("try").status == "up_to_date"
    write(url, "main", Split(id="d", given="D", family="E", n=4))
    assert merge(url, "main", "try", Split).status == "fast_forward"
    assert rows(url, Split, "try") == rows(url, Split)


@pytest.mark.parametrize("into", ["main", "try"])
def test_rows_of_the_old_schema_are_led_through_upgraders(url: str, into: str) -> None:
    """Whichever side is merged into which, and by field."""
    migrate(url, "try", Split, SPLIT)
    write(url, "try", Split(id="a", given="Ada", family="Lovelace", n=5))
    write(url, "main", First(id="a", name="Augusta Lovelace", n=1), First(id="c", name="C D", n=3), gone=())
    write(url, "main", gone=(First, "b"))
    source = "try" if into == "main" else "main"
    before = rows(url, First), rows(url, Split, "try")
    for dry in (True, False):
        with pytest.raises(MissingUpgraderError, match="Thing from version 1") as refused:
            merge(url, source, into, First if into == "main" else Split, upgraders={}, dry_run=dry)
        assert refused.value.missing == (("Thing", 1),)
    assert (rows(url, First), rows(url, Split, "try")) == before
    merge(url, source, into, First if into == "main" else Split, upgraders=SPLIT)
    assert rows(url, Split, into) == {"a": ("Augusta", "Lovelace", 5), "c": ("C", "D", 3)}


def test_a_field_that_an_upgrader_changed_conflicts_as_any_other(url: str) -> None:
    migrate(url, "try", Split, SPLIT)
    write(url, "try", Split(id="a", given="Ada", family="King", n=1))
    write(url, "main", First(id="a", name="Ada Byron", n=1))
    with pytest.raises(MergeConflictError) as refused:
        merge(url, "try", "main", upgraders=SPLIT)
    assert [(one.field, one.base, one.ours, one.theirs) for one in refused.value.conflicts] == [
        ("family", "Lovelace", "Byron", "King")]
    merge(url, "try", "main", upgraders=SPLIT, resolutions=[Resolution("entity/Thing", "a", "family", "theirs")])
    assert rows(url, Split)["a"] == ("Ada", "King", 1)


def test_what_needs_no_upgrader_needs_none_in_a_merge(url: str) -> None:
    migrate(url, "try", Counted)
    write(url, "try", Counted(id="a", name="Ada Lovelace", n=1, count=9))
    write(url, "main", First(id="a", name="Augusta", n=1), First(id="c", name="C", n=3))
    merge(url, "main", "try", Counted, upgraders={})
    assert rows(url, Counted, "try") == {"a": ("Augusta", 1, 9), "b": ("Bo Diddley", 1, 7), "c": ("C", 3, 7)}
    write(url, "main", First(id="d", name="D", n=4))
    with pytest.raises(MissingUpgraderError, match="count is new and has no default"):
        merge(url, "try", "main", First, upgraders={})  # the old class does not know the default
    with opened(url, First) as session, pytest.raises(MissingUpgraderError, match="Thing: count would be lost"):
        session.cherry_pick(3, upgraders={})
    with opened(url, Counted, "try") as session:
        session.merge("try", into="main", upgraders={})
    assert rows(url, Counted) == {**rows(url, Counted, "try"), "d": ("D", 4, 7)}


def test_both_sides_may_have_migrated_alike(url: str) -> None:
    migrate(url, "try", Split, SPLIT)
    migrate(url, "main", Split, SPLIT)
    write(url, "try", Split(id="a", given="A", family="Lovelace", n=1))
    write(url, "main", Split(id="a", given="Ada", family="L", n=1))
    with pytest.raises(MissingUpgraderError):  # only the row that both changed needs a base
        merge(url, "try", "main", Split, upgraders={})
    merge(url, "try", "main", Split, upgraders=SPLIT)
    assert rows(url, Split) == {"a": ("A", "L", 1), "b": ("Bo", "Diddley", 1)}


def test_both_sides_may_have_migrated_differently(url: str) -> None:
    migrate(url, "try", Split, SPLIT)
    write(url, "try", Split(id="c", given="C", family="D", n=3))
    migrate(url, "main", Counted)
    write(url, "main", Counted(id="b", name="Bo Peep", n=1, count=2))
    before = rows(url, Counted)
    with pytest.raises(MergeConflictError) as refused:
        merge(url, "try", "main", Counted)
    (conflict,) = refused.value.conflicts
    assert (conflict.table, conflict.kind, conflict.key) == ("entity/Thing", ConflictKind.SCHEMA, None)
    assert [sorted(one["fields"]) for one in (conflict.base, conflict.ours, conflict.theirs)] == [
        ["id", "n", "name"], ["count", "id", "n", "name"], ["family", "given", "id", "n"]]  # fmt: skip
    for side, version in (("ours", 2), ("theirs", 3)):
        with pytest.raises(MissingUpgraderError, match=f"Thing from version {version}"):
            merge(url, "try", "main", Counted, strategy=side)
    assert rows(url, Counted) == before
    back = {("Thing", 2): lambda row: {"id": row["id"], "n": row["n"], "name": f"{row['given']} {row['family']}"}}
    with opened(url, Counted) as session:
        session.branches.create("kept")
        session.merge("try", into="kept", strategy="ours", upgraders={**SPLIT, **back})
    assert rows(url, Counted, "kept") == {"a": ("Ada Lovelace", 1, 7), "b": ("Bo Peep", 1, 2), "c": ("C D", 3, 7)}
    over = {("Thing", 3): lambda row: names({key: row[key] for key in ("id", "name", "n")})}
    merge(url, "try", "main", Counted, strategy={"entity/Thing": "theirs"}, upgraders={**SPLIT, **over})
    assert rows(url, Split) == {"a": ("Ada", "Lovelace", 1), "b": ("Bo", "Peep", 1), "c": ("C", "D", 3)}
    with opened(url, Split) as session:
        past = session.query().entities(Split).as_of(4, schema="current", upgraders={**SPLIT, **over})
        assert [one.given for one in past.collect()] == ["Ada", "Bo"]


def test_criss_cross_and_repeated_merges(url: str) -> None:
    migrate(url, "try", Counted)
    write(url, "main", First(id="a", name="Ada", n=1))
    for number, (branch, cls) in enumerate([("main", First), ("try", Counted), ("main", First)]):
        write(url, branch, cls(id=f"{branch}{number}", name=branch, n=number))
        merge(url, "main", "try", Counted)
    with opened(url, Counted, "try") as session:
        session.branches.create("other")
    with opened(url, Counted, "try") as session:
        session.merge("try", into="main")
    write(url, "main", Counted(id="b", name="Bo Peep", n=1, count=1))
    write(url, "try", Counted(id="b", name="Bo Diddley", n=8, count=7))
    with opened(url, Counted, "try") as session:
        session.tags.create("before")
        session.merge("main")
        session.merge("before", into="main")
    assert rows(url, Counted)["b"] == rows(url, Counted, "try")["b"] == ("Bo Peep", 8, 1)
    write(url, "main", Counted(id="b", name="Bo", n=8, count=1))
    write(url, "try", Counted(id="b", name="Bo Peep", n=8, count=5))
    merge(url, "try", "main", Counted)
    assert rows(url, Counted)["b"] == ("Bo", 8, 5)
    assert merge(url, "main", "other", Counted).status == "fast_forward"
    assert rows(url, Counted, "other") == rows(url, Counted)


def test_migrations_are_not_reverted_or_picked(url: str) -> None:
    migrate(url, "try", Split, SPLIT)
    merged = merge(url, "try", "main").commit.id
    with opened(url, Split) as session:
        session.branches.create("old", at=1)
        for commit in (2, merged):
            with pytest.raises(RevertError, match="is a migration of Thing, and cannot be reverted"):
                session.revert(commit)
        with pytest.raises(RevertError, match="cannot be picked"):
            session.cherry_pick(2, branch="old")
        assert session.repository.head() == merged


def test_earlier_states_come_back_under_the_schema_of_today(url: str) -> None:
    write(url, "main", First(id="a", name="Augusta King", n=2), First(id="c", name="C D", n=3))
    migrate(url, "main", Split, SPLIT)
    write(url, "main", Split(id="b", given="B", family="D", n=9))
    with opened(url, Split) as session:
        with pytest.raises(MissingUpgraderError, match="Thing from version 1"):
            session.restore(1, upgraders={})
        with pytest.raises(MissingUpgraderError):
            session.revert(2)
        assert session.restore(2, upgraders=SPLIT).tables == {"entity/Thing": (0, 1, 0)}
        session.restore(1, upgraders=SPLIT)
    assert rows(url, Split) == {"a": ("Ada", "Lovelace", 1), "b": ("Bo", "Diddley", 1)}
    with opened(url, Split) as session:
        session.cherry_pick(2, upgraders=SPLIT)
        session.branches.create("old", at=2)
        with pytest.raises(MissingUpgraderError, match="Thing from version 2"):
            session.cherry_pick(4, branch="old", upgraders=SPLIT)
    assert rows(url, Split) == {"a": ("Augusta", "King", 2), "b": ("Bo", "Diddley", 1), "c": ("C", "D", 3)}


def linked(key: type, more: bool) -> tuple[Any, Any]:
    class Node(Entity):
        id: Field[key] = Field(primary_key=True)  # type: ignore[valid-type]
        label: Field[str]

    class Link(Relation[Node, Node]):
        weight: Field[int]

    if more:
        Link.__annotations__["kind"] = Field[str]
    return Node, Link


def test_keys_of_another_type_and_the_relations_that_follow(place: str) -> None:
    def session(key: type, branch: str = "main") -> tuple[Session, Any, Any]:
        node, link = linked(key, False)
        return Session(place, entity_types=[node], relation_types=[link], branch=branch, engine_version="v3"), \
            node, link

    number: dict[Any, Callable[[Any], Any]] = {("Node", 1): lambda row: {**row, "id": str(row["id"])}}
    store, node, link = session(int)
    with store:
        store.ensure([node(id=1, label="one"), node(id=2, label="two"), link(left_key=1, right_key=2, weight=1)])
        store.commit()
        store.branches.create("try")
    store, node, link = session(str, "try")
    with store:
        store.migrate(dry_run=False, force=True, upgraders=number)
        store.delete(node, "2", cascade=True)
        store.ensure(node(id="x", label="ex"))
    store, node, link = session(int)
    with store:
        store.ensure([node(id=3, label="three"), link(left_key=2, right_key=3, weight=2)])
        store.commit()
        with pytest.raises(MergeConflictError) as refused:
            store.merge("try", upgraders=number)
        (conflict,) = refused.value.conflicts
        assert (conflict.kind, conflict.key, conflict.rows) == (
            ConflictKind.ORPHAN, "2", (("relation/Link", ("2", "3")),))
        store.branches.create("kept")
        store.merge("try", into="kept", upgraders=number, strategy="ours")
        store.merge("try", upgraders=number, strategy="theirs")
    for branch, nodes, links in (("main", {"1", "3", "x"}, set()), ("kept", {"1", "2", "3", "x"}, {("2", "3", 2)})):
        store, node, link = session(str, branch)
        with store:
            assert {one.id for one in store.query().entities(node).collect()} == nodes
            assert {(one.left_key, one.right_key, one.weight) for one in store.query().relations(link).collect()} \
                == links
            assert not list(store.repository.check())


def test_a_branch_may_come_back_to_a_schema_that_it_had(url: str) -> None:
    """Two branches that took each other's schema, and then each other's again."""
    migrate(url, "try", Split, SPLIT)
    migrate(url, "main", Counted)
    whole = {("Thing", 2): lambda row: {"id": row["id"], "n": row["n"], "name": f"{row['given']} {row['family']}"},
             ("Thing", 3): lambda row: names({key: row[key] for key in ("id", "name", "n")})}  # fmt: skip
    with opened(url, Counted) as session:
        session.tags.create("counted")
        session.merge("try", strategy="theirs", upgraders=whole)
    with opened(url, Counted) as session:
        session.merge("counted", into="try", strategy="theirs", upgraders=whole)
    assert set(rows(url, Split)) == set(rows(url, Counted, "try")) == {"a", "b"}
    write(url, "main", gone=(Split, "b"))
    merge(url, "try", "main", Counted, strategy="theirs", upgraders=whole)
    assert rows(url, Counted) == {"a": ("Ada Lovelace", 1, 7)}
    with opened(url, Counted) as session:
        assert sorted(session.repository.activations("entity", "Thing")) == [1, 2, 3, 4]


def test_lifting_what_the_other_side_wrote_does_not_read_what_is_stored(tmp_path: Path) -> None:
    steps: dict[int, int] = {}
    for size in (200, 2000):
        url = str(tmp_path / f"{size}.db")
        write(url, "main", *(First(id=f"{number:05d}", name="A B") for number in range(size)))
        with opened(url) as session:
            session.branches.create("try")
        migrate(url, "try", Split, SPLIT)
        write(url, "main", *(First(id=f"{number:05d}", name="A C") for number in range(20)))
        with opened(url, Split, "try") as session:
            counted = [0]

            def step(counted: list[int] = counted) -> bool:
                counted[0] += 1
                return False

            session.repository.db.set_progress_handler(step, 10)  # type: ignore[attr-defined]
            assert session.merge("main", upgraders=SPLIT).tables["entity/Thing"] == (0, 20, 0)
        steps[size] = counted[0]
    assert steps[2000] < 1.3 * steps[200], steps


def test_commits_of_other_branches_are_read_under_the_schema_of_here(url: str) -> None:
    write(url, "try", First(id="a", name="Not Here", n=9))
    migrate(url, "main", Counted)
    migrate(url, "try", Split, {("Thing", 1): names})
    write(url, "try", Split(id="c", given="C", family="D", n=3))
    back = {("Thing", 3): lambda row: {"id": row["id"], "n": row["n"], "name": f"{row['given']} {row['family']}"}}
    with opened(url, Counted) as session:
        query = session.query().entities(Counted)
        there = query.as_of(5, schema="current", upgraders=back).order_by(Counted.id).collect()
        assert [(one.name, one.count) for one in there] == [("Not Here", 7), ("Bo Diddley", 7), ("C D", 7)]
        with pytest.raises(MissingUpgraderError, match="Thing from version 3"):
            query.as_of(5, schema="current", upgraders={}).collect()
        assert [one.name for one in query.as_of(2, schema="current", upgraders={}).order_by(Counted.id).collect()] == [
            "Not Here", "Bo Diddley"]
        assert [one.given for one in query.as_of(5, schema="stored").collect()][-1] == "C"
        states = query.where(Counted.id == "a").as_of(3, schema="current", upgraders={}).with_history().collect()
        assert [(one.name, one.meta().commit_id) for one in states] == [("Ada Lovelace", 1), ("Ada Lovelace", 3)]
        assert sorted((change.kind.value, change.key) for change in session.diff("main", "try")) == [
            ("insert", "c"), ("update", "a"), ("update", "b")]


def test_erasing_takes_the_row_out_of_every_version(url: str, tmp_path: Path) -> None:
    write(url, "main", First(id="needle", name="Haystack Needle"))
    with opened(url) as session:
        session.branches.create("more")
    migrate(url, "more", Split, SPLIT)
    migrate(url, "main", Counted)
    write(url, "more", Split(id="needle", given="Haystack", family="Pin", n=2))
    with opened(url, Counted) as session:
        assert session.erase(Counted, "needle", "asked for").items == 4
        session.erase(Counted, "needle", "asked for", dry_run=False)
        assert {one.id for one in session.query().entities(Counted).as_of(2, schema="stored").collect()} == {"a", "b"}
    assert set(rows(url, Counted)) == set(rows(url, Split, "more")) == {"a", "b"}
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert files
    assert [file.name for file in files if any(word in file.read_bytes() for word in (b"needle", b"Haystack"))] == []
