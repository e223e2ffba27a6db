"""What every versioned store offers, on typed stores: branches, tags, merges, and ways back.

Engines without branches answer these verbs with a `LayoutLacksError`, which names the way to one that has them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from ontolake.errors import Invalid
from ontolake.history import (
    Change,
    Commit,
    Garbage,
    MergeResult,
    Ref,
    Resolution,
    RevertError,
    RowVersion,
    Snapshot,
    Strategy,
    UnknownBranchError,
    check_snapshots,
    operations,
)
from ontolake.history.contract import as_snapshot
from ontolake.history.erasures import check_reason
from ontolake.history.errors import ProtectedBranchError, UnknownTableError
from ontolake.history.operations import MergeRequest
from ontolake.history.refs import on_branch, parsed
from ontolake.model.types import Kind, TypeInfo, type_info
from ontolake.ontology.errors import LayoutLacksError
from ontolake.ontology.history.branches import TypedBranches
from ontolake.ontology.history.references import TypedRefs
from ontolake.ontology.history.tags import TypedTags
from ontolake.ontology.keys import decoded_key, encoded_key
from ontolake.ontology.migration.upgraders import UpgraderOption, collected
from ontolake.ontology.versioned import TypedHistory, TypedSnapshot, compare, fields_of, table_of

if TYPE_CHECKING:
    from ontolake.ontology.history.merges import TypedMergeable
    from ontolake.ontology.history.states import Name
    from ontolake.ontology.repository.branched import BranchedRepository


class VersionedTypes(TypedHistory):
    """A typed store that is open on a branch: a `history.VersionControlled`, if its engine has branches.

    Where no branch is named, the one that it was opened on is meant. Tables are called `entity/Customer`.
    """

    @cached_property
    def branches(self) -> TypedBranches:
        """The branches of the store. Raises `LayoutLacksError` if its engine has none."""
        self._with_branches()
        return TypedBranches(self._with_branches)

    @cached_property
    def tags(self) -> TypedTags:
        """Names for commits. Raises `LayoutLacksError` if the engine has none."""
        self._with_branches()
        return TypedTags(self._with_branches)

    @property
    def branch(self) -> str:
        """The branch that the store is open on."""
        return self._refs().first if self.repository.keeps_branches else self.config.branch

    @property
    def declared(self) -> Sequence[TypeInfo]:
        """Types as code has them, whatever schemas the branch has: they know defaults and earlier names of fields."""
        return self.types

    def snapshot(self, commit: int | str | Ref | None = None, *, branch: str | None = None) -> TypedSnapshot:
        """The rows as they were at a commit or a reference, or are now. Raises what `at` and `commits` raise."""
        if isinstance(commit, str | Ref):
            return self.at(on_branch(commit, branch))
        return super().snapshot(commit, branch=branch)

    def _commit_or(self, commit: Any, otherwise: Any, branch: str | None = None) -> Any:
        if isinstance(commit, str | Ref) and self.repository.keeps_branches:
            return self._refs().resolve(on_branch(commit, branch)).commit
        return super()._commit_or(commit, otherwise, branch)

    def at(self, ref: Ref | str) -> TypedSnapshot:
        """`snapshot` for what a user wrote: a branch, a tag, a commit, a time, some commits before.

        `0` is the empty store before its first commit. Raises `Invalid`, `UnknownBranchError`, `UnknownCommitError`.
        """
        ref = parsed(ref)
        if not self.repository.keeps_branches:
            return super().at(ref)
        with self.repository.reading():
            refs = self._refs()
            if ref in (Ref("0"), Ref(None, "0")) and refs.head("0") is None and refs.tagged("0") is None:
                return TypedSnapshot(self.repository, self.types, self.branch, 0)
            point = refs.resolve(ref)
        return TypedSnapshot(self.repository, self.types, point.branch, point.commit)

    def diff(
        self, before: Snapshot[int] | int | str | Ref, after: Snapshot[int] | int | str | Ref
    ) -> Iterator[Change[int]]:  # fmt: skip
        """What turns one snapshot into another, on whichever branches they are; references stand for snapshots.

        Two snapshots of one store cost what was changed between them, unless a type was migrated between them; such
        types, and snapshots of several stores, are compared row by row.
        """
        if any(isinstance(one, str | Ref) for one in (before, after)):
            self._with_branches()
        first: Any
        last: Any
        first, last = (as_snapshot(self, one) if self.repository.keeps_branches else one for one in (before, after))
        check_snapshots(first, last)
        if self.repository.keeps_branches and isinstance(first, TypedSnapshot) and isinstance(last, TypedSnapshot) \
                and first.repository is last.repository is self.repository:
            return self._differences(first, last)
        return super().diff(first, last)

    def _differences(self, before: TypedSnapshot, after: TypedSnapshot) -> Iterator[Change[int]]:
        from ontolake.ontology.history.states import StoreStates

        states = StoreStates(self._with_branches())
        with self.repository.reading():
            commits = states.apart([(before.commit, after.commit)] if before.commit and after.commit else [])
            versions = [states.versions_at(one.commit) if one.commit else {} for one in (before, after)]
            found: list[Change[int]] = []
            for known in self.types:
                name: Name = (known.kind, known.name)
                old, new = (side.get(name) for side in versions)
                if old != new or not commits or self._migrated(name, old, commits, (before.commit, after.commit)):
                    found += compare(before, after, [table_of(known)])
                    continue
                if new is None:
                    continue
                info = after.type_of(table_of(known))
                keys = states.touched(info, new, commits)
                sides = [{row[: len(info.keys)]: row for row in states.rows(info, new, keys, one.commit)}
                         for one in (before, after)]  # fmt: skip
                order = (*info.keys, *info.columns)
                places = [order.index(column) for column in info.all_columns]
                for key in keys:
                    was, now = (None if row is None else fields_of(info, [row[place] for place in places])
                                for row in (side.get(key) for side in sides))
                    if sides[0].get(key) != sides[1].get(key):
                        found.append(Change.of(after.commit, table_of(info), decoded_key(info, key), was, now))
        yield from found

    def _migrated(self, name: Name, version: int | None, commits: Collection[int], sides: Iterable[int]) -> bool:
        """Whether a version that two commits have came to one of them by some commits, as by a merge that brought it.

        Such a commit writes all rows anew; keys that it left out are deleted, and nothing says so.
        """
        return version is not None and any(
            self._with_branches().holding(side).activations(*name).get(version) in commits for side in sides)

    def history(self, table: str, key: Any, *, ref: str | None = None) -> Iterator[RowVersion[int]]:
        """All states of a row that a reference has in its history, newest first. Raises `NotFound`, `Invalid`."""
        from ontolake.ontology.history.row_history import RowStates
        from ontolake.ontology.history.states import StoreStates

        with self.repository.reading():
            states = StoreStates(self._with_branches())
            yield from list(RowStates(states, self._commit_at(ref), self._name(table), key).states())

    def blame(self, table: str, key: Any, *, ref: str | None = None) -> dict[str, Commit[int]]:
        """For each field of a row the commit that wrote its value. Raises `NotFound`, `Invalid`."""
        from ontolake.ontology.history.row_history import RowStates
        from ontolake.ontology.history.states import StoreStates

        with self.repository.reading():
            states = StoreStates(self._with_branches())
            return RowStates(states, self._commit_at(ref), self._name(table), key).blame()

    # merging

    def merge(
        self, source: str, into: str | None = None, *, strategy: Strategy = None,
        resolutions: Iterable[Resolution] = (), dry_run: bool = False, message: str | None = None,
        author: str | None = None, upgraders: UpgraderOption = None,
    ) -> MergeResult[int]:  # fmt: skip
        """Bring the changes of a branch, tag or commit into a branch, by row and field. See `history.contract`.

        A relation whose end the other side deleted is a conflict. A type that the source has migrated gets its schema;
        rows that the side with the old schema wrote meanwhile are led through `upgraders`, as `migrate` takes them.
        A type that both sides gave different schemas is a conflict; the side that settles it says whose schema it is,
        and rows of the other are led there by an upgrader from its version. Raises `MissingUpgraderError`, which names
        the types, and `MigrationError` if an upgrader fails.
        """
        self._with_branches()
        target = self.branch if into is None else into
        request = MergeRequest.of(self._by_table(strategy), resolutions, dry_run, message, author)
        return operations.merge(self._lifting(upgraders), source, target, request)

    def revert(
        self, commit: str | int, *, branch: str | None = None, strategy: Strategy = None,
        resolutions: Iterable[Resolution] = (), dry_run: bool = False, message: str | None = None,
        author: str | None = None,
    ) -> MergeResult[int]:  # fmt: skip
        """Undo what one commit did, as a new commit. See `history.contract`.

        A migration, or a merge that brought one, cannot be: that is a `RevertError`. Rows from before a later migration
        are lifted by the upgraders that were declared. Raises `MissingUpgraderError`.
        """
        request = MergeRequest.of(self._by_table(strategy), resolutions, dry_run, message, author)
        target = self._target(branch, dry_run)
        self._check_no_migration(commit, "reverted", "migrate to the old types again")
        return operations.revert(self._lifting(None), commit, target, request)

    def cherry_pick(
        self, commit: str | int, *, branch: str | None = None, strategy: Strategy = None,
        resolutions: Iterable[Resolution] = (), dry_run: bool = False, message: str | None = None,
        author: str | None = None, upgraders: UpgraderOption = None,
    ) -> MergeResult[int]:  # fmt: skip
        """Do on a branch what one commit did elsewhere, as a new commit. See `history.contract`.

        Rows of another schema are led through `upgraders` to that of the branch. A migration cannot be picked. Raises
        what `revert` raises.
        """
        request = MergeRequest.of(self._by_table(strategy), resolutions, dry_run, message, author)
        target = self._target(branch, dry_run)
        self._check_no_migration(commit, "picked", "merge its branch")
        return operations.cherry_pick(self._lifting(upgraders), commit, target, request)

    def restore(
        self, to: str | int, tables: Iterable[str] | None = None, *, types: Iterable[type] | None = None,
        branch: str | None = None, dry_run: bool = False, message: str | None = None, author: str | None = None,
        upgraders: UpgraderOption = None,
    ) -> MergeResult[int]:  # fmt: skip
        """Bring an earlier state back, of all tables or some, as a new commit. See `history.contract`.

        Some are named as tables, or by their classes in `types`. Schemas stay: rows from before a migration are led
        through `upgraders`. Raises `MissingUpgraderError`.
        """
        request = MergeRequest.of(None, (), dry_run, message, author)
        target = self._target(branch, dry_run)
        if types is not None:
            if tables is not None or isinstance(types, type) or not isinstance(types, Iterable):
                raise Invalid("types are a list of classes, instead of tables", hint="write types=[Customer]")
            tables = [table_of(type_info(one)) for one in types]
        if tables is not None and (isinstance(tables, str) or not isinstance(tables, Iterable)):
            raise Invalid(f"tables are names, not {tables!r}", hint='write tables=["entity/Customer"]')
        some = None if tables is None else list(tables)
        for name in some or ():
            self._name(name)
        return operations.restore(self._lifting(upgraders), to, target, some, request)

    def erase(
        self, table: str | type, key: Any, reason: str, *, dry_run: bool = True, author: str | None = None,
        cascade: bool = False,
    ) -> Garbage:  # fmt: skip
        """Remove every version of a row, on all branches, for good, or count what would go.

        Of an entity its relations must go with it, by `cascade`. Commits keep their ids and times; an audit entry keeps
        the reason and a salted hash of the key. Raises `UnknownKeyError` if no commit has the row,
        `LiveRelationsError`, `Invalid` without a reason or if an event that waits names the row, `Contended` if others
        read: nothing is changed then. If they began to read meanwhile, the message says that the rows are gone and
        that bytes are left until the last reader has closed and a row is erased again.
        """
        from ontolake.ontology.history.states import StoreStates

        repository = self._with_branches()
        name = self._name(table_of(type_info(table)) if isinstance(table, type) else table)
        version = repository.every_version(*name)[-1].schema_version_id
        encoded = encoded_key(StoreStates(repository).info(name, version), key)
        check_reason(reason, key)
        erasure = repository.erasure(*name, encoded, cascade=cascade)
        return erasure.count() if dry_run else erasure.erase(reason, author)

    # what these stand on

    def _with_branches(self) -> BranchedRepository:
        if not self.repository.keeps_branches:
            raise LayoutLacksError("branches", self.repository.uri, self.repository.engine_version)
        return cast("BranchedRepository", self.repository)

    def _refs(self) -> TypedRefs:
        return TypedRefs(self._with_branches())

    def _lifting(self, upgraders: UpgraderOption) -> Callable[[], TypedMergeable]:
        """What opens the store for an operation that leads rows through upgraders."""
        from ontolake.ontology.history.merges import TypedMergeable

        known = collected(upgraders)
        return lambda: TypedMergeable(self._with_branches(), self._owner, self.declared, known)

    def _check_no_migration(self, commit: str | int, what: str, hint: str) -> None:
        """Raise `RevertError` if a commit gave types another schema."""
        from ontolake.ontology.history.states import StoreStates

        states, id = StoreStates(self._with_branches()), self._refs().resolve(commit).commit
        parents = states.dag.parents(id)
        before, after = (states.versions_at(one) if one else {} for one in (parents[0] if parents else 0, id))
        changed = sorted(name for (_, name), version in before.items() if after.get((_, name), version) != version)
        if changed:
            raise RevertError(id, f"is a migration of {', '.join(changed)}, and cannot be {what}", hint=hint)

    @property
    def _owner(self) -> str:
        """Who takes the write lock for a merge."""
        return getattr(self, "session_id", "") or uuid.uuid4().hex

    def _target(self, branch: str | None, dry_run: bool) -> str:
        """The branch that is meant. Raises `ProtectedBranchError` unless it is a dry run, `UnknownBranchError`."""
        repository = self._with_branches()
        name = self.branch if branch is None else branch
        row = repository.branch_named(name)
        if row is None:
            raise UnknownBranchError(name)
        if row.protected and not dry_run:
            raise ProtectedBranchError(name)
        return name

    def _commit_at(self, ref: str | None) -> int:
        return self._refs().resolve(self.branch if ref is None else ref).commit

    def _by_table(self, strategy: Strategy) -> Strategy:
        """A strategy by the names of tables, where types may be classes or their names. Raises `UnknownTableError`."""
        if not isinstance(strategy, Mapping):
            return strategy
        known = {name: f"{kind}/{name}" for kind, name in self._with_branches().schemas()}
        tables = [known.get(one, one) if isinstance(one, str) else table_of(type_info(one)) for one in strategy]
        return dict(zip(["/".join(self._name(one)) for one in tables], strategy.values(), strict=True))

    def _name(self, table: str) -> Name:
        """The type of a table. Raises `UnknownTableError`."""
        repository = self._with_branches()
        kind, _, name = table.partition("/") if isinstance(table, str) else ("", "", "")
        if kind in ("entity", "relation") and repository.every_version(cast(Kind, kind), name):
            return cast(Kind, kind), name
        known = sorted(f"{kind}/{name}" for kind, name in repository.schemas())
        raise UnknownTableError(table, known)


