"""Checks of what runs say about the rows of older runs that they replace: reads of the latest state trust it.

A number that is wrong hides a row of another key, or shows a row that has a successor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ontolake.arrow_values import numbers
from ontolake.history import Damage
from ontolake.model.stored import StoredType
from ontolake.ontology.arrow.physical import DELETED, REPLACES, ROW, Type, concat, flags, key_texts, places
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.layout import DataFile
from ontolake.ontology.repository.objects.states import state_of
from ontolake.ontology.repository.protocol import SchemaVersion

if TYPE_CHECKING:
    from ontolake.ontology.repository.objects.base import S3Repository

_NO_ROW = 0
"""Rows are numbered from 1 on."""


def check_links(repository: S3Repository) -> Iterator[Damage]:
    """Wrong numbers of replaced rows in the runs of every branch, of every version of every type."""
    for version, runs in linked_runs(repository):
        info = StoredType(version.schema)
        repository.files.load(runs)
        yield from wrong_links(info, [(file, repository.files.table(file, link_columns(info))) for file in runs])


def linked_runs(repository: S3Repository) -> Iterator[tuple[SchemaVersion, tuple[DataFile, ...]]]:
    """The runs of every version of every type in which rows can replace another, once, whichever branches have them."""
    seen: set[tuple[str, ...]] = set()
    for line in repository.lines() if repository.keeps_deletions else ():
        moment = line.moment()
        for key in moment.schemas.types:
            for version in moment.versions(*layout.split_key(key)):
                state = state_of(line, moment, version)
                runs = () if state is None else state.runs
                paths = tuple(file.path for file in runs)
                if len(runs) > 1 and paths not in seen:
                    seen.add(paths)
                    yield version, runs


def link_columns(info: Type) -> list[str]:
    """The columns that `wrong_links` looks at."""
    return [*places(info.keys), ROW, DELETED, REPLACES]


def wrong_links(info: Type, runs: Sequence[tuple[DataFile, pa.Table]]) -> Iterator[Damage]:
    """Runs that name other rows than those they replace. They come with their rows, from the oldest to the newest.

    A row replaces the last one of its key in older runs. If that one ends the key there is nothing to hide.
    """
    tables = [table for _, table in runs]
    every = concat([table.select([name for name in table.column_names if name != REPLACES]) for table in tables])
    number = np.repeat(np.arange(len(runs)), [len(table) for table in tables])
    texts = key_texts(info, every)
    codes = numbers(texts.dictionary_encode().indices)
    order = np.lexsort((number, codes))
    newer, older = order[1:], order[:-1]
    hides = (codes[newer] == codes[older]) & ~flags(every)[older]
    right = np.full(len(every), _NO_ROW, np.int64)
    right[newer[hides]] = numbers(every.column(ROW))[older[hides]]
    start = 0
    for file, table in runs:
        first, start = start, start + len(table)
        if not file.is_linked:  # reads compare its keys
            continue
        if file.replaces and REPLACES not in table.column_names:
            yield Damage(file.path, f"it has no column {REPLACES}, and the manifest says it has")
            continue
        said = numbers(table.column(REPLACES).fill_null(_NO_ROW)) if file.replaces else np.full(len(table), _NO_ROW)
        wrong = np.flatnonzero(said != right[first:start])
        if len(wrong):
            at = int(wrong[0])
            yield Damage(file.path, f"{len(wrong)} rows do not name the row that they replace: that of "
                                    f"{texts[first + at].as_py()!r} names {_told(said[at])}, and replaces "
                                    f"{_told(right[first + at])}")


def _told(row: int) -> str:
    return "no row" if row == _NO_ROW else f"row {row}"
