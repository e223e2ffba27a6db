"""An erased row is gone from every commit, branch and file; all other rows are where they were, in every commit."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from graph_erasures import (
    KEY,
    MARKER,
    PEOPLE,
    REASON,
    Friend,
    Person,
    bytes_with,
    live,
    person,
    secret,
    states,
    traces,
)
from graph_scenarios import abandon
from graph_support import entity, start

from ontolake import faults
from ontolake.errors import Invalid, NotFound
from ontolake.graph import ExpectedVersionMismatch, Graph, PublishContendedError, UnknownTableError
from ontolake.graph.commit.sidecars import Sidecar, TableMove
from ontolake.graph.errors import DamagedGraphError, ErasureError, ReadOnlyGraphError, RowError
from ontolake.graph.tables.row_files import TableFiles
from ontolake.graph.upkeep import erasure
from ontolake.history.contention import Pace
from ontolake.history.erasures import KeyHash
from ontolake.history.metadata import ERASED, KIND
from ontolake.lance_versions import VersionFile, decode, encode


def erase(graph: Graph, table: Any = Person, key: Any = KEY, **options: Any) -> Any:
    return graph.erase(table, key, reason=REASON, dry_run=False, **options)


@pytest.fixture
def people(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(f"{tmp_path}/people/", PEOPLE) as graph:
        yield graph


def files_of(graph: Graph, table: str = "node:Person") -> TableFiles:
    return TableFiles(graph.parts.place, graph.types()[table].location)


def rows(graph: Graph, ref: str = "main") -> dict[Any, Any]:
    return dict(graph.snapshot(branch=ref).rows("Person"))


# Nothing is left of it, and nothing else is lost


@pytest.mark.slow
def test_every_commit_stays_and_shows_all_but_the_row(people: Graph) -> None:
    live(people)
    expected, before = states(people, without=KEY), {commit.id: commit for commit in people.commits()}
    assert any(KEY in one["node/Person"] for one in states(people).values())
    counted = people.erase(Person, KEY, reason=REASON)
    assert counted.items >= 3
    assert counted.bytes > 3 * len(KEY)
    assert len(traces(people.url)) > 10, "a dry run changes nothing"
    assert erase(people) == counted
    assert traces(people.url) == []
    found = states(people)
    assert {id: found[id] for id in expected} == expected
    assert {commit.id: commit for commit in people.commits() if commit.id in before} == before
    with Graph.open(people.url) as again:
        assert again.recovered == []
        found = states(again)
        assert {id: found[id] for id in expected} == expected
        assert list(again.verify()) == []
        assert not list(again.history(Person, KEY))
        heads = [again.snapshot(branch=branch.name) for branch in again.branches.list()]
        for shown in (*heads, *(again.snapshot(tag.commit) for tag in again.tags.list())):
            assert len(shown.table(Person)) == len(dict(shown.rows("Person")))
            assert shown.table(Person).get(KEY) is None


@pytest.mark.slow
def test_indexes_of_heads_are_made_anew(people: Graph) -> None:
    live(people)
    erase(people)
    for branch in ("main", "work", "deep", "quiet"):
        found = people.snapshot(branch=branch)
        names = {index.name for index in found.table(Person).dataset.describe_indices()}
        assert {"text_idx", "near_idx", "id_idx"} <= names, branch
        assert found.search(Person, text="somebody", limit=3).num_rows == 3
        assert found.search(Person, text=MARKER).num_rows == 0
        assert found.search(Person, vector=[0.0] * 4, column="near", limit=3).num_rows == 3
    assert people.snapshot().search(Person, text="changed").column("id").to_pylist() == ["p5"]


def test_columns_that_came_later_lose_their_part_of_the_row(people: Graph) -> None:
    people.load(Person, [secret(1), person("a")])
    optional = {"default": None}
    wider = entity("Person", str, text=(str | None, optional), age=(int | None, optional), more=(str | None, optional))
    narrow = entity("Person", str, age=(int | None, optional), more=(str | None, optional))
    relation = people.types()["edge:Friend"]
    people.schema_apply(people.schema_plan([wider, relation]))
    people.load("Person", [{"id": KEY, "text": MARKER, "more": f"{MARKER} more"}, {"id": "b", "more": "b"}])
    people.schema_apply(people.schema_plan([narrow, relation]))
    expected = states(people, without=KEY)
    erase(people, "Person")
    assert traces(people.url) == []
    found = states(people)
    assert {id: found[id] for id in expected} == expected
    assert list(people.verify()) == []


def test_a_row_that_was_only_on_a_deleted_branch_or_never_published_is_erased(people: Graph) -> None:
    people.load(Person, [person("a")])
    people.branches.create("try")
    people.load(Person, [secret(1)], branch="try")
    people.merge("try")
    people.delete(Person, [KEY])
    people.branches.delete("try")
    abandon(people, lambda: people.load(Person, [secret(2)]))
    expected = states(people, without=KEY)
    erase(people)
    assert traces(people.url) == []
    with Graph.open(people.url) as again:
        found = states(again)
        assert {id: found[id] for id in expected} == expected
        assert list(rows(again)) == ["a"]
        assert list(again.verify()) == []


@pytest.mark.parametrize("unfinished", [False, True])
def test_files_that_no_version_has_are_looked_into(people: Graph, unfinished: bool) -> None:
    """A writer that died before its table moved has left them."""
    people.load(Person, [secret(1), person("a")])
    (stored,) = files_of(people).data.values()
    place, folder = people.parts.place, stored.key.rpartition("/")[0]
    data = place.store.get(stored.key).data
    place.store.put(f"{folder}/left.lance", data[: len(data) // 2] if unfinished else data)
    people.delete(Person, [KEY])
    people.optimize()
    people.cleanup(keep=timedelta(0), keep_commits=1, dry_run=False)
    if unfinished:
        people.load(Person, [secret(2)])
    head = people.snapshot().commit
    erase(people)
    assert traces(people.url) == []
    assert "left.lance" not in files_of(people).data
    assert list(rows(people)) == ["a"]
    assert people.snapshot().commit != head


@pytest.mark.slow
def test_a_row_that_comes_back_has_no_past_and_can_be_erased_again(people: Graph) -> None:
    live(people)
    erase(people)
    people.load(Person, [secret(9)])
    assert [version.row["age"] for version in people.history(Person, KEY) if version.row] == [1009]
    people.load(Person, [secret(10)], mode="merge")
    erase(people)
    assert traces(people.url) == []
    with pytest.raises(NotFound):
        erase(people)


# What goes on afterwards


@pytest.mark.slow
def test_merges_do_not_bring_it_back(people: Graph) -> None:
    live(people)
    erase(people)
    people.load(Person, [person("p6", "theirs")], branch="work")
    for branch in ("work", "deep", "quiet", "still"):
        people.merge(branch)
        assert KEY not in rows(people)
    assert rows(people)["p6"]["text"] == "theirs"
    assert {"w1", "d1", "m1"} <= rows(people).keys()
    people.merge("main", "quiet")
    assert rows(people, "quiet") == rows(people)
    assert traces(people.url) == []
    assert list(people.verify()) == []


@pytest.mark.slow
def test_upkeep_cleanup_and_branches_of_the_past_work_as_before(people: Graph) -> None:
    live(people)
    erase(people)
    early = people.tags.get("early")
    assert early is not None
    expected = dict(people.snapshot(early).rows("Person"))
    people.branches.create("again", at=early)
    assert rows(people, "again") == expected
    assert list(people.verify()) == []
    people.load(Person, [person("new")], branch="again")
    for branch in people.branches.list():
        people.optimize(branch=branch.name)
    people.gc(dry_run=False)
    people.cleanup(keep=timedelta(0), keep_commits=1, dry_run=False)
    assert dict(people.snapshot(early).rows("Person")) == expected
    assert rows(people, "again").keys() == {*expected, "new"}
    people.restore("early")
    assert rows(people) == expected
    assert list(people.verify()) == []
    assert people.repair() == []
    assert traces(people.url) == []


def test_verification_still_counts_rows(people: Graph) -> None:
    """A row that an erasure took may be missing from a commit that counted it, and no other."""
    people.load(Person, [secret(1), person("a"), person("b")])
    first = people.snapshot().commit
    people.load(Person, [person("c")])
    erase(people)
    people.branches.create("again", at=first)
    assert list(people.verify()) == []
    files = files_of(people)
    state = people.parts.state("again")
    where = (state.pins["node:Person"].branch, state.pins["node:Person"].version)
    version = files.versions[where]
    (fragment,) = version.fragments
    people.parts.place.store.put(files.version_keys[where], version.rewritten({}, {fragment.id: None}, ()))
    people.parts.tables.renew()
    assert [damage.where for damage in people.verify()] == ["node/Person@again"]


@pytest.mark.slow
def test_a_handle_that_was_open_reads_on(people: Graph) -> None:
    live(people)
    with Graph.open(people.url) as other:
        early = other.tags.get("early")
        before = dict(other.snapshot(early).rows("Person"))
        assert KEY in before
        assert rows(other)
        erase(people)
        assert KEY not in rows(other)
        other.load(Person, [person("mine")])
        assert "mine" in rows(people)
        with suppress(DamagedGraphError):  # it has read files that are gone; from now on it knows
            dict(other.snapshot(early).rows("Person"))
        found = dict(other.snapshot(early).rows("Person"))
        assert found == {key: row for key, row in before.items() if key != KEY}


@pytest.mark.slow
def test_a_copy_is_cleared_without_the_original(people: Graph, tmp_path: Path) -> None:
    live(people)
    expected = states(people, without=KEY)
    shutil.copytree(people.url, tmp_path / "copy")
    with Graph.open(f"{tmp_path}/copy/") as copy:
        erase(copy)
        found = states(copy)
        assert {id: found[id] for id in expected} == expected
        assert bytes_with(copy.url, KEY, MARKER) == []
    assert rows(people)[KEY]["text"] == f"{MARKER} 3"


# Edges


def test_edges_keep_a_node_until_they_are_erased(people: Graph) -> None:
    people.load(Person, [secret(1), person("a"), person("b")])
    people.load(Friend, [{"left_key": KEY, "right_key": "a", "since": 1}, {"left_key": "b", "right_key": KEY},
                         {"left_key": "a", "right_key": "b"}])  # fmt: skip
    people.delete(Friend, [("b", KEY)])
    for dry_run in (True, False):
        with pytest.raises(ErasureError) as caught:
            people.erase(Person, KEY, reason=REASON, dry_run=dry_run)
        assert f"({KEY!r}, 'a')" in str(caught.value)
        assert f"('b', {KEY!r})" in str(caught.value), "a deleted edge is still stored"
        assert "('a', 'b')" not in str(caught.value)
    assert erase(people, Friend, (KEY, "a")).items == 1
    assert erase(people, "edge/Friend", ("b", KEY)).items == 1
    assert dict(people.snapshot().rows("Friend")).keys() == {("a", "b")}
    assert erase(people).items == 1
    assert bytes_with(people.url, KEY, MARKER) == []
    assert list(people.verify()) == []


# What it reads


def test_only_files_that_can_hold_the_key_are_read(people: Graph) -> None:
    for first in range(0, 60, 10):
        people.load(Person, [person(f"p{first + number}") for number in range(10)])
    people.load(Person, [secret(1), person("beside")])
    found = erasure.GraphErasure(people.parts, Person, KEY)
    found.count()
    assert len(found.read) == 7, "without an index, the keys of every file"
    people.index(Person, "id")
    people.load(Person, [person("after")])
    found = erasure.GraphErasure(people.parts, Person, KEY)
    found.count()
    held = files_of(people)
    assert len(found.read) == 2, "the file of the row, and one that the index does not cover"
    before = set(held.data)
    erase(people)
    after = set(files_of(people).data)
    assert len(before & after) == 7
    assert len(after - before) == 2, "one for the head, and a blank one for the commits before"


# Others at the same time


@pytest.mark.slow
def test_writers_in_between_lose_no_commit(people: Graph) -> None:
    """At every step of an erasure somebody else writes: to the same table, a row of its own."""
    live(people)
    with Graph.open(people.url) as other:
        other.keep_optimized(None)
        written: list[str] = []
        busy = False

        def meet(step: str) -> None:
            nonlocal busy
            if busy or not step.startswith("graph:") or len(written) >= 60:
                return
            busy = True
            key = f"other{len(written)}"
            try:
                other.load(Person, [person(key)], branch="work" if len(written) % 3 == 1 else "main")
                written.append(key)
            finally:
                busy = False

        done = 0
        with faults.arm(meet):
            while not done:
                try:
                    done = erase(people).items
                except PublishContendedError:
                    assert len(written) < 60
        assert len(written) > 10
        for number, key in enumerate(written):
            assert key in rows(people, "work" if number % 3 == 1 else "main"), key
    assert KEY not in rows(people)
    assert KEY not in rows(people, "work")
    assert traces(people.url) == []
    assert list(people.verify()) == []


@pytest.mark.slow
def test_another_process_that_writes_loses_no_commit(people: Graph) -> None:
    live(people)
    program = start("graph_appender.py", people.url, stdin=subprocess.PIPE)
    assert program.stdin is not None
    assert program.stdout is not None
    written, told = [program.stdout.readline().strip()], 0

    def tell(step: str) -> None:
        nonlocal told
        if step.startswith("graph:") and told < 30:
            told += 1
            program.stdin.write("\n")
            program.stdin.flush()

    done = 0
    with faults.arm(tell):
        while not done:
            with suppress(PublishContendedError):
                done = erase(people).items
    out, err = program.communicate(timeout=120)
    assert program.returncode == 0, err
    written += out.split()
    assert len(written) == 31
    found = rows(people).keys() | rows(people, "work").keys()
    assert found >= set(written)
    assert KEY not in found
    assert traces(people.url) == []
    assert list(people.verify()) == []
    with Graph.open(people.url) as again:
        assert again.recovered == []


@pytest.mark.slow
def test_a_transaction_that_began_before_does_not_bring_it_back(people: Graph) -> None:
    live(people)
    with Graph.open(people.url) as other:
        begun = other.transaction()
        begun.load(Person, [person("p1", "late")])
        erase(people)
        with pytest.raises(ExpectedVersionMismatch):
            begun.finish()
        other.load(Person, [person("p1", "late")])
    assert rows(people)["p1"]["text"] == "late"
    assert traces(people.url) == []
    assert list(people.verify()) == []


@pytest.mark.slow
def test_it_waits_for_who_is_about_to_move_the_table(people: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    live(people)
    monkeypatch.setattr(erasure, "_OTHERS", Pace(2, 0.001, 0.001))
    living = Sidecar("01ARZ3NDEKTSV4RRFFQ69G5FAV", "main", "main", "me", "load", [
        TableMove("node:Person", "nodes/x", 0, "01ARZ3NDEKTSV4RRFFQ69G5FAV", 1, "x")])  # fmt: skip
    people.parts.sidecars.write(living)
    with pytest.raises(PublishContendedError):
        erase(people)
    assert KEY not in rows(people)
    assert traces(people.url)
    people.parts.sidecars.leave(living.operation)
    people.parts.sidecars.remove(living.operation)
    erase(people)
    assert traces(people.url) == []


# What stays of it, and what is refused


def test_what_stays_says_who_when_why_and_a_hash(people: Graph) -> None:
    live(people)
    people.branches.protect("work")
    erase(people, author="ada")
    for branch in ("main", "work"):
        told = next(people.commits(branch=branch))
        assert (told.author, told.message, told.metadata[KIND]) == ("ada", REASON, "erasure")
        assert told.time is not None
        noted = told.metadata[ERASED]
        assert noted["table"] == "node/Person"
        assert KeyHash(noted["salt"], noted["hash"]).is_of("node/Person", KEY)
        assert not KeyHash(noted["salt"], noted["hash"]).is_of("node/Person", "p1")
        assert noted["items"] >= 3
    assert [commit.metadata[KIND] for commit in people.commits()].count("erasure") == 1
    assert list(people.changes(next(people.commits()).parents[0])) == []


@pytest.mark.parametrize("reason", ["", " ", None, 5, f"because of {KEY}"])
def test_a_reason_is_needed_that_does_not_name_the_row(people: Graph, reason: Any) -> None:
    people.load(Person, [secret(1)])
    for dry_run in (True, False):
        with pytest.raises(Invalid):
            people.erase(Person, KEY, reason=reason, dry_run=dry_run)
    assert KEY in rows(people)


def test_what_cannot_be_erased_is_told_and_changes_nothing(people: Graph) -> None:
    people.load(Person, [secret(1)])
    head = people.snapshot().commit
    with pytest.raises(NotFound):
        erase(people, Person, "nobody")
    with pytest.raises(UnknownTableError):
        erase(people, "Nothing")
    with pytest.raises(RowError):
        erase(people, Person, (KEY, "a"))
    with pytest.raises(RowError):
        erase(people, Friend, KEY)
    with Graph.open(people.url, read_only=True) as reader:
        assert reader.erase(Person, KEY, reason=REASON).items == 1
        with pytest.raises(ReadOnlyGraphError):
            erase(reader)
    assert people.snapshot().commit == head
    assert KEY in rows(people)


# The file of a version


def test_the_file_of_a_version_is_written_anew_as_it_was(people: Graph) -> None:
    live(people)
    files = files_of(people)
    assert len(files.versions) > 10
    for (line, number), version in files.versions.items():
        data = people.parts.place.store.get(files.version_keys[line, number]).data
        assert version.rewritten({}, {}, ()) == data
        assert version.version == number
    dataset = people.snapshot().table(Person).dataset
    shown = files.versions[None, dataset.version]
    assert shown.indexes == {str(segment.uuid) for index in dataset.describe_indices() for segment in index.segments}
    assert [fragment.files for fragment in shown.fragments] == [
        tuple(file.path for file in fragment.metadata.files) for fragment in dataset.get_fragments()]  # fmt: skip


@pytest.mark.parametrize("data", [b"", b"LANC", b"x" * 40, b"\xff" * 12 + b"LANC"])
def test_what_is_no_file_of_a_version_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="it"):
        VersionFile(data)


@pytest.mark.parametrize("data", [b"\x08", b"\x0a\x05abc", b"\x0b", b"\x09\x01"])
def test_messages_that_end_too_soon_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"too soon|not known"):
        decode(data)


def test_messages_are_read_and_written_alike() -> None:
    data = b"\x08\x96\x01\x12\x07testing\x1d\x01\x02\x03\x04\x21\x01\x02\x03\x04\x05\x06\x07\x08"
    data += b"\xf8\xff\xff\xff\x0f\x00"
    assert encode(decode(data)) == data
