"""Full columns are required ones of Parquet in commits of v3, and optional in those of older engines."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ontolake.model import Entity, Field
from ontolake.ontology import Session


class Thing(Entity):
    id: Field[int] = Field(primary_key=True)
    size: Field[float]
    note: Field[str | None] = Field(default=None)


@pytest.mark.parametrize(("engine", "optional"), [("v2", {"entity_key", "size", "note"}), ("v3", {"note"})])
def test_only_v3_tells_which_columns_are_full(tmp_path: Path, engine: str, optional: set[str]) -> None:
    with Session(f"{tmp_path}/", entity_types=[Thing], engine_version=engine) as session:
        session.ensure([Thing(id=1, size=0.5), Thing(id=2, size=1.5, note="big")])
    (file,) = tmp_path.rglob("*.parquet")
    schema = pq.read_schema(file)
    assert {name for name in ("entity_key", "size", "note") if schema.field(name).nullable} == optional
