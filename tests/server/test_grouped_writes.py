"""Writes that share a commit are decoded together, and mean what they mean alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ontolake import Entity, Field, Session
from ontolake.ontology.typed_store import TypedStore
from ontolake.server.writes.requests import RowWrite, WriteFailure, WriteMode, WriteNote
from ontolake.server.writes.typed import commit_rows

LINES = "application/x-ndjson"


class Note(Entity):
    id: Field[int] = Field(primary_key=True)
    text: Field[str]
    stars: Field[int] = Field(default=3)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TypedStore]:
    path = str(tmp_path / "notes.db")
    with Session(path, entity_types=[Note]) as session:
        session.ensure(Note(id=0, text="first"))
    with TypedStore(path, classes=[Note]) as found:
        yield found


def write(*rows: Any, mode: WriteMode = "upsert", kind: str = LINES, body: bytes | None = None) -> RowWrite:
    return RowWrite("entity/Note", mode, b"\n".join(json.dumps(row).encode() for row in rows) if body is None else body,
                    kind)


def commit(store: TypedStore, *writes: RowWrite) -> dict[int, tuple[str, int]]:
    """Commit writes together, and return all rows."""
    before = store.repository.head()
    assert commit_rows(store, "main", writes, WriteNote("ada")) == before + 1
    return {one.id: (one.text, one.stars) for one in store.query().entities(Note).collect()}


def test_rows_of_all_writes_are_in_one_commit(store: TypedStore) -> None:
    writes = [write({"id": n, "text": f"n{n}", "stars": n}) for n in range(1, 9)]
    assert commit(store, *writes, write({"id": 9, "text": "a", "stars": 1}, {"id": 10, "text": "b", "stars": 2})) == {
        0: ("first", 3), **{n: (f"n{n}", n) for n in range(1, 9)}, 9: ("a", 1), 10: ("b", 2)}


def test_the_last_write_of_a_row_counts(store: TypedStore) -> None:
    found = commit(store, write({"id": 1, "text": "a", "stars": 1}), write({"id": 1, "text": "b", "stars": 2}))
    assert found[1] == ("b", 2)


def test_what_a_write_leaves_out_has_its_default_whatever_others_say(store: TypedStore) -> None:
    found = commit(store, write({"id": 1, "text": "a", "stars": 1}), write({"id": 2, "text": "b"}))
    assert found[2] == ("b", 3)


def test_one_object_and_a_list_of_objects_share_a_commit_with_lines(store: TypedStore) -> None:
    found = commit(store, write({"id": 1, "text": "a"}), write([{"id": 2, "text": "b"}], kind="application/json"))
    assert (found[1], found[2]) == (("a", 3), ("b", 3))


def test_deletions_are_done_in_their_order(store: TypedStore) -> None:
    found = commit(store, write({"id": 1, "text": "a"}), write({"id": 0}, mode="delete"), write({"id": 2, "text": "b"}))
    assert sorted(found) == [1, 2]


@pytest.mark.parametrize("bad", [b'{"id": 5, "text": 7}', b'{"id": "x", "text": "a"}', b"[", b"", b'{"id": 5,',
                                 b'{"id": 5, "text": "a", "no": 1}', b'{"text": "a"}', b"7"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_write_that_cannot_be_done_is_named(store: TypedStore, bad: bytes, place: int) -> None:
    writes = [write({"id": n, "text": "a"}) for n in (1, 2)]
    writes.insert(place, write(body=bad))
    with pytest.raises(WriteFailure) as failure:
        commit_rows(store, "main", writes, WriteNote("ada"))
    assert failure.value.place == place
    assert [one.id for one in store.query().entities(Note).collect()] == [0]


def test_two_halves_are_no_row(store: TypedStore) -> None:
    with pytest.raises(WriteFailure) as failure:
        commit_rows(store, "main", [write(body=b'{"id": 1,'), write(body=b'"text": "a"}')], WriteNote("ada"))
    assert failure.value.place == 0
