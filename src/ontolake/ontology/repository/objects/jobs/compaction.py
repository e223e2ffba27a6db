"""Merging the files of types by workers: each merges a range of keys of all files of a type.

Others go on reading and writing. The new files take the place of the old ones by one step of the store itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ontolake.faults import reach
from ontolake.model.stored import StoredType
from ontolake.ontology.arrow.physical import concat
from ontolake.ontology.errors import HeadMismatchError
from ontolake.ontology.repository.jobs import Compaction
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.base import Restated
from ontolake.ontology.repository.objects.files import write_file
from ontolake.ontology.repository.objects.jobs.ranges import KeyPart, check_written, key_parts, on_objects
from ontolake.ontology.repository.objects.layout import DataFile, TypeState
from ontolake.ontology.repository.objects.upkeep.maintenance import current_states
from ontolake.ontology.repository.objects.upkeep.merge import level_of, parted, settled
from ontolake.parallel import Workers

if TYPE_CHECKING:
    import pyarrow as pa

    from ontolake.ontology.repository.objects.base import S3Repository
    from ontolake.ontology.repository.objects.moment import HeadSnapshot


def compact(
    repository: S3Repository, workers: Workers, types: Collection[str] | None, dry_run: bool, rows_per_file: int
) -> list[Compaction]:  # fmt: skip
    """See `FileJobs.compact`."""
    work = _planned(repository, types, workers, rows_per_file)
    if dry_run or not work:
        return [one.compaction for one in work]
    return _publish(repository, work, workers)


class TypeWork(NamedTuple):
    """What is to be done to the files of one type: which are merged, in which parts."""

    key: str
    state: TypeState
    merged: frozenset[str]
    parts: Sequence[MergePart]

    @property
    def compaction(self) -> Compaction:
        files = [file for file in (*self.state.runs, *self.state.past) if file.path in self.merged]
        after = len(self.parts) * (2 if any(one.past for one in self.parts) else 1)
        return Compaction(layout.split_key(self.key)[1], len(files), after,
                          sum(file.row_count for file in files), sum(file.size for file in files))


@dataclass(frozen=True)
class MergePart(KeyPart):
    """A range of keys of files that are merged: `files` are runs, `past` has rows that were replaced before."""

    past: tuple[DataFile, ...] = ()
    kind: str = "entity"
    commit: int = 0
    level: int = 0
    replacing: bool = False
    """Whether what is merged lies above older files, of which it may replace rows."""


class MergedFiles(NamedTuple):
    """The files that a range of keys became."""

    runs: tuple[DataFile, ...]
    past: tuple[DataFile, ...]


def _planned(
    repository: S3Repository, types: Collection[str] | None, workers: Workers, each: int
) -> list[TypeWork]:  # fmt: skip
    url = repository.uri
    with repository.reading():
        moment = repository.moment()
        found = []
        for key, state in current_states(moment, types):
            version = state.schema_version_id
            first = max((n for n, file in enumerate(state.runs, 1) if file.schema_version_id != version), default=0)
            runs, past = state.runs[first:], tuple(one for one in state.past if one.schema_version_id == version)
            wanted = 1 if first else _wanted(sum(file.row_count for file in runs), each, workers)
            if max(len(runs), len(past)) <= wanted and not any(file.updates for file in runs[1:]):
                continue
            kind, name = layout.split_key(key)
            info = StoredType(moment.current[kind, name].schema)
            level = max(file.level for file in (*runs, *past)) + 1
            parts = [MergePart(url, info.schema, version, one.files, one.low, one.high,
                               tuple(file for file in past if one.meets(file)), kind, moment.commit_id, level,
                               first > 0)
                     for one in key_parts(repository, url, info, version, runs, wanted)]  # fmt: skip
            found.append(TypeWork(key, state, frozenset(file.path for file in (*runs, *past)), parts))
        return found


def _wanted(rows: int, each: int, workers: Workers) -> int:
    """How many files to make: few for their size, but enough for every worker to have one that is worth it."""
    return max(1, min(workers.parts, rows // -(-each // 8)), rows // each)


def merge_part(part: MergePart) -> MergedFiles:
    """Merge a range of keys and write what comes of it, on a worker."""
    info = part.stored
    with on_objects(part.url) as repository:
        tables = part.tables(repository, part.files)
        older = part.tables(repository, part.past)
        runs: tuple[DataFile, ...] = ()
        if tables:
            kept, replaced = parted(info, concat(tables))
            if not part.replacing:
                kept, replaced = settled(kept, replaced)
            if len(kept):
                runs = (_written(repository, part, "run", [kept], len(kept) if part.replacing else 0),)
            older += [replaced] if len(replaced) else []
        return MergedFiles(runs, (_written(repository, part, "past", older, 0),) if older else ())


def _written(repository: S3Repository, part: MergePart, what: str, tables: list[pa.Table], updates: int) -> DataFile:
    table = concat(tables)
    path = layout.snapshot_path(part.kind, part.stored.name, part.version, what, part.commit, layout.new_attempt())
    file, data = write_file(part.stored, table, path, part.version, level=max(part.level, level_of(len(table))),
                            updates=updates)
    repository.access.write({path: data})
    return file


def _publish(repository: S3Repository, work: Sequence[TypeWork], workers: Workers) -> list[Compaction]:
    merged = workers.run(merge_part, [part for one in work for part in one.parts])
    reach("spark: files merged")
    made, at = {}, 0
    for one in work:
        mine = merged[at : at + len(one.parts)]
        at += len(one.parts)
        made[one.key] = MergedFiles(tuple(file for part in mine for file in part.runs),
                                    tuple(file for part in mine for file in part.past))
    check_written(repository, [file.path for one in made.values() for file in (*one.runs, *one.past)])
    done: list[Compaction] = []
    beaten: list[str] = []

    def swapped(moment: HeadSnapshot) -> Restated | None:
        done.clear()
        beaten.clear()
        states: dict[str, TypeState] = {}
        for one in work:
            state = _swapped(moment.state(*layout.split_key(one.key)), one, made[one.key])
            if state is None:
                beaten.append(one.key)
                continue
            states[one.key] = state
            files = (*made[one.key].runs, *made[one.key].past)
            done.append(one.compaction._replace(files_after=len(files), bytes=sum(file.size for file in files)))
        if not states or moment.manifest is None:
            return None
        return Restated(dict(moment.manifest.types), states, moment.schemas, moment.manifest.dropped)

    repository.restate(swapped)
    reach("spark: merged files published")
    if beaten:
        raise HeadMismatchError(f"the files of {', '.join(beaten)} were merged or migrated by somebody else meanwhile",
                                hint="what else was to be merged is; run it again")
    return done


def _swapped(now: TypeState | None, work: TypeWork, made: MergedFiles) -> TypeState | None:
    """The files of a type with merged ones in the place of those that they were made of; None if these are gone."""
    if now is None or now.schema_version_id != work.state.schema_version_id:
        return None
    here = {file.path for file in (*now.runs, *now.past)}
    if not work.merged <= here:
        return None
    at = next(n for n, file in enumerate(now.runs) if file.path in work.merged)
    runs = [file for file in now.runs if file.path not in work.merged]
    past = [file for file in now.past if file.path not in work.merged]
    return TypeState(now.schema_version_id, now.activation_commit_id, now.next_row,
                     (*runs[:at], *made.runs, *runs[at:]), (*past, *made.past))
