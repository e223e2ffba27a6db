"""Jobs: parts that workers do, one step of the store's own that publishes them, and nothing in between."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pd
import pytest
from marking import slow_after

from ontolake import faults
from ontolake.cli import main
from ontolake.documents import Set, open_space
from ontolake.errors import AlreadyExists, NotFound
from ontolake.graph import Graph
from ontolake.model import Entity, Field, Relation
from ontolake.ontology import Session
from ontolake.ontology.errors import (
    HeadMismatchError,
    LockContentionError,
    MigrationError,
    MigrationTokenError,
    QueryError,
    StorageBackendError,
)
from ontolake.ontology.migration.upgraders import Upgrader
from ontolake.ontology.repository.objects.jobs.ranges import on_objects
from ontolake.ontology.repository.objects.upkeep.maintenance import collect, garbage
from ontolake.spark import jobs
from ontolake.spark.jobs.errors import JobError
from ontolake.spark.jobs.workers import Here
from ontolake.sql import open_database


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int]
    weight: Field[float | None] = Field(default=None)


class Near(Relation[Thing, Thing]):
    metres: Field[int]


class Named(Entity):
    """`Thing` as it is to be: with a name, and a tier that has a default."""

    id: Field[str] = Field(primary_key=True)
    size: Field[int]
    weight: Field[float | None] = Field(default=None)
    name: Field[str]
    tier: Field[str] = Field(default="new")


Named.__name__ = "Thing"

TYPES: dict[str, Any] = {"entity_types": [Thing], "relation_types": [Near]}
PARTS = 6
ROWS = 6_000


def fill(url: str) -> str:
    """Several commits with changes, so that there is something to merge and a past to keep."""
    with Session(url, **TYPES) as session:
        session.ensure(Thing(id=f"t{n:05}", size=n) for n in range(ROWS))
        session.commit()
        for round in range(3):
            session.ensure(Thing(id=f"t{n:05}", size=n, weight=round / 2) for n in range(round, ROWS, 5))
            session.ensure(Near(left_key=f"t{n:05}", right_key="t00001", metres=round)
                           for n in range(0, 900, round + 1))
            session.commit()
    return url


@pytest.fixture
def lake(filled: Path, tmp_path: Path) -> str:
    shutil.copytree(filled / "lake", tmp_path / "lake")
    return f"file://{tmp_path}/lake"


@pytest.fixture
def shop(filled: Path, tmp_path: Path) -> str:
    return str(shutil.copy(filled / "shop.db", tmp_path / "shop.db"))


@pytest.fixture(params=["lake", "shop"])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def everything(url: str, kind: Any = Thing) -> list[pa.Table]:
    """What reads give: the latest state, that of an earlier commit, and all states."""
    with Session(url, entity_types=[kind]) as session:
        query = session.query().entities(kind)
        asked = [query, query.with_history()] + ([query.as_of(2)] if kind is Thing else [])
        return [one.to_arrow().sort_by([("id", "ascending"), ("commit_id", "ascending")]) for one in asked]


def files(url: str, folder: str) -> list[Path]:
    return sorted(Path(url.removeprefix("file://"), folder).glob("**/*.parquet"))


# compact


@pytest.mark.slow
def test_compacting_merges_files_and_changes_no_row(lake: str) -> None:
    before = everything(lake)
    planned = jobs.compact(lake, dry_run=True, parts=PARTS, rows_per_file=2000)
    assert [(one.type_name, one.files_before) for one in planned] == [("Thing", 4), ("Near", 3)]
    assert not files(lake, "snapshots")
    done = jobs.compact(lake, parts=PARTS, rows_per_file=2000)
    assert [one.rows for one in done] == [one.rows for one in planned]
    assert everything(lake) == before
    assert jobs.compact(lake, parts=PARTS, rows_per_file=2000) == []
    assert jobs.verify(lake, parts=PARTS).ok
    with Session(lake, **TYPES) as session:  # and work goes on
        session.ensure(Thing(id="t00000", size=-1))
        session.commit()
        assert session.query().entities(Thing).where(Thing.size == -1).count() == 1
    assert jobs.verify(lake, parts=PARTS).ok


def test_commits_made_while_files_are_merged_are_kept(lake: str) -> None:
    def commit(step: str) -> None:
        if step == "spark: files merged":
            with Session(lake, **TYPES) as session:
                session.ensure(Thing(id="t00000", size=-1))

    with faults.arm(commit):
        jobs.compact(lake, types=["Thing"], parts=PARTS)
    with Session(lake, **TYPES) as session:
        assert session.query().entities(Thing).where(Thing.size == -1).first() is not None
        assert session.query().entities(Thing).count() == ROWS
    assert jobs.verify(lake).ok


def test_of_two_that_merge_the_same_files_one_is_told(lake: str) -> None:
    before = everything(lake)

    def merge(step: str) -> None:
        if step == "spark: files merged" and not nested:
            nested.append(1)
            jobs.compact(lake)

    nested: list[int] = []
    with faults.arm(merge), pytest.raises(HeadMismatchError, match="merged or migrated by somebody else"):
        jobs.compact(lake)
    assert everything(lake) == before
    assert jobs.verify(lake).ok


def test_a_driver_that_stops_while_merging_changes_nothing(lake: str) -> None:
    class Stop(Exception):
        pass

    before, head = everything(lake), Path(lake.removeprefix("file://"), "meta/head.json").read_bytes()

    def stop(step: str) -> None:
        if step == "spark: files merged":
            raise Stop

    with faults.arm(stop), pytest.raises(Stop):
        jobs.compact(lake)
    assert Path(lake.removeprefix("file://"), "meta/head.json").read_bytes() == head
    assert everything(lake) == before
    assert jobs.verify(lake).ok
    assert len(jobs.compact(lake)) == 2


def test_what_a_gc_took_meanwhile_is_not_published(lake: str) -> None:
    def gc(step: str) -> None:
        if step == "spark: files merged":
            for file in files(lake, "snapshots"):
                file.unlink()

    with faults.arm(gc), pytest.raises(Exception, match="onto gc ran meanwhile"):
        jobs.compact(lake)
    assert jobs.verify(lake).ok


# migrate


def named(rows: pa.Table) -> pa.Table:
    return rows.append_column("name", pc.binary_join_element_wise("the", rows.column("id"), " "))


def named_one(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "name": f"the {row['id']}"}


UPGRADERS: dict[str, Callable[[Any], Any]] = {"arrow": named, "rows": named_one}


@pytest.mark.parametrize("how", slow_after(1, UPGRADERS))
def test_a_migration_in_parts_is_one_commit_that_says_what_one_process_says(store: str, how: str) -> None:
    before = everything(store)[0]
    upgraders = [Upgrader(UPGRADERS[how], "Thing", 1, how == "arrow")]
    preview = jobs.preview_migration(store, [Named], upgraders=upgraders, parts=PARTS)
    with Session(store, entity_types=[Named], relation_types=[]) as session:
        assert session.migrate(upgraders=upgraders).token == preview.token
    with pytest.raises(MigrationTokenError):
        jobs.migrate(store, [Named], upgraders=upgraders, token="x", parts=PARTS)
    done = jobs.migrate(store, [Named], upgraders=upgraders, token=preview.token, parts=PARTS)
    assert (done.commit_id, done.types[0].rows) == (5, ROWS)
    after = everything(store, Named)[0]
    assert after.column("name").to_pylist() == [f"the {id}" for id in before.column("id").to_pylist()]
    assert set(after.column("tier").to_pylist()) == {"new"}
    assert after.select(["id", "size", "weight"]) == before.select(["id", "size", "weight"])
    assert jobs.verify(store, parts=PARTS).ok
    assert jobs.migrate(store, [Named], upgraders=upgraders, force=True, parts=PARTS).commit_id is None


def test_fields_with_defaults_need_no_upgrader(lake: str) -> None:
    class Wider(Entity):
        id: Field[str] = Field(primary_key=True)
        size: Field[int]
        weight: Field[float | None] = Field(default=None)
        tier: Field[str] = Field(default="new")

    Wider.__name__ = "Thing"
    jobs.migrate(lake, [Wider], force=True, parts=PARTS)
    assert len([file for file in files(lake, "commits") if "v2" in file.name]) > 1
    assert set(everything(lake, Wider)[0].column("tier").to_pylist()) == {"new"}


@pytest.mark.parametrize("wrong", slow_after(2, [
    lambda rows: rows.slice(1), lambda rows: rows, lambda rows: 1 / 0,
    lambda rows: named(rows).set_column(0, "id", pc.utf8_upper(rows.column("id")))]),
    ids=["loses a row", "lacks a field", "raises", "changes keys"])  # fmt: skip
def test_an_upgrader_that_is_wrong_leaves_the_store_as_it_was(store: str, wrong: Callable[[Any], Any]) -> None:
    before = everything(store)
    with pytest.raises(MigrationError, match="Thing"):
        jobs.migrate(store, [Named], upgraders=[Upgrader(wrong, "Thing", 1, True)], force=True, parts=PARTS)
    assert everything(store) == before
    assert jobs.verify(store, parts=PARTS).ok


@pytest.mark.parametrize("step", ["spark: upgraded files written", "ontology objects: before the head is moved",
                                  "ontology objects: head moved"])  # fmt: skip
def test_a_driver_that_stops_leaves_a_migration_undone_or_done(lake: str, step: str) -> None:
    class Stop(Exception):
        pass

    before = everything(lake)

    def stop(reached: str) -> None:
        if reached == step:
            raise Stop

    upgraders = [Upgrader(named, "Thing", 1, True)]
    with faults.arm(stop), pytest.raises(Stop):
        jobs.migrate(lake, [Named], upgraders=upgraders, force=True, parts=PARTS)
    assert jobs.verify(lake, parts=PARTS).ok
    done = step == "ontology objects: head moved"
    if not done:
        assert everything(lake) == before
    assert jobs.migrate(lake, [Named], upgraders=upgraders, force=True).commit_id == (None if done else 5)
    assert everything(lake, Named)[0].num_rows == ROWS


def test_nobody_commits_while_a_migration_is_under_way(lake: str) -> None:
    refused: list[str] = []

    def commit(step: str) -> None:
        if step == "spark: upgraded files written":
            try:
                with Session(lake, **TYPES, config={"lock_timeout": 0.05}) as session:
                    session.ensure(Thing(id="t00000", size=-1))
            except LockContentionError as error:
                refused.append(str(error))

    with faults.arm(commit):
        jobs.migrate(lake, [Named], upgraders=[Upgrader(named, "Thing", 1, True)], force=True, parts=PARTS)
    assert "onto spark migrate" in refused[0]
    assert everything(lake, Named)[0].num_rows == ROWS


# verify


@pytest.mark.slow
def test_damage_of_every_kind_is_found(lake: str) -> None:
    jobs.compact(lake, types=["Thing"], parts=PARTS, rows_per_file=2000)
    assert jobs.verify(lake, parts=PARTS).ok
    merged, written = files(lake, "snapshots")[0], files(lake, "commits")[0]
    for file, change in ((merged, _flip), (written, _flip), (merged, Path.unlink), (written, _shorten)):
        kept = file.read_bytes()
        change(file)
        found = jobs.verify(lake, parts=PARTS)
        assert not found.ok
        assert file.name in found.damage[0].where
        file.write_bytes(kept)
    assert jobs.verify(lake, parts=PARTS).ok


def _flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def _shorten(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-10])


def test_a_merged_file_that_says_something_else_than_commits_is_found(
    lake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the right checksum and the right count: only working it out again shows it."""
    import msgspec

    from ontolake.model.stored import StoredType
    from ontolake.ontology.repository.objects.base import Restated, S3Repository
    from ontolake.ontology.repository.objects.files import write_file
    from ontolake.ontology.repository.objects.moment import HeadSnapshot

    jobs.compact(lake, types=["Thing"])

    def wrong(repository: S3Repository, moment: HeadSnapshot) -> Restated:
        assert moment.manifest is not None
        state = moment.state("entity", "Thing")
        assert state is not None
        table = repository.files.table(state.runs[0])
        at = table.column_names.index("size")
        sizes = table.column("size")
        changed = table.set_column(at, "size", pc.add(sizes, pc.equal(sizes, 7).cast("int64")))
        info = StoredType(moment.current["entity", "Thing"].schema)
        file, data = write_file(info, changed, "snapshots/entities/Thing/v1/run-x.parquet", 1)
        repository.access.write({file.path: data})
        states = {"entity/Thing": msgspec.structs.replace(state, runs=(file,))}
        return Restated(dict(moment.manifest.types), states, moment.schemas, moment.manifest.dropped)

    with on_objects(lake, write=True) as repository:
        repository.restate(lambda moment: wrong(repository, moment))
    found = jobs.verify(lake, parts=PARTS)
    assert [one.what for one in found.damage] == ["1 rows are not what commits wrote, such as that of 't00007'"]
    assert main(["verify", lake]) == 5
    assert "t00007" in capsys.readouterr().out


def test_sqlite_whose_latest_state_is_not_its_history_is_found(shop: str) -> None:
    import apsw

    db = apsw.Connection(shop)
    table = db.execute("SELECT table_name FROM type_layout_catalog WHERE type_name = 'Thing'").get
    db.execute(f'DELETE FROM "{table}_superseded" WHERE row_id IN (SELECT row_id FROM "{table}_superseded" LIMIT 1)')
    db.close()
    assert not jobs.verify(shop, parts=PARTS).ok


# convert, export, reindex


@pytest.mark.slow
def test_a_copy_has_the_same_history_whatever_its_engine(shop: str, tmp_path: Path) -> None:
    first = shop
    jobs.migrate(first, [Named], upgraders=[Upgrader(named, "Thing", 1, True)], force=True)
    branched = f"{tmp_path}/branched.db"
    chain = [first, f"file://{tmp_path}/lake", branched, f"{tmp_path}/again.db", f"file://{tmp_path}/old"]
    engines = {branched: "v3", chain[3]: "v2", chain[4]: "v1"}
    for source, target in itertools.pairwise(chain):
        done = jobs.convert(source, target, parts=PARTS, engine_version=engines.get(target))
        assert (done.copied, done.commits) == (5, 5)
        assert everything(target, Named)[0] == everything(first, Named)[0]
        assert jobs.verify(target, parts=PARTS).ok
        assert not Path(f"{target.removeprefix('file://')}-work").exists() or not files(f"{target}-work", "")
    assert jobs.convert(first, chain[1], parts=PARTS).copied == 0
    with Session(branched, entity_types=[Named]) as session:
        session.delete(Named, "t00001", cascade=True)
    with pytest.raises(StorageBackendError, match="has deleted rows of Near, deleted rows of Thing, which"):
        jobs.convert(branched, f"{tmp_path}/lost.db", engine_version="v2", parts=PARTS)
    assert not Path(f"{tmp_path}/lost.db").exists()


@pytest.mark.slow
def test_a_copy_that_was_interrupted_goes_on(shop: str, tmp_path: Path) -> None:
    source, target = shop, f"file://{tmp_path}/copy"
    commits: list[str] = []

    def stop(step: str) -> None:
        if step == "ontology: commit durable":
            commits.append(step)
            if len(commits) == 2:
                raise KeyboardInterrupt

    with faults.arm(stop), pytest.raises(KeyboardInterrupt):
        jobs.convert(source, target, parts=PARTS)
    assert jobs.convert(source, target, parts=PARTS)[:2] == (2, 4)
    assert everything(target) == everything(source)


def test_an_export_has_every_row_of_one_commit(store: str, tmp_path: Path) -> None:
    done = jobs.export(store, f"{tmp_path}/out", parts=PARTS, as_of=1, tables=["Thing"])
    told = json.loads((tmp_path / "out" / "export.json").read_text())
    assert (done.commit, told["commit"], list(done.tables)) == (1, 1, ["entity/Thing"])
    found = pd.dataset(sorted((tmp_path / "out" / "entity" / "Thing").iterdir())).to_table().sort_by("id")
    assert found.column("size").to_pylist() == list(range(ROWS))
    with pytest.raises(AlreadyExists):
        jobs.export(store, f"{tmp_path}/out")
    with pytest.raises(NotFound, match="entity/Nothing"):
        jobs.export(store, f"{tmp_path}/other", tables=["entity/Nothing"])


def test_indices_are_made_anew_where_they_differ(lake: str) -> None:
    jobs.reindex(lake, parts=PARTS)
    assert jobs.reindex(lake, parts=PARTS) == []
    index = Path(lake.removeprefix("file://"), "meta/indices/entities/Thing.json")
    index.write_text("{}")
    assert [tuple(one) for one in jobs.reindex(lake, parts=PARTS)] == [("meta/indices/entities/Thing.json", "behind")]
    assert json.loads(index.read_text())["type_name"] == "Thing"


class Twice(Here):
    """Does every part twice and takes the second result, as where a worker is lost after it was done."""

    def run(self, work: Callable[[Any], Any], items: Any, *, code: Any = ()) -> list[Any]:
        for item in items:
            work(item)
        return super().run(work, items)


@pytest.mark.slow
def test_parts_that_are_done_twice_double_nothing(lake: str, tmp_path: Path) -> None:
    before, twice = everything(lake), Twice(PARTS)
    jobs.compact(lake, spark=twice, rows_per_file=2000)
    assert everything(lake) == before
    jobs.migrate(lake, [Named], spark=twice, upgraders=[Upgrader(named, "Thing", 1, True)], force=True)
    assert everything(lake, Named)[0].num_rows == ROWS
    assert jobs.verify(lake, spark=twice).ok
    done = jobs.export(lake, f"{tmp_path}/out", spark=twice)
    there = {str(file.relative_to(tmp_path / "out")) for file in (tmp_path / "out").glob("**/*.parquet")}
    assert there == {key for one in done.tables.values() for key in one.files}
    copy = f"{tmp_path}/copy.db"
    jobs.convert(lake, copy, spark=twice)
    assert everything(copy, Named)[0] == everything(lake, Named)[0]
    with on_objects(lake, write=True) as repository:  # what the first attempts wrote is garbage, and all that is
        found = garbage(repository, grace=0)
        collect(repository, found.token, grace=0)
    assert found.keys
    assert jobs.verify(lake).ok


# other kinds


@pytest.fixture
def graph(tmp_path: Path) -> str:
    url = f"{tmp_path}/graph/"
    with Graph.init(url, [Thing, Near]) as graph:
        for round in range(3):
            graph.load("node/Thing", [{"id": f"{round}-{n}", "size": n} for n in range(500)])
        graph.delete("node/Thing", ["0-1", "0-2"])
    return url


def test_a_graph_is_compacted_indexed_and_verified(graph: str) -> None:
    assert jobs.compact(graph, dry_run=True)[0].files_before == 3
    done = jobs.compact(graph, types=["Thing"], parts=PARTS)
    assert [(one.type_name, one.files_before, one.files_after, one.rows) for one in done] == [
        ("node/Thing", 3, 1, 1498)]  # fmt: skip
    assert jobs.compact(graph, parts=PARTS) == []
    with Graph.open(graph) as opened:
        for round in range(2):  # big enough not to be small, and still better as one
            opened.load("node/Thing", [{"id": f"big {round}-{n}", "size": n} for n in range(2000)])
        before = opened.snapshot().table("node/Thing").count()
    assert [one.files_after for one in jobs.compact(graph, parts=PARTS)] == [1]
    with Graph.open(graph) as opened:
        assert opened.snapshot().table("node/Thing").count() == before
        opened.delete("node/Thing", [f"big {round}-{n}" for round in range(2) for n in range(2000)])
        opened.index("node/Thing", "size")
    assert ("node/Thing.size", "ok") in [tuple(one) for one in jobs.reindex(graph, parts=PARTS)]
    found = jobs.verify(graph, parts=PARTS)
    assert (found.ok, found.rows) == (True, 1498)
    with Graph.open(graph) as opened:
        assert opened.repair() == []
    for file in Path(graph).glob("nodes/*/data/*.lance"):
        file.write_bytes(b"\0" * file.stat().st_size)
    assert not jobs.verify(graph, parts=PARTS).ok


def test_on_a_branch_of_a_graph_only_its_own_tables_are_touched(graph: str) -> None:
    with Graph.open(graph) as opened:
        opened.branches.create("try")
    assert jobs.compact(graph, branch="try", dry_run=True) == []
    with Graph.open(graph) as opened:
        for round in range(3):
            opened.load("node/Thing", [{"id": f"b{round}-{n}", "size": n} for n in range(100)], branch="try")
    assert [one.rows for one in jobs.compact(graph, branch="try", parts=PARTS)] == [1798]
    assert jobs.reindex(graph, branch="try", parts=PARTS) == []
    assert jobs.compact(graph, dry_run=True)[0].files_before == 3, "main is as it was"
    found = jobs.verify(graph, parts=PARTS)
    assert (found.ok, found.rows) == (True, 1498 + 1798)
    with Graph.open(graph) as opened:
        opened.merge("try")
        assert opened.snapshot().table("node/Thing").count() == 1798
        assert opened.repair() == []


def test_documents_and_sql_tables_are_verified_and_exported(tmp_path: Path) -> None:
    with open_space(f"{tmp_path}/", "orders") as space:
        space.transact("s", 1, [Set(f"o{n:03}", {"value": n}) for n in range(50)])
    with open_database(f"{tmp_path}/sql.db") as database:
        database.execute("CREATE TABLE t (id INT PRIMARY KEY, name TEXT)")
        database.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    for name, table, rows in (("orders.sqlite", "documents", 50), ("sql.db", "main.public.t", 2)):
        url = f"{tmp_path}/{name}"
        found = jobs.verify(url, parts=PARTS)
        assert (found.ok, found.rows) == (True, rows)
        exported = jobs.export(url, f"{url}-out", parts=PARTS)
        assert {name: one.rows for name, one in exported.tables.items()} == {table: rows}


@pytest.mark.parametrize(("verb", "told"), [
    (jobs.compact, "a typed store on objects and for a graph"), (jobs.reindex, "SQLite keeps its indexes"),
    (lambda url: jobs.migrate(url, [Thing]), "documents have no types"),
    (lambda url: jobs.convert(url, f"{url}-copy"), "copy the file of the space")])  # fmt: skip
def test_a_verb_that_makes_no_sense_says_what_does(tmp_path: Path, verb: Callable[[str], Any], told: str) -> None:
    with open_space(f"{tmp_path}/", "orders") as space:
        space.transact("s", 1, [Set("o", {"value": 1})])
    with pytest.raises(JobError, match="a space of documents") as error:
        verb(f"{tmp_path}/orders.sqlite")
    assert told in str(error.value.hint)


def test_what_is_not_there_is_named(tmp_path: Path, lake: str) -> None:
    with pytest.raises(NotFound):
        jobs.verify(f"{tmp_path}/nothing.db")
    with pytest.raises(QueryError, match="Nothing"):
        jobs.compact(lake, types=["Nothing"])
