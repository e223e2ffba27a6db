"""`Graph`: a typed property graph in a directory or a bucket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ontolake.graph.arguments import (
    check_age,
    check_flag,
    check_iterable,
    check_metadata,
    check_optional_number,
    check_optional_text,
    check_path,
    check_renames,
    check_text,
    check_type,
)
from ontolake.graph.commit.branches import GraphBranches
from ontolake.graph.commit.evolution import Renames, SchemaPlan, apply, plan
from ontolake.graph.commit.lineage import Lineage, first_parents
from ontolake.graph.commit.manifest import MANIFEST, create_manifest, read_stamp
from ontolake.graph.commit.records import MAIN, CommitRecord, Pin
from ontolake.graph.commit.recovery import Recovery
from ontolake.graph.commit.retention import require, still_there
from ontolake.graph.commit.transaction import GraphTransaction, Mode, begin_transaction
from ontolake.graph.commit.ulid import is_ulid, new_ulid
from ontolake.graph.errors import ClosedGraphError, GraphExistsError, UnknownCommitError, graph_errors
from ontolake.graph.merge.differences import diff_tables
from ontolake.graph.merge.model import GraphHistory, Strategies, stored_resolutions, strategy_by_table
from ontolake.graph.parts import GraphParts
from ontolake.graph.place import GraphPlace
from ontolake.graph.read.exports import export, import_into, types_in
from ontolake.graph.read.past import RowPast
from ontolake.graph.read.resolution import find_commit, find_snapshot, resolve_ref, snapshot_of
from ontolake.graph.read.snapshot import Snapshot
from ontolake.graph.tables.datasets import GraphTables
from ontolake.graph.tables.types import GraphType, check_types, graph_type, resolve_table
from ontolake.graph.tags import GraphTags
from ontolake.graph.upkeep.background import EVERY, Background
from ontolake.graph.upkeep.erasure import erase
from ontolake.graph.upkeep.maintenance import (
    TRIES,
    Optimized,
    Removable,
    cleanup,
    create_index,
    garbage,
    optimize,
)
from ontolake.graph.upkeep.purge import purge
from ontolake.graph.upkeep.repairs import Finding, repair, verify
from ontolake.history import (
    Change,
    Commit,
    Damage,
    Garbage,
    MergeResult,
    ProtectedBranchError,
    Ref,
    Resolution,
    RowVersion,
    UnrelatedError,
    operations,
)
from ontolake.history.operations import MergeRequest
from ontolake.history.refs import on_branch

if TYPE_CHECKING:
    import pyarrow as pa


class Graph:
    """A graph at a URL. Make one with `Graph.init`, open it with `Graph.open`."""

    def __init__(self, place: GraphPlace, *, read_only: bool) -> None:
        self.url = place.url
        self.read_only = read_only
        self._closed = False
        self._parts = GraphParts.open(place, read_only=read_only)
        self._branches, self._tags = GraphBranches(self._parts), GraphTags(self._parts)
        self.parts.recoverer.purging = partial(purge, self.parts)
        self._background: Background | None = None
        if not read_only:
            self._tend(Background(self.parts))
        self.recovered: list[Recovery] = []
        """What opening the graph had to recover."""
        if not read_only:
            self.recovered = self.parts.recoverer.run()

    @classmethod
    def init(cls, url: str, types: Iterable[Any], *, actor: str | None = None) -> Graph:
        """Make a graph with these types. Raises `GraphExistsError`, `GraphSchemaError`, `SchemaValidationError`."""
        check_text(url=url)
        check_iterable(types=types)
        check_optional_text(actor=actor)
        found = check_types(graph_type(one) for one in types)
        place = GraphPlace(url)
        if any(True for _ in place.store.list(f"{MANIFEST}/")):
            raise GraphExistsError(f"there is a graph at {url} already", hint="open it, or choose another place")
        tables = GraphTables(place)
        pins: dict[str, Pin] = {}
        for key, kind in found.items():
            pins[key] = Pin(None, tables.create(kind).version, 0, kind.hash)
        id = new_ulid()
        created = datetime.now(UTC).isoformat(timespec="microseconds")
        first = CommitRecord(id, None, None, MAIN, 0, actor, created, "init", pins)
        try:
            create_manifest(place, found, first)
        except OSError as error:
            if "already exists" in str(error).lower():
                raise GraphExistsError(f"somebody else made a graph at {url} just now", hint="open it") from error
            raise
        return cls(place, read_only=False)

    @classmethod
    def open(cls, url: str, *, read_only: bool = False) -> Graph:
        """Open a graph. For writing, what crashes left behind is recovered first; `recovered` says what that was.

        Raises `NoGraphError`, `GraphFormatError` for an older or newer one, `DamagedGraphError`.
        """
        check_text(url=url)
        check_flag(read_only=read_only)
        return cls(GraphPlace(url), read_only=read_only)

    @property
    def parts(self) -> GraphParts:
        """What the library's own modules share; it may change with any release. Raises `ClosedGraphError`."""
        self._check_open()
        return self._parts

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedGraphError(self.url)

    @property
    def branches(self) -> GraphBranches:
        """The branches. Raises `ClosedGraphError`."""
        self._check_open()
        return self._branches

    @property
    def tags(self) -> GraphTags:
        """The tags. Raises `ClosedGraphError`."""
        self._check_open()
        return self._tags

    # Reading

    def snapshot(self, commit: str | Ref | None = None, *, branch: str | None = None) -> Snapshot:
        """The graph at the head of a branch, or as it was at a commit that the branch knows.

        Without a branch, main is meant, and a commit is looked for on all branches; other references may stand for a
        commit. Raises `UnknownBranchError`, `UnknownCommitError`, and of these `RemovedCommitError` after a cleanup.
        """
        check_optional_text(branch=branch)
        if commit is None or (isinstance(commit, str) and is_ulid(commit)):
            return find_snapshot(self.parts, commit, branch)
        check_type((str, Ref), "the id of a commit, or a reference such as 'try' or 'main~1'", commit=commit)
        return self.at(on_branch(commit, branch))

    def at(self, ref: Ref | str) -> Snapshot:
        """The graph at what a user wrote: a branch, a tag, a commit, a time, or some commits before one."""
        check_type((str, Ref), "a reference such as 'try' or 'main~1'", ref=ref)
        if isinstance(ref, Ref):
            check_optional_text(branch=ref.branch, commit=ref.commit)
        branch, commit = resolve_ref(self.parts, ref)
        return find_snapshot(self.parts, commit, branch)

    def _commit(self, ref: str | Ref | None, **argument: Any) -> str | None:
        """The commit that an argument names by its id or another reference."""
        check_type((str, Ref, type(None)), "the id of a commit, or a reference such as 'main~1'", **argument)
        return ref if ref is None or (isinstance(ref, str) and is_ulid(ref)) else resolve_ref(self.parts, ref).commit

    def types(self, branch: str = MAIN) -> dict[str, GraphType]:
        """The types of a branch, by table key."""
        return dict(self.parts.state(branch).types)

    def commits(
        self, *, since: str | Ref | None = None, until: str | Ref | None = None, branch: str = MAIN
    ) -> Iterator[Commit[str]]:  # fmt: skip
        """The commits of a branch along its own line, newest first; after `since` those that it does not have."""
        check_text(branch=branch)
        since, until = self._commit(since, since=since), self._commit(until, until=until)
        state = self.parts.state(branch)
        records = self.parts.manifest.commits(state.branch)
        for id in (since, until):
            if id is not None and id not in records:
                raise UnknownCommitError(id, branch)
        head = until or state.head.id
        new = None if since is None else Lineage(records, self.parts.orders).since(head, since)
        for record in first_parents(records, head):
            if new is not None and record.id not in new:
                return
            yield record.as_history()

    def diff(self, before: Snapshot | str | Ref, after: Snapshot | str | Ref) -> Iterator[Change[str]]:
        """What turns one snapshot into another, on whichever branches they are; a row at most once.

        Takes snapshots, or text such as `try` or `main@01J…`. Costs what changed since the two had the same rows.
        Raises `UnrelatedError` for a snapshot of another graph.
        """
        check_type((str, Ref, Snapshot), "a snapshot of a graph, or text such as 'try' or 'main@01J…'", before=before,
                   after=after)  # fmt: skip
        old, new = (one if isinstance(one, Snapshot) else self.at(one) for one in (before, after))
        for state in (old, new):
            if state.root != self.parts.place.root:
                raise UnrelatedError(state.root, self.url)
        return self._changes(old, new)

    def _changes(self, old: Snapshot, new: Snapshot) -> Iterator[Change[str]]:
        with still_there(self.parts, (old.branch, old.record), (new.branch, new.record)):
            yield from diff_tables(self.parts.tables, old, new)

    def changes(
        self, since: str | Ref, until: str | Ref | None = None, *, branch: str = MAIN
    ) -> Iterator[Change[str]]:  # fmt: skip
        """What each commit of a branch did, oldest first. To follow a graph, go on from the last commit.

        Where `since` came in by a merge, the changes go on along the branch that brought it, and then tell what the
        merge did to that: applied to the graph at `since` they give the graph at `until`.
        Raises `UnknownCommitError` if the branch does not know `since` or `until`, and of these `RemovedCommitError` if
        a cleanup has removed what a commit of them showed.
        """
        check_type((str, Ref), "the id of a commit, or a reference such as 'main~1'", since=since)
        check_text(branch=branch)
        start, until = self._commit(since, since=since), self._commit(until, until=until)
        assert start is not None
        state = self.parts.state(branch)
        records = self.parts.manifest.commits(state.branch)
        for id in (start, until):
            if id is not None and id not in records:
                raise UnknownCommitError(id, branch)
        steps = Lineage(records, self.parts.orders).steps(start, until or state.head.id)
        for record in dict.fromkeys(one.id for step in steps for one in step):
            require(self.parts, records[record], state)
        for older, newer in steps:
            yield from self._changes(snapshot_of(self.parts, older, state), snapshot_of(self.parts, newer, state))

    def history(self, table: Any, key: Any, *, ref: str | None = None) -> Iterator[RowVersion[str]]:
        """All states of a row that a reference, by default main, has in its history, newest first; None for a deletion.

        A merge is told only if it gave the row a state that neither side had. Raises `UnknownTableError`.
        """
        check_optional_text(ref=ref)
        return RowPast(self.parts, table, key, MAIN if ref is None else ref).versions()

    def blame(self, table: Any, key: Any, *, ref: str | None = None) -> dict[str, Commit[str]]:
        """For each field of a row the commit that wrote its value. Raises `NotFound`, `UnknownTableError`."""
        check_optional_text(ref=ref)
        return RowPast(self.parts, table, key, MAIN if ref is None else ref).blame()

    def traverse(
        self, start: Any, roots: Any, hops: Sequence[Any], *, branch: str = MAIN, commit: str | None = None
    ) -> pa.Table:  # fmt: skip
        """`Snapshot.traverse` at the head of a branch, or as it was at a commit."""
        return self.snapshot(commit, branch=branch).traverse(start, roots, hops)

    def recoveries(self) -> Iterator[Recovery]:
        """The audit: everything that was ever recovered, oldest first."""
        return self.parts.recoverer.audit()

    def internal_schema_version(self, branch: str = MAIN) -> int:
        """The internal schema that is stamped on a branch of the graph."""
        return read_stamp(self.parts.state(branch).dataset)

    # Writing

    def transaction(
        self, *, branch: str = MAIN, actor: str | None = None, metadata: Mapping[str, Any] | None = None,
        message: str | None = None,
    ) -> GraphTransaction:  # fmt: skip
        """Several loads and deletions as one commit: `with graph.transaction() as tx: tx.load(…); tx.delete(…)`."""
        check_text(branch=branch)
        check_optional_text(actor=actor, message=message)
        check_metadata(metadata)
        return begin_transaction(self.parts, branch, actor, metadata, message)

    def load(
        self, table: Any, data: Any, *, mode: Mode = "merge", branch: str = MAIN, actor: str | None = None,
        message: str | None = None,
    ) -> Commit[str] | None:  # fmt: skip
        """Load rows into one table as one commit; None if there were none. See `GraphTransaction.load`."""
        with self.transaction(branch=branch, actor=actor, message=message) as transaction:
            transaction.load(table, data, mode=mode)
        return transaction.commit

    def delete(
        self, table: Any, keys: Any = None, *, where: Any = None, cascade: bool = False, branch: str = MAIN,
        actor: str | None = None, message: str | None = None,
    ) -> int:  # fmt: skip
        """Delete rows by key or filter as one commit. Returns how many. See `GraphTransaction.delete`."""
        with self.transaction(branch=branch, actor=actor, message=message) as transaction:
            return transaction.delete(table, keys, where=where, cascade=cascade)

    def merge(
        self, source: str, into: str = MAIN, *, strategy: Strategies = None, resolutions: Iterable[Resolution] = (),
        dry_run: bool = False, message: str | None = None, author: str | None = None, actor: str | None = None,
    ) -> MergeResult[str]:  # fmt: skip
        """Bring what changed on a branch, a tag or a commit into a branch, as one commit with two parents.

        Conflicts are told by field. A `strategy` settles them for all tables or by table: `ours` keeps what `into` has,
        `theirs` takes what `source` has; `resolutions` settle single ones. A rule that rows break together is settled
        for a side: all of them are then as that side has them. A table whose definitions do not fit stays as one side
        has it. Raises `MergeConflictError` with all conflicts, and changes nothing then; a dry run returns them.
        Raises `UnknownBranchError`, `UnknownCommitError`, `BranchError`.
        """
        check_text(source=source, into=into)
        request = self._request((into, source), strategy, resolutions, dry_run, message, author or actor)
        with self._turn(into), graph_errors():
            return operations.merge(self._now, source, into, request)

    def revert(
        self, commit: str, *, branch: str = MAIN, strategy: Strategies = None, resolutions: Iterable[Resolution] = (),
        dry_run: bool = False, message: str | None = None, author: str | None = None,
    ) -> MergeResult[str]:  # fmt: skip
        """Undo what one commit did, as a new commit; of a merge, what it brought to its first parent.

        What was changed again since is a conflict. Raises `RevertError` for the first commit and for one that the
        branch does not have, and what `merge` raises.
        """
        check_text(commit=commit, branch=branch)
        request = self._request((branch, commit), strategy, resolutions, dry_run, message, author)
        with self._turn(branch, dry_run), graph_errors():
            return operations.revert(self._now, commit, branch, request)

    def cherry_pick(
        self, commit: str, *, branch: str = MAIN, strategy: Strategies = None, resolutions: Iterable[Resolution] = (),
        dry_run: bool = False, message: str | None = None, author: str | None = None,
    ) -> MergeResult[str]:  # fmt: skip
        """Do on a branch what one commit did elsewhere, as a new commit. Raises what `revert` raises."""
        check_text(commit=commit, branch=branch)
        request = self._request((branch, commit), strategy, resolutions, dry_run, message, author)
        with self._turn(branch, dry_run), graph_errors():
            return operations.cherry_pick(self._now, commit, branch, request)

    def restore(
        self, to: str, tables: Iterable[Any] | None = None, *, branch: str = MAIN, dry_run: bool = False,
        message: str | None = None, author: str | None = None,
    ) -> MergeResult[str]:  # fmt: skip
        """Bring an earlier state back, of all tables or some, as a new commit; nothing of history is lost.

        Raises `MergeConflictError` if rows of other tables need what goes, `UnknownTableError`.
        """
        check_text(to=to, branch=branch)
        request = self._request((branch, to), None, (), dry_run, message, author)
        some = None
        if tables is not None:
            check_iterable(tables=tables)
            known = self._types(branch, to)
            some = [known[resolve_table(table, known)].table for table in tables]
        with self._turn(branch, dry_run), graph_errors():
            return operations.restore(self._now, to, branch, some, request)

    def _turn(self, branch: str, allowed: bool = True) -> AbstractContextManager[None]:
        """Write to a branch in this process. Raises `ProtectedBranchError` unless that is allowed."""
        line = self.parts.names.line(branch)
        if not allowed and self.parts.names.is_protected(line, self.parts.manifest.identity(line)):
            raise ProtectedBranchError(branch)
        return self.parts.turns.writing(line)

    def _now(self) -> GraphHistory:
        return GraphHistory(self.parts)

    def _types(self, *refs: str) -> dict[str, GraphType]:
        """The types of all tables at some references, by table key."""
        found: dict[str, GraphType] = {}
        for ref in reversed(refs):
            branch, commit = resolve_ref(self.parts, ref)
            state, record = find_commit(self.parts, commit, branch)
            found |= {key: state.history[pin.schema] for key, pin in record.pins.items() if pin.schema in state.history}
        return found

    def _request(
        self, refs: tuple[str, str], strategy: Strategies, resolutions: Iterable[Resolution], dry_run: bool,
        message: str | None, author: str | None,
    ) -> MergeRequest:  # fmt: skip
        """What a caller wants of a merge, with tables under the names that they have in conflicts."""
        if not callable(strategy):
            check_type((str, Mapping, type(None)), "'ours', 'theirs', a mapping of tables to these or a function",
                       strategy=strategy)
        check_iterable(resolutions=resolutions)
        check_flag(dry_run=dry_run)
        check_optional_text(message=message, author=author)
        some = list(resolutions)
        if some or isinstance(strategy, Mapping):
            types = self._types(*refs)
            return MergeRequest.of(strategy_by_table(strategy, types), stored_resolutions(some, types), dry_run,
                                   message, author)  # fmt: skip
        return MergeRequest.of(strategy, (), dry_run, message, author)

    def erase(self, table: Any, key: Any, reason: str, *, dry_run: bool = True, author: str | None = None) -> Garbage:
        """Remove every stored version of a row, from every commit, branch and file. A dry run counts what would go.

        Commits stay, and show all but the row; indexes of the table are made anew for heads, and gone from older
        commits. A commit on each branch whose files change, and in any case on main, has the reason as its message, and
        a salted hash of the key. Interrupted, it can be called again. Raises `NotFound` if nothing is stored of the
        row, `ErasureError` if edges have its key, `Invalid` without a reason, `PublishContendedError` if others leave
        no time for it.
        """
        check_text(reason=reason)
        check_flag(dry_run=dry_run)
        check_optional_text(author=author)
        if not dry_run:
            self.parts.require_writable()
            if self._background is not None:
                self._background.drain()
        return erase(self.parts, table, key, reason=reason, dry_run=dry_run, author=author)

    def recover(self) -> list[Recovery]:
        """Recover now what others left behind, as opening does."""
        self.parts.require_writable()
        return self.parts.recoverer.run()

    # Types

    def schema_plan(
        self, types: Iterable[Any], *, renames: Renames | None = None, branch: str = MAIN
    ) -> SchemaPlan:  # fmt: skip
        """What it takes to give a branch these types. Changes nothing.

        `renames` tells columns that have another name from now on: `{"Customer": {"name": "full_name"}}`.
        Raises `GraphSchemaError` for what cannot be done without losing or misreading a row.
        """
        check_iterable(types=types)
        check_renames(renames)
        return plan(self.parts, types, renames, branch)

    def schema_apply(self, plan: SchemaPlan, *, hard: bool = False, actor: str | None = None) -> Commit[str] | None:
        """Do what was planned, as one commit; None if there is nothing to do.

        What is dropped stays readable in older commits; `hard` removes it for good, and with it all versions of before.
        Raises `GraphSchemaError` if the graph has changed since, or rows do not fit.
        """
        check_type(SchemaPlan, "a plan that schema_plan returned", plan=plan)
        check_flag(hard=hard)
        check_optional_text(actor=actor)
        self.parts.require_writable()
        if not plan.steps:
            return None
        with self._turn(plan.branch):
            return apply(self.parts, plan, hard=hard, actor=actor).head.as_history()

    # Maintenance

    def optimize(self, *, branch: str = MAIN, actor: str | None = None) -> list[Optimized]:
        """Compact what is scattered and bring indexes up to date; big tables get one on their keys. Changes no row.

        Writers go on meanwhile. Raises `PublishContendedError` if they leave no time for it; some tables may be done.
        """
        check_text(branch=branch)
        check_optional_text(actor=actor)
        self.parts.require_writable()
        with self._turn(branch):
            return optimize(self.parts, branch, actor, tries=TRIES)

    def keep_optimized(self, every: int | None = EVERY) -> None:
        """Tend tables in the background after so many commits; None ends that. An open graph does it after 32.

        It merges small files and keeps indexes on keys and of the kind `btree` up to date. Writers go on meanwhile, no
        answer changes, and no commit comes of it. `close` finishes it. Raises `Invalid`.
        """
        check_optional_number(2, every=every)
        self.parts.require_writable()
        self._tend(Background(self.parts, every) if every is not None else None)

    def _tend(self, background: Background | None) -> None:
        if self._background is not None:
            self._background.stop()
        self._background = background
        self.parts.writer.committed = background.committed if background is not None else None

    def index(
        self, table: Any, column: str, *, kind: str = "btree", branch: str = MAIN, actor: str | None = None
    ) -> None:  # fmt: skip
        """An index on a column: `btree` for comparisons, `text` for `search`, `vector` for near neighbours.

        Indexes are derived: reads give the same without, and `optimize` keeps them up to date. Raises `Invalid`.
        """
        check_text(column=column, kind=kind, branch=branch)
        check_optional_text(actor=actor)
        self.parts.require_writable()
        with self._turn(branch):
            create_index(self.parts, table, column, kind, branch, actor)

    def cleanup(
        self, *, keep: timedelta | None = None, keep_commits: int | None = None, dry_run: bool = True
    ) -> tuple[list[Removable], int]:  # fmt: skip
        """Remove versions of tables that no kept commit shows; returns them, and the bytes that were freed.

        Kept are commits younger than `keep` and the last `keep_commits` of every branch; all, if neither is given.
        Heads, tagged commits, what branches were made from and where two of them met last are always kept.
        """
        check_age(keep=keep)
        check_optional_number(0, keep_commits=keep_commits)
        check_flag(dry_run=dry_run)
        if not dry_run:
            self.parts.require_writable()
        return cleanup(self.parts, keep, keep_commits, dry_run)

    def gc(self, *, dry_run: bool = True) -> Garbage:
        """Remove what no commit shows."""
        check_flag(dry_run=dry_run)
        if not dry_run:
            self.parts.require_writable()
        return garbage(self.parts, dry_run)

    def repair(self, *, dry_run: bool = True) -> list[Finding]:
        """What is not as it should be; unless it is a dry run, what can be is put right.

        Writers go on meanwhile. Raises `PublishContendedError` if they leave no time for it; some may be put right.
        """
        check_flag(dry_run=dry_run)
        if not dry_run:
            self.parts.require_writable()
        return repair(self.parts, dry_run)

    def verify(self) -> Iterator[Damage]:
        """Read everything, and yield all damage that is found."""
        return verify(self.parts)

    def export(
        self, folder: str | Path, *, format: str = "jsonl", branch: str = MAIN, commit: str | None = None
    ) -> dict[str, int]:  # fmt: skip
        """Write a snapshot to a folder, a file per table, as `jsonl` or `parquet`. Returns the rows per table."""
        check_path(folder=folder)
        check_text(format=format)
        return export(self.snapshot(commit, branch=branch), folder, format)

    @classmethod
    def import_(cls, url: str, folder: str | Path, *, actor: str | None = None) -> Graph:
        """A new graph from an export. Raises what `init` and `load` raise."""
        check_text(url=url)
        check_path(folder=folder)
        check_optional_text(actor=actor)
        types, _ = types_in(folder)
        graph = cls.init(url, types, actor=actor)
        import_into(graph.parts, folder, MAIN, actor)
        return graph

    def close(self) -> None:
        """Let go of everything, after what is being done in the background. Closing twice does no harm."""
        if self._background is not None:
            self._background.stop()
        self._closed = True
        self._parts.snapshots.clear()
        self._parts.place.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self.close()
