"""Writing rows and the entries of their indexes to the keyspace, at the version of one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Protocol

import apsw
import numpy as np
import pyarrow.compute as pc

from ontolake import faults
from ontolake.sql.catalog.records import IndexMeta, Record, entries_of, is_added
from ontolake.sql.keyspace import keys
from ontolake.sql.keyspace.mass_writes import is_ascending
from ontolake.sql.keyspace.vectors import Strings, as_arrow
from ontolake.sql.keyspace.versions import Keyspace, KeySpan
from ontolake.sql.transactions import SqlTransaction
from ontolake.sql.write.rows import Rows, check_value_size, checked_strings, duplicate, unique_violation


class Writer(Protocol):
    """What changes of rows are given to."""

    def insert(self, new: Rows) -> None: ...

    def update(self, old: Rows, new: Rows) -> None: ...

    def delete(self, old: Rows) -> None: ...


class RowWriter:
    """Applies changes of rows to the keyspace, at the version of one transaction."""

    def __init__(self, keyspace: Keyspace, transaction: SqlTransaction) -> None:
        self._keyspace = keyspace
        self._version = transaction.version
        self._transaction = transaction

    def insert(self, new: Rows) -> None:
        """Add rows whose keys are not there. Raises `UniqueError`, `NotNullError`, `CheckError`."""
        if not len(new):
            return
        new.complete().check()
        found = new.keys()
        self._check_distinct(new, found)
        if len(found) > 1 and (taken := self._keyspace.get_many(found)):
            raise duplicate(new, next(n for n, key in enumerate(found) if key in taken))
        entries = [new.entries(index) for index in new.table.indexes]
        self._keyspace.revive(self._version, [*found, *(key for some in entries for key, _ in some)])
        try:
            self._keyspace.insert(self._version, list(zip(found, self._checked_values(new), strict=True)))
        except apsw.ConstraintError as error:
            raise duplicate(new, 0) from error
        faults.reach("sql: rows written")
        self._transaction.touch(found)
        for index, some in zip(new.table.indexes, entries, strict=True):
            if index.unique:
                self._check_unique(new, index)
            self._keyspace.insert(self._version, some)
            faults.reach("sql: index written")
        self._transaction.refer(new.table, None, new)

    def update(self, old: Rows, new: Rows) -> None:
        """Make rows others. Raises `UniqueError`, `NotNullError`, `CheckError`."""
        if not len(new):
            return
        new.complete().check()
        if not new.few and (stays := _common_keys(old, new)) is not None:
            self._update_in_place(stays, old, new)
            return
        before, after = old.keys(), new.keys()
        self._check_distinct(new, after)
        values = self._checked_values(new)
        stay = [a == b for a, b in zip(before, after, strict=True)]
        moved = [key for key, same in zip(before, stay, strict=True) if not same]
        if moved:
            self._keyspace.delete(self._version, moved)
            arriving = [key for key, same in zip(after, stay, strict=True) if not same]
            if taken := self._keyspace.get_many(arriving):
                raise duplicate(new, after.index(next(key for key in arriving if key in taken)))
            self._insert([entry for entry, same in zip(zip(after, values, strict=True), stay, strict=True) if not same])
            self._transaction.touch(moved)
        self._keyspace.put(self._version, list(compress(zip(after, values, strict=True), stay)))
        faults.reach("sql: rows written")
        self._transaction.touch(after)
        for index in new.table.indexes:
            self._reindex(index, old, new)
        self._transaction.refer(new.table, old, new)

    def _update_in_place(self, found: Strings, old: Rows, new: Rows) -> None:
        """Give many rows other values under the keys that they have."""
        self._keyspace.put_strings(self._version, found, new.value_strings())
        faults.reach("sql: rows written")
        self._transaction.touch(found)
        for index in new.table.indexes:
            which = _differing(index, old, new)
            if which is None:
                self._reindex(index, old, new)
            elif len(which):
                self._reindex(index, old.take(which), new.take(which))
        self._transaction.refer(new.table, old, new)

    def _reindex(self, index: IndexMeta, old: Rows, new: Rows) -> None:
        before, after = dict(old.entries(index)), dict(new.entries(index))
        removed = [key for key in before if key not in after]
        added = [(key, value) for key, value in after.items() if key not in before]
        changed = [(key, value) for key, value in after.items() if before.get(key, value) != value]
        if index.state != "public" and removed:  # the backfill may not have come to these
            there = self._keyspace.get_many(removed)
            removed = [key for key in removed if key in there]
            there = self._keyspace.get_many([key for key, _ in changed])
            added += [entry for entry in changed if entry[0] not in there]
            changed = [entry for entry in changed if entry[0] in there]
        self._keyspace.delete(self._version, removed)
        if changed:
            self._keyspace.put(self._version, changed)
        if added:
            if index.unique:
                wanted = {key for key, _ in added}
                there_now = new.indexed(index)
                places = [n for n, (key, _) in enumerate(there_now.entries(index)) if key in wanted]
                self._check_unique(there_now.take(places), index)
            self._insert(added)
        faults.reach("sql: index written")

    def delete(self, old: Rows) -> None:
        """Leave tombstones for rows and their index entries."""
        if not len(old):
            return
        found = old.keys()
        self._keyspace.delete(self._version, found)
        faults.reach("sql: rows written")
        self._transaction.touch(found)
        for index in old.table.indexes:
            entries = [key for key, _ in old.entries(index)]
            if index.state != "public":
                there = self._keyspace.get_many(entries)
                entries = [key for key in entries if key in there]
            self._keyspace.delete(self._version, entries)
            faults.reach("sql: index written")
        self._transaction.refer(old.table, old, None)

    def rewrite(self, found: Sequence[bytes], new: Rows) -> None:
        """Give rows other values under the keys that they have. Their index entries stay."""
        self._keyspace.put(self._version, list(zip(found, self._checked_values(new), strict=True)))
        faults.reach("sql: rows written")
        self._transaction.touch(found)

    def remove(self, found: Sequence[bytes]) -> None:
        """Leave tombstones for rows. Their index entries stay."""
        self._keyspace.delete(self._version, found)
        faults.reach("sql: rows written")
        self._transaction.touch(found)

    def define(self, records: Iterable[Record], removed: Sequence[bytes] = ()) -> None:
        """Write records of the catalog, with their names, and remove what is under other keys."""
        records = list(records)
        self._transaction.is_extended |= any(map(is_added, records))
        self.records([entry for record in records for entry in entries_of(record)], removed)

    def records(self, put: Sequence[tuple[bytes, bytes]], removed: Sequence[bytes] = ()) -> None:
        """Write and remove records of the catalog."""
        there = self._keyspace.get_many([key for key, _ in put])
        self._keyspace.delete(self._version, list(removed))
        self._keyspace.put(self._version, [entry for entry in put if entry[0] in there])
        self._insert([entry for entry in put if entry[0] not in there])
        faults.reach("sql: catalog written")
        self._transaction.touch([*removed, *(key for key, _ in put)])
        self._transaction.ddl, self._transaction.catalog = True, None

    def add_entries(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Put index entries that are not there yet; those that are stay as they are."""
        there = self._keyspace.get_many([key for key, _ in entries])
        self._insert([entry for entry in entries if entry[0] not in there])
        self._transaction.touch(())

    def backfill(self, index: IndexMeta, found: Rows) -> None:
        """Put the entries of rows into a new index. Raises `UniqueError`."""
        if not len(found):
            return
        found = found.indexed(index)
        entries = found.entries(index)
        if index.unique:
            there = self._keyspace.get_many([key for key, _ in entries])
            missing = [n for n, (key, _) in enumerate(entries) if key not in there]
            self._check_unique(found.take(missing), index)
        self.add_entries(entries)

    def _insert(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        if entries:
            self._keyspace.revive(self._version, [key for key, _ in entries])
            self._keyspace.insert(self._version, entries)

    def _checked_values(self, new: Rows) -> list[bytes]:
        values = new.values()
        check_value_size(new.table, max(map(len, values)))
        return values

    def _check_distinct(self, new: Rows, found: Sequence[bytes]) -> None:
        if len(found) > 1 and len(set(found)) != len(found):
            seen: set[bytes] = set()
            for number, key in enumerate(found):
                if key in seen:
                    raise duplicate(new, number)
                seen.add(key)

    def _check_unique(self, new: Rows, index: IndexMeta) -> None:
        """Raise `UniqueError` if an entry with the same values is there, or is given twice. NULLs are distinct."""
        new = new.indexed(index)
        table = new.table
        types = [table.by_id[id].type for id in index.column_ids]
        places = [table.place[id] for id in index.column_ids]
        prefix = keys.entry_prefix(table.id, index.index_id)
        seen: set[bytes] = set()
        for row in new.tuples:
            values = [row[n] for n in places]
            if None in values:
                continue
            begin = prefix + keys.encode_tuple(types, values, index.desc)
            taken = begin in seen or self._keyspace.count(KeySpan(begin, keys.after(begin)), 1)
            seen.add(begin)
            if taken:
                raise unique_violation(table, index, begin)


def _common_keys(old: Rows, new: Rows) -> Strings | None:
    """The keys of rows that keep theirs; None if one gets another, or one comes twice."""
    places = new.table.key_places
    found = new.key_strings()
    if any(old.columns[n] is not new.columns[n] for n in places) and not _is_same(old.key_strings(), found):
        return None
    if not is_ascending(found) and pc.count_distinct(as_arrow(found)).as_py() != len(found):
        return None
    return checked_strings(new.table, found)


def _is_same(one: Strings, other: Strings) -> bool:
    return bool(as_arrow(one).equals(as_arrow(other)))


def _differing(index: IndexMeta, old: Rows, new: Rows) -> Sequence[int] | None:
    """The places of rows whose entries in an index change, while their keys stay; None if that is not told here."""
    if index.expressions or index.predicate:
        return None
    places = [new.table.place[id] for id in (*index.column_ids, *index.include_ids)]
    if all(old.columns[n] is new.columns[n] for n in places):
        return ()
    before, after = old.entry_set(index), new.entry_set(index)
    differ = pc.not_equal(as_arrow(before.keys), as_arrow(after.keys))
    if before.values is not None and after.values is not None:
        differ = pc.or_(differ, pc.not_equal(as_arrow(before.values), as_arrow(after.values)))
    found: list[int] = np.flatnonzero(differ.to_numpy(zero_copy_only=False)).tolist()
    return found
