"""Parts of a type that can be read anywhere: ranges of keys at a moment, in the columns that parallel readers see."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ontolake.errors import NotFound
from ontolake.model.columns import Column
from ontolake.model.filters import Condition, FieldRef, ValueRef
from ontolake.model.restoration import restore
from ontolake.model.scalars import Scalar
from ontolake.model.schema import Schema
from ontolake.model.types import Kind, TypeInfo, type_info
from ontolake.ontology.parallel.filters import conditions_of
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.repository.arrow import arrow_schema, typed_array
from ontolake.parallel import BATCH, CHANGE, DELETED, Filter, Mode, View

if TYPE_CHECKING:
    import pyarrow as pa

    from ontolake.ontology.repository.protocol import Repository

Opener = Callable[[str, str], AbstractContextManager[Any]]
"""Opens the repository at a URL, on a branch, wherever a part is read. A function of a module, which pickles."""

_KEYS = 5_000


def public_schema(info: TypeInfo, mode: Mode, *, deletions: bool = False) -> pa.Schema:
    """The columns that reading gives. All may be missing, as Spark wants it.

    With `deletions` histories have a column that says whether a state is the end of its row.
    """
    import pyarrow as pa

    fields = [pa.field(one.name, one.type) for one in arrow_schema(info.all_columns)]
    for place, column in enumerate(info.all_columns):
        fields[place] = fields[place].with_type(column.type.parallel_type(column.decimal))
    if mode == "changes":
        fields.insert(0, pa.field(change_name(info), pa.string()))
    elif mode == "history" and deletions:
        fields.append(pa.field(deleted_name(info), pa.bool_()))
    return pa.schema(fields)


def change_name(info: TypeInfo) -> str:
    """What the column is called that says what became of a row."""
    return _free(CHANGE, info)


def deleted_name(info: TypeInfo) -> str:
    """What the column is called that says whether a state of a history is the end of its row."""
    return _free(DELETED, info)


def _free(name: str, info: TypeInfo) -> str:
    return name if name not in {column.stored for column in info.all_columns} else f"_{name}"


@dataclass(frozen=True)
class KeyRange:
    """The rows of a type whose leading keys lie in `[low, high)`, read with the store's own queries."""

    url: str
    branch: str
    open: Opener
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
        with self.open(self.url, self.branch) as opened:
            repository = opened.holding(self.view.commit)
            info = checked(repository, self.schema, self.schema_hash, self.version)
            with repository.reading():
                if self.view.mode == "changes":
                    yield from self._changes(repository, info)
                else:
                    ends = self.view.mode == "history" and repository.keeps_deletions
                    plan, values = self.plan_of(info, self.filters, deletions=ends)
                    for _, batch in self._read(repository, info, plan, values, self.columns):
                        yield batch

    def plan_of(
        self, info: TypeInfo, filters: Iterable[Filter], *, deletions: bool = False
    ) -> tuple[Plan, Values]:  # fmt: skip
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
                    since=since is not None, deletions=deletions)
        return plan, Values(joined.values if joined is not None else (), as_of=self.view.commit, since=since)

    def _read(
        self, repository: Repository, info: TypeInfo, plan: Plan, values: Values, columns: Sequence[str]
    ) -> Iterator[tuple[list[tuple[Any, ...]], pa.RecordBatch]]:  # fmt: skip
        """Batches of these columns, with the rows that they were made of."""
        import pyarrow as pa

        schema = public_schema(info, "history", deletions=plan.deletions)
        places = {name: place for place, name in enumerate(schema.names)}
        rows = iter(repository.run(plan, values))
        while some := list(itertools.islice(rows, BATCH)):
            parts = list(zip(*some, strict=True))
            arrays = []
            for name in columns:
                place = places[name]
                arrays.append(_array(info.all_columns[place], parts[place]) if place < len(info.all_columns)
                              else pa.array(parts[place], pa.int64()).cast(schema.field(name).type))
            fields = [schema.field(name) for name in columns]
            yield some, (pa.record_batch(arrays, schema=pa.schema(fields)) if fields else
                         pa.RecordBatch.from_struct_array(pa.array([{}] * len(some), pa.struct([]))))

    def _changes(self, repository: Repository, info: TypeInfo) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        name = change_name(info)
        columns = [one for one in self.columns if one != name]
        # Filters on rows would hide what a row was before; whoever reads filters again.
        plan, values = self.plan_of(info, (), deletions=repository.keeps_deletions)
        places = [info.all_columns.index(column) for column in info.keys]
        there: dict[Any, bool] = {}
        for rows, batch in self._read(repository, info, plan, values, columns):
            keys = [tuple(row[place] for place in places) for row in rows]
            before = self._before(repository, info, {key for key in keys if key not in there}, places)
            kinds = []
            for key, row in zip(keys, rows, strict=True):
                is_deleted = bool(plan.deletions and row[-1])
                was = there.get(key, key in before)
                kinds.append("delete" if is_deleted else "update" if was else "insert")
                there[key] = not is_deleted
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
