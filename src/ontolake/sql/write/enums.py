"""CREATE, ALTER and DROP TYPE: enums, whose values are ordered as they are declared.

A value is kept as its place in the order, a number that never changes; one that is added between two others gets a
number between theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from sqlglot import exp

from ontolake.sql.catalog.objects import EnumMeta
from ontolake.sql.catalog.records import ColumnMeta, Table, entries_of, now
from ontolake.sql.errors import DefinitionError, DuplicateNameError, SqlError, UnknownNameError, UnsupportedError
from ontolake.sql.syntax.definitions import Defining
from ontolake.sql.syntax.statements import name_of
from ontolake.sql.types import Type

if TYPE_CHECKING:
    from ontolake.sql.write.ddl import Definer

_MAX_LABEL = 63


def found(definer: Definer, node: exp.DataType) -> Type:
    """The enum that a column's type names. Raises `UnknownNameError`."""
    named = node.args["kind"]
    parts = [name_of(each) for each in named.flatten()] if isinstance(named, exp.Dot) else [
        name_of(named) if isinstance(named, exp.Expr) else str(named)]  # fmt: skip
    return _meta(definer, parts).type


def _meta(definer: Definer, parts: list[str]) -> EnumMeta:
    try:
        return definer.catalog.object(EnumMeta, *definer.place(parts))
    except UnknownNameError as error:
        raise UnknownNameError(f"there is no type {'.'.join(parts)}", sqlstate="42704", hint=error.hint) from None


def create(definer: Definer, defining: Defining) -> bool:
    """Run CREATE TYPE … AS ENUM. Raises `DuplicateNameError`, `DefinitionError`."""
    schema, name = definer.new_place(defining.name)
    if definer.catalog.relation(schema.schema_id, name) is not None:
        raise DuplicateNameError(f"the name {name} is taken", sqlstate="42710", hint="use another name")
    labels = defining.details["labels"]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise DuplicateNameError(f"the value {twice!r} is given twice", sqlstate="23505")
    for label in labels:
        _check(label)
    definer.put(EnumMeta(object_id=definer.session.next_id("table"), db_id=schema.db_id, schema_id=schema.schema_id,
                         name=name, created_at=now(),
                         labels=tuple((label, float(place)) for place, label in enumerate(labels, 1))))
    return True


def _check(label: str) -> None:
    if len(label.encode()) > _MAX_LABEL:
        raise DefinitionError(f"{label!r} is too long for a value of an enum", sqlstate="42602",
                              hint=f"up to {_MAX_LABEL} bytes")


def alter(definer: Definer, defining: Defining) -> bool:
    """Run ALTER TYPE. Returns whether anything was changed. Raises `SqlError`."""
    meta, details = _meta(definer, defining.name), defining.details
    if "rename" in details:
        name = definer.new_name(details["rename"], exp.Null())
        definer.check_relation(meta.schema_id, name, exp.Null())
        renamed = msgspec.structs.replace(meta, name=name)
        kept = {key for key, _ in entries_of(renamed)}
        definer.writer.define([renamed], [key for key, _ in entries_of(meta) if key not in kept])
        return True
    if "relabel" in details:
        old, new = details["relabel"]
        _place(meta, old)
        if new in meta.type.order_of:
            raise DuplicateNameError(f"{meta.name} has the value {new!r} already", sqlstate="42710")
        _check(new)
        labels = tuple((new if label == old else label, order) for label, order in meta.labels)
    else:
        label = details["add"]
        if label in meta.type.order_of:
            if defining.exists:
                return False
            raise DuplicateNameError(f"{meta.name} has the value {label!r} already", sqlstate="42710")
        _check(label)
        labels = _with(meta, label, details.get("before"), details.get("after"))
    definer.put(msgspec.structs.replace(meta, labels=labels))
    return True


def _place(meta: EnumMeta, label: str) -> int:
    """Where a value stands among those of an enum. Raises `SqlError`."""
    names = [name for name, _ in meta.labels]
    if label not in names:
        raise SqlError(f"{label!r} is not a value of the enum {meta.name}", sqlstate="22023",
                       hint=f"there are {', '.join(names[:10])}")
    return names.index(label)


def _with(meta: EnumMeta, label: str, before: str | None, after: str | None) -> tuple[tuple[str, float], ...]:
    """The values of an enum with another one. Raises `DefinitionError` if there is no number left between two."""
    labels = list(meta.labels)
    at = len(labels) if before is None and after is None else (
        _place(meta, before) if before is not None else _place(meta, str(after)) + 1)  # fmt: skip
    low = labels[at - 1][1] if at else None
    high = labels[at][1] if at < len(labels) else None
    if low is None or high is None:
        order = 1.0 if low is None and high is None else low + 1 if low is not None else (high or 0.0) - 1
    else:
        order = (low + high) / 2
        if order in (low, high):
            raise DefinitionError(f"{meta.name} has no room for a value there", sqlstate="54000",
                                  hint="make another type, and convert the columns with ALTER COLUMN … TYPE")
    return (*labels[:at], (label, order), *labels[at:])


def drop(definer: Definer, defining: Defining) -> bool:
    """Run DROP TYPE. Raises `SqlError` if columns are of the type and there is no CASCADE."""
    from ontolake.sql.write import alterations

    done = False
    for parts in defining.details["names"]:
        try:
            meta = _meta(definer, parts)
        except UnknownNameError:
            if defining.exists:
                continue
            raise
        for table, column in _columns(definer, meta):
            if not defining.details["cascade"]:
                raise SqlError(f"{table.full_name}.{column.name} is of the type {meta.name}", sqlstate="2BP01",
                               hint="add CASCADE to drop the column too")
            if column in table.primary_key:
                raise UnsupportedError(f"{column.name} belongs to the primary key of {table.full_name}",
                                       hint="drop the table, or change the type of the column first")
            alterations.drop_column(definer, definer.catalog.by_id[table.id], column.name, False, exp.Null(), True)
        definer.remove(meta)
        definer.remove_parts(meta.object_id)
        done = True
    return done


def _columns(definer: Definer, meta: EnumMeta) -> list[tuple[Table, ColumnMeta]]:
    """The columns that are of an enum, or arrays of it."""
    return [(table, column) for table in definer.catalog.by_id.values() for column in table.columns
            if meta.object_id in (column.type.type_id, column.type.item.type_id if column.type.item else 0)]
