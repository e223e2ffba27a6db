"""Checks of a store by workers: every file against its manifest, and what was merged against what commits wrote.

Two rounds: files first, which also tells which keys are in which; then, where files were merged since, ranges of keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ontolake.errors import OntolakeError
from ontolake.history import Damage
from ontolake.model.stored import StoredType
from ontolake.ontology.arrow.physical import (
    COMMIT,
    ROW,
    SUPERSEDED,
    Type,
    concat,
    flags,
    key_texts,
    living,
    places,
    rows_of,
)
from ontolake.ontology.repository.jobs import Looked, Verified, together
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.files import described, parquet_table
from ontolake.ontology.repository.objects.jobs.ranges import KeyPart, key_parts, key_ranges, on_objects
from ontolake.ontology.repository.objects.layout import DataFile, TypeState
from ontolake.ontology.repository.objects.read.scan import last_of_each, same_keys
from ontolake.ontology.repository.objects.states import state_of
from ontolake.ontology.repository.objects.upkeep.checks import check_chain, manifests
from ontolake.ontology.repository.objects.upkeep.links import link_columns, linked_runs, wrong_links
from ontolake.ontology.repository.objects.upkeep.phantoms import phantom_rows
from ontolake.ontology.repository.protocol import SchemaVersion
from ontolake.ontology.verification import check_rows, check_schema
from ontolake.parallel import Workers

if TYPE_CHECKING:
    import pyarrow as pa

    from ontolake.ontology.repository.objects.base import S3Repository
    from ontolake.ontology.repository.objects.moment import HeadSnapshot

_FILES = 64
"""Files that one part looks at, at most."""

Item = tuple[Callable[[Any], Looked], Any]


class FileToCheck(NamedTuple):
    """A file, and what a manifest says of it. `commit` is set for what a commit itself wrote."""

    path: str
    rows: int
    digest: str
    version: SchemaVersion | None
    commit: int | None
    said: DataFile | None
    branch: int = 0


class FileGroup(NamedTuple):
    """Some files of a store, of commits up to `head`."""

    url: str
    files: tuple[FileToCheck, ...]
    head: int


class FilesLooked(NamedTuple):
    """What was found in files: damage, rows, and each file as it is."""

    damage: tuple[Damage, ...]
    rows: int
    files: tuple[DataFile, ...]


def verify_objects(repository: S3Repository, workers: Workers) -> Verified:
    """See `FileJobs.verify`."""
    damage: list[Damage] = []
    url = repository.uri
    try:
        with repository.reading():
            moment = repository.moment()
            damage += check_chain(repository, moment)
            versions = {name: one for line in repository.lines() for name, one in _versions(line.moment()).items()}
            damage += [one for version in versions.values() for one in check_schema(version)]
            if damage:
                return Verified(tuple(damage), 1, 0)
            listed = list(_files(repository, moment, versions))
    except OntolakeError as error:
        return Verified((*damage, Damage(layout.HEAD, str(error))), 1, 0)
    size = max(1, min(_FILES, -(-len(listed) // workers.parts)))
    head = moment.head.commit_id
    groups = [FileGroup(url, tuple(listed[at : at + size]), head) for at in range(0, len(listed), size)]
    looked = workers.run(look_at_files, groups)
    damage += [one for part in looked for one in part.damage]
    rows = sum(part.rows for part in looked)
    if damage:  # what is damaged cannot be worked out again
        return Verified(tuple(damage), len(groups), rows)
    there = {file.path: file for part in looked for file in part.files}
    with repository.reading():
        if repository.moment().head.commit_id < moment.head.commit_id:
            return Verified((Damage(layout.HEAD, "it went back while it was looked at"),), len(groups), rows)
        damage += phantom_rows(repository, moment)
        work = [item for line in repository.lines() for item in _merged(line, url, listed, there, workers)]
        work += _linked(repository, url, workers)
        again = together(workers, work)
    return Verified((*damage, *again.damage), len(groups) + again.parts, rows)


def _versions(moment: HeadSnapshot) -> dict[tuple[str, int], SchemaVersion]:
    return {(key, one.schema_version_id): one for key in moment.schemas.types
            for one in moment.versions(*layout.split_key(key))}


def _files(
    repository: S3Repository, moment: HeadSnapshot, versions: Mapping[tuple[str, int], SchemaVersion]
) -> Iterator[FileToCheck]:  # fmt: skip
    """Every file that a manifest names, once: as the commit wrote it, or as it was merged."""
    seen, kept = set(), repository.kept_branches()
    for _, manifest in manifests(repository, moment):
        for file in manifest.files if manifest.branch in kept else ():
            if file.path not in seen:
                seen.add(file.path)
                version = versions.get((layout.type_key(file.kind, file.type_name), file.schema_version_id))
                yield FileToCheck(file.path, file.row_count, file.content_sha256, version, manifest.commit_id, None,
                                  manifest.branch)
    for line in repository.lines():
        for (key, _), version in _versions(line.moment()).items():
            state = state_of(line, line.moment(), version)
            for one in (*state.runs, *state.past) if state is not None else ():
                if one.path not in seen:
                    seen.add(one.path)
                    own = versions.get((key, one.schema_version_id))
                    yield FileToCheck(one.path, one.row_count, one.content_sha256, own, None, one)


def _own(state: TypeState, version: int) -> TypeState:
    """The files of one version: engines that keep versions side by side have those of others among them."""
    runs, past = ([file for file in files if file.schema_version_id == version] for files in (state.runs, state.past))
    return TypeState(state.schema_version_id, state.activation_commit_id, state.next_row, tuple(runs), tuple(past))


# files, on workers


def look_at_files(part: FileGroup) -> FilesLooked:
    """Bytes, counts, commits, order and values of files."""
    damage: list[Damage] = []
    found: list[DataFile] = []
    rows = 0
    with on_objects(part.url) as repository:
        for file in part.files:
            told, data_file = _look(repository, file, part.head)
            damage += told
            if data_file is not None:
                found.append(data_file)
                rows += data_file.row_count
    return FilesLooked(tuple(damage), rows, tuple(found))


def _look(repository: S3Repository, file: FileToCheck, head: int) -> tuple[list[Damage], DataFile | None]:
    path = file.path
    found = repository.access.find(path)
    if found is None:
        return [Damage(path, "a manifest names it, and it is missing")], None
    if file.digest and hashlib.sha256(found.data).hexdigest() != file.digest:
        return [Damage(path, f"its {len(found.data)} bytes are not those that were written")], None
    if file.version is None:
        return [Damage(path, "there is no schema for its rows")], None
    try:
        table = parquet_table(found.data)
    except (OSError, ValueError) as error:  # Arrow's own errors are one of these
        return [Damage(path, f"it cannot be read as Parquet: {error}")], None
    info = StoredType(file.version.schema)
    if len(table) != file.rows:
        return [Damage(path, f"it has {len(table)} rows, and the manifest says {file.rows}")], None
    lacking = {*places(info.keys), COMMIT, ROW} - set(table.column_names) - {
        name for name in places(info.keys) if name.startswith("$naive")}  # fmt: skip
    if lacking:
        return [Damage(path, f"it has no column {min(lacking)}")], None
    here = _sized(described(info, table, path, file.version.schema_version_id), len(found.data), file.said)
    damage = list(_bounds(path, file, here, head))
    if SUPERSEDED not in table.column_names and bool(same_keys(info, table).any()):
        damage.append(Damage(path, "a key is in it twice"))
    if file.commit is not None:
        damage += check_rows(file.version, list(rows_of(info.all_columns, table)), {file.commit})
    return damage, None if damage else here


def _sized(file: DataFile, size: int, said: DataFile | None) -> DataFile:
    """A file as it is, with its size and what only the manifest knows of it."""
    from msgspec.structs import replace as changed

    known = {} if said is None else {"updates": said.updates, "level": said.level, "replaces": said.replaces,
                                     "content_sha256": said.content_sha256}  # fmt: skip
    return changed(file, size=size, **known)


def _bounds(path: str, file: FileToCheck, found: DataFile, head: int) -> Iterator[Damage]:
    """Commits and keys that are not those that a manifest says."""
    commits = (found.min_commit_id, found.max_commit_id)
    if file.commit is not None and commits != (file.commit, file.commit):
        yield Damage(path, f"it has rows of commits {commits[0]} to {commits[1]}, and is of commit {file.commit}")
    if found.max_commit_id > head:
        yield Damage(path, f"it has rows of commit {found.max_commit_id}, and the newest is {head}")
    if file.said is None:
        return
    for name in ("min_commit_id", "max_commit_id", "low", "high", "superseded", "size", "deleted"):
        here, said = getattr(found, name), getattr(file.said, name)
        if here != said:
            yield Damage(path, f"its {name} is {here!r}, and the manifest says {said!r}")


# what was merged, on workers


@dataclass(frozen=True)
class Again(KeyPart):
    """A range of keys as commits wrote it (`files`), and as it is read since it was merged."""

    runs: tuple[DataFile, ...] = ()
    past: tuple[DataFile, ...] = ()
    whole: bool = True
    """Whether the runs say what the latest state is, without rows of other versions."""


def _merged(
    repository: S3Repository, url: str, listed: Sequence[FileToCheck], there: Mapping[str, DataFile],
    workers: Workers,
) -> Iterator[Item]:  # fmt: skip
    """For every version whose files were merged: ranges of keys to work out again from what commits wrote."""
    moment = repository.moment()
    seen = [file for file in listed if file.commit is not None
            and (moment.branch is None or moment.branch.sees(file.branch, file.commit))]
    wrote: dict[tuple[str, int], list[DataFile]] = {}
    for file in reversed(seen):  # the newest commit is listed first
        if file.version is not None:
            key = layout.type_key(file.version.type_kind, file.version.type_name)
            wrote.setdefault((key, file.version.schema_version_id), []).append(there[file.path])
    for (key, number), version in _versions(moment).items():
        state = state_of(repository, moment, version)
        if state is None:
            continue
        own, commits = _own(state, number), wrote.get((key, number), [])
        if {file.path for file in (*own.runs, *own.past)} == {file.path for file in commits}:
            continue  # nothing was merged: what reads see is what commits wrote
        info = StoredType(version.schema)
        for low, high in key_ranges(repository, info, [*own.runs, *own.past], workers.parts):
            part = Again(url, version.schema, number, tuple(commits), low, high, own.runs, own.past,
                         repository.versions_apart)
            meeting = [tuple(file for file in files if part.meets(file)) for files in (commits, own.runs, own.past)]
            yield work_out_again, replace(part, files=meeting[0], runs=meeting[1], past=meeting[2])


def work_out_again(part: Again) -> Looked:
    """Whether what was merged has every row that commits wrote, no other, and the latest of each key on top."""
    info = part.stored
    where = f"{info.kind} {info.name}, version {part.version}"
    with on_objects(part.url) as repository:
        wrote = part.tables(repository, part.files)
        runs, past = part.tables(repository, part.runs), part.tables(repository, part.past)
    truth, read = _by_row(wrote), _by_row([*past, *runs])
    damage = list(_unlike(where, info, truth, read))
    if not damage and truth is not None:
        if part.whole:
            latest = living(last_of_each(info, truth))
            shown = living(last_of_each(info, concat(runs))) if runs else latest.slice(0, 0)
            damage += _unlike(f"{where}, latest state", info, _by_row([latest]), _by_row([shown]))
        damage += _successors(where, info, truth, past)
    return Looked(tuple(damage), 0)


def _linked(repository: S3Repository, url: str, workers: Workers) -> Iterator[Item]:
    """Ranges of keys of runs that say which rows they replace."""
    for version, runs in linked_runs(repository):
        for part in key_parts(repository, url, StoredType(version.schema), version.schema_version_id, runs,
                              workers.parts):  # fmt: skip
            yield look_at_links, part


def look_at_links(part: KeyPart) -> Looked:
    """Whether runs name the rows that they replace: these have the same keys, so that they lie in the same range."""
    names = link_columns(part.stored)
    with on_objects(part.url) as repository:
        runs = [(file, table) for file in part.files for table in part.tables(repository, [file], names)]
    return Looked(tuple(wrong_links(part.stored, runs)) if len(runs) > 1 else (), 0)


def _by_row(tables: Sequence[pa.Table]) -> pa.Table | None:
    if not tables:
        return None
    table = concat([one.drop_columns([SUPERSEDED]) if SUPERSEDED in one.column_names else one for one in tables])
    return table.sort_by(ROW)


def _unlike(where: str, info: Type, truth: pa.Table | None, read: pa.Table | None) -> Iterator[Damage]:
    """Damage if two tables in the order of their rows differ."""
    import numpy as np
    import pyarrow.compute as pc

    rows = [set() if one is None else set(one.column(ROW).to_pylist()) for one in (truth, read)]
    if rows[0] != rows[1] or (truth is not None and read is not None and len(truth) != len(read)):
        lost, more = len(rows[0] - rows[1]), len(rows[1] - rows[0])
        yield Damage(where, f"of what commits wrote {lost} rows are missing, and {more} are there that none wrote")
        return
    if truth is None or read is None:
        return
    wrong = flags(truth) != flags(read)
    for name in (*places((*info.keys, *info.columns)), COMMIT):
        columns = [one.column(name).combine_chunks() if name in one.column_names else None for one in (truth, read)]
        one, two = columns
        if one is None or two is None:  # no moment without a zone in one of them
            other = two if one is None else one
            if other is not None:
                wrong |= pc.fill_null(other, False).to_numpy(zero_copy_only=False).astype(bool)
            continue
        same = pc.fill_null(pc.equal(one, two), False).to_numpy(zero_copy_only=False)
        empty = pc.and_(one.is_null(), two.is_null()).to_numpy(zero_copy_only=False)
        if str(one.type) == "double":
            empty |= pc.fill_null(pc.and_(pc.is_nan(one), pc.is_nan(two)), False).to_numpy(zero_copy_only=False)
        wrong |= ~(same | empty)
    if wrong.any():
        key = key_texts(info, truth.take([int(np.flatnonzero(wrong)[0])]))[0].as_py()
        yield Damage(where, f"{int(wrong.sum())} rows are not what commits wrote, such as that of {key!r}")


def _successors(where: str, info: Type, truth: pa.Table, past: Sequence[pa.Table]) -> Iterator[Damage]:
    """Rows that are said to be replaced before they were, or although they were not: reads would miss them.

    A later commit than the successor's does no harm, and earlier releases wrote such.
    """
    import numpy as np

    if not past:
        return
    codes = key_texts(info, truth).dictionary_encode().indices.to_numpy(zero_copy_only=False)
    order = np.lexsort((truth.column(ROW).to_numpy(), codes))
    commits, numbers = truth.column(COMMIT).to_numpy()[order], truth.column(ROW).to_numpy()[order]
    following = codes[order][1:] == codes[order][:-1]
    after = dict(zip(numbers[:-1][following].tolist(), commits[1:][following].tolist(), strict=True))
    said = concat(list(past))
    rows = zip(said.column(ROW).to_pylist(), said.column(SUPERSEDED).to_pylist(), flags(said).tolist(), strict=True)
    wrong = [row for row, commit, is_end in rows if not is_end and (row not in after or commit < after[row])]
    if wrong:
        yield Damage(where, f"{len(wrong)} rows are said to be replaced before they were")
