"""What a typed store offers to sessions, whichever backend and engine version it has.

A session works out nothing by itself: it hands encoded rows to a `RepositoryTransaction`, which writes those that
differ from the latest state, and plans to `run`, which answers with encoded rows. Rows are tuples as
`TypeInfo.encode` makes them. A type whose `TypeInfo.version` is set is read as that version has it; such plans have a
bound `as_of` within its time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ontolake.history import Commit, Damage, Garbage
from ontolake.model.schema import Schema
from ontolake.model.stored import StoredType
from ontolake.model.types import Kind, TypeInfo

if TYPE_CHECKING:
    import pyarrow as pa

    from ontolake.ontology.config import Config
    from ontolake.ontology.events.records import QueueChange
    from ontolake.ontology.events.store import EventStore
    from ontolake.ontology.query.plan import Plan, Values
    from ontolake.ontology.repository.jobs import CommitLog, FileJobs, ParquetView
    from ontolake.ontology.repository.ranges import KeyRange
    from ontolake.parallel import Fragment, Shape, Split, View

Row = tuple[Any, ...]
WRITE_LOCK = "ontology_write"


class SchemaVersion(NamedTuple):
    """One version of a type's schema. `reason` is `initial`, `migration` or `bootstrap`."""

    type_kind: Kind
    type_name: str
    schema_version_id: int
    schema: Schema
    schema_hash: str
    created_at: str
    runtime_id: str | None
    reason: str


class Lease(NamedTuple):
    """Who holds the write lock, and until when (seconds since the epoch)."""

    owner_id: str
    expires_at: float


class RowChange(NamedTuple):
    """One row of a commit: its key, and the encoded rows before (None for a new one) and after (None if deleted)."""

    key: Any
    before: Row | None
    after: Row | None


class LiveRelation(NamedTuple):
    """A relation that leads to an entity: its type, its key as encoded, and the commit that wrote it."""

    info: TypeInfo | StoredType
    key: Row
    commit_id: int


class RepositoryTransaction(Protocol):
    """A commit in the making. Nothing is visible before `finish`."""

    created_at: datetime | None
    """When the commit was made, if it is a copy of one; else now."""

    @property
    def commit_id(self) -> int:
        """The commit that this will be."""
        ...

    def register(self, info: TypeInfo, *, reason: str = "initial") -> int:
        """The current schema version of a type, which becomes known by it. Raises `TypeDroppedError`."""
        ...

    def reconcile(self, info: TypeInfo, rows: Collection[Row]) -> int:
        """Write those of the rows that differ from the latest state, and return how many. Keys are unique."""
        ...

    def delete(self, info: TypeInfo | StoredType, keys: Collection[Row]) -> int:
        """End these keys, each as a tuple of encoded values, as far as they are there, and return how many were.

        None may have been written by this transaction. Raises `LayoutLacksError` if the engine keeps no deletions.
        """
        ...

    def keys_besides(self, info: TypeInfo, keys: Collection[Row]) -> Sequence[Row]:
        """The keys of a type that are there and are not among these. Raises what `delete` raises."""
        ...

    def relations_of(self, info: TypeInfo, keys: Collection[Row]) -> Sequence[LiveRelation]:
        """The relations, of whichever types, that lead to one of these entities now. Raises what `delete` raises."""
        ...

    def missing_endpoints(self, info: TypeInfo, *, limit: int = 10) -> Sequence[tuple[str, Any, Row]]:
        """Relations written by this transaction that lead nowhere: side, missing key, key of the relation."""
        ...

    def rewrite(self, info: TypeInfo, version: int, rows: Iterable[Row]) -> int:
        """Make `version` the current one of a type, with these rows as its state, and return how many they were.

        The branch has not had this version before; others may have it.
        """
        ...

    def attach(self, info: TypeInfo, fragments: Sequence[Fragment]) -> int | None:
        """Make staged files part of the commit as they are. Returns how many rows they have; None if they have to be
        read and reconciled: the store takes no files, keys may be there already, or somebody committed meanwhile."""
        ...

    def finish(self, metadata: Mapping[str, Any], *, queue: QueueChange | None = None) -> int:
        """Make the commit, and do to the queue of events what goes with it: all of both, or nothing.

        Raises `HeadMismatchError` if it must be worked out again, and `LeaseExpiredError` if the write lock, or the
        claim on the event that was handled, is lost.
        """
        ...

    def finish_queue(self, queue: QueueChange) -> None:
        """The same where nothing differs: only the queue changes, and there is no commit."""
        ...


class Repository(Protocol):
    """A typed store."""

    backend: str
    engine_version: str
    uri: str
    config: Config
    seen_head: int
    """A commit that is known to be there, as far as bounds of queries were checked; 0 at first."""
    takes_columns: bool
    """Whether rows are best handed over as Arrow columns (`ArrowRows`)."""
    keeps_deletions: bool
    """Whether rows can be deleted, and histories tell that they were."""
    keeps_unique: bool
    """Whether unique fields are looked after."""
    keeps_branches: bool
    """Whether there are branches, tags and merges."""

    def storage_info(self) -> dict[str, Any]:
        """Backend, engine version, place, and with v2 the layout of every type."""
        ...

    def head(self) -> int:
        """The newest commit of the branch that is read; 0 if there is none."""
        ...

    def highest(self) -> int:
        """The highest id of any commit, on whichever branch; 0 if there is none."""
        ...

    def holding(self, commit: int) -> Repository:
        """The same store, read on a branch that has this commit: itself, unless only others have it."""
        ...

    def state(self) -> object:
        """Something that differs once another connection has committed; cheap to ask."""
        ...

    def beyond_lines(self) -> Sequence[str]:
        """What a store has that one line of commits without deletions cannot say, in words; nothing for most."""
        ...

    def on_branch(self, name: str) -> Repository:
        """The same store on another branch. Raises `NotFound`."""
        ...

    def resolve(self, ref: str | datetime) -> int:
        """The commit that a reference or a time names. Raises `LayoutLacksError`, and what `history.refs` raises."""
        ...

    # schemas
    def schemas(self) -> Mapping[tuple[Kind, str], SchemaVersion]:
        """The current version of every type that was not dropped."""
        ...

    def schema_versions(self, kind: Kind, name: str) -> Sequence[SchemaVersion]:
        """All versions of a type, oldest first; dropped ones too."""
        ...

    def dropped(self) -> Collection[tuple[Kind, str]]:
        """The types that were dropped."""
        ...

    def drop_type(self, kind: Kind, name: str, *, at: int | None = None) -> None:
        """Let a type go: reads are empty from now on, writes refused, what is stored stays.

        Raises `HeadMismatchError` if `at` is given and is not the newest commit any more.
        """
        ...

    def activation(self, info: TypeInfo) -> int:
        """The first commit that typed reads of a type can see; 0 if all are."""
        ...

    def activations(self, kind: Kind, name: str) -> Mapping[int, int]:
        """The commits that made the versions of a type the current ones, by version."""
        ...

    def read_stored(self, stored: StoredType) -> Iterator[Row]:
        """The latest rows of a current type of which only the schema is known: its columns, the commit behind them."""
        ...

    def count_stored(self, stored: StoredType) -> int: ...

    def arrow_stored(self, stored: StoredType) -> pa.Table:
        """The same as an Arrow table, without the commit."""
        ...

    # writing
    def transaction(self, owner: str) -> AbstractContextManager[RepositoryTransaction]:
        """Begin a commit; leaving the block without `finish` takes everything back.

        Raises `LockContentionError` if another writer has the lock for too long, `LeaseExpiredError` if `owner` had it
        and lost it.
        """
        ...

    def acquire_lease(self, owner: str) -> Lease:
        """Hold the write lock over several commits, renewed in the background. Raises `LockContentionError`.

        Who acquires it twice releases it twice.
        """
        ...

    def renew_lease(self, owner: str) -> Lease:
        """Raises `LeaseExpiredError` if the lock is no longer held."""
        ...

    def release_lease(self, owner: str) -> None: ...

    @property
    def events(self) -> EventStore:
        """The queue of events."""
        ...

    # reading
    def reading(self) -> AbstractContextManager[None]:
        """Everything read inside the block is of one moment."""
        ...

    def run(self, plan: Plan, values: Values) -> Iterator[Row]:
        """The answer, row by row, encoded. For rows: the columns of `plan.types` one after the other, in the order of
        `TypeInfo.all_columns`, each with the commit behind it."""
        ...

    def run_arrow(self, plan: Plan, values: Values) -> pa.Table:
        """The rows of a plan without hops as an Arrow table, typed, with `commit_id` as the last column."""
        ...

    def commits(self, *, since: int = 0, until: int | None = None, limit: int | None = None) -> Iterator[Commit[int]]:
        """Commits in `(since, until]`, newest first."""
        ...

    def commit(self, id: int) -> Commit[int]:
        """One commit, on whichever branch. Raises `UnknownCommitError`."""
        ...

    def commit_changes(self, commit_id: int, info: TypeInfo) -> Iterator[RowChange]:
        """What a commit did to rows of a type, as far as typed reads can see them."""
        ...

    # parallel readers and writers
    def splits(self, info: TypeInfo, whole: KeyRange, parts: int | None) -> Sequence[Split]:
        """Parts of `whole`, all rows of a type at a moment: about `parts`; unless given, as many as are worth it."""
        ...

    def shape(self, info: TypeInfo) -> Shape | None:
        """The form of files that a transaction could attach now; None where rows have to be read and reconciled."""
        ...

    def unshaped(self, info: TypeInfo, table: pa.Table) -> pa.Table:
        """Rows that were staged in that form, under the names that users know."""
        ...

    def parquet(self, info: TypeInfo, view: View, columns: Collection[str], longest: int) -> ParquetView | None:
        """The files that have the rows of a view, its history or its latest state, for other readers of Parquet.

        None if rows are not in such files, or have more than `longest` bytes each in the columns that are read.
        """
        ...

    @property
    def jobs(self) -> FileJobs | None:
        """Work on the files of the whole store that workers share; None where rows are not in files."""
        ...

    def commit_log(self) -> CommitLog:
        """Which rows the commits wrote, for workers that copy or compare them."""
        ...

    # checking and looking after
    def gc(self, *, dry_run: bool = True) -> Garbage:
        """Remove what no commit needs and no reader can still be looking at, or tell what would go."""
        ...

    def check(self) -> Iterator[Damage]:
        """Read the layout and all that refers to it, and yield what cannot be right."""
        ...

    def commit_ids(self) -> Collection[int]:
        """The ids of all commits, on whichever branches."""
        ...

    def every_version(self, kind: Kind, name: str) -> Sequence[SchemaVersion]:
        """All versions of a type, on whichever branches."""
        ...

    def stored_history(self, version: SchemaVersion) -> Iterator[Row]:
        """All rows that were written under a schema version, current or not: the columns of `StoredType`, in its
        order, and the commit behind them."""
        ...

    def close(self) -> None: ...
