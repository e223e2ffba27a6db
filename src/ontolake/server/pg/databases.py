"""What the name of a database means: a store of the server, a branch of it, and the newest state or one of the past.

| name | tables |
|---|---|
| `shop` | of the store `shop`, on its first branch |
| `shop@try` | on the branch `try` |
| `shop@main:17`, `shop@2026-q3` | as they were at a commit of a branch, or at a tag; read-only |
| `shop@2026-11-01T00:00Z`, `shop@try:2026-11-01` | as they were at a time; read-only |
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ontolake import stores
from ontolake.errors import Invalid, NotFound, StorageError
from ontolake.history.refs import Ref
from ontolake.server.handles import HeldStore, ServedStore, ServedStores
from ontolake.server.problems import RefusedError
from ontolake.server.rights import Principal, TokenScope, Touch, check, check_store
from ontolake.sql import Database, SqlConnection
from ontolake.sql.errors import SqlError

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ].*)?")


class DatabaseName(NamedTuple):
    """The name of a database in its parts. `ref` is None for the first branch as it is now."""

    store: str
    ref: Ref | None

    @classmethod
    def parse(cls, text: str) -> DatabaseName:
        """Raises `Invalid`."""
        store, at, rest = text.partition("@")
        if not at:
            return cls(store, None)
        if not rest:
            raise Invalid(f"the database {text!r} names no branch behind its @", hint=f"connect to {store}")
        if _TIME.fullmatch(rest):
            return cls(store, Ref(None, rest))
        branch, colon, commit = rest.partition(":")
        if colon and branch and commit and "@" not in branch:
            back = Ref.parse(f"@{commit}")
            return cls(store, Ref(branch, back.commit, back.back))
        return cls(store, Ref.parse(rest))


class OpenDatabase(NamedTuple):
    """A database that a client is connected to."""

    name: str
    store: ServedStore
    branch: str
    connection: SqlConnection
    held: HeldStore

    def close(self, *, failed: bool = False) -> None:
        """End the connection and give its store back."""
        try:
            self.connection.close()
        finally:
            self.held.release(failed)


class Databases:
    """The databases of a server. For threads: opening one may read the store."""

    def __init__(self, served: ServedStores) -> None:
        self._stores = served

    def open(self, text: str, principal: Principal) -> OpenDatabase:
        """Connect to a database by its name. Raises `SqlError` (3D000) if there is none, `ForbiddenError`."""
        name = DatabaseName.parse(text)
        check_store(principal, name.store)
        try:
            store = self._stores.get(name.store)
        except RefusedError as error:
            raise SqlError(f"database \"{text}\" does not exist: {error.message}", sqlstate="3D000") from error
        if store.model.name != stores.SQL.name:
            raise SqlError(f"database \"{text}\" is no database of SQL tables, but of {store.model.name}",
                           sqlstate="3D000", hint="connect to a store of SQL tables")
        try:
            branch, commit = self._place(store, name.ref, principal)
        except NotFound as error:
            raise SqlError(f"database \"{text}\" does not exist: {error.message}", sqlstate="3D000",
                           hint=error.hint) from error
        held = self._held(store, branch, write=commit is None and principal.scope >= TokenScope.WRITE)
        try:
            database: Database = held.store
            connection = database.connect(author=principal.name, as_of=commit)
        except BaseException:
            held.release(False)
            raise
        if commit is not None or database.session.readonly:
            connection.settings.start("default_transaction_read_only", "on")
        return OpenDatabase(text, store, branch, connection, held)

    def _place(self, store: ServedStore, ref: Ref | None, principal: Principal) -> tuple[str, int | None]:
        """The branch that a reference is on, and its commit; None for the newest. Raises `NotFound`, `ForbiddenError`.
        """
        if ref is None or (ref.branch is not None and ref.commit is None and not ref.back and
                           self._is_branch(store, ref.branch)):  # fmt: skip
            branch = store.first_branch if ref is None or ref.branch is None else ref.branch
            check(principal, store.name, Touch(TokenScope.READ, branch))
            return branch, None
        check(principal, store.name, Touch(TokenScope.READ, store.branch_of(str(ref), principal)))
        with store.reading() as database:
            found = database.at(ref)
        return found.branch, found.commit

    def _is_branch(self, store: ServedStore, name: str) -> bool:
        with store.reading() as database:
            return any(branch.name == name for branch in database.branches.list())

    def _held(self, store: ServedStore, branch: str, *, write: bool) -> HeldStore:
        """The store, for writing if that can be had now."""
        if write and store.writes:
            try:
                return store.hold(branch, write=True)
            except NotFound:
                raise
            except StorageError:  # another process writes: this one reads
                pass
        return store.hold(branch, write=False)
