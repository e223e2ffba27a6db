"""A store of dictionaries in memory that has the whole contract by the shared core: the simplest model of all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from ontolake.errors import Invalid, NotFound
from ontolake.history import (
    Branch,
    BranchError,
    BranchExistsError,
    Change,
    Commit,
    Counts,
    Damage,
    Decisions,
    Garbage,
    MergeResult,
    Point,
    ProtectedBranchError,
    Ref,
    Resolution,
    RowVersion,
    Strategy,
    Tag,
    TagExistsError,
    UnknownBranchError,
    UnknownCommitError,
    UnknownTagError,
    operations,
)
from ontolake.history.bases import base_values
from ontolake.history.blame import blame
from ontolake.history.conformance import VersioningAdapter
from ontolake.history.conformance.oracle import Record, State
from ontolake.history.contract import as_snapshot, check_snapshots
from ontolake.history.dag import is_ancestor, missing
from ontolake.history.names import check_branch_name, check_tag_name
from ontolake.history.operations import CommitNote, MergePlan, MergeRequest, Sides, check_flag, check_texts
from ontolake.history.refs import on_branch, resolve
from ontolake.history.trees import Outcome, merge_trees, same_json, virtual_tree

TABLE = "records"
MAIN = "main"


class StateAt:
    """The records at one commit: a `Snapshot`."""

    def __init__(self, branch: str, commit: int, state: State) -> None:
        self.branch, self.commit, self.state = branch, commit, state

    def tables(self) -> Sequence[str]:
        return [TABLE]

    def rows(self, table: str) -> Iterator[tuple[str, Record]]:
        return iter(sorted(self.state.items()))


class ReferenceStore:
    """Commits with whole states. Also the `Refs`, `Dag` and `Mergeable` that the core asks."""

    first = MAIN

    def __init__(self) -> None:
        self.log: dict[int, Commit[int]] = {1: Commit(1, (), datetime.now(UTC))}
        self.states: dict[int, State] = {1: {}}
        self.lines: dict[str, Branch[int]] = {MAIN: Branch(MAIN, 1)}
        self.names: dict[str, Tag[int]] = {}
        self.branches = ReferenceBranches(self)
        self.tags = ReferenceTags(self)
        self.dag = self

    # references

    def parents(self, commit: int) -> Sequence[int]:
        return self.log[commit].parents

    def order(self, commit: int) -> int:
        return commit

    def tagged(self, name: str) -> Point[int] | None:
        tag = self.names.get(name)
        return None if tag is None else Point(tag.branch, tag.commit)

    def find(self, text: str, branch: str | None) -> Point[int]:
        if not text.isdigit():
            raise Invalid(f"{text!r} is not the number of a commit")
        name = branch or MAIN
        if int(text) not in self.log or (branch and not is_ancestor(self, int(text), self.lines[branch].head)):
            raise UnknownCommitError(text, branch)
        return Point(name, int(text))

    def before(self, time: datetime, branch: str) -> int:
        for commit in self.commits(branch=branch):
            if commit.time is not None and commit.time <= time:
                return commit.id
        raise UnknownCommitError(str(time), branch)

    def parent(self, point: Point[int]) -> int | None:
        return next(iter(self.log[point.commit].parents), None)

    def resolve(self, ref: str | int) -> Point[int]:
        return resolve(f"@{ref}" if type(ref) is int else ref, _Heads(self))  # type: ignore[arg-type]

    # reading

    def commits(self, *, since: Any = None, until: Any = None, branch: str = MAIN) -> Iterator[Commit[int]]:
        since, until = (one if one is None else self.resolve(one).commit for one in (since, until))
        commit: int | None = until or self._branch(branch).head
        while commit is not None and commit != since:
            yield self.log[commit]
            commit = next(iter(self.log[commit].parents), None)

    def _branch(self, name: str) -> Branch[int]:
        if name not in self.lines:
            raise UnknownBranchError(name)
        return self.lines[name]

    def snapshot(self, commit: int | str | Ref | None = None, *, branch: str | None = None) -> StateAt:
        if isinstance(commit, str | Ref):
            return self.at(on_branch(commit, branch))
        id = self._branch(branch or MAIN).head if commit is None else commit
        if type(id) is not int or id not in self.states:
            raise UnknownCommitError(id)
        return StateAt(branch or MAIN, id, self.states[id])

    def at(self, ref: Ref | str) -> StateAt:
        branch, commit = resolve(ref, _Heads(self))
        return StateAt(branch, commit, self.states[commit])

    def diff(self, before: Any, after: Any) -> Iterator[Change[int]]:
        before, after = as_snapshot(self, before), as_snapshot(self, after)
        check_snapshots(before, after)
        for key in sorted({*before.state, *after.state}):
            if before.state.get(key) != after.state.get(key):
                yield Change.of(after.commit, TABLE, key, before.state.get(key), after.state.get(key))

    def changes(self, since: Any, until: Any = None, *, branch: str = MAIN) -> Iterator[Change[int]]:
        for commit in reversed(list(self.commits(since=since, until=until, branch=branch))):
            yield from self.diff(self.snapshot(commit.parents[0]), self.snapshot(commit.id))

    def _check_table(self, table: str) -> None:
        if table != TABLE:
            raise NotFound(f"there is no table {table!r}")

    def history(self, table: str, key: str, *, ref: str | None = None) -> Iterator[RowVersion[int]]:
        self._check_table(table)
        for id in missing(self, self.resolve(MAIN if ref is None else ref).commit, []):
            before = [self.states[parent].get(key) for parent in self.log[id].parents] or [None]
            if self.states[id].get(key) not in before:
                yield RowVersion(self.log[id], self.states[id].get(key))

    def blame(self, table: str, key: str, *, ref: str | None = None) -> dict[str, Commit[int]]:
        self._check_table(table)
        head = self.resolve(MAIN if ref is None else ref).commit
        if key not in self.states[head]:
            raise NotFound(f"there is no {key!r}")

        def wrote(commit: int) -> int | None:
            while (parents := self.log[commit].parents) and self.states[parents[0]].get(key) == (
                self.states[commit].get(key)):
                commit = parents[0]
            return commit

        def read(commit: int) -> dict[str, Any]:
            return {f"/{name}": value for name, value in (self.states[commit].get(key) or {}).items()}

        authors = blame(head, read(head), parents=self.parents, wrote=wrote, same=same_json, read=read)
        return {name: self.log[commit] for name, commit in authors.items()}

    def verify(self) -> Iterator[Damage]:
        return iter(())

    def gc(self, *, dry_run: bool = True) -> Garbage:
        return Garbage(0, 0)

    # writing

    def head(self, branch: str) -> int:
        return self._branch(branch).head

    def write(self, branch: str, changes: Mapping[str, Record | None], note: CommitNote) -> Commit[int]:
        if self._branch(branch).protected:
            raise ProtectedBranchError(branch)
        state = {**self.states[self.head(branch)], **changes}
        return self._commit(branch, {key: row for key, row in state.items() if row is not None}, note)

    def _commit(self, branch: str, state: State, note: CommitNote, *more: int, **metadata: Any) -> Commit[int]:
        id = len(self.log) + 1
        commit = Commit(id, (self.head(branch), *more), datetime.now(UTC), note.author, metadata, note.message)
        self.log[id], self.states[id] = commit, state
        self.lines[branch] = self.lines[branch]._replace(head=id)
        return commit

    def is_news(self, theirs: int, ours: int) -> bool:
        return not is_ancestor(self, theirs, ours)

    def plan(self, sides: Sides[int], decisions: Decisions) -> MergePlan[State]:
        mine, new = self.states[sides.ours], self.states[sides.theirs]
        keys = sorted({*mine, *new, *(key for base in sides.bases for key in self.states[base])})
        base = base_values(self, sides.bases, keys, same=same_json, merge=virtual_tree, absent=None,
                           read=lambda commit, some: {key: self.states[commit].get(key) for key in some})
        changes: dict[str, Any] = {}
        conflicts: list[Any] = []
        for key in keys:
            merged = merge_trees(TABLE, key, base[key], mine.get(key), new.get(key), decisions)
            conflicts += merged.conflicts
            if merged.outcome is not Outcome.KEEP and merged.tree != mine.get(key):
                changes[key] = merged.tree
        counts = Counts(sum(key not in mine for key in changes),
                        sum(key in mine and row is not None for key, row in changes.items()),
                        sum(row is None for row in changes.values()))  # fmt: skip
        return MergePlan(changes, {TABLE: counts} if changes else {}, conflicts)

    def publish(self, sides: Sides[int], plan: MergePlan[State], note: CommitNote) -> Commit[int]:
        state = {**self.states[sides.ours], **plan.changes}
        return self._commit(sides.into, {key: row for key, row in state.items() if row is not None}, note,
                            *([sides.theirs] if sides.is_merge else []), **sides.metadata)  # fmt: skip

    def _unprotected(self, branch: str, dry_run: bool) -> None:
        if self._branch(branch).protected and not dry_run:
            raise ProtectedBranchError(branch)

    def merge(
        self, source: str, into: str = MAIN, *, strategy: Strategy = None, resolutions: Iterable[Resolution] = (),
        dry_run: bool = False, message: str | None = None, author: str | None = None,
    ) -> MergeResult[int]:  # fmt: skip
        return operations.merge(lambda: self, source, into,
                                MergeRequest.of(strategy, resolutions, dry_run, message, author))

    def revert(self, commit: str | int, *, branch: str = MAIN, **request: Any) -> MergeResult[int]:
        self._unprotected(branch, request.get("dry_run", False))
        return operations.revert(lambda: self, commit, branch, MergeRequest.of(**request))

    def cherry_pick(self, commit: str | int, *, branch: str = MAIN, **request: Any) -> MergeResult[int]:
        self._unprotected(branch, request.get("dry_run", False))
        return operations.cherry_pick(lambda: self, commit, branch, MergeRequest.of(**request))

    def restore(self, to: str | int, tables: Any = None, *, branch: str = MAIN, **request: Any) -> MergeResult[int]:
        self._unprotected(branch, request.get("dry_run", False))
        if tables is not None and (not isinstance(tables, list) or tables != [TABLE]):
            raise NotFound(f"there is no table {tables!r}")
        return operations.restore(lambda: self, to, branch, tables, MergeRequest.of(**request))

    def erase(self, table: str, key: str, reason: str, *, dry_run: bool = True, author: str | None = None) -> Garbage:
        if not reason:
            raise Invalid("an erasure needs a reason")
        having = [id for id, state in self.states.items() if key in state]
        if not having:
            raise NotFound(f"there is no {key!r} in any commit")
        if not dry_run:
            for id in having:
                self.states[id] = {one: row for one, row in self.states[id].items() if one != key}
        return Garbage(len(having), 0)


class _Heads:
    """The store as `resolve` asks it, where a branch that is not there is None."""

    first = MAIN

    def __init__(self, store: ReferenceStore) -> None:
        self.tagged, self.find, self.before, self.parent = store.tagged, store.find, store.before, store.parent
        self._lines = store.lines

    def head(self, branch: str) -> int | None:
        return self._lines[branch].head if branch in self._lines else None


class ReferenceBranches:
    def __init__(self, store: ReferenceStore) -> None:
        self._store = store

    def list(self) -> Sequence[Branch[int]]:
        return list(self._store.lines.values())

    def _taken(self, name: str) -> str:
        check_branch_name(name)
        if name in self._store.lines or name in self._store.names:
            raise BranchExistsError(name, "is there already")
        return name

    def create(self, name: str, *, at: int | str | Ref | None = None, parent: str | None = None) -> Branch[int]:
        store = self._store
        branch, head = store._branch(parent or MAIN).name, store.snapshot(at, branch=parent)
        store.lines[self._taken(name)] = Branch(name, head.commit, head.commit,
                                                head.branch if isinstance(at, str | Ref) else branch)
        return store.lines[name]

    def _movable(self, name: str) -> Branch[int]:
        branch = self._store._branch(name)
        if name == MAIN:
            raise BranchError(name, "is the first one, and stays")
        if branch.protected:
            raise ProtectedBranchError(name, "deleted")
        return branch

    def delete(self, name: str) -> None:
        self._movable(name)
        del self._store.lines[name]

    def rename(self, name: str, new: str) -> Branch[int]:
        branch = self._movable(name)
        self._store.lines[self._taken(new)] = branch._replace(name=new)
        del self._store.lines[name]
        return self._store.lines[new]

    def protect(self, name: str, protected: bool = True) -> Branch[int]:
        check_flag("protected", protected)
        self._store.lines[name] = self._store._branch(name)._replace(protected=protected)
        return self._store.lines[name]


class ReferenceTags:
    def __init__(self, store: ReferenceStore) -> None:
        self._store = store

    def list(self) -> Sequence[Tag[int]]:
        return [tag for _, tag in sorted(self._store.names.items())]

    def create(self, name: str, ref: str | int | None = None, *, message: str | None = None) -> Tag[int]:
        check_tag_name(name)
        check_texts(message=message)
        if name in self._store.names or name in self._store.lines:
            raise TagExistsError(name, "is there already")
        branch, commit = self._store.resolve(MAIN if ref is None else ref)
        self._store.names[name] = Tag(name, commit, branch, datetime.now(UTC), message)
        return self._store.names[name]

    def delete(self, name: str) -> None:
        if self._store.names.pop(name, None) is None:
            raise UnknownTagError(name)


STORES: dict[str, ReferenceStore] = {}


class ReferenceAdapter(VersioningAdapter):
    table = TABLE
    store: type[ReferenceStore] = ReferenceStore

    @classmethod
    def create(cls, where: str) -> None:
        STORES[where] = cls.store()

    @classmethod
    @contextmanager
    def open(cls, where: str, *, readonly: bool = False) -> Iterator[Any]:
        yield STORES[where]

    @classmethod
    def write(
        cls, store: Any, branch: str, changes: Mapping[str, Record | None], *, message: str | None = None,
        author: str | None = None,
    ) -> int:  # fmt: skip
        return int(store.write(branch, changes, CommitNote(message, author)).id)

    @classmethod
    def field(cls, name: str) -> str:
        return f"/{name}"
