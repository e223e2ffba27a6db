"""Copies of a typed store with another engine or at another place: commit by commit, with history, checked at the end.

One line of commits is copied here, branches and deletions by `branched`.

Everything goes through what repositories offer, so that any engine can become any other. A copy that was interrupted
goes on where it stopped. The queue of events is copied behind the commits, as it is with the last of them; claims are
not, so runners of the source must have ended before others begin with the copy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, cast

from ontolake.history import Commit
from ontolake.history.metadata import MIGRATED_TYPES
from ontolake.model.restoration import restore
from ontolake.model.stored import StoredType
from ontolake.model.types import Kind, TypeInfo, type_info
from ontolake.ontology.errors import StorageBackendError
from ontolake.ontology.events.copies import reading_with_queue
from ontolake.ontology.events.records import KeptQueue
from ontolake.ontology.moving.branched import BranchCopy
from ontolake.ontology.repository.branched import BranchedRepository, ErasureRecord
from ontolake.ontology.repository.protocol import Repository, Row, SchemaVersion

Name = tuple[Kind, str]
Progress = Callable[[str, int, int | None], None]


class Conversion(NamedTuple):
    """What was done: how many commits were copied now, how many there are, how many rows were compared, and how many
    events and schedules the queue has."""

    copied: int
    commits: int
    rows: int
    events: int = 0
    schedules: int = 0


class VersionRows(NamedTuple):
    """The rows of one version of a type, by commit, and the commit since which it is current."""

    version: SchemaVersion
    since: int
    by_commit: Mapping[int, list[Row]]


ByCommit = Mapping[int, list[Row]]
"""Rows of a version as `StoredType` has its columns, by the commits that wrote them."""


class History:
    """How a copy gets at all rows: here they are read into memory, and compared there."""

    def __init__(self, source: Repository, target: Repository) -> None:
        self._source = source
        self._target = target

    def rows(self, version: SchemaVersion, have: int) -> ByCommit:
        """The rows of a version. Those of the first `have` commits are only asked for by `compare`."""
        found: dict[int, list[Row]] = defaultdict(list)
        for row in self._source.stored_history(version):
            found[row[-1]].append(row[:-1])
        return found

    def compare(self, types: Mapping[Name, list[VersionRows]]) -> int:
        """Compare what was copied, row by row. Returns how many rows there are."""
        return _compare(types, self._target)


def convert(
    source: Repository, target: Repository, progress: Progress | None = None, *, history: History | None = None
) -> Conversion:  # fmt: skip
    """Copy every commit that `target` does not have yet, then compare all rows of both.

    Raises `StorageBackendError` if the target holds something else than a part of the source, if the source has
    branches, tags or deletions and the engine of the target keeps none, and if rows, times of commits or events differ
    in the end; `HeadMismatchError` if runners keep changing the queue of the source.
    """
    beyond = source.beyond_lines()
    erasures = cast(BranchedRepository, source).erasures() if source.keeps_branches else []
    if (beyond or erasures) and not target.keeps_branches:
        raise _lossy(source, [*beyond, *(["entries about erasures"] if erasures else [])], target.engine_version)
    with reading_with_queue(source) as queue:
        if not beyond:
            done = _convert(source, target, queue, progress, history or History(source, target))
        else:
            copied = BranchCopy(cast(BranchedRepository, source), cast(BranchedRepository, target)).run(progress)
            _copy_queue(queue, target)
            done = Conversion(*copied, len(queue.events), len(queue.schedules))
        if erasures:
            _copy_erasures(erasures, cast(BranchedRepository, target))
        return done


def _copy_erasures(erasures: Sequence[ErasureRecord], target: BranchedRepository) -> None:
    known = set(target.erasures())
    missing = [one for one in erasures if one not in known]
    if missing:
        target.note_erasures(missing)


def engine_for(source: Repository, engine_version: str | None) -> str | None:
    """The engine that a new copy is to have: one that keeps all that the source has.

    Raises `StorageBackendError` if that is asked to be one that does not, and names what would be lost.
    """
    beyond = source.beyond_lines()
    if beyond and engine_version in ("v1", "v2"):
        raise _lossy(source, beyond, engine_version)
    return source.engine_version if beyond and engine_version is None else engine_version


def _lossy(source: Repository, beyond: Sequence[str], engine: str) -> StorageBackendError:
    return StorageBackendError(f"{source.uri!r} has {', '.join(beyond)}, which the engine {engine} cannot have",
                               hint="convert it to v3; onto export writes the state of a branch, which onto import "
                                    "loads")


def _convert(
    source: Repository, target: Repository, queue: KeptQueue, progress: Progress | None, reader: History
) -> Conversion:  # fmt: skip
    commits = sorted(source.commits(), key=lambda commit: commit.id)
    have = _common(commits, sorted(target.commits(), key=lambda commit: commit.id), target)
    types = _types(source, commits, reader, have)
    for number, commit in enumerate(commits[have:], 1):
        _copy(commit, types, target)
        if progress is not None:
            progress("commits", number, len(commits) - have)
    for kind, name in sorted(set(source.dropped()) - set(target.dropped())):
        target.drop_type(kind, name)
    rows = reader.compare(types)
    _common(commits, sorted(target.commits(), key=lambda commit: commit.id), target)
    _copy_queue(queue, target)
    return Conversion(len(commits) - have, len(commits), rows, len(queue.events), len(queue.schedules))


def _copy_queue(queue: KeptQueue, target: Repository) -> None:
    if queue != target.events.kept():
        target.events.restore(queue)
        if queue != target.events.kept():
            raise StorageBackendError(f"the queue of events at {target.uri!r} is not that of the source",
                                      hint="let no runner work there yet, and convert to an empty place")


def _common(source: list[Commit[int]], target: list[Commit[int]], repository: Repository) -> int:
    """How many commits the target has already, all of which must be those of the source."""
    for old, new in zip(source, target, strict=False):
        if (old.id, old.metadata, old.time) != (new.id, new.metadata, new.time):
            raise StorageBackendError(f"commit {new.id} at {repository.uri!r} is not that of the source",
                                      hint="choose an empty place")
    if len(target) > len(source):
        raise StorageBackendError(f"{repository.uri!r} has {len(target)} commits, and the source {len(source)}",
                                  hint="choose an empty place")
    return len(target)


def _types(source: Repository, commits: list[Commit[int]], reader: History, have: int) -> dict[Name, list[VersionRows]]:
    found: dict[Name, list[VersionRows]] = {}
    migrated = {(told["type_kind"], told["type_name"], told["to_schema_version_id"]): commit.id
                for commit in commits for told in commit.metadata.get(MIGRATED_TYPES, ())}
    for name in sorted({*source.schemas(), *source.dropped()}):
        versions = []
        for version in source.schema_versions(*name):
            rows = reader.rows(version, have)
            since = migrated.get((*name, version.schema_version_id), min(rows, default=0))
            versions.append(VersionRows(version, since, rows))
        found[name] = versions
    return found


def _copy(commit: Commit[int], types: Mapping[Name, list[VersionRows]], target: Repository) -> None:
    current = {name: [one for one in versions if one.since <= commit.id][-1] for name, versions in types.items()
               if any(one.since <= commit.id for one in versions)}
    infos = _infos(tuple(one.version for one in current.values()))
    with target.transaction(f"convert {commit.id}") as transaction:
        if transaction.commit_id != commit.id:
            raise StorageBackendError(f"the next commit at {target.uri!r} is {transaction.commit_id}, not {commit.id}",
                                      hint="somebody else writes there; choose an empty place")
        for name in sorted(current):  # entities first
            info, found = infos[name], current[name]
            rows = _ordered(info, found, commit.id)
            if found.since == commit.id and found is not types[name][0]:
                transaction.rewrite(info, found.version.schema_version_id, rows)
            elif rows or found.since == commit.id:
                transaction.reconcile(info, rows)
        transaction.created_at = commit.time
        transaction.finish(dict(commit.metadata))


def _infos(versions: tuple[SchemaVersion, ...]) -> dict[Name, TypeInfo]:
    classes = restore([version.schema for version in versions], {})
    return {name: type_info(cls) for name, cls in classes.items()}


def _ordered(info: TypeInfo, found: VersionRows, commit_id: int) -> list[Row]:
    """The rows of a commit in the order in which a type has its columns when they are written."""
    names = [column.name for column in StoredType(found.version.schema).all_columns]
    places = [names.index(column.stored) for column in (*info.keys, *info.columns)]
    return [tuple(row[place] for place in places) for row in found.by_commit.get(commit_id, ())]


def _compare(types: Mapping[Name, list[VersionRows]], target: Repository) -> int:
    total = 0
    for versions in types.values():
        for one in versions:
            rows = ((*row, commit) for commit, found in one.by_commit.items() for row in found)
            total += compare_rows(one.version, rows, target.stored_history(twin_of(one.version, target)))
    return total


def twin_of(version: SchemaVersion, target: Repository) -> SchemaVersion:
    """The same version of the copy. Raises `StorageBackendError` if it is another, or not there."""
    for twin in target.schema_versions(version.type_kind, version.type_name):
        if (twin.schema_version_id, twin.schema_hash) == (version.schema_version_id, version.schema_hash):
            return twin
    raise StorageBackendError(f"{version.type_name} has no version {version.schema_version_id} at "
                              f"{target.uri!r} like that of the source", hint="convert to an empty place")


def compare_rows(version: SchemaVersion, rows: Iterable[Row], copied: Iterable[Row]) -> int:
    """How many rows there are, commits behind them. Raises `StorageBackendError` for one that only one side has."""
    left, right = {_plain(row) for row in rows}, {_plain(row) for row in copied}
    for row in left ^ right:
        where = "the copy" if row in left else "the source"
        raise StorageBackendError(f"{where} lacks a row of {version.type_name} of commit {row[-1]}: {row[:-1]!r}",
                                  hint="convert to an empty place")
    return len(left)


def _plain(row: Row) -> Row:
    """A row in which equal values are equal, whichever engine they come from."""
    return tuple(int(value) if isinstance(value, bool) else value for value in row)

