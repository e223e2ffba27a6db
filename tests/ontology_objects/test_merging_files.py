"""The rules of merging files, each by itself: which files, what goes to the past, and what the new ones say."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from ontolake.model import Entity, Field
from ontolake.model.types import type_info
from ontolake.objects import ObjectStore, open_store
from ontolake.ontology.repository.objects.access import StoreObjects
from ontolake.ontology.repository.objects.files import Files, parquet_table, write_file
from ontolake.ontology.repository.objects.layout import DataFile, TypeState
from ontolake.ontology.repository.objects.upkeep.merge import (
    Merged,
    due_past,
    due_runs,
    level_of,
    merge_all,
    mergeable,
    parted,
    tidy,
)
from ontolake.ontology.sizes import Sizes


class Reading(Entity):
    id: Field[int] = Field(primary_key=True)
    value: Field[int]


INFO = type_info(Reading)
Rows = list[tuple[int | None, ...]]


def table(rows: Sequence[Sequence[int | None]], *more: str) -> pa.Table:
    """Rows of key and commit, and what further columns say; the value is ten times the commit."""
    parts = [pa.array(part, pa.int64()) for part in zip(*rows, strict=True)]
    values = pa.array([row[1] * 10 for row in rows if row[1] is not None], pa.int64())
    numbers = pa.array([row[1] * 100 + row[0] for row in rows if row[0] is not None and row[1] is not None], pa.int64())
    names = ("entity_key", "commit_id", *more, "value", "row_id")
    return pa.table(dict(zip(names, (*parts, values, numbers), strict=True)))


def seen(found: pa.Table, *more: str) -> Rows:
    """Key and commit of each row, and further columns, as the table has them."""
    assert found.column("value").to_pylist() == [commit * 10 for commit in found.column("commit_id").to_pylist()]
    return list(zip(*(found.column(name).to_pylist() for name in ("entity_key", "commit_id", *more)), strict=True))


# what is kept, and what has a successor


def test_the_last_row_of_a_key_is_kept_and_the_others_name_their_successors() -> None:
    kept, old = parted(INFO, table([(3, 1), (1, 1), (2, 2), (1, 3), (1, 4), (3, 5)]))
    assert seen(kept, "$first_commit") == [(1, 4, 1), (2, 2, 2), (3, 5, 1)]
    assert seen(old, "$superseded_by") == [(1, 1, 3), (1, 3, 4), (3, 1, 5)]
    assert "$first_commit" not in old.column_names


def test_the_successor_of_a_row_is_the_first_state_of_the_next_run_whatever_is_left_of_it() -> None:
    early = table([(1, 1), (2, 1), (4, 2)])
    merged = table([(1, 5, 3), (3, 4, 4), (4, 5, None)], "$first_commit")
    kept, old = parted(INFO, pa.concat_tables([early, merged], promote_options="default"))
    assert seen(kept, "$first_commit") == [(1, 5, 1), (2, 1, 1), (3, 4, 4), (4, 5, 2)]
    assert seen(old, "$superseded_by") == [(1, 1, 3), (4, 2, 5)]


def test_rows_of_different_keys_all_stay_as_they_are() -> None:
    kept, old = parted(INFO, table([(2, 4, 3), (1, 2, 2)], "$first_commit"))
    assert (seen(kept, "$first_commit"), len(old)) == ([(1, 2, 2), (2, 4, 3)], 0)
    assert [len(part) for part in parted(INFO, table([(1, 1)]))] == [1, 0]


# which files

SIZES = Sizes(fan=3, most_runs=5, level_rows=4, merged_rows=10)


def test_the_level_of_a_file_follows_from_its_rows() -> None:
    assert [level_of(rows, SIZES) for rows in (0, 3, 4, 11, 12, 35, 36)] == [0, 0, 1, 1, 2, 2, 3]


def sized(*levels: int, rows: Sequence[int] | None = None) -> list[DataFile]:
    """Files of these levels, of one row each unless it is said of how many."""
    return [DataFile(f"f{n}", 1 if rows is None else rows[n], 0, 1, 1, 1, level=level)
            for n, level in enumerate(levels)]  # fmt: skip


@pytest.mark.parametrize(
    ("levels", "due"),
    [((), None), ((0, 0), None), ((0, 0, 0), (0, 3)), ((1, 0, 0, 0), (1, 4)), ((1, 1, 0, 0, 0), (2, 5)),
     ((1, 1, 0), None), ((1, 1, 1), (0, 3)), ((1, 1, 1, 0), (0, 4)), ((2, 1, 0, 1, 1), (1, 5)), ((0, 1, 0, 0), None),
     ((0, 0, 0, 1), None), ((0, 0, 1, 0), None)],
)  # fmt: skip
def test_the_newest_runs_are_due_once_there_are_enough_of_a_level(
    levels: tuple[int, ...], due: tuple[int, int] | None
) -> None:  # fmt: skip
    assert due_runs(sized(*levels), SIZES) == due


def test_runs_with_too_many_rows_stay() -> None:
    assert due_runs(sized(0, 0, 0, rows=[4, 3, 3]), SIZES) == (0, 3)
    assert due_runs(sized(0, 0, 0, rows=[4, 3, 4]), SIZES) is None


@pytest.mark.parametrize(
    ("rows", "due"),
    [((1, 1, 1, 1, 1), None), ((9, 1, 1, 5, 2, 2), (1, 4)), ((9, 9, 9, 1, 1, 1), (3, 6)), ((1, 1, 1, 9, 9, 9), (0, 3)),
     ((4, 3, 3, 4, 3, 4), (0, 3)), ((4, 4, 3, 4, 4, 3), None)],
)  # fmt: skip
def test_the_smallest_neighbours_are_due_once_there_are_too_many_runs(
    rows: tuple[int, ...], due: tuple[int, int] | None
) -> None:  # fmt: skip
    descending = range(len(rows))[::-1]
    assert due_runs(sized(*descending, rows=rows), SIZES) == due


def test_files_of_the_past_are_due_in_any_order() -> None:
    def due(*levels: int, rows: Sequence[int] | None = None) -> set[int] | None:
        return due_past({n * 2: file for n, file in enumerate(sized(*levels, rows=rows))}, SIZES)

    assert due(0, 0) is None
    assert due(0, 1, 0, 0) == {0, 4, 6}
    assert due(1, 0, 1, 2, 1) == {0, 2, 4, 8}
    assert due(1, 0, 0, 1, 2, 2) is None
    assert due(0, 0, 0, rows=[4, 3, 3]) == {0, 2, 4}
    assert due(0, 0, 0, rows=[4, 3, 4]) is None


def test_a_type_is_mergeable_if_its_version_has_two_runs_or_two_files_of_the_past() -> None:
    one, two, three = sized(0, 0, 0)
    old, older = (replace(file, schema_version_id=0) for file in (two, three))
    for runs, past, expected in [((), (), False), ((one,), (one,), False), ((one, two), (), True),
                                 ((one,), (one, two), True), ((one, old, older), (one, old, older), False),
                                 ((one, two, three), (), True)]:  # fmt: skip
        assert mergeable(TypeState(1, 1, runs=runs, past=past)) is expected, (runs, past)


# what becomes of them


class Lake:
    """Files in a store, and what merging makes of them."""

    def __init__(self, url: str, sizes: Sizes) -> None:
        self.store: ObjectStore = open_store(url)
        self.files = Files(StoreObjects(self.store), sizes)
        self._numbers = count()

    def place(self, what: str) -> str:
        return f"{what} {next(self._numbers)}"

    def file(self, rows: pa.Table, *, version: int = 2, level: int = 0, updates: int = 0, stored: bool = True
             ) -> DataFile:  # fmt: skip
        file, data = write_file(INFO, rows, f"given {next(self._numbers)}", version, level=level, updates=updates)
        if stored:
            self.store.put(file.path, data)
        return file

    def tidied(self, runs: Sequence[DataFile], past: Sequence[DataFile] = (), fresh: Any = None) -> Merged:
        return tidy(INFO, TypeState(2, 7, 99, tuple(runs), tuple(past)), self.files, self.place, fresh=fresh)

    def merged(self, runs: Sequence[DataFile], past: Sequence[DataFile] = ()) -> Merged:
        return merge_all(INFO, TypeState(2, 7, 99, tuple(runs), tuple(past)), self.files, self.place)


def told(file: DataFile) -> tuple[str, int, int, int]:
    return file.path.split()[0], file.row_count, file.level, file.updates


FEW = Sizes(fan=2, most_runs=9, level_rows=4, merged_rows=100)


def test_two_runs_become_one_and_a_file_of_the_past(memory: str) -> None:
    lake = Lake(memory, FEW)
    runs = [lake.file(table([(1, 1), (2, 1)])), lake.file(table([(3, 2), (1, 2)]), updates=1)]
    found = lake.tidied(runs)
    [run], [past] = found.state.runs, found.state.past
    assert (told(run), told(past)) == (("run", 3, 1, 0), ("past", 1, 0, 0))
    assert (found.state.schema_version_id, found.state.activation_commit_id, found.state.next_row) == (2, 7, 99)
    assert (past.superseded, run.superseded, run.min_commit_id, run.max_commit_id) == (2, None, 1, 2)
    for written in ({path: parquet_table(data) for path, data in found.objects.items()},
                    {path: rows for path, (_, rows) in found.tables.items()}):  # fmt: skip
        assert written.keys() == {run.path, past.path}
        assert seen(written[run.path]) == [(1, 2), (2, 1), (3, 2)]
        assert seen(written[past.path], "$superseded_by") == [(1, 1, 2)]
    assert [file for file, _ in found.tables.values()] == [run, past]
    assert (run.size, past.size) == (len(found.objects[run.path]), len(found.objects[past.path]))


def test_runs_of_another_version_stay_and_updates_of_later_runs_are_added_up(memory: str) -> None:
    lake = Lake(memory, FEW)
    before = [lake.file(table([(1, 1)]), version=1), lake.file(table([(2, 2)]), version=1)]
    runs = [lake.file(table([(1, 3)]), updates=1), lake.file(table([(2, 4), (5, 4)]), updates=1)]
    for found in (lake.tidied([*before, *runs]), lake.merged([*before, *runs])):
        assert list(found.state.runs[:2]) == before
        assert [told(file) for file in found.state.runs[2:]] == [("run", 3, 1, 2)]
        assert found.state.past == ()
    found = lake.tidied([before[0], lake.file(table([(9, 3)]), level=5), *runs])
    assert [told(file) for file in found.state.runs] == [("given", 1, 0, 0), ("given", 1, 5, 0), ("run", 3, 1, 2)]


def test_merges_go_on_level_by_level_and_only_what_remains_is_written(memory: str) -> None:
    lake = Lake(memory, FEW)
    runs = [lake.file(table([(1, 1)]), level=2), lake.file(table([(1, 2)]), level=1, updates=1),
            lake.file(table([(1, 3)]), updates=1), lake.file(table([(1, 4)]), updates=1)]  # fmt: skip
    past = [lake.file(table([(7, 1, 2)], "$superseded_by"), version=1),
            lake.file(table([(7, 2, 3)], "$superseded_by"), level=3)]  # fmt: skip
    found = lake.tidied(runs, past)
    assert [told(file) for file in found.state.runs] == [("run", 1, 3, 0)]
    assert list(found.state.past[:2]) == past
    [run], [replaced] = found.state.runs, found.state.past[2:]
    assert told(replaced) == ("past", 3, 1, 0), "one file of each merge of runs"
    assert found.objects.keys() == {run.path, replaced.path}
    assert seen(found.tables[run.path][1], "$first_commit") == [(1, 4, 1)]
    assert seen(found.tables[replaced.path][1], "$superseded_by") == [(1, 1, 2), (1, 2, 3), (1, 3, 4)]


def test_the_level_of_a_merged_run_counts_the_rows_that_were_replaced(memory: str) -> None:
    lake = Lake(memory, FEW)
    runs = [lake.file(table([(key, commit) for key in range(5)])) for commit in (1, 2)]
    found = lake.tidied(runs)
    assert [told(file) for file in (*found.state.runs, *found.state.past)] == [("run", 5, 2, 0), ("past", 5, 1, 0)]


def test_files_that_are_not_written_yet_are_not_read(memory: str) -> None:
    lake = Lake(memory, FEW)
    stored, rows = lake.file(table([(1, 1)])), table([(1, 2)])
    fresh = lake.file(rows, updates=1, stored=False)
    found = lake.tidied([stored, fresh], fresh={fresh.path: rows})
    assert [told(file) for file in found.state.runs] == [("run", 1, 1, 0)]
    assert lake.tidied([stored]).state.runs == (stored,), "one run is nothing to merge"


def test_everything_is_merged_on_demand_whatever_the_levels(memory: str) -> None:
    lake = Lake(memory, FEW)
    runs = [lake.file(table([(1, 1), (2, 1)]), level=3), lake.file(table([(2, 2)]), level=1, updates=1)]
    past = [lake.file(table([(1, 0, 1)], "$superseded_by"), level=2),
            lake.file(table([(5, 1, 2)], "$superseded_by"), version=1)]  # fmt: skip
    found = lake.merged(runs, past)
    assert [told(file) for file in found.state.runs] == [("run", 2, 4, 0)]
    assert found.state.past[0] == past[1]
    assert [told(file) for file in found.state.past[1:]] == [("past", 2, 3, 0)]
    assert seen(found.tables[found.state.past[1].path][1], "$superseded_by") == [(1, 0, 1), (2, 1, 2)]


def test_what_is_one_file_already_stays_that_file(memory: str) -> None:
    lake = Lake(memory, FEW)
    old, run = lake.file(table([(1, 1)]), version=1), lake.file(table([(1, 3), (2, 3)]))
    past = lake.file(table([(1, 2, 3)], "$superseded_by"))
    for runs in ([run], [old, run]):
        found = lake.merged(runs, [past])
        assert (list(found.state.runs), list(found.state.past), found.objects) == (runs, [past], {})
    two = [past, lake.file(table([(2, 1, 3)], "$superseded_by"))]
    found = lake.merged([run], two)
    assert (found.state.runs, [told(file) for file in found.state.past]) == ((run,), [("past", 2, 1, 0)])
