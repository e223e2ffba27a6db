"""Looking after a typed store on objects: merging files, removing what nobody can reach, and what is advisory.

Everything that removes or rewrites can be previewed; removing needs the token of the preview.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterator
from typing import NamedTuple

from ontolake.model.stored import StoredType
from ontolake.ontology.errors import MigrationTokenError, QueryError
from ontolake.ontology.repository.jobs import Compaction
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.base import Restated, S3Repository
from ontolake.ontology.repository.objects.layout import TypeState
from ontolake.ontology.repository.objects.moment import HeadSnapshot
from ontolake.ontology.repository.objects.queue.checks import needed_changes, queue_garbage
from ontolake.ontology.repository.objects.states import live_states
from ontolake.ontology.repository.objects.upkeep.advisory import Standing, all_advisory, compared
from ontolake.ontology.repository.objects.upkeep.checks import manifests
from ontolake.ontology.repository.objects.upkeep.merge import merge_all, mergeable

GRACE = 3600.0
"""Seconds for which nothing is removed: readers may still look at it, and commits under way may yet name it."""


class ObjectGarbage(NamedTuple):
    """What nobody can reach any more. The token stands for exactly these objects."""

    keys: tuple[str, ...]
    bytes: int
    token: str


class IndexState(NamedTuple):
    """How an advisory object stands: `ok`, `behind` the newest commit, `missing`, or `damaged`."""

    key: str
    state: Standing


def compact(
    repository: S3Repository, *, types: Collection[str] | None = None, dry_run: bool = True
) -> list[Compaction]:  # fmt: skip
    """Merge the files of types into one each. Readers and writers go on meanwhile.

    Raises `QueryError` for a type that is not there.
    """
    if dry_run:
        with repository.reading():
            return [_planned(key, state) for key, state in _due(repository.moment(), types)]
    done: list[Compaction] = []

    def merged(moment: HeadSnapshot) -> Restated | None:
        done.clear()
        states: dict[str, TypeState] = {}
        for key, state in _due(moment, types):
            states[key] = _merged(repository, moment, key, state)
            done.append(_planned(key, state)._replace(
                files_after=len(states[key].runs) + len(states[key].past),
                bytes=sum(file.size for file in (*states[key].runs, *states[key].past))))
        if not states or moment.manifest is None:
            return None
        return Restated(dict(moment.manifest.types), states, moment.schemas, moment.manifest.dropped)

    repository.restate(merged)
    return done


def _due(moment: HeadSnapshot, types: Collection[str] | None) -> list[tuple[str, TypeState]]:
    return [(key, state) for key, state in current_states(moment, types) if mergeable(state)]


def current_states(moment: HeadSnapshot, types: Collection[str] | None) -> list[tuple[str, TypeState]]:
    """The files of types, of all of them unless some are named. Raises `QueryError` for one that is not there."""
    known = moment.manifest.types if moment.manifest else {}
    names = {layout.split_key(key)[1] for key in known}
    for name in types or ():
        if name not in names:
            raise QueryError(f"there is no type {name!r}", hint=f"there are {', '.join(sorted(names)) or 'none'}")
    found = []
    for key in known:
        kind, name = layout.split_key(key)
        state = moment.state(kind, name)
        if state is not None and (types is None or name in types):
            found.append((key, state))
    return found


def _planned(key: str, state: TypeState) -> Compaction:
    files = (*state.runs, *state.past)
    after = (1 if state.runs else 0) + (1 if state.past else 0)
    return Compaction(layout.split_key(key)[1], len(files), after, sum(file.row_count for file in files),
                      sum(file.size for file in files))


def _merged(repository: S3Repository, moment: HeadSnapshot, key: str, state: TypeState) -> TypeState:
    kind, name = layout.split_key(key)
    info = StoredType(moment.current[kind, name].schema)

    def place(what: str) -> str:
        return layout.snapshot_path(kind, name, state.schema_version_id, what, moment.commit_id, layout.new_attempt())

    found = merge_all(info, state, repository.files, place)
    repository.access.write(found.objects)
    return found.state


def garbage(repository: S3Repository, *, grace: float = GRACE) -> ObjectGarbage:
    """Objects of ours that nobody needs: attempts that came to nothing, files that were merged since, and what the
    queue of events has left behind."""
    with repository.reading():
        kept = needed(repository, repository.moment(), repository.unreachable_branches())
        limit = time.time() - grace
        found = [info for folder in ("commits/", "snapshots/") for info in repository.access.store.list(folder)
                 if info.key not in kept and info.modified <= limit]
        found += queue_garbage(repository, limit)
        keys = tuple(info.key for info in found)
        token = hashlib.sha256("\n".join(keys).encode()).hexdigest()[:16]
        return ObjectGarbage(keys, sum(info.size for info in found), token)


def collect(repository: S3Repository, token: str | None, *, grace: float = GRACE) -> ObjectGarbage:
    """Remove what a preview listed. Raises `MigrationTokenError` if it is not the same any more."""
    found = garbage(repository, grace=grace)
    if token != found.token:
        raise MigrationTokenError("the token is not that of what would be removed now",
                                  hint="look at the preview again and pass its token")
    if found.keys:
        repository.access.store.delete(found.keys)
    return found


def needed(repository: S3Repository, moment: HeadSnapshot, gone: Collection[int] = ()) -> set[str]:
    """The objects of commits that commits and readers can come to; files only of branches that are not `gone`."""
    found: set[str] = set()
    kept = {one for one in repository.kept_branches() if one not in gone}
    for path, manifest in manifests(repository, moment):
        found.add(path)
        found.update(entry.manifest_path for entry in (*manifest.types.values(), *manifest.dropped.values()))
        if manifest.schemas is not None:
            found.add(manifest.schemas)
        if manifest.branch in kept:
            found.update(file.path for file in manifest.files)
            # Where there are branches, one can be made at any commit, and begins with the files of that.
            for state in manifest.states.values() if repository.keeps_branches else ():
                found.update(file.path for file in (*state.runs, *state.past))
    for line in repository.lines():
        for state in live_states(line, line.moment()) if line.branch_id in kept else ():
            found.update(file.path for file in (*state.runs, *state.past))
    return found | needed_changes(repository, moment)


def verify_index(repository: S3Repository) -> list[IndexState]:
    """How what is advisory stands, object by object."""
    with repository.reading():
        return list(_compared(repository, repository.moment()))


def _compared(
    repository: S3Repository, moment: HeadSnapshot, only: Collection[str] | None = None
) -> Iterator[IndexState]:  # fmt: skip
    for key, wanted in sorted(all_advisory(moment).items()):
        if only is not None and key not in only:
            continue
        yield IndexState(key, compared(repository, key, wanted))


def repair_index(repository: S3Repository, *, only: Collection[str] | None = None) -> list[IndexState]:
    """Make what is advisory anew where it differs, and return what it was; `only` some objects, if they are named."""
    with repository.reading():
        moment = repository.moment()
        found = [one for one in _compared(repository, moment, only) if one.state != "ok"]
        wanted = all_advisory(moment)
        repository.access.write({one.key: wanted[one.key] for one in found})
        return found
