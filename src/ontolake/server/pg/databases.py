"""What the name of a database means: a store of the server, a branch of it, and the newest state or one of the past.

| name | tables |
|---|---|
| `shop` | of the store `shop`, on its first branch |
| `shop@try` | on the branch `try` |
| `shop@main:17`, `shop@2026-q3` | as they were at a commit of a branch, or at a tag; read-only |
| `shop@2026-11-01T00:00Z`, `shop@try:2026-11-01` | as they were at a time; read-only |

A store of SQL tables shows the other stores of the server as schemas of their names, a store of another model its own
tables as those of `public`.
"""

from __future__ import annotations

import re
import tempfile
import threading
from typing import NamedTuple

from ontolake import stores
from ontolake.errors import Invalid, NotFound, StorageError
from ontolake.history.refs import Ref
from ontolake.server.handles import HeldStore, ServedStore, ServedStores
from ontolake.server.pg.schemas import StoreSchema
from ontolake.server.problems import RefusedError
from ontolake.server.rights import Principal, TokenScope, Touch, check, check_store
from ontolake.sql import Database, SqlConnection, open_database
from ontolake.sql.errors import SqlError
from ontolake.sql.mounts import PUBLIC

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
    turn: threading.Lock
    """Transactions of the branch that are run again take turns."""

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
        self._lock = threading.Lock()
        self._turns: dict[tuple[str, str], threading.Lock] = {}
        self._empty: tuple[Database, tempfile.TemporaryDirectory[str]] | None = None

    def open(self, text: str, principal: Principal) -> OpenDatabase:
        """Connect to a database by its name. Raises `SqlError` (3D000) if there is none, `ForbiddenError`."""
        name = DatabaseName.parse(text)
        check_store(principal, name.store)
        try:
            store = self._stores.get(name.store)
        except RefusedError as error:
            raise SqlError(f"database \"{text}\" does not exist: {error.message}", sqlstate="3D000") from error
        try:
            branch, commit = self._place(store, name.ref, principal)
        except NotFound as error:
            raise SqlError(f"database \"{text}\" does not exist: {error.message}", sqlstate="3D000",
                           hint=error.hint) from error
        if store.model.name != stores.SQL.name:
            ref = Ref(branch) if commit is None else Ref(branch, str(commit))
            return self._opened_elsewhere(text, store, branch, ref, principal)
        held = self._held(store, branch, write=commit is None and principal.scope >= TokenScope.WRITE)
        try:
            database: Database = held.store
            connection = database.connect(author=principal.name, as_of=commit)
            connection.shown_name = text
            self._mount_others(connection, name, principal)
        except BaseException:
            held.release(False)
            raise
        if commit is not None or database.session.readonly:
            connection.settings.start("default_transaction_read_only", "on")
        return OpenDatabase(text, store, branch, connection, held, self._turn(store, branch))

    def _turn(self, store: ServedStore, branch: str) -> threading.Lock:
        with self._lock:
            return self._turns.setdefault((store.name, branch), threading.Lock())

    def close(self) -> None:
        """Remove what is kept for stores that have no SQL tables of their own."""
        with self._lock:
            if self._empty is not None:
                self._empty[0].close()
                self._empty[1].cleanup()
                self._empty = None

    def _opened_elsewhere(
        self, text: str, store: ServedStore, branch: str, ref: Ref, principal: Principal
    ) -> OpenDatabase:
        """A database whose tables are those of a store of another model. Temporary tables are in an empty one."""
        with self._lock:
            if self._empty is None:
                folder = tempfile.TemporaryDirectory(prefix="ontolake-pg-")
                self._empty = open_database(f"{folder.name}/empty.db", on_error="fail"), folder
            connection = self._empty[0].connect(author=principal.name)
        connection.shown_name = text
        connection.mounted.add(PUBLIC, StoreSchema(store, principal, ref))
        if ref.commit is not None:
            connection.settings.start("default_transaction_read_only", "on")
        return OpenDatabase(text, store, branch, connection, HeldStore(None, lambda failed: None),
                            self._turn(store, branch))

    def _mount_others(self, connection: SqlConnection, name: DatabaseName, principal: Principal) -> None:
        """Show the other stores of the server as schemas, at the same time if the database is one of a time."""
        with connection.session.reading():
            taken = {schema for _, schema in connection.session.catalog().schemas}
        at = name.ref if name.ref is not None and _is_time(name.ref) else None
        for other in self._stores:
            if other.name != name.store and other.name not in taken and principal.sees_store(other.name):
                connection.mounted.add(other.name, StoreSchema(other, principal, at))

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
        return found.branch or store.first_branch, found.commit

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


def _is_time(ref: Ref) -> bool:
    return ref.branch is None and ref.commit is not None and _TIME.fullmatch(ref.commit) is not None
