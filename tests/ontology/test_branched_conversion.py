"""Conversions of stores with branches: every commit, branch, tag and merge is the same, or the copy is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from branched_history import FITS, PARTS, BranchedHistory, Part, written
from low import LOW

from ontolake import faults
from ontolake.history.erasures import KeyHash
from ontolake.model import Entity, Field
from ontolake.model.types import type_info
from ontolake.ontology import Config, Session, StorageBackendError
from ontolake.ontology.migration.upgraders import Upgrader
from ontolake.ontology.moving.conversion import Conversion, convert, engine_for
from ontolake.ontology.repository import Repository, open_repository
from ontolake.ontology.typed_store import TypedStore

WAYS = {"between files": ("{}/one.db", "{}/two.db"), "to objects": ("{}/one.db", "file://{}/two"),
        "from objects": ("file://{}/one", "{}/two.db")}


@pytest.fixture(params=[pytest.param(way, id=name, marks=[pytest.mark.slow] if name == "from objects" else [])
                        for name, way in WAYS.items()])
def way(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Where a store is, and where it goes."""
    source, target = request.param
    return source.format(tmp_path), target.format(tmp_path)


@contextmanager
def opened(url: str, **options: Any) -> Iterator[Repository]:
    repository = open_repository(url, **options)
    try:
        yield repository
    finally:
        repository.close()


def converted(source: str, target: str) -> Conversion:
    with opened(source, config={"create": False, "readonly": True}) as old, \
            opened(target, engine_version=engine_for(old, None)) as new:  # fmt: skip
        return convert(old, new)


def told(url: str) -> dict[str, Any]:
    """All that a store says of its past: branches, tags, commits, and the rows of every commit."""
    with TypedStore(url, config={"readonly": True}) as store:
        lines = {branch.name: list(store.commits(branch=branch.name)) for branch in store.branches.list()}
        commits = sorted({commit.id for line in lines.values() for commit in line})
        assert list(store.verify()) == []
        return {"branches": store.branches.list(), "lines": lines, "changes": list(store.changes(0)),
                "tags": [(tag.name, tag.commit, tag.message) for tag in store.tags.list()],
                "rows": {commit: {table: dict(store.snapshot(commit).rows(table))
                                  for table in store.snapshot(commit).tables()} for commit in commits}}  # fmt: skip


def check_against(made: BranchedHistory, url: str) -> None:
    """What plain Python says of the history holds of a store."""
    rows = told(url)["rows"]
    assert rows.keys() == made.states.keys() - {0}
    for commit, wanted in made.states.items():
        if commit:
            assert {key: row["size"] for key, row in rows[commit][PARTS].items()} == wanted[PARTS]
            assert {"-".join(key): row["grip"] for key, row in rows[commit][FITS].items()} == wanted[FITS]


@pytest.mark.slow
def test_every_commit_branch_and_tag_is_the_same_and_once_more_nothing_is_copied(way: tuple[str, str]) -> None:
    made, target = written(way[0]), way[1]
    with made.session() as session:
        session.branches.protect("deep")
    done = converted(made.url, target)
    assert (done.copied, done.commits) == (len(made.states) - 1, len(made.states) - 1)
    check_against(made, target)
    assert told(target) == told(made.url)
    assert converted(made.url, target)[:2] == (0, done.commits)
    made.commit("try", {"late": 1})
    assert converted(made.url, target).copied == 1
    assert told(target) == told(made.url)
    copy = BranchedHistory(target)
    copy.lines, copy.states = made.lines, made.states
    copy.commit("try", {"later": 2})  # it goes on by itself
    with copy.session() as session:
        assert session.merge("try", "main", strategy="theirs").commit is not None


@pytest.mark.slow
def test_deleted_branches_and_migrations_of_branches_go_along(way: tuple[str, str]) -> None:
    class Note(Entity):
        id: Field[str] = Field(primary_key=True)

    class More(Entity):
        id: Field[str] = Field(primary_key=True)
        text: Field[str] = Field(default="")

    More.__name__ = "Note"
    made, target = written(way[0]), way[1]
    with Session(made.url, entity_types=[Note]) as session:
        session.ensure([Note(id="n1"), Note(id="n2")])
        session.commit()
        session.branches.create("short")
    made.lines["short"] = [*made.lines["main"]]
    made.commit("short", {"s": 1})
    made.branch("from-short", "short")
    with made.session() as session:
        session.branches.delete("short")
        session.branches.create("short")  # the name again
        session.branches.create("lost")
    made.lines["lost"] = [*made.lines["main"]]
    made.commit("lost", {"lost": 1})
    with made.session() as session:
        session.branches.delete("lost")
        session.repository.gc(dry_run=False)  # the rows of this branch are gone for good; on objects after an hour
        session.branches.create("moved")
    named = [Upgrader(lambda row: {**row, "text": row["id"]}, "Note", 1, False)]
    with Session(made.url, entity_types=[More], branch="moved") as session:
        session.migrate(dry_run=False, upgraders=named, force=True)
        session.delete(More, "n1")
    with Session(made.url, entity_types=[Note]) as session:
        session.ensure(Note(id="n3"))
    with TypedStore(made.url) as store:
        assert store.merge("moved", "main", upgraders=named).commit is not None
    converted(made.url, target)
    assert told(target) == told(made.url)
    with Session(target, entity_types=[More]) as session:
        assert sorted(one.text for one in session.query().entities(More).collect()) == ["n2", "n3"]


def test_a_deleted_branch_keeps_its_rows_where_another_one_was_collected(way: tuple[str, str]) -> None:
    class Note(Entity):
        id: Field[str] = Field(primary_key=True)

    source, target = way
    config = Config(sizes=LOW)
    with Session(source, entity_types=[Note], config=config) as session:
        session.ensure(Note(id="n"))
        session.commit()
        for name in ("collected", "deleted"):
            session.branches.create(name)
            with Session(source, entity_types=[Note], config=replace(config, branch=name)) as other:
                other.ensure(Note(id=name))
            session.branches.delete(name)
            if name == "collected":
                session.repository.gc(dry_run=False)

    class Stop(Exception):
        pass

    def stop(step: str) -> None:
        if step == "convert: branches to collect deleted":
            raise Stop

    with pytest.raises(Stop), faults.arm(stop):
        converted(source, target)
    for _ in range(2):
        converted(source, target)
        with opened(target) as copy:
            repository: Any = copy
            places = [repository.branch_of(commit) for commit in (2, 3)]
            assert [repository.branch_row(place).is_collected for place in places] == [True, False]
            note = type_info(Note)
            assert repository.states.rows(note, 1, [("deleted",), ("n",)], 3) == [("deleted",), ("n",)]


@pytest.mark.slow
def test_a_conversion_that_stops_anywhere_goes_on(way: tuple[str, str]) -> None:
    made, target = written(way[0]), way[1]
    wanted, stops = told(made.url), 0

    class Stop(Exception):
        pass

    def stop() -> None:
        raise Stop

    for step in range(10_000):
        try:
            with faults.arm(faults.At(step, stop)):
                converted(made.url, target)
        except Stop:
            stops += 1
            continue
        break
    assert stops > 5
    converted(made.url, target)
    assert told(target) == wanted


def test_an_engine_that_would_lose_something_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    made = written(f"{tmp_path}/one.db")
    with opened(made.url) as source:
        for engine in ("v1", "v2"):
            with pytest.raises(StorageBackendError, match=f"branches, tags, deleted rows of .*engine {engine} cannot"):
                engine_for(source, engine)
        assert (engine_for(source, None), engine_for(source, "v3")) == ("v3", "v3")
        with opened(f"{tmp_path}/old.db", engine_version="v2") as old, \
                pytest.raises(StorageBackendError, match="which the engine v2 cannot have"):  # fmt: skip
            convert(source, old)
    other = BranchedHistory(f"{tmp_path}/other.db")
    other.commit("main", {"x": 1})
    with pytest.raises(StorageBackendError, match=r"commit 1 at .* is not that of the source"):
        converted(made.url, other.url)
    assert len(told(other.url)["lines"]["main"]) == 1


def test_audit_entries_of_erasures_go_along_and_only_once(way: tuple[str, str]) -> None:
    source, target = way
    with BranchedHistory(source).session() as session:
        session.ensure([Part(id="a", size=1), Part(id="b", size=2)])
        session.commit()
        session.erase(Part, "a", "asked for", dry_run=False, author="Ada")
    kept = audits(source)
    assert [(one.author, one.reason, one.type_name, one.rows) for one in kept] == [("Ada", "asked for", "Part", 1)]
    assert KeyHash(kept[0].salt, kept[0].key_hash).is_of("entity/Part", "a")
    for _ in range(2):
        converted(source, target)
        assert audits(target) == kept


def audits(url: str) -> list[Any]:
    with opened(url) as repository:
        return repository.erasures()  # type: ignore[attr-defined, no-any-return]
