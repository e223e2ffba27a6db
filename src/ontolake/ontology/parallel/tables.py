"""Typed stores for parallel readers and writers: splits are ranges of keys, publishing is one commit.

The tables are `entity/Customer`, `relation/Placed`; their columns are the fields under their stored names, and
`commit_id`. All splits are of the commit that was pinned, whatever is committed meanwhile, and have the schema that the
type had then. A type that is migrated between planning and reading is refused, not misread.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from ontolake.errors import NotFound
from ontolake.history import Commit, Ref, UnknownBranchError
from ontolake.history import UnknownCommitError as BranchCommitError
from ontolake.history.contention import DEFAULT_PACE, ONCE, commit_optimistically
from ontolake.history.metadata import DELETED
from ontolake.model import scalars
from ontolake.model.field import UNSET
from ontolake.model.scalars import Scalar
from ontolake.model.schema import Schema, schema_hash, schema_of
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.commit import delete_intended
from ontolake.ontology.config import Config
from ontolake.ontology.errors import (
    HeadMismatchError,
    LayoutLacksError,
    SchemaValidationError,
    UnknownCommitError,
)
from ontolake.ontology.intents import Intents
from ontolake.ontology.migration.past import outdated, types_at
from ontolake.ontology.repository import Repository, open_repository
from ontolake.ontology.repository.arrow import arrow_schema
from ontolake.ontology.repository.protocol import RepositoryTransaction
from ontolake.ontology.repository.ranges import KeyRange, change_name, deleted_name, public_schema
from ontolake.ontology.typed_store import TypedStore
from ontolake.ontology.versioned import table_of
from ontolake.parallel import (
    NO_REMOVALS,
    Filter,
    Fragment,
    Mode,
    Published,
    Removal,
    Shape,
    Split,
    View,
    check_mode,
    chosen,
    number,
)

if TYPE_CHECKING:
    import pyarrow as pa


def opened(url: str, branch: str, *, write: bool = False) -> Any:
    """The repository at `url`, for a `with` block."""
    return contextlib.closing(cast(Any, open_repository(
        url, config=Config(create=False, readonly=not write, branch=branch))))


class TypedParallel:
    """A typed store as parallel readers and writers see it."""

    model: ClassVar[str] = "typed"

    def __init__(
        self, url: str, *, branch: str | None = None, write: bool = False, types: Iterable[Any] = ()
    ) -> None:  # fmt: skip
        self.url = url
        self.branch = branch or "main"
        self._owner = uuid.uuid4().hex
        config = Config(create=write and bool(types), readonly=not write, branch=self.branch)
        self._store = TypedStore(url, classes=types, config=config)
        self.repository: Repository = self._store.repository
        self._types = {table_of(info): info for info in self._store.types}
        self._types |= {table_of(info): info for info in map(type_info, types)}

    def head(self) -> int:
        return self.repository.head()

    def tables(self) -> Sequence[str]:
        return sorted(self._types)

    def info(self, table: str) -> TypeInfo:
        """The type behind a table. Raises `NotFound`."""
        found = self._types.get(table)
        if found is None:
            raise NotFound(f"there is no table {table!r} in {self.url!r}",
                           hint=f"there are {', '.join(self.tables()) or 'none yet'}")
        return found

    def keys(self, table: str) -> Sequence[str]:
        return [column.stored for column in self.info(table).keys]

    def scalars(self) -> Sequence[Scalar]:
        return scalars.carried([version.schema for kind, name in self.repository.schemas()
                                for version in self.repository.schema_versions(kind, name)])  # fmt: skip

    def takes(self, table: str) -> Mapping[str, bool]:
        return {column.stored: column.default is UNSET for column in self.info(table).all_columns}

    def commits(self, *, since: int = 0, until: int | None = None) -> Iterator[Commit[int]]:
        return self.repository.commits(since=since, until=until)

    def schema(self, table: str, mode: Mode = "latest", view: View | None = None) -> pa.Schema:
        info = self.info(table) if view is None else self.info_at(table, view)
        return public_schema(info, mode, deletions=self.repository.keeps_deletions)

    def info_at(self, table: str, view: View) -> TypeInfo:
        """The type behind a table as the schemas of a view's commit have it. Raises `NotFound`.

        Histories and changes are typed reads: they have the current schema, and tell from its beginning on.
        """
        info = self.info(table)
        there = self.repository.holding(view.commit)
        if view.mode != "latest" or not outdated(there, [info], view.commit):
            return info
        return types_at(there, [info], view.commit)[info.kind, info.name]

    def view(
        self, *, as_of: int | str | None = None, mode: Mode = "latest", since: int | str | None = None
    ) -> View:  # fmt: skip
        """`Parallel.view`. A number that lies between commits of the branch means the one before it.

        The latest rows can be those of any commit, histories and changes are those of the branch.
        """
        check_mode(mode)
        head = self.head()
        commit = head if as_of is None else self._commit(as_of, head, anywhere=mode == "latest")
        return View(commit, mode, 0 if since is None else self._commit(since, head))

    def _commit(self, ref: int | str, head: int, *, anywhere: bool = False) -> int:
        """The commit that a number or a reference names, on the branch unless it may be `anywhere`."""
        repository = self.repository
        named = isinstance(ref, str) and repository.keeps_branches
        commit = self._resolved(str(ref)) if named else number(ref)
        assert commit is not None
        if not 0 <= commit <= (repository.highest() if anywhere else head):
            raise UnknownCommitError(commit, head)
        if repository.holding(commit) is repository or anywhere:
            return commit
        if named:
            raise BranchCommitError(commit, self.branch)
        return next((one.id for one in repository.commits(until=commit, limit=1)), 0)

    def _resolved(self, ref: str) -> int:
        try:
            return self.repository.resolve(ref)
        except UnknownBranchError:
            if Ref(commit=ref).time is None:
                raise
            return self.repository.resolve(f"@{ref}")

    def splits(
        self, table: str, view: View, columns: Sequence[str] | None = None, filters: Sequence[Filter] = (), *,
        parts: int | None = None,
    ) -> Sequence[Split]:  # fmt: skip
        info = self.info_at(table, view)
        wanted = tuple(chosen(self.schema(table, view.mode, view), columns, filters, table))
        known = self.repository.holding(view.commit).schemas().get((info.kind, info.name))
        if known is None:
            return []
        digits = tuple((column.stored, *column.decimal) for column in info.all_columns if column.decimal)
        schema = known.schema if info.version is None else schema_of(info.cls)
        whole = KeyRange(self.url, self.branch, opened, schema, schema_hash(schema), view, wanted, tuple(filters), 0,
                         digits=digits, version=info.version, scalars=scalars.carried(schema))
        return self.repository.splits(info, whole, parts)

    # writing
    def check_removable(self) -> None:
        """Raise `LayoutLacksError` if the engine keeps no deletions."""
        if not self.repository.keeps_deletions:
            raise LayoutLacksError("deletions", self.repository.uri, self.repository.engine_version)

    def publish(
        self, fragments: Sequence[Fragment], *, metadata: Mapping[str, Any] | None = None,
        expected: int | None = None, removals: Mapping[str, Removal] = NO_REMOVALS,
    ) -> Published:  # fmt: skip
        by_table: dict[str, list[Fragment]] = {}
        for fragment in fragments:
            by_table.setdefault(fragment.table, []).append(fragment)
        if removals:
            self.check_removable()
        staged = {self.info(name): _Staged(self.info(name), some) for name, some in sorted(by_table.items())}
        gone = self._removed(removals)
        done: Published | None = None
        while done is None:
            done = commit_optimistically(lambda: self._published(staged, gone, dict(metadata or {}), expected),
                                         HeadMismatchError, DEFAULT_PACE if expected is None else ONCE)
        return done

    def _removed(self, removals: Mapping[str, Removal]) -> Intents:
        """The keys that are to go."""
        from ontolake.ontology.arrow.rows import keys_from_arrow

        intents = Intents()
        for name, one in removals.items():
            for fragment in one.fragments:
                intents.end(self.info(name), keys_from_arrow(self.info(name), fragment.read()), one.cascade)
        return intents

    def _published(
        self, staged: Mapping[TypeInfo, _Staged], gone: Intents, metadata: Mapping[str, Any], expected: int | None
    ) -> Published | None:  # fmt: skip
        """One attempt; None if files cannot be taken as they are and have to be read first."""
        for one in staged.values():
            if not one.ready:  # before the lock is taken, so that nobody waits for it
                one.rows(self.repository)
        with self.repository.transaction(self._owner) as transaction:
            if expected is not None and (head := self.repository.head()) != expected:
                raise HeadMismatchError(f"commit {head} came after commit {expected}, which was read",
                                        hint="read again and work it out again")
            written = {}
            for info, one in staged.items():
                if one.ready:
                    count = one.attach(transaction)
                    if count is None:
                        return None
                else:
                    rows = one.rows(self.repository)
                    count = transaction.reconcile(info, rows) if rows else 0
                written[table_of(info)] = count
            deleted = delete_intended(transaction, gone)
            told = {**metadata, **({DELETED: deleted} if any(deleted.values()) else {})}
            changed = any(written.values()) or any(deleted.values())
            return Published(transaction.finish(told) if changed else None, written, deleted)

    def shape(self, table: str) -> Shape | None:
        return self.repository.shape(self.info(table))

    def schemas(self) -> list[Schema]:
        """The schemas of all types, those included that are only given."""
        return [schema_of(info.cls) for info in self._types.values()]

    def close(self) -> None:
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _fields_only(info: TypeInfo, table: pa.Table) -> pa.Table:
    """Without the commit that reading adds."""
    names = {column.stored for column in info.all_columns} | {column.name for column in info.all_columns}
    added = (arrow_schema(info.all_columns).names[-1], change_name(info), deleted_name(info))
    extra = [name for name in added
             if name in table.column_names and name not in names]
    return table.drop_columns(extra) if extra else table


class _Staged:
    """Rows of one type that are to be published. They are read once, and only if their files cannot be taken."""

    def __init__(self, info: TypeInfo, fragments: Sequence[Fragment]) -> None:
        self._info = info
        self._fragments = fragments
        self.ready = bool(fragments) and all(one.shaped for one in fragments)
        """Whether the files may be taken as they are."""
        self._rows: Collection[tuple[Any, ...]] | None = None

    def attach(self, transaction: RepositoryTransaction) -> int | None:
        """Publish the files as they are, if they can be. Returns how many rows they have, else None."""
        found = transaction.attach(self._info, self._fragments)
        self.ready = found is not None
        return found

    def rows(self, repository: Repository) -> Collection[tuple[Any, ...]]:
        """The rows, checked; as Arrow columns if the store takes them and the type allows it.

        Raises `SchemaValidationError` for what does not fit, and if a key is there twice.
        """
        if self._rows is not None:
            return self._rows
        from ontolake.ontology.arrow.columns import columns_from_arrow
        from ontolake.ontology.arrow.rows import rows_from_arrow

        info, table = self._info, _fields_only(self._info, self._read(repository))
        rows: Collection[tuple[Any, ...]] | None = None
        if repository.takes_columns:
            rows = columns_from_arrow(info, table)
        if rows is None:
            rows, unique = rows_from_arrow(info, table)
        else:
            named = table.select([column.stored if column.stored in table.column_names else column.name
                                  for column in info.keys])
            unique = bool(named.group_by(named.column_names).aggregate([]).num_rows == len(named))
        if not unique:
            raise SchemaValidationError("a key is there twice", type_name=info.name, key=_twice(info, rows),
                                        hint="keep one row of each key")
        self._rows = rows
        return rows

    def _read(self, repository: Repository) -> pa.Table:
        import pyarrow as pa

        parts = [repository.unshaped(self._info, one.read()) if one.shaped else one.read() for one in self._fragments]
        return pa.concat_tables(parts, promote_options="default")


def _twice(info: TypeInfo, rows: Iterable[tuple[Any, ...]]) -> Any:
    seen: set[Any] = set()
    for row in rows:
        key = info.key_of(row)
        if key in seen:
            return key
        seen.add(key)
    return None


__all__ = ["TypedParallel", "opened"]
