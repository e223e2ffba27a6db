"""Graphs for parallel readers and writers: splits are fragments of Lance datasets, publishing is one commit.

The tables are `node/Customer`, `edge/Placed`; their columns are those of the type, and where history or changes are
read also `commit_id`. Commits are numbered along the line of their branch, from 0; `as_of` takes their names, too.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ontolake.errors import Conflict, Invalid, NotFound
from ontolake.graph.commit.lineage import first_parents
from ontolake.graph.commit.records import MAIN, CommitRecord
from ontolake.graph.errors import ExpectedVersionMismatch, UnknownCommitError
from ontolake.graph.graph import Graph
from ontolake.graph.splits import CommitSteps, FragmentRows, condition, public_schema
from ontolake.graph.tables.types import GraphType
from ontolake.history import Commit
from ontolake.history.contention import DEFAULT_PACE, ONCE, commit_optimistically
from ontolake.history.metadata import COMMIT, DELETED
from ontolake.model import scalars
from ontolake.model.scalars import Scalar
from ontolake.parallel import (
    NO_REMOVALS,
    PARTS,
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
    read_by_table,
    without_past,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from ontolake.graph.commit.transaction import GraphTransaction

_LEAST = 65_536
"""Rows below which a fragment is not read in parts."""


class GraphParallel:
    """A branch of a graph as parallel readers and writers see it."""

    model: ClassVar[str] = "graph"

    def __init__(self, url: str, *, branch: str | None = None, write: bool = False) -> None:
        self.url = url
        self.branch = branch or MAIN
        self._graph = Graph.open(url, read_only=not write)
        self._parts = self._graph.parts
        self._line: dict[int, CommitRecord] = {}
        """Commits of the branch by their numbers, as far as they were looked at."""

    def head(self) -> int:
        return self._head().seq

    def _head(self) -> CommitRecord:
        head = self._parts.state(self.branch).head
        self._line[head.seq] = head
        return head

    def _kinds(self, record: CommitRecord | None = None) -> dict[str, GraphType]:
        state = self._parts.state(self.branch)
        pins = (record or state.head).pins
        return {state.history[pin.schema].table: state.history[pin.schema] for pin in pins.values()}

    def tables(self) -> Sequence[str]:
        return sorted(self._kinds())

    def kind(self, table: str, record: CommitRecord | None = None) -> GraphType:
        """The type behind a table, now or at a commit. Raises `NotFound`."""
        kinds = self._kinds(record)
        if table not in kinds:
            when = "" if record is None else f" at commit {record.seq}"
            raise NotFound(f"there is no table {table!r} in {self.url!r}{when}",
                           hint=f"there are {', '.join(sorted(kinds)) or 'none'}")
        return kinds[table]

    def keys(self, table: str) -> Sequence[str]:
        return self.kind(table).keys

    def scalars(self) -> Sequence[Scalar]:
        return _carried(*self._parts.state(self.branch).history.values())

    def takes(self, table: str) -> Mapping[str, bool]:
        return {field.name: not (field.nullable or field.has_default) for field in self.kind(table).fields}

    def schema(self, table: str, mode: Mode = "latest", view: View | None = None) -> pa.Schema:
        record = None if view is None else self._at(view.commit)
        return public_schema(self.kind(table, record), mode)

    def view(
        self, *, as_of: int | str | None = None, mode: Mode = "latest", since: int | str | None = None
    ) -> View:  # fmt: skip
        check_mode(mode)
        head = self._head()
        moment = head if as_of is None else self._at(as_of)
        return View(moment.seq, mode, 0 if since is None else self._at(since).seq)

    def _at(self, commit: int | str) -> CommitRecord:
        """A commit of the branch by its number or name. Raises `UnknownCommitError`."""
        if isinstance(commit, bool) or not isinstance(commit, int | str):
            raise Invalid(f"a commit is a number or a name, not {commit!r}")
        head = self._head()
        if commit not in self._line and commit != head.id:
            commits = self._parts.manifest.commits(self._parts.names.line(self.branch))
            self._line = {record.seq: record for record in first_parents(commits, head.id)}
        if isinstance(commit, str):
            found = next((record for record in self._line.values() if record.id == commit), None)
        else:
            found = self._line.get(commit)
        if found is None:
            raise UnknownCommitError(str(commit), self.branch)
        return found

    def commits(self, *, since: int = -1, until: int | None = None) -> Iterator[Commit[int]]:
        for number in range(self.head() if until is None else until, since, -1):
            told = self._at(number).as_history()
            yield Commit(number, (number - 1,) if number else (), told.time, told.author,
                         {**told.metadata, COMMIT: told.id})

    # reading
    def splits(
        self, table: str, view: View, columns: Sequence[str] | None = None, filters: Sequence[Filter] = (), *,
        parts: int | None = None,
    ) -> Sequence[Split]:  # fmt: skip
        parts = parts or PARTS
        record = self._at(view.commit)
        kind = self.kind(table, record)
        wanted = tuple(chosen(public_schema(kind, view.mode), columns, filters, table))
        told = json.dumps(kind.to_json(), separators=(",", ":"))
        needed = _carried(kind)
        if view.mode != "latest":
            return [replace(one, scalars=needed) for one in self._commit_ranges(kind, told, view, wanted, parts)]
        pin, where = record.pins[kind.key], condition(kind, filters)
        if not pin.rows:
            return []
        fragments = [(one.fragment_id, one.count_rows()) for one in self._parts.tables.at(kind, pin).get_fragments()]
        share = max(1, -(-pin.rows // parts))
        found: list[FragmentRows] = []
        waiting: list[tuple[int, int]] = []
        for number, rows in fragments:
            if where is None and rows >= 2 * share and rows >= 2 * _LEAST:  # with a filter offsets mean other rows
                pieces = min(-(-rows // share), rows // _LEAST)
                edges = [rows * n // pieces for n in range(pieces + 1)]
                found += [FragmentRows(self.url, told, pin, wanted, None, (number,), stop - start, start, stop)
                          for start, stop in itertools.pairwise(edges)]
                continue
            waiting.append((number, rows))
            if sum(count for _, count in waiting) >= share:
                found.append(self._together(told, pin, wanted, where, waiting))
                waiting = []
        found += [self._together(told, pin, wanted, where, waiting)] if waiting else []
        return [replace(one, scalars=needed) for one in found]

    def _together(self, told: str, pin: Any, wanted: tuple[str, ...], where: str | None,
                  some: Sequence[tuple[int, int]]) -> FragmentRows:  # fmt: skip
        return FragmentRows(self.url, told, pin, wanted, where, tuple(number for number, _ in some),
                            sum(rows for _, rows in some))

    def _commit_ranges(
        self, kind: GraphType, told: str, view: View, wanted: tuple[str, ...], parts: int
    ) -> Sequence[CommitSteps]:  # fmt: skip
        since = view.since if view.mode == "changes" else -1
        steps = []
        before = self._at(since).pins.get(kind.key) if since >= 0 else None
        for number in range(since + 1, view.commit + 1):
            after = self._at(number).pins.get(kind.key)
            if (before and before[:2]) != (after and after[:2]):
                steps.append((number, before, after))
            before = after
        share = max(1, -(-len(steps) // parts))
        return [CommitSteps(self.url, told, tuple(some), view.mode, wanted, 0)
                for some in (steps[start : start + share] for start in range(0, len(steps), share))]

    # writing
    def shape(self, table: str) -> Shape | None:
        return None

    def check_removable(self) -> None:
        """Rows of graphs can be deleted."""

    def publish(
        self, fragments: Sequence[Fragment], *, metadata: Mapping[str, Any] | None = None,
        expected: int | None = None, removals: Mapping[str, Removal] = NO_REMOVALS,
    ) -> Published:  # fmt: skip
        tables = read_by_table(fragments)
        told = dict(metadata or {})
        gone = {name: (read_by_table(one.fragments)[one.fragments[0].table], one.cascade)
                for name, one in removals.items() if one.fragments}
        return commit_optimistically(lambda: self._published(tables, gone, told, expected), ExpectedVersionMismatch,
                                     DEFAULT_PACE if expected is None else ONCE)

    def _published(
        self, tables: Mapping[str, pa.Table], gone: Mapping[str, tuple[pa.Table, bool]], metadata: dict[str, Any],
        expected: int | None,
    ) -> Published:  # fmt: skip
        transaction = self._graph.transaction(branch=self.branch, metadata=metadata)
        head = transaction.base
        if expected is not None and head.seq != expected:
            raise Conflict(f"commit {head.seq} came after commit {expected}, which was read",
                           hint="read again and work it out again")
        written = {}
        for name in sorted(tables, key=lambda name: not name.startswith("node/")):
            written[name] = self._reconciled(transaction, self.kind(name), tables[name])
        deleted = {name: transaction.delete(self.kind(name), keys, cascade=cascade)
                   for name, (keys, cascade) in sorted(gone.items())}  # edges before nodes
        if any(deleted.values()):
            transaction.note({DELETED: deleted})
        done = transaction.finish(only=expected is not None)
        if done is None:
            return Published(None, written, deleted)
        made = self._parts.manifest.commit(done.id, self._parts.names.line(self.branch))
        return Published(made.seq, written, deleted)

    def _reconciled(self, transaction: GraphTransaction, kind: GraphType, data: pa.Table) -> int:
        """Load what differs from what the transaction sees. Returns how many rows that is."""
        import numpy as np
        import pyarrow as pa

        from ontolake.graph.merge.differences import rows_at
        from ontolake.graph.tables.rows import refuse_duplicates, to_table
        from ontolake.history.rows import positions, same

        rows = to_table(kind, without_past(data, kind.by_name))
        refuse_duplicates(kind, rows)
        pin = transaction.pin(kind)
        if not rows.num_rows:
            return 0
        if pin.rows:
            keys = rows.select(list(kind.keys))
            old = rows_at(self._parts.tables, kind, pin, keys)
            at = positions(kind.keys, keys, old)
            alike = same([field.name for field in kind.fields], old, at, rows, np.arange(rows.num_rows))
            if alike.any():
                rows = rows.filter(pa.array(~alike))
        if rows.num_rows:
            transaction.load(kind, rows, mode="merge")
        return int(rows.num_rows)

    def close(self) -> None:
        self._graph.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _carried(*kinds: GraphType) -> tuple[Scalar, ...]:
    """The scalars of users that fields of these types are of."""
    return scalars.carried([{"kind": "primitive", "name": field.scalar.name} for kind in kinds for field in kind.fields
                            if field.scalar is not None and field.scalar is not scalars.JSON])  # fmt: skip
