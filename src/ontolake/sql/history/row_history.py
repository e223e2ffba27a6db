"""The states of one row, and who wrote each of its columns. Reads the versions of one key, not the commits between."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

from ontolake.errors import Invalid, NotFound
from ontolake.history import Commit, RowVersion
from ontolake.history.blame import blame
from ontolake.sql.catalog.records import Table
from ontolake.sql.errors import SqlError
from ontolake.sql.history import commits
from ontolake.sql.history.commits import row_of
from ontolake.sql.history.lines import BranchLines, Node
from ontolake.sql.history.table_names import full_name
from ontolake.sql.keyspace import keys
from ontolake.sql.transactions import SqlSession
from ontolake.sql.types import Kind


class RowHistory:
    """The versions of a row as lines of history have them."""

    def __init__(self, lines: BranchLines, head: Node, table: str, key: Any) -> None:
        """Raises `NotFound` for a table that is not there, `Invalid` for what cannot be its key."""
        self._lines = lines
        self._head = head
        session = lines.reader(head)
        with session.reading():
            known = session.catalog(head[1]).by_full_name
        self._table = known[full_name(table, known)]
        self._key = encoded(self._table, key)
        self._chains: dict[int, tuple[list[int], list[bytes | None]]] = {}
        self._newest: dict[int, tuple[int, Table | None]] = {}

    def _chain(self, session: SqlSession) -> tuple[list[int], list[bytes | None]]:
        """The versions that wrote the row as a session sees them, oldest first, and what they wrote."""
        if session.line not in self._chains:
            with session.reading():
                found = session.keyspace.versions_of(self._key)
            versions = sorted(found)
            self._chains[session.line] = versions, [found[version] for version in versions]
        return self._chains[session.line]

    def _wrote(self, node: Node) -> Node | None:
        """The newest commit at or before another, along first parents, that wrote the row."""
        versions, _ = self._chain(self._lines.reader(node))
        place = bisect_right(versions, node[1]) - 1
        return None if place < 0 else self._lines.node(node[0], versions[place])

    def _value(self, node: Node) -> bytes | None:
        versions, values = self._chain(self._lines.reader(node))
        place = bisect_right(versions, node[1]) - 1
        return None if place < 0 else values[place]

    def _read(self, node: Node) -> dict[str, Any]:
        value = self._value(node)
        if value is None:
            return {}
        return row_of(self._table_at(node), value) or {}

    def _table_at(self, node: Node) -> Table | None:
        """The table as it was at a commit; as it is now, unless it was defined anew since."""
        session = self._lines.reader(node)
        if session.line not in self._newest:
            with session.reading():
                self._newest[session.line] = session.state()[1], session.catalog().by_id.get(self._table.id)
        since, table = self._newest[session.line]
        if node[1] >= since:
            return table
        with session.reading():
            return session.catalog(node[1]).by_id.get(self._table.id)

    def commit(self, node: Node) -> Commit[int]:
        """What is known of a commit."""
        session = self._lines.reader(node)
        with session.reading():
            return commits.one(session, node[1])

    def states(self) -> Iterator[RowVersion[int]]:
        """All states, newest first. A merge counts if it gave the row a state that none of its parents had."""
        seen: set[Node] = set()
        waiting: list[Node] = [self._head]
        found: list[Node] = []
        while waiting:
            at = self._wrote(waiting.pop())
            if at is None or at in seen:
                continue
            seen.add(at)
            parents: Sequence[Node] = self._lines.parents(at)
            if len(parents) < 2 or all(self._value(parent) != self._value(at) for parent in parents):
                found.append(at)
            waiting += parents
        for node in sorted(found, key=lambda node: (self._lines.order(node), node), reverse=True):
            yield RowVersion(self.commit(node), self._read(node) or None)

    def blame(self) -> dict[str, Commit[int]]:
        """For each column the commit that wrote its value. Raises `NotFound` if the row is not there."""
        fields = self._read(self._head)
        if not fields:
            raise NotFound(f"{self._table.full_name} has no such row at version {self._head[1]}")
        authors = blame(self._head, fields, parents=self._lines.parents, read=self._read, wrote=self._wrote,
                        same=lambda one, other: one == other or (one != one and other != other))
        return {name: self.commit(node) for name, node in authors.items()}


def encoded(table: Table, key: Any) -> bytes:
    """The key of a row as it is stored. Raises `Invalid` for what cannot be one."""
    values = key if isinstance(key, tuple | list) else (key,)
    if len(values) != len(table.key_types):
        raise Invalid(f"{table.full_name} has a key of {len(table.key_types)} columns, not {len(values)}")
    if any(type.kind == Kind.UTF8 and not isinstance(value, str)
           for type, value in zip(table.key_types, values, strict=True)):
        raise Invalid(f"{key!r} is no key of {table.full_name}: text is not compared with other values")
    try:
        stored = [type.store(value) for type, value in zip(table.key_types, values, strict=True)]
    except SqlError as error:
        raise Invalid(f"{key!r} is no key of {table.full_name}: {error.message}") from error
    return table.prefix + keys.encode_tuple(table.key_types, stored)
