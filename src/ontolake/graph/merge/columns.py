"""Columns of types by what they are, not by how they are called.

A column keeps its id when it is renamed, and one that is dropped and added again has another. A column that a table was
made with has no id: its name is its id. One that two branches added alike, and a merge made one, has the ids of both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from ontolake.graph.commit.records import Pin
from ontolake.graph.errors import reading
from ontolake.graph.merge.differences import grew_from, physical_ids
from ontolake.graph.tables.datasets import GraphTables
from ontolake.graph.tables.rows import defaults
from ontolake.graph.tables.types import GraphField, GraphType

Sources = Mapping[str, str | None]
"""For each column of a type the name that it has in another; None for one that this does not have."""

_BOTH = ","


def _ids(field: GraphField) -> list[str]:
    return (field.id or field.name).split(_BOTH)


def renamed(old: GraphType, new: GraphType, renames: Mapping[str, str]) -> dict[str, str | None]:
    """Where the columns of a type come from that follows another, some with other names."""
    before = {renames.get(field.name, field.name): field.name for field in old.fields}
    return {field.name: before.get(field.name) for field in new.fields}


def with_ids(old: GraphType, new: GraphType, renames: Mapping[str, str], where: str) -> GraphType:
    """A type that follows another, with the ids of its columns. A new one gets an id that follows from `where`."""
    sources = renamed(old, new, renames)

    def id_of(field: GraphField) -> str | None:
        before = sources[field.name]
        if before is None:
            return "#" + hashlib.blake2s(f"{where}/{field.name}".encode(), digest_size=8).hexdigest()
        return old.by_name[before].id or (before if before != field.name else None)

    return new.with_fields(replace(field, id=id_of(field)) for field in new.fields)


def sources_since(
    tables: GraphTables, base: tuple[Pin, GraphType], side: tuple[Pin, GraphType], renames: Mapping[str, str]
) -> dict[str, str | None]:  # fmt: skip
    """Where the columns of a side come from since the base; `renames` are those that commits tell of."""
    (base_pin, old), (pin, new) = base, side
    known = {id: field.name for field in old.fields for id in _ids(field)}
    back = {now: before for before, now in renames.items()}
    found: dict[str, str | None] = {}
    for field in new.fields:
        if field.id is not None:
            found[field.name] = next((known[id] for id in _ids(field) if id in known), None)
            continue
        name = back.get(field.name, field.name if field.name not in renames else None)
        found[field.name] = name if name in old.by_name and old.by_name[name].id is None else None
        other = known.get(field.name)  # in a base that is newer than the side, a column may have got an id since
        if found[field.name] is None and other is not None and old.by_name[other].id is not None:
            found[field.name] = other
    # Older releases gave no ids: there the numbers of columns in the files tell one that was dropped and added again.
    if old != new or pin != base_pin:
        with reading(new.table):
            again = list(_added_again(tables, base, side, found))
        found |= dict.fromkeys(again)
    return found


def _added_again(
    tables: GraphTables, base: tuple[Pin, GraphType], side: tuple[Pin, GraphType], sources: Sources
) -> Iterator[str]:  # fmt: skip
    (base_pin, old), (pin, new) = base, side
    doubtful = {name: before for name, before in sources.items() if before is not None and new.by_name[name].id is None
                and old.by_name[before].arrow_type == new.by_name[name].arrow_type}  # fmt: skip
    if doubtful and grew_from(tables, new, base_pin, pin):
        then, now = physical_ids(tables, old, base_pin), physical_ids(tables, new, pin)
        yield from (name for name, before in doubtful.items() if then[before] != now[name])


def translated(table: pa.Table, new: GraphType, sources: Sources) -> pa.Table:
    """Rows as another type has them: renamed and widened, without what was dropped, with defaults for the rest."""
    columns = {}
    for field in new.fields:
        name = sources[field.name]
        columns[field.name] = table.column(name).cast(field.arrow_type) if name is not None else (
            defaults(new, field, table.num_rows))
    return pa.table(columns, schema=new.schema)


class JoinedType(NamedTuple):
    """The type that a merge gives a table, and where its columns are on each side."""

    kind: GraphType
    base: Sources
    theirs: Sources
    ours: Sources


def join_types(
    base: GraphType, theirs: GraphType, ours: GraphType, theirs_from: Sources, ours_from: Sources
) -> JoinedType | list[str]:  # fmt: skip
    """What two types that grew from one are together; or the columns that both have changed, differently.

    `theirs_from` and `ours_from` tell where the columns of a side come from.
    """
    theirs_of = {before: name for name, before in theirs_from.items() if before is not None}
    ours_of = {before: name for name, before in ours_from.items() if before is not None}
    fields: list[tuple[GraphField, str | None, str | None, str | None]] = []
    wrong: list[str] = []
    for field in ours.fields:
        before = ours_from[field.name]
        if before is None:
            other = theirs.by_name.get(field.name) if theirs_from.get(field.name, "") is None else None
            if other is not None and rules_of(other) != rules_of(field):
                wrong.append(field.name)
            both = _BOTH.join(sorted({*_ids(field), *_ids(other)})) if other is not None and field.id else field.id
            fields.append((replace(field, id=both), field.name if other is not None else None, field.name, None))
        elif before not in theirs_of:
            if _plain(field) != _plain(base.by_name[before]):
                wrong.append(field.name)
        else:
            found = _one(base.by_name[before], theirs.by_name[theirs_of[before]], field)
            if found is None:
                wrong.append(field.name)
            else:
                fields.append((found, theirs_of[before], field.name, before))
    for field in theirs.fields:
        before = theirs_from[field.name]
        if before is None:
            if ours_from.get(field.name, "") is not None:
                fields.append((field, field.name, None, None))
        elif before not in ours_of and _plain(field) != _plain(base.by_name[before]):
            wrong.append(field.name)
    names = [field.name for field, *_ in fields]
    wrong += [name for name in names if names.count(name) > 1]
    cardinality = _three(base.cardinality, theirs.cardinality, ours.cardinality)
    if wrong or cardinality is None:
        return sorted({*wrong}) or ["its rules"]
    kind = replace(ours, fields=tuple(field for field, *_ in fields), cardinality=cardinality)
    return JoinedType(kind, *({field.name: places[side] for field, *places in fields} for side in (2, 0, 1)))


def _one(base: GraphField, theirs: GraphField, ours: GraphField) -> GraphField | None:
    """A column that both have: its name by who renamed it, its rules by who changed them."""
    name = _three(base.name, theirs.name, ours.name)
    rules = _three(rules_of(base), rules_of(theirs), rules_of(ours))
    if name is None or rules is None:
        return None
    return replace(theirs if rules == rules_of(theirs) else ours, name=name, id=ours.id or theirs.id)


def _three(base: Any, theirs: Any, ours: Any) -> Any:
    """What two made of one thing; None if they differ."""
    if base == theirs or theirs == ours:
        return ours
    return theirs if base == ours else None


def _plain(field: GraphField) -> dict[str, Any]:
    return {name: value for name, value in field.to_json().items() if name != "id"}


def rules_of(field: GraphField) -> dict[str, Any]:
    """What a column is but for its name and id."""
    return {name: value for name, value in _plain(field).items() if name != "name"}

