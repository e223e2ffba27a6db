"""SQL tables for parallel readers and writers: splits are ranges of keys, publishing is one commit.

Tables have their full names, `app.public.orders`; their columns are those of the table, and where history or changes
are read also `commit_id`, the version. History goes back as far as versions are kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ontolake.errors import Conflict, NotFound
from ontolake.history import Commit
from ontolake.history.names import MAIN
from ontolake.parallel import (
    LEAST,
    NO_REMOVALS,
    PARTS,
    Filter,
    Fragment,
    IrremovableError,
    Mode,
    Published,
    Removal,
    Shape,
    Split,
    View,
    check_mode,
    chosen,
    number,
    read_by_table,
    without_past,
)
from ontolake.sql.catalog.records import Table
from ontolake.sql.errors import nearest
from ontolake.sql.history.commits import newest_first
from ontolake.sql.keyspace.versions import Keyspace, KeySpan
from ontolake.sql.plan.access import choose
from ontolake.sql.splits import KeySpans, VersionRange, conditions, cuts, public_schema
from ontolake.sql.transactions import SqlSession
from ontolake.sql.write.bulk import upsert

if TYPE_CHECKING:
    import pyarrow as pa

    from ontolake.model.scalars import Scalar


class SqlParallel:
    """SQL tables as parallel readers and writers see them."""

    model: ClassVar[str] = "sql"

    def __init__(self, url: str, *, branch: str | None = None, write: bool = False) -> None:
        self.url = url
        self.branch = branch or MAIN
        self._session = SqlSession(url, branch=self.branch, readonly=not write, takeover=False, synchronous="FULL")

    def head(self) -> int:
        with self._session.reading():
            return self._session.state()[0]

    def tables(self) -> Sequence[str]:
        with self._session.reading():
            return sorted(self._session.catalog().by_full_name)

    def _table(self, name: str, view: View | None = None) -> Table:
        with self._session.reading():
            known = self._session.catalog(None if view is None else self._session.check_version(view.commit))
        if name not in known.by_full_name:
            when = "" if view is None else f" at version {view.commit}"
            raise NotFound(f"there is no table {name!r} in {self.url!r}{when}",
                           hint=nearest(name, known.by_full_name) or "there are none yet")
        return known.by_full_name[name]

    def keys(self, table: str) -> Sequence[str]:
        return [column.name for column in self._table(table).primary_key]

    def scalars(self) -> Sequence[Scalar]:
        return ()

    def takes(self, table: str) -> Mapping[str, bool]:
        return {column.name: not column.nullable and column.default_expr is None
                for column in self._table(table).columns}  # fmt: skip

    def schema(self, table: str, mode: Mode = "latest", view: View | None = None) -> pa.Schema:
        return public_schema(self._table(table, view), mode)

    def view(
        self, *, as_of: int | str | None = None, mode: Mode = "latest", since: int | str | None = None
    ) -> View:  # fmt: skip
        check_mode(mode)
        as_of, since = number(as_of), number(since)
        with self._session.reading():
            version, _, floor = self._session.state()
            for given in (as_of, since):
                if given is not None and not floor <= given <= version:
                    raise NotFound(f"there is no version {given}", hint=f"versions from {floor} to {version} can be "
                                   "read")
        return View(version if as_of is None else as_of, mode, floor if since is None else since)

    def commits(self, *, since: int = 0, until: int | None = None) -> Iterator[Commit[int]]:
        with self._session.reading():
            floor = self._session.state()[2]
        yield from newest_first(self._session, max(since, floor), until)

    # reading
    def splits(
        self, table: str, view: View, columns: Sequence[str] | None = None, filters: Sequence[Filter] = (), *,
        parts: int | None = None,
    ) -> Sequence[Split]:  # fmt: skip
        found = self._table(table, view)
        wanted = tuple(chosen(public_schema(found, view.mode), columns, filters, table))
        named = (table, found.id)
        if view.mode != "latest":
            begin = view.since
            step = max(1, -(-(view.commit - begin) // (parts or PARTS)))
            return [VersionRange(self.url, self.branch, named, view, wanted, low, min(low + step, view.commit))
                    for low in range(begin, view.commit, step)]
        session = self._session
        with session.reading():
            needed = [found.by_name[name] for name in wanted] or found.primary_key
            access = choose(found, conditions(found, filters), (), needed, session.keyspace)
            by = access.by.name if access.by is not None else None
            whole = KeySpans(self.url, self.branch, named, view, wanted, access.kind, tuple(access.spans),
                             None if access.keys is None else tuple(access.keys), by, 0)
            if access.keys is not None:
                return [replace(whole, rows=len(access.keys))] if access.keys else []
            if by is not None:
                return [whole] if access.spans else []
            pieces = [(home or session.keyspace, piece) for span in access.spans
                      for home, piece in session.keyspace.pieces(span)]
            share = max(1, -(-(parts or PARTS) // max(1, len(pieces))))
            return [replace(whole, spans=(part,)) for keyspace, piece in pieces
                    for part in _parts(keyspace, piece, share)]

    # writing
    def shape(self, table: str) -> Shape | None:
        return None

    def check_removable(self) -> None:
        raise IrremovableError("SQL tables")

    def publish(
        self, fragments: Sequence[Fragment], *, metadata: Mapping[str, Any] | None = None,
        expected: int | None = None, removals: Mapping[str, Removal] = NO_REMOVALS,
    ) -> Published:  # fmt: skip
        if removals:
            self.check_removable()
        tables = read_by_table(fragments)
        session = self._session
        for name in tables:
            self._table(name)
        with session.writing("-- publish", metadata) as transaction:
            if expected is not None and transaction.version - 1 != expected:
                raise Conflict(f"version {transaction.version - 1} came after version {expected}, which was read",
                               hint="read again and work it out again")
            catalog = session.fresh_catalog(transaction)
            written = {}
            for name, data in tables.items():
                table = catalog.by_full_name[name]
                written[name] = upsert(session, transaction, table, without_past(data, table.by_name))
        return Published(transaction.version if transaction.dirty else None, written)

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _parts(keyspace: Keyspace, span: KeySpan, parts: int) -> list[KeySpan]:
    """A span, cut if it is worth it."""
    run = keyspace.connection.execute
    if parts < 2 or not any(run(f"SELECT 1 FROM {place.where} LIMIT 1 OFFSET ?", (*place.node, *span, LEAST)).fetchone()
                            for place in keyspace.places(span)):  # fmt: skip
        return [span]
    return [KeySpan(*edges) for edges in itertools.pairwise([span.start, *cuts(keyspace, span, parts), span.end])]
