"""Migrations: rewrite the latest state under new schemas, all types or none, as one commit.

A preview says what would be done and gives a token; applying checks the token, so that nothing is done that nobody
has looked at.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ontolake import faults
from ontolake.errors import OntolakeError
from ontolake.history.metadata import KIND, MIGRATED_TYPES
from ontolake.model.columns import Column
from ontolake.model.field import UNSET
from ontolake.model.schema import SchemaDiff, diff, schema_of
from ontolake.model.stored import StoredType
from ontolake.model.types import Kind, TypeInfo, unstorable
from ontolake.ontology.errors import (
    MigrationError,
    MigrationTokenError,
    MissingUpgraderError,
    SchemaValidationError,
)
from ontolake.ontology.migration.lifts import FieldLift, Lift, Unliftable, key_text, lift_of, retyped
from ontolake.ontology.migration.steps import migrated_type
from ontolake.ontology.migration.upgraders import Upgrader, UpgraderOption, collected
from ontolake.ontology.repository.features import check_kept
from ontolake.ontology.repository.protocol import Repository, RepositoryTransaction, Row

if TYPE_CHECKING:
    import pyarrow as pa

    from ontolake.ontology.arrow.columns import ArrowRows


class TypeMigration(NamedTuple):
    """What becomes of one type.

    Without upgraders `fields` says what becomes of each field, or `reasons` why that takes an upgrader.
    """

    type_kind: Kind
    type_name: str
    from_schema_version_id: int
    to_schema_version_id: int
    diff: SchemaDiff
    rows: int
    upgraders: tuple[str, ...] = ()
    fields: tuple[FieldLift, ...] = ()
    reasons: tuple[str, ...] = ()


class MigrationPreview(NamedTuple):
    """What a migration would do now. `missing` has (type, version) pairs for which an upgrader is needed."""

    types: tuple[TypeMigration, ...]
    missing: tuple[tuple[str, int], ...]
    token: str

    @property
    def needed(self) -> bool:
        return bool(self.types)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why upgraders are needed, in words."""
        missing = {name for name, _ in self.missing}
        return tuple(f"{one.type_name}: {reason}" for one in self.types if one.type_name in missing
                     for reason in one.reasons)


class MigrationResult(NamedTuple):
    """What a migration did. `commit_id` is None if there was nothing to do."""

    commit_id: int | None
    types: tuple[TypeMigration, ...]


class Migration:
    """The migration of a store to the types of a session."""

    def __init__(self, repository: Repository, types: Sequence[TypeInfo], upgraders: UpgraderOption = None) -> None:
        self._repository = repository
        self._types = types
        self._upgraders = collected(upgraders)

    def preview(self) -> MigrationPreview:
        """What would be done. Changes nothing. Raises `LayoutLacksError` for a type that the engine cannot keep."""
        planned, missing = [], []
        check_kept(self._repository, self._types)
        known = self._repository.schemas()
        for info in self._types:
            stored = known.get((info.kind, info.name))
            if stored is None or stored.schema_hash == info.schema_hash:
                continue
            version = stored.schema_version_id
            change = diff(stored.schema, schema_of(info.cls))
            chain = self._chain(info.name, version)
            before = StoredType(stored.schema)
            rows = self._count(before)
            lift = None if chain else lift_of(before, info)
            fields = lift.fields if isinstance(lift, Lift) else ()
            reasons = lift.reasons if isinstance(lift, Unliftable) else ()
            if rows and reasons:
                missing.append((info.name, version))
            self._check_relations(info, change)
            to = self._next(info, version, len(chain))
            planned.append(TypeMigration(info.kind, info.name, version, to, change, rows,
                                         tuple(one.name for one in chain), fields, reasons))
        return MigrationPreview(tuple(planned), tuple(missing), self._token(planned))

    def _check_relations(self, info: TypeInfo, change: SchemaDiff) -> None:
        """Raise `MigrationError` if a key gets another type and relations that lead to it would stay as they are."""
        if info.kind != "entity" or not any(one.field == info.keys[0].stored for one in change.fields):
            return
        here = {(one.kind, one.name) for one in self._types}
        for (kind, name), version in self._repository.schemas().items():
            ends = (version.schema.get("left"), version.schema.get("right"))
            if kind == "relation" and info.name in ends and (kind, name) not in here:
                raise MigrationError(f"the key of {info.name} gets another type, and so must the ends of {name}",
                                     hint=f"name {name} among the relation types of the session")

    def _chain(self, name: str, version: int) -> list[Upgrader]:
        found = []
        while (name, version) in self._upgraders:
            found.append(self._upgraders[name, version])
            version += 1
        return found

    def _next(self, info: TypeInfo, version: int, steps: int) -> int:
        """The version that a type gets: one for each upgrader, and one that no other branch has."""
        highest = max(one.schema_version_id for one in self._repository.every_version(info.kind, info.name))
        return max(version + max(1, steps), highest + 1)

    def _token(self, planned: Sequence[TypeMigration]) -> str:
        """What a migration would do, from which state: another state or another plan has another token."""
        state = [self._repository.head(), [
            [*one[:4], str(one.diff), one.rows, one.upgraders, [*map(str, one.fields)]] for one in planned]]
        hashes = [info.schema_hash for info in self._types]
        return hashlib.sha256(json.dumps([state, hashes]).encode()).hexdigest()[:32]

    def apply(self, owner: str, token: str | None, *, force: bool = False) -> MigrationResult:
        """Do it, in one transaction under the write lock.

        Raises `MigrationTokenError` unless `token` is that of a preview of just this (or `force` is set),
        `MissingUpgraderError`, or `MigrationError` if an upgrader raises or returns rows that do not fit.
        """
        with self._repository.transaction(owner) as transaction:
            preview = self.preview()
            if not preview.types:
                return MigrationResult(None, ())
            if preview.missing:
                raise MissingUpgraderError(preview.missing, preview.reasons)
            if not force and token != preview.token:
                why = "no token was given" if token is None else "the token is not that of this migration"
                raise MigrationTokenError(f"{why}: the store or the types may have changed since the preview",
                                          hint="look at migrate() again and pass its token")
            done = []
            for planned in preview.types:
                rows = self._rewrite(transaction, planned)
                faults.reach(f"ontology: {planned.type_name} rewritten")
                done.append(planned._replace(rows=rows))
            commit_id = transaction.finish({KIND: "migration", MIGRATED_TYPES: [_told(one) for one in done]})
        return MigrationResult(commit_id, tuple(done))

    def _count(self, stored: StoredType) -> int:
        return self._repository.count_stored(stored)

    def _planned(self, planned: TypeMigration) -> tuple[TypeInfo, StoredType, list[Upgrader]]:
        """The type as it is to be, as it is stored, and the upgraders in between."""
        info = next(one for one in self._types if (one.kind, one.name) == (planned.type_kind, planned.type_name))
        stored = StoredType(self._repository.schemas()[info.kind, info.name].schema)
        return info, stored, self._chain(info.name, planned.from_schema_version_id)

    def _rewrite(self, transaction: RepositoryTransaction, planned: TypeMigration) -> int:
        info, stored, chain = self._planned(planned)
        if not planned.rows:
            rows: Iterable[Row] = ()
        elif any(one.arrow for one in chain):
            rows = upgraded_table(info, stored, chain, self._repository.arrow_stored(stored))
        else:
            rows = upgraded_rows(info, stored, chain, self._read(stored))
        return transaction.rewrite(info, planned.to_schema_version_id, rows)

    def _read(self, stored: StoredType) -> Iterator[Row]:
        """Begins to read when the first row is asked for: by then there is a place to put it."""
        yield from self._repository.read_stored(stored)


def upgraded_rows(
    info: TypeInfo, stored: StoredType, chain: Sequence[Upgrader], rows: Iterable[Row]
) -> Iterator[Row]:  # fmt: skip
    """Stored rows made rows of another version one by one. Raises `MigrationError`, naming the key."""
    lift = None if chain else lift_of(stored, info)
    if isinstance(lift, Lift):
        yield from lift.rows(rows, [column.stored for column in (*info.keys, *info.columns)])
        return
    for row in rows:
        before = {column.name: column.decode(value) for column, value in zip(stored.all_columns, row, strict=False)}
        key = _key(stored, before)
        after: Any = dict(before)
        for one in chain:
            after = _called(one, after, info.name, key)
        yield _checked(info, stored, before, after, key)


def upgraded_table(info: TypeInfo, stored: StoredType, chain: Sequence[Upgrader], table: Any) -> Collection[Row]:
    """The same for a table, all rows at once. Raises `MigrationError` if keys do not stay.

    Where Arrow can tell that every value fits, rows stay columns; else they are looked at one by one.
    """
    from ontolake.ontology.arrow.columns import columns_from_arrow
    from ontolake.ontology.arrow.rows import rows_from_arrow

    given = table
    lift = None if chain else lift_of(stored, info)
    if isinstance(lift, Lift):
        table = lift.table(given)
        if table is None:
            parts = [column.type.from_arrow(given.column(column.name)) for column in stored.all_columns]
            return list(upgraded_rows(info, stored, chain, zip(*parts, strict=True)))
    for one in chain:
        table = _called(one, table, info.name, None) if one.arrow else _by_rows(one, table, info.name)
    table = _retyped_ends(info, stored, given, table)
    try:
        columns = columns_from_arrow(info, _with_defaults(info, table))
        if columns is not None and _same_keys(info, stored, given, columns):
            return columns
        rows, _ = rows_from_arrow(info, table)
    except SchemaValidationError as error:
        raise MigrationError(f"an upgrader of {info.name} returned what does not fit: {error}") from error
    before = sorted(_table_keys(stored, given))
    after = sorted(tuple(map(str, row[: len(info.keys)])) for row in rows)
    if after != before:
        raise MigrationError(f"the upgraders of {info.name} must keep every key once: {len(before)} rows went in, "
                             f"{len(after)} came out, {len(set(before) ^ set(after))} keys differ")
    return rows


def _with_defaults(info: TypeInfo, table: Any) -> Any:
    """A table with the fields that it lacks, where one value stands for all rows."""
    import pyarrow as pa

    if not isinstance(table, pa.Table):
        return table
    for column in info.all_columns:
        default = column.default
        if {column.name, column.stored}.isdisjoint(table.column_names) and default is not UNSET:
            naive = isinstance(default, datetime) and default.tzinfo is None
            try:
                column.encode(default, info.name)
                value = pa.scalar(default, pa.timestamp("us") if naive else column.arrow_type)
            except (pa.ArrowException, TypeError, ValueError):
                return table  # left to whoever looks at rows one by one
            table = table.append_column(column.stored, pa.repeat(value, len(table)))
    return table


def _same_keys(info: TypeInfo, stored: StoredType, before: pa.Table, after: ArrowRows) -> bool:
    """Whether rows have the same keys as before, each once. False too where that takes looking at each."""
    import pyarrow as pa

    names = [column.name for column in stored.keys]
    old = pa.table([before.column(name) for name in names], names=names)
    new = pa.table([values for _, values in list(after.columns())[: len(info.keys)]], names=names)
    order = [(name, "ascending") for name in names]
    return old.schema.types == new.schema.types and bool(old.sort_by(order).combine_chunks().equals(
        new.sort_by(order).combine_chunks()))


def _told(one: TypeMigration) -> dict[str, Any]:
    old, new, number = one.from_schema_version_id, one.to_schema_version_id, len(one.upgraders)
    steps = [] if new == old + max(1, number) else [(new, range(old, old + number))]
    return migrated_type((one.type_kind, one.type_name), (old, new), one.rows, steps)


def _called(one: Upgrader, rows: Any, type_name: str, key: Any) -> Any:
    try:
        return one(rows)
    except OntolakeError:
        raise
    except Exception as error:
        where = f"{type_name} {key!r}" if key is not None else type_name
        raise MigrationError(f"the upgrader {one.name} failed at {where}: {type(error).__name__}: {error}") from error


def _by_rows(one: Upgrader, table: pa.Table, type_name: str) -> pa.Table:
    import pyarrow

    return pyarrow.Table.from_pylist([_called(one, row, type_name, None) for row in table.to_pylist()])


def _key(stored: StoredType, values: Mapping[str, Any]) -> Any:
    keys = tuple(values[column.name] for column in stored.keys)
    return keys[0] if stored.kind == "entity" else keys


def _table_keys(stored: StoredType, table: pa.Table) -> list[tuple[str, ...]]:
    columns = [[key_text(column, value) for value in table.column(column.name).to_pylist()] for column in stored.keys]
    return list(zip(*columns, strict=True))


def _ends_of_another_type(info: TypeInfo, stored: StoredType) -> list[tuple[Column, Column]]:
    """The ends of a relation, before and after, whose entities have keys of another type now."""
    if info.kind != "relation":
        return []
    return [(old, new) for old, new in zip(stored.keys[:2], info.keys[:2], strict=True) if old.spec != new.spec]


def _retyped_ends(info: TypeInfo, stored: StoredType, before: pa.Table, after: Any) -> Any:
    """A table whose ends have the types that the keys of their entities have now, unless an upgrader saw to it."""
    import pyarrow as pa

    if not isinstance(after, pa.Table):
        return after
    for old, new in _ends_of_another_type(info, stored):
        at = after.schema.get_field_index(new.stored)
        if at >= 0 and after.schema.field(at).type == before.schema.field(old.name).type:
            values = [retyped(info.name, old, new, value) for value in after.column(at).to_pylist()]
            plain = map(str, values) if new.arrow_type == pa.string() else values
            after = after.set_column(at, new.stored, pa.array(list(plain), new.arrow_type))
    return after


def _checked(info: TypeInfo, stored: StoredType, before: Mapping[str, Any], values: Any, key: Any) -> Row:
    """An upgraded row, validated and encoded. Raises `MigrationError` naming the type, the key and the field."""
    if not isinstance(values, Mapping):
        raise MigrationError(f"an upgrader of {info.name} returned {type(values).__name__} for {key!r}, not a dict")
    values = dict(values)
    for old, new in _ends_of_another_type(info, stored):
        if values.get(new.stored) == before[old.name]:
            values[new.stored] = retyped(info.name, old, new, before[old.name])
    names = {column.stored: column.name for column in info.all_columns}
    try:
        obj = info.cls.model_validate({names.get(name, name): value for name, value in values.items()})
        row = info.encode(obj)
    except SchemaValidationError as error:
        raise MigrationError(f"the upgraded row does not fit: {error}",
                             hint=f"the upgrader of {info.name} must return all fields of the new type") from error
    try:
        "".join(value for value in row if isinstance(value, str)).encode()
    except UnicodeEncodeError:
        raise MigrationError(f"the upgraded row does not fit: {unstorable(info, [row])}") from None
    kept = [key_text(column, before[column.name]) for column in stored.keys]
    if [*map(str, row[: len(info.keys)])] != kept:
        raise MigrationError(f"an upgrader of {info.name} changed the key {key!r}",
                             hint='keys must stay; one of another type has the same text, as 5 and "5"')
    return row
