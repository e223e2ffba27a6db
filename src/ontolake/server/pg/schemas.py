"""Stores of a server as schemas of a SQL database: typed stores, graphs and documents beside SQL tables.

A table is called by its type alone (`Customer` for `entity/Customer`) unless two of a store share that name. All
statements of a transaction see one commit. Typed stores can be changed: a transaction becomes one commit, by the name
of the token. If the branch has got another commit since the transaction read it, that fails with 40001.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ontolake import stores
from ontolake.errors import NotFound, OntolakeError
from ontolake.history.refs import Ref
from ontolake.parallel import COMMIT, Filter
from ontolake.server.handles import ServedStore
from ontolake.server.rights import Principal, TokenScope, Touch, check
from ontolake.server.tables import open_table
from ontolake.server.tables.pages import TableReader
from ontolake.server.writes import committer_of
from ontolake.server.writes.requests import KeyExistsError, RowWrite, StaleHeadError, WriteFailure, WriteMode, WriteNote
from ontolake.sql.errors import ConstraintViolation, SerializationError, SqlError, UniqueError, UnsupportedError
from ontolake.sql.plan.foreign import ForeignChange, keys_of
from ontolake.sql.results import Result

_ARROW = "application/vnd.apache.arrow.stream"
_DOCUMENT = "document"


class StoreSchema:
    """A store at a reference, or as its first branch is at the begin of each transaction."""

    def __init__(self, store: ServedStore, principal: Principal, ref: Ref | None = None) -> None:
        self._store, self._principal, self._ref = store, principal, ref
        self._pinned: Ref | None = None
        self._branch = ""
        self._commit: Any = None
        self._tables: Mapping[str, str] = {}

    def names(self) -> Sequence[str]:
        """The tables. Raises `ForbiddenError`, `SqlError`."""
        self._pin()
        return list(self._tables)

    def open(self, name: str, moment: Any = None) -> StoreRows:
        """A table, also at another moment: a commit, a time or a reference. Raises `ForbiddenError`, `SqlError`."""
        ref = self._pin()
        if moment is not None:
            try:
                ref = Ref.parse(str(moment) if isinstance(moment, str) and not moment[:1].isdigit() else f"@{moment}")
            except OntolakeError as error:
                raise SqlError(f"{moment!r} is not a moment of {self._store.name}", sqlstate="22023") from error
            self._check_readable(ref)
        return StoreRows(self._store, ref, self._tables[name])

    def check_writable(self, name: str) -> None:
        """Raise `SqlError` for what can only be read, `ForbiddenError` without the right to write."""
        self._pin()
        if self._store.model is not stores.TYPED:
            raise UnsupportedError(f"{self._store.name} is {self._store.model.described}, which can only be read here")
        if self._ref is not None and self._ref.commit is not None:
            raise SqlError("the past can only be read", sqlstate="25006")
        check(self._principal, self._store.name, Touch(TokenScope.WRITE, self._branch))

    def commit(self, changes: Sequence[ForeignChange]) -> None:
        """Make changes one commit of the store. Raises `SqlError`."""
        self._pin()
        writes = [write for table in dict.fromkeys(change.table for change in changes)
                  for write in self._writes(table, [change for change in changes if change.table == table])]
        is_new = all(write.mode == "insert" for write in writes)
        note = WriteNote(self._principal.name, expected=None if is_new else str(self._commit))
        if not writes:
            return
        try:
            with self._store.writing(self._branch) as store:
                committer_of(self._store.model)(store, self._branch, writes, note)
        except WriteFailure as error:
            raise _as_sql(error.error, writes[error.place].table) from error
        except StaleHeadError as error:
            raise SerializationError(f"{self._store.name} has got another commit since this transaction read it",
                                     hint="roll back, and run the transaction again") from error

    def forget(self) -> None:
        """A transaction has ended: the next one sees what is newest then."""
        self._pinned = None

    def _pin(self) -> Ref:
        """The commit that this transaction reads."""
        if self._pinned is None:
            self._check_readable(self._ref)
            with self._store.reading() as store:
                moment = self._snapshot(store)
                self._branch = str(moment.branch) or self._store.first_branch
                self._commit = moment.commit
                self._pinned = Ref(self._branch, str(moment.commit))
                self._tables = _short_names(list(moment.tables()))
        return self._pinned

    def _snapshot(self, store: Any) -> Any:
        if self._ref is None and self._store.model is not stores.DOCUMENTS:
            return store.snapshot()
        return store.at(self._store.first_branch if self._ref is None else self._ref)

    def _check_readable(self, ref: Ref | None) -> None:
        try:
            branch = self._store.branch_of(None if ref is None else str(ref), self._principal)
        except NotFound as error:
            raise SqlError(f"{self._store.name}: {error.message}", sqlstate="3F000", hint=error.hint) from error
        check(self._principal, self._store.name, Touch(TokenScope.READ, branch))

    def _writes(self, name: str, changes: Sequence[ForeignChange]) -> list[RowWrite]:
        """What changes of a table come to in the end, as writes."""
        table, rows_of = self._tables[name], self.open(name)
        keys = rows_of.keys
        gone: set[tuple[Any, ...]] = set()
        rows: dict[tuple[Any, ...], tuple[WriteMode, int]] = {}
        given: list[pa.Table] = []
        count = 0
        for change in changes:
            for key in change.keys:
                gone.add(key)
                rows.pop(key, None)
            if change.new is None:
                continue
            given.append(Result("", 0, table=change.new.drop_columns(list(rows_of.hidden))).arrow())
            for place, key in enumerate(keys_of(change.new, keys), count):
                rows[key] = "upsert" if key in gone else "insert", place
            count += change.new.num_rows
        found = []
        modes: tuple[WriteMode, ...] = ("insert", "upsert")
        for mode in modes:
            places = [place for kind, place in rows.values() if kind == mode]
            if places:
                body = _stream(pa.concat_tables(given).take(pa.array(places, pa.int64())))
                found.append(RowWrite(table, mode, body, _ARROW))
        if left := [key for key in gone if key not in rows]:
            columns = {name: [key[place] for key in left] for place, name in enumerate(keys)}
            found.append(RowWrite(table, "delete", _stream(pa.table(columns)), _ARROW))
        return found


class StoreRows:
    """A table of a store at one commit."""

    def __init__(self, store: ServedStore, ref: Ref, table: str) -> None:
        self._store, self._ref, self._table = store, ref, table
        with self._store.reading() as held:
            reader = self._opened(held)
            self._raw, self.keys = reader.schema, list(reader.keys)
        self.schema = self._raw
        self.hidden = [name for name in self._raw.names if name == COMMIT]
        if store.model is stores.DOCUMENTS:
            place = self._raw.get_field_index(_DOCUMENT)
            self.schema = self._raw.set(place, pa.field(_DOCUMENT, pa.json_()))

    def read(self, columns: Sequence[str], filters: Sequence[Filter]) -> pa.Table:
        """The rows that fulfil filters, in these columns."""
        with self._store.reading() as held:
            reader = self._opened(held)
            schema = pa.schema([self._raw.field(name) for name in columns])
            found = pa.Table.from_batches(list(reader.stream(list(columns), list(filters))), schema)
        for place, field in enumerate(found.schema):
            wanted = self.schema.field(field.name)
            if wanted.type != field.type:
                found = found.set_column(place, wanted, found.column(place).cast(wanted.type))
        return found

    def _opened(self, held: Any) -> TableReader:
        return open_table(self._store.found, held, held.at(self._ref), self._table)


def _short_names(tables: Sequence[str]) -> dict[str, str]:
    """The tables of a store by the last part of their names, where only one has it."""
    last = [table.rpartition("/")[2] for table in tables]
    return {short if last.count(short) == 1 else table: table for short, table in zip(last, tables, strict=True)}


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _as_sql(error: BaseException, table: str) -> BaseException:
    """What went wrong with a write, as SQL tells it."""
    if isinstance(error, KeyExistsError):
        return UniqueError(error.message, table=table, constraint=None)
    if isinstance(error, OntolakeError) and not isinstance(error, SqlError):
        return ConstraintViolation(error.message, table=table, hint=error.hint)
    return error
