"""Commit, branch, change and snapshot mean the same for every store; the page seam is the first to say them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ontolake.errors import AlreadyExists, Invalid, NotFound
from ontolake.history import (
    Branch,
    Branched,
    Branches,
    Change,
    ChangeKind,
    Commit,
    Key,
    Maintained,
    Ref,
    Row,
    Snapshot,
    Versioned,
    net,
)
from ontolake.storage import Lsn, PageId, Storage, WalRecord, open_storage


class PagesAt(NamedTuple):
    """The pages of a branch at an LSN."""

    store: Storage
    commit: int
    branch: str

    def tables(self) -> Sequence[str]:
        return ["pages"]

    def rows(self, table: str) -> Iterator[tuple[Key, Row]]:
        if table != "pages":
            raise NotFound(f"there is no table {table!r}")
        written = {record.page_id for lsn, record in self.store.scan_wal(Lsn(0), branch=self.branch)
                   if lsn <= self.commit and record.page_id is not None}
        for page_id in sorted(written):
            yield page_id, self.store.get_page(page_id, Lsn(self.commit), branch=self.branch).bytes


class PageBranches(NamedTuple):
    """The branches of the seam."""

    store: Storage

    def list(self) -> Sequence[Branch[int]]:
        names = {ref.id: ref.name for ref in self.store.list_branches()}
        return [
            Branch(ref.name, ref.head_lsn, None, None) if ref.parent is None
            else Branch(ref.name, ref.head_lsn, ref.base_lsn, names[ref.parent])
            for ref in self.store.list_branches()
        ]  # fmt: skip

    def create(self, name: str, *, at: int | None = None, parent: str = "main") -> Branch[int]:
        self.store.create_branch(name, self.store.durable_lsn() if at is None else Lsn(at), parent=parent)
        return next(branch for branch in self.list() if branch.name == name)

    def delete(self, name: str) -> None:
        self.store.delete_branch(name)


class PageHistory(NamedTuple):
    """The seam in the words of the history: every record is a commit, its LSN the id."""

    store: Storage

    @property
    def branches(self) -> Branches[int]:
        return PageBranches(self.store)

    def commits(self, *, since: int | None = None, until: int | None = None, branch: str = "main"
                ) -> Iterator[Commit[int]]:
        found = [lsn for lsn, _ in self.store.scan_wal(Lsn(since or 0), branch=branch) if until is None or lsn <= until]
        for lsn in reversed(found):
            yield Commit(int(lsn))

    def changes(self, since: int, until: int | None = None, *, branch: str = "main") -> Iterator[Change[int]]:
        for lsn, record in self.store.scan_wal(Lsn(since), branch=branch):
            if record.page_id is not None and (until is None or lsn <= until):
                try:
                    before = self.store.get_page(record.page_id, Lsn(lsn - 1), branch=branch).bytes
                except NotFound:
                    before = None
                yield Change.of(int(lsn), "pages", record.page_id, before, record.bytes)

    def snapshot(self, commit: int | None = None, *, branch: str = "main") -> Snapshot[int]:
        end = self.store.durable_lsn()
        if commit is not None and commit > end:
            raise NotFound(f"there is no LSN {commit}")
        return PagesAt(self.store, end if commit is None else commit, self.store.resolve_branch(branch).name)

    def at(self, ref: Ref) -> Snapshot[int]:
        if ref.commit is not None and not ref.commit.isdecimal():
            raise Invalid(f"{ref.commit!r} is no LSN")
        return self.snapshot(None if ref.commit is None else int(ref.commit), branch=ref.branch or "main")

    def diff(self, before: Snapshot[int], after: Snapshot[int]) -> Iterator[Change[int]]:
        old, new = dict(before.rows("pages")), dict(after.rows("pages"))
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                yield Change.of(after.commit, "pages", key, old.get(key), new.get(key))


def typed(store: PageHistory) -> Branched[int]:
    """Accepted by the type checker, too."""
    return store


def image(letter: str) -> bytes:
    return letter.encode() * 512


@pytest.fixture
def store() -> Iterator[Branched[int]]:
    """Page 1 is a, then b; page 2 is c; on the branch try, which left after LSN 1, page 1 is z."""
    with open_storage("memory://history", page_size=512) as pages:
        if pages.durable_lsn() == 0:
            token = pages.acquire_fence("test")
            for page_id, letter in [(1, "a"), (1, "b"), (2, "c")]:
                pages.append_wal(token, [WalRecord(image(letter), PageId(page_id))])
            pages.create_branch("try", Lsn(1))
            pages.append_wal(token, [WalRecord(image("z"), PageId(1))], branch="try")
        yield typed(PageHistory(pages))


def test_the_seam_speaks_the_vocabulary(store: Branched[int]) -> None:
    assert isinstance(store, Versioned)
    assert isinstance(store, Branched)
    assert not isinstance(store, Maintained)
    assert not isinstance(object(), Versioned)


def test_commits_come_newest_first_in_a_range_that_is_open_below(store: Branched[int]) -> None:
    assert [commit.id for commit in store.commits()] == [3, 2, 1]
    assert [commit.id for commit in store.commits(since=1, until=2)] == [2]
    assert [commit.id for commit in store.commits(branch="try")] == [4, 1]


def test_branches_say_where_they_left_and_how_far_they_are(store: Branched[int]) -> None:
    assert list(store.branches.list()) == [Branch("main", 3), Branch("try", 4, base=1, parent="main")]
    assert store.branches.create("more", parent="try") == Branch("more", 4, 4, "try")
    with pytest.raises(AlreadyExists):
        store.branches.create("more")
    store.branches.delete("more")
    with pytest.raises(NotFound):
        store.branches.delete("more")


def test_changes_tell_kind_and_both_states(store: Branched[int]) -> None:
    first, second, third = store.changes(0)
    assert (first.kind, first.before, first.after) == (ChangeKind.INSERT, None, image("a"))
    assert (second.kind, second.before, second.after) == (ChangeKind.UPDATE, image("a"), image("b"))
    assert (third.commit, third.key, third.kind) == (3, 2, "insert")
    assert [change.commit for change in store.changes(1, 2)] == [2]
    assert [change.commit for change in store.changes(3)] == []


def test_a_snapshot_is_what_a_reference_names(store: Branched[int]) -> None:
    def rows(text: str) -> dict[Key, bytes]:
        return {key: row[:1] for key, row in store.at(Ref.parse(text)).rows("pages")}

    assert rows("main") == {1: b"b", 2: b"c"}
    assert rows("@1") == rows("main@1") == {1: b"a"}
    assert rows("try") == {1: b"z"}
    assert store.at(Ref.parse("try")).tables() == ["pages"]
    for wrong, error in [("@x", Invalid), ("@99", NotFound), ("nowhere", NotFound)]:
        with pytest.raises(error):
            store.at(Ref.parse(wrong))
    with pytest.raises(NotFound):
        list(store.snapshot().rows("novels"))


def test_a_difference_is_the_net_of_the_changes(store: Branched[int]) -> None:
    assert list(store.diff(store.snapshot(0), store.snapshot(3))) == [
        Change(3, "pages", 1, ChangeKind.INSERT, None, image("b")),
        Change(3, "pages", 2, ChangeKind.INSERT, None, image("c")),
    ]
    assert [(c.table, c.key, c.kind, c.after) for c in net(store.changes(0))] == [
        ("pages", 1, ChangeKind.INSERT, image("b")),
        ("pages", 2, ChangeKind.INSERT, image("c")),
    ]
    across = list(store.diff(store.at(Ref("main")), store.at(Ref("try"))))
    assert [(change.key, change.kind) for change in across] == [(1, "update"), (2, "delete")]


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("main", Ref("main")), ("try@12", Ref("try", "12")), ("@12", Ref(None, "12")), ("try@", Ref("try")),
        ("a@b@", Ref("a@b")), ("a@b@01J", Ref("a@b", "01J")), ("12", Ref("12")),
    ],
)  # fmt: skip
def test_a_reference_is_a_branch_a_commit_or_both(text: str, ref: Ref) -> None:
    assert Ref.parse(text) == ref
    assert Ref.parse(str(ref)) == ref


@pytest.mark.parametrize("text", ["", "@"])
def test_a_reference_to_nothing_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="names neither"):
        Ref.parse(text)


@given(st.text(min_size=1), st.none() | st.text(min_size=1).filter(lambda text: "@" not in text))
def test_a_reference_reads_back_as_it_was_written(branch: str, commit: str | None) -> None:
    assert Ref.parse(str(Ref(branch, commit))) == Ref(branch, commit)


def test_no_change_is_not_a_change() -> None:
    with pytest.raises(Invalid, match="no change"):
        Change.of(1, "t", "k", None, None)


STATES = st.none() | st.integers(0, 3)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["k", ("k", 1)]), STATES)))
def test_net_changes_lead_to_the_same_state(steps: list[tuple[str, Key, Row | None]]) -> None:
    """Applied to the state before all changes they give the state after; and none is superfluous."""
    state: dict[tuple[str, Key], Row] = {}
    changes = []
    for commit, (table, key, row) in enumerate(steps):
        before = state.get((table, key))
        if before is None and row is None:
            continue
        changes.append(Change.of(commit, table, key, before, row))
        state.pop((table, key), None)
        if row is not None:
            state[table, key] = row
    folded = net(changes)
    assert {(c.table, c.key): c.after for c in folded} == state
    assert all(change.kind is ChangeKind.INSERT for change in folded), "it started empty"
    assert net(folded) == folded


def test_net_of_rows_that_were_there_before() -> None:
    steps = [("x", 1, 2), ("y", 1, None), ("x", 2, 1), ("z", 3, 4), ("z", 4, None), ("z", None, 5), ("w", None, 1),
             ("w", 1, None)]
    folded = net([Change.of(i, "t", key, before, after) for i, (key, before, after) in enumerate(steps)])
    assert [(c.commit, c.key, str(c.kind), c.before, c.after) for c in folded] == [
        (1, "y", "delete", 1, None),
        (5, "z", "update", 3, 5),
    ]
