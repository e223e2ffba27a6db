"""A connection to open SQL tables that belongs to no thread."""

from __future__ import annotations

import threading

from ontolake.errors import Invalid
from ontolake.history.operations import check_texts
from ontolake.sql.cancellation import CANCELED
from ontolake.sql.commands.cursors import Cursors
from ontolake.sql.commands.prepared import PreparedStatements
from ontolake.sql.commands.session import KeptCommands
from ontolake.sql.commands.settings import Settings
from ontolake.sql.database import Database, Version
from ontolake.sql.errors import UnsupportedError
from ontolake.sql.history.conflict_table import ConflictTable
from ontolake.sql.history.verbs import VersionedTables
from ontolake.sql.mounts import MountedSchemas
from ontolake.sql.results import Result
from ontolake.sql.sessions import Sessions
from ontolake.sql.syntax.statements import Parameters, ParsedStatement
from ontolake.sql.transactions import written_by


class SqlConnection(Database):
    """A database with a transaction, settings, prepared statements, cursors and temporary tables of its own.

    Any thread may use it, one at a time: others wait. `Database.connect` gives one. Sessions of SQLite are those of the
    database that it came from, so that an idle connection holds none.
    """

    def __init__(self, parent: Database, author: str | None = None, as_of: Version | None = None) -> None:
        check_texts(author=author)
        if parent.sessions.is_alone:
            raise UnsupportedError(f"{parent.url} has one session for all, and no connections",
                                   hint="use the database itself, or a file")
        parent.session.check_open()
        self._options, self._on_error = parent._options, parent._on_error
        self.defaults, self.running = parent.defaults, parent.running
        self.author = author
        """Who what is committed here is by, unless a call names another."""
        VersionedTables.__init__(self, parent.url, parent.branch, parent.sessions.connected())
        self.database, self._path, self.shown_name = parent.database, parent._path, parent.shown_name
        self.mounted = MountedSchemas(dict(parent.mounted.items()))
        self._kept = KeptCommands()
        self.conflicts = ConflictTable(self)
        self.as_of = as_of
        """The version or time that queries read; None for the newest."""
        self._one = threading.RLock()
        self._closed = False

    def _opened(self, url: str, branch: str, *, takeover: bool = False) -> Sessions:
        return super()._opened(url, branch, takeover=takeover).connected(owns_pool=True)

    def run(self, statement: ParsedStatement, params: Parameters, as_of: Version | None = None) -> Result:
        """As `Database.run`. Raises `Invalid` if the connection is closed."""
        with self._one:
            if self._closed:
                raise Invalid(f"the connection to {self.url} is closed", hint="connect again")
            return super().run(statement, params, self.as_of if as_of is None else as_of)

    def _dispatched(self, statement: ParsedStatement, params: Parameters, as_of: Version | None) -> Result:
        temporary = self.commands.temporary
        if as_of is self.as_of and not temporary.is_empty and temporary.takes(statement):
            return temporary.run(statement, params, past=False)  # which reads the other tables as they were
        return super()._dispatched(statement, params, as_of)

    def point(self, statement: ParsedStatement, params: Parameters) -> Result | None:
        """The answer of a prepared query that takes one look at a file of this machine; None for all others, and if
        somebody else has the session."""
        sessions = self._sessions
        if statement.prepared is None or statement.kind != "select" or self.as_of is not None or self._closed or \
                not sessions.first.is_native or not self.commands.temporary.is_empty:
            return None
        session = sessions.held.session or sessions.first
        if session.transaction is not None and session.transaction.failed:
            return None
        statement.check_parameters(params)
        return self._point(session, statement.prepared, params)

    @property
    def settings(self) -> Settings:
        """The settings of this connection."""
        return self.commands.settings

    @property
    def cursors(self) -> Cursors:
        """The cursors that DECLARE has opened here."""
        return self.commands.cursors

    @property
    def prepared(self) -> PreparedStatements:
        """The statements that PREPARE has kept here."""
        return self.commands.prepared

    @property
    def status(self) -> str:
        """The state of the transaction as PostgreSQL's protocol has it: `I` for none, `T`, and `E` for a failed one."""
        transaction = self._session.transaction
        return "I" if transaction is None else "E" if transaction.failed else "T"

    @property
    def has_written(self) -> bool:
        """Whether the open transaction has written anything."""
        transaction = self._session.transaction
        return transaction is not None and transaction.dirty

    def fail(self) -> None:
        """Let the open transaction do nothing but end, as after an error."""
        with self._one:
            self._session.fail()

    def _in_turn(self, statement: ParsedStatement, params: Parameters, as_of: Version | None) -> Result:
        with written_by(self.author):
            return super()._in_turn(statement, params, as_of)

    def _begin(self, *, reads: bool = False) -> None:
        with self._one:
            super()._begin(reads=reads)

    def _end(self, *, commit: bool) -> bool:
        with self._one, written_by(self.author):
            return super()._end(commit=commit)

    def interrupt(self) -> bool:
        """Tell the statement that runs here to end, without waiting until it has: it raises `SqlError` (57014).

        Returns whether there is one; it may have begun something else meanwhile, so tell it again in a moment.
        """
        return any(each.tell(CANCELED) for each in self.running.of(self))

    def cancel(self, thread: int | None = None) -> int:
        """Cancel the statement that another thread runs here. Returns how many there were, when they have ended."""
        mine = threading.get_ident()
        found = [each for each in self.running.of(self) if each.thread != mine and thread in (None, each.thread)]
        for each in found:
            each.cancel(CANCELED)
        return len(found)

    def close(self) -> None:
        """Give the connection up; an open transaction is rolled back. Closing twice does no harm."""
        with self._one:
            if self._closed:
                return
            self._closed = True
            if self._kept.commands is not None:
                self._kept.commands.temporary.close()
            self._sessions.close()
