"""Typed stores with branches for parallel readers and writers: every commit, tag and time, and deletions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from branched_history import FITS, PARTS, TYPES, BranchedHistory, Fits, Part, written

from ontolake.errors import Conflict, Invalid
from ontolake.history import ProtectedBranchError, UnknownBranchError
from ontolake.history import UnknownCommitError as NotOnBranchError
from ontolake.ontology import LayoutLacksError, LiveRelationsError, Session, UnknownCommitError
from ontolake.parallel import IrremovableError, Mode, Parallel, Removal, open_parallel, stage
from ontolake.sql import open_database

PLACES = {"sqlite": "{}/parts.db", "objects": "file://{}/parts"}


@pytest.fixture(scope="module", params=PLACES.values(), ids=PLACES)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> BranchedHistory:
    return written(request.param.format(tmp_path_factory.mktemp("branched")))


@pytest.fixture(params=PLACES.values(), ids=PLACES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param.format(tmp_path))


def rows(opened: Parallel, table: str, *, as_of: Any = None, mode: Mode = "latest", since: Any = None
         ) -> list[dict[str, Any]]:  # fmt: skip
    view = opened.view(as_of=as_of, mode=mode, since=since)
    batches = [batch for split in opened.splits(table, view, parts=1) for batch in split.read()]
    assert all(batch.schema.names == opened.schema(table, mode, view).names for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def read(url: str, table: str, *, branch: str | None = None, **asked: Any) -> list[dict[str, Any]]:
    with open_parallel(url, branch=branch, types=TYPES) as opened:
        return rows(opened, table, **asked)


def state(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The size of each part, or the grip of each pair."""
    shown = {row["id"] if "id" in row else f"{row['left_key']}-{row['right_key']}":
             row["size"] if "id" in row else row["grip"] for row in found}
    assert len(shown) == len(found), "no key twice"
    return shown


def test_every_commit_of_every_branch_is_read_from_any_branch(store: BranchedHistory) -> None:
    for branch in store.lines:
        with open_parallel(store.url, branch=branch, types=TYPES) as opened:
            assert state(rows(opened, PARTS)) == store.states[store.head(branch)][PARTS]
            for commit, wanted in store.states.items():
                for table in (PARTS, FITS):
                    assert state(rows(opened, table, as_of=commit)) == wanted[table], (branch, commit)


def test_tags_times_and_references_name_a_commit(store: BranchedHistory) -> None:
    early = store.tags["early"]
    moment = store.times[early]
    for ref in ("early", f"@{early}", f"main@{early}", moment.isoformat(), f"@{moment.isoformat()}"):
        assert state(read(store.url, PARTS, as_of=ref)) == store.states[early][PARTS], ref
    assert state(read(store.url, PARTS, as_of="try")) == store.states[store.head("try")][PARTS]
    assert state(read(store.url, PARTS, branch="deep", as_of="deep~1")) == store.states[store.lines["deep"][-2]][PARTS]


def test_changes_and_histories_are_those_of_the_branch_with_their_deletions(store: BranchedHistory) -> None:
    for branch, line in store.lines.items():
        for since in (0, *line):
            found = read(store.url, PARTS, branch=branch, mode="changes", since=since)
            wanted = {(commit, key, kind) for commit in line if commit > since
                      for key, kind in store.changes[commit].items()}
            assert sorted((row["commit_id"], row["id"], row["change"]) for row in found) == sorted(wanted)
        history = read(store.url, PARTS, branch=branch, mode="history")
        assert {(row["commit_id"], row["id"], row["deleted"]) for row in history} == {
            (commit, key, kind == "delete") for commit in line for key, kind in store.changes[commit].items()}
        assert len(history) == sum(len(store.changes[commit]) for commit in line)


def test_a_number_between_two_commits_of_a_branch_means_the_earlier(store: BranchedHistory) -> None:
    line = store.lines["try"]
    between = next(commit for commit in store.states if commit not in line and line[0] < commit < line[-1])
    found = read(store.url, PARTS, branch="try", mode="changes", since=between)
    assert {row["commit_id"] for row in found} == {commit for commit in line if commit > between}
    with open_parallel(store.url, branch="try") as opened:
        assert opened.view(as_of=between, mode="changes").commit == max(one for one in line if one < between)


def test_what_is_not_there_is_refused(store: BranchedHistory) -> None:
    with pytest.raises(UnknownBranchError, match="'nowhere'"):
        read(store.url, PARTS, branch="nowhere")
    with open_parallel(store.url, branch="try", types=TYPES) as opened:
        for ref, error in ((999, UnknownCommitError), (-1, UnknownCommitError), ("no-such-tag", UnknownBranchError),
                           ("1999-01-01", NotOnBranchError), ("try~99", NotOnBranchError), (True, Invalid)):
            with pytest.raises(error):
                opened.view(as_of=ref)
        with pytest.raises(NotOnBranchError, match="on branch 'try'"):
            opened.view(mode="changes", since="early")


def test_what_is_published_goes_to_the_branch_and_not_to_a_protected_one(url: str) -> None:
    made = BranchedHistory(url)
    made.commit("main", {"a": 1})
    made.branch("try")
    made.branch("kept")
    with made.session() as session:
        session.branches.protect("kept")
    fragment = stage(made.url, PARTS, pa.table({"id": ["a", "b"], "size": [2, 3]}).to_batches(), job="test")
    assert fragment is not None
    with open_parallel(made.url, branch="try", write=True, types=TYPES) as opened:
        first = opened.head()
        done = opened.publish([fragment], expected=first)
        assert done.commit is not None
        with pytest.raises(Conflict, match="came after"):
            opened.publish([fragment], expected=first)
    assert state(read(made.url, PARTS, branch="try")) == {"a": 2, "b": 3}
    assert state(read(made.url, PARTS)) == {"a": 1}
    with open_parallel(made.url, branch="kept", write=True, types=TYPES) as opened, \
            pytest.raises(ProtectedBranchError, match="'kept' is protected"):  # fmt: skip
        opened.publish([fragment])
    assert state(read(made.url, PARTS, branch="kept")) == {"a": 1}


@pytest.mark.parametrize("branch", ["main", "try"])
def test_what_is_to_go_goes_in_the_commit_that_writes_the_rest(url: str, branch: str) -> None:
    made = BranchedHistory(url)
    made.commit("main", {"a": 1, "b": 2, "c": 3, "d": 4}, {"a-b": 1, "c-d": 2})
    made.branch("try")
    sizes = stage(made.url, PARTS, pa.table({"id": ["d", "e"], "size": [40, 5]}).to_batches(), job="test")
    gone = stage(made.url, f"vanished/{PARTS}", pa.table({"id": ["a", "missing"]}).to_batches(), job="test")
    pairs = pa.table({"left_key": ["a"], "right_key": ["b"]})
    ends = stage(made.url, f"vanished/{FITS}", pairs.to_batches(), job="test")
    assert sizes is not None
    assert gone is not None
    assert ends is not None
    before = state(read(made.url, PARTS)), state(read(made.url, FITS))
    with open_parallel(made.url, branch=branch, write=True, types=TYPES) as opened:
        opened.check_removable()
        with pytest.raises(LiveRelationsError, match=r"Fits \('a', 'b'\)"):
            opened.publish([sizes], removals={PARTS: Removal([gone])})
        assert (state(rows(opened, PARTS)), state(rows(opened, FITS))) == before, "nothing was published"
        done = opened.publish([sizes], removals={PARTS: Removal([gone]), FITS: Removal([ends])}, metadata={"run": "r"})
        assert (done.commit, done.written, done.deleted) == (2, {PARTS: 2}, {FITS: 1, PARTS: 1})
        assert next(opened.commits()).metadata == {"run": "r", "deleted": {FITS: 1, PARTS: 1}}
        assert state(rows(opened, PARTS)) == {"b": 2, "c": 3, "d": 40, "e": 5}
        assert state(rows(opened, FITS)) == {"c-d": 2}
        again = opened.publish([], removals={PARTS: Removal([gone])})
        assert again.commit is None, "what is not there is no change"
        more = stage(made.url, f"vanished/{PARTS}", pa.table({"id": ["c"]}).to_batches(), job="test")
        assert more is not None
        assert opened.publish([], removals={PARTS: Removal([more], cascade=True)}).deleted == {FITS: 1, PARTS: 1}
        assert (state(rows(opened, PARTS)), state(rows(opened, FITS))) == ({"b": 2, "d": 40, "e": 5}, {})
    if branch == "try":
        assert (state(read(made.url, PARTS)), state(read(made.url, FITS))) == before, "the other branch is as it was"


def test_stores_that_cannot_delete_say_so(tmp_path: Path) -> None:
    with Session(f"{tmp_path}/old.db", entity_types=[Part], relation_types=[Fits], engine_version="v2") as session:
        session.ensure(Part(id="a", size=1))
    gone = stage(f"{tmp_path}/old.db", f"vanished/{PARTS}", pa.table({"id": ["a"]}).to_batches(), job="test")
    assert gone is not None
    with open_parallel(f"{tmp_path}/old.db", write=True) as opened:
        with pytest.raises(LayoutLacksError, match="keeps no deletions") as caught:
            opened.publish([], removals={PARTS: Removal([gone])})
        assert "onto convert" in str(caught.value.hint)
    assert state(read(f"{tmp_path}/old.db", PARTS)) == {"a": 1}
    with open_database(f"{tmp_path}/tables.db") as database:
        database.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    with open_parallel(f"{tmp_path}/tables.db", write=True) as opened, \
            pytest.raises(IrremovableError, match="rows of SQL tables cannot be deleted by publishing"):  # fmt: skip
        opened.publish([], removals={"main.public.t": Removal([gone])})
