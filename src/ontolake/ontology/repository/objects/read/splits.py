"""Splits of typed stores on objects: of every Parquet file the row groups that can have keys of a range.

Planning reads the directories of big files and no data. Row groups whose statistics rule a filter out are left out
where no older row can come to light instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, assert_never

from ontolake.arrow_values import int_scalar, numbers
from ontolake.model.columns import Column
from ontolake.model.types import TypeInfo
from ontolake.ontology.arrow.physical import (
    COMMIT,
    DELETED,
    ROW,
    SUPERSEDED,
    Type,
    concat,
    empty_table,
    flags,
    key_texts,
    living,
    physical,
    physical_type,
    place,
    places,
    public_table,
)
from ontolake.ontology.parallel.filters import column_of, usable
from ontolake.ontology.repository.objects.layout import DataFile
from ontolake.ontology.repository.objects.read.scan import Span, last_of_each, relevant, within
from ontolake.ontology.repository.ranges import KeyRange, change_name, checked, deleted_name, public_schema, with_change
from ontolake.parallel import BATCH, LEAST, PARTS, Filter, FilterOp, Split

if TYPE_CHECKING:
    import pyarrow as pa

    from ontolake.ontology.repository.objects.base import S3Repository

Groups = tuple[int, ...] | None
_AHEAD = 16
"""Directories of files that are read at a time."""


@dataclass(frozen=True)
class FileParts(KeyRange):
    """Row groups of files, and the range of keys that is read of them. `groups` is None for a whole file."""

    files: tuple[tuple[DataFile, Groups], ...] = ()
    earlier: tuple[DataFile, ...] = ()
    """For changes: the files that have rows from before."""

    def _read_all(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        with self.open(self.url, self.branch) as opened:
            repository = opened.holding(self.view.commit)
            info = checked(repository, self.schema, self.schema_hash, self.version)
            change = change_name(info)
            names = [name for name in self.columns if name != change or self.view.mode != "changes"]
            schema = public_schema(info, self.view.mode if self.view.mode == "history" else "latest",
                                   deletions=repository.keeps_deletions)
            wanted = tuple(column for column in info.all_columns if column.stored in self.columns)
            table = self._rows(repository, info, wanted)
            shown = public_table(wanted, table)
            shown = shown.rename_columns([*shown.column_names[:-1], public_schema(info, "latest").names[-1]])
            if deleted_name(info) in self.columns and self.view.mode == "history":
                shown = shown.append_column(deleted_name(info), pa.array(flags(table), pa.bool_()))
            for at, name in enumerate(shown.column_names):
                if shown.field(at).type != schema.field(name).type:
                    shown = shown.set_column(at, schema.field(name), shown.column(at).cast(schema.field(name).type))
            if self.view.mode == "changes":
                kinds = self._kinds(repository, info, table)
                for batch, kind in zip(_batches(shown.select(names)), _pieces(kinds), strict=True):
                    yield with_change(batch, change, kind, self.columns)
                return
            yield from _batches(shown.select(names))

    def _rows(self, repository: S3Repository, info: TypeInfo, wanted: Sequence[Column]) -> pa.Table:
        history = self.view.mode != "latest"
        span = Span(self.view.commit, self.view.since if self.view.mode == "changes" else None, history)
        columns = (*info.keys, *(column for column in wanted if column not in info.keys))
        names = [*places(columns), COMMIT, ROW, DELETED]
        repository.files.load([file for file, groups in self.files if groups is None])
        tables = []
        for file, groups in self.files:
            also = [SUPERSEDED] if file.superseded is not None and not history else []
            if groups is None:
                table = repository.files.table(file, [*names, *also])
            else:
                table = repository.files.groups(file, groups, [*names, *also])
            table = in_range(info, table, self.low, self.high)
            if also:
                import pyarrow.compute as pc

                later = pc.greater(table.column(SUPERSEDED), int_scalar(self.view.commit))
                table = table.filter(later).drop_columns(also)
            tables.append(_completed(table, columns))
        if not tables:
            return empty_table(info, columns)
        found = within(concat(tables), span)
        past = any(file.superseded is not None for file, _ in self.files)
        plain = not past and (len(tables) < 2 or not any(file.updates for file, _ in self.files))
        found = found if history or plain else last_of_each(info, found)
        return living(found) if self.view.mode == "latest" else found

    def _kinds(self, repository: S3Repository, info: TypeInfo, table: pa.Table) -> pa.Array:
        """For each changed row whether it ends its key, and else whether that was there before."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = key_texts(info, table)
        codes = numbers(texts.dictionary_encode().indices)
        order = np.lexsort((numbers(table.column(ROW)), codes))
        ended = flags(table)
        again, there = np.zeros(len(table), dtype=bool), np.zeros(len(table), dtype=bool)
        again[order[1:]] = codes[order][1:] == codes[order][:-1]
        there[order[1:]] = again[order[1:]] & ~ended[order][:-1]
        before: list[pa.Table] = []
        leading = sorted({*_encoded_keys(info, table)})
        for file in self.earlier if leading else ():
            small = file.row_count <= repository.files.sizes.small_rows
            groups = None if small else repository.files.groups_of(info, file, leading)
            names = [*places(info.keys), COMMIT, ROW, DELETED]
            if groups is None or len(leading) > BATCH:
                part = repository.files.table(file, names)
            elif not groups:
                continue
            else:
                part = repository.files.groups(file, groups, names)
            part = part.filter(pc.less_equal(part.column(COMMIT), int_scalar(self.view.since)))
            before.append(part.filter(pc.is_in(key_texts(info, part), value_set=texts)))
        if before:
            last = concat(before)
            last = living(last_of_each(info, last)) if DELETED in last.column_names else last
            there |= ~again & numbers(pc.is_in(texts, value_set=key_texts(info, last))).astype(bool)
        return pa.array(np.where(ended, "delete", np.where(there, "update", "insert")), pa.string())


def in_range(info: Type, table: pa.Table, low: Any, high: Any) -> pa.Table:
    """The rows whose leading keys lie in `[low, high)`; None is no bound."""
    import pyarrow.compute as pc

    for bound, keep in ((low, pc.greater_equal), (high, pc.less)):
        if bound is not None:
            keys = table.column(place(info.keys[0]))
            table = table.filter(keep(keys, physical(info.keys[0], info.keys[0].type.to_arrow([bound]))[0]))
    return table


def _encoded_keys(info: TypeInfo, table: pa.Table) -> list[Any]:
    from ontolake.ontology.arrow.physical import encoded

    return encoded(info.keys[0], table)


def _completed(table: pa.Table, columns: Sequence[Column]) -> pa.Table:
    import pyarrow as pa

    for column in columns:
        if place(column) not in table.column_names:
            table = table.append_column(place(column), pa.nulls(len(table), physical_type(column)))
    return table


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from table.combine_chunks().to_batches(max_chunksize=BATCH)


def _pieces(kinds: pa.Array) -> list[pa.Array]:
    return [kinds[start : start + BATCH] for start in range(0, len(kinds), BATCH)]


def object_splits(
    repository: S3Repository, info: TypeInfo, whole: KeyRange, parts: int | None
) -> Sequence[Split]:  # fmt: skip
    """The splits of a type at a moment. Where files of several schema versions are read as one, there is only one."""
    view, filters = whole.view, whole.filters
    with repository.reading():
        state = repository.files_of(info)
        if not repository.versions_apart:
            return [replace(whole, rows=sum(file.row_count for file in state.runs) if state else 0)]
        span = Span(view.commit, view.since if view.mode == "changes" else None, view.mode != "latest")
        runs, past = relevant(state, span)
        files = [*past, *runs]
        if not files:
            return []
        total = sum(file.row_count for file in files)
        parts = min(parts or PARTS, max(1, total // LEAST))
        if parts > 1 or filters:
            _look_ahead(repository, files)
        cuts = [] if parts < 2 else cuts_of(repository, info, files, parts)
        earlier = tuple(file for file in (*(state.past if state else ()), *(state.runs if state else ()))
                        if file.min_commit_id <= view.since) if view.mode == "changes" and view.since else ()
        # A row group may be left out if nothing in it replaces an older row that would be seen in its place.
        free: set[str] = set()
        if view.mode == "history" or (view.mode == "latest" and not past and not any(one.updates for one in runs)):
            free = {file.path for file in files}
        elif view.mode == "latest" and not past:
            free = {runs[0].path}
        kept = {file.path: _kept(repository, info, file, filters) if file.path in free else None for file in files}
        edges: list[Any] = [None, *cuts, None]
        found = []
        for low, high in itertools.pairwise(edges):
            chosen = [(file, groups) for file in files
                      if (groups := groups_within(repository, info, file, low, high, kept[file.path])) != ()]
            if chosen:
                rows = sum(file.row_count if groups is None else
                           sum(repository.files.statistics(file).row_group(n).num_rows for n in groups)
                           for file, groups in chosen)
                found.append(FileParts(whole.url, whole.branch, whole.open, whole.schema, whole.schema_hash, view,
                                       whole.columns, filters, rows, low, high, whole.digits, whole.version,
                                       whole.scalars, tuple(chosen), earlier))
        return found


def _look_ahead(repository: S3Repository, files: Sequence[DataFile]) -> None:
    """Read the directories of big files, many at a time: planning waits for little else."""
    big = [file for file in files if file.row_count > repository.files.sizes.small_rows]
    if len(big) > 1:
        with ThreadPoolExecutor(_AHEAD) as pool:
            list(pool.map(repository.files.statistics, big))


def cuts_of(repository: S3Repository, info: Type, files: Sequence[DataFile], parts: int) -> list[Any]:
    """Keys at which to cut: quantiles of where row groups begin."""
    starts: list[tuple[Any, int]] = []
    for file in files:
        if file.row_count <= repository.files.sizes.small_rows:
            starts.append((file.low, file.row_count))
            continue
        ranges = repository.files.ranges(info, file)
        if not ranges.low:
            return []
        starts += [(low, repository.files.statistics(file).row_group(n).num_rows) for n, low in enumerate(ranges.low)]
    if any(low is None for low, _ in starts) or info.keys[0].type.zoned:
        return []
    starts.sort()
    cuts: list[Any] = []
    total, done = sum(rows for _, rows in starts), 0
    for low, rows in starts:
        if done >= total * (len(cuts) + 1) / parts and (not cuts or low > cuts[-1]) and low > starts[0][0]:
            cuts.append(low)
        done += rows
    return cuts[: parts - 1]


def groups_within(
    repository: S3Repository, info: Type, file: DataFile, low: Any, high: Any, kept: frozenset[int] | None = None
) -> Groups:  # fmt: skip
    """The row groups of a file with keys in a range; None for all of a small one, () for none."""
    if (low is not None and file.high is not None and file.high < low) or (
            high is not None and file.low is not None and file.low >= high):
        return ()
    if file.row_count <= repository.files.sizes.small_rows or (low is None and high is None and kept is None):
        return None
    ranges = repository.files.ranges(info, file)
    numbers = range(repository.files.statistics(file).num_row_groups)
    return tuple(n for n in numbers if (kept is None or n in kept) and (not ranges.low or (
        (low is None or ranges.high[n] >= low) and (high is None or ranges.low[n] < high))))


def _kept(
    repository: S3Repository, info: TypeInfo, file: DataFile, filters: Sequence[Filter]
) -> frozenset[int] | None:  # fmt: skip
    """The row groups of a big file that the filters leave, by their statistics."""
    if file.row_count <= repository.files.sizes.small_rows or not filters:
        return None
    meta = repository.files.statistics(file)
    names = {meta.schema.column(n).name: n for n in range(len(meta.schema))}
    kept = set(range(meta.num_row_groups))
    for one in filters:
        column = column_of(info, one.column)
        if column is None or place(column) not in names or not column.type.ranged:
            continue
        if not usable(column, one.values):
            continue
        aware = [_aware(value) for value in one.values]
        for number in tuple(kept):
            stats = meta.row_group(number).column(names[place(column)]).statistics
            if stats is not None and stats.has_min_max and not _possible(one.op, aware, stats.min, stats.max):
                kept.discard(number)
    return frozenset(kept)


def _aware(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


def _possible(op: FilterOp, values: Sequence[Any], low: Any, high: Any) -> bool:
    """Whether any value between two others can fulfil a filter."""
    low, high = _aware(low), _aware(high)
    match op:
        case "==" | "in":
            return any(low <= value <= high for value in values)
        case "<":
            return bool(low < values[0])
        case "<=":
            return bool(low <= values[0])
        case ">":
            return bool(high > values[0])
        case ">=":
            return bool(high >= values[0])
        case "startswith" | "is_null" | "is_not_null":  # of which the least and the greatest value say nothing
            return True
        case _:
            assert_never(op)
