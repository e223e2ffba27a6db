"""Rows of several runs come in the order in which they were written, and a key is found wherever its group has it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ontolake.model import Entity, Field
from ontolake.ontology import Session
from ontolake.ontology.arrow.physical import ROW, by_row
from ontolake.ontology.sizes import Sizes


@given(st.lists(st.lists(st.integers(0, 40), max_size=6), max_size=6))
def test_rows_of_chunks_are_sorted_as_if_they_were_one(parts: list[list[int]]) -> None:
    seen: set[int] = set()
    chunks = [[row for row in dict.fromkeys(part) if row not in seen and not seen.add(row)] for part in parts]
    numbers = pa.chunked_array([pa.array(chunk, pa.int64()) for chunk in chunks], pa.int64())
    values = pa.array([row * 10 for chunk in chunks for row in chunk], pa.int64())
    found = by_row(pa.table({ROW: numbers, "value": values}))
    assert found.column(ROW).to_pylist() == sorted(row for chunk in chunks for row in chunk)
    assert found.column("value").to_pylist() == [row * 10 for row in found.column(ROW).to_pylist()]


class Named(Entity):
    id: Field[str] = Field(primary_key=True)
    n: Field[int]


@pytest.mark.parametrize("key", ["", "a", "ab", "ä", "z", "\U0001f600", "\uffff"])
def test_a_key_is_found_by_halving_whatever_its_letters_are(tmp_path: Path, key: str) -> None:
    others = ["b", "c", "é", "ﬁ", "\ue000", "\U00010000", "zz", "A", "~"]
    config = {"sizes": Sizes(small_rows=2, group_rows=4)}
    with Session(f"file://{tmp_path}/named", entity_types=[Named], config=config) as session:
        session.ensure([Named(id=one, n=number) for number, one in enumerate([*others, *([key] if key else [])])])
        session.commit()
        query = session.query().entities(Named)
        assert {one: getattr(query.where(Named.id == one).first(), "n", None) for one in others} == {
            one: number for number, one in enumerate(others)}
        assert (query.where(Named.id == key).first() is not None) == bool(key)
