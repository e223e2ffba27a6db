"""Changes of many rows at once leave the past as it was, however many versions the rows have."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from ontolake.sql import open_database
from ontolake.sql.keyspace import versions

COUNT = 900


@pytest.mark.parametrize("few", [0, 3, 64])
def test_every_version_of_rows_that_are_changed_together_stays(
    native_place: str, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(versions, "_MANY", 100)
    monkeypatch.setattr(versions, "_FEW_VERSIONS", few)
    monkeypatch.setattr(versions, "BATCH", 256)
    rng = random.Random(few)
    with open_database(native_place) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, b TEXT); CREATE INDEX by_a ON t (a)")
        db.bulk_load("t", pa.table({"id": range(COUNT), "a": [0] * COUNT, "b": ["x" * (n % 40) for n in range(COUNT)]}))
        model = {n: (0, "x" * (n % 40)) for n in range(COUNT)}
        past = {db.version(): dict(model)}
        for number in range(12):
            low, high = sorted(rng.sample(range(COUNT), 2))
            if number % 4 == 3:
                db.execute("DELETE FROM t WHERE id >= ? AND id < ?", (low, high))
                model = {id: row for id, row in model.items() if not low <= id < high}
            else:
                db.execute("UPDATE t SET a = a + ? WHERE id >= ? AND id < ?", (number + 1, low, high))
                model = {id: (row[0] + (number + 1) * (low <= id < high), row[1]) for id, row in model.items()}
            past[db.version()] = dict(model)
        for version, state in past.items():
            found = db.query("SELECT * FROM t", as_of=version).to_pylist()
            assert {row["id"]: (row["a"], row["b"]) for row in found} == state
        assert list(db.verify()) == []
