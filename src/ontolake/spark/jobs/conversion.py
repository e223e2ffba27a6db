"""`convert`: a typed store with another engine or at another place, commit by commit, with its history.

Workers read ranges of commits and stage them beside the copy; the driver makes the commits of the copy in their order,
one after the other, out of what is staged; in the end workers compare both, row by row. What was interrupted goes on
where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

from ontolake.model.stored import StoredType
from ontolake.ontology.arrow.physical import COMMIT, encoded, places, rows_of
from ontolake.ontology.moving.conversion import (
    ByCommit,
    Conversion,
    History,
    Name,
    Progress,
    VersionRows,
    compare_rows,
    engine_for,
    twin_of,
)
from ontolake.ontology.moving.conversion import convert as copy
from ontolake.ontology.repository import open_repository
from ontolake.ontology.repository.jobs import CommitLog, CommitRows
from ontolake.ontology.repository.protocol import Repository, Row, SchemaVersion
from ontolake.parallel import Fragment, absolute, discard, new_job, stage
from ontolake.spark.jobs.places import need, typed, workers_of
from ontolake.spark.jobs.workers import Workers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

ROWS = 1 << 19
"""Rows that a part has at most, unless one commit has more."""


def convert(
    source: str, target: str, *, spark: SparkSession | Workers | None = None, engine_version: str | None = None,
    parts: int | None = None, progress: Progress | None = None,
) -> Conversion:  # fmt: skip
    """Copy every commit that `target` does not have yet, then compare all rows of both.

    Raises `JobError` for what is no typed store, `StorageBackendError` if the target holds something else than a part
    of the source, or if rows differ in the end.
    """
    where, _ = need("convert", source, {
        "objects": None, "sqlite": None, "graph": "onto graph export and import copy a graph",
        "documents": "copy the file of the space", "sql": "copy the file of the database"})  # fmt: skip
    place, job = absolute(target), new_job()
    with typed(where) as old:
        new = open_repository(place, engine_version=engine_for(old, engine_version))
        try:
            history = StagedHistory(old, new, where, place, job, workers_of(spark, parts))
            return copy(old, new, progress, history=history)
        finally:
            new.close()
            discard(place, job)


class StagedHistory(History):
    """Rows that workers read, stage and compare."""

    def __init__(
        self, source: Repository, target: Repository, source_url: str, target_url: str, job: str, workers: Workers
    ) -> None:  # fmt: skip
        super().__init__(source, target)
        self._urls = source_url, target_url
        self._job = job
        self._workers = workers
        self._log = source.commit_log()

    def rows(self, version: SchemaVersion, have: int) -> ByCommit:
        counts = self._log.counts(version)
        ranges = self._ranges(version, {commit: rows for commit, rows in counts.items() if commit > have})
        staged = self._workers.run(stage_commits, [(one, self._urls[1], self._job) for one in ranges])
        return StagedRows(version, counts, [one for one in staged if one is not None])

    def _ranges(self, version: SchemaVersion, counts: Mapping[int, int]) -> list[TypeCommits]:
        most = min(ROWS, max(1, -(-sum(counts.values()) // self._workers.parts)))
        return [_commits(self._urls[0], self._log, version, since, until) for since, until in _cut(counts, most)]

    def compare(self, types: Mapping[Name, list[VersionRows]]) -> int:
        """Compare what was copied, ranges of commits on both sides at once."""
        log, items = self._target.commit_log(), []
        for versions in types.values():
            for one in versions:
                twin = twin_of(one.version, self._target)
                counts = {commit: cast(StagedRows, one.by_commit).counts[commit] for commit in one.by_commit}
                items += [(left, _commits(self._urls[1], log, twin, left.since, left.until))
                          for left in self._ranges(one.version, counts)]
        return sum(self._workers.run(compare_commits, items))


def _commits(url: str, log: CommitLog, version: SchemaVersion, since: int, until: int) -> TypeCommits:
    return TypeCommits(url, version, since, until, log.rows(version, since, until))


def _cut(counts: Mapping[int, int], most: int) -> Iterator[tuple[int, int]]:
    """Ranges `(since, until]` of commits with about so many rows each. The last one has no end."""
    since, rows = 0, 0
    commits = sorted(counts)
    for commit in commits:
        rows += counts[commit]
        if rows >= most and commit != commits[-1]:
            yield since, commit
            since, rows = commit, 0
    if commits:
        yield since, 1 << 62


class StagedRows(Mapping[int, list[Row]]):
    """The rows of a version by commit, out of staged files, of which one is held in memory."""

    def __init__(self, version: SchemaVersion, counts: Mapping[int, int], staged: Sequence[StagedCommits]) -> None:
        self.counts = counts
        self._stored = StoredType(version.schema)
        self._at: dict[int, tuple[Fragment, int, int]] = {
            commit: (one.fragment, start, rows) for one in staged for commit, start, rows in one.commits}
        self._held: tuple[str, pa.Table] | None = None

    def __iter__(self) -> Iterator[int]:
        return iter(self.counts)

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, commit: int) -> list[Row]:
        if commit not in self._at:
            raise KeyError(commit)
        fragment, start, rows = self._at[commit]
        if self._held is None or self._held[0] != fragment.key:
            self._held = fragment.key, fragment.read()
        table = self._held[1].slice(start, rows)
        return list(zip(*[encoded(column, table) for column in self._stored.all_columns], strict=True))


# on workers


@dataclass(frozen=True)
class TypeCommits:
    """What commits in `(since, until]` wrote under a version of a type."""

    url: str
    version: SchemaVersion
    since: int
    until: int
    rows: CommitRows

    def table(self) -> pa.Table | None:
        """The rows with their commits, oldest first; None if there are none."""
        with typed(self.url) as repository:
            table = self.rows.table(repository)
        return None if table is None or not len(table) else table.sort_by(COMMIT)


class StagedCommits(NamedTuple):
    """What became of a range of commits: a file, and of each commit where its rows begin in it and how many."""

    fragment: Fragment
    commits: tuple[tuple[int, int, int], ...]


def stage_commits(item: tuple[TypeCommits, str, str]) -> StagedCommits | None:
    """Read a range of commits and stage its rows beside the copy."""
    import numpy as np

    part, target, job = item
    table = part.table()
    if table is None:
        return None
    commits, starts, counts = np.unique(table.column(COMMIT).to_numpy(), return_index=True, return_counts=True)
    fragment = stage(target, f"{part.version.type_kind}/{part.version.type_name}", table.to_batches(), job=job)
    assert fragment is not None
    return StagedCommits(fragment, tuple(zip(commits.tolist(), starts.tolist(), counts.tolist(), strict=True)))


def compare_commits(item: tuple[TypeCommits, TypeCommits]) -> int:
    """How many rows a range of commits has, on both sides the same. Raises `StorageBackendError` if they differ."""
    stored = StoredType(item[0].version.schema)
    left, right = (part.table() for part in item)
    if left is not None and right is not None and _ordered(stored, left).equals(_ordered(stored, right)):
        return len(left)
    # They differ, or hold the same in another way, which only values tell.
    sides = [() if table is None else rows_of(stored.all_columns, table) for table in (left, right)]
    return compare_rows(item[0].version, *sides)


def _ordered(stored: StoredType, table: pa.Table) -> pa.Table:
    """The columns that a version has, in the order of commits and keys."""
    names = [name for name in (*places(stored.keys), *places(stored.columns)) if name in table.column_names]
    order = [(name, "ascending") for name in (COMMIT, *places(stored.keys)) if name in table.column_names]
    return table.select([*names, COMMIT]).sort_by(order).combine_chunks()
