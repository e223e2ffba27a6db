"""Unique fields of big types on objects: Bloom filters say which row groups can have a value, and leave none out."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ontolake.model import Entity, Field
from ontolake.objects import open_store
from ontolake.objects.testing import CountingStore
from ontolake.ontology import Session
from ontolake.ontology.errors import UniqueFieldError
from ontolake.ontology.repository.objects.read import bloom
from ontolake.ontology.sizes import Sizes

LOW = Sizes(fan=3, most_runs=5, level_rows=16, merged_rows=120, part_rows=64, group_rows=16, small_rows=20)
INTS = st.integers(-(2**63), 2**63 - 1)


class User(Entity):
    id: Field[str] = Field(primary_key=True)
    email: Field[str | None] = Field(unique=True, default=None)
    number: Field[int | None] = Field(unique=True, default=None)


def opened(place: Path, **more: Any) -> Session:
    return Session(place.as_uri(), entity_types=[User], config={"sizes": LOW} | more)


def users(count: int) -> list[User]:
    return [User(id=f"u{n:05}", email=f"{n * 7919 % count}@example.com", number=n * 31 % 100_003) for n in range(count)]


def loaded(place: Path, count: int, **more: Any) -> None:
    with opened(place, **more) as session:
        session.ensure(users(count))


@pytest.fixture(params=["with filters", "without filters"])
def writing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files as this release writes them, and as those did that wrote no filters."""
    if request.param == "without filters":
        monkeypatch.setattr(bloom, "WRITES", False)


def filters_of(values: list[Any], kind: pa.DataType, group_rows: int) -> list[bloom.Words | None]:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": pa.array(values, kind)}), sink, row_group_size=group_rows,
                   **bloom.filter_options(["a"], group_rows))  # fmt: skip
    data = sink.getvalue()
    found = bloom.extents(pq.ParquetFile(pa.BufferReader(data)).metadata, "a")
    assert found is not None
    return [bloom.parse(data.slice(*one).to_pybytes()) for one in found]


@given(st.one_of(st.lists(st.text(), min_size=1, max_size=50), st.lists(INTS, min_size=1, max_size=50)))
def test_a_filter_lets_every_value_through_that_was_written(values: list[Any]) -> None:
    kind = pa.string() if isinstance(values[0], str) else pa.int64()
    for number, blocks in enumerate(filters_of(values, kind, 16)):
        assert blocks is not None
        assert all(bloom.possible(blocks, bloom.sought([value])) for value in values[16 * number : 16 * (number + 1)])


def test_a_filter_rules_other_values_out() -> None:
    (blocks,) = filters_of([f"{n}@example.com" for n in range(2000)], pa.string(), 2000)
    assert blocks is not None
    assert not bloom.possible(blocks, bloom.sought(f"{n}@example.org" for n in range(2000)))
    assert bloom.possible(blocks, bloom.sought([*(f"{n}@example.org" for n in range(100)), "1999@example.com"]))


def test_a_filter_of_another_kind_is_not_used() -> None:
    assert bloom.parse(b"\x15\x80\x01" + b"\x2c" * 13 + bytes(64)) is None
    assert bloom.parse(bytes(64)) is None


@pytest.mark.usefixtures("writing")
@pytest.mark.parametrize(("taken", "field"), [({"email": "7@example.com"}, "email"), ({"number": 31}, "number")])
def test_a_value_that_any_row_has_is_refused(tmp_path: Path, taken: dict[str, Any], field: str) -> None:
    loaded(tmp_path / "s", 300)
    session = opened(tmp_path / "s")
    session.ensure(User(id="new", **taken))
    with pytest.raises(UniqueFieldError, match=field):
        session.commit()
    assert session.query().entities(User).count() == 300


@pytest.mark.usefixtures("writing")
@pytest.mark.parametrize("free", [
    lambda session: session.delete(User, "u00000"),
    lambda session: session.ensure(User(id="u00000", email="moved@example.com", number=-1)),
])  # fmt: skip
def test_a_value_that_no_living_row_has_any_more_is_free(tmp_path: Path, free: Callable[[Session], Any]) -> None:
    loaded(tmp_path / "s", 300)
    with opened(tmp_path / "s") as session:
        free(session)
        session.commit()
        session.ensure(User(id="new", email="0@example.com", number=0))
        assert session.commit() is not None


@pytest.mark.slow
@pytest.mark.usefixtures("writing")
@pytest.mark.parametrize("seed", range(3))
def test_commits_are_refused_as_by_a_dictionary(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    now: dict[str, tuple[str, int]] = {}
    for number in range(30):
        session = opened(tmp_path / "s")
        new = {f"u{chance.randrange(400):03}": (f"{chance.randrange(3000)}@example.com", chance.randrange(-3000, 3000))
               for _ in range(chance.choice((1, 5, 60 if number < 10 else 5)))}  # fmt: skip
        gone = {key for key in now if key not in new and chance.random() < 0.02}
        after = {key: value for key, value in now.items() if key not in gone} | new
        session.ensure(User(id=key, email=email, number=count) for key, (email, count) in new.items())
        session.delete(User, sorted(gone))
        if all(len({value[at] for value in after.values()}) == len(after) for at in (0, 1)):
            session.commit()
            now = after
        else:
            with pytest.raises(UniqueFieldError):
                session.commit()
    with opened(tmp_path / "s") as session:
        assert {one.id: (one.email, one.number) for one in session.query().entities(User).collect()} == now


def test_a_commit_reads_as_much_of_a_big_type_as_of_a_small_one(tmp_path: Path) -> None:
    read: dict[int, tuple[int, int]] = {}
    apart = {"sizes": Sizes(part_rows=512, group_rows=64, small_rows=80)}  # nothing is merged meanwhile
    for count in (400, 4000):
        loaded(tmp_path / str(count), count, **apart)
        counting = CountingStore(open_store((tmp_path / str(count)).as_uri()))
        with opened(tmp_path / str(count), connect={"store": counting}, **apart) as session:
            for number in range(2):  # the first one reads the filters
                counting.reset()
                session.ensure(User(id=f"v{number}", email=f"new {number}", number=1_000_000 + number))
                assert session.commit() is not None
            read[count] = counting.total, sum(counting.received.values())
    assert read[4000][0] == read[400][0]
    assert read[4000][1] < 2 * read[400][1]
