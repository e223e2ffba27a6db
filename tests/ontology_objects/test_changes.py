"""Changes as Arrow batches tell on every engine what the commits between two moments did."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from low import LOW
from marking import slow_after
from tests.ontology.naive import NaiveStore, key_of
from tests.ontology.shop import ENTITIES, RELATIONS, Customer, Order, Placed, Rated
from tests.ontology.test_oracle import MAKERS

from ontolake.model import type_info
from ontolake.ontology import Session
from ontolake.ontology.sizes import DEFAULT, Sizes

from .conftest import fresh_memory


@pytest.mark.parametrize("sizes", [LOW, DEFAULT], ids=["low", "default"])
@pytest.mark.parametrize("place", slow_after(2, ["sqlite v2", "objects v2", "sqlite v1", "objects v1"]))
def test_changes_are_those_of_a_naive_store(tmp_path: Path, place: str, sizes: Sizes) -> None:
    kind, engine = place.split()
    url = str(tmp_path / "shop.db") if kind == "sqlite" else fresh_memory()
    rng, naive = random.Random(7), NaiveStore()
    session = Session(url, entity_types=ENTITIES, relation_types=RELATIONS, engine_version=engine,
                      config={"sizes": sizes})
    for _ in range(15):
        for _ in range(rng.choice([1, 3, 10])):
            obj = rng.choice(MAKERS)(rng)
            session.ensure(obj)
            naive.ensure(obj)
        assert session.commit() == naive.commit()
    head = len(naive.commits)
    for since, until in ((0, None), (0, 1), (head - 1, None), (3, 9), (5, 5), (head, None)):
        found: dict[Any, list[Any]] = {cls: [] for cls in (Customer, Order, Placed, Rated)}
        for batch in session.changes(since, until).to_batches():
            assert isinstance(batch, pa.RecordBatch)
            for row in batch.to_pylist():
                cls = {cls.__name__: cls for cls in found}[row["type"].split("/")[1]]
                key = row["key"] if row["type"].startswith("entity") else tuple(row["key"].values())
                found[cls].append((row["commit_id"], key, row["kind"], row["before"], row["after"]))
        for cls, rows in found.items():
            assert [row[:3] for row in rows] == expected(naive, cls, since, until)
            for commit, key, kind, before, after in rows:
                assert (before is None) == (kind == "insert")
                states = [obj for _, obj in naive.history(cls, commit) if key_of(obj) == key]
                assert likeness(states[-1]) == likeness(after)
                assert before is None or likeness(states[-2]) == likeness(before)
        one_by_one = [(change.commit, change.table, change.kind.value) for change in session.changes(since, until)]
        assert sorted(one_by_one) == sorted((row[0], f"{type_info(cls).kind}/{cls.__name__}", row[2])
                                            for cls, rows in found.items() for row in rows)
    session.close()


def expected(naive: NaiveStore, cls: Any, since: int, until: int | None) -> list[Any]:
    found = []
    for number, obj in naive.history(cls, until, since):
        known = key_of(obj) in naive.latest(cls, number - 1)
        found.append((number, key_of(obj), "update" if known else "insert"))
    return found


def likeness(row: Any) -> Any:
    """A field of each type that is the same in Arrow and in Python."""
    values = row if isinstance(row, dict) else row.model_dump()
    return [values.get(name) for name in ("id", "name", "score", "active", "born", "note", "count", "stars", "key")]
