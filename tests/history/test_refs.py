"""References mean the same on every store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference_store import ReferenceStore

from ontolake.errors import Invalid, NotFound
from ontolake.history import Point, Ref, UnknownBranchError, UnknownCommitError
from ontolake.history.names import is_name
from ontolake.history.operations import CommitNote


@pytest.mark.parametrize("name", ["a", "try/x", "try/x/y", "2026/11/01", "a.b/c_d-e", "a/" * 63 + "a"])
def test_names_may_have_parts(name: str) -> None:
    assert is_name(name)
    assert Ref.parse(name) == Ref(name)


@pytest.mark.parametrize("name", ["/a", "a/", "a//b", "a/../b", "../b", "a/.b", "a/-b", "a.lock/b", "a/b.lock", "a./b",
                                  "a/b.", "a/ b", "a\\b", "a/" * 64 + "a", "/", "a%2Fb"])
def test_parts_of_names_are_names(name: str) -> None:
    assert not is_name(name)


@pytest.mark.parametrize(("text", "ref"), [
    ("main", Ref("main")),
    ("main@12", Ref("main", "12")),
    ("@12", Ref(None, "12")),
    ("main~3", Ref("main", None, 3)),
    ("main~", Ref("main", None, 1)),
    ("@12~2", Ref(None, "12", 2)),
    ("try@2026-11-01T10:00Z", Ref("try", "2026-11-01T10:00Z")),
    ("a@b@", Ref("a@b")),
    ("a~1@", Ref("a~1")),
    ("a@b@7", Ref("a@b", "7")),
    ("try/x@12~1", Ref("try/x", "12", 1)),
])  # fmt: skip
def test_references_are_read_and_written(text: str, ref: Ref) -> None:
    assert Ref.parse(text) == ref
    assert Ref.parse(str(ref)) == ref


@given(st.text("ab@~1", min_size=1), st.none() | st.text("0123456789", min_size=1), st.integers(0, 9))
def test_every_reference_survives_being_written(branch: str, commit: str | None, back: int) -> None:
    ref = Ref(branch, commit, back)
    assert Ref.parse(str(ref)) == ref


@pytest.mark.parametrize("text", ["", "@", "~", "~3", "@~1", None, 5])
def test_what_names_nothing_is_refused(text: Any) -> None:
    with pytest.raises(Invalid):
        Ref.parse(text)


def test_a_time_has_a_zone() -> None:
    assert Ref.parse("@2026-11-01").time == datetime(2026, 11, 1, tzinfo=UTC)
    assert Ref.parse("@2026-11-01T10:00+02:00").time == datetime(2026, 11, 1, 10, tzinfo=timezone(timedelta(hours=2)))
    assert Ref.parse("@12").time is None
    assert Ref.parse("main").time is None
    with pytest.raises(Invalid, match="not a time"):
        assert Ref.parse("@2026-99-01").time


@pytest.fixture
def store() -> ReferenceStore:
    store = ReferenceStore()
    for value in (1, 2, 3):
        store.write("main", {"x": {"f": value, "g": None}}, CommitNote())
    store.branches.create("try", at=3)
    store.tags.create("v1", "@2")
    return store


@pytest.mark.parametrize(("text", "point"), [
    ("main", ("main", 4)),
    ("try", ("try", 3)),
    ("v1", ("main", 2)),
    ("v1~1", ("main", 1)),
    ("main~2", ("main", 2)),
    ("@3", ("main", 3)),
    ("try@2", ("try", 2)),
    ("try@2~1", ("try", 1)),
])  # fmt: skip
def test_a_reference_names_a_commit(store: ReferenceStore, text: str, point: tuple[str, int]) -> None:
    assert store.resolve(text) == Point(*point)


def test_a_time_names_the_last_commit_by_then(store: ReferenceStore) -> None:
    for id, commit in store.log.items():
        store.log[id] = commit._replace(time=datetime(2026, 11, id, tzinfo=UTC))
    assert store.resolve("@2026-11-03T12:00Z").commit == 3
    assert store.resolve("try@2026-12-01").commit == 3
    with pytest.raises(UnknownCommitError):
        store.resolve("@2020-01-01")


@pytest.mark.parametrize(("text", "error"), [
    ("nothing", UnknownBranchError), ("nothing@1", UnknownBranchError), ("try@4", UnknownCommitError),
    ("@99", UnknownCommitError), ("main~9", UnknownCommitError), ("@x", Invalid), ("v1@2", UnknownBranchError),
])  # fmt: skip
def test_what_is_not_there_is_named(store: ReferenceStore, text: str, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        store.resolve(text)
    assert isinstance(caught.value, Invalid | NotFound)
    assert text.partition("~")[0].split("@")[0] in str(caught.value)
