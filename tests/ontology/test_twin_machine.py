"""Random histories of a store in SQLite and one on objects at once.

Both do at each step what dictionaries do, and every form of query answers alike at every commit of every branch.

One machine has writes, deletions, branches, merges, reverts, picks, restorations, erasures, migrations, conversions
between the two, reopenings and upkeep. `--hypothesis-profile=deep` plays 10,000 steps; it asks
by every form at the end of each fifth history, and of the others by one form at each commit.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from .twin_answers import Answers
from .twins import Twins

DEEP = settings().max_examples >= 1000
LENGTH = 100 if DEEP else 40
PLACES = [("native", "objects in memory"), ("native", "objects in a directory"), ("page file", "objects in memory")]


def play(folder: Path, seed: int, number: int) -> Twins:
    twins = Twins(seed, folder, PLACES[seed % len(PLACES)])
    answers = Answers(twins)
    try:
        for place in range(number):
            twins.step()
            if place % 25 == 24:
                answers.everywhere(thorough=False)
        answers.everywhere(thorough=not DEEP or seed % 5 == 0)
    finally:
        twins.close()
    return twins


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100 if DEEP else 4))
def test_two_stores_do_what_dictionaries_do(tmp_path: Path, seed: int) -> None:
    assert play(tmp_path, seed, LENGTH).steps == LENGTH
