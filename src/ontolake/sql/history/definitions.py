"""Merging the definitions of a table: three-way, by column and index, whatever ids they have on each side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ontolake.sql.catalog.records import DROPPED, PUBLIC, ColumnMeta, IndexMeta, Record, SqlCatalog, Table, TableMeta

_COLUMN = ("name", "logical_type", "nullable", "default_expr", "dropped", "counting", "generated")
_INDEX = ("unique", "desc", "constraint", "expressions", "predicate")


class Differing(Exception):
    """Both sides changed the same part of a definition, in ways that do not fit. The text says which."""


@dataclass
class Combined:
    """The definition that a merge gives a table, and what has to be written for it."""

    table: Table
    """Without the indexes that are still to be filled."""
    records: list[Record] = field(default_factory=list)
    fill: list[IndexMeta] = field(default_factory=list)
    """Indexes that are new to the target."""


def definition(table: Table | None) -> dict[str, Any] | None:
    """What a table is, for people and for comparing: without ids and times."""
    if table is None:
        return None
    columns = [{"name": column.name, "type": str(column.type), "nullable": column.nullable,
                "default": column.default_expr} | {part: value for part, value in (
                    ("identity", column.counting), ("generated", column.generated)) if value}
               for column in table.visible]  # fmt: skip
    indexes = {index.name: {"columns": table.parts_of(index), "unique": index.unique, "desc": list(index.desc),
                            "include": [table.by_id[id].name for id in index.include_ids]}
               | ({"where": index.predicate} if index.predicate else {}) for index in table.indexes}  # fmt: skip
    key = [column.name for column in table.primary_key if not column.hidden]
    found = {"name": table.full_name, "columns": columns, "key": key,
             "checks": {check.name: check.sql for check in table.meta.checks}, "indexes": indexes}  # fmt: skip
    parts: dict[str, list[dict[str, Any]]] = {}
    for part in table.parts:
        parts.setdefault(part.what, []).append(part.definition())
    return {**found, **parts}


def defined(table: Table | None) -> dict[str, Any] | None:
    """The definition of a table as changes show it: an index counts once it is built."""
    found = definition(table)
    if found is not None and table is not None:
        built = {index.name for index in table.indexes if index.state == PUBLIC}
        found["indexes"] = {name: index for name, index in found["indexes"].items() if name in built}
    return found


def redefined(old: SqlCatalog, new: SqlCatalog) -> list[tuple[str, dict[str, Any] | None, dict[str, Any] | None]]:
    """The views, sequences and other things of schemas that were made, changed or dropped: name, before, after."""
    was, is_now = ({object.object_id: object for object in catalog.objects.values()} for catalog in (old, new))
    found = []
    for id in sorted({**was, **is_now}):
        before, after = was.get(id), is_now.get(id)
        if before != after:
            name = old.object_name(before) if after is None and before is not None else new.object_name(is_now[id])
            found.append((name, None if before is None else before.definition(),
                          None if after is None else after.definition()))  # fmt: skip
    return found


def is_same(one: Table | None, other: Table | None) -> bool:
    """Whether two states of a table define the same columns, rules and indexes."""
    if one is None or other is None:
        return one is other
    return definition(one) == definition(other) and (
        {column.identity: column.type for column in one.columns}
        == {column.identity: column.type for column in other.columns})


def combined(base: Table, ours: Table, theirs: Table) -> Combined:
    """Bring what `theirs` changed in a definition to `ours`. Raises `Differing`."""
    if base.meta.primary_key_column_ids != theirs.meta.primary_key_column_ids:
        raise Differing("the primary key was changed")
    columns, next_id = _columns(base, ours, theirs)
    by_name = {column.name: column for column in columns if not column.dropped}
    if len(by_name) != sum(not column.dropped for column in columns):
        raise Differing("two columns would have one name")
    ids = {theirs.by_id[column.column_id].column_id: by_name[column.name].column_id for column in theirs.columns
           if column.name in by_name}  # fmt: skip
    kept, fill = _indexes(base, ours, theirs, ids)
    meta = msgspec.structs.replace(
        ours.meta, table_name=either("name", base.name, ours.name, theirs.name), next_column_id=next_id,
        next_index_id=ours.meta.next_index_id + len(fill), checks=_checks(base.meta, ours.meta, theirs.meta))
    records: list[Record] = [column for column in columns if column not in ours.all_columns]
    records += [index for index in kept if index not in ours.indexes]
    if meta != ours.meta:
        records.append(meta)
    database, schema, _ = ours.full_name.split(".", 2)
    return Combined(Table(meta, database, schema, columns, [*kept, *ours.dropped_indexes]), records, fill)


def has_new_rules(ours: Table, target: Combined) -> bool:
    """Whether a merge brings rules that rows of the target need not keep yet."""
    nullable = {column.identity for column in ours.columns if column.nullable}
    return (any(check not in ours.meta.checks for check in target.table.meta.checks)
            or any(column.identity in nullable for _, column in target.table.required)
            or any(index.unique for index in target.fill))


def either(what: str, base: Any, ours: Any, theirs: Any) -> Any:
    """The value of whoever changed it. Raises `Differing` if both did."""
    if theirs in (base, ours):
        return ours
    if ours == base:
        return theirs
    raise Differing(f"both sides changed {what}")


def _columns(base: Table, ours: Table, theirs: Table) -> tuple[list[ColumnMeta], int]:
    """The columns of the merged table, and the id of the next one."""
    was = {column.identity: column for column in base.all_columns}
    new = {column.identity: column for column in theirs.all_columns}
    found: list[ColumnMeta] = []
    for column in ours.all_columns:
        before, after = was.get(column.identity), new.get(column.identity)
        if before is not None and after is not None:
            column = msgspec.structs.replace(column, **{
                part: either(f"{part} of the column {column.name}", *(getattr(side, part)
                                                                      for side in (before, column, after)))
                for part in _COLUMN})  # fmt: skip
        elif before is not None:  # they are from before it was added
            column = msgspec.structs.replace(column, dropped=True)
        found.append(column)
    have = {column.identity for column in ours.all_columns}
    next_id = max(ours.meta.next_column_id, len(found) + 1)
    living = {column.name: column for column in found if not column.dropped}
    for column in theirs.columns:
        if column.identity in was or column.identity in have:
            continue
        same = living.get(column.name)
        if same is not None:
            if (same.type, same.nullable) != (column.type, column.nullable):
                raise Differing(f"both sides added the column {column.name}, differently")
            continue
        found.append(msgspec.structs.replace(column, column_id=next_id, ordinal=next_id))
        next_id += 1
    return found, next_id


def _checks(base: TableMeta, ours: TableMeta, theirs: TableMeta) -> Any:
    was, own, new = ({check.name: check for check in side.checks} for side in (base, ours, theirs))
    found = []
    for name in dict.fromkeys([*own, *new]):
        check = either(f"the CHECK {name}", was.get(name), own.get(name), new.get(name))
        if check is not None:
            found.append(check)
    return tuple(found)


def _indexes(
    base: Table, ours: Table, theirs: Table, ids: Mapping[int, int]
) -> tuple[list[IndexMeta], list[IndexMeta]]:  # fmt: skip
    """The indexes that the target has, changed where theirs were, and those that it gets."""
    was, new = ({index.name: index for index in side.indexes} for side in (base, theirs))
    kept: list[IndexMeta] = []
    for index in ours.indexes:
        before, after = was.get(index.name), new.get(index.name)
        if before is not None and after is None:
            index = msgspec.structs.replace(index, state=DROPPED)
        elif after is not None and before is None and _shape(ours, index) != _shape(theirs, after):
            raise Differing(f"both sides added the index {index.name}, differently")
        kept.append(index)
    own = {index.name for index in ours.indexes}
    fill: list[IndexMeta] = []
    for index in theirs.indexes:
        if index.name in was or index.name in own:
            continue
        if any(id > 0 and id not in ids for id in (*index.column_ids, *index.include_ids)):
            raise Differing(f"the index {index.name} is on a column that the other side dropped")
        renumbered = index.numbered(ours.meta.next_index_id + len(fill), _mapped(index.column_ids, ids))
        fill.append(msgspec.structs.replace(renumbered, include_ids=_mapped(index.include_ids, ids)))
    return kept, fill


def _shape(table: Table, index: IndexMeta) -> Any:
    names = [table.parts_of(index), [table.by_id[id].name for id in index.include_ids]]
    return names, [getattr(index, part) for part in _INDEX]


def _mapped(some: Sequence[int], ids: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(ids[id] if id > 0 else id for id in some)
