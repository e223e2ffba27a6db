"""Copies of typed stores with branches, tags, merges and deletions: every commit on its branch, in the order of ids.

Commits keep their ids, parents, times and metadata; branches and tags keep their names. What each commit wrote and
deleted is read by key, so that a commit costs what it changed. What was interrupted goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from ontolake import faults
from ontolake.history import Commit
from ontolake.model.restoration import restore
from ontolake.model.types import Kind, TypeInfo, type_info
from ontolake.ontology.errors import StorageBackendError
from ontolake.ontology.repository.branched import BranchedRepository, BranchRow
from ontolake.ontology.repository.protocol import Row, SchemaVersion

Name = tuple[Kind, str]
Progress = Callable[[str, int, int | None], None]
_HINT = "choose an empty place"


class TypeStep(NamedTuple):
    """What a commit did to a type: rows that it wrote, keys that it deleted. `begins` is whether the version of the
    type is current since this commit, `follows` whether the type had another one before."""

    info: TypeInfo
    version: SchemaVersion
    puts: list[Row]
    deletes: list[Row]
    begins: bool
    follows: bool


class BranchCopy:
    """A store with branches, on its way into another one."""

    def __init__(self, source: BranchedRepository, target: BranchedRepository) -> None:
        self._source = source
        self._target = target
        self._reader = TypeSteps(source)
        self._commits = [source.commit(id) for id in range(1, source.highest() + 1)]
        self._branch_of = {commit.id: source.branch_of(commit.id) for commit in self._commits}
        known = {0, *self._branch_of.values(), *(row.id for row in source.branch_rows())}
        self._branches = {id: source.branch_row(id) for id in sorted(known)}
        self._places: dict[int, int] = {0: 0}
        """The branches of the copy, by the id that each has in the source."""

    def run(self, progress: Progress | None) -> tuple[int, int, int]:
        """Copy what the target does not have yet, and compare all of it. Returns how many commits were copied, how many
        there are, and how many rows were compared. Raises `StorageBackendError` if something differs."""
        have = self._have()
        for number, commit in enumerate(self._commits[have:], 1):
            self._copy(commit)
            if progress is not None:
                progress("commits", number, len(self._commits) - have)
        for row in self._branches.values():
            self._branch(row.id)
        self._collect()
        self._name()
        for kind, name in sorted(set(self._source.dropped()) - set(self._target.dropped())):
            self._target.drop_type(kind, name)
        return len(self._commits) - have, len(self._commits), self._compare()

    def _have(self) -> int:
        """How many commits the target has already, all of which must be those of the source."""
        there = self._target.highest()
        if there > len(self._commits):
            raise StorageBackendError(f"{self._target.uri!r} has {there} commits, and the source "
                                      f"{len(self._commits)}", hint=_HINT)
        for commit in self._commits[:there]:
            self._check(commit)
            self._places.setdefault(self._branch_of[commit.id], self._target.branch_of(commit.id))
        return there

    def _branch(self, id: int) -> int:
        """The branch of the copy, which is made where it is not there yet, after all that were made before it. A
        deleted one has another name until all commits are there."""
        for each in [one for one in self._branches if one <= id and one not in self._places]:
            row = self._branches[each]
            self._places[each] = self._make(_stand_in(row), row.base_commit_id or self._before(each))
        return self._places[id]

    def _make(self, name: str, base: int) -> int:
        found = self._target.branch_named(name)
        if found is None:
            parent = self._places[self._branch_of[base]]
            found = self._target.change_names(lambda names: names.add_branch(name, parent, base))
            faults.reach("convert: branch made")
        return found.id

    def _before(self, id: int) -> int:
        """The newest commit before a branch, of which nothing is known any more but that it had commits."""
        first = min(commit for commit, branch in self._branch_of.items() if branch == id)
        return max(commit for commit, branch in self._branch_of.items()
                   if commit < first and not self._branches[branch].is_collected)

    def _check(self, commit: Commit[int]) -> None:
        """Raise `StorageBackendError` if a commit of the copy is not that of the source, as far as that is known."""
        there = self._target.commit(commit.id)
        if commit != there and not self._branches[self._branch_of[commit.id]].is_collected:
            raise StorageBackendError(f"commit {commit.id} at {self._target.uri!r} is not that of the source",
                                      hint=_HINT)

    def _copy(self, commit: Commit[int]) -> None:
        target = self._target.on(self._branch(self._branch_of[commit.id]))
        with target.transaction(f"convert {commit.id}") as transaction:
            if transaction.commit_id != commit.id:
                raise StorageBackendError(f"the next commit at {target.uri!r} is {transaction.commit_id}, not "
                                          f"{commit.id}", hint=f"somebody else writes there; {_HINT}")
            steps = list(self._reader.of(commit.id))
            for step in steps:
                if step.begins and step.follows:
                    transaction.rewrite(step.info, step.version.schema_version_id, step.puts)
                elif step.begins or step.puts:
                    transaction.reconcile(step.info, step.puts)
            for step in reversed(steps):  # relations before entities
                if step.deletes and not (step.begins and step.follows):
                    transaction.delete(step.info, step.deletes)
            transaction.merged = commit.parents[1] if len(commit.parents) > 1 else None
            transaction.created_at = commit.time
            transaction.finish(dict(commit.metadata))

    def _collect(self) -> None:
        """Collect the branches whose rows the source has no more, and only these.

        Branches that are deleted and still have their rows must not be deleted yet: they would be collected, too.
        """
        waiting = [id for id, row in self._branches.items()
                   if row.is_collected and not self._target.branch_row(self._places[id]).is_collected]
        for id in waiting:
            self._change(id)
        if waiting:
            faults.reach("convert: branches to collect deleted")
            self._target.gc(dry_run=False)

    def _change(self, id: int) -> None:
        """Give the copy of a branch its name, and delete it if the branch is deleted."""
        row, copied = self._branches[id], self._target.branch_row(self._places[id])
        if (copied.name, copied.protected, copied.is_deleted) != (row.name, row.protected, row.is_deleted):
            self._target.change_names(lambda names: names.change_branch(
                copied.id, name=row.name, protected=row.protected, deleted=row.is_deleted))

    def _name(self) -> None:
        """Give branches their names and tags theirs, and let go of branches that are deleted."""
        tags = {tag.name: tag for tag in self._source.tag_rows()}
        there = {tag.name: tag for tag in self._target.tag_rows()}
        for name, tag in tags.items():
            if name in there and there[name].commit_id != tag.commit_id:
                raise StorageBackendError(f"the tag {name!r} at {self._target.uri!r} is not that of the source",
                                          hint=_HINT)
            if name not in there:
                self._target.change_names(lambda names, tag=tag: names.add_tag(  # type: ignore[misc]
                    tag.name, tag.commit_id, tag.message))
        for id, row in self._branches.items():
            if not row.is_collected:
                self._change(id)

    # comparing

    def _compare(self) -> int:
        """How many rows commits wrote and deleted, on both sides the same. Raises `StorageBackendError`."""
        twin, rows = TypeSteps(self._target), 0
        for commit in self._commits:
            self._check(commit)
            old, new = ([_plain(step) for step in side.of(commit.id)] for side in (self._reader, twin))
            if old != new:
                raise StorageBackendError(f"commit {commit.id} at {self._target.uri!r} did something else than that of "
                                          "the source", hint=_HINT)
            rows += sum(len(step[2]) + len(step[3]) for step in old)
        names = [[(row.name, row.head_commit_id, row.base_commit_id, row.protected) for row in one.branch_rows()]
                 for one in (self._source, self._target)]
        labels = [[tag[:3] for tag in one.tag_rows()] for one in (self._source, self._target)]
        if sorted(names[0]) != sorted(names[1]) or labels[0] != labels[1]:
            raise StorageBackendError(f"branches or tags at {self._target.uri!r} are not those of the source",
                                      hint=_HINT)
        return rows


class TypeSteps:
    """Reads what commits did, type by type."""

    def __init__(self, repository: BranchedRepository) -> None:
        self._repository = repository
        self._states = repository.states
        self._names = sorted({*repository.schemas(), *repository.dropped(),
                              *(name for row in repository.branch_rows() for name in repository.on(row.id).schemas())})

    def of(self, commit: int) -> Iterator[TypeStep]:
        """What a commit did, entities first. Of a branch whose rows were collected nothing is known."""
        repository = self._repository
        if repository.branch_row(repository.branch_of(commit)).is_collected:
            return
        there = repository.holding(commit)
        since = {name: there.activations(*name) for name in self._names}
        current: dict[Name, SchemaVersion] = {}
        for name in self._names:
            known = [(at, version) for version, at in since[name].items() if at <= commit]
            if known:
                current[name] = next(one for one in repository.every_version(*name)
                                     if one.schema_version_id == max(known)[1])
        infos = _infos(tuple(_Stored(one) for one in current.values()))
        for name, version in current.items():
            id, info = version.schema_version_id, infos[name]
            keys = self._states.touched(info, id, [commit])
            rows = self._states.rows(info, id, keys, commit)
            left = {row[: len(info.keys)] for row in rows}
            begins = since[name][id] == commit
            if keys or begins:
                yield TypeStep(info, version, rows, [key for key in keys if key not in left], begins,
                               any(at < commit for at in since[name].values()))


class _Stored:
    """A version of a type as the key of a cache."""

    def __init__(self, version: SchemaVersion) -> None:
        self.version = version

    def __hash__(self) -> int:
        return hash(self.version.schema_hash)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stored) and other.version.schema_hash == self.version.schema_hash


@lru_cache(maxsize=64)
def _infos(versions: tuple[_Stored, ...]) -> Mapping[Name, TypeInfo]:
    classes = restore([one.version.schema for one in versions], {})
    return {name: type_info(cls) for name, cls in classes.items()}


def _stand_in(row: BranchRow) -> str:
    """What a branch is called while commits are copied: a deleted one may have the name of another."""
    return f"converted-{row.id}" if row.is_deleted else row.name


def _plain(step: TypeStep) -> tuple[Name, str, list[Row], list[Row], bool]:
    """A step in which equal values are equal, whichever engine they come from."""
    info = step.info
    rows = sorted((tuple(int(value) if isinstance(value, bool) else value for value in row) for row in step.puts),
                  key=repr)
    return (info.kind, info.name), step.version.schema_hash, rows, sorted(step.deletes, key=repr), step.begins
