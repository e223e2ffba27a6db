"""Typed stores for parallel readers and writers: splits are ranges of keys, publishing is one commit.

The tables are `entity/Customer`, `relation/Placed`; their columns are the fields under their stored names, and
`commit_id`. All splits are of the commit that was pinned, whatever is committed meanwhile, and have the schema that the
type had then. A type that is migrated between planning and reading is refused, not misread.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from ontolake.errors import NotFound
from ontolake.history import Commit
from ontolake.model import scalars
from ontolake.model.columns import Column
from ontolake.model.field import UNSET
from ontolake.model.filters import Condition, FieldRef, ValueRef
from ontolake.model.restoration import restore
from ontolake.model.scalars import Scalar
from ontolake.model.schema import Schema, schema_hash, schema_of
from ontolake.model.types import Kind, TypeInfo, type_info
from ontolake.ontology.config import Config
from ontolake.ontology.errors import HeadMismatchError, SchemaValidationError, UnknownCommitError
from ontolake.ontology.migration.past import outdated, types_at
from ontolake.ontology.parallel.filters import conditions_of
from ontolake.ontology.query.compiler.latest import quoted
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.repository import Repository, open_repository
from ontolake.ontology.repository.arrow import arrow_schema, typed_array
from ontolake.ontology.repository.protocol import RepositoryTransaction
from ontolake.ontology.repository.sqlite.base import SqliteRepository
from ontolake.ontology.typed_store import TypedStore
from ontolake.ontology.versioned import table_of
from ontolake.parallel import (
    BATCH,
    CHANGE,
    Filter,
    Fragment,
    Mode,
    Published,
    Shape,
    Split,
    View,
    check_mode,
    chosen,
    number,
    worth,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from ontolake.ontology.repository.objects.base import S3Repository

_SAMPLES = 64
"""So many keys are looked at for each split."""
_FEW = 100_000
"""Up to so many changed rows are one split."""
_KEYS = 5_000
_TRIES = 5


def public_schema(info: TypeInfo, mode: Mode) -> pa.Schema:
    """The columns that reading gives. All may be missing, as Spark wants it."""
    import pyarrow as pa

    fields = [pa.field(one.name, one.type) for one in arrow_schema(info.all_columns)]
    for place, column in enumerate(info.all_columns):
        fields[place] = fields[place].with_type(column.type.parallel_type(column.decimal))
    if mode != "changes":
        return pa.schema(fields)
    return pa.schema([pa.field(change_name(info), pa.string()), *fields])


def change_name(info: TypeInfo) -> str:
    """What the column is called that says what became of a row."""
    return CHANGE if CHANGE not in {column.stored for column in info.all_columns} else f"_{CHANGE}"


@dataclass(frozen=True)
class KeyRange:
    """The rows of a type whose leading keys lie in `[low, high)`, read with the store's own queries."""

    url: str
    branch: str
    schema: Schema
    schema_hash: str
    view: View
    columns: tuple[str, ...]
    filters: tuple[Filter, ...]
    rows: int
    low: Any = None
    high: Any = None
    digits: tuple[tuple[str, int, int], ...] = ()
    """Decimals of which the digits are known, which the stored schema does not tell."""
    version: int | None = None
    """The schema version, if it is one of the past."""
    scalars: tuple[Scalar, ...] = ()
    """Those of the schema that are not the library's own."""

    def read(self) -> Iterator[pa.RecordBatch]:
        return (_with_digits(batch, self.digits) for batch in self._read_all())

    def _read_all(self) -> Iterator[pa.RecordBatch]:
        with opened(self.url, self.branch) as repository:
            info = checked(repository, self.schema, self.schema_hash, self.version)
            with repository.reading():
                if self.view.mode == "changes":
                    yield from self._changes(repository, info)
                else:
                    plan, values = self.plan_of(info, self.filters)
                    for _, batch in self._read(repository, info, plan, values, self.columns):
                        yield batch

    def plan_of(self, info: TypeInfo, filters: Iterable[Filter]) -> tuple[Plan, Values]:
        """The query for the rows of the range that filters leave, with its values."""
        where = [*conditions_of(info, filters)]
        key: FieldRef[Any] = FieldRef(ValueRef(info.cls, info.keys[0].name))
        if self.low is not None:
            where.append(key >= info.keys[0].decode(self.low))
        if self.high is not None:
            where.append(key < info.keys[0].decode(self.high))
        joined: Condition | None = None
        for one in where:
            joined = one if joined is None else joined & one
        history = self.view.mode != "latest"
        since = self.view.since if self.view.mode == "changes" else None
        plan = Plan(info.cls, where=joined.shape if joined is not None else None, history=history, as_of=True,
                    since=since is not None)
        return plan, Values(joined.values if joined is not None else (), as_of=self.view.commit, since=since)

    def _read(
        self, repository: Repository, info: TypeInfo, plan: Plan, values: Values, columns: Sequence[str]
    ) -> Iterator[tuple[list[tuple[Any, ...]], pa.RecordBatch]]:  # fmt: skip
        """Batches of these columns, with the rows that they were made of."""
        import pyarrow as pa

        schema = public_schema(info, "latest")
        places = {name: place for place, name in enumerate(schema.names)}
        rows = iter(repository.run(plan, values))
        while some := list(itertools.islice(rows, BATCH)):
            parts = list(zip(*some, strict=True))
            arrays = []
            for name in columns:
                place = places[name]
                arrays.append(_array(info.all_columns[place], parts[place]) if place < len(info.all_columns)
                              else pa.array(parts[place], pa.int64()))
            fields = [schema.field(name) for name in columns]
            yield some, (pa.record_batch(arrays, schema=pa.schema(fields)) if fields else
                         pa.RecordBatch.from_struct_array(pa.array([{}] * len(some), pa.struct([]))))

    def _changes(self, repository: Repository, info: TypeInfo) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        name = change_name(info)
        columns = [one for one in self.columns if one != name]
        # Filters on rows would hide what a row was before; whoever reads filters again.
        plan, values = self.plan_of(info, ())
        places = [info.all_columns.index(column) for column in info.keys]
        seen: set[Any] = set()
        for rows, batch in self._read(repository, info, plan, values, columns):
            keys = [tuple(row[place] for place in places) for row in rows]
            before = self._before(repository, info, {key for key in keys if key not in seen}, places)
            kinds = []
            for key in keys:
                kinds.append("update" if key in seen or key in before else "insert")
                seen.add(key)
            yield with_change(batch, name, pa.array(kinds, pa.string()), self.columns)

    def _before(self, repository: Repository, info: TypeInfo, keys: set[Any], places: Sequence[int]) -> set[Any]:
        """Those of the keys that were there before the changes began."""
        if not self.view.since:
            return set()
        leading: FieldRef[Any] = FieldRef(ValueRef(info.cls, info.keys[0].name))
        decode, found = info.keys[0].decode, set()
        wanted = sorted({key[0] for key in keys})
        for start in range(0, len(wanted), _KEYS):
            condition = leading.in_([decode(key) for key in wanted[start : start + _KEYS]])
            plan = Plan(info.cls, where=condition.shape, as_of=True)
            rows = repository.run(plan, Values(condition.values, as_of=self.view.since))
            found |= {tuple(row[place] for place in places) for row in rows}
        return found & keys


def _array(column: Column, values: Sequence[Any]) -> pa.Array:
    found = typed_array(column, values)
    wanted = column.type.parallel_type(column.decimal)
    return found if found.type == wanted else found.cast(wanted)


def with_change(batch: pa.RecordBatch, name: str, kinds: pa.Array, columns: Sequence[str]) -> pa.RecordBatch:
    import pyarrow as pa

    parts = {field.name: batch.column(place) for place, field in enumerate(batch.schema)} | {name: kinds}
    return pa.record_batch([parts[one] for one in columns], names=list(columns))


def _with_digits(batch: pa.RecordBatch, digits: Iterable[tuple[str, int, int]]) -> pa.RecordBatch:
    import pyarrow as pa

    for name, precision, scale in digits:
        if name in batch.schema.names:
            place = batch.schema.names.index(name)
            kind = pa.decimal128(precision, scale)
            batch = batch.set_column(place, pa.field(name, kind), batch.column(place).cast(kind))
    return batch


def opened(url: str, branch: str, *, write: bool = False) -> Any:
    """The repository at `url`, for a `with` block."""
    return contextlib.closing(cast(Any, open_repository(
        url, config=Config(create=False, readonly=not write, branch=branch))))


def checked(repository: Repository, schema: Schema, schema_hash: str, version: int | None = None) -> TypeInfo:
    """The type that a split is about, maybe in a version of the past. Raises `NotFound` if the store has another
    schema for it by now."""
    kind, name = cast(Kind, schema["kind"]), schema["name"]
    known = repository.schemas().get((kind, name))
    if known is None or (version is None and known.schema_hash != schema_hash):
        raise NotFound(f"{kind}/{name} in {repository.uri!r} was migrated or dropped since this read was planned",
                       hint="read it again")
    info = type_info(restore([schema])[kind, name])
    info.version = version
    return info


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
        return public_schema(self.info(table) if view is None else self.info_at(table, view), mode)

    def info_at(self, table: str, view: View) -> TypeInfo:
        """The type behind a table as the schemas of a view's commit have it. Raises `NotFound`.

        Histories and changes are typed reads: they have the current schema, and tell from its beginning on.
        """
        info = self.info(table)
        if view.mode != "latest" or not outdated(self.repository, [info], view.commit):
            return info
        return types_at(self.repository, [info], view.commit)[info.kind, info.name]

    def view(
        self, *, as_of: int | str | None = None, mode: Mode = "latest", since: int | str | None = None
    ) -> View:  # fmt: skip
        check_mode(mode)
        as_of, since = number(as_of), number(since)
        head = self.head()
        for commit in (as_of, since):
            if commit is not None and not 0 <= commit <= head:
                raise UnknownCommitError(commit, head)
        return View(head if as_of is None else as_of, mode, since or 0)

    def splits(
        self, table: str, view: View, columns: Sequence[str] | None = None, filters: Sequence[Filter] = (), *,
        parts: int | None = None,
    ) -> Sequence[Split]:  # fmt: skip
        info = self.info_at(table, view)
        wanted = tuple(chosen(self.schema(table, view.mode, view), columns, filters, table))
        known = self.repository.schemas().get((info.kind, info.name))
        if known is None:
            return []
        digits = tuple((column.stored, *column.decimal) for column in info.all_columns if column.decimal)
        schema = known.schema if info.version is None else schema_of(info.cls)
        whole = KeyRange(self.url, self.branch, schema, schema_hash(schema), view, wanted, tuple(filters), 0,
                         digits=digits, version=info.version, scalars=scalars.carried(schema))
        if isinstance(self.repository, SqliteRepository):
            count, cuts = self._cuts(self.repository, info, view, parts)
            edges = [None, *cuts, None]
            rows = count // max(1, len(edges) - 1)
            return [replace(whole, rows=rows, low=low, high=high) for low, high in itertools.pairwise(edges)]
        from ontolake.ontology.parallel.objects import object_splits

        return object_splits(cast("S3Repository", self.repository), info, whole, parts)

    def _cuts(
        self, repository: SqliteRepository, info: TypeInfo, view: View, parts: int | None
    ) -> tuple[int, list[Any]]:  # fmt: skip
        """About how many rows there are, and the keys at which to cut them: quantiles of keys that are looked at.

        Costs a lookup for each key, however many rows there are.
        """
        repository.refresh()
        source, db = repository.source(info), repository.db
        if view.mode == "changes":
            count = db.execute(f"SELECT count(*) FROM {source} AS t WHERE t.commit_id > ? AND t.commit_id <= ?",
                               (view.since, view.commit)).get or 0
            if count <= _FEW:
                return int(count), []
        ends: Any = db.execute(f"SELECT min(t.rowid), max(t.rowid) FROM {source} AS t").fetchone()
        first, last = ends
        count = 0 if first is None else last - first + 1
        parts = worth(count, parts)
        if parts < 2:
            return count, []
        step = max(1, count // (parts * _SAMPLES))
        key = f"t.{quoted(info.keys[0].column)}"
        find = f"SELECT {key} FROM {source} AS t WHERE t.rowid >= ? ORDER BY t.rowid LIMIT 1"
        found: list[Any] = sorted({db.execute(find, (at,)).get for at in range(first, last + 1, step)} - {None})
        each = max(1, len(found) // parts)
        return count, found[each::each][: parts - 1]

    # writing
    def publish(
        self, fragments: Sequence[Fragment], *, metadata: Mapping[str, Any] | None = None, expected: int | None = None
    ) -> Published:  # fmt: skip
        by_table: dict[str, list[Fragment]] = {}
        for fragment in fragments:
            by_table.setdefault(fragment.table, []).append(fragment)
        return self._publish({self.info(name): _Staged(self.info(name), some) for name, some in by_table.items()},
                             metadata, expected)

    def _publish(
        self, staged: Mapping[TypeInfo, _Staged], metadata: Mapping[str, Any] | None, expected: int | None
    ) -> Published:  # fmt: skip
        ordered = dict(sorted(staged.items(), key=lambda item: table_of(item[0])))  # entities come before relations
        attempts = 0
        while True:
            try:
                done = self._published(ordered, dict(metadata or {}), expected)
            except HeadMismatchError:
                attempts += 1
                if expected is not None or attempts == _TRIES:
                    raise
            else:
                if done is not None:
                    return done

    def _published(
        self, staged: Mapping[TypeInfo, _Staged], metadata: Mapping[str, Any], expected: int | None
    ) -> Published | None:  # fmt: skip
        """One attempt; None if files cannot be taken as they are and have to be read first."""
        for one in staged.values():
            if not one.ready:  # before the lock is taken, so that nobody waits for it
                one.rows(self.repository.takes_columns)
        with self.repository.transaction(self._owner) as transaction:
            if expected is not None and (head := self.repository.head()) != expected:
                raise HeadMismatchError(f"commit {head} came after commit {expected}, which was read",
                                        hint="read again and work it out again")
            written = {}
            for info, one in staged.items():
                if one.ready:
                    count = one.attach(self.repository, transaction)
                    if count is None:
                        return None
                else:
                    rows = one.rows(self.repository.takes_columns)
                    count = transaction.reconcile(info, rows) if rows else 0
                written[table_of(info)] = count
            return Published(transaction.finish(metadata) if any(written.values()) else None, written)

    def shape(self, table: str) -> Shape | None:
        from ontolake.ontology.parallel.attachment import shape_of

        return shape_of(self.repository, self.info(table))

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
    extra = [name for name in (arrow_schema(info.all_columns).names[-1], change_name(info))
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

    def attach(self, repository: Repository, transaction: RepositoryTransaction) -> int | None:
        """Publish the files as they are, if they can be. Returns how many rows they have, else None."""
        from ontolake.ontology.parallel.attachment import attach

        found = attach(cast(Any, repository), cast(Any, transaction), self._info, self._fragments)
        self.ready = found is not None
        return found

    def rows(self, columns: bool) -> Collection[tuple[Any, ...]]:
        """The rows, checked; as Arrow columns if the store takes them and the type allows it.

        Raises `SchemaValidationError` for what does not fit, and if a key is there twice.
        """
        if self._rows is not None:
            return self._rows
        from ontolake.ontology.arrow.columns import columns_from_arrow
        from ontolake.ontology.arrow.rows import rows_from_arrow

        info, table = self._info, _fields_only(self._info, self._read())
        rows: Collection[tuple[Any, ...]] | None = columns_from_arrow(info, table) if columns else None
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

    def _read(self) -> pa.Table:
        import pyarrow as pa

        from ontolake.ontology.parallel.attachment import unshaped

        parts = [unshaped(self._info, one.read()) if one.shaped else one.read() for one in self._fragments]
        return pa.concat_tables(parts, promote_options="default")


def _twice(info: TypeInfo, rows: Iterable[tuple[Any, ...]]) -> Any:
    seen: set[Any] = set()
    for row in rows:
        key = info.key_of(row)
        if key in seen:
            return key
        seen.add(key)
    return None


__all__ = ["KeyRange", "TypedParallel", "change_name", "checked", "opened", "public_schema"]
