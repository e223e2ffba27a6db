"""`GraphTransaction`: loads and deletions over many tables that become one commit, or nothing.

The order of a commit: check, write the sidecar, move the tables, publish, remove the sidecar. Nothing is visible
before the publish, and everything is after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, Self

import pyarrow as pa
import pyarrow.compute as pc

from ontolake.arrow_keys import contains
from ontolake.errors import Conflict, Invalid
from ontolake.graph.arguments import check_flag, check_metadata, check_text
from ontolake.graph.commit.records import CommitDetails, CommitRecord, GraphState, Pin
from ontolake.graph.errors import (
    DuplicateKeyError,
    ExpectedVersionMismatch,
    UnknownBranchError,
    reading,
)
from ontolake.graph.parts import GraphParts
from ontolake.graph.tables import appends
from ontolake.graph.tables.appends import StagedAppend
from ontolake.graph.tables.changes import TableChange
from ontolake.graph.tables.constraints import Checker
from ontolake.graph.tables.datasets import GraphTables
from ontolake.graph.tables.filters import filtering, to_sql
from ontolake.graph.tables.rows import key_at, keys_table, refuse_duplicates, to_table
from ontolake.graph.tables.types import GraphType, declared, resolve_table
from ontolake.history import Commit
from ontolake.history.metadata import MESSAGE

Mode = Literal["append", "merge", "overwrite"]


class _Pending:
    """What a transaction will do to one table."""

    def __init__(self) -> None:
        self.puts: pa.Table | None = None
        self.deletes: pa.Table | None = None
        self.fresh = True
        self.replace = False
        self.staged: StagedAppend | None = None

    def discard(self) -> None:
        """Let go of rows that were written ahead."""
        if self.staged is not None:
            self.staged.discard()
            self.staged = None

    def change(self, empty: bool) -> TableChange | None:
        puts = self.puts if self.puts is not None and self.puts.num_rows else None
        deletes = self.deletes if self.deletes is not None and self.deletes.num_rows and not empty else None
        if self.replace and not empty and puts is None:
            return None
        if puts is None and deletes is None:
            return None
        fresh = self.fresh or empty
        staged = self.staged if self.staged is not None and fresh and puts is self.staged.rows else None
        return TableChange(puts, deletes, fresh=fresh, replace=self.replace and not empty, staged=staged)


class GraphTransaction:
    """Collects loads and deletions on one branch; leaving the block commits them, an exception drops them."""

    def __init__(
        self, parts: GraphParts, branch: str, actor: str | None, extra: Mapping[str, Any] | None = None,
        message: str | None = None,
    ) -> None:  # fmt: skip
        self._parts = parts
        self._state = parts.state(branch)
        self._actor = actor
        self._extra = {**(extra or {}), **({MESSAGE: message} if message is not None else {})}
        self._pending: dict[str, _Pending] = {}
        self._done = False
        self.commit: Commit[str] | None = None
        """The commit that was made; None before that, and if there was nothing to do."""

    @property
    def base(self) -> CommitRecord:
        """The commit that this one will follow."""
        return self._state.head

    def pin(self, kind: GraphType) -> Pin:
        """Where the rows are that a table has before this."""
        return self._state.pins[kind.key]

    @property
    def _tables(self) -> GraphTables:
        return self._parts.tables

    def _of(self, table: Any) -> tuple[GraphType, _Pending]:
        if self._done:
            raise Invalid("the transaction has ended", hint="begin another one")
        key = resolve_table(table, self._state.pins)
        return self._state.types[key], self._pending.setdefault(key, _Pending())

    def load(self, table: Any, data: Any, *, mode: Mode = "merge") -> int:
        """Rows to append (none may be there), to merge (new ones and changes) or to overwrite all others with.

        Returns how many. Raises `RowError`, `ConstraintError`, `DuplicateKeyError`, `UnknownTableError`.
        """
        check_text(mode=mode)
        kind, pending = self._of(table)
        rows = to_table(kind, data, declared(table))
        try:
            self._stage(kind, pending, rows, mode)
            return self._load(kind, pending, rows, mode)
        except BaseException:
            pending.discard()
            raise

    def _stage(self, kind: GraphType, pending: _Pending, rows: pa.Table, mode: Mode) -> None:
        """Begin to write many rows that are all new, if they are fit for it, while they are checked."""
        pin = self._state.pins[kind.key]
        pending.discard()
        if (rows.num_rows >= appends.STAGED_ROWS and pending.puts is None and (mode == "append" or pin.rows == 0)
                and pin.branch == self._state.line):  # fmt: skip
            pending.staged = StagedAppend(self._tables, kind, pin, rows)

    def _load(self, kind: GraphType, pending: _Pending, rows: pa.Table, mode: Mode) -> int:
        refuse_duplicates(kind, rows)
        if mode == "append":
            Checker(self._tables, self._state.types, self._state.pins, self._known()).fresh_keys(kind.key, rows)
            if pending.puts is not None and rows.num_rows:
                both = contains(pending.puts, rows, kind.keys)
                row = pc.index(both, pa.scalar(True)).as_py()
                if row >= 0:
                    raise DuplicateKeyError(kind.table, "the key was loaded in this transaction already", row=row,
                                            key=key_at(kind, rows, row), column=kind.keys[0])
                rows = pa.concat_tables([pending.puts, rows])
            elif pending.puts is not None:
                rows = pending.puts
            pending.puts = rows
        elif mode == "merge":
            self._put(kind, pending, rows)
        elif mode == "overwrite":
            pending.puts, pending.deletes, pending.replace, pending.fresh = rows, None, True, False
        else:
            raise Invalid(f"the mode {mode!r} is not known", hint="choose append, merge or overwrite")
        return int(rows.num_rows)

    def _put(self, kind: GraphType, pending: _Pending, rows: pa.Table) -> None:
        if pending.puts is not None and pending.puts.num_rows and rows.num_rows:
            kept = pending.puts.filter(pc.invert(contains(rows, pending.puts, kind.keys)))
            rows = pa.concat_tables([kept, rows])
        elif pending.puts is not None and not rows.num_rows:
            rows = pending.puts
        if pending.deletes is not None and pending.deletes.num_rows and rows.num_rows:
            pending.deletes = pending.deletes.filter(pc.invert(contains(rows, pending.deletes, kind.keys)))
        pending.puts, pending.fresh = rows, False

    def delete(self, table: Any, keys: Any = None, *, where: Any = None, cascade: bool = False) -> int:
        """Rows to take away, by key or by a filter. Returns how many there are.

        With `cascade` the edges of deleted nodes go too; without, `EndpointError` is raised if there are any.
        """
        check_flag(cascade=cascade)
        kind, pending = self._of(table)
        if (keys is None) == (where is None):
            raise Invalid("name the rows to delete by keys, or with where=", hint="one of the two")
        dataset = self._tables.at(kind, self._state.pins[kind.key])
        if where is not None:
            if to_sql(where) is None:
                raise Invalid("the filter is empty", hint="to delete all rows, say where='true'")
            with filtering(kind, where):
                found = dataset.to_table(columns=list(kind.keys), filter=to_sql(where))
        else:
            wanted = keys_table(kind, keys)
            found = self._tables.lookup(kind, dataset, wanted, kind.keys)
            if pending.puts is not None and pending.puts.num_rows:
                mine = pending.puts.select(list(kind.keys))
                mine = mine.filter(contains(wanted, mine, kind.keys))
                if found.num_rows and mine.num_rows:
                    mine = mine.filter(pc.invert(contains(found, mine, kind.keys)))
                found = pa.concat_tables([found, mine])
        if found.num_rows == 0:
            return 0
        self._take(kind, pending, found)
        if cascade and kind.kind == "node":
            gone = found.column(kind.keys[0]).combine_chunks()
            for edge in self._state.types.values():
                for column, end in edge.ends:
                    if end == kind.key:
                        self._cascade(edge, column, gone)
        return int(found.num_rows)

    def _cascade(self, edge: GraphType, column: str, nodes: Any) -> None:
        pending = self._pending.setdefault(edge.key, _Pending())
        checker = Checker(self._tables, self._state.types, self._state.pins, self._known())
        found = checker.edges_at(edge, column, nodes)
        if pending.puts is not None and pending.puts.num_rows:
            mine = pending.puts.filter(pc.is_in(pending.puts.column(column), nodes)).select(list(edge.keys))
            found = pa.concat_tables([found, mine])
        if found.num_rows:
            self._take(edge, pending, found)

    def _take(self, kind: GraphType, pending: _Pending, keys: pa.Table) -> None:
        if pending.puts is not None and pending.puts.num_rows:
            pending.puts = pending.puts.filter(pc.invert(contains(keys, pending.puts, kind.keys)))
        if pending.replace:
            return
        if pending.deletes is not None and pending.deletes.num_rows:
            keys = keys.filter(pc.invert(contains(pending.deletes, keys, kind.keys)))
            keys = pa.concat_tables([pending.deletes, keys])
        pending.deletes = keys

    def _known(self) -> dict[str, TableChange]:
        """What is to be done so far, as checks see it; a table of which every row goes included."""
        return {key: TableChange(p.puts if p.puts is not None and p.puts.num_rows else None,
                            p.deletes if p.deletes is not None and p.deletes.num_rows else None, p.fresh, p.replace)
                for key, p in self._pending.items()}  # fmt: skip

    def _changes(self) -> dict[str, TableChange]:
        found: dict[str, TableChange] = {}
        for key, pending in self._pending.items():
            kind, pin = self._state.types[key], self._state.pins[key]
            if pending.replace and pin.rows and (pending.puts is None or not pending.puts.num_rows):
                with reading(kind.table):
                    keys = self._tables.at(kind, pin).to_table(columns=list(kind.keys))
                found[key] = TableChange(None, keys)
                continue
            change = pending.change(pin.rows == 0)
            if change is not None:
                found[key] = change
        for key, pending in self._pending.items():
            if key not in found or found[key].staged is None:
                pending.discard()
        return found

    def note(self, metadata: Mapping[str, Any]) -> None:
        """Say more in the metadata of the commit. Raises `Invalid` for what cannot be kept there."""
        check_metadata(metadata)
        self._extra.update(metadata or {})

    def finish(
        self, *, kind: str | None = None, merged_parent: str | None = None, only: bool = False
    ) -> Commit[str] | None:  # fmt: skip
        """Commit now. Returns the commit, or None if nothing was to be done. With `only`, no other may come in between.

        Raises `Conflict` if one has, `ConstraintError`, `ExpectedVersionMismatch`, `PublishContendedError`; nothing is
        published then.
        """
        if self._done:
            raise Invalid("the transaction has ended", hint="begin another one")
        self._done = True
        while True:
            try:
                return self._finish(kind, merged_parent, only)
            except ExpectedVersionMismatch:
                if not self._follow(only):
                    self._discard()
                    raise

    def _follow(self, only: bool) -> bool:
        """Go on from where upkeep has moved the tables meanwhile; False if it has not, or others changed their rows."""
        mine, state = self._state, self._parts.line_state(self._state.branch)
        if state.identity != mine.identity or (only and state.head.id != mine.head.id):
            return False
        moved = {key: state.pins.get(key) for key in self._pending if state.pins.get(key) != mine.pins[key]}
        if not moved or not all(pin is not None and self._tables.same_rows(mine.types[key], mine.pins[key], pin)
                                for key, pin in moved.items()):  # fmt: skip
            return False
        self._state = state
        return True

    def _finish(self, kind: str | None, merged_parent: str | None, only: bool) -> Commit[str] | None:
        try:
            if self._parts.manifest.identity(self._state.branch) != self._state.identity:
                raise UnknownBranchError(self._state.branch)
            self._follow(only)
            changes = self._changes()
            checker = Checker(self._tables, self._state.types, self._state.pins, changes)
            checker.within_tables()
            checker.between_tables()
        except BaseException:
            self._discard()
            raise
        if not changes:
            return None
        reads = checker.reads()

        def recheck(state: GraphState) -> None:
            """Others may have published meanwhile what the endpoints depend on."""
            if only and state.head.id != self.base.id:
                raise Conflict(f"commit {state.head.seq} came after commit {self.base.seq}, which was read",
                               hint="read again and work it out again")
            if any(state.pins.get(key) != self._state.pins.get(key) for key in reads):
                pins = {**state.pins, **{key: self._state.pins[key] for key in changes}}
                Checker(self._tables, state.types, pins, changes).between_tables()

        modes = sorted({"delete" if change.puts is None else "load" for change in changes.values()})
        published = self._parts.writer.commit(self._state, changes, CommitDetails(
            kind or "+".join(modes), self._actor, extra=self._extra, recheck=recheck, merged_parent=merged_parent))
        self.commit = published.head.as_history()
        return self.commit

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        if kind is None and not self._done:
            self.finish()
        elif not self._done:
            self._discard()
        self._done = True

    def _discard(self) -> None:
        for pending in self._pending.values():
            pending.discard()


def begin_transaction(
    parts: GraphParts, branch: str, actor: str | None = None, metadata: Mapping[str, Any] | None = None,
    message: str | None = None,
) -> GraphTransaction:  # fmt: skip
    """See `Graph.transaction`. Raises `ReadOnlyGraphError`, `RecoveryBlockedError`, `UnknownBranchError`."""
    parts.require_writable()
    parts.writer.ready(parts.names.line(branch))
    return GraphTransaction(parts, branch, actor, metadata, message)
