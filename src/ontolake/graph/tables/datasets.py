"""The datasets of node and edge types: opened at a pinned version, moved on by marked commits, looked up by key.

A table's versions are immutable, and only the manifest says which of them is shown. A writer therefore has to make
sure of one thing: that the version it makes holds the pinned rows and its own change, and nothing of anybody else's.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ontolake import faults
from ontolake.arrow_keys import KeySet, contains
from ontolake.graph.commit.records import Pin
from ontolake.graph.errors import DamagedGraphError, PublishContendedError, in_short, is_contention, reading
from ontolake.graph.place import GraphPlace
from ontolake.graph.tables.appends import append
from ontolake.graph.tables.changes import TableChange
from ontolake.graph.tables.filters import literal
from ontolake.graph.tables.known_keys import KnownKeys
from ontolake.graph.tables.origins import UPKEEP, is_one_of, transaction_at
from ontolake.graph.tables.positions import Finder
from ontolake.graph.tables.replacement import replace_rows
from ontolake.graph.tables.traces import Traces
from ontolake.graph.tables.types import GraphType
from ontolake.history.contention import Pace, commit_optimistically
from ontolake.model.scalars.base import sql_literal

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

OPERATION, STEP = "ontolake:operation", "ontolake:step"
_CACHED = 256
_TRIES = 12
_BATCH = 131_072
_PIECE = 8192
FEW_KEYS = 2000
"""Up to so many keys are looked up one by one, through the index if there is one; more by reading the key columns."""


class GraphTables:
    """Access to the datasets of a graph. Handles of pinned versions are kept."""

    def __init__(self, place: GraphPlace) -> None:
        self.place = place
        self._open: OrderedDict[tuple[str, str | None, int], LanceDataset] = OrderedDict()
        self._lock = threading.Lock()
        self._session: Any = None
        self._known = KnownKeys()
        self.traces = Traces()
        self._finder = Finder()

    def at(self, kind: GraphType, pin: Pin) -> LanceDataset:
        """The rows that a pin shows. Raises `DamagedGraphError` if they are not there or cannot be read."""
        where = (kind.location, pin.branch, pin.version)
        with self._lock:
            found = self._open.get(where)
            if found is not None:
                self._open.move_to_end(where)
                return found
        try:
            if pin.branch is None:
                found = self.place.open(kind.location, version=pin.version, session=self._shared())
            else:
                found = self.base(kind).checkout_version((pin.branch, pin.version))
        except (OSError, ValueError) as error:
            line = f" of branch {pin.branch!r}" if pin.branch else ""
            raise DamagedGraphError(f"{kind.table}: version {pin.version}{line} cannot be read: "
                                    f"{in_short(error)}",
                                    hint="onto graph repair says what is wrong") from error
        self._keep(where, found)
        return found

    def own(self, kind: GraphType, pin: Pin) -> LanceDataset:
        """The same as a handle that nobody else has: some calls of Lance fail while others use theirs."""
        return self.at(kind, pin).checkout_version((pin.branch, pin.version))

    def _keep(self, where: tuple[str, str | None, int], dataset: LanceDataset) -> None:
        with self._lock:
            self._open[where] = dataset
            while len(self._open) > _CACHED:
                self._open.popitem(last=False)

    def base(self, kind: GraphType) -> LanceDataset:
        return self.place.open(kind.location, session=self._shared())

    def _shared(self) -> Any:
        if self._session is None:
            self._session = self.place.lance().Session()
        return self._session

    def forget(self, branch: str) -> None:
        """Let go of handles of a branch that is gone, so that a new one of its name is not mistaken for it."""
        with self._lock:
            for where in [where for where in self._open if where[1] == branch]:
                del self._open[where]
            self._session = None
        self._known.forget(branch)
        self.traces.forget(branch)
        self._finder.forget(branch)

    def renew(self) -> None:
        """Let go of everything that was read: versions may have been written anew."""
        with self._lock:
            self._open.clear()
            self._session = None
            self._known, self._finder = KnownKeys(), Finder()

    def create(self, kind: GraphType) -> LanceDataset:
        """An empty dataset. One that is there without a manifest that knows it is a leftover, and is written over."""
        import pyarrow as pa

        faults.reach("graph: before creating a table")
        empty = pa.Table.from_batches([], kind.schema)
        try:
            dataset = self.place.create(kind.location, empty, mode="create")
        except OSError as error:
            if "already exists" not in str(error).lower():
                raise
            dataset = self.place.create(kind.location, empty, mode="overwrite")
        faults.reach("graph: table created")
        self.place.settle(dataset)
        return dataset

    # Writing

    def writable(self, kind: GraphType, pin: Pin, line: str | None) -> LanceDataset:
        """A handle on the branch's own line of versions that holds what is pinned; the first one forks the table."""
        if pin.branch == line:
            return self.at(kind, pin)
        assert line is not None
        base = self.base(kind)
        found = base.branches.list().get(line)
        if found is not None and (found["parent_branch"], found["parent_version"]) == (pin.branch, pin.version):
            return base.checkout_version((line, pin.version))  # another first writer's, or one that never published
        faults.reach("graph: before forking a table")
        if found is not None:
            raise DamagedGraphError(f"{kind.table}: the line {line!r} did not begin at version {pin.version}",
                                    hint="onto graph repair says what is wrong")
        try:
            forked = base.create_branch(line, (pin.branch, pin.version))
        except (OSError, ValueError):
            if line in base.branches.list():
                return base.checkout_version((line, pin.version))
            _remove_tree(self.place, kind, line)  # what a crash left of a fork without its reference
            forked = base.create_branch(line, (pin.branch, pin.version))
        faults.reach("graph: table forked")
        self.place.settle_reference(kind.location, line, forked)
        return forked

    def apply(self, kind: GraphType, pin: Pin, line: str | None, change: TableChange, operation: str) -> Pin:
        """Make a version with the change. Returns where it is; nobody sees it yet.

        Raises `PublishContendedError` when others move the same table all the time.
        """
        base = self.writable(kind, pin, line)
        content = pin.version
        for _ in range(_TRIES):
            try:
                with reading(kind.table):
                    done = self._steps(kind, pin, base, change, operation)
            except Exception as error:  # what Lance raises has no class of its own
                if not is_contention(error):
                    raise
                done = None
            if done is not None:
                self._keep((kind.location, line, done.version), done)
                self._known.moved(kind, pin, change, done.version, line)
                self.traces.moved(kind, pin, change, done.version, line)
                return Pin(line, done.version, done.count_rows(), pin.schema)
            # Somebody else's versions lie in between, seen by nobody or not yet: go back to what is pinned.
            base = self.restore(kind, line, content, operation)
        raise _too_busy(kind)

    def _steps(
        self, kind: GraphType, pin: Pin, base: LanceDataset, change: TableChange, operation: str
    ) -> LanceDataset | None:  # fmt: skip
        total = change.steps
        step = 0
        current = base
        if change.puts is not None:
            step += 1
            moved = self.commit(current, self._put(kind, pin, current, change), operation, f"{step}/{total}")
            if moved.version != current.version + 1:
                return None
            current = moved
        if change.deletes is not None:
            step += 1
            moved = self.commit(current, self._take(kind, pin, current, change), operation, f"{step}/{total}")
            if moved.version != current.version + 1:
                return None
            current = moved
        return current

    def _put(self, kind: GraphType, pin: Pin, base: LanceDataset, change: TableChange) -> Any:
        puts = change.puts
        assert puts is not None
        staged = change.staged.transaction(base) if change.staged is not None else None
        if staged is not None:
            return staged
        few = puts.num_rows <= FEW_KEYS and not change.replace
        if change.fresh or (few and self._are_new(kind, pin, puts)):
            return append(self.place, base, puts)
        if few:
            return replace_rows(self.place, base, self._addresses(kind, base, puts, change.known), puts)
        merge = base.merge_insert(list(kind.keys)).when_matched_update_all().when_not_matched_insert_all()
        if change.replace:
            merge = merge.when_not_matched_by_source_delete()
        return merge.execute_uncommitted(_in_pieces(puts))[0]

    def _take(self, kind: GraphType, pin: Pin, base: LanceDataset, change: TableChange) -> Any:
        assert change.deletes is not None
        if change.deletes.num_rows <= FEW_KEYS:
            return replace_rows(self.place, base, self._addresses(kind, base, change.deletes, change.known), None)
        return base.merge_insert(list(kind.keys)).when_matched_delete().execute_uncommitted(change.deletes)[0]

    def _are_new(self, kind: GraphType, pin: Pin, puts: pa.Table) -> bool:
        """Whether it is known without a look into the table that none of these rows is there."""
        found = self._among(kind, pin, puts)
        return found is not None and not found.any()

    def _addresses(self, kind: GraphType, dataset: LanceDataset, keys: pa.Table, known: pa.Table | None) -> Any:
        """Where the rows with these few keys are."""
        if known is not None:
            ids = known.filter(contains(keys, known, kind.keys)).column("_rowid").to_pylist()
            if not ids:
                return []
            found = dataset.to_table(columns=["_rowaddr"], filter=f"_rowid IN ({', '.join(map(str, ids))})")
            if found.num_rows == len(ids):
                return found.column("_rowaddr").to_numpy()
        found = dataset.to_table(columns=list(kind.keys), filter=are_among(kind.keys, keys), with_row_address=True)
        return found.filter(contains(keys, found, kind.keys)).column("_rowaddr").to_numpy()

    def commit(self, base: LanceDataset, transaction: Any, operation: str, step: str) -> LanceDataset:
        """Commit one marked transaction. It is made durable with the others of its operation, before they are shown."""
        transaction.transaction_properties = {OPERATION: operation, STEP: step}
        faults.reach("graph: before moving a table")
        moved: LanceDataset = self.place.lance().LanceDataset.commit(
            base, transaction, max_retries=0, storage_options=self.place.options)
        faults.reach("graph: table moved")
        self.place.owe(operation, moved, None, transaction)  # what a commit returns says where it is
        return moved

    def restore(self, kind: GraphType, line: str | None, version: int, operation: str) -> LanceDataset:
        """A new version at the end of a line with the rows of an earlier one."""
        from lance.dataset import LanceOperation, Transaction

        def once() -> LanceDataset:
            base = self.latest(kind, line)
            return self.commit(base, Transaction(base.version, LanceOperation.Restore(version)), operation, "restore")

        # What Lance raises has no class of its own.
        return commit_optimistically(once, Exception, Pace(_TRIES, 0.005, 0.32), is_contention=is_contention,
                                     exhausted=lambda error: _too_busy(kind))

    def latest(self, kind: GraphType, line: str | None) -> LanceDataset:
        base = self.base(kind)
        return base if line is None else base.checkout_version((line, None))

    def rework(
        self, kind: GraphType, pin: Pin, line: str | None, operation: str | None,
        act: Callable[[LanceDataset], None], allowed: frozenset[str],
    ) -> LanceDataset | None:  # fmt: skip
        """Let Lance itself work on a table that shows what is pinned. None if somebody else came in between.

        Such versions carry no mark: what is not published of them is never finished, only passed over. Without an
        operation, nothing is done to a table with versions that somebody may be about to publish.
        """
        base = self.writable(kind, pin, line)
        latest = self.latest(kind, line)
        begun = base.version
        if latest.version != begun and operation is not None:
            latest = self.restore(kind, line, pin.version, operation)
            begun = latest.version
        elif latest.version != begun and not self.same_rows(kind, pin, pin._replace(version=latest.version)):
            return None
        faults.reach("graph: before reworking a table")
        try:
            with reading(kind.table):
                act(latest)
        except Exception as error:
            if not is_contention(error):
                raise
            return None
        faults.reach("graph: table reworked")
        for version in range(begun + 1, latest.version + 1):
            if not is_one_of(latest, version, allowed):
                return None
            if version < latest.version:
                self.place.settle(latest.checkout_version((line, version)), line=line)
        self.place.settle(latest, line=line)
        self._known.moved(kind, pin, TableChange(), latest.version, line)
        self.traces.moved(kind, pin, TableChange(), latest.version, line)
        return latest

    def same_rows(self, kind: GraphType, old: Pin, new: Pin) -> bool:
        """Whether a version has the rows of an earlier one of its line: only upkeep lies between them."""
        if (old.branch, old.schema, old.rows) != (new.branch, new.schema, new.rows):
            return False
        version = new.version
        try:
            dataset = self.own(kind, new)
            while version > old.version:
                operation: Any = getattr(transaction_at(dataset, version), "operation", None)
                if type(operation).__name__ == "Restore":
                    version = min(operation.version, version - 1)
                elif is_one_of(dataset, version, UPKEEP):
                    version -= 1
                else:
                    return False
        except (DamagedGraphError, OSError, ValueError):
            return False
        return version == old.version

    # Looking up

    def _among(self, kind: GraphType, pin: Pin, keys: pa.Table) -> Any:
        with reading(kind.table):
            return self._known.among(kind, pin, keys, lambda: self.at(kind, pin))

    def there(self, kind: GraphType, pin: Pin, keys: pa.Table) -> pa.Array:
        """For each key (a table with the key columns) whether a pinned version has it."""
        import pyarrow as pa

        found = self._among(kind, pin, keys) if keys.num_rows <= FEW_KEYS else None
        if found is not None:
            return pa.array(found, pa.bool_())
        return contains(self.lookup(kind, self.at(kind, pin), keys, kind.keys), keys, kind.keys)

    def find(self, kind: GraphType, pin: Pin, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
        """The row with one key, if it is there."""
        dataset = self.at(kind, pin)
        if len(kind.keys) == 1 and keys.num_rows == 1:
            where = (kind.location, pin.branch, pin.version)
            with reading(kind.table):
                places = self._finder.places(where, dataset, keys.schema.field(0), columns, pin.rows)
                if places is not None:
                    return places.row(keys.column(0)[0].as_py())
        return self.lookup(kind, dataset, keys, columns)

    def lookup(
        self, kind: GraphType, dataset: LanceDataset, keys: pa.Table, columns: Sequence[str] | None = None
    ) -> pa.Table:  # fmt: skip
        """The rows with these keys (a table of the key columns), in no order. Raises `DamagedGraphError`."""
        with reading(kind.table):
            return self._lookup(kind, dataset, keys, columns)

    def _lookup(
        self, kind: GraphType, dataset: LanceDataset, keys: pa.Table, columns: Sequence[str] | None
    ) -> pa.Table:  # fmt: skip
        import pyarrow as pa

        wanted = list(columns) if columns is not None else [f.name for f in kind.fields]
        if keys.num_rows == 0 or dataset.count_rows() == 0:
            return pa.Table.from_batches([], pa.schema([kind.schema.field(name) for name in wanted]))
        names = [*dict.fromkeys((*wanted, *kind.keys))]
        if len(kind.keys) > 1 and keys.num_rows <= FEW_KEYS:
            found = dataset.to_table(columns=names, filter=are_among(kind.keys, keys))
        else:
            found = having(dataset, names, kind.keys[0], keys.column(kind.keys[0]))
        if len(kind.keys) > 1 and found.num_rows:
            found = found.filter(contains(keys, found, kind.keys))
        return found.select(wanted)


def is_among(column: str, values: Any) -> str:
    """A filter for rows whose column has one of these values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # Decimals without digits are text in a table; those in a column of decimals need a literal of that type.
    written = sql_literal if pa.types.is_decimal(values.type) else literal
    return f"`{column}` IN ({', '.join(map(written, pc.unique(values).to_pylist()))})"


def are_among(columns: Sequence[str], keys: pa.Table) -> str:
    """A filter for rows of which each column has a value that these have."""
    return " AND ".join(is_among(name, keys.column(name)) for name in columns)


def having(dataset: LanceDataset, names: Sequence[str], column: str, values: Any) -> pa.Table:
    """The rows whose column has one of these values: asked for one by one if they are few, else by reading them all."""
    import pyarrow as pa

    if len(values) <= FEW_KEYS:
        return dataset.to_table(columns=list(names), filter=is_among(column, values))
    wanted = KeySet(values)
    batches: list[pa.RecordBatch] = []
    for batch in dataset.to_batches(columns=[column], with_row_id=True, batch_size=_BATCH):
        here = wanted.has(batch.column(column))
        if here.any():
            batches.append(batch.filter(pa.array(here)))
    if not batches:
        return dataset.to_table(columns=list(names), filter="false")
    found = pa.Table.from_batches(batches)
    if list(names) == [column]:
        return found.select([column])
    if found.num_rows < dataset.count_rows() // 4:
        return dataset._take_rows(found.column("_rowid").to_pylist(), columns=list(names))
    table = dataset.to_table(columns=list(names))
    return table.filter(pa.array(wanted.has(table.column(column))))


def _in_pieces(rows: pa.Table) -> pa.Table:
    """The same rows in batches that own their memory: Lance counts all that a batch is a part of, again for each."""
    import pyarrow as pa

    pieces = (rows.slice(start, _PIECE) for start in range(0, rows.num_rows, _PIECE))
    owned = [piece.take(pa.array(range(piece.num_rows))) for piece in pieces]
    return pa.concat_tables(owned) if owned else rows


def _remove_tree(place: GraphPlace, kind: GraphType, line: str) -> None:
    prefix = f"{kind.location}/tree/{line}/"
    place.store.delete([info.key for info in place.store.list(prefix)])


def own_versions(dataset: LanceDataset, after: int, operation: str) -> Iterator[tuple[int, Any]]:
    """The versions above `after` that an operation made, with their transactions, oldest first.

    Raises `OSError` if one cannot be read, for it may be the operation's.
    """
    for version in range(after + 1, dataset.latest_version + 1):
        transaction = transaction_at(dataset, version)
        if transaction is not None and (transaction.transaction_properties or {}).get(OPERATION) == operation:
            yield version, transaction


def _too_busy(kind: GraphType) -> PublishContendedError:
    return PublishContendedError(f"{kind.table} is too busy: others moved it {_TRIES} times meanwhile",
                                 hint="nothing was published; try again")
