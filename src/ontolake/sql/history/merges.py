"""Merges of SQL tables: what the operations of `ontolake.history` ask, answered from the keys that commits wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from ontolake.history import Commit, Conflict, ConflictKind, Counts, Decisions, Point, UnknownCommitError
from ontolake.history.dag import is_ancestor, missing
from ontolake.history.metadata import LEFT_OUT, MERGED
from ontolake.history.operations import CommitNote, MergePlan, Moved, Sides
from ontolake.sql.catalog.objects import SequenceMeta
from ontolake.sql.catalog.records import Record, SqlCatalog, Table
from ontolake.sql.history import commits, object_merges
from ontolake.sql.history.definitions import Combined, Differing, combined, definition, has_new_rules, is_same
from ontolake.sql.history.lines import BranchLines, Node
from ontolake.sql.history.object_merges import ObjectChanges, ObjectMerge
from ontolake.sql.history.reference_merges import ReferenceMerge
from ontolake.sql.history.references import References
from ontolake.sql.history.row_merges import RulesRefused, SidesOfTable, TableChanges, becomes, merged_table
from ontolake.sql.history.table_changes import TablePlan, written
from ontolake.sql.keyspace import keys
from ontolake.sql.keyspace.commit_log import unpacked
from ontolake.sql.transactions import SqlSession
from ontolake.sql.write import sequences
from ontolake.sql.write.pending import Position

OpenWriter = Callable[[str], AbstractContextManager[SqlSession]]
"""Gives a session on a branch that can be written to. Raises what a read-only handle raises."""


@dataclass
class SqlChanges:
    """What a step does to each table, by table id, and to other records of the catalog."""

    tables: dict[int, TablePlan] = field(default_factory=dict)
    objects: ObjectChanges = field(default_factory=ObjectChanges)
    source: SqlCatalog = field(default_factory=lambda: SqlCatalog(0))
    """The catalog that the changes come from."""
    positions: dict[int, Position] = field(default_factory=dict)
    """Where its sequences stand."""

    def __bool__(self) -> bool:
        return bool(self.objects) or any(plan.has_changes for plan in self.tables.values())


class SqlMergeable:
    """A database as the operations see it: a `history.operations.Mergeable` over nodes."""

    def __init__(self, references: References, target: str, writer: OpenWriter) -> None:
        self.lines: BranchLines = references.lines
        self._references = references
        self._target = target
        self._writer = writer

    @property
    def dag(self) -> BranchLines:
        return self.lines

    def resolve(self, ref: str | Node) -> Point[Node]:
        return Point(self._target, ref) if isinstance(ref, tuple) else self._references.resolve(ref)

    def head(self, branch: str) -> Node:
        line = self._references.line(branch)
        return self.lines.node(line, self.lines.head(line))

    def is_news(self, theirs: Node, ours: Node) -> bool:
        return not is_ancestor(self.lines, theirs, ours)

    # planning

    def plan(self, sides: Sides[Node], decisions: Decisions) -> MergePlan[SqlChanges]:
        touched = self._touched([(sides.theirs, base) for base in sides.bases])
        catalogs = [self._catalog(node) for node in (*sides.bases, sides.ours, sides.theirs)]
        *bases, ours, theirs = catalogs
        changes, conflicts, counts = SqlChanges(), [], {}
        for id in sorted({*bases[-1].by_id, *ours.by_id, *theirs.by_id}):
            some = [catalog.by_id.get(id) for catalog in catalogs]
            name = next(table.full_name for table in reversed(some) if table is not None)
            if sides.tables is not None and name not in sides.tables:
                continue
            prefix = keys.row_prefix(id)
            mine = [key for key in touched if key.startswith(prefix)]
            before, own, new = some[len(bases) - 1], some[-2], some[-1]
            if is_same(before, new) and not mine:
                continue
            plan, found = self._table(sides, decisions, (before, own, new), ours, mine)
            conflicts += found
            if plan is not None:
                changes.tables[id] = plan
                if any(plan.counts):
                    counts[name] = plan.counts
        objects = ObjectMerge(bases[-1], ours, theirs, decisions).run(
            lambda name: sides.tables is None or name in sides.tables)
        changes.objects, changes.source = objects.changes, theirs
        references = ReferenceMerge(self.lines, sides, decisions, ours, theirs, changes.tables, objects.changes)
        conflicts += [*objects.conflicts, *references.conflicts()]
        changes.positions = self._positions(sides.theirs, theirs)
        return MergePlan(changes, counts, conflicts)

    def _positions(self, node: Node, catalog: SqlCatalog) -> dict[int, Position]:
        """Where the sequences of a commit stand."""
        session = self.lines.reader(node)
        with session.reading():
            return {each.object_id: sequences.stored(session, each, node[1]) for each in catalog.objects.values()
                    if isinstance(each, SequenceMeta)}  # fmt: skip

    def _table(
        self, sides: Sides[Node], decisions: Decisions, states: tuple[Table | None, Table | None, Table | None],
        catalog: SqlCatalog, touched: Sequence[bytes],
    ) -> tuple[TablePlan | None, list[Conflict]]:  # fmt: skip
        base, ours, theirs = states
        if theirs is None:
            return self._dropped(sides, decisions, states, touched)
        if ours is None:
            return self._added(sides, decisions, states, catalog, touched)
        target = Combined(ours)
        if not is_same(base, theirs) and not is_same(ours, theirs):
            try:
                target = combined(base or ours, ours, theirs)
            except Differing as error:
                conflict = _schema(states, str(error))
                if decisions.side(conflict) != "ours":
                    return None, [conflict]
        own_keys: list[bytes] = []
        replaced = [column for column in target.table.columns if column.name in ours.by_name
                    and ours.by_name[column.name].identity != column.identity]  # fmt: skip
        if replaced:
            own_keys = self._own_keys(sides, ours)
        if own_keys and not all(becomes(ours.by_name[column.name], column) for column in replaced):
            conflict = _schema(states, "rows that the target changed do not become rows of the source's types")
            if decisions.side(conflict) != "ours":
                return None, [conflict]
            target, own_keys, replaced = Combined(ours), [], []
        strict = has_new_rules(ours, target)
        if strict:
            own_keys = self._own_keys(sides, ours, whole=any(index.unique for index in target.fill))
        read = SidesOfTable(self.lines, sides, target.table, sorted({*touched, *own_keys}), force=bool(replaced),
                            strict=strict)
        try:
            found = merged_table(read, decisions, target.fill)
        except RulesRefused:
            target = Combined(ours)
            read = SidesOfTable(self.lines, sides, ours, sorted(touched), force=False, strict=False)
            found = merged_table(read, decisions, ())
        plan = TablePlan(target.table, target.records, target.fill, found.changes, found.counts,
                         differing=found.differing)
        return plan, found.conflicts

    def _own_keys(self, sides: Sides[Node], ours: Table, *, whole: bool = False) -> list[bytes]:
        """The keys of the rows that the target changed, or of all that it has."""
        if not whole:
            return [key for key in self._touched([(sides.ours, base) for base in sides.bases])
                    if key.startswith(ours.prefix)]  # fmt: skip
        return self._every_key(ours, sides.ours)

    def _dropped(
        self, sides: Sides[Node], decisions: Decisions, states: tuple[Table | None, Table | None, Table | None],
        touched: Sequence[bytes],
    ) -> tuple[TablePlan | None, list[Conflict]]:  # fmt: skip
        """A table that they dropped: it goes, unless our rows or our definition of it changed."""
        base, ours, _ = states
        if base is None or ours is None:
            return None, []
        own = [key for key in self._touched([(sides.ours, base) for base in sides.bases])
               if key.startswith(ours.prefix)]  # fmt: skip
        if own or not is_same(base, ours):
            conflict = _schema(states, "the source dropped the table, the target changed it")
            side = decisions.side(conflict)
            if side != "theirs":
                return None, [] if side == "ours" else [conflict]
        return TablePlan(ours, is_dropped=True), []

    def _added(
        self, sides: Sides[Node], decisions: Decisions, states: tuple[Table | None, Table | None, Table | None],
        catalog: SqlCatalog, touched: Sequence[bytes],
    ) -> tuple[TablePlan | None, list[Conflict]]:  # fmt: skip
        """A table that only they have: it comes over, unless we dropped it or have one of its name."""
        base, _, theirs = states
        assert theirs is not None
        other = catalog.by_full_name.get(theirs.full_name)
        if base is not None or other is not None:
            if base is not None and is_same(base, theirs) and not touched:
                return None, []
            why = "the target has another of this name" if other else "the target dropped it, the source changed it"
            conflict = _schema((base, other, theirs), why)
            side = decisions.side(conflict)
            if side != "theirs":
                return None, [] if side == "ours" else [conflict]
        session = self.lines.reader(sides.theirs)
        with session.reading():
            stored = [entry for batch in session.keyspace.scan(theirs.span, sides.theirs[1], keys=True)
                      for entry in zip(batch.keys.to_list() if batch.keys else [], batch.values.to_list(),
                                       strict=True)]  # fmt: skip
            scope = session.catalog(sides.theirs[1])
        records: list[Record] = [*(each for each in scope.databases.values() if each.db_id == theirs.meta.db_id),
                                 *(each for each in scope.schemas.values()
                                   if each.schema_id == theirs.meta.schema_id)]  # fmt: skip
        plan = TablePlan(theirs, records, [], TableChanges(), Counts(len(stored)), added=sorted(stored))
        plan.replaced = other
        return plan, []

    def _catalog(self, node: Node) -> SqlCatalog:
        session = self.lines.reader(node)
        with session.reading():
            return session.catalog(node[1])

    def _touched(self, pairs: Iterable[tuple[Node, Node]]) -> set[bytes]:
        """The keys of rows that may differ: those that commits wrote that one of two nodes has and the other has not,
        and those that merges among these did not take from their source."""
        pairs = list(pairs)
        nodes: set[Node] = set()
        for one, other in pairs:
            nodes.update(missing(self.lines, one, [other]), missing(self.lines, other, [one]))
        found = self._written(nodes)
        beside = self._left_out(nodes)
        try:
            return found | self._written(beside)
        except UnknownCommitError:  # commits that both nodes have need not be kept
            ends = {node for pair in pairs for node in pair}
            return found.union(*(self._every_key(table, node) for node in ends
                                 for table in self._catalog(node).by_id.values()))  # fmt: skip

    def _left_out(self, nodes: set[Node]) -> set[Node]:
        """The commits besides some whose rows a merge among them, or among the result, did not all take.

        Both sides may have these commits and still differ in a row that they wrote.
        """
        found: set[Node] = set()
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            parents = self.lines.parents(node)
            if len(parents) > 1 and self._leaves_out(node):
                more = set(missing(self.lines, parents[1], parents[:1])) - nodes - found
                found |= more
                waiting += more
        return found

    def _leaves_out(self, node: Node) -> bool:
        """Whether a merge did not take all that its source had changed. One that is not kept may be such a merge."""
        try:
            session = self.lines.reader(node)
            with session.reading():
                return LEFT_OUT in commits.one(session, node[1]).metadata
        except UnknownCommitError:
            return True

    def _written(self, nodes: Iterable[Node]) -> set[bytes]:
        """The keys of rows that commits wrote. Raises `UnknownCommitError` if that is no longer kept."""
        found: set[bytes] = set()
        by_line: dict[int, list[int]] = {}
        for line, version in nodes:
            by_line.setdefault(line, []).append(version)
        for line, versions in by_line.items():
            session = self.lines.reader((line, max(versions)))
            with session.reading():
                if min(versions) <= session.state()[2] and min(versions) > 0:
                    raise UnknownCommitError(min(versions), reason="what it changed is no longer kept")
                for version in versions:
                    packed = session.log.keys(version)
                    if packed is not None:
                        found.update(key for key in unpacked(packed) if key[0] == keys.ROW)
        return found

    def _every_key(self, table: Table, node: Node) -> list[bytes]:
        """The keys of all rows that a table has at a commit."""
        session = self.lines.reader(node)
        with session.reading():
            return [key for batch in session.keyspace.scan(table.span, node[1], keys=True)
                    if batch.keys is not None for key in batch.keys.to_list()]  # fmt: skip

    # writing

    def publish(self, sides: Sides[Node], plan: MergePlan[SqlChanges], note: CommitNote) -> Commit[Node]:
        metadata = {name: self._told(value) for name, value in sides.metadata.items()}
        if sides.is_merge:
            left = sorted(each.table.full_name for each in plan.changes.tables.values() if each.leaves_out)
            metadata |= {MERGED: sides.source, **({LEFT_OUT: left} if left else {})}
        line = self._references.line(sides.into)
        expected = self.lines.head(line) + 1
        with self._writer(sides.into) as session, session.noted(note.message, note.author):
            with session.writing(f"-- {'merge of ' if sides.is_merge else ''}{sides.source}", metadata) as transaction:
                if transaction.version != expected:
                    raise Moved
                transaction.merged = sides.theirs if sides.is_merge else None
                transaction.touch(())
                for each in plan.changes.tables.values():
                    written(session, transaction, each)
                if plan.changes.objects:
                    object_merges.write(session, transaction, plan.changes.objects, plan.changes.source.by_id)
                if plan.changes.positions:
                    sequences.merge(session, transaction, plan.changes.positions)
            with session.reading():
                commit = commits.one(session, expected)
        second = (sides.theirs,) if sides.is_merge else ()
        return Commit((line, expected), (sides.ours, *second), *commit[2:])

    def _told(self, value: Any) -> Any:
        """A node as users know it."""
        if not isinstance(value, tuple):
            return value
        name = next((ref.name for id, ref in self.lines.refs.items() if id == value[0]), "main")
        return value[1] if name == self._target else f"{name}@{value[1]}"


def _schema(states: tuple[Table | None, Table | None, Table | None], why: str) -> Conflict:
    name = next(table.full_name for table in reversed(states) if table is not None)
    base, ours, theirs = (definition(table) for table in states)
    return Conflict(name, None, ConflictKind.SCHEMA, None, base, ours, theirs, why)
