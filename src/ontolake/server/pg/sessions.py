"""One client's session: its statements in the simple and the extended protocol, as messages. It knows no socket.

What a client asks becomes a generator of events: bytes to send, and now and then `CopyIn`, which is sent back the data
of the client. A generator may run on any thread, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple

from sqlglot import exp

from ontolake.server import telemetry
from ontolake.server.feeds import head_of
from ontolake.server.pg import copying, failures
from ontolake.server.pg import messages as m
from ontolake.server.pg.databases import OpenDatabase
from ontolake.server.pg.messages import ProtocolViolation
from ontolake.server.pg.notifications import COMMITS
from ontolake.server.pg.portals import Portal, Portals, WireStatement
from ontolake.server.pg.replays import TransactionScript
from ontolake.server.pg.values import encode_rows, result_columns, row_blocks, row_description
from ontolake.server.rights import Principal, check
from ontolake.server.statements import StatementUse
from ontolake.sql.errors import SerializationError, SqlSyntaxError, TransactionError
from ontolake.sql.results import Result
from ontolake.sql.syntax.statements import Parameters, ParsedStatement, name_of, parse

REPORTED = {
    "application_name": "application_name", "client_encoding": "client_encoding", "datestyle": "DateStyle",
    "default_transaction_read_only": "default_transaction_read_only", "in_hot_standby": "in_hot_standby",
    "integer_datetimes": "integer_datetimes", "intervalstyle": "IntervalStyle", "server_encoding": "server_encoding",
    "server_version": "server_version", "standard_conforming_strings": "standard_conforming_strings",
    "timezone": "TimeZone",
}  # fmt: skip
"""Settings that clients are told of whenever they change, and the names that they go by."""
PARSE, BIND, DESCRIBE, EXECUTE, CLOSE, SYNC, FLUSH = b"PBDECSH"
_QUIET = ("warning", "error", "fatal", "panic")
_ENDS = ("commit", "rollback", "rollback to")
_ALONE = ("begin", "begin read only", "commit", "rollback", "upkeep", "discard")
"""Statements that begin no transaction of several statements."""
_KNOWN = 2048
"""How many texts of statements are kept."""
_known: dict[str, ParsedStatement] = {}
"""Texts of one statement that were read before."""

Event = bytes | memoryview | copying.CopyIn
Script = Generator[Event, Any, None]


class SessionEvents(NamedTuple):
    """What a session tells the server, from whichever thread it runs on."""

    committed: Callable[[str], None]
    """A statement of a kind has committed something."""
    refused: Callable[[str, BaseException], None]
    """A statement of a kind was refused for want of rights."""
    listen: Callable[[str, Any], None]
    """Listen to a channel, from a commit on."""
    unlisten: Callable[[str | None], None]
    """End that, for a channel or for all."""
    notify: Callable[[Sequence[tuple[str, str]]], None]
    """Tell listeners."""


class WireSession:
    """The statements, portals and transaction of a client."""

    def __init__(self, database: OpenDatabase, principal: Principal, events: SessionEvents) -> None:
        self.database = database
        self.connection = database.connection
        self.portals = Portals()
        self.is_skipping = False
        """Whether an error has happened, so that nothing counts until Sync."""
        self.has_taken_rows = False
        """Whether the client was to send rows."""
        self._principal = principal
        self._events = events
        self._is_implicit = False
        """Whether the transaction is one of statements that were sent together, which no BEGIN has begun."""
        self._allowed: ParsedStatement | None = None
        """The last statement that is allowed, whatever its parameters are."""
        self._notices: list[bytes] = []
        self._notifies: list[tuple[str, str]] = []
        self._told: dict[str, str] = {}
        self._changes = -1
        self._script = TransactionScript()
        """What the transaction that is open has done."""

    # the simple protocol

    def simple(self, sql: str) -> Script:
        """Run all statements of a text, as one transaction unless they say otherwise."""
        self.has_taken_rows = False
        self.portals.portals.pop("", None)
        try:
            statements = parse(sql)
            if not self._is_named(sql, statements) and len(statements) == 1 and len(sql) < 1 << 16:
                _remember(sql, statements[0])
            for statement in statements:
                if len(statements) > 1:
                    self._begin_implicit(statement.kind)
                yield from self._answered(statement)
            if not statements:
                yield m.EMPTY_QUERY
            self._end_implicit()
        except Exception as error:
            yield self.failed(error)
        yield self.ready()

    def _answered(self, statement: ParsedStatement) -> Script:
        if statement.kind == "copy":
            yield from self._copy(statement, WireStatement(statement, statement.sql, ()))
            return
        result = self.run(statement, ())
        yield from self._take_notices()
        if result.columns:
            yield row_description(result_columns(result))
            yield from row_blocks(result)
        yield m.command_complete(tag_of(result))

    # the extended protocol

    def extended(self, messages: Sequence[tuple[int, bytes]]) -> Script:
        """Answer messages up to a Sync, or those that are there."""
        self.has_taken_rows = False
        for n, (kind, body) in enumerate(messages):
            if kind == SYNC:
                yield self.sync()
            elif not self.is_skipping:
                try:
                    if kind == EXECUTE:
                        alone = n + 1 < len(messages) and messages[n + 1][0] == SYNC
                        yield from self._execute(*m.read_execute(body), alone=alone)
                    else:
                        yield self._prepared(kind, body)
                except Exception as error:
                    yield self.failed(error)
                    self.is_skipping = True
                if self.has_taken_rows:  # a Sync that was sent before them does not count
                    self.has_taken_rows = False
                    return

    def _prepared(self, kind: int, body: bytes) -> bytes:
        """Answer any message but Execute and Sync."""
        if kind == PARSE:
            return self._parse(m.read_parse(body))
        if kind == BIND:
            return self._bind(m.read_bind(body))
        if kind == DESCRIBE:
            what, name = m.read_target(body)
            return self._describe_statement(name) if what == "S" else self._describe_portal(name)
        if kind == CLOSE:
            self.portals.close(*m.read_target(body))
            return m.CLOSE_COMPLETE
        return b""

    def _parse(self, message: m.ParseMessage) -> bytes:
        statement = _known.get(message.sql)
        if statement is None:
            statements = parse(message.sql)
            if len(statements) > 1:
                raise SqlSyntaxError("cannot insert multiple commands into a prepared statement")
            statement = statements[0] if statements else None
            if not self._is_named(message.sql, statements) and statement is not None and len(message.sql) < 1 << 16:
                _remember(message.sql, statement)
        self._check_state(statement)
        self.portals.keep(message.name, WireStatement(statement, message.sql, message.oids))
        return m.PARSE_COMPLETE

    def _bind(self, message: m.BindMessage) -> bytes:
        self._check_state(self.portals.statement(message.statement).statement)
        self.portals.bind(message, self.connection)
        return m.BIND_COMPLETE

    def _check_state(self, statement: ParsedStatement | None) -> None:
        """Raise `TransactionError` (25P02) if the transaction has failed, unless the statement ends it."""
        if self.connection.status == "E" and statement is not None and statement.kind not in _ENDS:
            raise TransactionError("current transaction is aborted, commands ignored until end of transaction block",
                                   sqlstate="25P02")

    def _describe_statement(self, name: str) -> bytes:
        found = self.portals.statement(name)
        self._check_state(found.statement)
        description = found.described(self.connection)
        rows = m.NO_DATA if description.columns is None else row_description(description.columns)
        return m.parameter_description(description.parameters) + rows

    def _describe_portal(self, name: str) -> bytes:
        if name and name not in self.portals.portals and name in self.connection.cursors.names():
            rows = self.connection.cursors.find(name).rows
            return row_description(result_columns(Result("", 0, table=rows)))
        portal = self.portals.portal(name)
        self._check_state(portal.statement.statement)
        wire = portal.statement
        if wire.gives_rows is False:
            return m.NO_DATA
        if wire.kind == "select" and portal.result is None:  # it is run next, so there is no need to plan it twice
            assert wire.statement is not None
            if not self._check_rights(wire.statement, portal.params, wire):
                portal.result = self.run(wire.statement, portal.params, wire)
        if portal.result is not None:
            return wire.row_description(portal.result, portal.formats)
        description = portal.statement.described(self.connection)
        return m.NO_DATA if description.columns is None else row_description(description.columns, portal.formats)

    def _execute(self, name: str, limit: int, *, alone: bool) -> Script:
        portal = self.portals.portal(name)
        wire = portal.statement
        if wire.statement is None:
            yield m.EMPTY_QUERY
            return
        self._check_state(wire.statement)
        if portal.is_done and portal.result is None:
            raise TransactionError(f"portal \"{name}\" cannot be run", sqlstate="55000")
        if wire.kind == "copy":
            portal.is_done = True
            yield from self._copy(wire.statement, wire)
            return
        if portal.result is None:
            if not alone:
                self._begin_implicit(wire.kind)
            portal.result = self.run(wire.statement, portal.params, wire)
            yield from self._take_notices()
        yield from self._rows(portal, limit)

    def _rows(self, portal: Portal, limit: int) -> Iterator[bytes | memoryview]:
        """The rows of a portal that are left, or some of them."""
        result = portal.result
        assert result is not None
        if not result.columns:
            portal.is_done, portal.result = True, None
            yield m.command_complete(tag_of(result))
            return
        m.check_formats(portal.formats)
        left = result.count - portal.at
        count = min(limit, left) if limit > 0 else left
        if count:
            yield from row_blocks(result, portal.formats, portal.at, count, portal.statement.columns)
        portal.at += count
        if 0 < limit == count:
            yield m.PORTAL_SUSPENDED
        else:
            is_query = result.status.startswith("SELECT ")
            yield m.command_complete(f"SELECT {count}" if is_query else tag_of(result))

    def sync(self) -> bytes:
        """End what was sent together."""
        self.is_skipping = False
        said = b""
        try:
            self._end_implicit()
        except Exception as error:
            said = self.failed(error)
        if self.connection.status == "I":
            self.portals.end_transaction()
        return said + self.ready()

    # what needs no thread

    def at_once(self, kind: int, body: bytes) -> bytes | None:
        """The answer to a message of the extended protocol that takes no time and no thread; None if it may."""
        if self.is_skipping and kind != SYNC:
            return b""
        try:
            if kind == EXECUTE:
                return self._execute_at_once(*m.read_execute(body))
            if kind == BIND:
                message = m.read_bind(body)
                statement = self.portals.statement(message.statement)
                return self._bind(message) if not message.values or statement.knows_types else None
            if kind == DESCRIBE:
                return self._describe_at_once(*m.read_target(body))
            if kind == SYNC:
                return None if self._is_implicit else self.sync()
            if kind == PARSE:
                parsed = m.read_parse(body)
                return self._parse(parsed) if parsed.sql in _known else None
            return self._prepared(kind, body)
        except Exception as error:
            self.is_skipping = True
            return self.failed(error)

    def _describe_at_once(self, what: str, name: str) -> bytes | None:
        if what == "S":
            statement = self.portals.statement(name)
            return self._describe_statement(name) if statement.is_described else None
        portal = self.portals.portals.get(name)
        if portal is None or portal.result is not None or portal.statement.gives_rows is False:
            return self._describe_portal(name)
        if not self._is_point(portal):
            return None
        return self._describe_portal(name)

    def _execute_at_once(self, name: str, limit: int) -> bytes | None:
        portal = self.portals.portals.get(name)
        if portal is None or limit or (portal.result is None and not self._is_point(portal)):
            return None
        result = portal.result
        if result is None or result.count > 100 or portal.at or not result.columns:
            return None
        portal.at = result.count
        return encode_rows(result, portal.formats, columns=portal.statement.columns) + m.command_complete(result.status)

    def _is_point(self, portal: Portal) -> bool:
        """Run a query that takes one look at a key. Returns whether it is one, and its answer is there."""
        statement = portal.statement.statement
        if statement is None or statement.prepared is None or not portal.statement.is_allowed:
            return False
        portal.result = self.connection.point(statement, portal.params)
        if portal.result is not None and self.connection.status == "T":
            self._script.add(statement, portal.params, portal.result)
        return portal.result is not None

    def simple_at_once(self, sql: str) -> bytes | None:
        """The answer to a text that is a query for one key, and was run before; None for all others."""
        statement = _known.get(sql)
        if statement is None or statement.prepared is None or self._allowed is not statement:
            return None
        result = self.connection.point(statement, ())
        if result is None:
            return None
        if self.connection.status == "T":
            self._script.add(statement, (), result)
        return (row_description(result_columns(result)) + encode_rows(result) + m.command_complete(result.status)
                + self.ready())

    # statements

    def run(self, statement: ParsedStatement, params: Parameters, wire: WireStatement | None = None) -> Result:
        """Run a statement, if the client may. Raises `SqlError`, `ForbiddenError`."""
        self._check_state(statement)
        kind, connection = statement.kind, self.connection
        writes = self._check_rights(statement, params, wire)
        if kind in _CONTROLLED:
            return _CONTROLLED[kind](self, statement)
        before = connection.status
        if writes:
            self._check_writable(kind)
        result = connection.run(statement, params)
        if before == "T":
            self._script.add(statement, params, result)
        if writes and before == "I" and not self._is_implicit:
            self._events.committed(kind)
        if result.notices and connection.settings.get("client_min_messages") not in _QUIET:
            self._notices += map(failures.notice, result.notices)
        return result

    def _check_rights(self, statement: ParsedStatement, params: Parameters, wire: WireStatement | None) -> bool:
        """Whether a statement writes. Raises `ForbiddenError`."""
        if wire is not None and wire.is_allowed:
            return wire.writes
        use = StatementUse(self.database.store, [statement], params, self.database.branch, self._prepared_as)
        try:
            for touch in use.touches:
                check(self._principal, self.database.store.name, touch)
        except Exception as error:
            self._events.refused(statement.kind, error)
            raise
        if wire is not None:
            wire.is_allowed, wire.writes = use.is_fixed, use.writes
        self._allowed = statement if use.is_fixed else None
        return use.writes

    def _check_writable(self, kind: str) -> None:
        """Raise `TransactionError` (25006) for a database of the past, or one that is served to be read."""
        is_past = self.connection.as_of is not None
        if is_past or self.connection.session.readonly:
            why = "is of the past" if is_past else "is read-only here"
            raise TransactionError(f"cannot execute {kind.upper()}: the database {self.database.name} {why}",
                                   sqlstate="25006", hint=f"connect to {self.database.store.name}" if is_past else None)

    def _is_named(self, sql: str, statements: Sequence[ParsedStatement]) -> bool:
        """Whether statements name tables with the database that the client is connected to, as `shop.public.item`.
        That part is taken off: within the store the database may be called otherwise."""
        name = self.database.name
        if name.lower() not in sql.lower():
            return False
        found = [table for statement in statements if statement.tree is not None
                 for table in statement.tree.find_all(exp.Table) if name_of(table.args.get("catalog")) == name]
        if found:
            with self.connection.session.reading():
                if name in self.connection.session.catalog().databases:
                    return False
            for table in found:
                table.set("catalog", None)
        return bool(found)

    def _prepared_as(self, name: str) -> ParsedStatement:
        return self.connection.prepared.find(name).statement

    def _begin(self, statement: ParsedStatement) -> Result:
        if self.connection.status == "I":
            self._script = TransactionScript()
            return self.connection.run(statement, ())
        if self._is_implicit:
            self._is_implicit = False
        else:
            self._notices.append(failures.notice("there is already a transaction in progress", severity="WARNING",
                                                 sqlstate="25001"))
        return Result("BEGIN", 0)

    def _end(self, statement: ParsedStatement) -> Result:
        connection = self.connection
        if connection.status == "I" or self._is_implicit:
            self._notices.append(failures.notice("there is no transaction in progress", severity="WARNING",
                                                 sqlstate="25P01"))
        if connection.status == "I":
            return Result(statement.kind.upper(), 0)
        self._is_implicit = False
        try:
            wrote = connection.has_written
            try:
                result = connection.run(statement, ())
            except SerializationError:
                again = self._script.run(connection, (_BEGIN, _COMMIT, _ROLLBACK), self.database.turn)
                if again is None:
                    raise
                result = again
        finally:
            self.portals.end_transaction()
            notifies, self._notifies = self._notifies, []
        if result.status == "COMMIT":
            if wrote:
                self._events.committed("commit")
            self._tell(notifies)
        return result

    def _begin_implicit(self, kind: str) -> None:
        """Begin the transaction of statements that were sent together."""
        if self.connection.status == "I" and kind not in _ALONE:
            self._script = TransactionScript()
            self.connection.run(_BEGIN, ())
            self._is_implicit = True

    def _end_implicit(self) -> None:
        if self._is_implicit:
            self._is_implicit = False
            self._end(_COMMIT)

    def _deallocate(self, statement: ParsedStatement) -> Result:
        name = statement.names[0] if statement.names else None
        if name is None:
            self.portals.statements.clear()
        elif name in self.portals.statements:
            self.portals.close("S", name)
            return Result("DEALLOCATE", 0)
        return self.connection.run(statement, ())

    def _discard(self, statement: ParsedStatement) -> Result:
        done = self.connection.run(statement, ())
        if statement.names[0] == "all":
            self.portals.statements.clear()
            self._events.unlisten(None)
        return done

    def _listen(self, statement: ParsedStatement) -> Result:
        name, place = statement.names[0], self.database
        if statement.kind == "unlisten":
            self._events.unlisten(None if name == "*" else name)
        else:
            self._events.listen(name, head_of(place.store, place.branch) if name == COMMITS else None)
        return Result(statement.kind.upper(), 0)

    def _notify(self, statement: ParsedStatement) -> Result:
        said = (statement.names[0], statement.options["payload"])
        if self.connection.status == "I":
            self._tell([said])
        elif said not in self._notifies:
            self._notifies.append(said)
        return Result("NOTIFY", 0)

    def _tell(self, said: Sequence[tuple[str, str]]) -> None:
        if said:
            self._events.notify(said)

    # COPY

    def _copy(self, statement: ParsedStatement, wire: WireStatement) -> Script:
        self._check_state(statement)
        if self._check_rights(statement, (), wire):
            self._check_writable("copy")
        before = self.connection.status
        self._script.give_up()
        count = yield from copying.copy(self.connection, statement)
        if statement.options["into"] and before == "I":
            self._events.committed("copy")
        yield from self._take_notices()
        yield m.command_complete(f"COPY {count}")

    # what is said besides

    def failed(self, error: BaseException) -> bytes:
        """What is said of an error, which fails the transaction."""
        if not failures.is_expected(error):
            telemetry.failures.error("a statement failed", exc_info=error, extra={"fields": {
                "database": self.database.name, "token": self._principal.name}})  # fmt: skip
        try:
            if self._is_implicit:
                self._is_implicit = False
                self.connection.run(_ROLLBACK, ())
                self.portals.end_transaction()
            elif not isinstance(error, ProtocolViolation) or self.connection.status == "T":
                self.connection.fail()
        except Exception as another:
            telemetry.failures.error("a transaction was not ended", exc_info=another)
        said = b"".join(self._take_notices())
        return said + failures.error_response(error)

    def _take_notices(self) -> Iterator[bytes]:
        said, self._notices = self._notices, []
        return iter(said)

    def ready(self) -> bytes:
        """What settings have become, and ReadyForQuery."""
        return self.changed_settings() + m.READY[self.connection.status]

    def changed_settings(self) -> bytes:
        """ParameterStatus of settings that have changed since this was last told."""
        settings = self.connection.settings
        if settings.changes == self._changes:
            return b""
        self._changes = settings.changes
        said = b""
        for name, shown in REPORTED.items():
            value = settings.get(name)
            if self._told.get(name) != value:
                said += m.parameter_status(shown, value)
                self._told[name] = value
        return said


def tag_of(result: Result) -> str:
    """What a statement did, as PostgreSQL says it."""
    status = result.status
    return f"INSERT 0 {result.count}" if status.startswith("INSERT ") else _TAGS.get(status, status)


_TAGS = {"ROLLBACK TO": "ROLLBACK"}


def _remember(sql: str, statement: ParsedStatement) -> None:
    if len(_known) >= _KNOWN:
        _known.clear()
    _known[sql] = statement


_BEGIN, _COMMIT, _ROLLBACK = (parse(word)[0] for word in ("BEGIN", "COMMIT", "ROLLBACK"))
_CONTROLLED: dict[str, Callable[[WireSession, ParsedStatement], Result]] = {
    "begin": WireSession._begin, "begin read only": WireSession._begin, "commit": WireSession._end,
    "rollback": WireSession._end, "deallocate": WireSession._deallocate, "discard": WireSession._discard,
    "listen": WireSession._listen, "unlisten": WireSession._listen, "notify": WireSession._notify,
}  # fmt: skip
"""Statements that concern more than the connection to the tables."""
