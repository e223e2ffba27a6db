"""One client's connection: bytes in, messages out, from start-up to the end. For the event loop alone.

What takes time runs on a thread of the server, one step at a time; meanwhile the next messages wait in the buffer. What
takes none (a prepared query for one key, most messages of the extended protocol) is answered right here.
"""

from __future__ import annotations

import asyncio
import secrets
import struct
from collections.abc import Callable
from functools import partial
from typing import IO, TYPE_CHECKING, Any, cast

from ontolake.errors import Invalid, OntolakeError
from ontolake.server.pg import failures
from ontolake.server.pg import messages as m
from ontolake.server.pg.copying import CopyIn, CopyInput
from ontolake.server.pg.messages import ProtocolViolation
from ontolake.server.pg.scram import MECHANISM, ScramExchange
from ontolake.server.pg.sessions import BIND, CLOSE, DESCRIBE, EXECUTE, FLUSH, PARSE, SYNC, Script, WireSession
from ontolake.server.pg.startup import ClientCredential
from ontolake.sql.cancellation import CANCELED
from ontolake.sql.errors import SqlError

if TYPE_CHECKING:
    from ontolake.server.pg.listener import PgServer

_LENGTH = struct.Struct(">i")
_EXTENDED = frozenset((PARSE, BIND, DESCRIBE, EXECUTE, CLOSE, SYNC, FLUSH))
QUERY, TERMINATE, PASSWORD, COPY_DATA, COPY_DONE, COPY_FAIL, FUNCTION = b"QXpdcfF"
_AHEAD = 1 << 20
"""Bytes that a client may send ahead while it is being answered."""
_FAREWELL = 5.0
"""Seconds in which a client has to take the last message."""
_STEP = 1 << 18
"""Bytes of an answer that one step on a thread gives."""


class PgConnection(asyncio.Protocol):
    """A client."""

    def __init__(self, server: PgServer) -> None:
        self.process = server.next_process()
        self.secret = secrets.randbits(32)
        self.session: WireSession | None = None
        self._server = server
        self._loop = server.loop
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._buffer = bytearray()
        self._at = 0
        self._out: list[bytes] = []
        self._is_busy = False
        """Whether a thread works for it, or the client has to take what was sent first."""
        self._is_closed = False
        self._is_leaving = False
        """Whether the connection ends when what is under way has ended."""
        self._can_write = True
        self._is_paused = False
        self._resume: Callable[[], None] | None = None
        self._take: Callable[[int, bytes], None] = self._refuse
        """What takes the next message."""
        self._parameters: dict[str, str] | None = None
        self._credential: ClientCredential | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard: list[bytes] = []
        self._copying: tuple[Script, CopyInput] | None = None
        self._checked = 0.0
        self._script: Script | None = None
        """What runs now."""
        self._is_canceled = False

    # the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        is_first = self._transport is None
        self._transport = cast("asyncio.Transport", transport)
        if is_first:
            self._server.add(self)
            self._wait(self._server.limits.header_seconds, partial(self.end, None))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._is_busy:
            if len(self._buffer) > _AHEAD and not self._is_paused:
                self._is_paused = True
                self._transport.pause_reading()
            return
        self._pump()

    def pause_writing(self) -> None:
        self._can_write = False

    def resume_writing(self) -> None:
        self._can_write = True
        resume, self._resume = self._resume, None
        if resume is not None:
            resume()
        elif not self._is_busy:
            self._pump()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closed = True
        self._wait(None, None)
        self._server.remove(self)
        if self._copying is not None:
            self._copying[1].close()
            self._copying = None
        resume, self._resume = self._resume, None
        if resume is not None:  # the client has gone before it took its answer
            resume()
        elif self._is_busy:
            self.cancel()
        else:
            self._release()

    def _release(self, *, failed: bool = False) -> None:
        """Give up what the client has."""
        session, self.session = self.session, None
        if session is not None:
            self._server.forget(self, session)
            self._server.work(partial(session.database.close, failed=failed))

    @property
    def address(self) -> str:
        """Where the client is."""
        found = self._transport.get_extra_info("peername")
        return str(found[0]) if found else ""

    @property
    def is_encrypted(self) -> bool:
        return self._transport.get_extra_info("sslcontext") is not None

    # messages

    def _pump(self) -> None:
        """Take all messages that are there, until one needs a thread."""
        while not self._is_busy and not self._is_closed and self._can_write:
            found = self._next() if self._parameters is not None else self._next_startup()
            if found is None:
                break
            try:
                self._take(*found)
            except Exception as error:
                self._fail(error)
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        self._flush()
        if self._is_paused and not self._is_busy and self._can_write and len(self._buffer) <= _AHEAD:
            self._is_paused = False
            self._transport.resume_reading()

    def _next(self) -> tuple[int, bytes] | None:
        """The next message; None if it is not there yet."""
        found = self._peek(self._at)
        if found is None:
            return None
        kind, end = found
        body = bytes(self._buffer[self._at + 5 : end])
        self._at = end
        return kind, body

    def _peek(self, at: int) -> tuple[int, int] | None:
        """The kind of the message at a place and where it ends; None if it is not there yet."""
        buffer = self._buffer
        if len(buffer) - at < 5:
            return None
        length: int = _LENGTH.unpack_from(buffer, at + 1)[0]
        if not 4 <= length <= self._longest:
            self.end(failures.fatal("08P01", f"invalid message length {length}"))
            return None
        end = at + 1 + length
        return (buffer[at], end) if len(buffer) >= end else None

    @property
    def _longest(self) -> int:
        return self._server.limits.body if self.session is not None else m.LONGEST_STARTUP

    def _next_startup(self) -> tuple[int, bytes] | None:
        """The first message, which has no kind."""
        if len(self._buffer) < 4:
            return None
        length: int = _LENGTH.unpack_from(self._buffer)[0]
        if not 8 <= length <= m.LONGEST_STARTUP:
            self.end(failures.fatal("08P01", "invalid length of startup packet"))
            return None
        if len(self._buffer) < length:
            return None
        body = bytes(self._buffer[4:length])
        del self._buffer[:length]
        self._take = self._start
        return 0, body

    def _send(self, data: bytes) -> None:
        self._out.append(data)

    def _flush(self) -> None:
        if self._out and not self._is_closed:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            self._transport.write(data)

    def end(self, last: bytes | None) -> None:
        """Send a last message and close."""
        if self._is_closed:
            return
        self._out.append(last or b"")
        self._flush()
        self._is_closed = True
        self._transport.close()
        self._loop.call_later(_FAREWELL, self._transport.abort)

    def _fail(self, error: BaseException) -> None:
        """An error where no statement runs ends the connection."""
        if not failures.is_expected(error):
            self._server.log_failure(error)
        self.end(failures.error_response(error, fatal=True))

    def _refuse(self, kind: int, body: bytes) -> None:
        raise ProtocolViolation(f"a message of the kind {chr(kind)!r} is out of place")

    # time

    def _wait(self, seconds: float | None, then: Callable[[], None] | None) -> None:
        """Do something unless the client says something within some time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None and then is not None:
            self._timer = self._loop.call_later(seconds, then)

    def _await_client(self) -> None:
        """The client is to say what it wants next, within the time that its settings give it."""
        session = self.session
        assert session is not None
        settings = session.connection.settings
        is_idle = session.connection.status == "I"
        name = "idle_session_timeout" if is_idle else "idle_in_transaction_session_timeout"
        seconds = settings.seconds(name)
        if seconds is not None or self._timer is not None:
            state, what = ("57P05", "idle-session") if is_idle else ("25P03", "idle-in-transaction")
            self._wait(seconds, partial(self.end, failures.fatal(
                state, f"terminating connection due to {what} timeout")))  # fmt: skip

    # start-up

    def _start(self, _: int, body: bytes) -> None:
        message = m.read_startup(body)
        if message.code == m.CANCEL_REQUEST:
            self._server.cancel(message.process, message.secret)
            self.end(None)
        elif message.code in (m.SSL_REQUEST, m.GSS_REQUEST):
            self._encrypt(message.code)
        else:
            self._begin(message)

    def _encrypt(self, code: int) -> None:
        tls = self._server.tls
        if self._buffer:  # what came before the encryption is from anybody
            raise ProtocolViolation("received unencrypted data after SSL request")
        if code == m.GSS_REQUEST or tls is None or self.is_encrypted:
            self._send(b"N")
            return
        self._is_busy = True
        self._send(b"S")
        self._flush()
        self._transport.pause_reading()
        task = self._loop.create_task(self._loop.start_tls(
            self._transport, self, tls, server_side=True,
            ssl_handshake_timeout=self._server.limits.header_seconds))  # fmt: skip
        task.add_done_callback(self._encrypted)

    def _encrypted(self, task: asyncio.Task[asyncio.Transport | None]) -> None:
        if task.cancelled() or task.exception() is not None or task.result() is None:
            self._transport.abort()
            return
        self._is_busy = False
        transport = task.result()
        assert transport is not None
        self._transport = transport
        self._pump()

    def _begin(self, message: m.StartupMessage) -> None:
        if message.code >> 16 != m.PROTOCOL >> 16:
            raise SqlError(f"unsupported frontend protocol {message.code >> 16}.{message.code & 0xFFFF}: server "
                           "supports 3.0 to 3.0", sqlstate="0A000")
        self._parameters = message.parameters
        unknown = [name for name in message.parameters if name.startswith("_pq_.")]
        if message.code != m.PROTOCOL or unknown:
            self._send(m.negotiate_version(unknown))
        user = message.parameters.get("user", "")
        if not user:
            raise SqlError("no PostgreSQL user name specified in startup packet", sqlstate="28000")
        if message.parameters.get("replication", "off").lower() not in ("off", "false", "no", "0"):
            raise SqlError("replication is not supported", sqlstate="0A000")
        self._server.check_encryption(self)
        self._credential = found = self._server.credentials.find(user)
        if found is not None and found.verifier is None:
            raise SqlError(f"the token {user!r} was created before PostgreSQL's protocol was spoken here, and cannot "
                           "be used with it", sqlstate="28000", hint="create a new one: onto token create")
        verifier = self._server.mocks.of(user) if found is None or found.verifier is None else found.verifier
        self._send(m.authentication(10, m.text(MECHANISM) + b"\0"))
        self._take = partial(self._first_proof, ScramExchange(verifier), user)

    def _first_proof(self, exchange: ScramExchange, user: str, kind: int, body: bytes) -> None:
        if kind != PASSWORD:
            raise ProtocolViolation(f"expected SASL response, got message type {kind}")
        reader = m.MessageReader(body)
        mechanism, size = reader.text(), reader.long()
        if mechanism != MECHANISM:
            raise ProtocolViolation("client selected an invalid SASL authentication mechanism")
        data = reader.raw(size)
        reader.end()
        self._send(m.authentication(11, _step(exchange.first, data)))
        self._take = partial(self._final_proof, exchange, user)

    def _final_proof(self, exchange: ScramExchange, user: str, kind: int, body: bytes) -> None:
        if kind != PASSWORD:
            raise ProtocolViolation(f"expected SASL response, got message type {kind}")
        answer = _step(exchange.final, body)
        if answer is None or self._credential is None:
            self._server.note_login(self, user, ok=False)
            raise SqlError(f"password authentication failed for user \"{user}\"", sqlstate="28P01",
                           hint="the user is the name of a token, and the password its secret")
        self._send(m.authentication(12, answer) + m.AUTHENTICATION_OK)
        self._server.credentials.used(user)
        self._take = self._refuse
        self._open(self._credential, user)

    def _open(self, credential: ClientCredential, user: str) -> None:
        """Connect to the database on a thread, and begin the session."""
        assert self._parameters is not None
        self._server.check_room(self)
        self._wait(None, None)
        open_session = partial(self._server.open_session, self, credential.principal, self._parameters)
        self._work(open_session, self._opened)

    def _opened(self, found: Any, error: BaseException | None) -> None:
        if error is not None:
            assert self._credential is not None
            self._server.note_refusal(self, self._credential.principal, error)
            self._fail(error)
            return
        self.session, said = found
        assert self.session is not None
        if self._is_closed:
            self._release()
            return
        self._send(said + m.backend_key(self.process, self.secret) + self.session.ready())
        self._take = self._asked

    # statements

    def _asked(self, kind: int, body: bytes) -> None:
        """A message of a client that is connected."""
        session = self.session
        assert session is not None
        if self._timer is not None:
            self._wait(None, None)
        if kind in _EXTENDED:
            said = session.at_once(kind, body)
            if said is None:
                self._run(session.extended([(kind, body), *self._until_sync(kind)]))
                return
            self._send(said)
            if kind == SYNC:
                self._at_rest()
        elif kind == QUERY:
            sql = m.read_query(body)
            said = session.simple_at_once(sql)
            if said is None:
                self._run(session.simple(sql))
            else:
                self._send(said)
                self._at_rest()
        elif kind == TERMINATE:
            self.end(None)
        elif kind in (COPY_DATA, COPY_DONE, COPY_FAIL):
            pass  # of a COPY that has failed
        elif kind == FUNCTION:
            self._send(session.failed(SqlError("there are no functions to call in this way", sqlstate="42883",
                                               hint="SELECT the function")) + session.ready())
        else:
            raise ProtocolViolation(f"invalid frontend message type {kind}")

    def _until_sync(self, kind: int) -> list[tuple[int, bytes]]:
        """The messages of the extended protocol that are there, up to a Sync."""
        found: list[tuple[int, bytes]] = []
        while kind != SYNC:
            peeked = self._peek(self._at)
            if peeked is None or peeked[0] not in _EXTENDED:
                break
            kind = peeked[0]
            found.append((kind, bytes(self._buffer[self._at + 5 : peeked[1]])))
            self._at = peeked[1]
        return found

    def _at_rest(self) -> None:
        """A statement has ended: tell what was heard meanwhile, and see whether the connection may stay."""
        session = self.session
        if session is None:
            return
        if self._heard and session.connection.status == "I":
            self._out.extend(self._heard)
            self._heard.clear()
        if self._is_leaving:
            self.end(failures.fatal("57P01", "terminating connection due to administrator command"))
            return
        self._await_client()
        now = self._loop.time()
        if now - self._checked > 1.0:
            self._checked = now
            self._check_credential()

    def _check_credential(self) -> None:
        """End the connection of a token that was revoked or has expired."""
        before = self._credential
        assert before is not None
        if (now := self._server.credentials.find(before.principal.name)) is None or now.verifier != before.verifier:
            self.end(failures.fatal("28000", f"the token {before.principal.name!r} was revoked or has expired"))

    def _run(self, script: Script) -> None:
        """Run a script, step by step on threads."""
        try:
            give_back = self._server.slots.take(self._principal)
        except OntolakeError as error:
            self._run_here(script, error)
            return
        self._script, self._is_canceled = script, False
        self._work(partial(_steps, script, None, None), partial(self._stepped, script, give_back))

    def _run_here(self, script: Script, error: OntolakeError) -> None:
        """Answer that there is no room for a statement."""
        session = self.session
        assert session is not None
        script.close()
        self._send(session.failed(error))
        session.is_skipping = False
        self._send(session.ready())
        self._at_rest()

    @property
    def _principal(self) -> str:
        assert self._credential is not None
        return self._credential.principal.name

    def _stepped(self, script: Script, give_back: Callable[[], None], found: Any, error: BaseException | None) -> None:
        """A step has ended: send what it gave, and go on when the client has taken it."""
        if error is not None or found[1] is None or self._is_closed:
            give_back()
            self._script = None
        if error is not None:
            self._fail(error)
            return
        if self._is_closed:
            script.close()
            return
        said, what = found
        self._send(said)
        if what is None:
            self._at_rest()
        elif isinstance(what, CopyIn):
            give_back()
            self._script = None
            assert self.session is not None
            self.session.has_taken_rows = True
            self._send(what.response)
            self._copying = (script, CopyInput(self._server.limits.stream))
            self._take = self._copied
        else:
            self._flush()
            self._go_on(partial(self._next_step, script, give_back))

    def _next_step(self, script: Script, give_back: Callable[[], None]) -> None:
        stopped = SqlError(CANCELED, sqlstate="57014") if self._is_canceled else None
        self._work(partial(_steps, script, None, stopped), partial(self._stepped, script, give_back))

    def _go_on(self, step: Callable[[], None]) -> None:
        """Do a step when the client has taken what was sent."""
        self._is_busy = True
        if self._can_write:
            step()
        else:
            self._resume = step

    def _copied(self, kind: int, body: bytes) -> None:
        """A message of a client that copies rows in."""
        assert self._copying is not None
        script, data = self._copying
        if kind == COPY_DATA:
            data.write(body)
        elif kind in (COPY_DONE, COPY_FAIL):
            self._copying, self._take = None, self._asked
            error: BaseException | None = data.error
            if kind == COPY_FAIL:
                reason = m.MessageReader(body).text()
                error = SqlError(f"COPY from stdin failed: {reason}", sqlstate="57014")
            give_back: Callable[[], None] = _nothing
            try:
                give_back = self._server.slots.take(self._principal)
            except OntolakeError as refused:
                error = refused
            self._script, self._is_canceled = script, False
            self._work(partial(_steps, script, data.file(), error), partial(self._stepped, script, give_back))
        elif kind in (SYNC, FLUSH):
            pass
        else:
            self._copying, self._take = None, self._asked
            raise ProtocolViolation(f"unexpected message type {kind:#x} during COPY from stdin")

    # threads

    def _work(self, step: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """Do something on a thread, and go on with what it gave."""
        self._is_busy = True

        def worked(found: Any, error: BaseException | None) -> None:
            self._is_busy = False
            try:
                done(found, error)
            except Exception as failure:
                self._fail(failure)
            if self._is_closed and not self._is_busy:
                self._release(failed=error is not None)
            elif not self._is_busy:
                self._pump()

        self._server.work(step, worked)

    def cancel(self) -> None:
        """Make the statement that runs end."""
        if self._script is not None and not self._is_canceled:
            self._is_canceled = True
            self._interrupt(self._script)

    def _interrupt(self, script: Script) -> None:
        """Tell a statement to end until it has."""
        session = self.session
        if session is not None and self._script is script:
            session.connection.interrupt()
            self._loop.call_later(0.02, self._interrupt, script)

    def leave(self) -> None:
        """End the connection when what is under way has ended: the server ends."""
        self._is_leaving = True
        if not self._is_busy:
            self.end(failures.fatal("57P01", "terminating connection due to administrator command"))

    def hear(self, process: int, channel: str, payload: str) -> None:
        """Tell the client of a notification, when it is at rest."""
        said = m.notification(process, channel, payload)
        session = self.session
        if session is not None and not self._is_busy and session.connection.status == "I" and self._copying is None:
            self._send(said)
            self._flush()
        else:
            self._heard.append(said)


def _nothing() -> None: ...


def _step(step: Callable[[bytes], Any], data: bytes) -> Any:
    """A step of SCRAM. Raises `ProtocolViolation`."""
    try:
        return step(data)
    except Invalid as error:
        raise ProtocolViolation(f"malformed SCRAM message: {error.message}") from error


def _steps(script: Script, sent: IO[bytes] | None, thrown: BaseException | None) -> tuple[bytes, Any]:
    """Run a script until it ends, wants data, or has given a good deal. Returns what it gave, and what is next: None
    at the end, `CopyIn` if it wants data, True if there is more."""
    said: list[bytes | memoryview] = []
    size = 0
    try:
        event = script.send(sent) if thrown is None else script.throw(thrown)
        while True:
            if isinstance(event, CopyIn):
                return b"".join(said), event
            said.append(event)
            size += len(event)
            if size > _STEP:
                return b"".join(said), True
            event = next(script)
    except StopIteration:
        return b"".join(said), None
