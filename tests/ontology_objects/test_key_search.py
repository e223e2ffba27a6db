"""Keys searched in files: the same rows as in a dictionary, whatever was searched before and is kept of it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from ontolake.model import Entity, Field
from ontolake.model.types import type_info
from ontolake.objects import open_store
from ontolake.objects.testing import CountingStore
from ontolake.ontology import Session
from ontolake.ontology.repository.objects.deletions import find_rows
from ontolake.ontology.sizes import Sizes

SIZES = Sizes(part_rows=60, group_rows=10, small_rows=15, kept_groups=8)


class Text(Entity):
    id: Field[str] = Field(primary_key=True)
    n: Field[int]


class Number(Entity):
    id: Field[int] = Field(primary_key=True)
    n: Field[int]


def opened(place: Path, **config: Any) -> Session:
    return Session(place.as_uri(), entity_types=[Text, Number], config={"sizes": SIZES} | config)


@pytest.mark.parametrize("kind", [Text, Number])
@pytest.mark.parametrize("seed", range(3))
def test_any_searches_one_after_the_other_find_what_is_there(tmp_path: Path, kind: Any, seed: int) -> None:
    chance = random.Random(seed)
    key: Any = (lambda n: f"k{n:04}") if kind is Text else (lambda n: n)
    with opened(tmp_path) as session:
        rows = {key(2 * n): n for n in range(300)}
        session.ensure(kind(id=id, n=n) for id, n in rows.items())
        session.commit()
        again = dict.fromkeys(chance.sample([*rows], 30), -1)
        session.ensure(kind(id=id, n=n) for id, n in again.items())
        session.commit()
        rows |= again
        repository: Any = session.repository
        info = type_info(kind)
        state = repository.files_of(info)
        wanted: list[Any] = []
        for _ in range(60):
            low = chance.randrange(600)
            wanted = chance.choice([
                chance.sample([key(n) for n in range(620)], chance.randrange(1, 80)),  # all over the files
                [key(n) for n in range(low, low + chance.randrange(1, 40))],  # in few row groups
                [one for one in wanted if chance.random() < 0.7],  # some of those before
            ])  # fmt: skip
            found = find_rows(repository.scanner, info, state, [(one,) for one in wanted])
            assert dict(zip(found["entity_key"].to_pylist(), found["n"].to_pylist(), strict=True)) == {
                one: rows[one] for one in wanted if one in rows}  # fmt: skip
            one = key(low)
            assert rows.get(one) == getattr(session.get(kind, one), "n", None)


def test_keys_that_were_searched_in_a_file_are_not_read_again(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        session.ensure(Text(id=f"k{n:04}", n=n) for n in range(300))
    counting = CountingStore(open_store(tmp_path.as_uri()))
    with opened(tmp_path, connect={"store": counting}) as session:
        repository: Any = session.repository
        info = type_info(Text)
        state = repository.files_of(info)
        keys = [(f"k{n:04}",) for n in range(0, 300, 7)]
        counting.reset()
        assert len(find_rows(repository.scanner, info, state, keys)) == 43
        assert counting.total > 0
        counting.reset()
        assert len(find_rows(repository.scanner, info, state, keys[::2])) == 22
        assert counting.received["get_range"] == counting.received["get_ranges"] == 0
