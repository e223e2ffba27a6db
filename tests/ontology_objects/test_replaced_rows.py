"""Runs say which rows of older runs they replace: reads trust that, and compare keys only where a file does not."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ontolake.model import Entity, Field
from ontolake.ontology import Session
from ontolake.ontology.arrow import physical
from ontolake.ontology.arrow.physical import ROW
from ontolake.ontology.repository.objects.layout import DataFile
from ontolake.ontology.repository.objects.read import scan
from ontolake.ontology.repository.objects.read.scan import without
from ontolake.ontology.repository.objects.upkeep import maintenance
from ontolake.ontology.repository.objects.upkeep.links import check_links
from ontolake.ontology.sizes import Sizes
from ontolake.ontology.verification import verify
from ontolake.spark import jobs

GOLDEN = Path(__file__).parent / "golden" / "replaced_rows_v3.zip"

LOW = Sizes(fan=3, most_runs=5, level_rows=4, merged_rows=60, part_rows=8, group_rows=2, small_rows=3, kept_groups=2)


class Part(Entity):
    id: Field[str] = Field(primary_key=True)
    n: Field[int]
    text: Field[str | None] = Field(default=None)


class Place(Entity):
    """Two keys, so that keys are compared as pairs."""

    row: Field[int] = Field(primary_key=True)
    column: Field[str] = Field(primary_key=True)
    n: Field[int]


State = dict[str, int]


def opened(folder: Path, branch: str = "main", sizes: Sizes = LOW) -> Session:
    return Session(folder.as_uri(), entity_types=[Part, Place], branch=branch, config={"sizes": sizes})


def runs(session: Session, name: str = "Part") -> tuple[DataFile, ...]:
    repository: Any = session.repository
    state = repository.moment().state("entity", name)
    return () if state is None else state.runs


def shown(session: Session, at: Any = None) -> State:
    query = session.query().entities(Part)
    table = (query if at is None else query.as_of(at)).to_arrow()
    found = dict(zip(table.column("id").to_pylist(), table.column("n").to_pylist(), strict=True))
    assert len(found) == len(table)
    return found


def places(session: Session) -> State:
    found = session.query().entities(Place).to_arrow().to_pylist()
    assert len({(one["row"], one["column"]) for one in found}) == len(found)
    return {f"{one['row']}/{one['column']}": one["n"] for one in found}


@given(st.lists(st.integers(0, 60), unique=True, max_size=40), st.lists(st.integers(0, 60), max_size=30), st.booleans())
def test_rows_with_certain_numbers_are_left_out(rows: list[int], gone: list[int], ordered: bool) -> None:
    rows = sorted(rows) if ordered else rows
    table = pa.table({ROW: pa.array(rows, pa.int64()), "value": pa.array([row * 2 for row in rows], pa.int64())})
    before, scan._LONG = scan._LONG, 4  # so that pieces of tables this short are worth slices
    try:
        found = without(table, np.array(gone, np.int64))
    finally:
        scan._LONG = before
    assert found.column(ROW).to_pylist() == [row for row in rows if row not in gone]
    assert found.column("value").to_pylist() == [row * 2 for row in rows if row not in gone]


class History:
    """A store beside dictionaries: the state of each branch, and that of each commit."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self.chance = folder, chance
        self.now: dict[str, State] = {"main": {}}
        self.at: dict[int, State] = {}
        self.pairs: dict[str, State] = {"main": {}}

    def play(self, steps: int) -> None:
        for number in range(steps):
            branch = self.chance.choice([*self.now])
            with opened(self.folder, branch) as session:
                self._step(session, branch, number)
            if number % 5 == 0:
                self.check()
                with opened(self.folder) as session:
                    assert list(check_links(session.repository)) == []  # type: ignore[arg-type]
        self.check()

    def _step(self, session: Session, branch: str, number: int) -> None:
        state, chance = self.now[branch], self.chance
        kind = chance.choices(["ensure", "delete", "both", "branch", "merge", "erase", "compact", "gc"],
                              [10, 3, 3, 1, 1, 1, 1, 1])[0]
        if kind in ("ensure", "both"):
            rows = {f"k{chance.randrange(40):02}": number * 100 + n for n in range(chance.choice([1, 2, 5, 20]))}
            session.ensure(Part(id=key, n=n, text="x" * (n % 3) or None) for key, n in rows.items())
            pair = {f"{n % 4}/{chance.choice('ab')}": number * 10 + n for n in range(chance.randrange(4))}
            session.ensure(Place(row=int(key[0]), column=key[2], n=n) for key, n in pair.items())
            gone = [key for key in state if key not in rows][: chance.randrange(1, 6)] if kind == "both" else []
            for key in gone:
                session.delete(Part, key)
            self.now[branch] = {key: n for key, n in {**state, **rows}.items() if key not in gone}
            self.pairs[branch] = {**self.pairs[branch], **pair}
        elif kind == "delete":
            gone = chance.sample(sorted(state), min(len(state), chance.randrange(1, 8)))
            for key in gone:
                session.delete(Part, key)
            self.now[branch] = {key: n for key, n in state.items() if key not in gone}
        elif kind == "branch" and len(self.now) < 4 and session.list_commits():
            session.branches.create(name := f"b{number}")
            self.now[name], self.pairs[name] = dict(state), dict(self.pairs[branch])
        elif kind == "merge" and branch != "main":
            result = session.merge("main", into=branch, strategy="ours")
            if result.commit is not None:
                # What a merge does is tested elsewhere. Looking up a key follows no links.
                known = {f"k{n:02}": session.get(Part, f"k{n:02}") for n in range(40)}
                self.now[branch] = {key: one.n for key, one in known.items() if one is not None}
                self.pairs[branch] = places(session)
        elif kind == "erase" and state:
            self._erase(session, chance.choice(sorted(state)))
        elif kind == "compact":
            maintenance.compact(session.repository, dry_run=False)  # type: ignore[arg-type]
        elif kind == "gc":
            repository: Any = session.repository
            maintenance.collect(repository, maintenance.garbage(repository, grace=0).token, grace=0)
        commit = session.commit()
        if commit is not None:
            self.at[commit] = dict(self.now[branch])

    def _erase(self, session: Session, key: str) -> None:
        session.erase(Part, key, "asked for", dry_run=False)
        for states in (self.now, self.at):
            for one in states.values():
                one.pop(key, None)

    def check(self) -> None:
        for branch, state in self.now.items():
            with opened(self.folder, branch) as session:
                assert shown(session) == state
                assert places(session) == self.pairs[branch]
                some = {key: n for key, n in state.items() if n % 2}
                assert {one.id: one.n for one in session.query().entities(Part).collect() if one.n % 2} == some
                low = self.chance.randrange(3000)
                found = session.query().entities(Part).where(Part.n >= low).collect()
                assert {one.id: one.n for one in found} == {key: n for key, n in state.items() if n >= low}
                key = self.chance.choice([*state, "k99"])
                one = session.get(Part, key)
                assert (None if one is None else one.n) == state.get(key)
        with opened(self.folder) as session:
            for commit in self.chance.sample(sorted(self.at), min(5, len(self.at))):
                assert shown(session, commit) == self.at[commit]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_history_reads_as_dictionaries_say(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path / "store", random.Random(seed))
    history.play(20)
    with opened(tmp_path / "store") as session:
        assert list(verify(session.repository)) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 12))
def test_a_long_history_does_too(tmp_path: Path, seed: int) -> None:
    History(tmp_path / "store", random.Random(seed)).play(70)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_files_of_an_earlier_release_and_new_ones_are_read_together(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path / "store", random.Random(100 + seed))
    for _ in range(4):
        history.play(10)
        forget_links(tmp_path / "store", history.chance)
        history.check()


def forget_links(folder: Path, chance: random.Random) -> None:
    """Make about half of the runs such that nothing is said of what they replace."""
    runs: dict[str, bool] = {}
    for path in folder.glob("commits/*/manifest.json"):
        manifest = json.loads(path.read_bytes())
        for state in manifest["states"].values():
            for file in state["runs"]:
                if "replaces" in file and runs.setdefault(file["path"], chance.random() < 0.5):
                    del file["replaces"]
        path.write_text(json.dumps(manifest))
    assert runs


def test_runs_of_commits_and_merged_ones_say_what_they_replace(tmp_path: Path) -> None:
    with opened(tmp_path / "store", sizes=Sizes(fan=3, level_rows=10, part_rows=50, small_rows=4)) as session:
        session.ensure(Part(id=f"k{n:03}", n=n) for n in range(100))
        session.commit()
        for step in range(3):
            session.ensure(Part(id=f"k{n:03}", n=1000 + step) for n in (step, step + 1, 200 + step))
            session.delete(Part, f"k{90 + step:03}")
            session.commit()
        first, second, merged = runs(session)
        assert (first.replaces, second.replaces, first.updates) == (False, False, 0)
        # k000 to k003 and the three that end; k200 to k202 are new, and k001, k002 replaced rows of the merged runs too
        assert (merged.replaces, merged.row_count, merged.updates) == (True, 10, 7)
        repository: Any = session.repository
        table = repository.files.table(merged).to_pydict()
        assert dict(zip(table["entity_key"], table["$replaces"], strict=True)) == {
            **{f"k{n:03}": n + 1 for n in (0, 1, 2, 3, 90, 91, 92)}, **{f"k{n}": None for n in (200, 201, 202)}}
        assert all("$replaces" not in repository.files.table(file).column_names for file in (first, second))


def test_a_scan_after_an_update_compares_no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path / "store", sizes=Sizes(small_rows=10)) as session:
        session.ensure(Part(id=f"k{n:03}", n=n) for n in range(100))
        session.commit()
        session.ensure(Part(id=f"k{n:03}", n=-1) for n in range(20, 60))
        session.delete(Part, "k099")
        session.commit()
        compared: list[int] = []

        def counted(info: Any, table: pa.Table) -> pa.Array:
            compared.append(len(table))
            return physical.key_texts(info, table)

        monkeypatch.setattr(scan, "key_texts", counted)
        assert shown(session) == {f"k{n:03}": -1 if 20 <= n < 60 else n for n in range(99)}
        assert shown(session, 1) == {f"k{n:03}": n for n in range(100)}
        assert compared == []


def test_a_store_of_an_earlier_engine_writes_no_such_column(tmp_path: Path) -> None:
    with Session((tmp_path / "store").as_uri(), entity_types=[Part], engine_version="v2") as session:
        for step in range(2):
            session.ensure(Part(id=f"k{n}", n=n + step) for n in range(3))
            session.commit()
        repository: Any = session.repository
        for file in runs(session):
            assert not file.replaces
            assert "$replaces" not in repository.files.table(file).column_names


def test_a_store_that_was_made_with_the_first_release_of_the_column_reads_and_goes_on(tmp_path: Path) -> None:
    with ZipFile(GOLDEN) as packed:
        packed.extractall(tmp_path / "store")
    first = {f"k{n:02}": n for n in range(20)}
    second = {**first, "k00": 100, "k01": 100, "k30": 100}
    del second["k15"]
    fifth = {**second, "k01": 101, "k02": 102, "k03": 102, "k31": 101, "k32": 102, "k15": 200, "k05": 201}
    del fifth["k16"], fifth["k17"]
    sixth = {key: n for key, n in fifth.items() if key != "k06"}
    pairs = {f"{n}/{column}": n for n in range(3) for column in "ab" if (n, column) != (2, "b")} | {"1/a": 50}
    with opened(tmp_path / "store") as session:
        assert [(file.replaces, file.updates) for file in runs(session)] == [
            (False, 0), (True, 7), (True, 1), (True, 1)]  # fmt: skip
        assert [shown(session, at) for at in (None, 1, 2, 5, 6)] == [sixth, first, second, fifth, sixth]
        assert places(session) == pairs
        assert list(verify(session.repository)) == []
        session.ensure([Part(id="k00", n=300), Part(id="k06", n=301)])
        session.delete(Part, "k15")
        assert session.commit() == 7
        sixth |= {"k00": 300, "k06": 301}
        del sixth["k15"]
        assert shown(session) == sixth
        maintenance.compact(session.repository, dry_run=False)  # type: ignore[arg-type]
        assert [shown(session, at) for at in (None, 1, 2, 5)] == [sixth, first, second, fifth]
        assert list(verify(session.repository)) == []


@pytest.mark.parametrize(("key", "number", "problem"), [
    ("k003", 99, "1 rows do not name the row that they replace: that of 'k003' names row 99, and replaces row 4"),
    ("k003", 5, "names row 5, and replaces row 4"),
    ("k003", None, "names no row, and replaces row 4"),
    ("k200", 1, "that of 'k200' names row 1, and replaces no row"),
])  # fmt: skip
def test_verify_finds_a_wrong_number(tmp_path: Path, key: str, number: int | None, problem: str) -> None:
    with opened(tmp_path / "store", sizes=Sizes()) as session:
        session.ensure(Part(id=f"k{n:03}", n=n) for n in range(10))
        session.commit()
        session.ensure([Part(id="k003", n=-1), Part(id="k007", n=-1), Part(id="k200", n=-1)])
        session.commit()
        assert list(verify(session.repository)) == []
        _, newest = runs(session)
    misname(tmp_path / "store", newest, key, number)
    with opened(tmp_path / "store", sizes=Sizes()) as session:
        assert [one.id for one in session.query().entities(Part).collect()].count("k003") == (1 if key == "k200" else 2)
        [found] = verify(session.repository)
        assert (found.where, problem in found.what) == (newest.path, True), found
    looked = jobs.verify((tmp_path / "store").as_uri(), parts=2)
    assert [(one.where, problem in one.what) for one in looked.damage] == [(newest.path, True)]


def test_verify_finds_a_column_that_is_missing_and_rows_that_are_said_to_be_new(tmp_path: Path) -> None:
    with opened(tmp_path / "store", sizes=Sizes()) as session:
        for step in range(2):
            session.ensure(Part(id=f"k{n}", n=n + step) for n in range(3))
            session.commit()
        _, newest = runs(session)
    misname(tmp_path / "store", newest)
    with opened(tmp_path / "store", sizes=Sizes()) as session:
        [found] = verify(session.repository)
        assert found == (newest.path, "it has no column $replaces, and the manifest says it has")
    amend(tmp_path / "store", newest.path, updates=0, replaces=False)
    with opened(tmp_path / "store", sizes=Sizes()) as session:
        [found] = verify(session.repository)
        assert "3 rows do not name the row that they replace: that of 'k0' names no row" in found.what


def misname(folder: Path, file: DataFile, key: str | None = None, number: int | None = None) -> None:
    """Give a row another number of what it replaces, or without a key take the column away; the rest fits together."""
    table = pq.read_table(folder / file.path)
    if key is None:
        table = table.drop_columns(["$replaces"])
    else:
        rows = [number if one == key else row
                for one, row in zip(table["entity_key"].to_pylist(), table["$replaces"].to_pylist(), strict=True)]
        table = table.set_column(table.column_names.index("$replaces"), "$replaces", pa.array(rows, pa.int64()))
    pq.write_table(table, folder / file.path)
    data = (folder / file.path).read_bytes()
    amend(folder, file.path, content_sha256=hashlib.sha256(data).hexdigest(), size=len(data))


def amend(folder: Path, path: str, **values: Any) -> None:
    """Have manifests say something else of a file."""
    for manifest in folder.glob("commits/*/manifest.json"):
        said = json.loads(manifest.read_bytes())
        files = [*said["files"], *(file for state in said["states"].values() for file in state["runs"])]
        for file in files:
            if file["path"] == path:
                file |= values
        manifest.write_text(json.dumps(said))
