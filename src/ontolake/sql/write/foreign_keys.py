"""Foreign keys at work: what a statement did to rows is looked at when it ends, or before its transaction commits.

Actions (CASCADE, SET NULL, SET DEFAULT) come first and may lead to further ones; then every value that was written has
to be in the table that it refers to, and no row may refer to one that is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ontolake.sql.catalog.coercion import coerced
from ontolake.sql.catalog.objects import ForeignKeyMeta
from ontolake.sql.catalog.records import PUBLIC, ColumnMeta, SqlCatalog, Table
from ontolake.sql.errors import ForeignKeyError
from ontolake.sql.keyspace import keys, vectors
from ontolake.sql.keyspace.versions import Keyspace, KeySpan
from ontolake.sql.types import Stored, Type
from ontolake.sql.write import defaults
from ontolake.sql.write.row_writer import RowWriter
from ontolake.sql.write.rows import Rows, decoded
from ontolake.sql.write.sequences import Numbers

if TYPE_CHECKING:
    from ontolake.sql.transactions import SqlSession, SqlTransaction

Values = tuple[Stored, ...]
_SEEKS = 200
"""Up to so many values are looked up one by one in an index; more are looked for in one scan."""


class Broken(NamedTuple):
    """A value that is not in the table that it refers to."""

    foreign: ForeignKeyMeta
    values: Values
    is_child: bool
    """Whether the row that refers was written, not the one that is referred to."""


def columns_of(table: Table, ids: Sequence[int]) -> list[ColumnMeta]:
    """The columns of these ids."""
    return [table.by_id[id] for id in ids]


def values_of(rows: Rows, ids: Sequence[int]) -> list[Values]:
    """What some columns of rows hold, row by row."""
    places = [rows.table.place[id] for id in ids]
    if rows.few:
        return [tuple(row[n] for n in places) for row in rows.tuples]
    lists = [vectors.stored_list(rows.table.by_id[id].type, rows.columns[n]) for id, n in zip(ids, places, strict=True)]
    return list(zip(*lists, strict=True))


def as_parent(child: Table, parent: Table, foreign: ForeignKeyMeta, values: Sequence[Values]) -> list[Values]:
    """Values of the referring columns as those of the columns that they refer to."""
    return _converted(columns_of(child, foreign.column_ids), columns_of(parent, foreign.parent_column_ids), values)


def as_child(child: Table, parent: Table, foreign: ForeignKeyMeta, values: Sequence[Values]) -> list[Values]:
    """Values of the columns that are referred to as those of the referring columns."""
    return _converted(columns_of(parent, foreign.parent_column_ids), columns_of(child, foreign.column_ids), values)


def _is_alike(one: ColumnMeta, other: ColumnMeta) -> bool:
    """Whether equal values of two columns have the same stored forms."""
    return one.type.kind == other.type.kind and one.type.scale == other.type.scale


def _converted(
    source: Sequence[ColumnMeta], target: Sequence[ColumnMeta], values: Sequence[Values]
) -> list[Values]:  # fmt: skip
    if all(map(_is_alike, source, target)):
        return list(values)
    lists = []
    for n, (one, other) in enumerate(zip(source, target, strict=True)):
        given = vectors.stored_array(one.type, [row[n] for row in values])
        lists.append(vectors.stored_list(other.type, coerced(other, given)))
    return list(zip(*lists, strict=True))


# looking rows up


def present(keyspace: Keyspace, table: Table, ids: Sequence[int], wanted: Sequence[Values]) -> set[Values]:
    """Those of some values that a row of a table has in these columns, which are unique."""
    if not wanted:
        return set()
    key_ids = table.meta.primary_key_column_ids
    if set(ids) == set(key_ids):
        order = [list(ids).index(id) for id in key_ids]
        by_key = {table.prefix + keys.encode_tuple(table.key_types, [row[n] for n in order]): row for row in wanted}
        return {by_key[key] for key in keyspace.get_many(list(by_key))}
    return {values for values, _ in found_rows(keyspace, table, ids, wanted)}


def found_rows(
    keyspace: Keyspace, table: Table, ids: Sequence[int], wanted: Sequence[Values], at: int | None = None
) -> Iterator[tuple[Values, Rows]]:  # fmt: skip
    """The rows that have some values in these columns: each value that is there, with its rows."""
    prefix = _leading(table, ids)
    if prefix is not None and len(wanted) <= _SEEKS:
        begin, types, order, desc, is_key = prefix
        for row in wanted:
            start = begin + keys.encode_tuple(types, [row[n] for n in order], desc)
            span = KeySpan(start, keys.after(start))
            found: list[bytes] = []
            for batch in keyspace.scan(span, at, keys=True):
                assert batch.keys is not None
                found += batch.values.to_list() if is_key else _rows_behind(keyspace, table, batch.keys.to_list(), at)
            if found:
                yield row, decoded(table, found)
        return
    types = [table.by_id[id].type for id in ids]
    sought = {keys.encode_tuple(types, row): row for row in wanted}
    gathered: dict[Values, list[bytes]] = {}
    for batch in keyspace.scan(table.span, at):
        rows = decoded(table, batch.values)
        columns = [rows.columns[table.place[id]] for id in ids]
        stored = batch.values.to_list()
        for n, key in enumerate(vectors.encode_keys(b"", types, columns).to_list()):
            if (values := sought.get(key)) is not None:
                gathered.setdefault(values, []).append(stored[n])
    for values, some in gathered.items():
        yield values, decoded(table, some)


def _leading(
    table: Table, ids: Sequence[int]
) -> tuple[bytes, list[Type], list[int], tuple[bool, ...], bool] | None:  # fmt: skip
    """How to look up values of columns: the primary key or an index that begins with them."""
    choices: list[tuple[bytes, Sequence[int], tuple[bool, ...], bool]] = [
        (table.prefix, table.meta.primary_key_column_ids, (), True)]
    choices += [(keys.entry_prefix(table.id, index.index_id), index.column_ids, index.desc, False)
                for index in table.indexes if index.state == PUBLIC and not index.predicate]  # fmt: skip
    for begin, columns, desc, is_key in choices:
        lead = columns[: len(ids)]
        if set(lead) == set(ids) and len(lead) == len(ids):
            order = [list(ids).index(id) for id in lead]
            return begin, [table.by_id[id].type for id in lead], order, tuple(desc[: len(lead)]), is_key
    return None


def _rows_behind(keyspace: Keyspace, table: Table, entries: Sequence[bytes], at: int | None) -> list[bytes]:
    """The rows that entries of an index lead to."""
    index = next(each for each in table.indexes if entries[0].startswith(keys.entry_prefix(table.id, each.index_id)))
    parts = table.entry_parts(index)
    wanted = []
    for entry in entries:
        _, end = keys.decode_tuple(parts.types[: len(index.column_ids)], entry, len(parts.prefix), parts.desc)
        wanted.append(table.prefix + entry[end:])
    return list(keyspace.get_many(wanted, at).values())


# settling


def settle(session: SqlSession, transaction: SqlTransaction, since: int, *, all: bool = False) -> None:
    """Do what foreign keys ask for, of what was noted from a place on. With `all`, check what may have been deferred:
    of the others every statement has been checked.

    Raises `ForeignKeyError`.
    """
    at = since
    while at < len(transaction.references):
        noted = transaction.references[at]
        at += 1
        if noted.old is not None and not all:
            _act(session, transaction, noted.old, noted.new)
    catalog = session.fresh_catalog(transaction)
    for noted in transaction.references[since:]:
        rows = noted.new if noted.new is not None else noted.old
        assert rows is not None
        table = catalog.by_id.get(rows.table.id)
        if table is None:
            continue
        if noted.new is not None:
            for foreign in table.foreign_keys:
                if foreign.deferrable if all else not _is_deferred(transaction, foreign):
                    _check_children(session, catalog, foreign, noted.new, noted.old)
        if noted.old is not None:
            for foreign in table.referenced_by:
                if foreign.deferrable if all else not _is_deferred(transaction, foreign):
                    _check_parents(session, catalog, foreign, noted.old)


def _is_deferred(transaction: SqlTransaction, foreign: ForeignKeyMeta) -> bool:
    if not foreign.deferrable:
        return False
    said = transaction.deferred
    return said.get(foreign.name, said.get("", foreign.deferred))


def _act(session: SqlSession, transaction: SqlTransaction, old: Rows, new: Rows | None) -> None:
    """Do to referring rows what the foreign keys say of rows that were deleted or changed."""
    catalog = session.fresh_catalog(transaction)
    parent = catalog.by_id.get(old.table.id)
    for foreign in parent.referenced_by if parent is not None else ():
        assert parent is not None
        action = foreign.on_delete if new is None else foreign.on_update
        child = catalog.by_id.get(foreign.table_id)
        if action == "NO ACTION" or child is None:
            continue
        before = values_of(old, foreign.parent_column_ids)
        after = [None] * len(before) if new is None else values_of(new, foreign.parent_column_ids)
        changed = {was: now for was, now in zip(before, after, strict=True) if was != now and None not in was}
        if not changed:
            continue
        sought = dict(zip(as_child(child, parent, foreign, list(changed)), changed, strict=True))
        for values, rows in found_rows(session.keyspace, child, foreign.column_ids, list(sought)):
            if action == "RESTRICT":
                raise _violation(catalog, Broken(foreign, values, False))
            _apply(session, transaction, foreign, action, rows, changed[sought[values]], parent)


def _apply(
    session: SqlSession, transaction: SqlTransaction, foreign: ForeignKeyMeta, action: str, rows: Rows,
    after: Values | None, parent: Table,
) -> None:  # fmt: skip
    writer, child = RowWriter(session.keyspace, transaction), rows.table
    if action == "CASCADE" and after is None:
        writer.delete(rows)
        return
    given: dict[int, Stored]
    if action == "CASCADE":
        assert after is not None
        moved = as_child(child, parent, foreign, [after])[0]
        given = dict(zip(foreign.column_ids, moved, strict=True))
    else:
        ids = foreign.set_ids if foreign.set_ids and after is None else foreign.column_ids
        numbers = Numbers(session, transaction)
        given = {id: None if action == "SET NULL" else defaults.value(child.by_id[id], numbers) for id in ids}
    places = {child.place[id]: value for id, value in given.items()}
    writer.update(rows, Rows(child, tuples=[[places.get(n, cell) for n, cell in enumerate(row)]
                                            for row in rows.tuples]))  # fmt: skip


def _check_children(
    session: SqlSession, catalog: SqlCatalog, foreign: ForeignKeyMeta, new: Rows, old: Rows | None
) -> None:  # fmt: skip
    """Raise `ForeignKeyError` if a row refers to one that is not there."""
    child = catalog.by_id[foreign.table_id]
    if any(id not in new.table.place for id in foreign.column_ids):
        return
    if old is None and not new.few and _are_present(session.keyspace, catalog, foreign, new):
        return
    found = values_of(new, foreign.column_ids)
    if old is not None:
        before = values_of(old, foreign.column_ids)
        found = [now for now, was in zip(found, before, strict=True) if now != was]
    for broken in missing(session.keyspace, catalog, foreign, found):
        if next(found_rows(session.keyspace, child, foreign.column_ids, [broken.values]), None) is not None \
                or None in broken.values:  # the row may have been changed again since  # fmt: skip
            raise _violation(catalog, broken)


def _are_present(keyspace: Keyspace, catalog: SqlCatalog, foreign: ForeignKeyMeta, new: Rows) -> bool:
    """Whether all rows refer to primary keys that are there, worked out by the column. False if that is not known."""
    child, parent = catalog.by_id[foreign.table_id], catalog.by_id[foreign.parent_id]
    key_ids = parent.meta.primary_key_column_ids
    if sorted(foreign.parent_column_ids) != sorted(key_ids):
        return False
    of = dict(zip(foreign.parent_column_ids, foreign.column_ids, strict=True))
    if not all(_is_alike(parent.by_id[id], child.by_id[of[id]]) for id in key_ids):
        return False
    columns = [new.columns[new.table.place[of[id]]] for id in key_ids]
    if any(column.null_count for column in columns):
        if foreign.full and len(columns) > 1:
            return False
        whole = columns[0].is_valid()
        for column in columns[1:]:
            whole = pc.and_(whole, column.is_valid())
        columns = [column.filter(whole) for column in columns]
    if not len(columns[0]):
        return True
    if len(columns) == 1 and not isinstance(columns[0].type, pa.BaseExtensionType):
        columns = [columns[0].unique()]
    found = vectors.encode_keys(parent.prefix, parent.key_types, columns)
    return keyspace.has_all(vectors.from_arrow(vectors.as_arrow(found).unique()))


def missing(
    keyspace: Keyspace, catalog: SqlCatalog, foreign: ForeignKeyMeta, found: Sequence[Values]
) -> list[Broken]:  # fmt: skip
    """Which values of a foreign key are not in the table that it refers to."""
    child, parent = catalog.by_id[foreign.table_id], catalog.by_id[foreign.parent_id]
    whole: dict[Values, None] = {}
    for values in found:
        if None not in values:
            whole[values] = None
        elif foreign.full and any(value is not None for value in values):
            return [Broken(foreign, values, True)]
    wanted = dict(zip(as_parent(child, parent, foreign, list(whole)), whole, strict=True))
    there = present(keyspace, parent, foreign.parent_column_ids, list(wanted))
    return [Broken(foreign, values, True) for asked, values in wanted.items() if asked not in there]


def _check_parents(session: SqlSession, catalog: SqlCatalog, foreign: ForeignKeyMeta, old: Rows) -> None:
    """Raise `ForeignKeyError` if rows refer to one that is gone."""
    parent, child = catalog.by_id[foreign.parent_id], catalog.by_id.get(foreign.table_id)
    if child is None or any(id not in old.table.place for id in foreign.parent_column_ids):
        return
    before = list(dict.fromkeys(values for values in values_of(old, foreign.parent_column_ids) if None not in values))
    there = present(session.keyspace, parent, foreign.parent_column_ids, before)
    gone = [values for values in before if values not in there]
    for values, _ in found_rows(session.keyspace, child, foreign.column_ids,
                                as_child(child, parent, foreign, gone)) if gone else ():
        raise _violation(catalog, Broken(foreign, values, False))


def check_all(session: SqlSession, catalog: SqlCatalog, foreign: ForeignKeyMeta) -> None:
    """Raise `ForeignKeyError` if a row of a table breaks a foreign key."""
    child = catalog.by_id[foreign.table_id]
    for batch in session.keyspace.scan(child.span):
        found = missing(session.keyspace, catalog, foreign,
                        values_of(decoded(child, batch.values), foreign.column_ids))
        if found:
            raise _violation(catalog, found[0])


def _violation(catalog: SqlCatalog, broken: Broken) -> ForeignKeyError:
    foreign = broken.foreign
    child, parent = catalog.by_id[foreign.table_id], catalog.by_id[foreign.parent_id]
    named: Mapping[bool, tuple[Table, Sequence[int]]] = {
        True: (child, foreign.column_ids), False: (parent, foreign.parent_column_ids)}
    table, ids = named[broken.is_child]
    columns = columns_of(table, ids)
    shown = ", ".join(str(child.by_id[id].type.show(value))
                      for id, value in zip(foreign.column_ids, broken.values, strict=True))
    key = f"({', '.join(column.name for column in columns)}) = ({shown})"
    if broken.is_child and None in broken.values:
        text = f"a row of {child.full_name} breaks the foreign key {foreign.name}: MATCH FULL does not mix NULL " \
               f"with other values in {key}"  # fmt: skip
    elif broken.is_child:
        text = f"a row of {child.full_name} breaks the foreign key {foreign.name}: {key} is not in {parent.full_name}"
    else:
        text = f"a row of {parent.full_name} cannot go: by the foreign key {foreign.name}, {child.full_name} still " \
               f"refers to {key}"  # fmt: skip
    return ForeignKeyError(text, table=child.full_name if broken.is_child else parent.full_name,
                           constraint=foreign.name)
