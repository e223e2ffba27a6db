"""Keys that a process keeps in memory are exactly those of the version that is asked for, whoever moved the table."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from graph_support import TYPES, Customer, Order, Placed, customers, held
from hypothesis import given
from hypothesis import strategies as st

from ontolake.graph import DuplicateKeyError, EndpointError, Graph
from ontolake.graph.tables import known_keys
from ontolake.graph.tables.membership import KeyBlock, KeyLookup

numbers = (st.integers(-20, 20) | st.sampled_from([2**63 - 1, -(2**63), 2**61 - 1, 2**61, 0])
           | st.integers(-(2**63), 2**63 - 1))
words = st.text("ab\x00é", max_size=3)
columns = st.sampled_from([(numbers,), (words,), (numbers, numbers), (words, numbers), (words, words)])


@given(columns.flatmap(lambda kinds: st.tuples(st.just(kinds), st.lists(st.tuples(*kinds), max_size=30),
                                               st.lists(st.tuples(*kinds), max_size=30))))
def test_a_block_has_exactly_its_keys(drawn: tuple[Any, list[tuple[Any, ...]], list[tuple[Any, ...]]]) -> None:
    kinds, stored, others = drawn

    def arrays(rows: list[tuple[Any, ...]]) -> list[Any]:
        return [pa.array([row[place] for row in rows], pa.int64() if kind is numbers else pa.string())
                for place, kind in enumerate(kinds)]

    asked = stored[::2] + others
    assert KeyBlock(arrays(stored)).has(KeyLookup(arrays(asked))).tolist() == [key in stored for key in asked]


@pytest.mark.slow
@pytest.mark.parametrize(("single", "read"), [(32, 20_000), (160, 4), (65_536, 20_000)])
def test_checks_see_what_all_have_written(url: str, monkeypatch: pytest.MonkeyPatch, single: int, read: int) -> None:
    """Two handles, a branch, deletions and upkeep, with keys kept one by one, in blocks, and both."""
    monkeypatch.setattr(known_keys, "SINGLE_ROWS", single)
    monkeypatch.setattr(known_keys, "READ_ROWS", read)
    choose = random.Random(single)
    with Graph.init(url, TYPES) as one, Graph.open(url) as two:
        one.load(Order, [{"id": 0}])
        there: dict[str, set[str]] = {"main": set()}
        for number in range(60):
            via, branch = choose.choice([one, two]), choose.choice(sorted(there))
            names = [f"k{choose.randrange(40)}" for _ in range(choose.randrange(1, 8))]
            names = list(dict.fromkeys(names))
            act = choose.randrange(6)
            if act == 0 and there[branch]:
                gone = choose.sample(sorted(there[branch]), min(3, len(there[branch])))
                assert via.delete(Customer, gone, branch=branch) == len(gone)
                there[branch] -= set(gone)
                with pytest.raises(EndpointError):
                    via.load(Placed, [{"left_key": gone[0], "right_key": 0}], branch=branch)
                via.load(Customer, customers(gone[0]), mode="append", branch=branch)
                there[branch].add(gone[0])
            elif act == 1 and len(there) < 3:
                via.branches.create(f"b{number}", parent=branch)
                there[f"b{number}"] = set(there[branch])
            elif act == 2:
                via.optimize(branch=branch)
            elif there[branch] & set(names):
                with pytest.raises(DuplicateKeyError):
                    via.load(Customer, customers(*names), mode="append", branch=branch)
                via.load(Customer, customers(*names), branch=branch)
                there[branch] |= set(names)
            else:
                with pytest.raises(EndpointError):
                    via.load(Placed, [{"left_key": names[0], "right_key": 0}], branch=branch)
                via.load(Customer, customers(*names), mode="append", branch=branch)
                there[branch] |= set(names)
            rows = held(choose.choice([one, two]), branch)["node/Customer"]
            assert rows.keys() == there[branch]
